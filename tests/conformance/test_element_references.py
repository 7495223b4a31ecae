"""InterlockedAdd and the like of elements of plain arrays, ``InterlockedAdd(t[i], x)``: against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.conformance.test_atomics import bins, has
from tests.depth import needs, one_device, sampled

pytestmark = one_device

INTEGERS = ("int", "uint", "int64_t", "uint64_t")
SCALARS = (*INTEGERS, "float", "double")
VECTORS = ("float2", "float3", "float4", "half2", "half3", "int2", "uint4", "double3")
CONTAINERS = ("RWTensor<{}, 1>", "NDBuffer<{}, 1>", "RWStructuredBuffer<{}>")


def module_of(device: spy.Device, text: str) -> spy.Module:
    return spy.Module.load_from_source(device, f"element_references_{abs(hash(text))}", text)


@sampled(20)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("element", [*SCALARS, "half"])
def test_sums(device: spy.Device, element: str, container: str) -> None:
    has(device, element)
    whole = container.format(element)
    text = (
        f"void plus(int at, {element} x, {whole} t)\n"
        f"{{ {element} old; InterlockedAdd(t[at], x); InterlockedAdd(t[at], x, old); InterlockedAdd(t[0], 1); }}"
    )
    if "pointers" not in device.caps.features:
        with pytest.raises(spy.CompileError, match=r"by methods, such as t\.add\(i, value\)"):
            module_of(device, text)
        return
    module = module_of(device, text)
    # Sums of these are exact in any order, in half too.
    where, x = bins(300, 7), (np.arange(300) % 4).astype(NUMPY_OF[element])
    want = np.zeros(7, x.dtype)
    np.add.at(want, where, 2 * x)
    want[0] += 300
    t = spy.Tensor.zeros(device, 7, element)
    module.plus(where, spy.Tensor.from_numpy(device, x), t)
    np.testing.assert_array_equal(t.to_numpy(), want)


@needs("pointers")
@sampled(17)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("element", SCALARS)
def test_the_other_functions(device: spy.Device, element: str, container: str) -> None:
    has(device, element)
    whole, bits = container.format(element), element in INTEGERS
    module = module_of(
        device,
        f"void others({element} x, {whole} t, out {element} before[2])\n"
        "{ InterlockedMin(t[0], x); InterlockedMax(t[1], x); InterlockedExchange(t[2], x, before[0]);\n"
        "  InterlockedCompareExchange(t[3], x, x + 1, before[1]); InterlockedCompareStore(t[4], x, x + 2);\n"
        + ("InterlockedAnd(t[5], 6); InterlockedOr(t[6], 4); InterlockedXor(t[7], 1); }" if bits else "}"),
    )
    t = spy.Tensor.from_numpy(device, np.array([9, 1, 3, 5, 5, 3, 3, 3], NUMPY_OF[element]))
    before = spy.Tensor.zeros(device, (), f"{element}[2]")
    module.others(5, t, before)
    np.testing.assert_array_equal(t.to_numpy(), [5, 5, 5, 6, 7, *([2, 7, 2] if bits else [3, 3, 3])])
    np.testing.assert_array_equal(before.to_numpy(), [3, 5])


@needs("pointers")
@sampled(22)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("element", VECTORS)
def test_vectors_and_their_components(device: spy.Device, element: str, container: str) -> None:
    """Vectors lie in arrays without padding; what writes to one component leaves the others alone."""
    scalar, count = element[:-1], int(element[-1])
    has(device, scalar)
    whole = container.format(element)
    module = module_of(
        device,
        f"void plus(int at, {element} x, {whole} t)\n"
        f"{{ {element} old; InterlockedAdd(t[at], x); InterlockedAdd(t[at], x, old); }}\n"
        f"void second(int at, {scalar} x, {whole} t) {{ InterlockedAdd(t[at].y, x); }}\n"
        f"void twice(inout {scalar} x) {{ x *= 2; }}\n"
        f"void put(int at, {scalar} x, {whole} t)\n"
        "{ t[at].x = x; t[at].y += x; t[at].yx = t[at].xy; twice(t[at].x); t[at][1] += 1; t[at] *= 2; }",
    )
    where = bins(300, 5)
    x = np.random.default_rng(2).integers(0, 4, (300, count)).astype(NUMPY_OF[scalar])
    want = np.zeros((5, count), x.dtype)
    np.add.at(want, where, 2 * x)
    t = spy.Tensor.zeros(device, 5, element)
    module.plus(where, spy.Tensor.from_numpy(device, x, element), t)
    np.testing.assert_array_equal(t.to_numpy(), want)
    np.add.at(want[:, 1], where, x[:, 0])
    module.second(where, spy.Tensor.from_numpy(device, x[:, 0].copy()), t)
    np.testing.assert_array_equal(t.to_numpy(), want)
    module.put(np.arange(5, dtype=np.int32), x[:5, 0].copy(), t)
    want[:, 0], want[:, 1] = want[:, 1] + x[:5, 0], x[:5, 0]
    want[:, 0] *= 2
    want[:, 1] += 1
    np.testing.assert_array_equal(t.to_numpy(), 2 * want)


@needs("pointers")
def test_indices_of_each_kind_and_views(device: spy.Device) -> None:
    module = module_of(
        device,
        "void two(int2 at, RWTensor<int, 2> t)\n"
        "{ int index[2] = { at.y, at.x }; InterlockedAdd(t[at], 1); InterlockedAdd(t[at.y, at.x], 10);\n"
        "  InterlockedAdd(t[index], 100); }",
    )
    inside = module_of(
        device,
        "struct Bins { RWTensor<int, 2> counts; void add(int2 at) { InterlockedAdd(counts[at], 1); } }\n"
        "void inside(int2 at, RWTensor<int, 2> t) { Bins bins; bins.counts = t; bins.add(at); }",
    )
    t = spy.Tensor.zeros(device, (3, 8), "int")
    view = t[::-1, ::2]
    module.two(spy.grid((3, 4)), view)
    np.testing.assert_array_equal(t.to_numpy(), np.tile([111, 0], (3, 4)))
    inside.inside(np.array([[1, 2], [1, 2]], np.int32), view)
    want = np.full((3, 4), 111)
    want[2, 1] += 2
    np.testing.assert_array_equal(view.to_numpy(), want)


@needs("pointers")
def test_a_function_of_a_user_that_takes_a_reference(device: spy.Device) -> None:
    module = module_of(
        device,
        "void more(__ref float x) { x += 1; }\nvoid f(int i, RWTensor<float, 1> t) { more(t[i]); t[i].x *= 2; }\n"
        "void g<let M : int>(int i, RWTensor<vector<float, M>, 1> t) { InterlockedAdd(t[i], vector<float, M>(1)); }\n"
        "void pairs(int i, RWTensor<float2, 1> t) { g(i, t); }",
    )
    t = spy.Tensor.arange(device, 4.0)
    module.f(np.arange(4, dtype=np.int32), t)
    np.testing.assert_array_equal(t.to_numpy(), [2, 4, 6, 8])
    pairs = spy.Tensor.zeros(device, 2, "float2")
    module.pairs(np.array([0, 1, 1], np.int32), pairs)
    np.testing.assert_array_equal(pairs.to_numpy(), [[1, 1], [2, 2]])


@needs("pointers")
def test_debug_devices_check_indices(backend_name: str, device: spy.Device) -> None:
    """What is outside changes nothing, and is reported."""
    checked = spy.Device(backend_name, debug=True)
    module = module_of(
        checked,
        "void f(int at, RWTensor<float4, 1> t) { InterlockedAdd(t[at], float4(1)); }\n"
        "void g(int at, RWTensor<float4, 1> t) { t[at].x += 1; }",
    )
    t = spy.Tensor.zeros(checked, 8, "float4")
    for name in ("f", "g"):
        with pytest.raises(spy.OutOfBoundsError, match="outside"):
            module[name](np.array([0, 9, -1], np.int32), t[:4])
            checked.wait()
    want = np.zeros((8, 4))
    want[0] = [2, 1, 1, 1]
    np.testing.assert_array_equal(t.to_numpy(), want)


@needs("groups")
def test_shared_memory_keeps_slangs_own(device: spy.Device) -> None:
    """Integers and sums of floats work there; what the device cannot do is refused, where a driver would crash."""
    kernel = """
groupshared {0} total;
[shader("compute")] [numthreads(64, 1, 1)]
void f(uint thread : SV_GroupIndex, RWTensor<{0}, 1> t)
{{
    if (thread == 0)
        total = {0}(3);
    GroupMemoryBarrierWithGroupSync();
    {0} before;
    Interlocked{1}(total, {0}(2), before);
    GroupMemoryBarrierWithGroupSync();
    if (thread == 0)
        t[0] = total;
}}
"""
    wanted = [("int", "Add", 131), ("uint", "Min", 2)]
    if device.name in ("cuda", "vulkan"):
        wanted += [("float", "Add", 131), ("float", "Exchange", 2)]  # HLSL has none, and --texts writes it
    for element, name, want in wanted:
        t = spy.Tensor.zeros(device, 1, element)
        module_of(device, kernel.format(element, name)).f.dispatch([64, 1, 1], t=t)
        assert t.to_numpy()[0] == want
    if device.name == "vulkan":
        module = module_of(device, kernel.format("float", "Min"))
        with pytest.raises(spy.UnsupportedError, match="that this device has for integers alone"):
            module.f.dispatch([64, 1, 1], t=spy.Tensor.zeros(device, 1))


@needs("pointers")
def test_gradients_beside_them(device: spy.Device) -> None:
    module = module_of(
        device,
        "void put(float x, RWTensor<float2, 1> t) { InterlockedAdd(t[0], float2(x)); t[1].x = x; }\n"
        "[Differentiable] float f(float x, RWTensor<float2, 1> t) { put(detach(x), t); return x * x; }",
    )
    x = spy.Tensor.from_numpy(device, np.full(5, 3, np.float32)).with_grads()
    y = spy.Tensor.zeros(device, 5).with_grads(grad_in=spy.Tensor.full(device, 5, 1.0))
    t = spy.Tensor.zeros(device, 2, "float2")
    module.f.bwds(x, t, _result=y)
    np.testing.assert_array_equal(x.grad.to_numpy(), np.full(5, 6))
    np.testing.assert_array_equal(t.to_numpy(), [[15, 15], [3, 0]])


@needs("pointers")
def test_a_differentiated_function_with_such_a_call_is_explained(device: spy.Device) -> None:
    text = "[Differentiable] float f(float x, RWTensor<int, 1> t) { InterlockedAdd(t[0], 1); return x * x; }"
    x = spy.Tensor.zeros(device, 5).with_grads()
    y = spy.Tensor.zeros(device, 5).with_grads(grad_in=spy.Tensor.full(device, 5, 1.0))
    with pytest.raises(spy.CompileError) as error:
        module_of(device, text).f.bwds(x, spy.Tensor.zeros(device, 1, "int"), _result=y)
    assert "InterlockedAdd(t[0], 1)" in str(error.value) and "github" not in str(error.value)
    assert str(error.value).endswith("put the call into a function of its own that is not [Differentiable].")

"""Atomic operations on elements of arrays, as methods: against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import sampled

SCALARS = ("int", "uint", "int64_t", "uint64_t", "float", "double", "half")
VECTORS = ("float2", "float3", "float4", "half2", "half3", "int2", "uint4")


def module_of(device: spy.Device, text: str) -> spy.Module:
    return spy.Module.load_from_source(device, f"atomics_{abs(hash(text))}", "import slangpy_rt;\n" + text)


def bins(count: int, size: int) -> npt.NDArray[np.int32]:
    return np.random.default_rng(1).integers(0, size, count).astype(np.int32)


def has(device: spy.Device, element: str) -> None:
    if element.rstrip("234") not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {element}")


@sampled(15)
@pytest.mark.parametrize("element", SCALARS + VECTORS)
def test_additions(device: spy.Device, element: str) -> None:
    has(device, element)
    module = module_of(
        device,
        f"void count(int bin, {element} x, RWTensor<{element}, 1> t) {{ t.add(bin, x); }}\n"
        f"void counted(int bin, {element} x, RWStructuredBuffer<{element}> t) {{ t.add(bin, x); }}",
    )
    where = bins(3000, 7)
    dims = (int(element[-1]),) if element[-1] in "234" and element not in SCALARS else ()
    # Sums of these are exact in any order, in half too.
    scalar = element.rstrip("234") if dims else element
    x = np.random.default_rng(2).integers(0, 4, (3000, *dims)).astype(NUMPY_OF[scalar])
    want = np.zeros((7, *dims), x.dtype)
    np.add.at(want, where, x)
    for name in ("count", "counted"):
        t = spy.Tensor.zeros(device, 7, element)
        module[name](where, spy.Tensor.from_numpy(device, x, element), t)
        np.testing.assert_array_equal(t.to_numpy(), want)


@sampled(4)
@pytest.mark.parametrize("element", SCALARS[:-1])
def test_extremes_and_exchanges(device: spy.Device, element: str) -> None:
    has(device, element)
    module = module_of(
        device,
        f"void least(int bin, {element} x, RWTensor<{element}, 1> t) {{ t.min(bin, x); }}\n"
        f"void most(int bin, {element} x, NDBuffer<{element}, 1> t) {{ t.max(bin, x); }}\n"
        f"{element} put(int bin, {element} x, RWStructuredBuffer<{element}> t) {{ return t.exchange(bin, x); }}\n"
        f"{element} swap({element} x, RWTensor<{element}, 1> t)"
        f"{{ return t.compareExchange(0, {element}(0), x); }}",
    )
    where, dtype = bins(2000, 5), NUMPY_OF[element]
    x = np.random.default_rng(3).integers(0 if dtype.kind == "u" else -900, 900, 2000).astype(dtype)
    for name, of, start in (("least", np.minimum, 1000), ("most", np.maximum, -1000 if dtype.kind != "u" else 0)):
        want = np.full(5, start, dtype)
        of.at(want, where, x)
        t = spy.Tensor.from_numpy(device, np.full(5, start, dtype))
        module[name](where, x, t)
        np.testing.assert_array_equal(t.to_numpy(), want)
    # Each value is put once, so that all of them are seen once, but for those that stay.
    unique = np.arange(1, 1001).astype(dtype)
    t = spy.Tensor.zeros(device, 3, element)
    seen = module.put(bins(1000, 3), unique, t, _result="numpy")
    np.testing.assert_array_equal(np.sort(np.concatenate([seen, t.to_numpy()])), np.sort([*unique, 0, 0, 0]))
    t = spy.Tensor.zeros(device, 1, element)
    seen = module.swap(unique, t, _result="numpy")
    (won,) = t.to_numpy()
    assert won in unique and (seen == 0).sum() == 1 and (seen[seen != 0] == won).all()


@sampled(6)
@pytest.mark.parametrize("element", SCALARS[:4])
def test_bits(device: spy.Device, element: str) -> None:
    has(device, element)
    module = module_of(
        device,
        "".join(
            f"void {name}_all({element} x, RWTensor<{element}, 1> t) {{ t.{name}(0, x); }}\n"
            for name in ("and", "or", "xor")
        ),
    )
    x = np.random.default_rng(4).integers(0, 2**31 - 1, 500).astype(NUMPY_OF[element])
    for name, of, start in (("and", np.bitwise_and, -1), ("or", np.bitwise_or, 0), ("xor", np.bitwise_xor, 0)):
        values = x | ~x.dtype.type(7) if name == "and" else x
        first = np.array([start]).astype(x.dtype)
        t = spy.Tensor.from_numpy(device, first)
        module[f"{name}_all"](values, t)
        assert t.to_numpy()[0] == of.reduce(values, initial=first[0])


def test_generic_functions(device: spy.Device) -> None:
    module = module_of(
        device,
        """
void into<T : IElement, let N : int>(RWTensor<T, N> t, int at[N], T x) { t.add(at, x); }
void f(int i, RWTensor<float, 1> t) { int at[1] = { i % 2 }; into(t, at, 1.0); }
""",
    )
    t = spy.Tensor.zeros(device, 2)
    module.f(np.arange(10, dtype=np.int32), t)
    np.testing.assert_array_equal(t.to_numpy(), [5, 5])


def test_indices(device: spy.Device) -> None:
    module = module_of(
        device,
        """
void one(RWTensor<int, 1> t, int i) { t.add(i, 1); int at[1] = { i }; t.add(at, 10); }
void two(RWTensor<int, 2> t, int i, int j) { t.add(i, j, 1); t.add(int2(j, i), 10); t.compareExchange(i, j, 11, 5); }
void three(RWTensor<int, 3> t, int i, int j, int k) { t.max(i, j, k, 4); t.add(int3(k, j, i), 10); }
""",
    )
    for name, at in (("one", (3,)), ("two", (1, 2)), ("three", (0, 1, 2))):
        shape = (4, 3, 5)[: len(at)]
        t = spy.Tensor.zeros(device, shape, "int")
        module[name](t, *at)
        want = np.zeros(shape, np.int32)
        want[at] = {"one": 11, "two": 5, "three": 14}[name]
        np.testing.assert_array_equal(t.to_numpy(), want)
        # Views are changed where they lie.
        wide = spy.Tensor.zeros(device, tuple(2 * n for n in shape), "int")
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        module[name](view, *at)
        np.testing.assert_array_equal(view.to_numpy(), want)
        assert wide.to_numpy().sum() == want.sum()


def test_bytes(device: spy.Device) -> None:
    module = module_of(
        device,
        """
uint step(uint x, RWByteAddressBuffer b)
{
    uint before;
    b.InterlockedAdd(4, x, before);
    b.InterlockedMax(8, x);
    b.InterlockedMin(12, x);
    b.InterlockedOr(16, x);
    return before;
}
void swap(RWByteAddressBuffer b)
{
    uint before;
    b.InterlockedCompareExchange(0, 7, 8, before);
    b.InterlockedExchange(4, before);
}
""",
    )
    x = np.arange(1, 101, dtype=np.uint32)
    b = spy.Tensor.from_numpy(device, np.array([7, 0, 0, 1000, 0], np.uint32))
    seen = module.step(x, b, _result="numpy")
    np.testing.assert_array_equal(b.to_numpy(), [7, 5050, 100, 1, 127])
    assert len(set(seen.tolist())) == 100
    module.swap(b)
    np.testing.assert_array_equal(b.to_numpy()[:2], [8, 7])


def test_particles_to_a_grid(device: spy.Device) -> None:
    module = module_of(
        device,
        """
void splat(float2 at, float2 velocity, RWTensor<float2, 2> grid)
{
    let corner = int2(floor(at));
    let part = at - corner;
    for (int dy = 0; dy < 2; ++dy)
        for (int dx = 0; dx < 2; ++dx)
        {
            let weight = (dx == 0 ? 1 - part.x : part.x) * (dy == 0 ? 1 - part.y : part.y);
            grid.add(corner + int2(dx, dy), velocity * weight);
        }
}
""",
    )
    rng = np.random.default_rng(5)
    at = (rng.random((4000, 2)) * 6).astype(np.float32)
    velocity = rng.standard_normal((4000, 2)).astype(np.float32)
    grid = spy.Tensor.zeros(device, (8, 8), "float2")
    module.splat(spy.Tensor.from_numpy(device, at, "float2"), spy.Tensor.from_numpy(device, velocity, "float2"), grid)
    want = np.zeros((8, 8, 2))
    corner = np.floor(at).astype(int)
    part = at.astype("d") - corner
    for dy in (0, 1):
        for dx in (0, 1):
            weight = np.where(dx, part[:, 0], 1 - part[:, 0]) * np.where(dy, part[:, 1], 1 - part[:, 1])
            np.add.at(want, (corner[:, 1] + dy, corner[:, 0] + dx), velocity * weight[:, None])
    np.testing.assert_allclose(grid.to_numpy(), want, 0, 1e-4)


def test_elements_without_such_operations(device: spy.Device) -> None:
    texts: list[tuple[str, Any]] = [
        (
            "void f(RWTensor<half, 1> t) { t.exchange(0, half(1)); }",
            "exchange and compareExchange take scalars of 32",
        ),
        ("void f(RWTensor<int16_t, 1> t) { t.add(0, int16_t(1)); }", "add takes numbers of 32 or 64 bits"),
        ("void f(RWTensor<int8_t2, 1> t) { t.add(0, int8_t2(1)); }", "add takes numbers of 32 or 64 bits"),
        ("void f(RWTensor<float, 1> t) { t.xor(0, 1.0); }", "and, or and xor take integers"),
        (
            "struct S { int x; }\nvoid f(RWTensor<S, 1> t) { S s = { 1 }; t.add(0, s); }",
            "Structs are not changed atomically",
        ),
        ("void f(RWTensor<int, 2> t) { t.add(0, 1); }", "takes as many indices as it has dimensions"),
    ]
    for text, message in texts:
        if text.partition("<")[2].partition(",")[0].rstrip("2") not in (*device.caps.scalars, "S"):
            continue
        with pytest.raises(spy.SlangPyRtError, match=message):
            module = module_of(device, text)
            shape = (2, 2) if ", 2>" in text else 2
            element = module["S"] if "struct" in text else text.partition("<")[2].partition(",")[0]
            module.f(spy.Tensor.zeros(device, shape, element))


def test_references_to_elements_are_explained(device: spy.Device) -> None:
    """Those that lead into structs, whose layout is not the same everywhere."""
    for text in (
        "struct S { int a; }; void f(RWTensor<S, 1> t) { InterlockedAdd(t[0].a, 1); }",
        "struct S { uint a; }; void f(RWStructuredBuffer<S> t) { uint old; InterlockedMax(t[0].a, 1, old); }",
    ):
        with pytest.raises(spy.CompileError, match=r"they are changed by methods, such as t\.add\(i, value\)"):
            module_of(device, text)


def test_a_function_that_is_differentiated(device: spy.Device) -> None:
    module = module_of(
        device, "[Differentiable] float f(float x, RWTensor<float, 1> t) { t.add(0, detach(x)); return x * x; }"
    )
    x = spy.Tensor.from_numpy(device, np.arange(5, dtype=np.float32)).with_grads()
    y = spy.Tensor.zeros(device, 5).with_grads(grad_in=spy.Tensor.full(device, 5, 1.0))
    t = spy.Tensor.zeros(device, 1)
    module.f.bwds(x, t, _result=y)
    np.testing.assert_array_equal(x.grad.to_numpy(), [0, 2, 4, 6, 8])
    assert t.to_numpy()[0] == 10

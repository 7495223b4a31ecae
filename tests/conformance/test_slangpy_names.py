"""``import slangpy;`` in Slang: SlangPy's names of tensors, whose loads and stores SlangPy itself is asked about."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import one_device

# What these test depends little on the device.
pytestmark = one_device

# What both packages compile. Each function takes a tensor of (2, 3) numbers, `t`, and those that write one, `o`.
SHARED = """
import slangpy;
float element(ITensor<float, 2> t, int2 p) { return t[p] + 10 * t.load(p.y, p.x); }
float integers(ITensor<float, 2> t, uint2 p) { uint index[2] = { p.y, p.x }; return t[index] + t[p] + t[p.y, p.x]; }
float inner(Tensor<float, 2> t, int2 p) { return element(t, p); }
float row(ITensor<float, 1> t) { return t[0] + t.load(2); }
void both(IRWTensor<float, 2> o, int2 p) { o[p] = o.load(p.y, p.x) + 1; o.store(p.y, p.x, o[p] * 2); }
void written(IWTensor<float, 2> o, int2 p) { o.store(p.y, p.x, p.x + 10 * p.y); }
void whole(WTensor<float, 2> o, int2 p) { o[p] = p.x - p.y; }
[Differentiable] void squared(IDiffTensor<float, 2> t, IWDiffTensor<float, 2> o, int2 p)
{
    float x = t.load(p.y, p.x);
    o.store(p.y, p.x, x * x * t[p]);
}
[Differentiable] void once(DiffTensor<float, 2> t, WDiffTensor<float, 2> o, int2 p)
{
    float x = t.load_once(p);
    o[p] = x * x;
}
"""
PLACES = np.array([[x, y] for y in range(2) for x in range(3)], np.int32)
# SlangPy's answers, in one process for all tests. It has arrays of int2 as tensors, not as NumPy arrays.
ORACLE = """
import sys
import numpy as np
import slangpy as spy

text, path = sys.argv[1:]
device = spy.create_device(type=spy.DeviceType.vulkan)
module = spy.Module.load_from_source(device, "shared", text)
t = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
tensor = lambda array: spy.Tensor.from_numpy(device, np.ascontiguousarray(array, dtype=np.float32))
def places(kind):
    found = spy.Tensor.empty(device, (6,), kind)
    scalar = {"int2": np.int32, "uint2": np.uint32}[kind]
    found.copy_from_numpy(np.array([[x, y] for y in range(2) for x in range(3)], dtype=scalar))
    return found
out = {}
for name, kind in (("element", "int2"), ("integers", "uint2"), ("inner", "int2")):
    out[name] = module.require_function(name)(tensor(t), places(kind)).to_numpy()
out["row"] = module.row(tensor(t)).to_numpy()
for name in ("both", "written", "whole"):
    o = tensor(t)
    module.require_function(name)(o, places("int2"))
    out[name] = o.to_numpy()
for name in ("squared", "once"):
    o = tensor(0 * t)
    module.require_function(name)(tensor(t), o, places("int2"))
    out[name] = o.to_numpy()
np.savez(path, **out)
"""
T = np.arange(6, dtype=np.float32).reshape(2, 3) + 1

OWN = """
import slangpy;
struct Pair { float a; float3 b; }
float pair(ITensor<Pair, 1> t) { return t[1].b.y; }
float color(ITensor<float3, 2> t) { return t[0, 1].z; }
T first<T : IFloat, let N : int>(ITensor<T, N> t)
{
    int zero[N];
    for (int k = 0; k < N; ++k)
        zero[k] = 0;
    return t[zero];
}
float corner<A : ITensor<float, 2>>(A t) { return t[1, 2]; }
float cornered(ITensor<float, 2> t) { return corner(t); }
float bright(ITensor<float, 2> t, float2 uv) { return t.sample(uv); }
float2 colored(IRWTensor<float2, 2> t, float2 uv) { return t.sample(uv); }
float six(ITensor<float, 6> t) { return t[0, 0, 0, 0, 1, 2] + t.load(0, 0, 0, 0, 0, 1); }
void add(AtomicTensor<float, 1> o, uint i) { uint one[1] = { 1 }; o.add(int1(i % 2), 1); o.add(one, 1); }
[Differentiable] float times(PrimalTensor<float, 1> t, float x) { return t[1] * t.load(2) * x; }
[Differentiable] void kept(PrimalTensor<float, 1> t, RWPrimalTensor<float, 1> o, inout float x)
{
    o[0] = t[1] * x;
    x = o[0] * x;
}
[Differentiable] void uniformly(int i, DiffTensor<float, 1> t, IWDiffTensor<float, 1> o)
{
    int zero[1] = { 0 };
    o[i] = t.load_uniform(zero) * t.load_once(int1(i));
}
[Differentiable] void twice(int i, IRWDiffTensor<float, 1> t) { t[i] = 3 * t[i]; }
Tensor<float, 1>.ElementType named(float x) { return x; }
"""


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory, slangpy_on_vulkan: None) -> dict[str, npt.NDArray[Any]]:
    path = tmp_path_factory.mktemp("oracle") / "answers.npz"
    subprocess.run([sys.executable, "-c", ORACLE, SHARED, str(path)], check=True)
    return dict(np.load(path))


@pytest.fixture(scope="module")
def shared(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "shared", SHARED)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "own", OWN)


def tensor(device: spy.Device, array: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(array, np.float32))


def test_slangpy_gives_the_same(device: spy.Device, shared: spy.Module, oracle: dict[str, npt.NDArray[Any]]) -> None:
    found = {
        name: shared[name](tensor(device, T), PLACES.astype(kind), _result="numpy")
        for name, kind in (("element", "i4"), ("integers", "u4"), ("inner", "i4"))
    }
    found["row"] = shared.row(tensor(device, T), _result="numpy")
    for name in ("both", "written", "whole"):
        o = tensor(device, T)
        shared[name](o, PLACES)
        found[name] = o.to_numpy()
    for name in ("squared", "once"):
        o = tensor(device, 0 * T)
        shared[name](tensor(device, T), o, PLACES)
        found[name] = o.to_numpy()
    assert found.keys() == oracle.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, oracle[name], rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(found["element"], 11 * T.reshape(-1))
    np.testing.assert_array_equal(found["both"], 2 * (T + 1))


def test_gradients_are_those_of_the_function(device: spy.Device, shared: spy.Module) -> None:
    for name, slope in (("squared", 3 * T**2), ("once", 2 * T)):
        x, o = tensor(device, T).with_grads(), tensor(device, 0 * T).with_grads(grad_in=tensor(device, T))
        shared[name].bwds(x, o, PLACES)
        np.testing.assert_allclose(x.grad_out.to_numpy(), slope * T, rtol=1e-6)


def test_numpy_arrays_bind_as_to_tensors(shared: spy.Module) -> None:
    np.testing.assert_array_equal(shared.element(T, PLACES), 11 * T.reshape(-1))
    o = T.copy()
    shared.written(o, PLACES)
    np.testing.assert_array_equal(o, [[0, 1, 2], [10, 11, 12]])


def test_elements_of_all_kinds(device: spy.Device, module: spy.Module) -> None:
    pairs = spy.Tensor.zeros(device, 2, dtype=module.Pair)
    values = np.zeros(2, pairs.to_numpy().dtype)
    values["b"] = [[1, 2, 3], [4, 5, 6]]
    pairs.copy_from_numpy(values)
    colors = spy.Tensor.from_numpy(device, np.arange(12, dtype=np.float32).reshape(2, 2, 3), dtype="float3")
    assert (module.pair(pairs), module.color(colors)) == (5, 5)
    ramp = np.arange(6, dtype=np.float32).reshape(1, 1, 1, 1, 2, 3)
    assert module.six(tensor(device, ramp)) == 6
    assert module.named(2.0) == 2


def test_generics(device: spy.Device, module: spy.Module) -> None:
    assert module.first(tensor(device, T)) == 1
    assert module.first(tensor(device, [7.0, 8.0])) == 7
    assert module.cornered(tensor(device, T)) == 6
    assert module["corner<Tensor<float, 2>>"](tensor(device, T)) == 6


def bilinear(image: npt.NDArray[Any], u: float, v: float) -> Any:
    height, width = image.shape[:2]
    x, y = u * width, v * height
    i, j = (int(np.clip(int(at), 0, n - 1)) for at, n in ((x, width), (y, height)))
    right, below = min(int(x) + 1, width - 1), min(int(y) + 1, height - 1)
    a, b = x % 1, y % 1
    above = image[j, i] * (1 - a) + image[j, right] * a
    return above * (1 - b) + (image[below, i] * (1 - a) + image[below, right] * a) * b


def test_samples(device: spy.Device, module: spy.Module) -> None:
    uv = np.array([[0.1, 0.2], [0.5, 0.75], [0.95, 0.3], [0.4, 0.99]], np.float32)
    found = module.bright(tensor(device, T), uv, _result="numpy")
    np.testing.assert_allclose(found, [bilinear(T, *at) for at in uv], rtol=1e-5)
    image = np.random.default_rng(1).random((4, 5, 2), np.float32)
    found = module.colored(spy.Tensor.from_numpy(device, image, dtype="float2"), uv, _result="numpy")
    np.testing.assert_allclose(found, [bilinear(image, *at) for at in uv], rtol=1e-5)


def test_an_atomic_tensor_adds(device: spy.Device, module: spy.Module) -> None:
    o = tensor(device, [0, 0])
    module.add(o, np.arange(1000, dtype=np.uint32))
    assert o.to_numpy().tolist() == [500, 1500]


def test_primal_tensors_have_no_gradient(device: spy.Device, module: spy.Module) -> None:
    t, x = tensor(device, [1, 2, 3]).with_grads(), spy.diff_pair(2.0)
    module.times.bwds(t, x, _result=spy.diff_pair(None, 1.0))
    assert (x.grad, t.grad.to_numpy().tolist()) == (6, [0, 0, 0])
    o, y = tensor(device, [0]), tensor(device, [5]).with_grads(grad_in=tensor(device, [1]))
    module.kept(t, o, y)
    assert (o.to_numpy().tolist(), y.to_numpy().tolist()) == ([10], [50])


def test_special_loads(device: spy.Device, module: spy.Module) -> None:
    t = tensor(device, [2, 3, 4]).with_grads()
    o = tensor(device, [0, 0, 0]).with_grads(grad_in=tensor(device, [1, 1, 1]))
    module.uniformly.bwds(np.arange(3, dtype=np.int32), t, o)
    # The sum of t[0] * t[i]: each t[i] gets t[0], and t[0] the sum besides.
    np.testing.assert_allclose(t.grad_out.to_numpy(), [2 + 9, 2, 2])


def test_read_and_written_tensors_have_both_gradients(device: spy.Device, module: spy.Module) -> None:
    seed, added = tensor(device, [1, 2, 3]), tensor(device, [0, 0, 0])
    t = tensor(device, [2, 3, 4]).with_grads(grad_in=seed, grad_out=added)
    module.twice.bwds(np.arange(3, dtype=np.int32), t)
    np.testing.assert_allclose(added.to_numpy(), [3, 6, 9])


def test_what_does_not_fit_is_refused(device: spy.Device, shared: spy.Module) -> None:
    with pytest.raises(spy.BindError, match=r"argument 't' has 1 dimensions of 'float'; 'ITensor<float, 2>' takes 2"):
        shared.element(tensor(device, [1, 2]), PLACES)
    with pytest.raises(spy.BindError, match=r"argument 't' is .*; 'float' was expected"):
        shared.element(spy.Tensor.zeros(device, (2, 3), "int"), PLACES)
    with pytest.raises(spy.BindError, match=r"argument 'o' is .*; it must be an array of dtype float32"):
        shared.written([[1.0, 2.0, 3.0]], PLACES)


def test_errors_name_slangpys_types(device: spy.Device) -> None:
    with pytest.raises(spy.CompileError, match="'ITensor<float, 1>'") as caught:
        spy.Module.load_from_source(device, "wrong", "import slangpy;\nfloat f(ITensor<float, 1> t) { return t; }")
    assert "_spy_" not in str(caught.value)


def test_users_may_have_these_names(device: spy.Device) -> None:
    text = """
    import slangpy_rt;
    interface ITensor { float get(); }
    struct AtomicTensor : ITensor { float x; float get() { return x; } }
    struct PrimalTensor<T, let N : int> { T x[N]; }
    float a(ITensor t, Tensor<float, 1> u) { return t.get() + u[0]; }
    float b(PrimalTensor<float, 2> t) { return t.x[1]; }
    """
    module = spy.Module.load_from_source(device, "own_names", text)
    assert module.a({"_type": "AtomicTensor", "x": 2.0}, tensor(device, [3])) == 5
    assert module.b({"x": [1.0, 2.0]}) == 2


def test_users_may_implement_the_interfaces(device: spy.Device) -> None:
    text = """
    import slangpy;
    struct Twice : ITensor<float, 1>
    {
        Tensor<float, 1> inner;
        property shape : int[1] { get { return inner.shape; } }
        float load(int index[1]) { return 2 * inner.load(index); }
        __subscript(int index[1])->float { get { return load(index); } }
    }
    float sum(ITensor<float, 1> t) { float s = 0; for (int k = 0; k < t.shape[0]; ++k) s += t[k]; return s; }
    float f(Tensor<float, 1> t) { Twice two = { t }; return sum(two); }
    """
    module = spy.Module.load_from_source(device, "own_tensor", text)
    assert module.f(tensor(device, [1, 2, 3])) == 12


@pytest.mark.parametrize("name", ["slangpy_rt", "slangpy"])
def test_concrete_tensors_keep_their_subscripts(device: spy.Device, name: str) -> None:
    text = (
        f"import {name};"
        + """
void f(int i, RWTensor<float, 1> a, RWTensor<float, 2> b, NDBuffer<float, 1> c)
{
    int k[1] = { i };
    a[k] = 1;
    a[i] += 1;
    b[i, 1] = 3;
    b[int2(0, i)] += 2;
    c[i] = a[k] + a[uint(i)];
}
void g<T : IElement>(int i, RWTensor<T, 1> a) { T x = a[i]; a[i] = x; }
"""
    )
    if name == "slangpy":
        text += """
void inner(IRWTensor<float, 1> a, int i) { a[i] += 10; }
void h(int i, IRWTensor<float, 1> a)
{
    int k[1] = { i };
    a[k] = a[k] * 2;
    a[uint(i)] += 1;
    inner(a, i);
}
"""
    module = spy.Module.load_from_source(device, "subscripts", text)
    a, b, c = (spy.Tensor.zeros(device, shape) for shape in (3, (3, 2), 3))
    module.f(spy.grid((3,)), a, b, c)
    module.g(spy.grid((3,)), a)
    assert a.tolist() == [2] * 3 and b.tolist() == [[2, 3]] * 3 and c.tolist() == [4] * 3
    if name == "slangpy":
        module.h(spy.grid((3,)), a)
        assert a.tolist() == [15] * 3

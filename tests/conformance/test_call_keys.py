"""Calls that differ from an earlier one in one thing alone: what the earlier call left behind must not serve them.

Prepared calls, kernels, conflicts and gradients are remembered by keys. Each test makes a call, and then one whose
key differs from its key in one field; both results are compared with NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import every_case, every_device, needs

Array = npt.NDArray[Any]
TEXT = """
uniform float scale;
extern static const int N = 2;
interface IShape { float area(); }
struct Square : IShape { float a; float area() { return a * a; } }
struct Circle : IShape { float a; float area() { return 3 * a * a; } }
struct Pair { float x; float y; }
float add(float a, float b) { return a + b; }
float twice(float a) { return 2 * a; }
float less(float a, float b) { return a - b; }
T same<T>(T x) { return x; }
int whole(int a) { return a; }
float scaled(float x) { return scale * x; }
float times(float x) { return N * x; }
float area(IShape s) { return s.area(); }
float pair(Pair p) { return p.x - 3 * p.y; }
int which(float x) { return 1; }
int which(Pair p) { return 2; }
float inner(float3 v) { return v.x + 2 * v.y + 4 * v.z; }
float inner(float x) { return 100 * x; }
float both(float x[2]) { return x[0] - 3 * x[1]; }
float total(Tensor<float, 1> x, int i) { return x[0] + x[i]; }
void mix(inout float a, float b, float c) { a = a + 2 * b + 4 * c; }
void lift(inout float a, float by) { a += by; }
void put(int i, float *p, float x) { p[i] = x; }
[Differentiable] float mul(float a, float b) { return a * b; }
float look(Texture2D<float> t, SamplerState s, float2 at, float level) { return t.SampleLevel(s, at, level); }
float looked(Sampler2D<float> t, float2 at, float level) { return t.SampleLevel(at, level); }
float texel(Texture2D<float> t, int2 at) { return t[at]; }
void paint(RWTexture2D<float> t, int2 at, float value) { t[at] = value; }
[shader("compute")] [numthreads(4, 1, 1)]
void fill(uint3 t : SV_DispatchThreadID, RWTensor<float, 1> x, float by) { if (t.x < 8) x[t.x] += by; }
"""
ONES = np.ones(8, np.float32)
RISE = np.arange(8, dtype=np.float32)
PARTS = [np.s_[:8], np.s_[::2], np.s_[8:], np.s_[7::-1], np.s_[:4], np.s_[1:9], np.s_[::-2]]
Test = Callable[[spy.Device, Any], None]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_call_keys", TEXT)


def same(found: Any, wanted: Any) -> None:
    """An array, a tensor or a number with these values, of this shape."""
    if isinstance(found, spy.NDBuffer):
        found = found.to_numpy()
    np.testing.assert_array_equal(
        np.asarray(found), wanted, strict=isinstance(wanted, np.ndarray) and wanted.dtype != float
    )


def tensor(device: spy.Device, values: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, np.asarray(values, np.float32))


def an_element_type(device: spy.Device, m: Any) -> None:
    for dtype in (np.float32, np.int32):
        x = RISE.astype(dtype)
        same(m.same(spy.Tensor.from_numpy(device, x)), x)
        same(m.same(x), x)
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    # Of one shape in memory: rows of a vector, and numbers.
    same(m.inner(spy.Tensor.from_numpy(device, rows, "float3")), rows @ np.float32([1, 2, 4]))
    same(m.inner(spy.Tensor.from_numpy(device, rows)), rows @ np.float32([1, 2, 4]))
    same(m.inner(spy.Tensor.from_numpy(device, rows[:, :2])), 100 * rows[:, :2])


def a_kind_of_array(device: spy.Device, m: Any) -> None:
    b = spy.NDBuffer(device, "float", 8)
    b.copy_from(RISE)
    for given in (tensor(device, RISE), b, RISE, torch.from_numpy(RISE)):
        found = m.twice(given)
        assert type(found) is type(given)
        same(found, 2 * RISE)


def shapes_and_strides(device: spy.Device, m: Any) -> None:
    x = np.arange(16, dtype=np.float32)
    t = tensor(device, x)
    for part in PARTS:
        same(m.twice(t[part]), 2 * x[part])
    grid, square = t.reshape(4, 4), x.reshape(4, 4)
    for a, b in ((grid, square), (grid.T, square.T), (grid[:, :1], square[:, :1]), (grid[:1], square[:1])):
        same(m.add(a, grid), b + square)
        same(
            m.total(a.reshape(-1) if b.size < 16 else a[0], b.shape[0] - 1),
            b.reshape(-1)[0] + b.reshape(-1)[b.shape[0] - 1],
        )


def shapes_and_strides_of_the_host(device: spy.Device, m: Any) -> None:
    x = np.arange(16, dtype=np.float32)
    for part in PARTS:
        same(m.twice(x[part]), 2 * x[part])
        if (part.step or 1) > 0:
            same(m.twice(torch.from_numpy(x)[part]), 2 * x[part])
        y = x.copy()
        m.lift(y[part], 1.0)
        wanted = x.copy()
        wanted[part] += 1
        same(y, wanted)
    square = x.reshape(4, 4)
    for host in (square, square.T, square[::-1], square.T[:, ::-1]):
        same(m.twice(host), 2 * host)


def a_whole_buffer_or_a_part(device: spy.Device, m: Any) -> None:
    """Arrays with buffers of their own cannot overlap; parts of one can."""
    n = 1000  # more than run at the same time
    x = np.arange(n, dtype=np.float32)
    same(m.twice(tensor(device, x), _result=spy.Tensor.zeros(device, n)), 2 * x)
    y = tensor(device, np.arange(n + 8))
    m.twice(y[:n], _result=y[8 : n + 8])
    same(y, np.concatenate([np.arange(8), 2 * x]).astype(np.float32))


def an_address_of_vectors(device: spy.Device, m: Any) -> None:
    t = tensor(device, np.arange(40))
    aligned, odd = t[:32], t[1:33]
    assert aligned.layout is not odd.layout and aligned.layout.aligned and not odd.layout.aligned
    same(m.add(aligned, aligned), 2 * np.arange(32, dtype=np.float32))
    same(m.add(odd, odd), 2 * np.arange(1, 33, dtype=np.float32))


def memory_that_is_written(device: spy.Device, m: Any) -> None:
    y = RISE.copy()
    m.lift(y, 1.0)
    same(y, RISE + 1)
    y.flags.writeable = False
    with pytest.raises(spy.BindError):
        m.lift(y, 1.0)
    same(y, RISE + 1)
    y = np.frombuffer(bytearray(33), np.float32, 8, 1)
    assert not y.flags.aligned
    m.lift(y, 2.0)
    same(y, np.full(8, 2, np.float32))


def the_number_s_type(device: spy.Device, m: Any) -> None:
    for value in (3, 3.5, True, np.float32(1.5), np.int32(4), 3):
        found = m.same(value)
        assert found == value and isinstance(found, bool) is isinstance(value, bool)
        assert isinstance(found, float) is isinstance(value, (float, np.floating))


def what_a_list_holds(device: spy.Device, m: Any) -> None:
    for values in ([1, 2], [1.0, 2], [True, False], [1], [[1], [2]]):
        found = np.asarray(m.same(values))
        same(found, np.asarray(values, found.dtype))
        assert (found.dtype.kind == "f") is any(isinstance(v, float) for v in values)
    same(m.whole([1, 2**31 - 1]), [1, 2**31 - 1])
    with pytest.raises(spy.BindError, match=r"2147483648"):
        m.whole([1, 2**31])
    assert m.which((1.0, 2.0)) == m.which([1.0, 2.0]) == 2
    same(m.which([1.0, 2.0, 3.0]), [1, 1, 1])
    # A tuple is a struct; a list of lists has numbers.
    same(m.pair([(1.0, 2.0), (3.0, 4.0)]), [-5, -9])
    same(m.pair([[1.0, 2.0], [3.0, 4.0]]), [-8, -10])
    same(m.pair([(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]), [-5, -9, -13])


def a_dict_s_fields(device: spy.Device, m: Any) -> None:
    t = tensor(device, RISE)
    for x, y in ((1.0, 2.0), (t, 2.0), (2.0, t), (t, RISE), (1.0, 2.0)):
        wanted = (RISE if x is t else x) - 3 * (RISE if y is t else y)
        same(m.pair({"x": x, "y": y}), wanted)
        same(m.pair({"y": y, "x": x}), wanted)
    assert m.area({"_type": m.Square, "a": 2.0}) == 4
    assert m.area({"_type": m.Circle, "a": 2.0}) == 12
    assert m.area({"_type": "Square", "a": 2.0}) == 4
    assert m.area({"_type": "Circle", "a": 2.0}) == 12
    assert m.area(m.Square(a=3.0)) == 9 and m.area(m.Circle(a=3.0)) == 27


def arrays_in_lists_and_dicts(device: spy.Device, m: Any) -> None:
    x = np.arange(16, dtype=np.float32)
    t = tensor(device, x)
    for part in PARTS:
        same(m.both([t[part], 1.0]), x[part] - 3)
        same(m.both([1.0, t[part]]), 1 - 3 * x[part])
        same(m.pair({"x": t[part], "y": 2.0}), x[part] - 6)


def names_of_arguments(device: spy.Device, m: Any) -> None:
    a, b = tensor(device, RISE), tensor(device, ONES)
    for _ in range(2):
        same(m.less(a, b), RISE - ONES)
        same(m.less(b=a, a=b), ONES - RISE)
        same(m.less(a=a, b=b), RISE - ONES)
        same(m.less(a, b=b), RISE - ONES)


def the_result(device: spy.Device, m: Any) -> None:
    t, out, host = tensor(device, RISE), spy.Tensor.zeros(device, 8), np.zeros(8, np.float32)
    wide = spy.Tensor.zeros(device, 16)
    kinds = (None, spy.Tensor), ("numpy", np.ndarray), ("tensor", spy.Tensor), (spy.NDBuffer, spy.NDBuffer)
    for asked, kind in (*kinds, ("torch", torch.Tensor), *kinds):
        found = m.twice(t) if asked is None else m.twice(t, _result=asked)
        assert type(found) is kind
        same(found, 2 * RISE)
    for given, read in ((out, out), (host, host), (wide[::2], wide[::2]), (wide[8:], wide[8:]), (out, out)):
        m.twice(t, _result=given)
        same(read, 2 * RISE)
        m.twice(t, out=given)
        same(read, 2 * RISE)
    for kind in ("numpy", "tensor", "numpy"):
        assert type(m.twice.return_type(kind)(t)) is (np.ndarray if kind == "numpy" else spy.Tensor)


def the_map(device: spy.Device, m: Any) -> None:
    x = np.arange(9, dtype=np.float32).reshape(3, 3)
    t = tensor(device, x)
    for order, wanted in (((1, 0), x.T), ((0, 1), x), ((0, 0), np.diag(x)), ((1, 0), x.T)):
        same(m.twice.map(order)(t), 2 * wanted)
    a, b = tensor(device, RISE), tensor(device, ONES)
    same(m.add.map((0,), (1,))(a, b), RISE[:, None] + ONES)
    same(m.add.map((1,), (0,))(a, b), RISE + ONES[:, None])
    same(m.add.map(b=(1,))(a, b), (RISE + ONES)[None])
    same(m.add.map(a=(1,))(a, b), (RISE + ONES)[None])
    same(m.add.map(a=(0,), b=(1,))(a, b), RISE[:, None] + ONES)
    same(m.inner.map("float3")(t), x @ np.float32([1, 2, 4]))
    same(m.inner.map("float")(t), 100 * x)


def constants_and_uniforms(device: spy.Device, m: Any) -> None:
    t = tensor(device, RISE)
    for n in (2, 3, 2):
        same(m.times.constants({"N": n})(t), n * RISE)
    same(m.times(t), 2 * RISE)
    for value in (2.0, 3.0, 2):
        same(m.scaled.set(scale=value)(t), value * RISE)
        same(m.scaled.set({"scale": value + 1})(RISE), (value + 1) * RISE)


def one_array_twice(device: spy.Device, m: Any) -> None:
    """Of arrays of one layout, which share memory or do not: more elements than run at the same time."""
    n = 1000
    x = np.arange(n, dtype=np.float32)
    arrays = [tensor(device, x + 10 * k) for k in range(3)]
    m.mix(*arrays)
    same(arrays[0], x + 2 * (x + 10) + 4 * (x + 20))
    for first in (True, False):
        a, other = tensor(device, x), tensor(device, x)
        back = a[::-1]
        m.mix(a, back, tensor(device, x)[::-1]) if first else m.mix(a, tensor(device, x)[::-1], back)
        same(a, x + 6 * x[::-1])
        m.mix(other, other[::-1], other[::-1])
        same(other, x + 6 * x[::-1])
        a = tensor(device, x)
        m.mix(a, a, a)
        same(a, 7 * x)
    whole = np.arange(4 * n, dtype=np.float32)
    t = tensor(device, whole)
    for b, c in ((0, 0), (8, 8), (n, 8), (8, n), (n, n), (2 * n, 24), (24, 16), (1, 2 * n)):
        t.copy_from(whole)
        m.mix(t[:n], t[b : b + n], t[c : c + n])
        wanted = whole.copy()
        wanted[:n] += 2 * whole[b : b + n] + 4 * whole[c : c + n]
        same(t, wanted)
        # At the same places, what is written in front of and behind what is read.
        t.copy_from(whole)
        m.mix(t[n : 2 * n], t[n - 8 : 2 * n - 8], t[n + 8 : 2 * n + 8])
        wanted = whole.copy()
        wanted[n : 2 * n] += 2 * whole[n - 8 : 2 * n - 8] + 4 * whole[n + 8 : 2 * n + 8]
        same(t, wanted)


def gradients_of_one_array(device: spy.Device, m: Any) -> None:
    x, y = RISE + 1, RISE + 3
    for _ in range(2):
        a, b, t = (tensor(device, v).with_grads() for v in (x, y, x))
        seed = spy.Tensor.zeros(device, 8).with_grads()
        seed.grad_in.copy_from(ONES)
        m.mul.bwds(a, b, _result=seed)
        same(a.grad, y), same(b.grad, x)
        m.mul.bwds(t, t, _result=seed)
        same(t.grad, 2 * x)
        # Once more: gradients are added to, where the first ones could be written.
        m.mul.bwds(a, b, _result=seed)
        same(a.grad, 2 * y), same(b.grad, 2 * x)


def which_arguments_have_gradients(device: spy.Device, m: Any) -> None:
    x, y = RISE + 1, RISE + 3
    plain, seed = [tensor(device, v) for v in (x, y)], spy.Tensor.zeros(device, 8).with_grads()
    seed.grad_in.copy_from(2 * ONES)
    for _ in range(2):
        a, b = (tensor(device, v).with_grads() for v in (x, y))
        m.mul.bwds(a, plain[1], _result=seed)
        same(a.grad, 2 * y)
        m.mul.bwds(plain[0], b, _result=seed)
        same(b.grad, 2 * x)
        m.mul.bwds(a, b, _result=seed)
        same(a.grad, 4 * y), same(b.grad, 4 * x)
    one = tensor(device, [3.0]).with_grads()
    m.mul.bwds(one, plain[1], _result=seed)
    same(one.grad, [2 * y.sum()])
    for k in range(2):
        value, found = m.mul.value_and_grad(*[plain[j] if j == k else 2.0 for j in range(2)])
        same(value, np.float32(2 * (x, y)[k].sum()))
        same(found["ab"[k]], np.full(8, 2, np.float32))
        assert found["ba"[k]] == (x, y)[k].sum()


def a_pointer_s_argument(device: spy.Device, m: Any) -> None:
    """A number is an address, whose buffer nobody knows; work on a Tensor is ordered by its buffer."""
    i, x, put = np.arange(8), tensor(device, RISE), m.put
    t = spy.Tensor.zeros(device, 8)
    index = spy.Tensor.from_numpy(device, i.astype(np.int32))
    m.put(index, t.address, x)
    same(t, RISE)
    commands, found = spy.CommandList(device), spy.Tensor.zeros(device, 8)
    m.put.append_to(commands, index, t, 3.0)
    m.add.append_to(commands, t, x, _result=found)
    m.put.append_to(commands, index, t, x)
    commands.submit()
    same(found, RISE + 3), same(t, RISE)
    # A pointer that only reads has the same kernel for both.
    functions = "float got(int i, Ptr<float, Access.Read> p) { return p[i]; }"
    m = spy.Module.load_from_source(device, "pointers_that_read", functions)
    same(m.got(index, t.address), RISE)
    same(m.got(index, t), RISE)
    with spy.CommandList(device) as commands:
        m.got.append_to(commands, index, t, _result=found)
    same(found, RISE)
    for function in (m.got, put):
        for call in function._calls.values():
            assert len(call.kernel.info.written) == sum(packer.buffers for packer in call.packers)


def torch_s_tensors(device: spy.Device, m: Any) -> None:
    x, y = torch.from_numpy(RISE + 1), torch.from_numpy(RISE + 3)
    for first in (True, False, True):
        a, b = x.clone().requires_grad_(first), y.clone().requires_grad_(not first)
        m.mul(a, b).sum().backward()
        assert (a.grad is None) is not first and (b.grad is None) is first
        same((a if first else b).grad, (y if first else x).numpy())
        with torch.no_grad():
            found = m.mul(a, b)
        assert not found.requires_grad
        same(found, (x * y).numpy())
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    for wanted in ([a], [b], [a, b], [b], [a]):
        for tensor_, found in zip(wanted, torch.autograd.grad(m.mul(a, b).sum(), wanted), strict=True):
            same(found, (y if tensor_ is a else x).numpy())
    for kind in (torch.float32, torch.int32, torch.float32):
        found = m.same(x.to(kind))
        assert found.dtype == kind
        same(found, x.to(kind).numpy())
    t = x.clone().requires_grad_()
    m.mul(t, t).sum().backward()
    same(t.grad, 2 * (RISE + 1))
    wide = torch.arange(16, dtype=torch.float32).requires_grad_()
    for part in (np.s_[:8], np.s_[::2], np.s_[8:]):
        (found,) = torch.autograd.grad(m.mul(wide[part], y).sum(), wide)
        wanted = np.zeros(16, np.float32)
        wanted[part] = RISE + 3
        same(found, wanted)
    # The gradient of the result is one number everywhere, or an array.
    for weight in (None, torch.arange(8.0), torch.arange(16.0)[::2]):
        a = x.clone().requires_grad_()
        out = m.mul(a, y)
        (out.sum() if weight is None else (out * weight).sum()).backward()
        same(a.grad, (RISE + 3) * (1 if weight is None else weight.numpy()))
    one = torch.tensor([2.0], requires_grad=True)
    m.mul(one, y).sum().backward()
    same(one.grad, [(RISE + 3).sum()])
    one = torch.tensor(2.0, requires_grad=True)
    m.mul(one, y).sum().backward()
    same(one.grad, (RISE + 3).sum())


def threads_of_a_kernel(device: spy.Device, m: Any) -> None:
    for threads in (8, 4, (8, 1, 1), 12):
        t = spy.Tensor.zeros(device, 8)
        m.fill.dispatch(threads, t, 1.0)
        wanted = np.zeros(8, np.float32)
        wanted[: threads if isinstance(threads, int) else threads[0]] = 1
        same(t, wanted)
        m.fill.dispatch(threads, x=t[::-1], by=2.0)
        same(t, wanted + 2 * wanted[::-1])


def a_reduction(device: spy.Device, m: Any) -> None:
    x = -np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    t = tensor(device, x)
    for _ in range(2):
        same(t.sum(0), x.sum(0))
        same(t.sum(0, keepdims=True), x.sum(0, keepdims=True))
        same(t.sum(1), x.sum(1))
        same(t.sum(1, keepdims=True), x.sum(1, keepdims=True))
        same(t.sum(), x.sum())
        same(t.mean(0), x.mean(0))
        same(t.max(0), x.max(0))
        same(t.argmax(0), x.argmax(0).astype(np.int32))
        same(t.T.sum(0), x.T.sum(0))


def an_operator(device: spy.Device, m: Any) -> None:
    x, y = np.arange(1, 9, dtype=np.int32), RISE + 1
    a, b = spy.Tensor.from_numpy(device, x), tensor(device, y)
    for other, host in ((1, np.int32(1)), (1.5, np.float32(1.5)), (b, y), (a, x), (2, np.int32(2))):
        found = a - other
        assert found.dtype.name == ("int" if host.dtype == np.int32 else "float")
        np.testing.assert_array_equal(found.to_numpy(), x - host)
    np.testing.assert_array_equal((1 - a).to_numpy(), 1 - x)
    same(a < b, x < y)
    same(b - tensor(device, RISE), y - RISE)
    if "half" in device.caps.scalars:
        h = spy.Tensor.from_numpy(device, y.astype(np.float16))
        assert (h - b).dtype.name == "float"
        h -= b
        assert h.dtype.name == "half" and not h.to_numpy().any()
    b -= 1
    a -= 1
    same(b, y - 1), same(a, x - 1)
    b -= a
    same(b, np.float32(y - x))
    with pytest.raises(spy.BindError):
        a -= b
    same(a, x - 1)


def a_product(device: spy.Device, m: Any) -> None:
    x, y = np.arange(16, dtype=np.float32).reshape(4, 4), np.eye(4, dtype=np.float32)[::-1] + 1
    a, b, out = tensor(device, x), tensor(device, y), spy.Tensor.zeros(device, (4, 4))
    for _ in range(2):
        same(spy.matmul(a, b), x @ y)
        same(spy.matmul(b, a), y @ x)
        same(spy.matmul(a, a), x @ x)
        same(spy.matmul(a, b, transpose_a=True), x.T @ y)
        same(spy.matmul(a, b, transpose_b=True), x @ y.T)
        same(spy.matmul(a, b, alpha=2.0), 2 * (x @ y))
        same(spy.matmul(a, b, alpha=3.0), 3 * (x @ y))
        same(spy.matmul(a.T, b), x.T @ y)
        same(spy.matmul(a[:2], b), x[:2] @ y)
        same(spy.matmul(a, b, bias=b[0]), x @ y + y[0])
        same(spy.matmul(a, b, bias=b[1]), x @ y + y[1])
        spy.matmul(a, b, out=out)
        same(out, x @ y)
        spy.matmul(a, b, out=out.T)
        same(out, (x @ y).T)


def choices(device: spy.Device, m: Any) -> None:
    """Calls that differ in a whole number count as other kinds; each measures its own."""
    tuned, named = (f.tune([{"group_size": 32}, {"group_size": 64}], budget=0) for f in (m.add, m.less))
    t = tensor(device, RISE)
    for values, host in ((t, RISE), (t[::-1], RISE[::-1])):
        for number in (1, 2, 1):
            same(tuned(values, number), host + np.float32(number))
        same(tuned(b=values, a=1), host + np.float32(1))
        for _ in range(2):
            same(named(a=values, b=2), host - np.float32(2))
            same(named(b=values, a=2), np.float32(2) - host)
            same(named(b=2, a=values), host - np.float32(2))
            same(named(values, b=3), host - np.float32(3))
        out = spy.Tensor.zeros(device, len(host))
        tuned(values, 2, _result=out)
        same(out, host + 2)
    assert len(tuned._ready) == 4


def a_list_s_call(device: spy.Device, m: Any) -> None:
    t, out, wide = tensor(device, RISE), spy.Tensor.zeros(device, 8), tensor(device, np.arange(16))
    commands = spy.CommandList(device)
    m.less.append_to(commands, t, 1.0, _result=out)
    for number in (1.0, 2.0):
        commands.update(0, t, number, _result=out)
        commands.submit()
        same(out, RISE - np.float32(number))
    with pytest.raises(spy.BindError, match="has other layouts"):
        commands.update(0, wide[::2], 2.0, _result=out)
    for values, number in ((t, 1.0), (wide[::2], 2.0), (wide[8:], 2.0), (t[::-1], 3.0)):
        repeat = m.less.bind(values, number, _result=out)
        out.clear()
        repeat()
        same(out, values.to_numpy() - np.float32(number))


SAMPLERS: list[dict[str, Any]] = [
    {"filter": "nearest"}, {"filter": "linear"}, {"wrap": "clamp"}, {"wrap": "border", "border": "white"},
    {"wrap": "border", "border": "black"}, {"wrap": ("mirror", "repeat")}, {"wrap": ("repeat", "mirror")},
    {"mip": "none"}, {"bias": 1.0}, {"min_level": 1.0}, {"max_level": 0.0}, {"mip": "nearest"},
]  # fmt: skip


def the_sampler_of_a_texture(device: spy.Device, m: Any) -> None:
    """Of two calls that differ in the sampler each gets the colors that it has where it is the only one."""
    texels, at = (np.arange(16, dtype=np.float32) ** 2).reshape(4, 4), (1.35, -0.2)

    def colors(how: dict[str, Any], texture: spy.Texture) -> tuple[float, ...]:
        sampler = device.create_sampler(**how)
        return tuple(
            f
            for level in (0.0, 1.0)
            for f in (m.look(texture, sampler, at, level), m.looked(texture.with_sampler(sampler), at, level))
        )

    alone = [colors(how, spy.Texture.from_numpy(device, texels, mips=True)) for how in SAMPLERS]
    assert len({found[::2] for found in alone}) > 7 and all(x == y for f in alone for x, y in (f[:2], f[2:]))
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    for _ in range(2):
        assert [colors(how, texture) for how in SAMPLERS] == alone


def the_level_and_use_of_a_texture(device: spy.Device, m: Any) -> None:
    texels = np.arange(16, dtype=np.float32).reshape(4, 4)
    texture = spy.Texture.from_numpy(device, texels, mips=True)
    levels = [texels, texels.reshape(2, 2, 2, 2).mean((1, 3)), np.full((1, 1), 7.5, np.float32)]
    for _ in range(2):
        for k, level in enumerate(levels):
            view, places = texture.mip(k), spy.grid(level.shape)
            assert np.asarray(m.texel(view, places)).tolist() == level.tolist()
            m.paint(view, places, level[::-1].copy())
            assert np.asarray(m.texel(view, places)).tolist() == level[::-1].tolist()
            assert m.texel(texture, (0, 0)) == levels[0][0, 0] or k == 0
            m.paint(view, places, level.copy())


def calls_without_elements(device: spy.Device, m: Any) -> None:
    for n in (0, 8, 0):
        same(m.twice(spy.Tensor.zeros(device, n)), np.zeros(n, np.float32))
    for n in (8, 0, 8):
        same(m.less(spy.Tensor.full(device, n, 3.0), 1.0), np.full(n, 2, np.float32))


FIELDS: list[Any] = [
    an_element_type, a_kind_of_array, shapes_and_strides, a_whole_buffer_or_a_part, an_address_of_vectors,
    the_number_s_type, what_a_list_holds, a_dict_s_fields, arrays_in_lists_and_dicts, names_of_arguments, the_result,
    the_map, constants_and_uniforms, one_array_twice,
    pytest.param(gradients_of_one_array, marks=needs("grouped calls")),
    which_arguments_have_gradients,
    torch_s_tensors, threads_of_a_kernel, a_reduction, an_operator, a_product, choices, a_list_s_call,
    calls_without_elements,
]  # fmt: skip


@every_case
@pytest.mark.parametrize("test", FIELDS, ids=lambda test: test.__name__)
def test_a_call_that_differs_in(device: spy.Device, module: Any, test: Test) -> None:
    test(device, module)


@needs("zero_copy")
@every_case
@pytest.mark.parametrize(
    "test", [shapes_and_strides_of_the_host, memory_that_is_written], ids=lambda test: test.__name__
)
def test_a_call_in_memory_of_the_host_that_differs_in(device: spy.Device, module: Any, test: Test) -> None:
    """Where kernels work in it, the host's arrays have addresses and strides of their own."""
    test(device, module)


@needs("pointers")
def test_a_call_that_differs_in_a_pointer_s_argument(device: spy.Device, module: Any) -> None:
    a_pointer_s_argument(device, module)


@every_device
@needs("textures")
@pytest.mark.parametrize(
    "test",
    [
        pytest.param(the_sampler_of_a_texture, marks=needs("textures with samplers")),
        the_level_and_use_of_a_texture,
    ],
    ids=lambda test: test.__name__,
)
def test_a_texture_that_differs_in(device: spy.Device, module: Any, test: Test) -> None:
    """Each kind of device has its own table of how kernels find textures."""
    test(device, module)

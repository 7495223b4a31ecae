"""Gradients through tensors that Slang indexes: loads, stores, rows, and structs around them."""

from __future__ import annotations

import numpy as np
import pytest
from _gradients import Array, integers, same, seed_of, tensor

import slangpy_rt as spy
from tests.depth import one_device

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

TENSORS = """
import slangpy_rt;
[Differentiable] float at(DiffTensor<float, 1> t, no_diff int i) { return t[i] * t[i]; }
[Differentiable] float box(DiffTensor<float, 2> t, int2 c)
{
    float sum = 0;
    [ForceUnroll]
    for (int y = -1; y <= 1; y++)
        for (int x = -1; x <= 1; x++)
            sum += t[clamp(c.y + y, 0, t.shape[0] - 1), clamp(c.x + x, 0, t.shape[1] - 1)];
    return sum;
}
[Differentiable] float3 gather(DiffTensor<float3, 1> t, int i, float s) { return t[i] * s; }
[Differentiable] float once(DiffTensor<float, 1> t, int i) { int at[1] = { i }; return 3 * t.loadOnce(at); }
[Differentiable] float line(DiffTensor<float, 1> w, float x)
{
    int zero[1] = { 0 };
    int one[1] = { 1 };
    return w.loadUniform(zero) * x + w.loadUniform(one);
}
[Differentiable] void put(WDiffTensor<float, 1> to, no_diff int i, float v) { to[i] = v * v; }
[Differentiable] void advance(RWDiffTensor<float, 1> t, no_diff int i, float v) { t[i + 30] = t[i] * v; }
[Differentiable] float total(DiffTensor<float, 1> row, float s)
{
    float sum = 0;
    [MaxIters(8)]
    for (int k = 0; k < row.shape[0]; ++k)
        sum += row[k] * row[k];
    return sum * s;
}
[Differentiable] void spread(WDiffTensor<float, 1> row, float v)
{
    [MaxIters(8)]
    for (int k = 0; k < row.shape[0]; ++k)
        row[k] = v * float(k);
}
struct Layer
{
    DiffTensor<float, 2> weights;
    [Differentiable] float[3] run(float x[4])
    {
        float y[3];
        [ForceUnroll]
        for (int o = 0; o < 3; o++)
        {
            y[o] = 0;
            [ForceUnroll]
            for (int i = 0; i < 4; i++)
                y[o] += weights[i, o] * x[i];
        }
        return y;
    }
}
[Differentiable] float[3] layer(Layer net, float x[4]) { return net.run(x); }
"""


@pytest.fixture(scope="module")
def tensors(device: spy.Device) -> spy.Module:
    """Functions that take whole tensors."""
    return spy.Module.load_from_source(device, "test_gradient_tensors", TENSORS)


def test_gathered_elements_receive_the_sum(tensors: spy.Module) -> None:
    t, g, k = integers(8), integers(1000, seed=1), np.random.default_rng(2).integers(0, 8, 1000).astype(np.int32)
    x, index, r = tensor(tensors, t).with_grads(), tensor(tensors, k), seed_of(tensors, g)
    expected = np.zeros(8)
    np.add.at(expected, k, 2 * t[k] * g)
    for times in (1, 2):
        tensors.at.bwds(x, index, _result=r)
        same(x.grad, times * expected)
    # Views of both.
    x = tensor(tensors, np.repeat(t, 3)).with_grads()
    tensors.at.bwds(x[::-3], index, _result=r)
    reverse = np.zeros(8)
    np.add.at(reverse, k, 2 * t[::-1][k] * g)
    same(x.grad[::-3], reverse)  # type: ignore[index]
    assert x.grad.to_numpy().sum() == reverse.sum()  # type: ignore[union-attr]
    v, s = tensor(tensors, integers(8, 3), "float3").with_grads(), tensor(tensors, integers(1000)).with_grads()
    g3, rows = integers(1000, 3, seed=4), np.zeros((8, 3))
    tensors.gather.bwds(v, index, s, _result=seed_of(tensors, g3, "float3"))
    np.add.at(rows, k, g3 * integers(1000)[:, None])
    same(v.grad, rows)
    same(s.grad, (g3 * integers(8, 3)[k]).sum(1))


def test_a_stencil(tensors: spy.Module) -> None:
    image, g = integers(5, 7), integers(5, 7, seed=1)
    x = tensor(tensors, image).with_grads()
    tensors.box.bwds(x, spy.grid((5, 7)), _result=seed_of(tensors, g))
    expected = np.zeros((7, 9))
    for y, k in np.ndindex(3, 3):
        expected[y : y + 5, k : k + 7] += g
    # What was read beyond the edge was the edge.
    expected[1] += expected[0]
    expected[-2] += expected[-1]
    expected[:, 1] += expected[:, 0]
    expected[:, -2] += expected[:, -1]
    same(x.grad, expected[1:-1, 1:-1])


def test_elements_loaded_once(tensors: spy.Module) -> None:
    t, g, order = integers(300), integers(300, seed=1), np.random.default_rng(2).permutation(300).astype(np.int32)
    x = tensor(tensors, t).with_grads()
    tensors.once.bwds(x, tensor(tensors, order), _result=seed_of(tensors, g))
    expected = np.zeros(300)
    expected[order] = 3 * g
    same(x.grad, expected)


def test_an_element_loaded_by_all(tensors: spy.Module) -> None:
    t, g = integers(300), integers(300, seed=1)
    w, y = tensor(tensors, [2.0, 3]).with_grads(), tensor(tensors, t).with_grads()
    tensors.line.bwds(w, y, _result=seed_of(tensors, g))
    same(w.grad, [(t * g).sum(), g.sum()])
    same(y.grad, 2 * g)


def test_tensors_without_gradients_are_constants(tensors: spy.Module) -> None:
    g = integers(30)
    y = tensor(tensors, integers(30, seed=1)).with_grads()
    tensors.line.bwds(tensor(tensors, [2.0, 3]), y, _result=seed_of(tensors, g))
    same(y.grad, 2 * g)


def test_stores_take_their_gradient(tensors: spy.Module) -> None:
    v, g, order = integers(30), integers(30, seed=1), np.random.default_rng(2).permutation(30).astype(np.int32)
    to = tensor(tensors, np.zeros(30, np.float32)).with_grads(grad_in=tensor(tensors, g))
    x = tensor(tensors, v).with_grads()
    tensors.put.bwds(to, tensor(tensors, order), x)
    same(x.grad, 2 * v * g[order])
    same(to.grad_in, g)


def test_a_tensor_read_and_written(tensors: spy.Module) -> None:
    t, v, g = integers(60), integers(30, seed=1), integers(60, seed=2)
    into, out = tensor(tensors, g), tensor(tensors, np.zeros(60, np.float32))
    x, y = tensor(tensors, t).with_grads(grad_in=into, grad_out=out), tensor(tensors, v).with_grads()
    tensors.advance.bwds(x, range(30), y)
    same(out, np.concatenate([g[30:] * v, np.zeros(30)]))
    same(y.grad, g[30:] * t[:30])
    same(into, g)


@one_device
def test_the_derivative_of_a_box_filter_is_one(device: spy.Device) -> None:
    text = """
    import slangpy_rt;
    [Differentiable]
    float box(DiffTensor<float, 2> image, int2 pixel)
    {
        float sum = 0;
        [ForceUnroll]
        for (int k = 0; k < 9; ++k)
        {
            let at = pixel + int2(k % 3, k / 3) - 1;
            if (all(at >= 0) && at.x < image.shape[1] && at.y < image.shape[0])
                sum += image[at];
        }
        return sum;
    }
    """

    def boxed(x: Array) -> Array:
        rows, columns = x.shape
        wide = np.pad(x, 1)
        total: Array = np.sum([wide[y : y + rows, x : x + columns] for y, x in np.ndindex(3, 3)], 0)
        return total

    module = spy.Module.load_from_source(device, "box_filter", text)
    # The second has more pixels than a range on the CPU makes a copy of.
    for rows, columns in ((40, 60), (301, 257)):
        pixels, weights, change = (integers(rows, columns, seed=k) for k in range(3))
        image = tensor(module, pixels).with_grads()
        index = spy.grid((rows, columns))
        same(module.box(image, index), boxed(pixels))
        for times in (1, 2):
            module.box.bwds(image, index, _result=seed_of(module, weights))
            same(image.grad, times * boxed(weights))
        moving = image.with_grads(grad_in=tensor(module, change))
        same(module.box.fwds(moving, index).grad, boxed(change))


def test_rows_of_tensors(tensors: spy.Module) -> None:
    t, s, g = integers(4, 50, 5), integers(50, seed=1), integers(4, 50, seed=2)
    x, y = tensor(tensors, t).with_grads(), tensor(tensors, s).with_grads()
    tensors.total.bwds(x, y, _result=seed_of(tensors, g))
    same(x.grad, 2 * t * (g * s)[..., None])
    same(y.grad, ((t * t).sum(2) * g).sum(0))
    # One row for all, and rows of a view.
    one = tensor(tensors, t[0, 0]).with_grads()
    tensors.total.bwds(one, y, _result=seed_of(tensors, g))
    same(one.grad, 2 * t[0, 0] * (g * s).sum())
    z = tensor(tensors, t[0]).with_grads()
    tensors.total.bwds(z[::-2, 1:4], 1.0, _result=seed_of(tensors, g[0, :25]))
    expected = np.zeros((50, 5))
    expected[::-2, 1:4] = 2 * t[0, ::-2, 1:4] * g[0, :25, None]
    same(z.grad, expected)


def test_rows_that_are_written(tensors: spy.Module) -> None:
    v, g = integers(50), integers(50, 5, seed=1)
    rows = tensor(tensors, np.zeros((50, 5), np.float32)).with_grads(grad_in=tensor(tensors, g))
    x = tensor(tensors, v).with_grads()
    tensors.spread.bwds(rows, x)
    same(x.grad, g @ np.arange(5))


def test_an_array_with_a_value_in_unrolled_loops(device: spy.Device) -> None:
    """Copies of the array in each round took Slang more than a minute."""
    text = TENSORS.replace("float y[3];", "float y[3] = {1, 2, 3};")
    m = spy.Module.load_from_source(device, "test_unrolled", text)
    w, x, g = integers(4, 3), integers(100, 4, seed=1), integers(100, 3, seed=2)
    weights, batch = tensor(m, w).with_grads(), tensor(m, x).with_grads()
    m.layer.bwds(weights, batch, _result=seed_of(m, g))
    same(weights.grad, x.T @ g)
    same(batch.grad, g @ w.T)


def test_a_struct_around_a_tensor(tensors: spy.Module) -> None:
    w, x, g = integers(4, 3), integers(100, 4, seed=1), integers(100, 3, seed=2)
    weights, batch = tensor(tensors, w).with_grads(), tensor(tensors, x).with_grads()
    tensors.layer.bwds(weights, batch, _result=seed_of(tensors, g))
    same(weights.grad, x.T @ g)
    same(batch.grad, g @ w.T)
    tensors.layer.bwds({"weights": weights}, batch, _result=seed_of(tensors, g))
    same(weights.grad, 2 * x.T @ g)


@one_device
def test_forward_through_loads(tensors: spy.Module) -> None:
    t, dt, k = integers(8), integers(8, seed=1), np.random.default_rng(2).integers(0, 8, 300).astype(np.int32)
    x, index = tensor(tensors, t).with_grads(grad_in=tensor(tensors, dt)), tensor(tensors, k)
    y = tensors.at.fwds(x, index)
    same(y, t[k] ** 2)
    same(y.grad, 2 * t[k] * dt[k])
    same(x.grad_in, dt)
    # A view, whose tangent is the view of the tangent.
    y = tensors.at.fwds(x[::-2], tensor(tensors, k // 2))
    same(y.grad, 2 * (t * dt)[::-2][k // 2])
    # Without a tangent it is a constant; so is one that has only the other gradient.
    for constant in (x.detach(), x.with_grads(grad_out=tensor(tensors, dt))):
        same(tensors.at.fwds(constant, index).grad, np.zeros(300))
    order = np.random.default_rng(3).permutation(8).astype(np.int32)
    same(tensors.once.fwds(x, tensor(tensors, order)).grad, 3 * dt[order])
    u, du = integers(300, seed=4), integers(300, seed=5)
    y = tensors.line.fwds(x, tensor(tensors, u).with_grads(grad_in=tensor(tensors, du)))
    same(y, t[0] * u + t[1])
    same(y.grad, dt[0] * u + t[0] * du + dt[1])
    v, dv, s = integers(8, 3, seed=6), integers(8, 3, seed=7), integers(300, seed=8)
    moving = tensor(tensors, v, "float3").with_grads(grad_in=tensor(tensors, dv, "float3"))
    same(tensors.gather.fwds(moving, index, tensor(tensors, s)).grad, dv[k] * s[:, None])


def test_forward_through_stores(tensors: spy.Module) -> None:
    v, dv, order = integers(30), integers(30, seed=1), np.random.default_rng(2).permutation(30).astype(np.int32)
    x = tensor(tensors, v).with_grads(grad_in=tensor(tensors, dv))
    index, expected = tensor(tensors, order), np.zeros(30)
    for constant in (False, True):
        to = spy.Tensor.zeros(tensors.device, 30).with_grads(grad_out=tensor(tensors, integers(30, seed=3)))
        tensors.put.fwds(to, index, x.detach() if constant else x)
        expected[order] = v * v
        same(to, expected)
        expected[order] = 0 if constant else 2 * v * dv
        # A tangent is written, not added.
        same(to.grad_out, expected)
    # Without an array for the tangent the value alone is written.
    to = spy.Tensor.zeros(tensors.device, 30)
    tensors.put.fwds(to, index, x)
    expected[order] = v * v
    same(to, expected)


@pytest.mark.parametrize("shared", [True, False])
def test_forward_through_a_tensor_read_and_written(tensors: spy.Module, shared: bool) -> None:
    t, dt, v, dv = integers(60), integers(60, seed=1), integers(30, seed=2), integers(30, seed=3)
    into = tensor(tensors, dt)
    out = into if shared else tensor(tensors, np.full(60, 7, np.float32))
    x = tensor(tensors, t).with_grads(grad_in=into, grad_out=out)
    tensors.advance.fwds(x, range(30), tensor(tensors, v).with_grads(grad_in=tensor(tensors, dv)))
    same(x, np.concatenate([t[:30], t[:30] * v]))
    same(out, np.concatenate([dt[:30] if shared else np.full(30, 7), dt[:30] * v + t[:30] * dv]))
    if not shared:
        same(into, dt)


def test_forward_through_rows(tensors: spy.Module) -> None:
    t, dt, s, ds = integers(4, 50, 5), integers(4, 50, 5, seed=1), integers(50, seed=2), integers(50, seed=3)
    x = tensor(tensors, t).with_grads(grad_in=tensor(tensors, dt))
    y = tensors.total.fwds(x, tensor(tensors, s).with_grads(grad_in=tensor(tensors, ds)))
    same(y, (t * t).sum(2) * s)
    same(y.grad, 2 * (t * dt).sum(2) * s + (t * t).sum(2) * ds)
    rows = spy.Tensor.zeros(tensors.device, (50, 5)).with_grads()
    tensors.spread.fwds(rows, tensor(tensors, s).with_grads(grad_in=tensor(tensors, ds)))
    same(rows, np.outer(s, np.arange(5)))
    same(rows.grad, np.outer(ds, np.arange(5)))


def test_forward_through_a_struct_around_a_tensor(tensors: spy.Module) -> None:
    w, dw, x, dx = integers(4, 3), integers(4, 3, seed=1), integers(100, 4, seed=2), integers(100, 4, seed=3)
    weights = tensor(tensors, w).with_grads(grad_in=tensor(tensors, dw))
    batch = tensor(tensors, x).with_grads(grad_in=tensor(tensors, dx))
    for net in (weights, {"weights": weights}):
        y = tensors.layer.fwds(net, batch)
        same(y, x @ w)
        same(y.grad, dx @ w + x @ dw)


@one_device
def test_a_debug_device_computes_the_same(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as device:
        module = spy.Module.load_from_source(device, "checked_gradients", TENSORS)
        test_gathered_elements_receive_the_sum(module)
        test_rows_of_tensors(module)
        x, r = tensor(module, integers(4)).with_grads(), seed_of(module, np.ones(3, np.float32))
        with pytest.raises(spy.OutOfBoundsError, match=r"argument 't' of shape \(4,\) was read at \(4,\)"):
            module.at.bwds(x, tensor(module, np.array([0, 4, 1], np.int32)), _result=r)
        same(x.grad, 2 * integers(4) * [1, 1, 0, 0])

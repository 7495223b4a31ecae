"""shaders/mlp.slang against float64 models in NumPy: values, and gradients of parameters and of inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import nowhere, pointer

import slangpy_rt as spy
from tests.depth import deep, one_device, one_in, sampled

Array = npt.NDArray[np.float64]
Function = Callable[[Array], Array]
Requires = Callable[..., None]

SLANG = """
import mlp;
#include "storage.slang"
#define FLOATS POINTER(float)
#define NONE AT(float, 0)

// The proposal's own text.
[Differentiable]
float[8] compute(MLP<32,8> mlp, float input[32])
{
     return mlp.run(input);
}

[Differentiable]
float loss(MLP<32,8> mlp, float input[32], no_diff float target[8])
{
    float result = 0.0;
    let output = compute(mlp, input);
    for (int i = 0; i < 8; i++) result += (output[i] - target[i]) * (output[i] - target[i]);
    return result;
}

void updateWeights(inout float param, float grad, float step)
{
    param -= grad * step;
}

DiffTensor<float, 1> row(FLOATS data, FLOATS gradient, int columns, int step)
{
    int shape[1] = { columns };
    int64_t stride[1] = { 4 * step };
    return DiffTensor<float, 1>(BITS(data), shape, stride, BITS(gradient), stride);
}
DiffTensor<float, 2> matrix(FLOATS data, FLOATS gradient, int rows, int columns, bool transposed = false)
{
    int shape[2] = { rows, columns };
    int64_t stride[2] = { transposed ? 4 : 4 * columns, transposed ? 4 * rows : 4 };
    return DiffTensor<float, 2>(BITS(data), shape, stride, BITS(gradient), stride);
}

float[8] sp016(float input[32], FLOATS w, FLOATS dw) { return compute(MLP<32, 8>(matrix(w, dw, 32, 8)), input); }
float[32] sp016_back(float input[32], float d[8], FLOATS w, FLOATS dw)
{
    var x = diffPair(input);
    bwd_diff(compute)(MLP<32, 8>(matrix(w, dw, 32, 8)), x, d);
    return x.d;
}

[Differentiable]
float[O] dense_run<let I : int, let O : int, A : IActivation>(Dense<I, O, A> layer, float x[I])
{
    return layer.run(x);
}
Dense<I, O, A> dense_of<let I : int, let O : int, A : IActivation>(FLOATS w, FLOATS dw, FLOATS b, FLOATS db, bool t)
{
    return Dense<I, O, A>(matrix(w, dw, I, O, t), row(b, db, O, t ? 2 : 1));
}
float[O] dense<let I : int, let O : int>(float x[I], FLOATS w, FLOATS b, bool t)
{
    return dense_of<I, O, Tanh>(w, NONE, b, NONE, t).run(x);
}
float[I] dense_back<let I : int, let O : int>(
    float input[I], float d[O], FLOATS w, FLOATS b, FLOATS dw, FLOATS db, bool t)
{
    var x = diffPair(input);
    bwd_diff(dense_run<I, O, Tanh>)(dense_of<I, O, Tanh>(w, dw, b, db, t), x, d);
    return x.d;
}
float[O] dense_forward<let I : int, let O : int>(float x[I], float along[I], FLOATS w, FLOATS b)
{
    return fwd_diff(dense_run<I, O, Tanh>)(dense_of<I, O, Tanh>(w, NONE, b, NONE, false), diffPair(x, along)).d;
}
float[I] dense_constant<let I : int, let O : int>(float input[I], float d[O], FLOATS w, FLOATS b)
{
    var x = diffPair(input);
    bwd_diff(dense_run<I, O, Tanh>)(dense_of<I, O, Tanh>(w, NONE, b, NONE, false), x, d);
    return x.d;
}

void both<A : IActivation>(inout float result[20], int at, float x)
{
    var p = diffPair(x);
    bwd_diff(A.apply)(p, 1);
    result[at] = A.apply(x);
    result[at + 1] = p.d;
}
struct Cube : IActivation { [Differentiable] static float apply(float x) { return x * x * x; } }
float[20] activations(float x)
{
    float result[20];
    both<Identity>(result, 0, x);
    both<ReLU>(result, 2, x);
    both<LeakyReLU>(result, 4, x);
    both<Sigmoid>(result, 6, x);
    both<Tanh>(result, 8, x);
    both<Exp>(result, 10, x);
    both<Softplus>(result, 12, x);
    both<SiLU>(result, 14, x);
    both<Sine>(result, 16, x);
    both<Cube>(result, 18, x);
    return result;
}

// What waves compute together, where the device has matrix units for it.
#define FOR_WAVES(NAME, NET, I, O)                                                                           \\
    [Differentiable] float[O] NAME##_run(NET net, float x[I]) { return net.run(x); }                         \\
    float[O] NAME(float x[I], FLOATS p, int which)                                                           \\
    {                                                                                                        \\
        return NET(row(p + NET.count * which, NONE, NET.count, 1)).run(x);                                   \\
    }                                                                                                        \\
    float[I] NAME##_back(float input[I], float d[O], FLOATS p, FLOATS dp, int which, bool chosen)            \\
    {                                                                                                        \\
        var x = diffPair(input);                                                                             \\
        let at = NET.count * which;                                                                          \\
        if (chosen)                                                                                          \\
            bwd_diff(NAME##_run)(NET(row(p + at, dp + at, NET.count, 1)), x, d);                             \\
        return x.d;                                                                                          \\
    }
typealias Slim = Network<5, 6, 32, 1, Sine>;
typealias Narrow = Network<20, 7, 48, 3, Sine>;
typealias Wide = Network<64, 64, 64, 1, Sine, Tanh>;
FOR_WAVES(slim, Slim, 5, 6)
FOR_WAVES(narrow, Narrow, 20, 7)
FOR_WAVES(wide, Wide, 64, 64)

typealias One = Network<3, 2, 5, 1, Sine, Cube>;
typealias Three = Network<5, 3, 40, 3, SiLU, Sigmoid>;
int one_count() { return One.count; }
int three_count() { return Three.count; }
float one_deviation(int i) { return One.deviation(i); }
float three_deviation(int i) { return Three.deviation(i); }
[Differentiable] float[2] one_run(One net, float x[3]) { return net.run(x); }
[Differentiable] float[3] three_run(Three net, float x[5]) { return net.run(x); }
float[2] one(float x[3], FLOATS p) { return One(row(p, NONE, One.count, 1)).run(x); }
float[3] three(float x[5], FLOATS p, int step) { return Three(row(p, NONE, Three.count, step)).run(x); }
float[3] one_back(float input[3], float d[2], FLOATS p, FLOATS dp)
{
    var x = diffPair(input);
    bwd_diff(one_run)(One(row(p, dp, One.count, 1)), x, d);
    return x.d;
}
float[5] three_back(float input[5], float d[3], FLOATS p, FLOATS dp, int step)
{
    var x = diffPair(input);
    bwd_diff(three_run)(Three(row(p, dp, Three.count, step)), x, d);
    return x.d;
}
float[3] three_forward(float x[5], float along[5], FLOATS p)
{
    return fwd_diff(three_run)(Three(row(p, NONE, Three.count, 1)), diffPair(x, along)).d;
}

[Differentiable] float[24] waves(float3 x) { return Frequency<3, 4>.encode(x); }
float3 waves_back(float3 at, float d[24])
{
    var x = diffPair(at);
    bwd_diff(waves)(x, d);
    return x.d;
}
float[24] waves_forward(float3 x, float3 along) { return fwd_diff(waves)(diffPair(x, along)).d; }

[Differentiable]
float[2 * L] grid_run<let D : int, let L : int, let E : int>(HashGrid<D, L, 2, E, 3, 20> grid, vector<float, D> x)
{
    return grid.encode(x);
}
float[8] grid2(float2 x, FLOATS t) { return HashGrid<2, 4, 2, 64, 3, 20>(matrix(t, NONE, 256, 2)).encode(x); }
float[6] grid3(float3 x, FLOATS t)
{
    return HashGrid<3, 3, 2, 100, 3, 20>(matrix(t, NONE, 300, 2, true)).encode(x);
}
float2 grid2_back(float2 at, float d[8], FLOATS t, FLOATS dt)
{
    var x = diffPair(at);
    bwd_diff(grid_run<2, 4, 64>)(HashGrid<2, 4, 2, 64, 3, 20>(matrix(t, dt, 256, 2)), x, d);
    return x.d;
}
float3 grid3_back(float3 at, float d[6], FLOATS t, FLOATS dt)
{
    var x = diffPair(at);
    bwd_diff(grid_run<3, 3, 100>)(HashGrid<3, 3, 2, 100, 3, 20>(matrix(t, dt, 300, 2, true)), x, d);
    return x.d;
}
float[6] grid3_forward(float3 x, float3 along, FLOATS t, FLOATS dt)
{
    let grid = HashGrid<3, 3, 2, 100, 3, 20>(matrix(t, dt, 300, 2, true));
    return fwd_diff(grid_run<3, 3, 100>)(grid, diffPair(x, along)).d;
}

[Differentiable] float3 all_losses(float y[4], no_diff float t[4])
{
    return float3(l2Loss(y, t), l1Loss(y, t), relativeL2Loss(y, t));
}
float3 losses(float y[4], float t[4]) { return all_losses(y, t); }
float3 losses_forward(float y[4], float along[4], float t[4])
{
    return fwd_diff(all_losses)(diffPair(y, along), t).d;
}
float[4] losses_back(float prediction[4], float t[4], float3 d)
{
    var y = diffPair(prediction);
    bwd_diff(all_losses)(y, t, d);
    return y.d;
}
"""


pytestmark = pytest.mark.usefixtures("internal_names")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_mlp", SLANG)


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Numbers whose float64 results the models below compute from the same float32 inputs."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def slopes(function: Function, x: Any, h: float = 1e-5) -> Array:
    """Central differences of each row's outputs by each of its inputs: (rows, outputs, inputs)."""
    x = np.asarray(x, np.float64)
    steps = [np.eye(x.shape[1])[i] * h for i in range(x.shape[1])]
    return np.stack([(function(x + s) - function(x - s)) / (2 * h) for s in steps], -1)


def close(result: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Within that part of the largest number expected."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance * scale)


class Parameters:
    """An array on the device, and one of zeros for its gradient; ``data`` and ``zeros`` say where."""

    def __init__(self, device: spy.Device, values: npt.NDArray[np.float32]) -> None:
        self.host = values.astype(np.float64)
        self._tensors = spy.Tensor.from_numpy(device, values), spy.Tensor.zeros(device, values.shape, dtype="float")
        self.data, self.zeros = map(pointer, self._tensors)

    def gradient(self) -> Any:
        """What has been added so far."""
        return self._tensors[1].to_numpy()


@one_device
def test_the_layer_of_the_proposal(device: spy.Device, module: spy.Module) -> None:
    x, d, w = normal(1, 500, 32), normal(2, 500, 8), Parameters(device, normal(3, 32, 8))
    close(module.sp016(x, w.data, w.zeros), x @ w.host)
    close(module.sp016_back(x, d, w.data, w.zeros), d @ w.host.T)
    close(w.gradient(), x.T.astype(np.float64) @ d)


def test_the_training_of_the_proposal(device: spy.Device, module: spy.Module) -> None:
    x, t, w = normal(1, 3000, 32), normal(2, 3000, 8), normal(3, 32, 8)
    inputs, targets = spy.Tensor.from_numpy(device, x), spy.Tensor.from_numpy(device, t)
    weights = spy.Tensor.from_numpy(device, w).with_grads()
    ones = spy.Tensor.from_numpy(device, np.ones(3000, np.float32))
    losses = spy.Tensor.zeros(device, 3000, dtype="float").with_grads(grad_in=ones)
    expected = w.astype(np.float64)
    close(module.compute(weights, inputs).to_numpy(), x @ expected)
    for _ in range(5):
        weights.grad_out.clear()
        module.loss.bwds(weights, inputs, targets, _result=losses)
        gradient = 2 * x.T @ (x @ expected - t)
        close(weights.grad_out.to_numpy(), gradient, 1e-4)
        module.updateWeights(weights, weights.grad_out, 1e-5)
        expected -= 1e-5 * gradient
    close(weights.to_numpy(), expected, 1e-4)


@deep
def test_parts_of_a_model_from_python(device: spy.Device, requires: Requires) -> None:
    text = """
import mlp;
struct Model
{
    Frequency<2, 2> waves;
    Dense<8, 20, SiLU> first;
    Network<20, 3, 16, 2, Sine> second;
    [Differentiable] float[3] at(float2 x) { return second.run(first.run(waves.encode(x))); }
}
int count() { return Network<20, 3, 16, 2, Sine>.count; }
[Differentiable] float[3] model(Model model, float2 x) { return model.at(x); }
"""
    module = spy.Module.load_from_source(device, "model", text)
    sizes = [20, 16, 16, 3]
    assert module.count() == sum((a + 1) * b for a, b in pairwise(sizes))
    host = [normal(1, 8, 20), normal(2, 20), normal(3, module.count()) * np.float32(0.3)]
    w, b, p = (spy.Tensor.from_numpy(device, h).with_grads() for h in host)
    model = {"waves": {}, "first": {"weights": w, "bias": b}, "second": p}
    x, d = normal(4, 700, 2), normal(5, 700, 3)

    def run(w: Array, b: Array, p: Array) -> Array:
        angle = x.astype(np.float64)[..., None] * np.pi * 2.0 ** np.arange(2)
        z = np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(x), -1) @ w + b
        return network(sizes, p, np.sin, lambda z: z)(z / (1 + np.exp(-z)))

    exact = [h.astype(np.float64) for h in host]
    result = spy.Tensor.zeros(device, 700, dtype="float[3]").with_grads(
        grad_in=spy.Tensor.from_numpy(device, d, dtype="float[3]")
    )
    close(module.model(model, x), run(*exact))
    requires("large derivatives")
    module.model.bwds(model, spy.Tensor.from_numpy(device, x), _result=result)
    for k, tensor in enumerate((w, b, p)):
        expected = np.zeros(exact[k].shape)
        for at in np.ndindex(expected.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = [e.copy() for e in exact]
                moved[k][at] += h
                ends.append(run(*moved))
            expected[at] = (d * (ends[0] - ends[1])).sum() / 2e-5
        close(tensor.grad_out.to_numpy(), expected, 1e-4)
    along = [normal(6 + k, *h.shape) for k, h in enumerate(host)]
    w, b, p = (
        spy.Tensor.from_numpy(device, h).with_grads(grad_in=spy.Tensor.from_numpy(device, a))
        for h, a in zip(host, along, strict=True)
    )
    model = {"waves": {}, "first": {"weights": w, "bias": b}, "second": p}
    ends = [run(*(e + h * a for e, a in zip(exact, along, strict=True))) for h in (1e-5, -1e-5)]
    result = module.model.fwds(model, spy.Tensor.from_numpy(device, x))
    close(result.to_numpy(), run(*exact))
    close(result.grad.to_numpy(), (ends[0] - ends[1]) / 2e-5, 1e-4)


@one_device
def test_a_deterministic_device(backend_name: str) -> None:
    x, d, w = normal(1, 5000, 32), normal(2, 5000, 8), normal(3, 32, 8)
    seen = set()
    with spy.Device(backend_name, deterministic=True) as device:
        module = spy.Module.load_from_source(device, "exact", SLANG)
        result = spy.Tensor.zeros(device, 5000, dtype="float[8]").with_grads(
            grad_in=spy.Tensor.from_numpy(device, d, dtype="float[8]")
        )
        for _ in range(3):
            weights = spy.Tensor.from_numpy(device, w).with_grads()
            module.compute.bwds(weights, spy.Tensor.from_numpy(device, x), _result=result)
            seen.add(weights.grad.to_numpy().tobytes())
            close(weights.grad.to_numpy(), x.T.astype(np.float64) @ d)
    assert len(seen) == 1


# Tiles of 32 outputs, vectors of 8, and what is left over of each.
@sampled(4)
@pytest.mark.parametrize(("inputs", "outputs"), [(1, 1), (5, 43), (70, 64)])
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
def test_a_dense_layer(device: spy.Device, module: spy.Module, inputs: int, outputs: int, transposed: bool) -> None:
    x, d = normal(1, 65, inputs), normal(2, 65, outputs)
    w = Parameters(device, normal(3, outputs, inputs) if transposed else normal(3, inputs, outputs))
    b = Parameters(device, normal(4, 2 * outputs))
    step = 2 if transposed else 1
    weights, bias = w.host.T if transposed else w.host, b.host[: step * outputs : step]
    y = np.tanh(x @ weights + bias)
    names = f"<{inputs}, {outputs}>"
    close(module[f"dense{names}"](x, w.data, b.data, transposed), y)
    dz = d * (1 - y**2)
    back = module[f"dense_back{names}"]
    close(back(x, d, w.data, b.data, w.zeros, b.zeros, transposed), dz @ weights.T)
    expected = x.T.astype(np.float64) @ dz
    close(w.gradient(), expected.T if transposed else expected)
    expected = np.zeros(2 * outputs)
    expected[: step * outputs : step] = dz.sum(0)
    close(b.gradient(), expected)


# Weights' gradients take another way where a wave has as many lanes as the kernel was made for, and all of them run.
@pytest.mark.parametrize("lanes", one_in(3, [0, 8, 32]))
def test_whole_waves_and_parts_of_them(device: spy.Device, lanes: int) -> None:
    text = f"""
export static const uint _spy_lanes = {lanes};
float[5] odd(float input[5], float d[43], FLOATS w, FLOATS b, FLOATS dw, FLOATS db, bool odd)
{{
    float none[5] = {{}};
    return odd ? dense_back<5, 43>(input, d, w, b, dw, db, false) : none;
}}
"""
    module = spy.Module.load_from_source(device, f"waves{lanes}", SLANG + text)
    x, d = normal(1, 999, 5), normal(2, 999, 43)
    w, b = Parameters(device, normal(3, 5, 43)), Parameters(device, normal(4, 43))
    dz = d * (1 - np.tanh(x @ w.host + b.host) ** 2)
    module["dense_back<5, 43>"](x, d, w.data, b.data, w.zeros, b.zeros, False)
    close(w.gradient(), x.T.astype(np.float64) @ dz)
    close(b.gradient(), dz.sum(0))
    chosen = np.random.default_rng(5).random(999) < 0.5
    w, b = Parameters(device, normal(3, 5, 43)), Parameters(device, normal(4, 43))
    module.odd(x, d, w.data, b.data, w.zeros, b.zeros, chosen)
    close(w.gradient(), (x * chosen[:, None]).T.astype(np.float64) @ dz)


@one_device
def test_each_thread_may_have_other_weights(device: spy.Device) -> None:
    text = """
float[5] choose(float input[5], float d[43], FLOATS w, FLOATS b, FLOATS dw, FLOATS db, int which)
{
    return dense_back<5, 43>(input, d, w + 215 * which, b, dw + 215 * which, db, false);
}
"""
    module = spy.Module.load_from_source(device, "chosen", SLANG + text)
    x, d = normal(1, 500, 5), normal(2, 500, 43)
    which = np.random.default_rng(3).integers(0, 3, 500).astype(np.int32)
    w, b = Parameters(device, normal(4, 3, 5, 43)), Parameters(device, normal(5, 43))
    dz = d * (1 - np.tanh(np.einsum("ni,nio->no", x, w.host[which]) + b.host) ** 2)
    close(module.choose(x, d, w.data, b.data, w.zeros, b.zeros, which), np.einsum("no,nio->ni", dz, w.host[which]))
    expected = [np.einsum("ni,no->io", x[which == k], dz[which == k]) for k in range(3)]
    close(w.gradient(), np.stack(expected))


@one_device
def test_without_gradients_and_in_forward_mode(device: spy.Device, module: spy.Module) -> None:
    x, along, d = normal(1, 9, 5), normal(2, 9, 5), normal(3, 9, 43)
    w, b = Parameters(device, normal(4, 5, 43)), Parameters(device, normal(5, 43))
    dz = 1 - np.tanh(x @ w.host + b.host) ** 2
    close(module["dense_constant<5, 43>"](x, d, w.data, b.data), (d * dz) @ w.host.T)
    close(module["dense_forward<5, 43>"](x, along, w.data, b.data), dz * (along @ w.host))


def test_every_activation(module: spy.Module) -> None:
    def model(x: Array) -> Array:
        sigmoid = 1 / (1 + np.exp(-x))
        return np.concatenate(
            [
                *(x, np.maximum(x, 0), np.where(x > 0, x, x / 100), sigmoid, np.tanh(x), np.exp(x)),
                *(np.logaddexp(x, 0), x * sigmoid, np.sin(x), x**3),
            ],
            -1,
        )

    x = np.array([[-5], [-1.5], [-0.25], [0.125], [1], [4.5]], np.float32)
    result = module.activations(x[:, 0]).reshape(6, 10, 2)
    close(result[..., 0], model(x.astype(np.float64)), 2e-6)
    close(result[..., 1], slopes(model, x)[..., 0], 2e-6)


def test_activations_far_out(module: spy.Module) -> None:
    low, high = module.activations(np.array([-500, 500], np.float32)).reshape(2, 10, 2)
    # Identity, ReLU, LeakyReLU, Sigmoid, Tanh, Exp, Softplus, SiLU: value and slope.
    expected = [[-500, 1], [0, 0], [-5, 0.01], [0, 0], [-1, 0], [0, 0], [0, 0], [0, 0]]
    np.testing.assert_allclose(low[:8], expected, atol=1e-30)
    expected = [[500, 1], [500, 1], [500, 1], [1, 0], [1, 0], [np.inf, np.inf], [500, 1], [500, 1]]
    np.testing.assert_allclose(high[:8], expected, atol=1e-30)


def network(sizes: list[int], parameters: Array, hidden: Function, last: Function) -> Function:
    """A network from its definition."""

    def run(x: Array) -> Array:
        at = 0
        for k, (rows, columns) in enumerate(pairwise(sizes)):
            weights = parameters[at : at + rows * columns].reshape(rows, columns)
            at += rows * columns
            x = x @ weights + parameters[at : at + columns]
            at += columns
            x = (last if k == len(sizes) - 2 else hidden)(x)
        assert at == parameters.size
        return x

    return run


def by_parameters(sizes: list[int], p: Array, hidden: Function, last: Function, x: Any, d: Any) -> Array:
    """Central differences by each parameter of the outputs times `d`, summed."""
    result = np.zeros(p.size)
    for k in range(p.size):
        step = np.zeros(p.size)
        step[k] = 1e-5
        high, low = (network(sizes, q, hidden, last)(x.astype(np.float64)) for q in (p + step, p - step))
        result[k] = (d * (high - low)).sum() / 2e-5
    return result


def test_a_network_of_one_hidden_layer(device: spy.Device, module: spy.Module) -> None:
    sizes, count = [3, 5, 2], 3 * 5 + 5 + 5 * 2 + 2
    assert module.one_count() == count
    x, d, p = normal(1, 33, 3), normal(2, 33, 2), Parameters(device, normal(3, count) * np.float32(0.5))
    model = network(sizes, p.host, np.sin, lambda z: z**3)
    close(module.one(x, p.data), model(x.astype(np.float64)))
    close(module.one_back(x, d, p.data, p.zeros), np.einsum("no,noi->ni", d, slopes(model, x)))
    close(p.gradient(), by_parameters(sizes, p.host, np.sin, lambda z: z**3, x, d))


@one_device
@pytest.mark.parametrize("step", [1, 3])
def test_a_network_of_three_hidden_layers(
    device: spy.Device, module: spy.Module, requires: Requires, step: int
) -> None:
    def silu(z: Array) -> Array:
        return z / (1 + np.exp(-z))

    def sigmoid(z: Array) -> Array:
        return 1 / (1 + np.exp(-z))

    sizes, count = [5, 40, 40, 40, 3], 5 * 40 + 40 + 2 * (40 * 40 + 40) + 40 * 3 + 3
    assert module.three_count() == count
    x, d, p = normal(1, 17, 5), normal(2, 17, 3), Parameters(device, normal(3, step * count) * np.float32(0.3))
    used = p.host[::step]
    model = network(sizes, used, silu, sigmoid)
    close(module.three(x, p.data, step), model(x.astype(np.float64)))
    requires("large derivatives")
    close(module.three_back(x, d, p.data, p.zeros, step), np.einsum("no,noi->ni", d, slopes(model, x)), 1e-4)
    gradient = p.gradient()
    close(gradient[::step], by_parameters(sizes, used, silu, sigmoid, x, d), 1e-4)
    assert not gradient.reshape(-1, step)[:, 1:].any()
    if step == 1:
        along = normal(4, 17, 5)
        close(module.three_forward(x, along, p.data), np.einsum("noi,ni->no", slopes(model, x), along), 1e-4)


def by_hand(sizes: list[int], p: Array, x: Array, d: Array, tanh: bool) -> tuple[Array, Array, Array]:
    """The outputs of a network of sines, and of their products with `d` the gradients by inputs and by parameters."""
    layers, at = [], 0
    for rows, columns in pairwise(sizes):
        end = at + rows * columns
        layers.append((p[at:end].reshape(rows, columns), p[end : end + columns]))
        at = end + columns
    inputs, sums = [x.astype(np.float64)], []
    for weights, bias in layers:
        sums.append(inputs[-1] @ weights + bias)
        inputs.append(np.sin(sums[-1]))
    y = np.tanh(sums[-1]) if tanh else sums[-1]
    dz = d * (1 - y**2) if tanh else d
    parts: list[Array] = []
    for k in reversed(range(len(layers))):
        parts = [(inputs[k].T @ dz).ravel(), dz.sum(0), *parts]
        dx = dz @ layers[k][0].T
        dz = dx * np.cos(sums[k - 1]) if k else dx
    return y, dz, np.concatenate(parts)


NETWORKS = {"slim": [5, 32, 6], "narrow": [20, 48, 48, 48, 7], "wide": [64, 64, 64]}


# Whole waves and a part of one; lanes that leave; lanes that have networks of their own; a narrow network that begins
# where vectors do not; gradients far below what half precision holds.
@sampled(3)
@pytest.mark.parametrize("case", one_in(3, ["all", "some", "several", "second", "small"]))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_waves_compute(
    device: spy.Device, module: spy.Module, requires: Requires, name: str, case: str
) -> None:
    n, sizes, random = 331, NETWORKS[name], np.random.default_rng(1)
    count = sum((a + 1) * b for a, b in pairwise(sizes))
    x, d = normal(2, n, sizes[0]), normal(3, n, sizes[-1]) * np.float32(1e-20 if case == "small" else 1)
    p = Parameters(device, normal(4, 3, count) * np.float32(np.sqrt(1 / sizes[1])))
    which = np.full(n, 1 if case == "second" else 0, np.int32)
    if case == "several":
        which = random.integers(0, 3, n).astype(np.int32)
    chosen = random.random(n) < 0.5 if case == "some" else np.ones(n, bool)
    y, dx, dp = np.zeros(d.shape), np.zeros(x.shape), np.zeros(p.host.shape)
    for k in range(3):
        mine = which == k
        y[mine], dx[mine], _ = by_hand(sizes, p.host[k], x[mine], d[mine], name == "wide")
        *_, dp[k] = by_hand(sizes, p.host[k], x[mine & chosen], d[mine & chosen], name == "wide")
    close(module[name](x, p.data, which), y)
    if name == "narrow":
        requires("large derivatives")
    result = np.asarray(module[f"{name}_back"](x, d, p.data, p.zeros, which, chosen))
    close(result[chosen], dx[chosen])
    close(p.gradient(), dp)
    if case == "all":
        close(module[f"{name}_back"](x, d, p.data, nowhere(device), which, chosen), dx)


@pytest.mark.parametrize("name", NETWORKS)
def test_samples_of_a_wave_do_not_touch_each_other(
    device: spy.Device, module: spy.Module, requires: Requires, name: str
) -> None:
    if name == "narrow":
        requires("large derivatives")
    n, sizes = 320, NETWORKS[name]
    count = sum((a + 1) * b for a, b in pairwise(sizes))
    x, d = normal(1, n, sizes[0]), normal(2, n, sizes[-1])
    p = Parameters(device, normal(3, 3, count) * np.float32(np.sqrt(1 / sizes[1])))
    size = np.float32(10) ** (np.arange(n) % 25 - 12)[:, None].astype(np.float32)
    which, chosen = np.zeros(n, np.int32), np.ones(n, bool)
    _, dx, _ = by_hand(sizes, p.host[0], x, d, name == "wide")
    d *= size
    # One sample in 40 has no number.
    d[::40] = np.nan
    result = np.asarray(module[f"{name}_back"](x, d, p.data, nowhere(device), which, chosen)) / size
    others = np.arange(n) % 40 != 0
    close(result[others], dx[others])
    assert np.isnan(result[~others]).any(1).all()


def test_matrix_units_are_asked_for_where_they_are(device: spy.Device, module: spy.Module) -> None:
    p = Parameters(device, normal(1, 3, 10000))
    text = module.wide.source(normal(2, 4, 64), p.data, np.zeros(4, np.int32))
    asked = "export static const bool _spy_cooperative = true;" in text
    assert asked == ("cooperative_matrix" in device.caps.features)


def test_where_parameters_start(module: spy.Module) -> None:
    expected = [np.sqrt(2 / 3)] * 15 + [0] * 5 + [np.sqrt(2 / 5)] * 10 + [0] * 2
    close(module.one_deviation(np.arange(32)), expected)
    layer = [np.sqrt(2 / 40)] * 1600 + [0] * 40
    expected = [np.sqrt(2 / 5)] * 200 + [0] * 40 + layer + layer + [np.sqrt(2 / 40)] * 120 + [0] * 3
    close(module.three_deviation(np.arange(len(expected))), expected)


@one_device
def test_frequencies(module: spy.Module) -> None:
    def model(x: Array) -> Array:
        angle = x[..., None] * np.pi * 2.0 ** np.arange(4)
        return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(len(x), -1)

    x, along, d = normal(1, 20, 3), normal(2, 20, 3), normal(3, 20, 24)
    by_x = slopes(model, x)
    close(module.waves(x), model(x.astype(np.float64)))
    close(module.waves_back(x, d), np.einsum("no,noi->ni", d, by_x))
    close(module.waves_forward(x, along), np.einsum("noi,ni->no", by_x, along))


def grid_weights(x: Array, side: int, entries: int) -> Array:
    """The part that each entry of one level's table has in each position's features: (positions, entries)."""
    result = np.zeros((len(x), entries))
    dimensions = x.shape[1]
    for n, position in enumerate(np.clip(x, 0, 1) * side):
        low = np.minimum(np.floor(position), side - 1).astype(int)
        for corner in np.ndindex(*[2] * dimensions):
            weight = np.prod(np.where(corner, position - low, 1 - (position - low)))
            node = [int(i) for i in low + corner]
            if (side + 1) ** dimensions <= entries:
                entry = sum(i * (side + 1) ** d for d, i in enumerate(node))
            else:
                hashed = 0
                for i, prime in zip(node, (1, 2654435761, 805459861), strict=False):
                    hashed ^= i * prime % 2**32
                entry = hashed % entries
            result[n, entry] += weight
    return result


@sampled(2)
@pytest.mark.parametrize(
    ("name", "sides", "entries", "transposed"),
    [("grid2", (3, 6, 11, 20), 64, False), ("grid3", (3, 8, 20), 100, True)],
)
def test_a_hash_grid(
    device: spy.Device, module: spy.Module, name: str, sides: tuple[int, ...], entries: int, transposed: bool
) -> None:
    # 3, 5.65, 10.63, 20 and 3, 7.75, 20, rounded; in two dimensions 16, 49 nodes fit and 144, 441 do not.
    dimensions, levels = int(name[-1]), len(sides)
    x = np.random.default_rng(1).random((40, dimensions)).astype(np.float32)
    values = normal(2, levels * entries, 2)
    d = normal(3, 40, 2 * levels)
    table = Parameters(device, np.ascontiguousarray(values.T) if transposed else values)

    def parts(x: Array) -> Array:
        return np.stack([grid_weights(x, side, entries) for side in sides], 1)

    def model(x: Array) -> Array:
        return np.einsum("nle,lef->nlf", parts(x), values.reshape(levels, entries, 2)).reshape(len(x), -1)

    by_x = slopes(model, x, 1e-6)
    exact = parts(x.astype(np.float64))
    close(module[name](x, table.data), model(x.astype(np.float64)))
    close(module[f"{name}_back"](x, d, table.data, table.zeros), np.einsum("no,noi->ni", d, by_x), 1e-4)
    expected = np.einsum("nle,nlf->lef", exact, d.reshape(40, levels, 2)).reshape(-1, 2)
    close(table.gradient(), expected.T if transposed else expected)
    if name == "grid3":
        along = normal(4, 40, 3)
        expected = np.einsum("noi,ni->no", by_x, along)
        close(module.grid3_forward(x, along, table.data, nowhere(device)), expected, 1e-4)
        moved = normal(5, *values.shape)
        tangent = spy.Tensor.from_numpy(device, np.ascontiguousarray(moved.T))
        expected += np.einsum("nle,lef->nlf", exact, moved.reshape(levels, entries, 2)).reshape(40, -1)
        close(module.grid3_forward(x, along, table.data, pointer(tangent)), expected, 1e-4)


def test_a_hash_grid_at_its_ends(device: spy.Device, module: spy.Module) -> None:
    values = normal(1, 256, 2)
    table = Parameters(device, values)
    x = np.array([[0, 0], [1, 1], [-3, 0.5], [2, 1e30]], np.float32)
    expected = np.stack([grid_weights(x, side, 64) for side in (3, 6, 11, 20)], 1)
    expected = np.einsum("nle,lef->nlf", expected, values.reshape(4, 64, 2)).reshape(4, -1)
    close(module.grid2(x, table.data), expected)
    gradient = np.asarray(module.grid2_back(x, np.ones((4, 8), np.float32), table.data, table.zeros))
    assert gradient[:2].all()
    np.testing.assert_array_equal(gradient[2:] != 0, [[False, True], [False, False]])


@one_device
def test_losses(module: spy.Module) -> None:
    y, t, along, d = normal(1, 30, 4), normal(2, 30, 4), normal(3, 30, 4), normal(4, 30, 3)
    t[0, 0] = y[0, 0]
    held = (y.astype(np.float64) ** 2) + 0.01

    def model(y: Array) -> Array:
        e = y - t
        return np.stack([(e**2).mean(1), np.abs(e).mean(1), (e**2 / held).mean(1)], 1)

    by_y = slopes(model, y)
    close(module.losses(y, t), model(y.astype(np.float64)))
    close(module.losses_back(y, t, d), np.einsum("no,noi->ni", d, by_y))
    close(module.losses_forward(y, along, t), np.einsum("noi,ni->no", by_y, along))


@one_device
def test_optimizers(device: spy.Device) -> None:
    library = spy.Module.load_from_source(device, "optimizers", "import mlp;")
    start, steps = normal(1, 100), [normal(k, 100) for k in range(2, 6)]
    p = spy.Tensor.from_numpy(device, start)
    library.sgd(p, steps[0], 0.25)
    close(p.to_numpy(), start - 0.25 * steps[0].astype(np.float64))
    for name, decay in (("adam", 0.0), ("adamw", 0.01)):
        p = spy.Tensor.from_numpy(device, start)
        m, v = (spy.Tensor.zeros(device, 100, dtype="float") for _ in range(2))
        expected, mean, variance = start.astype(np.float64), np.zeros(100), np.zeros(100)
        for k, g in enumerate(steps, 1):
            getattr(library, name)(p, g, m, v, 0.1, k)
            expected = expected - 0.1 * decay * expected
            mean = 0.9 * mean + 0.1 * g
            variance = 0.999 * variance + 0.001 * g.astype(np.float64) ** 2
            expected -= 0.1 * (mean / (1 - 0.9**k)) / (np.sqrt(variance / (1 - 0.999**k)) + 1e-8)
        # 1 - 0.999f is 0.001 to within 2e-5.
        close(p.to_numpy(), expected, 1e-4)
        close(m.to_numpy(), mean)
        close(v.to_numpy(), variance, 1e-4)


@pytest.fixture(scope="module")
def checked(backend_name: str) -> Iterator[spy.Device]:
    """A debug device."""
    with spy.Device(backend_name, debug=True) as device:
        yield device


@one_device
def test_weights_that_are_too_small_are_noticed(checked: spy.Device) -> None:
    text = "import mlp; float[2] run(MLP<3, 2> layer, float x[3]) { return layer.run(x); }"
    module = spy.Module.load_from_source(checked, "wrong", text)
    x, w = normal(1, 4, 3), normal(2, 3, 2)
    close(module.run(spy.Tensor.from_numpy(checked, w), x), x @ w)
    with pytest.raises(spy.SlangPyRtError, match=r"shape \(2, 3\) was read at \(2, 1\)"):
        module.run(spy.Tensor.from_numpy(checked, normal(2, 2, 3)), x)
        checked.synchronize()

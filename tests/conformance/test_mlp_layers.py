"""Layers and activations of shaders/mlp.slang against NumPy in double precision: values and gradients."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from _mlp import PROLOGUE, Array, Parameters, close, normal, slopes

import slangpy_rt as spy
from tests.depth import one_device, one_in, sampled

SLANG = (
    PROLOGUE
    + """
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
"""
)

pytestmark = pytest.mark.usefixtures("internal_names")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_mlp_layers", SLANG)


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
@sampled(15)
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

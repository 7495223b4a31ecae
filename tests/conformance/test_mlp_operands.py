"""Layers of shaders/mlp.slang that multiply half and bfloat16, against NumPy in double precision and PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _mlp import Array, close, normal, slopes

import slangpy_rt as spy
from tests.depth import deep, needs, one_device, one_in, sampled

TYPES = ("half", "bfloat16")
# Parts of the largest number by which the operands of four layers are off, in the last bit, and some more.
TOLERANCE = {"float": 3e-5, "half": 6e-3, "bfloat16": 5e-2}


def rounded(values: Any, name: str) -> Array:
    """The nearest numbers of the type, ties to even."""
    values = np.asarray(values, np.float32)
    if name == "half":
        return values.astype(np.float16).astype(np.float64)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def rounded_gradients(values: npt.NDArray[np.float32], name: str) -> Array:
    """Halves are of each sample's gradients over the power of two below the largest."""
    if name != "half":
        return rounded(values, name)
    scale = 2.0 ** np.floor(np.log2(np.abs(values).max(1, keepdims=True)))
    return rounded(values / scale, name) * scale


def gradients(
    device: spy.Device, function: Any, models: list[spy.Tensor], x: npt.NDArray[Any], d: npt.NDArray[Any], net: Any
) -> tuple[Any, list[Any]]:
    """Those of the inputs and of each parameter, of the outputs times ``d``."""
    inputs = spy.Tensor.from_numpy(device, x, f"float[{x.shape[1]}]").with_grads()
    given = spy.Tensor.from_numpy(device, d, f"float[{d.shape[1]}]")
    result = spy.Tensor.empty(device, len(x), f"float[{d.shape[1]}]").with_grads(grad_in=given)
    function.bwds(net, inputs, _result=result)
    return inputs.grad.to_numpy(), [model.grad.to_numpy() for model in models]


LAYERS = """
import mlp;
[Differentiable] float[19] dense(Dense<21, 19, Identity, TYPE> layer, float x[21]) { return layer.run(x); }
[Differentiable] float[4] linear(MLP<3, 4, TYPE> layer, float x[3]) { return layer.run(x); }
"""


@sampled(12)
@pytest.mark.parametrize("name", TYPES)
def test_operands_are_rounded_and_sums_are_not(device: spy.Device, name: str) -> None:
    module = spy.Module.load_from_source(device, "layers", LAYERS.replace("TYPE", name))
    x, w, b, d = normal(1, 45, 21), normal(2, 21, 19), normal(3, 19), normal(4, 45, 19)
    d *= np.float32(10) ** np.arange(-30, 15)[:, None].astype(np.float32)
    weights, bias = (spy.Tensor.from_numpy(device, v).with_grads() for v in (w, b))
    layer = {"weights": weights, "bias": bias}
    y = np.asarray(module.dense(layer, x))
    exact = rounded(x, name) @ rounded(w, name) + b
    close(y, exact, 1e-6)
    # The test sees whether they are rounded.
    assert np.abs(exact - (x.astype(np.float64) @ w + b)).max() > (1e-3 if name == "half" else 1e-2)
    dx, (dw, db) = gradients(device, module.dense, [weights, bias], x, d, layer)
    dr = rounded_gradients(d, name)
    expected = dr @ rounded(w, name).T
    for row in range(45):
        close(dx[row], expected[row], 1e-6)
    close(dw, rounded(x, name).T @ dr, 1e-5)
    close(db, dr.sum(0), 1e-5)
    small = rounded(x[:, :3], name) @ rounded(w[:3, :4], name)
    linear = module.linear(np.ascontiguousarray(w[:3, :4]), np.ascontiguousarray(x[:, :3]))
    close(np.asarray(linear), small, 1e-6)


@one_device
@pytest.mark.parametrize("name", TYPES)
def test_ties_large_numbers_and_no_numbers(device: spy.Device, name: str) -> None:
    text = "import mlp; [Differentiable] float[1] one(MLP<1, 1, TYPE> layer, float x[1]) { return layer.run(x); }"
    module = spy.Module.load_from_source(device, "one", text.replace("TYPE", name))
    step = 2.0**-11 if name == "half" else 2.0**-8
    # Ties between neighbours, the smallest halves and below, what is rounded to infinity, infinity, NaN.
    ties = [1 + step, 1 + 3 * step, -1 - step, 2.0**-24, 3e-8, 2.0**-25]
    x = np.array([*ties, 65519, 65520, 3e38, 1e-40, 0, np.inf, -np.inf, np.nan], np.float32)[:, None]
    y = np.array(module.one(np.ones((1, 1), np.float32), x))
    with np.errstate(over="ignore"):
        expected = rounded(x, name)
    expected[-3:] = x[-3:]
    if name == "bfloat16":
        # Devices may take what is below 2^-126 for 0.
        y[9], expected[9] = 0, 0
    np.testing.assert_array_equal(y, expected)


def network(sizes: list[int], p: Array, x: Array, d: Array) -> tuple[Array, Array, Array]:
    """The outputs of a network of SiLU, and of their products with `d` the gradients by inputs and by parameters."""
    layers, at = [], 0
    for rows, columns in pairwise(sizes):
        end = at + rows * columns
        layers.append((p[at:end].reshape(rows, columns), p[end : end + columns]))
        at = end + columns
    inputs, sums = [x], []
    for k, (weights, bias) in enumerate(layers):
        sums.append(inputs[-1] @ weights + bias)
        inputs.append(sums[-1] / (1 + np.exp(-sums[-1])) if k < len(layers) - 1 else sums[-1])
    parts: list[Array] = []
    for k in reversed(range(len(layers))):
        parts = [(inputs[k].T @ d).ravel(), d.sum(0), *parts]
        d = d @ layers[k][0].T
        if k:
            s = 1 / (1 + np.exp(-sums[k - 1]))
            d = d * s * (1 + sums[k - 1] * (1 - s))
    return inputs[-1], d, np.concatenate(parts)


def start(sizes: list[int], seed: int) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(seed)
    values = []
    for rows, columns in pairwise(sizes):
        values += [random.standard_normal(rows * columns) * np.sqrt(1.5 / rows), random.standard_normal(columns) / 10]
    return np.concatenate(values).astype(np.float32)


def loaded(device: spy.Device, sizes: list[int], name: str) -> Any:
    first, width, last, hidden = sizes[0], sizes[1], sizes[-1], len(sizes) - 2
    text = (
        f"import mlp; typealias Net = Network<{first}, {last}, {width}, {hidden}, SiLU, Identity, {name}>;\n"
        f"[Differentiable] float[{last}] run(Net net, float x[{first}]) {{ return net.run(x); }}"
    )
    return spy.Module.load_from_source(device, "net", text).run


# Widths for each way that there is: tiles, parts of tiles, and loops. lavapipe compiles large ones for a minute.
SMALL = [[5, 16, 6], [3, 20, 20, 2], [4, 7, 3]]
LARGE = [[20, 48, 48, 48, 7], [33, 128, 128, 2], [64, 64, 64, 64], [128, 128, 128], [12, 16, 16, 16, 16, 16, 3]]
CASES = [(sizes, name, n) for sizes in SMALL for name in TYPES for n in (331, 1, 17)]
CASES += [pytest.param(sizes, name, n, marks=deep) for sizes in LARGE for name in TYPES for n in (331, 17)]


@needs(lambda case: ["large derivatives"] if max(case["sizes"]) > 20 else [])
@sampled(36)
@pytest.mark.parametrize(("sizes", "name", "n"), CASES)
def test_networks(device: spy.Device, sizes: list[int], name: str, n: int) -> None:
    run, p = loaded(device, sizes, name), start(sizes, 1)
    # Far below what halves can be.
    x, d = normal(2, n, sizes[0]), normal(3, n, sizes[-1]) * np.float32(1e-9)
    y, dx, dp = network(sizes, p.astype(np.float64), x.astype(np.float64), d.astype(np.float64))
    parameters = spy.Tensor.from_numpy(device, p).with_grads()
    close(np.asarray(run(parameters, x)), y, TOLERANCE[name])
    found, (gradient,) = gradients(device, run, [parameters], x, d, parameters)
    close(found, dx, TOLERANCE[name])
    close(gradient, dp, TOLERANCE[name])


@one_device
@pytest.mark.parametrize("name", one_in(2, TYPES))
def test_one_sample_without_numbers(device: spy.Device, name: str) -> None:
    sizes = [3, 16, 2]
    run, p = loaded(device, sizes, name), start(sizes, 4)
    x, d = normal(5, 96, 3), normal(6, 96, 2)
    _, dx, _ = network(sizes, p.astype(np.float64), x.astype(np.float64), d.astype(np.float64))
    d[7], d[40] = np.nan, np.inf
    parameters = spy.Tensor.from_numpy(device, p).with_grads()
    found, (gradient,) = gradients(device, run, [parameters], x, d, parameters)
    others = np.delete(np.arange(96), [7, 40])
    close(found[others], dx[others], TOLERANCE[name])
    assert not np.isfinite(found[[7, 40]]).any(1).all()
    # Who looks for them before a step finds them.
    assert not np.isfinite(gradient).all()


# A network between two passes of another one: what a group has in its memory of one is not what the other needs.
SEVERAL = """
import mlp;
typealias Net = Network<16, 16, 16, 2, ReLU, Identity, TYPE>;
[Differentiable] float[16] several(Net a, Net b, float x[16]) { return b.run(a.run(b.run(x))); }
"""


def exact_start(entries: int, seed: int) -> npt.NDArray[np.float32]:
    """Three layers of 16 with so many entries of 1 or -1 in each row and column, whose sums are exact in 16 bits."""
    random = np.random.default_rng(seed)
    layers = []
    for _ in range(3):
        weights = sum(np.roll(np.diag(random.choice([-1, 1], 16)), 5 * k, 1) for k in range(entries))
        layers += [np.asarray(weights).ravel(), random.integers(-1, 2, 16)]
    return np.concatenate(layers).astype(np.float32)


@deep
@pytest.mark.parametrize(("name", "entries"), [("half", 2), ("bfloat16", 1)])
def test_networks_in_turn_are_exact(device: spy.Device, name: str, entries: int) -> None:
    random = np.random.default_rng(1)
    x, d = (random.integers(-2, 3, (331, 16)).astype(np.float32) for _ in range(2))
    p = [exact_start(entries, seed) for seed in (2, 3)]
    # The definition, in float64.
    inputs, sums, y = [], [], x.astype(np.float64)
    order = [(model, k) for model in (1, 0, 1) for k in range(3)]
    layers = {(m, k): p[m].reshape(3, 17, 16)[k].astype(np.float64) for m, k in order}
    for m, k in order:
        inputs.append(y)
        sums.append(y @ layers[m, k][:16] + layers[m, k][16])
        y = np.maximum(sums[-1], 0) if k < 2 else sums[-1]
    slope, expected = d.astype(np.float64), np.zeros((2, 3, 17, 16))
    for (m, k), given, z in reversed(list(zip(order, inputs, sums, strict=True))):
        slope = slope * (z > 0) if k < 2 else slope
        expected[m, k] += np.concatenate([given.T @ slope, slope.sum(0, keepdims=True)])
        slope = slope @ layers[m, k][:16].T
    run = spy.Module.load_from_source(device, "several", SEVERAL.replace("TYPE", name)).several
    models = [spy.Tensor.from_numpy(device, values).with_grads() for values in p]
    np.testing.assert_array_equal(np.asarray(run(*models, x)), y)
    given = spy.Tensor.from_numpy(device, d, "float[16]")
    result = spy.Tensor.empty(device, len(x), "float[16]").with_grads(grad_in=given)
    arguments = spy.Tensor.from_numpy(device, x, "float[16]").with_grads()
    run.bwds(*models, arguments, _result=result)
    np.testing.assert_array_equal(arguments.grad.to_numpy(), slope)
    for model, gradient in zip(models, expected, strict=True):
        np.testing.assert_array_equal(model.grad.to_numpy(), gradient.ravel())


@one_device
def test_no_samples(device: spy.Device) -> None:
    run, p = loaded(device, [3, 16, 2], "half"), start([3, 16, 2], 1)
    parameters = spy.Tensor.from_numpy(device, p).with_grads()
    assert run(parameters, np.zeros((0, 3), np.float32)).shape[0] == 0
    assert not parameters.grad.to_numpy().any()


@one_device
@pytest.mark.parametrize("name", one_in(2, TYPES))
def test_tangents(device: spy.Device, name: str) -> None:
    sizes = [5, 7, 7, 3]
    run, p = loaded(device, sizes, name), start(sizes, 7).astype(np.float64)
    x, along = normal(8, 17, 5), normal(9, 17, 5)

    def model(x: Array) -> Array:
        return network(sizes, p, x, np.zeros((len(x), 3)))[0]

    inputs = spy.Tensor.from_numpy(device, x).with_grads(grad_in=spy.Tensor.from_numpy(device, along))
    result = run.fwds(p.astype(np.float32), inputs)
    close(result.grad.to_numpy(), np.einsum("noi,ni->no", slopes(model, x), along), TOLERANCE[name])


@needs("large derivatives")
@deep
@one_device
@pytest.mark.parametrize("name", TYPES)
def test_beside_pytorch(device: spy.Device, name: str) -> None:
    torch = pytest.importorskip("torch")
    sizes, n, dtype = [20, 48, 48, 7], 1000, getattr(torch, {"half": "float16"}.get(name, name))
    run, p = loaded(device, sizes, name), start(sizes, 10)
    x, d = normal(11, n, 20), normal(12, n, 7)
    at, z = 0, torch.tensor(x).to(dtype).requires_grad_()
    inputs, leaves = z, []
    for k, (rows, columns) in enumerate(pairwise(sizes)):
        end = at + rows * columns
        values = p[at:end].reshape(rows, columns), p[end : end + columns]
        w, b = (torch.tensor(v).to(dtype).requires_grad_() for v in values)
        z = z @ w + b
        z = torch.nn.functional.silu(z) if k < len(sizes) - 2 else z
        leaves, at = [*leaves, w, b], end + columns
    z.backward(torch.tensor(d).to(dtype))
    parameters = spy.Tensor.from_numpy(device, p).with_grads()
    close(np.asarray(run(parameters, x)), z.detach().double().numpy(), 2 * TOLERANCE[name])
    dx, (dp,) = gradients(device, run, [parameters], x, d, parameters)
    close(dx, inputs.grad.double().numpy(), 2 * TOLERANCE[name])
    close(dp, np.concatenate([leaf.grad.double().numpy().ravel() for leaf in leaves]), 2 * TOLERANCE[name])


@deep
@one_device
def test_training(device: spy.Device) -> None:
    text = """
import mlp;
typealias Net = Network<2, 1, 16, 2, SiLU, Identity, half>;
[Differentiable]
float loss(Net net, no_diff float x[2], no_diff float target[1]) { return l2Loss(net.run(x), target); }
"""
    module = spy.Module.load_from_source(device, "training", text)
    x = np.random.default_rng(1).random((512, 2), dtype=np.float32) * 2 - 1
    target = (x[:, :1] * x[:, 1:]).astype(np.float32)
    net = spy.Tensor.from_numpy(device, start([2, 16, 16, 1], 13)).with_grads()
    share = spy.Tensor.full(device, 1, 1 / 512).broadcast_to(512)
    losses = spy.Tensor.empty(device, 512).with_grads(grad_in=share)
    inputs = spy.Tensor.from_numpy(device, x, "float[2]")
    targets = spy.Tensor.from_numpy(device, target, "float[1]")
    optimizer = spy.optim.Adam([net], lr=0.01)
    before = module.loss(net, inputs, targets).to_numpy().mean()
    for _ in range(150):
        optimizer.zero_grad()
        module.loss.bwds(net, inputs, targets, _result=losses)
        optimizer.step()
    assert module.loss(net, inputs, targets).to_numpy().mean() < 0.02 * before


@one_device
def test_a_type_that_layers_do_not_multiply(device: spy.Device) -> None:
    text = "import mlp; float[1] one(MLP<1, 1, double> layer, float x[1]) { return layer.run(x); }"
    with pytest.raises(spy.CompileError, match="IOperand"):
        spy.Module.load_from_source(device, "one", text).one(np.ones((1, 1), np.float32), np.ones((2, 1), np.float32))


@one_device
@pytest.mark.parametrize("sizes", one_in(2, ["0, 1, 4, 1", "1, 1, 0, 1"]))
def test_a_network_of_empty_layers(device: spy.Device, sizes: str) -> None:
    text = f"import mlp; float[1] one(Network<{sizes}> n, float x) {{ float i[{sizes[0]}]; return n.run(i); }}"
    with pytest.raises(spy.CompileError, match="a layer of a Network has one input and one output at least"):
        spy.Module.load_from_source(device, "empty", text).one(np.ones(9, np.float32), np.ones(2, np.float32))

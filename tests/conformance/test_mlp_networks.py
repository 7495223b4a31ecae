"""Networks of shaders/mlp.slang against NumPy in double precision: values, gradients, what waves compute."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from _gaps import nowhere
from _mlp import PROLOGUE, Array, Parameters, by_parameters, close, network, normal, slopes

import slangpy_rt as spy
from tests.depth import deep, needs, one_in, sampled

SLANG = (
    PROLOGUE
    + """
struct Cube : IActivation { [Differentiable] static float apply(float x) { return x * x * x; } }

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
"""
)

pytestmark = pytest.mark.usefixtures("internal_names")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_mlp_networks", SLANG)


@needs("large derivatives")
@deep
def test_parts_of_a_model_from_python(device: spy.Device) -> None:
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


def test_a_network_of_one_hidden_layer(device: spy.Device, module: spy.Module) -> None:
    sizes, count = [3, 5, 2], 3 * 5 + 5 + 5 * 2 + 2
    assert module.one_count() == count
    x, d, p = normal(1, 33, 3), normal(2, 33, 2), Parameters(device, normal(3, count) * np.float32(0.5))
    model = network(sizes, p.host, np.sin, lambda z: z**3)
    close(module.one(x, p.data), model(x.astype(np.float64)))
    close(module.one_back(x, d, p.data, p.zeros), np.einsum("no,noi->ni", d, slopes(model, x)))
    close(p.gradient(), by_parameters(sizes, p.host, np.sin, lambda z: z**3, x, d))


@needs("large derivatives")
@sampled(6)
@pytest.mark.parametrize("step", [1, 3])
def test_a_network_of_three_hidden_layers(device: spy.Device, module: spy.Module, step: int) -> None:
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
@needs(lambda case: ["large derivatives"] if case["name"] == "narrow" else [])
@sampled(30)
@pytest.mark.parametrize("case", one_in(3, ["all", "some", "several", "second", "small"]))
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_waves_compute(device: spy.Device, module: spy.Module, name: str, case: str) -> None:
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
    result = np.asarray(module[f"{name}_back"](x, d, p.data, p.zeros, which, chosen))
    close(result[chosen], dx[chosen])
    close(p.gradient(), dp)
    if case == "all":
        close(module[f"{name}_back"](x, d, p.data, nowhere(device), which, chosen), dx)


@needs(lambda case: ["large derivatives"] if case["name"] == "narrow" else [])
@sampled(9)
@pytest.mark.parametrize("name", NETWORKS)
def test_samples_of_a_wave_do_not_touch_each_other(device: spy.Device, module: spy.Module, name: str) -> None:
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

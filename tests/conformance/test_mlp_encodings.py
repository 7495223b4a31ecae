"""Encodings, losses and optimizers of shaders/mlp.slang against NumPy in double precision."""

from __future__ import annotations

import numpy as np
import pytest
from _gaps import nowhere, pointer
from _mlp import PROLOGUE, Array, Parameters, close, normal, slopes

import slangpy_rt as spy
from tests.depth import one_device, sampled

SLANG = (
    PROLOGUE
    + """
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
)

pytestmark = pytest.mark.usefixtures("internal_names")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_mlp_encodings", SLANG)


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


@sampled(4)
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

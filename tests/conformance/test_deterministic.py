"""A deterministic device gives the same bits each time, and they are those of exact sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_case, one_device, sampled

SOURCE = """
[Differentiable] float product(float a, float b) { return a * b; }
[Differentiable] double wide(double a, double b) { return a * b; }
[Differentiable] float pick(DiffTensor<float, 1> t, no_diff int i) { return t[i]; }
[Differentiable] double pickWide(DiffTensor<double, 1> t, no_diff int i) { return t[i]; }
[Differentiable] float3 shade(float3 a, float3 b) { return a * b; }
struct Pair : IDifferentiable { float x; int n; float2 y; }
[Differentiable] float use(Pair p, float b) { return (p.x + p.y.x * p.y.y) * b; }
"""

# Smaller ones have a copy for each range on the CPU, in which floats are added in the order of elements.
LARGE = 1 << 16


@pytest.fixture
def device(backend_name: str) -> Iterator[spy.Device]:
    with spy.Device(backend_name, deterministic=True) as opened:
        yield opened


def exact(terms: Any, dtype: type = np.float32) -> Any:
    """A sum of floats, rounded once."""
    return dtype(sum(map(Fraction, map(float, terms)), Fraction(0)))


def seeded(device: spy.Device, g: Any, dtype: str) -> spy.Tensor:
    gradient = spy.Tensor.from_numpy(device, g, dtype)
    return spy.Tensor.empty(device, gradient.shape, dtype).with_grads(grad_in=gradient)


def spread(rng: np.random.Generator, *shape: int) -> Any:
    """Floats of very different sizes, whose sum depends on the order where it is rounded each time."""
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-40, 40, shape)).astype(np.float32)


def test_scattered_gradients_are_exact_sums(device: spy.Device) -> None:
    rng = np.random.default_rng(0)
    module = spy.Module.load_from_source(device, "m", SOURCE)
    g, i = spread(rng, 5000), rng.integers(0, 7, 5000).astype(np.int32)
    index, out = spy.Tensor.from_numpy(device, i), seeded(device, g, "float")
    table = spy.Tensor.ones(device, LARGE).with_grads()
    module.pick.bwds(table, index, _result=out)
    assert table.grad is not None
    wanted = np.array([exact(g[i == k]) + np.float32(0) for k in range(7)], np.float32)
    np.testing.assert_array_equal(table.grad[:7].numpy(), wanted)
    module.pick.bwds(table, index, _result=out)
    np.testing.assert_array_equal(table.grad[:7].numpy(), wanted + wanted)


@one_device
def test_sums_of_doubles(device: spy.Device) -> None:
    if "double" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no double")
    rng = np.random.default_rng(1)
    module = spy.Module.load_from_source(device, "m", SOURCE)
    g = rng.standard_normal(999) * 2.0 ** rng.integers(-300, 300, 999)
    g[:3] = 5e-324, 1.5e308, -1.5e308
    i = np.zeros(999, np.int32)
    table = spy.Tensor.ones(device, LARGE, "double").with_grads()
    module.pickWide.bwds(table, spy.Tensor.from_numpy(device, i), _result=seeded(device, g, "double"))
    assert table.grad is not None
    np.testing.assert_array_max_ulp(table.grad[:1].numpy(), np.array([exact(g, np.float64)]), 1)


def test_the_smallest_numbers(device: spy.Device) -> None:
    if device.backend.target.format in ("spirv", "hlsl") and "llvmpipe" not in device.info:
        pytest.skip("Vulkan and D3D12 devices may take numbers below 2^-126 for zero")
    module = spy.Module.load_from_source(device, "m", SOURCE)
    g = np.array([2.0**-149, 2.0**-149, -(2.0**-149), 2.0**-127], np.float32)
    table = spy.Tensor.ones(device, LARGE).with_grads()
    module.pick.bwds(table, spy.Tensor.zeros(device, 4, "int"), _result=seeded(device, g, "float"))
    assert table.grad is not None
    np.testing.assert_array_equal(table.grad[:1].numpy(), [exact(g)])


@pytest.mark.parametrize(
    "terms",
    [
        [3e38, 3e38, -3e38], [np.inf, 1.0], [-np.inf, 1.0], [np.inf, -np.inf], [np.nan, 1.0],
        [1.0, -1.0], [-0.0, -0.0], [2.0**-126, 2.0**127], [-(2.0**-126), 2.0**127, -(2.0**127)],
    ],
)  # fmt: skip
def test_edges(device: spy.Device, terms: list[float]) -> None:
    module = spy.Module.load_from_source(device, "m", SOURCE)
    g = np.array(terms, np.float32)
    if device.backend.target.format == "spirv" and "llvmpipe" not in device.info and not np.all(np.isfinite(g)):
        pytest.skip("SPIR-V without SignedZeroInfNanPreserve: NVIDIA's driver takes every float for a finite number")
    table = spy.Tensor.ones(device, LARGE).with_grads()
    index = spy.Tensor.zeros(device, len(g), "int")
    module.pick.bwds(table, index, _result=seeded(device, g, "float"))
    assert table.grad is not None
    with np.errstate(invalid="ignore"):
        wanted = exact(g) if np.all(np.isfinite(g)) else g.sum()
    np.testing.assert_array_equal(table.grad[:1].numpy(), [wanted])


@sampled(6)
@pytest.mark.parametrize("shape", [(1,), (64,), (300, 1), (7, 1, 3)])
def test_the_same_bits_each_time(device: spy.Device, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    module = spy.Module.load_from_source(device, "m", SOURCE)
    full = {(1,): (100_000,), (64,): (2000, 64), (300, 1): (300, 700), (7, 1, 3): (7, 999, 3)}[shape]
    a, b, g = (spread(rng, *s) for s in (shape, full, full))
    tb, out, seen = spy.Tensor.from_numpy(device, b), seeded(device, g, "float"), set()
    for _ in range(5):
        ta = spy.Tensor.from_numpy(device, a).with_grads()
        module.product.bwds(ta, tb, _result=out)
        assert ta.grad is not None
        seen.add(ta.grad.numpy().tobytes())
    assert len(seen) == 1
    axes = tuple(d for d, n in enumerate((1,) * (len(full) - len(shape)) + shape) if n == 1)
    wanted = (g * b).astype(np.float64).sum(axes, keepdims=True).reshape(shape)
    assert ta.grad is not None
    np.testing.assert_allclose(ta.grad.numpy(), wanted, rtol=1e-5, atol=1e-5 * np.abs(g * b).max())


@one_device
def test_structs_vectors_pairs_and_views(device: spy.Device) -> None:
    rng = np.random.default_rng(3)
    module = spy.Module.load_from_source(device, "m", SOURCE)
    b, g = (rng.integers(-4, 5, 500).astype(np.float32) for _ in range(2))
    out, tb = seeded(device, g, "float"), spy.Tensor.from_numpy(device, b)
    pair = spy.diff_pair(2.0, 1.0)
    module.product.bwds(pair, tb, _result=out)
    assert pair.grad == 1 + (b * g).sum()
    one = spy.Tensor.zeros(device, (1,), module.Pair)
    one.copy_from(np.array([(1, 2, (3, 4))], one.numpy().dtype))
    one = one.with_grads()
    module.use.bwds(one, tb, _result=out)
    assert one.grad is not None
    total, gradient = (b * g).sum(), one.grad.numpy()
    assert gradient["x"] == total and gradient["y"].tolist() == [[4 * total, 3 * total]] and gradient["n"] == 0
    v = rng.integers(-4, 5, (500, 3)).astype(np.float32)
    row = spy.Tensor.ones(device, (4,), "float3").with_grads()
    module.shade.bwds(
        row[2:3], spy.Tensor.from_numpy(device, v, "float3"), _result=seeded(device, np.ones_like(v), "float3")
    )
    assert row.grad is not None
    np.testing.assert_array_equal(row.grad.numpy()[2], v.sum(0))
    assert not row.grad.numpy()[[0, 1, 3]].any()


@one_device
def test_what_one_thread_adds_to_stays_as_it_is(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "m", SOURCE)
    a = spy.Tensor.ones(device, 8).with_grads()
    out = seeded(device, np.ones(8, np.float32), "float")
    assert "accumulate" in module.product.bwds.source(a, a.detach(), _result=out) or "storeWide" in (
        module.product.bwds.source(a, a.detach(), _result=out)
    )
    module.product.bwds(a, a, _result=out)
    assert a.grad is not None
    np.testing.assert_array_equal(a.grad.numpy(), 2)


def test_without_doubles_a_sum_is_refused(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # As GPUs that D3D12 and Vulkan drive may be.
    scalars = device.caps.scalars - {"double"}
    monkeypatch.setattr(device, "caps", replace(device.caps, scalars=scalars))
    module = spy.Module.load_from_source(device, "without_doubles", SOURCE)
    a = spy.Tensor.from_numpy(device, np.ones(LARGE, np.float32)).with_grads()
    b = spy.Tensor.from_numpy(device, np.ones(1, np.float32)).with_grads()
    r = spy.Tensor.from_numpy(device, np.ones(LARGE, np.float32)).with_grads(grad_in=a.detach())
    with pytest.raises(spy.UnsupportedError, match=r"has no 'double', in which .* add to 'b.grad_out'; open the"):
        module.product.bwds(a, b, _result=r)
    # Of no others: each of these places is added to by one thread.
    module.product.bwds(a, a.detach(), _result=r)
    np.testing.assert_array_equal(a.grad.numpy(), np.ones(LARGE, np.float32))


@every_case
@pytest.mark.parametrize("type_", ["float2x3", "float3x2", "float4", "half2x3"])
@pytest.mark.parametrize("count", ["", "[2]"])
def test_elements_of_every_form(device: spy.Device, type_: str, count: str) -> None:
    """All threads add to one element, whose scalars are sums of their own: none is added to another's place."""
    if type_.startswith("half") and "half" not in device.caps.scalars:
        pytest.skip("the device has no halves")
    scalar = type_[: 4 + type_.startswith("float")]
    body = f"return a * {scalar}(b);"
    if count:
        body = f"{type_} r[2]; r[0] = a[0] * {scalar}(b); r[1] = a[1] * {scalar}(b); return r;"
    text = f"typealias E = {type_}{count}; [Differentiable] E scaled(E a, float b) {{ {body} }}"
    module = spy.Module.load_from_source(device, "m", text)
    a = spy.Tensor.zeros(device, 1, type_ + count).with_grads()
    shape, rng = a.to_numpy().shape[1:], np.random.default_rng(8)
    g, b = rng.integers(-8, 9, (100, *shape)), rng.integers(1, 5, 100).astype(np.float32)
    upstream = spy.Tensor.empty(device, 100, type_ + count)
    upstream.copy_from(g.astype(upstream.to_numpy().dtype))
    module.scaled.bwds(a, spy.Tensor.from_numpy(device, b), _result=spy.diff_pair(None, upstream))
    assert a.grad is not None
    np.testing.assert_array_equal(a.grad.to_numpy()[0], (g * b.reshape(-1, *[1] * len(shape))).sum(0))

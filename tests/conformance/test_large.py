"""Calls beyond one row of groups and beyond 32-bit indices: the limits are lowered, the results must not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.calls import kernel_spec
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import deep, needs, sampled

SLANG = """
float sub(float a, float b) { return a - b; }
NARROWEST next(NARROWEST x) { return NARROWEST(x * 3 + 1); }
float3 tint(float3 c, float s) { return c * s; }
int2 where(int2 p) { return p; }
"""
Load = Callable[..., spy.Module]


@pytest.fixture
def load(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> Load:
    """The module, for a device with a lower limit of groups and another end of 32-bit indices."""

    def lowered(groups: tuple[int, int, int] | None = None, last: int | None = None) -> spy.Module:
        if groups is not None:
            monkeypatch.setattr(device, "caps", replace(device.caps, max_groups=groups))
        if last is not None:
            monkeypatch.setattr(kernel_spec, "_MAX_32", last)
        return spy.Module.load_from_source(device, "test_large", SLANG, defines={"NARROWEST": narrowest(device)})

    return lowered


def check_everything(device: spy.Device, module: spy.Module, n: int) -> None:
    """Wide, narrow, strided, vector and index kernels over about ``n`` elements."""
    rng = np.random.default_rng(n)
    a, b = (rng.integers(-99, 99, n).astype(np.float32) for _ in range(2))
    left, right = spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b)
    np.testing.assert_array_equal(module.sub(left, right).to_numpy(), a - b)
    np.testing.assert_array_equal(module.sub(left[1:], right[:-1]).to_numpy(), a[1:] - b[:-1])
    np.testing.assert_array_equal(module.sub(left[::-2], 1).to_numpy(), a[::-2] - 1)
    rows, columns = 3, n // 3
    grid_a = a[: rows * columns].reshape(rows, columns)
    grid = spy.Tensor.from_numpy(device, grid_a)
    np.testing.assert_array_equal(module.sub(grid, right[:columns]).to_numpy(), grid_a - b[:columns])
    colours = rng.integers(0, 9, (n, 3)).astype(np.float32)
    np.testing.assert_array_equal(module.tint(colours, b), colours * b[:, None])
    y, x = np.indices((rows, columns))
    np.testing.assert_array_equal(module.where(spy.grid((rows, columns))).to_numpy(), np.stack([x, y], -1))


# A group is 256 threads of one or four elements: less than one row of 4 groups, just one, just more, many.
@needs("wide threads")
@sampled(6)
@pytest.mark.parametrize("n", [1000, 1024, 1025, 4096, 4097, 20011])
def test_rows_of_groups(device: spy.Device, load: Load, n: int) -> None:
    module = load(groups=(4, 65535, 65535))
    check_everything(device, module, n)
    tensor = spy.Tensor.zeros(device, n)
    assert ("_spy_call.row" in module.sub.source(tensor, tensor)) == (n > 4096)
    assert ("_spy_call.row" in module.sub.source(tensor[1:], tensor[1:])) == (n > 1025)


@needs("grouped calls")  # a range has them anyway
def test_64_bit_indices(device: spy.Device, load: Load) -> None:
    module = load(last=50)
    check_everything(device, module, 2051)
    x = np.zeros((8, 9), np.float32)
    assert "int64_t _spy_i" in module.sub.source(x, x)


@needs("grouped calls")
def test_64_bit_indices_in_rows_of_groups(device: spy.Device, load: Load) -> None:
    check_everything(device, load(groups=(4, 65535, 65535), last=50), 5003)


@needs("grouped calls")
def test_32_bit_indices_end_where_an_argument_reaches_further(device: spy.Device, load: Load) -> None:
    module = load(last=1000)
    tensor = spy.Tensor.zeros(device, (2, 2000))
    assert "uint _spy_i" in module.sub.source(tensor[0, :500], 1)
    assert "int64_t _spy_i" in module.sub.source(tensor[0, ::4], 1)
    assert "int64_t _spy_i" in module.sub.source(tensor[0, ::-4], 1)
    assert "int64_t _spy_i" in module.sub.source(tensor[:, :2], 1)


@needs("wide threads")
def test_more_groups_than_a_device_runs(device: spy.Device, load: Load) -> None:
    module = load(groups=(4, 2, 1))
    x = spy.Tensor.zeros(device, 4 * 2 * 256 * 4 + 1)
    with pytest.raises(spy.UnsupportedError) as caught:
        module.sub(x, x)
    assert str(caught.value) == (
        f"float sub(float a, float b): a call of 2,049 threads is more than {device.info} runs at once; make several "
        "calls of fewer elements."
    )


def test_long_calls_done_in_pieces(load: Load) -> None:
    # Long enough for the CPU to share it out; the odd row length puts the ends of pieces inside rows.
    module = load()
    shape = (1201, 1003)
    a = np.random.default_rng(7).integers(-99, 99, shape[::-1]).astype(np.float32)
    b = np.arange(shape[1], dtype=np.float32)
    np.testing.assert_array_equal(module.sub(a.T, b), a.T - b)
    np.testing.assert_array_equal(module.sub(a, a.T[:1].T), a - a[:, :1])
    y, x = np.indices(shape)
    np.testing.assert_array_equal(module.where(spy.grid(shape)).to_numpy(), np.stack([x, y], -1))
    np.testing.assert_array_equal(module.sub(a, 1), a - 1)


@deep
def test_more_elements_than_65535_groups_hold(device: spy.Device, load: Load) -> None:
    n = 65535 * 256 * 4 + 5
    dtype = NUMPY_OF[narrowest(device)]
    tensor = spy.Tensor.from_numpy(device, np.arange(n, dtype=np.uint32).astype(np.uint8).astype(dtype))
    got = load().next(tensor).to_numpy()
    pattern = (np.arange(256, dtype=np.uint32) * 3 + 1).astype(dtype)
    np.testing.assert_array_equal(got[: n // 256 * 256].reshape(-1, 256), np.broadcast_to(pattern, (n // 256, 256)))
    np.testing.assert_array_equal(got[n // 256 * 256 :], pattern[: n % 256])

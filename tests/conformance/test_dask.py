"""Slang functions over the blocks of Dask's arrays, in threads and in processes: against NumPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

# What these test does not depend on the device.
pytestmark = one_device

SOURCE = """
import slangpy_rt;

float mul(float a, float b) { return a * b * b; }
float twice(float a) { return 2 * a; }
double plus(double a) { return a + 1; }
float plus(float a) { return a + 1; }
float3 turn(float3 v) { return v.yzx; }
float luma(float3 v) { return v.x + 2 * v.y + 3 * v.z; }
float blur(Tensor<float, 2> image, int2 at)
{
    let low = max(at - 1, 0);
    let high = min(at + 1, int2(image.shape[1], image.shape[0]) - 1);
    float sum = 0;
    for (int y = low.y; y <= high.y; ++y)
        for (int x = low.x; x <= high.x; ++x)
            sum += image[y, x];
    return sum;
}
"""
N = np.random.default_rng(0).integers(0, 50, (190, 66)).astype(np.float32)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_dask", SOURCE)


@pytest.fixture
def x() -> da.Array:
    """Blocks of several sizes."""
    return da.from_array(N, chunks=(40, 50))


def same(lazy: da.Array, expected: Any) -> None:
    """The values, and what the array told of them before."""
    assert lazy.shape == expected.shape and lazy.dtype == expected.dtype
    got = lazy.compute(scheduler="threads", num_workers=8)
    assert type(got) is np.ndarray and got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@sampled(3)
def test_blocks(module: spy.Module, x: da.Array) -> None:
    same(da.map_blocks(module.mul, x, 2.0, dtype=x.dtype), 4 * N)
    same(da.map_blocks(module.mul, x, b=2.0, dtype=x.dtype), 4 * N)
    same(da.map_blocks(module.mul, x, x, dtype=x.dtype), N**3)
    same(da.map_blocks(module.mul, x, x[0], dtype=x.dtype), N * N[0] ** 2)
    same(da.map_blocks(module.mul, x.T[::2], 1.0, dtype=x.dtype), N.T[::2])
    same(x.map_blocks(module.twice).sum(axis=0), 2 * N.sum(axis=0))


def test_dask_asks_the_function_for_the_type(module: spy.Module, x: da.Array) -> None:
    """With an array without elements."""
    same(x.map_blocks(module.twice), 2 * N)
    same(x.astype("f8").map_blocks(module.twice), 2 * N)
    same(x.map_blocks(module.plus), N + 1)
    if "double" in module.device.caps.scalars:
        same(x.astype("f8").map_blocks(module.plus), N.astype("f8") + 1)


def test_vectors(module: spy.Module, x: da.Array) -> None:
    n = N.reshape(190, 22, 3)
    v = da.from_array(n, chunks=(40, 10, 3))
    same(v.map_blocks(module.turn, dtype=x.dtype), n[..., [1, 2, 0]])
    same(v.map_blocks(module.luma, drop_axis=2, dtype=x.dtype), n @ np.float32([1, 2, 3]))
    gray = da.apply_gufunc(module.luma, "(i)->()", da.from_array(n, chunks=(40, 10, 3)), output_dtypes=x.dtype)
    same(gray, n @ np.float32([1, 2, 3]))


def test_neighbours(module: spy.Module, x: da.Array) -> None:
    def blur(block: Any) -> Any:
        return module.blur(block, spy.grid(block.shape))

    padded = np.pad(N, 1)
    expected = sum(padded[i : i + 190, j : j + 66] for i in range(3) for j in range(3))
    same(da.map_overlap(blur, x, depth=1, boundary=0, dtype=x.dtype), expected)


def test_many_blocks_at_once(module: spy.Module) -> None:
    n = np.arange(200_000, dtype=np.float32) % 100
    lazy = da.from_array(n, chunks=1000)
    for k in range(4):
        lazy = da.map_blocks(module.mul, lazy.map_blocks(module.plus), float(k % 2 + 1), dtype=np.float32)
        n = (n + 1) * (k % 2 + 1) ** 2
    same(lazy, n)


def test_an_error_in_a_block_is_the_calls(module: spy.Module, x: da.Array) -> None:
    with pytest.raises(spy.ShapeError, match="does not broadcast"):
        da.map_blocks(module.mul, x, np.ones(7), dtype=x.dtype).compute(scheduler="threads")


def test_a_lazy_array_is_no_argument(module: spy.Module, x: da.Array) -> None:
    with pytest.raises(spy.BindError, match=r"argument 'a' is dask\.array"):
        module.twice(x)


def test_functions_need_a_device_in_other_processes(module: spy.Module, x: da.Array) -> None:
    with pytest.raises(spy.DeviceError, match=r"no such device is open in this process\. Open it first"):
        x.map_blocks(module.twice).compute(scheduler="processes", num_workers=1)


# A module that workers import, with the device that it works on, opened where it is first used.
BLOCKS = """
import functools
import os

import slangpy_rt as spy


@functools.cache
def module():
    device = spy.create_device(os.environ["BLOCKS_DEVICE"])
    return spy.Module.load_from_source(device, "blocks", "float twice(float a) { return 2 * a; }")


def twice(block):
    return module().twice(block)


def where(block):
    twice(block)
    return block * 0 + os.getpid()
"""
MAIN = """
import os
import sys

import dask.array as da
import numpy as np
from dask import config

import blocks
import slangpy_rt as spy

if __name__ == "__main__":
    n = np.arange(600, dtype=np.float32).reshape(20, 30)
    x = da.from_array(n, chunks=(5, 15))
    start, told = sys.argv[1], sys.argv[2] == "told"
    options = {"meta": np.empty((0, 0), np.float32)} if told else {}

    def compute(f):
        with config.set({"multiprocessing.context": start}):
            return x.map_blocks(f, **options).compute(scheduler="processes", num_workers=2)

    if start == "fork" and not told:
        # To learn the type, Dask calls the function here, which opens the device.
        try:
            compute(blocks.twice)
        except spy.DeviceError as error:
            assert "os.fork()" in str(error) and "spawn" in str(error), error
        else:
            raise AssertionError("the worker has a device that it did not open")
    else:
        np.testing.assert_array_equal(compute(blocks.twice), 2 * n)
        assert os.getpid() not in compute(blocks.where)
    print("done")
"""


@deep
@pytest.mark.parametrize(
    ("start", "type_"),
    [
        ("spawn", "asked"),
        pytest.param("spawn", "told", marks=deep),
        pytest.param("fork", "asked", marks=deep),
        ("fork", "told"),
    ],
)
def test_processes_open_devices_of_their_own(backend_name: str, tmp_path: Path, start: str, type_: str) -> None:
    if start == "fork" and not hasattr(os, "fork"):
        return
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "main.py").write_text(MAIN)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "main.py"), start, type_],
        capture_output=True, text=True, timeout=120, env={**os.environ, "BLOCKS_DEVICE": backend_name},
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr

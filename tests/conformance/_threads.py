"""Eight threads that leave a barrier together, and the functions that they call. No test is here."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy

THREADS = 8
PATIENCE = 120.0  # seconds until a thread counts as hung; the longest test takes some seconds alone

SLANG = """
import slangpy_rt;

float add(float a, float b) { return a + b; }
float3 turn(float3 v, int k) { return k % 2 == 0 ? v.yzx : v.zxy; }
[Differentiable] float mul(float a, float b) { return a * b; }
void grow(inout float a, float by) { a += by; }
float pick(Tensor<float, 1> x, int i) { return x[i]; }
float slow(float x) { for (int k = 0; k < 2000; ++k) x = x * 1.5 - floor(x * 1.5); return x; }
T twice<T : IArithmetic>(T x) { return x + x; }
"""

Array = npt.NDArray[np.float32]
Work = Callable[[int], None]


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    """Threads take turns every 10 us."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_threads", SLANG)


def together(work: Work, threads: int = THREADS) -> None:
    """Call ``work(0)``, ``work(1)``, ... at the same time; raise the first error of any of them."""
    start = threading.Barrier(threads)
    errors: list[BaseException] = []

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as error:
            errors.append(error)

    # Daemons, so that one that hangs does not keep the process.
    running = [threading.Thread(target=run, args=(k,), daemon=True) for k in range(threads)]
    for thread in running:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in running:
        thread.join(max(0.0, end - time.monotonic()))
    assert not any(thread.is_alive() for thread in running), "threads hang"
    if errors:
        raise errors[0]


def numbers(k: int, n: int) -> Array:
    """Whole numbers from 0 to 999, others for each thread."""
    return np.random.default_rng(k).integers(0, 1000, n).astype(np.float32)


def on(device: spy.Device, array: Any) -> spy.Tensor:
    tensor: spy.Tensor = spy.Tensor.from_numpy(device, array)
    return tensor

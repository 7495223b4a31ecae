"""How a launch on the CPU is divided into chunks, whatever time its first elements take."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu.kernel import MOST_CHUNKS
from slangpy_rt.backends.cpu.threads import Work
from tests.depth import sampled
from tests.lanes_off import without_lanes

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_RUN_FIRST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
)
RunFirst = Callable[..., int]


def divided(run_first: RunFirst, count: int, shares: int) -> Work:
    """Return a launch that is divided after a first piece that takes 2 ms."""
    # The function only waits: the piece of a fast kernel takes so long if another process has the processor.
    waiting = _RUN(lambda first, end, args: time.sleep(0.002))
    work = Work(shares=shares)
    assert run_first(ctypes.byref(work), ctypes.cast(waiting, ctypes.c_void_p), count) == 1
    return work


@pytest.fixture(scope="module", params=["elements", "groups"])
def run_first(request: pytest.FixtureRequest) -> Iterator[RunFirst]:
    """The function of a kernel of elements, and that of kernels with groups of 32 threads."""
    if request.param == "groups":
        pytest.importorskip("llvmlite.binding")
        from slangpy_rt.backends.cpu.group_kernel import SHARED
        from slangpy_rt.backends.cpu.llvm import LlvmCompiler

        compiler = LlvmCompiler()
        code = compiler.load(compiler.compile(SHARED))
        function = _RUN_FIRST(code.address("run_first"))
        yield lambda work, run, count: function(work, run, count, b"", 32)
        return
    with spy.Device("cpu") as device, pytest.MonkeyPatch.context() as patch:
        without_lanes(device, patch)
        module: Any = spy.Module.load_from_source(device, "chunks", "float add(float a, float b) { return a + b; }")
        module.add(np.ones(4, np.float32), np.ones(4, np.float32))
        kernel = next(iter(module.add._calls.values())).kernel
        yield lambda work, run, count: kernel.run_first(work, run, count, b"", 0)


@sampled(3)
@pytest.mark.parametrize("count", [70_000, 1 << 20, (1 << 31) + 5])
def test_a_launch_has_few_chunks(run_first: RunFirst, count: int) -> None:
    work = divided(run_first, count, 16)
    assert 16 <= work.chunks <= MOST_CHUNKS
    assert work.chunk * work.chunks >= count - work.next > work.chunk * (work.chunks - 1)


def test_many_threads_have_a_chunk_each(run_first: RunFirst) -> None:
    assert divided(run_first, 1 << 20, 4 * MOST_CHUNKS).chunks >= 2 * MOST_CHUNKS

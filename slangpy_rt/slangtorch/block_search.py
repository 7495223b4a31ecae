"""Finds the fastest of several sizes of thread groups for launches of one kernel, by measurements on the device.

Times are in the disk cache, as those of tuned functions are. What the kernel writes is written back after each run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import DeviceError, DeviceLostError, SlangPyRtError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.slang.locate import compiler_version
from slangpy_rt.slangtorch.binder import Bound
from slangpy_rt.slangtorch.errors import LaunchError
from slangpy_rt.slangtorch.kernel_code import KernelCode, Triple
from slangpy_rt.tuning.config import Config
from slangpy_rt.tuning.progress import progress_of
from slangpy_rt.tuning.store import entry_key, store, stored
from slangpy_rt.tuning.timing import Timing, search, spread_of

# Shorter kernels than this many seconds are measured in so many launches at once.
_SHORT, _REPEATED = 20e-6, 20
_BUDGET = 2.0  # seconds of measurements
_KEPT = 1024


def fastest_block(
    code: KernelCode, bound: Bound, total: Triple, choices: tuple[Triple, ...], run: Callable[[Triple], None]
) -> Triple:
    """Return the fastest of several sizes of thread groups for a kernel with its arguments.

    Parameters
    ----------
    code, bound
        The kernel and its arguments.
    total : tuple of int
        The number of threads.
    choices : tuple of tuple of int
        The sizes. The first one is returned where nothing may be measured and no times are on disk.
    run : callable
        Launches the kernel in groups of a size.

    Raises
    ------
    LaunchError
        If nothing is known, and the launch would be captured in a CUDA graph.
    SlangPyRtError
        If the kernel runs in groups of none of these sizes: the error of the first.
    """
    place, values, (_, places, layouts), _ = bound
    facts = tuple([value for k, value in enumerate(values) if k not in places])
    key = (place, choices, total, layouts, facts)
    found = code.blocks.get(key)
    if found is None:
        if len(code.blocks) >= _KEPT:
            code.blocks.clear()
        found = code.blocks[key] = _Search(code, bound, repr(key[2:]), run).best(choices)
    return found


class _Search:
    """A search for one kind of launch, which ``kind`` describes."""

    def __init__(self, code: KernelCode, bound: Bound, kind: str, run: Callable[[Triple], None]) -> None:
        self._code, self._run = code, run
        self._place, self._tensors = bound[0], bound[2][0]
        device = self._place.device
        backend, source = device.backend, code.program.source_on(device)
        self._key = (
            source.digest, code.name, code.program.prelude, kind, device.name, backend.description,
            backend.toolchain(), compiler_version(),
        )  # fmt: skip
        self._errors: dict[Triple, SlangPyRtError] = {}
        # PyTorch's current stream, also in a thread that has another one.
        self._stream = torch.cuda.current_stream(self._tensors[0].device) if self._place.stream else None

    def best(self, choices: Sequence[Triple]) -> Triple:
        device = self._place.device
        if len(choices) == 1 or CONFIG.tune == "off" or device.deterministic:
            return choices[0]
        known = {} if CONFIG.tune == "force" else self._entries(choices)
        if CONFIG.tune != "cached" and len(known) < len(choices):
            if self._stream is not None and torch.cuda.is_current_stream_capturing():
                raise LaunchError(
                    f"{self._code}: no size of thread groups is known for this launch, and none can be measured "
                    "while a CUDA graph is captured; launch it once before the capture."
                )
            with device.cache.lock(entry_key("block search", *self._key), timeout=600.0):
                known = {} if CONFIG.tune == "force" else self._entries(choices)
                for block, timing in self._measured([c for c in choices if c not in known]).items():
                    known[block] = timing
                    if not isinstance(self._errors.get(block), DeviceError):
                        store(device.cache, self._entry(block), str(self._code), device.backend.name, timing)
        timed = {block: timing.us for block, timing in known.items() if timing.us is not None}
        if not timed and choices[0] in self._errors:
            raise self._errors[choices[0]]
        return min(timed, key=lambda block: timed[block] or math.inf, default=choices[0])

    def _entry(self, block: Triple) -> str:
        return entry_key(*self._key, block)

    def _entries(self, choices: Sequence[Triple]) -> dict[Triple, Timing]:
        cache = self._place.device.cache
        found = {block: stored(cache, self._entry(block), _config(block)) for block in choices}
        return {block: timing for block, timing in found.items() if timing is not None}

    def _measured(self, blocks: Sequence[Triple]) -> dict[Triple, Timing]:
        started = time.perf_counter()
        # ``data`` has no version that PyTorch's autograd compares.
        kept = [(tensor.data, tensor.data.clone()) for tensor in self._tensors]

        def put_back() -> None:
            self._wait()
            with torch.cuda.stream(self._stream):
                for tensor, content in kept:
                    tensor.copy_(content)
            self._wait()

        def timed(block: Triple, count: int) -> float:
            put_back()
            began = time.perf_counter()
            start = self._event()
            for _ in range(count):
                self._run(block)
            end = self._event()
            self._wait()
            seconds = start.elapsed_time(end) / 1e3 if start is not None else time.perf_counter() - began
            return float(seconds) / count

        samples: dict[Triple, Callable[[], float]] = {}
        try:
            for block in blocks:
                try:
                    timed(block, 1)
                    count = 1 if timed(block, 1) >= _SHORT else _REPEATED
                except DeviceLostError:
                    raise
                except SlangPyRtError as error:
                    self._errors[block] = error
                    continue
                samples[block] = lambda block=block, count=count: timed(block, count)  # type: ignore[misc]
            with progress_of(str(self._code), started) as progress:
                found = search(samples, _BUDGET, progress) if samples else {}
        except KeyboardInterrupt:
            # It may have come before the contents were back.
            apart(put_back)
            raise
        finally:
            apart(put_back)
        rows = {b: Timing(_config(b), median(s) * 1e6, spread_of(s), len(s)) for b, s in found.items()}
        return rows | {b: Timing(_config(b), None, dropped=str(e)[:300]) for b, e in self._errors.items()}

    def _event(self) -> Any:
        """Return an event of now on PyTorch's stream; None if the kernel runs on none."""
        return None if self._stream is None else self._stream.record_event(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()
        self._place.device.synchronize()


def _config(block: Triple) -> Config:
    return Config({"blockSize": block})

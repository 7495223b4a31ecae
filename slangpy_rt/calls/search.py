"""Search: finds the fastest configuration for one call, by entries on disk and by measurements.

The arguments hold after it what they held before, also after an error or an interrupt. It remembers nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from statistics import median
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.adapters import thread_states
from slangpy_rt.calls.call_facts import info_of, layouts_of, written_by
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.command_list import CommandList, add
from slangpy_rt.calls.tuned_call import TunedCall
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import (
    BindError,
    CompileError,
    DeviceError,
    DeviceLostError,
    OutOfMemoryError,
    SlangPyRtError,
    UnsupportedError,
)
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.log import log
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.stream import Timer
from slangpy_rt.slang.locate import compiler_version
from slangpy_rt.tuning.comparison import as_arrays, difference
from slangpy_rt.tuning.config import Config
from slangpy_rt.tuning.kind import kind_of_call
from slangpy_rt.tuning.policy import Policy
from slangpy_rt.tuning.progress import progress_of
from slangpy_rt.tuning.snapshot import Snapshot
from slangpy_rt.tuning.store import entry_key, store, stored
from slangpy_rt.tuning.timing import Timing, search, spread_of

if TYPE_CHECKING:
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.runtime.core import DeviceCore

# Kernels shorter than this many seconds are measured as a command list of _REPEATED launches: the clock of a GPU
# counts in 0.5 us, and two readings of it take about 2 us.
_SHORT, _REPEATED = 20e-6, 20
# More than twice the second-level cache of an H200 (50 MiB): written before a run, whose data is then not in it.
_FLUSHED = 128 << 20
# Clearing that many bytes takes 0.05 ms on an H200. A device that takes longer than this computes on the host.
_FLUSH_SECONDS = 5e-3
_COMPILING_THREADS = 4


class Search:
    """The search for one call of one tuned function.

    Parameters
    ----------
    name : str
        The function's name.
    device : DeviceCore
        Its device.
    call : TunedCall
        The call.
    candidates : dict
        The function of each configuration.
    policy : Policy, optional
        How to search.
    refused : dict, optional
        Configurations without a function, because the compiler refuses their module's text, with the errors.
    """

    def __init__(
        self,
        name: str,
        device: DeviceCore,
        call: TunedCall,
        candidates: dict[Config, Any],
        policy: Policy | None,
        refused: Mapping[Config, SlangPyRtError] | None = None,
    ) -> None:
        self._name = name
        self._device = device
        self._call = call
        self._candidates = candidates
        self._policy = policy = policy or Policy()
        self._prepared: dict[Config, tuple[PreparedCall, tuple[Any, ...]]] = {}
        # Configurations that cannot run, with the errors.
        self._errors: dict[Config, SlangPyRtError] = {}
        self._refused = [Timing(c, None, dropped=_reason(e)) for c, e in (refused or {}).items()]
        for timing in self._refused:
            log(1, f"{name}: {timing.config.text} dropped: {timing.dropped}")
        # As of now: times are stored only if no text was loaded anew meanwhile.
        self._digests = {config: Callee(function).scope.source.digest for config, function in candidates.items()}
        # The configurations in their order, where results are compared with those of the first.
        self._order: tuple[str, ...] = ()
        first = self._first()
        # Streams of other libraries that the call's arrays are used on.
        self._queues = [stream.queue for stream in first[0].foreign_streams(first[1])]
        self.info = info_of(name, device, *first)
        threads = call.threads_text(next(iter(candidates))) if call.threads is not None else "()"
        self.key = kind_of_call(name, policy, self.info, (*layouts_of(*first), threads))

    def run(self) -> list[Timing]:
        """Return the timings of all configurations, the fastest first.

        Raises
        ------
        BindError
            If ``prune`` leaves no configuration.
        CompileError
            If no configuration compiles: the first error, with the errors of the others.
        """
        return [*self._timings(), *self._refused]

    def _timings(self) -> list[Timing]:
        """Return the timings of the configurations that have a function."""
        configs = self._considered()
        if self._policy.check is not None:
            self._order = tuple(c.text for c in configs)
        measures = CONFIG.tune in ("on", "force") and not self._device.deterministic and len(configs) > 1
        if not measures:
            return self._by_entries(configs)
        cache = self._device.cache
        # Times by a function of the user are not comparable with those of another one.
        keeps = not callable(self._policy.bench)
        known = self._entries(configs) if CONFIG.tune == "on" and keeps else {}
        if len(known) < len(configs):
            if any(queue.captured() for queue in self._queues or [self._device.backend.queue]):
                raise BindError(
                    f"{self._name}: no configuration is known for this call, and none can be measured while a CUDA "
                    "graph is captured; call it once before the capture."
                )
            text = self._digests[configs[0]]
            place = entry_key("search", text, self._name, self._device.backend.description, self.key)
            with cache.lock(place, timeout=600.0):
                known = self._entries(configs) if CONFIG.tune == "on" and keeps else {}
                missing = [c for c in configs if c not in known]
                if missing and self._policy.check is not None:
                    # The first one is measured too, because the others are compared with it.
                    missing = configs
                for timing in self._measured(missing) if missing else ():
                    config, error = timing.config, self._errors.get(timing.config)
                    known[config] = timing
                    same = Callee(self._candidates[config]).scope.source.digest == self._digests[config]
                    if keeps and same and not isinstance(error, DeviceError):
                        store(cache, self._entry(config), self._name, self._device.backend.name, timing)
        rows = _sorted([known[c] for c in configs])
        if rows[0].us is None:
            raise self._all_failed(rows)
        return rows

    def _first(self) -> tuple[PreparedCall, tuple[Any, ...]]:
        """Prepare the first configuration that compiles; what the call's arguments are follows from it."""
        for config in self._candidates:
            found = self._prepare(config)
            if found is not None:
                return found
        raise self._all_failed([Timing(c, None, dropped=_reason(e)) for c, e in self._errors.items()])

    def _prepare(self, config: Config) -> tuple[PreparedCall, tuple[Any, ...]] | None:
        """Prepare one candidate; None if it does not compile or does not fit the device."""
        if config in self._errors:
            return None
        found = self._prepared.get(config)
        if found is None:
            try:
                found = self._prepared[config] = self._call.prepared(self._candidates[config], config)
            except (DeviceLostError, BindError):
                # An argument that does not fit is the caller's error, with every configuration.
                raise
            except (CompileError, UnsupportedError, DeviceError) as error:
                if self._device.closed:
                    raise
                self._errors[config] = error
        return found

    def _considered(self) -> list[Config]:
        """Return the configurations that ``prune`` and ``top_k`` leave."""
        every = list(self._candidates)
        configs, policy = every, self._policy
        if policy.prune is not None:
            left = policy.prune(tuple(every), self.info)
            known = isinstance(left, Sequence) and all(isinstance(c, Config) and c in self._candidates for c in left)
            if not known:
                raise BindError(
                    f"{self._name}.tune: prune returned {in_words(left)}; a list of some of the configurations "
                    "that it was given was expected."
                )
            configs = list(dict.fromkeys(left))
            if not configs:
                cut = "; ".join(c.text for c in every[:20]) + ("; ..." if len(every) > 20 else "")
                raise BindError(f"{self._name}.tune: prune leaves none of {len(every)} configurations: {cut}.")
        if policy.top_k is not None and policy.model is not None:
            times = {c: policy.model(c, self.info) for c in configs}
            for seconds in times.values():
                if kind_of(seconds) not in "biuf" or math.isnan(seconds):
                    raise BindError(f"{self._name}.tune: model returned {in_words(seconds)}; a number was expected.")
            configs = sorted(configs, key=times.__getitem__)[: policy.top_k]
        return configs

    def _by_entries(self, configs: list[Config]) -> list[Timing]:
        """Choose without measurements: by entries on disk, or else the first configuration that compiles."""
        rows = {}
        if CONFIG.tune != "off" and not self._device.deterministic and not callable(self._policy.bench):
            rows = self._entries(configs)
        every = _sorted([rows.get(c, Timing(c, None, dropped="not measured")) for c in configs])
        if every[0].us is not None:
            return every
        for k, timing in enumerate(every):
            if self._prepare(timing.config) is not None:
                return [timing._replace(dropped=""), *every[:k], *every[k + 1 :]]
        raise self._all_failed([Timing(c, None, dropped=_reason(self._errors[c])) for c in configs])

    def _entries(self, configs: list[Config]) -> dict[Config, Timing]:
        """Return the timings that are on disk."""
        found = {c: stored(self._device.cache, self._entry(c), c) for c in configs}
        return {c: timing for c, timing in found.items() if timing is not None}

    def _entry(self, config: Config) -> str:
        callee, device = Callee(self._candidates[config]), self._device
        return entry_key(
            self._digests[config], self._name, repr(callee.options), self.key, device.name,
            device.backend.description, device.backend.toolchain(), compiler_version(), self._policy.bench == "hot",
            repr(self._policy.check), self._order,
        )  # fmt: skip

    def _measured(self, configs: list[Config]) -> list[Timing]:
        """Compile and measure configurations; nothing that the call would write is changed."""
        device = self._device
        started = time.perf_counter()
        states = thread_states((*self._call.args, *self._call.named.values(), self._call.result))

        def prepare(config: Config) -> None:
            with ExitStack() as stack:
                for state in states:
                    stack.enter_context(state())
                self._prepare(config)

        with ThreadPoolExecutor(min(_COMPILING_THREADS, len(configs))) as pool:
            list(pool.map(prepare, configs))
        runnable = [c for c in configs if c in self._prepared]
        if not runnable:
            return [Timing(c, None, dropped=_reason(self._errors[c])) for c in configs]
        self._wait()
        values = {id(v): v for c in runnable for v in written_by(*self._prepared[c])}
        snapshot = Snapshot(f"{self._name}.tune", device, list(values.values()))
        try:
            # Lines that measured runs print are dropped; those of earlier calls are printed by now.
            device.diagnostics.muted.add(self)
            try:
                samples = self._samples(runnable, snapshot)
                with progress_of(self._name, started) as progress:
                    seconds = search(samples, self._policy.budget, progress) if samples else {}
            finally:
                apart(self._put_back, snapshot)
                device.diagnostics.muted.discard(self)
        except KeyboardInterrupt:
            # It may have come before the contents were back.
            apart(self._put_back, snapshot)
            device.diagnostics.muted.discard(self)
            raise
        rows = []
        for config in configs:
            if config in seconds:
                times = seconds[config]
                rows.append(Timing(config, median(times) * 1e6, spread_of(times), len(times)))
            else:
                rows.append(Timing(config, None, dropped=_reason(self._errors[config])))
        log(2, f"{self._name}: measured {len(samples)} of {len(configs)} configurations; {_sorted(rows)[0]}")
        return rows

    def _put_back(self, snapshot: Snapshot) -> None:
        """Write back what the arguments held. On a device that was closed host memory gets its contents back too."""
        with suppress(DeviceError):
            self._wait()
        snapshot.restore()
        self._wait()

    def _samples(self, configs: list[Config], snapshot: Snapshot) -> dict[Config, Callable[[], float]]:
        """Run each candidate once, drop those that fail or differ, and return functions that run and time them."""
        samples: dict[Config, Callable[[], float]] = {}
        flush = self._flush()
        first: list[Any] | None = None
        for config in configs:
            try:
                snapshot.restore()
                self._wait()
                out = self._runner(config)()
                self._wait()
                sample = self._sample(config, snapshot, flush)
            except DeviceLostError:
                raise
            except (DeviceError, UnsupportedError, OutOfMemoryError) as error:
                self._errors[config] = error
                continue
            if self._policy.check is not None:
                found = [*snapshot.results(), *as_arrays(out)]
                if first is None:
                    first = found
                else:
                    worst = difference(first, found)
                    if not worst <= self._policy.check:
                        self._errors[config] = UnsupportedError(
                            f"its results differ from those of the first configuration by {worst:.3g}, relative to "
                            "their largest number"
                        )
                        log(1, f"{self._name}: {config.text} dropped: {self._errors[config]}")
                        continue
            samples[config] = sample
        return samples

    def _runner(self, config: Config) -> Callable[[], Any]:
        prepared, values = self._prepared[config]
        stream = Callee(self._candidates[config]).stream
        apart_from_graph = getattr(prepared, "run_apart", None)
        if apart_from_graph is not None:
            return lambda: apart_from_graph(stream, values)
        if stream is None:
            return lambda: prepared.run(values)
        return lambda: prepared.run_on(stream, values)

    def _wait(self) -> None:
        """Wait for all work on the device, and for that of other libraries on the call's streams."""
        for queue in self._queues:
            queue.sync()
        self._device.synchronize()

    def _sample(self, config: Config, snapshot: Snapshot, flush: Callable[[], None]) -> Callable[[], float]:
        """Return a function that runs a candidate once and returns the seconds."""
        device, run, bench = self._device, self._runner(config), self._policy.bench
        stream = Callee(self._candidates[config]).stream
        queue = self._queues[0] if self._queues and stream is None else None
        if callable(bench):

            def measured() -> float:
                snapshot.restore()
                self._wait()
                seconds = bench(run)
                if kind_of(seconds) not in "iuf" or not math.isfinite(seconds) or seconds < 0:
                    raise BindError(f"{self._name}.tune: bench returned {in_words(seconds)}; seconds were expected.")
                return float(seconds)

            return measured

        def timed(run: Callable[[], Any], count: int) -> float:
            snapshot.restore()
            flush()
            self._wait()
            if queue is not None:
                # Not by a Stream: the device would order all later work by it.
                start = queue.mark(timed=True)
                run()
                end = queue.mark(timed=True)
                end.sync()
                return end.since(start) / count
            timer = Timer(device, stream)
            with timer:
                run()
            return timer.seconds / count

        if timed(run, 1) >= _SHORT:
            return lambda: timed(run, 1)

        def again() -> None:
            for _ in range(_REPEATED):
                run()

        # A list does not run on another library's stream, and refuses arguments that are moved at each call.
        commands = CommandList(device)
        if queue is None:
            with suppress(BindError):
                call = self._call.recorded(self._candidates[config], config)
                for _ in range(_REPEATED):
                    add(commands, call)
        if len(commands.calls) < _REPEATED:
            return lambda: timed(again, _REPEATED)
        return lambda: timed(lambda: commands.submit(stream), _REPEATED)

    def _flush(self) -> Callable[[], None]:
        """Return a function that clears the GPU's cache by writing memory; it does nothing on the host."""
        device = self._device
        if "zero_copy" in device.caps.features or self._policy.bench != "auto":
            return lambda: None
        try:
            buffer = device.alloc(_FLUSHED)
        except OutOfMemoryError:
            return lambda: None

        def flush() -> None:
            device.clear(buffer, buffer.address, _FLUSHED)

        flush()
        device.synchronize()
        started = time.perf_counter()
        flush()
        device.synchronize()
        return flush if time.perf_counter() - started < _FLUSH_SECONDS else lambda: None

    def _all_failed(self, rows: list[Timing]) -> SlangPyRtError:
        errors = list(self._errors.values())
        first = errors[0] if errors else CompileError("no configuration was measured")
        rows = [*rows, *self._refused]
        table = "\n".join(f"  {row.config.text}: {row.dropped}" for row in rows)
        if len(rows) < 2:
            return first
        return type(first)(f"{self._name}: none of {len(rows)} configurations runs:\n{table}\n{first}")


def _sorted(rows: list[Timing]) -> list[Timing]:
    return sorted(rows, key=lambda row: math.inf if row.us is None else row.us)


def _reason(error: SlangPyRtError) -> str:
    """Return the first line of an error, with the next one where that one says why."""
    lines = str(error).strip().split("\n")
    return " ".join(lines[: 2 if lines[0].endswith(":") else 1])[:300]

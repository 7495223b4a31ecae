"""CPU backend: kernels are C++ loops over a range of elements, split over a thread pool.

Slang emits ``run(begin, end, call)``; g++, clang++ or the zig of the ziglang wheel makes a shared library of
it. Device memory is host memory, so NumPy arrays are used in place. Wave intrinsics and group barriers do
not exist here: Slang refuses functions that need them.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import itertools
import os
import platform
import queue
import shutil
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slangpy_rt.backends._cpu_prelude import Prelude
from slangpy_rt.backends.base import Backend, Buffer, Caps, Dispatch, Kernel, KernelInfo, Queue, Recording, Target
from slangpy_rt.config import CONFIG, child_environment
from slangpy_rt.errors import CompileError, DeviceError, OutOfMemoryError, UnsupportedError

# ctypes, whose calls cost 0.2 us more than those of cffi: importing cffi and parsing a declaration takes 15 ms, more
# than all else that opening this device takes.
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p)
_RUN_RANGES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

# -fno-math-errno lets sqrt vectorize and changes no result. Hidden symbols, or else the compiler may not inline
# across functions of a shared library: x + x over 16M floats takes 40 ms instead of 4.
_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-math-errno", "-fno-exceptions",
    "-fno-rtti", "-w",
)  # fmt: skip
_SCALARS = frozenset(
    [
        "bool",
        "int8_t",
        "int16_t",
        "int",
        "int64_t",
        "uint8_t",
        "uint16_t",
        "uint",
        "uint64_t",
        "float",
        "double",
    ]
)

# The first elements are timed, in pieces that grow, to decide whether waking the pool pays (5 us to hand work out,
# more until a sleeping thread runs) and how much a thread should take at a time. Small pieces tell only of slow
# kernels: in fast ones the first touch of memory weighs more than the work.
_PROBE = 64
_PROBE_ENOUGH = 4096
_PROBE_SECONDS = 200e-6
_WORTH_SECONDS = 60e-6
_CHUNK_SECONDS = 250e-6
_EVEN_CHUNKS = 64
_CACHE_LIMIT = 1 << 30


# Goes into every kernel's library: the small kernels of a recording run in one foreign call.
_RUN_LIST = b"""
struct RecordedRange { void (*run)(long long, long long, const void *); long long count; const void *args; };
extern "C" __attribute__((visibility("default"))) void run_list(const RecordedRange *ranges, long long count)
{
    for (long long k = 0; k < count; ++k)
        ranges[k].run(0, ranges[k].count, ranges[k].args);
}
"""
# Elements up to which a recorded kernel is not split over threads.
_SMALL = 1024


class CpuBuffer(Buffer):
    """Host memory; ``owner`` keeps it alive, ``pooled`` says that it came from ``alloc``."""

    __slots__ = ("owner", "pooled")

    def __init__(self, backend: Backend, address: int, nbytes: int, owner: Any, pooled: bool) -> None:
        super().__init__(backend, address, nbytes)
        self.owner = owner
        self.pooled = pooled


class CpuKernel(Kernel):
    """A loaded shared library and its ``run``."""

    __slots__ = ("address", "library", "run", "run_list")

    def __init__(self, info: KernelInfo, library: ctypes.CDLL) -> None:
        super().__init__(info)
        self.library = library
        self.run: Callable[[int, int, bytes], None] = _RUN((info.entry, library))
        self.run_list: Callable[[Any, int], None] = _RUN_RANGES(("run_list", library))
        self.address = ctypes.cast(self.run, ctypes.c_void_p).value


class CpuRecording(Recording):
    """Launches, small ones that follow each other as one table.

    Attributes
    ----------
    steps : list of callable
        What a replay calls.
    entries : dict
        Of a small launch its table and its place there.
    """

    __slots__ = ("entries", "steps")

    def __init__(
        self, dispatches: list[Dispatch], steps: list[Callable[[], None]], entries: dict[int, tuple[Any, int]]
    ) -> None:
        super().__init__(dispatches)
        self.steps = steps
        self.entries = entries


class _Range(ctypes.Structure):
    _fields_ = (("run", ctypes.c_void_p), ("count", ctypes.c_int64), ("args", ctypes.c_char_p))


class CpuBackend(Backend):
    """All cores of this machine."""

    name = "cpu"

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        if reason := self.why_unavailable():
            raise UnsupportedError(f"device cpu: {reason}.")
        self.target = Target("cpp", "", "range")
        self.caps = Caps((2**62, 1, 1), _SCALARS, frozenset({"pointers", "zero_copy"}))
        self._threads = max(1, CONFIG.threads)
        self.description = f"{platform.processor() or platform.machine()}, {self._threads} threads"
        self._prelude = Prelude()
        self._pool: _Pool | None = None
        self.queue = Queue(self)
        self._lock = threading.Lock()
        # Held by whoever works on arrays: threads take turns, as on a device with a queue. A replay launches too.
        self._turn = threading.RLock()
        self._blocks: dict[int, list[tuple[int, Any]]] = {}
        self._cached_bytes = 0

    @classmethod
    def why_unavailable(cls) -> str | None:
        if find_compiler() is None:
            return "no C++ compiler: neither g++, clang++ nor the ziglang package was found"
        return None

    def toolchain(self) -> str:
        command = find_compiler()
        if command is None:
            return "no compiler"
        stat = Path(command[0]).stat()
        facts = (stat.st_size, stat.st_mtime_ns, *_FLAGS, _cpu_identity(), f"{zlib.crc32(_RUN_LIST):08x}")
        return " ".join(map(str, (*command, *facts)))

    def compile(self, code: bytes, entry: str) -> bytes:
        command = find_compiler()
        if command is None:
            raise UnsupportedError(
                "device cpu: no C++ compiler was found. Install g++ or clang++, or `pip install ziglang`, "
                "or name one in SLANGPY_RT_CXX."
            )
        import subprocess

        with tempfile.TemporaryDirectory(prefix="slangpy_rt-") as folder:
            source, library = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
            flags = [*_FLAGS, *_machine_flags(command)]
            text, including = self._prelude.without(code, command, flags)

            def run(text: bytes, including: list[str]) -> subprocess.CompletedProcess[str]:
                source.write_bytes(text + _RUN_LIST)
                return subprocess.run(
                    [*command, *flags, *including, str(source), "-o", str(library), "-lm"],
                    capture_output=True,
                    text=True,
                    env=child_environment(_zig_caches(folder)) if command[1:] else None,
                )

            result = run(text, including)
            if result.returncode and including:
                # The header may be gone: it goes as soon as the process begins to end.
                result = run(code, [])
            if result.returncode:
                raise CompileError(f"{Path(command[0]).name} refused the C++ that Slang emitted:\n{result.stderr}")
            return library.read_bytes()

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        # dlopen wants a file, and one of a name of its own: it returns the library it has for a known name.
        try:
            with tempfile.NamedTemporaryFile(prefix="slangpy_rt-", suffix=".so", delete=False) as file:
                file.write(binary)
            kernel = CpuKernel(info, ctypes.CDLL(file.name))
            if os.name != "nt":
                Path(file.name).unlink()
            return kernel
        except OSError as error:
            raise DeviceError(f"device cpu: loading a kernel failed: {error}") from error

    def alloc(self, nbytes: int) -> Buffer:
        size = 1 << max(8, (nbytes - 1).bit_length()) if nbytes <= 1 << 20 else -(-nbytes >> 20) << 20
        try:
            # pop() is one step under the GIL; the common case takes no lock.
            address, owner = self._blocks[size].pop()
            self._cached_bytes -= size
        except LookupError:
            address, owner = self._new_block(nbytes, size)
        return CpuBuffer(self, address, size, owner, True)

    def free(self, buffer: Buffer) -> None:
        if not buffer.pooled:  # type: ignore[attr-defined]
            return
        size = buffer.nbytes
        if self._cached_bytes + size <= _CACHE_LIMIT:
            try:
                blocks = self._blocks[size]
            except KeyError:
                blocks = self._blocks.setdefault(size, [])
            blocks.append((buffer.address, buffer.owner))  # type: ignore[attr-defined]
            self._cached_bytes += size

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        source = np.frombuffer(src, np.uint8)
        with self._turn:
            ctypes.memmove(dst.address + offset, source.ctypes.data, source.nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        target = np.frombuffer(dst, np.uint8)
        with self._turn:
            ctypes.memmove(target.ctypes.data, src.address + offset, target.nbytes)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self._turn:
            ctypes.memset(dst.address + offset, 0, nbytes)

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._turn:
            run = kernel.run  # type: ignore[attr-defined]
            count, done, size = groups[0], 0, _PROBE
            if self.deterministic:
                self._launch_evenly(run, count, args)
                return
            if self._threads == 1 or count <= size:
                run(0, count, args)
                return
            while True:
                start = time.perf_counter()
                run(done, done + size, args)
                seconds = time.perf_counter() - start
                done += size
                if (count - done) * seconds < size * _WORTH_SECONDS:
                    run(done, count, args)
                    return
                if seconds > _PROBE_SECONDS or size >= _PROBE_ENOUGH:
                    break
                size = min(4 * size, count - done)
            # Whole cache lines a chunk, enough chunks for uneven work, few enough that handing them out is free.
            share = -(-(count - done) // (8 * self._threads))
            most = share if kernel.info.coarse else min(share, int(_CHUNK_SECONDS * size / seconds))
            chunk = max(64, most // 64 * 64)
            self._started_pool().run(run, done, count, chunk, args)

    def _launch_evenly(self, run: Callable[[int, int, bytes], None], count: int, args: bytes) -> None:
        """In pieces that depend on nothing but their number, neither on threads nor on the time that they take."""
        chunk = max(_PROBE_ENOUGH, -(-count // _EVEN_CHUNKS))
        if count <= chunk or self._threads == 1:
            for start in range(0, count, chunk):
                run(start, min(start + chunk, count), args)
        else:
            self._started_pool().run(run, 0, count, chunk, args)

    def _started_pool(self) -> _Pool:
        if self._pool is None:
            with self._lock:
                self._pool = self._pool or _Pool(self._threads - 1)
        return self._pool

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        kept = list(dispatches)
        steps: list[Callable[[], None]] = []
        entries: dict[int, tuple[Any, int]] = {}
        for small, group in itertools.groupby(range(len(kept)), lambda k: kept[k].groups[0] <= _SMALL):
            places = list(group)
            if small:
                table, step = _table([kept[k] for k in places])
                entries.update((k, (table, n)) for n, k in enumerate(places))
                steps.append(step)
            else:
                steps += [functools.partial(self.launch, *kept[k]) for k in places]
        return CpuRecording(kept, steps, entries)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, CpuRecording)
        recording.dispatches[place] = dispatch
        if place in recording.entries and dispatch.groups[0] <= _SMALL:
            table, n = recording.entries[place]
            table[n] = _range_of(dispatch)
        else:
            fresh = self.record(recording.dispatches, ())
            assert isinstance(fresh, CpuRecording)
            recording.steps, recording.entries = fresh.steps, fresh.entries

    def replay(self, recording: Recording) -> None:
        with self._turn:
            for step in recording.steps:  # type: ignore[attr-defined]
                step()

    def sync(self) -> None:
        pass

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._blocks.clear()
        self._cached_bytes = 0

    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer | None:
        return CpuBuffer(self, address, nbytes, owner, False)

    def _new_block(self, nbytes: int, size: int) -> tuple[int, Any]:
        try:
            # NumPy asks the kernel for huge pages, which malloc does not.
            owner = np.empty(size + 256, np.uint8)
        except MemoryError:
            raise OutOfMemoryError(
                f"device cpu: {nbytes:,} bytes could not be allocated; free some arrays or use smaller ones."
            ) from None
        return (owner.ctypes.data + 255) & ~255, owner


def _table(dispatches: list[Dispatch]) -> tuple[Any, Callable[[], None]]:
    """A table of kernels that run one after the other, and the foreign call that runs them."""
    table = (_Range * len(dispatches))(*map(_range_of, dispatches))
    run_list = dispatches[0].kernel.run_list  # type: ignore[attr-defined]
    call = functools.partial(run_list, ctypes.addressof(table), len(dispatches))
    # The table holds the argument blocks, and nothing else holds the table.
    return table, functools.partial(_call_with, call, table)


def _range_of(d: Dispatch) -> _Range:
    return _Range(d.kernel.address, d.groups[0], d.args)  # type: ignore[attr-defined]


def _call_with(call: Callable[[], None], kept: Any) -> None:
    call()


class _Pool:
    """Threads that share out the chunks of one range at a time; foreign calls release the GIL."""

    def __init__(self, threads: int) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for thread in self._threads:
            thread.start()

    def run(self, run: Callable[[int, int, bytes], None], begin: int, end: int, chunk: int, args: bytes) -> None:
        starts, finished = itertools.count(begin, chunk), itertools.count(1)
        total = -(-(end - begin) // chunk)
        all_done = threading.Semaphore(0)
        stop = False

        def share() -> None:
            # next() on a count is one step under the GIL: no two threads get the same number.
            while (at := next(starts)) < end:
                try:
                    if not stop:
                        run(at, min(at + chunk, end), args)
                finally:
                    if next(finished) == total:
                        all_done.release()

        for _ in self._threads:
            self._jobs.put(share)
        # Waits for chunks, not for threads: one that wakes up late, as on a busy host, finds nothing left to do.
        try:
            share()
            all_done.acquire()
        except BaseException:
            # Ctrl-C: no new chunks, and no return before the running ones end, since the arrays may go then.
            stop = True
            share()
            all_done.acquire(timeout=10)
            raise

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def find_compiler() -> list[str] | None:
    """The command of a C++ compiler, its program as an absolute path, or None."""
    asked = [CONFIG.cxx] if CONFIG.cxx else ["g++", "clang++", "c++", "zig"]
    for name in asked:
        if name == "zig":
            spec = importlib.util.find_spec("ziglang")
            if spec is not None and spec.submodule_search_locations:
                zig = Path(spec.submodule_search_locations[0]) / ("zig.exe" if os.name == "nt" else "zig")
                if zig.exists():
                    return [str(zig), "c++"]
        found = shutil.which(name, path=CONFIG.path)
        if found:
            return [found]
    return None


def _machine_flags(command: list[str]) -> list[str]:
    """Flags for this processor; zig also needs to be told to leave its C++ runtime out."""
    return ["-march=native", *(["-nostdlib++"] if command[1:] else [])]


def _zig_caches(folder: str) -> dict[str, str]:
    """Caches of our own: zig builds its C library once (8 s), and fails where it finds no home directory."""
    from platformdirs import user_cache_path

    shared = user_cache_path("slangpy_rt") / "zig"
    try:
        shared.mkdir(parents=True, exist_ok=True)
    except OSError:
        shared = Path(folder)
    return {"ZIG_GLOBAL_CACHE_DIR": str(shared), "ZIG_LOCAL_CACHE_DIR": folder}


def _cpu_identity() -> str:
    """What -march=native depends on, so that a kernel built elsewhere is not run here."""
    if sys.platform == "linux":
        with Path("/proc/cpuinfo").open("rb") as file:
            lines = file.read(8192).split(b"\n\n")[0].splitlines()
        kept = [line for line in lines if line.startswith((b"model name", b"flags", b"Features", b"CPU"))]
        return f"{zlib.crc32(b' '.join(kept)):08x}"
    return f"{platform.machine()} {platform.processor()}"

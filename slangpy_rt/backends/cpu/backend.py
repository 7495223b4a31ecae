"""CPU backend: kernels are C++ loops over a range of elements, split over a thread pool.

Slang emits ``run(begin, end, call)``; g++, clang++ or the zig of the ziglang wheel makes a shared library of
it. Device memory is host memory, so NumPy arrays are used in place. Wave intrinsics and group barriers do
not exist here: Slang refuses functions that need them.
"""

from __future__ import annotations

import _ctypes
import ctypes
import functools
import importlib.util
import itertools
import os
import platform
import re
import shutil
import sys
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import methodcaller, not_
from pathlib import Path
from typing import Any

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Queue, Recording
from slangpy_rt.backends.cpu.prelude import Prelude
from slangpy_rt.core.config import CONFIG, child_environment
from slangpy_rt.core.errors import CompileError, DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import Crew, Gate, Release, apart, finalizer
from slangpy_rt.core.target import Caps, KernelInfo, Target

# ctypes, whose calls cost 0.2 us more than those of cffi: importing cffi and parsing a declaration takes 15 ms, more
# than all else that opening this device takes.
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p)
_RUN_RANGES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_RUN_FIRST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
)
_RUN_SHARED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_UNLOAD: Callable[[int], Any] = getattr(_ctypes, "FreeLibrary" if os.name == "nt" else "dlclose")

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


# Goes into every kernel's library: the small kernels of a recording run in one foreign call, and so does a thread's
# part of a large launch, which no interrupt parts. ``run_first`` tells whether there is work left to share.
_RUN_LIST = b"""
struct RecordedRange { void (*run)(long long, long long, const void *); long long count; const void *args; };
struct SharedRange
{
    void (*run)(long long, long long, const void *);
    const void *args;
    long long end, chunk, next, chunks, finished, shares;
    void (*open)(void *);
    void *gate;
};
#if defined(_WIN32)
extern "C" __declspec(dllimport) int __stdcall QueryPerformanceCounter(long long *);
extern "C" __declspec(dllimport) int __stdcall QueryPerformanceFrequency(long long *);
static double slangpy_rt_seconds()
{
    long long now, each;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&each);
    return double(now) / double(each);
}
#define SLANGPY_RT_EXPORT extern "C" __declspec(dllexport)
#else
#include <time.h>
static double slangpy_rt_seconds()
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}
#define SLANGPY_RT_EXPORT extern "C" __attribute__((visibility("default")))
#endif
SLANGPY_RT_EXPORT void run_list(const RecordedRange *ranges, long long count)
{
    for (long long k = 0; k < count; ++k)
        ranges[k].run(0, ranges[k].count, ranges[k].args);
}
SLANGPY_RT_EXPORT int run_first(
    SharedRange *work, void (*run)(long long, long long, const void *), long long end, const void *args, int coarse)
{
    work->run = run;
    work->end = end;
    work->args = args;
    long long done = 0, size = PROBE;
    double seconds;
    for (;;)
    {
        const double start = slangpy_rt_seconds();
        work->run(done, done + size, work->args);
        seconds = slangpy_rt_seconds() - start;
        done += size;
        if (double(work->end - done) * seconds <= double(size) * WORTH_SECONDS)
        {
            if (done < work->end)
                work->run(done, work->end, work->args);
            return 0;
        }
        if (seconds > PROBE_SECONDS || size >= PROBE_ENOUGH)
            break;
        size = 4 * size < work->end - done ? 4 * size : work->end - done;
    }
    // Whole cache lines a chunk, enough chunks for uneven work, few enough that handing them out is free.
    long long most = (work->end - done + work->shares - 1) / work->shares;
    const double timed = CHUNK_SECONDS * double(size) / seconds;
    if (!coarse && timed < double(most))
        most = (long long)timed;
    work->chunk = most / 64 * 64 > 64 ? most / 64 * 64 : 64;
    work->next = done;
    work->chunks = (work->end - done + work->chunk - 1) / work->chunk;
    return 1;
}
SLANGPY_RT_EXPORT int run_shared(SharedRange *work)
{
    for (;;)
    {
        const long long at = __atomic_fetch_add(&work->next, work->chunk, __ATOMIC_RELAXED);
        if (at >= work->end)
            return 1;
        work->run(at, work->end - at < work->chunk ? work->end : at + work->chunk, work->args);
        // Chunks are waited for, not threads: one that wakes up late, as on a busy host, finds nothing left to do.
        if (__atomic_add_fetch(&work->finished, 1, __ATOMIC_ACQ_REL) == work->chunks)
            work->open(work->gate);
    }
}
"""
for _name in ("PROBE_ENOUGH", "PROBE_SECONDS", "PROBE", "WORTH_SECONDS", "CHUNK_SECONDS"):
    _RUN_LIST = re.sub(rb"\b%b\b" % _name.encode(), str(globals()[f"_{_name}"]).encode(), _RUN_LIST)
_CALL = methodcaller("__call__")
# For the path of every call.
_chain, _starmap, _takewhile = itertools.chain, itertools.starmap, itertools.takewhile
# Elements up to which a recorded kernel is not split over threads.
_SMALL = 1024


class CpuBuffer(Buffer):
    """Host memory, which its chunk keeps."""

    __slots__ = ()


class _Chunk:
    """Host memory, kept by ``owner``; ``give`` of what ``alloc`` made puts it among what can be had again."""

    __slots__ = ("address", "give", "owner")

    give: Callable[[], None]

    def __init__(self, address: int, owner: Any) -> None:
        self.address = address
        self.owner = owner


class CpuKernel(Kernel):
    """A loaded shared library and its ``run``; it is unloaded with the last reference."""

    __slots__ = ("_unload", "address", "coarse", "library", "run", "run_first", "run_list", "run_shared")

    __del__ = finalizer("_unload")

    def __init__(self, info: KernelInfo, library: ctypes.CDLL) -> None:
        super().__init__(info)
        self.library = library
        self._unload = partial(_UNLOAD, library._handle)
        self.run: Callable[[int, int, bytes], None] = _RUN((info.entry, library))
        self.run_list: Callable[[Any, int], None] = _RUN_RANGES(("run_list", library))
        self.run_first: Callable[..., int] = _RUN_FIRST(("run_first", library))
        self.run_shared: Callable[[Any], int] = _RUN_SHARED(("run_shared", library))
        self.address = ctypes.cast(self.run, ctypes.c_void_p).value
        self.coarse = info.coarse


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


class _Work(ctypes.Structure):
    """A launch that threads share; ``kernel`` keeps its code for those that come late."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("args", ctypes.c_char_p), ("end", ctypes.c_int64), ("chunk", ctypes.c_int64),
        ("next", ctypes.c_int64), ("chunks", ctypes.c_int64), ("finished", ctypes.c_int64),
        ("shares", ctypes.c_int64), ("open", ctypes.c_void_p), ("gate", ctypes.c_void_p),
    )  # fmt: skip


class _Sharing:
    """What a launch needs that threads share, once.

    Attributes
    ----------
    work : _Work
        The launch, for C.
    home : CpuKernel
        Whose library has the code of ``rest``.
    kept : list of two
        The launch's code and arguments, for threads that come late.
    at : object
        Where ``work`` is.
    rest : iterator
        The steps after the first elements: handing the launch out, the caller's part, the wait. All are true.
    """

    def __init__(self, kernel: CpuKernel, crew: Crew, threads: int, gate: Gate) -> None:
        self.work = _Work(shares=8 * threads, open=gate.opens[0], gate=gate.opens[1])
        self.at = at = ctypes.byref(self.work)
        self.home = kernel
        self.kept: list[Any] = [None, None]
        kept = self.kept

        def late() -> None:
            # The code of ``kernel``, and what the launch uses, stay until then.
            kernel.run_shared(at)
            assert kept

        # ``not_``: putting a job in a queue returns None.
        handed = map(not_, map(_CALL, crew.begin(late, threads - 1)))
        self.rest = itertools.chain(handed, map(_CALL, (partial(kernel.run_shared, at), gate.wait)))


class CpuBackend(Backend):
    """All cores of this machine."""

    name = "cpu"
    # Its threads, if there are any, end with it.
    __del__ = finalizer("_release.drop")

    def __init__(self, index: int = 0, *, debug: bool = False) -> None:
        if reason := self.why_unavailable():
            raise UnsupportedError(f"device cpu: {reason}.")
        self.target = Target("cpp", "", "range")
        self.caps = Caps((2**62, 1, 1), _SCALARS, frozenset({"pointers", "zero_copy"}), dlpack_device=1)
        self._threads = max(1, CONFIG.threads)
        self.description = f"{platform.processor() or platform.machine()}, {self._threads} threads"
        self._prelude = Prelude()
        self._crew: Crew | None = None
        # For the next launch; a new one after each that threads shared.
        self._sharing: _Sharing | None = None
        self._gate = Gate()
        self.queue = Queue(self)
        self._lock = threading.Lock()
        # Held by whoever works on arrays: threads take turns, as on a device with a queue. A replay launches too.
        self._turn = threading.RLock()
        # By size, what can be had again, and what takes it out.
        self._free: dict[int, deque[_Chunk]] = {}
        self._takes: dict[int, Iterator[_Chunk]] = {}

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
        # Folders and processes have finalizers of Python's, which an interrupt of the main thread would end.
        return apart(self._compile, code)

    def _compile(self, code: bytes) -> bytes:
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
        self.require_open()
        return apart(self._load, binary, info)

    def _load(self, binary: bytes, info: KernelInfo) -> Kernel:
        # dlopen wants a file, and one of a name of its own: it returns the library it has for a known name.
        try:
            with tempfile.NamedTemporaryFile(prefix="slangpy_rt-", suffix=".so", delete=False) as file:
                file.write(binary)
            try:
                return CpuKernel(info, ctypes.CDLL(file.name))
            finally:
                if os.name != "nt":
                    Path(file.name).unlink()
        except OSError as error:
            raise DeviceError(f"device cpu: loading a kernel failed: {error}") from error

    def alloc(self, nbytes: int) -> Buffer:
        size = 1 << max(8, (nbytes - 1).bit_length()) if nbytes <= 1 << 20 else -(-nbytes >> 20) << 20
        buffer = CpuBuffer.__new__(CpuBuffer)
        try:
            # From the list to the buffer in one step without a lock: an interrupt finds the chunk in one of them.
            for buffer.chunk in self._takes[size]:
                break
        except LookupError:
            buffer.chunk = self._new_chunk(nbytes, size)
        buffer.backend = self
        buffer.address = buffer.chunk.address
        buffer.nbytes = size
        return buffer

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        source = np.frombuffer(src, np.uint8)
        with self._turn:
            self.require_open()
            ctypes.memmove(dst.address + offset, source.ctypes.data, source.nbytes)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        target = np.frombuffer(dst, np.uint8)
        with self._turn:
            self.require_open()
            ctypes.memmove(target.ctypes.data, src.address + offset, target.nbytes)

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        with self._turn:
            self.require_open()
            ctypes.memset(dst.address + offset, 0, nbytes)

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        with self._turn:
            if self.closed:
                self.require_open()
            count = groups[0]
            if count <= _PROBE or self._threads == 1 or self.deterministic:
                self._run(kernel, count, args)  # type: ignore[arg-type]
                return
            # Gone until its end: after an interrupt, one that was used is not taken again.
            sharing, self._sharing = self._sharing or self._new_sharing(kernel), None  # type: ignore[arg-type]
            kept = sharing.kept
            kept[0], kept[1] = kernel, args
            first = sharing.at, kernel.address, count, args, kernel.coarse  # type: ignore[attr-defined]
            steps = _chain(_starmap(kernel.run_first, (first,)), sharing.rest)  # type: ignore[attr-defined]
            # As long as what they return is true: without work left to share, the rest stays for the next launch.
            if not deque(_takewhile(bool, steps), 1):
                self._sharing = sharing

    def _run(self, kernel: CpuKernel, count: int, args: bytes) -> None:
        """Run a launch that is shared out by number alone, or not at all."""
        if not self.deterministic or count <= _PROBE_ENOUGH:
            kernel.run(0, count, args)
            return
        # In pieces that depend on nothing but their number, neither on threads nor on the time they take.
        chunk = max(_PROBE_ENOUGH, -(-count // _EVEN_CHUNKS))
        sharing = self._new_sharing(kernel)
        sharing.kept[:], work = (kernel, args), sharing.work
        work.run, work.args, work.end, work.chunk = kernel.address, args, count, chunk
        work.chunks = -(-count // chunk)
        deque(_takewhile(bool, sharing.rest), 0)

    def _new_sharing(self, kernel: CpuKernel) -> _Sharing:
        if self._crew is None:
            apart(self._start_crew)
        assert self._crew is not None
        return _Sharing(kernel, self._crew, self._threads, self._gate)

    def _start_crew(self) -> None:
        with self._lock:
            if self._crew is None and not self.closed:
                crew = Crew(self._threads - 1)
                self._release = Release(crew.close)
                self._crew = crew

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
            if self.closed:
                self.require_open()
            for step in recording.steps:  # type: ignore[attr-defined]
                step()

    def sync(self) -> None:
        self.require_open()

    def close(self) -> None:
        with self._turn:
            self.closed = True
            self._takes = {}
            self._sharing = None
        apart(self._close)

    def _close(self) -> None:
        with self._lock:
            self._free.clear()
            if self._crew is not None:
                self._release()
                self._crew = None
            self._prelude.close()

    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer | None:
        buffer = CpuBuffer(self, address, nbytes)
        buffer.chunk = (owner,)  # kept, and nothing is given back
        return buffer

    def _new_chunk(self, nbytes: int, size: int) -> _Chunk:
        self.require_open()
        free = self._free.get(size)
        if free is None:
            # The oldest go when it is full.
            free = self._free.setdefault(size, deque(maxlen=max(1, _CACHE_LIMIT // size)))
            self._takes[size] = iter(free.pop, None)
        if sum(size * len(chunks) for size, chunks in list(self._free.items())) > _CACHE_LIMIT:
            for chunks in list(self._free.values()):
                chunks.clear()
        address, owner = self._new_block(nbytes, size)
        chunk = _Chunk(address, owner)
        chunk.give = partial(free.append, chunk)
        return chunk

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

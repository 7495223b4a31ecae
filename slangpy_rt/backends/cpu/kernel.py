"""Loads kernels of the CPU, which are shared libraries, and has the C++ that is added to each of them.

That C++ runs the small kernels of a recording, and a thread's part of a large launch. Nothing here starts a thread.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.cpu.streaming import STREAMING, streamed_from
from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo

# ctypes and not cffi, whose calls take 0.2 us less: importing cffi and parsing a declaration takes 15 ms, more than
# the rest of opening this device.
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p)
_RUN_RANGES = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_RUN_FIRST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
)
_RUN_SHARED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_UNLOAD: Callable[[int], Any] = getattr(_ctypes, "FreeLibrary" if os.name == "nt" else "dlclose")


# The first elements of a launch are timed, in pieces that grow from PROBE to PROBE_ENOUGH elements. The time decides
# whether other threads are used (to wake them takes 5 us, and more until a sleeping thread runs), and how many
# elements a thread takes at a time. A small piece is enough for a slow kernel only: in a fast one the first access to
# memory takes longer than the work. The next piece is four times as long and runs on one thread, so that 25 us are
# enough: with 200, one thread computed five of the eight blocks of a product of 512 x 512.
PROBE = 64
PROBE_ENOUGH = 4096
PROBE_SECONDS = 25e-6
WORTH_SECONDS = 60e-6
CHUNK_SECONDS = 250e-6
# The most chunks of a launch, if the threads need no more. A range adds its gradient to memory at its end, and 2^14
# additions of equal terms lose 1.5e-4 of the sum (docs/design/0079-sums-of-many-terms.md). Without a limit, a launch
# whose timed elements another process interrupted is divided into so many chunks.
MOST_CHUNKS = 1024

# Added to every kernel's library, so that the small kernels of a recording run in one foreign call, and so does a
# thread's part of a large launch, where no interrupt comes. ``run_first`` runs and times the first elements, and
# returns whether there is work left to share.
RUN_LIST = b"""
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
    const long long least = (work->end - done + 64 * MOST_CHUNKS - 1) / (64 * MOST_CHUNKS) * 64;
    if (!coarse && least < most && timed < double(most))
        most = timed < double(least) ? least : (long long)timed;
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
for _name, _value in {
    "PROBE_ENOUGH": PROBE_ENOUGH, "PROBE_SECONDS": PROBE_SECONDS, "PROBE": PROBE, "WORTH_SECONDS": WORTH_SECONDS,
    "CHUNK_SECONDS": CHUNK_SECONDS, "MOST_CHUNKS": MOST_CHUNKS,
}.items():  # fmt: skip
    RUN_LIST = re.sub(rb"\b%b\b" % _name.encode(), str(_value).encode(), RUN_LIST)
RUN_LIST += STREAMING


class CpuKernel(Kernel):
    """A loaded shared library, which is unloaded with the last reference to the kernel.

    Attributes
    ----------
    run : callable
        Takes the first element, the end and the argument block: runs the kernel over a range of elements.
    run_list, run_first, run_shared : callable
        The functions of ``RUN_LIST``.
    address : int
        The address of ``run``.
    large, streaming, streaming_address : int, callable, int
        From how many elements on ``streaming`` takes the place of ``run``: it writes outputs past the caches.
    coarse : bool
        As in ``KernelInfo``.
    probe, enough : int
        The most elements that run without a look at the time, and the elements after which a launch is shared or not.
    """

    # A launch runs a range of elements. A launch of a ``GroupKernel`` runs a range of groups.
    grouped = False
    probe, enough = PROBE, PROBE_ENOUGH

    __slots__ = (
        "_unload", "address", "coarse", "large", "library", "run", "run_first", "run_list", "run_shared", "streaming",
        "streaming_address",
    )  # fmt: skip

    __del__ = finalizer("_unload")

    def __init__(self, info: KernelInfo, library: ctypes.CDLL) -> None:
        super().__init__(info)
        self.library = library
        self._unload = partial(_UNLOAD, library._handle)
        self.run: Callable[[int, int, bytes], None] = _RUN((info.entry, library))
        self.run_list: Callable[[Any, int], None] = _RUN_RANGES(("run_list", library))
        self.run_first: Callable[..., int] = _RUN_FIRST(("run_first", library))
        self.run_shared: Callable[[Any], int] = _RUN_SHARED(("run_shared", library))
        self.streaming: Callable[[int, int, bytes], None] = _RUN(("run_streamed", library))
        self.address = _address(self.run)
        self.streaming_address = _address(self.streaming)
        self.large = streamed_from(library, self.address, info.args_size, info.streamed)
        self.coarse = info.coarse


def _address(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found is not None
    return found


@cache
def load_vector_math() -> bool:
    """Load libmvec, glibc's vector library, for all kernels; whether this machine has it.

    zig links kernels with symbols of glibc that it brings along, among which libmvec's are not: they have to be in
    the process already. g++ names the library in a kernel where the kernel calls it.
    """
    try:
        ctypes.CDLL("libmvec.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def load(binary: bytes, info: KernelInfo) -> CpuKernel:
    """Load a shared library from its bytes. No interrupt may stop it.

    Raises
    ------
    DeviceError
        If the operating system cannot load it.
    """
    load_vector_math()
    # dlopen needs a file, and each library needs another name: for a known name dlopen returns the library it has.
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

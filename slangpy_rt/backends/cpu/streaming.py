"""The C++ with which a kernel writes large outputs past the caches, and the description that it reads.

An ordinary store reads the line that it changes from memory first. Here a kernel writes a block of elements to a
buffer in the first cache, from which stores without that read move it to its place. The kernel itself is the same:
its argument block is a copy in which each output's pointer leads to the buffer. Nothing here decides when. Kernels in
lanes have such stores themselves (``lanes/places.py``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

# Outputs of this size or more, in all; smaller ones may still be in a cache when the next kernel reads them. A sum
# over 2^24 floats takes 11.2 ms so, and 15.2 otherwise; ten operations with gradients take 44 ms and 46 over 2^24,
# and over 2^22 4.7 and 4.2 (two cores of a Xeon with 260 MiB of cache).
STREAMED_BYTES = 64 << 20
# Half of the smallest first cache there is, 32 KiB.
_BUFFER_BYTES = 16 << 10
_MOST_OUTPUTS = 8
_MOST_ARGUMENTS = 1024
_LANES = 64  # blocks are multiples of it, so that the same elements are computed several at a time

STREAMING = b"""
struct StreamedOutputs
{
    void (*run)(long long, long long, const void *);
    long long step;
    int size, count;
    int offsets[MOST_OUTPUTS], bytes[MOST_OUTPUTS];
};
SLANGPY_RT_EXPORT StreamedOutputs streamed_outputs;
StreamedOutputs streamed_outputs;
#if defined(__clang__) || defined(__SSE2__)
static void slangpy_rt_stream(char *to, const char *from, long long n)
{
#if defined(__AVX512F__)
    typedef long long Line __attribute__((vector_size(64)));
#elif defined(__AVX__)
    typedef long long Line __attribute__((vector_size(32)));
#else
    typedef long long Line __attribute__((vector_size(16)));
#endif
    typedef Line Unaligned __attribute__((aligned(1), may_alias));
    long long head = -(long long)(unsigned long long)to & 63;
    head = head < n ? head : n;
    __builtin_memcpy(to, from, head);
    long long at = head;
    for (; at + 64 <= n; at += 64)
    {
        const Unaligned *const source = (const Unaligned *)(from + at);
        Line *const target = (Line *)(to + at);
        for (unsigned k = 0; k < 64 / sizeof(Line); ++k)
#if defined(__clang__)
            __builtin_nontemporal_store((Line)source[k], target + k);
#elif defined(__AVX512F__)
            __builtin_ia32_movntdq512(target + k, source[k]);
#elif defined(__AVX__)
            __builtin_ia32_movntdq256(target + k, source[k]);
#else
            __builtin_ia32_movntdq(target + k, source[k]);
#endif
    }
    __builtin_memcpy(to + at, from + at, n - at);
}
SLANGPY_RT_EXPORT void run_streamed(long long begin, long long end, const void *args)
{
    const StreamedOutputs &o = streamed_outputs;
    alignas(64) char buffer[BUFFER_BYTES], block[MOST_ARGUMENTS];
    char *targets[MOST_OUTPUTS];
    __builtin_memcpy(block, args, o.size);
    for (int k = 0; k < o.count; ++k)
    {
        __builtin_memcpy(targets + k, block + o.offsets[k], 8);
        // An output that is an argument too has its lines in a cache when it is written.
        for (int at = 0; at + 8 <= o.size; at += 8)
            if (at != o.offsets[k] && !__builtin_memcmp(block + at, targets + k, 8))
                return o.run(begin, end, args);
    }
    for (long long at = begin; at < end; at += o.step)
    {
        const long long n = end - at < o.step ? end - at : o.step;
        char *part = buffer;
        for (int k = 0; k < o.count; part += o.step * o.bytes[k], ++k)
        {
            const unsigned long long place = (unsigned long long)part - (unsigned long long)(at * o.bytes[k]);
            __builtin_memcpy(block + o.offsets[k], &place, 8);
        }
        o.run(at, at + n, block);
        part = buffer;
        for (int k = 0; k < o.count; part += o.step * o.bytes[k], ++k)
            slangpy_rt_stream(targets[k] + at * o.bytes[k], part, n * o.bytes[k]);
    }
#if defined(__SSE2__)
    // Later stores of this thread, such as that it is done, must not be seen before these.
    __builtin_ia32_sfence();
#elif defined(__clang__)
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
#else
SLANGPY_RT_EXPORT void run_streamed(long long begin, long long end, const void *args)
{
    streamed_outputs.run(begin, end, args);
}
#endif
"""
for _name, _value in {
    "MOST_OUTPUTS": _MOST_OUTPUTS, "MOST_ARGUMENTS": _MOST_ARGUMENTS, "BUFFER_BYTES": _BUFFER_BYTES,
}.items():  # fmt: skip
    STREAMING = STREAMING.replace(_name.encode(), str(_value).encode())


class _Outputs(ctypes.Structure):
    """``StreamedOutputs`` in the C++."""

    _fields_ = (
        ("run", ctypes.c_void_p), ("step", ctypes.c_int64), ("size", ctypes.c_int), ("count", ctypes.c_int),
        ("offsets", ctypes.c_int * _MOST_OUTPUTS), ("bytes", ctypes.c_int * _MOST_OUTPUTS),
    )  # fmt: skip


def streamed_from(library: ctypes.CDLL, run: int, size: int, outputs: Sequence[tuple[int, int]]) -> int:
    """Tell a kernel's library which outputs ``run_streamed`` moves; return the least number of elements worth it.

    Parameters
    ----------
    library : ctypes.CDLL
        The library.
    run : int
        The address of the kernel's function.
    size : int
        Bytes of the argument block.
    outputs : sequence of tuple of int
        As ``KernelInfo.streamed``.
    """
    each = sum(nbytes for _, nbytes in outputs)
    if not outputs or len(outputs) > _MOST_OUTPUTS or size > _MOST_ARGUMENTS or each * _LANES > _BUFFER_BYTES:
        return 1 << 62
    found = _Outputs.in_dll(library, "streamed_outputs")
    found.run, found.step, found.size, found.count = run, _BUFFER_BYTES // each // _LANES * _LANES, size, len(outputs)
    for k, (offset, nbytes) in enumerate(outputs):
        found.offsets[k], found.bytes[k] = offset, nbytes
    return -(-STREAMED_BYTES // each)

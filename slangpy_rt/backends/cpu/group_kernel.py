"""Kernels of the CPU that use thread groups: object files of LLVM, which run W threads in the lanes of vectors.

``group_code`` compiles them. Nothing here starts a thread.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from math import inf, prod
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.cpu.group_format import HEAD, unpacked
from slangpy_rt.backends.cpu.kernel import (
    CHUNK_SECONDS,
    MOST_CHUNKS,
    PROBE,
    PROBE_ENOUGH,
    PROBE_SECONDS,
    WORTH_SECONDS,
)
from slangpy_rt.backends.cpu.llvm import LlvmCompiler, LoadedObject
from slangpy_rt.backends.cpu.shared_launches import shared_text
from slangpy_rt.backends.cpu.streaming import STREAMED_BYTES
from slangpy_rt.core.target import KernelInfo

_RUN = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_char_p)
_RUN_LIST = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_RUN_FIRST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int
)
_RUN_SHARED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
# The functions by which threads share launches of groups.
SHARED = shared_text(PROBE, PROBE_ENOUGH, MOST_CHUNKS, PROBE_SECONDS, WORTH_SECONDS, CHUNK_SECONDS)


# The threads that a coarse group is worth: one is a small launch, and few are shared.
COARSE = 1024


class GroupKernel(Kernel):
    """A loaded object file, which is unloaded with the last reference to the kernel.

    It has the attributes of ``CpuKernel``; a range is one of groups, in the order x, y, z, and its argument block
    begins with the number of groups each way, as ``range_of`` returns it.

    Attributes
    ----------
    probe, enough : int
        The most groups that run without a look at the time, and the groups after which a launch is shared or not.
    threads : int
        Threads of a group, or as many as its work is worth.
    large : float
        From how many groups on outputs are written past the caches, by the same code: the argument block tells it.
    """

    __slots__ = (
        "address", "coarse", "enough", "large", "probe", "run", "run_first", "run_list", "run_shared", "streaming",
        "streaming_address", "threads", "unit",
    )  # fmt: skip

    grouped = True

    def __init__(self, info: KernelInfo, code: LoadedObject, shared: LoadedObject) -> None:
        super().__init__(info)
        self.address = code.address("run_groups")
        # Functions of ctypes refer to what keeps their code in memory.
        self.run: Callable[[int, int, bytes], None] = _kept(_RUN(self.address), code)
        self.run_list: Callable[[Any, int], None] = _kept(_RUN_LIST(shared.address("run_list")), shared)
        self.run_first: Callable[..., int] = _kept(_RUN_FIRST(shared.address("run_first")), shared)
        self.run_shared: Callable[[Any], int] = _kept(_RUN_SHARED(shared.address("run_shared")), (code, shared))
        self.threads = COARSE if info.coarse else prod(info.group_size)
        self.streaming, self.streaming_address = self.run, self.address
        each = sum(nbytes for _, nbytes in info.streamed)
        self.large = -(-STREAMED_BYTES // (each * self.threads)) if each else inf
        # ``run_first`` takes the number of threads of a group in place of ``coarse``.
        self.coarse = self.threads
        self.unit = max(1, PROBE // self.threads)
        self.probe, self.enough = self.unit, max(1, PROBE_ENOUGH // self.threads)

    def past(self, count: int, args: bytes) -> tuple[int, int]:
        """Return the address and the bytes of the outputs that a launch of `count` groups writes past the caches.

        An output that is an argument too is left out: its lines are in a cache when it is written. What lies between
        two outputs may be among the bytes.
        """
        words, threads = struct.unpack_from(f"<{len(args) // 8}Q", args), count * self.threads
        starts = ((words[offset // 8], nbytes) for offset, nbytes in self.info.streamed)
        places = [(start, start + nbytes * threads) for start, nbytes in starts if words.count(start) == 1]
        if not places:
            return 0, 0
        first = min(start for start, _ in places)
        return first, max(end for _, end in places) - first

    @staticmethod
    def range_of(groups: tuple[int, int, int], args: bytes) -> tuple[int, bytes]:
        """Return the number of groups and the argument block that ``run`` takes, for a small launch."""
        x, y, z = groups
        return x * y * z, HEAD.pack(x, y, z, 0, 0) + args


def load_groups(compiler: LlvmCompiler, binary: bytes, shared: LoadedObject, info: KernelInfo) -> GroupKernel:
    """Load a kernel from what ``compile_groups`` returned."""
    return GroupKernel(info, compiler.load(*unpacked(binary)), shared)


def _kept(function: Any, code: Any) -> Any:
    function.code = code
    return function

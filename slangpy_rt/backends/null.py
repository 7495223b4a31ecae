"""A backend that runs nothing and notes every launch: a device for tests.

Memory is host memory, so uploads come back in downloads; kernels leave it unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import numpy as np

from slangpy_rt.backends.base import Backend, Buffer, Kernel, Queue, SharedBuffer
from slangpy_rt.backends.extras import MappedMemory
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.target import Caps, KernelInfo

_SCALARS = frozenset(
    "bool int8_t int16_t int int64_t uint8_t uint16_t uint uint64_t half float double".split()  # noqa: SIM905
)


class NullBuffer(SharedBuffer):
    """Host bytes that stand in for device memory."""

    __slots__ = ()

    def __init__(self, backend: Backend, address: int, nbytes: int) -> None:
        super().__init__(backend, address, nbytes, memoryview(bytearray(nbytes)))


class NullQueue(Queue):
    """A queue that notes launches in its backend."""

    backend: NullBackend

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        self.backend.launches.append((kernel, groups, args))


class NullBackend(Backend, MappedMemory):
    """A device that runs nothing.

    Attributes
    ----------
    launches : list of tuple
        The kernel, thread groups and argument block of every launch.
    live : int
        The number of buffers that were not freed.
    """

    name = "null"

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        self.caps = Caps((2**31 - 1, 65535, 65535), _SCALARS, frozenset({"pointers"}))
        self.target = target_of("cuda", "", "value", self.caps)
        self.description = "null (runs nothing)"
        self.launches: list[tuple[Kernel, tuple[int, int, int], bytes]] = []
        self._made = 0
        # One entry for each buffer that was freed.
        self._given: deque[None] = deque()
        self.queue = NullQueue(self)
        self._next_address = 0x1000

    @property
    def live(self) -> int:
        """The number of buffers that were not freed."""
        return self._made - len(self._given)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return None

    def toolchain(self) -> str:
        return "null"

    def compile(self, code: bytes, entry: str) -> bytes:
        return code

    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        return Kernel(info)

    def alloc(self, nbytes: int) -> NullBuffer:
        buffer = NullBuffer(self, self._next_address, nbytes)
        self._next_address += (nbytes + 255) // 256 * 256
        buffer.chunk = SimpleNamespace(give=partial(self._given.append, None))
        self._made += 1
        return buffer

    def alloc_shared(self, nbytes: int) -> NullBuffer:
        return self.alloc(nbytes)

    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        assert isinstance(dst, NullBuffer)
        dst.view[offset : offset + src.nbytes] = bytes(src)

    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        assert isinstance(src, NullBuffer)
        np.frombuffer(dst, np.uint8)[:] = src.view[offset : offset + dst.nbytes]

    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        assert isinstance(dst, NullBuffer)
        dst.view[offset : offset + nbytes] = bytes(nbytes)

    def close(self) -> None:
        self.closed = True
        self.launches.clear()

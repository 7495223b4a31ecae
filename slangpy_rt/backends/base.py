"""The contract between slangpy_rt and a machine that runs kernels.

A backend sees bytes, integers and buffers. It knows nothing of Slang types, tensors or broadcasting, and
it validates nothing that its caller could have validated: a ``Device`` never launches zero groups, never
passes a buffer of another device and never reads past a buffer's end. What only the driver can know
(memory, device loss, an unusable compiler) a backend raises as an error of ``slangpy_rt.errors``.

Order: one in-order queue per backend. A launch, an upload, a clear and a download take effect in the order
of the calls, whether or not the backend defers the work. ``upload`` and ``download`` are complete when they
return; ``launch`` and ``clear`` need not be.

Threads: every method may be called from any thread. A backend whose driver wants one caller at a time
takes its own lock.

To add a backend copy ``null.py``, fill in the methods, add a line to ``backends.REGISTRY`` and run
``pytest tests/conformance --backend=NAME``.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


@dataclass(frozen=True)
class Target:
    """What the Slang compiler has to emit for a backend.

    Attributes
    ----------
    format : str
        ``"cpp"``, ``"cuda"``, ``"spirv"``, ``"hlsl"``, ``"metal"`` or ``"wgsl"``.
    profile : str
        Slang profile, empty for the format's default.
    entry : str
        How the argument block reaches the kernel: ``"range"`` (``run(begin, end, call*)``), ``"value"``
        (a by-value kernel parameter) or ``"pointer"`` (its address, pushed).
    """

    format: str
    profile: str
    entry: str


@dataclass(frozen=True)
class Caps:
    """Facts about a device that select kernels and tests.

    Attributes
    ----------
    max_groups : tuple of int
        Largest dispatch in x, y and z.
    scalars : frozenset of str
        Slang scalar types that kernels may load, store and compute with.
    features : frozenset of str
        Further capabilities: ``"zero_copy"`` (host arrays are device memory), ``"wave"``,
        ``"group_shared"``, ``"atomic_float"``, ``"cooperative_matrix"`` (waves multiply matrices).
    lanes : int
        Threads of a wave, 0 where there are no waves or their size is not known.
    """

    max_groups: tuple[int, int, int]
    scalars: frozenset[str]
    features: frozenset[str]
    lanes: int = 0


@dataclass(frozen=True)
class KernelInfo:
    """What a backend must know of a kernel besides its binary.

    Attributes
    ----------
    entry : str
        Name of the entry point in the binary.
    group_size : tuple of int
        Threads of one group in x, y and z; ``(1, 1, 1)`` for a range kernel, whose groups are elements.
    args_size : int
        Bytes of the argument block.
    written : tuple of bool
        For each buffer of a launch, whether the kernel writes to it.
    coarse : bool
        Of a range kernel, whether each range costs something by itself, so that a few large ones are best.
    """

    entry: str
    group_size: tuple[int, int, int]
    args_size: int
    written: tuple[bool, ...]
    coarse: bool = False


class Buffer:
    """Device memory. It returns to its backend when the last reference goes.

    Attributes
    ----------
    address : int
        What a kernel dereferences.
    nbytes : int
        Usable size in bytes.
    """

    __slots__ = ("address", "backend", "nbytes")

    def __init__(self, backend: Backend, address: int, nbytes: int) -> None:
        self.backend = backend
        self.address = address
        self.nbytes = nbytes

    def __del__(self, _exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # At exit a backend's module may be torn down already, and the process gives everything back anyway.
        if not _exiting():
            self.backend.free(self)


class SharedBuffer(Buffer):
    """Memory that the host and kernels both address: an argument without a copy command.

    What the host writes before a launch that names the buffer, that launch sees. What kernels wrote, the host
    sees after ``sync``. In between the host leaves the bytes alone: its accesses are not ordered with the queue.

    Attributes
    ----------
    view : memoryview
        Its ``nbytes`` bytes as the host sees them, writable; valid while the buffer lives and its backend is open.
    """

    __slots__ = ("view",)

    def __init__(self, backend: Backend, address: int, nbytes: int, view: memoryview) -> None:
        super().__init__(backend, address, nbytes)
        self.view = view


class Kernel:
    """A loaded kernel; backends derive from it to hold their handle."""

    __slots__ = ("info",)

    def __init__(self, info: KernelInfo) -> None:
        self.info = info


class Dispatch(NamedTuple):
    """A launch to be kept: what ``Backend.launch`` takes."""

    kernel: Kernel
    groups: tuple[int, int, int]
    args: bytes
    buffers: tuple[Buffer, ...]


class Recording:
    """Launches as a backend keeps them; backends derive from it to hold more.

    Attributes
    ----------
    dispatches : list of Dispatch
        In the order of a program.
    """

    __slots__ = ("dispatches",)

    def __init__(self, dispatches: list[Dispatch]) -> None:
        self.dispatches = dispatches


class Backend(ABC):
    """One open device.

    Attributes
    ----------
    name : str
        Registry name, such as ``"cpu"``.
    target : Target
        What kernels are compiled to.
    caps : Caps
        What the device can do.
    description : str
        The device in words, for people.
    deterministic : bool
        Whether a launch divides its work the same way each time.
    """

    name: ClassVar[str]
    target: Target
    caps: Caps
    description: str
    deterministic: bool = False

    @classmethod
    @abstractmethod
    def why_unavailable(cls) -> str | None:
        """One sentence on why this machine cannot open the backend, or None when it can."""

    @abstractmethod
    def toolchain(self) -> str:
        """Name, version and flags of everything ``compile`` uses; part of every cache key."""

    @abstractmethod
    def compile(self, code: bytes, entry: str) -> bytes:
        """Turn what Slang emitted into a binary. Pure: the caller caches the result.

        Raises
        ------
        CompileError
            If the native compiler refuses the code.
        UnsupportedError
            If there is no native compiler.
        """

    @abstractmethod
    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        """Make a binary callable."""

    @abstractmethod
    def alloc(self, nbytes: int) -> Buffer:
        """Allocate at least ``nbytes`` > 0 bytes at a 256-byte aligned address; contents undefined.

        Raises
        ------
        OutOfMemoryError
            If the device has no such amount left.
        """

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Take memory back; queued work that uses it still completes. Never raises.

        It runs wherever the last reference goes: at any moment, in any thread, also inside another method.
        """

    @abstractmethod
    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        """Copy contiguous host memory, of any item format, to the device; it may change once this returns."""

    @abstractmethod
    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        """Copy device bytes into contiguous, writable host memory, after all queued work."""

    @abstractmethod
    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        """Set ``nbytes`` > 0 device bytes to zero, at any offset, in order with queued work."""

    @abstractmethod
    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        """Queue a kernel over ``groups`` thread groups.

        ``args`` is the argument block, raw addresses included. ``buffers`` are all buffers it points to,
        in the order of ``kernel.info.written``; the backend keeps them alive until the work is done.
        """

    @abstractmethod
    def sync(self) -> None:
        """Wait until all queued work is done."""

    @abstractmethod
    def close(self) -> None:
        """Wait for queued work, then release the device. Calling it again does nothing."""

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        """Keep launches to be replayed.

        ``waits`` has for each the places of those that have to be done before it. Others may run at the same time.
        The recording keeps all buffers alive.
        """
        return Recording(list(dispatches))

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        """Put another launch of the same kernel in a recording, which waits for what the old one waited for."""
        recording.dispatches[place] = dispatch

    def replay(self, recording: Recording) -> None:
        """Queue the launches of a recording."""
        for d in recording.dispatches:
            self.launch(d.kernel, d.groups, d.args, d.buffers)

    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer | None:
        """View host memory as a buffer without a copy, or None where the device cannot."""
        return None

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        """Allocate at least ``nbytes`` > 0 bytes that host and kernels address, 256-byte aligned; contents undefined.

        Meant for the arguments of one call: it costs about as much as making the object. Since the host's accesses
        are not ordered with the queue, a freed block is handed out again only after a ``sync`` that began later; a
        call may wait for one. The amount is bounded. None means that the backend has no such memory, that
        ``nbytes`` is too much for it, or that all of it is in use; then there remain ``alloc`` and ``upload``.

        Raises
        ------
        OutOfMemoryError
            If the driver refuses the memory.
        """
        return None

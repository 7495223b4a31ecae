"""The contract between slangpy_rt and a backend, which runs kernels on one kind of device.

A backend handles bytes, integers and buffers. It knows nothing of Slang types, tensors or broadcasting, and
it validates nothing that its caller could have validated: a ``Device`` never launches zero groups, never
passes a buffer of another device and never reads past a buffer's end. What only the driver can know
(memory, device loss, an unusable compiler) a backend raises as an error of ``slangpy_rt.core.errors``.

Work goes to a ``Queue``; memory and code belong to the ``Backend``. Ten methods have to be written: nine of Backend
and ``Queue.launch``. The defaults of all others are right where work is done when the call that queues it returns; a
device that defers its work overrides ``Queue.mark``, ``wait``, ``sync`` and ``copy``, and has a ``Mark`` of its own.
What only some devices can do is a class in ``extras.py``, from which their backends derive too.

Order: each backend has an in-order queue of its own, ``Backend.queue``. A launch there, an upload, a clear and a
download take effect in the order of the calls, whether or not the backend defers the work. ``upload`` and
``download`` are complete when they return; ``launch`` and ``clear`` need not be. Further queues (``open_queue``) run
beside it and beside each other; only marks order them, and a caller that uses several queues keeps buffers alive
until their work is done.

Threads: every method may be called from any thread. A backend whose driver wants one caller at a time
takes its own lock. ``close`` waits for calls of other threads.

Interrupts: KeyboardInterrupt may come between any two steps of the main thread's Python code. Whatever a method did
by then, the next call of any method finds the backend usable, no earlier work lost and no memory leaked. So actions
that belong together, such as an allocation and the note of its address, are one step (``core/interrupts.py``).

``docs/adding-a-backend.md`` has a whole backend as an example. ``pytest tests/conformance --backend=NAME`` shows
what a new one does not do yet; its name comes from ``backends.REGISTRY``, or from another package (``others.py``).
"""

from __future__ import annotations

import functools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.interrupts import Inside, finalizer
from slangpy_rt.core.target import Caps, KernelInfo, Target

B = TypeVar("B", bound="Backend")


class Buffer:
    """A piece of device memory, which the backend gets back when the last reference to the buffer is dropped.

    Attributes
    ----------
    address : int
        The device address of the first byte, which kernels dereference.
    nbytes : int
        Usable size in bytes.
    chunk : object
        The backend's own object for this memory. Its ``give``, a function of C without arguments, returns the memory
        to the backend. A buffer whose chunk has no ``give`` returns nothing.
    uses : Uses or None
        The queues that use it; set by ``runtime/queues.py`` where there are several, and not read by backends.
    """

    __slots__ = ("address", "backend", "chunk", "nbytes", "uses")

    chunk: Any
    uses: Any
    __del__ = finalizer("chunk.give")

    def __init__(self, backend: Backend, address: int, nbytes: int) -> None:
        self.backend = backend
        self.address = address
        self.nbytes = nbytes

    def __reduce__(self) -> NoReturn:
        # A copy would give the memory back a second time.
        raise TypeError(f"{type(self).__name__}: device memory is not copied or pickled; copy the array in it.")


class SharedBuffer(Buffer):
    """Memory that the host and kernels both address, so that passing it to a kernel takes no copy command.

    A launch that names the buffer sees what the host wrote before it. The host sees what kernels wrote after
    ``Backend.sync_all``. In between the host does not touch the bytes: its accesses are not ordered with the queue.

    Attributes
    ----------
    view : memoryview
        The buffer's ``nbytes`` bytes as the host sees them, writable; valid while the buffer lives. The backend
        releases the view when it is closed, so that a later use raises an error and does not access freed memory.
    """

    __slots__ = ("view",)

    def __init__(self, backend: Backend, address: int, nbytes: int, view: memoryview) -> None:
        super().__init__(backend, address, nbytes)
        self.view = view

    def write(self, array: npt.NDArray[Any]) -> None:
        """Copy an array's bytes, in C order, to the beginning of the buffer.

        Raises
        ------
        DeviceError
            If the backend is closed.
        """
        # One step of C checks that the view was not released, as ``close`` does, and copies: no lock is needed.
        try:
            self.view[: array.nbytes] = array.data.cast("B")
        except (TypeError, ValueError):
            # The view was released, or the array has gaps or items that memoryview does not know.
            self.backend.require_open()
            self.view[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data

    def read(self, array: npt.NDArray[Any], at: int = 0) -> None:
        """Copy the buffer's bytes from byte ``at`` on into an array; ``close`` waits meanwhile.

        Raises
        ------
        DeviceError
            If the backend is closed.
        """
        backend = self.backend
        with backend.inside[get_ident()]:
            if backend.closed:
                backend.require_open()
            try:
                array.data.cast("B")[:] = self.view[at : at + array.nbytes]
            except (TypeError, ValueError):
                # The array has gaps, or items that memoryview does not know.
                array[...] = np.frombuffer(self.view, array.dtype, array.size, at).reshape(array.shape)


class PlaceholderBuffer(Buffer):
    """A buffer that stands for memory of another library, which keeps that memory and orders its own work on it."""

    __slots__ = ()

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend, 0, 0)
        self.uses = None


class Kernel:
    """A loaded kernel. Backends derive from it to hold the driver's handle, which the last reference releases."""

    __slots__ = ("__weakref__", "info")

    def __init__(self, info: KernelInfo) -> None:
        self.info = info


class Dispatch(NamedTuple):
    """The arguments of a ``Queue.launch`` that is made later, or again."""

    kernel: Kernel
    groups: tuple[int, int, int]
    args: bytes
    buffers: tuple[Buffer, ...]


class Recording:
    """A sequence of launches that is replayed as a whole; backends derive from it to hold more.

    Attributes
    ----------
    dispatches : list of Dispatch
        The launches, in the order in which the program made them.
    """

    __slots__ = ("dispatches",)

    def __init__(self, dispatches: list[Dispatch]) -> None:
        self.dispatches = dispatches


class Shared:
    """Memory or a semaphore that other APIs on the same GPU can open.

    Attributes
    ----------
    gpu : bytes
        The GPU's UUID; on Windows, where D3D12 knows none, the LUID of its adapter.
    nbytes : int
        Size of the whole memory in bytes; 0 of a semaphore.
    open : callable
        Returns a new file descriptor, which the caller owns, or a handle of Windows.
    close : callable or None
        Closes a handle of Windows, which an API that opened it needs no longer; None where these are descriptors.
    """

    __slots__ = ("__weakref__", "close", "gpu", "nbytes", "open")

    def __init__(
        self, gpu: bytes, nbytes: int, open: Callable[[], int], close: Callable[[int], Any] | None = None
    ) -> None:
        self.gpu = gpu
        self.nbytes = nbytes
        self.open = open
        self.close = close


class Mark:
    """A point in the order of a queue, reached when all that was queued before is done.

    This class is right where work is done when the call that queues it returns.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = time.perf_counter()

    @property
    def done(self) -> bool:
        """Whether the work before the mark is done; reading this does not wait."""
        return True

    def sync(self) -> None:
        """Wait until the work before the mark is done."""

    def since(self, earlier: Mark) -> float:
        """Return the seconds from another mark to this one on the device's clock; both are done, and were timed."""
        return self._seconds - earlier._seconds


class Queue(ABC):
    """A sequence of work that runs in the order in which it is queued.

    The defaults of all methods but ``launch`` are right where work is done when the call that queues it returns, so
    that several queues behave as one.

    Attributes
    ----------
    backend : Backend
        The backend that the queue belongs to.
    handle : int or None
        The driver's handle of the queue, for other libraries.
    deferred : bool
        Whether work may still run when the call that queued it has returned.
    """

    handle: int | None = None
    deferred: ClassVar[bool] = False

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @abstractmethod
    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        """Queue a kernel over ``groups`` thread groups in x, y and z. Each call of a function ends here.

        ``args`` is the argument block, raw addresses included. ``buffers`` are all buffers that it points to, in the
        order of ``kernel.info.written``; the backend keeps their memory from being reused until the work is done.
        For a range kernel ``groups[0]`` is the number of elements.
        """

    def captured(self) -> bool:
        """Return whether another library records the queue's work in a graph instead of running it."""
        return False

    def mark(self, timed: bool = False) -> Mark:
        """Return a mark at the present end of the queue; if ``timed``, the device records its clock there."""
        return Mark()

    def wait(self, mark: Mark) -> None:  # noqa: B027
        """Make work that is queued from now on wait for a mark; the host does not wait.

        The mark is of any queue of this backend, or of a backend that shared memory with it.
        """

    def sync(self) -> None:
        """Wait until all work queued here is done."""
        self.backend.require_open()

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        """Queue a copy of ``nbytes`` > 0 bytes from one buffer to another, or within one without an overlap."""
        piece = memoryview(bytearray(nbytes))
        self.backend.download(src, src_offset, piece)
        self.backend.upload(dst, dst_offset, piece)

    def prepare(self, dispatch: Dispatch) -> Callable[[], None]:
        """Return a function that makes one launch, to be called often. It keeps the buffers alive."""
        return functools.partial(self.launch, *dispatch)

    def replay(self, recording: Recording) -> None:
        """Queue the launches of a recording. The default does it one by one, for backends without ``Records``."""
        for d in recording.dispatches:
            self.launch(d.kernel, d.groups, d.args, d.buffers)

    def label(self, title: str) -> None:  # noqa: B027
        """Begin a part of the work that profilers and debuggers of the API, if it has any, show under a title."""

    def unlabel(self) -> None:  # noqa: B027
        """End the part of the work that ``label`` began last."""


class Backend(ABC):
    """One open device: its memory and its code.

    A backend is made with ``index``, the number of the device among those of its kind, and the keywords ``debug``,
    whether to check what can be checked, and ``deterministic``, whether a launch has to divide its work in the same
    way each time.

    Attributes
    ----------
    name : str
        Registry name, such as ``"cpu"``.
    target : Target
        What kernels are compiled to.
    range_target : Target or None
        What kernels over ranges of elements are compiled to, on a device that has such kernels besides those of
        ``target``: functions that ``target`` cannot express, and those that the next three attributes name.
    range_modules : frozenset of str
        Modules of this project whose kernels are faster over ranges of elements.
    range_imports, range_gradients : frozenset of str
        Modules of this project whose importers are faster over ranges of elements: all their functions, or gradients.
    caps : Caps
        What the device can do.
    description : str
        The device in words, for people.
    queue : Queue
        The backend's own queue, in whose order copies are made.
    compilers : tuple of str
        The names of what ``compile`` and ``load`` run, for people who wait for it.
    closed : bool
        Whether ``close`` was called.
    inside : Inside
        Locks of threads that use what ``close`` releases, beyond the backend's own lock.
    """

    name: ClassVar[str]
    target: Target
    range_target: Target | None = None
    range_modules: ClassVar[frozenset[str]] = frozenset()
    range_imports: ClassVar[frozenset[str]] = frozenset()
    range_gradients: ClassVar[frozenset[str]] = frozenset()
    caps: Caps
    description: str
    queue: Queue
    compilers: tuple[str, str] = ("the native compiler", "the driver")
    closed: bool = False

    inside: Inside

    def __new__(cls: type[B], *args: Any, **options: Any) -> B:
        found = super().__new__(cls)
        found.inside = Inside()
        return found

    def target_of(self, module: str) -> Target:
        """Return what kernels of a module of this project are compiled to."""
        return self.range_target if self.range_target and module in self.range_modules else self.target

    @classmethod
    @abstractmethod
    def why_unavailable(cls) -> str | None:
        """Say in one sentence why this machine cannot open the backend, or return None when it can."""

    @abstractmethod
    def toolchain(self) -> str:
        """Return name, version and flags of everything that ``compile`` uses. They are part of every cache key."""

    def compilers_of(self, target: Target) -> tuple[str, str]:
        """Return ``compilers`` for kernels of one of the backend's targets."""
        return self.compilers

    def begin_compiler(self) -> None:  # noqa: B027 - a compiler that loads at once needs none
        """Let what ``compile`` uses begin to load, if that takes long; the caller runs Slang meanwhile."""

    @abstractmethod
    def compile(self, code: bytes, entry: str) -> bytes:
        """Compile what Slang emitted to a binary. The result depends on nothing else, so that the caller caches it.

        The compiler runs where an interrupt ends it, and ends it when it takes longer than ``CONFIG.build_seconds``.

        Raises
        ------
        CompileError
            If the native compiler refuses the code, or takes too long.
        UnsupportedError
            If there is no native compiler.
        """

    @abstractmethod
    def load(self, binary: bytes, info: KernelInfo) -> Kernel:
        """Load a binary that ``compile`` returned as a kernel.

        A driver that compiles here does so in a thread that an interrupt, and the limit of ``compile``, leave behind.
        """

    @abstractmethod
    def alloc(self, nbytes: int) -> Buffer:
        """Allocate at least ``nbytes`` > 0 bytes at a 256-byte aligned address; their contents are undefined.

        The ``give`` of the buffer's chunk takes the memory back; queued work that uses it still completes. It is
        called where the last reference is dropped: at any moment, in any thread, also inside another method.

        Raises
        ------
        OutOfMemoryError
            If the device does not have so much memory left.
        """

    @abstractmethod
    def upload(self, dst: Buffer, offset: int, src: memoryview) -> None:
        """Copy contiguous host memory of any item format to the device, from byte ``offset`` of ``dst`` on.

        The host memory may change once this returns.
        """

    @abstractmethod
    def download(self, src: Buffer, offset: int, dst: memoryview) -> None:
        """Copy the bytes from ``offset`` on into contiguous, writable host memory, after all queued work."""

    @abstractmethod
    def clear(self, dst: Buffer, offset: int, nbytes: int) -> None:
        """Set ``nbytes`` > 0 device bytes to zero, at any offset, in order with queued work."""

    @abstractmethod
    def close(self) -> None:
        """Wait for queued work and for calls in other threads, then release the device. A second call does nothing.

        Other methods raise DeviceError from then on, in every thread. After an interrupt it can be called again.
        """

    def require_open(self) -> None:
        """Raise DeviceError when the backend is closed."""
        if self.closed:
            raise DeviceError(f"device {self.name}: this device is closed; open a new one.")

    def open_queue(self) -> Queue:
        """Make a further queue, which lives as long as the backend."""
        return type(self.queue)(self)

    def sync_all(self) -> None:
        """Wait until all work of all queues is done."""
        self.queue.sync()

    def abandon(self) -> None:  # noqa: B027 - without a driver there is nothing to do
        """Make sure that the driver is never called again: in a forked child the device does not exist."""

"""The optional parts of the contract in ``base.py``: a class for each, which callers find by ``isinstance``.

A backend derives from ``Backend`` and from the classes here whose methods it has. Without them the rest of the
package does the same another way, or says that the device cannot. Nothing here talks to a driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Mark, Queue, Recording, Shared, SharedBuffer
from slangpy_rt.core.errors import UnsupportedError


class Records(ABC):
    """A backend that keeps launches in a form which it replays faster than it launches them one by one.

    It is for command lists (``docs/command-lists.md``): a CUDA graph, a Vulkan command buffer, a table of kernels
    that one foreign call runs. Without this class a recording is a list of launches, which ``Queue.replay`` makes
    one by one.

    With it ``record`` returns a ``Recording`` of the backend's own, and ``Queue.replay`` is overridden to queue
    that: in order with everything else, and again while it still runs. The recording keeps the buffers alive. It
    goes like any object: at any moment, in any thread, also while it runs or after ``close``.
    """

    @abstractmethod
    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        """Keep launches to be replayed.

        ``waits`` has for each the places of those that have to be done before it. Others may run at the same time.
        """

    @abstractmethod
    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        """Put another launch of the same kernel in a recording, which waits for what the old one waited for.

        Replays from now on make it; one that runs does not notice.
        """


class ZeroCopy(ABC):
    """A backend whose kernels work on the host's memory as it is.

    Its ``caps.features`` contain ``"zero_copy"``. NumPy arrays are then arguments without a copy, and large results
    lie in memory of the device that NumPy sees. The host's accesses are not ordered with the queue, so that work has
    to be done when ``launch`` returns.
    """

    @abstractmethod
    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer:
        """View bytes of host memory, which ``owner`` keeps, as a buffer; that costs no more than an object."""


class MappedMemory(ABC):
    """A backend with memory that the host writes and kernels read in place: small arguments without a copy command.

    NumPy arrays of up to 256 KiB are written to the ``view`` of such a buffer and copied no farther. ``numpy_async``
    fetches arrays through it piece by piece.

    The host's accesses are not ordered with the queue, so that a freed block is handed out again only after a
    ``sync_all`` that began later; a call may wait for one. Closing releases the views, so that a write in another
    thread is refused and touches nothing. ``shared_pool.py`` does both for any backend that can map a large block
    once.
    """

    @abstractmethod
    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        """Allocate at least ``nbytes`` > 0 bytes that host and kernels address, 256-byte aligned; contents undefined.

        Meant for the arguments of one call: it costs about as much as making the object. The amount is bounded. None
        means that ``nbytes`` is too much, or that all is in use; then there remain ``alloc`` and ``upload``.

        Raises
        ------
        OutOfMemoryError
            If the driver refuses the memory.
        """


class LateReads(ABC):
    """A backend without ``MappedMemory`` that fetches an array for ``numpy_async``, while the host does other things.

    A backend whose queues do not defer work needs neither: ``download`` does it.
    """

    @abstractmethod
    def read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        """Queue a copy of a buffer's first bytes to where the host reads them.

        Returns the point after which that is done, and what then writes them to host memory.
        """


class ExportsMemory(ABC):
    """A backend whose memory other APIs on the same GPU can open, as Vulkan's is by file descriptors.

    Its marks are ``ExportedMark``, and its ``Queue.wait`` takes a ``SignallingMark`` of an ``ImportsMemory``: with
    both, work of two APIs on the same memory is in the order of the program.
    """

    @abstractmethod
    def share(self, buffer: Buffer) -> tuple[Shared, int] | None:
        """Return the memory that a buffer is in, and its offset there; None where the driver cannot export it."""


class ExportedMark(Mark):
    """A mark that queues of another API on the same GPU can wait for."""

    __slots__ = ()

    def shared(self) -> tuple[Shared, int]:
        """Return a semaphore, and the value that it has from this mark on."""
        raise NotImplementedError


class ImportsMemory(ABC):
    """A backend that opens memory of an ``ExportsMemory`` on the same GPU, as CUDA does Vulkan's.

    Its marks are ``SignallingMark``, and its ``Queue.wait`` takes an ``ExportedMark``.
    """

    @abstractmethod
    def open_shared(self, shared: Shared, offset: int, nbytes: int, owner: Any) -> Buffer | None:
        """Make a buffer in memory of another backend, which ``owner`` keeps alive; None on another GPU."""


class SignallingMark(Mark):
    """A mark that can set a semaphore of another API on the same GPU."""

    __slots__ = ()

    def signal(self, semaphore: Shared, value: int) -> None:
        """Have a semaphore set to a value from this mark on."""
        raise NotImplementedError


class ForeignStreams(ABC):
    """A backend that works on streams of other libraries, which know them by a number, as CUDA's ``CUstream`` is.

    Such a stream is the backend's own queue (``stream=`` and ``owner=`` when it is opened), a further one that a
    program hands over (``open_stream``), or that on which another library has an argument of one call
    (``foreign_queue``).
    """

    @abstractmethod
    def open_stream(self, handle: int, owner: Any = None) -> Queue:
        """Take a stream of another library as a queue, which keeps ``owner``; a known stream is the same queue.

        Raises
        ------
        DeviceError
            If the stream is of another device.
        """

    @abstractmethod
    def foreign_queue(self, handle: int) -> Queue:
        """Take a stream as ``open_stream`` does, which may be gone after a call: ``sync_all`` does not ask it."""


def recording_of(backend: Backend, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
    """Keep launches in the backend's own form if it derives from ``Records``, else in a list."""
    return backend.record(dispatches, waits) if isinstance(backend, Records) else Recording(list(dispatches))


def change(backend: Backend, recording: Recording, place: int, dispatch: Dispatch) -> None:
    """Put another launch of the same kernel in what ``recording_of`` made."""
    if isinstance(backend, Records):
        backend.update(recording, place, dispatch)
    else:
        recording.dispatches[place] = dispatch


def foreign_streams(backend: Backend) -> ForeignStreams:
    """Return a backend as one that works on streams of other libraries.

    Raises
    ------
    UnsupportedError
        If it does not.
    """
    if not isinstance(backend, ForeignStreams):
        raise UnsupportedError(
            f"device {backend.name}: only cuda devices take over streams of other libraries; leave the stream out."
        )
    return backend


def no_mapped_memory(nbytes: int) -> SharedBuffer | None:
    """Stand in for ``MappedMemory.alloc_shared`` where a backend has no such memory: always None."""
    return None

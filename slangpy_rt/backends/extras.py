"""The optional parts of the contract in ``base.py``: a class for each, which callers find by ``isinstance``.

A backend derives from ``Backend`` and from those classes here whose methods it has. Without one of them the rest of
the package does the same in another way, or raises an error that names the device. Nothing here calls a driver.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Mark, Queue, Recording, Shared, SharedBuffer
from slangpy_rt.core.errors import UnsupportedError

if TYPE_CHECKING:
    from slangpy_rt.backends.host_blocks import HostBlocks


class Records(ABC):
    """A backend that keeps launches in a form which it replays faster than it launches them one by one.

    It is for command lists (``docs/command-lists.md``): a CUDA graph, a Vulkan command buffer, a table of kernels
    that one foreign call runs. Without this class a recording is a list of launches, which ``Queue.replay`` makes
    one by one.

    With it ``record`` returns a ``Recording`` of the backend's own, and ``Queue.replay`` is overridden to queue
    it, in order with other work. A recording may be replayed again while it still runs, and keeps its buffers alive.
    It may be freed like any object: at any moment, in any thread, also while it runs or after ``close``.
    """

    @abstractmethod
    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        """Make a recording of launches.

        For each launch, ``waits`` has the indices of the earlier launches that must be done before it; for example
        ``[(), (), (0, 1)]`` for a third launch that reads the results of two others, which may run at the same time.
        """

    @abstractmethod
    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        """Replace the launch at index ``place`` by another one of the same kernel, which waits for the same launches.

        Later replays make the new launch; a replay that was queued earlier makes the old one.
        """


class ZeroCopy(ABC):
    """A backend whose kernels read and write ordinary host memory.

    Its ``caps.features`` contain ``"zero_copy"``. NumPy arrays are then passed without a copy, and large results are
    NumPy arrays on memory of the device. The host's accesses are not ordered with the queue, so that work has to be
    done when ``launch`` returns.
    """

    @abstractmethod
    def wrap(self, address: int, nbytes: int, owner: Any) -> Buffer:
        """Return a buffer on ``nbytes`` bytes of host memory at ``address``, which ``owner`` keeps alive.

        Nothing is copied; each call with an array makes such a buffer, so that it has to be cheap.
        """


class MappedMemory(ABC):
    """A backend with memory that the host writes and kernels read in place: small arguments without a copy command.

    NumPy arrays of up to 256 KiB are written to the ``view`` of such a buffer and copied no farther. ``numpy_async``
    fetches arrays through such buffers piece by piece.

    The host's accesses are not ordered with the queue, so that freed memory is used again only after a ``sync_all``
    that began later; an allocation may wait for one. Closing releases the views, so that a write in another thread
    raises an error and touches no memory. ``shared_pool.py`` does both for every backend that can map a large block.
    """

    @abstractmethod
    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        """Allocate at least ``nbytes`` > 0 bytes that host and kernels address, 256-byte aligned; contents undefined.

        It is meant for the arguments of one call, and costs about as much as making the object. The amount of such
        memory is bounded.

        Returns
        -------
        SharedBuffer or None
            None if ``nbytes`` is too much, or all such memory is in use; the caller then uses ``alloc`` and
            ``upload``.

        Raises
        ------
        OutOfMemoryError
            If the driver refuses the memory.
        """


class HostResults(ABC):
    """A backend with host memory of its own, where large results that go to the host lie.

    The memory is used again, and ``download`` may recognize it and copy without stages. It stays where it is when the
    backend is closed, for arrays that lie in it.

    Attributes
    ----------
    hosts : HostBlocks
        That memory.
    """

    hosts: HostBlocks


class LateReads(ABC):
    """A backend without ``MappedMemory`` that fetches an array for ``numpy_async`` while the host does other things.

    A backend whose queues do not defer work needs neither class: ``download`` is used.
    """

    @abstractmethod
    def read_later(self, src: Buffer, nbytes: int) -> tuple[Mark, Callable[[memoryview], None]]:
        """Queue a copy of a buffer's first ``nbytes`` bytes to memory that the host can read.

        Returns
        -------
        Mark
            The copy is done when this mark is.
        callable
            Copies the bytes to the host memory that it is passed, once the mark is done.
        """


class ExportsMemory(ABC):
    """A backend whose memory other APIs on the same GPU can open, as Vulkan's is by file descriptors.

    Its marks are ``ExportedMark``, and its ``Queue.wait`` takes a ``SignallingMark`` of an ``ImportsMemory``. With
    both, work of two APIs on the same memory runs in the order of the program.
    """

    @abstractmethod
    def share(self, buffer: Buffer) -> tuple[Shared, int] | None:
        """Return the memory that a buffer is in, and its offset there; None where the driver cannot export it."""


class ExportedMark(Mark):
    """A mark that queues of another API on the same GPU can wait for."""

    __slots__ = ()

    def shared(self) -> tuple[Shared, int]:
        """Return a timeline semaphore, and the value that it has reached once the work before the mark is done."""
        raise NotImplementedError


class ImportsMemory(ABC):
    """A backend that opens memory of an ``ExportsMemory`` on the same GPU, as CUDA does Vulkan's.

    Its marks are ``SignallingMark``, and its ``Queue.wait`` takes an ``ExportedMark``.
    """

    @abstractmethod
    def open_shared(self, shared: Shared, offset: int, nbytes: int, owner: Any) -> Buffer | None:
        """Return a buffer in memory of another backend, which ``owner`` keeps alive; None if another GPU has it."""


class SignallingMark(Mark):
    """A mark that can set a semaphore of another API on the same GPU."""

    __slots__ = ()

    def signal(self, semaphore: Shared, value: int) -> None:
        """Set a timeline semaphore to ``value`` once the work before the mark is done; the host does not wait.

        The semaphore is set only after it has reached ``value - 1``, which another device may set.
        """
        raise NotImplementedError


class ForeignStreams(ABC):
    """A backend that works on streams of other libraries, which are passed as numbers, such as CUDA's ``CUstream``.

    Such a stream is the backend's own queue (``stream=`` and ``owner=`` when it is opened), a further queue that a
    program opens (``open_stream``), or the stream on which another library works with an argument of one call
    (``foreign_queue``).
    """

    @abstractmethod
    def open_stream(self, handle: int, owner: Any = None) -> Queue:
        """Return a queue on a stream of another library. The queue keeps ``owner`` alive.

        For a stream that has a queue already, that queue is returned.

        Raises
        ------
        DeviceError
            If the stream is of another device.
        """

    @abstractmethod
    def foreign_queue(self, handle: int) -> Queue:
        """Return a queue on a stream that may be destroyed after a call, so that ``sync_all`` does not use it."""


def recording_of(backend: Backend, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
    """Make a recording of launches: the backend's own if it derives from ``Records``, else a list of launches."""
    return backend.record(dispatches, waits) if isinstance(backend, Records) else Recording(list(dispatches))


def change(backend: Backend, recording: Recording, place: int, dispatch: Dispatch) -> None:
    """Replace the launch at index ``place`` of what ``recording_of`` made by another one of the same kernel."""
    if isinstance(backend, Records):
        backend.update(recording, place, dispatch)
    else:
        recording.dispatches[place] = dispatch


def packed_blocks(dispatches: list[Dispatch]) -> tuple[list[int], bytearray]:
    """Join argument blocks; return the offset of each, a multiple of 16 bytes, and the bytes of all.

    16 bytes are the largest alignment of a member of an argument block.
    """
    offsets, packed = [], bytearray()
    for d in dispatches:
        offsets.append(len(packed))
        packed += d.args.ljust(len(d.args) + 15 & -16, b"\0")
    return offsets, packed


def barriers(waits: Sequence[tuple[int, ...]]) -> list[bool]:
    """Return before which launches of a recording a barrier comes, which orders all launches before it.

    So one is enough for several launches that wait for those before it.
    """
    found, ordered = [], 0
    for k, before in enumerate(waits):
        found.append(any(w >= ordered for w in before))
        ordered = k if found[-1] else ordered
    return found


def foreign_streams(backend: Backend) -> ForeignStreams:
    """Return the backend itself, typed as one that works on streams of other libraries.

    Raises
    ------
    UnsupportedError
        If it does not work on them.
    """
    if not isinstance(backend, ForeignStreams):
        raise UnsupportedError(
            f"device {backend.name}: only cuda devices take over streams of other libraries; leave the stream out."
        )
    return backend


def no_mapped_memory(nbytes: int) -> SharedBuffer | None:
    """Return None: stands in for ``MappedMemory.alloc_shared`` where a backend has no such memory."""
    return None


class TensorMaps(ABC):
    """A backend whose kernels copy boxes of matrices to group memory by a description, as CUDA's TMA does.

    Its ``caps.features`` contain ``"wgmma"``.
    """

    def captures(self) -> bool:
        """Return whether another library records the launches of the backend's queue, to repeat them at any time."""
        return False

    @abstractmethod
    def tensor_map(
        self, address: int, element: str, shape: Sequence[int], strides: Sequence[int], box: Sequence[int]
    ) -> Buffer:
        """Return a buffer with the description of a tensor of three dimensions, whose address kernels take.

        Kernels on all streams can read it. While another library captures a stream, nothing of this is captured.

        Lines of a box have 128 bytes, which group memory holds in the order of the swizzle of 128 bytes. Elements
        outside of the tensor are 0.

        Parameters
        ----------
        address : int
            Address of the first element, a multiple of 16.
        element : str
            ``"half"``, ``"bfloat16"``, ``"int8_t"``, ``"float"``, or ``"tf32"`` for floats that are rounded to it.
        shape, box : sequence of int
            Elements in each dimension, the one whose elements follow each other first.
        strides : sequence of int
            Bytes of a step in the second and in the third dimension, multiples of 16.

        Raises
        ------
        DeviceError
            If the driver refuses it.
        """


class Occupancy(ABC):
    """A backend that knows how many threads of a kernel its device keeps running; a launch has any size of groups.

    Its ``caps.features`` contain ``"free_group_size"``.
    """

    @abstractmethod
    def resident_threads(self, kernel: Kernel, threads: int) -> int:
        """Return how many threads of a kernel one processor runs at once, in groups of ``threads`` threads."""

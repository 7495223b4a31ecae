"""DeviceCore: an open backend with its memory, its queues, its kernels and what it reports.

What a backend does not check is checked here, or by the packages above. This file knows no arrays, no modules and no
streams; ``slangpy_rt.Device`` adds the methods that make these.
"""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Backend, Buffer, PlaceholderBuffer, Queue, Recording, SharedBuffer
from slangpy_rt.backends.extras import ExportsMemory, HostResults, ImportsMemory, MappedMemory, no_mapped_memory
from slangpy_rt.backends.selection import DeviceType, named, open_backend
from slangpy_rt.core.checks import flag, paths
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import BindError, DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.log import log, milliseconds
from slangpy_rt.core.paths import absolute
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.target import Caps
from slangpy_rt.core.weak import WeakMembers, WeakValues
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.diagnostics import Diagnostics
from slangpy_rt.runtime.downloads import Transfers
from slangpy_rt.runtime.follower import Follower
from slangpy_rt.runtime.host_view import POOLED_BYTES, host_view
from slangpy_rt.runtime.labels import Labels
from slangpy_rt.runtime.lane import Lane
from slangpy_rt.runtime.launch_log import LaunchLog
from slangpy_rt.runtime.observer import Observer
from slangpy_rt.runtime.queues import Order, Touches

T = TypeVar("T")
D = TypeVar("D", bound="DeviceCore")


class DeviceCore(ABC):
    """An open device, as the packages below the public ``Device`` use it.

    Parameters
    ----------
    type, include_paths, debug, index, hot_reload, deterministic
        As of ``Device``.
    stream : int, optional
        The handle of another library's stream, which becomes the device's own queue.
    owner : object
        The object that keeps this stream alive.

    Attributes
    ----------
    launch : callable
        As ``Queue.launch``, on the device's own queue. It is that queue's own method while the device has no
        observers and one queue.
    plain : bool
        Whether calls take the shortest path: the device is open, has no observers, and one queue.
    ordered : bool
        Whether there are, or were, queues besides the device's own: launches then wait for those they conflict with.
    alloc_mapped : callable
        As ``MappedMemory.alloc_shared``, of an open device; it returns None where the backend has no such memory.
    placeholder : PlaceholderBuffer
        The buffer that launches name in place of other libraries' memory.
    foreign_streams : dict
        The ForeignStream of each stream of another library, by the stream's handle.
    followers : WeakMembers of Follower
        The modules that ``reload`` reads anew, and whose prepared calls are dropped when the device is closed.
    """

    def __init__(
        self,
        type: DeviceType | str,
        include_paths: Sequence[str | Path],
        debug: bool,
        index: int,
        hot_reload: bool,
        deterministic: bool,
        stream: int | None = None,
        owner: Any = None,
    ) -> None:
        # Here, since no program needs the disk cache before its first device: hashes and archives take 6 ms to load.
        from slangpy_rt.core.disk_cache import DiskCache, cache_directory
        from slangpy_rt.runtime.kernel_store import KernelStore

        started = time.perf_counter()
        kind, index = named(type, index)
        folders = paths("Device", "include_paths", include_paths)
        debug, hot_reload = flag("Device", "debug", debug), flag("Device", "hot_reload", hot_reload)
        deterministic = flag("Device", "deterministic", deterministic)
        self.backend: Backend = apart(open_backend, kind, index, debug, deterministic, stream, owner)
        self.name = name = self.backend.name
        self.caps: Caps = self.backend.caps
        self.debug = debug
        self.index = index
        self.deterministic = deterministic
        self.diagnostics = Diagnostics(self.backend)
        self.closed = self._forked = False
        self.order = Order(self.backend.queue)
        self.ordered = False
        self.plain = False
        self.placeholder = PlaceholderBuffer(self.backend)
        self.foreign_streams: dict[int, Any] = {}
        backend = self.backend
        self.alloc_mapped = backend.alloc_shared if isinstance(backend, MappedMemory) else no_mapped_memory
        self.observers: tuple[Observer, ...] = _observers(name)
        self._transfers: Transfers | None = None
        self.relink()
        self.include_paths = tuple(map(absolute, folders))  # a link may change
        self.cache = DiskCache.open(cache_directory(), CONFIG.cache_size)
        self.kernels = KernelStore(self.backend, self.cache, self.diagnostics)
        self.hot_reload = hot_reload
        self.followers: WeakMembers[Follower] = WeakMembers()
        # Interned values of the packages above, such as layouts: by keys that only their makers know.
        self.interned: WeakValues[Any] = WeakValues()
        self._once: dict[str, Any] = {}
        self._at_close: list[Callable[[], None]] = []
        self.lock = threading.RLock()
        self._closing = threading.RLock()
        LIVE.add(self)
        log(1, f"{name}: {self.backend.description}, opened in {milliseconds(started)}")

    @property
    def info(self) -> str:
        """The device in words."""
        return self.backend.description

    @property
    @abstractmethod
    def moves(self) -> Any:
        """The package's own kernels that copy and clear arrays, and dispatches of them."""

    @property
    @abstractmethod
    def folds(self) -> Any:
        """The Slang module of the package that adds exact sums to gradients."""

    def reload(self) -> None:
        """Read the files of all modules of the device again, whether or not they look changed.

        Raises
        ------
        DeviceError
            If the device is closed.
        CompileError
            If Slang refuses a module's text; that module stays as it was.
        """
        self.check_open()
        for follower in list(self.followers):
            follower.reload()

    def synchronize(self) -> None:
        """Wait until all work given to this device, on any stream, is done, and show what it printed."""
        if self.closed:
            self.check_open()
        if self.order.holds:
            self._drain()
        else:
            self.backend.sync_all()
        if self.diagnostics.pending:
            self.show_printed()

    wait = synchronize

    def close(self) -> None:
        """Wait for the device's work and for other threads' calls, and release the device; further calls do nothing.

        Arrays on it lose their contents. Whatever is called later, in any thread, raises DeviceError. After an
        interrupt it can be called again, to do the rest.
        """
        self.closed = True
        self.plain = False
        self._forget()
        try:
            # Before the lock: what is printed may be printed by a function that closes the device.
            if not self.backend.closed:
                self.diagnostics.flush()
        finally:
            with self._closing:
                self.backend.close()
                self.order.close()
                while self._at_close:
                    self._at_close[-1]()
                    self._at_close.pop()

    def __enter__(self: D) -> D:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Device({self.name!r}: {self.info}{', closed' if self.closed else ''})"

    def once(self, key: str, make: Callable[[], T], close: Callable[[T], None] | None = None) -> T:
        """Return an object that is made once for this device; ``close`` is called with it when the device closes.

        If two threads make it at once, the second object is closed and dropped.
        """
        if key not in self._once:
            made = make()
            with self.lock:
                first = self._once.setdefault(key, made) is made
                if first and close is not None:
                    self._at_close.append(partial(close, made))
            if not first and close is not None:
                close(made)
        found: T = self._once[key]
        return found

    @property
    def identity(self) -> str:
        """A text that this device has alone, by which a pickle of this process finds it again."""
        return self.once("identity", lambda: os.urandom(8).hex())

    def alloc(self, nbytes: int) -> Buffer:
        """Allocate memory for an array; an empty one gets a byte, so that it has an address."""
        if self.closed:
            self.check_open()
        try:
            return self.backend.alloc(nbytes or 1)
        except OutOfMemoryError:
            if not self.ordered:
                raise
        # Streams hold buffers until their work is known to be done: wait for it, and try again.
        self._drain()
        return self.backend.alloc(nbytes or 1)

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        """Return memory that host and device address, for a small array of one call; None where none is left."""
        if self.closed:
            self.check_open()
        return self.alloc_mapped(nbytes)

    def upload(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> None:
        """Copy a contiguous host array to an address inside a buffer."""
        self.check_open()
        if not array.nbytes:
            return
        for observer in self.observers:
            observer.writes("a copy from the host", (buffer,))
        if not self.ordered:
            self.backend.upload(buffer, address - buffer.address, array.data)
            return
        with self.order.lock:
            self.order.order_use(self.order.main, (buffer,), (True,))
            self.backend.upload(buffer, address - buffer.address, array.data)

    def download(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> None:
        """Copy from an address inside a buffer into a contiguous host array."""
        self.check_open()
        if array.nbytes:
            if self.ordered:
                with self.order.lock:
                    self.order.order_use(self.order.main, (buffer,), (False,))
            self.backend.download(buffer, address - buffer.address, array.data)
        self.show_printed()

    def download_async(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> Coroutine[Any, Any, None]:
        """Return an awaitable that copies, as ``download`` does, the contents at the time of this call."""
        self.check_open()
        if not array.nbytes or not self.backend.queue.deferred:
            self.download(buffer, address, array)
            return _nothing()
        if self._transfers is None:
            self._transfers = Transfers(self.backend, self.order)
        return self._transfers.fetch(buffer, address - buffer.address, array)

    def clear(self, buffer: Buffer, address: int, nbytes: int) -> None:
        """Set bytes from an address inside a buffer to zero."""
        self.check_open()
        if not nbytes:
            return
        for observer in self.observers:
            observer.writes("clear", (buffer,))
        if not self.ordered:
            self.backend.clear(buffer, address - buffer.address, nbytes)
            return
        with self.order.lock:
            self.order.order_use(self.order.main, (buffer,), (True,))
            self.backend.clear(buffer, address - buffer.address, nbytes)

    def replay(self, recording: Recording, touches: Callable[[], Touches], lane: Lane) -> None:
        """Run a recording on a queue; ``touches`` says which buffers it uses, where there are several queues."""
        replay = lane.queue.replay
        for observer in self.observers:
            observer.writes("a command list", [b for b, w in zip(*touches(), strict=False) if w])
            replay = partial(observer.replay, lane.queue, replay)
        if self.ordered:
            self.order.replay(lane, replay, recording, touches())
        else:
            replay(recording)

    def open_shared(self, where: str, buffer: Buffer, owner: DeviceCore) -> Buffer:
        """Return memory of another device as a buffer of this one; work of both on it is ordered.

        Raises
        ------
        UnsupportedError
            If this device cannot reach it.
        """
        self.check_open()
        owner.check_open()
        shared = owner.backend.share(buffer) if isinstance(owner.backend, ExportsMemory) else None
        if shared is None:
            raise UnsupportedError(f"{where}: memory of {owner!r} cannot be opened by other devices; copy the array.")
        found = None
        if isinstance(self.backend, ImportsMemory):
            found = self.backend.open_shared(*shared, buffer.nbytes, buffer)
        if found is None:
            raise UnsupportedError(
                f"{where}: {self!r} cannot open memory of {owner!r}; that takes memory of Vulkan or, on "
                "Windows, of D3D12, CUDA, and one GPU."
            )
        for device in (self, owner):
            device.begin_order()
        self.order.share(owner.order, found, buffer)
        return found

    def relink(self) -> None:
        """Choose the path of calls anew, after the number of queues or observers has changed."""
        launch = self.queue_launch(self.backend.queue)
        self.launch = partial(self.order.launch, self.order.main, launch) if self.ordered else launch
        self.foreign_streams.clear()
        self.plain = not (self.closed or self.ordered or self.observers)

    def queue_launch(self, queue: Queue) -> Callable[..., None]:
        """Return a function that launches on a queue through all observers."""
        launch = queue.launch
        for observer in self.observers:
            launch = partial(observer.launch, queue, launch)
        return launch

    def observe(self, observer: Observer) -> None:
        """Run every launch from now on through an observer."""
        self.observers = (*self.observers, observer)
        self.relink()

    def unobserve(self, observer: Observer) -> None:
        """Run no further launch through an observer."""
        self.observers = tuple(other for other in self.observers if other is not observer)
        self.relink()

    def begin_order(self) -> None:
        """Order launches by the buffers they use: from here on there are several queues."""
        if not self.ordered:
            self.ordered = True
            self.relink()

    def show_printed(self) -> None:
        """Show what kernels have printed since the last look."""
        if self.diagnostics.pending:
            self.diagnostics.flush()

    def host_array(self, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Make a NumPy array, uninitialized, for a result that goes back to the host.

        A large one comes from the device's pool and returns to it: fresh pages cost more than the work (x + x over
        64 MiB on the CPU: 8.5 ms with them, 3.1 without).
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        if nbytes >= POOLED_BYTES:
            if "zero_copy" in self.caps.features:
                return host_view(self.alloc(nbytes), shape, np.dtype(dtype))
            block = self.backend.hosts.take(nbytes) if isinstance(self.backend, HostResults) else None
            if block is not None:
                return host_view(block, shape, np.dtype(dtype))
        return np.empty(shape, dtype)

    def check_open(self) -> None:
        """Raise DeviceError if the device is closed."""
        if self._forked:
            raise DeviceError(
                f"this {self.name} device was opened before os.fork() and does not exist in the child process; open "
                "one there. Of multiprocessing use the start method 'spawn' or 'forkserver'."
            )
        if self.closed:
            raise DeviceError(f"this {self.name} device was closed; open another with create_device('{self.name}').")

    def forked(self) -> None:
        """Make the device unusable without a driver call: this process was forked from the one that opened it."""
        self.closed = self._forked = True
        self.plain = False
        self.lock = threading.RLock()
        self._forget()
        self.backend.abandon()

    def _drain(self) -> None:
        """Wait for all work, and drop the references that its marks held."""
        self.order.drop_done()
        self.backend.sync_all()
        self.order.drop_done()

    def _forget(self) -> None:
        """Drop all prepared calls, so that the next ones read the device's state again."""
        for follower in list(self.followers):
            follower.forget()
        self.kernels.forget()


# Every device that still exists, closed ones too: for ``fork``, and for a profile of all that are open.
LIVE: WeakMembers[DeviceCore] = WeakMembers()


def _after_fork() -> None:
    for device in list(LIVE):
        device.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def a_device(where: str, value: Any) -> Any:
    """Check that an argument named device is a Device, and return it."""
    if not isinstance(value, DeviceCore):
        raise BindError(f"{where}: device is {in_words(value)}; a Device was expected, as spy.Device('cpu') is.")
    return value


def another(device: DeviceCore, than: DeviceCore) -> str:
    """Return a device in words for a message that names two devices, which may have the same name."""
    return f"another {device!r}" if repr(device) == repr(than) else repr(device)


def but_of(value: Any, device: DeviceCore) -> str:
    """Return the end of a message about a value of another device; empty if the value belongs to none."""
    theirs = getattr(value, "device", None)
    return f", but of {another(theirs, device)}" if isinstance(theirs, DeviceCore) and theirs is not device else ""


def _observers(name: str) -> tuple[Observer, ...]:
    """Return the observers that the environment asks for, the innermost first."""
    labels = (Labels(),) if CONFIG.labels else ()
    return (*labels, LaunchLog(name)) if CONFIG.debug >= 2 else labels


async def _nothing() -> None:
    """Return at once: the copy is done already."""

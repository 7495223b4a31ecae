"""Device: an open backend with its kernel cache and the modules loaded for it.

Everything that a backend trusts its caller with is checked at this level or above.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.host_view import host_view
from slangpy_rt.arrays.layout import Gradients, Layout, Shape
from slangpy_rt.arrays.ndbuffer import dense_strides
from slangpy_rt.backends.base import Backend, Buffer, GuestBuffer, Kernel, Queue, Recording, SharedBuffer
from slangpy_rt.backends.extras import (
    ExportsMemory,
    ForeignStreams,
    ImportsMemory,
    MappedMemory,
    no_mapped_memory,
)
from slangpy_rt.backends.selection import DeviceType, named, open_backend
from slangpy_rt.core.checks import flag, paths
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache, cache_directory
from slangpy_rt.core.errors import (
    BindError,
    DeviceError,
    OutOfMemoryError,
    UnsupportedError,
)
from slangpy_rt.core.interrupts import apart
from slangpy_rt.core.target import Caps
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.weak import WeakMembers, WeakValues
from slangpy_rt.core.wording import describe
from slangpy_rt.runtime.diagnostics import Diagnostics
from slangpy_rt.runtime.kernel_store import Kernels
from slangpy_rt.runtime.labels import Labels
from slangpy_rt.runtime.queues import Lane, Order, Touches

if TYPE_CHECKING:
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.command_list import CommandList
    from slangpy_rt.calls.module import Module
    from slangpy_rt.runtime.downloads import Transfers
    from slangpy_rt.runtime.foreign_stream import Guests
    from slangpy_rt.runtime.profile import Watch
    from slangpy_rt.runtime.stream import Event, Stream, Timer


_POOLED_BYTES = 1 << 20


class Device:
    """A place to run Slang functions.

    Parameters
    ----------
    type : DeviceType or str
        ``"cuda"``, ``"d3d12"``, ``"metal"``, ``"vulkan"``, ``"cpu"``, or ``"automatic"`` for the first of these that
        works here (``SLANGPY_RT_DEVICE`` wins over automatic); ``"cuda:1"`` for the second of a kind.
        ``"rhi-vulkan"`` and ``"rhi-cuda"`` are those APIs by slang-rhi, as D3D12 and Metal are.
    include_paths : sequence of path
        Where ``import`` and ``#include`` look, besides the folder of the file itself.
    debug : bool
        Driver checks where there are any: the Vulkan validation layers, a wait after each CUDA launch. And kernels
        check each index into a Tensor, RWTensor or NDBuffer parameter: one that is outside raises OutOfBoundsError
        at the end of the call, and touches nothing. Bare pointers (``float *p``) cannot be checked.
    index : int
        Which device of that kind.
    hot_reload : bool
        Whether a call looks for edited files of its module first.
    deterministic : bool
        Whether ``bwds`` computes the same bits each time. Where threads add to one place, floats depend on who comes
        first; here the sums are exact instead, which takes longer and, while a call runs, 96 bytes for each float
        and half of such a gradient, 552 for each double.
    stream : stream of another library or int, optional
        A CUDA stream to be the device's own queue, as of ``Device.stream``: work given to the device is in the order
        of what that library does there.

    Raises
    ------
    UnsupportedError
        If there is no such device here; the message says why.
    """

    def __init__(
        self,
        type: DeviceType | str = DeviceType.automatic,
        include_paths: Sequence[str | Path] = (),
        debug: bool = False,
        index: int = 0,
        hot_reload: bool = True,
        deterministic: bool = False,
        stream: Any = None,
    ) -> None:
        started = time.perf_counter()
        kind, index = named(type, index)
        folders = paths("Device", "include_paths", include_paths)
        debug, hot_reload = flag("Device", "debug", debug), flag("Device", "hot_reload", hot_reload)
        deterministic = flag("Device", "deterministic", deterministic)
        if stream is None:
            self.backend: Backend = apart(open_backend, kind, index, debug, deterministic)
        else:
            from slangpy_rt.runtime.stream import stream_handle

            handle = stream_handle("Device", stream)
            self.backend = apart(open_backend, kind, index, debug, deterministic, handle, stream)
        self.name = name = self.backend.name
        self.caps: Caps = self.backend.caps
        self.debug = debug
        self.index = index
        self.deterministic = deterministic
        self.diagnostics = Diagnostics(self.backend)
        self.closed = self._forked = False
        self.order = Order(self.backend.queue)
        # Whether there are streams besides the device's own queue.
        self.ordered = False
        self.profile: Watch | None = None
        self._transfers: Transfers | None = None
        # Whether calls take the shortest way: nobody looks on, nothing has to be ordered, and it is open.
        self.plain = False
        # To PyTorch's tensors on the GPU of a Vulkan device.
        self.bridge: Any = None
        # Stands for memory of other libraries in launches, and how work on it is launched, by their streams.
        self.guest = GuestBuffer(self.backend)
        self.guests_of: dict[int, Guests] = {}
        backend = self.backend
        self._alloc_shared = backend.alloc_shared if isinstance(backend, MappedMemory) else no_mapped_memory
        self._labels = Labels() if CONFIG.labels else None
        self.relink()
        self.include_paths = tuple(str(folder.absolute()) for folder in folders)  # a link may be set anew
        self.cache = DiskCache.open(cache_directory(), CONFIG.cache_size)
        self.kernels = Kernels(self, self.cache)
        self.hot_reload = hot_reload
        self.scopes: WeakMembers[Scope] = WeakMembers()
        self._layouts: WeakValues[Layout] = WeakValues()
        self._folds: Module | None = None
        self._moves: Module | None = None
        self._lock = threading.RLock()
        self._closing = threading.RLock()
        LIVE.add(self)
        self.log(1, f"{name}: {self.backend.description}, opened in {_ms(started)}")

    @property
    def info(self) -> str:
        """The device in words."""
        return self.backend.description

    def load_module(self, path: str | Path, defines: Mapping[str, Any] | None = None) -> Module:
        """Load a Slang file; the same as ``Module.load_from_file(device, path)``."""
        from slangpy_rt.calls.module import Module

        return Module.load_from_file(self, path, defines=defines)

    load_module_from_file = load_module

    def load_module_from_source(self, name: str, source: str, defines: Mapping[str, Any] | None = None) -> Module:
        """Load Slang text; the same as ``Module.load_from_source(device, name, source)``."""
        from slangpy_rt.calls.module import Module

        return Module.load_from_source(self, name, source, defines=defines)

    def reload(self) -> None:
        """Read all its modules' files anew, whether or not they look changed.

        Raises
        ------
        CompileError
            If Slang refuses one; that module stays as it was.
        """
        for scope in list(self.scopes):
            scope.reload()

    def synchronize(self) -> None:
        """Wait until all work given to this device, on any stream, is done, and show what it printed."""
        self.check_open()
        self._drain()
        self.show_printed()

    wait = synchronize

    def stream(self, external: Any = None) -> Stream:
        """A queue of work beside the device's own; see ``Stream``.

        Parameters
        ----------
        external : stream of another library or int, optional
            A CUDA stream to use instead of a new one: anything with ``__cuda_stream__``, a stream of PyTorch or
            CuPy, which is kept, or a ``CUstream`` as a number, which has to outlive the device. What its library does
            on it, and in which order with work of this device, is not known here: order that with events.

        Raises
        ------
        UnsupportedError
            If the device has no streams of other libraries.
        BindError
            If ``external`` is no stream.
        """
        from slangpy_rt.runtime.stream import Stream, stream_handle

        self.check_open()
        if external is None:
            lane = self.order.lane(self.backend.open_queue)
        else:
            handle = stream_handle("Device.stream", external)
            if not isinstance(self.backend, ForeignStreams):
                raise UnsupportedError(f"device {self.name}: it has no streams of other libraries to take over.")
            owner = None if isinstance(external, (int, Stream)) else external
            lane = self.order.adopt(self.backend.open_stream(handle, owner))
        self._begin_order()
        return Stream(self, self.order, lane, external is not None)

    def event(self) -> Event:
        """A new event; ``record`` puts it into the order of a stream or of the device's own queue."""
        from slangpy_rt.runtime.stream import Event

        self.check_open()
        return Event(self)

    def timer(self, stream: Stream | None = None) -> Timer:
        """A context manager that measures, on the device's clock, the work that its block queues.

        Parameters
        ----------
        stream : Stream, optional
            Whose work; the device's own queue otherwise.
        """
        from slangpy_rt.runtime.stream import Timer

        self.lane_of("Device.timer", stream)
        return Timer(self, stream)

    def close(self) -> None:
        """Wait for its work, and for calls of other threads, and release it. Calling again does nothing.

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
                if self.bridge is not None:
                    self.bridge.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Device({self.name!r}: {self.info}{', closed' if self.closed else ''})"

    # What the rest of the package uses.

    def layout(
        self,
        kind: Any,
        element: SlangType,
        shape: Shape,
        strides: Shape | None = None,
        aligned: bool = True,
        grads: Gradients | None = None,
        own: bool = False,
    ) -> Layout:
        """The interned layout of an array; contiguous when ``strides`` is None."""
        if strides is None:
            strides = dense_strides(element, shape)
        # Two modules may each have a struct of one name.
        type_ = element if element.kind in ("struct", "array") else element.name
        key = (kind, type_, shape, strides, aligned, grads, own)
        found = self._layouts.get(key)
        if found is None:
            with self._lock:
                found = self._layouts.setdefault(
                    key, Layout(self, kind, element, shape, strides, aligned, grads, own)
                )
        return found

    def command_list(self) -> CommandList:
        """A new list for ``function.append_to(list, ...)``; as a context manager it is submitted at its end."""
        from slangpy_rt.calls.command_list import CommandList

        self.check_open()
        return CommandList(self)

    @property
    def moves(self) -> Any:
        """The module that copies and clears in command lists."""
        if self._moves is None:
            from slangpy_rt.calls.command_list import MOVES

            self._moves = self.load_module_from_source("slangpy_rt_moves", MOVES)
        return self._moves

    @property
    def folds(self) -> Any:
        """The module that adds exact sums to gradients."""
        if self._folds is None:
            from slangpy_rt.arguments.exact import FOLDS

            self._folds = self.load_module_from_file(FOLDS)
        return self._folds

    def alloc(self, nbytes: int) -> Buffer:
        """Memory for an array; an empty one gets a byte, so that it has an address."""
        if self.closed:
            self.check_open()
        try:
            return self.backend.alloc(nbytes or 1)
        except OutOfMemoryError:
            if not self.ordered:
                raise
        # Streams keep what their work uses.
        self._drain()
        return self.backend.alloc(nbytes or 1)

    def alloc_shared(self, nbytes: int) -> SharedBuffer | None:
        """Memory that host and device both address, for a small array of one call; None where there is none left."""
        if self.closed:
            self.check_open()
        return self._alloc_shared(nbytes)

    def upload(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> None:
        """Copy a contiguous host array to an address inside a buffer."""
        self.check_open()
        if not array.nbytes:
            return
        if not self.ordered:
            self.backend.upload(buffer, address - buffer.address, array.data)
            return
        with self.order.lock:
            self.order.touch(self.order.main, (buffer,), (True,))
            self.backend.upload(buffer, address - buffer.address, array.data)

    def download(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> None:
        """Copy from an address inside a buffer into a contiguous host array."""
        self.check_open()
        if array.nbytes:
            if self.ordered:
                with self.order.lock:
                    self.order.touch(self.order.main, (buffer,), (False,))
            self.backend.download(buffer, address - buffer.address, array.data)
        self.show_printed()

    def download_async(self, buffer: Buffer, address: int, array: npt.NDArray[Any]) -> Coroutine[Any, Any, None]:
        """Copy as ``download`` does, what is there at the time of the call, once what this returns is awaited."""
        self.check_open()
        if not array.nbytes or not self.backend.queue.deferred:
            self.download(buffer, address, array)
            return _nothing()
        if self._transfers is None:
            from slangpy_rt.runtime.downloads import Transfers

            self._transfers = Transfers(self.backend, self.order)
        return self._transfers.fetch(buffer, address - buffer.address, array)

    def clear(self, buffer: Buffer, address: int, nbytes: int) -> None:
        """Set bytes from an address inside a buffer to zero."""
        self.check_open()
        if not nbytes:
            return
        if not self.ordered:
            self.backend.clear(buffer, address - buffer.address, nbytes)
            return
        with self.order.lock:
            self.order.touch(self.order.main, (buffer,), (True,))
            self.backend.clear(buffer, address - buffer.address, nbytes)

    def replay(self, recording: Recording, touches: Callable[[], Touches], stream: Stream | None) -> None:
        """Run a recording; ``touches`` says which buffers it uses, where there are several queues."""
        order, lane = self.lane_of("CommandList.submit", stream)
        replay = lane.queue.replay
        if self._labels is not None:
            replay = partial(self._labels.replay, replay)
        if self.profile is not None:
            replay = partial(self.profile.replay, lane.queue, replay)
        if self.ordered:
            order.replay(lane, replay, recording, touches())
        else:
            replay(recording)

    def lane_of(self, where: str, stream: Stream | None) -> tuple[Order, Lane]:
        """The lane of a stream, or that of the device's own queue.

        Raises
        ------
        BindError
            If it is no stream of this device.
        """
        self.check_open()
        if stream is None:
            return self.order, self.order.main
        if getattr(stream, "device", None) is not self or not hasattr(stream, "launch"):
            raise BindError(f"{where}: {describe(stream)} is no stream of {self!r}; make one with its stream().")
        return self.order, stream._lane

    def open_shared(self, where: str, buffer: Buffer, owner: Device) -> Buffer:
        """Memory of another device as a buffer of this one; work of both on it is ordered.

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
                f"{where}: {self!r} cannot open memory of {owner!r}; that takes Vulkan memory, CUDA, and one GPU."
            )
        for device in (self, owner):
            device._begin_order()
        self.order.share(owner.order, found, buffer)
        return found

    def relink(self) -> None:
        """Let calls take the way that streams and a profile ask for."""
        self.launch = self._main_launch()
        self.guests_of.clear()
        looked_at = self.profile is not None or CONFIG.labels or CONFIG.debug >= 2
        self.plain = not (self.closed or self.ordered or looked_at)

    def guests(self, handle: int) -> Guests:
        """How to launch on the stream that another library works on, by its number."""
        found = self.guests_of.get(handle)
        if found is None:
            from slangpy_rt.runtime.foreign_stream import Guests

            self.check_open()
            if not isinstance(self.backend, ForeignStreams):
                raise UnsupportedError(f"device {self.name}: it has no streams of other libraries to take over.")
            with self._lock:
                found = self.guests_of[handle] = Guests(self, self.backend.guest_queue(handle))
        return found

    def stream_on(self, queue: Queue) -> Stream:
        """A stream on a queue of another library."""
        from slangpy_rt.runtime.stream import Stream

        lane = self.order.adopt(queue, brief=queue is not self.backend.queue)
        self._begin_order()
        return Stream(self, self.order, lane, True)

    def queue_launch(self, queue: Queue) -> Callable[..., None]:
        """What launches on a queue, noticed by who looks on."""
        launch = queue.launch
        if self._labels is not None:
            launch = partial(self._labels.launch, queue, launch)
        if CONFIG.debug >= 2:
            launch = partial(self._launch_logged, queue, launch)
        if self.profile is not None:
            launch = partial(self.profile.launch, queue, launch)
        return launch

    def show_printed(self) -> None:
        """Show what kernels have printed since the last look."""
        if self.diagnostics.pending:
            self.diagnostics.flush()

    def host_array(self, shape: Shape, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """A new NumPy array, uninitialized, for a result that goes back to the host.

        On a device that works in host memory a large one comes from the device's pool and returns to it: fresh
        pages cost more than the work (x + x over 64 MiB: 8.5 ms with them, 3.1 without).
        """
        nbytes = prod(shape) * np.dtype(dtype).itemsize
        if nbytes < _POOLED_BYTES or "zero_copy" not in self.caps.features:
            return np.empty(shape, dtype)
        return host_view(self.alloc(nbytes), shape, np.dtype(dtype))

    def log(self, level: int, text: str) -> None:
        """Write a line to stderr when SLANGPY_RT_DEBUG is at least ``level``."""
        if CONFIG.debug >= level:
            print(f"slangpy_rt: {text}", file=sys.stderr)

    def check_open(self) -> None:
        """Raise DeviceError when closed."""
        if self._forked:
            raise DeviceError(
                f"this {self.name} device was opened before os.fork() and does not exist in the child process; open "
                "one there. Of multiprocessing use the start method 'spawn' or 'forkserver'."
            )
        if self.closed:
            raise DeviceError(f"this {self.name} device was closed; open another with create_device('{self.name}').")

    def forked(self) -> None:
        """Become unusable, and leave the driver alone: this process is a child of the one that opened the device."""
        self.closed = self._forked = True
        self.plain = False
        self._lock = threading.RLock()
        self._forget()
        self.backend.abandon()

    def _begin_order(self) -> None:
        """From here on there are several queues."""
        if not self.ordered:
            self.ordered = True
            self.relink()

    def _drain(self) -> None:
        """Wait for all work, and let go of what it used: by marks that the wait has passed."""
        self.order.settle()
        self.backend.sync_all()
        self.order.settle()

    def _forget(self) -> None:
        """Let every call look at the device's state again."""
        for scope in list(self.scopes):
            scope.forget()
        self.kernels.forget()

    def _main_launch(self) -> Callable[..., None]:
        launch = self.queue_launch(self.backend.queue)
        return partial(self.order.launch, self.order.main, launch) if self.ordered else launch

    def _launch_logged(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        started = time.perf_counter()
        launch(kernel, *rest)
        queue.sync()
        self.log(2, f"{self.name}: {kernel.info.title} over {rest[0]} groups took {_ms(started)}, waiting included")


# Devices that were not closed, for ``fork`` and for a profile of all of them.
LIVE: WeakMembers[Device] = WeakMembers()


def _after_fork() -> None:
    for device in list(LIVE):
        device.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


async def _nothing() -> None:
    """What there is to wait for when everything is done."""


def create_device(
    type: DeviceType | str = DeviceType.automatic,
    include_paths: Sequence[str | Path] = (),
    debug: bool = False,
    index: int = 0,
    hot_reload: bool = True,
    deterministic: bool = False,
) -> Device:
    """Open a device; see Device."""
    return Device(type, include_paths, debug, index, hot_reload, deterministic)


def init_device(include_paths: Sequence[str | Path] = ()) -> Device:
    """Open the best device there is: cuda, then vulkan, then cpu; ``SLANGPY_RT_DEVICE`` wins."""
    return Device(DeviceType.automatic, include_paths)


def _ms(started: float) -> str:
    return f"{(time.perf_counter() - started) * 1e3:.1f} ms"

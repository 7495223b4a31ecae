"""A CUDA stream as a queue. It owns no memory, modules or events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, Mark, Queue, Recording, Shared
from slangpy_rt.backends.cuda.context import keep_current, restoring
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver
from slangpy_rt.backends.cuda.events import CudaMark, Events
from slangpy_rt.backends.cuda.graph import CudaGraph, CudaNode, Graphs
from slangpy_rt.backends.cuda.kernel import CudaKernel
from slangpy_rt.backends.extras import ExportedMark
from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.interrupts import apart

# Launches of a kernel before it gets a graph of its own: making one takes as long as several launches.
_FEW = 3
# The most kernels with a graph in one queue: each graph takes 110 KiB of the device's memory.
_MOST = 1000


class CudaQueue(Queue):
    """A stream of a device's primary context.

    Parameters
    ----------
    handle : int
        The ``CUstream``.
    events : Events
        The events of the context.
    graphs : Graphs
        The graphs of the device.
    own : bool
        Whether the stream is the backend's own: no other library puts work on it or captures it in a graph.
    debug : bool
        Wait after each launch, so that an error names the kernel that caused it.

    Attributes
    ----------
    owner : object
        The object that keeps another library's stream alive.
    """

    deferred = True
    owner: Any = None

    def __init__(
        self,
        backend: Backend,
        context: int,
        handle: int,
        events: Events,
        graphs: Graphs,
        own: bool,
        debug: bool,
    ) -> None:
        super().__init__(backend)
        self.handle: int = handle
        self._cu = driver()
        self._context = context
        self._events = events
        self._graphs = graphs
        # The default stream cannot be captured.
        self._watched = not own and handle != 0
        self._capturing = FFI_CUDA.new("int *")
        self._is_capturing = self._cu.cuStreamIsCapturing
        self._debug = debug
        self._closed = False
        self._lock = threading.Lock()
        self._launch_graph = self._cu.cuGraphLaunch
        self._set_context = self._cu.cuCtxSetCurrent
        self._kernels: list[CudaKernel] = []

    def launch(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes, buffers: Sequence[Buffer]) -> None:
        # Neither ``args`` nor ``buffers`` are kept alive: the driver copies the argument block before it returns, and
        # freed memory is used again by later work on the stream only.
        node = kernel.node  # type: ignore[attr-defined]
        if node is None or node.queue is not self:
            node = self._node(kernel, groups, args)
            if node is None:
                self._launch_once(kernel, groups, args)
                return
        # While the stream is captured, a launch can become a part of the new graph, but another graph cannot.
        if self._watched and self.captured():
            self._launch_once(kernel, groups, args)
            return
        # A graph is for one caller at a time. Without a current context the driver (580) ends the process, and this
        # may be a thread's first launch, or another library may have made its own current.
        with self._lock:
            if self._closed:
                self._require_open()
            status = self._set_context(self._context)
            if not status and (args != node.args or groups != node.groups):
                status = node.change(groups, args)
            if not status:
                status = self._launch_graph(node.executable, self.handle)
        if status or self._debug:
            self._checked(node, status)

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> CudaGraph:
        """Make a graph of launches, as ``Records.record`` describes."""
        return apart(self._record, list(dispatches), waits)

    def _record(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> CudaGraph:
        with self._lock:
            self._require_open()
            self.enter()
            return CudaGraph(self._graphs, dispatches, waits)

    def prepare(self, dispatch: Dispatch) -> Callable[[], None]:
        node = apart(self._prepare, dispatch)
        lock, launch, handle, debug = self._lock, self._launch_graph, self.handle, self._debug
        set_context, context = self._set_context, self._context

        def run() -> None:
            if self._watched and self.captured():
                self._launch_once(*dispatch[:3])
                return
            with lock:
                if self._closed:
                    self._require_open()
                status = set_context(context) or launch(node.executable, handle)
            if status or debug:
                self._checked(node, status)

        return run

    def _prepare(self, dispatch: Dispatch) -> CudaNode:
        with self._lock:
            self._require_open()
            self.enter()
            return CudaNode(self._graphs, dispatch, self)

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, CudaGraph)
        if not recording.dispatches:
            return
        if self._watched and self.captured():
            for dispatch in recording.dispatches:
                self._launch_once(*dispatch[:3])
            return
        with self._lock:
            if self._closed:
                self._require_open()
            status = self._set_context(self._context) or self._launch_graph(recording.executable, self.handle)
        if status or self._debug:
            self._checked(recording, status)

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            status = self._cu.cuMemcpyAsync(dst.address + dst_offset, src.address + src_offset, nbytes, self.handle)
        check(status, f"copying {nbytes:,} bytes")

    def mark(self, timed: bool = False) -> Mark:
        mark = CudaMark(self._events)
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            self._events.take(mark, timed)
            check(self._cu.cuEventRecord(mark.event, self.handle), "recording an event")
        return mark

    def wait(self, mark: Mark) -> None:
        if not isinstance(mark, CudaMark):
            assert isinstance(mark, ExportedMark)
            apart(self._wait_for, *mark.shared())
            return
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            check(self._cu.cuStreamWaitEvent(self.handle, mark.event, 0), "letting a stream wait for an event")

    def _wait_for(self, semaphore: Shared, value: int) -> None:
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            self._events.externals.wait(semaphore, value, self.handle)

    def sync(self) -> None:
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            check(self._cu.cuStreamSynchronize(self.handle), "waiting for queued work")

    def close(self) -> None:
        """Refuse further launches; queued work goes on."""
        with self._lock:
            self._closed = True
            for kernel in self._kernels:
                kernel.node = None
                kernel.nodes.clear()

    def abandon(self) -> None:
        """Refuse further launches without taking a lock, which another thread may have held at the fork."""
        self._closed = True
        self._lock = threading.Lock()

    def keep_current(self) -> None:
        """Make methods restore the thread's current context, as several GPUs require."""
        keep_current(self, self._context, ("launch", "_record", "replay", "copy", "mark", "wait", "sync"))
        prepare = restoring(self.prepare, self._context)
        self.prepare = lambda dispatch: restoring(prepare(dispatch), self._context)  # type: ignore[method-assign]

    def _node(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes) -> CudaNode | None:
        """Return the graph of a kernel on this stream; None until the kernel was launched ``_FEW`` times."""
        assert isinstance(kernel, CudaKernel)
        # The driver makes no graph while another library records one, and ends the recording if it is asked.
        if self._watched and self.captured():
            return None
        node = kernel.nodes.get(self)
        if node is None:
            kernel.launches += 1
            if kernel.launches <= _FEW:
                return None
            node = apart(self._new_node, kernel, groups, args)
        kernel.node = node
        return node

    def _new_node(self, kernel: CudaKernel, groups: tuple[int, int, int], args: bytes) -> CudaNode | None:
        with self._lock:
            if self._closed or len(self._kernels) >= _MOST:
                return None
            node = kernel.nodes.get(self)
            if node is None:
                self.enter()
                node = CudaNode(self._graphs, Dispatch(kernel, groups, args, ()), self)
                kernel.nodes[self] = node
                self._kernels.append(kernel)
            return node

    def captured(self) -> bool:
        """Tell whether the stream is being captured. After an error return True: the launch then raises it."""
        return bool(self._is_capturing(self.handle, self._capturing) or self._capturing[0])

    def _launch_once(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes) -> None:
        block = FFI_CUDA.new("char[]", args or 1)
        pointers = FFI_CUDA.new("void *[]", [block])
        assert isinstance(kernel, CudaKernel)
        what = f"{kernel.info.title} over {groups} groups"
        with self._lock:
            self._require_open()
            self.enter()
            status = self._cu.cuLaunchKernel(
                kernel.function, *groups, *kernel.info.group_size, kernel.shared_bytes, self.handle, pointers,
                FFI_CUDA.NULL,
            )  # fmt: skip
        check(status, f"launching {what}")
        if self._debug:
            self._look(what)

    def _checked(self, graph: CudaGraph, status: int) -> None:
        """Raise the error of a graph's launch; without one wait for the launch, and raise its error."""
        kernels = graph.dispatches
        what = f"{len(kernels)} recorded kernels" if len(kernels) > 1 else kernels[0].kernel.info.title
        if isinstance(graph, CudaNode):
            what += f" over {graph.groups} groups"
        check(status, f"launching {what}")
        self._look(what)

    def _look(self, what: str) -> None:
        """Wait for the stream's work; raise an error with ``what`` in its message if it failed."""
        with self.backend.inside[threading.get_ident()]:
            self._require_open()
            self.enter()
            check(self._cu.cuStreamSynchronize(self.handle), what)

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError("device cuda: this device is closed; open a new one.")

    def enter(self) -> None:
        """Make the context current; other libraries may have changed it since the last call."""
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")

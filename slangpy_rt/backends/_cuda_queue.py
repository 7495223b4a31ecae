"""A CUDA stream as a queue, and events as its marks. Memory and modules are somebody else's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from weakref import WeakSet

from slangpy_rt.backends._cuda_context import keep_current, restoring
from slangpy_rt.backends._cuda_driver import FFI_CUDA, NOT_READY, check, driver, query
from slangpy_rt.backends._cuda_external import Externals
from slangpy_rt.backends._cuda_graph import CudaGraph, CudaNode
from slangpy_rt.backends.base import Backend, Buffer, Dispatch, Kernel, KernelInfo, Mark, Queue, Recording, Shared
from slangpy_rt.errors import DeviceError

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
MAX_ARGUMENTS = 4096  # bytes of kernel parameters that every CUDA device takes

# Launches of a kernel before it gets a graph of its own: making one costs as much as several launches.
_FEW = 3
# Kernels with one, each of which takes 110 KiB of the device's memory.
_MOST = 1000
_TIMED, _UNTIMED = 0, 2  # CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING


class CudaQueue(Queue):
    """A stream of a device's primary context.

    Parameters
    ----------
    handle : int
        The ``CUstream``.
    events : Events
        Those of the context.
    graphs : WeakSet
        Takes all that are made, for the backend to destroy.
    own : bool
        Whether nobody else puts work on the stream, or captures it in a graph.
    debug : bool
        Wait after each launch, so that an error names the kernel that caused it.
    """

    deferred = True

    def __init__(
        self,
        backend: Backend,
        context: int,
        handle: int,
        events: Events,
        graphs: WeakSet[CudaGraph],
        own: bool,
        debug: bool,
    ) -> None:
        super().__init__(backend)
        self.handle: int = handle
        self._cu = driver()
        self._context = context
        self._events = events
        self._graphs = graphs
        # Nobody can capture the default stream.
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
        # The driver copies the block before it returns, and the stream's order keeps the buffers' memory from
        # being reused too early, so that nothing is kept here.
        node = kernel.node  # type: ignore[attr-defined]
        if node is None or node.stream != self.handle:
            node = self._node(kernel, groups, args)
            if node is None:
                self._launch_once(kernel, groups, args)
                return
        # Of a graph in the making, a graph cannot be a part, but a launch can.
        if self._watched and self._captured():
            self._launch_once(kernel, groups, args)
            return
        # A graph is for one caller at a time. Without a current context the driver (580) ends the process, and this
        # may be a thread's first launch, or another library may have made its own current.
        with self._lock:
            status = self._set_context(self._context)
            if not status and (args != node.args or groups != node.groups):
                status = node.change(groups, args)
            if not status:
                status = self._launch_graph(node.executable, self.handle)
        if status or self._debug:
            self._settle(node, status)

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> CudaGraph:
        """As ``Backend.record``."""
        with self._lock:
            self._require_open()
            self.enter()
            graph = CudaGraph(list(dispatches), waits)
            self._graphs.add(graph)
            return graph

    def prepare(self, dispatch: Dispatch) -> Callable[[], None]:
        with self._lock:
            self._require_open()
            self.enter()
            node = CudaNode(dispatch, self.handle)
            self._graphs.add(node)
        lock, launch, handle, debug = self._lock, self._launch_graph, self.handle, self._debug
        set_context, context = self._set_context, self._context

        def run() -> None:
            if not node.executable:
                self._require_open()
            with lock:
                status = set_context(context) or launch(node.executable, handle)
            if status or debug:
                self._settle(node, status)

        return run

    def replay(self, recording: Recording) -> None:
        assert isinstance(recording, CudaGraph)
        if not recording.dispatches:
            return
        if not recording.executable:
            self._require_open()
        with self._lock:
            status = self._set_context(self._context) or self._launch_graph(recording.executable, self.handle)
        if status or self._debug:
            self._settle(recording, status)

    def copy(self, dst: Buffer, dst_offset: int, src: Buffer, src_offset: int, nbytes: int) -> None:
        self.enter()
        status = self._cu.cuMemcpyAsync(dst.address + dst_offset, src.address + src_offset, nbytes, self.handle)
        check(status, f"copying {nbytes:,} bytes")

    def mark(self, timed: bool = False) -> Mark:
        self.enter()
        event = self._events.take(timed)
        check(self._cu.cuEventRecord(event, self.handle), "recording an event")
        return CudaMark(event, timed, self._events)

    def wait(self, mark: Mark) -> None:
        self.enter()
        if not isinstance(mark, CudaMark):
            found = mark.shared()
            assert found is not None
            self._events.externals.wait(*found, self.handle)
            return
        check(self._cu.cuStreamWaitEvent(self.handle, mark.event, 0), "letting a stream wait for an event")

    def sync(self) -> None:
        self.enter()
        check(self._cu.cuStreamSynchronize(self.handle), "waiting for queued work")

    def close(self) -> None:
        """Launch nothing any more; what waits goes on."""
        with self._lock:
            self._closed = True
            for kernel in self._kernels:
                kernel.node = None
                kernel.nodes.clear()

    def keep_current(self) -> None:
        """From now on leave the context current that is so when a method is called, as several GPUs ask for."""
        keep_current(self, self._context, ("launch", "record", "replay", "copy", "mark", "wait", "sync"))
        prepare = restoring(self.prepare, self._context)
        self.prepare = lambda dispatch: restoring(prepare(dispatch), self._context)  # type: ignore[method-assign]

    def _node(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes) -> CudaNode | None:
        """The graph of a kernel that was launched a few times here; None of others."""
        assert isinstance(kernel, CudaKernel)
        node = kernel.nodes.get(self.handle)
        if node is None:
            kernel.launches += 1
            if kernel.launches <= _FEW:
                return None
            self.enter()
            with self._lock:
                if self._closed or len(self._kernels) >= _MOST:
                    return None
                node = kernel.nodes.get(self.handle)
                if node is None:
                    node = CudaNode(Dispatch(kernel, groups, args, ()), self.handle)
                    self._graphs.add(node)
                    kernel.nodes[self.handle] = node
                    self._kernels.append(kernel)
        kernel.node = node
        return node

    def _captured(self) -> bool:
        """Whether the stream's work is being recorded; after an error it is launched plainly, which has the error."""
        return bool(self._is_capturing(self.handle, self._capturing) or self._capturing[0])

    def _launch_once(self, kernel: Kernel, groups: tuple[int, int, int], args: bytes) -> None:
        block = FFI_CUDA.new("char[]", args or 1)
        pointers = FFI_CUDA.new("void *[]", [block])
        function: int = kernel.function  # type: ignore[attr-defined]
        what = f"{kernel.info.title} over {groups} groups"
        with self._lock:
            self._require_open()
            self.enter()
            status = self._cu.cuLaunchKernel(
                function, *groups, *kernel.info.group_size, 0, self.handle, pointers, FFI_CUDA.NULL
            )
        check(status, f"launching {what}")
        if self._debug:
            check(self._cu.cuStreamSynchronize(self.handle), what)

    def _settle(self, graph: CudaGraph, status: int) -> None:
        """After an error, or where every launch is waited for."""
        kernels = graph.dispatches
        what = f"{len(kernels)} recorded kernels" if len(kernels) > 1 else kernels[0].kernel.info.title
        if isinstance(graph, CudaNode):
            what += f" over {graph.groups} groups"
        check(status, f"launching {what}")
        check(self._cu.cuStreamSynchronize(self.handle), what)

    def _require_open(self) -> None:
        if self._closed:
            raise DeviceError("device cuda: this device is closed; open a new one.")

    def enter(self) -> None:
        """Make the context current; other libraries may have changed it since the last call."""
        check(self._cu.cuCtxSetCurrent(self._context), "entering the context")


class CudaMark(Mark):
    """An event; it goes back to where it came from with the mark."""

    __slots__ = ("_events", "_timed", "event")

    def __init__(self, event: int, timed: bool, events: Events) -> None:
        self.event = event
        self._timed = timed
        self._events = events

    @property
    def done(self) -> bool:
        status: int = driver().cuEventQuery(self.event)
        if status not in (0, NOT_READY):
            check(status, "looking at an event")
        return status == 0

    def sync(self) -> None:
        check(driver().cuEventSynchronize(self.event), "waiting for an event")

    def since(self, earlier: Mark) -> float:
        assert isinstance(earlier, CudaMark)
        out = FFI_CUDA.new("float *")
        check(driver().cuEventElapsedTime(out, earlier.event, self.event), "reading the time of an event")
        return float(out[0]) * 1e-3

    def signal(self, semaphore: Shared, value: int) -> bool:
        self._events.signal(self.event, semaphore, value)
        return True

    def __del__(self) -> None:
        self._events.free[self._timed].append(self.event)


class Events:
    """The events of one context; making one takes 1 us, so they are used again.

    Attributes
    ----------
    externals : Externals
        Semaphores of other APIs, and memory.
    """

    def __init__(self, context: int) -> None:
        self.externals = Externals()
        self._context = context
        self._bridge = 0
        self.free: tuple[list[int], list[int]] = ([], [])
        self._all: list[int] = []

    def take(self, timed: bool) -> int:
        """An event that no mark has."""
        try:
            return self.free[timed].pop()
        except IndexError:
            flags = _TIMED if timed else _UNTIMED
            event = query(driver().cuEventCreate, "uintptr_t *", flags, what="creating an event")
            self._all.append(event)
            return event

    def signal(self, event: int, semaphore: Shared, value: int) -> None:
        """Set a semaphore after an event, whatever else the event's stream is given meanwhile."""
        restoring(self._signal, self._context)(event, semaphore, value)

    def _signal(self, event: int, semaphore: Shared, value: int) -> None:
        cu = driver()
        check(cu.cuCtxSetCurrent(self._context), "entering the context")
        if not self._bridge:
            self._bridge = query(cu.cuStreamCreate, "uintptr_t *", NON_BLOCKING, what="creating a stream")
        check(cu.cuStreamWaitEvent(self._bridge, event, 0), "letting a stream wait for an event")
        self.externals.signal(semaphore, value, self._bridge)

    def close(self) -> None:
        """Destroy them; their context is current."""
        if self._bridge:
            driver().cuStreamSynchronize(self._bridge)
            driver().cuStreamDestroy_v2(self._bridge)
        self.externals.close()
        for event in self._all:
            driver().cuEventDestroy_v2(event)
        self._all.clear()


class CudaKernel(Kernel):
    """A function of a loaded module.

    Attributes
    ----------
    node, nodes
        The graph that it was launched by last, and those of all streams.
    launches : int
        How often it was launched before it had one.
    """

    __slots__ = ("function", "launches", "node", "nodes")

    def __init__(self, info: KernelInfo, function: int) -> None:
        super().__init__(info)
        self.function = function
        self.launches = 0
        self.node: CudaNode | None = None
        self.nodes: dict[int, CudaNode] = {}

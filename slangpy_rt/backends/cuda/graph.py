"""Recordings as CUDA graphs: one call of the driver replays a graph, and kernels without a dependency may overlap.

Nodes and their dependencies are added one by one and not captured from a stream, so that nothing has to be launched
to make a graph.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Dispatch, Recording
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver, query
from slangpy_rt.core.interrupts import finalizer


class Graphs:
    """The driver's handles of one device's graphs. No interrupt stops a call.

    Attributes
    ----------
    retired : deque
        Graphs without references, which ``add`` destroys.
    """

    def __init__(self) -> None:
        self.retired: deque[tuple[int, int]] = deque()
        self._all: set[tuple[int, int]] = set()

    def add(self, graph: CudaGraph) -> None:
        """Add a new graph, and destroy the graphs in ``retired``."""
        handles = graph.executable, graph.definition
        self._all.add(handles)
        graph.give = partial(self.retired.append, handles)
        # Until none is left, and not so many times as there are: queues of two threads may add graphs at a time.
        with suppress(IndexError):
            while True:
                gone = self.retired.popleft()
                self._all.discard(gone)
                _destroy(*gone)

    def close(self) -> None:
        """Destroy all graphs; nothing may be launched any more."""
        while self._all:
            _destroy(*self._all.pop())


class CudaGraph(Recording):
    """A recording with the CUDA graph made of it. No interrupt may stop ``__init__``.

    Parameters
    ----------
    graphs : Graphs
        All graphs of the device.
    waits : sequence of tuple of int
        As in ``Records.record``.

    Raises
    ------
    DeviceError
        If the driver refuses the graph.
    """

    __slots__ = ("_nodes", "definition", "executable", "give")

    # Appends the graph's handles to ``Graphs.retired``.
    give: Callable[[], None]
    __del__ = finalizer("give")

    def __init__(self, graphs: Graphs, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> None:
        super().__init__(dispatches)
        cu = driver()
        self.executable = 0
        self.definition = query(cu.cuGraphCreate, "uintptr_t *", 0, what="making a graph")
        self._nodes: list[int] = []
        try:
            for d, before in zip(dispatches, waits, strict=True):
                params, kept = _params(d)
                others = FFI_CUDA.new("uintptr_t[]", [self._nodes[k] for k in before] or 1)
                node = query(
                    cu.cuGraphAddKernelNode_v2, "uintptr_t *", self.definition, others, len(before), params,
                    what=f"recording {d.kernel.info.title}",
                )  # fmt: skip
                self._nodes.append(node)
                del kept
            self.executable = query(
                cu.cuGraphInstantiateWithFlags, "uintptr_t *", self.definition, 0, what="preparing a graph"
            )
        except BaseException:
            cu.cuGraphDestroy(self.definition)
            raise
        graphs.add(self)

    def update(self, place: int, dispatch: Dispatch) -> None:
        """Replace the launch at index ``place`` by another one of the same kernel."""
        params, kept = _params(dispatch)
        status = driver().cuGraphExecKernelNodeSetParams_v2(self.executable, self._nodes[place], params)
        del kept
        check(status, f"changing {dispatch.kernel.info.title} in a graph")
        self.dispatches[place] = dispatch


class CudaNode(CudaGraph):
    """A graph of one kernel, for launches on one stream.

    On an H200 a launch of such a graph takes the host 1.5 us, or 2.0 us if the arguments change; a launch of the
    kernel itself takes 3.5 us.

    Attributes
    ----------
    queue : object
        The queue that launches it. Its lock keeps two threads from changing the graph at a time.
    groups, args
        The thread groups and the argument block of the latest launch; None where they are not known.
    """

    __slots__ = ("_bytes", "_node", "_pointers", "_set", "_told", "args", "groups", "queue")

    def __init__(self, graphs: Graphs, dispatch: Dispatch, queue: object) -> None:
        super().__init__(graphs, [dispatch], [()])
        self.queue = queue
        # Looked up here, because it takes 0.2 us at each launch.
        self._set, self._node = driver().cuGraphExecKernelNodeSetParams_v2, self._nodes[0]
        self.groups: tuple[int, int, int] | None = dispatch.groups
        self.args: bytes | None = dispatch.args
        self._told, (block, self._pointers) = _params(dispatch)
        self._bytes = FFI_CUDA.buffer(block)

    def change(self, groups: tuple[int, int, int], args: bytes) -> int:
        """Set the thread groups and the argument block of later launches; return the driver's status."""
        # Unknown until the driver has the new arguments and they are noted: an interrupt may come between.
        self.args = None
        self._bytes[: len(args)] = args
        told = self._told
        if groups != self.groups:
            self.groups = None
            told.gx, told.gy, told.gz = groups
        status: int = self._set(self.executable, self._node, told)
        # After an error the next launch hands its arguments to the driver again.
        self.groups = groups
        if not status:
            self.args = args
        return status


def _destroy(executable: int, definition: int) -> None:
    """Destroy a graph, which may be running: the driver frees it after that."""
    cu = driver()
    cu.cuGraphExecDestroy(executable)
    cu.cuGraphDestroy(definition)


def _params(d: Dispatch) -> tuple[Any, Any]:
    """Return a node's parameters, and the objects to be kept alive until the driver has read them."""
    block = FFI_CUDA.new("char[]", d.args)
    pointers = FFI_CUDA.new("void *[]", [block])
    function: int = d.kernel.function  # type: ignore[attr-defined]
    shared_bytes: int = d.kernel.shared_bytes  # type: ignore[attr-defined]
    params = FFI_CUDA.new(
        "CUDA_KERNEL_NODE_PARAMS *",
        (function, *d.groups, *d.kernel.info.group_size, shared_bytes, pointers, FFI_CUDA.NULL, 0, 0),
    )
    return params, (block, pointers)

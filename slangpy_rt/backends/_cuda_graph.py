"""A recording as a CUDA graph: one call of the driver replays it, and what does not wait for each other may overlap.

Nodes and their dependencies are made one by one, not captured from a stream: nothing has to run for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends._cuda_driver import FFI_CUDA, check, driver, query
from slangpy_rt.backends.base import Dispatch, Recording


class CudaGraph(Recording):
    """Launches and the graph made of them.

    Parameters
    ----------
    waits : sequence of tuple of int
        As of ``Backend.record``.

    Raises
    ------
    DeviceError
        If the driver refuses it.
    """

    __slots__ = ("__weakref__", "_graph", "_nodes", "executable")

    def __init__(self, dispatches: list[Dispatch], waits: Sequence[tuple[int, ...]]) -> None:
        super().__init__(dispatches)
        cu = driver()
        self.executable = self._graph = 0
        self._graph = query(cu.cuGraphCreate, "uintptr_t *", 0, what="making a graph")
        self._nodes: list[int] = []
        for d, before in zip(dispatches, waits, strict=True):
            params, kept = _params(d)
            others = FFI_CUDA.new("uintptr_t[]", [self._nodes[k] for k in before] or 1)
            node = query(
                cu.cuGraphAddKernelNode_v2, "uintptr_t *", self._graph, others, len(before), params,
                what=f"recording {d.kernel.info.title}",
            )  # fmt: skip
            self._nodes.append(node)
            del kept
        self.executable = query(
            cu.cuGraphInstantiateWithFlags, "uintptr_t *", self._graph, 0, what="preparing a graph"
        )

    def update(self, place: int, dispatch: Dispatch) -> None:
        """Put another launch of the same kernel in a node's place."""
        params, kept = _params(dispatch)
        status = driver().cuGraphExecKernelNodeSetParams_v2(self.executable, self._nodes[place], params)
        del kept
        check(status, f"changing {dispatch.kernel.info.title} in a graph")
        self.dispatches[place] = dispatch

    def abandon(self) -> None:
        """Forget what the driver has: in a forked child it must not be asked."""
        self.executable = self._graph = 0

    def destroy(self) -> None:
        """Give it back; the driver waits with that until it is not running."""
        cu = driver()
        executable, graph, self.executable, self._graph = self.executable, self._graph, 0, 0
        if executable:
            cu.cuGraphExecDestroy(executable)
        if graph:
            cu.cuGraphDestroy(graph)

    def __del__(self, _exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _exiting():
            self.destroy()


class CudaNode(CudaGraph):
    """One kernel as a graph of its own on one stream.

    On an H200 the host launches that in 1.5 us, with other arguments in 2.0, and a kernel by itself in 3.5.

    Attributes
    ----------
    stream : int
        The ``CUstream``.
    groups, args
        Of the latest launch.
    """

    __slots__ = ("_bytes", "_pointers", "_told", "args", "groups", "stream")

    def __init__(self, dispatch: Dispatch, stream: int) -> None:
        super().__init__([dispatch], [()])
        self.stream = stream
        self.groups = dispatch.groups
        self.args = dispatch.args
        self._told, (block, self._pointers) = _params(dispatch)
        self._bytes = FFI_CUDA.buffer(block)

    def change(self, groups: tuple[int, int, int], args: bytes) -> int:
        """Take other arguments; the driver's status."""
        self._bytes[: len(args)] = args
        told = self._told
        told.gx, told.gy, told.gz = groups
        status: int = driver().cuGraphExecKernelNodeSetParams_v2(self.executable, self._nodes[0], told)
        # Errors name what was asked for; other arguments are told anew.
        self.groups = groups
        self.args = args if not status else b""
        return status


def _params(d: Dispatch) -> tuple[Any, Any]:
    """What a node is told, and what has to live until the driver has read it."""
    block = FFI_CUDA.new("char[]", d.args)
    pointers = FFI_CUDA.new("void *[]", [block])
    function: int = d.kernel.function  # type: ignore[attr-defined]
    params = FFI_CUDA.new(
        "CUDA_KERNEL_NODE_PARAMS *",
        (function, *d.groups, *d.kernel.info.group_size, 0, pointers, FFI_CUDA.NULL, 0, 0),
    )
    return params, (block, pointers)

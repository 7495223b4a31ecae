"""Loads kernels as compute pipelines, and gives these back once the device is done with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.d3d12.com import FFI, iid, release
from slangpy_rt.backends.d3d12.device import D3D12Device
from slangpy_rt.backends.d3d12.submission import FRAME_BYTES, Submissions
from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo

# E_INVALIDARG and E_FAIL: the driver cannot make a pipeline of the DXIL.
_REFUSED = (0x80070057 - 2**32, 0x80004005 - 2**32)


class D3D12Kernel(Kernel):
    """A compute pipeline; ``give`` adds it to those to be given back when the last reference to it is dropped."""

    __slots__ = ("give", "pipeline")

    __del__ = finalizer("give")

    def __init__(self, info: KernelInfo, pipeline: Any, give: Callable[[], None]) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.give = give


class Pipelines:
    """The pipelines of one device. Methods are called with the backend's lock, and no interrupt may stop them."""

    def __init__(self, device: D3D12Device) -> None:
        self._device = device
        # All pipelines; those of freed kernels; and groups of these that ``sweep`` found, with the value of each
        # queue after which the device no longer uses the group.
        self._all: set[Any] = set()
        self._retired: deque[Any] = deque()
        self._dying: deque[tuple[list[Any], list[tuple[Submissions, int]]]] = deque()
        device.on_close(_release_all, self._all)

    def load(self, binary: bytes, info: KernelInfo) -> D3D12Kernel:
        """Create a pipeline, which is given back with the kernel.

        Raises
        ------
        CompileError
            If the driver refuses the DXIL.
        """
        device = self._device
        told = FFI.new("D3D12_COMPUTE_PIPELINE_STATE_DESC *")
        code = FFI.from_buffer(binary)
        told.root, told.code.data, told.code.size = device.root, code, len(binary)
        out = FFI.new("void **")
        create = device.handle.table.CreateComputePipelineState
        status = create(device.handle, told, iid("ID3D12PipelineState"), out)
        if status in _REFUSED:
            raise CompileError(
                f"d3d12: the driver of {device.description} refused the DXIL of {info.title}. It may use what the "
                "driver lacks: take parts of the function away to find it, or use a device of another type."
            )
        device.check(status, f"creating a pipeline for kernel {info.entry}")
        pipeline = out[0]
        self._all.add(pipeline)
        return D3D12Kernel(info, pipeline, partial(self._retired.append, pipeline))

    def sweep(self, queues: Sequence[Submissions]) -> None:
        """Give the pipelines of freed kernels back that the device is done with; it does not wait for others."""
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if retired:
            self._dying.append((retired, [(queue, queue.locked_submit()) for queue in queues]))
        while self._dying and all(queue.fence.passed(value) for queue, value in self._dying[0][1]):
            gone, _ = self._dying.popleft()
            self._all.difference_update(gone)
            _release_all(gone)


def require_fit(info: KernelInfo) -> None:
    """Raise UnsupportedError if a kernel's arguments have more than ``FRAME_BYTES`` bytes."""
    if info.args_size > FRAME_BYTES:
        raise UnsupportedError(
            f"d3d12: kernel {info.entry} has {info.args_size} bytes of arguments, at most "
            f"{FRAME_BYTES} fit; pass large arrays as buffers"
        )


def _release_all(pipelines: Iterable[Any]) -> None:
    for pipeline in pipelines:
        release(pipeline)

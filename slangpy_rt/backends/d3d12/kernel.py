"""Loads kernels as compute pipelines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from slangpy_rt.backends import pipelines
from slangpy_rt.backends.d3d12.com import FFI, iid, release_all
from slangpy_rt.backends.d3d12.device import D3D12Device
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.target import KernelInfo

# E_INVALIDARG and E_FAIL: the driver cannot make a pipeline of the DXIL.
_REFUSED = (0x80070057 - 2**32, 0x80004005 - 2**32)


class Pipelines(pipelines.Pipelines):
    """The pipelines of one device."""

    def __init__(self, device: D3D12Device) -> None:
        super().__init__(release_all)
        self._device = device
        device.on_close(release_all, self.all)

    def maker(self, binary: bytes, info: KernelInfo) -> Callable[[], Any]:
        return partial(self._make, binary, info)

    def _make(self, binary: bytes, info: KernelInfo) -> Any:
        device = self._device
        code = FFI.from_buffer(binary)
        told = FFI.new("D3D12_COMPUTE_PIPELINE_STATE_DESC *", (device.root, (code, len(binary))))
        out = FFI.new("void **")
        create = device.handle.table.CreateComputePipelineState
        status = create(device.handle, told, iid("ID3D12PipelineState"), out)
        if status in _REFUSED:
            lacks = "" if "atomic_int64" in device.caps.features else ", such as 64-bit atomics"
            raise CompileError(
                f"d3d12: the driver of {device.description} refused the DXIL of {info.title}. It may use what the "
                f"driver lacks{lacks}: take parts of the function away to find it, or use a device of another type."
            )
        device.check(status, f"creating a pipeline for kernel {info.entry}")
        self.all.add(out[0])
        return out[0]

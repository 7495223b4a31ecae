"""The D3D12 backend: DXIL kernels that get the place of their argument block as root constants.

This file implements the contract with the parts in the other files. D3D12 has no pointers: an address is the number
of a descriptor, shifted left by 40 bits, plus an offset in bytes (``shaders/_spy_handles.slang``).
"""

from __future__ import annotations

from collections.abc import Sequence

from slangpy_rt.backends.base import Dispatch, Recording
from slangpy_rt.backends.d3d12.adapters import why_unavailable
from slangpy_rt.backends.d3d12.device import DEVICE, READBACK, SHARED, D3D12Device
from slangpy_rt.backends.d3d12.dxc import toolchain
from slangpy_rt.backends.d3d12.dxc_process import begin_dxc, compile_apart
from slangpy_rt.backends.d3d12.kernel import Pipelines
from slangpy_rt.backends.d3d12.queue import D3D12Queue
from slangpy_rt.backends.d3d12.recording import D3D12Recording, Recorder
from slangpy_rt.backends.staged_copies import Copies
from slangpy_rt.backends.submitting import SubmittingBackend
from slangpy_rt.core.interrupts import apart


class D3D12Backend(SubmittingBackend):
    """One D3D12 device.

    Parameters
    ----------
    index : int
        The number of the adapter, in DXGI's order; outside of Windows there is only 0.
    debug : bool
        Whether to run with the debug layer; its messages are appended to ``messages``.
    deterministic : bool
        Without effect: a launch always divides its work in the same way.

    Raises
    ------
    UnsupportedError
        If the machine has no library of D3D12, no DXC or no such adapter, or the adapter lacks what kernels need.
    DeviceError
        If the device does not open.
    """

    name = "d3d12"
    compilers = ("DXC", "the driver")

    begin_compiler = staticmethod(begin_dxc)

    queue: D3D12Queue

    def __init__(self, index: int = 0, *, debug: bool = False, deterministic: bool = False) -> None:
        device = apart(D3D12Device, index, debug)
        super().__init__(device, device.close, ("hlsl", "sm_6_6", "handle"), (DEVICE, SHARED))
        self._pipelines = Pipelines(device)
        self._recorder = Recorder(device)
        self.queue = self.open_queue()
        # Not UPLOAD, which may be the device's memory behind PCIe: the CPU writes what it caches faster.
        self._copies = Copies(device, self.queue, READBACK)

    @classmethod
    def why_unavailable(cls) -> str | None:
        return why_unavailable()

    def toolchain(self) -> str:
        return toolchain()

    def compile(self, code: bytes, entry: str) -> bytes:
        return compile_apart(code, entry)

    def _make_queue(self, number: int) -> D3D12Queue:
        return D3D12Queue(self, self._device, self._lock, self._recorder)

    def record(self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]]) -> Recording:
        self.require_open()
        return D3D12Recording(list(dispatches), waits, self._recorder.retired)

    def update(self, recording: Recording, place: int, dispatch: Dispatch) -> None:
        assert isinstance(recording, D3D12Recording)
        at = recording.offsets[place]
        with self._lock:
            self.require_open()
            recording.dispatches[place] = dispatch
            recording.packed[at : at + len(dispatch.args)] = dispatch.args
            # Command lists take the arguments over before they are submitted again.
            recording.version += 1

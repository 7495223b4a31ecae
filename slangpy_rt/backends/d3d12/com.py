"""Opens the libraries of D3D12 and calls their objects; raises their error codes as exceptions.

An object of COM is a pointer to a table of functions (``ffi.py``, which codegen/tools/gen_d3d12_ffi.py writes). On
Windows the libraries are parts of the system. Elsewhere SLANGPY_RT_D3D12_LIB names one with the same functions, such
as vkd3d-proton's, which implements D3D12 on Vulkan.
"""

from __future__ import annotations

import functools
import sys
import uuid
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.d3d12.ffi import ffi
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError

FFI: Any = ffi
IIDS = {
    "ID3D12Device": "189819f1-1db6-4b57-be54-1821339b85f7",
    "ID3D12CommandQueue": "0ec870a6-5d7e-4c22-8cfc-5baae07616ed",
    "ID3D12CommandAllocator": "6102dee4-af59-4b09-b999-b44d73f09b24",
    "ID3D12GraphicsCommandList": "5b160d0f-ac1b-4185-8ba8-b3ae42a5a455",
    "ID3D12RootSignature": "c54a6b66-72df-4ee8-8be5-a946a1429214",
    "ID3D12PipelineState": "765a30f3-f624-4c6f-a828-ace948622445",
    "ID3D12Resource": "696442be-a72e-4059-bc79-5b5c98040fad",
    "ID3D12DescriptorHeap": "8efb471d-616c-4f49-90f7-127bb763fa51",
    "ID3D12QueryHeap": "0d9658ae-ed45-469e-a61d-970ec583cab4",
    "ID3D12Fence": "0a753dcf-c4d8-4b91-adf6-be5a60d95a76",
    "ID3D12Debug": "344488b7-6846-474b-b989-f027448245e0",
    "ID3D12InfoQueue": "0742a90b-c387-483f-b946-30a7e4e61458",
    "IDXGIFactory1": "770aae78-f26f-4dba-a829-253c83d1b387",
    "IDxcCompiler3": "228b4687-5a6a-4730-900c-9702b2203f54",
    "IDxcResult": "58346cda-dde7-4497-9461-6f87af5e0659",
}
# HRESULT values: E_OUTOFMEMORY, and DXGI_ERROR_DEVICE_REMOVED, _HUNG, _RESET and _DRIVER_INTERNAL_ERROR.
_OUT_OF_MEMORY = 0x8007000E
_LOST = {
    0x887A0005: "DXGI_ERROR_DEVICE_REMOVED",
    0x887A0006: "DXGI_ERROR_DEVICE_HUNG",
    0x887A0007: "DXGI_ERROR_DEVICE_RESET",
    0x887A0020: "DXGI_ERROR_DRIVER_INTERNAL_ERROR",
}


@functools.cache
def iid(name: str) -> bytes:
    """Return the number of an interface, as functions take it."""
    return uuid.UUID(IIDS[name]).bytes_le


@functools.cache
def library() -> Any:
    """Open the library of D3D12 once, and return it.

    Raises
    ------
    OSError
        If there is none.
    """
    path = CONFIG.d3d12_lib or ("d3d12.dll" if sys.platform == "win32" else "")
    if not path:
        raise OSError("SLANGPY_RT_D3D12_LIB names no library")
    return FFI.dlopen(path)


@functools.cache
def dxgi() -> Any:
    """Open the library of DXGI, which lists adapters, once, and return it."""
    return FFI.dlopen("dxgi.dll")


def made(interface: str, function: Callable[..., int], *args: Any, what: str) -> Any:
    """Call a function that makes an object, and return the object.

    The last parameters of the function are the number of the interface and the place for the object.
    """
    out = FFI.new("void **")
    check(function(*args, iid(interface), out), what)
    return cast(interface, out[0])


def cast(interface: str, pointer: Any) -> Any:
    """Return a pointer as an object of an interface, or as IUnknown's if nothing of the interface is called."""
    known = interface not in ("ID3D12RootSignature", "ID3D12PipelineState", "ID3D12QueryHeap")
    return FFI.cast(f"{interface if known else 'IUnknown'} *", pointer)


def release(found: Any) -> None:
    """Give an object back."""
    FFI.cast("IUnknown *", found).table.Release(found)


def blob_bytes(blob: Any) -> bytes:
    """Return what an ID3DBlob holds, and give it back; empty for none."""
    if not blob:
        return b""
    blob = FFI.cast("ID3DBlob *", blob)
    size = blob.table.GetBufferSize(blob)
    data = bytes(FFI.buffer(blob.table.GetBufferPointer(blob), size)) if size else b""
    release(blob)
    return data


def check(status: int, what: str, reason: Callable[[], int] | None = None) -> None:
    """Raise an exception if a status is an error; ``what`` names the action for the message.

    Parameters
    ----------
    reason : callable, optional
        Returns the status for which the device was removed.

    Raises
    ------
    OutOfMemoryError, DeviceLostError, DeviceError
        By the status.
    """
    if status >= 0:
        return
    code = status & 0xFFFFFFFF
    message = f"d3d12: {what} failed: {_LOST.get(code, f'HRESULT {code:#010x}')}"
    if code in _LOST:
        why = (reason() if reason else 0) & 0xFFFFFFFF
        raise DeviceLostError(
            f"{message}{f', because of {_LOST.get(why, hex(why))}' if why else ''}; a kernel ran too long or out of "
            "bounds: open a new device"
        )
    if code == _OUT_OF_MEMORY:
        raise OutOfMemoryError(f"{message} (out of memory); free arrays or use smaller ones")
    raise DeviceError(message)

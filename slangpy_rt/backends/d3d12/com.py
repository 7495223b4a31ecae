"""Opens the libraries of D3D12 and calls their objects; raises their error codes as exceptions.

An object of COM is a pointer to a table of functions (``ffi.py``, which codegen/tools/gen_d3d12_ffi.py writes). On
Windows the libraries are parts of the system. Elsewhere SLANGPY_RT_D3D12_LIB names one with the same functions, such
as vkd3d-proton's, which implements D3D12 on Vulkan.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from slangpy_rt.backends.d3d12.ffi import IIDS, ffi
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError

FFI: Any = ffi
COMPUTE = 2  # D3D12_COMMAND_LIST_TYPE_COMPUTE
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
    """Return a pointer as an object of an interface."""
    return FFI.cast(f"{interface} *", pointer)


def release(found: Any) -> None:
    """Give an object back."""
    FFI.cast("IUnknown *", found).table.Release(found)


def release_all(found: Iterable[Any]) -> None:
    """Give objects back."""
    for one in found:
        release(one)


def begin_event(command: Any, title: str) -> None:
    """Begin a part of a command list that PIX shows under a title."""
    text = title.encode() + b"\0"
    # 1: the text is ANSI.
    command.table.BeginEvent(command, 1, text, len(text))


def close_handle(handle: int) -> None:
    """Close a handle of Windows."""
    ctypes.CDLL("kernel32.dll").CloseHandle(ctypes.c_void_p(handle))


def blob_bytes(blob: Any) -> bytes:
    """Return what an ID3DBlob (ID3D10Blob in its header) holds, and give it back; empty for none."""
    if not blob:
        return b""
    blob = cast("ID3D10Blob", blob)
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

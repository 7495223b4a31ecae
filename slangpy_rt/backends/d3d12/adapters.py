"""Finds the adapter with a number: by DXGI on Windows; elsewhere the library of D3D12 has one."""

from __future__ import annotations

import sys
from typing import Any

from slangpy_rt.backends.d3d12.com import FFI, cast, check, dxgi, iid, library, made, release
from slangpy_rt.backends.d3d12.dxc import find_dxc
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import UnsupportedError

LEVEL = 0xB100  # D3D_FEATURE_LEVEL_11_1
_NOT_FOUND = 0x887A0002  # DXGI_ERROR_NOT_FOUND
_SOFTWARE = 2  # DXGI_ADAPTER_FLAG_SOFTWARE


def why_missing() -> str | None:
    """Return what this machine lacks of the libraries, or None."""
    if sys.platform != "win32" and not CONFIG.d3d12_lib:
        return "d3d12 is there on Windows; elsewhere SLANGPY_RT_D3D12_LIB names a library with its functions"
    try:
        library()
    except OSError as error:
        return f"the library of D3D12 cannot be loaded ({error})"
    if find_dxc() is None:
        return "there is no DXC, which compiles kernels; SLANGPY_RT_DXC names its library"
    return None


def why_unavailable() -> str | None:
    """Return the reason why this machine has no such device, or None if it has one."""
    if reason := why_missing():
        return reason
    # Without a place for the device nothing is made: the status says whether it could be.
    status = library().D3D12CreateDevice(FFI.NULL, LEVEL, iid("ID3D12Device"), FFI.NULL)
    return (
        None if status >= 0 else f"D3D12 has no adapter of feature level 11_1 (HRESULT {status & 0xFFFFFFFF:#010x})"
    )


def find_adapter(index: int) -> tuple[Any, str, int]:
    """Return the adapter with a number, which the caller releases, its name and the bytes of its memory.

    Where there is no choice the adapter is NULL, and the number of bytes more than any has.

    Raises
    ------
    UnsupportedError
        If there are not so many.
    """
    if sys.platform != "win32":
        if index:
            raise UnsupportedError(f"d3d12: no device with index {index}; SLANGPY_RT_D3D12_LIB opens one, number 0")
        return FFI.NULL, f"D3D12 by {CONFIG.d3d12_lib}", 1 << 62
    factory = made("IDXGIFactory1", dxgi().CreateDXGIFactory1, what="opening DXGI")
    out = FFI.new("void **")
    status = factory.table.EnumAdapters1(factory, index, out)
    release(factory)
    if status & 0xFFFFFFFF == _NOT_FOUND:
        raise UnsupportedError(f"d3d12: no device with index {index}; pick a lower index")
    check(status, "finding an adapter")
    adapter = cast("IDXGIAdapter1", out[0])
    told = FFI.new("DXGI_ADAPTER_DESC1 *")
    check(adapter.table.GetDesc1(adapter, told), "describing an adapter")
    name = bytes(FFI.buffer(told.Description)).decode("utf-16-le").split("\0")[0]
    name += " (WARP, software)" if told.Flags & _SOFTWARE else ""
    return adapter, f"{name}, D3D12", max(int(told.DedicatedVideoMemory), int(told.SharedSystemMemory))

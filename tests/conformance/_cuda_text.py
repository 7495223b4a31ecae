"""Calls whose kernels NVRTC compiles: on a device that runs nothing. Nothing here is a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.core.errors import UnsupportedError


def compiled_for_cuda(text: str, calls: Callable[[spy.Device, Any], None], monkeypatch: pytest.MonkeyPatch) -> int:
    """Make calls of a module's functions for CUDA, and return how many kernels NVRTC compiled of them."""
    try:
        nvrtc_version()
    except UnsupportedError as error:
        pytest.skip(str(error))
    compiled: list[bytes] = []

    def compile_text(self: NullBackend, code: bytes, entry: str) -> bytes:
        compiled.append(nvrtc_compile(code, "sm_80"))
        return code

    monkeypatch.setattr(NullBackend, "compile", compile_text)
    monkeypatch.setattr(NullBackend, "toolchain", lambda self: f"null with NVRTC for {text}")
    with spy.Device("null") as device:
        calls(device, spy.Module.load_from_source(device, "compiled_for_cuda", text))
    assert all(binary.startswith(b"\x7fELF") for binary in compiled)
    return len(compiled)

"""Compiles HLSL to DXIL by DXC, Microsoft's compiler: on Windows slangpy's, elsewhere the one of SLANGPY_RT_DXC."""

from __future__ import annotations

import functools
import sys
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from slangpy_rt.backends.d3d12.com import FFI, blob_bytes, check, made, release
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import CompileError, UnsupportedError

# What Slang 2026.12 passes to DXC 1.8.
OPTIONS = (
    "-T", "cs_6_6", "-HV", "2021", "-enable-16bit-types", "-Zpr", "-O1", "-no-warnings",
    "-disable-payload-qualifiers",
)  # fmt: skip
_CLASS = uuid.UUID("73e22d93-e6ce-47f3-b5bf-f0664f39c1b0").bytes_le  # CLSID_DxcCompiler
_UTF8 = 65001


def find_dxc() -> str | None:
    """Return the path of DXC's library; None if there is none."""
    if CONFIG.dxc:
        return CONFIG.dxc
    found = find_spec("slangpy") if sys.platform == "win32" else None
    folder = Path(found.origin).parent if found is not None and found.origin else None
    path = folder / "dxcompiler.dll" if folder else None
    return str(path) if path is not None and path.is_file() else None


def toolchain() -> str:
    """Return what decides about a binary besides the text: the library, and the options."""
    path = Path(find_dxc() or "none")
    stamp = path.stat() if path.is_file() else None
    return f"dxc {path} {stamp.st_size if stamp else 0} {stamp.st_mtime_ns if stamp else 0} {' '.join(OPTIONS)}"


def compile_hlsl(text: bytes, entry: str) -> bytes:
    """Compile HLSL text; return the DXIL container, validated and signed by DXC where it can.

    Raises
    ------
    CompileError
        If DXC refuses the text.
    UnsupportedError
        If there is no DXC.
    """
    options = [FFI.new("wchar_t[]", word) for word in (*OPTIONS, "-E", entry)]
    words = FFI.new("wchar_t *[]", options)
    code = FFI.from_buffer(text)
    source = FFI.new("DxcBuffer *", (code, len(text), _UTF8))
    compiler = made("IDxcCompiler3", load_dxc().DxcCreateInstance, _CLASS, what="making a compiler of DXC")
    try:
        compile_ = compiler.table.Compile
        arguments = (compiler, source, words, len(options), FFI.NULL)
        result = made("IDxcResult", compile_, *arguments, what="compiling HLSL by DXC")
    finally:
        release(compiler)
    try:
        return _outcome(result)
    finally:
        release(result)


def _outcome(result: Any) -> bytes:
    status, out = FFI.new("int32_t *"), FFI.new("void **")
    check(result.table.GetStatus(result, status), "reading DXC's status")
    if status[0] < 0:
        check(result.table.GetErrorBuffer(result, out), "reading DXC's messages")
        said = blob_bytes(out[0]).rstrip(b"\0").decode(errors="replace").strip()
        raise CompileError(f"DXC refused the HLSL that Slang emitted:\n{said}")
    check(result.table.GetResult(result, out), "reading DXC's result")
    return blob_bytes(out[0])


@functools.cache
def load_dxc() -> Any:
    """Return DXC's library; raise UnsupportedError if there is none, or it does not load."""
    path = find_dxc()
    if path is None:
        raise UnsupportedError("d3d12: there is no DXC, which compiles kernels; SLANGPY_RT_DXC names its library")
    try:
        return FFI.dlopen(path)
    except OSError as error:
        raise UnsupportedError(f"d3d12: DXC cannot be loaded ({error}); SLANGPY_RT_DXC names its library") from None

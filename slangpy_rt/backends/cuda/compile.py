"""Compiles CUDA text to a CUBIN with NVRTC.

A process that finds its kernels in the cache does not load NVRTC, if that was installed as a wheel. The text may
contain lines for this file:

- ``#pragma slangpy_rt_nvrtc --use_fast_math``: an option of NVRTC; an architecture takes the place of the device's.
- ``#pragma slangpy_rt_kernel __launch_bounds__(384, 1)``: attributes of the kernel.
- ``#pragma slangpy_rt_shared_bytes 196608``: group memory of a launch, beside what the kernel declares; of several
  lines, the largest.
- ``#pragma slangpy_rt_registers 128``: the most registers that a thread may have; of several lines, the largest.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from slangpy_rt.core.errors import CompileError, DeviceError, UnsupportedError

# -w: Slang's prelude alone causes hundreds of warnings about vector types that CUDA 13 deprecates.
# 940: a function that ends without a return statement would return what happens to lie in a register.
_FLAGS = ("--std=c++17", "-w", "--diag-error=940")
_NO_RETURN = re.compile(r'missing return statement at end of non-void function "(\w+?)(?:_\d+)?"')
# Slang's prelude declares these types only if a macro is defined, which the CUDA text that Slang emits does not do.
_HEADER_TYPES = {
    b"__half": "-DSLANG_CUDA_ENABLE_HALF=1",
    b"__nv_bfloat16": "-DSLANG_CUDA_ENABLE_BF16=1",
    b"__nv_fp8": "-DSLANG_CUDA_ENABLE_FP8=1",
}
_OPTION = re.compile(rb"^#pragma slangpy_rt_nvrtc (\S.*?)\s*$", re.MULTILINE)
_ATTRIBUTES = re.compile(rb"^#pragma slangpy_rt_kernel (\S.*?)\s*$", re.MULTILINE)
_SHARED_BYTES = re.compile(rb"^#pragma slangpy_rt_shared_bytes (\d+)\s*$", re.MULTILINE)
_REGISTERS = re.compile(rb"^#pragma slangpy_rt_registers (\d+)\s*$", re.MULTILINE)
_HEAD = b'extern "C" __global__ void '
_ARCH = "--gpu-architecture="


def nvrtc_compile(code: bytes, arch: str) -> bytes:
    """Compile CUDA text to a binary for ``arch``, such as ``"sm_90"``. Needs no device.

    The binary is a CUBIN; behind a line with their number, if a launch has bytes of group memory: see ``parts``.

    Raises
    ------
    CompileError
        If a function has a path without a return statement, or NVRTC refuses the text or the architecture otherwise;
        then the message ends with its log.
    UnsupportedError
        If NVRTC, or a header the text needs, is not installed.
    DeviceError
        If NVRTC does not start.
    """
    nvrtc = _nvrtc()
    given = list(dict.fromkeys(line.decode() for line in _OPTION.findall(code)))
    arch = next((option.removeprefix(_ARCH) for option in given if option.startswith(_ARCH)), arch)
    options = [f"{_ARCH}{arch}", *_FLAGS, *(option for option in given if not option.startswith(_ARCH))]
    attributes = b"".join(found + b" " for found in _ATTRIBUTES.findall(code))
    code = code.replace(_HEAD, _HEAD + attributes)
    registers = max(map(int, _REGISTERS.findall(code)), default=0)
    if registers:
        options.append(f"--maxrregcount={registers}")
    shared = max(map(int, _SHARED_BYTES.findall(code)), default=0)
    # Only the kernel's own text counts, which follows the last #endif: the prelude always contains these names.
    body = code.rpartition(b"#endif")[2]
    defines = [flag for name, flag in _HEADER_TYPES.items() if name in body]
    if defines:
        options += [*defines, f"--include-path={_header_directory()}"]
    status, program = nvrtc.nvrtcCreateProgram(code, b"kernel.cu", 0, [], [])
    if status:
        raise DeviceError(f"device cuda: NVRTC could not start: {status.name} ({int(status)})")
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [text.encode() for text in options])
        if status:
            log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
            nvrtc.nvrtcGetProgramLog(program, log)
            text = log.rstrip(bytes(1)).decode(errors="replace")
            if missing := _NO_RETURN.search(text):
                raise CompileError(
                    f"the function {missing[1]} ends without a return statement on some path, or uses something for "
                    "which Slang writes nothing in CUDA; its result would be what happens to lie in a register."
                )
            raise CompileError(
                f"NVRTC {nvrtc_version()} refused the CUDA text that Slang emitted for {arch} "
                f"({status.name}):\n{text}"
            )
        cubin = bytearray(nvrtc.nvrtcGetCUBINSize(program)[1])
        nvrtc.nvrtcGetCUBIN(program, cubin)
        return (b"%d\n" % shared if shared else b"") + bytes(cubin)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def parts(binary: bytes) -> tuple[int, bytes]:
    """Return the bytes of group memory that launches of a binary have beside what it declares, and its CUBIN."""
    shared, _, cubin = binary.partition(b"\n")
    return (int(shared), cubin) if shared.isdigit() else (0, binary)


def nvrtc_version() -> str:
    """Return the version of the NVRTC that ``nvrtc_compile`` uses, such as ``"13.0"``.

    Raises
    ------
    UnsupportedError
        If NVRTC is not installed.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def _nvrtc() -> Any:
    """Return the Python bindings of NVRTC; raise UnsupportedError if they or its library are missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(
            "device cuda: NVRTC, which compiles kernels, was not found. "
            f"`pip install cuda-python nvidia-cuda-nvrtc`.\n{error}"
        ) from error
    return nvrtc


def _header_directory() -> str:
    """Return the folder of CUDA's headers, such as cuda_fp16.h; raise UnsupportedError if there is none."""
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory("cudart")
    if not found:
        raise UnsupportedError(
            "device cuda: half needs the header cuda_fp16.h, which was not found. "
            "`pip install nvidia-cuda-runtime`, or install the CUDA toolkit and set CUDA_HOME."
        )
    return str(found)


def nvrtc_toolchain(arch: str) -> str:
    """Return the version of NVRTC, ``arch`` and the flags. NVRTC is loaded only if no wheel of it is installed."""
    # Wheels are found by file name: loading NVRTC takes 0.1 s, and importing importlib.metadata 0.02.
    wheels = [w.name for p in sys.path for w in Path(p).glob("nvidia_cuda_nvrtc*.dist-info")]
    return f"nvrtc {' '.join(wheels) or nvrtc_version()} {arch} {' '.join(_FLAGS)}"

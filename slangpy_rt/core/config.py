"""Settings from the environment, read once. Nothing else in the package reads ``os.environ``.

SLANGPY_RT_DEVICE      kind of device that "automatic" means, so that programs which name none open it: cpu, cuda:1
SLANGPY_RT_BACKENDS    backends of other packages: name=module:Class, more of them after commas
SLANGPY_RT_CACHE_DIR   where the kernel cache lives; empty turns the cache off
SLANGPY_RT_CACHE_SIZE  its size cap in bytes (1 GiB)
SLANGPY_RT_DEBUG       0..5: devices, launches, cache, Slang text, target text, to stderr
SLANGPY_RT_LABELS      1: profilers such as Nsight show each call under its function's name (needs the nvtx package)
SLANGPY_RT_OVERRIDE    directory of edited kernels (<key>.slang) to use instead of the generated ones
SLANGPY_RT_SLANG_LIB   path of the Slang library to load
SLANGPY_RT_COMPILE_IN  Python that runs Slang, NVRTC and DXC in processes of their own (the one that runs this);
                       empty runs them in this process, which a text that a compiler cannot bear then ends
SLANGPY_RT_COMPILE_SECONDS  of a processor that one compilation by Slang may take (60)
SLANGPY_RT_BUILD_SECONDS  that NVRTC, DXC, the C++ compiler or a driver may take for one kernel (600)
SLANGPY_RT_D3D12_LIB   outside of Windows: path of a library with the functions of d3d12.dll, for the d3d12 device
SLANGPY_RT_DXC         path of DXC's library, which compiles kernels of the d3d12 device; on Windows slangpy has one
SLANGPY_RT_CXX         C++ compiler for the cpu device; "zig" for the ziglang wheel, "none" for LLVM alone
SLANGPY_RT_THREADS     threads of the cpu device
SLANGPY_RT_TUNE        on (default): measure configurations whose times are not on disk; force: measure all anew in
                       each process; cached: only use the times on disk; off: use the first configuration
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slangpy_rt.core.errors import BindError


@dataclass(frozen=True)
class Config:
    """The settings of the environment, and PATH; None where a variable without a default is not set."""

    device: str | None
    backends: Mapping[str, str]
    cache_dir: str | None
    cache_size: int
    debug: int
    labels: int
    override: str | None
    slang_lib: str | None
    compiler_python: str
    compile_seconds: int
    build_seconds: int
    d3d12_lib: str | None
    dxc: str | None
    cxx: str | None
    threads: int
    tune: str
    path: str


def read_config(env: Mapping[str, str]) -> Config:
    """Read a configuration.

    Raises
    ------
    BindError
        If something else came than was expected; the message names the variable.
    """
    return Config(
        device=env.get("SLANGPY_RT_DEVICE"),
        backends=_pairs(env, "SLANGPY_RT_BACKENDS"),
        cache_dir=env.get("SLANGPY_RT_CACHE_DIR"),
        cache_size=_number(env, "SLANGPY_RT_CACHE_SIZE", 1 << 30),
        debug=_number(env, "SLANGPY_RT_DEBUG", 0),
        labels=_number(env, "SLANGPY_RT_LABELS", 0),
        override=env.get("SLANGPY_RT_OVERRIDE"),
        slang_lib=env.get("SLANGPY_RT_SLANG_LIB"),
        compiler_python=env.get("SLANGPY_RT_COMPILE_IN", _interpreter()),
        compile_seconds=_number(env, "SLANGPY_RT_COMPILE_SECONDS", 60, 1),
        build_seconds=_number(env, "SLANGPY_RT_BUILD_SECONDS", 600, 1),
        d3d12_lib=env.get("SLANGPY_RT_D3D12_LIB"),
        dxc=env.get("SLANGPY_RT_DXC"),
        cxx=env.get("SLANGPY_RT_CXX"),
        threads=_number(env, "SLANGPY_RT_THREADS", os.cpu_count() or 1, 1),
        tune=_one_of(env, "SLANGPY_RT_TUNE", ("on", "cached", "off", "force")),
        path=env.get("PATH", ""),
    )


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with some variables set, for a program that it starts."""
    return {**os.environ, **extra}


def _interpreter() -> str:
    """Return a Python like this one; empty inside programs that have Python built in and none beside them."""
    own = sys.executable or ""
    if not getattr(sys, "frozen", False) and Path(own).stem.lower().startswith(("python", "pypy")):
        return own
    beside = Path(sys.exec_prefix) / ("python.exe" if sys.platform == "win32" else "bin/python3")
    return str(beside) if beside.is_file() else ""


def _number(env: Mapping[str, str], name: str, default: int, least: int = 0) -> int:
    text = env.get(name, "")
    if not text:
        return default
    with suppress(ValueError):
        number = int(text)
        if number >= least:
            return number
    raise BindError(
        f"environment variable {name}: expected a whole number of at least {least}, got {text[:80]!r}; change or "
        "unset it."
    )


def _one_of(env: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """Return a variable's text, or the first allowed one if it is not set."""
    text = env.get(name) or allowed[0]
    if text in allowed:
        return text
    raise BindError(
        f"environment variable {name}: expected one of {', '.join(allowed)}, got {text[:80]!r}; change or unset it."
    )


def _pairs(env: Mapping[str, str], name: str) -> dict[str, str]:
    found = {}
    for part in filter(None, map(str.strip, env.get(name, "").split(","))):
        key, equals, value = part.partition("=")
        if not (key and equals and value):
            raise BindError(
                f"environment variable {name}: expected name=module:Class, got {part[:80]!r}; change or unset it."
            )
        found[key.strip()] = value.strip()
    return found


CONFIG = read_config(os.environ)

"""Settings from the environment, read once. Nothing else in the package reads ``os.environ``.

SLANGPY_RT_DEVICE      device type that ``init_device`` opens: cuda, vulkan, cpu
SLANGPY_RT_CACHE_DIR   where the kernel cache lives; empty turns the cache off
SLANGPY_RT_CACHE_SIZE  its size cap in bytes (1 GiB)
SLANGPY_RT_DEBUG       0..5: devices, launches, cache, Slang text, target text, to stderr
SLANGPY_RT_LABELS      1: profilers such as Nsight show each call under its function's name (needs the nvtx package)
SLANGPY_RT_OVERRIDE    directory of edited kernels (<key>.slang) to use instead of the generated ones
SLANGPY_RT_SLANG_LIB   path of the Slang library to load
SLANGPY_RT_CXX         C++ compiler for the cpu device; "zig" for the ziglang wheel
SLANGPY_RT_THREADS     threads of the cpu device
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """What the environment asks for; ``None`` where it is silent."""

    device: str | None
    cache_dir: str | None
    cache_size: int
    debug: int
    labels: int
    override: str | None
    slang_lib: str | None
    cxx: str | None
    threads: int
    path: str


def read_config(env: Mapping[str, str]) -> Config:
    """Read a configuration.

    Raises
    ------
    ValueError
        If a number is expected and something else came; the message names the variable.
    """
    return Config(
        device=env.get("SLANGPY_RT_DEVICE"),
        cache_dir=env.get("SLANGPY_RT_CACHE_DIR"),
        cache_size=_number(env, "SLANGPY_RT_CACHE_SIZE", 1 << 30),
        debug=_number(env, "SLANGPY_RT_DEBUG", 0),
        labels=_number(env, "SLANGPY_RT_LABELS", 0),
        override=env.get("SLANGPY_RT_OVERRIDE"),
        slang_lib=env.get("SLANGPY_RT_SLANG_LIB"),
        cxx=env.get("SLANGPY_RT_CXX"),
        threads=_number(env, "SLANGPY_RT_THREADS", os.cpu_count() or 1),
        path=env.get("PATH", ""),
    )


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """This process's environment with some variables set, for a program that it starts."""
    return {**os.environ, **extra}


def _number(env: Mapping[str, str], name: str, default: int) -> int:
    text = env.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ValueError(f"environment variable {name}: expected a whole number, got {text!r}") from None


CONFIG = read_config(os.environ)

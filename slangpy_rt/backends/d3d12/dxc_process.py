"""DXC in a process of its own, as ``backends/build_process.py`` has it."""

from __future__ import annotations

from functools import lru_cache

from slangpy_rt.backends.build_process import BuildProcess
from slangpy_rt.backends.d3d12.dxc import compile_hlsl
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.interrupts import apart


class DxcProcess(BuildProcess):
    """The child process that runs DXC, with the parameters ``python`` and ``seconds`` of ``BuildProcess``."""

    def __init__(self, python: str, seconds: float) -> None:
        super().__init__("slangpy_rt.backends.d3d12.dxc_main", "DXC", python, seconds)

    def compile(self, text: bytes, entry: str) -> bytes:
        """Compile HLSL to DXIL; raises as ``compile_hlsl`` and ``BuildProcess.build`` do."""
        return self.build(text, entry, "the HLSL that Slang emitted")


def compile_apart(text: bytes, entry: str) -> bytes:
    """Compile HLSL in DXC's process, or in this one if the configuration says so; see ``compile_hlsl``."""
    process = _process()
    return apart(compile_hlsl, text, entry) if process is None else process.compile(text, entry)


def begin_dxc() -> None:
    """Let DXC's process start and load DXC, while the caller does something else."""
    process = _process()
    if process is not None:
        process.begin()


@lru_cache(maxsize=1)
def _process() -> DxcProcess | None:
    python = CONFIG.compiler_python
    return DxcProcess(python, CONFIG.build_seconds) if python else None

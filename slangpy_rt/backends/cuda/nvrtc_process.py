"""NVRTC in a process of its own, as ``backends/build_process.py`` has it."""

from __future__ import annotations

from functools import lru_cache

from slangpy_rt.backends.build_process import BuildProcess
from slangpy_rt.backends.cuda.compile import nvrtc_compile
from slangpy_rt.core.config import CONFIG


class NvrtcProcess(BuildProcess):
    """The child process that runs NVRTC, with the parameters ``python`` and ``seconds`` of ``BuildProcess``."""

    def __init__(self, python: str, seconds: float) -> None:
        super().__init__("slangpy_rt.backends.cuda.nvrtc_main", "NVRTC", python, seconds)

    def compile(self, code: bytes, arch: str) -> bytes:
        """Compile CUDA text to a binary; raises as ``nvrtc_compile`` and ``BuildProcess.build`` do."""
        return self.build(code, arch, f"the CUDA text that Slang emitted for {arch}")


def compile_apart(code: bytes, arch: str) -> bytes:
    """Compile CUDA text in NVRTC's process, or in this one if the configuration says so; see ``nvrtc_compile``."""
    process = _process()
    return nvrtc_compile(code, arch) if process is None else process.compile(code, arch)


def begin_nvrtc() -> None:
    """Let NVRTC's process start and load NVRTC, while the caller does something else."""
    process = _process()
    if process is not None:
        process.begin()


@lru_cache(maxsize=1)
def _process() -> NvrtcProcess | None:
    python = CONFIG.compiler_python
    return NvrtcProcess(python, CONFIG.build_seconds) if python else None

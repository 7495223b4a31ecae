"""NvrtcProcess: NVRTC in a process of its own, which Ctrl-C and a limit of time can end.

Nothing here reads CUDA text. NVRTC compiles one text at a time, in this process as in another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from slangpy_rt.backends.cuda.compile import nvrtc_compile
from slangpy_rt.core.child_process import ChildProcess, Ended
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import CompileError


class NvrtcProcess(ChildProcess):
    """The child process that runs NVRTC; a compilation starts it if it is not running.

    Parameters
    ----------
    python : str
        The Python interpreter that the child runs.
    seconds : float
        Processor time that one compilation may take, in seconds.
    """

    module = "slangpy_rt.backends.cuda.nvrtc_main"

    def __init__(self, python: str, seconds: float) -> None:
        super().__init__(python, seconds, "NVRTC", "SLANGPY_RT_BUILD_SECONDS")
        # What used up its time or memory is not tried again: the messages, by digests of text and architecture.
        self._refused: dict[str, str] = {}

    def arguments(self) -> Sequence[str]:
        return (str(self._seconds),)

    def compile(self, code: bytes, arch: str) -> bytes:
        """Compile CUDA text to a binary, as ``nvrtc_compile`` does.

        Raises
        ------
        CompileError
            If NVRTC crashes or takes too long; also as ``nvrtc_compile`` does.
        UnsupportedError
            If the process does not start; also as ``nvrtc_compile`` does.
        DeviceError
            As ``nvrtc_compile`` does.
        """
        digest = hashlib.sha256(arch.encode() + b"\0" + code).hexdigest()
        if digest in self._refused:
            raise CompileError(self._refused[digest])
        try:
            return bytes(self.answer(lambda: (code, arch)))
        except Ended as end:
            message = f"NVRTC could not compile the CUDA text that Slang emitted for {arch}:\n{end}"
            if end.final:
                self._refused[digest] = message
            raise CompileError(message) from None


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

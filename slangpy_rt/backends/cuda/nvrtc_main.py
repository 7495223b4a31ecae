"""The main program of NVRTC's process, in which a text that NVRTC never finishes ends nothing else."""

from __future__ import annotations

import site
import sys
from contextlib import suppress
from typing import Any

from slangpy_rt.backends.cuda.compile import nvrtc_compile, nvrtc_version
from slangpy_rt.core.child_main import ChildMain
from slangpy_rt.core.errors import UnsupportedError


class NvrtcMain(ChildMain):
    """Compiles CUDA texts; a request has the text and the architecture."""

    def begin(self) -> None:
        with suppress(UnsupportedError):  # which the first request raises again
            nvrtc_version()

    def answer(self, request: Any) -> bytes:
        code, arch = request
        return nvrtc_compile(code, arch)


def main(seconds: str) -> None:
    """Answer the requests of the process that started this one, then end this process.

    Parameters
    ----------
    seconds : str
        Processor time that one compilation may take, in seconds.
    """
    # Without ``site`` nothing says that the user's own wheels are used, where NVRTC may be.
    site.ENABLE_USER_SITE = site.getusersitepackages() in sys.path
    NvrtcMain(float(seconds)).run()

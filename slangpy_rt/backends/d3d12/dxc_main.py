"""The main program of DXC's process, in which a text that DXC never finishes ends nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from slangpy_rt.backends.d3d12.dxc import compile_hlsl, load_dxc
from slangpy_rt.core.child_main import ChildMain
from slangpy_rt.core.errors import UnsupportedError


class DxcMain(ChildMain):
    """Compiles HLSL; a request has the text and the name of the entry point."""

    def begin(self) -> None:
        with suppress(UnsupportedError):  # which the first request raises again
            load_dxc()

    def answer(self, request: Any) -> bytes:
        text, entry = request
        return compile_hlsl(text, entry)


def main(seconds: str) -> None:
    """Answer the requests of the process that started this one, then end this process.

    Parameters
    ----------
    seconds : str
        Processor time that one compilation may take, in seconds.
    """
    DxcMain(float(seconds)).run()

"""Slang kernels as SPIR-V, and what runs them: in lanes, compiled by llvmlite.

A kernel's parameters are uniform ones of its entry point, which Slang puts into push constants.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache

import numpy as np

from slangpy_rt.backends.cpu.llvm import LlvmCompiler, LoadedObject
from slangpy_rt.core.target import Target
from slangpy_rt.lanes.debug_text import DebugSettings
from slangpy_rt.lanes.translate import LaneKernel, translate
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session

DEBUG = DebugSettings(lambda path: False, lambda source: source.path)


class Kernels:
    """The kernels of a Slang text.

    Parameters
    ----------
    text : str
        Slang.
    flags : tuple of str
        Options of Slang's command line.
    """

    def __init__(self, text: str, flags: tuple[str, ...] = ()) -> None:
        self.text, self.flags = text, flags
        self._codes: dict[str, bytes] = {}

    def code(self, entry: str) -> bytes:
        """Return a kernel's SPIR-V."""
        if entry not in self._codes:
            with _session(self.flags) as session:
                self._codes[entry] = session.compile(self.text, "kernels", entry).code
        return self._codes[entry]

    def run(
        self, entry: str, groups: tuple[int, int, int], *arguments: np.ndarray | int | float, width: int = 8,
        contract: bool = True,
    ) -> LaneKernel:  # fmt: skip
        """Run a kernel on arrays, which it reads and writes in place."""
        return run(self.code(entry), groups, *arguments, width=width, contract=contract)


def run(
    code: bytes, groups: tuple[int, int, int], *arguments: np.ndarray | int | float, width: int | None = 8,
    contract: bool = True, debug: DebugSettings | None = None,
) -> LaneKernel:  # fmt: skip
    """Run SPIR-V in lanes, compiled for a debugger if settings of one are given."""
    kernel, loaded = compiled(code, width, contract, debug)
    push = ctypes.create_string_buffer(packed(arguments), 256)
    loaded.run(ctypes.addressof(push), 0, groups[0] * groups[1] * groups[2], *groups, 0, 0)
    return kernel


@cache
def compiled(
    code: bytes, width: int | None, contract: bool = True, debug: DebugSettings | None = None
) -> tuple[LaneKernel, LoadedObject]:
    """Return a kernel in lanes and its machine code."""
    kernel = translate(code, width, contract=contract, debug=debug)
    functions = [compiler().compile(each.write()) for each in kernel.functions]
    return kernel, compiler().load(compiler().compile(kernel.text, debug is not None), *functions)


@cache
def compiler() -> LlvmCompiler:
    return LlvmCompiler()


def packed(arguments: tuple[np.ndarray | int | float, ...]) -> bytes:
    """Return push constants: addresses, and numbers of 32 bits, or of 64 for a NumPy scalar."""
    found = b""
    for value in arguments:
        if isinstance(value, np.ndarray):
            part = struct.pack("<Q", value.ctypes.data)
        elif isinstance(value, np.generic):
            part = value.tobytes()
        else:
            part = struct.pack("<f" if isinstance(value, float) else "<i", value)
        found = found.ljust(-(-len(found) // len(part)) * len(part), b"\0") + part
    return found


@contextmanager
def _session(flags: tuple[str, ...]) -> Iterator[Session]:
    target = Target("spirv", "", "pointer", flags=flags)
    with closing(Session(Library(None), target, (shader_directory(),))) as session:
        yield session

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
from slangpy_rt.lanes.translate import LaneKernel, translate
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session


class Kernels:
    """The kernels of a Slang text.

    Parameters
    ----------
    text : str
        Slang.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._codes: dict[str, bytes] = {}

    def code(self, entry: str) -> bytes:
        """Return a kernel's SPIR-V."""
        if entry not in self._codes:
            with _session() as session:
                self._codes[entry] = session.compile(self.text, "kernels", entry).code
        return self._codes[entry]

    def run(
        self, entry: str, groups: tuple[int, int, int], *arguments: np.ndarray | int | float, width: int = 8,
        contract: bool = True,
    ) -> LaneKernel:  # fmt: skip
        """Run a kernel on arrays, which it reads and writes in place."""
        return run(self.code(entry), groups, *arguments, width=width, contract=contract)


def run(
    code: bytes, groups: tuple[int, int, int], *arguments: np.ndarray | int | float, width: int = 8,
    contract: bool = True,
) -> LaneKernel:  # fmt: skip
    """Run SPIR-V in lanes."""
    kernel, loaded = compiled(code, width, contract)
    push = ctypes.create_string_buffer(packed(arguments), 256)
    loaded.run(ctypes.addressof(push), 0, groups[0] * groups[1] * groups[2], *groups)
    return kernel


@cache
def compiled(code: bytes, width: int, contract: bool = True) -> tuple[LaneKernel, LoadedObject]:
    """Return a kernel in lanes and its machine code."""
    kernel = translate(code, width, contract=contract)
    return kernel, compiler().load(compiler().compile(kernel.text))


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
def _session() -> Iterator[Session]:
    with closing(Session(Library(None), Target("spirv", "", "pointer"), (shader_directory(),))) as session:
        yield session

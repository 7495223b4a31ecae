"""Program: the kernel of products of one set of element types on one device, and how many groups it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.linalg.user_functions import ACTIVATIONS, Inlined
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

FILE = "_spy_matmul.slang"
# Element types that are multiplied, and the types of their sums and of their results. "tf32" are floats that may be
# rounded to TF32 before they are multiplied.
SUMS = {
    "half": "float",
    "bfloat16": "float",
    "float": "float",
    "tf32": "float",
    "double": "double",
    "int8_t": "int",
    "int": "int",
}
_FLOATS = ("half", "bfloat16", "float", "double")
RESULTS = {
    "half": _FLOATS[:3],
    "bfloat16": _FLOATS[:3],
    "float": _FLOATS[:3],
    "tf32": _FLOATS[:3],
    "double": ("double", "float"),
    "int8_t": ("int",),
    "int": ("int",),
}
# Rows and columns of a group's tile: of matmul_blocks.slang, matmul_tiles.slang and matmul_lanes.slang.
_BLOCK, _TILE, _LANES = (144, 256), (64, 64), (96, 64)


class Kind(NamedTuple):
    """What is multiplied.

    Attributes
    ----------
    element, result : str
        Element types of the operands and of the result.
    activation : str or Inlined
        A name of ACTIVATIONS, or empty; or a user's function.
    bias : bool
        Whether a bias is added.
    adds : bool
        Whether the product is added to what the result holds.
    """

    element: str
    result: str
    activation: str | Inlined = ""
    bias: bool = False
    adds: bool = False

    @property
    def types(self) -> tuple[str, str, bool]:
        """Of products with a user's function, which add nothing, all but the function."""
        return self.element, self.result, self.bias


class Program:
    """The kernel of one kind of products.

    Raises
    ------
    UnsupportedError
        If the device has no such elements in memory.
    """

    def __init__(self, device: DeviceCore, kind: Kind) -> None:
        # Devices without groups compute a block of the result in each thread.
        target = device.backend.target
        self._groups, self._lanes = target.groups, target.lane_threads
        chosen = {"SPY_CPU": not self._groups, "SPY_LANES": self._lanes}
        self._kernel = kernel_of(device, kind, macros_of(device, kind) | chosen)

    def division(self, result: View) -> tuple[Kernel, tuple[int, int, int]]:
        """Return the kernel, which takes a, b, c, the factor and the bias, and the threads for a result."""
        count, rows, columns = result.shape
        # Of few rows a block has half as many, so that there are blocks for several threads.
        block = (_BLOCK[0] // 2 if rows <= 2 * _BLOCK[0] else _BLOCK[0], _BLOCK[1])
        tile = _LANES if self._lanes else _TILE if self._groups else block
        x, y, z = self._kernel.threads_of_group
        return self._kernel, (-(-columns // tile[1]) * x, -(-rows // tile[0]) * y, count * z)

    def run(self, result: View, commands: CommandList | None, uniforms: Mapping[str, Any], *values: Any) -> None:
        """Launch the kernel for a result of three dimensions, or record the launch in a command list.

        ``uniforms`` has the values of a user's function.
        """
        kernel, threads = self.division(result)
        kernel = kernel.set(uniforms) if uniforms else kernel
        if commands is None:
            kernel.dispatch(threads, *values)
        else:
            kernel.append_to(commands, threads, *values)


def check_size(device: DeviceCore, result: View) -> None:
    """Refuse a result of more rows or columns than a launch can have.

    Raises
    ------
    UnsupportedError
        If it has.
    """
    if not device.backend.target.groups:
        return
    *_, rows, columns = result.shape
    limit = device.caps.max_groups
    if -(-columns // _TILE[1]) > limit[0] or -(-rows // _TILE[0]) > limit[1]:
        raise UnsupportedError(
            f"matmul: a result of {rows} x {columns} is larger than the device computes at once; multiply parts."
        )


def macros_of(device: DeviceCore, kind: Kind) -> dict[str, Any]:
    """Return the macros of ``_spy_matmul.slang`` for a kind of products.

    Raises
    ------
    UnsupportedError
        If the device has no such elements in memory.
    """
    (stored, bits), (stored_result, result_bits) = storage_of(device, kind.element), storage_of(device, kind.result)
    total = SUMS[kind.element]
    return {
        "SPY_IN": stored,
        "SPY_OUT": stored_result,
        "SPY_ACC": total,
        "SPY_IN_BITS": bits,
        "SPY_OUT_BITS": result_bits,
        "SPY_FLOATS": total != "int",
        "SPY_ACTIVATE": ACTIVATIONS.get(kind.activation, "") if isinstance(kind.activation, str) else "",
        "SPY_BIAS": kind.bias,
        "SPY_ADD": kind.adds,
        "SPY_CPU": False,
        "SPY_WGMMA": False,
        "SPY_WAVES": False,
        "SPY_LANES": False,
        "SPY_PTX": False,
    }


def kernel_of(device: DeviceCore, kind: Kind, macros: Mapping[str, Any]) -> Kernel:
    """Return the kernel of a kind of products, by the macros of ``_spy_matmul.slang``."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.kernel(macros)
    found: Kernel = Module.load_from_file(device, FILE, defines=macros)["_spy_matmul"]
    return found


def most_matrices(device: DeviceCore) -> int:
    """Return the most matrices of a launch."""
    return device.caps.max_groups[2] if device.backend.target.groups else 2**31


def storage_of(device: DeviceCore, element: str) -> tuple[str, int]:
    """Return the scalar as which kernels load an element type, and SPY_IN_BITS of ``_spy_matmul.slang``.

    Raises
    ------
    UnsupportedError
        If the device cannot load it.
    """
    scalars = device.caps.scalars
    bits = {"half": 0 if "half" in scalars else 1, "bfloat16": 2}.get(element, 0)
    stored = "int16_t" if bits else "float" if element == "tf32" else element
    if stored not in scalars:
        raise UnsupportedError(f"matmul: {device.info} has no '{stored}' in memory, as which '{element}' is loaded.")
    return stored, bits


def program_of(device: DeviceCore, kind: Kind) -> Program:
    """Return the program of a kind of products, made once for the device, or for the text of a user's function."""
    if isinstance(kind.activation, Inlined):
        return kind.activation.once(("program", *kind.types), lambda: Program(device, kind))
    if kind.activation and SUMS[kind.element] == "int" and kind.activation != "relu":
        raise BindError(f"matmul: activation '{kind.activation}' takes floats, and sums of {kind.element} are int.")
    return device.once(f"matmul {kind}", lambda: Program(device, kind))

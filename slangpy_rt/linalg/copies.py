"""Copies: the copies of operands that tensor cores can read, made by ``shaders/_spy_packing.slang``."""

from __future__ import annotations

from typing import Any, NamedTuple

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.lines import ALIGNED, FORMATS, are_turned
from slangpy_rt.linalg.program import storage_of
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

_FILE = "_spy_packing.slang"


class Packing(NamedTuple):
    """How an operand is copied for tensor cores.

    Attributes
    ----------
    kernel : Kernel
        It takes arrays with the views ``source`` and ``copy``, and ``turned``.
    threads, turned : int
        Threads of the launch, and whether elements of the source's columns follow each other.
    source, copy : View
        The operand and its copy, in the order of the copy's lines.
    shape : tuple of int
        The shape of the new array.
    operand, first : View
        The copy in the order of the operand, with all parts of each matrix, and with as many matrices as the operand.
    """

    kernel: Kernel
    threads: int
    turned: int
    source: View
    copy: View
    shape: Shape
    operand: View
    first: View


class Copies:
    """Makes copies of operands of one element type on one device.

    Parameters
    ----------
    device : DeviceCore
        Any device that has the elements in memory.
    element : str
        A key of ``FORMATS``.
    """

    def __init__(self, device: DeviceCore, element: str) -> None:
        self._device = device
        self._format = FORMATS[element]
        self._stored = storage_of(device, element)[0]
        self._made: Kernel | None = None

    def packing(self, view: View, left: bool) -> Packing:
        """Return how an operand of three dimensions, ``a`` if ``left``, is copied for tensor cores."""
        form = self._format
        # Lines are along the elements that follow each other, or along those that are multiplied with each other.
        across = are_turned(view) if form.takes_columns else not left
        source = view.transposed() if across else view
        turned = are_turned(source)
        count, rows, columns = source.shape
        room = -(-columns * form.size // ALIGNED) * ALIGNED // form.size
        copy = View(view.element, (count * form.parts, rows, columns), (rows * room, room, 1))
        # Of the copy, kernels read how many elements are multiplied: its first part has as many as the operand.
        first = copy._replace(shape=source.shape)
        operand, first = (copy.transposed(), first.transposed()) if across else (copy, first)
        # A thread writes 32 bytes of each row, and takes rows whose elements have 4 bytes together.
        threads = count * -(-rows * (form.size if turned else 4) // 4) * -(-columns * form.size // 32)
        return Packing(
            self._kernel, threads, int(turned), source, copy, (count * form.parts, rows, room), operand, first
        )

    def packed(
        self, commands: CommandList | None, arrays: Arrays, operand: tuple[Any, View], like: Any, left: bool
    ) -> tuple[Any, View, int]:
        """Return a copy of an operand of three dimensions that tensor cores can read, made by a launch.

        Parameters
        ----------
        operand : tuple of array and View
            The array as ``Arrays.strided`` returns it, and its view.
        like : array
            The user's array.
        left : bool
            Whether it is ``a``.
        """
        found, stored = self.packing(operand[1], left), self._stored
        copy = arrays.empty(self._device, found.shape, stored, like)
        source, target = arrays.strided(operand[0], found.source, stored), arrays.strided(copy, found.copy, stored)
        if commands is None:
            found.kernel.dispatch(found.threads, source, target, found.turned)
        else:
            found.kernel.append_to(commands, found.threads, source, target, found.turned)
        return arrays.strided(copy, found.first, stored), found.operand, arrays.address(copy)

    @property
    def _kernel(self) -> Kernel:
        if self._made is None:
            macros = {"SPY_IN": self._stored, "SPY_PASSES": self._format.parts}
            self._made = Module.load_from_file(self._device, _FILE, defines=macros)["_spy_packed"]
        return self._made


def copies_of(device: DeviceCore, element: str) -> Copies:
    """Return what makes copies of operands of an element type, made once for the device."""
    return device.once(f"copies for tensor cores {element}", lambda: Copies(device, element))

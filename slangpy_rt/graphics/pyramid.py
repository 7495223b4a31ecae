"""Pyramid: the texels of a picture and of its smaller levels in one Tensor, row after row."""

from __future__ import annotations

from math import prod
from typing import Any

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.graphics.runner import Runner


class Pyramid:
    """A picture in one Tensor, its smaller levels behind it; each texel of these is the mean of those it covers.

    A contiguous picture without smaller levels is used in place. Others are copied; a copy's gradient begins at 0.

    Parameters
    ----------
    runner : Runner
        How to make the levels.
    texels : Tensor
        The picture, of shape ``(rows, columns)``, or ``(6, n, n)`` for a cube.
    mips : bool
        Whether there are smaller levels, down to one texel.

    Attributes
    ----------
    chain : Tensor
        The texels of all levels, of one dimension.
    sizes : list of tuple of int
        The shape of each level.
    base : Tensor
        The largest level.
    is_copy : bool
        Whether the texels are copies.
    """

    def __init__(self, runner: Runner, texels: Tensor, mips: bool) -> None:
        device = texels.device
        self._module = sampling(device, len(texels.shape) == 3)
        self.sizes = _sizes(texels.shape) if mips else [texels.shape]
        self.is_copy = len(self.sizes) > 1 or not texels.is_contiguous
        self.chain: Any
        self.base: Any
        if not self.is_copy:
            self.chain, self.base = texels.view(prod(texels.shape)), texels
            return
        parts = {"chain": ((sum(map(prod, self.sizes)),), texels.dtype)}
        self.chain = runner.room(device, {}, parts).arrays["chain"]
        if texels.grad_out is not None:
            self.chain = runner.gradient_of(self.chain)
        self.base = self.level(0)
        runner.call(self._module["_spy_same"], texels.detach(), _result=self.base.detach())
        self.shrink(runner)

    @property
    def state(self) -> tuple[Tensor, tuple[int, ...], bool]:
        """The arguments of ``of``: the largest level or all of them, the shape of the largest, whether all."""
        mips = len(self.sizes) > 1
        return (self.chain if mips else self.base), self.sizes[0], mips

    @classmethod
    def of(cls, texels: Tensor, shape: tuple[int, ...], mips: bool) -> Pyramid:
        """Return the pyramid of a state; levels and gradients stay as they are.

        Raises
        ------
        ShapeError
            If the texels are not as many as the levels have.
        """
        made = cls.__new__(cls)
        made._module = sampling(texels.device, len(shape) == 3)
        made.sizes = _sizes(shape) if mips else [shape]
        made.is_copy = mips
        wanted = (sum(map(prod, made.sizes)),) if mips else shape
        if texels.shape != wanted or not texels.is_contiguous:
            raise ShapeError(f"pickle: the texels of an Image are {texels.summary}; shape {wanted} was expected.")
        made.chain = texels if mips else texels.view(prod(shape))
        made.base = made.level(0) if mips else texels
        return made

    def shrink(self, runner: Runner) -> None:
        """Make the smaller levels of the largest one."""
        smaller = self._module["_spy_smaller"]
        for k, (*_, rows, columns) in enumerate(self.sizes[:-1]):
            below = self.level(k + 1).detach()
            runner.call(smaller, grid(below.shape), int2(columns, rows), self._part(k).detach(), _result=below)

    def gather(self, runner: Runner, chain: Any = None) -> None:
        """Add the gradients of the smaller levels to that of the largest.

        Parameters
        ----------
        chain : Tensor, optional
            The texels of all levels with other gradients than their own.
        """
        smaller = self._module["_spy_smaller"].bwds
        for k in range(len(self.sizes) - 2, -1, -1):
            *_, rows, columns = self.sizes[k]
            below = self.level(k + 1, chain)
            runner.call(smaller, grid(below.shape), int2(columns, rows), self._part(k, chain), _result=below)

    def level(self, level: int, chain: Any = None) -> Any:
        """Return the texels of a level in its shape; of another ``chain`` than the own one if there is one."""
        return self._part(level, chain).view(self.sizes[level])

    def _part(self, level: int, chain: Any = None) -> Any:
        first = sum(map(prod, self.sizes[:level]))
        return (self.chain if chain is None else chain)[first : first + prod(self.sizes[level])]


def sampling(device: Any, cube: bool) -> Any:
    """Return the module ``sampling`` of a device, or ``cubes``."""
    name = "cubes" if cube else "sampling"
    return device.once(name, lambda: Module.load_from_file(device, f"{name}.slang"))


def _sizes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return rows and columns of each level: half of those of the level before, rounded down, and 1 at least."""
    sizes = [shape]
    while max(sizes[-1][-2:]) > 1:
        *faces, rows, columns = sizes[-1]
        sizes.append((*faces, max(rows // 2, 1), max(columns // 2, 1)))
    return sizes

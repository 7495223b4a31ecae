"""Pyramid: the texels of a picture and of its smaller levels in one Tensor, row after row."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.indices import grid
from slangpy_rt.arguments.vectors import int2
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.graphics.runner import Runner


class Pyramid:
    """A picture in one Tensor, its smaller levels behind it; each texel of these is the mean of two by two.

    A contiguous picture without smaller levels is used in place. Others are copied; a copy's gradient begins at 0.

    Parameters
    ----------
    runner : Runner
        How to make the levels.
    texels : Tensor
        The picture, of shape ``(rows, columns)``.
    mips : bool
        Whether there are smaller levels, down to one texel.

    Attributes
    ----------
    chain : Tensor
        The texels of all levels, of one dimension.
    sizes : list of tuple of int
        Rows and columns of each level.
    base : Tensor
        The largest level, of shape ``(rows, columns)``.
    is_copy : bool
        Whether the texels are copies.
    """

    def __init__(self, runner: Runner, texels: Tensor, mips: bool) -> None:
        self._device = device = texels.device
        self.sizes = _sizes(texels.shape) if mips else [texels.shape]
        self.is_copy = len(self.sizes) > 1 or not texels.is_contiguous
        self.chain: Any
        self.base: Any
        if not self.is_copy:
            self.chain, self.base = texels.view(texels.shape[0] * texels.shape[1]), texels
            return
        self.chain = Tensor.empty(device, sum(r * c for r, c in self.sizes), texels.dtype)
        if texels.grad_out is not None:
            self.chain = runner.gradient_of(self.chain)
        self.base = self.level(0)
        runner.call(sampling(device)["_spy_same"], texels.detach(), _result=self.base.detach())
        self.shrink(runner)

    def shrink(self, runner: Runner) -> None:
        """Make the smaller levels of the largest one."""
        smaller = sampling(self._device)["_spy_smaller"]
        for k, (rows, columns) in enumerate(self.sizes[:-1]):
            below = self.level(k + 1).detach()
            runner.call(smaller, grid(below.shape), int2(columns, rows), self._part(k).detach(), _result=below)

    def gather(self, runner: Runner) -> None:
        """Add the gradients of the smaller levels to that of the largest."""
        smaller = sampling(self._device)["_spy_smaller"].bwds
        for k in range(len(self.sizes) - 2, -1, -1):
            rows, columns = self.sizes[k]
            below = self.level(k + 1)
            runner.call(smaller, grid(below.shape), int2(columns, rows), self._part(k), _result=below)

    def level(self, level: int) -> Any:
        """Return the texels of a level, of shape ``(rows, columns)``."""
        return self._part(level).view(self.sizes[level])

    def _part(self, level: int) -> Any:
        first = sum(r * c for r, c in self.sizes[:level])
        rows, columns = self.sizes[level]
        return self.chain[first : first + rows * columns]


def sampling(device: Any) -> Any:
    """Return the module ``sampling`` of a device."""
    return device.once("sampling", lambda: Module.load_from_file(device, "sampling.slang"))


def _sizes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return rows and columns of each level: half of those of the level before, rounded down, and 1 at least."""
    sizes = [shape]
    while max(sizes[-1]) > 1:
        rows, columns = sizes[-1]
        sizes.append((max(rows // 2, 1), max(columns // 2, 1)))
    return sizes

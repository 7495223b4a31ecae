"""BoundKernel: a kernel of a slang-torch module with its arguments, to be launched."""

from __future__ import annotations

import warnings
from typing import Any

from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.errors import LaunchError
from slangpy_rt.slangtorch.kernel_code import MAX_GRID, KernelCode, Triple
from slangpy_rt.slangtorch.parameter import BoundTensor


class BoundKernel:
    """A kernel with its arguments. A launch runs it; further launches run it again on the same tensors.

    Parameters
    ----------
    code : KernelCode
        The kernel.
    values : list
        Those of its argument block.
    tensors : list of BoundTensor
        Whose addresses belong there.
    """

    def __init__(self, code: KernelCode, values: list[Any], tensors: list[BoundTensor]) -> None:
        # Of one that is refused here nobody is told that it was never launched.
        self._launched = True
        self._code, self._values, self._tensors = code, values, tensors
        self._place = code.program.devices.place(code.name, tensors)
        self._launched = False

    def launchRaw(self, blockSize: Triple, gridSize: Triple) -> None:
        """Run it in ``gridSize`` thread groups of ``blockSize`` threads, each a tuple of three ints: x, y, z.

        On a GPU this returns before the work is done, which is in the order of PyTorch's own. A zero in ``gridSize``
        runs nothing.

        Raises
        ------
        ValueError
            If one of them is no tuple of three ints, or holds a negative one.
        LaunchError
            If they are more than the device runs.
        CompileError, UnsupportedError
            If the device's compiler refuses the kernel, at its first launch.
        """
        self._launched = True
        block = self._checked("blockSize", blockSize, 1)
        grid = self._checked("gridSize", gridSize, 0)
        for _, tensor, layout in self._tensors:
            # The argument block has the sizes that it had when the kernel was called.
            if (tensor.dtype, tensor.shape, tensor.stride()) != layout:
                raise LaunchError(f"{self._code}: a tensor was resized since the kernel was called; call it again.")
        if 0 not in grid:
            self._code.launch(self._place, block, grid, self._values, self._tensors)

    def launchTotal(self, blockSize: Triple, totalSize: Triple) -> None:
        """Run at least ``totalSize`` threads in groups of ``blockSize``, each a tuple of three ints.

        Threads of the last groups may lie beyond that size: the kernel has to look where it is. Raises as
        ``launchRaw``.
        """
        self._launched = True
        block = self._checked("blockSize", blockSize, 1)
        total = self._checked("totalSize", totalSize, 0)
        x, y, z = (-(-n // size) for n, size in zip(total, block, strict=True))
        self.launchRaw(block, (x, y, z))

    def autoLaunch(self, totalSize: Triple) -> None:
        """Run at least ``totalSize`` threads, a tuple of three ints, in groups of a size that suits the device.

        Raises as ``launchRaw``.
        """
        self._launched = True
        total = self._checked("totalSize", totalSize, 0)
        flat = sum(n > 1 for n in total)
        block = (256, 1, 1) if flat <= 1 and total[0] > 1 else (32, 8, 1) if total[2] <= 1 else (8, 8, 4)
        self.launchTotal(block, total)

    def __del__(self) -> None:
        if not self._launched:
            warnings.warn(
                f"{self._code}: it was called and never launched; call .launchRaw(blockSize=..., gridSize=...) of "
                "what it returns.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _checked(self, name: str, value: Any, least: int) -> Triple:
        if type(value) is tuple and len(value) == 3:
            x, y, z = value
            if (
                type(x) is type(y) is type(z) is int
                and least <= x <= MAX_GRID
                and least <= y <= MAX_GRID
                and least <= z <= MAX_GRID
            ):
                return value
        raise ValueError(
            f"{self._code}: {name} is {in_words(value)}; a tuple of three ints of at least {least} was expected."
        )

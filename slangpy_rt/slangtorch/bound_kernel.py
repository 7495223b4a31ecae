"""BoundKernel: a kernel of a slang-torch module with its arguments, to be launched. It compiles nothing itself."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from slangpy_rt.calls.command_list import Call, CommandList, add
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.argument_copies import ArgumentCopies
from slangpy_rt.slangtorch.binder import Bound, unchanged
from slangpy_rt.slangtorch.block_search import fastest_block
from slangpy_rt.slangtorch.errors import CopyNeeded, LaunchError, TensorError
from slangpy_rt.slangtorch.kernel_code import MAX_GRID, SUITED, KernelCode, Triple


class BoundKernel:
    """A kernel with its arguments. A launch runs it; further launches run it again on the same tensors.

    Parameters
    ----------
    code : KernelCode
        The kernel.
    bound : Bound
        Its arguments, as ``Binder`` returns them.
    copies : ArgumentCopies, optional
        Copies among the arguments, which every launch checks.
    """

    def __init__(self, code: KernelCode, bound: Bound, copies: ArgumentCopies | None = None) -> None:
        self._code, self._bound, self._copies = code, bound, copies
        self._launched = False

    def launchRaw(self, blockSize: Triple, gridSize: Triple) -> None:
        """Run the kernel in ``gridSize`` thread groups of ``blockSize`` threads, each a tuple of three ints: x, y, z.

        On a CUDA device this returns before the work is done, which runs on PyTorch's current stream. With a zero in
        ``gridSize`` nothing runs.

        Raises
        ------
        ValueError
            If one of them is no tuple of three ints, holds a negative number, or ``blockSize`` holds a zero.
        LaunchError
            If they are more than the device runs, or a tensor was resized since the kernel was called.
        CompileError, UnsupportedError
            If the device's compiler refuses the kernel, at its first launch.
        """
        block, grid = self._sizes(blockSize, gridSize)
        if 0 not in grid:
            place, values, (tensors, places, _), _ = self._bound
            self._code.launch(place, block, grid, values, tensors, places)
            if self._copies is not None:
                self._copies.check(str(self._code), consumed=True)

    def launchTotal(self, blockSize: Triple, totalSize: Triple) -> None:
        """Run at least ``totalSize`` threads in groups of ``blockSize``, each a tuple of three ints.

        Threads of the last groups may lie beyond that size: the kernel has to check its thread's index. Raises the
        errors of ``launchRaw``.
        """
        self._launched = True
        block = checked_sizes(self._code.name, "blockSize", blockSize, 1)
        total = checked_sizes(self._code.name, "totalSize", totalSize, 0)
        self.launchRaw(block, groups_for(total, block))

    def autoLaunch(self, totalSize: Triple, blockSize: Sequence[Triple] = ()) -> None:
        """Run at least ``totalSize`` threads, a tuple of three ints, in groups of a size that suits the device.

        Parameters
        ----------
        totalSize : tuple of int
            The number of threads.
        blockSize : sequence of tuple of int, optional
            Choices for the size of the groups: the first launch of a kind measures them, as the first call of a
            tuned function does, and later ones use the fastest. Without choices a group has 256 threads, or, on a
            CUDA device, 128, 384 or 512 if more threads of this kernel run at once so.

        Raises
        ------
        ValueError, LaunchError, CompileError, UnsupportedError
            As ``launchRaw`` does.
        """
        self._launched = True
        total = checked_sizes(self._code.name, "totalSize", totalSize, 0)
        if not isinstance(blockSize, (list, tuple)):
            raise ValueError(f"{self._code}: blockSize is {in_words(blockSize)}; a list of tuples was expected.")
        choices = tuple([checked_sizes(self._code.name, "blockSize", block, 1) for block in blockSize])

        def run(block: Triple) -> None:
            self.launchRaw(block, groups_for(total, block))

        if not choices or 0 in total:
            threads = SUITED[0] if 0 in total else self._code.suited_threads(self._bound[0])
            run(suited_block(total, threads))
            return
        if not unchanged(*self._bound[2:]):
            raise LaunchError(f"{self._code}: a tensor was resized since the kernel was called; call it again.")
        run(fastest_block(self._code, self._bound, total, choices, run))

    def append_to(self, commands: CommandList, blockSize: Triple, gridSize: Triple) -> None:
        """Record a launch in a command list instead of running it; the list keeps the tensors.

        Raises
        ------
        BindError
            If it is no command list of the device on which the kernel runs.
        TensorError
            If the tensors are copied to that device: a list does not copy them back.
        ValueError, LaunchError, CompileError, UnsupportedError
            As ``launchRaw`` does.
        """
        block, grid = self._sizes(blockSize, gridSize)
        place, values, (tensors, places, _), _ = self._bound
        device = place.device
        if not isinstance(commands, CommandList) or commands.device is not device:
            raise BindError(
                f"{self._code}.append_to: {in_words(commands)}; a command list of {device!r} was expected: load the "
                "module with device=, and call command_list() of the same device."
            )
        if not place.straight:
            raise TensorError(f"{self._code}.append_to: {device!r} does not work in its tensors' memory.")
        if self._copies is not None:
            raise CopyNeeded(
                f"{self._code}.append_to: a gradient is a broadcast view, which a list does not copy; use "
                ".contiguous() to make it a tensor of its own."
            )
        dispatch = self._code.dispatch(device, block, grid, values, tensors, places) if 0 not in grid else None
        launcher = self._code.launcher(device, tensors, places) if dispatch is not None else None
        add(commands, Call(str(self._code), dispatch, None, self, None, launcher))

    def __del__(self) -> None:
        if not self._launched:
            warnings.warn(
                f"{self._code}: it was called and never launched; call .launchRaw(blockSize=..., gridSize=...) of "
                "what it returns.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _sizes(self, block: Any, grid: Any) -> tuple[Triple, Triple]:
        """Return the checked sizes of a launch; raise LaunchError if a tensor was resized."""
        self._launched = True
        block, grid = (
            checked_sizes(self._code.name, "blockSize", block, 1),
            checked_sizes(self._code.name, "gridSize", grid, 0),
        )
        # The argument block has the sizes that the tensors had when the kernel was called.
        if not unchanged(*self._bound[2:]):
            raise LaunchError(f"{self._code}: a tensor was resized since the kernel was called; call it again.")
        return block, grid


def checked_sizes(where: str, name: str, value: Any, least: int) -> Triple:
    """Return a tuple of three ints, or raise ValueError."""
    if type(value) is tuple and len(value) == 3:
        x, y, z = value
        if (
            type(x) is type(y) is type(z) is int
            and least <= x <= MAX_GRID
            and least <= y <= MAX_GRID
            and least <= z <= MAX_GRID
        ):
            return value
    raise ValueError(f"{where}: {name} is {in_words(value)}; a tuple of three ints of at least {least} was expected.")


def suited_block(total: Triple, threads: int = SUITED[0]) -> Triple:
    """Return a size of thread groups for so many threads in all: groups of ``threads``, a multiple of 64."""
    _, y, z = total
    if z > 1:
        return 8, 8, threads // 64
    return (32, threads // 32, 1) if y > 1 else (threads, 1, 1)


def groups_for(total: Triple, block: Triple) -> Triple:
    """Return the number of groups in x, y and z that have at least so many threads."""
    x, y, z = (-(-n // size) for n, size in zip(total, block, strict=True))
    return x, y, z

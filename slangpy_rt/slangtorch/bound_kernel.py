"""BoundKernel: a kernel of a slang-torch module with its arguments, to be launched."""

from __future__ import annotations

import warnings
from typing import Any

from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.interop.torch_memory import current_stream
from slangpy_rt.runtime.foreign_stream import foreign_stream
from slangpy_rt.slangtorch.errors import LaunchError
from slangpy_rt.slangtorch.kernel_code import KernelCode
from slangpy_rt.slangtorch.places import Copies, check_places, device_of

_MAX_THREADS = 1024
_MAX_DEPTH = 64
_MAX_GRID = 2**31 - 1
_MAX_RANGE = 2**62
Triple = tuple[int, int, int]


class BoundKernel:
    """A kernel with its arguments. A launch runs it; further launches run it again on the same tensors.

    Parameters
    ----------
    code : KernelCode
        The kernel.
    device : Device or None
        Where it runs; None for the device that works where the tensors lie.
    block : list
        The numbers of its argument block.
    tensors : list of (int, torch.Tensor)
        The places in the block for addresses, and whose they are.
    """

    def __init__(
        self, code: KernelCode, device: Device | None, block: list[Any], tensors: list[tuple[int, Any]]
    ) -> None:
        self._launched = False
        self._code, self._block, self._tensors = code, block, tensors
        self._device = device or device_of(str(code), tensors)
        self._straight = check_places(str(code), self._device, tensors)
        self._layouts: list[Any] = []

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
        threads = block[0] * block[1] * block[2]
        if threads > _MAX_THREADS or block[2] > _MAX_DEPTH:
            raise LaunchError(
                f"{self._code}: blockSize {block} has {threads} threads; at most {_MAX_THREADS}, {_MAX_DEPTH} in z."
            )
        device = self._device
        if 0 in grid:
            return
        ranged = device.backend.target.entry == "range"
        limits = device.caps.max_groups if not ranged else (_MAX_GRID,) * 3
        if any(n > most for n, most in zip(grid, limits, strict=True)):
            raise LaunchError(f"{self._code}: gridSize {grid}; {device!r} runs at most {limits}.")
        if ranged and grid[0] * grid[1] * grid[2] * threads > _MAX_RANGE:
            raise LaunchError(f"{self._code}: gridSize {grid} of blockSize {block} is more than 2^62 threads.")
        device.check_open()
        self._check_layouts()
        kernel, pack = self._code.load(device, block, 0 if self._straight else 1)
        values = self._block
        # Slang's ranges have no groups: each thread finds out where it is.
        head = (*grid, *block) if ranged else ()
        groups = (grid[0] * grid[1] * grid[2] * threads, 1, 1) if ranged else grid
        if not self._straight:
            # Another thread may launch it too, with copies of its own.
            values = list(values)
            copies = Copies(device, self._tensors, values)
            device.launch(kernel, groups, pack.pack(*head, *values), (copies.buffer,))
            copies.bring_back()
            return
        stream = None
        for place, tensor in self._tensors:
            values[place] = tensor.data_ptr()
            stream = tensor
        launch = device.launch
        if stream is not None and stream.is_cuda:
            launch = foreign_stream(device, current_stream(stream.device.index)(stream)).direct
        launch(kernel, groups, pack.pack(*head, *values), ())

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
        # False too where the constructor has refused the tensors.
        if getattr(self, "_straight", None) is not None and not self._launched:
            warnings.warn(
                f"{self._code}: it was called and never launched; call .launchRaw(blockSize=..., gridSize=...) of "
                "what it returns.",
                RuntimeWarning,
                stacklevel=2,
            )

    def _check_layouts(self) -> None:
        """Refuse tensors that have been resized since the kernel was called: the argument block has their sizes."""
        layouts = [(tensor.shape, tensor.stride()) for _, tensor in self._tensors]
        if layouts != (self._layouts or layouts):
            raise LaunchError(f"{self._code}: a tensor was resized since the last launch; call the kernel again.")
        self._layouts = layouts

    def _checked(self, name: str, value: Any, least: int) -> Triple:
        if (
            not isinstance(value, tuple)
            or len(value) != 3
            or not all(type(n) is int and least <= n <= _MAX_GRID for n in value)
        ):
            raise ValueError(
                f"{self._code}: {name} is {in_words(value)}; a tuple of three ints of at least {least} was expected."
            )
        return value

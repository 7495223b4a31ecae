"""The log of a host function: its allocations, fills and launches as values, and their replay with PyTorch."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slangtorch.devices import Devices, Place
from slangpy_rt.slangtorch.errors import LaunchError, TensorError
from slangpy_rt.slangtorch.host_text import ALLOC, ELSEWHERE, FILL, HANDLE_AT, LAUNCH, RESULT, SYNC, TOO_MANY
from slangpy_rt.slangtorch.kernel_code import MAX_GRID, KernelCode, Triple
from slangpy_rt.slangtorch.parameter import Parameter
from slangpy_rt.slangtorch.tensor_view import LONGEST

# By the numbers of _spy_element in shaders/torch_host.slang.
_DTYPES = (
    None, torch.float32, torch.float64, torch.float16, torch.int32, getattr(torch, "uint32", None), torch.int64,
    getattr(torch, "uint64", None), torch.int8, torch.uint8, torch.int16, getattr(torch, "uint16", None), torch.bool,
)  # fmt: skip
_RANK = 5


class Alloc(NamedTuple):
    """A tensor is allocated; ``alike`` says that it has the sizes of the first argument, which is contiguous."""

    handle: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    alike: bool


class Fill(NamedTuple):
    """A tensor is filled with a number, or each of its rows with the parts of a vector."""

    handle: int
    values: tuple[float, ...]


class Launch(NamedTuple):
    """A kernel is launched; ``places`` are the indices of addresses among its values, ``handles`` their tensors."""

    code: KernelCode
    grid: Triple
    block: Triple
    values: tuple[Any, ...]
    places: tuple[int, ...]
    handles: tuple[int, ...]


class Sync(NamedTuple):
    """The host waits for the device."""


class Log(NamedTuple):
    """The steps of one call of a host function, and its result as values of ``Parameter.codes``."""

    steps: tuple[Alloc | Fill | Launch | Sync, ...]
    result: tuple[Any, ...]


def read_log(
    where: str,
    words: bytes,
    kernels: Sequence[KernelCode],
    result: Parameter | None,
    first: torch.Tensor | None,
) -> Log:
    """Return the Log from the words that a host function has written.

    Parameters
    ----------
    where : str
        The function's name.
    words : bytes
        The log.
    kernels, result
        The kernels that it may launch, and the parameter of its result.
    first : torch.Tensor or None
        The first tensor among the arguments.

    Raises
    ------
    UnsupportedError
        If it would have launched a kernel that is not the module's own.
    TensorError
        If it would have allocated a tensor of more than five dimensions, or of rows of more than 4 GiB.
    """
    steps: list[Alloc | Fill | Launch | Sync] = []
    at = 4
    returned: tuple[Any, ...] = ()

    def take(form: str) -> tuple[Any, ...]:
        nonlocal at
        found = struct.unpack_from(f"<{form}", words, at)
        at += struct.calcsize(f"<{form}")
        return found

    while at < len(words):
        (operation,) = take("I")
        if operation == ALLOC:
            handle, kind, rank, *sizes = take(f"3I{_RANK}I")
            dtype = _DTYPES[kind]
            assert dtype is not None
            shape = tuple(sizes[:rank])
            _check_strides(where, dtype, shape)
            alike = first is not None and first.is_contiguous() and tuple(first.shape) == shape
            steps.append(Alloc(handle, dtype, shape, alike))
        elif operation == FILL:
            handle, parts, kind = take("3I")
            steps.append(Fill(handle, take(f"{parts}{'dqQ'[kind]}")))
        elif operation == SYNC:
            steps.append(Sync())
        elif operation == ELSEWHERE:
            raise UnsupportedError(
                f"{where}: it calls a function of an imported file that has a __dispatch_kernel; move that function "
                "into the module's own file."
            )
        elif operation == TOO_MANY:
            raise TensorError(f"{where}: it allocates a tensor of vectors with five sizes; it may have four.")
        elif operation == RESULT:
            assert result is not None
            returned = take("".join(result.codes))
        else:
            code = kernels[operation - LAUNCH]
            grid, block = take("3I"), take("3I")
            values: list[Any] = []
            addresses: list[int] = []
            for _, parameter in code.params:
                addresses += [len(values) + place for place in parameter.addresses]
                values += take("".join(parameter.codes))
            _check_sizes(where, code, block, grid)
            places = tuple(place for place in addresses if values[place])
            handles = tuple(values[place] >> HANDLE_AT for place in places)
            if any(values[place] != handle << HANDLE_AT for place, handle in zip(places, handles, strict=True)):
                raise UnsupportedError(
                    f"{where}: it launches {code} with a pointer that is not the beginning of a tensor; add to it in "
                    "the kernel."
                )
            if 0 not in grid:
                steps.append(Launch(code, grid, block, tuple(values), places, handles))
    return Log(tuple(steps), returned)


def replay(
    log: Log, place: Place | None, devices: Devices, given: Sequence[torch.Tensor], tensors: dict[int, torch.Tensor]
) -> None:
    """Run the steps of a log.

    Parameters
    ----------
    place : Place or None
        The place of the kernels: all tensors lie on one device. None if the arguments have no tensors.
    devices : Devices
        The devices of the module.
    given : sequence of torch.Tensor
        The tensors among the arguments.
    tensors : dict
        The arguments' tensors by handle; receives those that are allocated.

    Raises
    ------
    LaunchError
        If a launch is more than the device runs.
    """
    for step in log.steps:
        if isinstance(step, Launch):
            code, grid, block, values, places, handles = step
            taken = [tensors[handle] for handle in handles]
            place = place or devices.place(code.name, taken)
            code.launch(place, block, grid, list(values), taken, places)
        elif isinstance(step, Alloc):
            handle, dtype, shape, alike = step
            like = tensors.get(1)
            # In host memory ``empty`` with dtype and device takes 1.3 us, ``new_empty`` 1.1, ``empty_like`` 0.8.
            if like is None or like.dtype is not dtype:
                tensors[handle] = torch.empty(shape, dtype=dtype, device=devices.home(given))
            else:
                tensors[handle] = torch.empty_like(like) if alike else like.new_empty(shape)
        elif isinstance(step, Fill):
            filled = tensors[step.handle].detach()
            if len(step.values) == 1:
                filled.fill_(step.values[0])
            else:
                filled.copy_(torch.tensor(step.values, dtype=filled.dtype))
        elif devices.home(given).type == "cuda":
            torch.cuda.current_stream(devices.home(given)).synchronize()


def _check_sizes(where: str, code: KernelCode, block: Triple, grid: Triple) -> None:
    """Refuse sizes that no device runs."""
    if 0 in block or max(*block, *grid) > MAX_GRID:
        raise LaunchError(
            f"{where}: it launches {code} with blockSize {block} and gridSize {grid}; a block has at least one "
            f"thread, and each size is at most {MAX_GRID}."
        )


def _check_strides(where: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Refuse a tensor with strides that a TensorView does not hold."""
    step = dtype.itemsize
    for n in reversed(shape):
        if n > 1 and step > LONGEST and 0 not in shape:
            raise TensorError(
                f"{where}: it allocates a tensor of {' x '.join(map(str, shape))} {dtype}, whose rows are over "
                "4 GiB; a TensorView does not hold such strides."
            )
        step *= n

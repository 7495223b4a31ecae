"""PyTorch's tensors as memory: their signatures, the device they lie on, and new ones for results."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd import forward_ad

from slangpy_rt.arrays.dlpack import CUDA
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.extras import ExportsMemory
from slangpy_rt.core.conversion import is_lazy
from slangpy_rt.core.errors import BindError, OutOfMemoryError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.own_node import transforms_active
from slangpy_rt.interop.torch_types import check_plain, dtype_of, element_of, tensor_in_words

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

# Results of this size or more come from the device's pool: 2^22 floats take 3.7 ms so, 6.7 with fresh pages.
_POOLED_BYTES = 1 << 20
# For results of at most this size a tensor of their kind is kept: ``empty_like`` takes 0.8 us, ``empty`` with a dtype
# and a device 1.6.
_KEPT_BYTES = 1 << 16
# Slang functions are batched without them, and have a backward pass alone.
NO_TRANSFORMS = (
    "transforms of torch.func (vmap, grad, jvp) and forward-mode differentiation do not see what a Slang function "
    "computes. Give it the whole batch, of which each element is a call, and take gradients by tensor.backward()."
)


def signature(value: torch.Tensor) -> tuple[Any, ...]:
    """Return the signature of a tensor; it makes no NumPy array of the tensor, which would take 2 us."""
    # A signature of its own, with which no call is prepared: ``refuse_transforms``.
    autograd: Any = "transformed" if transformed(value) else value.requires_grad and torch.is_grad_enabled()
    try:
        shape: Any = value.shape
        # For dense tensors the shape decides the strides, and a bool is hashed faster than a tuple.
        strides: Any = value.is_contiguous() or value.stride()
        # Kernels read several elements at once where they lie at multiples of 32 bytes.
        address = value.data_ptr()
        place = value.is_cuda and address % 32
    except RuntimeError:  # a sparse or nested one, or one without memory of its own
        shape, strides, place = None if value.is_nested else value.shape, value.layout, 0
    lazy = value.is_neg() or value._is_zerotensor()
    return value.dtype, shape, strides, value.device, lazy, autograd, place


def on_host(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's host memory as a NumPy array.

    Raises
    ------
    BindError
        If NumPy cannot use its memory, or autograd would lose track of it.
    """
    refuse_autograd(value)
    if value.is_nested:
        raise BindError(f"{tensor_in_words(value)}; call the function with each of its tensors.")
    if is_lazy(value):
        raise BindError(
            f"{tensor_in_words(value)}, whose memory does not hold its values; pass "
            "tensor.resolve_conj().resolve_neg(), or tensor.clone() of zeros."
        )
    try:
        if value.dtype == torch.bfloat16:
            return _of_bfloat16(value.detach())
        return value.detach().numpy()
    except (TypeError, RuntimeError) as error:
        raise BindError(f"{tensor_in_words(value)}, whose memory cannot be used ({error}).") from None


def transformed(value: torch.Tensor) -> bool:
    """Tell whether a transform of ``torch.func``, or forward-mode differentiation, follows a tensor."""
    # A tensor of a transform that has ended is one as any other.
    if transforms_active() and _wrapped(value):
        return True
    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(value).tangent is not None  # type: ignore[no-untyped-call]


def refuse_transforms(where: str, values: tuple[Any, ...]) -> None:
    """Refuse tensors that a transform follows: a kernel would compute with their memory, and it would not know.

    Parameters
    ----------
    where : str
        The function's name, for the message.
    values : tuple
        Arguments, tensors among them.

    Raises
    ------
    BindError
        If there are such tensors.
    """
    if any(isinstance(value, torch.Tensor) and transformed(value) for value in values):
        raise BindError(f"{where}: {NO_TRANSFORMS}")


def refuse_autograd(value: torch.Tensor) -> None:
    """Refuse a tensor of which autograd would lose track.

    Raises
    ------
    BindError
        If it requires a gradient while gradients are recorded, or a transform follows it.
    """
    if transformed(value):
        raise BindError(f"{tensor_in_words(value)}; {NO_TRANSFORMS}")
    if value.requires_grad and torch.is_grad_enabled():
        raise BindError(
            f"{tensor_in_words(value)} that requires a gradient, which only arguments of a function's plain call "
            "may; pass tensor.detach() here."
        )


def _of_bfloat16(value: torch.Tensor) -> np.ndarray[Any, Any]:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        raise BindError(
            f"{tensor_in_words(value)}, which NumPy knows with the package ml_dtypes alone; install that, or pass "
            "tensor.float()."
        ) from None
    return value.view(torch.uint16).numpy().view(bfloat16)


def lies_on(device: DeviceCore, value: torch.Tensor) -> bool:
    """Tell whether a device works in a tensor's own memory."""
    if value.is_cuda:
        return device.caps.dlpack_device == CUDA and device.index == value.device.index
    return value.device.type == "cpu" and "zero_copy" in device.caps.features


def placed(device: DeviceCore, value: torch.Tensor) -> Tensor:
    """Return a tensor on a GPU as a Tensor of a device: in its own memory, or on Vulkan a copy.

    Raises
    ------
    BindError
        As ``in_place`` and ``bridge_of`` do.
    """
    if not isinstance(device.backend, ExportsMemory):
        return in_place(device, value)
    from slangpy_rt.interop.bridge import bridge_of

    copied: Tensor = bridge_of(device, value).send(value.detach())
    return copied


def in_place(device: DeviceCore, value: torch.Tensor) -> Tensor:
    """Return a tensor's memory as a Tensor of a device that works there; the Tensor does not keep the memory alive.

    Raises
    ------
    BindError
        If it lies elsewhere, or Slang has no such element type.
    """
    if not lies_on(device, value):
        raise BindError(f"{tensor_in_words(value)}; {device!r} does not work there. Move it with tensor.to(...).")
    check_plain(value)
    address = address_of(value)
    layout = layout_of(device, Tensor, element_of(value), tuple(value.shape), value.stride(), address % 32 == 0)
    return Tensor.of(layout, device.placeholder, address)


def address_of(value: torch.Tensor) -> int:
    """Return the address of a tensor's memory.

    Raises
    ------
    BindError
        If it has none of its own, as in the backward passes of a whole batch.
    """
    try:
        return value.data_ptr()
    except RuntimeError as error:
        words = f"{tensor_in_words(value)}, which has no memory of its own ({error})"
        raise BindError(f"{words}; {NO_TRANSFORMS}") from None


@functools.cache
def current_stream(index: int) -> Callable[[Any], int]:
    """Return a function that finds PyTorch's current stream on a GPU; it ignores its argument."""
    # 0.1 us; torch.cuda.current_stream takes 2.
    found = torch._C._cuda_getCurrentRawStream
    return lambda value: found(index)


def alike(values: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """Return ``_tensor_guard`` of tensors, or None if one requires a gradient: the check ignores ``no_grad``."""
    same = None if any(v.requires_grad for v in values) else _tensor_guard(values)
    if same is None:
        return None
    # The check does not see tangents.
    return lambda *values: forward_ad._current_level < 0 and same(*values)


def same_as(values: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """Return a function that tells whether tensors are like these, or None if there is no such function.

    It compares types, shapes, strides, devices and whether gradients are required, but no addresses.
    """
    same = _tensor_guard(values)
    if same is None:
        return None

    def check(*values: Any) -> bool:
        try:
            for value in values:
                if value.is_nested or value.layout is not torch.strided:
                    return False
        except AttributeError:  # not a tensor
            return False
        return same(*values)

    return check


def _tensor_guard(values: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """Return the check that compiled models make before each call (``torch._C._dynamo.guards``), None without one.

    Some versions of torch lack it, and it fails whenever one tensor is given twice. It reads the strides of each
    tensor: nested and sparse ones, which have none, end the process in it, and must not be passed.
    """
    if len(set(map(id, values))) < len(values) or any(v.is_nested or v.layout is not torch.strided for v in values):
        return None
    # Three tensors: 0.2 us, 1.6 for their signatures.
    try:
        guards: Any = importlib.import_module("torch._C._dynamo.guards")
        shapes, strides = [list(v.shape) for v in values], [list(v.stride()) for v in values]
        same = guards.TensorGuards(*values, dynamic_dims_sizes=shapes, dynamic_dims_strides=strides)
        found: Callable[..., bool] = same.check
        return found if found(*values) else None
    except (ImportError, AttributeError, TypeError, RuntimeError):
        return None


def same_places(values: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """Return what ``same_as`` returns; on a GPU the function also tells whether addresses are multiples of 32."""
    same = same_as(values)
    if same is None or not any(v.is_cuda for v in values):
        return same
    if any(v.data_ptr() & 31 for v in values):
        return None
    return lambda *values: same(*values) and not any(v.data_ptr() & 31 for v in values)


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """Return a NumPy array's memory as a tensor."""
    found: torch.Tensor = torch.from_numpy(array)
    return found


def empty_tensor(shape: Any, dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Return a new tensor with unset contents, on PyTorch's default device, or else on the GPU where there is one.

    Raises
    ------
    BindError
        If PyTorch refuses the shape or the device.
    """
    sizes = as_shape("empty", shape)
    try:
        if device is None:
            default = torch.empty(0).device
            device = "cuda" if default.type == "cpu" and torch.cuda.is_available() else default
        return torch.empty(sizes, dtype=dtype, device=device)
    except torch.OutOfMemoryError as error:
        raise OutOfMemoryError(f"empty: {error}") from None
    except (TypeError, RuntimeError) as error:
        raise BindError(f"empty: PyTorch makes no tensor of shape {sizes} on {in_words(device)} ({error}).") from None


def maker(
    device: DeviceCore, shape: tuple[int, ...], dtype: np.dtype[Any], there: bool
) -> Callable[[], torch.Tensor]:
    """Return a function that makes tensors for a result: if ``there``, on the device's GPU, else in host memory.

    Raises
    ------
    UnsupportedError
        If torch has no such element type.
    """
    # Once, here: it takes 10 us, because NumPy composes the dtype's name each time.
    kind = dtype_of(dtype)
    if there:
        from slangpy_rt.interop.bridge import bridge_on

        index = device.index if device.caps.dlpack_device == CUDA else bridge_on(device).index
        return partial(torch.empty, shape, dtype=kind, device=torch.device("cuda", index))
    nbytes = prod(shape) * dtype.itemsize
    if nbytes < _POOLED_BYTES:
        # Not PyTorch's default, which may be a GPU.
        make = partial(torch.empty, shape, dtype=kind, device=torch.device("cpu"))
        return partial(torch.empty_like, make()) if nbytes <= _KEPT_BYTES else make
    return lambda: tensor_of(device.host_array(shape, dtype))


def _never(value: Any) -> bool:
    return False


_wrapped: Callable[[Any], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", _never
)

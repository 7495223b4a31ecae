"""RasterCall: a picture of triangles whose arguments are tensors of PyTorch, as a part of its graph."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.arguments.kept import copied
from slangpy_rt.arrays.carried import carrying, carrying_layout
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.interop.graph import Apply
from slangpy_rt.interop.placement import as_tensor, check_places
from slangpy_rt.interop.torch_memory import current_stream, lies_on, maker, tensor_of
from slangpy_rt.interop.torch_types import check_plain, tensor_in_words
from slangpy_rt.runtime.foreign_stream import foreign_stream

if TYPE_CHECKING:
    from slangpy_rt.core.types import SlangType
    from slangpy_rt.graphics.raster import Raster
    from slangpy_rt.graphics.step import Task


class RasterCall:
    """A picture whose arguments are tensors; gradients are those of the Raster's ``bwds``.

    Tensors are used in place if the device works in their memory; for other devices they are copied. On a CUDA device
    the steps run on PyTorch's current stream.

    Parameters
    ----------
    raster : Raster
        Draws the picture.
    faces : Any
        The triangles.
    names : tuple of str
        The names of the arguments.
    model : torch.Tensor
        The picture, and gradients, lie where it does.
    given : torch.Tensor, optional
        The tensor that ``faces`` lie in.

    Attributes
    ----------
    also : tuple of (str, Any)
        Names and values of what the backward pass reads besides the arguments.
    """

    # Of the arguments none is an output, and some may be no tensors.
    outs = ()
    plain = False

    def __init__(
        self,
        raster: Raster | Task,
        faces: Any,
        names: tuple[str, ...],
        model: torch.Tensor,
        given: torch.Tensor | None = None,
    ) -> None:
        self._raster, self._faces, self._names = raster, faces, names
        self.labels = names
        self.also = (*raster.uniforms, ("_faces", faces if given is None else given))
        self._device = raster.device
        self._on_gpu = model.is_cuda
        self._in_place = lies_on(self._device, model)
        self._index = model.device.index

    @property
    def where(self) -> str:
        """The picture's functions, for messages."""
        return self._raster.where

    def forward(self, stream: Any, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> torch.Tensor:
        """Draw the picture."""
        made: list[torch.Tensor] = []

        def allocate(shape: tuple[int, ...], color: str) -> Tensor:
            array, memory = self._made(shape, color)
            made.append(memory)
            return array

        # A NumPy array of triangles may be changed before the backward pass.
        faces, self._faces = self._faces, copied(self._faces)
        arrays = [self._array(k, v) if isinstance(v, torch.Tensor) else v for k, v in enumerate(values)]
        picture = self._raster.run(self._runner(), faces, self._named(arrays), allocate)
        assert picture is not None
        return made[0] if self._in_place else self._brought(picture)

    def backward(
        self,
        stream: Any,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
        wanted: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """Return the gradients of the values at the indices in ``wanted``."""
        (grad,) = grads
        grad = grad.contiguous()
        arrays, found = list(values), []
        for k, value in enumerate(values):
            if not isinstance(value, torch.Tensor):
                continue
            plain = self._array(k, value)
            if k in wanted:
                gradient, memory = self._made(plain.shape, plain.dtype.name)
                # The memory's own way to zeros, which runs on its stream.
                memory.zero_() if self._in_place else gradient.clear()
                found.append((gradient, memory))
                layout = carrying_layout(plain, None, gradient)
                arrays[k] = carrying(layout, plain.buffer, plain.address, None, gradient)
            else:
                arrays[k] = plain

        def seed(shape: tuple[int, ...], color: str) -> Tensor:
            if self._in_place:
                return self._seen(grad, shape, color)
            flat = as_tensor(self._device, grad)
            return Tensor.of(layout_of(self._device, Tensor, _element(color), shape), flat.buffer, flat.address)

        self._raster.bwds.run(self._runner(), self._faces, self._named(arrays), seed)
        return [memory if self._in_place else self._brought(gradient) for gradient, memory in found]

    def _array(self, k: int, value: torch.Tensor) -> Tensor:
        """Return the ``k``-th argument, a tensor, as a Tensor."""
        return as_tensor(self._device, value)

    def _named(self, arrays: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names, arrays, strict=True))

    def _runner(self) -> Runner:
        if not (self._on_gpu and self._in_place):
            return Runner()
        handle = current_stream(self._index)(None)
        return Runner(stream=foreign_stream(self._device, handle).stream())

    def _made(self, shape: tuple[int, ...], element: str) -> tuple[Tensor, Any]:
        """Make memory for an array; return it as the device has it, and as a tensor if the device works in that."""
        if not self._in_place:
            return Tensor.empty(self._device, shape, element), None
        layout = layout_of(self._device, Tensor, _element(element), shape)
        memory = maker(self._device, layout.full_shape, layout.numpy_dtype, self._on_gpu)()
        return self._seen(memory, shape, element), memory

    def _seen(self, memory: torch.Tensor, shape: tuple[int, ...], element: str) -> Tensor:
        device, address = self._device, memory.data_ptr()
        layout = layout_of(device, Tensor, _element(element), shape, None, address % 32 == 0)
        assert prod(layout.full_shape) == memory.numel(), (shape, element, memory.shape)
        return Tensor.of(layout, device.placeholder, address)

    def _brought(self, array: Tensor) -> torch.Tensor:
        """Copy an array from the device to the memory that the call's tensors are in."""
        if not self._on_gpu:
            return tensor_of(array.to_numpy())
        out: torch.Tensor = maker(self._device, array.layout.full_shape, array.layout.numpy_dtype, True)()
        from slangpy_rt.interop.bridge import bridge_on

        bridge_on(self._device).fetch(array, out)
        return out


def draw(raster: Raster, faces: Any, named: dict[str, Any]) -> Any:
    """Draw a picture whose arguments are tensors of PyTorch.

    Raises
    ------
    BindError
        If arguments do not fit.
    """
    tensors = {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}
    check_places(repr(raster), tuple(tensors.values()))
    model = next(iter(tensors.values()))
    given = faces if isinstance(faces, torch.Tensor) else None
    if given is not None:
        where = raster.where
        if given.is_cuda and given.dtype != torch.int32:
            # A copy, which would not follow what the tensor comes to hold.
            faces = as_faces(where, raster.device, "_faces", given)
        else:
            faces = raster.faces_of(given, lambda: as_faces(where, raster.device, "_faces", given))
    call = RasterCall(raster, faces, tuple(named), model, given)
    if torch.is_grad_enabled() and any(value.requires_grad for value in tensors.values()):
        raster.check_differentiable(name for name, value in tensors.items() if value.requires_grad)
        return Apply.apply(call, None, (), *named.values())  # type: ignore[no-untyped-call]
    return call.forward(None, tuple(named.values()), ())


def as_faces(where: str, device: Any, name: str, faces: torch.Tensor) -> Any:
    """Return a tensor of triangles as an array that pictures draw: of NumPy's, or of int on a GPU.

    Raises
    ------
    BindError
        If its numbers are no integers.
    """
    if faces.is_floating_point() or faces.is_complex() or faces.dtype == torch.bool:
        raise BindError(f"{where}: {name} is {tensor_in_words(faces)}; integers were expected.")
    check_plain(faces)
    return as_tensor(device, faces.int()) if faces.is_cuda else faces.numpy()


def _element(name: str) -> SlangType:
    return element_type("raster", name)

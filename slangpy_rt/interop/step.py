"""StepCall: a step of drawing whose arguments are tensors of PyTorch, as a part of its graph."""

from __future__ import annotations

from typing import Any

import torch

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.graphics.step import Task, vector
from slangpy_rt.interop.device_of import device_of
from slangpy_rt.interop.graph import Apply
from slangpy_rt.interop.placement import as_tensor, check_places
from slangpy_rt.interop.raster import RasterCall, as_faces
from slangpy_rt.interop.torch_types import tensor_in_words


class StepCall(RasterCall):
    """A step whose arguments are tensors; the last dimension of most of them is the numbers of an element.

    Parameters
    ----------
    task : Task
        The step, on a device.
    faces : Any
        The triangles.
    names : tuple of str
        The names of the arguments.
    model : torch.Tensor
        The first argument: results lie where it does, and have such elements.
    given : torch.Tensor or None
        The tensor that ``faces`` lie in.
    """

    def __init__(
        self,
        task: Task,
        faces: Any,
        names: tuple[str, ...],
        model: torch.Tensor,
        given: torch.Tensor | None,
    ) -> None:
        super().__init__(task, faces, names, model, given)
        self._task = task
        # A Tensor of numbers has no dimension for them.
        self._flat = model.ndim > 0 and model.shape[-1] == 1

    def forward(self, stream: Any, values: tuple[Any, ...], uniforms: tuple[Any, ...]) -> torch.Tensor:
        """Run the step."""
        found = super().forward(stream, _contiguous(values), uniforms)
        return found.unsqueeze(-1) if self._flat else found

    def backward(
        self,
        stream: Any,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
        wanted: tuple[int, ...],
    ) -> list[torch.Tensor]:
        """Return the gradients of the values at the indices in ``wanted``."""
        if self._flat:
            grads = (grads[0].squeeze(-1),)
        found = super().backward(stream, _contiguous(values), uniforms, grads, wanted)
        return [gradient.reshape(values[k].shape) for k, gradient in zip(wanted, found, strict=True)]

    def _array(self, k: int, value: torch.Tensor) -> Tensor:
        task, name = self._task, self._names[k]
        if value.dtype != torch.float32:
            raise BindError(
                f"{task.where}: {name} is {tensor_in_words(value)}; numbers of torch.float32 were expected."
            )
        plain = as_tensor(self._device, value)
        if name in task.step.scalars:
            return plain
        kind = vector(task.where, name, value.shape, task.step.kinds[name])
        aligned = plain.address % 32 == 0
        layout = layout_of(self._device, Tensor, element_type("step", kind), tuple(value.shape[:-1]), None, aligned)
        return Tensor.of(layout, plain.buffer, plain.address)


def step(task: Task, faces: Any, named: dict[str, Any]) -> Any:
    """Call a step of drawing with tensors of PyTorch.

    Raises
    ------
    BindError
        If arguments do not fit.
    """
    tensors = [value for value in named.values() if isinstance(value, torch.Tensor)]
    for name, value in named.items():
        if not isinstance(value, (torch.Tensor, int, float)):
            raise BindError(
                f"{task.where}: {name} is {in_words(value)}, and another argument is a tensor of PyTorch; a tensor "
                "was expected."
            )
        if isinstance(value, torch.Tensor) and value.layout is not torch.strided:
            raise BindError(
                f"{task.where}: {name} is {tensor_in_words(value)}, and sparse; a dense one was expected, as "
                "to_dense() makes it."
            )
    if task.device is None:
        task = task.on(device_of(task.where, tensors))
    given = faces if isinstance(faces, torch.Tensor) else None
    if given is not None:
        check_places(task.where, (tensors[0], faces))
        faces = as_faces(task.where, task.device, "faces", faces)
    call = StepCall(task, faces, tuple(named), tensors[0], given)
    if torch.is_grad_enabled() and any(value.requires_grad for value in tensors):
        return Apply.apply(call, None, (), *named.values())  # type: ignore[no-untyped-call]
    return call.forward(None, tuple(named.values()), ())


def _contiguous(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([v.resolve_neg().contiguous() if isinstance(v, torch.Tensor) else v for v in values])

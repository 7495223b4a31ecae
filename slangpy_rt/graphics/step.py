"""Step: one step of drawing as a function of arrays, with a backward derivative, in command lists and for PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.kept import copied
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.wording import class_in_words, in_words
from slangpy_rt.graphics.drawn import has_gradient
from slangpy_rt.graphics.repeats import Result, repeats_of
from slangpy_rt.graphics.runner import Runner
from slangpy_rt.graphics.triangles import Triangles
from slangpy_rt.graphics.visibility import Kernels, kernels_of
from slangpy_rt.runtime.core import a_device

COLORS = ("float", "float2", "float3", "float4")


class Given(NamedTuple):
    """The arguments of a call, in the form that all steps have in common.

    Attributes
    ----------
    faces : Any
        The triangles, None for a step without any.
    settings : tuple
        What it takes besides arrays.
    named : dict
        The arrays by the names of arguments.
    """

    faces: Any
    settings: tuple[Any, ...]
    named: dict[str, Any]


class Last(NamedTuple):
    """The call that a step ends with: what comes before it has no derivative.

    Attributes
    ----------
    function : Function
        What is called.
    args : tuple
        Its arguments.
    shape : tuple of int
        The shape of the result.
    over : tuple of int
        The same with a dimension of pictures.
    element : str
        The result's element type.
    after : callable, optional
        What is to be done after its derivative.
    """

    function: Any
    args: tuple[Any, ...]
    shape: Shape
    over: Shape
    element: str
    after: Callable[[], None] | None = None


class Step(ABC):
    """A step of drawing, as a function with a backward derivative.

    Attributes
    ----------
    name : str
        Its name.
    kinds : dict of str to tuple of str
        The element types of each array by the argument's name. Arrays of NumPy and PyTorch have the numbers of an
        element as their last dimension, those of ``scalars`` do not.
    scalars : tuple of str
        Arguments whose elements are numbers.
    """

    name: str
    kinds: dict[str, tuple[str, ...]]
    scalars: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<step {self.name} of pictures of triangles>"

    @abstractmethod
    def given(self, *args: Any, **named: Any) -> Given:
        """Return the arguments of a call, as the step takes them."""

    @abstractmethod
    def last(self, runner: Runner, task: Task, named: dict[str, Any]) -> Last:
        """Run what comes before the last call, and return that.

        Parameters
        ----------
        runner : Runner
            How to run it.
        task : Task
            The settings.
        named : dict
            The arrays by the names of arguments, on the task's device.
        """

    def propagate(self, runner: Runner, task: Task, named: dict[str, Any], gradient: Result) -> Tensor:
        """Add the gradients of the result to those of the arguments; return the gradient of the result."""
        last = self.last(runner, task, named)
        given = array_of(task.where, gradient, last)
        carrier = carrying(runner, task.device, last.shape, last.element, given)
        runner.call(last.function.bwds, *last.args, _result=lifted(carrier, last.over))
        if last.after is not None:
            last.after()
        return given

    def append_to(self, commands: CommandList, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Record a call in a command list; it takes the arguments of a call, and returns what the list will write.

        Raises
        ------
        BindError
            If an argument does not fit, or is not on the list's device.
        ShapeError
            If shapes do not fit.
        """
        given = self.given(*args, **named)
        where = f"{self.name}.append_to"
        steps = self._recorder(where, commands, given)
        task = Task(self, where, commands.device, given.faces, given.settings)
        found = self._on_device(Runner(steps), task, given.named, _result)
        commands.append(steps)
        return found

    def call(self, given: Given, result: Any, device: Any) -> Any:
        """Call the step with arrays of one library."""
        faces, settings, named = given
        task = Task(self, self.name, None if device is None else a_device(self.name, device), faces, settings)
        for value in named.values():
            adapter = converter(type(value))
            if isinstance(adapter, Adapter) and adapter.draws:
                if result is not None:
                    raise BindError(
                        f"{self.name}: _result is {in_words(result)}; the result is a new one of the kind of "
                        f"{class_in_words(value)}, so leave _result out."
                    )
                return adapter.step(task, faces, named)
        placed = task.on(self._device(task, named))
        recorder = RECORDER.get()
        if recorder is not None and has_gradient(named):
            if result is not None:
                raise BindError(
                    f"{self.name}: an argument carries a gradient, and a GradTape records new Tensors; leave _result "
                    "out, or pass tensor.detach()."
                )
            taped = Taped(self, copied(faces), settings)
            return recorder.call(taped, (), named, lambda: self._on_device(Runner(), placed, named, None), (faces,))
        return self._on_device(Runner(), placed, named, result)

    @property
    def bwds(self) -> Backward:
        """The function that adds the gradients of a result to those of the arguments, which are Tensors.

        It takes the arguments of a call, and as ``_result`` the result with its gradient.
        """
        return Backward(self)

    def backward(self, commands: Any, given: Given, result: Any) -> None:
        """Call the derivative of the step with Tensors, or record the call."""
        faces, settings, named = given
        task = Task(self, f"{self.name}.bwds", None, faces, settings)
        steps = None
        if commands is not None:
            steps = self._recorder(f"{task.where}.append_to", commands, given)
        if not (isinstance(result, Tensor) and result.grad_in is not None):
            raise BindError(
                f"{task.where}: _result is {in_words(result)}; a result with a gradient, as with_grads() makes it, "
                "was expected."
            )
        if not has_gradient(named):
            raise BindError(f"{task.where}: no argument has a gradient to add to; with_grads() makes one.")
        task = task.on(commands.device if commands is not None else self._device(task, named))
        self.repeat(Runner(steps), task.bwds, self._arrays(task, named), result.grad_in)
        if commands is not None:
            commands.append(steps)

    def repeat(self, runner: Runner, task: Task, named: dict[str, Any], result: Result) -> Tensor:
        """Run the step on arrays of a device, or its derivative: by an earlier call's plan where there is one."""
        steps = self.propagate if task.derivative else self.run

        def run(runner: Runner, result: Result) -> Tensor:
            return steps(runner, task, named, result)

        if runner.commands is not None:
            return run(runner, result)
        arrays = (*named.values(), *(() if task.faces is None else (task.faces,)))
        key = self.name, task.derivative, task.settings, *named
        return repeats_of(task.device).run(run, runner, task.device, key, arrays, result)

    def run(self, runner: Runner, task: Task, named: dict[str, Any], result: Result) -> Tensor:
        """Run the step on arrays of a device; ``result`` is the array to write to, or makes it."""
        last = self.last(runner, task, named)
        made = array_of(task.where, result, last)
        runner.call(last.function, *last.args, _result=lifted(made, last.over))
        return made

    def _recorder(self, where: str, commands: Any, given: Given) -> CommandList:
        """Return a list of its own, so that nothing is recorded if an argument does not fit."""
        if not isinstance(commands, CommandList):
            raise BindError(f"{where}: commands is {in_words(commands)}; a CommandList was expected.")
        for name, value in (*given.named.items(), ("faces", given.faces)):
            if value is not None and not isinstance(value, (NDBuffer, float, int)) and not _stands(value):
                raise BindError(f"{where}: {name} is {in_words(value)}; a Tensor on the list's device was expected.")
        return CommandList(commands.device)

    def _on_device(self, runner: Runner, task: Task, named: dict[str, Any], result: Any) -> Tensor:
        if result is not None and not isinstance(result, Tensor):
            raise BindError(f"{task.where}: _result is {in_words(result)}; a Tensor was expected.")
        arrays = self._arrays(task, named)
        if result is not None:
            return self.repeat(runner, task, arrays, result)
        return self.repeat(runner, task, arrays, lambda shape, element: Tensor.empty(task.device, shape, element))

    def _device(self, task: Task, named: dict[str, Any]) -> Any:
        if task.device is not None:
            return task.device
        for value in (*named.values(), task.faces):
            array = getattr(value, "texels", value)
            if isinstance(array, NDBuffer):
                return array.device
        raise BindError(
            f"{task.where}: its arguments are no arrays of a device; give it device=, or a Tensor as one of them."
        )

    def _arrays(self, task: Task, named: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments as Tensors of the device."""
        return {name: self._array(task, name, value) for name, value in named.items()}

    def _array(self, task: Task, name: str, value: Any) -> Any:
        kinds = self.kinds[name]
        if _stands(value):
            return value
        if name in self.scalars and isinstance(value, (int, float)):
            return value
        if isinstance(value, NDBuffer):
            if value.device is not task.device:
                raise BindError(
                    f"{task.where}: {name} is {in_words(value)} of {value.device!r}; the call is on {task.device!r}."
                )
            if not isinstance(value, Tensor) or value.dtype.name not in kinds:
                raise BindError(
                    f"{task.where}: {name} is {in_words(value)}; a Tensor of {_listed(kinds)} was expected."
                )
            return value
        array = np.asarray(value) if isinstance(value, (list, tuple, np.ndarray)) else None
        if array is None or array.dtype.kind not in "fiu":
            raise BindError(f"{task.where}: {name} is {in_words(value)}; a Tensor of {_listed(kinds)} was expected.")
        array = array.astype(np.float32, copy=False)
        if name in self.scalars:
            return Tensor.from_numpy(task.device, array)
        kind = vector(task.where, name, array.shape, kinds)
        if kind == "float":
            array = array[..., 0]
        return Tensor.from_numpy(task.device, np.ascontiguousarray(array), kind)


class Backward:
    """The derivative of a step, as a function; ``Step.bwds`` makes it."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def __call__(self, *args: Any, _result: Any = None, **named: Any) -> None:
        """Add the gradients of a result to those of the arguments.

        Parameters
        ----------
        *args, **named
            The arguments of a call. Gradients of those that have some, ``tensor.with_grads()``, are added to.
        _result : Tensor
            The result, with the gradient to propagate back.

        Raises
        ------
        BindError
            If an argument does not fit, or none has a gradient.
        ShapeError
            If shapes do not fit.
        """
        self._step.backward(None, self._step.given(*args, **named), _result)

    def append_to(self, commands: CommandList, /, *args: Any, _result: Any = None, **named: Any) -> None:
        """Record a call in a command list; the arguments are Tensors on its device."""
        if commands is None:
            raise BindError(f"{self._step.name}.bwds.append_to: commands is None; a CommandList was expected.")
        self._step.backward(commands, self._step.given(*args, **named), _result)

    def __repr__(self) -> str:
        return f"<gradients of {self._step.name}>"


class Taped:
    """A call of a step, as a GradTape differentiates it."""

    def __init__(self, step: Step, faces: Any, settings: tuple[Any, ...]) -> None:
        self._step, self._faces, self._settings = step, faces, settings

    def bwds(self, *, _result: Any, **named: Any) -> None:
        """Add the gradients of the result to those of the arguments."""
        self._step.backward(None, Given(self._faces, self._settings, named), _result)


class Task:
    """A call of a step: on which device, and with which settings. Only the library makes one.

    Parameters
    ----------
    step : Step
        The step.
    where : str
        Its name, for messages.
    device : Device or None
        Where it runs; None if nobody has said so yet.
    faces : Any
        The triangles.
    settings : tuple
        What a step takes besides arrays.
    derivative : bool
        Whether the derivative is called.
    """

    def __init__(
        self, step: Step, where: str, device: Any, faces: Any, settings: tuple[Any, ...], derivative: bool = False
    ) -> None:
        self.step, self.where, self.device, self.faces, self.settings = step, where, device, faces, settings
        self.derivative = derivative

    # A step has no uniforms.
    uniforms = ()

    def __repr__(self) -> str:
        return self.where

    @property
    def bwds(self) -> Task:
        """The same call of the derivative."""
        return Task(self.step, self.where, self.device, self.faces, self.settings, True)

    @property
    def kernels(self) -> Kernels:
        """The kernels of the device."""
        return kernels_of(self.device)

    def on(self, device: Any) -> Task:
        """Return the same call on a device."""
        return Task(self.step, self.where, device, self.faces, self.settings, self.derivative)

    def run(self, runner: Runner, faces: Any, named: dict[str, Any], result: Any) -> Any:
        """Run the call with arrays of its device, or its derivative, where ``result`` is the gradient."""
        task = Task(self.step, self.where, self.device, faces, self.settings, self.derivative)
        found = self.step.repeat(runner, task, named, result)
        return None if self.derivative else found

    def triangles(self, corners: int | None = None) -> Triangles:
        """Return the triangles; those of a NumPy array are looked at.

        Raises
        ------
        BindError
            If they are none, or name corners that there are not.
        """
        if self.faces is None:
            raise BindError(f"{self.where}: faces is None; it has the three corners of each triangle.")
        found = self.kernels.triangles_of(self.where, self.faces)
        if found.is_copy and corners is not None:
            found.check(self.where, corners)
        return found


def vector(where: str, name: str, shape: Iterable[int], kinds: tuple[str, ...]) -> str:
    """Return the element type of an array whose last dimension is the numbers of an element.

    Raises
    ------
    ShapeError
        If there is none.
    """
    shape = tuple(shape)
    kind = {1: "float", 2: "float2", 3: "float3", 4: "float4"}.get(shape[-1] if shape else 0, "")
    if kind not in kinds:
        counts = " or ".join(k[5:] or "1" for k in kinds)
        raise ShapeError(f"{where}: {name} has shape {shape}; a last dimension of {counts} was expected.")
    return kind


def pictures(where: str, name: str, array: Any, dims: int, what: str) -> tuple[int, ...]:
    """Return the dimensions of an array in front of the last ``dims``: none, or that of pictures.

    Raises
    ------
    ShapeError
        If there are others.
    """
    shape: Shape = array.shape
    if len(shape) not in (dims, dims + 1):
        given = f"{shape} of {array.dtype.name}"
        raise ShapeError(f"{where}: {name} has shape {given}; ({what}) or (pictures, {what}) was expected.")
    return shape[: len(shape) - dims]


def lifted(array: Any, over: Shape) -> Any:
    """Return an array with a dimension of pictures in front, if it has none."""
    return array[None] if len(array.shape) < len(over) else array


def array_of(where: str, result: Result, last: Last) -> Tensor:
    """Return the array of a result, which may be a function that makes it.

    Raises
    ------
    ShapeError
        If it has another shape or element type.
    """
    if not isinstance(result, Tensor):
        return result(last.shape, last.element)
    if result.shape != last.shape or result.dtype.name != last.element:
        raise ShapeError(
            f"{where}: _result is {in_words(result)}; a Tensor<{last.element}> of shape {last.shape} was expected."
        )
    return result


def carrying(runner: Runner, device: Any, shape: Shape, element: str, gradient: Tensor) -> Tensor:
    """Return an array without contents that carries a gradient to propagate back."""
    made: Tensor = runner.room(device, {}, {"carrier": (shape, element)}).arrays["carrier"]
    return made.with_grads(grad_in=gradient)


def _stands(value: Any) -> bool:
    return hasattr(type(value), "get_this") and not isinstance(value, NDBuffer)


def _listed(kinds: tuple[str, ...]) -> str:
    return " or ".join([", ".join(kinds[:-1]), kinds[-1]]) if len(kinds) > 1 else kinds[0]

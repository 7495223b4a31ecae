"""Optimizer: the parameters and the state that all optimizers have. It knows no formula: its subclasses do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING, Any

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.checks import short_traceback, short_tracebacks
from slangpy_rt.core.conversion import is_number
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.optim.kernels import kernels
from slangpy_rt.optim.part import Part, parts_of
from slangpy_rt.optim.shared_memory import refuse_shared_memory
from slangpy_rt.runtime.core import another
from slangpy_rt.runtime.pickling import check_state, damaged, reads

if TYPE_CHECKING:
    from slangpy_rt.calls.function import Function

# Calls a function now, or records it in a list.
Call = Callable[..., Any]


@short_tracebacks("step", "append_to", "zero_grad")
class Optimizer(ABC):
    """What ``SGD``, ``Adam`` and ``AdamW`` have in common.

    Parameters
    ----------
    parameters : iterable of Tensor
        Tensors with gradients, or a dict of them.

    Attributes
    ----------
    parameters : tuple of Tensor
        As given.
    """

    # The arrays of state that each parameter has.
    _states: tuple[str, ...] = ()

    def __init__(self, parameters: Iterable[Tensor] | Mapping[str, Tensor], **numbers: Any) -> None:
        where = type(self).__name__
        for name, value in numbers.items():
            setattr(self, name, value)
        self.parameters = _checked(where, parameters)
        self._device: Any = self.parameters[0].device
        self._parts = self._found_parts()
        self._memory = [[part.new_state() for _ in self._states] for part in self._parts]

    def __getstate__(self) -> dict[str, Any]:
        # Views of the parameters would be read as arrays of their own.
        return {name: value for name, value in self.__dict__.items() if name != "_parts"}

    @reads("an optimizer")
    def __setstate__(self, state: Any) -> None:
        what = f"the state of {type(self).__name__}"
        self.__dict__.update(check_state(what, state, ("parameters", "_device", "_memory")))
        self.parameters = _checked("pickle", state["parameters"])
        self._device = self.parameters[0].device
        self._parts = self._found_parts()
        self._check_state(what)

    def _check_state(self, what: str) -> None:
        """Check the numbers and arrays that a pickle held.

        Raises
        ------
        BindError
            If one is of another type, size or device than the parameters need.
        """
        for cls in type(self).__mro__:
            for name, found in list(vars(cls).items()):
                if isinstance(found, Number):
                    setattr(self, name, self.__dict__.get(name))
        memory = self._memory
        if not isinstance(memory, list) or len(memory) != len(self._parts):
            raise damaged(what, f"it has arrays for {in_words(memory)}; {len(self._parts)} parts were expected")
        for part, arrays in zip(self._parts, memory, strict=True):
            if not isinstance(arrays, list) or len(arrays) != len(self._states):
                raise damaged(what, f"a parameter has {in_words(arrays)}; {len(self._states)} arrays were expected")
            for array in arrays:
                check_array(what, array, self._device, part.computed, part.values.shape)

    @property
    def state(self) -> list[dict[str, Tensor]]:
        """The arrays that the optimizer keeps, by name, for each parameter.

        They hold scalars, of type float for parameters of half and bfloat16. A parameter of structs has such an entry
        for each of its fields that holds floats.
        """
        return [dict(zip(self._states, memory, strict=True)) for memory in self._memory]

    def step(self) -> None:
        """Change each parameter once, by its gradient: one launch for a parameter.

        Raises
        ------
        DeviceError
            If the device is closed.
        """
        self._run(lambda function, *args: function(*args))

    def append_to(self, commands: CommandList) -> None:
        """Record a step in a command list; each ``submit`` is one.

        The learning rate and the other numbers stay as they are now.

        Parameters
        ----------
        commands : CommandList
            A list of the parameters' device.

        Raises
        ------
        BindError
            If it is no such list.
        """
        where = f"{type(self).__name__}.append_to"
        if not isinstance(commands, CommandList) or commands.device is not self._device:
            raise BindError(f"{where}: {in_words(commands)} is no command list of {self._device!r}.")
        self._prepare_list()
        self._run(lambda function, *args: function.append_to(commands, *args))

    def zero_grad(self) -> None:
        """Set all gradients to zero. ``bwds`` adds to them, so call this before each of its calls."""
        for parameter in self.parameters:
            gradient: Any = parameter.grad_out
            if gradient.is_contiguous:
                gradient.clear()
            else:
                gradient[...] = 0

    def _found_parts(self) -> tuple[Part, ...]:
        where = type(self).__name__
        found = [
            (k, part) for k, p in enumerate(self.parameters) for part in parts_of(f"{where}: parameters[{k}]", p)
        ]
        refuse_shared_memory(where, found)
        return tuple([part for _, part in found])

    def _prepare_list(self) -> None:  # noqa: B027
        """Keep on the device what changes with each step; nothing does, unless a subclass says so."""

    @abstractmethod
    def _run(self, call: Call) -> None:
        """Make all calls of a step."""

    def _each(self, name: str) -> Iterator[tuple[Part, Function, list[Tensor]]]:
        """Yield each part of a parameter with its function in ``_spy_optim.slang`` and its state."""
        known = kernels(self._device)
        for part, memory in zip(self._parts, self._memory, strict=True):
            yield part, known.function(name, part.key), memory

    def __repr__(self) -> str:
        scalars = sum(part.values.size for part in self._parts)
        count = f"{len(self.parameters)} parameter{'s' if len(self.parameters) > 1 else ''}"
        return f"{type(self).__name__}({count}, {scalars} numbers, on {self._device.name})"


class Number:
    """A number of an optimizer, such as its learning rate, that is checked when it is set.

    Parameters
    ----------
    least, below : float
        The least value, and the first that is too large.
    """

    def __init__(self, least: float, below: float, doc: str) -> None:
        self._least, self._below = least, below
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else instance.__dict__[self._name]

    @short_traceback
    def __set__(self, instance: Any, value: Any) -> None:
        where = f"{type(instance).__name__}: {self._name}"
        instance.__dict__[self._name] = number(where, value, self._least, self._below)


def check_array(what: str, array: Any, device: Any, scalar: str, shape: tuple[int, ...]) -> None:
    """Check an array of an optimizer's state that a pickle held."""
    if (
        not isinstance(array, Tensor)
        or (array.device, array.dtype.name, array.shape) != (device, scalar, shape)
        or not array.is_contiguous
    ):
        raise damaged(what, f"it has {in_words(array)}; a Tensor<{scalar}> of shape {shape} was expected")


def number(where: str, value: Any, least: float, below: float) -> float:
    """Check a finite number and return it as a float."""
    finite = is_number(value) and not isinstance(value, complex) and _is_finite(value)
    if not finite or not least <= value < below:
        bound = f"at least {least:g}" + ("" if below == float("inf") else f" and less than {below:g}")
        raise BindError(f"{where} is {in_words(value)}; a finite number of {bound} was expected.")
    return float(value)


def _is_finite(value: Any) -> bool:
    try:
        return isfinite(value)
    except OverflowError:
        return False


def _checked(where: str, parameters: Any) -> tuple[Tensor, ...]:
    """Return parameters as a tuple, or refuse what is none."""
    if isinstance(parameters, Tensor):
        raise BindError(f"{where}: parameters is a single Tensor; put it into a list: [{parameters.summary}].")
    if isinstance(parameters, Mapping):
        parameters = parameters.values()
    if isinstance(parameters, (str, bytes)) or not isinstance(parameters, Iterable):
        raise BindError(f"{where}: parameters is {in_words(parameters)}; a list of Tensors was expected.")
    found = tuple(parameters)
    if not found:
        raise BindError(f"{where}: parameters is empty; a list of Tensors with gradients was expected.")
    for k, p in enumerate(found):
        if not isinstance(p, Tensor):
            raise BindError(f"{where}: parameters[{k}] is {in_words(p)}; a Tensor was expected.")
        if p.grad_out is None:
            raise BindError(
                f"{where}: parameters[{k}] is {p.summary} without a gradient; give the Tensor that with_grads() "
                "returned, and that bwds gets."
            )
        if p.device is not found[0].device:
            raise BindError(
                f"{where}: parameters[{k}] is on {another(p.device, found[0].device)}, parameters[0] on "
                f"{found[0].device!r}; make an optimizer for each device."
            )
    return found

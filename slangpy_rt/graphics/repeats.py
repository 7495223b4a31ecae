"""Repeats: the plans of single steps, by which a step that is called again makes its prepared calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from slangpy_rt.arguments.signature import ARRAYS, aliased
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.shapes import Shape
from slangpy_rt.graphics.plan import Plan
from slangpy_rt.graphics.planner import Planner

# Forgetting all is simpler than forgetting the oldest, and as good for a program with that many signatures.
_MOST = 256

# An array to write to, or a function that makes one of a shape and an element type.
Result: TypeAlias = Tensor | Callable[[Shape, str], Tensor]


class Repeated(NamedTuple):
    """What follows from the signatures of a step's arguments.

    Attributes
    ----------
    shape, element : tuple of int, str
        Those of the array that the step writes, or of the gradient that its derivative reads.
    plans : dict
        Plans by the layout of that array, and by which arrays are the same; None for those that are not repeated.
    """

    shape: Shape
    element: str
    plans: dict[Any, Plan | None]


class Repeats:
    """The plans of the steps of one device. They hold no memory of arguments or results.

    The first call of some signatures runs the step, the second notes its prepared calls, later ones make these.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Repeated] = {}

    def run(
        self,
        steps: Callable[[Any, Result], Tensor],
        runner: Any,
        device: Any,
        key: tuple[Any, ...],
        arrays: tuple[Any, ...],
        result: Result,
    ) -> Tensor:
        """Run a step, or its derivative.

        Parameters
        ----------
        steps : callable
            Runs the step as a Runner says, from an array to write to or a function that makes it; it returns that.
        runner : Runner
            Runs what is not repeated; it has no command list.
        device : Device
            The device of the arrays.
        key : tuple
            What the step depends on besides arrays: its name, whether it is the derivative, its settings.
        arrays : tuple
            Its arguments and the triangles. Nothing is repeated unless all are arrays of the device or numbers.
        result : Tensor or callable
            As ``steps`` takes it.

        Returns
        -------
        Tensor
            What ``steps`` returns.
        """
        if device.closed:
            device.check_open()
        signed: list[Any] = []
        for value in arrays:
            if type(value) is float or type(value) is int:
                signed.append((type(value), value))
            elif type(value) in ARRAYS and value.layout.device is device:
                signed.append(value.layout)
            else:
                return steps(runner, result)
        arrays = tuple([value for value in arrays if type(value) in ARRAYS])
        # Steps whose arguments add to the same gradients are other ones.
        if key[1] and aliased(arrays):
            return steps(runner, result)
        key = (*key, *signed)
        known = self._known.get(key)
        if known is None:
            made = steps(runner, result)
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = Repeated(made.shape, made.dtype.name, {})
            return made
        made = result if isinstance(result, Tensor) else result(known.shape, known.element)
        given = [*arrays, made]
        for array in tuple(given):
            if array.layout.grads is not None:
                given += [grad for grad in array._grads if grad is not None]
        # An array may be there twice: as two arguments, or as a gradient that is added to and read.
        first: dict[int, int] = {}
        places = tuple([first.setdefault(id(array), k) for k, array in enumerate(given)])
        given = [given[k] for k in first.values()]
        layouts = made.layout, places
        plan = known.plans.get(layouts)
        if plan is not None:
            plan.run(runner.stream, given, {})
        elif layouts in known.plans:
            steps(runner, made)
        else:
            if len(known.plans) >= _MOST:
                known.plans.clear()
            planner = Planner(runner.stream, device, given)
            steps(planner, made)
            known.plans[layouts] = planner.plan()
        return made


def repeats_of(device: Any) -> Repeats:
    """Return the plans of a device's steps."""
    found: Repeats = device.once("plans of steps", Repeats)
    return found

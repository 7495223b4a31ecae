"""Kept: what a Raster and its derivatives remember from one picture to the next."""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from slangpy_rt.arguments.signature import ARRAYS, SIGNERS, aliased
from slangpy_rt.arguments.stand_ins import ask, want_back
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.shapes import Shape
from slangpy_rt.graphics.plan import Plan
from slangpy_rt.graphics.recorded import Recorded
from slangpy_rt.graphics.triangles import Triangles

# Forgetting all is simpler than forgetting the oldest, and as good for a program with that many signatures.
_MOST = 256


class Known(NamedTuple):
    """What follows from the signatures of a picture's arguments.

    Attributes
    ----------
    age : object
        The age of the module's text.
    shape, color : tuple of int, str
        The picture's shape and element type.
    corners : int
        How many corners there are.
    plans : dict
        Plans by the layouts of the other arrays; None for those whose steps may not be repeated.
    """

    age: object
    shape: Shape
    color: str
    corners: int
    plans: dict[Any, Plan | None]

    def add(self, layouts: Any, plan: Plan | None) -> None:
        """Remember a plan."""
        if len(self.plans) >= _MOST:
            self.plans.clear()
        self.plans[layouts] = plan


class Kept:
    """What a Raster and its derivatives remember.

    Attributes
    ----------
    triangles : Triangles or None
        Those that were drawn last.
    foreign : tuple or None
        Another library's array of faces, and the array that is drawn.
    known : dict
        What follows from the signatures of arguments.
    recorded : WeakKeyDictionary
        The picture that was recorded last, by the command list.
    """

    def __init__(self) -> None:
        self.triangles: Triangles | None = None
        self.foreign: tuple[Any, Any] | None = None
        self.known: dict[Any, Known] = {}
        self.recorded: WeakKeyDictionary[CommandList, Recorded] = WeakKeyDictionary()

    def note(self, key: Any, known: Known) -> None:
        """Remember what follows from signatures."""
        if len(self.known) >= _MOST:
            self.known.clear()
        self.known[key] = known


def signed(derivative: str, named: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the arguments without stand-ins, and a key of their signatures; None if no steps may be repeated."""
    values, asked = ask(tuple(named.values()))
    if want_back(asked):
        return named, None
    if asked:
        named = dict(zip(named, values, strict=True))
    try:
        key = (
            derivative,
            *named,
            *[a.layout if type(a) in ARRAYS else SIGNERS[type(a)](a) for a in values],
        )
    except RecursionError:  # the functions say what is wrong
        return named, None
    # Steps whose arguments add to the same gradients are other ones.
    return named, None if derivative and aliased(values) else key


def arrays_beside(triangles: Triangles, picture: Tensor) -> list[Any]:
    """Return the arrays of a picture's steps that are neither arguments nor made by the steps."""
    grads = {id(g): g for g in (picture.grad_in, picture.grad_out) if g is not None}
    return [triangles.faces, picture, *grads.values(), *(triangles.edges or ())]

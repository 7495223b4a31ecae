"""Kept: what a Raster and its derivatives remember from one picture to the next."""

from __future__ import annotations

from typing import Any, NamedTuple

from slangpy_rt.core.shapes import Shape
from slangpy_rt.graphics.plan import Plan
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
    """

    def __init__(self) -> None:
        self.triangles: Triangles | None = None
        self.foreign: tuple[Any, Any] | None = None
        self.known: dict[Any, Known] = {}

    def note(self, key: Any, known: Known) -> None:
        """Remember what follows from signatures."""
        if len(self.known) >= _MOST:
            self.known.clear()
        self.known[key] = known

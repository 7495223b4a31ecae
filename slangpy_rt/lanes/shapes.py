"""The shape of a number over the lanes: base + lane * step, a line unless a sum wrapped, or any numbers.

The analysis and the writer use the same functions, so that a value has the shape in the text that the analysis found.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias


class Kind(Enum):
    """How a number depends on the lane."""

    EXACT = 1  # base + lane * step; kept as one scalar, the base
    LINE = 2  # kept as a vector, that is likely base + lane * step: worth a test at an access to memory
    ANY = 3  # kept as a vector


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape.

    Attributes
    ----------
    kind : Kind
    step : int or None
        Difference between neighbours; None for a line whose step is known at run time, and for `Kind.ANY`.
    top : int or None
        Where it is known: a number that no lane exceeds, the integer taken as unsigned.
    """

    kind: Kind
    step: int | None = None
    top: int | None = None

    @property
    def uniform(self) -> bool:
        """Whether all lanes have the same number."""
        return self.kind is Kind.EXACT and self.step == 0

    @property
    def vector(self) -> bool:
        """Whether the number is kept as a vector."""
        return self.kind is not Kind.EXACT


# A composite value has a tuple of the shapes of its parts.
Shapes: TypeAlias = "Shape | tuple[Shapes, ...]"

UNIFORM = Shape(Kind.EXACT, 0)
ANY = Shape(Kind.ANY)
_MOST = 1 << 20  # a larger step is of no use for an access to memory


def joined(a: Shape, b: Shape) -> Shape:
    """Return the shape of a variable that has held numbers of two shapes."""
    if Kind.ANY in (a.kind, b.kind) or a.step != b.step:
        return ANY
    kind = a.kind if a.kind is b.kind else Kind.LINE
    return Shape(kind, a.step, a.top if a.top == b.top else None)


def added(a: Shape, b: Shape, sign: int = 1) -> Shape:
    """Return the shape of a sum, or with `sign` -1 of a difference."""
    if Kind.ANY in (a.kind, b.kind):
        return ANY
    step = None if a.step is None or b.step is None else a.step + sign * b.step
    if Kind.LINE in (a.kind, b.kind):
        return Shape(Kind.LINE, step)
    top = a.top + b.top if a.top is not None and b.top is not None and sign == 1 else None
    return _exact(step, top)


def scaled(a: Shape, factor: int | None) -> Shape:
    """Return the shape of a product with a number that is the same in all lanes: a constant, or None."""
    if a.uniform:
        return UNIFORM if factor is None or a.top is None or factor < 0 else replace(a, top=a.top * factor)
    if a.kind is Kind.ANY:
        return ANY
    step = None if a.step is None or factor is None else a.step * factor
    if a.kind is Kind.LINE or step is None:
        return Shape(Kind.LINE, step)
    return _exact(step, None if a.top is None or (factor or 0) < 0 else a.top * (factor or 0))


def multiplied(a: Shape, b: Shape, left: int | None, right: int | None) -> Shape:
    """Return the shape of a product; `left` and `right` are the factors' values where they are constants."""
    if b.uniform:
        return scaled(a, right)
    return scaled(b, left) if a.uniform else ANY


def resized(a: Shape, before: int, after: int, signed: bool) -> Shape:
    """Return the shape of an integer whose number of bits changes.

    A sum of few bits may wrap between two lanes, so that the same sum of more bits is no line there.
    """
    if after <= before:
        return a if a.top is None or a.top >> after == 0 else replace(a, top=None)
    fits = a.top is not None and a.top >> (before - signed) == 0
    if a.kind is not Kind.EXACT or a.uniform or fits:
        return a if fits else replace(a, top=None)
    return Shape(Kind.LINE, a.step)


def chosen(condition: Shape, a: Shape, b: Shape) -> Shape:
    """Return the shape of one of two numbers."""
    return joined(a, b) if condition.uniform else ANY


def computed(*shapes: Shape) -> Shape:
    """Return the shape of a result of any other operation, lane by lane."""
    return UNIFORM if all(each.uniform for each in shapes) else ANY


def leaves(shapes: Shapes) -> list[Shape]:
    """Return the shapes of all scalars of a value."""
    return [x for part in shapes for x in leaves(part)] if isinstance(shapes, tuple) else [shapes]


def _exact(step: int | None, top: int | None) -> Shape:
    if step is None or abs(step) > _MOST:
        return Shape(Kind.LINE, None)
    return Shape(Kind.EXACT, step, top if top is not None and top >> 62 == 0 else None)

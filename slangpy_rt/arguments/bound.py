"""Bound: an argument fitted to its parameter, as a frozen value. ``bind`` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slangpy_rt.arguments.computed import Generator
from slangpy_rt.arguments.feed import Feed
from slangpy_rt.arguments.nested_feeds import ConvertedFeed, GradientFeed, PartsFeed
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.types import SlangType

# How well a value fits a parameter, best first; overloads are ranked by it.
EXACT, PROMOTED, CONVERTED, SPLAT = range(4)


@dataclass(frozen=True)
class Bound:
    """An argument with every question of its own answered.

    Attributes
    ----------
    mode : str
        ``"value"``, ``"array"`` (elementwise), ``"tensor"`` (whole), ``"pointer"``, ``"computed"`` or
        ``"parts"``.
    shape, strides : tuple of int
        Call dimensions of an array, strides in scalars; of a tensor those that it is not taken whole in.
    view : tuple of (tuple of int, tuple of int)
        Shape and strides of the tensor that one element of the call sees.
    host : str
        What kind of result it asks for: ``"torch_gpu"``, ``"torch"``, ``"tensor"``, ``"ndbuffer"``, ``"numpy"`` or
        ``""``.
    fit : int
        ``EXACT`` to ``SPLAT``.
    mapped : tuple of int or None
        The call dimension of each dimension of ``shape``, where the user said.
    struct : SlangType or None
        The type of what its memory holds, if that is a struct.
    generator : Generator or None
        Of a computed argument.
    parts : tuple of (str, Bound)
        Where in the parameter each part goes (``".x"``), and the part.
    grad_in, grad_out : Bound or None
        In a derivative, the gradient arrays of this argument, one that is read and one that is written; None where
        the parts have their own.
    via : str
        What loads its elements where arrays of another kind are converted on the way.
    own : int
        Bytes of its buffer, of an array on the device that has all of it; else 0.
    far : int
        Among equal fits, 1 of a whole number of NumPy for a float: an integer parameter is nearer.
    fresh : bool
        Of a gradient, whether its contents may be lost: what is added to them may be written instead.
    gradients : tuple of Bound
        Those of ``grad_in`` and ``grad_out`` that there are.
    """

    name: str
    type: SlangType
    scalar: str
    count: int
    access: str
    mode: str
    shape: Shape
    strides: Shape
    aligned: bool
    host: str
    feed: Feed
    fit: int = EXACT
    mapped: tuple[int, ...] | None = None
    struct: SlangType | None = None
    generator: Generator | None = None
    parts: tuple[tuple[str, Bound], ...] = ()
    view: tuple[Shape, Shape] = ((), ())
    grad_in: Bound | None = None
    grad_out: Bound | None = None
    via: str = ""
    fresh: bool = False
    own: int = 0
    far: int = 0
    gradients: tuple[Bound, ...] = field(init=False, repr=False, compare=False)
    # Empty but for an argument with parts: any other is its only place, and would hold itself, in a cycle.
    _places: tuple[Bound, ...] = field(init=False, repr=False, compare=False, default=())
    _leaves: tuple[Bound, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        # Attributes of a frozen value cannot be assigned.
        own = self.__dict__
        own["gradients"] = tuple([g for g in (self.grad_in, self.grad_out) if g is not None])
        if self.mode == "parts":
            own["_places"] = tuple([place for _, part in self.parts for place in part.places])
            own["_leaves"] = tuple([leaf for _, part in self.parts for leaf in part.leaves])

    @property
    def places(self) -> tuple[Bound, ...]:
        """The argument itself, or those parts of it that have no parts."""
        return self._places if self.mode == "parts" else (self,)

    @property
    def leaves(self) -> tuple[Bound, ...]:
        """The places, each with its gradients behind it."""
        return self._leaves if self.mode == "parts" else (self, *self.gradients)

    @property
    def whole_feed(self) -> Feed:
        """The feed of the argument and of its gradients."""
        if self.mode == "parts":
            return _with_gradients(self.feed, self) if len(self._leaves) > len(self._places) else self.feed
        return _with_gradients(self.feed, self) if self.gradients else self.feed

    @property
    def cost(self) -> tuple[int, int, int]:
        """How badly the argument fits: dimensions left to vectorize over, then conversions, of its worst leaf."""
        fits = [(len(b.shape) if b.mode in ("array", "tensor") else 0, b.fit, b.far) for b in self.leaves]
        return max(fits, default=(0, EXACT, 0))


def fit_of(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    """Return how well data of one dtype fits another one."""
    if source == target:
        return EXACT
    return PROMOTED if np.can_cast(source, target, "safe") else CONVERTED


def number_fit(value: Any, target: np.dtype[Any]) -> tuple[int, int]:
    """Return how well a number fits a scalar: its fit, and ``far`` of ``Bound``.

    A Python int is an ``int``, a float a ``float``. A number of NumPy is its own type, and next to that what a Python
    number of its kind is: where there is no ``int64_t``, ``numpy.int64(3)`` is an ``int``.
    """
    if not isinstance(value, np.generic):
        return fit_of(_PYTHON["b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"], target), 0
    source = value.dtype
    fit = fit_of(source, target)
    if target == _PYTHON[source.kind]:
        return min(fit, PROMOTED), 0
    return fit, int(source.kind in "iu" and target.kind == "f")


# The dtype that a Python number of each kind has to overloads: 1 is an ``int``, 1.0 a ``float``.
_PYTHON = {"b": np.dtype("?"), "i": np.dtype("i4"), "u": np.dtype("u4"), "f": np.dtype("f4")}


def _with_gradients(feed: Feed, bound: Bound) -> Feed:
    if bound.gradients:
        return GradientFeed(feed, *[g.feed for g in bound.gradients])
    if isinstance(feed, ConvertedFeed):
        return ConvertedFeed(feed.convert, _with_gradients(feed.inner, bound), feed.written)
    if isinstance(feed, PartsFeed):
        return PartsFeed(feed.parts, [part.whole_feed for _, part in bound.parts])
    return feed


def result_kind(bound: Sequence[Bound]) -> str:
    """Return the kind of array that the arguments ask for, or ``""``."""
    hosts = {b.host for b in bound}
    return next((k for k in ("torch_gpu", "torch", "tensor", "ndbuffer", "numpy") if k in hosts), "")

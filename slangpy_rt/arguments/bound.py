"""Bound: an argument fitted to its parameter, as a frozen value. ``bind`` makes it; it holds no data of the call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slangpy_rt.arguments.computed import Generator
from slangpy_rt.arguments.nested_packers import ConvertedPacker, GradientPacker, PartsPacker
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.types import SlangType
from slangpy_rt.textures.layout import TextureLayout

# How well a value fits a parameter, best first; overloads are ranked by it.
EXACT, PROMOTED, CONVERTED, SPLAT = range(4)


@dataclass(frozen=True)
class Bound:
    """An argument fitted to its parameter.

    Attributes
    ----------
    mode : str
        ``"value"``, ``"array"`` (elementwise), ``"tensor"`` (whole), ``"pointer"``, ``"handle"`` (a texture or
        sampler), ``"texel"`` (a texture, elementwise), ``"computed"`` or ``"parts"``.
    shape, strides : tuple of int
        The dimensions of an array that the call runs along, and their strides in scalars. In mode ``"tensor"``,
        those before the dimensions of ``view``.
    view : tuple of (tuple of int, tuple of int)
        Shape and strides of the tensor that one element of the call sees.
    host : str
        The kind of result that a call on it returns: ``"torch_gpu"``, ``"torch"``, ``"tensor"``, ``"ndbuffer"``,
        ``"numpy"`` or ``""``.
    fit : int
        ``EXACT`` to ``SPLAT``.
    mapped : tuple of int or None
        The call dimension of each dimension of ``shape``; None without a ``map``.
    struct : SlangType or None
        The type of the elements in memory, if they are structs.
    generator : Generator or None
        The generator of a computed argument.
    parts : tuple of (str, Bound)
        The place of each part in the parameter (``".x"``), and the part.
    grad_in, grad_out : Bound or None
        In a derivative, the gradient arrays of this argument, one that is read and one that is written; None where
        the parts have their own.
    via : str
        Name of the Slang struct that converts elements on loading, as for bfloat16; empty if none does. In mode
        ``"texel"`` the type of the texture, with ``*`` for that of its texels.
    own : int
        Size in bytes of its buffer, for a device array that takes up the whole buffer; else 0.
    implied : int
        What its places do not show of how it fits: how many fields, also of structs in it, have their defaults, and
        how many values become an ``Optional``.
    initial : bool
        Whether Slang has to give a struct its defaults first, because reflection does not tell them.
    far : int
        Rank among equal fits: 1 for a NumPy integer at a float parameter, as an integer parameter is nearer; else 0.
    texture : TextureLayout or None
        The layout of a texture.
    fresh : bool
        For a gradient, whether its contents may be lost: the kernel may then write it instead of adding to it.
    gradients : tuple of Bound
        ``grad_in`` and ``grad_out``, without None.
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
    packer: Packer
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
    texture: TextureLayout | None = None
    implied: int = 0
    initial: bool = False
    gradients: tuple[Bound, ...] = field(init=False, repr=False, compare=False)
    # Only for arguments with parts: any other is its own only place, and storing it would make a reference cycle.
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
        """The places, each followed by its gradients."""
        return self._leaves if self.mode == "parts" else (self, *self.gradients)

    @property
    def whole_packer(self) -> Packer:
        """The packer of the argument and of its gradients."""
        if self.mode == "parts":
            return _with_gradients(self.packer, self) if len(self._leaves) > len(self._places) else self.packer
        return _with_gradients(self.packer, self) if self.gradients else self.packer

    @property
    def cost(self) -> tuple[int, int, int]:
        """How badly the argument fits: dimensions left to vectorize over, then conversions, of its worst leaf."""
        fits = [(len(b.shape) if b.mode in ("array", "tensor", "texel") else 0, b.fit, b.far) for b in self.leaves]
        return max(fits, default=(0, EXACT, 0))


def fit_of(source: np.dtype[Any], target: np.dtype[Any]) -> int:
    """Return how well data of one dtype fits another one."""
    if source == target:
        return EXACT
    return PROMOTED if np.can_cast(source, target, "safe") else CONVERTED


def number_fit(value: Any, target: np.dtype[Any]) -> tuple[int, int]:
    """Return how well a number fits a scalar: its fit, and ``far`` of ``Bound``.

    A Python int fits ``int`` exactly, a Python float ``float``. A NumPy number fits its own type exactly, and next
    best the type of a Python number: without an overload for ``int64_t``, ``numpy.int64(3)`` takes ``int``.
    """
    if not isinstance(value, np.generic):
        return fit_of(_PYTHON["b" if isinstance(value, bool) else "i" if isinstance(value, int) else "f"], target), 0
    source = value.dtype
    fit = fit_of(source, target)
    kind = kind_of(value)
    if target == _PYTHON[kind]:
        return min(fit, PROMOTED), 0
    return fit, int(kind in "iu" and target.kind == "f")


# The dtype by which Python numbers of each kind are ranked among overloads: 1 is an ``int``, 1.0 a ``float``.
_PYTHON = {"b": np.dtype("?"), "i": np.dtype("i4"), "u": np.dtype("u4"), "f": np.dtype("f4")}


def _with_gradients(packer: Packer, bound: Bound) -> Packer:
    if bound.gradients:
        return GradientPacker(packer, *[g.packer for g in bound.gradients])
    if isinstance(packer, ConvertedPacker):
        return ConvertedPacker(packer.convert, _with_gradients(packer.inner, bound), packer.written)
    if isinstance(packer, PartsPacker):
        return PartsPacker(packer.parts, [part.whole_packer for _, part in bound.parts])
    return packer


def result_kind(bound: Sequence[Bound]) -> str:
    """Return the kind of result that a call on these arguments returns, or ``""`` if none of them decides it."""
    hosts = {b.host for b in bound}
    return next((k for k in ("torch_gpu", "torch", "tensor", "ndbuffer", "numpy") if k in hosts), "")

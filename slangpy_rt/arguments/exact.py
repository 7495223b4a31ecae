"""Gradients that several threads add to, where the gradient's own scalars cannot hold the sums.

On a deterministic device threads add integers, in any order: ``shaders/exact.slang`` has the arithmetic, and each
scalar is replaced by a row of integers. A half, which stays at 2048 times what is added, is replaced by a float. A
second kernel adds the sums to the gradient. A gradient stays as it is if only one thread adds to each of its places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.accumulation import EXACT_WORDS, adding, spacing
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.dtypes import NUMPY_OF, element_type, scalar_type, storage
from slangpy_rt.core.errors import ShapeError, UnsupportedError
from slangpy_rt.core.overlap import Walk, repeats
from slangpy_rt.core.shapes import Shape, align, contiguous

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

# The Slang module that adds sums to gradients; it takes those of exact sums as arrays of unsigned integers.
FOLDS = "_spy_folds.slang"
_BITS = {"half": "uint16_t", "float": "uint", "double": "uint64_t"}


class SumPacker(Packer):
    """Passes zeroed sums in place of a gradient, and adds them to the gradient after the kernel.

    Parameters
    ----------
    inner : Packer
        The gradient's packer.
    shape, strides : tuple of int
        Shape and strides of the gradient's scalars; strides in scalars.
    """

    buffers = 1
    private = True
    returns = True
    lasting = False
    sums = True

    def __init__(self, device: DeviceCore, inner: Packer, scalar: str, shape: Shape, strides: Shape) -> None:
        self._device = device
        self._inner = inner.partial()
        exact = device.deterministic
        self._fold = f"fold_{scalar}" if exact else f"round_{scalar}"
        sums = element_type("", f"int64_t[{EXACT_WORDS[scalar]}]" if exact else "float")
        self._words = layout_of(device, NDBuffer, sums, shape)
        stored = scalar_type(_BITS[scalar] if exact else scalar)
        self._target = layout_of(device, NDBuffer, stored, shape, strides, aligned=False)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        words = self._device.alloc(self._words.nbytes)
        NDBuffer.of(self._words, words, words.address).clear()
        block.append(words.address)
        buffers.append(words)

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        block: list[Any] = []
        target: list[Buffer] = []
        self._inner.pack(value, block, target)
        words = NDBuffer.of(self._words, buffers[0], buffers[0].address)
        gradient = NDBuffer.of(self._target, target[0], block[0])
        getattr(self._device.folds, self._fold)(gradient, words)
        if self._inner.returns:
            self._inner.bring_back(value, target)


def exactly(where: str, device: DeviceCore, bound: Bound, shape: Shape, aliased: bool) -> Bound:
    """Return an argument with sums in place of the gradients that several threads of the call add to.

    Raises
    ------
    ShapeError
        If such a gradient overlaps itself in another way than by strides of 0.
    UnsupportedError
        If the device has no doubles, in which sums become numbers.
    """
    if bound.mode == "parts":
        parts = tuple((place, exactly(where, device, part, shape, aliased)) for place, part in bound.parts)
        return replace(bound, parts=parts)
    g = bound.grad_out
    if g is None or g.access != "accumulate" or not (device.deterministic or g.scalar == "half"):
        return bound
    if g.mode == "array":
        strides = align(g.shape, g.strides, shape, g.mapped)
        if adding(strides, shape, g.count, aliased) == "accumulate":
            return bound
    if device.deterministic and "double" not in device.caps.scalars:
        raise UnsupportedError(
            f"{where}: {device.info} has no 'double', in which a deterministic device rounds what several threads "
            f"add to '{g.name}'; open the device without deterministic=True."
        )
    stored = storage(bound.type.arguments[0] if g.mode == "tensor" else bound.type)  # type: ignore[arg-type]
    assert stored is not None
    inner, outer = g.view if g.mode == "tensor" else ((), ())
    kept = g.strides + outer + contiguous(stored.dims)
    # A broadcast dimension has one place, which needs one sum.
    whole = tuple(1 if s == 0 and n else n for n, s in zip(g.shape + inner + stored.dims, kept, strict=True))
    space = spacing(g.scalar, device.deterministic)
    spaced = tuple(space * s if stride else 0 for s, stride in zip(contiguous(whole), kept, strict=True))
    rank = len(g.shape)
    unit = NUMPY_OF[g.scalar].itemsize
    if repeats(Walk(tuple(s * unit for s in kept), (), unit), whole):
        raise ShapeError(
            f"{where}: '{g.name}' of shape {whole} and byte strides {tuple(s * unit for s in kept)} overlaps itself, "
            f"and {'a deterministic device adds exact sums' if device.deterministic else 'sums of half are added'} "
            "to places of their own; give the argument a gradient without overlaps."
        )
    packer = SumPacker(device, g.packer, g.scalar, whole, kept)
    exact = replace(
        g, strides=spaced[:rank], view=(inner, spaced[rank : rank + len(inner)]), aligned=False, packer=packer
    )
    return replace(bound, grad_out=exact)

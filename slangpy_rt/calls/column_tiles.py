"""Tiles of threads for calls with a transposed array, whose neighbours in memory are not neighbours in a row.

A thread group covers 32 columns and 16 or 32 rows; each thread runs several elements of one column. It loads or
stores those of a transposed array at once, while the threads of a wave walk the other arrays along their rows. No
memory is shared within the group. Nothing here is for the CPU, which has no thread groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from slangpy_rt_codegen import Operand

from slangpy_rt.calls.operands import Leaf
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.target import Caps

# Threads of a group: columns, pieces of columns, other dimensions. 8 pieces of 16 bytes are four sectors of 32 bytes,
# which the cache keeps until all of each was read.
GROUP = (32, 8, 1)
# Strides of a row up to which a wave reads whole sectors of an array all the same.
_NEAR = 8
# Where values may lie: whole arrays, texels and computed values depend on the order of dimensions.
_MODES = ("value", "linear", "constant", "strided", "handle")


@dataclass(frozen=True)
class ColumnTiles:
    """A call as tiles.

    Attributes
    ----------
    shape : tuple of int
        The call's merged shape, its dimensions in another order: the columns' is the one before the last.
    leaves : tuple of Leaf
        The leaves, their strides in that order.
    operands : tuple of Operand
    width : int
        Elements of a column that each thread runs.
    groups : tuple of int
        Thread groups in x, y and z.
    """

    shape: Shape
    leaves: tuple[Leaf, ...]
    operands: tuple[Operand, ...]
    width: int
    groups: tuple[int, int, int]


def column_tiles(leaves: Sequence[Leaf], operands: Sequence[Operand], shape: Shape, caps: Caps) -> ColumnTiles | None:
    """Return a call as tiles, or None if no array is transposed or the call does not fit.

    Parameters
    ----------
    operands : sequence of Operand
        Of the leaves, in a call of one element for each thread that computes no derivative.
    shape : tuple of int
        The merged shape.
    """
    if len(shape) < 2 or shape[-1] < GROUP[0] or any(o.mode not in _MODES for o in operands):
        return None
    sizes = [NUMPY_OF[leaf.bound.scalar].itemsize for leaf in leaves if leaf.bound.mode in ("array", "value")]
    width = 2 if 8 in sizes else 4
    least = width * GROUP[1]
    steps = {d: [_step(leaf, d, shape, width) for leaf in leaves] for d, n in enumerate(shape[:-1]) if n >= least}
    # The dimension with most arrays that are moved at once, or at least follow it in memory.
    column = max(steps, key=lambda d: (steps[d].count("next"), steps[d].count("each")), default=0)
    if not any(steps.get(column, ())):
        return None
    order = [d for d in range(len(shape) - 1) if d != column] + [column, len(shape) - 1]
    turned = tuple([shape[d] for d in order])
    groups = (
        -(-turned[-1] // GROUP[0]),
        -(-turned[-2] // least),
        prod(turned[:-2]),
    )
    if any(n > limit for n, limit in zip(groups, caps.max_groups, strict=True)):
        return None
    out_leaves, out = [], []
    for leaf, o, step in zip(leaves, operands, steps[column], strict=True):
        if leaf.strides:
            leaf = Leaf(leaf.bound, leaf.member, tuple([leaf.strides[d] for d in order]))
        out_leaves.append(leaf)
        out.append(replace(o, mode="strided", step=step or "each") if o.mode in ("linear", "strided") else o)
    return ColumnTiles(turned, tuple(out_leaves), tuple(out), width, groups)


def _step(leaf: Leaf, column: int, shape: Shape, width: int) -> str:
    """Return the ``step`` of an array that is transposed: its scalars follow each other along the column alone.

    The step is ``"next"`` if a thread can move its elements at once, ``"each"`` if it cannot, and ``""`` for other
    arrays.
    """
    b, strides = leaf.bound, leaf.strides
    if b.mode != "array" or not strides or strides[column] != b.count or abs(strides[-1]) <= _NEAR * b.count:
        return ""
    at_once = b.aligned and b.type.kind in ("scalar", "enum") and shape[column] % width == 0
    whole = all(s % width == 0 for d, s in enumerate(strides) if d != column)
    return "next" if at_once and whole else "each"

"""How many threads run a call: thread groups and their limits, elements of a thread, sums by rows and columns.

The functions compute from sizes, strides and operands, which ``operands`` has made. ``host`` says that ranges of
elements run on the CPU, without thread groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd, prod

from slangpy_rt_codegen import GROUP_SIZE, Operand

from slangpy_rt.arguments.accumulation import spacing
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.calls.operands import Leaf
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.shapes import Shape, contiguous
from slangpy_rt.core.target import Caps

# The most scalars of a gradient of which each range of a call on the CPU keeps its own copy.
_MAX_OWN = 1 << 15
# Strides, in scalars, up to which the elements of neighbouring threads share sectors of memory.
_NEAR = 8
# Threads add a float to one place about so many times before its copies are added up: for equal terms of one sign the
# error is up to 4e-6 then, and 1e-5 for twice as many.
_MOST_ADDITIONS = 512
# A call of so many elements may have copies of a gradient that is passed whole; of others, whose terms waves add up,
# from so many elements on. Where fewer copies would do or fit into an eighth of a float for each element, there are
# none. At most so many are added up by two kernels of 256 terms each; a little over 256 are not worth a second one.
_LEAST_COPYING, _LEAST_COPYING_ARRAYS = 1 << 16, 1 << 20
_LEAST_COPIES, _ONE_KERNEL, _MOST_COPIES = 8, 256, 1 << 16
# Copies begin at multiples of so many scalars, for accesses of 16 bytes.
_COPY_UNIT = 8
# The most thread groups of a kernel whose threads first add up gradients of several elements: a group ends in one
# atomic addition.
MAX_WALKING = 1024
# The same where groups run on the cores of this machine, and rows have few elements.
MAX_WALKING_CORES = 128
# Threads of a group there whose threads first add up gradients: the lanes of one vector.
LANE_GROUP = 32
# The fewest elements of such a group; the fewest rows, where each group adds its sums of columns to memory; the
# fewest columns: a row of fewer leaves most lanes of a vector without an element.
_LEAST_WALKED, _LEAST_ROWS, _LEAST_COLUMNS = 8192, 64, 16
# The most scalars that such a thread adds up to.
_MOST_COLUMN_SUMS = 32


@dataclass(frozen=True)
class Copies:
    """Copies of a gradient that threads add to in its place.

    Attributes
    ----------
    name : str
        The gradient's name in the argument block.
    count : int
        The number of copies, a power of two.
    places : int
        The floats of the gradient.
    length : int
        The floats from one copy to the next.
    unit : int
        How many scalars of the gradient's type a float is.
    """

    name: str
    count: int
    places: int
    length: int
    unit: int

    @property
    def fixed(self) -> dict[str, Shape]:
        """The values of the argument block by which elements choose a copy."""
        return {
            f"apart_{self.name}": (self.length * self.unit,),
            f"shift_{self.name}": (33 - self.count.bit_length(),),
        }


def widen(leaves: Sequence[Leaf], operands: list[Operand], shape: Shape) -> tuple[list[Operand], int]:
    """Return the operands for threads that run several consecutive elements each, and the number of these elements.

    Scalars that follow each other are then loaded and stored in pieces of up to 16 bytes. Vectors are not: on an
    H200, four float3 a thread reach 3086 GB/s in 16-byte pieces, one float3 a thread 4090 in 4-byte ones.

    In a call of several dimensions a thread's elements lie in one row if lengths and strides of rows are multiples of
    their number. Otherwise they may be of two rows, and those of strided arrays are moved one by one.
    """
    sizes = [NUMPY_OF[leaf.bound.scalar].itemsize for leaf in leaves if leaf.bound.mode in ("array", "value")]
    width = 2 if 8 in sizes else 4
    each = False
    for leaf, o in zip(leaves, operands, strict=True):
        each |= o.mode == "strided" and not _in_rows(leaf, shape, width)
    wide = []
    for leaf, o in zip(leaves, operands, strict=True):
        b = leaf.bound
        # Gradients are added to by whole threads.
        if each and (
            o.access not in ("in", "out", "inout") or (o.mode == "strided" and abs(leaf.strides[-1]) > _NEAR)
        ):
            return operands, 1
        if o.mode == "strided":
            o = replace(o, step="each" if each else _in_rows(leaf, shape, width))
        in_order = o.mode == "linear" or o.step == "next"
        if o.mode in ("tensor", "gradient", "pointer", "computed", "texel"):
            return operands, 1
        if in_order and not (b.aligned and b.type.kind in ("scalar", "enum")):
            return operands, 1
        wide.append(o)
    some = [o for o in wide if o.mode == "linear" or o.step == "next"]
    return (wide, width) if some else (operands, 1)


def _in_rows(leaf: Leaf, shape: Shape, width: int) -> str:
    """Return the ``step`` of a strided array for threads whose elements lie in one row, or ``""`` if it has none."""
    *outer, last = leaf.strides
    if shape[-1] % width or last not in (0, 1):
        return ""
    if last == 0:
        return "same"
    return "next" if leaf.bound.aligned and all(s % width == 0 for s in outer) else ""


def add_rows(
    host: bool,
    deterministic: bool,
    leaves: Sequence[Leaf],
    operands: list[Operand],
    shape: Shape,
    slots: int,
    walking: int,
) -> tuple[list[Operand], int]:
    """Return the operands with gradients added up by rows or columns of the call, and the most groups to launch.

    For sums by columns, each thread runs elements that are a multiple of a row apart, so that they are in one column.
    A range on the CPU adds to its own copy of a gradient that is passed whole, if that is small. ``walking`` is the
    most groups that walk over a call whose rows have any length.
    """
    # The threads of all groups together fill whole rows: for rows of 64 elements and groups of 1024 threads that is
    # so for any number of groups, for rows of 1000 for multiples of 125.
    unit = max(shape[-1], 1) // gcd(max(shape[-1], 1), slots)
    most = max(walking // unit, 1) * unit
    pays = not host and unit <= walking and prod(shape) > most * slots
    out = []
    for leaf, o in zip(leaves, operands, strict=True):
        if o.access == "scatter" and o.mode == "strided" and not holds_half_arrays(o):
            if (pays or host) and _adds_columns(leaf, o, shape):
                o = replace(o, access="column")
            elif host and leaf.strides[-1] == 0:
                o = replace(o, access="row")
        if host and o.mode == "gradient" and o.access == "accumulate" and not o.step:
            o = replace(o, step="own") if _is_small(leaf.bound, deterministic) else o
        out.append(o)
    return out, most if any(o.access == "column" for o in out) else walking


def add_columns(leaves: Sequence[Leaf], operands: list[Operand], shape: Shape) -> tuple[list[Operand], int]:
    """Return the operands with gradients added up by columns in lanes, and how many sums a thread has, or 0."""
    if len(shape) < 2 or shape[-1] < _LEAST_COLUMNS or prod(shape[:-1]) < 2:
        return operands, 0
    out = [
        replace(o, access="column") if o.access == "scatter" and _adds_columns(leaf, o, shape) else o
        for leaf, o in zip(leaves, operands, strict=True)
    ]
    most = max([o.count for o in out if o.access == "column"], default=0)
    return out, max(_MOST_COLUMN_SUMS // most, 1) if most else 0


def _adds_columns(leaf: Leaf, o: Operand, shape: Shape) -> bool:
    """Return whether all elements of a column of the call, and no others, add to one gradient."""
    if o.mode != "strided" or holds_half_arrays(o):
        return False
    *outer, last = leaf.strides
    return not any(s for s, n in zip(outer, shape, strict=False) if n > 1) and abs(last) >= o.count


def walks_of_lanes(shape: Shape, group: int, column_sums: int) -> tuple[int, int]:
    """Return the groups in lanes that walk over a call, and ``step``: the elements of each, or its rows."""
    count = prod(shape)
    if not column_sums:
        step = max(-(-count // MAX_WALKING), min(_LEAST_WALKED, max(count, 1)))
        step = -(-step // group) * group
        return -(-count // step), step
    columns, rows = shape[-1], prod(shape[:-1])
    blocks = -(-columns // (group * column_sums))
    least = max(_LEAST_ROWS, _LEAST_WALKED // min(columns, group * column_sums))
    step = max(-(-rows * blocks // MAX_WALKING), min(least, rows))
    return blocks * -(-rows // step), step


def copies_of(leaf: Leaf, o: Operand, shape: Shape, group: int) -> Copies | None:
    """Return the copies of a gradient that threads add to in its place; None if they add to the gradient itself.

    A float to which terms are added one at a time loses a part of each: 1e-4 of the sum after 2^14, 1e-2 after 2^20.

    Parameters
    ----------
    group : int
        The threads of a group, which adds up a ``"sum"`` first.
    """
    b, count = leaf.bound, prod(shape)
    if count < _LEAST_COPYING or not (b.scalar == "float" or (b.scalar == "half" and b.packer.sums)):
        return None
    whole = o.mode == "gradient" and o.access == "accumulate" and o.step != "own"
    if not (whole or (o.access in ("scatter", "sum") and count >= _LEAST_COPYING_ARRAYS)):
        return None
    strides = leaf.strides or (0,) * len(shape)
    apart = prod(n for n, s in zip(shape, strides, strict=True) if s)
    additions = count // (apart * (group if o.access == "sum" else 1))
    inner, steps = b.view if whole else ((), ())
    unit = spacing(b.scalar, False)
    places = apart * prod(n for n, s in zip(inner, steps, strict=True) if s) * b.count
    # Copies are pieces of memory as large as the gradient's, whose places have to be one behind the other.
    last = sum((n - 1) * s for n, s in zip((*shape, *inner), (*strides, *steps), strict=True))
    if min((*strides, *steps), default=0) < 0 or last + b.count * unit != places * unit:
        return None
    length = -(-places // _COPY_UNIT) * _COPY_UNIT
    most = min(additions // _MOST_ADDITIONS, count // (8 * length), _MOST_COPIES)
    if most < _LEAST_COPIES:
        return None
    made = 1 << (most.bit_length() - 1)
    return Copies(o.name, _ONE_KERNEL if made == 2 * _ONE_KERNEL else made, places, length, unit)


def holds_half_arrays(o: Operand) -> bool:
    """Return whether a gradient is of Arrays of half, which threads cannot add up in floats: their types differ."""
    return o.scalar == "half" and o.type.startswith("Array<")


def _is_small(b: Bound, deterministic: bool) -> bool:
    """Return whether a range may have its own copy of a whole gradient, which it zeroes first and adds at its end."""
    shape, strides = b.view
    dense = contiguous(shape, b.count * spacing(b.scalar, deterministic))
    gaps = any(n != 1 and s != d for n, s, d in zip(shape, strides, dense, strict=True))
    return prod(shape) * b.count <= _MAX_OWN and not gaps


def reach(shape: Shape, strides: Shape) -> int:
    """Return how far the farthest scalar of an array is from its first, in either direction."""
    ahead = behind = 0
    for n, s in zip(shape, strides, strict=True):
        if s > 0:
            ahead += (n - 1) * s
        else:
            behind -= (n - 1) * s
    return max(ahead, behind)


def group_of(asked: tuple[int, ...], tiled: bool) -> tuple[int, ...]:
    """Return the threads of a group in x, y and z; ``asked`` is ordered as shapes are, the last dimension last."""
    if not asked:
        return (GROUP_SIZE,)
    return tuple(reversed(asked)) if tiled else (prod(asked),)


def tiles(where: str, caps: Caps, info: str, group: tuple[int, ...], shape: Shape) -> tuple[int, int, int]:
    """Return the groups in x, y and z that cover the call as tiles.

    If the call has more dimensions than a group, the group's outermost dimension covers the call's outer dimensions,
    merged into one.
    """
    n = len(group)
    sizes = [*reversed(shape[len(shape) - n + 1 :]), prod(shape[: len(shape) - n + 1])]
    groups = [-(-size // g) for size, g in zip(sizes, group, strict=True)]
    x, y, z = (*groups, 1, 1)[:3]
    if any(n > limit for n, limit in zip((x, y, z), caps.max_groups, strict=True)):
        raise UnsupportedError(
            f"{where}: a call of {prod(shape):,} threads is more than {info} runs at once in tiles; leave group_size "
            "out, or make several calls of fewer elements."
        )
    return x, y, z


def groups_of(
    where: str, host: bool, caps: Caps, info: str, threads: int, size: int
) -> tuple[tuple[int, int, int], bool]:
    """Return the groups in x, y and z that have at least that many threads, and whether they run in y as well."""
    if host:
        return (threads, 1, 1), False
    limit = caps.max_groups
    needed = -(-threads // size)
    if needed <= limit[0]:
        return (needed, 1, 1), False
    y = -(-needed // limit[0])
    if y > limit[1]:
        raise UnsupportedError(
            f"{where}: a call of {threads:,} threads is more than {info} runs at once; make several calls of fewer "
            "elements."
        )
    return (-(-needed // y), y, 1), True

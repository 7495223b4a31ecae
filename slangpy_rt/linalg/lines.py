"""Which operands tensor cores read where they lie, and of which products copies are worth it. It holds no array."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from slangpy_rt.linalg.view import View

# Rows and columns of a tile of the result, of both kinds of tensor cores.
TILE = 128
# Lines, and rows and matrices, are read from multiples of 16 bytes.
ALIGNED = 16
_MOST_ROWS = 2**31 - 2**10


class Format(NamedTuple):
    """How tensor cores multiply elements of a type.

    Attributes
    ----------
    size : int
        Bytes of an element.
    parts : int
        Matrices of numbers that the instruction takes, for each matrix of elements.
    packed : int
        Multiplications from which on operands are copied for tensor cores.
    """

    size: int
    parts: int = 1
    packed: int = 2**27

    @property
    def takes_columns(self) -> bool:
        """Whether the instruction also takes matrices in which the elements of columns follow each other."""
        return self.size == 2


# Copies of floats are made of each product; the plain kernel takes 90 us for 2^29 multiplications on an H100.
FORMATS = {
    "half": Format(2),
    "bfloat16": Format(2),
    "int8_t": Format(1),
    "float": Format(4, parts=3, packed=2**29),
    "tf32": Format(4, packed=2**28),
}


def fits(a: View, b: View, c: View) -> bool:
    """Return whether tensor cores multiply matrices of three dimensions, of which copies may have to be made."""
    if not a.shape[2] or (c.strides[2] != 1 and c.shape[2] > 1):
        return False
    # Positions and numbers of tiles are 32-bit integers.
    return max(*a.shape, *b.shape, prod(c.shape) // TILE) <= _MOST_ROWS


def readable(view: View, address: int, left: bool) -> bool:
    """Return whether tensor cores can read an operand, ``a`` or ``b``, where it lies."""
    form = FORMATS[view.element]
    if address % ALIGNED or form.parts > 1:
        return False
    line = lines_of(view)
    return line > 0 if form.takes_columns else line == (2 if left else 1)


def worth_packing(a: View, b: View) -> bool:
    """Return whether a product takes so long that copies of its operands do not matter, if they can be made."""
    # Threads that copy, which have 8 elements or more but for the last of each row, are counted with 32 bits.
    threads = max(prod(x.shape) // 8 + prod(x.shape) // min(x.shape[1:]) for x in (a, b))
    return prod(a.shape) * b.shape[2] >= FORMATS[a.element].packed and threads <= _MOST_ROWS


def lines_of(view: View) -> int:
    """Return the dimension, 1 or 2, along which tensor cores read lines of a view of three; 0 if there is none.

    Elements of a line follow each other, and lines and matrices lie at multiples of 16 bytes below 2^40.
    """
    size = FORMATS[view.element].size
    for line, other in ((2, 1), (1, 2)):
        dense = view.strides[line] == 1 or view.shape[line] == 1
        used = [size * view.strides[d] for d in (other, 0) if view.shape[d] > 1]
        # Matrices may lie in one place, but not the lines of one.
        distinct = view.shape[other] == 1 or view.strides[other] > 0
        if dense and distinct and all(s % ALIGNED == 0 and 0 <= s < 2**40 for s in used):
            return line
    return 0


def are_turned(view: View) -> bool:
    """Return whether the elements of columns follow each other, and not those of rows."""
    return view.strides[1] == 1 and view.strides[2] != 1

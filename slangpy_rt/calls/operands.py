"""From bound arguments to the operands of a kernel: their names, where their values come from, how they are nested.

``launch_geometry`` decides how they are launched; no argument's value is read here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

from slangpy_rt_codegen import Operand

from slangpy_rt.arguments.accumulation import adding
from slangpy_rt.arguments.bind_array import access_of, may_write
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.dtypes import NUMPY_OF, atomic_of
from slangpy_rt.core.shapes import Shape, contiguous


class Leaf:
    """A leaf of a bound argument, its name in the block, and its strides along the merged call dimensions."""

    __slots__ = ("bound", "member", "strides")

    def __init__(self, bound: Bound, member: str, strides: Shape) -> None:
        self.bound = bound
        self.member = member
        self.strides = strides

    def add_fixed(self, values: dict[str, Shape]) -> None:
        """Add the leaf's values that follow from shapes to ``values``, by their names in the block."""
        if self.bound.mode == "tensor":
            unit = NUMPY_OF[self.bound.scalar].itemsize
            shape, strides = self.bound.view
            values[f"shape_{self.member}"] = shape
            values[f"stride_{self.member}"] = tuple([s * unit for s in strides])
            values[f"step_{self.member}"] = self.strides
        elif self.bound.mode == "array":
            values[f"stride_{self.member}"] = self.strides


def operand(leaf: Leaf, shape: Shape, rank: int, where: str, spell: Spelling, aliased: bool = False) -> Operand:
    """Return the operand of a leaf, in a call of ``rank`` dimensions that were merged to ``shape``.

    Parameters
    ----------
    where : str
        The function, for messages.
    aliased : bool
        Whether several arguments add to gradients in one buffer.
    """
    b, member = leaf.bound, leaf.member
    name, via = spell.type(b.type), b.scalar if b.type.kind == "enum" else b.via
    if b.generator is not None:
        scalars = b.generator.scalars()
        # No parameter's name begins with a digit.
        values = [Operand(f"{k}_{member}", s, s, 1, "in", "value") for k, s in enumerate(scalars)]
        text = b.generator.expression(
            f"{where}: argument '{b.name}'", b.type, [f"_spy_call.v_{v.name}" for v in values], rank, b.mapped
        )
        return Operand(member, name, "", 0, "in", "computed", code=text, parts=tuple(("", v) for v in values))
    if b.mode == "handle":
        return Operand(member, name, b.scalar, 1, b.access, "handle", via=b.via)
    if b.mode == "texel":
        dims = range(rank - len(b.shape), rank) if b.mapped is None else b.mapped
        # A dimension of one texel is broadcast.
        places = [f"uint(_spy_index[{d}])" if n > 1 else "0" for d, n in zip(dims, b.shape, strict=True)]
        at = f"uint{len(places)}({', '.join(places[::-1])})" if len(places) > 1 else places[0]
        return Operand(member, name, b.scalar, b.count, b.access, "texel", via=b.via.replace("*", name), code=at)
    # A bool in an array is a byte, but a word when it is passed by value.
    scalar = "uint8_t" if b.scalar == "bool" and b.mode != "value" else b.scalar
    if b.mode != "array":
        if b.mode == "pointer":
            assert b.type.element is not None
            inner = atomic_of(b.type.element)
            element = spell.type(inner or b.type.element)
            pointed = f"Atomic<{element}>" if inner else element
            # Slang converts no pointer for reading and writing to one for reading, or to one of atomics, by itself.
            via = "" if may_write(b.type) and pointed == element else f"Ptr<{pointed}, Access.{access_of(b.type)}>"
            return Operand(member, name, element, 1, b.access, "pointer", via=via)
        walked = "next" if b.mode == "tensor" and any(leaf.strides) else ""
        if b.mode == "tensor" and b.access in ("seed", "accumulate", "tangent"):
            return Operand(member, name, scalar, b.count, b.access, "gradient", len(b.view[0]), walked)
        return Operand(member, name, scalar, b.count, b.access, b.mode, len(b.view[0]), walked, via)
    if not any(leaf.strides):
        mode = "constant" if prod(shape) > 1 else "linear"
    elif leaf.strides == contiguous(shape, b.count):
        mode = "linear"
    else:
        mode = "strided"
    access = adding(leaf.strides, shape, b.count, aliased) if b.access == "accumulate" else b.access
    return _array(member, name, scalar, b.count, access, mode, via)


# Calls of other shapes often have equal operands: to find one takes 0.1 us, to make one 1.8.
@lru_cache(maxsize=1024)
def _array(name: str, type_: str, scalar: str, count: int, access: str, mode: str, via: str) -> Operand:
    return Operand(name, type_, scalar, count, access, mode, via=via)


def trees_of(
    every: Sequence[Bound],
    names: dict[int, str],
    leaves: Sequence[Bound],
    operands: Sequence[Operand],
    spell: Spelling,
) -> list[Operand]:
    """Return the operand of each argument, put together from those of its leaves."""
    of_leaves = {id(b): o for b, o in zip(leaves, operands, strict=True)}
    return [_tree(b, names, of_leaves, spell) for b in every]


def _tree(b: Bound, names: dict[int, str], operands: dict[int, Operand], spell: Spelling) -> Operand:
    if b.mode != "parts":
        own = operands[id(b)]
        if not b.gradients:
            return own
        grads = [operands[id(g)] if g is not None else None for g in (b.grad_in, b.grad_out)]
        return replace(own, grad_in=grads[0], grad_out=grads[1])
    parts = tuple([(place, _tree(part, names, operands, spell)) for place, part in b.parts])
    initial = "{}" if b.initial else ""
    return Operand(names[id(b)], spell.type(b.type), "", 0, b.access, "parts", code=initial, parts=parts)


def names_of(every: Sequence[Bound]) -> dict[int, str]:
    """Return an identifier for each argument, part and gradient, no two alike, by the ``id`` of its Bound."""
    out: dict[int, str] = {}
    taken: set[str] = set()
    todo = list(every)
    # Parameters come first, so that their names stay as they are.
    for b in todo:
        name = identifier(b.name)
        while name in taken:
            name += "_"
        taken.add(name)
        out[id(b)] = name
        if b.parts:
            todo += [part for _, part in b.parts]
        todo += b.gradients
    return out


def identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else re.sub(r"\W+", "_", name)

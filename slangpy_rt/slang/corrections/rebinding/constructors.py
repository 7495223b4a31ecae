"""Vectors that are made of one number, inside the vectors that are made of them.

In ``float3(float2(n), v.z)``, `float2(n)` has no derivative if `n` is an integer. Slang's derivatives of the outer
vector count it as one component: the backward derivative adds a gradient to the wrong component, and the compiler
ends on the forward one. Our function is an operand of its own: ``float3(same(float2(n)), v.z)``.

Parameters without derivatives, the other operands of this kind, get statements (``function_edits``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction, Variable, kind_of
from slangpy_rt.slang.places import arguments_of, opening_of
from slangpy_rt.slang.statements import walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing


def constructor_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> Iterator[Edit]:
    """Yield the edits that pass such vectors through the function `same`."""
    for statement in walk(function.body):
        items = statement.items
        for at, item in enumerate(items):
            opening = at if item.text == "{" else _opening(items, at, around)
            if opening < 0:
                continue
            try:
                given = arguments_of(items, opening)
            except UnbalancedBrackets:
                continue
            if len(given) > 1:
                for start, end in given:
                    if _is_splat(items[start:end], around):
                        yield Edit(items[start].start, f"{same}(")
                        yield Edit(items[end - 1].end, ")")


def _opening(items: Sequence[Token], at: int, around: Surroundings) -> int:
    """Return the index of the parenthesis of a vector's or matrix' constructor; -1 if the token names none."""
    if items[at].kind != "word" or (at and items[at - 1].text in (".", "::")):
        return -1
    opening = opening_of(items, at + 1)
    if opening < 0:
        return -1
    return opening if _is_composite(items[at:opening], around) else -1


def _is_composite(items: Sequence[Token], around: Surroundings) -> bool:
    """Whether tokens are the type of a vector or a matrix."""
    name = "".join(item.text for item in items)
    return around.resolved(Variable("", kind_of(name), name)).kind == "composite"


def _is_splat(items: Sequence[Token], around: Surroundings) -> bool:
    """Whether tokens are a constructor of one operand or a cast of one, and the operand is no literal."""
    try:
        while items and items[0].text == "(":
            close = closing(items, 0)
            if close < len(items) - 1:
                return _is_composite(items[1:close], around)
            items = items[1:close]
        opening = _opening(items, 0, around) if items else -1
        if opening < 0 or closing(items, opening) != len(items) - 1:
            return False
        return len(arguments_of(items, opening)) == 1 and any(i.kind == "word" for i in items[opening:])
    except UnbalancedBrackets:
        return False

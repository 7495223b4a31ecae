"""Vectors and matrices that are built from vectors.

In Slang's backward derivative of ``float3(v, x)``, `x` gets the gradient of another component if `v` has no
derivative, and the forward derivative ends the compiler. The parts become copies, ``float3(same(v), same(x))``, whose
derivatives may be zero. Numbers have none of these faults, so vectors that are built from numbers alone stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction, Variable, declared_variables, kind_of
from slangpy_rt.slang.places import arguments_of, opening_of
from slangpy_rt.slang.statements import walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing

# The type of a list that may be a vector.
_UNKNOWN = "?"
_SIZE = re.compile(r"[a-z]+(?:16_t|32_t|64_t)?(\d)(?:x(\d))?")


def part_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> Iterator[Edit]:
    """Yield the edits that copy the parts of vectors and matrices."""
    for statement in walk(function.body):
        items = statement.items
        for at in range(len(items)):
            try:
                type_, opening = _built(items, at, function, around)
                parts = arguments_of(items, opening) if type_ else []
            except UnbalancedBrackets:
                continue
            if len(parts) < 2 or len(parts) == _components(type_):
                continue
            for start, end in parts:
                if end - start > 1 or items[start].kind == "word":
                    yield Edit(items[start].start, f"{same}(")
                    yield Edit(items[end - 1].end, ")")


def _built(
    items: Sequence[Token], at: int, function: DifferentiableFunction, around: Surroundings
) -> tuple[str, int]:
    """Return the type of the vector or matrix that is built at an index, and the index of its bracket."""
    item, before = items[at], items[at - 1].text if at else ""
    if item.kind == "word" and before not in (".", "::"):
        opening = opening_of(items, at + 1)
        type_ = _type("".join(i.text for i in items[at : max(opening, at + 1)]), around)
        return (type_ if opening > 0 and _is_built(type_) else ""), opening
    if item.text != "{" or before not in ("=", "return", "{", ","):
        return "", at
    # A list in a list is an element of an array, or of a struct.
    outer, depth = at, 0
    while items[outer - 1].text in ("{", ","):
        outer = _list_around(items, outer)
        depth += 1
    if items[outer - 1].text == "return":
        declared = function.returns
    else:
        place = [v for v in declared_variables(items) if outer >= 3 and _is_declared(items, outer, v)]
        declared = place[0].type if place else ""
    type_ = _type(declared, around)
    if not declared or (depth and type_.count("[") != depth):
        return _UNKNOWN, at
    for _ in range(depth):
        type_ = type_.rpartition("[")[0]
    return (type_ if _is_built(type_) else _UNKNOWN if depth else ""), at


def _is_declared(items: Sequence[Token], opening: int, variable: Variable) -> bool:
    at = opening - 2
    while at > 0 and items[at].text == "]":
        at = next(k for k in range(at, -1, -1) if items[k].text == "[") - 1
    return items[at].text == variable.name


def _list_around(items: Sequence[Token], at: int) -> int:
    """Return the index of the brace of the list around the one at an index."""
    for outer in range(at - 1, -1, -1):
        if items[outer].text == "{" and closing(items, outer) > at:
            return outer
    raise UnbalancedBrackets(items[at].start)


def _type(text: str, around: Surroundings) -> str:
    return around.resolved(Variable("", kind_of(text), text)).type


def _is_built(type_: str) -> bool:
    return kind_of(type_) == "composite" and not type_.endswith("]")


def _components(type_: str) -> int:
    """Return how many numbers a type has; 0 if it is not known."""
    match = _SIZE.fullmatch(type_)
    return int(match[1]) * int(match[2] or 1) if match else 0

"""Elements that a function writes by several indices, as in ``m[i][j] = x``.

In Slang's backward derivative a second index that equals the first has lost its operands, and the compiler ends. Each
index after the first one that is no literal is therefore a value of its own: ``m[i][same(j, 1)] = x``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction
from slangpy_rt.slang.places import written_places
from slangpy_rt.slang.statements import walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing


def index_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> Iterator[Edit]:
    """Yield the edits of the indices of written elements.

    Parameters
    ----------
    function : DifferentiableFunction
        The function.
    around : Surroundings
        What it refers to.
    same : str
        The name of a function of a value and a number, which returns the value.
    """
    for statement in walk(function.body):
        for start, end in dict.fromkeys(written_places(statement.items, around.writers)):
            for number, (first, last) in enumerate(_indices(statement.items[start:end])):
                if number:
                    yield Edit(first.start, f"{same}(")
                    yield Edit(last.end, f", {number})")


def _indices(items: Sequence[Token]) -> Iterator[tuple[Token, Token]]:
    """Yield the first and the last token of each index that is no literal, the outermost brackets alone."""
    at = 0
    while at < len(items):
        if items[at].text == "[":
            try:
                close = closing(items, at)
            except UnbalancedBrackets:
                return
            if any(item.kind == "word" for item in items[at + 1 : close]):
                yield items[at + 1], items[close - 1]
            at = close
        at += 1

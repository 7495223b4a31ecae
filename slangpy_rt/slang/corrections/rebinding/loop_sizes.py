"""Numbers of rounds that ``[MaxIters]`` declares for loops inside one another.

Slang's backward derivative keeps values of each round of nested loops in an array. The array's sizes are the declared
numbers, beginning with the outer loop, but its indices begin with the inner loop (shader-slang/slang#13000). Where
the numbers differ, elements overlap or lie outside the array. Each loop of a nest is therefore made to declare a
number that is large enough for its own rounds and for the index that takes its place. Unrolled loops take no part,
and a function that is called in a loop has arrays of its own.

A loop without the attribute gets one by its head. ``unmended_nests`` reports those that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import ge, gt, le, lt, ne
from typing import NamedTuple

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction
from slangpy_rt.slang.places import has_writes
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement
from slangpy_rt.slang.tokens import Token, closing

# Floats of an array that is made larger: as many as a thread of CUDA has local memory for.
LARGEST_ARRAY = 1 << 17
_ORDERS: dict[str, Callable[[int, int], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne}
_MIRRORED = {"<": ">", ">": "<", "<=": ">="}
_UNROLLED = frozenset(("ForceUnroll", "$"))


@dataclass(frozen=True, slots=True)
class _Level:
    """A loop that is not unrolled.

    Attributes
    ----------
    loop : Loop
        The loop.
    rounds : str
        Its number of rounds; empty if it is not known.
    around : tuple of _Level
        The loops around it, the outermost first.
    needed : dict
        The numbers that it has to be enough for, as keys.
    """

    loop: Loop
    rounds: str
    around: tuple[_Level, ...]
    needed: dict[str, None] = field(default_factory=dict)

    @property
    def declared(self) -> str:
        """The number that the loop has to declare; empty if it is not known."""
        if "" in self.needed:
            return ""
        numbers = [text for text in self.needed if text.isdigit()]
        largest = [max(numbers, key=int)] if numbers else []
        whole, *others = [*largest, *(text for text in self.needed if not text.isdigit())]
        for text in others:
            whole = f"(({whole}) > ({text}) ? ({whole}) : ({text}))"
        return whole


class _Head(NamedTuple):
    """The head of a ``for`` loop whose counter takes steps of a literal: its first value, and its condition."""

    first: str
    order: str
    end: str
    step: int


def loop_size_edits(function: DifferentiableFunction) -> Iterator[Edit]:
    """Yield the edits of the numbers of rounds."""
    for level in _levels(function.body):
        place, loop = _attribute(level.loop.attributes), level.loop
        wanted = level.declared or level.rounds
        if place:
            opening, close = (loop.attributes[at] for at in place)
            if wanted != _text(loop.attributes[place[0] + 1 : place[1]]):
                yield Edit(opening.end, wanted, close.start - opening.end)
        elif wanted != level.rounds:
            yield Edit(loop.keyword, f"[MaxIters({wanted})] ")


def unmended_nests(function: DifferentiableFunction) -> Iterator[tuple[int, bool]]:
    """Yield the offset of each loop whose arrays stay wrong, and whether its number of rounds is known."""
    for level in _levels(function.body):
        path = (*level.around, level)
        if len({a.rounds for a in path}) == 1 and path[0].rounds:
            continue
        if not all(a.rounds for a in path):
            if len(path) > 1:
                yield level.loop.start, False
        elif all(a.declared.isdigit() for a in path) and prod(int(a.declared) + 2 for a in path) > LARGEST_ARRAY:
            yield level.loop.start, True


def becomes_for(loop: Loop) -> bool:
    """Whether a loop is a ``while`` whose condition assigns and declares nothing.

    Another condition would end the compiler as the condition of a ``for``.
    """
    return loop.word == "while" and loop.items[0].text != "let" and not has_writes(loop.items)


def _levels(body: Block) -> list[_Level]:
    found: list[_Level] = []
    _collect(body, (), found)
    return found


def _collect(statement: Statement | None, around: tuple[_Level, ...], found: list[_Level]) -> None:
    inside: Sequence[Statement | None] = ()
    if isinstance(statement, Block):
        inside = statement.body
    elif isinstance(statement, Branch):
        inside = statement.parts
    elif isinstance(statement, Loop):
        inside = (statement.part,)
        words = {item.text for item in (*statement.attributes, *statement.items[:1])}
        if statement.word and words.isdisjoint(_UNROLLED):
            level = _Level(statement, _rounds(statement), around)
            level.needed[level.rounds] = None
            found.append(level)
            around = (*around, level)
            for place, other in enumerate(around):
                other.needed[around[-1 - place].rounds] = None
    for part in inside:
        _collect(part, around, found)


def _rounds(loop: Loop) -> str:
    """Return the number of rounds that a loop declares, or that its literals give; empty if there is none."""
    place = _attribute(loop.attributes)
    number = _text(loop.attributes[place[0] + 1 : place[1]]) if place else _head_rounds(loop)
    if not becomes_for(loop) or not number:
        return number
    # The condition is evaluated once more.
    return str(int(number) + 1) if number.isdigit() else f"({number}) + 1"


def literal_rounds(loop: Loop) -> int:
    """Return the number of rounds of ``for (int i = 0; i < 3; ++i)``; 0 where the head has more than literals."""
    head = _head(loop)
    if head is None or not (head.first.removeprefix("-").isdigit() and head.end.removeprefix("-").isdigit()):
        return 0
    first, end = int(head.first), int(head.end)
    if not _ORDERS[head.order](first, end):
        return 0
    rounds = 1
    while rounds <= LARGEST_ARRAY and _ORDERS[head.order](first + rounds * head.step, end):
        rounds += 1
    return rounds


def _head(loop: Loop) -> _Head | None:
    texts = [item.text for item in loop.items]
    if loop.word != "for" or texts.count(";") != 2:
        return None
    one = texts.index(";")
    two = texts.index(";", one + 1)
    start, test, step = texts[:one], texts[one + 1 : two], texts[two + 1 :]
    equals = start.index("=") if "=" in start else 0
    if test[1:3] in (["<", "="], [">", "="]):
        test[1:3] = [test[1] + "="]
    if not equals or "," in start or len(test) < 3:
        return None
    name = start[equals - 1]
    if test[-1] == name and test[-2] in _MIRRORED:  # 3 > i
        test = [name, _MIRRORED[test[-2]], *test[:-2]]
    if test[0] != name:
        return None
    change = {"++": 1, "--": -1}.get("".join(step).replace(name, "", 1)) if name in step else None
    if step[:1] == [name] and step[1:2] in (["+="], ["-="]) and len(step) == 3 and step[2].isdigit():
        change = int(step[2]) * (1 if step[1] == "+=" else -1)
    # ``i < n && x > 0`` may end sooner.
    if not change or test[1] not in _ORDERS or not {"&&", "||", "<", ">", "==", "!="}.isdisjoint(test[2:]):
        return None
    return _Head("".join(start[equals + 1 :]), test[1], "".join(test[2:]), change)


def _head_rounds(loop: Loop) -> str:
    """Return the number of rounds of a loop without the attribute, as text, or a larger one; empty if unknown."""
    number, head = literal_rounds(loop), _head(loop)
    if number or head is None or head.order == "!=" or (head.step > 0) != (head.order[0] == "<"):
        return str(number or "")
    low, high = (head.first, head.end) if head.step > 0 else (head.end, head.first)
    more = " + 1" if head.order[1:] else ""
    return f"{high}{more}" if low == "0" else f"({high}) - ({low}){more}"


def _attribute(attributes: Sequence[Token]) -> tuple[int, int] | None:
    """Return the indices of the parentheses of ``MaxIters``."""
    for at, item in enumerate(attributes[:-1]):
        if item.text == "MaxIters" and attributes[at + 1].text == "(":
            return at + 1, closing(attributes, at + 1)
    return None


def _text(items: Sequence[Token]) -> str:
    return " ".join(item.text for item in items)

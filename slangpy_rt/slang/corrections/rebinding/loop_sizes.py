"""Numbers of rounds that ``[MaxIters]`` declares for loops inside one another.

Slang's backward derivative keeps values of each round of nested loops in an array. Its sizes are the declared
numbers, that of the outer loop first, but its first index is the inner loop's (shader-slang/slang#13000): where the
numbers differ, elements overlap or lie outside of the array. Each loop of a nest therefore declares a number that is
enough for each index that is used in its place, and for its own. Loops that are unrolled have no place, and a
function that is called in a loop has arrays of its own.

A loop without the attribute gets one if its head has literals alone. ``unmended_nests`` reports those that are left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import ge, gt, le, lt, ne

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction
from slangpy_rt.slang.places import has_writes
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement
from slangpy_rt.slang.tokens import Token, closing

# Floats of an array that is made larger: as many as a thread of CUDA has local memory for.
LARGEST_ARRAY = 1 << 17
_ORDERS: dict[str, Callable[[int, int], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne}
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
    number = _text(loop.attributes[place[0] + 1 : place[1]]) if place else str(literal_rounds(loop) or "")
    if not becomes_for(loop) or not number:
        return number
    # The condition is evaluated once more.
    return str(int(number) + 1) if number.isdigit() else f"({number}) + 1"


def literal_rounds(loop: Loop) -> int:
    """Return the number of rounds of ``for (int i = 0; i < 3; ++i)``; 0 where the head has more than literals."""
    texts = [item.text for item in loop.items]
    if loop.word != "for" or texts.count(";") != 2:
        return 0
    first = texts.index(";")
    second = texts.index(";", first + 1)
    start, test, step = texts[:first], texts[first + 1 : second], texts[second + 1 :]
    if test[1:3] == [">", "="]:
        test[1:3] = [">="]
    name = start[1] if len(start) > 3 and start[2] == "=" else ""
    value, end = _number(start[3:]), _number(test[2:])
    change = {"++": 1, "--": -1}.get("".join(step).replace(name, "", 1)) if name and name in step else None
    if change is None and step[:1] == [name] and step[1:2] in (["+="], ["-="]) and _number(step[2:]) is not None:
        change = (_number(step[2:]) or 0) * (1 if step[1] == "+=" else -1)
    if value is None or end is None or not change or len(test) < 3 or test[0] != name or test[1] not in _ORDERS:
        return 0
    rounds = 1
    while rounds <= LARGEST_ARRAY and _ORDERS[test[1]](value + rounds * change, end):
        rounds += 1
    return rounds


def _number(texts: Sequence[str]) -> int | None:
    """Return the integer that tokens write; None if they are another expression."""
    text = "".join(texts)
    return int(text) if text.removeprefix("-").isdigit() else None


def _attribute(attributes: Sequence[Token]) -> tuple[int, int] | None:
    """Return the indices of the parentheses of ``MaxIters``."""
    for at, item in enumerate(attributes[:-1]):
        if item.text == "MaxIters" and attributes[at + 1].text == "(":
            return at + 1, closing(attributes, at + 1)
    return None


def _text(items: Sequence[Token]) -> str:
    return " ".join(item.text for item in items)

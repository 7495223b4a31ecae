"""The statements of Slang functions as trees: blocks, branches, loops and single statements, with their offsets.

Types are not known here, expressions are not parsed, and macros are not expanded: a macro that is followed by a
block, as in ``REPEAT(i, 3) { ... }``, counts as a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing

_LOOPS = ("for", "while")
_JUMPS = ("return", "break", "continue", "discard")
_SWITCHES = ("switch", "__target_switch", "__stage_switch")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement without statements inside: an expression, a declaration, a jump or a label.

    Attributes
    ----------
    items : tuple of Token
        Its tokens; for a branch or a loop those of its condition.
    start, end : int
        Offsets of its first character and after its last one, in the text of the file.
    """

    items: tuple[Token, ...]
    start: int
    end: int

    @property
    def jumps(self) -> bool:
        """Whether the statement ends the run of statements that it stands in."""
        return bool(self.items) and self.items[0].text in _JUMPS

    @property
    def labels(self) -> bool:
        """Whether the statement is ``case ...:`` or ``default:``."""
        return bool(self.items) and self.items[0].text in ("case", "default")


@dataclass(frozen=True, slots=True)
class Block(Statement):
    """Statements in braces, the body of a switch included; ``items`` is empty."""

    body: tuple[Statement, ...] = ()


@dataclass(frozen=True, slots=True)
class Branch(Statement):
    """An ``if`` with one or two statements, or a switch with its block."""

    parts: tuple[Statement, ...] = ()

    @property
    def switches(self) -> bool:
        """Whether the statement is a switch over an expression, whose tokens follow a parenthesis in ``items``."""
        block = self.parts[0] if len(self.parts) == 1 else None
        return isinstance(block, Block) and any(s.labels for s in block.body) and len(self.items) > 1


@dataclass(frozen=True, slots=True)
class Loop(Statement):
    """A ``for``, ``while`` or ``do`` with its statement; ``items`` has the tokens in its parentheses.

    Attributes
    ----------
    part : Statement
        The statement that is repeated.
    word : str
        ``"for"``, ``"while"``, ``"do"``, or empty for a macro.
    keyword : int
        The offset of the word.
    attributes : tuple of Token
        The tokens of the attributes before it.
    """

    part: Statement | None = None
    word: str = ""
    keyword: int = 0
    attributes: tuple[Token, ...] = ()


def parse_block(items: Sequence[Token], at: int) -> Block:
    """Return the statements of the block whose opening brace is at index `at`.

    Raises
    ------
    UnbalancedBrackets
        If the brackets of the block do not match.
    """
    end = closing(items, at)
    body = []
    index = at + 1
    while index < end:
        statement, index = _statement(items, index, end)
        body.append(statement)
    return Block((), items[at].start, items[end].end, tuple(body))


def walk(statement: Statement) -> Iterator[Statement]:
    """Yield a statement and all statements inside, in source order."""
    yield statement
    inside: Sequence[Statement] = ()
    if isinstance(statement, Block):
        inside = statement.body
    elif isinstance(statement, Branch):
        inside = statement.parts
    elif isinstance(statement, Loop) and statement.part:
        inside = (statement.part,)
    for part in inside:
        yield from walk(part)


def falling_cases(body: Statement) -> Iterator[int]:
    """Yield the offset of the last statement of each case of a switch that goes on in the next case."""
    for statement in walk(body):
        switch = isinstance(statement, Branch) and len(statement.parts) == 1 and statement.parts[0]
        if not isinstance(switch, Block) or not switch.body or not switch.body[0].labels:
            continue
        for last, label in pairwise(switch.body):
            if label.labels and not last.labels and _goes_on(last):
                yield last.start


def _goes_on(statement: Statement) -> bool:
    """Whether what follows a statement may be run."""
    if isinstance(statement, Block):
        return not statement.body or _goes_on(statement.body[-1])
    if isinstance(statement, Branch):
        return len(statement.parts) < 2 or any(map(_goes_on, statement.parts))
    return isinstance(statement, Loop) or not statement.jumps


def _statement(items: Sequence[Token], at: int, limit: int) -> tuple[Statement, int]:
    """Return the statement at index `at`, and the index after it."""
    start = items[at].start
    head = at
    while items[head].text == "[" and head < limit:  # attributes
        head = closing(items, head) + 1
    if head >= limit:
        raise UnbalancedBrackets(start)
    word = items[head].text
    if word == "{":
        block = parse_block(items, head)
        return block, closing(items, head) + 1
    after = items[head + 1].text if head + 1 < limit else ""
    if word in (*_LOOPS, "if") and after == "(":
        close = closing(items, head + 1)
        part, index = _statement(items, close + 1, limit)
        condition = tuple(items[head + 2 : close])
        if word != "if":
            return Loop(condition, start, part.end, part, word, items[head].start, tuple(items[at:head])), index
        parts = [part]
        if index < limit and items[index].text == "else":
            other, index = _statement(items, index + 1, limit)
            parts.append(other)
        return Branch(condition, start, parts[-1].end, tuple(parts)), index
    if word == "do":
        part, index = _statement(items, head + 1, limit)
        single, index = _single(items, index, limit)
        return Loop(single.items, start, single.end, part, word, items[head].start, tuple(items[at:head])), index
    if word in _SWITCHES:
        close = closing(items, head + 1) if after == "(" else head
        if items[close + 1].text == "{":
            block = parse_block(items, close + 1)
            return Branch(tuple(items[head + 1 : close]), start, block.end, (block,)), closing(items, close + 1) + 1
    if word in ("case", "default"):
        index = head
        while index < limit and items[index].text not in (":", ";", "{"):
            index += 1
        if index < limit and items[index].text == ":":
            return Statement(tuple(items[head : index + 1]), start, items[index].end), index + 1
    if after == ":" and items[head].kind == "word" and head + 2 < limit and items[head + 2].text in _LOOPS:
        inner, index = _statement(items, head + 2, limit)
        return (replace(inner, start=start) if isinstance(inner, Loop) else inner), index
    return _single(items, at, limit)


def _single(items: Sequence[Token], at: int, limit: int) -> tuple[Statement, int]:
    """Return the statement up to its semicolon, or a macro with a block as a loop."""
    index = at
    assigned = False
    while index < limit:
        word = items[index].text
        if word == ";":
            return Statement(tuple(items[at : index + 1]), items[at].start, items[index].end), index + 1
        assigned |= word in ("=", "return", "=>", "spirv_asm")
        if word == "{" and not assigned:
            block = parse_block(items, index)
            declares = items[at].text in ("struct", "func", "interface", "enum", "typealias", "class")
            close = closing(items, index)
            if not declares:
                return Loop(tuple(items[at:index]), items[at].start, block.end, block), close + 1
            index = close
            if close + 1 >= limit or items[close + 1].text != ";":
                return Statement(tuple(items[at : close + 1]), items[at].start, items[close].end), close + 1
        elif word in ("(", "[", "{"):
            index = closing(items, index)
        index += 1
    raise UnbalancedBrackets(items[at].start)

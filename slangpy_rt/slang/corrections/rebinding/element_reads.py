"""Elements of vectors, matrices and arrays that a function reads by an index that is no literal.

Of two elements of one value that are read in one block, one of them by an index that is no literal, one loses its
gradient in Slang's backward derivative. All but the first are therefore read from copies, ``same(v, 1)[i]``, whose
numbers keep them apart, and a variable that would be another name of the value becomes a copy, ``w = same(v, 2);``.

Slang moves what does not change in a loop to the block before it, and the rounds of an unrolled loop follow one
another in one block. Branches may be decided by the compiler, so what they read counts as read beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction, Variable, declared_variables, kind_of
from slangpy_rt.slang.places import (
    ASSIGNMENTS,
    Writers,
    arguments_of,
    expression_start,
    is_place,
    root_index,
    variable_at,
    writes,
    written_places,
)
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement, walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing

_COMPONENTS = frozenset("xyzwrgba")
# ``m._m01`` and ``m._12``.
_MATRIX_COMPONENT = re.compile(r"_m?[0-4]{2}")
_UNROLLED = frozenset(("ForceUnroll", "$"))


@dataclass(frozen=True, slots=True)
class _Round:
    """A loop around a statement: its number, the variables that change in it, and its counter if it is unrolled."""

    number: int
    changed: Set[str]
    counter: str = ""


@dataclass(frozen=True, slots=True)
class _Element:
    """An element that a statement reads.

    Attributes
    ----------
    value : str
        The text of the value that it belongs to.
    start, end : int
        The offsets of that text.
    words : frozenset of str
        The names in its index.
    literal : bool
        Whether the index has no names.
    changed : bool
        Whether the element is the target of an assignment such as ``+=``.
    """

    value: str
    start: int
    end: int
    words: frozenset[str]
    literal: bool
    changed: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    """An element, the blocks that it may be read in, and the counters of unrolled loops around it."""

    element: _Element
    blocks: tuple[int, ...]
    counters: tuple[str, ...]

    @property
    def computed(self) -> bool:
        """Whether the index is no literal once loops are unrolled."""
        return not self.element.literal and not self.element.words <= set(self.counters)


def element_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> tuple[Edit, ...]:
    """Return the edits that keep the elements apart that a function reads.

    Parameters
    ----------
    function : DifferentiableFunction
        The function.
    around : Surroundings
        What it refers to.
    same : str
        The name of a function of a value and a number, which returns the value.
    """
    known = around.members_of(function) | {p.name: around.resolved(p) for p in function.parameters}
    readings = list(_Reader(around).readings(function.body, known, ()))
    groups: dict[tuple[int, str], list[_Reading]] = {}
    for reading in readings:
        for block in reading.blocks:
            groups.setdefault((block, reading.element.value), []).append(reading)
    parted: dict[int, _Reading] = {}
    for group in groups.values():
        if not any(reading.computed for reading in group):
            continue
        # One element may be read from the variable itself. If one is changed, ``v.x *= v[i]``, it is this one.
        own = next((r for r in group if r.element.changed), group[0])
        repeated = any(r.counters and r.computed for r in group)
        for reading in group:
            if not reading.element.changed and (reading is not own or repeated):
                parted[reading.element.start] = reading
    edits: list[Edit] = []
    for number, (_, reading) in enumerate(sorted(parted.items()), 1):
        number_ = "".join((str(number), *(f" + {10007**k}*int({c})" for k, c in enumerate(reading.counters, 1))))
        edits += (Edit(reading.element.start, f"{same}("), Edit(reading.element.end, f", {number_})"))
    if any(reading.computed for reading in readings):
        copies = _Reader(around).copies(function.body, known)
        for number, (start, end) in enumerate(copies, len(parted) + 1):
            if start not in parted:
                edits += (Edit(start, f"{same}("), Edit(end, f", {number})"))
    return tuple(edits)


def index_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> Iterator[Edit]:
    """Yield the edits that keep the indices of places apart to which a function writes.

    The compiler fails on ``m[i % 3][i % 3] = x;``: of two equal indices, it declares one too late.
    """
    for statement in walk(function.body):
        items = statement.items
        declared = {variable.name for variable in declared_variables(items)}
        for start, end in dict.fromkeys(written_places(items, around.writers)):
            if items[start].text in declared:  # ``float a[N][N] = x;``
                continue
            seen = 0
            at = start
            while at < end:
                if items[at].text == "[":
                    try:
                        close = closing(items, at)
                    except UnbalancedBrackets:
                        break
                    named = any(item.kind == "word" for item in items[at + 1 : close])
                    if named and seen:
                        yield Edit(items[at].end, f"{same}(")
                        # A third index that is equal to both of them needs a value of its own.
                        yield Edit(items[close].start, f", {seen})")
                    seen += named
                    at = close
                at += 1


@dataclass(frozen=True, slots=True)
class _Reader:
    """Finds the elements that statements read."""

    around: Surroundings

    def readings(
        self, statement: Statement, known: Mapping[str, Variable], rounds: tuple[_Round, ...]
    ) -> Iterator[_Reading]:
        """Yield the elements that a statement and those inside read, in source order."""
        if isinstance(statement, Block):
            inner = dict(known)
            for part in statement.body:
                yield from self.readings(part, inner, rounds)
                inner |= self._declared(part.items, inner)
            return
        if not isinstance(statement, Loop):
            yield from self._own(statement.items, known, rounds)
            if isinstance(statement, Branch):
                inner = {**known, **self._declared(statement.items, known)}
                for part in statement.parts:
                    yield from self.readings(part, inner, rounds)
            return
        inner = {**known, **self._declared(statement.items, known)}
        head = (
            next((k for k, i in enumerate(statement.items) if i.text == ";"), -1) if statement.word == "for" else -1
        )
        yield from self._own(statement.items[: head + 1], known, rounds)
        unrolled = is_unrolled(statement)
        changed = changed_in(statement, self.around.writers)
        counter = next(iter(_counters(statement)), "") if unrolled else ""
        within = (*rounds, _Round(statement.start, changed, counter))
        yield from self._own(statement.items[head + 1 :], inner, within)
        if statement.part is not None:
            yield from self.readings(statement.part, inner, within)

    def copies(self, block: Statement, known: Mapping[str, Variable]) -> Iterator[tuple[int, int]]:
        """Yield the offsets of each value that statements give to a variable unchanged."""
        inner = dict(known)
        for statement in walk(block):
            if isinstance(statement, Loop | Branch | Block):
                continue
            inner |= self._declared(statement.items, inner)
            for at, item in enumerate(statement.items):
                if item.text != "=":
                    continue
                for start, end in _given(statement.items, at + 1):
                    if self._may_be_another(statement.items[start:end], inner):
                        yield statement.items[start].start, statement.items[end - 1].end

    def _may_be_another(self, base: Sequence[Token], known: Mapping[str, Variable]) -> bool:
        """Whether a copy of a place may be another name of a value that has elements."""
        root = known.get(variable_at(base, 0))
        return self._has_elements(base, known) or (
            len(base) == 1 and root is not None and root.kind == "unknown" and root.differentiable
        )

    def _declared(self, items: Sequence[Token], known: Mapping[str, Variable]) -> dict[str, Variable]:
        """Return the variables that a statement declares; of ``let w = v;`` with the type of `v`."""
        found = {}
        for variable in declared_variables(items):
            found[variable.name] = self.around.resolved(variable)
            at = next((k for k, item in enumerate(items) if item.text == "="), len(items))
            value = items[at + 1 : -1]
            if not variable.type and len(value) == 1 and value[0].text in known:
                source = known[value[0].text]
                found[variable.name] = Variable(variable.name, source.kind, source.type, variable.mutable)
        return found

    def _own(
        self, items: Sequence[Token], known: Mapping[str, Variable], rounds: tuple[_Round, ...]
    ) -> Iterator[_Reading]:
        declared = self._declared(items, known)
        inner = {**known, **declared}
        unseen = set(declared)
        for element, base in _elements(items, self.around.writers):
            name = base[0].text
            if len(base) == 1 and name in unseen:
                unseen.discard(name)
            elif self._has_elements(base, inner):
                blocks, counters = [], []
                for at in range(len(rounds), -1, -1):
                    turn = rounds[at - 1] if at else None
                    unrolled = turn is not None and turn.counter
                    if unrolled and turn is not None:
                        counters.append(turn.counter)
                    else:
                        blocks.append(turn.number if turn else 0)
                    if turn and not unrolled and element.words & turn.changed:
                        break
                yield _Reading(element, tuple(blocks), tuple(counters))

    def _has_elements(self, base: Sequence[Token], known: Mapping[str, Variable]) -> bool:
        """Whether tokens are a value whose elements may have derivatives."""
        if not base:
            return False
        if base[-1].text == ")" or not is_place(base):
            return True
        names = [item.text for item in base if item.kind == "word"]
        if names[0] == "this":
            names = names[1:]
        if not names or names[0] not in known:
            return False
        root = known[names[0]]
        if not root.differentiable and not root.mutable:
            return False
        if len(names) == 1:
            return root.elements or not root.type
        if set(names[-1]) <= _COMPONENTS and root.kind in ("composite", "unknown"):
            return True
        fields = self.around.fields_named(names[-1])
        return root.kind == "unknown" and bool(fields) and all(field.elements for field in fields)


def _elements(items: Sequence[Token], writers: Writers) -> Iterator[tuple[_Element, Sequence[Token]]]:
    """Yield the elements that a statement reads, and the tokens of the value that each belongs to."""
    written = {items[start].start for start, _ in written_places(items, writers)}
    for at, item in enumerate(items):
        if item.text in ASSIGNMENTS and item.text != "=" and at:
            root = root_index(items, at - 1)
            if root >= 0 and root + 1 < at:
                dots = [k for k in range(root + 1, at) if items[k].text in (".", "[")]
                end = next((k for k in dots if items[k].text == "["), dots[-1])
                yield _element(items, root, end, at, True), items[root:end]
        elif _MATRIX_COMPONENT.fullmatch(item.text) and at > 1 and items[at - 1].text == ".":
            start = expression_start(items, at - 2)
            if start >= 0 and items[start].start not in written and all(i.text != "[" for i in items[start:at]):
                yield _element(items, start, at - 1, at - 1, False), items[start : at - 1]
        elif item.text == "[" and at and (items[at - 1].kind == "word" or items[at - 1].text == ")"):
            start = expression_start(items, at - 1)
            if start < 0 or items[start].start in written or any(i.text == "[" for i in _outer(items[start:at])):
                continue
            try:
                end = _chain_end(items, at)
            except UnbalancedBrackets:
                continue
            yield _element(items, start, at, end, False), items[start:at]


def _element(items: Sequence[Token], start: int, end: int, last: int, changed: bool) -> _Element:
    base = items[start:end]
    text = "".join(item.text for item in base)
    while text.startswith("(") and closing(base, 0) == len(base) - 1:
        base = base[1:-1]
        text = "".join(item.text for item in base)
    text = text.removeprefix("this.")
    indices = items[end:last]
    words = frozenset(
        item.text for k, item in enumerate(indices) if item.kind == "word" and indices[k - 1].text != "."
    )
    return _Element(text, items[start].start, items[end - 1].end, words, not words, changed)


def _outer(items: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens that are in no parentheses."""
    depth = 0
    for item in items:
        depth -= item.text == ")"
        if not depth:
            yield item
        depth += item.text == "("


def _chain_end(items: Sequence[Token], at: int) -> int:
    """Return the index after a chain of indices and fields, as in ``[i].x[j]``, that begins at index `at`."""
    at = closing(items, at) + 1
    while at + 1 < len(items):
        following = at
        while following + 1 < len(items) and items[following].text == "." and items[following + 1].kind == "word":
            following += 2
        if following >= len(items) or items[following].text != "[":
            break
        at = closing(items, following) + 1
    return at


def _given(items: Sequence[Token], at: int) -> Iterator[tuple[int, int]]:
    """Yield the indices of each place that is the value after an ``=`` or an item of the list there.

    Parentheses and casts around it, ``(float3)v`` and ``float3(v)``, change nothing.
    """
    if at >= len(items):
        return
    try:
        if items[at].text == "{":
            for start, end in arguments_of(items, at):
                yield from _given([*items[:end], items[-1]], start)
            return
        if items[at].text == "(":
            close = closing(items, at)
            cast = items[close + 1].kind == "word" if close + 1 < len(items) else False
            yield from _given(items, close + 1) if cast else _given(items[: close + 1], at + 1)
            return
        if items[at].kind == "word" and at + 1 < len(items) and items[at + 1].text == "(":
            if kind_of(items[at].text) == "composite":
                for start, end in arguments_of(items, at + 1):
                    yield from _given([*items[:end], items[-1]], start)
            return
    except UnbalancedBrackets:
        return
    end = next((k for k in range(at, len(items)) if items[k].text in (";", ",", "}", ")")), len(items))
    if is_place(items[at:end]) and all(item.text != "[" for item in items[at:end]):
        yield at, end


def _counters(loop: Loop) -> Iterator[str]:
    """Yield the variables that the head of a loop declares."""
    yield from (variable.name for variable in declared_variables(loop.items))
    for at, item in enumerate(loop.items[:-1]):
        if item.text == "in":  # $for (i in Range(0, 3))
            yield loop.items[at - 1].text


def is_unrolled(loop: Loop) -> bool:
    """Whether the compiler repeats the statement of a loop, with a literal in place of the counter."""
    return any(item.text in _UNROLLED for item in (*loop.attributes, *loop.items[:1]))


def changed_in(loop: Loop, writers: Writers, literals: bool = False) -> frozenset[str]:
    """Return the variables that differ in the rounds of a loop.

    Parameters
    ----------
    loop : Loop
        The loop.
    writers : Writers
        The functions that write to variables.
    literals : bool
        Whether the counters of unrolled loops inside are literals.
    """
    found = set(_counters(loop))
    declarations: list[tuple[set[str], set[str]]] = []
    for statement in walk(loop):
        if literals and isinstance(statement, Loop) and is_unrolled(statement):
            continue
        names = {v.name for v in declared_variables(statement.items)} if type(statement) is Statement else set()
        found |= {name for name, _ in writes(statement.items, writers) if name not in names}
        if names:
            declarations.append((names, {i.text for i in statement.items if i.kind == "word"} - names))
    for _ in range(3):  # a variable made of one that is made of a counter
        for names, words in declarations:
            if words & found:
                found |= names
    return frozenset(found)

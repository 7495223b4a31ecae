"""Places that Slang statements read and write: variables with fields, components and indices, by their tokens.

``a.b[i].x`` is a place of the variable `a`. Types are not known here, so a field and a method of one name look alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing

ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="))
_STEPS = frozenset(("++", "--"))
_GENERIC_TYPES = frozenset(("vector", "matrix", "Array"))
_GENERIC_OPERATORS = frozenset(("<", ">", ",", "::", ".", "[", "]", "(", ")", "+", "-", "*", "/", "%"))


@dataclass(frozen=True, slots=True)
class Writer:
    """Parameters to which one function of a name writes.

    Attributes
    ----------
    written : frozenset of int
        The numbers of its ``out`` and ``inout`` parameters.
    count : int
        How many parameters it has.
    needed : int
        How many of them have no default value.
    mutating : bool
        Whether it writes to its object, too.
    """

    written: frozenset[int]
    count: int
    needed: int
    mutating: bool = False


Writers = Mapping[str, Sequence[Writer]]


def opening_of(items: Sequence[Token], at: int) -> int:
    """Return the index of the parenthesis of a call, after its generic arguments; -1 if there is none."""
    if at < len(items) and items[at].text == "<":
        depth = 0
        while at < len(items):
            depth += (items[at].text == "<") - (items[at].text == ">")
            if items[at].text in (";", "{"):
                return -1
            at += 1
            if depth == 0:
                break
    return at if at < len(items) and items[at].text == "(" else -1


def arguments_of(items: Sequence[Token], opening: int, generics: bool = True) -> list[tuple[int, int]]:
    """Return the first index and the index after the last one of each argument of a call.

    Parameters
    ----------
    items : sequence of Token
        The tokens of a statement.
    opening : int
        The index of the parenthesis.
    generics : bool
        Whether ``a < b, c > (d)`` is one argument with generic arguments. It may be two comparisons.

    Raises
    ------
    UnbalancedBrackets
        If the parenthesis is not closed.
    """
    close = closing(items, opening)
    found = []
    start = opening + 1
    depth = generic = 0
    for at in range(opening + 1, close + 1):
        word = items[at].text
        if at == close or (word == "," and depth == 0 and at > generic):
            if at > start:
                found.append((start, at))
            start = at + 1
        depth += (word in "([{") - (word in ")]}")
        if word == "<":
            generic = max(generic, _generic_end(items, at, generics))
    return found


def _generic_end(items: Sequence[Token], at: int, calls: bool) -> int:
    """Return the index of the ``>`` of the generic arguments that begin at index `at`; -1 if there are none."""
    known = items[at - 1].text in _GENERIC_TYPES
    if items[at - 1].kind != "word" or not (known or calls):
        return -1
    depth = 0
    for end in range(at, len(items)):
        word = items[end].text
        depth += (word == "<") - (word == ">")
        if depth == 0:
            after = items[end + 1].text if end + 1 < len(items) else ""
            return end if known or after in ("(", ".", "::") else -1
        if items[end].kind == "operator" and word not in _GENERIC_OPERATORS:
            return -1
    return -1


def is_place(items: Sequence[Token]) -> bool:
    """Whether tokens are a name with fields and indices, ``a.b[i].x``."""
    return bool(items) and items[0].kind == "word" and place_end(items, 0) == len(items)


def place_end(items: Sequence[Token], at: int) -> int:
    """Return the index after the place whose variable's name is at index `at`."""
    at += 1
    while at < len(items):
        if items[at].text == "." and at + 1 < len(items) and items[at + 1].kind == "word":
            at += 2
        elif items[at].text == "[":
            try:
                at = closing(items, at) + 1
            except UnbalancedBrackets:
                break
        else:
            break
    return at


def root_index(items: Sequence[Token], at: int) -> int:
    """Return the index of the variable's name of the place that ends at index `at`; -1 if it is none."""
    while at >= 0:
        if items[at].text == "]":
            at = _before_brackets(items, at)
        elif items[at].kind != "word":
            return -1
        elif at >= 2 and items[at - 1].text == ".":
            at -= 2
        else:
            return at
    return -1


def variable_at(items: Sequence[Token], root: int) -> str:
    """Return the name of the variable of a place that begins at index `root`: ``x`` of ``this.x``."""
    if items[root].text == "this" and root + 2 < len(items) and items[root + 1].text == ".":
        return items[root + 2].text
    return items[root].text


def expression_start(items: Sequence[Token], at: int) -> int:
    """Return the first index of an expression that ends at index `at` and may have elements.

    It is a place, a call such as ``f<3>(x).y`` or one in parentheses; -1 if it is none.
    """
    while at >= 0:
        word = items[at].text
        if word == "]":
            at = _before_brackets(items, at)
            continue
        if word == ")":
            start = _before_brackets(items, at) + 1
            before = start - 1
            if before >= 0 and items[before].text == ">":
                depth = 0
                while before >= 0:
                    depth += (items[before].text == ">") - (items[before].text == "<")
                    before -= 1
                    if depth == 0:
                        break
            if before < 0 or items[before].kind != "word" or items[before].text in ("return", "case", "else"):
                return start
            at = before
        elif items[at].kind != "word" or word in ("return", "case", "else"):
            return -1
        if at >= 2 and items[at - 1].text in (".", "::"):
            at -= 2
        else:
            return at
    return -1


def writes(items: Sequence[Token], writers: Writers) -> Iterator[tuple[str, bool]]:
    """Yield each variable that tokens assign or pass to a function that writes to it, and whether a part of it."""
    for start, end in written_places(items, writers):
        name = variable_at(items, start)
        plain = start + (3 if items[start].text == "this" and end > start + 1 else 1)
        yield name, end > plain


def written_places(items: Sequence[Token], writers: Writers) -> Iterator[tuple[int, int]]:
    """Yield the first index and the index after the last one of each place that a statement writes to."""
    for at, item in enumerate(items):
        if item.text in ASSIGNMENTS and at and (root := root_index(items, at - 1)) >= 0:
            yield root, at
        elif item.text in _STEPS:
            if at and items[at - 1].text not in ("(", ",", "=", ";") and (root := root_index(items, at - 1)) >= 0:
                yield root, at
            elif at + 1 < len(items) and items[at + 1].kind == "word":
                yield at + 1, place_end(items, at + 1)
        elif item.text in writers and item.kind == "word":
            yield from passed_places(items, at, writers)


def has_writes(items: Sequence[Token]) -> bool:
    """Whether tokens have an assignment or a step such as ``++``. The tokens of ``>=`` are ``>`` and ``=``."""
    texts = ["", "", *(item.text for item in items)]
    found = (at for at, text in enumerate(texts) if text in ASSIGNMENTS or text in _STEPS)
    return any(texts[at] != "=" or texts[at - 1] != ">" or texts[at - 2] == ">" for at in found)


def passed_places(items: Sequence[Token], at: int, writers: Writers) -> Iterable[tuple[int, int]]:
    """Return the places to which the call of the function at index `at` may write, its object among them."""
    opening = opening_of(items, at + 1)
    if opening < 0:
        return []
    try:
        readings = [arguments_of(items, opening, generics) for generics in (True, False)]
    except UnbalancedBrackets:
        return []
    known = writers[items[at].text]
    found: list[tuple[int, int]] = []
    mutating = False
    for given in readings[: 1 if readings[0] == readings[1] else 2]:
        fitting = [w for w in known if w.needed <= len(given) <= w.count] or list(known)
        mutating |= any(w.mutating for w in fitting)
        found += (
            (start, end)
            for number, (start, end) in enumerate(given)
            if any(number in w.written for w in fitting) and is_place(items[start:end])
        )
    if at >= 2 and items[at - 1].text == "." and mutating:
        root = root_index(items, at - 2)
        found += [(root, at - 1)] if root >= 0 else []
    return found


def _before_brackets(items: Sequence[Token], at: int) -> int:
    """Return the index before the bracket that the one at index `at` closes; -1 if there is none."""
    depth = 0
    while at >= 0:
        depth += (items[at].text in ")]}") - (items[at].text in "([{")
        at -= 1
        if depth == 0:
            break
    return at

"""Tokens of Slang text: words, numbers, strings and operators with their offsets, without comments and directives.

The preprocessor is not run. ``macro_bodies`` finds the replacement texts of macros, and ``macros.py`` uses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

# ``>`` stands alone, because ``vector<vector<float, 2>>`` closes two brackets.
_TOKEN = re.compile(
    r"""(?P<space>\s+|//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z)|(?<!\\)\\\n)
    |(?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
    |(?P<string>"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?)
    |(?P<operator><<=|\.\.\.|[-+*/%&|^<!=]=|&&|\|\||\+\+|--|->|::|<<|.)""",
    re.S | re.M | re.X,
)
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+\w+(?:\([^)]*\))?")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Token(NamedTuple):
    """A word, number, string or operator, and the offset of its first character."""

    text: str
    start: int
    kind: str

    @property
    def end(self) -> int:
        """The offset after the last character."""
        return self.start + len(self.text)


def tokens(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return the tokens of a part of a text; comments, white space and directives are left out."""
    return list(_tokens(text, start, len(text) if end is None else end))


# Several readers take the tokens of a text, one after another.
@lru_cache(maxsize=32)
def _tokens(text: str, start: int, end: int) -> tuple[Token, ...]:
    found = []
    for match in _TOKEN.finditer(text, start, end):
        kind = match.lastgroup or ""
        if kind not in ("space", "directive"):
            found.append(Token(match[0], match.start(), kind))
    return tuple(found)


def directives(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the preprocessor's directives."""
    yield from _directives(text) if "#" in text else ()


@lru_cache(maxsize=32)
def _directives(text: str) -> tuple[tuple[int, int], ...]:
    return tuple([match.span() for match in _TOKEN.finditer(text) if match.lastgroup == "directive"])


def macro_bodies(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the replacement text of each ``#define``."""
    for start, end in directives(text):
        if head := _DEFINE.match(text, start, end):
            yield head.end(), end


def prefixed(text: str, names: str) -> str:
    """Return a Slang text with the prefix ``_spy_`` before names, which macros of the user may have without it."""
    return re.sub(rf"(?<![\w.])(?:{'|'.join(names.split())})\b", r"_spy_\g<0>", text)


def closing(items: Sequence[Token], at: int) -> int:
    """Return the index of the bracket that closes the one at index `at`.

    Raises
    ------
    UnbalancedBrackets
        If the brackets between do not match.
    """
    open_brackets = []
    for index in range(at, len(items)):
        letter = items[index].text
        if letter in _CLOSING:
            open_brackets.append(_CLOSING[letter])
        elif letter in (")", "]", "}"):
            if open_brackets.pop() != letter:
                break
            if not open_brackets:
                return index
    raise UnbalancedBrackets(items[at].start)


class UnbalancedBrackets(ValueError):
    """Brackets that do not match, as in the text of ``#if`` and ``#else`` taken together."""

"""The derivatives that users' texts take, by ``bwd_diff(f)`` and ``fwd_diff(f)``, and the functions that take them.

The texts are parsed as tokens, with their macros expanded. Nothing here decides which derivatives are right.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slangpy_rt.slang.differentiable_functions import function_head
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, tokens

_OPERATORS = {"bwd_diff": False, "__bwd_diff": False, "fwd_diff": True, "__fwd_diff": True}
_CALL = re.compile(r"\b(?:__)?(?:bwd|fwd)_diff\b")
_SCOPES = frozenset(("struct", "class", "interface", "extension", "namespace", "enum", "cbuffer"))
# Functions that are called without a name.
_NAMELESS = frozenset(("__init", "__subscript", "operator", "property"))


@dataclass(frozen=True, slots=True)
class DerivativeCall:
    """A derivative that a text takes.

    Attributes
    ----------
    function : str
        The function whose derivative is taken, without its scope and its generic arguments.
    forward : bool
        Whether the derivative is a forward one.
    inside : str
        The function that takes it; empty if that has no name.
    """

    function: str
    forward: bool
    inside: str


@dataclass(frozen=True, slots=True)
class FunctionBody:
    """A function with statements.

    Attributes
    ----------
    name : str
        The function's name; empty for operators, initializers, subscripts and properties.
    words : frozenset of str
        The names in its statements.
    start, end : int
        The offsets of its braces in the text.
    """

    name: str
    words: frozenset[str]
    start: int
    end: int


def derivative_calls(text: str) -> Iterator[DerivativeCall]:
    """Yield the derivatives that a text takes, in source order."""
    items = tokens(text) if _CALL.search(text) else []
    bodies = list(function_bodies(text)) if items else []
    for at, item in enumerate(items[:-1]):
        if item.text in _OPERATORS and items[at + 1].text == "(":
            with suppress(UnbalancedBrackets):
                inside = next((body.name for body in bodies if body.start < item.start < body.end), "")
                name = _last_name(items[at + 2 : closing(items, at + 1)])
                yield DerivativeCall(name, _OPERATORS[item.text], inside)


def function_bodies(text: str) -> Iterator[FunctionBody]:
    """Yield the functions with statements of a text, methods included, in source order.

    A function whose brackets do not match is left out.
    """
    items = tokens(text)
    at = 0
    while at < len(items):
        try:
            name, opening = function_head(items, at)
            head = {item.text for item in items[at : max(opening, at)]}
            if head & _NAMELESS:
                name = ""
            elif opening < 0 or not name or items[at].text in _SCOPES:
                # A declaration, the head of a scope, or the end of one.
                ends = (k for k in range(at, len(items)) if items[k].text in (";", "{", "}"))
                at = (opening if opening >= 0 else next(ends, len(items))) + 1
                continue
            close = closing(items, opening)
        except UnbalancedBrackets:
            at += 1
            continue
        words = frozenset(item.text for item in items[opening:close] if item.kind == "word")
        yield FunctionBody(name, words, items[opening].start, items[close].end)
        at = close + 1


def reached_calls(kernel: str, texts: Iterable[str]) -> list[DerivativeCall]:
    """Return the derivatives that a kernel may take through the functions that it calls.

    Parameters
    ----------
    kernel : str
        The text of the kernel. A mention of a function counts as a call.
    texts : iterable of str
        The texts that declare the functions, with their macros expanded.
    """
    texts = list(texts)
    calls = [call for text in texts for call in derivative_calls(text)]
    if not calls:
        return []
    words: dict[str, frozenset[str]] = {}
    for text in texts:
        for body in function_bodies(text):
            words[body.name] = words.get(body.name, frozenset()) | body.words
    # A function without a name may be called anywhere.
    waiting = ["", *re.findall(r"\w+", kernel)]
    reached = set(waiting)
    while waiting:
        fresh = words.get(waiting.pop(), frozenset()) - reached
        reached |= fresh
        waiting += fresh
    return [call for call in calls if call.inside in reached]


def _last_name(items: Sequence[Token]) -> str:
    """Return ``f`` for ``f``, ``S.f``, ``a::b::f`` and ``f<float, 3>``."""
    depth, name = 0, ""
    for item in items:
        depth += (item.text == "<") - (item.text == ">")
        if depth == 0 and item.kind == "word":
            name = item.text
    return name

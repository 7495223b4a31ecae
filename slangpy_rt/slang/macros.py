"""Macros of Slang text, and their expansion for code that looks for names in it. The lines stay.

Conditions are not evaluated: of several definitions of one macro the longest counts. Directives are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, directives, tokens

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?")
_PASTED = re.compile(r"\s*# #\s*")
# Uses of macros that are expanded in one text: a macro that uses others several times grows exponentially.
_MOST = 10_000


class Macro(NamedTuple):
    """The parameters of a macro, None if it is used without parentheses, and the tokens that replace it."""

    parameters: tuple[str, ...] | None
    body: tuple[str, ...]


def macros_of(texts: Iterable[str], defines: Iterable[tuple[str, str]] = ()) -> dict[str, Macro]:
    """Return the macros that texts and a device define, by name."""
    found: dict[str, Macro] = {}
    lines = "".join(f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines)
    for text in (lines, *texts):
        for start, end in directives(text):
            head = _DEFINE.match(text, start, end)
            if head is None:
                continue
            names = None if head[2] is None else tuple(re.findall(r"\w+|\.\.\.", head[2]))
            macro = Macro(names, tuple([item.text for item in tokens(text, head.end(), end)]))
            if head[1] not in found or len(found[head[1]].body) < len(macro.body):
                found[head[1]] = macro
    return found


def expanded(text: str, macros: Mapping[str, Macro]) -> str:
    """Return a text with its macros replaced and its directives left out."""
    parts: list[str] = []
    at = 0
    for start, end in directives(text):
        parts += (text[at:start], "\n" * text.count("\n", start, end))
        at = end
    whole = "".join(parts) + text[at:]
    return _Expansion(macros).of(whole) if macros else whole


class _Expansion:
    """The expansion of macros in one text."""

    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self._macros = macros
        self._left = _MOST

    def of(self, text: str, hidden: frozenset[str] = frozenset()) -> str:
        """Return a text with all macros replaced but those of the names `hidden`."""
        items = tokens(text)
        parts: list[str] = []
        at = 0
        for index, item in enumerate(items):
            macro = self._macros.get(item.text)
            if item.start < at or macro is None or item.text in hidden or not self._left:
                continue
            last = item
            arguments: tuple[str, ...] = ()
            if macro.parameters is not None:
                try:
                    if items[index + 1].text != "(":
                        continue
                    close = closing(items, index + 1)
                except (IndexError, UnbalancedBrackets):
                    continue
                last, arguments = items[close], _arguments(items[index + 2 : close])
            self._left -= 1
            new = self.of(_replaced(macro, arguments), hidden | {item.text})
            parts += (text[at : item.start], f" {new} ", "\n" * text.count("\n", item.start, last.end))
            at = last.end
        return "".join(parts) + text[at:]


def _replaced(macro: Macro, arguments: Sequence[str]) -> str:
    names = macro.parameters or ()
    values = dict(zip(names, arguments, strict=False))
    if names[-1:] == ("...",):
        values["__VA_ARGS__"] = ", ".join(arguments[len(names) - 1 :])
    return _PASTED.sub("", " ".join([values.get(item, item) for item in macro.body]))


def _arguments(items: Sequence[Token]) -> tuple[str, ...]:
    """Return the arguments of a macro, without their line breaks."""
    found: list[list[str]] = [[]]
    depth = 0
    for item in items:
        depth += (item.text == "(") - (item.text == ")")
        if item.text == "," and not depth:
            found.append([])
        else:
            found[-1].append(item.text)
    return tuple([" ".join(part) for part in found])

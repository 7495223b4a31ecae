"""Macros of Slang text, and the edits that replace their uses. The lines of a text keep their numbers.

Conditions are not evaluated, and no file is read: a caller chooses the definitions that count.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, directives, tokens

_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?")
_PASTE = re.compile(r"\s*##\s*")
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|/\*.*?\*/|//[^\n]*', re.S)
# Uses of macros that are replaced in one text: a macro that uses others several times grows exponentially.
_MOST = 10_000


class Macro(NamedTuple):
    """A macro.

    Attributes
    ----------
    parameters : tuple of str or None
        The names of its parameters; None for a macro that is used without parentheses.
    body : str
        The replacement text in one line.
    """

    parameters: tuple[str, ...] | None
    body: str

    def takes(self, arguments: Sequence[str]) -> bool:
        """Return whether a use with these arguments has as many as there are parameters."""
        names = self.parameters or ()
        least = len(names) - (names[-1:] == ("...",))
        return len(arguments) == least or (least < len(names) and len(arguments) > least)

    def replacement(self, arguments: Sequence[str]) -> str:
        """Return the replacement text with arguments in place of the parameters."""
        names = self.parameters or ()
        values = dict(zip(names, arguments, strict=False))
        if names[-1:] == ("...",):
            values["__VA_ARGS__"] = ", ".join(arguments[len(names) - 1 :])
        parts: list[str] = []
        at = 0
        for item in tokens(self.body):
            if item.kind == "word" and item.text in values:
                parts += (self.body[at : item.start], values[item.text])
                at = item.end
        return _PASTE.sub("", "".join(parts) + self.body[at:])


def definitions(text: str) -> Iterator[tuple[str, Macro, int]]:
    """Yield the name of each macro that a text defines, the macro, and the offset behind the definition."""
    for start, end in directives(text):
        if head := _DEFINE.match(text, start, end):
            names = None if head[2] is None else tuple(re.findall(r"\w+|\.\.\.", head[2]))
            yield head[1], Macro(names, _in_one_line(text[head.end() : end])), end


def macros_of(texts: Iterable[str], defines: Iterable[tuple[str, str]] = ()) -> dict[str, Macro]:
    """Return the macros that texts and a device define, by name; of several definitions the longest one."""
    found: dict[str, Macro] = {}
    lines = "".join(f"#define {name} {' '.join(value.splitlines())}\n" for name, value in defines)
    for text in (lines, *texts):
        for name, macro, _ in definitions(text):
            if name not in found or len(found[name].body) < len(macro.body):
                found[name] = macro
    return found


def expanded(text: str, macros: Mapping[str, Macro]) -> str:
    """Return a text with its macros replaced and its directives left out."""
    plain = SourceMap.of(text).edited([(a, b, "\n" * text.count("\n", a, b)) for a, b in directives(text)]).text
    return SourceMap.of(plain).edited(expansions(plain, macros)).text


def expansions(text: str, macros: Mapping[str, Macro]) -> list[tuple[int, int, str]]:
    """Return the edits that replace the uses of macros in a text; none for a text with more than 10,000 uses.

    A macro that the text defines is replaced behind its definition.

    Returns
    -------
    list of (int, int, str)
        The first and the last offset of each use, and its replacement.
    """
    if not macros or not re.search(r"\b(?:" + "|".join(map(re.escape, macros)) + r")\b", text):
        return []
    defined: dict[str, int] = {}
    for name, _, end in definitions(text):
        defined.setdefault(name, end)
    try:
        return _Expansion(macros).edits(text, frozenset(), defined)
    except _TooManyUses:
        return []


class _TooManyUses(Exception):
    pass


class _Expansion:
    """The expansion of macros in one text."""

    def __init__(self, macros: Mapping[str, Macro]) -> None:
        self._macros = macros
        self._left = _MOST

    def edits(self, text: str, hidden: frozenset[str], defined: Mapping[str, int]) -> list[tuple[int, int, str]]:
        """Return the edits that expand macros behind their definitions, except macros whose names are in `hidden`."""
        items = tokens(text)
        found: list[tuple[int, int, str]] = []
        at = 0
        for index, item in enumerate(items):
            macro = self._macros.get(item.text) if item.kind == "word" else None
            if macro is None or item.start < max(at, defined.get(item.text, 0)) or item.text in hidden:
                continue
            at, arguments = item.end, []
            if macro.parameters is not None:
                try:
                    if items[index + 1].text != "(":
                        continue
                    close = closing(items, index + 1)
                except (IndexError, UnbalancedBrackets):
                    continue
                arguments = list(_arguments(text, items, index + 1, close)) if close > index + 2 else []
                if not macro.takes(arguments):
                    continue
                at = items[close].end
            if not self._left:
                raise _TooManyUses
            self._left -= 1
            whole = macro.replacement(arguments)
            inner = self.edits(whole, hidden | {item.text}, {})
            whole = SourceMap.of(whole).edited(inner).text if inner else whole
            found.append((item.start, at, f" {whole} " + "\n" * text.count("\n", item.start, at)))
        return found


def _arguments(text: str, items: Sequence[Token], opening: int, close: int) -> Iterator[str]:
    """Yield the texts of a macro's arguments, each in one line."""
    depth, start = 0, items[opening].end
    for at in range(opening + 1, close + 1):
        if at == close or (items[at].text == "," and depth == 0):
            yield _in_one_line(text[start : items[at].start])
            start = items[at].end
        depth += (items[at].text == "(") - (items[at].text == ")")


def _in_one_line(text: str) -> str:
    return _COMMENT.sub(lambda match: match[1] or " ", text.replace("\\\n", " ")).replace("\n", " ").strip()

"""The macros of Slang text and the declarations that they form.

``#if`` is not evaluated: of several definitions of one name, the last one counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slangpy_rt.slang.tokens import UnbalancedBrackets, closing, macro_bodies, tokens

_HEAD = re.compile(r"#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?$")
_PASTE = re.compile(r"\s*##\s*")
# Macros of macros are replaced as often.
_DEPTH = 4


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro with parameters.

    Attributes
    ----------
    parameters : tuple of str
        Their names.
    body : str
        The replacement text in one line.
    start, end : int
        Offsets of the replacement text.
    """

    parameters: tuple[str, ...]
    body: str
    start: int = 0
    end: int = 0

    def with_arguments(self, arguments: Sequence[str]) -> str:
        """Return the replacement text with arguments in place of the parameters."""
        values = dict(zip(self.parameters, arguments, strict=False))
        whole = re.sub(r"\b[A-Za-z_]\w*", lambda match: values.get(match[0], match[0]), self.body)
        return _PASTE.sub("", whole)


def macros(text: str) -> dict[str, Macro]:
    """Return the macros with parameters that a text defines, by their names."""
    found = {}
    for start, end in macro_bodies(text):
        head = _HEAD.search(text[text.rfind("#", 0, start) : start])
        if head and head[2]:
            parameters = tuple(part.strip() for part in head[2].split(","))
            found[head[1]] = Macro(parameters, text[start:end].replace("\\\n", " "), start, end)
    return found


def formed_texts(text: str, known: Mapping[str, Macro], depth: int = _DEPTH) -> Iterator[str]:
    """Yield the replacement of each use of a macro in a text, and of each use in those."""
    if not known or not depth or not re.search(r"\b(?:" + "|".join(map(re.escape, known)) + r")\s*\(", text):
        return
    items = tokens(text)
    for at, item in enumerate(items[:-1]):
        if item.text not in known or items[at + 1].text != "(":
            continue
        try:
            close = closing(items, at + 1)
        except UnbalancedBrackets:
            continue
        given, level, start = [], 0, items[at + 1].end
        for k in range(at + 2, close + 1):
            if k == close or (items[k].text == "," and level == 0):
                given.append(text[start : items[k].start].strip())
                start = items[k].end
            level += (items[k].text in "([{") - (items[k].text in ")]}")
        whole = known[item.text].with_arguments(given)
        yield whole
        yield from formed_texts(whole, known, depth - 1)

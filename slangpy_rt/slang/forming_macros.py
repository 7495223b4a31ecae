"""The macros of Slang texts that form statements, declarations, vectors or elements of arrays.

A macro is left to the compiler if it has several definitions or an ``#undef``, if an ``#if`` that is no include guard
may leave its definition out, if it takes any number of arguments, or if it makes a string of one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from slangpy_rt.slang.macros import Macro, definitions
from slangpy_rt.slang.tokens import directives

_IF, _END = re.compile(r"\s*#[ \t]*if(n?def|)\b[ \t]*(\w*)"), re.compile(r"\s*#[ \t]*endif\b")
_UNDEFINED = re.compile(r"#[ \t]*undef[ \t]+(\w+)")
# Parts of a replacement text that is more than an expression of names, numbers and calls, or builds a vector.
_FORMS = re.compile(
    r"[\[\];{}]|ifferentiable|\b(?:for|while)\b|(?<![=!<>])=(?!=)|\+\+|--"
    r"|\b(?:float|half|double)(?:16_t|32_t|64_t)?[1-4](?:x[1-4])?\b|\b(?:vector|matrix)\b"
)
_STRING_OF_ARGUMENT = re.compile(r"(?<!#)#(?!#)")


def forming_macros(texts: Iterable[str]) -> dict[str, Macro]:
    """Return the macros of texts that form statements, declarations or elements, by their names."""
    found: dict[str, Macro] = {}
    counts: Counter[str] = Counter()
    for text in texts:
        if "#" not in text:
            continue
        branches = list(_conditional(text))
        for name in _UNDEFINED.findall(text):
            counts[name] += 2
        for name, macro, end in definitions(text):
            counts[name] += 2 if any(first < end < last for first, last in branches) else 1
            found[name] = macro
    single = {name: macro for name, macro in found.items() if counts[name] == 1 and _is_replaced(macro)}
    forming = {name for name, macro in single.items() if _FORMS.search(macro.body)}
    more = forming
    while more:  # macros that use those
        uses = re.compile(r"\b(?:" + "|".join(map(re.escape, more)) + r")\b")
        more = {name for name, macro in single.items() if name not in forming and uses.search(macro.body)}
        forming |= more
    return {name: single[name] for name in forming}


def _is_replaced(macro: Macro) -> bool:
    return "..." not in (macro.parameters or ()) and not _STRING_OF_ARGUMENT.search(macro.body)


def _conditional(text: str) -> Iterator[tuple[int, int]]:
    """Yield the offsets of the parts of a text that ``#if`` and the like may leave out, an include guard excepted."""
    found = [(start, _IF.match(text, start), _END.match(text, start)) for start, _ in directives(text)]
    opened: list[int] = []
    for at, (start, opens, closes) in enumerate(found):
        if opens:
            guard = opens[1] == "ndef" and at == 0 and re.compile(rf"\s*#[ \t]*define[ \t]+{opens[2]}\s*$", re.M)
            opened.append(-1 if guard and len(found) > 1 and guard.match(text, found[1][0]) else start)
        elif closes and opened:
            first = opened.pop()
            if first >= 0:
                yield first, start
    yield from ((first, len(text)) for first in opened if first >= 0)

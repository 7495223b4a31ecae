"""The macros of Slang text that form statements or declarations, and the edits that replace them by what they form.

The preprocessor is not run: a macro of several definitions, with an ``#undef``, or under an ``#if`` that is no
include guard, is left to the compiler, and so are those that form no statement, no declaration and no element of an
array.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, directives, macro_bodies, tokens

_HEAD = re.compile(r"#[ \t]*define[ \t]+(\w+)(\([^)]*\))?$")
_IF, _END = re.compile(r"\s*#[ \t]*if(n?def|)\b[ \t]*(\w*)"), re.compile(r"\s*#[ \t]*endif\b")
_UNDEFINED = re.compile(r"#[ \t]*undef[ \t]+(\w+)")
_PASTE = re.compile(r"\s*##\s*")
_COMMENT = re.compile(r"/\*.*?\*/|//.*", re.S)
# What a macro has that forms more than an expression of names, numbers and calls.
_FORMS = re.compile(r"[\[\];{}]|ifferentiable|\b(?:for|while)\b|(?<![=!<>])=(?!=)|\+\+|--")
# Macros of macros are replaced as often.
_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Macro:
    """A macro.

    Attributes
    ----------
    parameters : tuple of str, optional
        Their names; None for a macro that is used without parentheses.
    body : str
        The replacement text in one line.
    """

    parameters: tuple[str, ...] | None
    body: str

    def replacement(self, arguments: Sequence[str]) -> str:
        """Return the replacement text with arguments in place of the parameters."""
        values = dict(zip(self.parameters or (), arguments, strict=False))
        whole = re.sub(r"\b[A-Za-z_]\w*", lambda match: values.get(match[0], match[0]), self.body)
        return _PASTE.sub("", whole)


def forming_macros(texts: Iterable[str]) -> dict[str, Macro]:
    """Return the macros of texts that form statements, declarations or elements, by their names."""
    found: dict[str, Macro] = {}
    counts: Counter[str] = Counter()
    for text in texts:
        if "#" not in text:
            continue
        counts.update(name for name in _UNDEFINED.findall(text) for _ in range(2))
        branches = list(_conditional(text))
        for start, end in macro_bodies(text):
            head = _HEAD.search(text[text.rfind("#", 0, start) : start])
            if head is None:
                continue
            # Whether it is defined depends on other macros.
            counts[head[1]] += any(first < start < last for first, last in branches)
            parameters = tuple(part.strip() for part in head[2][1:-1].split(",")) if head[2] else None
            found[head[1]] = Macro(parameters, _COMMENT.sub(" ", text[start:end].replace("\\\n", " ")).strip())
            counts[head[1]] += 1
    single = {
        name: macro for name, macro in found.items() if counts[name] == 1 and "..." not in (macro.parameters or ())
    }
    forming = {name for name, macro in single.items() if _FORMS.search(macro.body)}
    for _ in range(_DEPTH):
        forming |= {n for n, m in single.items() if any(re.search(rf"\b{other}\b", m.body) for other in forming)}
    # ``#x`` makes a string of an argument.
    return {name: single[name] for name in forming if not re.search(r"(?<!#)#(?!#)", single[name].body)}


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


def expanded(text: str, known: Mapping[str, Macro], depth: int = _DEPTH) -> str:
    """Return a text after the edits of ``expansions``."""
    parts: list[str] = []
    at = 0
    for first, last, new in expansions(text, known, depth):
        parts += (text[at:first], new)
        at = last
    return "".join(parts) + text[at:]


def expansions(text: str, known: Mapping[str, Macro], depth: int = _DEPTH) -> list[tuple[int, int, str]]:
    """Return the offsets of the uses of macros in a text, with their replacements; lines keep their numbers."""
    if not known or not depth or not re.search(r"\b(?:" + "|".join(map(re.escape, known)) + r")\b", text):
        return []
    items = tokens(text)
    # In this text a macro replaces what stands behind its definition.
    heads = ((start, _HEAD.search(text[text.rfind("#", 0, start) : start])) for start, _ in macro_bodies(text))
    defined = {head[1]: start for start, head in heads if head}
    found: list[tuple[int, int, str]] = []
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        macro = known.get(item.text) if item.kind == "word" else None
        if macro is None or item.start < defined.get(item.text, 0):
            continue
        given: list[str] = []
        end = item.end
        if macro.parameters is not None:
            if at >= len(items) or items[at].text != "(":
                continue
            try:
                close = closing(items, at)
            except UnbalancedBrackets:
                continue
            given = list(_arguments(text, items, at, close))
            end, at = items[close].end, close + 1
            if len(given) != len(macro.parameters):
                continue
        others = {name: other for name, other in known.items() if name != item.text}
        whole = expanded(macro.replacement(given), others, depth - 1)
        found.append((item.start, end, f" {whole} " + "\n" * text.count("\n", item.start, end)))
    return found


def _arguments(text: str, items: Sequence[Token], opening: int, close: int) -> Iterator[str]:
    """Yield the texts of a macro's arguments, each in one line."""
    level, start = 0, items[opening].end
    for at in range(opening + 1, close + 1):
        if at == close or (items[at].text == "," and level == 0):
            yield _COMMENT.sub(" ", text[start : items[at].start]).strip().replace("\n", " ")
            start = items[at].end
        level += (items[at].text in "([{") - (items[at].text in ")]}")

"""Which static variables a module's text has, and whether its functions may change them.

Of Slang's grammar it knows what ``text`` knows. It changes no text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slangpy_rt.slang.text import VARIABLE_NAME, blank, without_comments

_STATIC = re.compile(r"\bstatic\s+(?!const\b)[\w.:]+(?:<[^;={}()]*>)?[\s\[\]\w]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*([=;])")
_VARIABLE = re.compile(r"(?:^|[;{}\]])\s*((?:\w+\s+)*?static\s[^;(){}=]*)(?=[=;])")
_MEMBERS = r"(?:\s*(?:\.\s*\w+|\[[^\[\]]*\]))*\s*"
# Behind a name: it is assigned to, called, or has a method that is called; it is the whole of an argument.
_CHANGED = re.compile(rf"{_MEMBERS}(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--|\()")
_ARGUMENT = re.compile(rf"{_MEMBERS}[,)]")


def changes_statics(texts: Sequence[str]) -> bool:
    """Tell whether functions of the texts may change a static variable of one of them.

    What may be an ``inout`` argument, or the object of a method, counts as changed; macros are looked into.
    """
    codes = [without_comments(text) for text in texts] if any("static" in text for text in texts) else []
    names: set[str] = set()
    declared: set[tuple[int, int]] = set()
    for number, code in enumerate(codes):
        for match in _VARIABLE.finditer(blank(code)):
            if not re.search(r"\bconst\b", match[1]):
                # A part of an initial value, or of a type's arguments, is a name too much.
                pieces = code[match.start(1) :].partition(";")[0].split(",")
                found = (VARIABLE_NAME.search(piece.partition("=")[0]) for piece in pieces)
                names |= {m[1] for m in found if m and not m[1].isdigit()}
                declared |= {(number, at) for at in range(match.start(1), match.end())}
    if not names:
        return False
    anywhere = re.compile(rf"(?:(\+\+|--)|([(,]))?\s*\b(?P<name>{'|'.join(names)})\b")
    return any(
        match[1] or _CHANGED.match(code, match.end()) or (match[2] and _ARGUMENT.match(code, match.end()))
        for number, code in enumerate(codes)
        for match in anywhere.finditer(code)
        if (number, match.start("name")) not in declared
    )


def statics(text: str) -> list[tuple[str, bool]]:
    """Return the names of static variables, also in structs and functions, and whether they have initial values."""
    return [(m[1], m[2] == "=") for m in _STATIC.finditer(blank(text))]

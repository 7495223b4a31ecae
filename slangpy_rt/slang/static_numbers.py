"""Finds static variables that begin as zeros because they are numbers, as far as a text shows their types.

It reads code in which comments, strings and preprocessor lines are blank, and knows no scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_SCALAR = r"(?:bool|half|float|double|u?int(?:(?:8|16|32|64)_t)?)"
_COUNTS = r"[\w\s,()+*/-]+"
_VALUES = rf"(?:{_SCALAR}(?:[1-4](?:x[1-4])?)?\b|(?:vector|matrix)\s*<{_COUNTS}>)"
NUMBERS = rf"(?<![\w.:])(?:{_VALUES}|Array\s*<\s*{_VALUES}\s*,{_COUNTS}>)"
_SIZES = r"(?:\[[^\[\]=:<>{};]*\]\s*)*"
# Statics without an initial value; their types are numbers, or names that stand for numbers.
_BARE_STATIC = (
    rf"(?<!groupshared\s)\bstatic\s+(?:precise\s+)*(?:{NUMBERS}|(?:NAMES)\b)\s*{_SIZES}"
    rf"\b\w+\s*{_SIZES}(?:,\s*\w+\s*{_SIZES})*;"
)
_ALIAS = re.compile(
    r"\btypealias\s+(?P<new>\w+)\s*=\s*(?P<old>[^;]*?)\s*;|\btypedef\s+(?P<first>[^;]*?)\s+(?P<then>\w+)\s*;"
)
_NAMED_TYPE = re.compile(r"\b(?:struct|class|interface|associatedtype)\s+(\w+)")
_ENUM = re.compile(r"\benum\s+(?:class\s+)?(\w+)")


def bare_statics(code: str) -> Iterator[re.Match[str]]:
    """Yield the declarations of statics that are numbers and have no initial value, as far as the text shows it."""
    aliases = [(m["new"] or m["then"], m["old"] or m["first"]) for m in _ALIAS.finditer(code)]
    names = set(_ENUM.findall(code))
    for new, old in aliases:
        if _is(old, names):
            names.add(new)
    # If a name is declared twice, the text does not show which declaration a use means.
    names.difference_update(_NAMED_TYPE.findall(code), (new for new, old in aliases if not _is(old, names)))
    yield from re.finditer(_BARE_STATIC.replace("NAMES", "|".join(names) or "(?!)"), code)


def _is(type_: str, names: set[str]) -> bool:
    return type_ in names or re.fullmatch(NUMBERS, type_) is not None

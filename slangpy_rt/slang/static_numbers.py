"""Finds static variables that have to begin as zeros: those of numbers, as far as a text shows their types.

The functions read code in which comments, strings and preprocessor lines are blank, and take no account of scopes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Parts of expressions for types of numbers: ``uint16_t``, ``float3x4``, ``vector<float, N + 1>``, ``Array<int, 4>``.
_SCALAR = r"(?:bool|half|float|double|u?int(?:(?:8|16|32|64)_t)?)"
_COUNTS = r"[\w\s,()+*/-]+"
_VALUES = rf"(?:{_SCALAR}(?:[1-4](?:x[1-4])?)?\b|(?:vector|matrix)\s*<{_COUNTS}>)"
NUMBERS = rf"(?<![\w.:])(?:{_VALUES}|Array\s*<\s*{_VALUES}\s*,{_COUNTS}>)"
_SIZES = r"(?:\[[^\[\]=:<>{};]*\]\s*)*"
# Matches statics without an initial value, ``static float a, b[3];``, whose type is a number or one of NAMES; that
# word is replaced by the names of enums and of aliases of such types.
_BARE_STATIC = (
    rf"(?<!groupshared\s)\bstatic\s+(?:precise\s+)*(?:{NUMBERS}|(?:NAMES)\b)\s*{_SIZES}"
    rf"\b\w+\s*{_SIZES}(?:,\s*\w+\s*{_SIZES})*;"
)
# Matches ``typealias new = old;`` and ``typedef first then;``.
_ALIAS = re.compile(
    r"\btypealias\s+(?P<new>\w+)\s*=\s*(?P<old>[^;]*?)\s*;|\btypedef\s+(?P<first>[^;]*?)\s+(?P<then>\w+)\s*;"
)
_NAMED_TYPE = re.compile(r"\b(?:struct|class|interface|associatedtype)\s+(\w+)")
_ENUM = re.compile(r"\benum\s+(?:class\s+)?(\w+)")


def bare_statics(code: str) -> Iterator[re.Match[str]]:
    """Yield a match for each declaration of static numbers without an initial value, as far as the text shows it."""
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

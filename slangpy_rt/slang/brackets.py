"""Finds the bracket that closes another one, in text without comments and strings."""

from __future__ import annotations

import re
import sys

_BRACKET = re.compile(r"[()\[\]{}]")


def matching(code: str, at: int, end: int = sys.maxsize) -> int:
    """Return the offset after the bracket that closes the one at `at`; 0 if it is not closed before `end`."""
    depth = 0
    for match in _BRACKET.finditer(code, at, end):
        depth += 1 if match[0] in "([{" else -1
        if depth == 0:
            return match.end()
    return 0

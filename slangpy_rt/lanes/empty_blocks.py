"""Removes blocks that are nothing but a jump from the text of a function, which has no phi instructions.

Such a jump belongs to no line of the Slang text, and a debugger would stop at it on its way to the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

_LABEL = re.compile(r"([\w.]+):")
_JUMP = re.compile(r"  br label %([\w.]+)(?:, !dbg !\d+)?")
_TARGET = re.compile(r"label %([\w.]+)")


def without_empty_blocks(lines: Sequence[str]) -> list[str]:
    """Return lines in which jumps to a block with a jump alone go to where that one goes."""
    next_of = {}
    for line, following in pairwise(lines):
        label, jump = _LABEL.fullmatch(line), _JUMP.fullmatch(following)
        if label and jump:
            next_of[label[1]] = jump[1]

    def end_of(label: str) -> str:
        seen = {label}
        while label in next_of and next_of[label] not in seen:
            label = next_of[label]
            seen.add(label)
        return label

    kept = {label for label in next_of if end_of(label) == label}  # a loop without a body
    found: list[str] = []
    removes = False
    for line in lines:
        if label := _LABEL.fullmatch(line):
            removes = label[1] in next_of and label[1] not in kept
        if not removes:
            found.append(_TARGET.sub(lambda m: f"label %{end_of(m[1])}", line) if "label %" in line else line)
    return found

"""Edits of a text: what is inserted where, and in place of how many characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Edit(NamedTuple):
    """A text that is inserted at an offset, in place of so many characters."""

    offset: int
    text: str
    replaced: int = 0


def applied(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with edits; those at one offset in their order."""
    parts: list[str] = []
    at = 0
    for offset, new, replaced in sorted(edits, key=lambda edit: edit.offset):
        parts += (text[at:offset], new)
        at = max(at, offset + replaced)
    return "".join(parts) + text[at:]

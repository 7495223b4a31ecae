"""Edits of a text: what is inserted where, and in place of how many characters."""

from __future__ import annotations

from typing import NamedTuple


class Edit(NamedTuple):
    """A text that is inserted at an offset, in place of so many characters."""

    offset: int
    text: str
    replaced: int = 0

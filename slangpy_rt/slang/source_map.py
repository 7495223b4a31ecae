"""SourceMap: a text that the compiler reads, made of a user's text by edits, with the position of each part in that.

It finds the line that a message of the compiler is about, also after ``#line`` directives, and the user's column.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

# Slang ends lines at these.
_LINE_END = re.compile(r"\r\n|\n\r|\r|\n")
_LINE = re.compile(r"[ \t]*#[ \t]*line[ \t]+(\d+)(?:[ \t]+\"(.*)\")?")


class Region(NamedTuple):
    """A part of the compiled text that is not in the user's, and the part of the user's text that it replaces.

    Attributes
    ----------
    start, end : int
        Offsets in the compiled text.
    first, last : int
        Offsets in the user's text.
    """

    start: int
    end: int
    first: int
    last: int


class Line(NamedTuple):
    """A line of the compiled text.

    Attributes
    ----------
    file : str or None
        The file that a ``#line`` directive names.
    number : int
        Its number in messages.
    start, end : int
        Its offsets.
    """

    file: str | None
    number: int
    start: int
    end: int


@dataclass(frozen=True)
class SourceMap:
    """The compiled text and the user's text.

    Attributes
    ----------
    written : str
        The user's text.
    text : str
        The compiled text.
    regions : tuple of Region
        Where they differ, in source order.
    """

    written: str
    text: str
    regions: tuple[Region, ...] = ()

    @classmethod
    def of(cls, text: str) -> SourceMap:
        """Return the map of a text that is compiled as it is."""
        return cls(text, text)

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> SourceMap:
        """Return the map after more edits.

        Parameters
        ----------
        edits : iterable of (int, int, str)
            The first and the last offset of each replaced part of `text`, and the new text. Parts do not overlap.
            Insertions at one offset stay in their order.
        """
        ordered = sorted(edits, key=lambda edit: edit[:2])
        if not ordered:
            return self
        parts: list[str] = []
        at = 0
        for start, end, new in ordered:
            parts += (self.text[at:start], new)
            at = end
        text = "".join(parts) + self.text[at:]
        # The parts of the present text that differ from the user's or are replaced now. Those that touch become one.
        groups: list[Region] = []
        replaced = [Region(a, b, self.offset(a), self.offset(b, last=True)) for a, b, _ in ordered]
        for part in sorted([*self.regions, *replaced]):
            if groups and part.start <= groups[-1].end:
                start, end, first, last = groups.pop()
                part = Region(start, max(end, part.end), min(first, part.first), max(last, part.last))
            groups.append(part)
        starts = [edit[0] for edit in ordered]
        grown = [0, *accumulate(len(new) - (end - start) for start, end, new in ordered)]
        regions = []
        for start, end, first, last in groups:
            before, after = (grown[bisect(starts, at)] for bisect, at in ((bisect_left, start), (bisect_right, end)))
            regions.append(Region(start + before, end + after, first, last))
        return SourceMap(self.written, text, tuple(regions))

    def offset(self, offset: int, last: bool = False) -> int:
        """Return the offset in the user's text of an offset in `text`.

        In a region, both are counted from its start, as far as the replaced part goes. With ``last``, `offset` is the
        end of a part: at a region's end the result is the end of the replaced part.
        """
        index = bisect_right(self._starts, offset - 1 if last else offset) - 1
        if index < 0:
            return offset
        start, end, first, behind = self.regions[index]
        if offset > end or (offset == end and not last):
            return offset - end + behind
        return behind if offset == end else min(first + offset - start, behind)

    def lines(self, number: int, quoted: str) -> Iterator[Line]:
        """Yield the lines of `text` that messages give a number and quote without white space around."""
        for line in self._lines:
            if line.number == number and self.text[line.start : line.end].strip() == quoted.strip():
                yield line

    def written_line(self, offset: int) -> Line:
        """Return the line of the user's text around an offset there."""
        return self._written_lines[bisect_right(self._written_starts, offset) - 1]

    @cached_property
    def _starts(self) -> list[int]:
        return [region.start for region in self.regions]

    @cached_property
    def _lines(self) -> list[Line]:
        return list(_lines(self.text))

    @cached_property
    def _written_lines(self) -> list[Line]:
        return list(_lines(self.written))

    @cached_property
    def _written_starts(self) -> list[int]:
        return [line.start for line in self._written_lines]


def line_number(text: str, offset: int) -> int:
    """Return the number that messages give the line around an offset, ``#line`` directives included."""
    return next(line.number for line in reversed(list(_lines(text[:offset]))))


def _lines(text: str) -> Iterator[Line]:
    file: str | None = None
    number, start = 1, 0
    for end in [*_LINE_END.finditer(text), None]:
        stop = end.start() if end else len(text)
        yield Line(file, number, start, stop)
        directive = _LINE.match(text, start, stop)
        number = int(directive[1]) if directive else number + 1
        file = directive[2] or file if directive else file
        start = end.end() if end else stop

"""Messages of the compiler, with the user's lines, columns and names in place of those of the compiled text.

A message quotes lines without their indentation, each below its file, line and column, and above marks::

     --> file.slang:3:9
      |
    3 | v = k * missing;
      |         ^^^^^^^ undefined identifier 'missing'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from unicodedata import category, combining, east_asian_width

from slangpy_rt.slang.source_map import Line, SourceMap

_PLACE = re.compile(r"( *-+>? )(.*):(\d+):(\d+)")
_QUOTED = re.compile(r"( *(\d+) \| )(.*)")
_MARKED = re.compile(r"( *\| )( *\S.*)")
# Marks in a line, before a text: a caret below each character of the place, dashes below other places.
_MARKS = re.compile(r"\^+|~+|-+(?![\w>])|\|(?= |$)")
_TAB = 4
_WIDE = re.compile(
    "[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3040-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f"
    "\uff00-\uff60\uffe0-\uffe6\U00020000-\U0002fffd\U00030000-\U0003fffd]"
)
# Names that edits form, and the user's names that they replace.
_NAMES = (
    (re.compile(r"\b_spy_fmod_[0-9a-f]{8}(?:_forward|_backward)?\b"), "fmod"),
    (re.compile(r"\b_spy_constant_(\w+)"), r"\1"),
    (re.compile(r"\b_spy_group\b"), "numthreads"),
    (re.compile(r"\b_spy_stage\b"), "shader"),
)


def with_users_lines(text: str, maps: Iterable[tuple[str, SourceMap]]) -> str:
    """Return messages with lines, columns and names of the users' texts.

    Parameters
    ----------
    text : str
        The messages.
    maps : iterable of (str, SourceMap)
        Texts that the compiler may have read, by their paths.
    """
    known = list(maps)
    found: list[str] = []
    header: tuple[int, re.Match[str]] | None = None
    shown: _QuotedLine | None = None
    path, column = "", -1
    for line in text.split("\n"):
        if place := _PLACE.fullmatch(line):
            path, header, shown = place[2], (len(found), place), None
        elif quoted := _QUOTED.fullmatch(line):
            column = -1
            shown = _quoted_line(known, path, int(quoted[2]), quoted[3])
            if shown:
                line = f"{quoted[1]}{shown.text}"
        elif shown and (marked := _MARKED.fullmatch(line)):
            line = f"{marked[1]}{shown.marks(marked[2], column)}"
        if shown and header and int(header[1][3]) == shown.line.number:
            at, place = header
            column = int(place[4]) - 1
            found[at] = f"{place[1]}{place[2]}:{shown.number}:{shown.column(column) + 1}"
            header = None
        found.append(line)
    whole = "\n".join(found)
    for pattern, name in _NAMES:
        whole = pattern.sub(name, whole)
    return whole


class _QuotedLine:
    """A line of the compiled text that a message quotes."""

    def __init__(self, source: SourceMap, line: Line) -> None:
        self._raw = source.text[line.start : line.end]
        self._lead = len(self._raw) - len(self._raw.lstrip())
        self.line = line
        self._source = source
        written = source.written_line(source.offset(line.start + self._lead))
        self._written = source.written[written.start : written.end]
        self._start = written.start
        self.number = written.number

    @property
    def text(self) -> str:
        """The user's line."""
        return self._written.expandtabs(_TAB).rstrip()

    def column(self, column: int, last: bool = False) -> int:
        """Return the column in the user's line of one in the compiled line; both count from 0."""
        offset = self._source.offset(min(self.line.start + column, self.line.end), last)
        return min(max(offset - self._start, 0), len(self._written))

    def marks(self, text: str, column: int) -> str:
        """Return marks below the quoted line, and the words after them, as marks below the user's line.

        Parameters
        ----------
        text : str
            The marks, which Slang puts below the cells of a terminal.
        column : int
            The column of the carets in the compiled line, counted from 0; -1 if it is not known.
        """
        runs = []
        at = len(text) - len(text.lstrip())
        while match := _MARKS.match(text, at):
            runs.append(match.span())
            at = match.end() + len(text[match.end() :]) - len(text[match.end() :].lstrip())
        rest = text[runs[-1][1] :] if runs else text.lstrip()
        runs = runs or [(at, at)]
        marks = ""
        for start, end in runs:
            begin = column if column >= 0 and text[start:end].startswith("^") else self._at_cell(start)
            after = max(begin + 1, self._at_cell(end)) if end > start else begin
            first = self._display(self.column(begin))
            behind = self._display(self.column(after, last=True)) if end > start else first
            width = max(behind - first, min(end - start, 1))
            marks = marks.ljust(first) + (text[start] * width if width else "")
        return marks + rest

    def _at_cell(self, cell: int) -> int:
        """Return the column in the compiled line below which Slang puts marks in a cell."""
        column = self._lead
        while cell > 0 and column < len(self._raw):
            cell -= _slangs_width(self._raw[column])
            column += 1
        return column + max(cell, 0)

    def _display(self, column: int) -> int:
        """Return the cell of a column in the user's line."""
        return sum(map(_width, self._written[:column].expandtabs(_TAB)))


def _quoted_line(maps: Sequence[tuple[str, SourceMap]], path: str, number: int, text: str) -> _QuotedLine | None:
    """Return the line that a message quotes, of a text that has the path or a ``#line`` directive with it."""
    near: _QuotedLine | None = None
    name = _name(path)
    for other, source in maps:
        if name != _name(other) and name not in source.text:
            continue
        for line in source.lines(number, text):
            if path == (line.file or other):
                return _QuotedLine(source, line)
            if name in (_name(line.file or other), _name(other)):
                near = near or _QuotedLine(source, line)
    return near


def _width(letter: str) -> int:
    """Return how many cells of a terminal a character takes."""
    return 0 if combining(letter) else 1 + (east_asian_width(letter) in "WF")


def _slangs_width(letter: str) -> int:
    """Return how many cells Slang 2026.12 counts for a character: that are those of wcwidth in Unicode 5.0."""
    if letter == "\t":
        return 1
    if letter < " " or category(letter) in ("Mn", "Me", "Cf", "Cc"):
        return 0
    return 1 + (_WIDE.match(letter) is not None)


def _name(path: str) -> str:
    return re.split(r"[/\\]", path)[-1]

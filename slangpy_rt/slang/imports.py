"""Finds the files that a text imports, as Slang finds them, so that an ``import`` line can be added before loading.

Nothing is loaded here, and Slang reports a file that is missing. ``files.reachable`` returns every file that a text
may name, also in a comment or a macro, in any order. Here each import is one file, files come after those that they
import, and comments are ignored, because a name in a comment could reverse this order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from slangpy_rt.core.paths import resolved
from slangpy_rt.slang.files import decoded, read_file
from slangpy_rt.slang.shader_modules import is_ours
from slangpy_rt.slang.text import blank

# Matches ``import a.b;``, ``__exported import "a.slang";`` and ``__import a;``, and takes the name.
_IMPORT = re.compile(r'\b(?:__exported\s+)?(?:__)?import\s+("[^"\n]+"|\w+(?:\s*\.\s*\w+)*)\s*;')


class Imported(NamedTuple):
    """A file that a text imports: the module's name in Slang, the file's path and its text."""

    name: str
    path: str
    text: str


def imported(path: str, text: str, folders: Sequence[str]) -> tuple[Imported, ...]:
    """Return the files that a text imports, directly or through other files; each comes after those that it imports.

    Files in ``shaders/`` are left out; they import only each other.

    Parameters
    ----------
    path : str
        The text's own file, in whose folder Slang looks first.
    text : str
        The Slang text.
    folders : sequence of str
        The folders in which Slang looks next.

    Raises
    ------
    CompileError
        If a file is not UTF-8 text.
    """
    found: dict[str, Imported] = {}
    _collect(path, text, folders, found, {resolved(path)})
    return tuple(found.values())


def _collect(path: str, text: str, folders: Sequence[str], found: dict[str, Imported], seen: set[str]) -> None:
    code = blank(text)
    for match in _IMPORT.finditer(text):
        # Where these differ, the import stands in a comment or a macro. Only the part before the name is compared,
        # because names in quotes are blank in ``code``.
        if code[match.start() : match.start(1)] != text[match.start() : match.start(1)]:
            continue
        for name, file in _places(match[1], path, folders):
            real = os.path.realpath(file)
            if not os.path.isfile(file):  # noqa: PTH113
                continue
            if real not in seen and not is_ours(Path(file)):
                seen.add(real)
                theirs = decoded(f"'{file}'", read_file(real))
                _collect(file, theirs, folders, found, seen)
                found[real] = Imported(name, file, theirs)
            break


def _places(spelled: str, path: str, folders: Sequence[str]) -> list[tuple[str, str]]:
    """Return the module's name and the paths of its file, in the order in which Slang tries them."""
    if spelled[0] == '"':
        bare = spelled.strip('"')
        name, files = bare, [bare, f"{bare}.slang"]
    else:
        name = re.sub(r"\s*\.\s*", "/", spelled)
        files = [f"{name}.slang", f"{name.replace('_', '-')}.slang"]
    beside = os.path.dirname(path)  # noqa: PTH120
    return [(name, os.path.join(folder, file)) for folder in (beside, *folders) for file in files]  # noqa: PTH118

"""Texts of linked modules in the session of another module, whose macros are not theirs. It loads nothing.

Slang has one set of macros for a session, and it holds in each file that Slang reads by itself. A linked module's own
text begins with lines that replace this set by the macros of that module. Files that the linked module imports cannot
have such lines.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from slangpy_rt.core.errors import BindError
from slangpy_rt.slang.imports import imported
from slangpy_rt.slang.text import blank, undefining

Defines = tuple[tuple[str, str], ...]


def with_macros(text: str, own: Defines, session: Defines) -> str:
    """Return the text of a module with its own macros, for a session that has others; unchanged for the same ones."""
    if own == session:
        return text
    # A macro's value is one line, whatever lines it was given in.
    lines = "".join(f"#define {name} {' '.join(value.splitlines())}\n" for name, value in own)
    return f"{undefining(session)}{lines}#line 1\n{text}"


def check_macros(
    where: str, other: str, place: tuple[str, str, Sequence[str]], own: Defines, session: Defines
) -> None:
    """Refuse a linked module whose macros the session lacks, if a file that the module imports uses one of them.

    Parameters
    ----------
    where : str
        The start of the message.
    other : str
        The linked module's name.
    place : tuple of str, str and sequence of str
        Its file, its text, and the folders in which Slang looks for files that it imports.
    own, session : tuple of (str, str)
        Macros of the linked module, and of the session.

    Raises
    ------
    BindError
        If there is such a file.
    """
    lost = [(name, value) for name, value in own if (name, value) not in session]
    for file in imported(*place) if lost else ():
        for name, value in lost:
            if re.search(rf"\b{name}\b", blank(file.text)):
                raise BindError(
                    f"{where}: link has module '{other}', which was loaded with defines={{'{name}': {value!r}}} and "
                    f"imports '{file.path}', where Slang uses the macros of the module that is loaded now; give it "
                    "the same define."
                )

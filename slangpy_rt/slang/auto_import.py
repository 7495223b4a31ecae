"""AutoImport: a module of this project that every text of a session imports without an ``import`` line of its own.

This module only edits text: it loads no module and reads no file.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from slangpy_rt.slang.source_map import SourceMap


class AutoImport(NamedTuple):
    """A module in ``shaders/`` that every text of a session imports, and the lines that have to precede a text.

    Attributes
    ----------
    module : str
        The module's name.
    head : str
        Lines that are put before each text. The last one is ``#line 1``, so the text keeps its line numbers.
    names : str
        A regular expression that matches the names that the module declares. An imported file gets `head` and the
        ``import`` line only if the expression is found in it.
    """

    module: str
    head: str
    names: str

    def needed(self, text: str) -> bool:
        """Return whether `text` contains one of the names."""
        return re.search(self.names, text) is not None

    def around(self, source: SourceMap) -> SourceMap:
        """Return a text with `head` before it and an ``import`` line after it; its line numbers stay the same."""
        end = len(source.text)
        return source.edited([(0, 0, self.head), (end, end, f"\nimport {self.module};\n")])

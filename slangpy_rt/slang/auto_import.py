"""AutoImport: a module of ours that every text of a session imports without an ``import`` line.

It loads nothing, and looks at no file.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class AutoImport(NamedTuple):
    """A module in ``shaders/`` that every text of a session imports, and what its language needs besides.

    Attributes
    ----------
    module : str
        The module's name.
    head : str
        Lines before each text, which ends them by ``#line 1``.
    names : str
        A regular expression of names that the module declares. An imported file that has one gets head and import.
    """

    module: str
    head: str
    names: str

    def needed(self, text: str) -> bool:
        """Tell whether a text has one of the names."""
        return re.search(self.names, text) is not None

    def around(self, text: str) -> str:
        """Return a text with the head before it and the import behind it; its lines and columns stay the same."""
        return f"{self.head}{text}\nimport {self.module};\n"

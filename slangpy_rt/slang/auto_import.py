"""AutoImport: a module of ours that texts of one language import without saying so.

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
        A regular expression of names that the module gives: a file that a text imports gets all this if it has one.
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

"""CallableFollower: tells a function or kernel of changes of its module, without keeping it alive."""

from __future__ import annotations

from typing import Any
from weakref import ref


class CallableFollower:
    """Passes the notices of a module's scope on to a function or kernel, for as long as that exists."""

    def __init__(self, of: ref[Any]) -> None:
        self._of = of

    def forget(self) -> None:
        """Drop its prepared calls."""
        found = self._of()
        if found is not None:
            found._forget()

    def source_changed(self) -> None:
        """Let it read its declarations from the module's new text."""
        found = self._of()
        if found is not None:
            found._source_changed()

"""Follower: what a device tells its modules: that files are to be read anew, and that it ends. It knows no device."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Follower(ABC):
    """An object that was made from a module's text on one device."""

    @abstractmethod
    def reload(self) -> None:
        """Read the module's files again, whether or not their times and sizes have changed.

        Raises
        ------
        CompileError
            If Slang refuses the new text; the old one stays.
        """

    @abstractmethod
    def forget(self) -> None:
        """Drop all prepared calls, so that the next call reads the device's state again."""

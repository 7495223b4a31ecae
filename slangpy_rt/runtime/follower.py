"""Follower: what a device tells of edited files and of its end. It knows no device."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Follower(ABC):
    """Holds what was made of a module's text on one device."""

    @abstractmethod
    def reload(self) -> None:
        """Read the module's files anew, whether or not they look changed.

        Raises
        ------
        CompileError
            If Slang refuses the new text; the old one stays.
        """

    @abstractmethod
    def forget(self) -> None:
        """Drop all prepared calls, so that the next one looks at the device's state again."""

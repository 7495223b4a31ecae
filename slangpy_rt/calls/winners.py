"""Winners: what one tuned function remembers: the functions for calls, and timings. It chooses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slangpy_rt.tuning.config import Config

if TYPE_CHECKING:
    from slangpy_rt.tuning.timing import Timing

# Functions with the fastest configuration, and the configurations, by the signatures of a call's arguments.
Ready = dict[Any, tuple[Any, Config]]


class Winners:
    """The chosen functions and the timings of one tuned function, until its module's text changes.

    Attributes
    ----------
    ready, ready_into, ready_named : dict
        Of calls with arguments by position, of those that give ``_result`` as well, and of all others.
    rows : dict
        The timings for a kind of call, the fastest first.
    age : object
        Replaced whenever functions are dropped.
    """

    def __init__(self) -> None:
        self.ready: Ready = {}
        self.ready_into: Ready = {}
        self.ready_named: Ready = {}
        self.rows: dict[str, list[Timing]] = {}
        self.age = object()

    def forget(self) -> None:
        """Drop the functions, as when the device closes."""
        self.age = object()
        for table in (self.ready, self.ready_into, self.ready_named):
            table.clear()

    def source_changed(self) -> None:
        """Drop the timings too: they are those of the former text."""
        self.rows.clear()

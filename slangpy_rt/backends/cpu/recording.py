"""Recordings on the CPU: consecutive small launches form a table, which one foreign call runs."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from math import prod
from typing import Any

from slangpy_rt.backends.base import Dispatch, Recording

# The most elements of a small launch, which is not divided among threads.
_SMALL = 1024


class CpuRecording(Recording):
    """A recording in which consecutive small launches are one table.

    Parameters
    ----------
    launch : callable
        ``Queue.launch``, which makes the other launches.

    Attributes
    ----------
    steps : list of callable
        The functions that a replay calls, in turn.
    """

    __slots__ = ("_entries", "_launch", "steps")

    def __init__(self, dispatches: list[Dispatch], launch: Callable[..., None]) -> None:
        super().__init__(dispatches)
        self._launch = launch
        self._build()

    def update(self, place: int, dispatch: Dispatch) -> None:
        """Replace the launch at index ``place`` by another one of the same kernel."""
        self.dispatches[place] = dispatch
        if place in self._entries and _is_small(dispatch):
            table, n = self._entries[place]
            table[n] = _range_of(dispatch)
        else:
            self._build()

    def _build(self) -> None:
        kept = self.dispatches
        steps: list[Callable[[], None]] = []
        # For each small launch, its table and its place in the table.
        entries: dict[int, tuple[Any, int]] = {}
        for small, group in itertools.groupby(range(len(kept)), lambda k: _is_small(kept[k])):
            places = list(group)
            if small:
                table, step = _table([kept[k] for k in places])
                entries.update((k, (table, n)) for n, k in enumerate(places))
                steps.append(step)
            else:
                steps += [functools.partial(self._launch, *kept[k]) for k in places]
        self.steps, self._entries = steps, entries


class _Range(ctypes.Structure):
    _fields_ = (("run", ctypes.c_void_p), ("count", ctypes.c_int64), ("args", ctypes.c_char_p))


def _table(dispatches: list[Dispatch]) -> tuple[Any, Callable[[], None]]:
    """Make a table of launches; return it and a function that runs them one after the other in one foreign call."""
    table = (_Range * len(dispatches))(*map(_range_of, dispatches))
    run_list = dispatches[0].kernel.run_list  # type: ignore[attr-defined]
    call = functools.partial(run_list, ctypes.addressof(table), len(dispatches))
    # The returned function refers to the table, because the table keeps the argument blocks alive.
    return table, functools.partial(_call_with, call, table)


def _is_small(d: Dispatch) -> bool:
    """Return whether a launch is not divided among threads."""
    kernel: Any = d.kernel
    return prod(d.groups) * (kernel.threads if kernel.grouped else 1) <= _SMALL


def _range_of(d: Dispatch) -> _Range:
    kernel: Any = d.kernel
    count, args = kernel.range_of(d.groups, d.args) if kernel.grouped else (d.groups[0], d.args)
    return _Range(kernel.address, count, args)


def _call_with(call: Callable[[], None], kept: Any) -> None:
    call()

"""Timing: how long a configuration takes, or why it was dropped; and the search that measures configurations."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple, TypeVar

from slangpy_rt.tuning.config import Config

K = TypeVar("K")

# Runs of a configuration after each round, and the factor of the fastest median up to which it stays in the search.
_ROUNDS = ((3, 1.3), (9, 1.05), (27, 1.0))


class Timing(NamedTuple):
    """One row of ``timings``.

    Attributes
    ----------
    config : Config
        The configuration.
    us : float or None
        The median time of a call in microseconds; None if it was not measured.
    spread : float
        The distance between the quartiles of the times, divided by the median.
    runs : int
        The number of measured runs.
    dropped : str
        Why the configuration was not measured to the end; empty if it was.
    """

    config: Config
    us: float | None
    spread: float = 0.0
    runs: int = 0
    dropped: str = ""


def search(
    samples: Mapping[K, Callable[[], float]], budget: float, progress: Callable[[int, int], None]
) -> dict[K, list[float]]:
    """Measure candidates in rounds: each round drops those that are slower than the fastest by some factor.

    Parameters
    ----------
    samples : mapping
        For each candidate a function that runs it once and returns the seconds.
    budget : float
        Seconds after which no further round begins; each candidate is run once in any case.
    progress : callable
        Takes the number of runs done and of those planned.

    Returns
    -------
    dict
        The measured seconds of each candidate.
    """
    end = time.perf_counter() + budget
    found: dict[K, list[float]] = {key: [] for key in samples}
    left = list(samples)
    done = 0
    for runs, factor in _ROUNDS:
        planned = done + len(left) * (runs - len(found[left[0]]))
        # One run of each in turn: a change of the clock rate then reaches all of them.
        while len(found[left[0]]) < runs:
            if found[left[0]] and time.perf_counter() > end:
                return found
            for key in left:
                found[key].append(samples[key]())
                done += 1
                progress(done, planned)
        least = min(median(found[key]) for key in left)
        left = [key for key in left if median(found[key]) <= factor * least]
        if len(left) == 1:
            break
    return found


def spread_of(seconds: list[float]) -> float:
    """Return the distance between the quartiles, divided by the median; 0 for fewer than four numbers."""
    if len(seconds) < 4:
        return 0.0
    ordered = sorted(seconds)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / max(median(ordered), 1e-12)

"""Compares the results of configurations, as NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np


def as_arrays(out: Any) -> list[Any]:
    """Return copies of a call's result as NumPy arrays, for a comparison; of a struct those of its fields."""
    if out is None:
        return []
    for method in ("to_numpy", "numpy"):
        if hasattr(out, method):
            return [np.array(getattr(out.detach().cpu() if method == "numpy" else out, method)())]
    if isinstance(out, Mapping):
        return [array for value in out.values() for array in as_arrays(value)]
    if isinstance(out, tuple):
        return [array for value in out for array in as_arrays(value)]
    found = np.array(out)
    return [] if found.dtype.hasobject else [found]


def difference(first: list[Any], other: list[Any]) -> float:
    """Return the largest difference of numbers, relative to the largest number of its array; NaN equals NaN.

    It is infinite if the arrays are not as many, or their shapes or types are not the same.
    """
    worst = 0.0 if len(first) == len(other) else math.inf
    for a, b in zip(first, other, strict=False):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        if a.dtype.names is not None:
            # Field by field: the bytes between fields are undefined.
            worst = max(worst, difference([a[n] for n in a.dtype.names], [b[n] for n in b.dtype.names]))
            continue
        if a.dtype.kind not in "fiub":
            worst = max(worst, 0.0 if a.tobytes() == b.tobytes() else math.inf)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        size = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
        most = float(np.max(gap, initial=0.0)) / (size or 1.0)
        worst = max(worst, math.inf if math.isnan(most) else most)
    return worst

"""Compares the results of configurations, as NumPy arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def as_arrays(out: Any) -> list[Any]:
    """Return a call's result as NumPy arrays, for a comparison."""
    if out is None:
        return []
    for method in ("to_numpy", "numpy"):
        if hasattr(out, method):
            return [np.asarray(getattr(out.detach().cpu() if method == "numpy" else out, method)())]
    return [np.asarray(out)] if isinstance(out, (int, float, np.ndarray, np.generic)) else []


def difference(first: list[Any], other: list[Any]) -> float:
    """Return the largest difference of numbers, relative to the largest number of its array; NaN equals NaN."""
    worst = 0.0
    for a, b in zip(first, other, strict=True):
        if a.dtype.kind not in "fiub" or a.shape != b.shape:
            worst = max(worst, 0.0 if a.tobytes() == b.tobytes() else math.inf)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(invalid="ignore"):
            gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        size = float(np.max(np.abs(x), initial=0.0, where=np.isfinite(x)))
        most = float(np.max(gap, initial=0.0)) / (size or 1.0)
        worst = max(worst, math.inf if math.isnan(most) else most)
    return worst

"""The edges of triangles, from NumPy arrays; nothing here runs on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def edges_of(faces: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return each edge of some triangles once.

    Parameters
    ----------
    faces : (F, 3) int array
        Numbers of corners. Triangles may go round either way.

    Returns
    -------
    (E, 4) int array
        An edge's two corners, and then the third corner of each triangle that it belongs to, -1 in place of a second
        one. An edge of more than two triangles is there once for each, as a border of it. Triangles with two equal
        corners have no edges.
    """
    faces = faces.reshape(-1, 3).astype(np.int64)
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    sides = np.concatenate([faces[:, [0, 1, 2]], faces[:, [1, 2, 0]], faces[:, [2, 0, 1]]])
    sides[:, :2].sort(axis=1)
    sides = sides[np.lexsort((sides[:, 1], sides[:, 0]))]
    begins = np.ones(len(sides), bool)
    begins[1:] = (sides[1:, :2] != sides[:-1, :2]).any(axis=1)
    starts = np.flatnonzero(begins)
    counts = np.diff(np.append(starts, len(sides)))
    pairs = starts[counts == 2]
    single = np.repeat(counts != 2, counts)
    found = np.full((len(pairs) + int(single.sum()), 4), -1, np.int32)
    found[: len(pairs), :3] = sides[pairs]
    found[: len(pairs), 3] = sides[pairs + 1, 2]
    found[len(pairs) :, :3] = sides[single]
    return found

"""Views of matrices against NumPy's: transposes, broadcasting, and the launches that a batch is divided into."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

from slangpy_rt.linalg.view import View, launches

DATA = np.arange(4096, dtype=np.float32)


def strided(view: View) -> np.ndarray[Any, Any]:
    """Return a view of DATA."""
    return np.lib.stride_tricks.as_strided(DATA[view.offset :], view.shape, tuple(4 * s for s in view.strides))


def view_of(array: np.ndarray[Any, Any]) -> View:
    start = array.__array_interface__["data"][0] - DATA.__array_interface__["data"][0]
    return View("float", array.shape, tuple(s // 4 for s in array.strides), start // 4)


BATCHES: list[Any] = [
    DATA[:120].reshape(2, 3, 4, 5),
    DATA[:480].reshape(4, 6, 4, 5)[::2, ::2],
    DATA[:480].reshape(4, 6, 4, 5)[:2, :3],
    DATA[:360].reshape(3, 6, 4, 5)[:, ::2].swapaxes(0, 1)[:2],
    DATA[:60].reshape(3, 4, 5),
    DATA[:40].reshape(2, 1, 4, 5),
    DATA[:20].reshape(4, 5),
    DATA[:120].reshape(2, 3, 5, 4).swapaxes(2, 3),
]


@pytest.mark.parametrize(("first", "second"), list(product(range(len(BATCHES)), repeat=2)))
@pytest.mark.parametrize("most", [1, 2, 65535])
def test_launches_cover_each_matrix_once(first: int, second: int, most: int) -> None:
    a, b = BATCHES[first], BATCHES[second]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    target = np.zeros((*batch, 4, 5), np.float32)
    out = View("float", target.shape, tuple(s // 4 for s in target.strides))
    want = np.broadcast_to(a, target.shape) + np.broadcast_to(b, target.shape)
    for x, y, z in launches((view_of(a).spread(batch), view_of(b).spread(batch), out), most):
        assert len(x.shape) == len(y.shape) == len(z.shape) == 3 and z.shape[0] <= most
        part = np.lib.stride_tricks.as_strided(target.ravel()[z.offset :], z.shape, tuple(4 * s for s in z.strides))
        part += strided(x) + strided(y)
    np.testing.assert_array_equal(target, want)


def test_dense_batches_take_one_launch() -> None:
    dense = view_of(DATA[:480].reshape(4, 6, 4, 5))
    assert [v[0].shape for v in launches((dense, dense), 65535)] == [(24, 4, 5)]
    assert [v[0].shape for v in launches((dense, dense), 10)] == [(10, 4, 5), (10, 4, 5), (4, 4, 5)]
    one = view_of(DATA[:20].reshape(4, 5)).spread((4, 6))
    assert [v[0].strides for v in launches((one, dense), 65535)] == [(0, 5, 1)]


def test_matrices_in_one_place_are_results_of_launches_of_their_own() -> None:
    dense = view_of(DATA[:480].reshape(4, 6, 4, 5))
    rows = view_of(DATA[:80].reshape(4, 1, 4, 5)).spread((4, 6))
    found = list(launches((dense, rows), 65535))
    assert len(found) == 24 and {v[1].offset for v in found} == {0, 20, 40, 60}
    columns = view_of(DATA[:120].reshape(1, 6, 4, 5)).spread((4, 6))
    assert [v[1].shape for v in launches((dense, columns), 65535)] == [(6, 4, 5)] * 4


def test_transposed() -> None:
    array = DATA[:60].reshape(3, 4, 5)
    np.testing.assert_array_equal(strided(view_of(array).transposed()), array.swapaxes(1, 2))
    assert prod(view_of(array).batch) == 3

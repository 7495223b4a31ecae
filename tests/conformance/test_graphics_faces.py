"""What single steps of pictures remember of the numbers of triangles."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.graphics.triangles import Triangles
from tests.conformance._rays import sphere
from tests.depth import needs, one_device

graphics = spy.graphics
SIZE = (40, 48)


@needs("uint64_t")
def test_triangles_that_are_there_twice(device: spy.Device) -> None:
    """As of a body that has its triangles once more, turned around: its edges are those of two triangles."""
    places, faces = sphere(6)
    at = np.concatenate([places * [0.8, 0.8, 0.4] + [0, 0, 0.5], np.ones((len(places), 1))], 1).astype(np.float32)
    position = spy.Tensor.from_numpy(device, at, "float4")
    color = np.random.default_rng(0).random((len(at), 3), np.float32)
    seen = graphics.rasterize(position, faces, SIZE)
    colors = graphics.interpolate(color, seen, faces)
    wanted = graphics.antialias(colors, seen, position, faces).numpy()
    assert np.abs(wanted - colors.numpy()).max() > 0.1
    for twice in (np.concatenate([faces, faces[:, ::-1]]), np.repeat(faces, 3, axis=0)):
        seen = graphics.rasterize(position, twice, SIZE)
        for numbers in (twice, spy.Tensor.from_numpy(device, twice.astype(np.int32))):
            found = graphics.antialias(colors, seen, position, numbers).numpy()
            np.testing.assert_allclose(found, wanted, atol=1e-5)


@needs("uint64_t")
@one_device
def test_numpy_faces_that_change(device: spy.Device) -> None:
    """Steps remember the last NumPy array, as it was, and no longer than somebody has it."""
    places, faces = sphere(6)
    at = np.concatenate([places * [0.8, 0.8, 0.4] + [0, 0, 0.5], np.ones((len(places), 1))], 1).astype(np.float32)
    color = np.random.default_rng(0).random((len(at), 3), np.float32)
    position = spy.Tensor.from_numpy(device, at, "float4")

    def drawn(numbers: Any) -> Any:
        seen = graphics.rasterize(position, numbers, SIZE)
        colors = graphics.interpolate(color, seen, numbers)
        return graphics.antialias(colors, seen, position, numbers).numpy()

    whole = drawn(faces)
    np.testing.assert_array_equal(drawn(faces), whole)
    faces[::2] = faces[1]
    wanted = drawn(spy.Tensor.from_numpy(device, faces))
    assert np.abs(wanted - whole).max() > 0.1
    np.testing.assert_array_equal(drawn(faces), wanted)
    faces[3, 1] = len(at)
    with pytest.raises(spy.BindError, match=r"rasterize: faces\[3\] names corner 62; there are 62"):
        drawn(faces)
    faces[3, 1] = 0
    part = faces[:10].copy()
    drawn(part)
    known = [weakref.ref(x) for x in gc.get_objects() if isinstance(x, Triangles) and x.count == 10]
    assert [ref() is not None for ref in known] == [True]
    del part
    gc.collect()
    assert known[0]() is None

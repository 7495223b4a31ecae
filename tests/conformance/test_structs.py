"""Structs as arguments and results: from what Python has to arrays of them, checked by NumPy."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import pointer
from _structs import assert_same

import slangpy_rt as spy
from tests.depth import every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
#include "storage.slang"

struct Point { float x; float y; }
struct Ray { float3 origin; float3 direction; float reach; }
struct Scene { Point corners[2]; Ray ray; bool on; }

float norm(Point p) { return p.x + 10 * p.y; }
Point swap(Point p) { Point q = { p.y, p.x }; return q; }
float3 at(Ray r, float t) { return r.origin + t * r.direction; }
Ray ray(float3 origin, float3 direction, float reach)
{
    Ray r = { origin, direction, reach };
    return r;
}
float area(Scene s)
{
    return (s.corners[1].x - s.corners[0].x) * (s.corners[1].y - s.corners[0].y) + s.ray.reach + (s.on ? 1000 : 0);
}
Scene scene(float size, bool on)
{
    Scene s;
    s.corners[0].x = -size; s.corners[0].y = 2 * size; s.corners[1].x = 3 * size; s.corners[1].y = 4 * size;
    s.ray = ray(float3(size), float3(1, 2, 3), 7);
    s.on = on;
    return s;
}
float sum(Point p[2]) { return p[0].x + 10 * p[0].y + 100 * p[1].x + 1000 * p[1].y; }
void split(float2 v, out Point p) { p.x = v.x; p.y = v.y; }
void advance(inout Ray r, float t) { r.origin += t * r.direction; r.reach -= t; }
struct Holder { POINTER(float) p; Tensor<float, 1> t; int n; }
float held(Holder h, int k) { return h.p[k] * h.n + 100 * h.t[k]; }
struct Weighted { Point corners[2]; float weight; }
struct Grid { Point corners[2][2]; }
float4 listed(Weighted w) { return float4(w.corners[0].y, w.corners[1].x, w.corners[1].y, w.weight); }
float at(Grid g, int i, int j) { return g.corners[i][j].y; }
float tens(Point p) { return 10 * p.x + p.y; }
struct Nothing { float twice(float x) { return 2 * x; } }
"""

POINT = np.dtype([("x", "f4"), ("y", "f4")])
RAY = np.dtype([("origin", "f4", 3), ("direction", "f4", 3), ("reach", "f4")])


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_structs", SLANG)


def points(*shape: int) -> npt.NDArray[Any]:
    """Points with whole coordinates, each its own."""
    out = np.zeros(shape, POINT)
    out["x"] = np.arange(out.size).reshape(shape)
    out["y"] = -2 * out["x"] + 1
    return out


def rays(count: int) -> npt.NDArray[Any]:
    """Rays, likewise."""
    rng = np.random.default_rng(count)
    out = np.zeros(count, RAY)
    for name in RAY.names or ():
        out[name] = rng.integers(-50, 50, out[name].shape)
    return out


# What a struct may be given as.


Turned = namedtuple("Turned", "y x")


class PointTuple(NamedTuple):
    x: float
    y: float


@dataclass
class PointData:
    y: float
    x: float


@every_device
def test_one_struct_as_whatever_python_has(module: spy.Module) -> None:
    record = np.array((3, 4), POINT)
    for p in (
        {"x": 3, "y": 4},
        {"y": 4.0, "x": np.float32(3)},
        {"_type": "Point", "x": 3, "y": 4},
        (3, 4),
        [3, 4],
        PointTuple(3, 4),
        Turned(4, 3),
        PointData(4, 3),
        record,
        record[()],
        module.Point(3, 4),
        module.Point(y=4, x=3),
    ):
        assert module.norm(p) == 43, p


def test_another_value_of_the_same_signature(module: spy.Module) -> None:
    # The second finds the prepared call of the first.
    for x, y in ((1, 2), (3, 4)):
        assert module.norm({"x": x, "y": y}) == x + 10 * y
        assert module.norm((x, y)) == x + 10 * y
        assert module.norm(PointData(y, x)) == x + 10 * y


def test_nested_structs(module: spy.Module) -> None:
    ray = {"origin": [0, 0, 0], "direction": spy.float3(1), "reach": 7}
    for corners in (
        [{"x": 0, "y": 1}, {"x": 5, "y": 3}],
        ((0, 1), (5, 3)),
        [PointTuple(0, 1), PointData(3, 5)],
    ):
        assert module.area({"corners": corners, "ray": ray, "on": False}) == 5 * 2 + 7
        assert module.area((corners, ray, True)) == 5 * 2 + 7 + 1000
    assert module.sum([(1, 2), (3, 4)]) == 4321
    assert module.sum([{"x": 1, "y": 2}, (3, 4)]) == 4321


def test_fields_broadcast_on_their_own(device: spy.Device, module: spy.Module) -> None:
    origin = np.arange(12, dtype=np.float32).reshape(4, 3)
    direction = spy.Tensor.from_numpy(device, np.array([[1, 2, 3]], np.float32), "float3")
    t = np.arange(5, dtype=np.float32)[:, None]
    result = module.at({"origin": origin, "direction": direction, "reach": 1}, t)
    assert type(result) is spy.Tensor and result.shape == (5, 4)
    np.testing.assert_array_equal(result.to_numpy(), origin + t[..., None] * np.array([1, 2, 3], np.float32))
    column = spy.NDBuffer(device, "float", (3, 1))
    column.from_numpy(np.arange(3)[:, None])
    found = module.norm({"x": column, "y": np.arange(4, dtype=np.float32)})
    assert type(found) is spy.NDBuffer
    np.testing.assert_array_equal(found.to_numpy(), np.arange(3)[:, None] + 10 * np.arange(4))
    np.testing.assert_array_equal(module.norm((np.arange(6), 2)), np.arange(6) + 20)


def test_fields_inside_fields_broadcast(module: spy.Module) -> None:
    high = np.arange(6, dtype=np.float32).reshape(2, 3)
    scene = {
        "corners": [{"x": 0, "y": 0}, {"x": np.array([1, 2, 3], np.float32), "y": high}],
        "ray": {"origin": [0, 0, 0], "direction": [0, 0, 1], "reach": np.array([[10], [20]], np.float32)},
        "on": np.array([True, False, True]),
    }
    expected = np.array([1, 2, 3]) * high + [[10], [20]] + [1000, 0, 1000]
    np.testing.assert_array_equal(module.area(scene), expected)


# Arrays of structs.


def test_structured_arrays(module: spy.Module) -> None:
    p = points(3, 4)
    expected = p["x"] + 10 * p["y"]
    np.testing.assert_array_equal(module.norm(p), expected)
    np.testing.assert_array_equal(module.norm(p.T), expected.T)
    np.testing.assert_array_equal(module.norm(p[::-1, 1::2]), expected[::-1, 1::2])
    assert module.norm(p[2, 3]) == expected[2, 3]


@pytest.mark.parametrize(
    "dtype",
    [
        [("y", "f4"), ("x", "f4")],
        [("x", ">f4"), ("y", ">f4")],
        [("y", "f8"), ("x", "i2")],
        {"names": ["x", "y"], "formats": ["f4", "f4"], "offsets": [9, 2], "itemsize": 17},
    ],
    ids=["other order", "big-endian", "other scalars", "with gaps"],
)
def test_structured_arrays_of_other_layouts(device: spy.Device, module: spy.Module, dtype: Any) -> None:
    p = points(7)
    other = np.zeros(7, dtype)
    other["x"], other["y"] = p["x"], p["y"]
    np.testing.assert_array_equal(module.norm(other), p["x"] + 10 * p["y"])
    np.testing.assert_array_equal(module.norm(other[::-2]), (p["x"] + 10 * p["y"])[::-2])
    tensor = spy.Tensor.from_numpy(device, other, module.Point)
    assert_same(tensor.to_numpy(), p)


def test_nested_structured_arrays(device: spy.Device, module: spy.Module) -> None:
    dtype = np.dtype([("on", "?"), ("ray", [("reach", "f8"), ("origin", "f4", 3), ("direction", "f4", 3)]),
                      ("corners", [("y", "f4"), ("x", "f4")], 2)])  # fmt: skip
    data = np.zeros(6, dtype)
    data["on"] = np.arange(6) % 2
    data["ray"]["reach"] = np.arange(6)
    data["corners"]["x"] = np.arange(12).reshape(6, 2) ** 2
    data["corners"]["y"] = -np.arange(12).reshape(6, 2)
    dx, dy = np.diff(data["corners"]["x"])[:, 0], np.diff(data["corners"]["y"])[:, 0]
    expected = dx * dy + np.arange(6) + 1000 * data["on"]
    np.testing.assert_array_equal(module.area(data), expected)
    np.testing.assert_array_equal(module.area(spy.Tensor.from_numpy(device, data, module.Scene)).to_numpy(), expected)


@pytest.mark.parametrize("kind", [spy.Tensor, spy.NDBuffer])
def test_arrays_of_structs_on_the_device(device: spy.Device, module: spy.Module, kind: type[spy.NDBuffer]) -> None:
    p = points(4, 6)
    array = kind(device, module.Point, (4, 6))
    array.from_numpy(p)
    assert_same(array.to_numpy(), p)
    expected = p["x"] + 10 * p["y"]
    for view in (np.s_[:], np.s_[1], np.s_[1:3, ::2], np.s_[::-1, ::-3], np.s_[..., None, 2], np.s_[3, 5]):
        found = module.norm(array[view])
        assert type(found) is kind
        np.testing.assert_array_equal(found.to_numpy(), expected[view])
        assert_same(array[view].to_numpy(), p[view])
    np.testing.assert_array_equal(module.norm(array.view(24)).to_numpy(), expected.ravel())


def test_flat_data_fills_structs(device: spy.Device, module: spy.Module) -> None:
    flat = np.arange(21, dtype=np.float32)
    array = spy.NDBuffer(device, module.Ray, 3)
    array.from_numpy(flat)
    rows = flat.reshape(3, 7)
    got = array.to_numpy()
    np.testing.assert_array_equal(got["origin"], rows[:, :3])
    np.testing.assert_array_equal(got["direction"], rows[:, 3:6])
    np.testing.assert_array_equal(got["reach"], rows[:, 6])
    tensor = spy.Tensor.from_numpy(device, rows, module.Ray)
    assert tensor.shape == (3,)
    np.testing.assert_array_equal(module.at(tensor, 2).to_numpy(), rows[:, :3] + 2 * rows[:, 3:6])


def test_an_array_of_structs_as_one_parameter(device: spy.Device, module: spy.Module) -> None:
    p = points(5, 2)
    weights = np.array([[1, 100], [10, 1000]])
    expected = (np.stack([p["x"], p["y"]]) * weights[:, None]).sum((0, 2))
    np.testing.assert_array_equal(module.sum(p), expected)
    np.testing.assert_array_equal(module.sum(spy.Tensor.from_numpy(device, p, module.Point)).to_numpy(), expected)


# Results and parameters that are written.


def test_struct_results(device: spy.Device, module: spy.Module) -> None:
    p = points(6)
    as_tensor = module.swap(spy.Tensor.from_numpy(device, p, module.Point))
    assert type(as_tensor) is spy.Tensor and as_tensor.dtype.name == "Point"
    as_host = module.swap(p)
    assert type(as_host) is np.ndarray
    for got in (as_tensor.to_numpy(), as_host, module.swap(p, _result="tensor").to_numpy()):
        np.testing.assert_array_equal(got["x"], p["y"])
        np.testing.assert_array_equal(got["y"], p["x"])
    assert module.swap({"x": 1, "y": 2}) == {"x": 2.0, "y": 1.0}
    # What came as a result goes in as an argument.
    assert_same(module.swap(as_host), p)
    assert_same(module.swap(as_tensor).to_numpy(), p)
    assert module.swap(module.swap({"x": 1, "y": 2})) == {"x": 1.0, "y": 2.0}


def test_nested_struct_results(module: spy.Module) -> None:
    size, on = np.arange(5, dtype=np.float32), np.array([True, False, True, True, False])
    got = module.scene(size, on)
    np.testing.assert_array_equal(got["corners"]["x"], np.stack([-size, 3 * size], 1))
    np.testing.assert_array_equal(got["corners"]["y"], np.stack([2 * size, 4 * size], 1))
    np.testing.assert_array_equal(got["ray"]["origin"], np.repeat(size[:, None], 3, 1))
    np.testing.assert_array_equal(got["ray"]["direction"], np.tile([1, 2, 3], (5, 1)))
    np.testing.assert_array_equal(got["on"], on)
    one = module.scene(2, True)
    assert one["corners"] == [{"x": -2.0, "y": 4.0}, {"x": 6.0, "y": 8.0}] and one["on"] is True
    assert one["ray"]["origin"].tolist() == [2, 2, 2] and one["ray"]["reach"] == 7.0
    assert module.area(one) == 8 * 4 + 7 + 1000


def test_large_struct_results(module: spy.Module) -> None:
    few, many = (module.scene(np.arange(n, dtype=np.float32), np.ones(n, bool)) for n in (3, 1 << 15))
    # Large results lie in memory of the device's pools.
    assert many.dtype == few.dtype and many.nbytes >= 1 << 20
    for got in (many, spy.Tensor.from_numpy(module.device, many, module.Scene).to_numpy()):
        np.testing.assert_array_equal(got["corners"]["x"][:, 1], 3 * np.arange(1 << 15, dtype=np.float32))
        np.testing.assert_array_equal(got["on"], True)
    np.testing.assert_array_equal(module.area(many), module.area(many.copy()))


def test_results_into_arrays_of_structs(device: spy.Device, module: spy.Module) -> None:
    p = points(3)
    host = np.zeros((3, 2), POINT)
    tensor = spy.Tensor.zeros(device, (3, 2), module.Point)
    module.swap(p, _result=host[:, 1])
    module.swap(p, _result=tensor[:, 1])
    for got in (host, tensor.to_numpy()):
        np.testing.assert_array_equal(got["x"], np.stack([np.zeros(3), p["y"]], 1))
        np.testing.assert_array_equal(got["y"], np.stack([np.zeros(3), p["x"]], 1))


def test_out_structs(device: spy.Device, module: spy.Module) -> None:
    v = np.arange(10, dtype=np.float32).reshape(5, 2)
    host, tensor = np.zeros(5, POINT), spy.Tensor.zeros(device, 5, module.Point)
    x, y = np.zeros(5, np.float32), spy.Tensor.zeros(device, 5)
    assert module.split(v, host) is None
    module.split(v, tensor)
    module.split(v, {"x": x, "y": y})
    for got in (host, tensor.to_numpy(), {"x": x, "y": y.to_numpy()}):
        np.testing.assert_array_equal(got["x"], v[:, 0])
        np.testing.assert_array_equal(got["y"], v[:, 1])
    cell = spy.ValueRef()
    module.split([3, 4], cell)
    assert cell.value == {"x": 3.0, "y": 4.0}


def test_inout_structs(device: spy.Device, module: spy.Module) -> None:
    before = rays(6)
    t = np.arange(6, dtype=np.float32)
    origin, reach = before["origin"] + t[:, None] * before["direction"], before["reach"] - t
    host, tensor = before.copy(), spy.Tensor.from_numpy(device, before, module.Ray)
    fields = {name: before[name].copy() for name in RAY.names or ()}
    for r in (host, tensor, fields):
        module.advance(r, t)
    for got in (host, tensor.to_numpy(), fields):
        np.testing.assert_array_equal(got["origin"], origin)
        np.testing.assert_array_equal(got["direction"], before["direction"])
        np.testing.assert_array_equal(got["reach"], reach)
    cell = spy.ValueRef({"origin": [1, 2, 3], "direction": [1, 0, 0], "reach": 5})
    module.advance(cell, 2)
    assert cell.value["origin"].tolist() == [3, 2, 3] and cell.value["reach"] == 3.0


def test_inout_of_part_of_an_array_of_structs(device: spy.Device, module: spy.Module) -> None:
    before = rays(8)
    expected = before.copy()
    expected["origin"][6::-2] += before["direction"][6::-2]
    expected["reach"][6::-2] -= 1
    host, tensor = before.copy(), spy.Tensor.from_numpy(device, before, module.Ray)
    module.advance(host[6::-2], 1)
    module.advance(tensor[6::-2], 1)
    assert_same(host, expected)
    assert_same(tensor.to_numpy(), expected)


def test_structs_of_pointers_and_containers(device: spy.Device, module: spy.Module) -> None:
    p = spy.Tensor.from_numpy(device, np.array([1, 2, 3], np.float32))
    t, k = np.array([4, 5, 6], np.float32), np.array([2, 0], np.int32)
    n = np.array([[1], [10]], np.int32)
    expected = np.array([3, 1]) * n + 100 * np.array([6, 4])
    where = p.address if "pointers" in device.caps.features else pointer(p)
    for holder in (
        {"p": pointer(p), "t": t, "n": n},
        (pointer(p), spy.Tensor.from_numpy(device, t), n),
        (where, t[::-1].copy()[::-1], n),
    ):
        np.testing.assert_array_equal(np.asarray(module.held(holder, k)), expected)


def test_a_struct_without_fields(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.Nothing.twice({}, [1, 2]), [2, 4])
    assert module.Nothing.twice(module.Nothing(), 3) == 6


def test_structs_of_the_same_name_in_two_modules(device: spy.Device, module: spy.Module) -> None:
    other = spy.Module.load_from_source(
        device, "test_structs_2", "struct Point { int n; float m; }\nfloat norm(Point p) { return p.n + 10 * p.m; }"
    )
    here = spy.Tensor.from_numpy(device, points(3), module.Point)
    data = np.array([(1, 2), (3, 4), (5, 6)], [("n", "i4"), ("m", "f4")])
    there = spy.Tensor.from_numpy(device, data, other.Point)
    assert_same(there.to_numpy(), data)
    np.testing.assert_array_equal(other.norm(there).to_numpy(), [21, 43, 65])
    np.testing.assert_array_equal(module.norm(here).to_numpy(), points(3)["x"] + 10 * points(3)["y"])
    for function, wrong in ((module.norm, there), (other.norm, here)):
        with pytest.raises(spy.BindError):
            function(wrong)


def test_flat_data_of_structs_in_structs(module: spy.Module) -> None:
    flat = np.arange(10, dtype=np.float32).reshape(2, 5)
    found = spy.Tensor.from_numpy(module.device, flat, module.Weighted)
    np.testing.assert_array_equal(module.listed(found).to_numpy(), [[1, 2, 3, 4], [6, 7, 8, 9]])
    # In memory a struct is its scalars one after another, where all are floats.
    np.testing.assert_array_equal(found.to_numpy().view(np.float32).reshape(2, 5), flat)
    grid = spy.Tensor.from_numpy(module.device, np.arange(8, dtype=np.float32).reshape(1, 8), module.Grid)
    assert [module.at(grid, i, j).to_numpy()[0] for i in range(2) for j in range(2)] == [1, 3, 5, 7]


def test_a_tuple_is_one_struct_and_a_list_of_them_many(module: spy.Module) -> None:
    for _ in range(2):  # the second time by what the first has prepared
        np.testing.assert_array_equal(module.tens([(1, 2), (3, 4)]), [12, 34])
        np.testing.assert_array_equal(module.tens([(1.0, 2.0), (3.0, 4.0), (5.0, 6.0)]), [12, 34, 56])
        np.testing.assert_array_equal(module.tens([[(1, 2)], [(3, 4)]]), [[12], [34]])
        np.testing.assert_array_equal(module.tens(([1, 2], [3, 4])), [13, 24])
        np.testing.assert_array_equal(module.tens(((1, 2), (3, 4))), [13, 24])
        assert module.tens((1, 2)) == 12 and module.tens((1.0, 2.0)) == 12
        np.testing.assert_array_equal(module.tens([(1.0, 2.0), {"x": 3, "y": 4}]), [12, 34])

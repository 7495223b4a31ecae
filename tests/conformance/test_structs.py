"""Structs as arguments and results: from dicts to arrays of them, member by member, checked by NumPy."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.arrays import check_native
from slangpy_rt.dtypes import element_type
from slangpy_rt.types import Field, SlangType

SLANG = """
import slangpy_rt;

struct Point { float x; float y; }
struct Ray { float3 origin; float3 direction; float reach; }
struct Inner { int8_t tag; double2 d; uint16_t word; }
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

struct Every
{
    bool flag;
    int8_t i8; int16_t i16; int i32; int64_t i64;
    uint8_t u8; uint16_t u16; uint u32; uint64_t u64;
    float f32; double f64;
#ifdef HALF
    half f16; half3 h3;
#endif
    float2 f2; bool flag2; float3 f3; uint8_t tag; float4 f4; bool3 b3; uint8_t_4 u84;
    int8_t tag2; float2x3 m23; bool on; float4x4 m44; double3 d3;
    int16_t a3[3]; float3 af[2]; int8_t last[2][3];
    Inner inner; bool after; Inner inners[2]; uint8_t end;
}
Every every(
    bool flag, int8_t i8, int16_t i16, int i32, int64_t i64, uint8_t u8, uint16_t u16, uint u32, uint64_t u64,
    float f32, double f64,
#ifdef HALF
    half f16, half3 h3,
#endif
    float2 f2, bool flag2, float3 f3, uint8_t tag, float4 f4, bool3 b3, uint8_t_4 u84,
    int8_t tag2, float2x3 m23, bool on, float4x4 m44, double3 d3, int16_t a3[3], float3 af[2], int8_t last[2][3],
    Inner inner, bool after, Inner inners[2], uint8_t end)
{
    Every e;
    e.flag = flag; e.i8 = i8; e.i16 = i16; e.i32 = i32; e.i64 = i64; e.u8 = u8; e.u16 = u16; e.u32 = u32; e.u64 = u64;
    e.f32 = f32; e.f64 = f64;
#ifdef HALF
    e.f16 = f16; e.h3 = h3;
#endif
    e.f2 = f2; e.flag2 = flag2; e.f3 = f3; e.tag = tag; e.f4 = f4; e.b3 = b3; e.u84 = u84;
    e.tag2 = tag2; e.m23 = m23; e.on = on; e.m44 = m44; e.d3 = d3; e.a3 = a3; e.af = af; e.last = last;
    e.inner = inner; e.after = after; e.inners = inners; e.end = end;
    return e;
}
void members(
    Every e,
    out bool flag, out int8_t i8, out int16_t i16, out int i32, out int64_t i64,
    out uint8_t u8, out uint16_t u16, out uint u32, out uint64_t u64, out float f32, out double f64,
#ifdef HALF
    out half f16, out half3 h3,
#endif
    out float2 f2, out bool flag2, out float3 f3, out uint8_t tag, out float4 f4, out bool3 b3, out uint8_t_4 u84,
    out int8_t tag2, out float2x3 m23, out bool on, out float4x4 m44, out double3 d3,
    out Array<int16_t, 3> a3, out Array<float3, 2> af, out Array<Array<int8_t, 3>, 2> last,
    out Inner inner, out bool after, out Array<Inner, 2> inners, out uint8_t end)
{
    flag = e.flag; i8 = e.i8; i16 = e.i16; i32 = e.i32; i64 = e.i64; u8 = e.u8; u16 = e.u16; u32 = e.u32; u64 = e.u64;
    f32 = e.f32; f64 = e.f64;
#ifdef HALF
    f16 = e.f16; h3 = e.h3;
#endif
    f2 = e.f2; flag2 = e.flag2; f3 = e.f3; tag = e.tag; f4 = e.f4; b3 = e.b3; u84 = e.u84;
    tag2 = e.tag2; m23 = e.m23; on = e.on; m44 = e.m44; d3 = e.d3; a3 = e.a3; af = e.af; last = e.last;
    inner = e.inner; after = e.after; inners = e.inners; end = e.end;
}

struct Plain { float3 v; int n; uint8_t tag; double d; }
struct Wide { float2 uv; int n; }
struct Flagged { int n; bool on; }
double plain_tensor(Tensor<Plain, 1> t, int k) { return t[k].v.y + 10 * t[k].n + 1000 * t[k].tag + t[k].d; }
void plain_buffer(NDBuffer<Plain, 1> t, int k) { Plain p = t[k]; p.v.z += 5; p.n = -p.n; t[k] = p; }
double plain_pointer(Plain *p, int k) { return p[k].v.y + 10 * p[k].n + 1000 * p[k].tag + p[k].d; }
float wide_tensor(Tensor<Wide, 1> t, int k) { return t[k].uv.y + t[k].n; }
int flagged_tensor(Tensor<Flagged, 1> t, int k) { return t[k].n + (t[k].on ? 100 : 0); }
float wide_pointer(Wide *p, int k) { return p[k].uv.y + p[k].n; }
int flagged_pointer(Flagged *p, int k) { return p[k].n + (p[k].on ? 100 : 0); }
struct Holder { float *p; Tensor<float, 1> t; int n; }
float held(Holder h, int k) { return h.p[k] * h.n + 100 * h.t[k]; }
struct Nothing { float twice(float x) { return 2 * x; } }
float wide_value(Wide w) { return w.uv.y + w.n; }
int flagged_value(Flagged w) { return w.n + (w.on ? 100 : 0); }
""".replace("uint8_t_4", "vector<uint8_t, 4>")

POINT = np.dtype([("x", "f4"), ("y", "f4")])
RAY = np.dtype([("origin", "f4", 3), ("direction", "f4", 3), ("reach", "f4")])
INNER = np.dtype([("tag", "i1"), ("d", "f8", 2), ("word", "u2")], align=True)
PLAIN = np.dtype([("v", "f4", 3), ("n", "i4"), ("tag", "u1"), ("d", "f8")], align=True)
HALVES = [("f16", "f2"), ("h3", "f2", 3)]
EVERY: list[Any] = [
    ("flag", "?"), ("i8", "i1"), ("i16", "i2"), ("i32", "i4"), ("i64", "i8"),
    ("u8", "u1"), ("u16", "u2"), ("u32", "u4"), ("u64", "u8"), ("f32", "f4"), ("f64", "f8"),
    *HALVES,
    ("f2", "f4", 2), ("flag2", "?"), ("f3", "f4", 3), ("tag", "u1"), ("f4", "f4", 4), ("b3", "?", 3),
    ("u84", "u1", 4),
    ("tag2", "i1"), ("m23", "f4", (2, 3)), ("on", "?"), ("m44", "f4", (4, 4)), ("d3", "f8", 3),
    ("a3", "i2", 3), ("af", "f4", (2, 3)), ("last", "i1", (2, 3)),
    ("inner", INNER), ("after", "?"), ("inners", INNER, 2), ("end", "u1"),
]  # fmt: skip


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above; half only where there is one."""
    defines = {"HALF": 1} if "half" in device.caps.scalars else {}
    return spy.Module.load_from_source(device, "test_structs", SLANG, defines=defines)


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


def random_bits(shape: tuple[int, ...], dtype: np.dtype[Any], seed: int) -> npt.NDArray[Any]:
    """Values over the whole range of a dtype, structured ones included; floats are finite."""
    rng = np.random.default_rng(seed)
    out = np.zeros(shape, dtype)
    if dtype.names is not None:
        for k, name in enumerate(dtype.names):
            base, dims = dtype[name].subdtype or (dtype[name], ())
            out[name] = random_bits(shape + dims, base, seed * 31 + k)
        return out
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def assert_same(got: Any, expected: npt.NDArray[Any]) -> None:
    """Equal field by field, whatever lies between the fields."""
    if expected.dtype.names is None:
        np.testing.assert_array_equal(got, expected)
        return
    assert got.dtype.names == expected.dtype.names and got.shape == expected.shape
    for name in expected.dtype.names:
        assert_same(got[name], expected[name])


# What a struct may be given as.


Turned = namedtuple("Turned", "y x")


class PointTuple(NamedTuple):
    x: float
    y: float


@dataclass
class PointData:
    y: float
    x: float


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
    column.from_numpy(np.arange(3))
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


def test_packed_and_aligned(device: spy.Device, module: spy.Module) -> None:
    aligned = random_bits((5,), PLAIN, 3)
    packed = np.zeros(5, [(name, PLAIN[name]) for name in PLAIN.names or ()])
    for name in PLAIN.names or ():
        packed[name] = aligned[name]
    assert packed.itemsize < aligned.itemsize
    for source in (aligned, packed):
        tensor = spy.Tensor.from_numpy(device, source, module.Plain)
        assert_same(tensor.to_numpy(), aligned)


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
    for holder in (
        {"p": p, "t": t, "n": n},
        (p, spy.Tensor.from_numpy(device, t), n),
        (p.address, t[::-1].copy()[::-1], n),
    ):
        np.testing.assert_array_equal(np.asarray(module.held(holder, k)), expected)


def test_a_struct_without_fields(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.Nothing.twice({}, [1, 2]), [2, 4])
    assert module.Nothing.twice(module.Nothing(), 3) == 6


# Member by member: a wrong offset, size or padding anywhere shows, because loads and stores are told apart.


def every_dtype(device: spy.Device) -> np.dtype[Any]:
    """The struct as NumPy lays it out."""
    fields = [f for f in EVERY if "half" in device.caps.scalars or f not in HALVES]
    return np.dtype(fields, align=True)


def test_echo_members_in(device: spy.Device, module: spy.Module) -> None:
    dtype = every_dtype(device)
    data = random_bits((5,), dtype, 1)
    for source in (data, spy.Tensor.from_numpy(device, data, module.Every)):
        out = np.zeros(5, dtype)
        separate = {name: np.zeros_like(out[name]) for name in dtype.names or ()}
        module.members(source, *separate.values())
        for name, got in separate.items():
            assert_same(got, data[name])


def test_echo_members_out(device: spy.Device, module: spy.Module) -> None:
    dtype = every_dtype(device)
    data = random_bits((5,), dtype, 2)
    args = [np.ascontiguousarray(data[name]) for name in dtype.names or ()]
    got = module.every(*args)
    assert got.dtype == dtype
    assert_same(got, data)
    tensor = spy.Tensor(device, module.Every, 5)
    assert module.every(*args, _result=tensor) is tensor
    assert tensor.nbytes == 5 * dtype.itemsize
    assert_same(tensor.to_numpy(), data)


def test_echo_members_by_value(device: spy.Device, module: spy.Module) -> None:
    dtype = every_dtype(device)
    data = random_bits((1,), dtype, 4)
    fields = {name: data[name][0] for name in dtype.names or ()}
    separate = {name: np.zeros_like(data[name]) for name in dtype.names or ()}
    module.members(fields, *separate.values())
    for name, got in separate.items():
        assert_same(got, data[name])


# Whole containers of structs, where Slang's own rules for memory apply.


def test_whole_containers_of_structs_that_lie_alike_everywhere(device: spy.Device, module: spy.Module) -> None:
    data = np.zeros(4, PLAIN)
    data["v"] = np.arange(12).reshape(4, 3)
    data["n"], data["tag"], data["d"] = [5, 6, 7, 8], [200, 1, 2, 3], [0.5, 0.25, 0.125, 2.0**-40]
    k = np.arange(4, dtype=np.int32)
    expected = data["v"][:, 1] + 10 * data["n"] + 1000.0 * data["tag"] + data["d"]
    tensor = spy.Tensor.from_numpy(device, data, module.Plain)
    np.testing.assert_array_equal(module.plain_tensor(tensor, k).to_numpy(), expected)
    np.testing.assert_array_equal(module.plain_tensor(tensor[::-1], k).to_numpy(), expected[::-1])
    np.testing.assert_array_equal(module.plain_tensor(data, k), expected)
    np.testing.assert_array_equal(module.plain_pointer(tensor, k).to_numpy(), expected)
    buffer = spy.NDBuffer(device, module.Plain, 4)
    buffer.from_numpy(data)
    module.plain_buffer(buffer, k[1:3])
    changed = data.copy()
    changed["v"][1:3, 2] += 5
    changed["n"][1:3] *= -1
    assert_same(buffer.to_numpy(), changed)


@pytest.mark.parametrize(
    ("struct", "dtype", "refusing", "where"),
    [
        (
            "Wide",
            [("uv", "f4", 2), ("n", "i4")],
            "cuda",
            "finds 'uv' of type 'float2' at multiples of 8 bytes",
        ),
        ("Flagged", [("n", "i4"), ("on", "?")], "vulkan", "finds 'on' of type 'bool' at 4 bytes"),
    ],
)
def test_whole_containers_of_structs_that_differ(
    device: spy.Device, module: spy.Module, struct: str, dtype: Any, refusing: str, where: str
) -> None:
    low = struct.lower()
    data = random_bits((4,), np.dtype(dtype, align=True), 7)
    data["n"] = [3, 1, 4, 1]
    if struct == "Wide":
        data["uv"] = np.arange(8).reshape(4, 2)
    k = np.arange(4, dtype=np.int32)
    second = data["uv"][:, 1] if struct == "Wide" else 100 * data["on"]
    expected = second + data["n"]
    tensor = spy.Tensor.from_numpy(device, data, module[struct])
    # One at a time they are loaded scalar by scalar, which is the same everywhere.
    np.testing.assert_array_equal(module[f"{low}_value"](tensor).to_numpy(), expected)
    for whole in (module[f"{low}_tensor"], module[f"{low}_pointer"]):
        if device.name != refusing:
            np.testing.assert_array_equal(whole(tensor, k).to_numpy(), expected)
            continue
        with pytest.raises(spy.UnsupportedError) as caught:
            whole(tensor, k)
        kind = whole.overloads[0].params[0].type.name
        assert str(caught.value) == (
            f"{whole.signature}: argument '{whole.overloads[0].params[0].name}': on {device.name}, '{kind}' {where}, "
            f"and arrays of '{struct}' keep it elsewhere; use scalars or vectors of 3, or pass the struct itself."
        )


@pytest.mark.parametrize(
    ("target", "fields", "told"),
    [
        ("cuda", ["float", "float3", "double3", "bool3", "Mode", "float[4]", "uint8_t"], None),
        ("cuda", ["float3", "float2"], "finds 'f1' of type 'float2' at multiples of 8 bytes"),
        ("cuda", ["double4"], "finds 'f0' of type 'double4' at multiples of 32 bytes"),
        ("cuda", ["float4x4"], "finds 'f0' of type 'float4x4' at multiples of 16 bytes"),
        ("cuda", ["half3"], "finds 'f0' of type 'half3' at multiples of 4 bytes"),
        ("cuda", ["half4"], "finds 'f0' of type 'half4' at multiples of 4 bytes"),
        ("cuda", ["float2[3]"], "finds 'f0' of type 'float2' at multiples of 8 bytes"),
        ("spirv", ["float2", "half3", "float4x4", "Mode"], None),
        ("spirv", ["int", "bool3"], "finds 'f1' of type 'bool3' at 4 bytes"),
        ("cpp", ["float2", "bool", "bool4", "float4x4", "Mode"], None),
    ],
)
def test_what_lies_elsewhere_behind_pointers(target: str, fields: list[str], told: str | None) -> None:
    known = {"Mode": SlangType("enum", "Mode", "int", cases=(("Off", 0),))}
    types = [known.get(name) or element_type("test", name) for name in fields]
    struct = SlangType("struct", "S", fields=tuple(Field(f"f{k}", type_) for k, type_ in enumerate(types)))
    device: Any = SimpleNamespace(name="here", backend=SimpleNamespace(target=SimpleNamespace(format=target)))
    if told is None:
        check_native("f(S *p)", device, struct, "'S*'")
        return
    with pytest.raises(spy.UnsupportedError) as caught:
        check_native("f(S *p)", device, struct, "'S*'")
    assert str(caught.value).startswith(f"f(S *p): on here, 'S*' {told}, ")


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


# Inheritance, which Slang still has for structs.


INHERITED = """
import slangpy_rt;
struct Base { float a; int n; float sum() { return a + n; } }
struct Next : Base { float3 b; }
struct Last : Next { float c; }
typedef Base Other;
struct Of<T> : Other { T t; }
struct Nothing : Base {}
struct Holder { float first; Next next; }
interface ISum { float total(); }
struct Both : Base, ISum { float w; float total() { return a + n + w; } }
float next(Next x) { return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.sum(); }
float last(Last x) { return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.c; }
float of(Of<float> x) { return x.a + 10 * x.n + 100 * x.t; }
float nothing(Nothing x) { return x.a + 10 * x.n; }
float holder(Holder h) { return h.first + 10 * h.next.a + 100 * h.next.b.z; }
float both(Both x) { return x.total(); }
Last make(float a, int n) { Last x; x.a = a; x.n = n; x.b = float3(a + 1, a + 2, a + 3); x.c = a + 4; return x; }
void grow(inout Last x) { x.a *= 2; x.c *= 2; }
float all(Tensor<Last, 1> t) { Last x = t[1]; return x.a + 10 * x.n + 100 * x.b.y + 1000 * x.c; }

struct Padded { double x; int k; }
struct Behind : Padded { int l; }
struct Hides : Base { float a; }
struct Empty {}
struct Marked : Empty { float a; }
float behind(Behind x) { return x.l; }
float hides(Hides x) { return x.a; }
float marked(Marked x) { return x.a; }
"""


def test_inherited_fields_come_first(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_inherited", INHERITED.replace("double x", "float2 x"))
    b = [2.0, 3.0, 4.0]
    assert module.next({"a": 5.0, "n": 7, "b": b}) == 5 + 70 + 300 + 12000
    assert module.last((5.0, 7, b, 1.0)) == 5 + 70 + 300 + 1000
    assert module.of({"a": 5.0, "n": 7, "t": 2.0}) == 5 + 70 + 200
    assert module.nothing({"a": 5.0, "n": 7}) == 75
    assert module.holder({"first": 1.0, "next": {"a": 2.0, "n": 0, "b": b}}) == 1 + 20 + 400
    assert module.both({"a": 1.0, "n": 2, "w": 4.0}) == 7
    with pytest.raises(spy.BindError, match="argument 'x' lacks a, n; 'Next' has a, n, b"):
        module.next({"b": b})
    fields = [("a", "f4"), ("n", "i4"), ("b", "f4", 3), ("c", "f4")]
    host = np.zeros(4, fields)
    host["a"], host["n"], host["c"] = np.arange(4), np.arange(4) + 5, np.arange(4) * 2
    host["b"] = np.arange(12).reshape(4, 3)
    expected = host["a"] + 10 * host["n"] + 100 * host["b"][:, 1] + 1000 * host["c"]
    tensor = spy.Tensor.from_numpy(device, host, dtype=module.Last)
    np.testing.assert_array_equal(module.last(tensor).to_numpy(), expected)
    np.testing.assert_array_equal(module.last(host), expected)
    assert module.all(tensor) == expected[1]
    module.grow(tensor)
    back = tensor.to_numpy()
    np.testing.assert_array_equal(back["a"], 2 * host["a"])
    np.testing.assert_array_equal(back["c"], 2 * host["c"])
    np.testing.assert_array_equal(back["b"], host["b"])
    made = module.make(np.arange(3, dtype=np.float32), 9)
    np.testing.assert_array_equal(made["a"], [0, 1, 2])
    np.testing.assert_array_equal(made["n"], [9, 9, 9])
    np.testing.assert_array_equal(made["b"][:, 2], [3, 4, 5])
    np.testing.assert_array_equal(made["c"], [4, 5, 6])


def test_inherited_fields_that_text_or_arrays_cannot_reach(device: spy.Device) -> None:
    text = INHERITED.replace("double x", "int64_t x")  # doubles need not be there
    module = spy.Module.load_from_source(device, "test_unreachable", text)
    for call, message in (
        (
            lambda: module.hides({"a": 1.0, "n": 2}),
            "float hides(Hides x): argument 'x.a': parameters of type "
            "'float (hidden by Hides.a; make Base a field)' ",
        ),
        (
            lambda: module.behind({"x": 1, "k": 2, "l": 3}),
            "float behind(Behind x): argument 'x.l': parameters of type "
            "'int (behind Padded, which ends in padding or is empty; make Padded a field)' ",
        ),
        (
            lambda: module.marked({"a": 1.0}),
            "float marked(Marked x): argument 'x.a': parameters of type "
            "'float (behind Empty, which ends in padding or is empty; make Empty a field)' ",
        ),
        (lambda: module.behind(np.zeros(3, np.int32)), "parameters of type 'Behind' are not supported"),
    ):
        with pytest.raises(spy.UnsupportedError) as refusal:
            call()
        assert message in str(refusal.value)
    with pytest.raises(spy.BindError, match="is not an element type"):
        spy.Tensor.zeros(device, 3, dtype=module.Behind)

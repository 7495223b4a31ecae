"""Where fields of structs lie, member by member and behind pointers: a wrong offset, size or padding shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from _gaps import narrowest
from _structs import assert_same, random_bits

import slangpy_rt as spy
from slangpy_rt.arguments.bind_array import check_native
from slangpy_rt.backends.targets import target_of
from slangpy_rt.core.dtypes import element_type
from slangpy_rt.core.target import Caps
from slangpy_rt.core.types import Field, SlangType
from tests.depth import deep, every_device, needs, one_device

pytestmark = one_device

SLANG = """
import slangpy_rt;

struct Inner { int8_t tag; double2 d; uint16_t word; }

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
float wide_value(Wide w) { return w.uv.y + w.n; }
int flagged_value(Flagged w) { return w.n + (w.on ? 100 : 0); }
""".replace("uint8_t_4", "vector<uint8_t, 4>")

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
    """The functions above; half only where there is one, and 16 bits where memory has no 8."""
    defines = {"HALF": 1} if "half" in device.caps.scalars else {}
    text = SLANG if narrowest(device) == "uint8_t" else SLANG.replace("int8_t", "int16_t")
    return spy.Module.load_from_source(device, "test_struct_layouts", text, defines=defines)


def fitting(device: spy.Device, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same, aligned; with 16 bits where the device's memory has no 8."""
    if narrowest(device) == "uint8_t" or dtype.kind not in "iuV":
        return dtype
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((fitting(device, base), shape))
    if dtype.names is not None:
        return np.dtype([(name, fitting(device, dtype[name])) for name in dtype.names], align=True)
    return np.dtype(f"{dtype.kind}2") if dtype.itemsize == 1 else dtype


def test_packed_and_aligned(device: spy.Device, module: spy.Module) -> None:
    plain = fitting(device, PLAIN)
    aligned = random_bits((5,), plain, 3)
    packed = np.zeros(5, [(name, plain[name]) for name in plain.names or ()])
    for name in plain.names or ():
        packed[name] = aligned[name]
    assert packed.itemsize < aligned.itemsize
    for source in (aligned, packed):
        tensor = spy.Tensor.from_numpy(device, source, module.Plain)
        assert_same(tensor.to_numpy(), aligned)


# Member by member: a wrong offset, size or padding anywhere shows, because loads and stores are told apart.


def every_dtype(device: spy.Device) -> np.dtype[Any]:
    """The struct as NumPy lays it out."""
    fields = [f for f in EVERY if "half" in device.caps.scalars or f not in HALVES]
    return fitting(device, np.dtype(fields, align=True))


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


@deep
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
    data = np.zeros(4, fitting(device, PLAIN))
    data["v"] = np.arange(12).reshape(4, 3)
    data["n"], data["tag"], data["d"] = [5, 6, 7, 8], [200, 1, 2, 3], [0.5, 0.25, 0.125, 2.0**-40]
    k = np.arange(4, dtype=np.int32)
    expected = data["v"][:, 1] + 10 * data["n"] + 1000.0 * data["tag"] + data["d"]
    tensor = spy.Tensor.from_numpy(device, data, module.Plain)
    np.testing.assert_array_equal(module.plain_tensor(tensor, k).to_numpy(), expected)
    np.testing.assert_array_equal(module.plain_tensor(tensor[::-1], k).to_numpy(), expected[::-1])
    np.testing.assert_array_equal(module.plain_tensor(data, k), expected)
    if "pointers" in device.caps.features:
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
        ("Flagged", [("n", "i4"), ("on", "?")], "program", "finds 'on' of type 'bool' at 4 bytes"),
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
    kinds = ["tensor", "pointer"] if "pointers" in device.caps.features else ["tensor"]
    for whole in (module[f"{low}_{kind}"] for kind in kinds):
        target = device.backend.target
        if refusing not in (target.format, "program" if target.fills_padding and target.format == "spirv" else ""):
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
        ("spirv", ["int", "bool3"], None),
        ("program", ["int", "bool3"], "finds 'f1' of type 'bool3' at 4 bytes"),
        ("cpp", ["float2", "bool", "bool4", "float4x4", "Mode"], None),
    ],
)
def test_what_lies_elsewhere_behind_pointers(target: str, fields: list[str], told: str | None) -> None:
    known = {"Mode": SlangType("enum", "Mode", "int", cases=(("Off", 0),))}
    types = [known.get(name) or element_type("test", name) for name in fields]
    struct = SlangType("struct", "S", fields=tuple(Field(f"f{k}", type_) for k, type_ in enumerate(types)))
    program, caps = target == "program", Caps((1, 1, 1), frozenset(), frozenset())
    kernels = target_of("spirv" if program else target, "", "", caps, program)
    device: Any = SimpleNamespace(name="here", backend=SimpleNamespace(target=kernels))
    if told is None:
        check_native("f(S *p)", device, struct, "'S*'")
        return
    with pytest.raises(spy.UnsupportedError) as caught:
        check_native("f(S *p)", device, struct, "'S*'")
    assert str(caught.value).startswith(f"f(S *p): on here, 'S*' {told}, ")


PADDED = """
import slangpy_rt;
struct A { double x; float y; }
struct B { float3 v; A a; }
struct C { int16_t n; A pairs[2]; }
struct InA { A a; float t; int8_t n; }
struct InB { B b; float t; float3 u; }
struct InC { int8_t n; C c[2]; float t; bool on; }
struct Last { float t; A a; }
#define EACH(S)                                                                                              \
    S S##_value(S s) { return s; }                                                                           \
    float S##_tensor(Tensor<S, 1> s, int k) { return s[k].t; }                                               \
    float S##_buffer(StructuredBuffer<S> s, int k) { return s[k].t; }                                        \
    void S##_change(RWTensor<S, 1> to, int k) { S s = to[k]; s.t += 1; to[k] = s; }                          \
    void S##_store(RWStructuredBuffer<S> to, int k) { S s = to[k]; s.t += 1; to[k] = s; }
#define POINTERS(S)                                                                                          \
    float S##_pointer(S *s, int k) { return s[k].t; }                                                        \
    void S##_set(S *to, int k) { to[k].t += 1; }
EACH(InA) EACH(InB) EACH(InC) EACH(Last)
#ifdef HAS_POINTERS
POINTERS(InA) POINTERS(InB) POINTERS(InC) POINTERS(Last)
#endif
"""
PADDED_A = np.dtype([("x", "f8"), ("y", "f4")], align=True)
PADDED_B = np.dtype([("v", "f4", 3), ("a", PADDED_A)], align=True)
PADDED_C = np.dtype([("n", "i2"), ("pairs", PADDED_A, 2)], align=True)
PADDED_CASES: list[Any] = [
    ("InA", [("a", PADDED_A), ("t", "f4"), ("n", "i1")], True),
    ("InB", [("b", PADDED_B), ("t", "f4"), ("u", "f4", 3)], True),
    ("InC", [("n", "i1"), ("c", PADDED_C, 2), ("t", "f4"), ("on", "?")], True),
    ("Last", [("t", "f4"), ("a", PADDED_A)], False),
]


@needs("double", "int8_t", "int16_t")
@every_device
@pytest.mark.parametrize(("name", "fields", "refused"), PADDED_CASES)
def test_padding_at_the_end_of_nested_structs(
    device: spy.Device, name: str, fields: list[Any], refused: bool
) -> None:
    """Whole arrays hold the fields where NumPy has them, or their functions are refused."""
    pointers = "pointers" in device.caps.features
    defines = {"HAS_POINTERS": 1} if pointers else {}
    module: Any = spy.Module.load_from_source(device, "test_padded", PADDED, defines=defines)
    data = random_bits((4,), np.dtype(fields, align=True), 7)
    data["t"] = [3, 1, 4, 2]
    k, tensor = np.arange(4, dtype=np.int32), spy.Tensor.from_numpy(device, data, module[name])
    assert_same(module[f"{name}_value"](tensor).to_numpy(), data)
    changed = data.copy()
    changed["t"] += 1
    every = ("tensor", "buffer", *(("pointer",) if pointers else ()))
    for kind, writing in zip((*every, "change", "store", "set"), (*[False] * len(every), *[True] * 3), strict=True):
        if kind == "set" and not pointers:
            continue
        function = module[f"{name}_{kind}"]
        tensor = spy.Tensor.from_numpy(device, data, module[name])
        if device.backend.target.fills_padding and refused:
            param = function.overloads[0].params[0]
            with pytest.raises(spy.UnsupportedError) as caught:
                function(tensor, k)
            told = str(caught.value)
            assert told.startswith(f"{function.signature}: argument '{param.name}': on {device.name}, "), told
            assert told.endswith("pass the struct itself."), told
            continue
        found = function(tensor, k)
        if writing:
            assert_same(tensor.to_numpy(), changed)
        else:
            np.testing.assert_array_equal(found.to_numpy(), data["t"])

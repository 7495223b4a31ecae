"""Threads of several elements: rows of any length, and columns of transposed arrays. Expected values are NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

pytestmark = one_device

TEXT = """
float add(float a, float b) { return a + 2 * b; }
double add_double(double a, double b) { return a + 2 * b; }
half add_half(half a, half b) { return a + b; }
int8_t add_byte(int8_t a, int8_t b) { return int8_t(a + b); }
bool differs(bool a, bool b) { return a != b; }
void swap(inout float a, inout float b, out float sum) { sum = a + b; float t = a; a = b; b = t; }
float3 scale(float a, float3 b) { return a * b; }
"""
TYPES = {
    "add": np.float32,
    "add_double": np.float64,
    "add_half": np.float16,
    "add_byte": np.int8,
    "differs": np.bool_,
}
# Sizes around those of a group: 32 columns, 8 pieces of 4 or 2 rows.
SIZES = [(32, 32), (36, 33), (64, 31), (33, 64), (200, 100), (1, 77), (35, 1)]


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return device.load_module_from_source("wide_layouts", TEXT)


def values(name: str, shape: tuple[int, ...], seed: int) -> Any:
    """Numbers that each type holds exactly, sums included."""
    return np.random.default_rng(seed).integers(0, 30, shape).astype(TYPES[name])


def expected(name: str, a: Any, b: Any) -> Any:
    if name == "differs":
        return a != b
    return (a + (2 * b if name in ("add", "add_double") else b)).astype(TYPES[name])


def on(device: spy.Device, array: Any) -> spy.Tensor:
    """The array in a Tensor of the same layout: of the memory that the view belongs to, however it is turned."""
    return spy.Tensor.from_numpy(device, array)


@sampled(24)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_transposed(device: spy.Device, module: spy.Module, name: str, size: tuple[int, int]) -> None:
    """One operand, the other, both, and the result are turned; the turned result is not written outside."""
    a, b = values(name, size, 1), values(name, size[::-1], 2)
    f = getattr(module, name)
    left, right = on(device, a), on(device, b)
    want = expected(name, a, b.T)
    np.testing.assert_array_equal(f(left, right.T).to_numpy(), want)
    np.testing.assert_array_equal(f(left.T, right).to_numpy(), expected(name, a.T, b))
    turned = on(device, np.zeros_like(b))
    f(left, right.T, _result=turned.T)
    np.testing.assert_array_equal(turned.to_numpy().T, want)
    f(left, left, _result=turned.T)
    np.testing.assert_array_equal(turned.to_numpy().T, expected(name, a, a))


@sampled(4)
@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)], ids=str)
def test_three_dimensions(device: spy.Device, module: spy.Module, order: tuple[int, int, int]) -> None:
    """Any order of three dimensions, beside an array of all of them and one of two."""
    b = values("add", (40, 36, 44), 2)
    want = np.transpose(b, order)
    a = values("add", want.shape, 1)
    turned = on(device, b).view(want.shape, tuple(s // b.itemsize for s in want.strides))
    np.testing.assert_array_equal(module.add(on(device, a), turned).to_numpy(), a + 2 * want)
    np.testing.assert_array_equal(module.add(on(device, a[0]), turned).to_numpy(), a[0] + 2 * want)


@sampled(6)
@pytest.mark.parametrize("row", [1, 2, 3, 5, 7, 33, 1023])
def test_rows_of_any_length(device: spy.Device, module: spy.Module, row: int) -> None:
    """A row, a column and a number for all rows; the last thread has fewer elements."""
    a, b, c = values("add", (9, row), 1), values("add", (row,), 2), values("add", (9, 1), 3)
    left = on(device, a)
    np.testing.assert_array_equal(module.add(left, on(device, b)).to_numpy(), a + 2 * b)
    np.testing.assert_array_equal(module.add(on(device, b), left).to_numpy(), b + 2 * a)
    np.testing.assert_array_equal(module.add(left, on(device, c)).to_numpy(), a + 2 * c)
    wide = values("add", (9, 2 * row + 1), 4)
    other = on(device, wide)
    np.testing.assert_array_equal(module.add(left, other[:, 1 : row + 1]).to_numpy(), a + 2 * wide[:, 1 : row + 1])
    np.testing.assert_array_equal(module.add(left, other[:, ::2][:, :row]).to_numpy(), a + 2 * wide[:, ::2][:, :row])
    # A part of a larger array is written; what is beside it stays.
    out = on(device, np.full_like(wide, 7))
    module.add(left, left, _result=out[:, 1 : row + 1])
    kept = np.full_like(wide, 7)
    kept[:, 1 : row + 1] = 3 * a
    np.testing.assert_array_equal(out.to_numpy(), kept)


def test_arguments_that_are_written(device: spy.Device, module: spy.Module) -> None:
    """Values go in and out at the same places, straight and turned."""
    for shape in ((48, 40), (41, 39)):
        a, b = values("add", shape, 1), values("add", shape[::-1], 2)
        left, right, total = on(device, a), on(device, b), on(device, np.zeros(shape, np.float32))
        module.swap(left, right.T, total)
        np.testing.assert_array_equal(total.to_numpy(), a + b.T)
        np.testing.assert_array_equal(left.to_numpy(), b.T)
        np.testing.assert_array_equal(right.to_numpy(), a.T)


def test_vectors_and_numbers_beside_columns(device: spy.Device, module: spy.Module) -> None:
    """A turned array of scalars among vectors, and among numbers."""
    a = values("add", (40, 36), 1)
    b = values("add", (36, 40, 3), 2)
    made = module.scale(on(device, a).T, on(device, b))
    np.testing.assert_array_equal(made.to_numpy(), a.T[..., None] * b)
    np.testing.assert_array_equal(module.add(on(device, a).T, 3.0).to_numpy(), a.T + 6)


def test_initial_values_of_statics(device: spy.Device) -> None:
    """Each element has its own static variables, however it lies."""
    module = device.load_module_from_source(
        "wide_statics", "static float n; float count(float a, float b) { n += 1; return a + b + n; }"
    )
    a = values("add", (40, 36), 1)
    np.testing.assert_array_equal(module.count(on(device, a).T, on(device, a.T.copy())).to_numpy(), 2 * a.T + 1)


def test_places_are_threads_of_one_element(device: spy.Device) -> None:
    """A call that asks for its own index gets it, whatever order threads run in."""
    module = device.load_module_from_source(
        "wide_places", "int place(int2 at, float a, float b) { return at.y * 1000 + at.x + int(a) - int(b); }"
    )
    a = values("add", (40, 36), 1)
    made = module.place(spy.call_id(), on(device, a).T, on(device, a.T.copy()))
    rows, columns = np.indices((36, 40))
    np.testing.assert_array_equal(made.to_numpy(), rows * 1000 + columns)


def test_vectors_in_columns(device: spy.Device, module: spy.Module) -> None:
    """Turned arrays of vectors, in columns of any length."""
    a, b = values("add", (35, 37), 1), values("add", (37, 35, 3), 2)
    turned = on(device, b).view((35, 37, 3), (3, 35 * 3, 1))
    np.testing.assert_array_equal(module.scale(on(device, a), turned).to_numpy(), a[..., None] * b.transpose(1, 0, 2))


@sampled(9)
@pytest.mark.parametrize(
    ("fields", "size", "pieces"),
    [
        ("float3 position; float3 velocity;", 24, True),
        ("float2x2 frame; float3 velocity; int id;", 32, True),
        ("int3 place; uint id; float4x4 frame; float3 velocity; float rest;", 96, True),
        ("float3 velocity;", 12, False),
        ("float3 velocity; half2 rest;", 16, False),
        ("float3 velocity; bool3 flags; uint8_t rest;", 16, False),
        ("double time; float3 velocity;", 24, False),
        ("float3 velocity; float rest[3];", 24, False),
    ],
)
def test_structs(device: spy.Device, fields: str, size: int, pieces: bool) -> None:
    """Structs of words are moved in pieces where addresses allow it; values stay, and so does what lies beside."""
    module = device.load_module_from_source(
        "wide_structs",
        f"struct Item {{ {fields} }}; void turn(inout Item item) {{ item.velocity = -item.velocity.zxy; }}",
    )
    items = spy.Tensor.zeros(device, 50, dtype=module.Item)
    empty = items.to_numpy()
    assert empty.itemsize == size
    # Numbers below 2 in every type of a field.
    host = np.zeros_like(empty)
    for name in host.dtype.names or ():
        host[name] = np.random.default_rng(4).integers(0, 2, host[name].shape)
    host["velocity"] = np.random.default_rng(5).random(host["velocity"].shape, np.float32)
    for part in (slice(None), slice(1, None), slice(2, 40, 3), slice(3, 4)):
        items.copy_from_numpy(host)
        module.turn(items[part])
        want = host.copy()
        want["velocity"][part] = -host["velocity"][part][:, [2, 0, 1]]
        np.testing.assert_array_equal(items.to_numpy(), want)
    wide = device.backend.target.entry != "range" and pieces
    assert ("_spy_loadWide" in module.turn.source(items)) == wide
    if size % 32:
        assert "_spy_loadWide" not in module.turn.source(items[1:])


@deep
def test_large_ones(device: spy.Device, module: spy.Module) -> None:
    """More groups than a small call has in each direction."""
    a, b = values("add", (1000, 2052), 1), values("add", (2052, 1000), 2)
    np.testing.assert_array_equal(module.add(on(device, a), on(device, b).T).to_numpy(), a + 2 * b.T)
    c = values("add", (1001, 2051), 3)
    np.testing.assert_array_equal(module.add(on(device, c), on(device, c[0])).to_numpy(), c + 2 * c[0])


def test_the_kernels_are_those(module: spy.Module, device: spy.Device) -> None:
    """GPUs get tiles of columns, and threads of several elements in odd rows; the CPU has neither."""
    straight, row = on(device, values("add", (64, 64), 1)), on(device, values("add", (7,), 1))
    texts = [module.add.source(straight, straight.T), module.add.source(on(device, values("add", (9, 7), 1)), row)]
    target = device.backend.target
    ours = target.groups and not target.lane_threads
    odd = on(device, values("add", (35, 33), 1))
    assert ("numthreads(32, 8, 1)" in module.add.source(odd, on(device, values("add", (33, 35), 1)).T)) == ours
    assert ["numthreads(32, 8, 1)" in text for text in texts] == [ours, False]
    assert ["_spy_advanceIndex" in text for text in texts] == [False, ours]

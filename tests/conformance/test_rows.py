"""Whole-array parameters that get more dimensions than they take: the call runs along those before."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

SLANG = """
import slangpy_rt;
float total(Tensor<float, 1> row, float factor)
{
    float sum = 0;
    for (int i = 0; i < row.shape[0]; ++i)
        sum += row[i];
    return sum * factor;
}
void count(RWTensor<float, 1> row, float from)
{
    for (int i = 0; i < row.shape[0]; ++i)
        row[i] = from + i;
}
struct Item { int number; float weight; };
float weigh(StructuredBuffer<Item> items)
{
    float sum = 0;
    for (int i = 0; i < int(items.getCount()); ++i)
        sum += items[i].number * items[i].weight;
    return sum;
}
float over(float x) { return -1; }
float over(Tensor<float, 1> row) { return row.shape[0]; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_rows", SLANG)


def test_every_row(device: spy.Device, module: spy.Module) -> None:
    values = np.random.default_rng(0).integers(0, 100, (3, 4, 5)).astype(np.float32)
    factor = np.array([1, 2, 3, 4], np.float32)
    expected = values.sum(-1) * factor
    np.testing.assert_array_equal(module.total(values, factor), expected)
    tensor = spy.Tensor.from_numpy(device, values)
    assert module.total(tensor, 1).shape == (3, 4)
    np.testing.assert_array_equal(module.total(tensor, factor).to_numpy(), expected)


def test_rows_of_views(device: spy.Device, module: spy.Module) -> None:
    values = np.random.default_rng(1).integers(0, 100, (6, 8)).astype(np.float32)
    tensor = spy.Tensor.from_numpy(device, values)
    for key in ((slice(None, None, -2), slice(1, 7, 3)), (slice(2, 3), slice(None))):
        expected = values[key].sum(-1)
        np.testing.assert_array_equal(module.total(tensor[key], 1).to_numpy(), expected)
        np.testing.assert_array_equal(module.total(values[key], 1), expected)
    # One row for several elements, and rows along another dimension than the last.
    np.testing.assert_array_equal(module.total(values[:1], np.arange(3)), values[0].sum() * np.arange(3))
    outer = module.total.map((1,), (0,))(tensor, np.arange(2, dtype=np.float32)).to_numpy()
    np.testing.assert_array_equal(outer, np.arange(2)[:, None] * values.sum(-1))


def test_rows_are_written(device: spy.Device, module: spy.Module) -> None:
    start = np.array([10, 20, 30], np.float32)
    expected = start[:, None] + np.arange(4)
    host, tensor = np.zeros((3, 4), np.float32), spy.Tensor.zeros(device, (3, 4))
    module.count(host, start)
    module.count(tensor, start)
    np.testing.assert_array_equal(host, expected)
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


def test_rows_of_structs(device: spy.Device, module: spy.Module) -> None:
    items = np.zeros((4, 3), [("number", "i4"), ("weight", "f4")])
    items["number"] = np.arange(12).reshape(4, 3)
    items["weight"] = 0.5
    tensor = spy.Tensor.from_numpy(device, items, module.Item)
    np.testing.assert_array_equal(module.weigh(tensor).to_numpy(), items["number"].sum(1) * 0.5)


def test_fewer_dimensions_left_over_fit_better(device: spy.Device, module: spy.Module) -> None:
    assert module.over(spy.Tensor.zeros(device, 7)).to_numpy() == 7
    np.testing.assert_array_equal(module.over(spy.Tensor.zeros(device, (2, 7))).to_numpy(), [7, 7])
    assert module.over(1.0) == -1


def test_an_access_outside_names_the_argument(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as device:
        text = "import slangpy_rt; float at(Tensor<float, 1> row, int i) { return row[i]; }"
        module = spy.Module.load_from_source(device, "rows_outside", text)
        with pytest.raises(spy.OutOfBoundsError) as error:
            module.at(spy.Tensor.zeros(device, (3, 5)), np.array([4, 5, 0]))
    assert str(error.value) == (
        "float at(Tensor<float, 1> row, int i): argument 'row' of shape (5,) was read at (5,), which is outside. "
        "Let the function compare its indices with the array's shape."
    )


def test_a_list_of_structs(module: spy.Module) -> None:
    text = "struct Pair { float x; int2 y; }; float sum(Pair p) { return p.x + p.y.x * 10 + p.y.y * 100; }"
    pairs = spy.Module.load_from_source(module.device, "test_pairs", text)
    values = [{"x": 0.5, "y": [1, 2]}, {"x": 1.5, "y": (3, 4)}]
    np.testing.assert_array_equal(pairs.sum(values), [210.5, 431.5])
    with pytest.raises(spy.BindError, match=r"argument 'p'\[1\] lacks y"):
        pairs.sum([values[0], {"x": 1}])


def test_a_list_of_structs_is_not_written(module: spy.Module) -> None:
    text = "struct Cell { float x; }; void grow(inout Cell c) { c.x += 1; }"
    cells = spy.Module.load_from_source(module.device, "test_cells", text)
    with pytest.raises(spy.BindError) as error:
        cells.grow([{"x": 1}, {"x": 2}])
    assert str(error.value) == (
        "void grow(inout Cell c): argument 'c' is [{'x': 1}, {'x': 2}] and would be written to; pass a structured "
        "array, a Tensor or a dict of arrays."
    )


def test_strict_broadcasting_sees_rows(device: spy.Device) -> None:
    text = "import slangpy_rt; float f(Tensor<float, 1> row, float x) { return row[0] * x; }"
    strict = spy.Module.load_from_source(device, "test_strict_rows", text, strict_broadcasting=True)
    rows = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(strict.f(rows, np.arange(3)), np.arange(3))
    with pytest.raises(spy.ShapeError, match=r"'row' of shape \(3,\) would be broadcast to \(4, 3\)"):
        strict.f(rows, np.ones((4, 3)))

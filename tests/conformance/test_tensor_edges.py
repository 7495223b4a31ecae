"""Operators of Tensors against NumPy: signed zeros, infinities, large quotients, writes to broadcast views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import every_device, needs

INF, NAN = np.inf, np.nan
POWERS = [
    (-0.0, 3), (-0.0, 2), (-0.0, -3), (-0.0, -2), (-0.0, 0.5), (-0.0, -0.5), (0.0, 3), (0.0, -3), (-0.0, 0),
    (-0.0, 1),
    (-0.0, INF), (-0.0, -INF), (0.0, -INF), (-8, 3), (-8, -3), (-8, 2), (-8, 0.5), (-1, INF), (-1, -INF), (-2, INF),
    (-0.5, INF), (INF, 0), (INF, -1), (-INF, 3), (-INF, 2), (-INF, -3), (-INF, -2), (-INF, 0.5), (-INF, -0.5),
    (1, NAN),
    (NAN, 0), (NAN, 2), (2, NAN), (2, INF), (0.5, -INF), (2, 0.5), (3, -2),
]  # fmt: skip
REMAINDERS = [
    (60000, 0.1), (60000, 0.25), (-60000, 0.1), (60000, -0.1), (65504, 6e-5), (65504, 0.001), (5, 0.002),
    (-5, 0.002),
    (1, 0.1), (1, -0.1), (7.5, 2), (-7.5, 2), (7.5, -2), (3, INF), (3, -INF), (-3, INF), (INF, 2),
    (-0.0, 3), (0.0, -3),
    (4, 2), (4, -2), (-4, 2), (2, NAN), (NAN, 2), (1, 3), (-1, 3),
]  # fmt: skip
LARGE = [(3e8, 0.1), (-3e30, 0.7), (1e38, 1e-30), (1.5, 1e-20), (2.0**100, 3)]


def agrees(found: npt.NDArray[Any], wanted: npt.NDArray[Any], rtol: float) -> None:
    """Compare numbers, and the signs of zeros and infinities."""
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=0)
    same = (np.signbit(found) == np.signbit(wanted)) | np.isnan(wanted)
    assert same.all(), list(zip(found[~same], wanted[~same], strict=True))


def pairs(device: spy.Device, cases: list[Any], dtype: Any) -> tuple[Any, Any, Any, Any]:
    a, b = (np.array(values, dtype) for values in zip(*cases, strict=True))
    return a, b, spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b)


@needs("{scalar}", lambda case: ["functions of doubles"] if case["scalar"] == "double" else [])
@every_device
@pytest.mark.parametrize("scalar", ["float", "half", "double"])
def test_powers(device: spy.Device, scalar: str) -> None:
    a, b, x, y = pairs(device, POWERS, {"float": np.float32, "half": np.float16, "double": np.float64}[scalar])
    with np.errstate(all="ignore"):
        agrees((x**y).to_numpy(), a**b, 2e-3 if scalar == "half" else 1e-5)
    zeros = np.array([-0.0, 0.0], a.dtype)
    for power in (1, 3, -1, -3):
        with np.errstate(divide="ignore"):
            agrees((spy.Tensor.from_numpy(device, zeros) ** power).to_numpy(), zeros ** a.dtype.type(power), 0)


@needs("{scalar}")
@every_device
@pytest.mark.parametrize("scalar", ["float", "half", "double"])
def test_remainders(device: spy.Device, scalar: str) -> None:
    """Quotients over 65504 in half, and those of more bits than a number has."""
    dtype = {"float": np.float32, "half": np.float16, "double": np.float64}[scalar]
    a, b, x, y = pairs(device, REMAINDERS + (LARGE if scalar != "half" else []), dtype)
    with np.errstate(all="ignore"):
        agrees((x % y).to_numpy(), np.mod(a, b), 1e-3 if scalar == "half" else 0)
    finite = np.isfinite(a) & np.isfinite(b)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose((x // y).to_numpy()[finite], np.floor_divide(a, b)[finite], rtol=1e-3)


WRITES: dict[str, Callable[[Any], Any]] = {
    "element": lambda v: v.__setitem__((1, 1), 8),
    "row": lambda v: v.__setitem__(0, 1),
    "array": lambda v: v.__setitem__(0, np.ones(3, np.float32)),
    "all": lambda v: v.__setitem__(..., 1),
    "mask": lambda v: v.__setitem__(v < 1, 1),
    "+=": lambda v: v.__iadd__(1),
    "*=": lambda v: v.__imul__(v),
}


@every_device
@pytest.mark.parametrize("way", WRITES)
def test_broadcast_views_are_not_written(device: spy.Device, way: str) -> None:
    x = spy.Tensor.from_numpy(device, np.arange(3, dtype=np.float32))
    with pytest.raises(spy.ShapeError, match="is a broadcast view and would be written to; copy it first"):
        WRITES[way](x.broadcast_to((2, 3)))
    assert x.to_numpy().tolist() == [0, 1, 2]


def test_broadcast_views_are_not_taken_to_be_written(device: spy.Device) -> None:
    text = """import slangpy_rt;
    void put(RWTensor<float, 2> t, int k) { t[1, k] = 8; }
    float get(Tensor<float, 2> t, int k) { return t[1, k]; }"""
    module: Any = spy.Module.load_from_source(device, "test_tensor_edges", text)
    x = spy.Tensor.from_numpy(device, np.arange(3, dtype=np.float32))
    view, k = x.broadcast_to((2, 3)), np.arange(3, dtype=np.int32)
    with pytest.raises(spy.ShapeError) as caught:
        module.put(view, k)
    assert str(caught.value) == (
        "void put(RWTensor<float, 2> t, int k): argument 't' is a broadcast view and would be written to; "
        "copy it first."
    )
    assert module.get(view, k).tolist() == [0, 1, 2]
    one = x.reshape(1, 3)
    module.put(spy.Tensor.zeros(device, (2, 3)), k)
    one[0, 1] = 5
    assert x.to_numpy().tolist() == [0, 5, 2]


def test_memory_that_must_not_be_changed(device: spy.Device) -> None:
    """``from_dlpack`` makes Tensors, which may be written: read-only memory is refused, and calls read it."""
    still = np.arange(4, dtype=np.float32)
    still.flags.writeable = False
    given = [
        still, np.frombuffer(np.ones(4, np.float32).tobytes(), np.float32), np.broadcast_to(np.float32(1), 4),
        still[::2], still.reshape(2, 2).T,
    ]  # fmt: skip
    copy = spy.Module.load_from_source(device, "read_only", "float copy(float x) { return x; }").copy
    for array in given:
        with pytest.raises(spy.BindError, match=r"^Tensor\.from_dlpack: an? .*that must not be changed"):
            spy.Tensor.from_dlpack(device, array)
        with pytest.raises(spy.BindError, match=r"^NDBuffer\.from_dlpack: an? .*that must not be changed"):
            spy.NDBuffer.from_dlpack(device, array)
        np.testing.assert_array_equal(copy(array), array)
    if "zero_copy" in device.caps.features:
        made = spy.Tensor.from_dlpack(device, own := np.zeros(4, np.float32))
        made += 1
        assert own.tolist() == [1, 1, 1, 1]


def test_strides_and_offsets_of_views(device: spy.Device) -> None:
    """``view`` counts in elements, of whatever size, beside NumPy's view of the same memory."""
    text = "struct Item { float3 place; int number; };"
    item = spy.Module.load_from_source(device, "view_items", text).Item
    rng = np.random.default_rng(4)
    for dtype in ("float", "float3", "float2x3", "int8_t", "half", "half3", "double", "uint64_t", item):
        if isinstance(dtype, str) and element_scalar(dtype) not in device.caps.scalars:
            continue
        array = spy.Tensor.empty(device, 24, dtype)
        host = array.to_numpy()
        if host.dtype.names is None:
            host = rng.integers(0, 100, host.shape).astype(host.dtype)
        else:
            host["number"], host["place"] = np.arange(24), rng.random((24, 3))
        array.copy_from(host)
        for shape, strides, offset in (
            ((4,), (2,), 1), ((3, 4), (4, 1), 5), ((4, 3), (1, 4), 2), ((2, 2), (-1, -3), 20), ((5,), (0,), 7),
            ((2, 3, 2), (12, 4, 1), 0), ((0, 3), (1, 1), 24), ((1,), (99,), 23), ((24,), None, 0), ((2, 5), None, 3),
        ):  # fmt: skip
            steps = strides or tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
            index = np.full(shape, offset, int)
            for axis, step in enumerate(steps):
                index += step * np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
            found = array.view(shape, strides, offset)
            np.testing.assert_array_equal(
                found.to_numpy(), host[index], err_msg=f"{dtype} {shape} {strides} {offset}"
            )
            if found.is_contiguous and found.shape[0] > 1:
                np.testing.assert_array_equal(
                    found[1:].view((1, found[1:].size)).to_numpy()[0], flat(host[index[1:]], index)
                )


def flat(array: Any, index: Any) -> Any:
    """An array of elements as one row of them."""
    return array.reshape(-1, *array.shape[index.ndim :])


def element_scalar(name: str) -> str:
    return name.rstrip("0123456789x") if name.startswith(("float", "half")) else name

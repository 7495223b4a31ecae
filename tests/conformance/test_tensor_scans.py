"""``cumsum``, ``nonzero``, ``argsort``, ``sort`` and selections by masks beside NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.arithmetic import group_scans
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import every_device, one_device, sampled

# What these test depends little on the device.
pytestmark = one_device

SHAPES = [(1,), (63,), (64,), (1000,), (3, 700), (700, 3), (4, 50, 6)]
Array = npt.NDArray[Any]


def data(name: str, shape: tuple[int, ...], seed: int = 0) -> Array:
    """Numbers of a type, of which some are equal and some are zero."""
    rng = np.random.default_rng(seed)
    low, high = (0, 2) if name == "bool" else (0 if name.startswith("u") else -6, 60)
    fraction = 0.25 if name in ("half", "float", "double") else 0
    return (rng.integers(low, high, shape) * (fraction or 1)).astype(NUMPY_OF[name])


@pytest.fixture
def tensor(device: spy.Device) -> Callable[[Array], spy.Tensor]:
    """Make a Tensor of an array."""
    return lambda array: spy.Tensor.from_numpy(device, array)


@sampled(12)
@pytest.mark.parametrize("shape", SHAPES)
def test_cumsum(tensor: Any, shape: tuple[int, ...]) -> None:
    array = data("int", shape).astype(np.float32)
    for axis in (None, *range(-len(shape), len(shape))):
        found = spy.cumsum(tensor(array), axis)
        assert found.dtype.name == "float"
        np.testing.assert_array_equal(found.to_numpy(), np.cumsum(array, axis))
    # A view of it, and one in which elements lie in one place.
    turned = tensor(array).T[::-1]
    np.testing.assert_array_equal(spy.cumsum(turned, 0).to_numpy(), np.cumsum(array.T[::-1], 0))
    wide = tensor(array[:1]).broadcast_to((5, *shape[1:]))
    np.testing.assert_array_equal(
        spy.cumsum(wide, 0).to_numpy(), np.cumsum(np.broadcast_to(array[:1], wide.shape), 0)
    )


@sampled(12)
@pytest.mark.parametrize("name", NUMPY_OF)
def test_cumsum_of_types(tensor: Any, device: spy.Device, name: str) -> None:
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    array = data(name, (3, 200))
    found = spy.cumsum(tensor(array), 1)
    kind = np.dtype(name) if name in ("float", "double") else array.dtype
    assert found.dtype.name == (name if kind.kind == "f" else "uint64_t" if kind.kind == "u" else "int64_t")
    wide = np.float64 if kind.kind == "f" else found.to_numpy().dtype
    np.testing.assert_allclose(found.to_numpy().astype(wide), np.cumsum(array, 1, dtype=wide), 1e-3)


def test_cumsum_of_large_rows(tensor: Any) -> None:
    array = np.random.default_rng(0).random(400_000).astype(np.float32)
    np.testing.assert_allclose(spy.cumsum(tensor(array)).to_numpy(), np.cumsum(array, dtype=np.float64), 1e-5)
    ones = np.full(300_001, 2**31 - 1, np.int32)
    assert spy.cumsum(tensor(ones))[-1].item() == 300_001 * (2**31 - 1)


@every_device
def test_cumsum_of_many_terms(tensor: Any) -> None:
    """One float that takes each term in turn is 1e-2 off after 2^20 times 0.1, and stays at 2^24 ones."""
    large = np.concatenate([np.full(1, 1 << 24, np.float32), np.ones(1 << 18, np.float32)])
    for array in (np.full(1 << 20, 0.1, np.float32), np.full((3, 1 << 18), 0.7, np.float32), large):
        found = spy.cumsum(tensor(array), -1).to_numpy()
        np.testing.assert_allclose(found, np.cumsum(array, -1, dtype=np.float64), 1e-5)


def test_cumsum_of_what_is_not_finite(tensor: Any) -> None:
    array = np.ones(20_000, np.float32)
    array[[100, 9000]] = np.inf
    np.testing.assert_array_equal(spy.cumsum(tensor(array)).to_numpy(), np.cumsum(array))
    array[12_000] = -np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(spy.cumsum(tensor(array)).to_numpy(), np.cumsum(array))


def test_cumsum_of_vectors(device: spy.Device, tensor: Any) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    found = spy.cumsum(spy.Tensor.from_numpy(device, array, "float3"), 0)
    assert found.dtype.name == "float3"
    np.testing.assert_array_equal(found.to_numpy(), np.cumsum(array, 0))
    half = spy.Tensor.full(device, 300, 1.5, "bfloat16")
    assert spy.cumsum(half)[:4].tolist() == [1.5, 3, 4.5, 6]
    buffer = spy.NDBuffer(device, "int", 3)
    buffer.copy_from(np.array([1, 2, 3], np.int32))
    assert spy.cumsum(buffer).tolist() == [1, 3, 6]
    assert spy.cumsum(tensor(array[:0]), 0).shape == (0, 2, 3)
    assert spy.cumsum(spy.Tensor.full(device, (), 3)).tolist() == [3]


@sampled(36)
@pytest.mark.parametrize("shape", [*SHAPES, (0,), (3, 0), (200_000,)])
def test_nonzero(tensor: Any, shape: tuple[int, ...]) -> None:
    array = data("int", shape) % 3
    for values in (array, array > 0, array.astype(np.float32) / 2, array * 0, array * 0 + 1):
        for found, wanted in zip(spy.nonzero(tensor(values)), np.nonzero(values), strict=True):
            assert found.dtype.name == "int"
            np.testing.assert_array_equal(found.to_numpy(), wanted)
    mask = array > 1
    np.testing.assert_array_equal(spy.nonzero(tensor(mask).T)[0].to_numpy(), np.nonzero(mask.T)[0])


def test_nonzero_of_odd_floats(tensor: Any, device: spy.Device) -> None:
    array = np.array([0, -0.0, np.nan, np.inf, 1], np.float32)
    assert spy.nonzero(tensor(array))[0].tolist() == [2, 3, 4]
    assert spy.nonzero(tensor(array).astype("bfloat16"))[0].tolist() == [2, 3, 4]


@sampled(12)
@pytest.mark.parametrize("dtype", ["float", "int", "float3", "float2x2", "bfloat16"])
def test_masks(device: spy.Device, dtype: str) -> None:
    plain = "float" if dtype == "bfloat16" else dtype
    inner = spy.Tensor.zeros(device, (), plain).to_numpy().shape
    array = np.arange(40 * 6 * max(1, int(np.prod(inner)))).reshape(40, 6, *inner)
    array = (array % 200).astype(np.int32 if dtype == "int" else np.float32)
    t = spy.Tensor.from_numpy(device, array, plain).astype(dtype) if dtype == "bfloat16" else None
    t = spy.Tensor.from_numpy(device, array, dtype) if t is None else t
    mask = np.random.default_rng(0).random((40, 6)) < 0.3
    rows = mask[:, 0]
    on = spy.Tensor.from_numpy(device, mask)
    for found, wanted in (
        (t[on], array[mask]),
        (t[mask], array[mask]),
        (t[rows], array[rows]),
        (t[::-1][on], array[::-1][mask]),
        (t.T[on.T], np.swapaxes(array, 0, 1)[mask.T]),
        (t[:, 1:3][on[:, 1:3]], array[:, 1:3][mask[:, 1:3]]),
        (t[mask & False], array[mask & False]),
        (t[mask | True], array[mask | True]),
    ):
        assert found.dtype.name == dtype
        assert found.shape == wanted.shape[: wanted.ndim - len(inner)]
        np.testing.assert_array_equal(np.array(found.tolist()).reshape(wanted.shape), wanted)
    if dtype in ("float", "int"):
        t[mask] = 7
        array[mask] = 7
        np.testing.assert_array_equal(t.to_numpy(), array)


def test_masks_of_structs(device: spy.Device) -> None:
    text = "struct Dot { float2 at; int id; };\nstruct Odd { bool x; bool y; bool z; };"
    module = spy.Module.load_from_source(device, "masked_structs", text)
    mask = np.arange(50) % 3 == 0
    dots = spy.Tensor.zeros(device, 50, module.Dot)
    values = dots.to_numpy()
    values["id"], values["at"] = np.arange(50), np.arange(100).reshape(50, 2)
    dots.copy_from(values)
    found = dots[mask]
    assert found.dtype == module.Dot.slang_type
    np.testing.assert_array_equal(found.to_numpy(), values[mask])
    np.testing.assert_array_equal(dots[::2][mask[::2]].to_numpy(), values[::2][mask[::2]])
    # A field is a view, whose distances are those of the structs.
    np.testing.assert_array_equal(dots["at"][mask].to_numpy(), values["at"][mask])
    # Three bytes, of which words hold no whole number.
    odd = spy.Tensor.zeros(device, 50, module.Odd)
    bools = odd.to_numpy()
    bools["y"] = np.arange(50) % 2 == 0
    odd.copy_from(bools)
    if "uint8_t" in device.caps.scalars:
        np.testing.assert_array_equal(odd[mask].to_numpy(), bools[mask])
    carried = spy.Tensor.ones(device, 50).with_grads()
    assert carried[mask].grad_out is None


@sampled(12)
@pytest.mark.parametrize("shape", SHAPES)
def test_sort(tensor: Any, shape: tuple[int, ...]) -> None:
    array = data("float", shape)
    for axis in range(-len(shape), len(shape)):
        order = spy.argsort(tensor(array), axis)
        assert order.dtype.name == "int"
        np.testing.assert_array_equal(order.to_numpy(), np.argsort(array, axis, kind="stable"))
        np.testing.assert_array_equal(spy.sort(tensor(array), axis).to_numpy(), np.sort(array, axis))
    turned = tensor(array).T[::-1]
    np.testing.assert_array_equal(spy.sort(turned).to_numpy(), np.sort(array.T[::-1]))
    np.testing.assert_array_equal(tensor(array).to_numpy(), array)


@sampled(12)
@pytest.mark.parametrize("name", NUMPY_OF)
def test_sort_of_types(tensor: Any, device: spy.Device, name: str) -> None:
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    array = data(name, (500,))
    kind = array.dtype
    if kind.kind in "iu":
        array[:4] = [np.iinfo(kind).max, np.iinfo(kind).min, 0, np.iinfo(kind).max - 1]
    if kind.kind == "f":
        array[:9] = [np.nan, -np.inf, np.inf, -0.0, 0.0, -np.nan, np.finfo(kind).max, np.finfo(kind).min, -0.0]
    np.testing.assert_array_equal(spy.argsort(tensor(array)).to_numpy(), np.argsort(array, kind="stable"))
    np.testing.assert_array_equal(spy.sort(tensor(array)).to_numpy(), np.sort(array))


def test_sort_of_many(tensor: Any, device: spy.Device) -> None:
    array = np.random.default_rng(0).normal(size=150_000).astype(np.float32)
    np.testing.assert_array_equal(spy.argsort(tensor(array)).to_numpy(), np.argsort(array, kind="stable"))
    brief = spy.Tensor.from_numpy(device, array[:300]).astype("bfloat16")
    assert spy.sort(brief).tolist() == sorted(brief.tolist())
    assert spy.sort(tensor(array[:0])).shape == (0,)
    assert spy.argsort(spy.Tensor.zeros(device, (0, 4)), 0).shape == (0, 4)


def test_refusals(device: spy.Device, tensor: Any) -> None:
    t = tensor(np.ones((2, 3), np.float32))
    structs = spy.Tensor.zeros(
        device, 3, spy.Module.load_from_source(device, "scanned", "struct S { float x; int y; }").S
    )
    vectors = spy.Tensor.zeros(device, 3, "float3")
    told: dict[str, Callable[[], Any]] = {
        "cumsum: array is 3; a Tensor was expected, as Tensor.from_numpy(device, array) is.": (
            lambda: spy.cumsum(3)  # type: ignore[arg-type]
        ),
        "nonzero: Tensor<float> of shape () has no dimension to count in; reshape(-1) gives it one.": (
            lambda: spy.nonzero(spy.Tensor.zeros(device, ()))
        ),
        "cumsum: axis is 0.5; a whole number or None was expected.": lambda: spy.cumsum(t, 0.5),  # type: ignore[arg-type]
        "cumsum: axis 2 is no dimension of Tensor<float> of shape (2, 3).": lambda: spy.cumsum(t, 2),
        "cumsum: elements of type 'S' have no arithmetic; write a Slang function, or see the array as scalars with "
        "flatten_dtype().": lambda: spy.cumsum(structs),
        "nonzero: Tensor<float3> of shape (3,) holds no single numbers; see it as them with flatten_dtype().": (
            lambda: spy.nonzero(vectors)
        ),
        "argsort: Tensor<float3> of shape (3,) holds no single numbers, and has no order.": lambda: spy.argsort(
            vectors
        ),
        "sort: axis is None; a whole number was expected.": lambda: spy.sort(t, None),  # type: ignore[arg-type]
        "sort: axis 0 is no dimension of Tensor<float> of shape ().": lambda: spy.sort(
            spy.Tensor.zeros(device, ()), 0
        ),
    }
    for message, call in told.items():
        with pytest.raises(spy.SlangPyRtError) as caught:
            call()
        assert str(caught.value) == message
    for index in (t[:, :2] > 0, spy.Tensor.zeros(device, (2, 3), "int"), np.ones(3, bool), np.array(True)):
        with pytest.raises(IndexError, match="is no index of Tensor<float> of shape"):
            t[index]
    with spy.Device("null") as null, pytest.raises(IndexError, match="lies on"):
        t[spy.Tensor.zeros(null, (2, 3), "bool")]


@sampled(9)
@pytest.mark.parametrize("name", ["uint", "float", "uint64_t"])
def test_rows_of_several_tiles(device: spy.Device, tensor: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Keys that are the largest there are, in rows that end within a tile, with more tiles than groups."""
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    monkeypatch.setattr(group_scans, "_MOST", 5)
    array = np.random.default_rng(1).integers(0, 2**32, (3, 9001)).astype(NUMPY_OF[name])
    array[:, ::7] = np.nan if name == "float" else np.iinfo(array.dtype).max
    array[:, ::5] = array[0, 1]
    for size in (2048, 2049, 4096, 4097, 9001):
        held = array[:, :size]
        np.testing.assert_array_equal(spy.argsort(tensor(held), 1).to_numpy(), np.argsort(held, 1, kind="stable"))
        small = (held != array[0, 1]).astype(np.int32)
        np.testing.assert_array_equal(spy.cumsum(tensor(small), 1).to_numpy(), np.cumsum(small, 1))
        for found, wanted in zip(spy.nonzero(tensor(small)), np.nonzero(small), strict=True):
            np.testing.assert_array_equal(found.to_numpy(), wanted)

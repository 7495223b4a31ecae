"""Broadcasting and memory layouts: whatever NumPy computes for a pair of arrays, a call computes too."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import narrowest
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import explore, needs, random_cases, sampled

SLANG = """
float sub(float a, float b) { return a - b; }
int sub_int(int a, int b) { return a - b; }
uint8_t sub_uint8_t(uint8_t a, uint8_t b) { return uint8_t(a - b); }
uint16_t sub_uint16_t(uint16_t a, uint16_t b) { return uint16_t(a - b); }
int64_t signed_(bool plus, inout bool odd, int64_t x) { odd = odd != (x % 2 != 0); return plus ? x : -x; }
float3 shade(float3 colour, float gain) { return colour * gain; }
float3 mix3(float3 a, float3 b) { return a - b; }
float three(float a, float b, float c) { return a * 100 + b * 10 + c; }
"""
PAIRS = [
    ((), (3,)),
    ((3,), ()),
    ((1,), (5,)),
    ((5,), (1,)),
    ((1,), (1,)),
    ((4, 3), (3,)),
    ((3,), (4, 3)),
    ((4, 3), (4, 1)),
    ((4, 1), (1, 3)),
    ((4, 1), (3,)),
    ((1, 1, 1), (2,)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (3, 1)),
    ((2, 3, 4), (2, 1, 1)),
    ((2, 1, 4), (3, 1)),
    ((2, 1, 4), (1, 3, 1)),
    ((5, 1, 3, 1), (4, 1, 2)),
    ((2, 1, 2, 1, 2), (3, 1, 3, 1)),
    ((4, 8), (8,)),
    ((4, 8), (4, 1)),
    ((4, 1), (1, 8)),
    ((3, 1, 12), (5, 12)),
    ((3, 5, 1), (5, 16)),
    ((300, 1), (1, 300)),
    ((0,), (1,)),
    ((0,), ()),
    ((3, 0), (1,)),
    ((0, 3), (3,)),
    ((1, 0), (4, 1)),
]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_broadcast", SLANG)


def numbers(*shape: int) -> npt.NDArray[Any]:
    """Small whole numbers as floats: differences are exact."""
    return np.random.default_rng(sum(shape) + len(shape)).integers(-99, 99, shape).astype(np.float32)


@sampled(4)
@pytest.mark.parametrize(("left", "right"), PAIRS, ids=str)
def test_pairs_of_shapes(
    device: spy.Device, module: spy.Module, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = numbers(*left), numbers(*right) + 1000
    expected = a - b
    result = module.sub(a, b)
    assert np.shape(result) == expected.shape
    np.testing.assert_array_equal(result, expected)
    tensor = module.sub(spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b))
    assert tensor.shape == expected.shape
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


def test_three_arrays_each_broadcast_along_another_dimension(module: spy.Module) -> None:
    a, b, c = numbers(4, 1, 1), numbers(3, 1), numbers(5)
    np.testing.assert_array_equal(module.three(a, b, c), a * 100 + b * 10 + c)


def test_vectors_broadcast_over_images(device: spy.Device, module: spy.Module) -> None:
    image, colour, gain = numbers(5, 4, 3), numbers(3), numbers(5, 4)
    np.testing.assert_array_equal(module.mix3(image, colour), image - colour)
    np.testing.assert_array_equal(module.shade(image, gain), image * gain[..., None])
    np.testing.assert_array_equal(module.shade(image, gain[:, :1]), image * gain[:, :1, None])
    np.testing.assert_array_equal(module.shade(colour, gain), colour * gain[..., None])
    tensor = spy.Tensor.from_numpy(device, image, "float3")
    np.testing.assert_array_equal(module.mix3(tensor, colour).to_numpy(), image - colour)
    one = spy.Tensor.from_numpy(device, colour, "float3")
    np.testing.assert_array_equal(module.mix3(one, tensor).to_numpy(), colour - image)
    # A tensor of scalars whose last dimension is the vector's.
    flat = spy.Tensor.from_numpy(device, image)
    np.testing.assert_array_equal(module.mix3(flat, tensor).to_numpy(), np.zeros_like(image))


@pytest.mark.parametrize("view", range(9))
def test_views_of_host_arrays(module: spy.Module, view: int) -> None:
    base, other = numbers(6, 8), numbers(6, 8)
    frozen = numbers(6, 8)
    frozen.setflags(write=False)
    wide = numbers(12, 16)
    a, b = [
        (base[::-1], other),
        (base[:, ::-1], other[::-1, ::-1]),
        (base[::2, 1::3], other[1::2, ::-3][:, :3]),
        (base.T, other.T),
        (np.asfortranarray(base), other),
        (frozen, other),
        (np.broadcast_to(base[0], (6, 8)), other),
        (wide[::2, ::2], other),
        (base[2], other.T[:, 3][:, None]),
    ][view]
    expected = a - b
    np.testing.assert_array_equal(module.sub(a, b), expected)
    np.testing.assert_array_equal(module.sub(b, a), -expected)


def test_host_arrays_at_odd_addresses(module: spy.Module) -> None:
    raw = np.zeros(4 * 9 + 1, np.uint8)
    a = raw[1:].view(np.float32)
    a[...] = numbers(9)
    np.testing.assert_array_equal(module.sub(a, 1), numbers(9) - 1)
    whole = np.zeros(9, [("pad", np.uint8), ("x", np.float32)])
    whole["x"] = numbers(9)
    np.testing.assert_array_equal(module.sub(whole["x"], 1), numbers(9) - 1)


def test_host_vectors_with_gaps(module: spy.Module) -> None:
    gain, wide, planes = numbers(5, 4), numbers(5, 4, 6), numbers(3, 5, 4)
    for vectors in (wide[..., ::2], wide[..., 2::-1], planes.transpose(1, 2, 0)):
        np.testing.assert_array_equal(module.shade(vectors, gain), vectors * gain[..., None])


@needs("wide threads")
def test_several_elements_a_thread_need_aligned_rows(device: spy.Device, module: spy.Module) -> None:
    # No software device minds a wide load at the wrong address, so the text is looked at.
    tensor = spy.Tensor.zeros(device, (8, 16))
    row = tensor[0]
    for args in ((tensor, tensor), (row[8:], 1), (tensor[:, :8], row[:8]), (tensor[::2], row)):
        assert "_spy_loadWide" in module.sub.source(*args)
    for args in (
        (row[1:], 1),
        (row[1:9], row[:8]),
        (tensor[:, 1:9], row[:8]),
        (tensor[:, :7], 1),
        (tensor.view(128)[4:], 1),
        (spy.Tensor.zeros(device, (8, 10))[:, :8], 1),
    ):
        assert "_spy_loadWide" not in module.sub.source(*args)


@sampled(4)
@pytest.mark.parametrize("view", range(10))
def test_views_of_tensors(device: spy.Device, module: spy.Module, view: int) -> None:
    host = numbers(6, 8)
    whole = spy.Tensor.from_numpy(device, host)
    key: Any = [
        np.s_[2],
        np.s_[:, 3],
        np.s_[1:],
        np.s_[::2, ::3],
        np.s_[::-1],
        np.s_[:, ::-1],
        np.s_[None, 1:3, ..., None],
        np.s_[-1, -3:],
        np.s_[3:3],
        np.s_[4, np.int64(5)],
    ][view]
    tensor, expected = whole[key], host[key]
    np.testing.assert_array_equal(tensor.to_numpy(), expected)
    result = module.sub(tensor, 1)
    assert result.shape == expected.shape
    np.testing.assert_array_equal(result.to_numpy(), expected - 1)
    np.testing.assert_array_equal(module.sub(tensor[None], whole[0, 0]).to_numpy(), expected[None] - host[0, 0])


def test_views_of_views(device: spy.Device, module: spy.Module) -> None:
    host = numbers(6, 8, 4)
    tensor = spy.Tensor.from_numpy(device, host)[1:, ::-2][..., 2][::2]
    expected = host[1:, ::-2][..., 2][::2]
    np.testing.assert_array_equal(tensor.to_numpy(), expected)
    np.testing.assert_array_equal(module.sub(tensor, expected).to_numpy(), np.zeros_like(expected))


def test_views_of_vector_tensors(device: spy.Device, module: spy.Module) -> None:
    host = numbers(6, 5, 3)
    tensor = spy.Tensor.from_numpy(device, host, "float3")
    gain = numbers(3, 5)
    np.testing.assert_array_equal(module.shade(tensor[::2, ::-1], gain).to_numpy(), host[::2, ::-1] * gain[..., None])
    np.testing.assert_array_equal(tensor.flatten_dtype()[..., 1].to_numpy(), host[..., 1])
    np.testing.assert_array_equal(module.sub(tensor.flatten_dtype()[..., 1], 1).to_numpy(), host[..., 1] - 1)


def test_reshaped_and_stretched_tensors(device: spy.Device, module: spy.Module) -> None:
    host, row = numbers(4, 6), numbers(6)
    tensor, thin = spy.Tensor.from_numpy(device, host), spy.Tensor.from_numpy(device, row)
    np.testing.assert_array_equal(module.sub(tensor.view((2, 12)), 1).to_numpy(), host.reshape(2, 12) - 1)
    column = tensor[:, 2:3].broadcast_to((2, 4, 5))
    np.testing.assert_array_equal(column.to_numpy(), np.broadcast_to(host[:, 2:3], (2, 4, 5)))
    np.testing.assert_array_equal(module.sub(column, 1).to_numpy(), np.broadcast_to(host[:, 2:3], (2, 4, 5)) - 1)
    stretched = thin.broadcast_to((4, 6))
    np.testing.assert_array_equal(stretched.to_numpy(), np.broadcast_to(row, (4, 6)))
    np.testing.assert_array_equal(module.sub(stretched, tensor).to_numpy(), row - host)
    np.testing.assert_array_equal(module.sub(thin[0].broadcast_to((2, 3)), 1).to_numpy(), np.full((2, 3), row[0] - 1))


@pytest.mark.parametrize(
    "key", [np.s_[:, :8], np.s_[:, 8:], np.s_[:, 1:9], np.s_[::-1, :8], np.s_[::3, 4:], np.s_[:, 2:]]
)
def test_rows_of_tensors(device: spy.Device, module: spy.Module, key: Any) -> None:
    # Rows that several elements of a thread may share, and rows that they must not.
    host, colours = numbers(7, 16), numbers(7, 16, 3)
    tensor, colour = spy.Tensor.from_numpy(device, host), spy.Tensor.from_numpy(device, colours, "float3")
    view, expected = tensor[key], host[key]
    row, column = expected[0].copy(), expected[:, :1].copy()
    near, side = spy.Tensor.from_numpy(device, row), spy.Tensor.from_numpy(device, column)
    np.testing.assert_array_equal(module.sub(view, near).to_numpy(), expected - row)
    np.testing.assert_array_equal(module.sub(side, view).to_numpy(), column - expected)
    np.testing.assert_array_equal(module.sub(side, near).to_numpy(), column - row)
    np.testing.assert_array_equal(module.shade(colour[key], view).to_numpy(), colours[key] * expected[..., None])
    np.testing.assert_array_equal(module.shade(colour[key], near).to_numpy(), colours[key] * row[:, None])
    target = spy.Tensor.full(device, (7, 16), -7)
    module.sub(view, 1, _result=target[key])
    left = np.full((7, 16), -7, np.float32)
    left[key] = expected - 1
    np.testing.assert_array_equal(target.to_numpy(), left)


def test_results_in_other_orders(device: spy.Device, module: spy.Module) -> None:
    a, b = numbers(4, 6), numbers(4, 6)
    for target in (
        np.zeros((6, 4), np.float32).T,
        np.zeros((4, 6), np.float32, order="F"),
        np.zeros((4, 6), np.float32)[::-1, ::-1],
        np.zeros((8, 6), np.float32)[::2],
    ):
        assert module.sub(a, b, _result=target) is target
        np.testing.assert_array_equal(target, a - b)
    tensor = spy.Tensor.zeros(device, (4, 12))
    module.sub(a, b, _result=tensor[::-1, 1::2])
    expected = np.zeros((4, 12), np.float32)
    expected[::-1, 1::2] = a - b
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


@pytest.mark.parametrize("n", [*range(1, 10), 255, 256, 257, 1023, 1025, 65537])
def test_lengths(device: spy.Device, module: spy.Module, n: int) -> None:
    a, b = numbers(n), numbers(n)[::-1].copy()
    np.testing.assert_array_equal(module.sub(a, b), a - b)
    # One element before and behind the result stays as it was.
    room = spy.Tensor.full(device, n + 16, -7)
    for start in (1, 8):
        module.sub(a, b, _result=room[start : start + n])
        expected = np.full(n + 16, -7, np.float32)
        expected[start : start + n] = a - b
        np.testing.assert_array_equal(room.to_numpy(), expected)
        room = spy.Tensor.full(device, n + 16, -7)
    left = spy.Tensor.from_numpy(device, a)
    np.testing.assert_array_equal(module.sub(left, b[0]).to_numpy(), a - b[0])
    np.testing.assert_array_equal(module.sub(left[::-1], left).to_numpy(), a[::-1] - a)


@pytest.mark.parametrize("n", [1, 3, 5, 1023, 1025])
def test_lengths_of_vectors(device: spy.Device, module: spy.Module, n: int) -> None:
    a, b = numbers(n, 3), numbers(n, 3)[::-1].copy()
    np.testing.assert_array_equal(module.mix3(a, b), a - b)
    tensor = module.mix3(spy.Tensor.from_numpy(device, a, "float3"), b)
    np.testing.assert_array_equal(tensor.to_numpy(), a - b)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 1023, 1025])
def test_bools_beside_64_bits(device: spy.Device, module: spy.Module, n: int) -> None:
    # A thread has two neighbours of these: two bytes, half of a word.
    rng = np.random.default_rng(n)
    plus, odd = (rng.integers(0, 2, n).astype(bool) for _ in range(2))
    x = rng.integers(0, 2**62, n)
    tensor = spy.Tensor.from_numpy(device, odd)
    result = module.signed_(spy.Tensor.from_numpy(device, plus), tensor, spy.Tensor.from_numpy(device, x))
    np.testing.assert_array_equal(result.to_numpy(), np.where(plus, x, -x))
    np.testing.assert_array_equal(tensor.to_numpy(), odd != (x % 2 != 0))


@st.composite
def layouts(draw: st.DrawFn) -> tuple[str, tuple[int, ...], list[tuple[tuple[slice, ...], tuple[int, ...]]]]:
    """A scalar type, a call shape and for each of two arrays its slices and the dimensions it stretches."""
    scalar = draw(st.sampled_from(["int", "narrowest"]))
    shape = tuple(draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8]), max_size=3)))
    arrays = []
    for _ in range(2):
        rank = draw(st.integers(0, len(shape)))
        own = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in shape[len(shape) - rank :])
        steps = draw(st.lists(st.sampled_from([1, 1, 2, -1, -3]), min_size=rank, max_size=rank))
        arrays.append((tuple(slice(None, None, s) for s in steps), own))
    return scalar, shape, arrays


def strided(scalar: str, slices: tuple[slice, ...], own: tuple[int, ...], seed: int) -> tuple[Any, Any]:
    """A base array and the key that makes the wanted view of it."""
    full = tuple(n * abs(s.step) for n, s in zip(own, slices, strict=True))
    info = np.iinfo(NUMPY_OF[scalar])
    base = np.random.default_rng(seed).integers(info.min, info.max, full, info.dtype, endpoint=True)
    return base, slices


@random_cases
def test_any_layout_equals_numpy(device: spy.Device, module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test(case: Any) -> None:
        check_layout(device, module, *case)

    explore(pytestconfig, test, st.tuples(layouts(), st.booleans(), st.booleans()), 250)


def check_layout(device: spy.Device, module: spy.Module, case: Any, transposed: bool, on_device: bool) -> None:
    scalar, _, arrays = case
    if scalar == "narrowest":
        scalar = narrowest(device)
    bases = [strided(scalar, slices, own, seed) for seed, (slices, own) in enumerate(arrays)]
    a, b = (base[key] for base, key in bases)
    if transposed:
        a, b = a.T, b.T
    try:
        with np.errstate(over="ignore"):
            expected = a - b
    except ValueError:
        with pytest.raises(spy.ShapeError):
            module[f"sub_{scalar}"](a, b)
        return
    args: list[Any] = [a, b]
    if on_device and not transposed:
        args = [spy.Tensor.from_numpy(device, base)[key] for base, key in bases]
    result = module[f"sub_{scalar}"](*args)
    assert np.shape(result) == expected.shape
    np.testing.assert_array_equal(np.asarray(result), expected)


def test_an_element_far_into_an_array(device: spy.Device) -> None:
    array = spy.NDBuffer(device, "int", 1 << 24)
    array.copy_from(np.arange(1 << 24, dtype=np.int32))
    assert [array[k].to_numpy().tolist() for k in (-1, 12_345_678)] == [(1 << 24) - 1, 12_345_678]
    assert array.view((1 << 12, 1 << 12))[3, -1].to_numpy() == 4 * (1 << 12) - 1

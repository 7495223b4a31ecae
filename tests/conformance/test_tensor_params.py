"""Whole arrays as Slang parameters, and the index of the call as an argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import one_device, sampled

# What these tests show does not depend on the device; --deep runs them on every one.
pytestmark = one_device

SLANG = """
import slangpy_rt;

float box(int2 at, Tensor<float, 2> image, int radius)
{
    float sum = 0;
    for (int y = -radius; y <= radius; ++y)
        for (int x = -radius; x <= radius; ++x)
        {
            int2 p = clamp(at + int2(x, y), int2(0), int2(image.shape[1] - 1, image.shape[0] - 1));
            sum += image[p];
        }
    return sum;
}
float pick1(Tensor<float, 1> t, int i) { return t[i]; }
float pick2(Tensor<float, 2> t, int i, int j) { return t[i, j]; }
float pick3(Tensor<float, 3> t, int i, int j, int k) { return t[i, j, k]; }
float pick_xyz(Tensor<float, 3> t, int3 p) { return t[p]; }
float3 pick_colour(Tensor<float3, 2> t, int2 p) { return t[p].zyx; }
bool pick_bool(Tensor<bool, 1> t, int i) { return !t[i]; }
int shape_of(Tensor<float, 3> t, int d) { return t.shape[d]; }
void scatter(RWTensor<int, 1> t, int i, int value) { t[i] = value; }
void transpose_to(NDBuffer<float, 2> to, Tensor<float, 2> source, int2 p) { to[p] = source[p.yx]; }
void double_all(RWTensor<float3, 2> t, int2 p) { t[p] = t[p] * 2; }
int id1(int p) { return p; }
int2 id2(int2 p) { return p; }
int3 id3(int3 p) { return p; }
uint2 uid2(uint2 p) { return p; }
float at_id(int2 p, float x) { return p.x * 1000 + p.y * 100 + x; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_tensor_params", SLANG)


def ramp(*shape: int) -> npt.NDArray[Any]:
    """Every element another number."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_a_box_filter(device: spy.Device, module: spy.Module) -> None:
    image = np.random.default_rng(1).integers(0, 99, (13, 9)).astype(np.float32)
    padded = np.pad(image, 2, "edge")
    expected = np.lib.stride_tricks.sliding_window_view(padded, (5, 5)).sum((2, 3))
    result = module.box(spy.grid(image.shape), spy.Tensor.from_numpy(device, image), 2)
    assert type(result) is spy.Tensor
    np.testing.assert_array_equal(result.to_numpy(), expected)
    host = module.box(spy.grid(image.shape), image, 2)
    assert type(host) is np.ndarray
    np.testing.assert_array_equal(host, expected)
    into = np.zeros(image.shape, np.float32)
    module.box(spy.call_id(), image, 2, _result=into)
    np.testing.assert_array_equal(into, expected)


def test_elements_in_each_rank(device: spy.Device, module: spy.Module) -> None:
    rng = np.random.default_rng(2)
    i, j, k = (rng.integers(0, n, 20).astype(np.int32) for n in (4, 5, 6))
    host = ramp(4, 5, 6)
    tensor = spy.Tensor.from_numpy(device, host)
    np.testing.assert_array_equal(module.pick3(tensor, i, j, k).to_numpy(), host[i, j, k])
    np.testing.assert_array_equal(module.pick_xyz(tensor, np.stack([k, j, i], 1)).to_numpy(), host[i, j, k])
    np.testing.assert_array_equal(module.pick2(host[2], j, k), host[2, j, k])
    np.testing.assert_array_equal(module.pick1(host[2, 3], k), host[2, 3, k])
    buffer = spy.NDBuffer(device, "float", (4, 5, 6))
    buffer.from_numpy(host)
    result = module.pick3(buffer, i, j, k)
    assert type(result) is spy.NDBuffer
    np.testing.assert_array_equal(result.to_numpy(), host[i, j, k])


def test_views(device: spy.Device, module: spy.Module) -> None:
    host = ramp(6, 8)
    tensor = spy.Tensor.from_numpy(device, host)
    i, j = np.arange(3, dtype=np.int32), np.arange(3, dtype=np.int32)
    for key in (np.s_[::2, ::-1], np.s_[1:4, 2:], np.s_[::-1, ::3]):
        np.testing.assert_array_equal(module.pick2(tensor[key], i, j).to_numpy(), host[key][i, j])
        np.testing.assert_array_equal(module.pick2(host[key], i, j), host[key][i, j])
    stretched = tensor[0].broadcast_to((4, 8))
    np.testing.assert_array_equal(module.pick2(stretched, i, j).to_numpy(), host[0, j])
    np.testing.assert_array_equal(module.pick2(host.T, j, i), host[i, j])


def test_elements_that_are_vectors_and_bools(device: spy.Device, module: spy.Module) -> None:
    host = ramp(4, 5, 3)
    tensor = spy.Tensor.from_numpy(device, host, "float3")
    np.testing.assert_array_equal(module.pick_colour(tensor, spy.grid((4, 5))).to_numpy(), host[..., ::-1])
    np.testing.assert_array_equal(module.pick_colour(host, spy.grid((4, 5))), host[..., ::-1])
    mask = np.array([True, False, False, True])
    np.testing.assert_array_equal(module.pick_bool(mask, np.arange(4, dtype=np.int32)), ~mask)


def test_shape_is_known_inside(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.shape_of(ramp(4, 5, 6), [0, 1, 2]), [4, 5, 6])
    np.testing.assert_array_equal(module.shape_of(ramp(4, 0, 6), [0, 1, 2]), [4, 0, 6])


def test_writing(device: spy.Device, module: spy.Module) -> None:
    where = np.random.default_rng(3).permutation(50).astype(np.int32)
    expected = np.zeros(50, np.int32)
    expected[where] = np.arange(50)
    for target in (np.zeros(50, np.int32), spy.Tensor.zeros(device, 50, "int")):
        assert module.scatter(target, where, np.arange(50, dtype=np.int32)) is None
        np.testing.assert_array_equal(np.asarray(target), expected)


def test_writing_through_a_view(device: spy.Device, module: spy.Module) -> None:
    host = np.zeros((4, 10), np.int32)
    module.scatter(host[1, ::-2], np.arange(5, dtype=np.int32), np.arange(1, 6, dtype=np.int32))
    expected = np.zeros((4, 10), np.int32)
    expected[1, ::-2] = np.arange(1, 6)
    np.testing.assert_array_equal(host, expected)
    tensor = spy.Tensor.zeros(device, (4, 10), "int")
    module.scatter(tensor[1, ::-2], np.arange(5, dtype=np.int32), np.arange(1, 6, dtype=np.int32))
    np.testing.assert_array_equal(tensor.to_numpy(), expected)


def test_from_one_array_to_another(device: spy.Device, module: spy.Module) -> None:
    source, to = ramp(5, 7), spy.NDBuffer(device, "float", (7, 5))
    module.transpose_to(to, source, spy.grid((7, 5)))
    np.testing.assert_array_equal(to.to_numpy(), source.T)


def test_read_and_write_in_place(device: spy.Device, module: spy.Module) -> None:
    host = ramp(4, 5, 3)
    tensor = spy.Tensor.from_numpy(device, host, "float3")
    module.double_all(tensor, spy.grid((4, 5)))
    np.testing.assert_array_equal(tensor.to_numpy(), host * 2)
    mine = host.copy()
    module.double_all(mine, spy.grid((4, 5)))
    np.testing.assert_array_equal(mine, host * 2)


@sampled(12)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (1,), (1, 4), (4, 1), (1, 1, 1), (0, 3)])
def test_grid(module: spy.Module, shape: tuple[int, ...]) -> None:
    # x is the last dimension, as in a texture.
    index = np.moveaxis(np.indices(shape), 0, -1)[..., ::-1]
    result = module[f"id{len(shape)}"](spy.grid(shape))
    assert type(result) is spy.Tensor
    np.testing.assert_array_equal(result.to_numpy(), index[..., 0] if len(shape) == 1 else index)
    if len(shape) == 2:
        np.testing.assert_array_equal(module.uid2(spy.grid(shape)).to_numpy(), index)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_call_id(module: spy.Module, shape: tuple[int, ...]) -> None:
    index = np.moveaxis(np.indices(shape), 0, -1)[..., ::-1]
    target = np.zeros((*shape, len(shape)) if len(shape) > 1 else shape, np.int32)
    module[f"id{len(shape)}"](spy.call_id(), _result=target)
    np.testing.assert_array_equal(target, index[..., 0] if len(shape) == 1 else index)


def test_the_index_beside_broadcast_arrays(module: spy.Module) -> None:
    column = ramp(4, 1)
    y, x = np.indices((4, 6))
    np.testing.assert_array_equal(module.at_id(spy.grid((4, 6)), column), x * 1000 + y * 100 + column)
    square = ramp(4, 4).T
    y, x = np.indices((4, 4))
    np.testing.assert_array_equal(module.at_id(spy.call_id(), square), x * 1000 + y * 100 + square)
    np.testing.assert_array_equal(module.at_id(spy.grid((-1, 4)), square), x * 1000 + y * 100 + square)
    np.testing.assert_array_equal(module.at_id(spy.grid((1, 4)), square), x * 1000 + square)


def test_there_are_no_arrays_of_whole_arrays(device: spy.Device) -> None:
    """Elements would be addresses, which nobody could write and a kernel would follow."""
    text = "import slangpy_rt; struct S { Tensor<float, 1> t; float k; }; float f(S s) { return s.t[0] * s.k; }"
    module = spy.Module.load_from_source(device, "arrays_of_whole_arrays", text)
    t = spy.Tensor.ones(device, 3)
    with pytest.raises(
        spy.BindError, match=r"^Tensor\.zeros: dtype 'S' holds a whole array, which elements of arrays"
    ):
        spy.Tensor.zeros(device, 2, module.S)
    with pytest.raises(spy.UnsupportedError, match="argument 's': 'S' holds a whole array, and there are no arrays"):
        module.f([{"t": t, "k": 1.0}, {"t": t, "k": 2.0}])
    assert module.f({"t": t, "k": np.float32([1, 2])}).tolist() == [1, 2]

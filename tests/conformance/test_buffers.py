"""Slang's own buffer types as parameters: whole arrays by other names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_device

pytestmark = every_device

# No import: naming the types is enough.
SLANG = """
struct Item { float3 place; int number; };
float pick(StructuredBuffer<float> from, int i) { return from[i] + from.Load(0); }
float3 vector(StructuredBuffer<float3> from, int i) { return from[i]; }
int item(StructuredBuffer<Item> from, int i) { return from[i].number + int(from[i].place.y); }
void put(RWStructuredBuffer<float> to, int i, float value) { to[i] = value; }
void count(RWStructuredBuffer<Item> to, int i) { to[i].number += 10; }
uint2 dimensions(StructuredBuffer<float3> from)
{
    uint count, stride;
    from.GetDimensions(count, stride);
    return uint2(count, stride);
}
uint4 words(ByteAddressBuffer from, int at)
{
    return uint4(from.Load(at), from.Load2(at).y, from.Load3(at).z, from.Load4(at).w);
}
float typed(ByteAddressBuffer from, int at) { return from.Load<float>(at) + from.Load<float3>(at).z; }
void write(RWByteAddressBuffer to, int at, uint value)
{
    uint bytes;
    to.GetDimensions(bytes);
    to.Store(at, value + bytes);
    to.Store<float2>(at + 4, float2(value, 0.5));
}
[numthreads(8, 1, 1)]
void copy(StructuredBuffer<float> from, RWStructuredBuffer<float> to, uint i : SV_DispatchThreadID)
{
    if (i < to.getCount())
        to[i] = 2 * from[i];
}
"""
ITEM = np.dtype([("place", "f4", 3), ("number", "i4")])


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_buffers", SLANG)


@pytest.fixture(params=["tensor", "numpy"])
def give(request: pytest.FixtureRequest, device: spy.Device) -> Any:
    """Hands an array over on the device or on the host."""

    def give(array: Any, dtype: Any = None) -> Any:
        return array if request.param == "numpy" else spy.Tensor.from_numpy(device, array, dtype)

    return give


def test_structured(module: spy.Module, give: Any) -> None:
    values = np.random.default_rng(0).random(10).astype(np.float32)
    index = np.array([3, 9, 0], np.int32)
    assert (np.asarray(module.pick(give(values), index)) == values[index] + values[0]).all()
    vectors = values[:9].reshape(3, 3)
    assert (np.asarray(module.vector(give(vectors, "float3"), np.arange(3))) == vectors).all()
    assert np.asarray(module.dimensions(give(vectors, "float3"))).tolist() == [3, 12]


def test_structured_writes(device: spy.Device, module: spy.Module) -> None:
    on_device = spy.NDBuffer(device, "float", 5)
    on_device.clear()
    on_host = np.zeros(5, np.float32)
    for target in (on_device, on_host):
        module.put(target, np.array([4, 1]), np.array([8, 9], np.float32))
        assert np.asarray(target).tolist() == [0, 9, 0, 0, 8]


def test_structs(device: spy.Device, module: spy.Module) -> None:
    items = np.zeros(3, ITEM)
    items["place"][:, 1] = [5, 6, 7]
    items["number"] = [100, 200, 300]
    tensor = spy.Tensor.from_numpy(device, items, module.Item)
    assert np.asarray(module.item(tensor, np.arange(3))).tolist() == [105, 206, 307]
    module.count(tensor, np.array([0, 2]))
    assert tensor.to_numpy()["number"].tolist() == [110, 200, 310]


def test_bytes(module: spy.Module, give: Any) -> None:
    values = np.random.default_rng(1).random((2, 6)).astype(np.float32)
    words = values.view(np.uint32).ravel()
    assert np.asarray(module.words(give(values), 8)).tolist() == words[[2, 3, 4, 5]].tolist()
    flat = values.ravel()
    assert module.typed(give(values), 12) == flat[3] + flat[5]


def test_byte_writes(device: spy.Device, module: spy.Module) -> None:
    on_device = spy.Tensor.zeros(device, 4, "uint")
    on_host = np.zeros(4, np.uint32)
    expected = np.array([0, 7 + 16, 0, 0], np.uint32)
    expected[2:] = np.array([7, 0.5], np.float32).view(np.uint32)
    for target in (on_device, on_host):
        module.write(target, 4, 7)
        assert np.asarray(target).tolist() == expected.tolist()


def test_in_a_kernel(device: spy.Device, module: spy.Module) -> None:
    source = spy.Tensor.arange(device, 20, dtype="float")
    target = spy.Tensor.zeros(device, 13)
    module.copy.dispatch(13, source, target)
    assert target.to_numpy().tolist() == [2 * i for i in range(13)]


def test_what_they_refuse(device: spy.Device, module: spy.Module) -> None:
    grid = spy.Tensor.zeros(device, (2, 6))
    with pytest.raises(spy.BindError) as error:
        module.words(grid[:, ::2], 0)
    assert str(error.value) == (
        "uint4 words(ByteAddressBuffer from, int at): argument 'from' is a non-contiguous view; 'ByteAddressBuffer' "
        "takes bytes that follow each other."
    )
    with pytest.raises(spy.BindError) as error:
        module.words([1, 2], 0)
    assert str(error.value) == (
        "uint4 words(ByteAddressBuffer from, int at): argument 'from' is [1, 2]; 'ByteAddressBuffer' takes a Tensor, "
        "an NDBuffer or a NumPy array."
    )
    with pytest.raises(spy.BindError, match="has 0 dimensions of 'float3'; 'StructuredBuffer<float3>' takes 1"):
        module.vector(grid[0, :3], 0)

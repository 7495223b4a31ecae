"""Clearing on the device: whole arrays and parts of them, of any size, in order with the kernels around it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import narrowest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import every_device, needs, sampled

pytestmark = every_device

SLANG = """
struct Item { float a; NARROWEST b; float3 c; }
void add(inout float x, float y) { x += y; }
uint8_t byte_of(int i) { return uint8_t(i % 251 + 1); }
bool flag_of(int i) { return i % 3 != 1; }
int sum(Item i) { return int(i.a) + int(i.b) + int(i.c.z); }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_clear", SLANG, defines={"NARROWEST": narrowest(device)})


@sampled(3)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 7, 8, 255, 4097, 100_003, (20 << 20) + 1])
def test_every_byte_and_no_other(device: spy.Device, size: int) -> None:
    for start in (0, 1, 2, 3, 4, 509):
        host = np.resize(np.arange(1, 252, dtype=np.uint8), size + start + 9)
        tensor = spy.Tensor.from_numpy(device, host)
        tensor[start : start + size].clear()
        host[start : start + size] = 0
        np.testing.assert_array_equal(tensor.to_numpy(), host)


@pytest.mark.parametrize("dtype", ["float", "int16_t", "float3", "double", "bool", "half", "float2x3", "int[3]"])
def test_element_types(device: spy.Device, module: spy.Module, dtype: str) -> None:
    # Memory knows no types: what a device cannot compute with, it still clears.
    kind = module._scope.named("test", dtype)
    tensor = spy.NDBuffer(device, kind, (5, 3))
    host = np.ones(tensor.to_numpy().shape, tensor.layout.numpy_dtype)
    tensor.copy_from(host)
    tensor[2:4].clear()
    host[2:4] = 0
    np.testing.assert_array_equal(tensor.to_numpy(), host)
    tensor[4, 1].clear()
    host[4, 1] = 0
    np.testing.assert_array_equal(tensor.to_numpy(), host)
    tensor.clear()
    np.testing.assert_array_equal(tensor.to_numpy(), np.zeros_like(host))


def test_structs(device: spy.Device, module: spy.Module) -> None:
    host = np.zeros(7, [("a", "f4"), ("b", NUMPY_OF[narrowest(device)]), ("c", "f4", 3)])
    host["a"], host["b"], host["c"] = 1, 2, 3
    tensor = spy.Tensor.from_numpy(device, host, dtype=module.Item)
    tensor[:3].clear()
    np.testing.assert_array_equal(module.sum(tensor).to_numpy(), [0, 0, 0, 6, 6, 6, 6])


@sampled(3)
@pytest.mark.parametrize("n", [1, 1000, 300_000])
def test_order_with_kernels(device: spy.Device, module: spy.Module, n: int) -> None:
    total, kept = spy.Tensor.zeros(device, n), spy.Tensor.zeros(device, n)
    # More than a backend gathers into one submission; some of those end in front of a clear, some behind it.
    for round_ in range(300):
        module.add(total, float(round_))
        module.add(kept, total)
        total.clear()
        module.add(total, 1.0)
    np.testing.assert_array_equal(total.to_numpy(), np.ones(n, np.float32))
    expected = sum(range(300)) + 299  # what each round found: its number, and 1 of the one before
    np.testing.assert_array_equal(kept.to_numpy(), np.full(n, expected, np.float32))


def test_order_with_kernels_at_ragged_ends(device: spy.Device, module: spy.Module) -> None:
    numbers = spy.Tensor.arange(device, 1003)
    host: npt.NDArray[Any] = (np.arange(1003) % 251 + 1).astype(np.uint8)
    if narrowest(device) == "uint8_t":
        bytes_, fill = spy.Tensor.empty(device, 1003, "uint8_t"), module.byte_of
    else:
        # Bools are bytes everywhere.
        bytes_, fill, host = spy.Tensor.empty(device, 1003, "bool"), module.flag_of, np.arange(1003) % 3 != 1
    for start, stop in ((1, 1002), (3, 6), (0, 1003), (501, 502), (2, 1001)) * 20:
        fill(numbers, _result=bytes_)
        bytes_[start:stop].clear()
        expected = host.copy()
        expected[start:stop] = 0
        np.testing.assert_array_equal(bytes_.to_numpy(), expected)
        fill(numbers, _result=bytes_)
        np.testing.assert_array_equal(bytes_.to_numpy(), host)
        bytes_[start:stop].clear()


def test_order_with_copies(device: spy.Device) -> None:
    for n in (10, 100_000, 5_000_000):
        tensor = spy.Tensor.ones(device, n)
        for _ in range(3):
            tensor.clear()
            tensor[n // 2 :].copy_from(np.full(n - n // 2, 2, np.float32))
            tensor[: n // 4].copy_from(np.full(n // 4, 3, np.float32))
            tensor[: n // 4].clear()
        expected = np.zeros(n, np.float32)
        expected[n // 2 :] = 2
        np.testing.assert_array_equal(tensor.to_numpy(), expected)


def test_zeros_in_memory_that_was_used(device: spy.Device) -> None:
    for shape in ((), 3, (0, 4), (100, 7), 1 << 21):
        for dtype in ("float", "uint8_t"):
            for _ in range(3):
                used = spy.Tensor.full(device, shape, 7, dtype)
                del used
                made = spy.Tensor.zeros(device, shape, dtype)
                np.testing.assert_array_equal(made.to_numpy(), np.zeros(shape, made.layout.numpy_dtype))
                assert made.dtype.name == dtype
                np.testing.assert_array_equal(spy.Tensor.zeros_like(made).to_numpy(), made.to_numpy())


@needs("shared memory")
def test_shared_memory(device: spy.Device) -> None:
    buffer = device.alloc_shared(100)
    assert buffer is not None
    buffer.view[:100] = bytes(range(1, 101))
    device.backend.clear(buffer, 3, 90)
    device.synchronize()
    assert bytes(buffer.view[:100]) == bytes([1, 2, 3] + [0] * 90 + list(range(94, 101)))


def test_what_is_refused(device: spy.Device) -> None:
    tensor = spy.Tensor.ones(device, (4, 6))
    for view in (tensor[:, 1], tensor[::2], tensor[::-1], tensor[0].broadcast_to((4, 6))):
        with pytest.raises(spy.BindError) as refusal:
            view.clear()
        message = "Tensor.clear: this is a non-contiguous view; clear the array it was made from."
        assert str(refusal.value) == message
    np.testing.assert_array_equal(tensor.to_numpy(), np.ones((4, 6)))
    # Nothing lies in an empty one, whatever its strides.
    tensor[:, 2:2].clear()
    np.testing.assert_array_equal(tensor.to_numpy(), np.ones((4, 6)))
    # One row or one column of one is contiguous.
    tensor[2:3, 1:].clear()
    assert tensor.to_numpy().sum() == 19


def test_the_null_backend_clears_too() -> None:
    with spy.Device("null") as null:
        tensor = spy.Tensor.ones(null, 5, "uint8_t")
        tensor[1:4].clear()
        assert tensor.to_numpy().tolist() == [1, 0, 0, 0, 1]


def test_a_closed_device(backend_name: str) -> None:
    with spy.Device(backend_name) as opened:
        tensor = spy.Tensor.ones(opened, 3)
    with pytest.raises(spy.DeviceError, match="was closed"):
        tensor.clear()

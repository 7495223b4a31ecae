"""Memory that host and device share: any array goes there and back; after closing it is refused, not touched."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.null import NullBackend
from slangpy_rt.backends.shared_pool import SharedPool

ARRAYS: dict[str, Any] = {
    "doubles": np.arange(6.0),
    "every other": np.arange(6.0)[::2],
    "backwards": np.arange(6)[::-1],
    "Fortran order": np.arange(6, dtype=np.int16).reshape(2, 3).T,
    "no dimensions": np.full((), 3, np.float32),
    "records": np.array([(1.5, (2, 3)), (4, (5, 6))], [("a", "f4"), ("b", "i2", (2,))]),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "half": np.arange(5, dtype=np.float16),
    "bools": np.array([True, False, True]),
}


@pytest.fixture
def backend() -> NullBackend:
    return NullBackend()


@pytest.fixture
def pool(backend: NullBackend) -> SharedPool:
    pool = SharedPool()
    size = pool.missing(200)
    pool.add(200, None, 1 << 20, memoryview(bytearray(size)))
    return pool


@pytest.mark.parametrize("name", ARRAYS)
def test_there_and_back(backend: NullBackend, pool: SharedPool, name: str) -> None:
    array = ARRAYS[name].view()
    array.flags.writeable = False
    buffer = pool.take(backend, array.nbytes)
    assert buffer is not None
    buffer.view[:] = b"\xff" * buffer.nbytes
    buffer.write(array)
    assert bytes(buffer.view) == array.tobytes() + b"\xff" * (buffer.nbytes - array.nbytes)
    dense, apart = np.zeros(array.shape, array.dtype), np.zeros((*array.shape, 2), array.dtype)[..., 0]
    for out in (dense, apart):
        buffer.read(out)
        np.testing.assert_array_equal(out, array)
    items = array.reshape(-1)
    tail = np.zeros(items.size - items.size // 2, array.dtype)
    buffer.read(tail, items.size // 2 * array.itemsize)
    np.testing.assert_array_equal(tail, items[items.size // 2 :])


@pytest.mark.parametrize("name", ["doubles", "every other", "bfloat16"])
def test_nothing_is_touched_once_it_is_closed(backend: NullBackend, pool: SharedPool, name: str) -> None:
    array = ARRAYS[name].copy()
    buffer, other = pool.take(backend, array.nbytes), pool.take(backend, array.nbytes)
    assert buffer is not None and other is not None and buffer.address != other.address
    backend.close()
    pool.close()
    assert pool.take(backend, array.nbytes) is None
    for use in (buffer.write, buffer.read, other.write):
        with pytest.raises(spy.DeviceError, match="this device is closed"):
            use(array)
    with pytest.raises(ValueError, match="released"):
        buffer.view[0]

"""Copies between the host and a CUDA device through page-locked slots, by a stand-in for the driver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from test_cuda_contexts import Driver, driver

import slangpy_rt as spy
from slangpy_rt.backends import host_blocks
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.staging import CHUNK, INLINE, SLOTS, THREADS

__all__ = ["driver"]  # the fixture


def _there_and_back(backend: CudaBackend, sizes: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    for nbytes in sizes:
        host = generator.integers(0, 255, nbytes, np.uint8)
        buffer, back = backend.alloc(nbytes), np.zeros_like(host)
        backend.upload(buffer, 0, host.data)
        backend.download(buffer, 0, back.data)
        assert np.array_equal(back, host), nbytes


# One piece, some, and more than there are slots, with a last piece that is no full one.
SIZES = (1, INLINE, INLINE + 1, CHUNK, 3 * CHUNK + 5, 7, (2 * SLOTS + 3) * CHUNK + 11, SLOTS * CHUNK)


def test_every_byte_arrives(driver: Driver) -> None:
    backend = CudaBackend(0)
    _there_and_back(backend, SIZES)
    assert driver.calls.count("cuStreamSynchronize") >= 2
    backend.close()
    assert driver.wrong == []


def test_every_byte_arrives_where_python_starts_no_thread(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", none)
    backend = CudaBackend(0)
    _there_and_back(backend, SIZES)
    backend.close()
    assert driver.wrong == []


def test_an_error_of_the_driver_leaves_no_thread_at_work(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = CudaBackend(0)
    host = np.zeros(6 * CHUNK, np.uint8)
    buffer, copies = backend.alloc(host.nbytes), []
    right = Driver.cuMemcpyHtoDAsync_v2

    def refused(self: Driver, device: int, other: int, nbytes: int, stream: int) -> int:
        copies.append(device)
        return 700 if len(copies) == 3 else right(self, device, other, nbytes, stream)

    monkeypatch.setattr(Driver, "cuMemcpyHtoDAsync_v2", refused)
    with pytest.raises(Exception, match="a copy to the device"):
        backend.upload(buffer, 0, host.data)
    assert 3 <= len(copies) <= 2 + THREADS
    _there_and_back(backend, (5 * CHUNK,))
    backend.close()


def test_results_in_page_locked_memory(driver: Driver) -> None:
    with spy.Device("cuda") as device:
        made = [device.host_array((1 << 20,), np.dtype(np.float32)) for _ in range(2)]
        places = [array.ctypes.data for array in made]
        assert len(set(places)) == 2 and all(place in driver.owner for place in places)
        tensor = spy.Tensor.from_numpy(device, np.arange(1 << 20, dtype=np.float32))
        driver.calls.clear()
        kept = tensor.to_numpy()
        assert driver.calls.count("cuEventRecord") == 0
        np.testing.assert_array_equal(kept, np.arange(1 << 20))
        # Memory comes back once no array is in it, views included.
        half = made.pop()[5:]
        assert device.host_array((1 << 20,), np.dtype(np.float32)).ctypes.data not in (*places, kept.ctypes.data)
        del half
        assert device.host_array((1 << 20,), np.dtype(np.float32)).ctypes.data == places[1]
        assert device.host_array((100,), np.dtype(np.float32)).ctypes.data not in driver.owner
    # It stays where an array is that outlives the device, and is page-locked no more.
    np.testing.assert_array_equal(kept, np.arange(1 << 20))
    assert driver.owner == {} and driver.wrong == []


def test_no_more_memory_is_page_locked_than_is_allowed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_blocks, "_MOST_BYTES", 10 << 20)
    with spy.Device("cuda") as device:
        made = [device.host_array((1 << 20,), np.dtype(np.float32)) for _ in range(3)]
        assert [array.ctypes.data in driver.owner for array in made] == [True, True, False]
        made.clear()
        larger = device.host_array((1 << 21,), np.dtype(np.float32))
        assert larger.ctypes.data in driver.owner and "cuMemHostUnregister" in driver.calls
    assert driver.owner == {} and driver.wrong == []


def test_memory_that_may_not_be_page_locked(driver: Driver) -> None:
    driver.cuMemHostRegister_v2 = lambda *_: 1  # type: ignore[method-assign]
    with spy.Device("cuda") as device:
        tensor = spy.Tensor.from_numpy(device, np.arange(1 << 20, dtype=np.float32))
        for _ in range(2):
            np.testing.assert_array_equal(tensor.to_numpy(), np.arange(1 << 20))

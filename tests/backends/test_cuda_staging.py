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


def test_memory_of_results_is_used_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_blocks, "_FEW", 0)
    kind = np.dtype(np.float32)
    with spy.Device("cuda") as device:
        made = [device.host_array((1 << 20,), kind) for _ in range(2)]
        places = [array.ctypes.data for array in made]
        tensor = spy.Tensor.from_numpy(device, np.arange(1 << 20, dtype=np.float32))
        kept = tensor.to_numpy()
        np.testing.assert_array_equal(kept, np.arange(1 << 20))
        # Memory comes back once no array is in it, views included.
        half = made.pop()[5:]
        assert device.host_array((1 << 20,), kind).ctypes.data not in (*places, kept.ctypes.data)
        del half
        assert device.host_array((1 << 20,), kind).ctypes.data == places[1]
    # It stays where an array is that outlives the device.
    np.testing.assert_array_equal(kept, np.arange(1 << 20))
    assert driver.owner == {} and driver.wrong == []


def test_no_more_memory_is_kept_than_is_allowed(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_blocks, "_MOST_BYTES", 10 << 20)
    with spy.Device("cuda") as device:
        hosts = device.backend.hosts  # type: ignore[attr-defined]
        # The first ones of a size are ordinary arrays.
        made = [hosts.take(4 << 20) for _ in range(5)]
        assert [block is not None for block in made] == [False, False, True, True, False]
        places = [block.address for block in made[2:4]]
        assert hosts.find(places[0] + 5, 100) is not None and hosts.find(places[0] - 5, 100) is None
        made.clear()
        larger = [hosts.take(8 << 20) for _ in range(3)][-1]
        assert larger is not None and hosts.find(larger.address, 8 << 20) is not None
        assert len(hosts.all) == 1
    assert hosts.take(4 << 20) is None
    assert driver.owner == {} and driver.wrong == []

"""Copies between the host and a CUDA device through page-locked slots, by a stand-in for the driver."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from test_cuda_contexts import Driver, driver

from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.staging import CHUNK, INLINE, SLOTS

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
    assert len(copies) == 3
    _there_and_back(backend, (5 * CHUNK,))
    backend.close()

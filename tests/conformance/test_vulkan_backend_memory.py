"""The Vulkan backend's memory: blocks that are cut, emptied, given back, and refused.

Each test runs three times where it matters, as in test_vulkan_backend.py.
"""

from __future__ import annotations

import ctypes
from itertools import pairwise

import numpy as np
import pytest
from _vulkan_backend import Launch, backend, count_barriers, get, launch, put, spirv

from slangpy_rt.backends.device_memory import DeviceBuffer
from slangpy_rt.backends.vulkan.backend import VulkanBackend
from slangpy_rt.core.errors import OutOfMemoryError, UnsupportedError

__all__ = ["backend", "launch", "spirv"]  # the fixtures


def test_freed_memory_serves_later_work_while_earlier_work_is_queued(backend: VulkanBackend, launch: Launch) -> None:
    n = 1 << 14
    one = put(backend, np.ones(n, np.float32))
    addresses = set()
    results = [put(backend, np.zeros(n, np.float32)) for _ in range(4)]
    for i in range(400):
        scratch = backend.alloc(4 * n)
        addresses.add(scratch.address)
        launch(one, one, scratch, float(i))  # i + 1
        launch(scratch, results[i % 4], results[i % 4], 1.0)
        del scratch
    assert len(addresses) == 1
    for k in range(4):
        assert (get(backend, results[k]) == sum(i + 1 for i in range(k, 400, 4))).all()


def test_emptied_block_is_cut_anew_behind_a_barrier(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._memory.blocks, "_slab_size", 1 << 20)
    monkeypatch.setattr(backend._memory.blocks, "_slab", None)
    old = [put(backend, np.ones(50_000, np.float32)) for _ in range(4)]
    backend.sync_all()
    seen = count_barriers(backend, monkeypatch)
    launch(old[0], old[1], old[3], 1.0)
    first, last = old[0].address, old[3].address + old[3].nbytes
    del old
    assert seen == []
    new = backend.alloc(500_000)  # fits into the block only once that was emptied
    assert first <= new.address < last
    assert len(seen) == 1


def test_live_buffers_never_overlap(backend: VulkanBackend) -> None:
    rng = np.random.default_rng(1)
    live: list[DeviceBuffer] = []
    for _ in range(600):
        if live and rng.random() < 0.45:
            live.pop(int(rng.integers(len(live))))
        else:
            live.append(backend.alloc(int(2 ** rng.uniform(0, 24.5))))
        assert live == [] or live[-1].address % 256 == 0
    spans = sorted((buffer.address, buffer.address + buffer.nbytes) for buffer in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


def test_freed_during_garbage_collection_under_the_lock(backend: VulkanBackend) -> None:
    buffer = backend.alloc(1000)
    with backend._lock:
        del buffer  # must not wait for the lock
    assert backend.alloc(1000).nbytes == 1000


def test_idle_memory_goes_back_when_it_is_a_quarter_of_the_device(
    backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend._device, "heap_bytes", 200 << 20)
    for megabytes in (20, 24, 28, 32, 40, 48):
        backend.alloc(megabytes << 20)
    backend.alloc(56 << 20)
    assert backend._memory.blocks.idle() <= 3 * (200 << 20) // 4


def test_too_much_memory_is_refused_with_its_size(backend: VulkanBackend) -> None:
    with pytest.raises(OutOfMemoryError, match=f"vulkan: .*{1 << 50} bytes"):
        backend.alloc(1 << 50)
    assert (get(backend, put(backend, np.ones(8, np.float32))) == 1).all()


def test_out_of_memory_frees_idle_blocks_and_tries_again(
    backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend.alloc(20 << 20)  # idle at once
    assert backend._memory.blocks.idle() > 0
    real, refused = backend._device.allocate, []

    def allocate(nbytes: int, purpose: tuple[int, ...]) -> object:
        if not refused:
            refused.append(nbytes)
            raise OutOfMemoryError("full")
        return real(nbytes, purpose)

    monkeypatch.setattr(backend._device, "allocate", allocate)
    buffer = backend.alloc(50 << 20)
    assert refused
    assert backend._memory.blocks.idle() == 0
    del buffer


def test_copies_to_memory_of_the_host(backend: VulkanBackend, launch: Launch) -> None:
    n = 1 << 19
    a, b, r = (put(backend, x) for x in (np.full(n, 2, np.float32), np.arange(n, dtype=np.float32), np.zeros(n, "f")))
    assert [backend.hosts.take(4 * n) for _ in range(2)] == [None, None]
    blocks = [backend.hosts.take(4 * n) for _ in range(2)]
    for block, factor in zip(blocks, (1.0, 3.0), strict=True):
        assert block is not None
        host = np.ctypeslib.as_array((ctypes.c_float * n).from_address(block.address))
        launch(a, b, r, factor)
        backend.download(r, 0, host.data)
        np.testing.assert_array_equal(host, 2 * factor + np.arange(n))
        # A part of it, from and to odd places.
        host[:] = -1
        backend.download(r, 12, host[7:77].data)
        np.testing.assert_array_equal(host[7:77], 2 * factor + np.arange(3, 73))
        assert (host[:7] == -1).all() and (host[77:] == -1).all()
    places = [block.address for block in blocks if block is not None]
    blocks.clear()
    del block
    again = backend.hosts.take(4 * n)
    assert again is not None and again.address in places


def test_memory_of_the_host_that_the_driver_refuses(backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UnsupportedError("no such memory")

    monkeypatch.setattr(backend.hosts, "_register", refuse)
    assert [backend.hosts.take(1 << 20) for _ in range(5)] == [None] * 5 and backend.hosts.all == {}

"""The Vulkan backend by itself: launches, transfers, their order, and when they are submitted.

What holds for every backend is tested elsewhere. Each test runs three times where it matters: as users get
the backend, under the validation layer, and with transfers staged as on a discrete GPU.
"""

from __future__ import annotations

import struct
import threading

import numpy as np
import pytest
from _vulkan_backend import Launch, backend, count_barriers, get, launch, load, put, spirv

from slangpy_rt.backends.vulkan.backend import VulkanBackend

__all__ = ["backend", "launch", "spirv"]  # the fixtures


def test_arguments_arrive_as_one_pushed_address(spirv: bytes) -> None:
    words = struct.unpack(f"<{len(spirv) // 4}I", spirv)
    found: dict[int, list[tuple[int, ...]]] = {}
    at = 5
    while at < len(words):
        found.setdefault(words[at] & 0xFFFF, []).append(words[at + 1 : at + (words[at] >> 16)])
        at += words[at] >> 16
    # Opcodes of the SPIR-V specification: 59 Variable, 32 TypePointer, 30 TypeStruct. Storage classes: 9
    # PushConstant, 5349 PhysicalStorageBuffer, whose pointers have 8 bytes.
    pushed = [kind for kind, _, storage, *_ in found[59] if storage == 9]
    pointers = {result: (storage, target) for result, storage, target in found[32]}
    members = {result: kinds for result, *kinds in found[30]}
    assert len(pushed) == 1
    (member,) = members[pointers[pushed[0]][1]]
    assert pointers[member][0] == 5349


def test_adds(backend: VulkanBackend, launch: Launch) -> None:
    x = np.arange(1000, dtype=np.float32)
    a, b, r = put(backend, x), put(backend, x + 1), backend.alloc(4000)
    launch(a, b, r, 2.0)
    assert np.array_equal(get(backend, r), 2 * x + (x + 1))


def test_capabilities_and_description(backend: VulkanBackend) -> None:
    assert {"float", "uint64_t"} <= backend.caps.scalars
    assert min(backend.caps.max_groups) >= 65535
    assert backend.description
    assert backend.target.format == backend.toolchain() == "spirv"


@pytest.mark.parametrize("nbytes", [1, 257, 1 << 16, (1 << 16) + 1, (8 << 20) + 3, (40 << 20) + 5])
def test_transfers_keep_every_byte(backend: VulkanBackend, nbytes: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, nbytes, dtype=np.uint8)
    buffer = backend.alloc(nbytes + 16)
    guard = np.full(nbytes + 16, 7, np.uint8)
    backend.upload(buffer, 0, memoryview(guard))
    source = data.copy()
    backend.upload(buffer, 5, memoryview(source))
    source[:] = 0
    out = np.zeros(nbytes + 16, np.uint8)
    backend.download(buffer, 0, memoryview(out))
    assert np.array_equal(out[5 : 5 + nbytes], data)
    assert (out[:5] == 7).all()
    assert (out[5 + nbytes :] == 7).all()
    part = np.zeros(nbytes, np.uint8)
    backend.download(buffer, 5, memoryview(part))
    assert np.array_equal(part, data)


def test_empty_transfers_do_nothing(backend: VulkanBackend) -> None:
    buffer = put(backend, np.ones(4, np.float32))
    backend.upload(buffer, 0, memoryview(b""))
    backend.download(buffer, 0, memoryview(bytearray()))
    assert (get(backend, buffer) == 1).all()


def test_dependent_launches_take_effect_in_order(backend: VulkanBackend, launch: Launch) -> None:
    n = 1 << 16
    one = np.ones(n, np.float32)
    b, x, y = put(backend, one), put(backend, one), put(backend, one)
    expected = 1.0
    for i in range(50):
        launch(x, b, y, 0.5 + i % 2)  # reads what the second wrote before, overwrites what it read
        launch(y, b, x, 0.5)
        expected = np.float32(np.float32(expected * (0.5 + i % 2) + 1) * 0.5 + 1)
    assert np.allclose(get(backend, x), expected, rtol=1e-6)


def test_uploads_between_launches_take_effect_in_order(backend: VulkanBackend, launch: Launch) -> None:
    n = 1000
    zero = put(backend, np.zeros(n, np.float32))
    a, total = put(backend, np.zeros(n, np.float32)), put(backend, np.zeros(n, np.float32))
    for i in range(200):
        backend.upload(a, 0, memoryview(np.full(n, i, np.float32)))
        launch(a, total, total, 1.0)
    launch(total, zero, total, 1.0)
    assert (get(backend, total) == sum(range(200))).all()


def test_barriers_come_only_where_buffers_conflict(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c, d, e = (put(backend, np.ones(64, np.float32)) for _ in range(5))
    backend.sync_all()
    seen = count_barriers(backend, monkeypatch)
    launch(a, b, c, 1.0)
    launch(a, b, d, 1.0)
    assert seen == []  # both only read a and b
    launch(c, b, e, 1.0)
    assert len(seen) == 1  # c was written
    launch(a, b, c, 1.0)
    assert len(seen) == 2  # c was read
    launch(a, b, c, 1.0)
    assert len(seen) == 3  # c was written
    launch(a, b, d, 1.0)
    assert len(seen) == 3  # the earlier use of d lies before a barrier
    backend.upload(d, 0, memoryview(b"1234"))
    assert len(seen) == 4
    launch(a, d, e, 1.0)
    assert len(seen) == 5


def test_an_upload_that_begins_a_command_buffer_comes_before_a_launch(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 1 << 14
    a, b, r = (put(backend, np.ones(n, np.float32)) for _ in range(3))
    backend.sync_all()
    # Argument blocks and uploads of a command buffer take a part of the ring: sixteen such uploads fill it.
    for _ in range(16):
        backend.upload(b, 0, memoryview(np.zeros(n, np.float32)))
    backend.upload(a, 0, memoryview(np.full(n, 2, np.float32)))
    assert backend.queue.value > 0 and backend.queue._pending == 1
    seen = count_barriers(backend, monkeypatch)
    launch(a, b, r, 1.0)
    assert len(seen) == 1
    assert (get(backend, r) == 2).all()


def test_a_launch_that_writes_what_a_copy_reads_comes_after_it(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = 64
    a, b, src, dst = (put(backend, np.full(n, k, np.float32)) for k in range(4))
    backend.sync_all()
    seen = count_barriers(backend, monkeypatch)
    launch(a, b, dst, 1.0)
    backend.queue.copy(dst, 0, src, 0, 4 * n)
    assert len(seen) == 1  # dst was written
    launch(a, b, src, 1.0)
    assert len(seen) == 2  # src was read
    assert (get(backend, dst) == 2).all()
    assert (get(backend, src) == 1).all()


def test_submission_waits_for_64_commands_or_for_somebody(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, r = (put(backend, np.ones(64, np.float32)) for _ in range(3))
    backend.sync_all()
    counted: list[int] = []
    real = backend.queue._vk_submit
    monkeypatch.setattr(backend.queue, "_vk_submit", lambda *args: (counted.append(1), real(*args))[1])
    for _ in range(63):
        launch(a, b, r, 1.0)
    assert counted == []
    launch(a, b, r, 1.0)
    assert len(counted) == 1
    launch(a, b, r, 1.0)
    assert (get(backend, r) == 2).all()
    assert len(counted) == 2
    backend.sync_all()
    assert len(counted) == 2  # nothing was left to submit


def test_thousands_of_launches_reuse_the_ring(backend: VulkanBackend, launch: Launch) -> None:
    count = 2000  # 8 command buffers of 64, four times over
    n = 64
    ones, total = put(backend, np.ones(n, np.float32)), put(backend, np.zeros(n, np.float32))
    for i in range(count):
        launch(ones, total, total, float(i % 7))
    assert (get(backend, total) == sum(i % 7 for i in range(count))).all()


def test_long_argument_blocks_fill_the_ring_early(backend: VulkanBackend, spirv: bytes) -> None:
    kernel = load(backend, spirv)
    n = 64
    one, total = put(backend, np.ones(n, np.float32)), put(backend, np.zeros(n, np.float32))
    for i in range(60):
        args = struct.pack("<IfQQQ", n, float(i), one.address, total.address, total.address)
        backend.queue.launch(kernel, (1, 1, 1), args + bytes(700_000), (one, total, total))
    assert (get(backend, total) == sum(range(60))).all()


def test_threads_share_a_backend(backend: VulkanBackend, launch: Launch) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            n = 256
            x = np.full(n, seed, np.float32)
            a, total = put(backend, x), put(backend, np.zeros(n, np.float32))
            for i in range(150):
                launch(a, total, total, 1.0)
                if i % 50 == 0:
                    backend.sync_all()
            assert (get(backend, total) == 150 * seed).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []

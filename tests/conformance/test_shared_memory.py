"""Memory that host and kernels both address: what either sees of the other's writes, and when a block is used again.

On a backend whose kernels work on host arrays in place there is nothing to test but that it offers none.
"""

from __future__ import annotations

import gc
import struct
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Backend, Buffer, SharedBuffer
from slangpy_rt.backends.extras import MappedMemory
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.sessions import new_session
from tests.depth import every_device, fixture_needs

pytestmark = every_device

# r = a * factor + b over n floats, after `rounds` steps that change nothing: 1 * 0.5 + 0.5 is 1.
_TEXT = """
struct Call { uint n; float factor; uint rounds; float one; POINTER a; POINTER b; POINTER r; }
[shader("compute")] [numthreads(64, 1, 1)]
void kernel(uint3 t : SV_DispatchThreadID, PARAMETER)
{
    float one = call.one;
    for (uint i = 0; i < call.rounds; ++i)
        one = one * 0.5 + 0.5;
    if (t.x < call.n)
        call.r[t.x] = call.a[t.x] * call.factor * one + call.b[t.x];
}
"""
_FETCH = "Call call = _spy_fetch<Call>(_spy_block);"
_SLOW = 300_000  # rounds: some milliseconds on a GPU, on which the host's writes below take microseconds

Floats = npt.NDArray[np.float32]
Launch = Callable[..., None]


@pytest.fixture
@fixture_needs("shared memory")
def backend(device: spy.Device) -> Backend:
    """One that has shared memory."""
    backend = device.backend
    assert isinstance(backend, MappedMemory)
    return backend


@pytest.fixture(scope="module")
@fixture_needs("shared memory")
def launch(device: spy.Device) -> Launch:
    """``launch(a, b, r, n, factor=1, rounds=0)``."""
    backend = device.backend
    if not isinstance(backend, MappedMemory):
        # A fixture of a module is made before the case's own needs are looked at.
        pytest.skip(f"{device.name} has no shared memory")
    entry = backend.target.entry
    if entry == "handle":
        text = _TEXT.replace("POINTER", "_spy_Address<float>").replace("{\n    float", f"{{\n    {_FETCH}\n    float")
        text = f"import _spy_handles;{text}".replace("PARAMETER", "ConstantBuffer<_spy_BlockAt> _spy_block")
    else:
        parameter = "uniform Call* call" if entry == "pointer" else "uniform Call call"
        text = _TEXT.replace("POINTER", "float*").replace("PARAMETER", parameter)
    code = new_session(backend.target, (shader_directory(),), ()).compile(text, "shared_memory_test", "kernel").code
    info = KernelInfo("kernel", (64, 1, 1), 40, (False, False, True))
    kernel = backend.load(backend.compile(code, "kernel"), info)

    def run(a: Buffer, b: Buffer, r: Buffer, n: int, factor: float = 1.0, rounds: int = 0) -> None:
        args = struct.pack("<IfIfQQQ", n, factor, rounds, 1.0, a.address, b.address, r.address)
        backend.queue.launch(kernel, (-(-n // 64), 1, 1), args, (a, b, r))

    return run


def shared(backend: Backend, data: npt.ArrayLike | int) -> SharedBuffer:
    """A block with these floats in it, or of that many."""
    values = np.full(data, np.nan, np.float32) if isinstance(data, int) else np.asarray(data, np.float32)
    buffer = backend.alloc_shared(values.nbytes)
    assert buffer is not None
    floats(buffer, values.size)[:] = values
    return buffer


def floats(buffer: SharedBuffer, n: int) -> Floats:
    return np.frombuffer(buffer.view, np.float32, n)


def put(backend: Backend, values: npt.ArrayLike) -> Buffer:
    """Floats in device memory."""
    data = np.asarray(values, np.float32)
    buffer = backend.alloc(data.nbytes)
    backend.upload(buffer, 0, data.data)
    return buffer


def get(backend: Backend, buffer: Buffer, n: int) -> Floats:
    data = np.full(n, np.nan, np.float32)
    backend.download(buffer, 0, data.data)
    return data


def on_threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(k)`` on threads; fail with what it raises, or when it hangs."""
    errors: list[BaseException] = []

    def guarded(k: int) -> None:
        try:
            work(k)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 1024, 1025, 50_000, 1 << 18])
def test_kernels_read_and_write_it(backend: Backend, launch: Launch, n: int) -> None:
    x, y = np.arange(n, dtype=np.float32), np.arange(n, dtype=np.float32)[::-1] / 4
    a, b, r = shared(backend, x), shared(backend, y), shared(backend, n)
    launch(a, b, r, n, 2.0)
    backend.sync_all()
    np.testing.assert_array_equal(floats(r, n), 2 * x + y)
    np.testing.assert_array_equal(floats(a, n), x)


def test_a_view_is_all_of_its_bytes(backend: Backend) -> None:
    for nbytes in (1, 255, 256, 257, 4000, 1 << 16):
        buffer = backend.alloc_shared(nbytes)
        assert buffer is not None
        assert nbytes <= buffer.nbytes == buffer.view.nbytes
        assert buffer.address % 256 == 0
        assert not buffer.view.readonly and buffer.view.contiguous
        assert np.frombuffer(buffer.view, np.uint8).flags.writeable


def test_every_launch_sees_what_was_written_before_it(backend: Backend, launch: Launch) -> None:
    a, b, r = shared(backend, [0] * 100), shared(backend, [0] * 100), shared(backend, 100)
    for i in range(300):
        floats(a, 100)[:] = i
        floats(b, 100)[:] = np.arange(100)
        launch(a, b, r, 100, 3.0)
        backend.sync_all()
        np.testing.assert_array_equal(floats(r, 100), 3 * i + np.arange(100))


def test_launches_that_depend_on_each_other_take_effect_in_order(backend: Backend, launch: Launch) -> None:
    n = 1 << 14
    one, x, y = shared(backend, np.ones(n)), shared(backend, np.ones(n)), shared(backend, n)
    expected = np.float32(1)
    for i in range(50):
        launch(x, one, y, n, 0.5 + i % 2)
        launch(y, one, x, n, 0.5)
        expected = np.float32((expected * np.float32(0.5 + i % 2) + 1) * np.float32(0.5) + 1)
    backend.sync_all()
    np.testing.assert_allclose(floats(x, n), expected, rtol=1e-6)


def test_copy_commands_take_it_like_any_buffer(backend: Backend, launch: Launch) -> None:
    for n in (100, 200_000):
        a, b = shared(backend, n), put(backend, np.arange(n))
        launch(b, b, a, n)
        np.testing.assert_array_equal(get(backend, a, n), 2 * np.arange(n, dtype=np.float32))
        sent = np.arange(n, dtype=np.float32) + 5
        backend.upload(a, 0, sent.data)
        launch(a, a, b, n)
        np.testing.assert_array_equal(get(backend, b, n), 2 * sent)
        np.testing.assert_array_equal(floats(a, n), sent)


def test_a_freed_block_is_not_written_before_queued_work_has_read_it(backend: Backend, launch: Launch) -> None:
    n = 1000
    zero = put(backend, np.zeros(n))
    results = [put(backend, np.zeros(n)) for _ in range(20)]
    backend.sync_all()
    block = shared(backend, np.arange(n))
    launch(zero, zero, zero, n, rounds=_SLOW)
    for i, result in enumerate(results):
        launch(block, zero, result, n, float(i))
    del block
    taken = [shared(backend, np.full(n, -1)) for _ in range(20)]
    for i, result in enumerate(results):
        np.testing.assert_array_equal(get(backend, result, n), i * np.arange(n, dtype=np.float32))
    del taken


def test_a_freed_result_is_not_handed_out_while_it_is_being_written(backend: Backend, launch: Launch) -> None:
    n = 1000
    zero, one = put(backend, np.zeros(n)), put(backend, np.ones(n))
    backend.sync_all()
    block = shared(backend, n)
    launch(zero, zero, zero, n, rounds=_SLOW)
    launch(one, one, block, n, rounds=_SLOW)
    del block
    taken = [shared(backend, np.full(n, -1)) for _ in range(20)]
    backend.sync_all()
    for buffer in taken:
        assert (floats(buffer, n) == -1).all()


def test_a_wait_of_another_thread_releases_only_what_was_freed_before_it(backend: Backend, launch: Launch) -> None:
    n = 1000
    zero, result = put(backend, np.zeros(n)), put(backend, np.zeros(n))
    backend.sync_all()
    block = shared(backend, np.arange(n))
    launch(zero, zero, zero, n, rounds=_SLOW)
    waiter = threading.Thread(target=backend.sync_all)
    waiter.start()
    time.sleep(0.001)  # so that the wait has most likely begun; if not, the test asks less
    launch(zero, zero, zero, n, rounds=_SLOW)
    launch(block, zero, result, n)
    del block
    waiter.join()
    taken = [shared(backend, np.full(n, -1)) for _ in range(20)]
    np.testing.assert_array_equal(get(backend, result, n), np.arange(n, dtype=np.float32))
    del taken


def test_blocks_in_an_endless_stream_of_launches_are_used_again(backend: Backend, launch: Launch) -> None:
    n = 1000
    total = put(backend, np.zeros(n))
    addresses = set()
    for i in range(3000):
        block = shared(backend, np.full(n, i))
        addresses.add(block.address)
        launch(total, block, total, n)
    # 3000 * 2999 / 2 is less than 2**24, so that every sum is exact.
    assert (get(backend, total, n) == sum(range(3000))).all()
    assert len(addresses) <= 300


def test_blocks_in_use_stay_apart_and_their_number_is_bounded(backend: Backend) -> None:
    nbytes = 300_000
    live: list[SharedBuffer] = []
    while (buffer := backend.alloc_shared(nbytes)) is not None:
        live.append(buffer)
        buffer.view[:4] = struct.pack("<I", len(live))
        assert len(live) < 1000
    assert len(live) >= 3
    spans = sorted((b.address, b.address + b.nbytes) for b in live)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert [struct.unpack("<I", b.view[:4])[0] for b in live] == list(range(1, len(live) + 1))
    # Other sizes are not affected, and what comes back serves again.
    assert backend.alloc_shared(1000) is not None
    del buffer
    live.clear()
    assert backend.alloc_shared(nbytes) is not None


def test_too_much_is_left_to_ordinary_memory(backend: Backend) -> None:
    assert backend.alloc_shared(1 << 40) is None


def test_threads(backend: Backend, launch: Launch) -> None:
    def work(seed: int) -> None:
        n = 900 + seed
        for i in range(150):
            x = np.arange(n, dtype=np.float32) + 1000 * seed + i
            a, b, r = shared(backend, x), shared(backend, np.full(n, seed)), shared(backend, n)
            launch(a, b, r, n, 2.0)
            if i % 3 == 0:
                continue  # freed while queued
            backend.sync_all()
            np.testing.assert_array_equal(floats(r, n), 2 * x + seed)

    on_threads(6, work)


def test_garbage_collection_may_free_anywhere(backend: Backend, launch: Launch) -> None:
    class Knot:
        """Keeps itself and a buffer alive until a collection."""

        def __init__(self, buffer: SharedBuffer) -> None:
            self.buffer = buffer
            self.knot = self

    def work(seed: int) -> None:
        n = 500
        for i in range(200):
            a, r = shared(backend, np.full(n, seed + i)), shared(backend, n)
            launch(a, a, r, n)
            backend.sync_all()
            assert (floats(r, n) == 2 * (seed + i)).all()
            Knot(a)
            Knot(r)

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        on_threads(3, work)
    finally:
        gc.set_threshold(*before)


def test_freeing_waits_for_no_lock(backend: Backend) -> None:
    # As when a collection runs inside a method that holds the backend's lock.
    holder = next((x for x in (backend, getattr(backend, "_memory", None)) if hasattr(x, "_lock")), None)
    assert holder is not None, "a backend without a lock: leave this test out for it"
    lock = holder._lock
    buffers = [shared(backend, 100)]

    def work(_: int) -> None:
        with lock:
            buffers.clear()

    on_threads(1, work)


@pytest.fixture
def closed(device: spy.Device, backend: Backend) -> Iterator[tuple[Backend, SharedBuffer]]:
    """Another backend of the same kind, closed while a block was in use."""
    other = spy.Device(device.name)
    block = shared(other.backend, [1.0])
    other.close()
    yield other.backend, block


def test_a_block_may_outlive_its_backend(closed: tuple[Backend, SharedBuffer]) -> None:
    backend, block = closed
    with pytest.raises(spy.DeviceError, match=r"(the|this) device is closed"):
        backend.alloc_shared(4)
    block.chunk.give()
    with pytest.raises(spy.DeviceError, match=r"(the|this) device is closed"):
        backend.alloc_shared(4)

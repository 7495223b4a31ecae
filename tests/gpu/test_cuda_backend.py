"""The CUDA backend on a device: memory, copies, launches, threads and errors. Skipped where there is none."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver
from slangpy_rt.backends.cuda.kernel import CudaKernel
from slangpy_rt.backends.cuda.staging import CHUNK, INLINE, SLOTS
from slangpy_rt.core.errors import CompileError, DeviceError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import KernelInfo

if REASON := CudaBackend.why_unavailable():
    pytest.skip(f"cuda: {REASON}", allow_module_level=True)

CODE = b"""
struct Call { unsigned n; float* a; float* b; float* r; };
extern "C" __global__ void kernel(Call call) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < call.n) call.r[i] = call.a[i] + call.b[i];
}
"""
INFO = KernelInfo("kernel", (256, 1, 1), 32, (False, False, True))
CALL = struct.Struct("<I4xQQQ")


@pytest.fixture(scope="module")
def cuda() -> Iterator[CudaBackend]:
    backend = CudaBackend()
    yield backend
    backend.close()


@pytest.fixture(scope="module")
def binary(cuda: CudaBackend) -> bytes:
    return cuda.compile(CODE, "kernel")


@pytest.fixture
def kernel(cuda: CudaBackend, binary: bytes) -> CudaKernel:
    loaded = cuda.load(binary, INFO)
    assert isinstance(loaded, CudaKernel)
    return loaded


def put(cuda: CudaBackend, array: np.ndarray, offset: int = 0) -> Buffer:
    buffer = cuda.alloc(offset + array.nbytes)
    cuda.upload(buffer, offset, memoryview(array))
    return buffer


def get(cuda: CudaBackend, buffer: Buffer, count: int, offset: int = 0) -> np.ndarray:
    out = np.empty(count, np.float32)
    cuda.download(buffer, offset, memoryview(out))
    return out


def add(cuda: CudaBackend, kernel: CudaKernel, n: int, a: Buffer, b: Buffer, r: Buffer) -> None:
    args = CALL.pack(n, a.address, b.address, r.address)
    cuda.queue.launch(kernel, (-(-n // 256), 1, 1), args, (a, b, r))


def pattern(nbytes: int) -> np.ndarray:
    """Bytes whose period (251) no power of two divides, so that a misplaced chunk shows."""
    return np.resize(np.arange(251, dtype=np.uint8), nbytes)


def test_description_names_the_device(cuda: CudaBackend) -> None:
    assert "compute capability" in cuda.description
    assert "GiB" in cuda.description
    assert cuda.target.format == "cuda"
    assert cuda.target.entry == "value"


def test_a_freed_block_is_used_again(cuda: CudaBackend) -> None:
    for nbytes in (1, 512, 100_000, 5 << 20):
        buffer = cuda.alloc(nbytes)
        address = buffer.address
        assert address % 256 == 0
        assert buffer.nbytes >= nbytes
        del buffer
        assert cuda.alloc(nbytes).address == address


def test_live_blocks_do_not_overlap(cuda: CudaBackend) -> None:
    buffers = [cuda.alloc(n) for n in (1, 700, 512, 1 << 20, (1 << 20) + 1, 3, 9 << 20, 1 << 20)] + [
        cuda.alloc(300_000) for _ in range(60)
    ]
    spans = sorted((b.address, b.address + b.nbytes) for b in buffers)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    "nbytes",
    [
        *(1, 3, 4096, 65_537, INLINE - 1, INLINE, INLINE + 1),
        *(CHUNK, CHUNK + 1, 3 * CHUNK - 7, SLOTS * CHUNK, (SLOTS + 1) * CHUNK + 13, 256 << 20),
    ],
)
@pytest.mark.parametrize("offset", [0, 1, 4099])
def test_bytes_come_back(cuda: CudaBackend, nbytes: int, offset: int) -> None:
    sent = pattern(nbytes)
    buffer = put(cuda, sent, offset)
    received = np.zeros(nbytes, np.uint8)
    cuda.download(buffer, offset, memoryview(received))
    assert np.array_equal(received, sent)


def test_an_upload_touches_nothing_else(cuda: CudaBackend) -> None:
    buffer = put(cuda, np.zeros(1000, np.uint8))
    cuda.upload(buffer, 101, memoryview(b"\xff" * 7))
    received = np.empty(1000, np.uint8)
    cuda.download(buffer, 0, memoryview(received))
    assert received.sum() == 7 * 255
    assert received[101:108].min() == 255


@pytest.mark.parametrize("nbytes", [1, 3, 4096, 65_537, (40 << 20) + 1, 5 << 30])
@pytest.mark.parametrize("offset", [0, 1, 4099])
def test_a_clear_touches_nothing_else(cuda: CudaBackend, nbytes: int, offset: int) -> None:
    sent = pattern(nbytes + offset + 9) | 1
    buffer = put(cuda, sent)
    cuda.clear(buffer, offset, nbytes)
    received = np.empty_like(sent)
    cuda.download(buffer, 0, memoryview(received))
    assert not received[offset : offset + nbytes].any()
    assert np.array_equal(received[:offset], sent[:offset])
    assert np.array_equal(received[offset + nbytes :], sent[offset + nbytes :])


def test_a_clear_behind_slow_work_takes_effect_after_it(cuda: CudaBackend, kernel: CudaKernel) -> None:
    n = 4 << 20
    a, r = put(cuda, np.ones(n, np.float32)), put(cuda, np.zeros(n, np.float32))
    for _ in range(200):
        add(cuda, kernel, n, a, r, r)
    cuda.clear(r, 0, 4 * n)
    add(cuda, kernel, n, a, r, r)
    assert (get(cuda, r, n) == 1).all()


@pytest.mark.parametrize("nbytes", [1000, 40 << 20])
def test_the_source_may_change_after_an_upload(cuda: CudaBackend, nbytes: int) -> None:
    sent = pattern(nbytes)
    expected = sent.copy()
    buffer = put(cuda, sent)
    sent[:] = 0
    received = np.empty(nbytes, np.uint8)
    cuda.download(buffer, 0, memoryview(received))
    assert np.array_equal(received, expected)


def test_many_small_uploads_stay_apart(cuda: CudaBackend) -> None:
    # 3000 uploads of 60 KB go more than five times round the ring.
    buffers = [cuda.alloc(60_000) for _ in range(50)]
    for i in range(3000):
        cuda.upload(buffers[i % 50], 0, memoryview(np.full(15_000, i, np.float32)))
        if i % 500 == 0:
            put(cuda, pattern(5 * CHUNK + 1))
    for i in range(2950, 3000):
        assert (get(cuda, buffers[i % 50], 15_000) == i).all()


def test_uploads_behind_slow_work_stay_apart(cuda: CudaBackend, kernel: CudaKernel) -> None:
    n = 1 << 24
    x = put(cuda, np.zeros(n, np.float32))
    for _ in range(250):  # 12 ms of work, in which these uploads go round the ring
        add(cuda, kernel, n, x, x, x)
    count = INLINE // 4
    buffers = [put(cuda, np.full(count, i, np.float32)) for i in range(100)]
    for i, buffer in enumerate(buffers):
        assert (get(cuda, buffer, count) == i).all()


def test_read_only_and_shaped_sources(cuda: CudaBackend) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    array.flags.writeable = False
    assert np.array_equal(get(cuda, put(cuda, array), 12), array.ravel())


@pytest.mark.parametrize("n", [1, 255, 1000, 1 << 24])
def test_add(cuda: CudaBackend, kernel: CudaKernel, n: int) -> None:
    rng = np.random.default_rng(n)
    x, y = rng.random(n, np.float32), rng.random(n, np.float32)
    a, b, r = put(cuda, x), put(cuda, y), cuda.alloc(4 * n)
    add(cuda, kernel, n, a, b, r)
    assert np.array_equal(get(cuda, r, n), x + y)


def test_ten_thousand_dependent_launches(cuda: CudaBackend, kernel: CudaKernel) -> None:
    one, total = put(cuda, np.ones(1000, np.float32)), put(cuda, np.zeros(1000, np.float32))
    for _ in range(10_000):
        add(cuda, kernel, 1000, total, one, total)
    assert (get(cuda, total, 1000) == 10_000).all()


def test_freed_memory_is_safe_while_work_is_queued(cuda: CudaBackend, kernel: CudaKernel) -> None:
    n = 1 << 20
    one = put(cuda, np.ones(n, np.float32))
    total = put(cuda, np.zeros(n, np.float32))
    for _ in range(200):
        # Each result takes the block that the result before last gave back.
        result = cuda.alloc(4 * n)
        add(cuda, kernel, n, total, one, result)
        total = result
    assert (get(cuda, total, n) == 200).all()


def test_threads(cuda: CudaBackend, kernel: CudaKernel) -> None:
    failures: list[object] = []

    def work(seed: int) -> None:
        try:
            for i in range(100):
                n = 1000 + seed if i % 25 else (3 << 20) + seed
                x = np.full(n, seed, np.float32)
                a, r = put(cuda, x), cuda.alloc(4 * n)
                add(cuda, kernel, n, a, a, r)
                if not (get(cuda, r, n) == 2 * seed).all():
                    failures.append((seed, i))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_threads_first_call_may_be_a_launch(cuda: CudaBackend, kernel: CudaKernel) -> None:
    a, r = put(cuda, np.ones(10, np.float32)), put(cuda, np.zeros(10, np.float32))
    thread = threading.Thread(target=add, args=(cuda, kernel, 10, a, a, r))
    thread.start()
    thread.join()
    assert (get(cuda, r, 10) == 2).all()


def test_a_threads_first_call_may_be_a_clear(cuda: CudaBackend) -> None:
    r = put(cuda, np.ones(10, np.float32))
    thread = threading.Thread(target=cuda.clear, args=(r, 0, 20))
    thread.start()
    thread.join()
    assert get(cuda, r, 10).tolist() == [0] * 5 + [1] * 5


def test_a_threads_first_call_may_ask_for_shared_memory(binary: bytes) -> None:
    backend = CudaBackend()
    loaded = backend.load(binary, INFO)
    assert isinstance(loaded, CudaKernel)
    sums: list[float] = []

    def work() -> None:
        a, r = backend.alloc_shared(40), backend.alloc_shared(40)
        assert a is not None and r is not None
        np.frombuffer(a.view, np.float32, 10)[:] = 3
        add(backend, loaded, 10, a, a, r)
        backend.sync_all()
        sums.extend(np.frombuffer(r.view, np.float32, 10).tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert sums == [6.0] * 10
    backend.close()


def test_out_of_memory_leaves_the_device_usable(cuda: CudaBackend, kernel: CudaKernel) -> None:
    with pytest.raises(OutOfMemoryError, match=r"1,099,511,627,776 bytes .* bytes are free"):
        cuda.alloc(1 << 40)
    a, r = put(cuda, np.ones(10, np.float32)), cuda.alloc(40)
    add(cuda, kernel, 10, a, a, r)
    assert (get(cuda, r, 10) == 2).all()


def test_cached_memory_is_given_back_when_it_is_needed() -> None:
    backend = CudaBackend()
    backend._enter()
    free, total = FFI_CUDA.new("size_t *"), FFI_CUDA.new("size_t *")
    check(driver().cuMemGetInfo_v2(free, total), "asking for free memory")
    most = int(free[0] * 0.6)
    try:
        first = backend.alloc(most)
        del first
        # Another size class, and both do not fit: the first block must be released, not kept.
        assert backend.alloc(most + (4 << 20)).nbytes > most
    finally:
        backend.close()


def test_a_refused_launch_names_the_kernel(cuda: CudaBackend, binary: bytes) -> None:
    # CUDA's limit of the second dimension of a grid is 65,535 groups.
    with pytest.raises(DeviceError, match=r"launching kernel over \(1, 65536, 1\) groups failed: CUDA_"):
        cuda.queue.launch(cuda.load(binary, INFO), (1, 65536, 1), CALL.pack(0, 0, 0, 0), ())


def test_a_group_that_is_too_large_is_refused_at_load(cuda: CudaBackend, binary: bytes) -> None:
    info = KernelInfo("kernel", (2048, 1, 1), 32, (False, False, True))
    with pytest.raises(UnsupportedError, match="a thread group has 2048 threads, at most 1024"):
        cuda.load(binary, info)


def test_a_missing_entry_names_the_kernel(cuda: CudaBackend, binary: bytes) -> None:
    with pytest.raises(DeviceError, match="loading kernel 'absent' failed: CUDA_ERROR_NOT_FOUND"):
        cuda.load(binary, KernelInfo("absent", (1, 1, 1), 0, ()))


def test_compile_errors_carry_the_log(cuda: CudaBackend) -> None:
    with pytest.raises(CompileError, match='identifier "nonsense" is undefined'):
        cuda.compile(b'extern "C" __global__ void kernel() { nonsense(); }', "kernel")


def test_toolchain_names_compiler_and_architecture(cuda: CudaBackend) -> None:
    assert cuda.toolchain().startswith("nvrtc ")
    assert cuda.toolchain() == cuda.toolchain()
    assert " sm_" in cuda.toolchain()


def test_debug_waits_for_each_launch(binary: bytes) -> None:
    backend = CudaBackend(debug=True)
    loaded = backend.load(binary, INFO)
    assert isinstance(loaded, CudaKernel)
    a, r = put(backend, np.ones(10, np.float32)), backend.alloc(40)
    add(backend, loaded, 10, a, a, r)
    assert (get(backend, r, 10) == 2).all()
    backend.close()


def test_a_kernel_that_reads_a_bad_address_loses_the_device(binary: bytes) -> None:
    # In a process of its own, because the error stays with the process.
    code = """
import sys
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.core.errors import DeviceLostError
backend = CudaBackend(debug=True)
kernel = backend.load(sys.stdin.buffer.read(), KernelInfo("kernel", (256, 1, 1), 32, (False, False, True)))
try:
    backend.queue.launch(kernel, (1, 1, 1), b"\\x0a" + bytes(31), ())
except DeviceLostError as error:
    print(error)
backend.close()
"""
    result = subprocess.run([sys.executable, "-c", code], input=binary, capture_output=True, timeout=100)
    assert b"kernel over (1, 1, 1) groups failed: CUDA_ERROR_ILLEGAL_ADDRESS (700)" in result.stdout
    assert result.returncode == 0


def test_there_is_no_device_99() -> None:
    with pytest.raises(UnsupportedError, match="there is no device 99; this machine has 0 to"):
        CudaBackend(99)


def test_closing_twice_and_freeing_afterwards() -> None:
    backend = CudaBackend()
    small, large = put(backend, pattern(100)), put(backend, pattern(40 << 20))
    backend.close()
    backend.close()
    del small, large
    with pytest.raises(DeviceError, match="this device is closed; open a new one"):
        backend.alloc(100)


def test_two_devices_open_share_the_gpu(binary: bytes) -> None:
    first, second = CudaBackend(), CudaBackend()
    data = pattern(1000)
    a, b = put(first, data), put(second, data)
    first.close()
    received = np.empty(1000, np.uint8)
    second.download(b, 0, memoryview(received))
    assert np.array_equal(received, data)
    second.close()
    del a, b

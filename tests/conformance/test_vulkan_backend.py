"""The Vulkan backend by itself: memory, order, deferred submission, transfers, failures.

What holds for every backend is tested elsewhere. Each test runs three times where it matters: as users get
the backend, under the validation layer, and with transfers staged as on a discrete GPU.
"""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np
import pytest

from slangpy_rt.backends.vulkan.backend import VulkanBackend
from slangpy_rt.backends.vulkan.device import STAGED
from slangpy_rt.backends.vulkan.kernel import VulkanKernel
from slangpy_rt.backends.vulkan.memory import VulkanBuffer
from slangpy_rt.core.errors import DeviceError, DeviceLostError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.target import KernelInfo, Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.session import Session

_FAULT = VulkanBackend.why_unavailable()
needs_vulkan = pytest.mark.skipif(_FAULT is not None, reason=str(_FAULT))

# r = a * factor + b over n floats: order matters, so a lost barrier shows.
_TEXT = """
struct Call { uint n; float factor; float* a; float* b; float* r; }
[shader("compute")] [numthreads(64, 1, 1)]
void kernel(uint3 t : SV_DispatchThreadID, uniform Call* call)
{
    if (t.x < call.n)
        call.r[t.x] = call.a[t.x] * call.factor + call.b[t.x];
}
"""
# The layer of Debian 12 is older than Slang's entry in SPIR-V's list of source languages.
_OLD_LAYER = "Invalid source language operand: 11"

Launch = Callable[[VulkanBuffer, VulkanBuffer, VulkanBuffer, float], None]


class StagedBackend(VulkanBackend):
    """Never maps device memory, so all transfers are staged."""

    memory = STAGED


@pytest.fixture(scope="module")
def spirv() -> bytes:
    """The kernel as Slang emits it."""
    session = Session(Library(), Target("spirv", "spirv_1_5", "pointer"))
    return session.compile(_TEXT, "vulkan_backend_test", "kernel").code


@pytest.fixture(params=["plain", "debug", "staged"])
def backend(request: pytest.FixtureRequest) -> Iterator[VulkanBackend]:
    """An open backend; at the end the validation layer must have been content."""
    if _FAULT is not None:
        pytest.skip(_FAULT)
    kind = StagedBackend if request.param == "staged" else VulkanBackend
    opened = kind(debug=request.param != "plain")
    yield opened
    opened.close()
    assert [text for text in opened.messages if _OLD_LAYER not in text] == []


@pytest.fixture
def launch(backend: VulkanBackend, spirv: bytes) -> Launch:
    """``launch(a, b, r, factor)`` over all of ``r``."""
    kernel = load(backend, spirv)

    def run(a: VulkanBuffer, b: VulkanBuffer, r: VulkanBuffer, factor: float) -> None:
        n = r.nbytes // 4
        args = struct.pack("<IfQQQ", n, factor, a.address, b.address, r.address)
        backend.queue.launch(kernel, (-(-n // 64), 1, 1), args, (a, b, r))

    return run


def load(backend: VulkanBackend, code: bytes) -> VulkanKernel:
    return backend.load(backend.compile(code, "kernel"), KernelInfo("kernel", (64, 1, 1), 32, (False, False, True)))


def put(backend: VulkanBackend, data: np.ndarray) -> VulkanBuffer:
    buffer = backend.alloc(data.nbytes)
    backend.upload(buffer, 0, memoryview(data))
    return buffer


def get(backend: VulkanBackend, buffer: VulkanBuffer) -> np.ndarray:
    data = np.full(buffer.nbytes // 4, np.nan, np.float32)
    backend.download(buffer, 0, memoryview(data))
    return data


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


def count_barriers(backend: VulkanBackend, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one with each barrier from now on."""
    seen: list[int] = []
    real = backend.queue._cmd_barrier
    monkeypatch.setattr(backend.queue, "_cmd_barrier", lambda *args: (seen.append(1), real(*args)))
    return seen


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
    live: list[VulkanBuffer] = []
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


def test_closing_twice_and_using_it_afterwards(backend: VulkanBackend, spirv: bytes, launch: Launch) -> None:
    a = put(backend, np.ones(64, np.float32))
    kernel = load(backend, spirv)
    launch(a, a, a, 1.0)  # still queued at close
    backend.close()
    backend.close()
    assert not backend._release.alive
    attempts: list[Callable[[], object]] = [
        lambda: backend.alloc(4),
        lambda: backend.upload(a, 0, memoryview(b"1234")),
        lambda: backend.download(a, 0, memoryview(bytearray(4))),
        lambda: backend.queue.launch(kernel, (1, 1, 1), bytes(32), (a, a, a)),
        lambda: load(backend, spirv),
        backend.sync_all,
    ]
    for attempt in attempts:
        with pytest.raises(DeviceError, match="vulkan: the device is closed; open a new one"):
            attempt()


@needs_vulkan
def test_a_dropped_backend_releases_its_device() -> None:
    backend = VulkanBackend()
    put(backend, np.ones(64, np.float32))
    release = backend._release
    del backend
    gc.collect()
    # By another thread.
    release.wait()
    assert not release.alive


@needs_vulkan
def test_an_exit_without_close_is_clean() -> None:
    code = (
        "from slangpy_rt.backends.vulkan.backend import VulkanBackend\n"
        "b = VulkanBackend(); x = b.alloc(100000); b.upload(x, 0, memoryview(bytes(100000)))\n"
        "b.upload(x, 0, memoryview(bytes(100)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@needs_vulkan
def test_importing_it_loads_no_driver() -> None:
    code = (
        "import sys, slangpy_rt.backends.vulkan.backend\n"
        "assert not any(name.split('.')[0] == 'vulkan' for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@needs_vulkan
def test_an_index_too_high_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"vulkan: no device with index 99; \d+ found .* Pick a lower index"):
        VulkanBackend(99)


def test_too_many_arguments_are_refused(backend: VulkanBackend, spirv: bytes) -> None:
    info = KernelInfo("kernel", (64, 1, 1), (1 << 20) + 1, (False, False, True))
    with pytest.raises(UnsupportedError, match="1048577 bytes of arguments, at most 1048576"):
        backend.load(spirv, info)


@needs_vulkan
@pytest.mark.parametrize(
    ("driver_says", "error", "text"),
    [
        (
            -4,
            DeviceLostError,
            r"vulkan: submitting work failed: VK_ERROR_DEVICE_LOST \(-4\); .* open a new device",
        ),
        (-2, OutOfMemoryError, r"vulkan: submitting work failed: VK_ERROR_OUT_OF_DEVICE_MEMORY \(-2\); free"),
        (-3, DeviceError, r"vulkan: submitting work failed: VK_ERROR_INITIALIZATION_FAILED \(-3\)"),
    ],
)
def test_a_failed_submission_raises_and_leaves_a_usable_recorder(
    monkeypatch: pytest.MonkeyPatch, driver_says: int, error: type[Exception], text: str
) -> None:
    backend = VulkanBackend()
    buffer = put(backend, np.zeros(4, np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(backend.queue, "_vk_submit", lambda *args: driver_says)
        with pytest.raises(error, match=text):
            backend.sync_all()
    backend.upload(buffer, 0, memoryview(np.ones(4, np.float32)))
    assert (get(backend, buffer) == 1).all()
    backend.close()


def test_no_driver_is_one_sentence_and_an_error() -> None:
    # VK_DRIVER_FILES is the Vulkan loader's own setting: with it the loader finds no driver.
    code = (
        "from slangpy_rt.backends.vulkan.backend import VulkanBackend\n"
        "from slangpy_rt.core.errors import SlangPyRtError\n"
        "print(VulkanBackend.why_unavailable())\n"
        "try: VulkanBackend()\n"
        "except SlangPyRtError as error: print(error)"
    )
    missing = "/nowhere/driver.json"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"VK_DRIVER_FILES": missing, "VK_ICD_FILENAMES": missing, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    why, raised = done.stdout.splitlines()
    assert why == raised
    assert why.startswith("vulkan: ")
    assert "driver" in why


def test_a_missing_package_or_loader_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vulkan._vulkan", None)
    why = VulkanBackend.why_unavailable()
    assert why is not None
    assert "pip install vulkan" in why
    with pytest.raises(UnsupportedError, match="pip install vulkan"):
        VulkanBackend()

    class NoLoader:
        def find_spec(self, name: str, *rest: object) -> None:
            if name == "vulkan._vulkan":
                raise OSError("Cannot find Vulkan SDK version")

    monkeypatch.delitem(sys.modules, "vulkan._vulkan")
    monkeypatch.setattr(sys, "meta_path", [NoLoader(), *sys.meta_path])
    assert VulkanBackend.why_unavailable() == (
        "vulkan: this machine has no Vulkan loader (libvulkan); install a Vulkan driver"
    )


@needs_vulkan
def test_debug_without_the_layer_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slangpy_rt.backends.vulkan.instance._LAYER", "VK_LAYER_NOT_THERE")
    backend = VulkanBackend(debug=True)
    assert backend.description.endswith(", without the Vulkan validation layers, which are not installed")
    backend.close()


@needs_vulkan
def test_the_layer_speaks_up_when_it_should() -> None:
    backend = VulkanBackend(debug=True)
    if "without the Vulkan validation layers" in backend.description:
        backend.close()
        pytest.skip(backend.description)
    backend.queue.locked_copy(backend.queue.ring, 0, backend.queue.ring, 8, 16)  # the regions overlap
    backend.close()
    assert any("vkCmdCopyBuffer" in text for text in backend.messages)

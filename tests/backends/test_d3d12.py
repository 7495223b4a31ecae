"""The D3D12 backend without a device: tables of functions, the root signature, addresses, and what is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tools import gen_d3d12_ffi

import slangpy_rt as spy
from slangpy_rt.backends import AUTOMATIC
from slangpy_rt.backends.base import Dispatch, Kernel
from slangpy_rt.backends.d3d12 import adapters, com, device
from slangpy_rt.backends.d3d12.backend import D3D12Backend
from slangpy_rt.backends.d3d12.com import FFI
from slangpy_rt.backends.d3d12.device import DESCRIPTORS
from slangpy_rt.backends.extras import SignallingMark
from slangpy_rt.core.target import KernelInfo
from tests.backends.fake_d3d12 import FakeLibrary
from tests.depth import deep

# Bytes of structs in d3d12.h, dxgi.h and dxcapi.h on systems of 64 bits.
SIZES = {
    "D3D12_COMMAND_QUEUE_DESC": 16,
    "D3D12_DESCRIPTOR_HEAP_DESC": 16,
    "D3D12_QUERY_HEAP_DESC": 12,
    "D3D12_HEAP_PROPERTIES": 20,
    "D3D12_RESOURCE_DESC": 56,
    "D3D12_UNORDERED_ACCESS_VIEW_DESC": 40,
    "D3D12_SHADER_RESOURCE_VIEW_DESC": 40,
    "D3D12_RESOURCE_BARRIER": 32,
    "D3D12_COMPUTE_PIPELINE_STATE_DESC": 56,
    "D3D12_ROOT_PARAMETER": 32,
    "D3D12_ROOT_SIGNATURE_DESC": 40,
    "DXGI_ADAPTER_DESC1": 312,
    "DxcBuffer": 24,
    "D3D12_MESSAGE": 32,
}
BETWEEN = "between"
WRITES, READS = (True,), (False,)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    """A library that runs nothing, in the place of d3d12.dll."""
    found = FakeLibrary()
    for module in (com, device, adapters):
        monkeypatch.setattr(module, "library", lambda: found)
    monkeypatch.setattr(device, "why_missing", lambda: None)
    monkeypatch.setattr(device, "find_adapter", lambda index: (FFI.NULL, "fake", 1 << 62))
    return found


@pytest.fixture
def backend(library: FakeLibrary) -> Iterator[D3D12Backend]:
    """An open backend of that library, whose calls so far are forgotten."""
    opened = D3D12Backend()
    library.calls.clear()
    yield opened
    library.removed, library.waiting = 0, False
    opened.close()


def kernel(backend: D3D12Backend, written: tuple[bool, ...]) -> Kernel:
    """A kernel over so many buffers."""
    return backend.load(b"DXIL", KernelInfo("_spy_kernel", (32, 1, 1), 16, written))


def changes(library: FakeLibrary) -> list[Any]:
    """Commands as words: a barrier, a change of state as before and after, a copy, a dispatch."""
    found: list[Any] = []
    for _, name, args in library.calls:
        if name == "ResourceBarrier":
            found.append(BETWEEN if args[1][0] == 2 else args[1][4:6])
        elif name in ("Dispatch", "CopyBufferRegion"):
            found.append(name)
    return found


@deep
def test_regenerating_the_tables_changes_nothing() -> None:
    pytest.importorskip("ziglang")  # has the headers
    assert gen_d3d12_ffi.TARGET.read_text(encoding="utf-8") == gen_d3d12_ffi.generate(gen_d3d12_ffi.find_headers())


@pytest.mark.parametrize("name", SIZES)
def test_structs_have_the_sizes_of_the_header(name: str) -> None:
    assert FFI.sizeof(name) == SIZES[name]


def test_root_signature_and_heap(library: FakeLibrary) -> None:
    opened = D3D12Backend()
    # One parameter: two 32-bit constants in b0 of space 0; kernels index the heap.
    assert library.root == (1, 0x400, 1, 0, 0, 2)
    assert library.named("CreateDescriptorHeap")[0][1] == (0, DESCRIPTORS, 1, 0)
    # The ring of argument blocks is only read. No buffer has descriptor 0, which is at 0x1000.
    assert [call[-1] for call in library.named("CreateShaderResourceView")] == [(0x1000 + 32,)]
    buffer = opened.alloc(100)
    assert [call[-1] for call in library.named("CreateUnorderedAccessView")] == [(0x1000 + 64,)]
    assert buffer.address >> 40 == 2 and buffer.address % 256 == 0
    other = opened.alloc(100).address
    assert other >> 40 == 2 and other % 256 == 0 and other != buffer.address
    opened.close()


def test_a_launch(library: FakeLibrary, backend: D3D12Backend) -> None:
    a, b = backend.alloc(1000), backend.alloc(1000)
    work = kernel(backend, (True, False))
    library.calls.clear()
    backend.queue.launch(work, (3, 2, 1), b"x" * 16, (a, b))
    backend.queue.launch(work, (4, 1, 1), b"y" * 16, (a, b))
    backend.queue.sync()
    names = [name for _, name, _ in library.calls]
    assert names[:7] == [
        "SetPipelineState", "SetComputeRoot32BitConstants", "Dispatch", "ResourceBarrier",
        "SetComputeRoot32BitConstants", "Dispatch", "ResourceBarrier",
    ]  # fmt: skip
    assert names[7:10] == ["Close", "ExecuteCommandLists", "Signal"]
    constants = [call[3] for call in library.named("SetComputeRoot32BitConstants")]
    assert constants == [(1, 0), (1, 16)]
    assert bytes(backend.queue._bytes[0:32]) == b"x" * 16 + b"y" * 16


def test_only_conflicts_have_barriers(library: FakeLibrary, backend: D3D12Backend) -> None:
    a, b, c = (backend.alloc(1000) for _ in range(3))
    work = kernel(backend, (True, False))
    library.calls.clear()
    for pair in ((a, b), (c, b), (b, a)):
        backend.queue.launch(work, (1, 1, 1), b"", pair)
    assert changes(library) == ["Dispatch", "Dispatch", BETWEEN, "Dispatch"]
    # Of the one buffer that all arrays are parts of; once there are two, a barrier is of all.
    barriers = library.named("ResourceBarrier")
    assert barriers[-1][2][2] == int(FFI.cast("uintptr_t", a.chunk.memory.handle))
    large = backend.alloc(32 << 20)
    for _ in range(2):
        backend.queue.launch(work, (1, 1, 1), b"", (large, b))
    assert library.named("ResourceBarrier")[-1][2][2] == 0


def test_copies_change_states(library: FakeLibrary, backend: D3D12Backend) -> None:
    a = backend.alloc(1000)
    # Not used in this list before: the copy itself gives it its state.
    backend.upload(a, 0, memoryview(np.arange(8, dtype="u4")))
    assert changes(library) == ["CopyBufferRegion", (0x400, 0x8)]
    library.calls.clear()
    backend.queue.launch(kernel(backend, WRITES), (1, 1, 1), b"", (a,))
    found = np.zeros(8, "u4")
    backend.download(a, 0, memoryview(found))
    assert changes(library)[:4] == ["Dispatch", (0x8, 0x800), "CopyBufferRegion", (0x800, 0x8)]
    np.testing.assert_array_equal(found, np.arange(8))


def test_a_copy_inside_of_one_buffer_has_a_third(library: FakeLibrary, backend: D3D12Backend) -> None:
    a, b = backend.alloc(256), backend.alloc(256)
    assert a.chunk.memory is b.chunk.memory
    backend.upload(a, 0, memoryview(np.arange(64, dtype="u4")))
    library.calls.clear()
    backend.queue.copy(b, 0, a, 0, 256)
    copies = library.named("CopyBufferRegion")
    assert len(copies) == 2 and all(call[1] != call[3] for call in copies)
    found = np.zeros(64, "u4")
    backend.download(b, 0, memoryview(found))
    np.testing.assert_array_equal(found, np.arange(64))


def test_kernels_write_memory_of_the_host(library: FakeLibrary, backend: D3D12Backend) -> None:
    shared = backend.alloc_shared(1000)
    assert shared is not None
    # A custom heap of cached host memory, with a view for writing; it begins in the state COMMON.
    (_, heap, _, told, state, *_), (_, _, _, view, _) = (
        library.named(name)[-1] for name in ("CreateCommittedResource", "CreateUnorderedAccessView")
    )
    assert heap[:3] == (4, 3, 1) and told[-1] == 4 and state == 0 and view[-1] == 1
    # Memory that is read back has the same heap: vkd3d-proton takes both from one buffer.
    backend.download(backend.alloc(1000), 0, memoryview(np.zeros(250, "u4")))
    _, last, _, told, state, *_ = library.named("CreateCommittedResource")[-1]
    assert last == heap and told[-1] == 0 and state == 0
    shared.write(np.arange(250, dtype="u4"))
    library.calls.clear()
    backend.queue.launch(kernel(backend, WRITES), (1, 1, 1), b"", (shared,))
    backend.sync_all()
    # No copy and no change of state: the kernel has it where the host wrote.
    assert changes(library) == ["Dispatch", BETWEEN]
    found = np.zeros(250, "u4")
    shared.read(found)
    np.testing.assert_array_equal(found, np.arange(250))


def test_zeros(backend: D3D12Backend) -> None:
    a = backend.alloc(3 << 20)
    backend.upload(a, 0, memoryview(np.full(3 << 20, 7, "u1")))
    backend.clear(a, 5, (2 << 20) + 1)
    found = np.zeros(3 << 20, "u1")
    backend.download(a, 0, memoryview(found))
    assert set(found[:5]) == {7} and not found[5 : (2 << 20) + 6].any() and set(found[(2 << 20) + 6 :]) == {7}


def test_a_list_that_runs_is_not_submitted_again(library: FakeLibrary, backend: D3D12Backend) -> None:
    a = backend.alloc(1000)
    work = kernel(backend, WRITES)
    dispatches = [Dispatch(work, (k, 1, 1), bytes([k]) * 16, (a,)) for k in (1, 2)]
    recording = backend.record(dispatches, [(), (0,)])
    library.calls.clear()
    backend.queue.replay(recording)
    backend.queue.sync()
    backend.queue.replay(recording)
    assert changes(library).count("Dispatch") == 2 and BETWEEN in changes(library)
    first, again = (call[2] for call in library.named("ExecuteCommandLists"))
    assert first == again
    library.waiting = True
    backend.queue.replay(recording)
    backend.queue.replay(recording)
    assert len(library.named("CreateCommandList")) == 2
    # Arguments change where no list runs.
    backend.update(recording, 1, dispatches[1]._replace(args=b"z" * 16))
    before = [FFI.buffer(FFI.cast("char *", take.memory.host), 32)[:] for take in recording.takes]
    assert set(before) == {b"\1" * 16 + b"\2" * 16}
    library.waiting = False
    backend.queue.sync()
    backend.queue.replay(recording)
    after = [FFI.buffer(FFI.cast("char *", take.memory.host), 32)[:] for take in recording.takes]
    assert sorted(after) == sorted([before[0], b"\1" * 16 + b"z" * 16])


def test_no_one_waits_for_a_replay_that_was_interrupted(
    library: FakeLibrary, backend: D3D12Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Dispatch(kernel(backend, WRITES), (1, 1, 1), bytes(16), (backend.alloc(1000),))
    recording = backend.record([work], [()])
    other = backend.open_queue()
    # So that values of this queue are larger than those of the other.
    for _ in range(20):
        backend.queue.replay(recording)

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(type(other), "_send", interrupted)
        backend.queue.replay(recording)
    library.waiting = True
    library.calls.clear()
    for _ in range(8):
        other.replay(recording)
    signalled = {value for _, _, value in library.named("Signal")}
    waited = {value for _, value, _ in library.named("SetEventOnCompletion")}
    assert waited and waited <= signalled


def test_replays_wait_without_the_lock(
    library: FakeLibrary, backend: D3D12Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Dispatch(kernel(backend, WRITES), (1, 1, 1), bytes(16), (backend.alloc(1000),))
    recording = backend.record([work], [()])
    library.waiting = True
    held: list[bool] = []

    def wait(value: int) -> None:
        held.append(backend._lock.locked())
        library.waiting = False
        backend.queue.native.table.Signal(backend.queue.native, backend.queue.timeline.handle, value)

    monkeypatch.setattr(backend.queue.timeline, "wait", wait)
    for _ in range(4):
        backend.queue.replay(recording)
    # As many lists as a recording may have are in flight.
    assert not held and len(recording.takes) == 4
    backend.queue.replay(recording)
    assert held == [False] and len(recording.takes) == 4 and len(library.named("ExecuteCommandLists")) == 5


def test_memory_for_cuda(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[int] = []
    monkeypatch.setattr(device, "close_handle", closed.append)
    monkeypatch.setattr(device.D3D12Device, "exports", True)
    opened = D3D12Backend()
    # 1: D3D12_FENCE_FLAG_SHARED.
    assert library.named("CreateFence")[0][2] == 1
    small, other = opened.alloc(1000), opened.alloc(1000)
    # 1: D3D12_HEAP_FLAG_SHARED, of memory for arrays alone.
    flags = {call[1][0]: call[2] for call in library.named("CreateCommittedResource")}
    assert flags == {device.DEVICE.heap: 1, device.UPLOAD.heap: 0}
    found = opened.share(small)
    assert found is not None and found[0] is opened.share(other)[0] and found[1] != opened.share(other)[1]
    shared = found[0]
    assert shared.gpu == bytes([5, 0, 0, 0, 6, 0, 0, 0]) and shared.nbytes % 0x10000 == 0 and shared.nbytes > 0
    handle = shared.open()
    # GENERIC_ALL.
    assert handle == 77 and library.named("CreateSharedHandle")[-1][3] == 0x10000000
    shared.close(handle)
    assert closed == [77]
    assert opened.share(opened.alloc_shared(1000)) is None
    # Marks of either API are waited for by the other.
    opened.queue.launch(kernel(opened, WRITES), (1, 1, 1), b"", (small,))
    fence, value = opened.queue.mark().shared()
    assert value == 1 and library.named("Signal")[-1][2] == 1 and fence is opened.queue.timeline.shared

    class Foreign(SignallingMark):
        def signal(self, semaphore: Any, value: int) -> None:
            library.calls.append(("", "signal", (semaphore, value)))

    library.calls.clear()
    opened.queue.wait(Foreign())
    opened.queue.wait(Foreign())
    order = [(name, args[-1]) for _, name, args in library.calls if name in ("signal", "Wait")]
    assert order == [("signal", 1), ("Wait", 1), ("signal", 2), ("Wait", 2)]
    opened.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has handles that CUDA can open")
def test_memory_is_for_other_apis_on_windows_alone(backend: D3D12Backend) -> None:
    assert backend.share(backend.alloc(1000)) is None


def test_a_device_that_is_removed(library: FakeLibrary, backend: D3D12Backend) -> None:
    a = backend.alloc(1000)
    backend.queue.launch(kernel(backend, WRITES), (1, 1, 1), b"", (a,))
    library.removed = 0x887A0006 - 2**32
    with pytest.raises(spy.DeviceLostError, match=r"DEVICE_REMOVED, because of DXGI_ERROR_DEVICE_HUNG; a kernel ran"):
        backend.queue.sync()
    with pytest.raises(spy.DeviceLostError, match=r"waiting for the device failed: DXGI_ERROR_DEVICE_HUNG"):
        backend.queue.timeline.wait(1)


def test_time_stamps(library: FakeLibrary, backend: D3D12Backend) -> None:
    first, second = backend.queue.mark(timed=True), backend.queue.mark(timed=True)
    second.sync()
    results = backend.queue._clock._results
    FFI.cast("uint64_t *", results.host)[0:2] = [5_000_000, 7_500_000]
    assert second.since(first) == 2.5
    assert [call[3] for call in library.named("EndQuery")] == [0, 1]


def test_what_kernels_need(library: FakeLibrary) -> None:
    for number, field, value, said in ((7, 0, 0x65, "shader model 6.5"), (0, 4, 2, "tier 2"), (8, 5, 0, "no 64-bit")):
        library.features[number][field], before = value, library.features[number][field]
        with pytest.raises(spy.UnsupportedError, match=said):
            D3D12Backend()
        library.features[number][field] = before
    opened = D3D12Backend()
    assert "atomic_int64" in opened.caps.features
    opened.close()
    library.features[0][0] = library.features[23][2] = library.features[40][0] = 0
    opened = D3D12Backend()
    assert "atomic_int64" not in opened.caps.features
    assert opened.caps.scalars == {"bool", "int", "uint", "float", "int64_t", "uint64_t"}
    opened.close()


def test_a_refused_kernel_says_what_the_device_lacks(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    # E_INVALIDARG, as D3D12 says of DXIL with instructions that the device has not.
    monkeypatch.setattr(library, "_CreateComputePipelineState", lambda *_: 0x80070057 - 2**32, raising=False)
    for has, said in ((1, "driver lacks: take"), (0, "driver lacks, such as 64-bit atomics: take")):
        library.features[40][0] = has
        opened = D3D12Backend()
        with pytest.raises(spy.CompileError, match=said):
            kernel(opened, WRITES)
        opened.close()


def test_debug_without_the_layer_is_said(library: FakeLibrary) -> None:
    opened = D3D12Backend(debug=True)
    assert "without the debug layer" in opened.description
    opened.close()


def test_adapters_of_windows(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "dxgi", lambda: library)
    monkeypatch.setattr(sys, "platform", "win32")
    library.adapter = ("Microsoft Basic Render Driver", 2)
    found, name, heap_bytes = adapters.find_adapter(0)
    assert found and name == "Microsoft Basic Render Driver (WARP, software), D3D12" and heap_bytes == 8 << 30
    with pytest.raises(spy.UnsupportedError, match="no device with index 1"):
        adapters.find_adapter(1)


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise OSError("no such file")

    monkeypatch.setattr(adapters, "CONFIG", type("Config", (), {"d3d12_lib": None}))
    monkeypatch.setattr(sys, "platform", "linux")
    assert (adapters.why_unavailable() or "").endswith("SLANGPY_RT_D3D12_LIB names a library with its functions")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(adapters, "library", absent)
    assert adapters.why_unavailable() == "the library of D3D12 cannot be loaded (no such file)"
    monkeypatch.setattr(adapters, "library", lambda: None)
    monkeypatch.setattr(adapters, "find_dxc", lambda: None)
    assert "there is no DXC" in (adapters.why_unavailable() or "")


def test_automatic_opens_it_on_windows_alone() -> None:
    assert ("d3d12" in AUTOMATIC) == (sys.platform == "win32")


def test_dxc(monkeypatch: pytest.MonkeyPatch, dxc: object) -> None:
    from slangpy_rt.backends.d3d12.dxc import compile_hlsl

    text = "[numthreads(1, 1, 1)] void main() {}"
    assert compile_hlsl(text.encode(), "main")[:4] == b"DXBC"
    with pytest.raises(spy.CompileError, match=r"(?s)DXC refused the HLSL.*error: unknown type name 'nonsense'"):
        compile_hlsl(b"nonsense x;", "main")

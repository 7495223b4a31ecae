"""Calls of the CUDA driver that fail, and calls of two threads at a time: nothing is lost or mixed up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Dispatch
from slangpy_rt.backends.cuda import kernel as kernels
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.backends.cuda.staging import Staging
from slangpy_rt.core.target import KernelInfo
from tests.cuda_driver import Driver, stand_in

REFUSED = 1  # CUDA_ERROR_INVALID_VALUE
INFO = KernelInfo("kernel", (64, 1, 1), 16, (True,))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with stand_in(monkeypatch) as fake:
        yield fake


def refuse(driver: Driver, name: str) -> Callable[[], None]:
    """Make a function of the driver fail; return a function that lets it succeed again."""
    before = getattr(driver, name)
    setattr(driver, name, lambda *args: REFUSED)
    return lambda: setattr(driver, name, before)


@pytest.mark.parametrize("refused", ["cuStreamCreate", "cuCtxSetCurrent"])
def test_a_device_that_does_not_open_gives_its_context_back(driver: Driver, refused: str) -> None:
    allow = refuse(driver, refused)
    with pytest.raises(spy.DeviceError):
        CudaBackend(1)
    allow()
    assert driver.retained == [0, 0] and driver.owner == {} and driver.current == 0


def test_a_stream_of_another_gpu_opens_no_device(driver: Driver) -> None:
    first = CudaBackend(0)
    with pytest.raises(spy.DeviceError, match="of another device"):
        CudaBackend(1, stream=first.stream)
    assert driver.retained == [1, 0] and driver.current == 0
    first.close()
    assert driver.owner == {} and driver.wrong == []


@pytest.mark.parametrize("refused", ["cuModuleGetFunction", "cuFuncGetAttribute"])
def test_a_kernel_that_does_not_load_leaves_no_module(driver: Driver, refused: str) -> None:
    backend = CudaBackend(0)
    before = dict(driver.owner)
    refuse(driver, refused)
    with pytest.raises(spy.DeviceError, match="loading kernel 'kernel'"):
        backend.load(b"code", INFO)
    assert driver.owner == before
    backend.close()
    assert driver.owner == {} and driver.wrong == []


def test_how_many_threads_run_at_once(driver: Driver) -> None:
    first, second = CudaBackend(0), CudaBackend(1)
    kernel = second.load(b"code", INFO)
    assert [second.resident_threads(kernel, n) for n in (128, 256, 384, 512)] == [384, 256, 384, 0]
    assert driver.current == 0 and driver.wrong == []
    refuse(driver, "cuOccupancyMaxActiveBlocksPerMultiprocessor")
    with pytest.raises(spy.DeviceError, match="asking how many groups of kernel run at once"):
        second.resident_threads(kernel, 256)
    first.close()
    second.close()
    with pytest.raises(spy.DeviceError, match="is closed"):
        second.resident_threads(kernel, 256)


@pytest.mark.parametrize("refused", ["cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags"])
def test_a_list_that_is_refused_leaves_no_graph(driver: Driver, refused: str) -> None:
    backend = CudaBackend(0)
    dispatch = Dispatch(backend.load(b"code", INFO), (1, 1, 1), bytes(16), (backend.alloc(100),))
    before = dict(driver.owner)
    refuse(driver, refused)
    with pytest.raises(spy.DeviceError, match=r"preparing a graph|recording kernel"):
        backend.record([dispatch], [()])
    assert driver.owner == before
    backend.close()
    assert driver.owner == {} and driver.wrong == []


def test_memory_that_is_refused_leaves_nothing(driver: Driver) -> None:
    backend = CudaBackend(0)
    before = dict(driver.owner)
    allow = refuse(driver, "cuMemHostGetDevicePointer_v2")
    with pytest.raises(spy.DeviceError, match="mapping host memory"):
        backend.alloc_shared(1000)
    assert driver.owner == before
    allow()
    assert backend.alloc_shared(1000) is not None
    backend.close()
    driver.retained = [1, 0]
    driver.cuCtxSetCurrent(1000)
    ring = Staging(1000, 1)
    refuse(driver, "cuMemHostAlloc")
    with pytest.raises(spy.DeviceError, match="page-locking"):
        ring._make_slots(1)
    assert driver.owner == {}


def test_two_threads_make_graphs(driver: Driver) -> None:
    backend = CudaBackend(0)
    other = backend.open_queue()
    dispatch = Dispatch(backend.load(b"code", INFO), (1, 1, 1), bytes(16), (backend.alloc(100),))
    for _ in range(3):
        backend.record([dispatch], [()])
    kept = [backend.record([dispatch], [()]) for _ in range(3)]
    destroy, done = driver.cuGraphExecDestroy, []

    def while_another_thread_records(handle: int) -> int:
        if not done:
            done.append(handle)
            thread = threading.Thread(target=other.record, args=([dispatch], [()]))
            thread.start()
            thread.join()
        return int(destroy(handle))

    driver.cuGraphExecDestroy = while_another_thread_records  # type: ignore[method-assign]
    kept.clear()
    backend.record([dispatch], [()])
    assert len(done) == 1
    backend.close()
    assert driver.owner == {} and driver.wrong == []


def test_two_queues_of_one_stream_keep_their_arguments(driver: Driver) -> None:
    told: dict[int, bytes] = {}
    launched: list[tuple[str, bytes]] = []
    busy: list[threading.Thread] = []

    def change(executable: int, node: int, params: Any) -> int:
        told[executable] = bytes(driver.bytes_of(params, 16))
        if told[executable] == b"a" * 16:
            # Between the change of the arguments and the launch.
            busy.append(threading.Thread(target=second.launch, args=(kernel, (1, 1, 1), b"b" * 16, (a,)), name="b"))
            busy[0].start()
            busy[0].join(0.5)
        return 0

    def launch(executable: int, stream: int) -> int:
        launched.append((threading.current_thread().name, told.get(executable, b"")))
        return 0

    driver.cuGraphExecKernelNodeSetParams_v2 = change  # type: ignore[method-assign]
    driver.cuGraphLaunch = launch  # type: ignore[method-assign]
    backend, theirs = CudaBackend(0), CudaBackend(0)
    first, second = backend.foreign_queue(theirs.stream), backend.open_stream(theirs.stream)
    kernel, a = backend.load(b"code", INFO), backend.alloc(100)
    for queue in (first, second):
        for _ in range(5):
            queue.launch(kernel, (1, 1, 1), bytes(16), (a,))
    launched.clear()
    first.launch(kernel, (1, 1, 1), b"a" * 16, (a,))
    busy[0].join()
    backend.close()
    theirs.close()
    assert sorted(launched) == sorted([(threading.current_thread().name, b"a" * 16), ("b", b"b" * 16)])


def test_a_kernel_dropped_during_the_wait_is_not_unloaded(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MANY_RETIRED", 2)
    backend = CudaBackend(0)
    running = [backend.load(b"code", INFO)]
    for _ in range(2):
        backend.load(b"code", INFO)
    unloaded: list[int] = []

    def synchronize() -> int:
        running.clear()
        return 0

    def unload(module: int) -> int:
        unloaded.append(module)
        driver.owner.pop(module)
        return 0

    driver.cuCtxSynchronize = synchronize  # type: ignore[method-assign]
    driver.cuModuleUnload = unload  # type: ignore[method-assign]
    backend.load(b"code", INFO)
    assert not running and len(unloaded) == 2
    backend.close()


def test_no_graph_is_made_while_another_library_records_one(driver: Driver) -> None:
    captures = [1]

    def capturing(stream: int, out: Any) -> int:
        out[0] = captures[0]
        return 0

    driver.cuStreamIsCapturing = capturing  # type: ignore[attr-defined]
    backend = CudaBackend(0)
    kernel = backend.load(b"code", INFO)
    backend.queue._watched = True
    driver.calls.clear()
    for _ in range(6):
        backend.queue.launch(kernel, (1, 1, 1), bytes(16), ())
    launches, graphs = driver.calls.count("cuLaunchKernel"), driver.calls.count("cuGraphCreate")
    captures[0] = 0
    for _ in range(6):
        backend.queue.launch(kernel, (1, 1, 1), bytes(16), ())
    later = driver.calls.count("cuGraphCreate")
    backend.close()
    assert (launches, graphs, later) == (6, 0, 1) and driver.wrong == []

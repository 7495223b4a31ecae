"""Which context is current in each call of the CUDA driver, of two GPUs, by a stand-in for the driver in host memory.

Each handle belongs to the context that was current when it was made, and has to be used and given back with that one
current. Whatever the thread's current context was before, as PyTorch's choice of a GPU, it is afterwards.
"""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from slangpy_rt.backends.base import Dispatch
from slangpy_rt.backends.cuda.backend import CudaBackend
from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.target import KernelInfo
from tests.cuda_driver import Driver, stand_in


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    with stand_in(monkeypatch) as fake:
        yield fake


def info(n: int) -> KernelInfo:
    return KernelInfo("kernel", (64, 1, 1), 16, (False,) * (n - 1) + (True,))


def works(backend: CudaBackend) -> list[Callable[[], object]]:
    """Everything that a device does, a step at a time."""
    kernel, other = backend.load(b"code", info(2)), backend.load(b"more", info(2))
    a, b = backend.alloc(4000), backend.alloc(3 << 20)
    host, large = np.arange(1000, dtype=np.float32), np.arange(700_000, dtype=np.float32)
    back, large_back = np.zeros_like(host), np.zeros_like(large)
    dispatch = Dispatch(kernel, (1, 1, 1), bytes(16), (a, b))
    recording = backend.record([dispatch, dispatch], [(), (0,)])
    again = backend.queue.prepare(dispatch)
    stream = backend.open_queue()
    theirs = backend.foreign_queue(0)

    def launch() -> None:
        for k in range(6):  # from the fourth on a graph is launched
            backend.queue.launch(kernel, (1, 1, 1), bytes([k] * 16), (a, b))
            stream.launch(other, (1, 1, 1), bytes([k] * 16), (a, b))
            theirs.launch(other, (1, 1, 1), bytes(16), (a, b))

    def marks() -> None:
        first, last = backend.queue.mark(timed=True), stream.mark(timed=True)
        stream.wait(first)
        last.sync()
        assert last.done
        last.since(first)

    def shared() -> None:
        block = backend.alloc_shared(1000)
        assert block is not None
        block.write(host[:250])

    def copied() -> None:
        backend.upload(a, 0, host.data)
        backend.download(a, 0, back.data)
        backend.upload(b, 0, large.data)
        backend.download(b, 0, large_back.data)
        assert (back == host).all() and (large_back == large).all()

    return [
        launch, marks, shared, copied, again, backend.sync_all, stream.sync,
        lambda: backend.queue.replay(recording), lambda: stream.replay(recording),
        lambda: backend.update(recording, 0, dispatch), lambda: backend.record([dispatch], [()]),
        lambda: backend.clear(b, 3, 5000), lambda: stream.copy(a, 0, b, 0, 100), lambda: backend.alloc(9 << 20),
        lambda: backend.load(b"third", info(2)), backend.open_queue, lambda: backend.foreign_queue(0),
    ]  # fmt: skip


@pytest.mark.parametrize("current", [0, 1000, 1001])
@pytest.mark.parametrize("in_thread", [False, True])
def test_the_current_context_stays_current(driver: Driver, current: int, in_thread: bool) -> None:
    def run() -> None:
        # Another library holds the first GPU, and the second as well once it is its current one.
        driver.retained = [1, int(current == 1001)]
        driver.cuCtxSetCurrent(current)
        backends = [CudaBackend(0), CudaBackend(1)]
        assert driver.current == current
        for backend in backends:
            steps = works(backend)
            assert driver.current == current
            for k, step in enumerate(steps):
                step()
                assert driver.current == current, k
        for backend in backends:
            backend.close()
            assert driver.current == current
            backend.close()
            with pytest.raises(DeviceError, match="closed"):
                backend.sync_all()
        assert driver.retained == [1, int(current == 1001)]

    if in_thread:
        failed: list[BaseException] = []

        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=guarded)
        thread.start()
        thread.join()
        assert not failed, failed
    else:
        run()
    gc.collect()
    assert driver.wrong == []
    assert driver.owner == {} and driver.memory == {}


def test_a_context_that_goes_does_not_stay_current(driver: Driver) -> None:
    backend = CudaBackend(1)
    driver.cuCtxSetCurrent(1001)
    backend.close()
    assert driver.current == 0 and driver.wrong == [] and driver.retained == [0, 0]


def test_graphs_that_nobody_has_go_back(driver: Driver) -> None:
    backend = CudaBackend(0)
    kernel, a = backend.load(b"code", info(1)), backend.alloc(100)
    for _ in range(50):
        backend.record([Dispatch(kernel, (1, 1, 1), bytes(16), (a,))], [()])
    assert driver.calls.count("cuGraphExecDestroy") == 49
    backend.close()
    assert driver.wrong == [] and driver.owner == {}


def test_closing_waits_for_calls_of_other_threads(driver: Driver) -> None:
    backend = CudaBackend(0)
    steps = works(backend)
    told: list[str] = []
    start = threading.Barrier(5)

    def run() -> None:
        start.wait()
        try:
            while True:
                for step in steps:
                    step()
        except DeviceError as error:
            told.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    start.wait()
    backend.close()
    for thread in threads:
        thread.join()
    assert len(told) == 4 and all("closed" in text for text in told)
    steps.clear()
    gc.collect()
    assert driver.wrong == [] and driver.owner == {}, driver.wrong[:3]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that interrupt")
def test_interrupts_lose_no_handle(driver: Driver) -> None:
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    backend = CudaBackend(0)
    steps = works(backend)
    marks, count = len(driver.owner), 0
    try:
        for k in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + 1e-6 * k)
                while True:
                    for step in steps[:9]:
                        step()
            except KeyboardInterrupt:
                count += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count == 300
    for step in steps:
        step()
    # No more than a few events and graphs for the marks and kernels that are in use at a time.
    assert len(driver.owner) < marks + 60
    del step, steps
    backend.close()
    assert driver.wrong == [] and driver.owner == {} and driver.retained == [0, 0]

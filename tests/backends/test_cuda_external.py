"""Memory and semaphores of other APIs in CUDA: what a stand-in for the driver sees opened is closed again."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Shared
from slangpy_rt.backends.cuda import driver as real
from slangpy_rt.backends.cuda import external

REFUSED = 1  # CUDA_ERROR_INVALID_VALUE


class Driver:
    """Stands in for CUDA's driver: it takes over file descriptors, and counts what is open.

    Parameters
    ----------
    refuses : str
        The function that fails.
    """

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.memory: set[int] = set()
        self.mapped: set[int] = set()
        self.semaphores: set[int] = set()
        self.waits = 0
        self._last = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *args: REFUSED if name == self.refuses else getattr(self, f"_{name}")(*args)

    def _new(self, out: Any, kept: set[int]) -> int:
        self._last += 1
        out[0] = self._last
        kept.add(self._last)
        return 0

    def _cuImportExternalMemory(self, out: Any, told: Any) -> int:
        os.close(told.handle.fd)
        return self._new(out, self.memory)

    def _cuImportExternalSemaphore(self, out: Any, told: Any) -> int:
        os.close(told.handle.fd)
        return self._new(out, self.semaphores)

    def _cuExternalMemoryGetMappedBuffer(self, out: Any, handle: int, part: Any) -> int:
        assert handle in self.memory and part.size == 100
        return self._new(out, self.mapped)

    def _cuMemFree_v2(self, address: int) -> int:
        self.mapped.remove(address)
        return 0

    def _cuDestroyExternalMemory(self, handle: int) -> int:
        self.memory.remove(handle)
        return 0

    def _cuDestroyExternalSemaphore(self, handle: int) -> int:
        self.semaphores.remove(handle)
        return 0

    def _cuCtxSynchronize(self) -> int:
        self.waits += 1
        return 0

    def _cuSignalExternalSemaphoresAsync(self, handles: Any, params: Any, count: int, stream: int) -> int:
        assert handles[0] in self.semaphores
        return 0

    def _cuGetErrorName(self, status: int, out: Any) -> int:
        out[0] = real.FFI_CUDA.NULL
        return 0


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[[Driver], Driver]:
    def set_driver(driver: Driver) -> Driver:
        for module in (real, external):
            monkeypatch.setattr(module, "driver", lambda: driver)
        return driver

    return set_driver


def shared(opened: list[int]) -> Shared:
    def open_() -> int:
        opened.append(os.open(os.devnull, os.O_RDONLY))
        return opened[-1]

    return Shared(bytes(16), 100, open_)


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_memory_is_opened_once_and_unmapped_after_its_last_use(use: Callable[[Driver], Driver]) -> None:
    driver, opened = use(Driver()), []
    externals = external.Externals()
    block = shared(opened)
    memory = externals.memory(block)
    assert externals.memory(block) is memory and len(opened) == 1 and memory.address in driver.mapped
    # The block of the other API is gone, and one array still refers to its memory.
    del block
    gc.collect()
    other = shared(opened)
    externals.memory(other)
    assert len(driver.mapped) == len(driver.memory) == 2 and driver.waits == 0
    del memory
    gc.collect()
    third = shared(opened)
    externals.memory(third)
    assert len(driver.mapped) == len(driver.memory) == 2 and driver.waits == 1
    externals.close()
    assert not driver.mapped and not driver.memory
    externals.close()
    assert not any(map(is_open, opened))


@pytest.mark.parametrize("refuses", ["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer"])
def test_refused_memory_leaves_nothing_open(use: Callable[[Driver], Driver], refuses: str) -> None:
    driver, opened = use(Driver(refuses)), []
    externals = external.Externals()
    block = shared(opened)
    with pytest.raises(spy.DeviceError, match="memory of another API failed"):
        externals.memory(block)
    assert len(opened) == 1 and not is_open(opened[0]) and not driver.memory and not driver.mapped
    driver.refuses = ""
    assert externals.memory(block).address in driver.mapped
    externals.close()
    assert not driver.memory and not driver.mapped


def test_a_refused_semaphore_leaves_nothing_open(use: Callable[[Driver], Driver]) -> None:
    driver, opened = use(Driver("cuImportExternalSemaphore")), []
    externals = external.Externals()
    semaphore = shared(opened)
    with pytest.raises(spy.DeviceError, match="opening a semaphore failed"):
        externals.signal(semaphore, 1, 0)
    assert len(opened) == 1 and not is_open(opened[0])
    driver.refuses = ""
    externals.signal(semaphore, 1, 0)
    externals.signal(semaphore, 2, 0)
    assert len(opened) == 2 and len(driver.semaphores) == 1
    externals.close()
    assert not driver.semaphores


def test_memory_dropped_during_the_wait_stays_mapped(use: Callable[[Driver], Driver]) -> None:
    driver, opened = use(Driver()), []
    externals = external.Externals()
    blocks = [shared(opened) for _ in range(2)]
    memories = [externals.memory(block) for block in blocks]
    address = memories[1].address

    def synchronize() -> int:
        # Another thread queues work on the second memory and drops it.
        memories.clear()
        blocks.clear()
        gc.collect()
        return 0

    del memories[0], blocks[0]
    gc.collect()
    driver._cuCtxSynchronize = synchronize  # type: ignore[method-assign]
    externals.memory(shared(opened))
    assert address in driver.mapped and not memories
    externals.close()
    assert not driver.mapped and not driver.memory


def test_threads_open_memory_and_semaphores_once(use: Callable[[Driver], Driver]) -> None:
    driver, opened = use(Driver()), []
    externals = external.Externals()
    block, semaphore = shared(opened), shared(opened)
    start = threading.Barrier(2)
    importing = (driver._cuImportExternalMemory, driver._cuImportExternalSemaphore)

    def slowly(function: Callable[..., int]) -> Callable[..., int]:
        def call(*args: Any) -> int:
            # Long enough for the other thread to come here too.
            time.sleep(0.2)
            return function(*args)

        return call

    driver._cuImportExternalMemory = slowly(importing[0])  # type: ignore[method-assign]
    driver._cuImportExternalSemaphore = slowly(importing[1])  # type: ignore[method-assign]
    found = []

    def run() -> None:
        start.wait()
        found.append(externals.memory(block))
        externals.signal(semaphore, 1, 0)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] is found[1] and len(driver.mapped) == len(driver.semaphores) == 1 and len(opened) == 2
    externals.close()
    assert not driver.memory and not driver.semaphores


class WindowsDriver(Driver):
    """Takes handles of Windows, which stay the caller's."""

    def _cuImportExternalMemory(self, out: Any, told: Any) -> int:
        # CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE, CUDA_EXTERNAL_MEMORY_DEDICATED.
        assert (told.type, told.flags, told.size) == (5, 1, 100)
        assert int(real.FFI_CUDA.cast("uintptr_t", told.handle.win32.handle)) == 77
        return self._new(out, self.memory)

    def _cuImportExternalSemaphore(self, out: Any, told: Any) -> int:
        # CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE.
        assert told.type == 4 and int(real.FFI_CUDA.cast("uintptr_t", told.handle.win32.handle)) == 77
        return self._new(out, self.semaphores)

    def _cuDeviceGetLuid(self, out: Any, mask: Any, device: int) -> int:
        real.FFI_CUDA.buffer(out)[:] = bytes([device] * 8)
        return 0


@pytest.mark.parametrize("refuses", ["", "cuImportExternalMemory", "cuImportExternalSemaphore"])
def test_handles_of_windows_are_closed(use: Callable[[Driver], Driver], refuses: str) -> None:
    driver, closed = use(WindowsDriver(refuses)), []
    externals = external.Externals()
    block, fence = (Shared(bytes([3] * 8), 100, lambda: 77, closed.append) for _ in range(2))
    for opens, name in (
        (lambda: externals.memory(block), "Memory"),
        (lambda: externals.signal(fence, 1, 0), "Semaph"),
    ):
        if name in refuses:
            with pytest.raises(spy.DeviceError):
                opens()
        else:
            opens()
    assert closed == [77, 77]
    externals.close()
    assert not driver.memory and not driver.semaphores
    # The GPU is told by its LUID, since D3D12 knows no UUID.
    assert external.is_of(block, 3) and not external.is_of(block, 2)

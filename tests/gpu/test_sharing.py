"""Vulkan's memory as CUDA's, on a machine where both have the same GPU. Elsewhere sharing is refused."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.backends.cuda.driver import FFI_CUDA, check, driver

SOURCE = """
int slow(int x, int times) { for (int k = 0; k < times; ++k) x = x * 1664525 + 1013904223; return x; }
void grow(inout int a, int b) { a += b; }
"""
N = 5000
TYPES = [d.type for d in spy.devices() if d.available]
both = pytest.mark.skipif(not {"cuda", "vulkan"} <= set(TYPES), reason="needs CUDA and Vulkan")


@pytest.fixture(scope="module")
def modules() -> Iterator[tuple[spy.Module, spy.Module]]:
    with spy.Device("vulkan") as vulkan, spy.Device("cuda") as cuda:
        yield tuple(spy.Module.load_from_source(d, "shared", SOURCE) for d in (vulkan, cuda))  # type: ignore[misc]


def slow(x: np.ndarray, times: int) -> np.ndarray:
    x = x.astype(np.uint32)
    for _ in range(times):
        x = x * np.uint32(1664525) + np.uint32(1013904223)
    return x.astype(np.int32)


@both
def test_the_same_memory(modules: tuple[spy.Module, spy.Module]) -> None:
    vulkan, cuda = modules
    x = spy.Tensor.from_numpy(vulkan.device, np.arange(N, dtype=np.int32).reshape(50, 100))
    y = x.share(cuda.device)
    assert y.shape == (50, 100) and y.device is cuda.device
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    cuda.grow(y, 5)
    vulkan.grow(x, 7)
    np.testing.assert_array_equal(x.numpy(), np.arange(N).reshape(50, 100) + 12)
    np.testing.assert_array_equal(y.numpy(), x.numpy())
    part = x[10:20, ::3].share(cuda.device)
    cuda.grow(part, 100)
    assert x.numpy()[10, 3] == 1003 + 112 and x.numpy()[10, 4] == 1004 + 12
    with pytest.raises(spy.UnsupportedError, match="cannot be opened by other devices"):
        spy.Tensor.zeros(cuda.device, 5).share(vulkan.device)


@both
@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=20))
def test_work_of_both_is_in_order(
    modules: tuple[spy.Module, spy.Module], ops: list[tuple[bool, int, int, bool]]
) -> None:
    model = [np.arange(N, dtype=np.int32) * (k + 1) for k in range(3)]
    mine = [spy.Tensor.from_numpy(modules[0].device, m) for m in model]
    seen = [mine, [a.share(modules[1].device) for a in mine]]
    streams = [m.device.stream() for m in modules]
    for on_cuda, i, j, beside in ops:
        module, arrays = modules[on_cuda], seen[on_cuda]
        call = module.slow.stream(streams[on_cuda]) if beside else module.slow
        call(arrays[i], 400, _result=arrays[j])
        model[j] = slow(model[i], 400)
        module.grow(arrays[j], arrays[i])
        model[j] = model[j] + model[i]
    for array, other, expected in zip(*seen, model, strict=True):
        np.testing.assert_array_equal(other.numpy(), expected)
        np.testing.assert_array_equal(array.numpy(), expected)


@both
def test_arrays_go_while_the_other_device_works(modules: tuple[spy.Module, spy.Module]) -> None:
    vulkan, cuda = modules
    results = []
    for k in range(50):
        x = spy.Tensor.from_numpy(vulkan.device, np.full(N, k, np.int32))
        y = x.share(cuda.device)
        del x
        results.append(cuda.slow(y, 300))
        del y
        vulkan.grow(spy.Tensor.from_numpy(vulkan.device, np.zeros(N, np.int32)), 1)
    for k, r in enumerate(results):
        np.testing.assert_array_equal(r.numpy(), slow(np.full(N, k, np.int32), 300))


@both
def test_devices_that_close_in_either_order() -> None:
    for first in (0, 1):
        devices = [spy.Device("vulkan"), spy.Device("cuda")]
        x = spy.Tensor.zeros(devices[0], 100)
        y = x.share(devices[1])
        y.clear()
        devices[first].close()
        devices[1 - first].close()
        with pytest.raises(spy.DeviceError, match="was closed"):
            y.numpy()


@both
def test_two_cuda_devices_and_threads_set_one_semaphore(modules: tuple[spy.Module, spy.Module]) -> None:
    vulkan, cuda = modules
    with spy.Device("cuda") as second:
        others = (cuda, spy.Module.load_from_source(second, "shared", SOURCE))
        mine = [spy.Tensor.from_numpy(vulkan.device, np.arange(N, dtype=np.int32)) for _ in range(4)]
        failed: list[BaseException] = []

        def work(k: int) -> None:
            try:
                module, array = others[k % 2], mine[k].share(others[k % 2].device)
                for _ in range(100):
                    # Of different lengths, so that the devices' values are due in another order than they were taken.
                    module.slow(array, 100 + 300 * (k % 2), _result=array)
                    vulkan.grow(mine[k], 1)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        for k, array in enumerate(mine):
            expected = np.arange(N, dtype=np.int32)
            for _ in range(100):
                expected = slow(expected, 100 + 300 * (k % 2)) + np.int32(1)
            np.testing.assert_array_equal(array.numpy(), expected)


@both
def test_memory_that_vulkan_frees_is_unmapped(modules: tuple[spy.Module, spy.Module]) -> None:
    cuda = modules[1].device
    nbytes = 256 << 20

    def share_once() -> int:
        with spy.Device("vulkan") as vulkan:
            spy.Tensor.zeros(vulkan, nbytes // 4).share(cuda).clear()
            cuda.synchronize()
        gc.collect()
        cuda.backend.queue.enter()  # type: ignore[attr-defined]
        free, total = FFI_CUDA.new("size_t *"), FFI_CUDA.new("size_t *")
        check(driver().cuMemGetInfo_v2(free, total), "asking for free memory")
        return int(free[0])

    first = share_once()
    last = [share_once() for _ in range(4)][-1]
    # One block may wait to be unmapped until the next one is opened.
    assert first - last < 2 * nbytes


@both
def test_memory_outlives_the_device_that_used_it_last(modules: tuple[spy.Module, spy.Module]) -> None:
    vulkan = modules[0]
    x = spy.Tensor.from_numpy(vulkan.device, np.arange(N, dtype=np.int32))
    with spy.Device("cuda") as second:
        module = spy.Module.load_from_source(second, "shared", SOURCE)
        y = x.share(second)
        for _ in range(3):
            module.grow(y, 5)
            vulkan.grow(x, 1)
        module.grow(y, 5)
    vulkan.grow(x, 1)
    np.testing.assert_array_equal(x.numpy(), np.arange(N) + 24)


@pytest.mark.parametrize("type_", TYPES)
def test_what_is_refused(type_: str) -> None:
    with (
        spy.Device(type_) as device,
        spy.Device(type_) as other,
        pytest.raises(spy.UnsupportedError, match="share: "),
    ):
        spy.Tensor.zeros(device, 5).share(other)

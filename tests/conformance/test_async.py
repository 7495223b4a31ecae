"""Results that are awaited: an event loop goes on meanwhile, and arrays come as they were at the call."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_device

pytestmark = every_device

SOURCE = """
int slow(int x, int times) { for (int k = 0; k < times; ++k) x = x * 1664525 + 1013904223; return x; }
struct Ray { float3 at; int hit; }
Ray ray(float x) { Ray r; r.at = float3(x, 2 * x, 3 * x); r.hit = int(x); return r; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "awaited", SOURCE)


def tensor(module: spy.Module, array: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(module.device, np.asarray(array, np.int32))


@pytest.mark.parametrize("shape", [(), (0,), (7,), (300, 1000), (1 << 20,)])
def test_contents(module: spy.Module, shape: tuple[int, ...]) -> None:
    data = np.arange(int(np.prod(shape)), dtype=np.int32).reshape(shape)
    got = asyncio.run(tensor(module, data).numpy_async())
    assert got.dtype == data.dtype and got.shape == data.shape
    np.testing.assert_array_equal(got, data)


def test_views_and_structs(module: spy.Module) -> None:
    data = np.arange(3000, dtype=np.int32).reshape(30, 100)
    x = tensor(module, data)
    for view, expected in [(x[::2, 5:], data[::2, 5:]), (x[3], data[3]), (x[::-1, ::-7], data[::-1, ::-7])]:
        np.testing.assert_array_equal(asyncio.run(view.numpy_async()), expected)
    rays = module.ray.return_type(spy.NDBuffer)(spy.Tensor.from_numpy(module.device, np.arange(9, dtype=np.float32)))
    got = asyncio.run(rays.numpy_async())
    np.testing.assert_array_equal(got["at"][:, 2], 3 * np.arange(9))
    np.testing.assert_array_equal(got["hit"], np.arange(9))


def test_later_work_does_not_change_what_was_asked_for(module: spy.Module) -> None:
    data = np.arange(1 << 19, dtype=np.int32)
    x = tensor(module, data)

    async def ask() -> Any:
        fetched = x.numpy_async()
        x.clear()
        module.slow(x, 10, _result=x)
        return await fetched

    np.testing.assert_array_equal(asyncio.run(ask()), data)


def test_the_loop_goes_on(module: spy.Module) -> None:
    """Several results at once, and a task that counts its turns: none of it in another thread."""
    xs = [tensor(module, np.full(100_000, k)) for k in range(6)]
    for x in xs:
        module.slow(x, 20_000 if module.device.name == "cuda" else 500, _result=x)
    turns = 0

    async def count(done: asyncio.Event) -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def ask() -> list[Any]:
        done = asyncio.Event()
        counting = asyncio.create_task(count(done))
        before = threading.active_count()
        results = await asyncio.gather(*[x.numpy_async() for x in xs])
        assert threading.active_count() == before
        done.set()
        await counting
        return results

    for x, got in zip(xs, asyncio.run(ask()), strict=True):
        np.testing.assert_array_equal(got, x.numpy())
    # On the CPU a call is done when it returns, and so is a copy.
    assert turns > (3 if module.device.backend.queue.deferred else 0)


def test_events_are_awaited(module: spy.Module) -> None:
    x = tensor(module, np.ones(1000))
    module.slow(x, 1000, _result=x)

    async def ask() -> bool:
        event = module.device.event().record()
        await event
        return event.done

    assert asyncio.run(ask())


def test_a_cancelled_copy_leaves_the_device_usable(module: spy.Module) -> None:
    data = np.arange(3 << 20, dtype=np.int32)
    x = tensor(module, data)

    async def ask() -> None:
        for _ in range(6):
            task = asyncio.ensure_future(x.numpy_async())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    if module.device.backend.queue.deferred:
        asyncio.run(ask())
    np.testing.assert_array_equal(asyncio.run(x.numpy_async()), data)


def test_a_closed_device(backend_name: str) -> None:
    with spy.Device(backend_name) as device:
        x = spy.Tensor.ones(device, 10)
    with pytest.raises(spy.DeviceError, match="was closed"):
        asyncio.run(x.numpy_async())

"""Launches of Vulkan that are alone in a submission: their recorded list is submitted again, once for each launch.

The kernel computes ``r = a * factor + b``: a launch that is lost, made twice or out of order changes ``r``.
"""

from __future__ import annotations

import random
import struct
import sys
import threading
from collections.abc import Callable
from linecache import getline
from types import FrameType
from typing import Any

import numpy as np
import pytest
from _vulkan_backend import Launch, backend, get, launch, load, needs_vulkan, put, spirv

from slangpy_rt.backends import submissions
from slangpy_rt.backends.base import Dispatch
from slangpy_rt.backends.single import FEW, SINGLE_BYTES, SINGLES
from slangpy_rt.backends.vulkan import submission
from slangpy_rt.backends.vulkan.backend import VulkanBackend
from slangpy_rt.core.errors import DeviceError
from slangpy_rt.core.target import KernelInfo

__all__ = ["backend", "launch", "spirv"]  # the fixtures

_ONE = np.ones(64, np.float32)


def _submissions(opened: VulkanBackend, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that says of each submission from now on whether it was a recorded launch."""
    seen: list[str] = []
    queue = opened.queue
    own = {single.pointer for single in queue._singles}
    real = queue._send

    def send(sent: Any, pointer: Any, what: str) -> None:
        seen.append("single" if pointer in own else "list")
        real(sent, pointer, what)

    monkeypatch.setattr(queue, "_send", send)
    return seen


def test_a_launch_and_a_wait_record_nothing(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, one = put(backend, _ONE * 0), put(backend, _ONE)
    backend.sync_all()
    seen = _submissions(backend, monkeypatch)
    for n in range(FEW + 5):
        launch(x, one, x, 2.0 if n % 2 else 1.0)  # other arguments each time
        backend.sync_all()
    assert seen == ["list"] * FEW + ["single"] * 5
    expected = 0.0
    for n in range(FEW + 5):
        expected = expected * (2.0 if n % 2 else 1.0) + 1
    assert (get(backend, x) == expected).all()


def test_what_comes_after_a_held_launch_comes_after_it(
    backend: VulkanBackend, launch: Launch, spirv: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, one = put(backend, _ONE * 0), put(backend, _ONE * 0), put(backend, _ONE)
    kernel = load(backend, spirv)
    args = struct.pack("<IfQQQ", 64, 1.0, x.address, one.address, x.address)
    dispatch = Dispatch(kernel, (1, 1, 1), args, (x, one, x))
    bound = backend.queue.prepare(dispatch)
    recording = backend.record([dispatch, dispatch], [(), (0,)])
    other = backend.open_queue()
    host = np.empty(64, np.float32)

    def from_another_queue() -> None:
        other.wait(backend.queue.mark())
        other.launch(kernel, (1, 1, 1), args, (x, one, x))
        backend.queue.wait(other.mark())

    steps: list[tuple[Callable[[], Any], Callable[[float], float]]] = [
        (lambda: launch(x, one, x, 1.0), lambda v: v + 1),
        (lambda: launch(x, one, x, 3.0), lambda v: v * 3 % 8191 + 1),
        (bound, lambda v: v + 1),
        (lambda: backend.queue.replay(recording), lambda v: v + 2),
        (backend.sync_all, lambda v: v),
        (backend.queue.sync, lambda v: v),
        (lambda: backend.queue.mark().sync(), lambda v: v),
        (lambda: backend.queue.mark().done, lambda v: v),
        (lambda: backend.download(x, 0, memoryview(host)), lambda v: v),
        (lambda: backend.upload(x, 0, memoryview(_ONE * 5)), lambda v: 5.0),
        (lambda: backend.clear(x, 0, 256), lambda v: 0.0),
        (lambda: (backend.queue.copy(y, 0, x, 0, 256), backend.queue.copy(x, 0, y, 0, 256)), lambda v: v),
        (from_another_queue, lambda v: v + 1),
    ]
    del steps[1]  # products of floats beyond 2^24 are no longer exact
    seen = _submissions(backend, monkeypatch)
    chance = random.Random(3)
    expected = 0.0
    for _ in range(40):
        for _ in range(FEW + 1):
            backend.queue.launch(kernel, (1, 1, 1), args, (x, one, x))
            backend.sync_all()
            expected += 1
        for _ in range(chance.randrange(1, 5)):
            backend.queue.launch(kernel, (1, 1, 1), args, (x, one, x))
            expected += 1
            step, change = steps[chance.randrange(len(steps))]
            step()
            expected = change(expected)
        assert (get(backend, x) == expected).all()
    assert seen.count("single") > 40


def test_launches_that_fit_no_recorded_list(
    backend: VulkanBackend, spirv: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, one = put(backend, np.zeros(128, np.float32)), put(backend, np.ones(128, np.float32))
    kernel = load(backend, spirv)
    large = backend.load(
        backend.compile(spirv, "kernel"), KernelInfo("kernel", (64, 1, 1), SINGLE_BYTES + 16, (False, False, True))
    )
    backend.sync_all()
    seen = _submissions(backend, monkeypatch)

    def run(count: int, used: Any = kernel, groups: int = 2, tail: int = 0) -> None:
        args = struct.pack("<IfQQQ", 128, 1.0, x.address, one.address, x.address) + bytes(tail)
        for _ in range(count):
            backend.queue.launch(used, (groups, 1, 1), args, (x, one, x))
            backend.sync_all()

    run(FEW + 2)
    assert seen == ["list"] * FEW + ["single"] * 2
    run(4, groups=1)
    assert seen[FEW + 2 :] == ["list"] * 4
    run(FEW + 2, large, 2, SINGLE_BYTES - 16)
    assert seen[FEW + 6 :] == ["list"] * (FEW + 2)
    found = get(backend, x)
    assert (found[:64] == 2 * FEW + 8).all() and (found[64:] == 2 * FEW + 4).all()


def test_more_kernels_than_recorded_lists(backend: VulkanBackend, spirv: bytes) -> None:
    x, one = put(backend, _ONE * 0), put(backend, _ONE)
    args = struct.pack("<IfQQQ", 64, 1.0, x.address, one.address, x.address)
    kernels: list[Any] = [load(backend, spirv) for _ in range(SINGLES + 3)]
    for _ in range(2):
        for kernel in kernels:
            for _ in range(FEW + 2):
                backend.queue.launch(kernel, (1, 1, 1), args, (x, one, x))
                backend.sync_all()
    assert (get(backend, x) == 2 * (FEW + 2) * len(kernels)).all()
    # Kernels that are gone: their pipelines are destroyed, their lists are recorded anew for others.
    kernel = kernels[-1]
    del kernels[:-1]
    backend.queue.launch(kernel, (1, 1, 1), args, (x, one, x))
    del kernel
    kernels[:] = [load(backend, spirv) for _ in range(SINGLES)]
    for kernel in kernels:
        for _ in range(FEW + 2):
            backend.queue.launch(kernel, (1, 1, 1), args, (x, one, x))
            backend.sync_all()
    assert (get(backend, x) == (FEW + 2) * (2 * (SINGLES + 3) + SINGLES) + 1).all()


def test_memory_freed_behind_a_held_launch_serves_later_work(backend: VulkanBackend, launch: Launch) -> None:
    total, scratch = put(backend, _ONE * 0), put(backend, _ONE)
    backend.sync_all()
    for _ in range(FEW + 1):
        launch(total, scratch, total, 1.0)
        backend.sync_all()
    launch(total, scratch, total, 1.0)
    assert backend.queue._held is not None
    address = scratch.address
    del scratch
    # What is written to the same memory comes after the launch that reads it.
    other = put(backend, _ONE * 100)
    assert other.address == address
    launch(total, other, total, 1.0)
    assert (get(backend, total) == FEW + 2 + 100).all()


def test_threads_that_wait_for_their_own_launches(backend: VulkanBackend, spirv: bytes) -> None:
    kernel, one, wrong = load(backend, spirv), put(backend, _ONE), []

    def run(queue: Any) -> None:
        x = put(backend, _ONE * 0)
        args = struct.pack("<IfQQQ", 64, 1.0, x.address, one.address, x.address)
        backend.sync_all()
        for n in range(60):
            queue.launch(kernel, (1, 1, 1), args, (x, one, x))
            if n % 7:
                queue.sync()
        backend.sync_all()
        if not (get(backend, x) == 60).all():
            wrong.append(get(backend, x)[0])

    other = backend.open_queue()
    queues = (backend.queue, backend.queue, other, other)
    threads = [threading.Thread(target=run, args=(queue,)) for queue in queues]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_driver_that_refuses_a_recorded_list(
    backend: VulkanBackend, launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, one = put(backend, _ONE * 0), put(backend, _ONE)
    for _ in range(FEW + 1):
        launch(x, one, x, 1.0)
        backend.sync_all()
    launch(x, one, x, 1.0)
    assert backend.queue._held is not None
    with monkeypatch.context() as patch:
        patch.setattr(backend.queue, "_vk_submit", lambda *_: -13)
        with pytest.raises(DeviceError, match="submitting work failed"):
            backend.sync_all()
    # The launch that was refused is lost, and no other.
    launch(x, one, x, 1.0)
    backend.sync_all()
    assert (get(backend, x) == FEW + 2).all()


class _Stop(BaseException):
    """Stands in for KeyboardInterrupt, which pytest does not let pass."""


@needs_vulkan
def test_an_exception_at_each_line(spirv: bytes) -> None:
    opened = VulkanBackend()
    x, one = put(opened, _ONE * 0), put(opened, _ONE)
    kernel = load(opened, spirv)
    args = struct.pack("<IfQQQ", 64, 1.0, x.address, one.address, x.address)
    files = {submissions.__file__, submission.__file__}

    def call() -> None:
        opened.queue.launch(kernel, (1, 1, 1), args, (x, one, x))

    def until(line: int, work: Callable[[], object]) -> bool:
        """Do some work, and raise an exception at a line of the files; return whether there are so many lines."""
        left = line

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            # The end of a ``with`` is a line too, where Python looks for no signal before the lock is released.
            if event == "line" and not getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
                left -= 1
                if left == 0:
                    raise _Stop
            return trace

        sys.settrace(trace)
        try:
            work()
        except _Stop:
            return True
        finally:
            sys.settrace(None)
        return False

    made = 0  # launches that returned
    torn = 0  # launches that were stopped: each may have happened

    def check() -> None:
        nonlocal made, torn
        call()
        opened.sync_all()
        made += 1
        found = get(opened, x)
        assert (found == found[0]).all() and made <= found[0] <= made + torn, (made, torn, found[0])
        made, torn = int(found[0]), 0

    def arm() -> None:
        nonlocal made
        for _ in range(FEW + 1):
            call()
            opened.sync_all()
            made += 1

    for kind in ("launch", "wait", "second"):
        line, more = 0, True
        while more:
            line += 1
            arm()
            if kind != "launch":
                call()
                made += 1
                assert opened.queue._held is not None
            more = until(line, opened.sync_all if kind == "wait" else call)
            if kind != "wait":
                torn, made = (torn + 1, made) if more else (torn, made + 1)
            check()
        assert line > 5
    opened.close()

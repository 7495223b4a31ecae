"""A repeated call takes few steps: Python frames are counted on the backend that runs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.null import NullBackend

# What may take part in a repeated call: no reflection, no code generator, no shapes.
FILES = {
    *("callable.py", "function.py", "prepared.py", "array_call.py", "found_array_call.py", "command_list.py"),
    *("tuned.py", "tuned_call.py", "config.py"),
    *("device_packers.py", "host_packers.py", "nested_packers.py", "value_packers.py"),
    *("signature.py", "gradients.py", "tensor.py", "ndbuffer.py", "addresses.py"),
    *("null.py", "base.py", "device.py", "<string>"),
}


@pytest.fixture(scope="module")
def device() -> Iterator[spy.Device]:
    """A device that runs nothing."""
    with spy.Device("null") as opened:
        yield opened


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """A function to call."""
    text = "[Differentiable] float add(float a, float b) { return a + b; }"
    return spy.Module.load_from_source(device, "test_hot_path", text)


def frames(call: Callable[[], Any]) -> list[str]:
    """Which Python functions a call enters, below the lambda that makes it; cleaning up is not counted.

    Comprehensions are left out: from Python 3.12 on they are part of the function around them.
    """
    seen: list[tuple[str, str]] = []

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            seen.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name))

    call()
    call()
    # The result has to outlive the count, or else its release is counted.
    sys.setprofile(watch)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    del result
    assert seen[0][1] == "<lambda>"
    assert {file for file, _ in seen[1:]} <= FILES, seen
    return [name for _, name in seen[1:] if name != "<listcomp>"]


def prepared_in(call: Callable[[], Any]) -> list[str]:
    """Which functions of ours a call enters that has to be prepared; reading and compiling Slang are not counted.

    What compilation enters depends on how long it takes: functions that ``slang`` and ``runtime`` call are left out.
    """
    seen: list[str] = []
    packages = ("slangpy_rt_codegen", "arguments", "arrays", "calls", "core")

    def watch(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        ours = path.parent.name in packages and path.parent.parent.name != "tests" and "cache" not in path.stem
        if event == "call" and ours and not compiles(frame):
            seen.append(f"{path.stem}.{frame.f_code.co_name}")

    sys.setprofile(watch)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    del result
    return [name for name in seen if not name.endswith(".<listcomp>")]


def compiles(frame: FrameType | None) -> bool:
    """Whether a frame is below one of the packages that read and compile Slang."""
    while frame is not None:
        if Path(frame.f_code.co_filename).parent.name in ("slang", "runtime"):
            return True
        frame = frame.f_back
    return False


def test_a_call_into_a_given_result(device: spy.Device, module: spy.Module) -> None:
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    add = module.add
    entered = frames(lambda: add(a, b, _result=c))
    assert len(entered) <= 3, " ".join(entered)


def test_a_call_that_makes_its_result(device: spy.Device, module: spy.Module) -> None:
    a, b = (spy.Tensor.zeros(device, 100) for _ in range(2))
    add = module.add
    entered = frames(lambda: add(a, b))
    # Of these one allocates, and three make the buffer of this backend.
    assert len(entered) <= 7, " ".join(entered)
    assert entered.count("alloc") == 1


def test_a_call_with_a_number(device: spy.Device, module: spy.Module) -> None:
    a, c = (spy.Tensor.zeros(device, 100) for _ in range(2))
    add = module.add
    # One packer an argument, more than the plain path, and still no reflection.
    assert len(frames(lambda: add(a, 2.0, _result=c))) <= 6


def test_a_call_with_arguments_by_name(device: spy.Device, module: spy.Module) -> None:
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    add = module.add
    for call in (lambda: add(a=a, b=b, _result=c), lambda: add(b=b, a=a, _result=c), lambda: add(a, b=b, out=c)):
        entered = frames(call)
        assert len(entered) <= 6, " ".join(entered)


def test_a_tuned_call(device: spy.Device) -> None:
    text = "extern static const int K = 1;\nfloat add(float a, float b) { return a + b * K; }"
    add = spy.Module.load_from_source(device, "tuned_hot_path", text).add.constants({"K": [1, 2]})
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    for most, call in (
        # One more than of a function.
        (4, lambda: add(a, b, _result=c)),
        (10, lambda: add(a=a, b=b, _result=c)),
    ):
        entered = frames(call)
        assert len(entered) <= most, " ".join(entered)


def test_a_backward_call(device: spy.Device, module: spy.Module) -> None:
    a, b, c, *grads = (spy.Tensor.zeros(device, 100) for _ in range(6))
    a, b = a.with_grads(grad_out=grads[0]), b.with_grads(grad_out=grads[1])
    c = c.with_grads(grad_in=grads[2])
    add = module.add
    entered = frames(lambda: add.bwds(a, b, _result=c))
    assert len(entered) <= 18, " ".join(entered)


def test_a_recorded_call(device: spy.Device, module: spy.Module) -> None:
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    add, commands = module.add, device.command_list()
    entered = frames(lambda: add.append_to(commands, a, b, _result=c))
    assert len(entered) <= 7, " ".join(entered)


def test_a_call_on_host_arrays(module: spy.Module) -> None:
    a, b, c = (np.zeros(100, np.float32) for _ in range(3))
    add = module.add
    # Of these 18 make the buffers of this backend.
    for call in (lambda: add(a, b), lambda: add(a, b, _result=c)):
        entered = frames(call)
        assert len(entered) <= 35, " ".join(entered)
        assert entered.count("sync") == 1


def test_a_repeated_call_prepares_nothing(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = module.add
    a, b = spy.Tensor.zeros(device, (4, 5)), spy.Tensor.zeros(device, (4, 5))
    host = np.zeros((4, 5), np.float32)
    calls: list[Callable[[], Any]] = [
        lambda: add(a, b),
        lambda: add(a, b, _result=a),
        lambda: add(a[1:], 1.0),
        lambda: add(host, host),
        lambda: add(a=a, b=1.0),
        lambda: add([1, 2], 3),
    ]
    for call in calls:
        call()
    monkeypatch.setattr("slangpy_rt.calls.first_call.prepare_call", None)
    backend = device.backend
    assert isinstance(backend, NullBackend)
    before = len(backend.launches)
    for call in calls:
        call()
    assert len(backend.launches) == before + len(calls)
    with pytest.raises(TypeError, match="NoneType"):
        add(spy.Tensor.zeros(device, 3), 1.0)


def test_the_block_holds_what_it_should(device: spy.Device, module: spy.Module) -> None:
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    backend = device.backend
    assert isinstance(backend, NullBackend)
    module.add(a, b, _result=c)
    kernel, groups, block = backend.launches[-1]
    assert groups == (1, 1, 1) and kernel.info.written == (False, False, True)
    assert len(block) == kernel.info.args_size == 32
    assert block[:4] == (100).to_bytes(4, "little")
    assert np.frombuffer(block, np.uint64, 3, 8).tolist() == [a.address, b.address, c.address]


def test_buffers_are_freed(device: spy.Device, module: spy.Module) -> None:
    backend = device.backend
    assert isinstance(backend, NullBackend)
    a = spy.Tensor.zeros(device, 100)
    module.add(a, a)
    live = backend.live
    for _ in range(100):
        module.add(module.add(a, 1.0), a)
    assert backend.live == live


def test_a_new_shape_of_a_known_kernel(device: spy.Device, module: spy.Module) -> None:
    big = [spy.Tensor.zeros(device, 100) for _ in range(3)]
    host = [np.zeros(100, np.float32) for _ in range(2)]
    add = module.add
    a, b, c = (t[:70] for t in big)
    add(a, b, _result=c)
    add(host[0][:70], host[1][:70])
    a, b, c = (t[:71] for t in big)
    x, y = (t[:71] for t in host)
    known = prepared_in(lambda: add(a, b, _result=c))
    assert len(known) <= 260, " ".join(known)
    known = prepared_in(lambda: add(x, y))
    assert len(known) <= 260, " ".join(known)


def test_a_cold_call(device: spy.Device) -> None:
    text = "float first(float a, float b) { return a + b; }\nfloat second(float a, float b) { return a - b; }"
    module = spy.Module.load_from_source(device, "test_hot_path_cold", text)
    a, b, c = (spy.Tensor.zeros(device, 100) for _ in range(3))
    first, second = module.first, module.second
    first(a, b, _result=c)
    entered = prepared_in(lambda: second(a, b, _result=c))
    # On Python 3.11, whatever the cache holds; newer ones have fewer frames of comprehensions.
    assert len(entered) <= 370, " ".join(entered)

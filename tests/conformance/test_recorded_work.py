"""The barriers, waits and submissions that calls record on Vulkan, counted: a driver in software hides a missing one.

Each test makes calls as a program does, and compares the commands that they record with those that the calls' arrays
ask for: a barrier between two that use one array, of which at least one writes to it, and none between others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _vulkan_backend import needs_vulkan

import slangpy_rt as spy

pytestmark = needs_vulkan

TEXT = """
float twice(float x) { return 2 * x; }
float add(float a, float b) { return a + b; }
void lift(inout float a, float by) { a += by; }
void swap(inout float a, inout float b) { float c = a; a = b; b = c; }
[Differentiable] float mul(float a, float b) { return a * b; }
float first(Tensor<float, 1> x, float y) { return x[0] + y; }
void put(RWTensor<float, 1> x, int i, float y) { x[i] = y; }
"""
N = 64


class Recorder:
    """Notes what the queues of a device record and submit, as letters.

    ``d`` is a dispatch, ``b`` a barrier, ``c`` a copy, ``f`` a fill, ``e`` the barrier at the end of a list, ``s`` a
    submission and ``w`` each semaphore that it waits for. Letters of a stream are large ones.
    """

    def __init__(self, device: spy.Device, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._seen: list[str] = []
        backend: Any = device.backend
        self._commands = commands = backend.queue._commands
        self._functions = {name: getattr(commands, name) for name in ("dispatch", "barrier", "copy", "fill")}
        self._note(commands, {name: name for name in self._functions})
        self.watch(backend.queue)

    def watch(self, queue: Any, stream: bool = False) -> None:
        """Note what a queue records and submits; copies and fills of all queues are noted as those of no stream."""
        self._note(queue, {"_cmd_dispatch": "dispatch", "_cmd_barrier": "barrier"}, stream)
        submit = queue._vk_submit

        def submitted(handle: Any, count: int, info: Any, fence: Any) -> Any:
            found = "w" * info.waitSemaphoreCount + "s"
            self._seen.append(found.upper() if stream else found)
            return submit(handle, count, info, fence)

        self._patch.setattr(queue, "_vk_submit", submitted)

    def taken(self) -> str:
        """Return what was recorded since the last time."""
        found, self._seen[:] = "".join(self._seen), []
        return found

    def _note(self, owner: Any, names: dict[str, str], stream: bool = False) -> None:
        for attribute, name in names.items():
            self._patch.setattr(owner, attribute, self._noting(name, stream))

    def _noting(self, name: str, stream: bool) -> Callable[..., Any]:
        function, last = self._functions[name], self._commands.last

        def noted(command: Any, *args: Any) -> Any:
            letter = "e" if args == last else name[0]
            self._seen.append(letter.upper() if stream else letter)
            return function(command, *args)

        return noted


@pytest.fixture(scope="module")
def device() -> Iterator[spy.Device]:
    with spy.Device("vulkan") as opened:
        yield opened


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    """The functions above, each called once, so that what tests record is nothing but their calls."""
    return spy.Module.load_from_source(device, "test_recorded_work", TEXT)


@pytest.fixture
def recorder(device: spy.Device, module: Any) -> Iterator[Recorder]:
    with pytest.MonkeyPatch.context() as patch:
        device.synchronize()
        yield Recorder(device, patch)
        device.synchronize()


def tensors(device: spy.Device, count: int) -> list[spy.Tensor]:
    return [spy.Tensor.from_numpy(device, np.arange(N, dtype=np.float32) + k) for k in range(count)]


def warm(device: spy.Device, call: Callable[[], Any]) -> None:
    """Make a call that compiles its kernel, and begin an empty list of commands."""
    call()
    device.synchronize()


def test_calls(device: spy.Device, module: Any, recorder: Recorder) -> None:
    a, b, c, d = tensors(device, 4)
    x = np.arange(N, dtype=np.float32)
    warm(device, lambda: module.add(a, b, _result=c))
    warm(device, lambda: module.twice(a, _result=c))
    warm(device, lambda: module.lift(c, a))
    recorder.taken()

    def records(wanted: str, call: Callable[[], Any]) -> None:
        call()
        assert recorder.taken() == wanted

    records("d", lambda: module.add(a, b, _result=c))
    records("d", lambda: module.add(a, b, _result=d))  # both read alone
    records("bd", lambda: module.twice(c, _result=d))  # c was written, and d
    records("d", lambda: module.twice(c, _result=a))  # a was read before the barrier
    records("bd", lambda: module.twice(b, _result=c))  # c was read
    records("bd", lambda: module.lift(c, b))  # c was written
    records("bd", lambda: module.lift(c, b))  # and is read and written
    records("d", lambda: module.lift(d, b))
    device.synchronize()
    assert recorder.taken() == "es"
    np.testing.assert_array_equal(c.to_numpy(), 4 * (x + 1))
    np.testing.assert_array_equal(a.to_numpy(), 2 * (2 * x + 1))


def test_copies_and_fills(device: spy.Device, module: Any, recorder: Recorder) -> None:
    a, b, c = tensors(device, 3)
    x = np.arange(N, dtype=np.float32)
    warm(device, lambda: module.lift(a, b))
    recorder.taken()
    b.clear()
    module.lift(b, a)  # b was filled
    b.clear()  # b was written
    module.lift(c, b)  # b was filled
    device.synchronize()
    assert recorder.taken() == "fbdbfbdes"
    b.copy_from(x)
    module.lift(b, a)
    b.copy_from(x + 7)
    module.lift(c, b)
    device.synchronize()
    assert recorder.taken() == "cbdbcbdes"
    np.testing.assert_array_equal(c.to_numpy(), x + 2 + x + 7)
    # The host reads memory that it sees without a further submission; a GPU's is copied first.
    assert recorder.taken() == ("" if "llvmpipe" in device.info else "ces")


def test_gradients_that_are_added_to(device: spy.Device, module: Any, recorder: Recorder) -> None:
    a, b, seed = tensors(device, 3)
    x, y = a.with_grads(), b.with_grads()
    result = spy.Tensor.zeros(device, N).with_grads(grad_in=seed)
    warm(device, lambda: module.mul.bwds(x, y, _result=result))
    warm(device, lambda: module.twice(x.grad, _result=a))
    recorder.taken()
    module.mul.bwds(x, y, _result=result)
    module.mul.bwds(x, y, _result=result)  # adds to the same gradients
    module.twice(x.grad, _result=seed)  # reads one
    device.synchronize()
    assert recorder.taken() == "dbdbdes"


def test_a_list(device: spy.Device, module: Any, recorder: Recorder) -> None:
    a, b, c = tensors(device, 3)
    x = np.arange(N, dtype=np.float32)
    warm(device, lambda: module.twice(a, _result=b))
    commands = spy.CommandList(device)
    b.copy_from(x + 1)
    module.lift.append_to(commands, a, b)
    module.twice.append_to(commands, b, _result=c)  # b is read by both
    module.twice.append_to(commands, a, _result=b)  # a was written, and b read
    module.lift.append_to(commands, c, 1.0)  # c was written before that barrier
    module.lift.append_to(commands, c, 1.0)  # and is now after it
    device.synchronize()
    recorder.taken()
    commands.submit()
    # The argument blocks are copied and submitted before the list, which is submitted by itself.
    assert recorder.taken().removeprefix("c") == "ddbddbdeess"
    module.twice(c, _result=a)
    commands.submit()
    commands.submit()
    device.synchronize()
    assert recorder.taken() == "desss"
    a.copy_from(x), b.copy_from(x)
    commands.submit()
    np.testing.assert_array_equal(a.to_numpy(), 2 * x)
    np.testing.assert_array_equal(b.to_numpy(), 4 * x)
    np.testing.assert_array_equal(c.to_numpy(), 2 * x + 2)


def test_streams(device: spy.Device, module: Any, recorder: Recorder) -> None:
    """Work on another stream's array waits for it; what shares nothing, or is read by both, does not."""
    a, b, c, d = tensors(device, 4)
    stream = device.stream()
    recorder.watch(stream._lane.queue, stream=True)
    doubled = module.twice.stream(stream)
    for call in (lambda: doubled(a, _result=b), lambda: module.lift(c, d)):
        warm(device, call)
    stream.synchronize()
    device.synchronize()

    def submitted() -> str:
        stream.synchronize()
        device.synchronize()
        return "".join(letter for letter in recorder.taken() if letter in "wWsS")

    submitted()
    module.lift(c, d)
    doubled(a, _result=b)
    assert sorted(submitted()) == ["S", "s"]
    module.lift(a, d)
    doubled(a, _result=b)  # a was written
    assert submitted() == "sWS"
    doubled(a, _result=b)
    module.lift(b, d)  # b was written
    module.lift(a, d)  # a was read, at the same turn
    assert submitted() == "Sws"
    module.lift(d, c)
    module.lift(c, d)
    doubled(d, _result=b)  # the last turn of the writer of both
    doubled(c, _result=a)
    assert submitted() == "sWS"


def test_a_kernel_that_is_often_alone(device: spy.Device, module: Any, recorder: Recorder) -> None:
    """Its list is recorded once, with the barrier at its end, and submitted again."""
    a, b = tensors(device, 2)
    for _ in range(10):
        module.lift(a, b)
        device.synchronize()
    recorder.taken()
    for _ in range(3):
        module.lift(a, b)
        device.synchronize()
    assert recorder.taken() == "sss"
    # Another use of its arrays opens a list, in which the launch is recorded as any other.
    module.lift(a, b)
    module.twice(a, _result=b)
    device.synchronize()
    assert recorder.taken() == "dbdes"
    np.testing.assert_array_equal(b.to_numpy(), 2 * a.to_numpy())


def test_bound_calls(device: spy.Device, module: Any, recorder: Recorder) -> None:
    a, b, c = tensors(device, 3)
    x = np.arange(N, dtype=np.float32)
    lift, doubled, back = module.lift.bind(a, b), module.twice.bind(a, _result=c), module.twice.bind(c, _result=b)
    device.synchronize()
    recorder.taken()
    lift()
    doubled()  # a was written
    doubled()  # c was written
    lift()  # a was read
    back()  # c was written before that barrier, and b read after it
    module.twice(b, _result=c)  # b was written
    device.synchronize()
    assert recorder.taken() == "dbdbdbdbdbdes"
    np.testing.assert_array_equal(c.to_numpy(), 8 * (2 * x + 1))

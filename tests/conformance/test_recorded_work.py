"""The barriers, waits and submissions that calls record on Vulkan, counted: a driver in software hides a missing one.

Each test makes calls as a program does, and compares the commands that they record with those that the calls' arrays
ask for: a barrier between two that use one array, of which at least one writes to it, and none between others.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from _vulkan_backend import needs_vulkan

import slangpy_rt as spy
from slangpy_rt.backends.single import FEW

pytestmark = needs_vulkan

TEXT = """
float twice(float x) { return 2 * x; }
float add(float a, float b) { return a + b; }
void lift(inout float a, float by) { a += by; }
void swap(inout float a, inout float b) { float c = a; a = b; b = c; }
[Differentiable] float mul(float a, float b) { return a * b; }
float first(Tensor<float, 1> x, float y) { return x[0] + y; }
void put(RWTensor<float, 1> x, int i, float y) { x[i] = y; }
void paint(int2 at, RWTexture2D<float> image) { image[at] = at.x; }
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


# A device without streams, its module and what is recorded: calls go to its queue by the shortest way.
Ordered = tuple[spy.Device, Any, Recorder]


@pytest.fixture(scope="module")
def without_streams() -> Iterator[tuple[spy.Device, Any]]:
    with spy.Device("vulkan") as opened:
        yield opened, spy.Module.load_from_source(opened, "test_recorded_work", TEXT)


@pytest.fixture
def ordered(without_streams: tuple[spy.Device, Any]) -> Iterator[Ordered]:
    opened, functions = without_streams
    assert opened.plain
    with pytest.MonkeyPatch.context() as patch:
        opened.synchronize()
        yield opened, functions, Recorder(opened, patch)
        opened.synchronize()


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


def test_the_list_of_a_kernel_ends_with_a_barrier(ordered: Ordered) -> None:
    device, module, recorder = ordered
    a, b = tensors(device, 2)
    warm(device, lambda: module.swap(a, b))
    recorder.taken()
    seen = ""
    for _ in range(FEW + 3):
        module.swap(a, b)
        device.synchronize()
        seen += recorder.taken()
    # The last of these lists is its own, which is submitted again.
    assert re.fullmatch("(des)+ss+", seen)


# Calls that use an array twice, as they note it: of the one that writes it first, or last.
LIFTS = "lift(x, x)", "twice(x, x)"


def used_twice(module: Any, how: str, x: spy.Tensor) -> None:
    """Write an array that the same call reads."""
    if how == "lift(x, x)":
        module.lift(x, x)
    else:
        module.twice(x, _result=x)


@pytest.mark.parametrize("how", LIFTS)
def test_an_array_that_a_call_uses_twice(ordered: Ordered, how: str) -> None:
    """It counts as written, whichever of its uses comes first: in a list, behind a barrier, and held."""
    device, module, recorder = ordered
    a, b, c = tensors(device, 3)
    used_twice(module, how, c)
    warm(device, lambda: module.twice(b, _result=c))
    recorder.taken()
    used_twice(module, how, a)
    module.twice(a, _result=b)  # a was written
    used_twice(module, how, a)  # a was read
    module.twice(a, _result=c)  # a was written, behind that barrier
    device.synchronize()
    # A launch that reads an array before it writes it has a barrier of its own.
    assert recorder.taken().removeprefix("b") == "dbdbdbdes"
    for _ in range(FEW + 2):
        used_twice(module, how, a)
        device.synchronize()
    recorder.taken()
    used_twice(module, how, a)
    device.synchronize()
    assert recorder.taken() == "s"
    used_twice(module, how, a)
    module.twice(a, _result=b)  # a was written by the launch that was held
    device.synchronize()
    assert recorder.taken() == "dbdes"


def test_what_follows_a_launch_that_is_held(ordered: Ordered) -> None:
    """It waits for what the launch wrote, and before it writes what the launch read; nothing else waits."""
    device, module, recorder = ordered
    a, b, c, d = tensors(device, 4)
    warm(device, lambda: module.lift(c, d))
    for _ in range(FEW + 2):
        module.twice(a, _result=b)
        device.synchronize()

    def records(wanted: str, call: Callable[[], Any]) -> None:
        # A launch that was recorded in another list is alone as often again before it is held.
        for _ in range(FEW + 2):
            module.twice(a, _result=b)
            device.synchronize()
        recorder.taken()
        module.twice(a, _result=b)
        call()
        device.synchronize()
        assert recorder.taken() == wanted

    records("dbdes", lambda: module.lift(c, b))  # b was written
    records("dbdes", lambda: module.lift(a, c))  # a was read
    records("dbdes", lambda: module.lift(b, c))
    records("ddes", lambda: module.lift(c, a))  # a was read, and is
    records("ddes", lambda: module.lift(c, d))
    records("dbfes", lambda: b.clear())
    records("dbfes", lambda: a.clear())
    records("dfes", lambda: c.clear())


def test_copies_behind_reads(ordered: Ordered) -> None:
    """A fill or a copy waits for calls that read what it writes; what it reads may be read beside it."""
    device, module, recorder = ordered
    a, b, c, d = tensors(device, 4)
    x = np.arange(N, dtype=np.float32)
    queue = device.backend.queue
    warm(device, lambda: module.twice(a, _result=b))
    recorder.taken()

    def records(wanted: str, *calls: Callable[[], Any]) -> None:
        for call in calls:
            call()
        device.synchronize()
        assert recorder.taken() == wanted

    def read() -> None:
        module.twice(a, _result=b)

    def copy(to: spy.Tensor, of: spy.Tensor) -> None:
        queue.copy(to.buffer, 0, of.buffer, 0, of.nbytes)

    records("dbfes", read, a.clear)
    records("dbces", read, lambda: a.copy_from(x))
    records("dbces", read, lambda: copy(a, c))  # a was read
    records("dbces", read, lambda: copy(c, b))  # b was written
    records("dces", read, lambda: copy(c, a))  # a is read by both
    records("dces", read, lambda: copy(c, d))
    # The barrier before a copy clears the notes of earlier work, and keeps the notes that the copy itself makes.
    records("dbcbfes", read, lambda: copy(b, c), c.clear)
    records("dbcbdes", read, lambda: copy(b, c), lambda: module.twice(d, _result=c))
    records("dbcbdes", read, lambda: copy(b, c), lambda: module.twice(b, _result=d))
    records("dbcdes", read, lambda: copy(b, c), lambda: module.twice(c, _result=a))


def test_copies_of_texels(ordered: Ordered) -> None:
    """A copy into an image leaves the note that its array was read, also where the image was used before."""
    device, module, recorder = ordered
    a, b = tensors(device, 2)
    image = spy.Texture.from_numpy(device, np.zeros((8, 8), np.float32))
    warm(device, lambda: module.twice(a, _result=b))
    recorder.taken()

    def taken() -> str:
        device.synchronize()
        return recorder.taken()

    grid = a.reshape(8, 8)
    module.twice(a, _result=b)
    image.copy_to(grid)  # a was read
    module.twice(b, _result=a)  # a was written by the copy, b by the first call
    assert taken() == "dbbdes"
    image.copy_from(grid)
    image.copy_to(b.reshape(8, 8))
    module.twice(b, _result=a)  # b was written by the copy
    assert taken() == "bbdes"
    warm(device, lambda: module.paint(spy.grid((8, 8)), image))
    recorder.taken()
    module.paint(spy.grid((8, 8)), image)
    image.copy_to(grid)  # the image was written
    module.twice(a, _result=b)  # a was written by the copy, behind that barrier
    assert taken() == "dbbdes"
    module.paint(spy.grid((8, 8)), image)
    image.copy_from(b.reshape(8, 8))
    module.paint(spy.grid((8, 8)), image)
    assert taken() == "dbbdes"


@pytest.mark.parametrize("how", LIFTS)
def test_bound_calls_that_use_an_array_twice(ordered: Ordered, how: str) -> None:
    device, module, recorder = ordered
    a, b = tensors(device, 2)
    used = module.lift.bind(a, a) if how == "lift(x, x)" else module.twice.bind(a, _result=a)
    doubled = module.twice.bind(a, _result=b)
    device.synchronize()
    recorder.taken()
    used()
    doubled()  # a was written
    used()  # a was read
    doubled()  # a was written, behind that barrier
    device.synchronize()
    assert recorder.taken() == "dbdbdbdes"


def test_bound_calls_and_notes(ordered: Ordered) -> None:
    """A bound call waits as any other does; the notes of before a barrier end with it."""
    device, module, recorder = ordered
    a, b, c, d = tensors(device, 4)
    doubled = module.twice.bind(a, _result=b)
    warm(device, lambda: module.lift(c, d))
    warm(device, doubled)
    recorder.taken()

    def records(wanted: str, *calls: Callable[[], Any]) -> None:
        for call in calls:
            call()
        device.synchronize()
        assert recorder.taken() == wanted

    records("dbdes", lambda: module.lift(b, c), doubled)  # b was written
    records("dbdes", lambda: module.lift(c, b), doubled)  # b was read
    records("dbdes", lambda: module.lift(a, c), doubled)  # a was written
    records("ddes", lambda: module.lift(c, a), doubled)  # a is read by both
    records("ddes", lambda: module.lift(c, d), doubled)
    records("dbdes", doubled, lambda: module.lift(a, c))
    records("dbdes", doubled, lambda: module.lift(c, b))
    records("ddes", doubled, lambda: module.lift(c, a))
    records("dbdbdes", doubled, doubled, lambda: module.lift(c, b))  # b was written behind the barrier
    records("dbdbdes", doubled, doubled, lambda: module.lift(a, c))  # and a read
    records("dbddes", lambda: module.lift(b, d), doubled, lambda: module.lift(d, c))  # d was read before it


def test_the_argument_block_of_a_bound_call(ordered: Ordered) -> None:
    """An array that gets its memory is written once the call has read it."""
    device, module, recorder = ordered
    a, b, c = tensors(device, 3)
    warm(device, lambda: module.twice(a, _result=b))
    allocated: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        real = device.backend.alloc
        patch.setattr(
            device.backend, "alloc", lambda nbytes: (found := real(nbytes), allocated.append(found.address))[0]
        )
        doubled = module.twice.bind(a, _result=b)
    device.synchronize()
    recorder.taken()
    doubled()
    del doubled
    gc.collect()
    fresh = [spy.Tensor.empty(device, N, "float") for _ in range(64)]
    again = [t for t in fresh if t.address in allocated]
    assert again
    module.twice(c, _result=again[0])
    device.synchronize()
    assert recorder.taken() == "dbdes"


def test_a_list_is_submitted_behind_what_was_recorded(ordered: Ordered) -> None:
    device, module, recorder = ordered
    a, b = tensors(device, 2)
    warm(device, lambda: module.twice(a, _result=b))
    commands = device.command_list()
    module.twice.append_to(commands, b, _result=a)
    commands.submit()
    device.synchronize()
    recorder.taken()
    module.lift(b, a)
    commands.submit()
    device.synchronize()
    assert recorder.taken() == "dess"


def test_bound_calls(ordered: Ordered) -> None:
    device, module, recorder = ordered
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

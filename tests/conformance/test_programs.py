"""Command lists against NumPy: random programs of calls over overlapping views, and how long lists live.

A program is submitted twice, gets other arguments for one of its calls, and is submitted again; the same calls are
made one by one as well. All numbers are whole and small, so that sums are exact whatever their order. In CI the
programs are the same in every run; ``pytest tests/conformance/test_programs.py --long --hypothesis-seed=N`` tries
many more.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.backends.base import Buffer
from tests.depth import deep, is_deep, random_cases

# Values are taken modulo 16, so that no sum of products leaves the 2^24 whole numbers that a float holds.
SLANG = """
float wrapped(float x) { return x - 16 * floor(x / 16); }
float add(float a, float b) { return wrapped(a + b); }
void grow(inout float x, float by) { x = wrapped(x + by); }
[Differentiable] float mul(float a, float b) { return a * b; }
[numthreads(32, 1, 1)]
void twice(uint3 i : SV_DispatchThreadID, NDBuffer<float, 1> x)
{
    if (i.x < x.shape[0])
        x[int(i.x)] = wrapped(2 * x[int(i.x)]);
}
"""

Floats = npt.NDArray[np.float32]
VALUES, GRADIENTS, SHARED = (0, 1, 2), (3, 4), 5
ELEMENTS = 96


@dataclass(frozen=True)
class View:
    """Elements of one of the program's arrays."""

    array: int
    start: int
    stop: int | None
    step: int

    def of(self, arrays: list[Any]) -> Any:
        """The same elements of whatever stands for the arrays."""
        return arrays[self.array][self.start : self.stop : self.step]

    def places(self) -> list[tuple[int, int]]:
        """The array and the index there of each element."""
        stop = -1 if self.stop is None else self.stop
        return [(self.array, k) for k in range(self.start, stop, self.step)]


@dataclass(frozen=True)
class Step:
    """One call.

    Attributes
    ----------
    kind : str
        What is called.
    to : View or None
        What is written; None for a new array, which later steps can read.
    operands : tuple
        Views and numbers.
    """

    kind: str
    to: View | None
    operands: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Program:
    """Calls, and how they are submitted.

    Attributes
    ----------
    factor : int
        Times the elements of each array.
    nested : int
        The calls from there on are a list within the list.
    change : tuple or None
        The place of a call, and what takes its place for the last submission.
    """

    factor: int
    steps: tuple[Step, ...]
    nested: int
    change: tuple[int, Step] | None


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of 1 to 12 calls, no one of which writes to what another of its operands reads elsewhere."""
    factor = draw(st.sampled_from([1] * 9 + [64]))
    steps: list[Step] = []
    made: list[tuple[int, int]] = []  # arrays that calls made, and their sizes
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["add", "grow", "add", "grow", "bwds", "copy", "clear", "twice"]))
        step = _step(draw, kind, factor, made)
        if step.kind == "add" and step.to is None:
            made.append((SHARED + 1 + len(made), len(step.operands[0].places())))
        steps.append(step)
    change = None
    places = [k for k, s in enumerate(steps) if s.kind in ("add", "grow")]
    if draw(st.booleans()) and places:
        place = draw(st.sampled_from(places))
        change = place, _changed(draw, steps[place])
    return Program(factor, tuple(steps), draw(st.integers(1, len(steps))), change)


def _step(draw: st.DrawFn, kind: str, factor: int, made: list[tuple[int, int]]) -> Step:
    """One call, all of its views with one step, so that few kernels are compiled."""
    stride = draw(st.sampled_from([1, 1, 2, -1])) if kind not in ("copy", "clear") else 1
    sizes = [ELEMENTS // 4, ELEMENTS // 4, 7, ELEMENTS] if stride == 1 else [ELEMENTS // 4, 7]
    count = factor * draw(st.sampled_from(sizes))

    def view(arrays: tuple[int, ...]) -> View:
        array = draw(st.sampled_from(arrays))
        span = (count - 1) * abs(stride) + 1
        start = draw(st.integers(0, factor * ELEMENTS - span))
        if stride < 0:
            return View(array, start + span - 1, start - 1 if start else None, stride)
        return View(array, start, start + span, stride)

    def other(than: View) -> View:
        """To be read, where something else is written."""
        fitting = [k for k, n in made if n == count and stride == 1]
        if draw(st.booleans()) and fitting:
            return View(draw(st.sampled_from(fitting)), 0, count, 1)
        return view(tuple(k for k in (*VALUES, *GRADIENTS) if k != than.array))

    to = view((*VALUES, *GRADIENTS) if kind in ("grow", "clear") else VALUES)
    if kind == "add":
        a, b = other(to), draw(st.integers(-8, 8)) if draw(st.booleans()) else other(to)
        in_place = isinstance(b, int) and draw(st.booleans())
        return Step(kind, to if in_place or draw(st.integers(0, 2)) else None, (to if in_place else a, b))
    if kind == "grow":
        return Step(kind, to, (draw(st.integers(-8, 8)) if draw(st.booleans()) else other(to),))
    if kind == "copy":
        others = tuple(k for k in VALUES if k != to.array)
        return Step(kind, to, (view(others),))
    if kind == "bwds":
        a, g, into = view(VALUES), view(VALUES), view(GRADIENTS[:1])
        if factor == 1 and draw(st.booleans()):
            one = View(SHARED, 0, 1, 1)
            return Step(kind, into, (a, View(VALUES[0], 0, 1, 1), g, one))
        return Step(kind, into, (a, view(VALUES), g, view(GRADIENTS[1:])))
    return Step(kind, to)


def _changed(draw: st.DrawFn, step: Step) -> Step:
    """The same call of other numbers, or of the same elements of another array."""
    *first, last = step.operands
    if isinstance(last, int):
        return replace(step, operands=(*first, draw(st.integers(-8, 8))))
    arrays = [k for k in VALUES if step.to is None or k != step.to.array]
    return replace(step, operands=(*first, replace(last, array=draw(st.sampled_from(arrays)))))


def by_numpy(steps: tuple[Step, ...], arrays: list[Any]) -> None:
    """What a program does, on NumPy's arrays; new ones go to the end, unless they are there from an earlier run."""
    new = SHARED + 1
    for s in steps:
        x: list[Any] = [v.of(arrays) if isinstance(v, View) else np.float32(v) for v in s.operands]
        to: Any = s.to.of(arrays) if s.to is not None else None
        if s.kind == "add":
            if to is None:
                arrays[new:] = [(x[0] + x[1]) % 16, *arrays[new + 1 :]]
                new += 1
            else:
                to[:] = (x[0] + x[1]) % 16
        elif s.kind == "grow":
            to[:] = (to + x[0]) % 16
        elif s.kind == "copy":
            to[:] = x[0]
        elif s.kind == "clear":
            to[:] = 0
        elif s.kind == "twice":
            to[:] = 2 * to % 16
        else:
            a, b, g, into = x
            to += b * g
            into += (a * g).sum(keepdims=True) if len(into) == 1 else a * g


def by_device(
    module: spy.Module, steps: tuple[Step, ...], arrays: list[Any], commands: spy.CommandList | None = None
) -> None:
    """What a program does, one by one or as the calls of a list."""

    def call(function: Any, *args: Any, **named: Any) -> Any:
        return function(*args, **named) if commands is None else function.append_to(commands, *args, **named)

    for s in steps:
        x: list[Any] = [v.of(arrays) if isinstance(v, View) else float(v) for v in s.operands]
        to: Any = s.to.of(arrays) if s.to is not None else None
        if s.kind == "add":
            result = call(module.add, *x, _result=to)
            if to is None:
                arrays.append(result)
        elif s.kind == "grow":
            call(module.grow, to, x[0])
        elif s.kind == "twice":
            if commands is None:
                module.twice.dispatch(to.shape[0], to)
            else:
                module.twice.append_to(commands, to.shape[0], to)
        elif s.kind == "bwds":
            a, b, g, into = x
            # Of the result only its gradient is read.
            result = spy.Tensor.empty(module.device, g.shape).with_grads(grad_in=g)
            call(module.mul.bwds, a.with_grads(grad_out=to), b.with_grads(grad_out=into), _result=result)
        elif commands is None:
            to.from_numpy(x[0].to_numpy()) if s.kind == "copy" else to.clear()
        elif s.kind == "copy":
            commands.copy(to, x[0])
        else:
            commands.clear(to)


def check(module: spy.Module, program: Program) -> None:
    """Submit a program, and see that it gives what NumPy does."""
    device, factor = module.device, program.factor
    start = [np.arange(k, k + factor * ELEMENTS, dtype=np.float32) * (2 * k + 3) % 16 for k in range(SHARED)]
    start.append(np.ones(1, np.float32))
    expected: list[Any] = [x.copy() for x in start]
    plain, listed = ([spy.Tensor.from_numpy(device, x) for x in start] for _ in range(2))
    steps = program.steps
    commands, inner = device.command_list(), device.command_list()
    by_device(module, steps[: program.nested], listed, commands)
    by_device(module, steps[program.nested :], listed, inner)
    commands.append(inner)
    assert len(commands) == len(steps)
    check_waits(program, commands.waits)
    for _ in range(2):
        commands.submit()
        by_numpy(steps, expected)
        # Calls make new arrays each time, a list makes them once.
        del plain[SHARED + 1 :]
        by_device(module, steps, plain)
        same(listed, expected)
        same(plain, expected)
    if program.change is not None:
        place, step = program.change
        x = [v.of(listed) if isinstance(v, View) else float(v) for v in step.operands]
        commands.submit()
        if step.kind == "add":
            commands.update(place, *x, _result=None if step.to is None else step.to.of(listed))
        else:
            assert step.to is not None
            commands.update(place, step.to.of(listed), *x)
        commands.submit()
        by_numpy(steps, expected)
        by_numpy((*steps[:place], step, *steps[place + 1 :]), expected)
        same(listed, expected)


def check_waits(program: Program, waits: tuple[tuple[int, ...], ...]) -> None:
    """See that calls wait, directly or not, for those that touch what they write, and write what they touch."""
    touched: list[tuple[set[tuple[int, int]], set[tuple[int, int]]]] = []
    before: list[set[int]] = []
    new = SHARED + 1
    for k, s in enumerate(program.steps):
        read, written = set[tuple[int, int]](), set[tuple[int, int]]()
        views = [v for v in s.operands if isinstance(v, View)]
        for v in views:
            read.update(v.places())
        if s.kind == "bwds":
            written.update(views[-1].places())
        if s.to is None:
            written.update((new, i) for i in range(len(set(views[0].places()))))
            new += 1
        else:
            written.update(s.to.places())
        before.append({*waits[k], *(w for b in waits[k] for w in before[b])})
        assert all(w < k for w in waits[k])
        for w, (also_read, also_written) in enumerate(touched):
            if not (
                written.isdisjoint(also_written) and written.isdisjoint(also_read) and read.isdisjoint(also_written)
            ):
                assert w in before[k], f"call {k} does not wait for {w}"
        touched.append((read, written))


def same(arrays: list[Any], expected: list[Any]) -> None:
    """Compare all arrays of a program."""
    assert len(arrays) == len(expected)
    for k, (array, wanted) in enumerate(zip(arrays, expected, strict=True)):
        np.testing.assert_array_equal(array.to_numpy(), wanted, f"array {k}")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "programs", SLANG)


@random_cases
def test_programs(module: spy.Module, pytestconfig: pytest.Config) -> None:
    long = pytestconfig.getoption("--long")

    @hypothesis.settings(
        max_examples=40_000 if long else 1000 if is_deep(pytestconfig) else 150,
        derandomize=not long,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(program=programs())
    def test(program: Program) -> None:
        check(module, program)

    test()


def tensor(module: spy.Module, array: Any) -> spy.Tensor:
    made: spy.Tensor = spy.Tensor.from_numpy(module.device, np.asarray(array, np.float32))
    return made


def buffers() -> int:
    """How many buffers are alive."""
    gc.collect()
    return sum(isinstance(item, Buffer) for item in gc.get_objects())


def growth(work: Callable[[], object], device: spy.Device) -> tuple[int, int]:
    """The bytes of Python and the buffers that work leaves behind each time, the least of four times."""
    work()
    device.synchronize()
    alive, grown = buffers(), []
    tracemalloc.start()
    try:
        for _ in range(4):
            before, _ = tracemalloc.get_traced_memory()
            work()
            device.synchronize()
            gc.collect()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    return min(grown), buffers() - alive


@deep
def test_thousands_of_submissions_need_no_more_memory(module: spy.Module) -> None:
    x, y = tensor(module, np.arange(100)), tensor(module, np.zeros(100))
    commands = module.device.command_list()
    for _ in range(5):
        module.add.append_to(commands, x, 1.0, _result=y)
        module.add.append_to(commands, y, 1.0, _result=x)

    def submit() -> None:
        for _ in range(250):
            commands.submit()

    left, alive = growth(submit, module.device)
    # 250 of the smallest objects are 4 kB.
    assert left < 3000 and alive <= 0
    # 10 calls for each of 5 times 250 submissions, modulo 16.
    np.testing.assert_array_equal(x.numpy(), (np.arange(100) + 12500) % 16)


@deep
def test_thousands_of_calls_in_lists_need_no_more_memory(module: spy.Module) -> None:
    x = tensor(module, np.arange(100))

    def record() -> None:
        for _ in range(4):
            commands = module.device.command_list()
            for _ in range(500):
                module.grow.append_to(commands, x, 1.0)
                module.add.append_to(commands, x, 2.0)
            commands.submit()

    left, alive = growth(record, module.device)
    # 4000 of the smallest objects are 64 kB; the tables of Python and of the pool vary a little.
    assert left < 6000 and alive <= 0
    # 500 calls in each of 4 lists, 5 times, modulo 16.
    np.testing.assert_array_equal(x.numpy(), (np.arange(100) + 10000) % 16)


def test_a_list_outlives_its_arrays(module: spy.Module) -> None:
    source, total = tensor(module, np.arange(1000) % 16), tensor(module, np.zeros(1000))
    commands = module.device.command_list()
    between = module.add.append_to(commands, source, tensor(module, np.ones(1000)))
    module.grow.append_to(commands, total, between)
    module.grow.append_to(commands, total, module.add.append_to(commands, between, 3.0))
    del source, between
    gc.collect()
    for n in range(1, 4):
        # Memory that was given back would be used for these.
        others = [spy.Tensor.full(module.device, 1000, 7) for _ in range(8)]
        commands.submit()
        np.testing.assert_array_equal(total.numpy(), n * (2 * (np.arange(1000) % 16 + 1) % 16 + 3) % 16)
        assert all((other.numpy() == 7).all() for other in others)


def test_lists_and_calls_keep_their_order(module: spy.Module) -> None:
    x, host = tensor(module, np.arange(3000) % 16), np.arange(3000) % 16
    first, second = module.device.command_list(), module.device.command_list()
    module.grow.append_to(first, x, 5.0)
    module.twice.append_to(first, 3000, x)
    module.twice.append_to(second, 3000, x)
    module.grow.append_to(second, x, -3.0)
    for k in range(60):
        first.submit()
        host = 2 * (host + 5) % 16
        module.grow(x, float(k))
        host = (host + k) % 16
        second.submit()
        host = (2 * host - 3) % 16
        module.twice.dispatch(3000, x)
        host = 2 * host % 16
        module.grow(x, 1.0)
        host = (host + 1) % 16
        if k % 20 == 7:
            x[:100].copy_from(np.full(100, k % 16, np.float32))
            host[:100] = k % 16
        if k % 10 == 3:
            np.testing.assert_array_equal(x.numpy(), host)
    np.testing.assert_array_equal(x.numpy(), host)


def test_other_arguments_while_a_list_runs(module: spy.Module) -> None:
    x = tensor(module, np.zeros(5000))
    commands = module.device.command_list()
    for _ in range(50):
        module.grow.append_to(commands, x, 1.0)
    total = 0
    for k in range(40):
        commands.update(17, x, float(k % 8))
        commands.submit()
        total += 49 + k % 8
    np.testing.assert_array_equal(x.numpy(), np.full(5000, total % 16))


def test_a_result_stays_where_it_was_made(module: spy.Module) -> None:
    commands = module.device.command_list()
    ones = tensor(module, np.ones(3))
    first = module.add.append_to(commands, ones, 1.0)
    second = module.add.append_to(commands, first, 1.0)
    number = module.add.append_to(commands, 1.0, 2.0)
    commands.submit()
    for k in range(3):
        commands.update(0, tensor(module, np.full(3, k)), 5.0)
        commands.update(2, 3.0, float(k))
        commands.submit()
        assert first.numpy().tolist() == [k + 5] * 3 and second.numpy().tolist() == [k + 6] * 3
        assert number.numpy() == 3 + k
    assert commands.waits == ((), (0,), ())


def test_copies_within_one_array(module: spy.Module) -> None:
    x = tensor(module, np.arange(12))
    with module.device.command_list() as commands:
        commands.copy(x[6:], x[:6])
        commands.copy(x, x)
        for to, source in ((x[1:], x[:-1]), (x[:-1], x[1:])):
            with pytest.raises(spy.BindError, match=r"of shape \(11,\) share memory; copy to a third array first"):
                commands.copy(to, source)
        commands.copy(x[:0], x[1:1])
        commands.clear(x[:0])
    assert x.numpy().tolist() == [0, 1, 2, 3, 4, 5] * 2


@deep
def test_lists_that_go_while_they_run(module: spy.Module) -> None:
    x = tensor(module, np.arange(5000) % 16)
    for k in range(60):
        commands = module.device.command_list()
        step = tensor(module, np.full(5000, k % 16))
        for _ in range(7):
            step = module.add.append_to(commands, step, 1.0)
        module.grow.append_to(commands, x, step)
        commands.submit()
        del commands, step
        if k % 2:
            gc.collect()
        # Takes the memory of the list, if that came back too early.
        module.grow(x, tensor(module, np.full(5000, 2)))
    total = sum(k + 7 + 2 for k in range(60))
    np.testing.assert_array_equal(x.numpy(), (np.arange(5000) + total) % 16)


def test_a_device_closed_under_its_lists(backend_name: str) -> None:
    own = spy.Device(backend_name)
    inner = spy.Module.load_from_source(own, "programs", SLANG)
    x = tensor(inner, np.zeros(1000))
    submitted, recorded, updated = (own.command_list() for _ in range(3))
    for commands in (submitted, recorded, updated):
        for _ in range(20):
            inner.grow.append_to(commands, x, 1.0)
    submitted.submit()
    updated.submit()
    own.close()
    for commands in (submitted, recorded):
        with pytest.raises(spy.DeviceError, match=f"this {backend_name} device was closed"):
            commands.submit()
    with pytest.raises(spy.DeviceError, match="closed"):
        inner.grow.append_to(recorded, x, 1.0)
    with pytest.raises(spy.DeviceError, match="closed"):
        updated.update(0, x, 2.0)
    with pytest.raises(spy.DeviceError, match="closed"):
        own.command_list()
    assert len(submitted) == 20 and "20 calls" in submitted.explain()
    del submitted, recorded, updated, commands
    gc.collect()


def in_threads(work: Callable[[int], None]) -> None:
    """Run it in four threads that begin together; what one raises is raised."""
    start, failures = threading.Barrier(4), list[BaseException]()

    def run(k: int) -> None:
        try:
            start.wait()
            work(k)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@pytest.mark.parametrize("size", [100, 50_000])
def test_a_list_submitted_from_many_threads(module: spy.Module, size: int) -> None:
    # Each call writes all of what the next one reads, and the same at each submission.
    x = tensor(module, np.arange(size) % 16)
    commands = module.device.command_list()
    last = x
    for _ in range(10):
        last = module.add.append_to(commands, last, 3.0)

    def work(k: int) -> None:
        for _ in range(30):
            commands.submit()

    in_threads(work)
    np.testing.assert_array_equal(last.numpy(), (np.arange(size) + 30) % 16)


@pytest.mark.parametrize("size", [100, 50_000])
def test_lists_of_many_threads(module: spy.Module, size: int) -> None:
    def work(k: int) -> None:
        x = tensor(module, np.arange(size) % 16)
        for turn in range(8):
            commands = module.device.command_list()
            for _ in range(10):
                module.grow.append_to(commands, x, float(k))
            commands.submit()
            commands.update(turn, x, 1.0)
            commands.submit()
        total = 8 * (20 * k - k + 1)
        np.testing.assert_array_equal(x.numpy(), (np.arange(size) + total) % 16)

    in_threads(work)

"""Command lists against NumPy: random programs of calls over overlapping views.

A program is submitted twice, gets other arguments for one of its calls, and is submitted again; the same calls are
made one by one as well. All numbers are whole and small, so that sums are exact whatever their order. In CI the
programs are the same in every run; ``pytest tests/conformance/test_programs.py --long --hypothesis-seed=N`` tries
many more.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
from _programs import ELEMENTS, SHARED, Program, Step, View, by_numpy, module, programs

import slangpy_rt as spy
from tests.depth import is_deep, random_cases

__all__ = ["module"]  # the fixture


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

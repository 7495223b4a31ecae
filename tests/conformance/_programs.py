"""Random programs of calls over overlapping views, and what NumPy makes of them. No test is here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import strategies as st

import slangpy_rt as spy

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


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "programs", SLANG)

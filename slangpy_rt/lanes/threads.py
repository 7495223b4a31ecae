"""Built-in variables: the indices of the thread and of the group that run in each lane.

The function of W threads has parameters ``%gx %gy %gz`` (its group), ``%nx %ny %nz`` (the number of groups) and
``%step`` (the number of these W threads among the group's, in the order of their indices).
"""

from __future__ import annotations

from dataclasses import replace

from slangpy_rt.lanes import uniform as known
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.shapes import Kind, Shape
from slangpy_rt.lanes.text import Value, number, scalar_value


class Threads:
    """Writes built-in variables into a text."""

    def __init__(self, numbers: Numbers, size: tuple[int, int, int]) -> None:
        self.numbers, self.text, self.size = numbers, numbers.text, size
        self.steps = -(-size[0] * size[1] * size[2] // self.text.width)

    def read(self, builtin: int) -> object:
        """Return the value of a built-in variable, by its number in SPIR-V."""
        n, width = self.numbers, self.text.width
        group = [scalar_value("i32", f"%g{axis}") for axis in "xyz"]
        match builtin:
            case known.GROUP_ID:
                return group
            case known.NUM_GROUPS:
                return [scalar_value("i32", f"%n{axis}") for axis in "xyz"]
            case known.GROUP_SIZE:
                return [number("i32", count) for count in self.size]
            case known.LANES:
                return number("i32", width)
            case known.WAVES:
                return number("i32", self.steps)
            case known.WAVE:
                return scalar_value("i32", "%step")
            case known.LANE:
                return Value("i32", "0", Shape(Kind.EXACT, 1, width - 1))
            case known.INDEX_IN_GROUP:
                return self._index()
            case known.THREAD_IN_GROUP:
                return self._local()
            case known.THREAD:
                starts = (n.multiply(at, number("i32", count)) for at, count in zip(group, self.size, strict=True))
                return [n.add(start, at) for start, at in zip(starts, self._local(), strict=True)]
        raise UnsupportedKernel(f"built-in variable {builtin}")

    def mask(self) -> str | None:
        """Return the mask of lanes that have a thread; None if all have."""
        threads = self.size[0] * self.size[1] * self.size[2]
        if threads % self.text.width == 0:
            return None
        return self.numbers.compare("icmp ult", self._vector(self._index()), number("i32", threads)).text

    def _index(self) -> Value:
        start = self.text.let(f"mul i32 %step, {self.text.width}")
        return Value("i32", start, Shape(Kind.EXACT, 1, self.steps * self.text.width - 1))

    def _local(self) -> list[Value]:
        n, (x, y, z) = self.numbers, self.size
        index = self._index()
        if y == z == 1:
            return [index, number("i32", 0), number("i32", 0)]
        if x % self.text.width == 0:  # a row holds whole vectors
            start = scalar_value("i32", index.text)
            row = n.op("udiv", start, number("i32", x))
            first = replace(n.op("urem", start, number("i32", x)), shape=index.shape)
        else:
            vector = self._vector(index)
            row = n.op("udiv", vector, number("i32", x))
            first = n.op("urem", vector, number("i32", x))
        return [first, n.op("urem", row, number("i32", y)), n.op("udiv", row, number("i32", y))]

    def _vector(self, value: Value) -> Value:
        return Value(value.type, self.text.vector(value), Shape(Kind.ANY))

"""The memory of variables: each leaf has one number, or one number for each lane.

LLVM turns this memory into values. Across a barrier it is saved in the frame of its W threads. Arrays lie in the
frame in kernels with barriers, and where they are too large for the stack.
"""

from __future__ import annotations

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.places import Places
from slangpy_rt.lanes.shapes import ANY, UNIFORM, Kind, Shape
from slangpy_rt.lanes.text import SIZES, Value, number
from slangpy_rt.lanes.uniform import Facts
from slangpy_rt.lanes.variables import Leaf, Variables

_LINE = 64  # bytes to which cells in frames are aligned, or to the size of W numbers where that is less


class Leaves:
    """Writes reads and writes of leaves into a text."""

    def __init__(self, variables: Variables, facts: Facts, numbers: Numbers, places: Places, framed: bool) -> None:
        self.variables, self.facts, self.numbers, self.places = variables, facts, numbers, places
        self.text, self.framed = numbers.text, framed
        self.cells: dict[int, str] = {}
        self.frame: dict[str, int] = {}
        self.frame_bytes = 0

    def read(self, variable: int, indices: tuple[int | Value, ...], type_: int, mask: str | None) -> object:
        """Return the value of a part of a variable; an index is a number or a value."""
        module = self.variables.module
        if (parts := module.parts(type_)) or module.types[type_].kind == "struct":
            return [self.read(variable, (*indices, k), part, mask) for k, part in enumerate(parts)]
        leaf, index = self._find(variable, indices)
        shape, cell = self._shape(leaf), self._cell(leaf)
        if index is not None and not index.shape.uniform:
            found = self.places.gather(self._memory(leaf), self._pointers(leaf, cell, index), mask)
            return self._narrowed(leaf, found, ANY)
        item = self._item(leaf)
        return self._narrowed(leaf, self.text.let(f"load {item}, ptr {self._element(item, cell, index)}"), shape)

    def write(
        self, variable: int, indices: tuple[int | Value, ...], value: object, exposed: int, mask: str | None
    ) -> None:  # fmt: skip
        """Write a part of a variable. Lanes without a part keep an exposed leaf; what others hold does not matter."""
        if isinstance(value, list):
            for k, part in enumerate(value):
                self.write(variable, (*indices, k), part, exposed, mask)
            return
        assert isinstance(value, Value)
        leaf, index = self._find(variable, indices)
        shape, cell, item = self._shape(leaf), self._cell(leaf), self._item(leaf)
        if not shape.vector:
            if value.shape.vector or value.shape.step != shape.step:
                raise UnsupportedKernel("a variable whose lanes differ where the analysis found none (a fault here)")
            found = self._widened(leaf, value.text, leaf.type)
            self.text.emit(f"store {item} {found}, ptr {self._element(item, cell, index)}")
            return
        vector = self._widened(leaf, self.text.vector(value), self.text.whole(leaf.type))
        if index is not None and not index.shape.uniform:
            self.places.scatter(self._memory(leaf), vector, self._pointers(leaf, cell, index), mask)
            return
        place = self._element(item, cell, index)
        if mask is not None and exposed >> leaf.bit & 1:
            old = self.text.let(f"load {item}, ptr {place}")
            vector = self.text.let(f"select {self.text.whole('i1')} {mask}, {item} {vector}, {item} {old}")
        self.text.emit(f"store {item} {vector}, ptr {place}")

    def saved(self, live: int) -> list[tuple[str, str, int]]:
        """Return cell, type and size of the leaves that a barrier has to save."""
        found = []
        for leaf in self.variables.leaves.values():
            if live >> leaf.bit & 1 and leaf.count == 1:
                item = self._item(leaf)
                size = SIZES[leaf.type] * (self.text.width if self._shape(leaf).vector else 1)
                found.append((self._cell(leaf), item, size))
        return found

    def frame_place(self, cell: str, size: int) -> int:
        """Return the place in the frame where a cell is saved."""
        if cell not in self.frame:
            self.frame[cell] = self.frame_bytes
            line = min(_LINE, 8 * self.text.width)
            self.frame_bytes += -(-size // line) * line
        return self.frame[cell]

    def _find(self, variable: int, indices: tuple[int | Value, ...]) -> tuple[Leaf, Value | None]:
        known = tuple(k if isinstance(k, int) else -1 for k in indices)
        leaf, strides = self.variables.find(variable, known)
        if leaf.count == 1:
            return leaf, None
        found = number("i64", 0)
        for k, stride in strides:
            each = indices[k]
            value = number("i64", each) if isinstance(each, int) else self.numbers.resize(each, "i64", True)
            found = self.numbers.add(found, self.numbers.multiply(value, number("i64", stride)))
        return leaf, found

    def _shape(self, leaf: Leaf) -> Shape:
        return self.facts.leaf.get(leaf.bit, UNIFORM)

    def _item(self, leaf: Leaf) -> str:
        type_ = self._memory(leaf)
        return self.text.whole(type_) if self._shape(leaf).vector else type_

    def _memory(self, leaf: Leaf) -> str:
        """Return the LLVM type of a number in memory: bits have no addresses, so arrays of bool have bytes."""
        return "i8" if leaf.type == "i1" and leaf.count > 1 else leaf.type

    def _widened(self, leaf: Leaf, text: str, type_: str) -> str:
        """Return a number as it lies in memory."""
        return (
            text if self._memory(leaf) == leaf.type else self.text.let(f"zext {type_} {text} to {self._item(leaf)}")
        )

    def _narrowed(self, leaf: Leaf, text: str, shape: Shape) -> Value:
        """Return a number from memory."""
        if self._memory(leaf) != leaf.type:
            whole, narrow = ("i8", leaf.type) if not shape.vector else map(self.text.whole, ("i8", leaf.type))
            text = self.text.let(f"trunc {whole} {text} to {narrow}")
        return Value(leaf.type, text, shape)

    def _cell(self, leaf: Leaf) -> str:
        if leaf.bit not in self.cells:
            item = self._item(leaf)
            if leaf.count == 1:
                self.cells[leaf.bit] = self.text.cell(item)
            elif self.framed:
                lanes = self.text.width if self._shape(leaf).vector else 1
                name = f"%{self.text.name()}"
                at = self.frame_place(name, SIZES[leaf.type] * lanes * leaf.count)
                self.text.entry.append(f"  {name} = getelementptr i8, ptr %frame, i64 {at}")
                self.cells[leaf.bit] = name
            else:
                self.cells[leaf.bit] = self.text.cell(f"[{leaf.count} x {item}]")
        return self.cells[leaf.bit]

    def _element(self, item: str, cell: str, index: Value | None) -> str:
        return cell if index is None else self.text.let(f"getelementptr {item}, ptr {cell}, i64 {index.text}")

    def _pointers(self, leaf: Leaf, cell: str, index: Value) -> str:
        """Return each lane's own element: its column of the vectors, or an element that all lanes share."""
        if self._shape(leaf).vector:
            index = self.numbers.multiply(index, number("i64", self.text.width))
            index = self.numbers.add(index, Value("i64", "0", Shape(Kind.EXACT, 1)))
        whole = self.text.whole("i64")
        return self.text.let(f"getelementptr {self._memory(leaf)}, ptr {cell}, {whole} {self.text.vector(index)}")

"""The memory of variables for a debugger: each variable with a name in the Slang text lies in one piece.

LLVM may not turn this memory into values. In kernels with barriers it is in the frame of its threads, where there is
room for it, so that variables that no thread reads any more keep what they hold.
"""

from __future__ import annotations

from slangpy_rt.lanes.debug_text import DebugText
from slangpy_rt.lanes.inline import Body
from slangpy_rt.lanes.leaves import Leaves
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.places import Places
from slangpy_rt.lanes.text import SIZES, Value, number
from slangpy_rt.lanes.uniform import Facts
from slangpy_rt.lanes.variables import Leaf, Variables


class DebugLeaves(Leaves):
    """Writes reads and writes of leaves, and the records of variables that a debugger shows."""

    def __init__(
        self, variables: Variables, facts: Facts, numbers: Numbers, places: Places, barriers: bool, debug: DebugText,
        body: Body, keeps: bool,
    ) -> None:  # fmt: skip
        super().__init__(variables, facts, numbers, places, barriers)
        self.layout, self.keeps = debug.types.layout, barriers and keeps
        self.homes: dict[int, str] = {}
        self.records: list[str] = []
        for variable, info, caller in body.declared:
            if variable not in variables.of or not debug.shows(debug.info.variables[info]):
                continue
            leaves = variables.of[variable]
            if self.text.width > 1 and any(leaf.type == "i1" and leaf.count > 1 for leaf in leaves):
                continue  # bits of lanes have no address
            waits = barriers and any(live & variables.bits(variable) for live in facts.live.barrier.values())
            if waits and not keeps and any(leaf.count > 1 for leaf in leaves):
                continue  # arrays that are read behind a barrier have to be in the frame
            type_ = variables.types[variable]
            if variable not in self.homes:
                self.homes[variable] = self._home(type_)
            home = self.homes[variable]
            if self.keeps:
                home = f"{home}.at"
            if record := debug.declaration(info, type_, caller, home, self.keeps):
                self.records.append(record)

    def saved(self, live: int) -> list[tuple[str, str, int]]:
        """Return cell, type and size of the leaves that a barrier has to save."""
        for variable in self.homes if self.keeps else ():
            live &= ~self.variables.bits(variable)
        return super().saved(live)

    def _home(self, type_: int) -> str:
        """Add the memory of a variable to the function's entry; return its name."""
        size, name = max(1, self.layout.nbytes(type_)) * self.text.width, f"%{self.text.name()}"
        if self.keeps:
            at = self.frame_place(name, size)
            self.text.entry += [
                f"  {name} = getelementptr i8, ptr %frame, i64 {at}", f"  {name}.at = alloca ptr",
                f"  store ptr {name}, ptr {name}.at",
            ]  # fmt: skip
        else:
            self.text.entry.append(f"  {name} = alloca [{size} x i8], align 64")
        return name

    def _find(self, variable: int, indices: tuple[int | Value, ...]) -> tuple[Leaf, Value | None]:
        if variable not in self.homes:
            return super()._find(variable, indices)
        known = tuple(k if isinstance(k, int) else -1 for k in indices)
        leaf, steps = self.variables.find(variable, known)
        if leaf.count == 1:
            return leaf, None
        n, found = self.numbers, number("i64", 0)
        _, strides = self.layout.place(self.variables.types[variable], leaf)
        # A leaf that lanes share has one number where others have W.
        spread = 1 if self._shape(leaf).vector else self.text.width
        for (k, _), stride in zip(steps, strides, strict=True):
            each = indices[k]
            value = number("i64", each) if isinstance(each, int) else n.resize(each, "i64", True)
            found = n.add(found, n.multiply(value, number("i64", stride // SIZES[leaf.type] * spread)))
        return leaf, found

    def _cell(self, leaf: Leaf) -> str:
        if leaf.variable not in self.homes:
            return super()._cell(leaf)
        if leaf.bit not in self.cells:
            offset, _ = self.layout.place(self.variables.types[leaf.variable], leaf)
            name = f"%{self.text.name()}"
            home = self.homes[leaf.variable]
            self.text.entry.append(f"  {name} = getelementptr i8, ptr {home}, i64 {offset * self.text.width}")
            self.cells[leaf.bit] = name
        return self.cells[leaf.bit]

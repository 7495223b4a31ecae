"""Writes a kernel's control flow: one walk over the tree, by the facts.

All text runs under a mask with at least one lane; None is the mask of all lanes. A construct that divides the lanes
runs its sides one after the other. A leave takes its lanes out of the mask. Where lanes come together again and some
may have left for a target further out, a cell collects the lanes that arrive.

No value that is defined before a barrier can be used after it. Constructs with a barrier keep their masks in cells,
and a barrier saves the open cells together with the live variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from slangpy_rt.lanes.calls import Call, returned, scalar_types
from slangpy_rt.lanes.debug_leaves import DebugLeaves
from slangpy_rt.lanes.debug_text import DebugText
from slangpy_rt.lanes.empty_blocks import without_empty_blocks
from slangpy_rt.lanes.flow import (
    Barrier,
    Code,
    Construct,
    Leave,
    Loop,
    Selection,
    Sequence,
    Switch,
    has_barrier,
    walk,
)
from slangpy_rt.lanes.functions import Functions
from slangpy_rt.lanes.instructions import Instructions
from slangpy_rt.lanes.leaves import Leaves
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.opcodes import OPERATIONS
from slangpy_rt.lanes.places import Places, flat
from slangpy_rt.lanes.scopes import Program
from slangpy_rt.lanes.shapes import Shapes
from slangpy_rt.lanes.text import Text, Value, number
from slangpy_rt.lanes.threads import Threads
from slangpy_rt.lanes.uniform import OUTSIDE, Facts, Region
from slangpy_rt.lanes.variables import Variables

_NONE = "zeroinitializer"
# A side of at most so many instructions without memory is computed in any case, instead of behind a branch.
_CHEAP = 8
# Kernels of more instructions are not written twice for groups whose threads all pass a check of bounds.
_TWICE = 3000
_EXPENSIVE = ("Div", "Mod", "Rem", "Atomic", "GroupNonUniform", "ExtInst", "FunctionCall")


@dataclass(frozen=True, slots=True)
class End:
    """The end of a sequence: whether text follows it, and the mask there."""

    reached: bool
    mask: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """Where leaves go: a label, and the cell that collects the lanes, or None if all come."""

    label: str
    cell: str | None


class Writer:
    """Writes the function of W threads."""

    def __init__(
        self, program: Program, variables: Variables, facts: Facts, shared: Mapping[int, int], width: int,
        contract: bool, debug: DebugText | None = None, keeps: bool = True, framed: bool = False,
    ) -> None:  # fmt: skip
        self.debug = debug
        self.program, self.facts, self.live = program, facts, facts.live
        self.text = Text(width)
        numbers = Numbers(self.text, contract)
        self.threads = Threads(numbers, program.body.module.size)
        self.functions = Functions(numbers)
        memory = variables, facts, numbers, Places(program.body.module, numbers), program.barriers or framed
        self.leaves = DebugLeaves(*memory, debug, program.body, keeps) if debug else Leaves(*memory)
        self.instructions = Instructions(program, variables, facts, self.leaves, self.functions, self.threads, shared)
        self.targets: dict[int, Target] = {}
        self.open: list[str] = []
        self.resumes: list[int] = []
        self.loops = 0
        count = sum(len(node.instructions) for node in walk(program.tree) if isinstance(node, Code))
        self.twice = not program.barriers and count <= _TWICE
        self.mask_type = self.text.whole("i1")

    @property
    def calls(self) -> dict[Call, str]:
        """Return the names of the functions that the text calls."""
        return self.instructions.calls

    def write_function(self, name: str, arguments: Mapping[int, Shapes], result: int, same: bool) -> str:
        """Return the text of a function that kernels call.

        Parameters
        ----------
        arguments : mapping
            The shapes of the arguments, by id.
        result : int
            The result's id.
        same : bool
            Whether the result is one number for all lanes.
        """
        text = self.text
        parameters: list[str] = []
        for id_, shapes in arguments.items():
            types = iter(scalar_types(self.program.body.module, self.program.body.type_of[id_]))
            self.instructions.values[id_] = self._parameter(shapes, types, parameters)
        bits = f"i{text.width}"
        mask = text.let(f"bitcast {bits} %mask to {self.mask_type}")
        over = text.label()
        self.targets[0] = Target(over, None)
        end = self._sequence(self.program.tree, mask, OUTSIDE)
        if end.reached:
            text.jump(over)
        text.put(over)
        scalars = flat(self.instructions.values[result]) if result in self.instructions.values else []
        parts = [(text.type(part) if same else text.whole(part.type), part) for part in scalars]
        type_ = returned(type_ for type_, _ in parts)
        found = "poison"
        for k, (each, part) in enumerate(parts):
            value = part.text if same else text.vector(part)
            found = value if len(parts) == 1 else text.let(f"insertvalue {type_} {found}, {each} {value}, {k}")
        text.emit(f"ret {type_} {found}" if parts else "ret void")
        head = ", ".join((*parameters, f"{bits} %mask"))
        lines = [f"define {type_} @{name}({head}) #1 {{", "entry:", *text.entry, "  br label %start", "start:"]
        return "\n".join((*lines, *text.lines, "}"))

    def _parameter(self, shapes: Shapes, types: Iterator[str], parameters: list[str]) -> object:
        if isinstance(shapes, tuple):
            return [self._parameter(part, types, parameters) for part in shapes]
        found = Value(next(types), f"%p{len(parameters)}", shapes)
        parameters.append(f"{self.text.type(found)} {found.text}")
        return found

    def write(self) -> str:
        """Return the text of the function; it returns the barrier at which the threads wait, or 0 at the end."""
        over = self.text.label()
        self.targets[0] = Target(over, None)
        end = self._sequence(self.program.tree, self.threads.mask(), OUTSIDE)
        if end.reached:
            self.text.jump(over)
        self.text.put(over)
        arms = " ".join(f"i32 {k}, label %resume{k}" for k in self.resumes)
        records = self.leaves.records if isinstance(self.leaves, DebugLeaves) else []
        attached, place = "", ""
        if self.debug:
            attached, place = f" {self.debug.attachment()}", self.debug.place(self.debug.root) or ""
        start = f"  switch i32 %state, label %start [ {arms} ]" if self.resumes else "  br label %start"
        lines = [start, "start:", *self.text.lines, f"  ret i32 0{place}"]
        if self.debug:
            lines = without_empty_blocks(lines)
        return "\n".join(
            [
                "define internal i32 @step(ptr noalias %push, i32 %gx, i32 %gy, i32 %gz, i32 %nx, i32 %ny, i32 %nz, "
                f"i32 %step, ptr noalias %shared, ptr noalias %frame, i32 %state, i64 %past, "
                f"i64 %bytes) #0{attached} {{",
                "entry:", *self.text.entry, *records, *lines, "}",
            ]
        )  # fmt: skip

    # Sequences

    def _sequence(self, nodes: Sequence, mask: str | None, region: Region) -> End:
        kept = None
        if self._waits(nodes) and mask is not None:
            kept = self._opened(mask)
        end = self._nodes(nodes, mask, region, kept)
        if kept:
            self.open.remove(kept)
        return end

    def _nodes(self, nodes: Sequence, mask: str | None, region: Region, kept: str | None) -> End:
        for k, node in enumerate(nodes):
            if isinstance(node, Code):
                for one in node.instructions:
                    if self.debug and one.location:
                        self.text.place = self.debug.place(one.location) or self.text.place
                    self.instructions.write(one, mask, region.exposed, not self.loops)
                continue
            if isinstance(node, Leave):
                return self._leave(node.target, mask, region)
            if isinstance(node, Barrier):
                self._barrier(node)
            else:
                end = self._construct(node, mask, region)
                if not end.reached:
                    return end
                if self.facts.leaks[node.key]:
                    return self._guarded(nodes[k + 1 :], end.mask, self.facts.rest(node, region))
            if kept and self._waits((node,)):
                mask = self._loaded(kept)
        return End(True, mask)

    def _guarded(self, nodes: Sequence, mask: str | None, region: Region) -> End:
        """Write the rest of a sequence from which lanes have gone, behind a test for one that has stayed."""
        if not nodes:
            return End(True, mask)
        left = self.text.cell(self.mask_type, _NONE)
        if waits := self._waits(nodes):
            self.open.append(left)
        inside, done = self.text.label(), self.text.label()
        self.text.branch(self.text.any(mask), inside, done)
        self.text.put(inside)
        end = self._sequence(nodes, mask, region)
        if end.reached:
            self._keep(left, end.mask)
            self.text.jump(done)
        if waits:
            self.open.remove(left)
        self.text.put(done)
        return End(True, self._loaded(left))

    def _leave(self, target: int, mask: str | None, region: Region) -> End:
        self._arrive(target, mask)
        if region.masks(target):
            return End(True, _NONE)
        self.text.jump(self.targets[target].label)
        return End(False, None)

    def _arrive(self, target: int, mask: str | None) -> None:
        if cell := self.targets[target].cell:
            self._collect(cell, mask)

    # Constructs

    def _construct(self, node: Construct, mask: str | None, region: Region) -> End:
        if isinstance(node, Loop):
            return self._loop(node, mask, region)
        divides = node.key in self.facts.divergent
        if isinstance(node, Switch):
            return (self._divided_switch if divides else self._switch)(node, mask, region)
        if not divides:
            return self._selection(node, mask, region)
        if self.twice and mask is None and region.depth == 0 and not self.loops and node.key in self.facts.checks:
            return self._check(node, region)
        return self._divided_selection(node, mask, region)

    def _after(self, node: Construct) -> str | None:
        """Return a cell for the lanes that reach the end of a construct; None if all of them do."""
        if not self.facts.leaks[node.key]:
            return None
        return self._opened(_NONE) if self._waits((node,)) else self.text.cell(self.mask_type, _NONE)

    def _closed(self, node: Construct, after: str | None, mask: str | None) -> str | None:
        """Return the mask behind a construct."""
        if after is None:
            return mask
        if after in self.open:
            self.open.remove(after)
        return self._loaded(after)

    def _selection(self, node: Selection, mask: str | None, region: Region) -> End:
        """Write an if whose condition is the same for all lanes."""
        text, after = self.text, self._after(node)
        labels, done, reached = (text.label(), text.label()), text.label(), False
        kept = self._kept(node, mask)
        text.branch(self.instructions.scalar(node.condition).text, *labels)
        for label, side, inner in zip(labels, node.sides, self.facts.sides(node, region), strict=True):
            text.put(label)
            end = self._sequence(side, self._loaded(kept) if kept else mask, inner)
            if end.reached:
                reached = True
                if after:
                    self._collect(after, end.mask)
                text.jump(done)
        self._drop(kept)
        mask = None if not reached else mask
        if reached:
            text.put(done)
        return End(reached, self._closed(node, after, mask) if reached else None)

    def _divided_selection(self, node: Selection, mask: str | None, region: Region) -> End:
        text, after = self.text, self._after(node)
        condition = self.instructions.scalar(node.condition).text
        masks: list[str] = [text.both(mask, condition), text.both(mask, text.inverse(condition))]
        kept = self._kept(node, masks[1])
        for k, (side, inner) in enumerate(zip(node.sides, self.facts.sides(node, region), strict=True)):
            now: str | None = self._loaded(kept) if k and kept else masks[k]
            if not side:
                if after:
                    self._collect(after, now)
                continue
            inside, done = text.label(), text.label()
            if self._cheap(side):
                text.jump(inside)
            else:
                text.branch(text.any(now), inside, done)
            text.put(inside)
            end = self._sequence(side, now, inner)
            if end.reached:
                if after:
                    self._collect(after, end.mask)
                text.jump(done)
            text.put(done)
        self._drop(kept)
        return End(True, self._closed(node, after, mask))

    def _check(self, node: Selection, region: Region) -> End:
        """Write an if twice: for groups in which all lanes take the longer side, and for others."""
        text, after = self.text, self._after(node)
        long = int(_length(node.other) > _length(node.then))
        side, inner = node.sides[long], self.facts.sides(node, region)[long]
        bits = text.bits(self.instructions.scalar(node.condition).text)
        every = text.let(f"icmp eq i{text.width} {bits}, {0 if long else -1}")
        whole, some, done = text.label(), text.label(), text.label()
        text.branch(every, whole, some, likely=True)
        text.put(whole)
        end = self._sequence(side, None, inner)
        if end.reached:
            if after:
                self._collect(after, end.mask)
            text.jump(done)
        text.put(some)
        end = self._divided_selection(node, None, region)
        if after:
            self._collect(after, end.mask)
        text.jump(done)
        text.put(done)
        return End(True, self._closed(node, after, None))

    def _loop(self, node: Loop, mask: str | None, region: Region) -> End:
        text, waits = self.text, self._waits((node,))
        body, step = self.facts.sides(node, region)
        divides = node.key in self.facts.divergent
        after, head = self._after(node), text.label()
        lanes = self._opened(mask) if divides or (waits and mask is not None) else None
        again = (self._opened(_NONE) if waits else text.cell(self.mask_type)) if divides else None
        self.targets[node.key] = Target(text.label(), after)
        self.targets[node.again] = Target(text.label(), again)
        leave, latch = self.targets[node.key].label, self.targets[node.again].label
        self.loops += 1
        text.jump(head)
        text.put(head)
        if again:
            self._keep(again, _NONE)
        end = self._sequence(node.body, self._loaded(lanes) if lanes else mask, body)
        if end.reached:
            self._arrive(node.again, end.mask)
            text.jump(latch)
        text.put(latch)
        now = self._loaded(again) if again else self._loaded(lanes) if lanes else mask
        if divides:
            stays = text.label()
            text.branch(text.any(now), stays, leave)
            text.put(stays)
        end = self._sequence(node.step, now, step)
        if end.reached:
            if divides:
                assert lanes
                self._keep(lanes, end.mask)
                text.branch(text.any(end.mask), head, leave)
            else:
                text.jump(head)
        text.put(leave)
        self.loops -= 1
        for cell in (lanes, again):
            self._drop(cell)
        return End(True, self._closed(node, after, mask))

    def _switch(self, node: Switch, mask: str | None, region: Region) -> End:
        """Write a switch over a number that is the same for all lanes, or a scope that can be left."""
        text, after = self.text, self._after(node)
        done = text.label()
        self.targets[node.key] = Target(done, after)
        kept = self._kept(node, mask)
        # The lanes that a case brings along which runs into the next one.
        through = self._opened(mask) if after else None
        labels = [text.label() for _ in node.cases]
        default = next((label for label, case in zip(labels, node.cases, strict=True) if None in case.numbers), done)
        if node.selector:
            value = self.instructions.scalar(node.selector)
            arms = " ".join(
                f"{value.type} {number(value.type, k).text}, label %{label}"
                for label, case in zip(labels, node.cases, strict=True) for k in case.numbers if k is not None
            )  # fmt: skip
            if after and default == done:  # lanes may go past the switch
                default = text.label()
            text.emit(f"switch {value.type} {value.text}, label %{default} [ {arms} ]")
            if default not in (*labels, done):
                text.put(default)
                self._arrive(node.key, mask)
                text.jump(done)
        else:
            text.jump(default)
        regions = self.facts.sides(node, region)
        for k, (label, case) in enumerate(zip(labels, node.cases, strict=True)):
            text.put(label)
            falls = k and node.cases[k - 1].falls
            now = self._loaded(kept) if kept else mask
            if through and falls:
                now = self._loaded(through)
            end = self._sequence(case.body, now, regions[k])
            if end.reached and case.falls:
                if through:
                    self._keep(through, end.mask)
                text.jump(labels[k + 1])
            elif end.reached:
                self._arrive(node.key, end.mask)
                text.jump(done)
        for cell in (kept, through):
            self._drop(cell)
        text.put(done)
        return End(True, self._closed(node, after, mask))

    def _divided_switch(self, node: Switch, mask: str | None, region: Region) -> End:
        text, n, after = self.text, self.instructions.numbers, self._after(node)
        value = self.instructions.scalar(node.selector)
        hits, rest = [], mask
        for case in node.cases:
            hit: str | None = None
            for k in case.numbers:
                if k is not None:
                    same = text.vector(n.compare("icmp eq", value, number(value.type, k)))
                    hit = same if hit is None else text.let(f"or {self.mask_type} {hit}, {same}")
            if hit is not None:
                rest = text.both(rest, text.inverse(hit))
                hit = text.both(mask, hit)
            hits.append(hit)
        for k, case in enumerate(node.cases):
            if None in case.numbers:
                found = hits[k]
                hits[k] = rest if found is None else text.let(f"or {self.mask_type} {found}, {text.mask(rest)}")
        self.targets[node.key] = Target(text.label(), after)
        if after and not any(None in case.numbers for case in node.cases):
            self._collect(after, rest)
        waits = self._waits((node,))
        cells = [self._opened(hit) if waits else None for hit in hits]
        through = self._opened(_NONE)
        regions = self.facts.sides(node, region)
        for k, case in enumerate(node.cases):
            cell = cells[k]
            now: str | None = self._loaded(cell) if cell else hits[k]
            if k and node.cases[k - 1].falls:
                now = text.let(f"or {self.mask_type} {text.mask(now)}, {self._loaded(through)}")
            self._keep(through, _NONE)
            inside, done = text.label(), text.label()
            text.branch(text.any(now), inside, done)
            text.put(inside)
            end = self._sequence(case.body, now, regions[k])
            if end.reached:
                if case.falls:
                    self._keep(through, end.mask)
                else:
                    self._arrive(node.key, end.mask)
                text.jump(done)
            text.put(done)
        for each in (*cells, through):
            self._drop(each)
        label = self.targets[node.key].label
        text.jump(label)
        text.put(label)
        return End(True, self._closed(node, after, mask))

    def _cheap(self, side: Sequence) -> bool:
        """Whether a side is short and has neither memory nor anything slow."""
        if len(side) != 1 or not isinstance(side[0], Code) or len(side[0].instructions) > _CHEAP:
            return False
        paths = self.instructions.variables.paths
        for one in side[0].instructions:
            name = OPERATIONS[one.op].name
            if name in ("Load", "Store"):
                if one.operands[0] not in paths or paths[one.operands[0]][1]:
                    return False
            elif any(part in name for part in _EXPENSIVE):
                return False
        return True

    # Barriers

    def _barrier(self, node: Barrier) -> None:
        """Save what lives behind a barrier, return its number; begin again behind it."""
        text, live = self.text, self.live.barrier[node.number]
        size = -(-text.width // 8)
        saved = self.leaves.saved(live)
        places = [(cell, item, self.leaves.frame_place(cell, nbytes)) for cell, item, nbytes in saved]
        masks = [(cell, self.leaves.frame_place(cell, size)) for cell in self.open]
        for cell, item, at in places:
            value = text.let(f"load {item}, ptr {cell}")
            text.emit(f"store {item} {value}, ptr {self._frame(at)}, align 8")
        for cell, at in masks:
            text.emit(f"store i{text.width} {text.bits(self._loaded(cell))}, ptr {self._frame(at)}, align 8")
        text.emit(f"ret i32 {node.number}")
        self.resumes.append(node.number)
        text.put(f"resume{node.number}")
        for cell, item, at in places:
            value = text.let(f"load {item}, ptr {self._frame(at)}, align 8")
            text.emit(f"store {item} {value}, ptr {cell}")
        for cell, at in masks:
            bits = text.let(f"load i{text.width}, ptr {self._frame(at)}, align 8")
            self._keep(cell, text.let(f"bitcast i{text.width} {bits} to {self.mask_type}"))

    def _frame(self, at: int) -> str:
        return self.text.let(f"getelementptr i8, ptr %frame, i64 {at}")

    def _waits(self, nodes: Sequence) -> bool:
        return self.program.barriers and has_barrier(nodes)

    # Cells of masks

    def _opened(self, mask: str | None) -> str:
        """Return a cell with a mask that barriers save until it is dropped."""
        cell = self.text.cell(self.mask_type, self.text.mask(mask))
        self.open.append(cell)
        return cell

    def _kept(self, node: Construct, mask: str | None) -> str | None:
        """Return an open cell with a mask that is needed behind a barrier inside of a construct, if there is one."""
        return self._opened(mask) if mask is not None and self._waits((node,)) else None

    def _drop(self, cell: str | None) -> None:
        if cell in self.open:
            self.open.remove(cell)

    def _keep(self, cell: str, mask: str | None) -> None:
        self.text.emit(f"store {self.mask_type} {self.text.mask(mask)}, ptr {cell}")

    def _loaded(self, cell: str) -> str:
        return self.text.let(f"load {self.mask_type}, ptr {cell}")

    def _collect(self, cell: str, mask: str | None) -> None:
        """Add lanes to a cell."""
        both = self.text.let(f"or {self.mask_type} {self._loaded(cell)}, {self.text.mask(mask)}")
        self._keep(cell, both)


def _length(nodes: Sequence) -> int:
    return sum(len(node.instructions) for node in walk(nodes) if isinstance(node, Code))

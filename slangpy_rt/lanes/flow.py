"""Structured control flow as a tree, from the merge instructions of SPIR-V.

A sequence is a tuple of nodes that run one after the other. If one side of a selection never reaches its end (it
leaves a loop, say), the rest of the sequence moves into the other side. So most code after a ``break`` or ``return``
of some threads is simply the other side of an if. Control flow without structure is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.inline import Body
from slangpy_rt.lanes.module import Instruction
from slangpy_rt.lanes.opcodes import CODE, OPERATIONS

RETURN = 0  # the target of leaves that end the kernel
_ENDS = (CODE["Branch"], CODE["Return"], CODE["ReturnValue"])
_MOST_NESTED = 150  # deeper trees would exhaust Python's stack


@dataclass(frozen=True, slots=True)
class Code:
    """Instructions without control flow."""

    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """A place that all threads of a group reach before one passes it."""

    number: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A jump to the end of a loop or a switch, to a loop's step, or to the kernel's end (`RETURN`)."""

    target: int


@dataclass(frozen=True, slots=True)
class Selection:
    """An if: the id of its condition and its sides. `key` is unique among the constructs."""

    key: int
    condition: int
    then: Sequence
    other: Sequence

    @property
    def sides(self) -> tuple[Sequence, ...]:
        return self.then, self.other


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop without an end, which `Leave` ends: body, then step, then again. `key` is also the target behind it.

    `again` is the target of leaves that go to the step.
    """

    key: int
    again: int
    body: Sequence
    step: Sequence

    @property
    def sides(self) -> tuple[Sequence, ...]:
        return self.body, self.step


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a switch: numbers (None stands for the default), body, whether its end runs into the next case."""

    numbers: tuple[int | None, ...]
    body: Sequence
    falls: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch: the id of its number, or 0 for a scope that can be left; cases in the order of execution.

    `key` is also the target behind it. Numbers without a case go to the default, or behind the switch.
    """

    key: int
    selector: int
    cases: tuple[Case, ...]

    @property
    def sides(self) -> tuple[Sequence, ...]:
        return tuple(case.body for case in self.cases)


Construct: TypeAlias = Selection | Loop | Switch
Node: TypeAlias = Code | Barrier | Leave | Construct
Sequence: TypeAlias = tuple[Node, ...]


class _Builder:
    """Builds the tree from blocks."""

    def __init__(self, body: Body) -> None:
        self.blocks, self.barriers, self.fresh = body.blocks, 0, body.module.bound
        self.targets: list[int] = []
        self.loops: set[int] = set()
        self.seen: set[int] = set()

    def key(self) -> int:
        self.fresh += 1
        return self.fresh

    def sequence(self, label: int, stop: int) -> tuple[Node, ...]:
        """Return the nodes from a block to `stop`, or to where control leaves."""
        if len(self.targets) > _MOST_NESTED:
            raise UnsupportedKernel(f"control flow that is nested deeper than {_MOST_NESTED}")
        items: list[Node] = []
        while label != stop:
            if label in self.targets:
                return (*items, Leave(label))
            block = self.blocks[label]
            if block.merge and OPERATIONS[block.merge.op].name == "LoopMerge" and label not in self.loops:
                items.append(self._loop(label, *block.merge.operands[:2]))
                label = block.merge.operands[0]
                continue
            if label in self.seen:
                raise UnsupportedKernel("a block that is reached in two ways", block.end.line)
            self.seen.add(label)
            items += self._straight(block.body)
            # A jump or return with a line of its own, at which a debugger may stop.
            place = block.end.location
            if place and block.end.op in _ENDS and (not block.body or block.body[-1].location != place):
                items.append(Code((block.end.beside("Nop", ()),)))
            name, end = OPERATIONS[block.end.op].name, block.end.operands
            if name in ("Return", "Unreachable"):
                return (*items, Leave(RETURN))
            if name == "Branch":
                label = end[0]
            elif name == "Switch":
                assert block.merge
                items.append(self._switch(block.end, block.merge.operands[0]))
                label = block.merge.operands[0]
            elif block.merge is None or OPERATIONS[block.merge.op].name == "LoopMerge":
                return (*items, self._selection(end, stop))
            else:
                merge = block.merge.operands[0]
                found = self._selection(end, merge)
                ends = tuple(map(falls, found.sides))
                if ends == (True, True):
                    items.append(found)
                    label = merge
                elif not any(ends):
                    return (*items, found)
                else:
                    rest = self.sequence(merge, stop)
                    then, other = (
                        (*side, *rest) if end else side for side, end in zip(found.sides, ends, strict=True)
                    )
                    return (*items, Selection(found.key, found.condition, then, other))
        return tuple(items)

    def _straight(self, body: tuple[Instruction, ...]) -> Iterator[Node]:
        part: list[Instruction] = []
        for one in body:
            if one.op == CODE["ControlBarrier"]:
                if one.location:
                    part.append(one.beside("Nop", ()))
                yield Code(tuple(part))
                self.barriers += 1
                yield Barrier(self.barriers)
                part = []
            else:
                part.append(one)
        if part:
            yield Code(tuple(part))

    def _selection(self, end: tuple[int, ...], stop: int) -> Selection:
        condition, yes, no = end[:3]
        return Selection(self.key(), condition, self.sequence(yes, stop), self.sequence(no, stop))

    def _loop(self, head: int, merge: int, again: int) -> Loop:
        if again == head:
            raise UnsupportedKernel("a loop of one block", self.blocks[head].end.line)
        self.targets += [merge, again]
        self.loops.add(head)
        body = self.sequence(head, again)
        self.targets.pop()
        step = self.sequence(again, head)
        self.targets.pop()
        return Loop(merge, again, _trimmed(body, again), step)

    def _switch(self, end: Instruction, merge: int) -> Switch:
        selector, default, *rest = end.operands
        numbers: dict[int, list[int | None]] = {}
        for number, label in zip(rest[::2], rest[1::2], strict=True):
            numbers.setdefault(label, []).append(number)
        numbers.setdefault(default, []).append(None)
        labels = [label for label in numbers if label != merge]
        join = self._join(labels, merge)
        if join is not None:
            # Optimizers let cases share their last blocks. The switch ends there; a scope around it has the rest.
            self.targets.append(merge)
            rest_of_cases = (self._switch(end, join), *self.sequence(join, merge))
            self.targets.pop()
            return Switch(merge, 0, (Case((None,), _trimmed(rest_of_cases, merge), False),))
        order = self._case_order(labels, merge)
        self.targets.append(merge)
        cases = []
        for label, after in zip(order, [*order[1:], merge], strict=True):
            body = self.sequence(label, after)
            through = falls(body) and after != merge
            cases.append(Case(tuple(numbers[label]), body if through else _trimmed(body, merge), through))
        self.targets.pop()
        return Switch(merge, selector if rest else 0, tuple(cases))

    def _join(self, labels: list[int], merge: int) -> int | None:
        """Return the last block before the end of a switch in which cases meet that do not run into each other."""
        stops = {merge, *self.targets}
        cases: dict[int, set[int]] = {}
        for label in labels:
            for block in self._reached(label, {*stops, *labels} - {label}):
                cases.setdefault(block, set()).add(label)
        meets = set()
        for block in cases:
            for after in self._successors(block):
                if after in cases and after not in labels and cases[after] > cases[block]:
                    meets.add(after)
        for block in meets:
            if not meets.intersection(self._reached(block, stops)) - {block}:
                return block
        return None

    def _reached(self, start: int, stops: set[int]) -> list[int]:
        """Return the blocks from one on, without those behind `stops` and without these."""
        found, wanted = [], [start]
        while wanted:
            label = wanted.pop()
            if label in found or label in stops:
                continue
            found.append(label)
            wanted += self._successors(label)
        return found

    def _successors(self, label: int) -> tuple[int, ...]:
        end, name = self.blocks[label].end.operands, OPERATIONS[self.blocks[label].end.op].name
        return {"Branch": end[:1], "BranchConditional": end[1:3], "Switch": end[1::2]}.get(name, ())

    def _case_order(self, labels: list[int], merge: int) -> list[int]:
        """Return the cases in an order in which each case that runs into another one stands before it."""
        follows = {label: self._runs_into(label, set(labels) - {label}, merge) for label in labels}
        heads = [label for label in labels if label not in follows.values()]
        order = []
        for label in heads:
            at: int | None = label
            while at is not None and at not in order:
                order.append(at)
                at = follows[at]
        return order

    def _runs_into(self, start: int, others: set[int], merge: int) -> int | None:
        """Return the case that another one runs into."""
        seen, wanted = {merge, *self.targets}, [start]
        while wanted:
            label = wanted.pop()
            if label in others:
                return label
            if label not in seen:
                seen.add(label)
                wanted += self._successors(label)
        return None


def tree_of(body: Body) -> Sequence:
    """Return the tree of a body.

    Raises
    ------
    UnsupportedKernel
        If control flow is not structured, or is nested too deep.
    """
    return _trimmed(_Builder(body).sequence(body.entry, -1), RETURN)


def falls(sequence: Sequence) -> bool:
    """Return whether a sequence may reach its end."""
    if not sequence:
        return True
    last = sequence[-1]
    return not isinstance(last, Leave) and not (isinstance(last, Selection) and not any(map(falls, last.sides)))


def walk(sequence: Sequence) -> Iterator[Node]:
    """Yield all nodes of a tree, those outside before those inside."""
    for node in sequence:
        yield node
        if isinstance(node, Selection | Loop | Switch):
            for side in node.sides:
                yield from walk(side)


def has_barrier(node: Node | Sequence) -> bool:
    """Return whether there is a barrier in a node or a sequence."""
    nodes = node if isinstance(node, tuple) else (node,)
    return any(isinstance(each, Barrier) for each in walk(nodes))


def _trimmed(sequence: Sequence, target: int) -> Sequence:
    """Return a sequence without leaves to `target` where control would go there in any case."""
    if not sequence:
        return sequence
    *before, last = sequence
    if last == Leave(target):
        return tuple(before)
    if isinstance(last, Selection):
        sides = (_trimmed(side, target) for side in last.sides)
        return (*before, Selection(last.key, last.condition, *sides))
    if isinstance(last, Switch):
        cases = (each if each.falls else replace(each, body=_trimmed(each.body, target)) for each in last.cases)
        return (*before, replace(last, cases=tuple(cases)))
    return sequence

"""Liveness: the leaves that a thread may read before it writes them, at each place where lanes wait for others.

Lanes wait behind a construct, at the side that runs second, and where a leave went. A leaf that is not live there may
hold anything in these lanes: whoever reads it has written it before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slangpy_rt.lanes.flow import RETURN, Barrier, Code, Leave, Loop, Selection, Sequence
from slangpy_rt.lanes.module import Instruction
from slangpy_rt.lanes.opcodes import CODE
from slangpy_rt.lanes.scopes import Program
from slangpy_rt.lanes.variables import ANY, Variables


@dataclass(frozen=True, slots=True)
class Liveness:
    """Live leaves, as bits.

    Attributes
    ----------
    start : mapping
        At the beginning of a side of a construct, by the construct's key and the side's number.
    target : mapping
        Where a leave goes to, by target; also behind each construct, by its key.
    barrier : mapping
        Behind a barrier, by number.
    """

    start: Mapping[tuple[int, int], int]
    target: Mapping[int, int]
    barrier: Mapping[int, int]


class _Walk:
    """Goes backwards over a tree; a loop until nothing changes."""

    def __init__(self, variables: Variables) -> None:
        self.variables = variables
        self.start: dict[tuple[int, int], int] = {}
        self.target: dict[int, int] = {RETURN: 0}
        self.barrier: dict[int, int] = {}
        self.heads: dict[int, int] = {}

    def sequence(self, nodes: Sequence, live: int) -> int:
        """Return what is live before the nodes; `live` is what is live behind them."""
        for node in reversed(nodes):
            if isinstance(node, Code):
                for one in reversed(node.instructions):
                    live = self._instruction(one, live)
            elif isinstance(node, Barrier):
                self.barrier[node.number] = live
            elif isinstance(node, Leave):
                live = self.target[node.target]
            elif isinstance(node, Loop):
                live = self._loop(node, live)
            elif isinstance(node, Selection):
                self.target[node.key] = live
                sides = [self._side(node.key, k, side, live) for k, side in enumerate(node.sides)]
                live = sides[0] | sides[1]
            else:
                self.target[node.key] = after = live
                live = 0 if any(None in case.numbers for case in node.cases) else after
                following = after
                for k in reversed(range(len(node.cases))):
                    case = node.cases[k]
                    following = self._side(node.key, k, case.body, following if case.falls else after)
                    live |= following
        return live

    def _side(self, key: int, side: int, nodes: Sequence, live: int) -> int:
        self.start[key, side] = found = self.sequence(nodes, live)
        return found

    def _loop(self, node: Loop, live: int) -> int:
        self.target[node.key] = live
        head = self.heads.get(node.key, 0)
        while True:
            self.target[node.again] = step = self._side(node.key, 1, node.step, head)
            found = head | self._side(node.key, 0, node.body, step)
            if found == head:
                return head
            self.heads[node.key] = head = found

    def _instruction(self, one: Instruction, live: int) -> int:
        paths = self.variables.paths
        if one.op == CODE["Load"] and one.operands[0] in paths:
            return live | self.variables.bits(*self.variables.indices(one.operands[0]))
        if one.op == CODE["Store"] and one.operands[0] in paths:
            variable, indices = self.variables.indices(one.operands[0])
            written = self.variables.bits(variable, indices)
            for leaf in self.variables.of[variable]:
                if ANY in leaf.path[: len(indices)]:  # one element is written, the others stay
                    written &= ~(1 << leaf.bit)
            return live & ~written
        return live


def liveness_of(program: Program, variables: Variables) -> Liveness:
    """Return what is live where in a program."""
    walk = _Walk(variables)
    walk.sequence(program.tree, 0)
    return Liveness(walk.start, walk.target, walk.barrier)

"""The uniformity analysis: numbers that are equal in all lanes or on a line, and constructs that divide the lanes.

It is optimistic: at first all numbers count as equal, and it goes over the tree until no fact changes. Facts only
grow, so that it ends. A variable is kept as one number unless different numbers are stored to it, or it is stored to
while lanes wait that may read it later (`Region.exposed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from slangpy_rt.lanes.flow import RETURN, Code, Construct, Leave, Loop, Selection, Sequence, Switch
from slangpy_rt.lanes.liveness import Liveness
from slangpy_rt.lanes.module import GROUP, INPUT, Instruction
from slangpy_rt.lanes.opcodes import OPERATIONS
from slangpy_rt.lanes.scopes import Program
from slangpy_rt.lanes.shapes import (
    ANY,
    UNIFORM,
    Kind,
    Shape,
    Shapes,
    added,
    chosen,
    computed,
    joined,
    leaves,
    multiplied,
    resized,
    scaled,
)  # fmt: skip
from slangpy_rt.lanes.variables import Variables

# Built-in variables, by their number in SPIR-V.
NUM_GROUPS, GROUP_SIZE, GROUP_ID, THREAD_IN_GROUP, THREAD, INDEX_IN_GROUP = 24, 25, 26, 27, 28, 29
LANES, WAVES, WAVE, LANE = 36, 38, 40, 41
# The host promises at most so many threads in a row: indices up to 15 times this number fit 32 bits.
MOST_THREADS = 1 << 28

_UNIFORM_WAVES = {
    "All", "Any", "AllEqual", "BroadcastFirst", "Ballot", "BallotFindLSB", "BallotFindMSB",
}  # fmt: skip
_CHAINS = ("AccessChain", "InBoundsAccessChain", "PtrAccessChain", "InBoundsPtrAccessChain")


@dataclass(frozen=True, slots=True)
class Region:
    """What encloses a place of the tree.

    Attributes
    ----------
    depth : int
        How many constructs around it divide the lanes.
    targets : mapping
        For each target of leaves, the depth outside of its construct.
    exposed : int
        Leaves that lanes may read which wait while this place runs.
    """

    depth: int = 0
    targets: Mapping[int, int] = field(default_factory=dict)
    exposed: int = 0

    def divided(self, exposed: int) -> Region:
        """Return the region inside of something that divides the lanes."""
        return replace(self, depth=self.depth + 1, exposed=self.exposed | exposed)

    def with_target(self, target: int) -> Region:
        """Return the region in which leaves to a target end here."""
        return replace(self, targets={**self.targets, target: self.depth})

    def masks(self, target: int) -> bool:
        """Whether lanes may wait somewhere that a leave to a target passes, so that it is no jump."""
        return self.depth > self.targets[target]


OUTSIDE = Region(0, {RETURN: 0}, 0)


@dataclass(frozen=True, slots=True)
class Facts:
    """What the analysis found.

    Attributes
    ----------
    leaf : mapping
        The shape of each leaf that is stored to, by bit.
    value : mapping
        The shape of each result.
    divergent : frozenset of int
        Keys of the constructs that divide the lanes.
    leaks : mapping
        Targets outside of a construct to which some of its lanes go while others stay, by key.
    checks : frozenset of int
        Keys of selections whose condition compares numbers on a line, such as ``thread < n``.
    """

    live: Liveness
    leaf: Mapping[int, Shape]
    value: Mapping[int, Shapes]
    divergent: frozenset[int]
    leaks: Mapping[int, frozenset[int]]
    checks: frozenset[int]

    def waiting(self, targets: frozenset[int]) -> int:
        """Return the leaves that are live at some of the targets."""
        found = 0
        for target in targets:
            found |= self.live.target[target]
        return found

    def sides(self, node: Construct, region: Region) -> list[Region]:
        """Return the regions of a construct's sides."""
        start, after = self.live.start, self.live.target
        if isinstance(node, Loop):
            region = region.with_target(node.key)
            if node.key in self.divergent:
                region = region.divided(self.waiting(self.leaks.get(node.key, frozenset())) | after[node.key])
            return [region.with_target(node.again)] * 2
        if isinstance(node, Switch):
            region = region.with_target(node.key)
        if node.key not in self.divergent:
            return [region] * len(node.sides)
        # While a side runs, the other lanes wait: behind the construct, at sides that run later, or at the target of
        # a jump that they took in an earlier side.
        waits, gone, found = after[node.key], self.waiting(self.leaks.get(node.key, frozenset())), []
        for k in reversed(range(len(node.sides))):
            found.append(region.divided(waits | (gone if k else 0)))
            waits |= start[node.key, k]
        return found[::-1]

    def rest(self, node: Construct | Leave, region: Region) -> Region:
        """Return the region of what follows a node."""
        leaks = self.leaks.get(node.key, frozenset()) if not isinstance(node, Leave) else frozenset()
        return region.divided(self.waiting(leaks)) if leaks else region


class _Analysis:
    """The facts while they grow."""

    def __init__(
        self, program: Program, variables: Variables, live: Liveness, width: int, spread: frozenset[int],
        given: Mapping[int, Shapes],
    ) -> None:  # fmt: skip
        self.program, self.variables, self.width, self.spread = program, variables, width, spread
        self.module, self.type_of = program.body.module, program.body.type_of
        self.changed = True
        self.leaf: dict[int, Shape] = {}
        self.value: dict[int, Shapes] = dict(given)
        self.divergent: set[int] = set()
        self.leaks: dict[int, frozenset[int]] = {}
        self.lines: dict[int, bool] = {}
        self.checks: set[int] = set()
        self.facts = Facts(live, self.leaf, self.value, frozenset(), self.leaks, frozenset())

    def run(self) -> Facts:
        while self.changed:
            self.changed = False
            self.sequence(self.program.tree, OUTSIDE)
            self.facts = replace(self.facts, divergent=frozenset(self.divergent))
        return replace(self.facts, checks=frozenset(self.checks))

    def sequence(self, nodes: Sequence, region: Region) -> frozenset[int]:
        """Go over nodes; return the targets to which some of their lanes go while others stay."""
        leaks: frozenset[int] = frozenset()
        for node in nodes:
            if isinstance(node, Code):
                for one in node.instructions:
                    self._instruction(one, region)
            elif isinstance(node, Leave):
                if region.masks(node.target):
                    leaks |= {node.target}
            elif isinstance(node, Selection | Loop | Switch):
                leaks |= self._construct(node, region)
                region = self.facts.rest(node, region)
        return leaks

    def _construct(self, node: Construct, region: Region) -> frozenset[int]:
        parts = [
            self.sequence(side, inner) for side, inner in zip(node.sides, self.facts.sides(node, region), strict=True)
        ]
        leaks = frozenset[int]().union(*parts)
        if isinstance(node, Loop):
            leaks -= {node.again}
            divides = bool(leaks)
            leaks -= {node.key}
        elif isinstance(node, Switch):
            # Also if some lanes leave a case and the others run into the next one.
            parted = any(case.falls and part for case, part in zip(node.cases, parts, strict=True))
            divides = parted or (bool(node.selector) and not self._of(node.selector).uniform)
            leaks -= {node.key}
        else:
            divides = not self._of(node.condition).uniform
            if self.lines.get(node.condition):
                self.checks.add(node.key)
        if divides and node.key not in self.divergent:
            self.divergent.add(node.key)
            self.changed = True
        if leaks != self.leaks.get(node.key):
            self.leaks[node.key] = leaks
            self.changed = True
        return leaks

    # Values

    def shapes(self, id_: int) -> Shapes:
        """Return the shapes of a value."""
        if id_ in self.value:
            return self.value[id_]
        if id_ in self.module.constants:
            return self._filled(self.module.constants[id_].type, UNIFORM, self.module.constants[id_].value)
        return UNIFORM

    def _of(self, id_: int) -> Shape:
        found = self.shapes(id_)
        return found if isinstance(found, Shape) else computed(*leaves(found))

    def _filled(self, type_: int, shape: Shape, value: object = None) -> Shapes:
        """Return one shape for all parts of a type."""
        if parts := self.module.parts(type_):
            values = value if isinstance(value, tuple) else (None,) * len(parts)
            return tuple(self._filled(part, shape, each) for part, each in zip(parts, values, strict=True))
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return replace(shape, top=value)
        return shape

    def constant(self, id_: int) -> int | None:
        """Return the value of an integer constant."""
        found = self.module.constants.get(id_)
        return found.value if found and isinstance(found.value, int) else None

    def _instruction(self, one: Instruction, region: Region) -> None:
        name = OPERATIONS[one.op].name
        if name == "Store":
            self._store(one, region)
        elif one.result:
            found = self._result(name, one)
            if self.width == 1:
                found = _alone(found)
            if self.value.get(one.result) != found:
                self.value[one.result] = found
                self.changed = True
            if "Than" in name:
                pair = [self._of(k) for k in one.operands]
                self.lines[one.result] = all(not shape.vector for shape in pair)

    def _store(self, one: Instruction, region: Region) -> None:
        pointer, value = one.operands[:2]
        if pointer not in self.variables.paths:
            return
        variable, indices = self.variables.indices(pointer)
        ids = self.variables.paths[pointer][1]
        scattered = any(not self._of(k).uniform for k in ids)

        def store(indices: tuple[int, ...], shapes: Shapes) -> None:
            if isinstance(shapes, tuple):
                for k, part in enumerate(shapes):
                    store((*indices, k), part)
                return
            leaf, _ = self.variables.find(variable, indices)
            old = self.leaf.get(leaf.bit)
            if leaf.variable in self.spread:
                shapes = ANY
            new = ANY if scattered or region.exposed >> leaf.bit & 1 else shapes
            new = new if old is None else joined(old, new)
            if leaf.count > 1 and new.vector:
                new = ANY
            if new != old:
                self.leaf[leaf.bit] = new
                self.changed = True

        store(indices, self.shapes(value))

    def _load(self, one: Instruction) -> Shapes:
        pointer = one.operands[0]
        if pointer in self.variables.paths:
            variable, indices = self.variables.indices(pointer)
            scattered = any(not self._of(k).uniform for k in self.variables.paths[pointer][1])

            def load(indices: tuple[int, ...], type_: int) -> Shapes:
                if parts := self.module.parts(type_):
                    return tuple(load((*indices, k), part) for k, part in enumerate(parts))
                if self.module.types[type_].kind == "struct":
                    return ()
                leaf, _ = self.variables.find(variable, indices)
                return ANY if scattered else self.leaf.get(leaf.bit, UNIFORM)

            return load(indices, one.type)
        if self.module.variables.get(pointer, (0, 0, 0))[1] == INPUT:
            return builtin_shapes(self.module.size, self.module.builtins.get(pointer, -1), self.width)
        if pointer in self.module.variables:
            return self._filled(one.type, UNIFORM)
        return self._filled(one.type, UNIFORM if self._of(pointer).uniform else ANY)

    def _chain(self, name: str, one: Instruction) -> Shapes:
        """Return the shape of an address; of a path to a variable, whether its indices are the same in all lanes."""
        base, *ids = one.operands
        wide = base in self.variables.paths or self._space(one) == GROUP
        shape = self._of(base)
        pointer = self.module.types[self.type_of[base]]
        type_ = pointer.element
        for k, id_ in enumerate(ids):
            if k == 0 and name in _CHAINS[2:]:
                stride: int = self.module.stride(self.type_of[base])
            elif self.module.types[type_].kind == "struct":
                member = self.constant(id_) or 0
                type_ = self.module.types[type_].members[member]
                continue
            else:
                stride = self.module.stride(type_)
                type_ = self.module.types[type_].element
            index, number = self._of(id_), self.module.types[self.type_of[id_]]
            if not wide:
                index = resized(index, number.bits, 64, number.signed)
            shape = added(shape, scaled(index, stride))
        return shape

    def _space(self, one: Instruction) -> int:
        return self.module.types[one.type].count

    def _result(self, name: str, one: Instruction) -> Shapes:
        ids = one.operands
        if name == "Load":
            return self._load(one)
        if name in _CHAINS:
            return self._chain(name, one)
        if name == "CompositeExtract":
            found = self.shapes(ids[0])
            for k in ids[1:]:
                found = found[k] if isinstance(found, tuple) else found
            return found
        if name == "CompositeConstruct":
            parts = [self.shapes(k) for k in ids]
            if self.module.types[one.type].kind == "vector":
                parts = [x for part in parts for x in (part if isinstance(part, tuple) else (part,))]
            return tuple(parts)
        if name == "CompositeInsert":
            return _inserted(self.shapes(ids[1]), self.shapes(ids[0]), ids[2:])
        if name == "VectorShuffle":
            both = (*_tuple(self.shapes(ids[0])), *_tuple(self.shapes(ids[1])))
            return tuple(both[k] if k < len(both) else UNIFORM for k in ids[2:])
        if name in ("CopyObject", "CopyLogical", "ConvertPtrToU", "ConvertUToPtr"):
            return self.shapes(ids[0])
        if name == "Bitcast":
            before, after = (self.module.scalar(t) for t in (self.type_of[ids[0]], one.type))
            if before == after and len(leaves(self.shapes(ids[0]))) == len(leaves(self._filled(one.type, ANY))):
                return self.shapes(ids[0])
        if name.startswith("GroupNonUniform"):
            return self._wave(name.removeprefix("GroupNonUniform"), one)
        if name.startswith("Atomic"):
            space = self._of(ids[0])
            return UNIFORM if name == "AtomicLoad" and space.uniform else ANY
        shapes = [self.shapes(k) for k in one.used]
        if name in ("IAdd", "ISub", "IMul", "ShiftLeftLogical", "UConvert", "SConvert", "Select"):
            return self._each(name, one, shapes)
        return self._filled(one.type, computed(*(x for each in shapes for x in leaves(each))))

    def _each(self, name: str, one: Instruction, shapes: list[Shapes]) -> Shapes:
        """Return the shapes of an operation that keeps lines, part by part."""
        if parts := self.module.parts(one.type):
            split = [each if isinstance(each, tuple) else (each,) * len(parts) for each in shapes]
            columns = zip(*split, strict=True)
            return tuple(self._number(name, one, list(column), k) for k, column in enumerate(columns))
        return self._number(name, one, shapes, None)

    def _number(self, name: str, one: Instruction, shapes: list[Shapes], part: int | None) -> Shapes:
        if any(isinstance(each, tuple) for each in shapes):  # a selection between structs
            return self._filled(one.type if part is None else self.module.parts(one.type)[part], ANY)
        first, *others = (each for each in shapes if isinstance(each, Shape))
        number = self.module.types[one.type]
        if number.kind == "vector":
            number = self.module.types[number.element]
        if number.kind not in ("int", "pointer") and name != "Select":
            return computed(first, *others)
        if name in ("UConvert", "SConvert"):
            before = self.module.types[self.type_of[one.operands[0]]]
            before = self.module.types[before.element] if before.kind == "vector" else before
            return resized(first, before.bits, number.bits, name == "SConvert")
        if name == "Select":
            return chosen(first, *others)
        if name in ("IAdd", "ISub"):
            return added(first, others[0], 1 if name == "IAdd" else -1)
        left, right = (self._part_constant(k, part) for k in one.operands)
        if name == "IMul":
            return multiplied(first, others[0], left, right)
        if right is None or not 0 <= right < number.bits:
            return computed(first, *others)
        return scaled(first, 1 << right)

    def _part_constant(self, id_: int, part: int | None) -> int | None:
        found = self.module.constants.get(id_)
        value = found.value if found else None
        if part is not None and isinstance(value, tuple):
            value = value[part]
        if not isinstance(value, int) or found is None:
            return None
        number = self.module.types[found.type]
        bits = (self.module.types[number.element] if part is not None and number.element else number).bits
        return value - (1 << bits) if bits and value >> bits - 1 == 1 else value

    def _wave(self, name: str, one: Instruction) -> Shapes:
        if name in _UNIFORM_WAVES or (name == "BallotBitCount" and one.operands[1] == 0):
            return self._filled(one.type, UNIFORM)
        if name == "Broadcast":
            return self._filled(one.type, UNIFORM if self._of(one.operands[2]).uniform else ANY)
        reduces = "l" in OPERATIONS[one.op].operands and one.operands[1] == 0
        return self._filled(one.type, UNIFORM if reduces else ANY)


def analyzed(
    program: Program, variables: Variables, live: Liveness, width: int, spread: frozenset[int] = frozenset(),
    given: Mapping[int, Shapes] = MappingProxyType({}),
) -> Facts:  # fmt: skip
    """Return the facts of a program that runs `width` threads in lanes.

    The variables in `spread` have a number for each lane, whatever is stored to them. Arguments of a function have
    the shapes in `given`.
    """
    return _Analysis(program, variables, live, width, spread, given).run()


def builtin_shapes(size: tuple[int, int, int], number: int, width: int) -> Shapes:
    """Return the shapes of a built-in variable."""
    row = Shape(Kind.EXACT, 1)
    across = size[0] % width == 0
    plane = UNIFORM if across or size[1] == size[2] == 1 else ANY
    threads = -(-size[0] * size[1] * size[2] // width) * width
    if number == THREAD_IN_GROUP:
        return replace(row, top=size[0] - 1) if across else _line(size, width), plane, plane
    if number == THREAD:
        return replace(row, top=MOST_THREADS - 1) if across else _line(size, width, MOST_THREADS), plane, plane
    if number == INDEX_IN_GROUP:
        return replace(row, top=threads - 1)
    if number == LANE:
        return replace(row, top=width - 1)
    return (UNIFORM,) * 3 if number in (GROUP_ID, NUM_GROUPS, GROUP_SIZE) else UNIFORM


def _line(size: tuple[int, int, int], width: int, most: int = 0) -> Shape:
    """The shape of x where rows of threads are no multiple of the lanes: a line if there is one row."""
    if size[1] == size[2] == 1:
        return Shape(Kind.EXACT, 1, (most or size[0]) + width - 1)
    return ANY


def _alone(shapes: Shapes) -> Shapes:
    """Return the shapes of a value where there is one lane."""
    return tuple(map(_alone, shapes)) if isinstance(shapes, tuple) else UNIFORM


def _inserted(whole: Shapes, part: Shapes, path: tuple[int, ...]) -> Shapes:
    if not path or not isinstance(whole, tuple):
        return part
    return tuple(_inserted(each, part, path[1:]) if k == path[0] else each for k, each in enumerate(whole))


def _tuple(shapes: Shapes) -> tuple[Shapes, ...]:
    return shapes if isinstance(shapes, tuple) else (shapes,)

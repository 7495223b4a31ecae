"""The variables of a thread as leaves: scalars, or arrays of scalars where an index is known at run time only.

All facts about variables are facts about leaves. Sets of leaves are the bits of integers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slangpy_rt.lanes.flow import Code, walk
from slangpy_rt.lanes.module import Constant, Module
from slangpy_rt.lanes.opcodes import CODE
from slangpy_rt.lanes.scopes import Program

ANY = -1  # in a leaf's path: every element
_MOST_LEAVES = 32  # of an array, whose elements are one leaf if there are more
_CHAINS = (CODE["AccessChain"], CODE["InBoundsAccessChain"])


@dataclass(frozen=True, slots=True)
class Leaf:
    """A scalar of a variable, or `count` of them: its bit, variable, path from there, and LLVM type."""

    bit: int
    variable: int
    path: tuple[int, ...]
    type: str
    count: int


@dataclass(frozen=True, slots=True)
class Variables:
    """The leaves of all variables.

    Attributes
    ----------
    types : mapping
        The type of each variable's value.
    leaves : mapping
        By variable and path.
    paths : mapping
        The variable and the ids of the indices that an id points to, for each pointer to a variable.
    of : mapping
        The leaves of each variable.
    arrays : frozenset
        Variables and paths at which the next step is `ANY`.
    """

    module: Module
    types: Mapping[int, int]
    leaves: Mapping[tuple[int, tuple[int, ...]], Leaf]
    paths: Mapping[int, tuple[int, tuple[int, ...]]]
    of: Mapping[int, tuple[Leaf, ...]]
    arrays: frozenset[tuple[int, tuple[int, ...]]]

    def find(self, variable: int, indices: tuple[int, ...]) -> tuple[Leaf, list[tuple[int, int]]]:
        """Return the leaf of a scalar, and its place in the leaf: positions in `indices`, each with its stride.

        An index is a number, or `ANY` for one that is known at run time.
        """
        path: list[int] = []
        dynamic: list[tuple[int, int]] = []
        type_ = self.types[variable]
        for k, index in enumerate(indices):
            parts = self.module.parts(type_)
            if (variable, tuple(path)) in self.arrays:
                dynamic.append((k, self.module.types[type_].count))
                path.append(ANY)
            else:
                # Code that never runs may have an index behind the end.
                path.append(min(index, len(parts) - 1))
            type_ = parts[max(path[-1], 0)]
        strides, stride = [], 1
        for k, count in reversed(dynamic):
            strides.append((k, stride))
            stride *= count
        return self.leaves[variable, tuple(path)], strides

    def bits(self, variable: int, indices: tuple[int, ...] = ()) -> int:
        """Return the leaves that a part of a variable covers."""
        found = 0
        for leaf in self.of[variable]:
            pairs = zip(leaf.path, indices, strict=False)
            if all(index in (step, ANY) or step == ANY for step, index in pairs):
                found |= 1 << leaf.bit
        return found

    def indices(self, pointer: int) -> tuple[int, tuple[int, ...]]:
        """Return the variable and the indices of a pointer, those known at run time as `ANY`."""
        variable, ids = self.paths[pointer]
        return variable, tuple(constant_index(self.module, id_) for id_ in ids)


def constant_index(module: Module, id_: int) -> int:
    """Return the value of an index, or `ANY` if it is no constant."""
    constant = module.constants.get(id_)
    return constant.value if isinstance(constant, Constant) and isinstance(constant.value, int) else ANY


def variables_of(program: Program) -> Variables:
    """Return the leaves of a program's variables."""
    module, types = program.body.module, program.body.variables
    paths: dict[int, tuple[int, tuple[int, ...]]] = {id_: (id_, ()) for id_ in types}
    split: set[tuple[int, tuple[int, ...]]] = set()
    for node in walk(program.tree):
        for one in node.instructions if isinstance(node, Code) else ():
            if one.op in _CHAINS and one.operands[0] in paths:
                variable, before = paths[one.operands[0]]
                paths[one.result] = variable, (*before, *one.operands[1:])
                found = tuple(constant_index(module, id_) for id_ in paths[one.result][1])
                split |= {(variable, found[:k]) for k, index in enumerate(found) if index == ANY}
            elif one.op == CODE["CopyObject"] and one.operands[0] in paths:
                paths[one.result] = paths[one.operands[0]]
    leaves: dict[tuple[int, tuple[int, ...]], Leaf] = {}

    def add(variable: int, type_: int, path: tuple[int, ...], count: int) -> None:
        parts, kind = module.parts(type_), module.types[type_].kind
        if not parts and kind != "struct":
            leaves[variable, path] = Leaf(len(leaves), variable, path, module.scalar(type_), count)
        elif kind != "struct" and (len(parts) > _MOST_LEAVES or _matches(split, variable, path)):
            add(variable, parts[0], (*path, ANY), count * len(parts))
        else:
            for k, part in enumerate(parts):
                add(variable, part, (*path, k), count)

    for variable, type_ in types.items():
        add(variable, type_, (), 1)
    of = {id_: tuple(leaf for leaf in leaves.values() if leaf.variable == id_) for id_ in types}
    arrays = frozenset(
        (leaf.variable, leaf.path[:k]) for leaf in leaves.values() for k, step in enumerate(leaf.path) if step == ANY
    )
    return Variables(module, types, leaves, paths, of, arrays)


def _matches(split: set[tuple[int, tuple[int, ...]]], variable: int, path: tuple[int, ...]) -> bool:
    """Whether some path with an index known at run time leads to here."""
    return any(
        other == variable
        and len(found) == len(path)
        and all(ANY in (a, b) or a == b for a, b in zip(found, path, strict=True))
        for other, found in split
    )

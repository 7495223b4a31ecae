"""Puts every value into a variable that is used outside of the scope that defines it, or behind a barrier.

A scope is a side of a selection, a body or a step of a loop, or a case of a switch: LLVM wants that the text of a
definition dominates its uses, and lanes that have left a scope keep values that others still change. Behind a barrier
the function is entered anew, so that nothing but variables is left. Paths to variables are computed again instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from slangpy_rt.lanes.debug_info import Location
from slangpy_rt.lanes.flow import (
    Barrier,
    Case,
    Code,
    Construct,
    Leave,
    Loop,
    Node,
    Selection,
    Sequence,
    Switch,
    has_barrier,
)
from slangpy_rt.lanes.inline import Body, renamed
from slangpy_rt.lanes.module import INPUT, PHYSICAL, PUSH, Instruction
from slangpy_rt.lanes.opcodes import CODE

_CHAINS = {CODE[name] for name in ("AccessChain", "InBoundsAccessChain", "PtrAccessChain", "InBoundsPtrAccessChain")}


@dataclass(frozen=True, slots=True)
class Program:
    """A kernel whose values are used inside the scopes that define them.

    Attributes
    ----------
    body : Body
        Types and variables; its blocks are those before, which are not needed any more.
    tree : Sequence
        The instructions.
    barriers : bool
        Whether a barrier remains, and with it the scopes behind it.
    """

    body: Body
    tree: Sequence
    barriers: bool


class _Scoping:
    """One walk over the tree. With `variables` it rewrites; without it only finds which ids need one."""

    def __init__(self, body: Body, barriers: bool, variables: Mapping[int, int]) -> None:
        self.body, self.barriers, self.variables = body, barriers, variables
        self.type_of = dict(body.type_of)
        self.bound = body.module.bound + len(variables)
        self.escaping: set[int] = set()
        self.made_by: dict[int, Instruction] = {}
        self.home: dict[int, tuple[int, ...]] = {}
        self.scope: tuple[int, ...] = ()
        self.names: list[dict[int, int]] = [{}]
        self.scopes = 0
        self.location: Location | None = None

    def sequence(self, nodes: Sequence) -> Sequence:
        """Return the nodes of a new scope, rewritten."""
        outside, depth = self.scope, len(self.names)
        self._enter()
        found: list[Node] = []
        for node in nodes:
            if isinstance(node, Code):
                code: list[Instruction] = []
                for one in node.instructions:
                    self._instruction(one, code)
                found.append(Code(tuple(code)))
            elif isinstance(node, Barrier):
                if self.barriers:
                    found.append(node)
                    self._forget()
            elif isinstance(node, Leave):
                found.append(node)
            else:
                self._construct(node, found)
        self.scope = outside
        del self.names[depth:]
        return tuple(found)

    def _construct(self, node: Construct, found: list[Node]) -> None:
        before: list[Instruction] = []
        waits = self.barriers and has_barrier(node)
        made: Node
        if isinstance(node, Selection):
            made = replace(node, condition=self._use(node.condition, before))
        else:
            made = node
        if isinstance(made, Switch) and made.selector:
            made = replace(made, selector=self._use(made.selector, before))
        if before:
            found.append(Code(tuple(before)))
        sides = []
        for side in node.sides:
            if waits:
                self._forget()
            sides.append(self.sequence(side))
        if waits:
            self._forget()
        if isinstance(made, Switch):
            cases = (Case(each.numbers, side, each.falls) for each, side in zip(made.cases, sides, strict=True))
            made = replace(made, cases=tuple(cases))
        elif isinstance(made, Loop):
            made = replace(made, body=sides[0], step=sides[1])
        else:
            assert isinstance(made, Selection)
            made = replace(made, then=sides[0], other=sides[1])
        found.append(made)

    def _enter(self) -> None:
        self.scopes += 1
        self.scope += (self.scopes,)
        self.names.append({})

    def _forget(self) -> None:
        """Let nothing that has been defined until here be visible."""
        self.scopes += 1
        self.scope = (-self.scopes, *self.scope[1:]) if self.scope else ()
        for names in self.names:
            names.clear()

    def _instruction(self, one: Instruction, code: list[Instruction]) -> None:
        self.location = one.location
        names = {id_: found for id_ in one.used if (found := self._use(id_, code)) != id_}
        made = renamed(one, names) if names else one
        code.append(made)
        if one.result:
            self.home[one.result], self.made_by[one.result] = self.scope, one
            if one.result in self.variables:
                store = one.beside("Store", (self.variables[one.result], one.result))
                code.append(store)

    def _use(self, id_: int, code: list[Instruction]) -> int:
        """Return the id under which a value is visible here; what makes it visible is added to `code`."""
        home = self.home.get(id_)
        if home is None or self.scope[: len(home)] == home:
            return id_
        for names in self.names:
            if id_ in names:
                return names[id_]
        made_by = self.made_by[id_]
        self.bound += 1
        new = self.bound
        self.type_of[new] = made_by.type
        if self._again(made_by):
            names = {other: self._use(other, code) for other in made_by.used}
            code.append(replace(renamed(made_by, names), result=new, location=self.location))
        else:
            self.escaping.add(id_)
            load = made_by.beside("Load", (self.variables.get(id_, 0),), made_by.type, new)
            code.append(replace(load, location=self.location))
        self.names[-1][id_] = new
        return new

    def _again(self, one: Instruction) -> bool:
        """Whether to write an instruction again: a path to a variable, an argument's address, a thread's index."""
        module = self.body.module
        type_ = module.types[one.type]
        if type_.kind == "pointer" and type_.count != PHYSICAL:
            return one.op in _CHAINS or one.op == CODE["CopyObject"]
        if one.op == CODE["Load"]:
            base = one.operands[0]
            while base in self.made_by:
                base = self.made_by[base].operands[0]
            return module.variables.get(base, (0, 0, 0))[1] in (INPUT, PUSH)
        if one.op == CODE["CompositeExtract"]:
            inner = self.made_by.get(one.operands[0])
            return inner is not None and self._again(inner)
        return False


def scoped(body: Body, tree: Sequence, barriers: bool) -> Program:
    """Return the program in which each value is used inside of the scope that defines it.

    Parameters
    ----------
    body, tree : Body, Sequence
        The kernel.
    barriers : bool
        False if a whole group runs in the lanes of one vector: barriers are dropped then.
    """
    barriers = barriers and has_barrier(tree)
    search = _Scoping(body, barriers, {})
    search.sequence(tree)
    first = body.module.bound
    variables = {id_: first + k for k, id_ in enumerate(sorted(search.escaping), 1)}
    rewriting = _Scoping(body, barriers, variables)
    found = rewriting.sequence(tree)
    types = dict(body.variables) | {variables[id_]: body.type_of[id_] for id_ in variables}
    module = replace(body.module, bound=rewriting.bound + 1)
    return Program(replace(body, module=module, variables=types, type_of=rewriting.type_of), found, barriers)

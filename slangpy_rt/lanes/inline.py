"""Makes one body of a module: calls are replaced by the called functions, and phi instructions by variables.

A call becomes a switch with a default case alone, which is left where the function returned. Global variables of a
thread become variables of the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.module import PRIVATE, Block, Function, Instruction, Module
from slangpy_rt.lanes.opcodes import CODE, OPERATIONS, name_of

_MOST_BLOCKS = 20000  # above, LLVM takes minutes


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel without calls: its module, the first block, variables (id to type of the value), types of results."""

    module: Module
    entry: int
    blocks: Mapping[int, Block]
    variables: Mapping[int, int]
    type_of: Mapping[int, int]


class _Inliner:
    """The body while it grows."""

    def __init__(self, module: Module) -> None:
        self.module, self.bound = module, module.bound
        self.blocks: dict[int, Block] = {}
        self.variables: dict[int, int] = {}
        self.type_of = dict(module.type_of)
        self.plain: dict[int, Function] = {}

    def new(self) -> int:
        self.bound += 1
        return self.bound

    def without_phis(self, id_: int) -> Function:
        """Return a function whose phi instructions are loads of variables, stored at the ends of other blocks."""
        if id_ not in self.plain:
            self.plain[id_] = self._without_phis(self.module.functions[id_])
        return self.plain[id_]

    def _without_phis(self, function: Function) -> Function:
        phis = [one for block in function.blocks.values() for one in block.body if one.op == CODE["Phi"]]
        if not phis:
            return function
        places = {one.result: self.new() for one in phis}
        variables = dict(function.variables) | {places[one.result]: one.type for one in phis}
        ends: dict[int, list[Instruction]] = {}
        for one in phis:
            for value, block in zip(one.operands[::2], one.operands[1::2], strict=True):
                store = Instruction(CODE["Store"], 0, 0, (places[one.result], value), one.line)
                ends.setdefault(block, []).append(store)

        def loaded(one: Instruction) -> Instruction:
            if one.op != CODE["Phi"]:
                return one
            return Instruction(CODE["Load"], one.type, one.result, (places[one.result],), one.line)

        blocks = {
            label: replace(block, body=(*map(loaded, block.body), *ends.get(label, ())))
            for label, block in function.blocks.items()
        }
        return replace(function, variables=variables, blocks=blocks)

    def add(self, function: Function, names: dict[int, int], leave: tuple[int, int] | None) -> None:
        """Add a function's blocks under new names; `leave` has the block to return to and the result's variable."""
        if leave:  # every call has values of its own
            for label, block in function.blocks.items():
                for id_ in (label, *(one.result for one in block.body if one.result)):
                    names[id_] = self.new()
            names |= {id_: self.new() for id_ in function.variables}
        for id_, type_ in function.variables.items():
            self.variables[names.get(id_, id_)] = type_
            if id_ in self.type_of:
                self.type_of[names.get(id_, id_)] = self.type_of[id_]
        if len(self.blocks) > _MOST_BLOCKS:
            raise UnsupportedKernel(f"more than {_MOST_BLOCKS} blocks after inlining calls")
        for label, block in function.blocks.items():
            self._add_block(names.get(label, label), block, names, leave)

    def _add_block(self, label: int, block: Block, names: dict[int, int], leave: tuple[int, int] | None) -> None:
        body: list[Instruction] = []
        for before in block.body:
            one = renamed(before, names)
            if one.result:
                self.type_of[one.result] = one.type
            if one.op == CODE["FunctionCall"]:
                label, body = self._call(label, body, one), []
                if self.module.types[one.type].kind != "void":
                    body.append(Instruction(CODE["Load"], one.type, one.result, (label + 1,), one.line))
            else:
                body.append(one)
        end = renamed(block.end, names)
        merge = block.merge and _relabeled(block.merge, names)
        if leave and end.op in (CODE["Return"], CODE["ReturnValue"]):
            if end.op == CODE["ReturnValue"]:
                body.append(Instruction(CODE["Store"], 0, 0, (leave[1], end.operands[0]), end.line))
            end = Instruction(CODE["Branch"], 0, 0, (leave[0],), end.line)
        else:
            end = _relabeled(end, names)
        self.blocks[label] = Block(tuple(body), merge, end)

    def _call(self, label: int, body: list[Instruction], call: Instruction) -> int:
        """End a block by a call; return the label of the block behind it. The result's variable has the next id."""
        function = self.without_phis(call.operands[0])
        after, result = self.new(), self.new()
        if self.module.types[call.type].kind != "void":
            self.variables[result] = call.type
        names = dict(zip(function.parameters, call.operands[1:], strict=True))
        first = next(iter(function.blocks))
        self.add(function, names, (after, result))
        merge = Instruction(CODE["SelectionMerge"], 0, 0, (after, 0), call.line)
        self.blocks[label] = Block(
            tuple(body), merge, Instruction(CODE["Switch"], 0, 0, (0, names[first]), call.line)
        )
        return after


def inlined(module: Module) -> Body:
    """Return the body of a module's kernel.

    Raises
    ------
    UnsupportedKernel
        If the body grows beyond what LLVM compiles in reasonable time.
    """
    inliner = _Inliner(module)
    kernel = inliner.without_phis(module.entry)
    inliner.add(kernel, {}, None)
    entry = next(iter(kernel.blocks))
    initial = []
    for id_, (type_, space, value) in module.variables.items():
        if space == PRIVATE:
            inliner.variables[id_] = type_
            if value:
                initial.append(Instruction(CODE["Store"], 0, 0, (id_, value)))
    first = inliner.blocks[entry]
    inliner.blocks[entry] = replace(first, body=(*initial, *first.body))
    bounded = replace(module, bound=inliner.bound + 1)
    return Body(bounded, entry, inliner.blocks, inliner.variables, inliner.type_of)


def renamed(one: Instruction, names: Mapping[int, int]) -> Instruction:
    """Return an instruction with other ids for its operands and its result."""
    if one.op not in OPERATIONS:
        raise UnsupportedKernel(name_of(one.op), one.line)
    operands = list(one.operands)
    for k in OPERATIONS[one.op].ids(one.operands):
        operands[k] = names.get(operands[k], operands[k])
    return replace(one, result=names.get(one.result, one.result), operands=tuple(operands))


def _relabeled(one: Instruction, names: Mapping[int, int]) -> Instruction:
    """Return an instruction whose labels, which are no ids in ``opcodes``, have other names."""
    operands = list(one.operands)
    for k in labels(one):
        operands[k] = names.get(operands[k], operands[k])
    return replace(one, operands=tuple(operands))


def labels(one: Instruction) -> Iterable[int]:
    """Return the positions of an instruction's labels; `parse` gave the cases of a switch one operand each."""
    name = OPERATIONS[one.op].name
    if name == "Switch":
        return (1, *range(3, len(one.operands), 2))
    return {"Branch": (0,), "BranchConditional": (1, 2), "LoopMerge": (0, 1), "SelectionMerge": (0,)}.get(name, ())

"""Makes one body of a module: calls are replaced by the called functions, and phi instructions by variables.

A call becomes a switch with a default case alone, which is left where the function returned. Global variables of a
thread become variables of the body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from slangpy_rt.lanes.debug_info import Location
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.extended import FREXP, FREXP_EXPONENT, FREXP_SIGNIFICAND, MODF, MODF_FRACTION, TRUNC
from slangpy_rt.lanes.module import PRIVATE, Block, Function, Instruction, Module
from slangpy_rt.lanes.opcodes import CODE, OPERATIONS, name_of

# Instructions of GLSL.std.450 with two results: the numbers of those for the result, and for that behind the pointer.
_SECOND = {MODF: (MODF_FRACTION, TRUNC), FREXP: (FREXP_SIGNIFICAND, FREXP_EXPONENT)}
_MOST_BLOCKS = 20000  # above, LLVM takes minutes


@dataclass(frozen=True, slots=True)
class Body:
    """A kernel without calls: its module, the first block, variables (id to type of the value), types of results.

    `declared` has variables with a name in the Slang text: the ids of the variable and of its debug information, and
    where the function was called that declares it.
    """

    module: Module
    entry: int
    blocks: Mapping[int, Block]
    variables: Mapping[int, int]
    type_of: Mapping[int, int]
    declared: tuple[tuple[int, int, Location | None], ...] = ()


class _Inliner:
    """The body while it grows."""

    def __init__(self, module: Module, called: frozenset[int]) -> None:
        self.module, self.bound, self.called = module, module.bound, called
        self.blocks: dict[int, Block] = {}
        self.variables: dict[int, int] = {}
        self.type_of = dict(module.type_of)
        self.plain: dict[int, Function] = {}
        self.declared: list[tuple[int, int, Location | None]] = []

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
                store = one.beside("Store", (places[one.result], value))
                ends.setdefault(block, []).append(store)

        def loaded(one: Instruction) -> Instruction:
            if one.op != CODE["Phi"]:
                return one
            return one.beside("Load", (places[one.result],), one.type, one.result)

        blocks = {
            label: replace(block, body=(*map(loaded, block.body), *ends.get(label, ())))
            for label, block in function.blocks.items()
        }
        return replace(function, variables=variables, blocks=blocks)

    def add(
        self, function: Function, names: dict[int, int], leave: tuple[int, int] | None, caller: Location | None
    ) -> None:  # fmt: skip
        """Add a function's blocks under new names.

        `leave` has the block to return to and the result's variable. `caller` is the place of the call, if known.
        """
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
        self.declared += ((names.get(id_, id_), info, caller) for id_, info in function.declared)
        prologue = self._prologue(function) if caller else 0
        for label, block in function.blocks.items():
            self._add_block(names.get(label, label), block, names, leave, caller, prologue)
            prologue = 0

    def _prologue(self, function: Function) -> int:
        """Return how many instructions of the first block store parameters: they belong to the place of the call.

        So a debugger that enters the function finds its parameters set.
        """
        known, count = self.module.debug, 0
        own = {id_ for id_, info in function.declared if known and known.variables[info].parameter}
        for k, one in enumerate(next(iter(function.blocks.values())).body):
            if known and one.location and one.location.line != known.functions[one.location.function].line:
                break
            if one.op == CODE["AccessChain"] and one.operands[0] in own:
                own.add(one.result)
            if one.op == CODE["Store"] and one.operands[0] in own:
                count = k + 1
        return count

    def _add_block(
        self, label: int, block: Block, names: dict[int, int], leave: tuple[int, int] | None, caller: Location | None,
        prologue: int,
    ) -> None:  # fmt: skip
        body: list[Instruction] = []
        for k, before in enumerate(block.body):
            one = _moved(renamed(before, names), caller)
            if k < prologue:
                one = replace(one, location=caller)
            if one.result:
                self.type_of[one.result] = one.type
            if one.op == CODE["ExtInst"] and one.operands[1] in _SECOND:
                body += self._two_results(one)
            elif one.op == CODE["FunctionCall"] and one.operands[0] not in self.called:
                label, body = self._call(label, body, one), []
                if self.module.types[one.type].kind != "void":
                    body.append(one.beside("Load", (label + 1,), one.type, one.result))
            else:
                body.append(one)
        end = _moved(renamed(block.end, names), caller)
        merge = block.merge and _relabeled(block.merge, names)
        if leave and end.op in (CODE["Return"], CODE["ReturnValue"]):
            if end.op == CODE["ReturnValue"]:
                body.append(end.beside("Store", (leave[1], end.operands[0])))
            end = end.beside("Branch", (leave[0],))
        else:
            end = _relabeled(end, names)
        self.blocks[label] = Block(tuple(body), merge, end)

    def _two_results(self, one: Instruction) -> list[Instruction]:
        """Return the instructions for one that has a result and writes another through a pointer."""
        set_, code, value, pointer = one.operands
        first, second = _SECOND[code]
        other, type_ = self.new(), self.module.types[self.type_of[pointer]].element
        self.type_of[other] = type_
        return [
            one.beside("ExtInst", (set_, second, value), type_, other),
            one.beside("ExtInst", (set_, first, value), one.type, one.result),
            one.beside("Store", (pointer, other)),
        ]

    def _call(self, label: int, body: list[Instruction], call: Instruction) -> int:
        """End a block by a call; return the label of the block behind it. The result's variable has the next id."""
        function = self.without_phis(call.operands[0])
        after, result = self.new(), self.new()
        if self.module.types[call.type].kind != "void":
            self.variables[result] = call.type
        names = dict(zip(function.parameters, call.operands[1:], strict=True))
        first = next(iter(function.blocks))
        caller = call.location and replace(call.location, call=after)
        self.add(function, names, (after, result), caller)
        merge = call.beside("SelectionMerge", (after, 0))
        self.blocks[label] = Block(tuple(body), merge, call.beside("Switch", (0, names[first])))
        return after


def inlined(module: Module, called: frozenset[int] = frozenset()) -> Body:
    """Return the body of a module's kernel, in which calls of some functions stay.

    Raises
    ------
    UnsupportedKernel
        If the body grows beyond what LLVM compiles in reasonable time.
    """
    inliner = _Inliner(module, called)
    return _finished(inliner, inliner.without_phis(module.entry))


def inlined_call(module: Module, function: int) -> tuple[Body, tuple[int, ...], int]:
    """Return the body of a kernel that calls a function; also the ids of the arguments and of the result."""
    inliner = _Inliner(module, frozenset())
    type_, parameters = module.functions[function].type, module.functions[function].parameters
    arguments = tuple(inliner.new() for _ in parameters)
    for id_, parameter in zip(arguments, parameters, strict=True):
        inliner.type_of[id_] = module.type_of[parameter]
    result, label = inliner.new(), inliner.new()
    call = Instruction(CODE["FunctionCall"], type_, result, (function, *arguments))
    block = Block((call,), None, Instruction(CODE["Return"], 0, 0, ()))
    return _finished(inliner, Function(0, (), {}, {label: block})), arguments, result


def _finished(inliner: _Inliner, kernel: Function) -> Body:
    module = inliner.module
    inliner.add(kernel, {}, None, None)
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
    return Body(bounded, entry, inliner.blocks, inliner.variables, inliner.type_of, tuple(inliner.declared))


def renamed(one: Instruction, names: Mapping[int, int]) -> Instruction:
    """Return an instruction with other ids for its operands and its result."""
    if one.op not in OPERATIONS:
        raise UnsupportedKernel(name_of(one.op), one.line)
    operands = list(one.operands)
    for k in OPERATIONS[one.op].ids(one.operands):
        operands[k] = names.get(operands[k], operands[k])
    return replace(one, result=names.get(one.result, one.result), operands=tuple(operands))


def _moved(one: Instruction, caller: Location | None) -> Instruction:
    """Return an instruction of a function that is inlined at a call."""
    if caller is None or one.location is None:
        return one
    return replace(one, location=one.location.inside(caller))


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

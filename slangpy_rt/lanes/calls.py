"""Functions that are called and not inlined: which, their names, and what passes between a call and a function.

They are those that Slang text marks ``[noinline]``, if they are long and have nothing of the kernel around them: no
pointers to variables, memory of the thread or the group, built-in variables, barriers, waves or atomic operations. A
function runs for all lanes of a vector at once and gets their mask as an integer. There is one text for each set of
arguments that are the same in all lanes, and a digest of all that the text depends on is its name: whoever compiles
it may keep the code for other kernels. All that a function calls is inlined into it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slangpy_rt.lanes.inline import labels
from slangpy_rt.lanes.module import FUNCTION, GROUP, INPUT, PRIVATE, PUSH, Instruction, Module
from slangpy_rt.lanes.opcodes import CODE, OPERATIONS
from slangpy_rt.lanes.shapes import ANY, UNIFORM, Shapes, leaves

_NO_INLINE = 2  # a bit of a function's control
# Shorter functions are inlined: a call costs what stands in registers around it.
_LEAST = 300
_KERNEL = ("Atomic", "GroupNonUniform", "ControlBarrier", "MemoryBarrier")
_OWN = frozenset({INPUT, GROUP, PRIVATE, PUSH, FUNCTION})


@dataclass(frozen=True, slots=True)
class Call:
    """A function for some arguments.

    Attributes
    ----------
    function : int
        The function's id.
    same : tuple of bool
        For each scalar of the arguments in order, whether it is the same in all lanes.
    """

    function: int
    same: tuple[bool, ...]

    @property
    def uniform(self) -> bool:
        """Whether all lanes have the same arguments, and so the same result."""
        return all(self.same)


def called_functions(module: Module) -> frozenset[int]:
    """Return the functions of a module that are called."""
    return frozenset(
        id_ for id_, function in module.functions.items()
        if function.control & _NO_INLINE and id_ != module.entry and _stands_alone(module, id_)
    )  # fmt: skip


def parameter_shapes(module: Module, call: Call) -> dict[int, Shapes]:
    """Return the shapes of a function's parameters, by id."""
    found, at = {}, 0
    for id_ in module.functions[call.function].parameters:
        count = len(leaves(_like(module, module.type_of[id_])))
        same = iter(call.same[at : at + count])
        found[id_] = _like(module, module.type_of[id_], same)
        at += count
    return found


def scalar_types(module: Module, id_: int) -> list[str]:
    """Return the LLVM types of the scalars of a type, in order."""
    if parts := module.parts(id_):
        return [scalar for part in parts for scalar in scalar_types(module, part)]
    return [] if module.types[id_].kind in ("void", "struct") else [module.scalar(id_)]


def returned(types: Iterable[str]) -> str:
    """Return the LLVM type of a function's result; `types` are those of its scalars, vectors included."""
    found = list(types)
    return found[0] if len(found) == 1 else "{ " + ", ".join(found) + " }" if found else "void"


def name_of_call(module: Module, call: Call, width: int, contract: bool) -> str:
    """Return the name of a function's text, which tells it from all others."""
    writing = _Digest(module)
    for id_ in _reached(module, call.function):
        writing.add(id_)
    digest = hashlib.sha256(repr((width, contract, call.same, writing.words)).encode())
    return f"called_{digest.hexdigest()[:32]}"


class _Digest:
    """What functions consist of, with ids that do not depend on the rest of the module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.words: list[object] = []
        self._names: dict[int, object] = {}

    def add(self, id_: int) -> None:
        """Add a function."""
        function, named = self.module.functions[id_], self._named
        self.words += named(id_), named(function.type)
        for each in (*function.parameters, *function.variables):
            self.words += named(each), named(self.module.type_of.get(each) or function.variables[each])
        for label, block in function.blocks.items():
            self.words.append(named(label))
            for one in (*block.body, *([block.merge] if block.merge else []), block.end):
                ids = {*OPERATIONS[one.op].ids(one.operands), *labels(one)}
                self.words += one.op, one.type and named(one.type), one.result and named(one.result)
                self.words += (named(word) if k in ids else word for k, word in enumerate(one.operands))
                self.words.append(one.result in self.module.exact)

    def _named(self, id_: int) -> object:
        """Return a word for an id: what a type, a constant or a set of instructions is, or a number."""
        if id_ not in self._names:
            module, constant = self.module, self.module.constants.get(id_)
            if constant:
                self._names[id_] = _digest_of(("constant", _type(module, constant.type, ()), constant.value))
            elif id_ in module.types:
                self._names[id_] = _digest_of(_type(module, id_, ()))
            else:
                self._names[id_] = module.sets.get(id_) or len(self._names)
        return self._names[id_]


def _like(module: Module, id_: int, same: Iterator[bool] | None = None) -> Shapes:
    if parts := module.parts(id_):
        return tuple(_like(module, part, same) for part in parts)
    if module.types[id_].kind == "struct":
        return ()
    return UNIFORM if same is None or next(same) else ANY


def _reached(module: Module, id_: int) -> list[int]:
    """Return a function and those that it calls, each once."""
    found: dict[int, None] = {}
    left = [id_]
    while left:
        each = left.pop()
        if each not in found:
            found[each] = None
            left += [one.operands[0] for one in _body(module, each) if one.op == CODE["FunctionCall"]]
    return list(found)


def _body(module: Module, id_: int) -> Iterator[Instruction]:
    for block in module.functions[id_].blocks.values():
        yield from block.body


def _stands_alone(module: Module, id_: int) -> bool:
    """Whether a function is long, and nothing of the kernel is in it or in those that it calls."""
    length = 0
    function = module.functions[id_]
    if any(_has_pointer(module, module.type_of[each]) for each in function.parameters):
        return False
    if _has_pointer(module, function.type):
        return False
    for each in _reached(module, id_):
        for one in _body(module, each):
            length += 1
            if OPERATIONS[one.op].name.startswith(_KERNEL):
                return False
            if any(used in module.variables and module.variables[used][1] in _OWN for used in one.used):
                return False
    return length >= _LEAST


def _has_pointer(module: Module, id_: int) -> bool:
    type_ = module.types[id_]
    own = type_.kind == "pointer" and type_.count in _OWN
    return own or any(_has_pointer(module, part) for part in module.parts(id_))


def _digest_of(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def _type(module: Module, id_: int, within: tuple[int, ...]) -> object:
    """Return a type as a value that equal types share; a type inside of itself by its depth."""
    if id_ in within:
        return within.index(id_)
    type_, inner = module.types[id_], (*within, id_)
    offsets = [module.offsets.get((id_, k)) for k in range(len(type_.members))]
    element = _type(module, type_.element, inner) if type_.element else 0
    members = [_type(module, each, inner) for each in type_.members]
    return type_.kind, type_.bits, type_.signed, element, type_.count, members, offsets, module.strides.get(id_)

"""Reads the words of a SPIR-V module as tables by id. Instructions without an entry in ``opcodes`` are refused.

Nothing is validated: the words are what Slang wrote for a Vulkan target.
"""

from __future__ import annotations

import array
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from slangpy_rt.lanes.debug_info import DEBUG_INFO, DebugInfo, DebugReader, Location
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.opcodes import CODE, OPERATIONS, name_of

# Storage classes, decorations and execution modes.
INPUT, GROUP, PRIVATE, FUNCTION, PUSH, PHYSICAL = 1, 4, 6, 7, 9, 5349
_ARRAY_STRIDE, _BUILTIN, _OFFSET, _NO_CONTRACTION, _LOCAL_SIZE, _LOCAL_SIZE_ID = 6, 11, 35, 42, 17, 38
_WAVE_BUILTINS = frozenset({36, 37, 38, 40, 41, *range(4416, 4421)})
_GLSL = "GLSL.std.450"
_PRINT = "NonSemantic.DebugPrintf"
_FLOATS = {16: "half", 32: "float", 64: "double"}


@dataclass(frozen=True, slots=True)
class Type:
    """A type.

    Attributes
    ----------
    kind : str
        ``void``, ``bool``, ``int``, ``float``, ``vector``, ``array``, ``struct``, ``pointer`` or ``function``. A
        matrix is an array of its columns.
    bits, signed : int, bool
        Of numbers.
    element, count : int
        Of vectors and arrays; 0 elements for arrays whose length is known at run time. A pointer's element is what
        it points to, and its count is the storage class.
    members : tuple of int
        Of structs.
    """

    kind: str
    bits: int = 0
    signed: bool = False
    element: int = 0
    count: int = 0
    members: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant: its type's id, and an int, a float, a bool or a tuple of these."""

    type: int
    value: object


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction: number, id of the type and of the result (0 if it has none), other operands, Slang line.

    `location` has function and file too, in modules with debug information.
    """

    op: int
    type: int
    result: int
    operands: tuple[int, ...]
    line: int = 0
    location: Location | None = None

    @property
    def used(self) -> list[int]:
        """The ids among the operands."""
        return [self.operands[k] for k in OPERATIONS[self.op].ids(self.operands)]

    def beside(self, name: str, operands: tuple[int, ...], type_: int = 0, result: int = 0) -> Instruction:
        """Return another instruction, by name, for the same place of the Slang text."""
        return Instruction(CODE[name], type_, result, operands, self.line, self.location)


@dataclass(frozen=True, slots=True)
class Block:
    """A block: what it computes, the merge instruction if it has one, and the instruction that ends it."""

    body: tuple[Instruction, ...]
    merge: Instruction | None
    end: Instruction


@dataclass(frozen=True, slots=True)
class Function:
    """A function: its result type, parameters, variables (id to type of the value) and blocks, the first first.

    `declared` has two ids for each named variable of the Slang text: the variable and its debug information.
    `control` has the bits that ask for inlining or against it.
    """

    type: int
    parameters: tuple[int, ...]
    variables: Mapping[int, int]
    blocks: Mapping[int, Block]
    declared: tuple[tuple[int, int], ...] = ()
    control: int = 0


@dataclass(frozen=True, slots=True)
class Module:
    """A SPIR-V module.

    Attributes
    ----------
    types, constants, functions : mapping
        By id.
    variables : mapping
        Global variables: the type of the value, the storage class, and the id of the initial value or 0.
    builtins, strides, offsets : mapping
        Decorations: by id; offsets by id and member.
    exact : frozenset of int
        Results that must not be contracted with others.
    type_of : mapping
        The type's id of each result and constant.
    sets : mapping
        Names of the imported sets of instructions, by id.
    strings : mapping
        Literal strings by id.
    entry : int
        The function that is the kernel.
    size : tuple of int
        Threads of a group.
    bound : int
        A number above all ids.
    debug : DebugInfo or None
        Names and places in the Slang text, if the module has them.
    names : mapping
        Names of struct types and, by id and member, of their members.
    """

    types: Mapping[int, Type]
    constants: Mapping[int, Constant]
    functions: Mapping[int, Function]
    variables: Mapping[int, tuple[int, int, int]]
    builtins: Mapping[int, int]
    strides: Mapping[int, int]
    offsets: Mapping[tuple[int, int], int]
    exact: frozenset[int]
    type_of: Mapping[int, int]
    sets: Mapping[int, str]
    strings: Mapping[int, str]
    entry: int
    size: tuple[int, int, int]
    bound: int
    debug: DebugInfo | None = None
    names: Mapping[int | tuple[int, int], str] = field(default_factory=dict)

    @property
    def waves(self) -> bool:
        """Whether threads exchange values in waves, or ask for their place in one."""
        blocks = (block for function in self.functions.values() for block in function.blocks.values())
        names = (name_of(one.op) for block in blocks for one in block.body)
        used = any(name.startswith(("OpGroupNonUniform", "OpSubgroup")) for name in names)
        return used or not _WAVE_BUILTINS.isdisjoint(self.builtins.values())

    def parts(self, id_: int) -> tuple[int, ...]:
        """Return the types of the parts of a vector, an array or a struct; nothing for a scalar."""
        type_ = self.types[id_]
        return (type_.element,) * type_.count if type_.kind in ("vector", "array") else type_.members

    def scalar(self, id_: int) -> str:
        """Return the LLVM type of a scalar, or of a vector's components. Pointers are 64-bit integers."""
        type_ = self.types[id_]
        if type_.kind in ("vector", "array"):
            return self.scalar(type_.element)
        if type_.kind == "int":
            return f"i{type_.bits}"
        return {"bool": "i1", "pointer": "i64", "float": _FLOATS.get(type_.bits, "")}.get(type_.kind, "")

    def signed(self, id_: int) -> bool:
        """Return whether a result or a constant has a signed type."""
        return self.types[self.type_of[id_]].signed

    def nbytes(self, id_: int) -> int:
        """Return the size of a type in memory: as decorated, or without gaps in the memory of a group."""
        type_ = self.types[id_]
        if type_.kind in ("int", "float"):
            return type_.bits // 8
        if type_.kind in ("bool", "pointer"):
            return 4 if type_.kind == "bool" else 8
        if type_.kind == "struct":
            last = len(type_.members) - 1
            return self.offset(id_, last) + self.nbytes(type_.members[last]) if type_.members else 0
        return self.stride(id_) * type_.count

    def stride(self, id_: int) -> int:
        """Return the distance of the elements of an array or a vector, or of what a pointer points to."""
        return self.strides.get(id_) or self.nbytes(self.types[id_].element)

    def offset(self, id_: int, member: int) -> int:
        """Return the offset of a part of a composite type."""
        type_ = self.types[id_]
        if type_.kind != "struct":
            return self.stride(id_) * member
        if (id_, member) in self.offsets:
            return self.offsets[id_, member]
        end = 0
        for each in type_.members[: member + 1]:
            align = self._align(each)
            start = -(-end // align) * align
            end = start + self.nbytes(each)
        return start

    def _align(self, id_: int) -> int:
        parts = self.parts(id_)
        return max(map(self._align, parts)) if parts else self.nbytes(id_)


@dataclass(slots=True)
class _Reader:
    """The tables while they grow."""

    types: dict[int, Type] = field(default_factory=dict)
    constants: dict[int, Constant] = field(default_factory=dict)
    functions: dict[int, Function] = field(default_factory=dict)
    variables: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    builtins: dict[int, int] = field(default_factory=dict)
    strides: dict[int, int] = field(default_factory=dict)
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    exact: set[int] = field(default_factory=set)
    type_of: dict[int, int] = field(default_factory=dict)
    sets: dict[int, str] = field(default_factory=dict)
    strings: dict[int, str] = field(default_factory=dict)
    entry: int = 0
    size: tuple[int, int, int] = (1, 1, 1)
    names: dict[int | tuple[int, int], str] = field(default_factory=dict)
    debug: DebugReader = field(default_factory=DebugReader)

    def read(self, one: Instruction) -> None:
        """Take an instruction from outside of functions."""
        name, id_, rest = OPERATIONS[one.op].name, one.result, one.operands
        if name.startswith("Type"):
            self.types[id_ or rest[0]] = self._type(name, rest)
        elif "Constant" in name or name == "Undef":
            self.constants[id_] = Constant(one.type, self._constant(name, one))
            self.type_of[id_] = one.type
        elif name == "Variable":
            kind = self.types[one.type]
            self.variables[id_] = kind.element, rest[0], rest[1] if len(rest) > 1 else 0
            self.type_of[id_] = one.type
        elif name == "ExtInstImport":
            self.sets[id_] = _string(rest)
        elif name == "ExtInst":
            self.debug.read(id_, rest[1], rest[2:], self.strings, self.constants)
        elif name == "String":
            self.strings[id_] = _string(rest)
        elif name == "EntryPoint":
            self.entry = self.entry or rest[1]
        elif name.startswith("ExecutionMode") and rest[1] in (_LOCAL_SIZE, _LOCAL_SIZE_ID):
            sizes = rest[2:5]
            if rest[1] == _LOCAL_SIZE_ID:
                sizes = tuple(int(str(self.constants[k].value)) for k in sizes)
            self.size = sizes[0], sizes[1], sizes[2]
        elif name == "Decorate":
            self._decorate(rest)
        elif name == "MemberDecorate" and rest[2] == _OFFSET:
            self.offsets[rest[0], rest[1]] = rest[3]

    def _decorate(self, rest: tuple[int, ...]) -> None:
        if rest[1] == _BUILTIN:
            self.builtins[rest[0]] = rest[2]
        elif rest[1] == _ARRAY_STRIDE:
            self.strides[rest[0]] = rest[2]
        elif rest[1] == _NO_CONTRACTION:
            self.exact.add(rest[0])

    def _type(self, name: str, rest: tuple[int, ...]) -> Type:
        match name:
            case "TypeInt":
                return Type("int", rest[0], bool(rest[1]))
            case "TypeFloat":
                if len(rest) > 1:
                    raise UnsupportedKernel("a number format other than IEEE half, float and double")
                return Type("float", rest[0])
            case "TypeVector" | "TypeMatrix":
                return Type("vector" if name == "TypeVector" else "array", element=rest[0], count=rest[1])
            case "TypeArray":
                return Type("array", element=rest[0], count=int(str(self.constants[rest[1]].value)))
            case "TypeRuntimeArray":
                return Type("array", element=rest[0])
            case "TypeStruct":
                return Type("struct", members=rest)
            case "TypePointer":
                return Type("pointer", element=rest[1], count=rest[0])
            case "TypeForwardPointer":
                return Type("pointer", count=rest[1])
        return Type(name.removeprefix("Type").lower())

    def _constant(self, name: str, one: Instruction) -> object:
        if name.endswith(("True", "False")):
            return name.endswith("True")
        if name.endswith("Composite"):
            return tuple(self.constants[k].value for k in one.operands)
        if name in ("ConstantNull", "Undef"):
            return self._zero(one.type)
        type_, words = self.types[one.type], one.operands
        data = struct.pack(f"<{len(words)}I", *words)
        if type_.kind == "float":
            return struct.unpack({16: "<e2x", 32: "<f", 64: "<d"}[type_.bits], data)[0]
        return int.from_bytes(data[: type_.bits // 8], "little", signed=type_.signed)

    def _zero(self, id_: int) -> object:
        type_ = self.types[id_]
        if type_.kind in ("vector", "array"):
            return (self._zero(type_.element),) * type_.count
        if type_.kind == "struct":
            return tuple(map(self._zero, type_.members))
        return {"bool": False, "float": 0.0}.get(type_.kind, 0)


def parse(code: bytes) -> Module:
    """Return the tables of a module.

    Raises
    ------
    UnsupportedKernel
        If an instruction is unknown.
    """
    words = array.array("I", code).tolist()
    reader, at, line = _Reader(), 5, 0
    function: Instruction | None = None
    parameters: list[int] = []
    variables: dict[int, int] = {}
    blocks: dict[int, Block] = {}
    body: list[Instruction] = []
    merge: Instruction | None = None
    label = 0
    while at < len(words):
        op, length = words[at] & 0xFFFF, words[at] >> 16
        if op not in OPERATIONS:
            raise UnsupportedKernel(name_of(op), line)
        head = len(OPERATIONS[op].head)
        rest = words[at + 1 : at + length]
        one = Instruction(
            op, rest[0] if head == 2 else 0, rest[head - 1] if head else 0, tuple(rest[head:]), line,
            reader.debug.location,
        )  # fmt: skip
        at += length
        name = OPERATIONS[op].name
        if one.type and one.result:
            reader.type_of[one.result] = one.type
        if name == "Line":
            line = one.operands[1]
        elif name == "Name":
            reader.names[one.operands[0]] = _string(one.operands[1:])
        elif name == "MemberName":
            reader.names[one.operands[0], one.operands[1]] = _string(one.operands[2:])
        elif name == "NoLine":
            pass
        elif name == "Function":
            function, parameters, variables, blocks = one, [], {}, {}
        elif function is None or name == "Undef":
            reader.read(one)
        elif name == "ExtInst" and reader.sets[one.operands[0]] == DEBUG_INFO:
            reader.debug.place(one.operands[1], one.operands[2:], function.result, reader.constants)
            line = reader.debug.line
        elif name == "FunctionParameter":
            parameters.append(one.result)
        elif name == "FunctionEnd":
            reader.functions[function.result] = Function(
                function.type, tuple(parameters), variables, blocks, reader.debug.taken(),
                function.operands[0],
            )  # fmt: skip
            function = None
        elif name == "Label":
            label, body, merge = one.result, [], None
            reader.debug.begin()
        elif name == "Variable":
            variables[one.result] = reader.types[one.type].element
            if len(one.operands) > 1:
                body.append(one.beside("Store", (one.result, one.operands[1])))
        elif name in ("LoopMerge", "SelectionMerge"):
            merge = one
        elif name in ("Branch", "BranchConditional", "Switch", "Return", "ReturnValue", "Unreachable"):
            if name == "Switch":
                bits = reader.types[reader.type_of[one.operands[0]]].bits
                one = replace(one, operands=_with_whole_cases(one.operands, bits))
            blocks[label] = Block(tuple(body), merge, one)
        else:
            body.append(one)
    if unknown := set(reader.sets.values()) - {_GLSL, _PRINT, DEBUG_INFO}:
        raise UnsupportedKernel(f"instructions of {min(unknown)}")
    return Module(
        reader.types, reader.constants, reader.functions, reader.variables, reader.builtins, reader.strides,
        reader.offsets, frozenset(reader.exact), reader.type_of, reader.sets, reader.strings, reader.entry,
        reader.size, words[3], reader.debug.found(), reader.names,
    )  # fmt: skip


def _string(words: tuple[int, ...]) -> str:
    return array.array("I", words).tobytes().partition(b"\0")[0].decode("utf-8", "replace")


def _with_whole_cases(operands: tuple[int, ...], bits: int) -> tuple[int, ...]:
    """Return the operands of a switch with one number for each case; cases of 64 bits have two words."""
    if bits <= 32:
        return operands
    found = list(operands[:2])
    for k in range(2, len(operands), 3):
        found += [operands[k] | operands[k + 1] << 32, operands[k + 2]]
    return tuple(found)

"""A scalar interpreter of SPIR-V: each thread on its own, block by block, without the analyses of the lanes.

It knows integers of 32 bits, bools, vectors, variables, group memory, barriers and atomic sums, which is what the
random programs use; anything else raises KeyError. Threads of a group run in turn, each to its next barrier.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from typing import Any

from slangpy_rt.lanes.inline import Body, inlined
from slangpy_rt.lanes.module import GROUP, INPUT, PUSH, Instruction, parse
from slangpy_rt.lanes.opcodes import OPERATIONS

_MASK = 0xFFFFFFFF
_STEPS = 200_000  # instructions of a thread, after which a loop is taken to have no end


def signed(value: int) -> int:
    value &= _MASK
    return value - (1 << 32) if value >> 31 else value


_BINARY = {
    "IAdd": lambda a, b: a + b, "ISub": lambda a, b: a - b, "IMul": lambda a, b: a * b,
    "BitwiseAnd": lambda a, b: a & b, "BitwiseOr": lambda a, b: a | b, "BitwiseXor": lambda a, b: a ^ b,
    "ShiftLeftLogical": lambda a, b: a << (b & 31), "ShiftRightLogical": lambda a, b: a >> (b & 31),
    "ShiftRightArithmetic": lambda a, b: signed(a) >> (b & 31), "UDiv": lambda a, b: a // b if b else -1,
    "UMod": lambda a, b: a % b if b else -1,
}  # fmt: skip
_COMPARED = {
    "IEqual": lambda a, b: a == b, "INotEqual": lambda a, b: a != b, "ULessThan": lambda a, b: a < b,
    "ULessThanEqual": lambda a, b: a <= b, "UGreaterThan": lambda a, b: a > b,
    "UGreaterThanEqual": lambda a, b: a >= b, "SLessThan": lambda a, b: signed(a) < signed(b),
    "SLessThanEqual": lambda a, b: signed(a) <= signed(b), "SGreaterThan": lambda a, b: signed(a) > signed(b),
    "SGreaterThanEqual": lambda a, b: signed(a) >= signed(b), "LogicalAnd": lambda a, b: a and b,
    "LogicalOr": lambda a, b: a or b, "LogicalEqual": lambda a, b: a == b, "LogicalNotEqual": lambda a, b: a != b,
}  # fmt: skip


class Thread:
    """One thread. A pointer is ``("local", value list, index)`` or ``("memory", address)``."""

    def __init__(self, body: Body, push: int, builtins: dict[int, Any], shared: dict[int, int]) -> None:
        self.body, self.module = body, body.module
        self.push, self.builtins, self.shared = push, builtins, shared
        self.values: dict[int, Any] = {}
        self.cells = {id_: [self._zero(type_)] for id_, type_ in body.variables.items()}

    def run(self) -> Generator[None]:
        """Run to the end; yield at barriers."""
        label, steps = self.body.entry, 0
        while True:
            block = self.body.blocks[label]
            for one in block.body:
                steps += 1
                if OPERATIONS[one.op].name == "ControlBarrier":
                    yield
                else:
                    self._execute(OPERATIONS[one.op].name, one)
            if steps > _STEPS:
                raise RuntimeError("a loop without an end")
            name, operands = OPERATIONS[block.end.op].name, block.end.operands
            if name in ("Return", "Unreachable"):
                return
            if name == "Branch":
                label = operands[0]
            elif name == "BranchConditional":
                label = operands[1 if self._use(operands[0]) else 2]
            else:
                label = operands[1]
                number = self._use(operands[0]) if operands[0] else None
                for case, target in zip(operands[2::2], operands[3::2], strict=True):
                    if number == case:
                        label = target

    def _execute(self, name: str, one: Instruction) -> None:
        ids = one.operands
        if name == "Store":
            self._write(self._pointer(ids[0]), self._use(ids[1]))
        elif name == "AtomicIAdd":
            at = self._pointer(ids[0])
            self.values[one.result] = before = self._read(at, one.type)
            self._write(at, before + self._use(ids[3]) & _MASK)
        elif name != "MemoryBarrier":
            self.values[one.result] = self._value(name, one, [self._used(id_) for id_ in one.used])

    def _value(self, name: str, one: Instruction, values: list[Any]) -> Any:
        ids = one.operands
        if self.module.types[one.type].bits not in (0, 32):
            raise KeyError(f"{name} of {self.module.types[one.type].bits} bits")
        if name in _BINARY:
            return _BINARY[name](*values) & _MASK
        if name in _COMPARED:
            return _COMPARED[name](*values)
        match name:
            case "Load":
                space = self.module.variables.get(ids[0], (0, 0, 0))[1]
                if space == INPUT:
                    return self.builtins[self.module.builtins[ids[0]]]
                return self._read(self._pointer(ids[0]), one.type)
            case "AccessChain" | "PtrAccessChain" | "InBoundsAccessChain":
                return self._chain(name, one)
            case "CompositeExtract":
                found = values[0]
                for k in ids[1:]:
                    found = found[k]
                return found
            case "CompositeConstruct":
                return tuple(values)
            case "LogicalNot":
                return not values[0]
            case "Not":
                return ~values[0] & _MASK
            case "SNegate":
                return -values[0] & _MASK
            case "Select":
                return values[1] if values[0] else values[2]
            case "Bitcast" | "CopyObject" | "UConvert":
                return values[0]
        raise KeyError(name)

    def _used(self, id_: int) -> Any:
        return None if id_ in self.module.variables or id_ in self.cells else self._use(id_)

    def _use(self, id_: int) -> Any:
        if id_ in self.values:
            return self.values[id_]
        value: Any = self.module.constants[id_].value
        return value & _MASK if isinstance(value, int) and not isinstance(value, bool) else value

    def _pointer(self, id_: int) -> Any:
        if id_ in self.cells:
            return "local", self.cells[id_], 0
        if id_ in self.shared:
            return "memory", self.shared[id_]
        if self.module.variables.get(id_, (0, 0, 0))[1] == PUSH:
            return "memory", self.push
        found = self.values[id_]
        return ("memory", found) if isinstance(found, int) else found

    def _chain(self, name: str, one: Instruction) -> Any:
        base, *ids = one.operands
        pointer = self._pointer(base)
        type_ = self.module.types[self.body.type_of[base]].element
        indices = [self._use(id_) for id_ in ids]
        if pointer[0] == "local":
            for index in indices:
                pointer = "local", pointer[1][pointer[2]], index
            return pointer
        at = pointer[1]
        if name == "PtrAccessChain":
            at += indices.pop(0) * self.module.stride(self.body.type_of[base])
        for index in indices:
            at += self.module.offset(type_, index)
            kind = self.module.types[type_]
            type_ = kind.members[index] if kind.kind == "struct" else kind.element
        return "memory", at

    def _read(self, pointer: Any, type_: int) -> Any:
        if pointer[0] == "local":
            return _copied(pointer[1][pointer[2]])
        size = self.module.nbytes(type_)
        return int.from_bytes(ctypes.string_at(pointer[1], size), "little")

    def _write(self, pointer: Any, value: Any) -> None:
        if pointer[0] == "local":
            pointer[1][pointer[2]] = _copied(value)
        else:
            ctypes.memmove(pointer[1], int(value).to_bytes(4, "little"), 4)

    def _zero(self, type_: int) -> Any:
        parts = self.module.parts(type_)
        return [self._zero(part) for part in parts] if parts else 0


def interpret(code: bytes, groups: int, push: bytes) -> None:
    """Run a kernel's groups, which lie in a row, one after the other."""
    body = inlined(parse(code))
    module, size = body.module, body.module.size[0]
    block = ctypes.create_string_buffer(push, 256)
    for group in range(groups):
        memory, shared = [], {}
        for id_, (type_, space, _) in module.variables.items():
            if space == GROUP:
                memory.append(ctypes.create_string_buffer(module.nbytes(type_)))
                shared[id_] = ctypes.addressof(memory[-1])
        threads = []
        for k in range(size):
            builtins = {26: (group, 0, 0), 27: (k, 0, 0), 28: (group * size + k, 0, 0), 29: k}
            threads.append(Thread(body, ctypes.addressof(block), builtins, shared).run())
        while threads:
            threads = [thread for thread in threads if next(thread, "end") is None]


def _copied(value: Any) -> Any:
    return list(map(_copied, value)) if isinstance(value, list | tuple) else value

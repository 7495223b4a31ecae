"""Memory layout of variables that a debugger shows, and DWARF's types for them.

A variable is laid out as C does it: each scalar at a multiple of its size. With W lanes every size is W times as
large, and each scalar is an array of W. What pointers point to has the layout of the kernel's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from slangpy_rt.lanes.module import PHYSICAL, Module
from slangpy_rt.lanes.text import SIZES
from slangpy_rt.lanes.variables import ANY, Leaf

_INTS = {8: "int8_t", 16: "int16_t", 32: "int", 64: "int64_t"}
_FLOATS = {16: "half", 32: "float", 64: "double"}
# What Slang appends to the name of a struct that it lays out in another way.
_LAYOUT = re.compile(r"_(?:c|natural|logical|std140|std430|scalar)$")


class VariableLayout:
    """Sizes and offsets of the types of variables, for one lane."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def align(self, id_: int) -> int:
        """Return the alignment of a type in bytes."""
        parts = self.module.parts(id_)
        return max(map(self.align, parts), default=1) if self._composite(id_) else SIZES[self.module.scalar(id_)]

    def nbytes(self, id_: int) -> int:
        """Return the size of a type, the padding at its end included."""
        if not self._composite(id_):
            return SIZES[self.module.scalar(id_)]
        type_ = self.module.types[id_]
        if type_.kind != "struct":
            return self.nbytes(type_.element) * type_.count
        end = self.offset(id_, len(type_.members))
        return -(-end // self.align(id_)) * self.align(id_)

    def offset(self, id_: int, member: int) -> int:
        """Return the offset of a part; behind the last one, where the parts end."""
        type_ = self.module.types[id_]
        if type_.kind != "struct":
            return self.nbytes(type_.element) * member
        end = 0
        for k, each in enumerate(type_.members):
            start = -(-end // self.align(each)) * self.align(each)
            if k == member:
                return start
            end = start + self.nbytes(each)
        return end

    def place(self, type_: int, leaf: Leaf) -> tuple[int, list[int]]:
        """Return a leaf's offset in a variable of a type, and the bytes between elements of each of its arrays."""
        offset, strides = 0, []
        for step in leaf.path:
            if step == ANY:
                element = self.module.types[type_].element
                strides.append(self.nbytes(element))
                type_ = element
            else:
                offset += self.offset(type_, step)
                type_ = self.module.parts(type_)[step]
        return offset, strides

    def _composite(self, id_: int) -> bool:
        return self.module.types[id_].kind in ("vector", "array", "struct")


class DebugTypes:
    """Writes DWARF's types of variables.

    Parameters
    ----------
    node : function
        Adds a node of metadata, by a key and a function that makes its text, and returns its name.
    """

    def __init__(self, module: Module, node: Callable[[object, Callable[[], str]], str], width: int) -> None:
        self.module, self.node, self.width = module, node, width
        self.layout = VariableLayout(module)

    def variable(self, id_: int) -> str:
        """Return the type of a variable."""
        return self._type(id_, False)

    def _type(self, id_: int, memory: bool) -> str:
        return self.node(("type", id_, memory), lambda: self._text(id_, memory))

    def _text(self, id_: int, memory: bool) -> str:
        type_ = self.module.types[id_]
        size = 8 * self._nbytes(id_, memory)
        if type_.kind == "struct":
            names = self.module.names
            title = _LAYOUT.sub("", names.get(id_, ""))
            fields = [(names.get((id_, k), f"_{k}"), part, k) for k, part in enumerate(type_.members)]
            return self._struct(id_, title, fields, size, memory)
        if type_.kind == "vector":
            title = f"{self._name(type_.element)}{type_.count}"
            fields = [("xyzw"[k], type_.element, k) for k in range(type_.count)]
            return self._struct(id_, title, fields, size, memory)
        if type_.kind == "array":
            return self._array(self._type(type_.element, memory), type_.count, size)
        if self.width > 1 and not memory:
            if type_.kind == "bool":  # a bit for each lane
                return f'!DIBasicType(name: "lanes", size: {self.width}, encoding: DW_ATE_unsigned)'
            return self._array(self._scalar(id_), self.width, size)
        return self._scalar_text(id_)

    def _scalar(self, id_: int) -> str:
        return self.node(("scalar", id_), lambda: self._scalar_text(id_))

    def _scalar_text(self, id_: int) -> str:
        type_ = self.module.types[id_]
        if type_.kind == "pointer":
            target = self._type(type_.element, True) if type_.element and type_.count == PHYSICAL else "null"
            return f"!DIDerivedType(tag: DW_TAG_pointer_type, baseType: {target}, size: 64)"
        if type_.kind == "bool":
            return '!DIBasicType(name: "bool", size: 8, encoding: DW_ATE_boolean)'
        code = "float" if type_.kind == "float" else "signed" if type_.signed else "unsigned"
        return f'!DIBasicType(name: "{self._name(id_)}", size: {type_.bits}, encoding: DW_ATE_{code})'

    def _array(self, element: str, count: int, bits: int) -> str:
        range_ = self.node(("range", count), lambda: f"!{{!DISubrange(count: {max(count, 1)})}}")
        return f"!DICompositeType(tag: DW_TAG_array_type, baseType: {element}, size: {bits}, elements: {range_})"

    def _struct(self, id_: int, title: str, fields: list[tuple[str, int, int]], bits: int, memory: bool) -> str:
        members = []
        for name, part, k in fields:
            start, size = 8 * self._offset(id_, k, memory), 8 * self._nbytes(part, memory)
            kind = self._type(part, memory)
            text = (
                f"!DIDerivedType(tag: DW_TAG_member, name: {quoted(name)}, baseType: {kind}, size: {size}, "
                f"offset: {start})"
            )
            members.append(self.node(("member", id_, k, memory), lambda text=text: text))  # type: ignore[misc]
        listed = self.node(("members", id_, memory), lambda: f"!{{{', '.join(members)}}}")
        named = f"name: {quoted(title)}, " if title else ""
        return f"!DICompositeType(tag: DW_TAG_structure_type, {named}size: {bits}, elements: {listed})"

    def _name(self, id_: int) -> str:
        type_ = self.module.types[id_]
        if type_.kind == "int":
            return _INTS[type_.bits] if type_.signed else f"u{_INTS[type_.bits]}"
        return _FLOATS.get(type_.bits, type_.kind)

    def _nbytes(self, id_: int, memory: bool) -> int:
        return self.module.nbytes(id_) if memory else self.layout.nbytes(id_) * self.width

    def _offset(self, id_: int, member: int, memory: bool) -> int:
        return self.module.offset(id_, member) if memory else self.layout.offset(id_, member) * self.width


def quoted(text: str) -> str:
    """Return a string of LLVM IR."""
    data = text.encode("utf-8", "replace")
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in data) + '"'

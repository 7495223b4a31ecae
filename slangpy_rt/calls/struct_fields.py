"""The structs that a kernel's arrays hold, field by field, for the code generator.

``core.dtypes.storage`` decides their layout; nothing is laid out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from slangpy_rt_codegen import StructLayout, StructLayoutField

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.types import SlangType


def struct_layouts(leaves: Sequence[Bound], spell: Spelling) -> tuple[StructLayout, ...]:
    """Return the layout of each struct type that arrays hold, each once."""
    found = {b.struct.name: b.struct for b in leaves if b.struct is not None and b.mode == "array"}
    return tuple(_layout(type_, spell) for type_ in found.values())


def _layout(type_: SlangType, spell: Spelling) -> StructLayout:
    stored = storage(type_)
    assert stored is not None
    return StructLayout(
        spell.type(type_), stored.dtype.itemsize, tuple(_layout_fields(type_, stored.dtype, "", 0, spell))
    )


def _layout_fields(
    type_: SlangType, dtype: np.dtype[Any], path: str, at: int, spell: Spelling
) -> Iterator[StructLayoutField]:
    """Yield the fields that are no structs, including the fields of nested structs and of arrays of structs."""
    if type_.kind == "struct":
        assert dtype.fields is not None
        for field in type_.fields:
            inner, offset = dtype.fields[field.name][:2]
            yield from _layout_fields(field.type, inner, f"{path}.{field.name}", at + offset, spell)
    elif type_.kind == "array" and type_.element is not None and _holds_structs(type_):
        item, dims = dtype.subdtype or (dtype, ())
        inner = np.dtype((item, dims[1:])) if len(dims) > 1 else item
        for k in range(type_.shape[0]):
            yield from _layout_fields(type_.element, inner, f"{path}[{k}]", at + k * inner.itemsize, spell)
    else:
        stored = storage(type_)
        assert stored is not None
        scalar = "uint8_t" if stored.scalar == "bool" else stored.scalar
        yield StructLayoutField(path, spell.type(type_), scalar, scalar if type_.kind == "enum" else "", at)


def _holds_structs(type_: SlangType) -> bool:
    stored = storage(type_)
    return stored is not None and stored.struct is not None

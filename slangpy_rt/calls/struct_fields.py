"""The structs that a kernel's arrays hold, field by field, for the code generator.

``core.dtypes.storage`` decides their layout; nothing is laid out here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from slangpy_rt_codegen import StructLayout, StructLayoutField

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.types import SlangType

_WORDS = re.compile(r"(float|int|uint)(?:([1-4])(?:x([1-4]))?)?")


def struct_layouts(leaves: Sequence[Bound], spell: Spelling, host: bool) -> tuple[StructLayout, ...]:
    """Return the layout of each struct type that arrays hold, each once.

    Parameters
    ----------
    host : bool
        Whether ranges of elements run on the CPU, where a compiler sees that neighbouring fields are moved.
    """
    held: dict[str, list[Bound]] = {}
    for b in leaves:
        if b.struct is not None and b.mode == "array":
            held.setdefault(b.struct.name, []).append(b)
    return tuple([_layout(arrays, spell, host) for arrays in held.values()]) if held else ()


def _layout(arrays: list[Bound], spell: Spelling, host: bool) -> StructLayout:
    type_ = arrays[0].struct
    assert type_ is not None
    stored = storage(type_)
    assert stored is not None
    size = stored.dtype.itemsize
    fields = tuple(_layout_fields(type_, stored.dtype, "", 0, spell))
    pieces = (16, 8) if not host and _is_of_words(fields, size) else ()
    strides = [s for b in arrays for s in (size, *b.strides)]
    able = [n for n in pieces if all(b.aligned for b in arrays) and not any(s % n for s in strides)]
    return StructLayout(spell.type(type_), size, fields, able[0] if able else 0)


def _is_of_words(fields: Sequence[StructLayoutField], size: int) -> bool:
    """Tell whether fields are vectors, matrices and scalars of four bytes each, without bytes between them."""
    at = 0
    for f in fields:
        sized = _WORDS.fullmatch(f.type)
        if sized is None or f.via or f.scalar != sized[1] or f.offset != at:
            return False
        at += 4 * int(sized[2] or 1) * int(sized[3] or 1)
    return at == size


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

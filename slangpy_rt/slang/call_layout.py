"""Reads from reflection the layout of a program's argument block, struct ``_spy_Call``, and the program's strings.

Slang puts a hash in place of each string. What the members of the block mean is decided elsewhere.
"""

from __future__ import annotations

import ctypes
from typing import Any

from slangpy_rt.core.types import LayoutField
from slangpy_rt.slang import _abi

# Slang's layout rules by ``Target.entry``, for entries that do not take the struct as a parameter. Reflection then
# finds the struct by its name.
_BY_NAME = {
    "range": _abi.SLANG_LAYOUT_RULES_DEFAULT,
    "handle": _abi.SLANG_LAYOUT_RULES_DEFAULT_STRUCTURED_BUFFER,
}


def call_layout(native: ctypes.CDLL, layout: int, entry: str) -> tuple[tuple[LayoutField, ...], int]:
    """Return the members of struct ``_spy_Call`` and its size in bytes; no members and 0 if the kernel takes none.

    Parameters
    ----------
    native : ctypes.CDLL
        The Slang library.
    layout : int
        The address of the linked program's layout.
    entry : str
        The kind of entry, ``Target.entry``.

    Returns
    -------
    fields : tuple of LayoutField
        The members with their offsets and sizes in bytes.
    size : int
        The size of the struct in bytes.
    """
    block = _find_call(native, layout, entry)
    if not block:
        return (), 0
    uniform = _abi.SLANG_PARAMETER_CATEGORY_UNIFORM
    fields = []
    for index in range(native.spReflectionTypeLayout_GetFieldCount(block)):
        field = native.spReflectionTypeLayout_GetFieldByIndex(block, index)
        variable = native.spReflectionVariableLayout_GetVariable(field)
        fields.append(
            LayoutField(
                name=native.spReflectionVariable_GetName(variable).decode(),
                offset=native.spReflectionVariableLayout_GetOffset(field, uniform),
                size=native.spReflectionTypeLayout_GetSize(
                    native.spReflectionVariableLayout_GetTypeLayout(field), uniform
                ),
            )
        )
    return tuple(fields), native.spReflectionTypeLayout_GetSize(block, uniform)


def hashed_strings(native: ctypes.CDLL, layout: int) -> tuple[tuple[int, str], ...]:
    """Return (hash, string) for each string literal that a program holds as a hash; `layout` is its address."""
    size, found = ctypes.c_size_t(), []
    for index in range(native.spReflection_getHashedStringCount(layout)):
        text = native.spReflection_getHashedString(layout, index, ctypes.byref(size))
        found.append((native.spComputeStringHash(text, len(text)), text.decode("utf-8", "replace")))
    return tuple(found)


def _find_call(native: ctypes.CDLL, layout: int, entry: str) -> Any:
    if entry in _BY_NAME:
        found = native.spReflection_FindTypeByName(layout, b"_spy_Call")
        rules = _BY_NAME[entry]
        return native.spReflection_GetTypeLayout(layout, found, rules) if found else None
    entry = native.spReflection_getEntryPointByIndex(layout, 0)
    for index in range(native.spReflectionEntryPoint_getParameterCount(entry)):
        param = native.spReflectionEntryPoint_getParameterByIndex(entry, index)
        value = native.spReflectionVariableLayout_GetTypeLayout(param)
        for block in (value, native.spReflectionTypeLayout_GetElementTypeLayout(value)):
            type_ = native.spReflectionTypeLayout_GetType(block) if block else None
            if type_ and native.spReflectionType_GetName(type_) == b"_spy_Call":
                return block
    return None

"""Parameter types that take a whole array: which these are, and what they say about its elements.

Nothing here looks at an array.
"""

from __future__ import annotations

import re
from dataclasses import replace

from slangpy_rt.core.types import SlangType

# Types that take a whole array, and how many generic arguments they have.
_CONTAINERS = {
    "Tensor": 2, "RWTensor": 2, "NDBuffer": 2, "StructuredBuffer": 1, "RWStructuredBuffer": 1,
    "DiffTensor": 2, "WDiffTensor": 2, "RWDiffTensor": 2,
    # These are structs and interfaces of ``slangpy.slang``.
    "WTensor": 2, "AtomicTensor": 2, "PrimalTensor": 2, "WPrimalTensor": 2, "RWPrimalTensor": 2,
    "ITensor": 2, "IWTensor": 2, "IRWTensor": 2, "IDiffTensor": 2, "IWDiffTensor": 2, "IRWDiffTensor": 2,
}  # fmt: skip
_READ_ONLY = ("Tensor", "StructuredBuffer", "DiffTensor", "PrimalTensor", "ITensor", "IDiffTensor")
_INTERFACE = re.compile(r"^I(?=(?:RW|W)?(?:Diff)?Tensor<)")


def container(type_: SlangType) -> tuple[SlangType, int, bool] | None:
    """Return element type, rank and writability of a parameter type that takes a whole array; None for any other."""
    head = type_.name.partition("<")[0]
    if type_.kind != "struct" or len(type_.arguments) != _CONTAINERS.get(head) or not is_ours(type_):
        return None
    element, rank = (*type_.arguments, 1)[:2]
    assert isinstance(element, SlangType) and isinstance(rank, int), type_
    return element, rank, head not in _READ_ONLY


def as_struct(type_: SlangType) -> SlangType:
    """Return the struct type as which an array is passed whole: ``Tensor<float, 2>`` for ``ITensor<float, 2>``."""
    return replace(type_, name=_INTERFACE.sub("", type_.name))


def is_ours(type_: SlangType) -> bool:
    """Return whether a struct named like one of this package's is that one: its fields begin with ``_spy_``."""
    return not type_.fields or type_.fields[0].name.startswith("_spy_")

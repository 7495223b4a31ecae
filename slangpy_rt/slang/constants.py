"""Link-time constants as Slang text: a Python value becomes a literal of the type that the module declares.

Names that the module does not declare, and values that do not fit, are refused. The text is not compiled here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from slangpy_rt.core.conversion import as_number, kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words

# The largest finite number of each type of float.
_LARGEST = {"half": 65504.0, "float": 3.4028234663852886e38, "double": math.inf}


def export_constants(where: str, known: tuple[Param, ...], values: Mapping[str, Any]) -> dict[str, str]:
    """Return, by constant name, the Slang line that defines it, such as ``"export static const int N = 4;"``.

    Parameters
    ----------
    where : str
        The name of the public function or object, for error messages.
    known : tuple of Param
        The constants that the module declares.
    values : mapping
        Values by name: bool, int or float for a scalar or an enum; for a vector a sequence of these, or one number
        for all its components.

    Raises
    ------
    BindError
        If there is no such constant, or its value does not fit its type.
    """
    types = {param.name: param.type for param in known}
    out = {}
    for name, value in values.items():
        if name not in types:
            listed = ", ".join(f"'{n}'" for n in types) or "none"
            raise BindError(
                f"{where}: there is no constant '{name}'; it has {listed}. "
                f"Declare it as: extern static const int {name};"
            )
        try:
            literal = _literal(types[name], value)
        except BindError:
            literal = None
        if literal is None:
            raise BindError(
                f"{where}: constant '{name}' is {in_words(value)}; a value of Slang type {types[name].name} "
                "was expected."
            )
        out[name] = f"export static const {types[name].name} {name} = {literal};"
    return out


def _literal(kind: SlangType, value: Any) -> str | None:
    """Return a Python value as a literal of a Slang type, or None if it does not fit."""
    if kind.kind == "vector":
        items = list(value) if isinstance(value, (list, tuple, np.ndarray)) else [value] * kind.shape[0]
        parts = [_literal(SlangType("scalar", kind.scalar, kind.scalar), item) for item in items]
        if len(parts) != kind.shape[0] or None in parts:
            return None
        return f"{kind.name}({', '.join(filter(None, parts))})"
    if kind.kind not in ("scalar", "enum") or isinstance(value, str):
        return None
    if kind.scalar == "bool":
        flag = bool(value) if kind_of(value) in "iu" and value in (0, 1) else as_number("", kind, value)
        return str(bool(flag)).lower()
    if isinstance(value, (bool, np.bool_)):
        return None
    number = as_number("", kind, value)
    if kind.scalar in _LARGEST:
        return _float_literal(kind.scalar, number)
    return f"{kind.name}({_int_literal(int(number))})"


def _int_literal(number: int) -> str:
    if number == -1 << 63:  # Slang parses a negated positive literal, and 1 << 63 does not fit int64_t
        return "-9223372036854775807LL - 1"
    return f"{number}{'ULL' if number >= 1 << 63 else 'LL'}"


def _float_literal(scalar: str, value: Any) -> str | None:
    number = float(value)
    if not math.isfinite(number) or abs(number) > _LARGEST[scalar]:
        return None
    return f"{scalar}({number!r}{'lf' if scalar == 'double' else ''})"

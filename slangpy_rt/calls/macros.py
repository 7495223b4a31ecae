"""Values of preprocessor macros, as users give them, as text. It knows no modules."""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.core.checks import text as checked_text
from slangpy_rt.core.conversion import is_number
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


def macro_text(where: str, name: str, value: Any) -> str:
    """Return the text that a preprocessor macro stands for.

    Raises
    ------
    BindError
        If the name cannot be a macro's, or the value is neither text nor a number.
    """
    if not name.isidentifier() or not name.isascii():
        raise BindError(
            f"{where}: defines has {name!r}; the name of a macro without parameters was expected. #define in the "
            "text makes those with parameters."
        )
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, str):
        return checked_text(where, f"defines['{name}']", value)
    if not is_number(value):
        raise BindError(f"{where}: defines['{name}'] is {in_words(value)}; a number or text was expected.")
    if isinstance(value, int) and abs(value) >= 2**64:
        raise BindError(f"{where}: defines['{name}'] is {in_words(value)}; at most 64 bits were expected.")
    return str(value)

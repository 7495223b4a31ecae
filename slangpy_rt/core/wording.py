"""Describes values in messages: on one line, without addresses, of bounded length. No function here raises.

``repr`` is the caller's code where a value is of the caller's class, and has limits of its own (recursion, digits of
an int): a message that cannot be put together would hide what was wrong.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

_MOST = 80
_ADDRESS = re.compile(r" at 0x[0-9A-Fa-f]+")
# An int of more bits has more digits than a message shows.
_WIDE = 256


def in_words(value: Any) -> str:
    """Return a value in a few words."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(getattr(kind, "summary", None), property) and hasattr(value, "layout"):
        summary: str = value.summary
        return f"{'an' if summary[0] in 'AEINO' else 'a'} {summary}"
    if isinstance(value, (np.number, np.bool_)):
        return str(value)
    if kind is int and value.bit_length() > _WIDE:
        return f"a whole number of {value.bit_length()} bits"
    if kind in (str, bytes, bytearray):
        value = value[: 2 * _MOST]
    try:
        # White space becomes one blank, and the address in an object's repr goes.
        text = _ADDRESS.sub("", " ".join(repr(value).split()))
    except Exception:  # raised by the repr of the value, or of a value inside it
        text = f"a value of type {kind.__name__}"
    # What cannot be encoded cannot be printed.
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def class_in_words(value: Any) -> str:
    """Return the name of a value's class with an article: ``"a jax.Array"``."""
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _array(value: npt.NDArray[Any]) -> str:
    if value.dtype.names is not None:
        return f"a structured array with the fields {', '.join(value.dtype.names)} and shape {value.shape}"
    return f"an array of dtype {value.dtype} and shape {value.shape}"

"""Describes values in messages: on one line, without addresses, of bounded length. No function here raises.

``repr`` is the caller's code where a value is of the caller's class, and has limits of its own (recursion, digits of
an int): a message that cannot be put together would hide what was wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
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


def meant(name: str, names: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` with the most similar of some names, or nothing if none is similar."""
    import difflib  # takes 3 ms, and is needed for errors alone

    known = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.7)
    return f" Did you mean '{known[found[0]]}'?" if found else ""


def how_to_convert(dtype: np.dtype[Any], wanted: np.dtype[Any], is_array: bool) -> str:
    """Return what to do with an array of a dtype that does not convert to another one."""
    if dtype.kind == "c":
        return "a complex number is two numbers: pass array.real and array.imag"
    if dtype.kind in "USMm":
        return "numbers were expected"
    return f"pass array.astype(numpy.{wanted.name})" if is_array else f"make it an array of dtype {wanted.name}"


def how_to_arrange(shape: tuple[int, ...], inner: tuple[int, ...]) -> str:
    """Return a sentence for an array that does not end in the dimensions ``inner``, or nothing."""
    if len(inner) != 1 or not shape:
        return ""
    (n,) = inner
    if len(shape) > 1 and (n, shape[-1]) == (4, 3):
        return " numpy.insert(x, 3, 1, axis=-1) adds a fourth component, of 1."
    if len(shape) > 2 and shape[-3] == n:
        return f" numpy.moveaxis(x, -3, -1), or torch's, makes its third dimension from the end, of {n}, the last."
    if len(shape) > 1 and (n, shape[-1]) == (3, 4):
        return " x[..., :3] leaves out the fourth component."
    return ""


def class_in_words(value: Any) -> str:
    """Return the name of a value's class with an article: ``"a jax.Array"``."""
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _array(value: npt.NDArray[Any]) -> str:
    if value.dtype.names is not None:
        return f"a structured array with the fields {', '.join(value.dtype.names)} and shape {value.shape}"
    return f"an array of dtype {value.dtype} and shape {value.shape}"

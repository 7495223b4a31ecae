"""CallInfo: what a user's functions ``key``, ``prune`` and ``model`` are told of a call. It holds no arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slangpy_rt.core.target import Caps


@dataclass(frozen=True)
class CallInfo:
    """A call whose configuration is to be chosen.

    Attributes
    ----------
    name : str
        The function's name in Slang.
    shapes : mapping of str to tuple of int
        The shape of each argument by the parameter's name; ``()`` for a number.
    dtypes : mapping of str to str
        The Slang type of the elements of each argument.
    values : mapping of str to int
        The arguments that are whole numbers.
    device : str
        The device in words.
    caps : Caps
        What the device can do.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    values: Mapping[str, int]
    device: str
    caps: Caps

"""Result: how a call returns. It holds values and runs nothing; ``build`` chooses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.arguments.bound import Bound


class Result:
    """How a call returns: in an array that was given, in a new array on the device or the host, or as a number.

    Attributes
    ----------
    bound : Bound or None
        The result as bound to the return type; None without a result.
    layout : Layout or None
        Layout of a new device array.
    make : callable or None
        Makes a new result.
    unwrap : callable or None
        Converts the array to the value that the call returns.
    into : bool
        Whether the call's last value is an array for the result, or for its gradient.
    named : bool
        Whether ``_result`` was given as a kind of array instead of an array.
    """

    __slots__ = ("bound", "into", "layout", "make", "named", "unwrap")

    def __init__(
        self,
        bound: Bound | None = None,
        layout: Any = None,
        make: Callable[[], Any] | None = None,
        unwrap: Callable[[Any], Any] | None = None,
        into: bool = False,
        named: bool = False,
    ) -> None:
        self.bound = bound
        self.layout = layout
        self.make = make
        self.unwrap = unwrap
        self.into = into
        self.named = named

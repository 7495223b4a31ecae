"""Result: how a call returns. It holds values and runs nothing; ``build`` chooses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.arguments.bound import Bound


class Result:
    """How a call returns: into an array that was given, as a new array of a layout or of the host, or as a number.

    ``named`` says that ``_result`` was given and is no array but the kind of one.
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

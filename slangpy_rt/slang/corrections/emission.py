"""What a correction gets besides the code: the format, and facts about the program that the code does not show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Emission:
    """The circumstances under which Slang wrote code.

    Attributes
    ----------
    form : str
        The format, ``Target.format``.
    double_math : callable or None
        A function without parameters that returns the SPIR-V code of ``shaders/double_math.slang``; None for a target
        that takes instructions for functions of double, as ``lanes`` does.
    statics : bool
        Whether the modules may have static variables that are not ``const``.
    """

    form: str
    double_math: Callable[[], bytes] | None
    statics: bool = True

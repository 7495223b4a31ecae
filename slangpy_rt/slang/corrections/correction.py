"""The record of one correction. It holds values and functions, and compiles nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.emission import Emission


@dataclass(frozen=True)
class Correction:
    """A fault of the Slang compiler, and the function that repairs or refuses what the compiler writes.

    Attributes
    ----------
    name : str
        A short name, which the table of ``doctor --compiler`` shows.
    why : str
        One sentence: what is wrong without the correction.
    upstream : str
        The number of the compiler's issue, such as ``"#12095"``, or ``"not reported"``.
    affects : tuple of str
        The builds of the compiler in which the fault was seen, by their build tags.
    targets : tuple of str
        The formats in which the fault was seen, as ``Target.format`` names them. ``"slang"`` stands for the user's
        text, which is corrected before it is compiled.
    applies : callable
        Returns code without the fault for code, and code that lacks the fault as it is. It raises UnsupportedError
        where the fault cannot be repaired.
    canary : Canary
        A program that has the fault.
    """

    name: str
    why: str
    upstream: str
    affects: tuple[str, ...]
    targets: tuple[str, ...]
    applies: Callable[[bytes, Emission], bytes]
    canary: Canary

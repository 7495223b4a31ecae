"""The canary of a correction: a small Slang program, and how to tell wrong target code of it from right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# A regular expression or another test of target code, or the numbers that the program computes.
Answer = bytes | Callable[[bytes], object] | tuple[float, ...]


@dataclass(frozen=True)
class Canary:
    """A Slang program that has one fault, compiled without any correction.

    Attributes
    ----------
    text : str
        The Slang text. It declares ``void canary(...)``, whose parameters are ``uniform``, and imports nothing.
    wrong, right : bytes, callable or tuple of float
        What the program is with the fault and without it: a regular expression that is found in the emitted code, or
        in the compiler's message if it refuses the text; or a function that tests it. With numbers the program runs
        on the CPU, and writes them through its one parameter, ``uniform float *values``, which begins as zeros.
    """

    text: str
    wrong: Answer
    right: Answer

    @property
    def runs(self) -> bool:
        """Whether the program has to run, because its answers are numbers."""
        return isinstance(self.right, tuple)

"""The canary of a correction: a small Slang program, and how to tell wrong target code of it from right one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# A test of target code, such as the method ``search`` of a pattern; or the numbers that the program computes.
Answer = Callable[[bytes], object] | tuple[float, ...]


@dataclass(frozen=True)
class Canary:
    """A Slang program that has one fault, compiled without any correction.

    Attributes
    ----------
    text : str
        The Slang text. It declares ``void canary(...)``, whose parameters are ``uniform``, and imports nothing.
    wrong, right : callable or tuple of float
        What the program is with the fault and without it: tests of the emitted code, or of the compiler's message if
        it refuses the text. With numbers the program runs on the CPU, and writes them through its one parameter,
        ``uniform float *values``.
    """

    text: str
    wrong: Answer
    right: Answer

    @property
    def runs(self) -> bool:
        """Whether the program has to run, because its answers are numbers."""
        return isinstance(self.right, tuple)

"""The error for kernels that cannot be translated. Nothing else is raised on account of a kernel's content."""

from __future__ import annotations


class UnsupportedKernel(Exception):
    """A kernel contains something that the translation does not know.

    Parameters
    ----------
    what : str
        The instruction or the construct, by name.
    line : int
        The line of the Slang source, if the SPIR-V names it; otherwise 0.
    """

    def __init__(self, what: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {what}" if line else what)
        self.what, self.line = what, line

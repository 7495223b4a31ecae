"""BuildProcess: a compiler of target text in a process of its own, which Ctrl-C and a limit of time can end.

Nothing here reads the text. Such a process compiles one text at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from slangpy_rt.core.child_process import ChildProcess, Ended
from slangpy_rt.core.errors import CompileError, CompileLimitError


class BuildProcess(ChildProcess):
    """The child process that runs a compiler; a compilation starts it if it is not running.

    Parameters
    ----------
    module : str
        The module with the child's ``main``, which gets ``seconds``.
    compiler : str
        The name of the compiler, for error messages.
    python : str
        The Python interpreter that the child runs.
    seconds : float
        Processor time that one compilation may take, in seconds.
    """

    def __init__(self, module: str, compiler: str, python: str, seconds: float) -> None:
        super().__init__(python, seconds, compiler, "SLANGPY_RT_BUILD_SECONDS")
        self.module = module
        # What used up its time or memory is not tried again: the messages, by digests of the requests.
        self._refused: dict[str, str] = {}

    def arguments(self) -> Sequence[str]:
        return (str(self._seconds),)

    def build(self, code: bytes, options: str, what: str) -> bytes:
        """Return the binary of a text.

        Parameters
        ----------
        code, options
            What the child's ``answer`` gets.
        what : str
            What is compiled, for error messages.

        Raises
        ------
        CompileError
            If the compiler crashes or refuses the text.
        CompileLimitError
            If it takes too long, or too much memory.
        Exception
            What the child's ``answer`` raises.
        """
        digest = hashlib.sha256(options.encode() + b"\0" + code).hexdigest()
        if digest in self._refused:
            raise CompileLimitError(self._refused[digest])
        try:
            return bytes(self.answer(lambda: (code, options)))
        except Ended as end:
            message = f"{self._compiler} could not compile {what}:\n{end}"
            if end.final:
                self._refused[digest] = message
                raise CompileLimitError(message) from None
            raise CompileError(message) from None

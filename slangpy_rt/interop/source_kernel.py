"""SourceKernel: a compute kernel from Slang text, called with arrays, a grid of thread groups, and macros.

It chooses a device by the arguments, and loads the text once for each set of macros. ``Kernel`` dispatches, and
``Tuned`` searches choices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.checks import table, text
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.interop.device_of import device_of
from slangpy_rt.interop.source_program import WARPS, SourceProgram
from slangpy_rt.tuning.config import Config
from slangpy_rt.tuning.policy import policy_of

# Sets of macros whose modules a kernel keeps.
_MOST_PROGRAMS = 256


class SourceKernel:
    """A compute kernel from Slang text. ``slangpy_rt.kernel`` makes it.

    Attributes
    ----------
    name : str
        The kernel's name in Slang; empty before the first call.
    """

    def __init__(self, source: str, device: Device | None = None, policy: Mapping[str, Any] | None = None) -> None:
        self.name = ""
        self._source = text("kernel", "source", source)
        # The name of the text's modules, in messages and for the module's own types.
        self._title = f"kernel_{hashlib.sha256(self._source.encode(errors='replace')).hexdigest()[:8]}"
        self._given = device
        self._policy = dict(policy or {})
        self._programs: dict[Any, SourceProgram] = {}

    def __call__(
        self,
        /,
        *args: Any,
        grid: int | Sequence[int] | Callable[[Config], Any],
        num_warps: int | list[int] | None = None,
        defines: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Any:
        """Run the kernel.

        Parameters
        ----------
        *args, **named
            Values of the kernel's parameters, except those with a semantic. Pointers take tensors.
        grid : int, sequence of int or callable
            The thread groups in x, y and z, or a function of the configuration that returns them.
        num_warps : int or list of int, optional
            The threads of a group, in warps of 32: in place of the kernel's ``[numthreads]``, and as the macro
            ``NUM_WARPS``. A list has choices.
        defines : mapping, optional
            Macros by name: text, a number, or an element type of PyTorch, NumPy or Slang, which stands for its name
            in Slang. A list has choices: the first call of a kind measures them, see ``slangpy_rt.Tuned``.

        Returns
        -------
        array, tuple of arrays or None
            The argument of a parameter that can be written as a whole, such as a RWTensor; of several, a tuple. If
            there is none, the argument of the last pointer that is not ``Ptr<T, Access.Read>``.

        Raises
        ------
        BindError
            If an argument does not fit, the text has not exactly one kernel, or the grid is not one of numbers.
        CompileError
            If Slang refuses the text.
        """
        program = self._program(args, named, num_warps, defines)
        program.function.dispatch(program.threads(grid), *args, **named)
        return program.written(args, named)

    def append_to(
        self,
        commands: CommandList,
        /,
        *args: Any,
        grid: Any,
        num_warps: Any = None,
        defines: Any = None,
        **named: Any,
    ) -> Any:
        """Record a run in a command list; the other arguments, and what is returned, are those of a call."""
        program = self._program(args, named, num_warps, defines)
        program.function.append_to(commands, program.threads(grid), *args, **named)
        return program.written(args, named)

    def best(self, /, *args: Any, grid: Any, num_warps: Any = None, defines: Any = None, **named: Any) -> Config:
        """Return the fastest configuration for a call with these arguments, measured now if it is not known."""
        program = self._program(args, named, num_warps, defines)
        return program.whole(program.tuned("best").best(program.threads(grid), *args, **named))

    def timings(self, /, *args: Any, grid: Any, num_warps: Any = None, defines: Any = None, **named: Any) -> Any:
        """Return a row for each configuration, the fastest first, as ``Tuned.timings`` does."""
        program = self._program(args, named, num_warps, defines)
        return program.tuned("timings").timings(program.threads(grid), *args, **named)

    def source(self, /, *args: Any, grid: Any, num_warps: Any = None, defines: Any = None, **named: Any) -> str:
        """Return the Slang text of the generated kernel that a call with these arguments would run."""
        program = self._program(args, named, num_warps, defines)
        generated: str = program.function.source(program.threads(grid), *args, **named)
        return generated

    def tune(self, **policy: Any) -> SourceKernel:
        """Return the kernel with another way to search.

        Parameters
        ----------
        **policy
            The parameters of ``Tuned.tune`` without ``configs``.

        Raises
        ------
        BindError
            If a parameter is of a wrong type or out of range.
        """
        given = {**self._policy, **policy}
        policy_of("kernel.tune", **given)
        return SourceKernel(self._source, self._given, given)

    def __repr__(self) -> str:
        return f"<kernel {self.name or 'not called yet'}, {len(self._source.splitlines())} lines of Slang>"

    def _program(
        self, args: tuple[Any, ...], named: dict[str, Any], num_warps: Any, defines: Mapping[str, Any] | None
    ) -> SourceProgram:
        """Return the text, loaded for a device and these macros."""
        device = self._given or device_of("kernel", (*args, *named.values()))
        given = dict(table("kernel", "defines", defines))
        if num_warps is not None:
            if WARPS in given:
                raise BindError(f"kernel: defines has '{WARPS}', which num_warps defines; give one of them.")
            given[WARPS] = num_warps
        # Python takes 1, 1.0 and True as equal, and macros do not.
        key = device, num_warps is None, *[(n, *_hashable(v)) for n, v in given.items()]
        found = self._programs.get(key)
        if found is None:
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.clear()
            found = SourceProgram(self._title, self._source, device, given, num_warps is not None, self._policy)
            self._programs[key] = found
            self.name = found.function.name
        return found


def _hashable(value: Any) -> tuple[Any, ...]:
    """Return a macro's value, or its list of values, so that unequal ones are unequal keys of a dict."""
    values = tuple(value) if isinstance(value, list) else (value,)
    try:
        hash(values)
    except TypeError:
        raise BindError(
            f"kernel: a macro is {in_words(value)}; text, a number or an element type was expected."
        ) from None
    return isinstance(value, list), values, tuple(map(type, values))

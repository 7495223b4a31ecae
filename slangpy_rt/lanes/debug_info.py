"""Debug information of a SPIR-V module (NonSemantic.Shader.DebugInfo.100): places in the Slang text, variables.

Types are not read here, because the SPIR-V types of variables have the same members. A module has debug information
only if it was compiled with ``-g2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

DEBUG_INFO = "NonSemantic.Shader.DebugInfo.100"
# Instructions of that set.
_FUNCTION, _LEXICAL_BLOCK, _SCOPE, _NO_SCOPE, _INLINED_AT, _LOCAL, _DECLARE = 20, 21, 23, 24, 25, 26, 28
_SOURCE, _DEFINITION, _LINE, _NO_LINE = 35, 101, 103, 104


@dataclass(frozen=True, slots=True)
class Location:
    """A place of the Slang text.

    Attributes
    ----------
    function, source : int
        The ids of the function and of the file.
    line : int
        Counted from 1.
    caller : Location or None
        Where the function was called, if it was inlined.
    call : int
        Of a caller: a number that each call has for itself.
    """

    function: int
    source: int
    line: int
    caller: Location | None = None
    call: int = 0

    def inside(self, caller: Location | None) -> Location:
        """Return this place in a function that is inlined at a call."""
        return replace(self, caller=self.caller.inside(caller) if self.caller else caller)


@dataclass(frozen=True, slots=True)
class DebugSource:
    """A file: its path, which need not exist, and its text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class DebugFunction:
    """A function of the Slang text: name, the id of its file, line."""

    name: str
    source: int
    line: int


@dataclass(frozen=True, slots=True)
class DebugVariable:
    """A variable of the Slang text: name, the ids of its file and function, line, number of the parameter or 0."""

    name: str
    source: int
    function: int
    line: int
    parameter: int


@dataclass(frozen=True, slots=True)
class DebugInfo:
    """Names and places of a module.

    Attributes
    ----------
    sources, functions, variables : mapping
        By the ids of the debug information.
    defined : mapping
        The id of the debug information of each SPIR-V function.
    """

    sources: Mapping[int, DebugSource]
    functions: Mapping[int, DebugFunction]
    variables: Mapping[int, DebugVariable]
    defined: Mapping[int, int]


@dataclass(slots=True)
class DebugReader:
    """The debug information while a module is read.

    Attributes
    ----------
    location : Location or None
        Where the next instruction belongs, if that is known.
    line : int
        Its line, or 0.
    declared : list of (int, int)
        The variables of the function that is being read: the ids of the variable and of its debug information.
    """

    location: Location | None = None
    line: int = 0
    declared: list[tuple[int, int]] = field(default_factory=list)
    _sources: dict[int, DebugSource] = field(default_factory=dict)
    _functions: dict[int, DebugFunction] = field(default_factory=dict)
    _variables: dict[int, DebugVariable] = field(default_factory=dict)
    _defined: dict[int, int] = field(default_factory=dict)
    _parents: dict[int, int] = field(default_factory=dict)
    _calls: dict[int, Location] = field(default_factory=dict)
    _scope: int = 0
    _caller: Location | None = None

    def begin(self) -> None:
        """Begin a block, in which no place is known yet."""
        self.location, self.line, self._scope, self._caller = None, 0, 0, None

    def read(
        self, id_: int, number: int, operands: tuple[int, ...], strings: Mapping[int, str],
        constants: Mapping[int, Any],
    ) -> None:  # fmt: skip
        """Take an instruction from outside of functions."""

        def constant(k: int) -> int:
            return _value(constants, operands[k])

        if number == _SOURCE:
            text = strings.get(operands[1], "") if len(operands) > 1 else ""
            self._sources[id_] = DebugSource(strings.get(operands[0], ""), text)
        elif number == _FUNCTION:
            self._functions[id_] = DebugFunction(strings.get(operands[0], ""), operands[2], constant(3))
        elif number == _LEXICAL_BLOCK:
            self._parents[id_] = operands[3]
        elif number == _LOCAL:
            parameter = constant(7) if len(operands) > 7 else 0
            function = self._function(operands[5])
            name = strings.get(operands[0], "")
            self._variables[id_] = DebugVariable(name, operands[2], function, constant(3), parameter)
        elif number == _INLINED_AT:
            function = self._function(operands[1])
            source = self._functions[function].source if function else 0
            caller = self._calls.get(operands[2]) if len(operands) > 2 else None
            self._calls[id_] = Location(function, source, constant(0), caller, -id_)

    def place(
        self, number: int, operands: tuple[int, ...], function: int, constants: Mapping[int, Any]
    ) -> None:  # fmt: skip
        """Take an instruction from inside of a SPIR-V function."""
        if number == _SCOPE:
            self._scope = self._function(operands[0])
            self._caller = self._calls.get(operands[1]) if len(operands) > 1 else None
            self.location = None
        elif number in (_NO_SCOPE, _NO_LINE):
            self.location = None
        elif number == _LINE:
            self.line = _value(constants, operands[1])
            known = self._scope and operands[0] in self._sources and self.line
            self.location = Location(self._scope, operands[0], self.line, self._caller) if known else None
        elif number == _DECLARE:
            self.declared.append((operands[1], operands[0]))
        elif number == _DEFINITION:
            self._defined[function] = operands[0]

    def taken(self) -> tuple[tuple[int, int], ...]:
        """Return ``declared``, and begin another function."""
        found = tuple(self.declared)
        self.declared.clear()
        return found

    def found(self) -> DebugInfo | None:
        """Return everything that was read, or None if there was nothing."""
        if not self._functions:
            return None
        return DebugInfo(self._sources, self._functions, self._variables, self._defined)

    def _function(self, scope: int) -> int:
        """Return the function of a scope, or 0 if it is in none."""
        while scope in self._parents:
            scope = self._parents[scope]
        return scope if scope in self._functions else 0


def _value(constants: Mapping[int, Any], id_: int) -> int:
    return int(constants[id_].value) if id_ in constants else 0

"""Writes debug information as metadata of LLVM IR, from which LLVM makes DWARF: places, functions, variables.

Calls are inlined before, so that each place names the calls that lead to it, and a debugger shows them as frames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from slangpy_rt.lanes.debug_info import DebugFunction, DebugInfo, DebugSource, DebugVariable, Location
from slangpy_rt.lanes.debug_types import DebugTypes, quoted
from slangpy_rt.lanes.module import Module

_FIRST = 3  # branch weights and stores past the caches have the numbers below
_OWN = "_spy_"  # how names of this project begin


@dataclass(frozen=True, slots=True)
class DebugSettings:
    """What a debugger shows.

    Attributes
    ----------
    hidden : function
        Tells of a file's path whether functions of the file are passed over, as if each were one instruction.
    path : function
        Returns the path under which a debugger finds a file.
    """

    hidden: Callable[[str], bool]
    path: Callable[[DebugSource], str]


class DebugText:
    """The metadata of one kernel, which grows as lines name its nodes.

    Parameters
    ----------
    kernel : int
        The id of the kernel in the debug information.
    """

    def __init__(self, module: Module, info: DebugInfo, kernel: int, settings: DebugSettings, width: int) -> None:
        self.module, self.info, self.kernel, self.settings = module, info, kernel, settings
        self.types = DebugTypes(module, self.node, width)
        self.texts: list[str] = []
        self._known: dict[object, int] = {}
        self._hidden: dict[int, bool] = {}
        first = info.functions[kernel]
        self.root = Location(kernel, first.source, first.line)
        self._unit = self.node(
            "unit",
            lambda: (
                f"distinct !DICompileUnit(language: DW_LANG_C_plus_plus, file: {self._file(first.source)}, "
                'producer: "slangpy_rt", isOptimized: false, runtimeVersion: 0, emissionKind: FullDebug)'
            ),
        )
        # DWARF 4 is read by every debugger in use; behaviour 2 (a warning) is for modules that are linked.
        self._flags = [
            self.node(("flag", name), lambda name=name, n=n: f'!{{i32 2, !"{name}", i32 {n}}}')  # type: ignore[misc]
            for name, n in (("Dwarf Version", 4), ("Debug Info Version", 3))
        ]

    def node(self, key: object, text: Callable[[], str]) -> str:
        """Return the name of a node; for a new key the function is called, which may refer to this node."""
        if key not in self._known:
            at = self._known[key] = len(self.texts)
            self.texts.append("")
            self.texts[at] = text()
        return f"!{self._known[key] + _FIRST}"

    def lines(self) -> str:
        """Return all nodes as lines."""
        return "\n".join(
            [
                f"!llvm.dbg.cu = !{{{self._unit}}}", f"!llvm.module.flags = !{{{', '.join(self._flags)}}}",
                *(f"!{k} = {text}" for k, text in enumerate(self.texts, _FIRST)),
            ]
        )  # fmt: skip

    def attachment(self) -> str:
        """Return what follows the attributes of the kernel's function."""
        return f"!dbg {self._function(self.kernel)}"

    def place(self, location: Location) -> str | None:
        """Return what follows an instruction; None if it belongs to no file that is shown."""
        shown = self._shown(location) or self.root
        # Lines of a macro or an included text of this project, in a function of the user.
        if self._passed(shown.source) and shown.source != self.root.source:
            return None
        return f", !dbg {self._location(shown)}"

    def declaration(
        self, variable: int, type_: int, caller: Location | None, home: str, indirect: bool
    ) -> str | None:
        """Return the record that says where a variable lies; None if it is not shown.

        Parameters
        ----------
        variable : int
            The id of the variable's debug information.
        type_ : int
            The SPIR-V type of its value.
        caller : Location or None
            Where the function was called.
        home : str
            The name of its memory; if `indirect`, of a memory that holds the address.
        """
        found = self.info.variables[variable]
        if not self.shows(found):
            return None
        named = f"arg: {found.parameter}, " if found.parameter else ""
        node = self.node(
            ("variable", variable, type_),
            lambda: (
                f"!DILocalVariable(name: {quoted(found.name)}, {named}scope: {self._function(found.function)}, "
                f"file: {self._file(found.source)}, line: {found.line}, type: {self.types.variable(type_)})"
            ),
        )
        location = Location(found.function, found.source, found.line, caller)
        place = self._location(self._shown(location) or self.root)
        expression = "DW_OP_deref" if indirect else ""
        return f"    #dbg_declare(ptr {home}, {node}, !DIExpression({expression}), {place})"

    def shows(self, variable: DebugVariable) -> bool:
        """Return whether a variable is shown."""
        hidden = self._skipped(variable.function) or self._passed(variable.source)
        return not hidden and not variable.name.startswith(_OWN)

    def _shown(self, location: Location | None) -> Location | None:
        """Return a place without the calls of functions that are passed over, ending in the kernel."""
        chain: list[Location] = []
        while location:
            if not self._skipped(location.function) or location.function == self.kernel:
                chain.insert(0, location)
            location = location.caller
        # No function calls itself: where Slang says so, it inlined functions of ours one into another.
        functions = [each.function for each in chain]
        chain = [each for k, each in enumerate(chain) if each.function not in functions[:k]]
        if not chain or chain[0].function != self.kernel:
            chain.insert(0, replace(self.root, call=1))
        found = None
        for k, each in enumerate(chain, 1):
            found = replace(each, caller=found, call=each.call if k < len(chain) else 0)
        return found

    def _skipped(self, function: int) -> bool:
        """Return whether a function is passed over: one of this project, or of a file that is not shown."""
        found = self.info.functions.get(function)
        return found is None or found.name.startswith(_OWN) or self._passed(found.source)

    def _passed(self, source: int) -> bool:
        if source not in self._hidden:
            found = self.info.sources.get(source)
            self._hidden[source] = found is None or self.settings.hidden(found.path)
        return self._hidden[source]

    def _location(self, location: Location) -> str:
        def text() -> str:
            at = f", inlinedAt: {self._location(location.caller)}" if location.caller else ""
            scope = self._scope(location.function, location.source)
            found = f"!DILocation(line: {location.line}, scope: {scope}{at})"
            return f"distinct {found}" if location.call else found

        return self.node(location, text)

    def _scope(self, function: int, source: int) -> str:
        """Return a function as the scope of lines of a file, which may not be the one that declares it."""
        scope = self._function(function)
        if source == self.info.functions[function].source or source not in self.info.sources:
            return scope
        return self.node(
            ("block", function, source),
            lambda: f"!DILexicalBlockFile(scope: {scope}, file: {self._file(source)}, discriminator: 0)",
        )

    def _function(self, id_: int) -> str:
        found: DebugFunction = self.info.functions[id_]

        def text() -> str:
            kind = self.node("kind", lambda: "!DISubroutineType(types: !{null})")
            file = self._file(found.source)
            return (
                f"distinct !DISubprogram(name: {quoted(found.name)}, scope: {file}, file: {file}, "
                f"line: {found.line}, type: {kind}, scopeLine: {found.line}, spFlags: DISPFlagDefinition, "
                f"unit: {self._unit})"
            )

        return self.node(("function", id_), text)

    def _file(self, source: int) -> str:
        def text() -> str:
            found = self.info.sources.get(source)
            path = self.settings.path(found) if found else "unknown"
            return f'!DIFile(filename: {quoted(path)}, directory: "")'

        return self.node(("file", source), text)

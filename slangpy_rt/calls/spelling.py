"""Spelling: how a kernel writes the names of a user's module and Slang's own, some of which the module may hide.

It decides nothing about arguments; reflection says which names the module declares.
"""

from __future__ import annotations

import re

from slangpy_rt_codegen.names import STATEMENTS, hidden, is_taken, nameless, own, respelled

from slangpy_rt.core.dtypes import source_name
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import SlangType
from slangpy_rt.slang.source import Source


class Spelling:
    """The text that a kernel that imports a module writes for types and functions.

    Parameters
    ----------
    where : str
        The function, for messages.
    source : Source
        The module.
    derivative : bool
        Whether the kernel calls a derivative.

    Raises
    ------
    BindError
        If the module declares a word of Slang's that the kernel needs and that has no other spelling.

    Attributes
    ----------
    hidden : tuple of str
        Slang's own names that the module's declarations hide.
    """

    __slots__ = ("_declared", "_where", "hidden")

    def __init__(self, where: str, source: Source, derivative: bool = False) -> None:
        names = source.declares
        lost = [n for n in nameless(names) if derivative or not n.endswith("_diff")]
        if lost:
            raise BindError(
                f"{where}: a module that the kernel imports declares '{lost[0]}', a word of Slang's that the kernel "
                "needs; give it another name."
            )
        self._declared = names
        self._where = where
        self.hidden = hidden(names)

    def own(self, text: str) -> str:
        """Return text marked as the user's: every name in it means the module's declaration."""
        return own(text) if self.hidden else text

    def respelled(self, text: str) -> str:
        """Return a text with other names for Slang's that are hidden, and without the marks of ``own``."""
        return respelled(text, self.hidden)

    def function(self, where: str, name: str, returns: str = "") -> str:
        """Return the text in front of a call's arguments.

        Raises
        ------
        BindError
            If Slang reads the name as a type or an operator of its own.
        """
        # Slang's own constructor has no declaration in a module.
        if is_taken(name) and (name != returns or name in self._declared):
            raise BindError(f"{where}: Slang reads '{name}(...)' as its own '{name}'; rename the function.")
        return self.own(name)

    def type(self, type_: SlangType) -> str:
        """Return a type as the kernel writes it.

        Raises
        ------
        BindError
            If a user's type has a name with which Slang begins a statement.
        """
        if type_.kind in ("struct", "enum") and (word := re.split(r"[.<]", type_.name)[0]) in STATEMENTS:
            raise BindError(f"{self._where}: Slang reads '{word}' as a word of its own; rename the type.")
        if not self.hidden:
            return source_name(type_)
        if type_.kind == "array" and type_.element is not None:
            return f"Array<{self.type(type_.element)}, {type_.shape[0]}>"
        if type_.kind == "struct" and type_.arguments and _is_library(type_):
            arguments = (self.type(a) if isinstance(a, SlangType) else str(a) for a in type_.arguments)
            return f"{type_.name.partition('<')[0]}<{', '.join(arguments)}>"
        if type_.kind in ("scalar", "vector", "matrix"):
            return type_.name
        return own(type_.name)


def _is_library(type_: SlangType) -> bool:
    """Return whether a type is a struct of Slang's or of this package, whose name no module can hide."""
    # This package's structs have such fields; of a DifferentialPair, reflection shows no fields.
    if type_.fields and not type_.fields[0].name.startswith("_spy_"):
        return False
    return type_.name.startswith(
        ("DifferentialPair<", "Tensor<", "RWTensor<", "NDBuffer<", "DiffTensor<", "WDiffTensor<", "RWDiffTensor<",
         "StructuredBuffer<", "RWStructuredBuffer<", "WTensor<", "AtomicTensor<", "PrimalTensor<", "WPrimalTensor<",
         "RWPrimalTensor<", "Optional<", "Tuple<")
    )  # fmt: skip

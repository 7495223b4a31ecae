"""The declarations that the functions of a text depend on: its own, and those of the files that it names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from slangpy_rt.slang.differentiable_functions import (
    DifferentiableFunction,
    Variable,
    kind_of,
    struct_fields,
    type_aliases,
    writing_functions,
)
from slangpy_rt.slang.places import Writer, Writers

# Functions of Slang's core module with ``out`` parameters that have derivatives.
_CORE = {
    "sincos": (Writer(frozenset((1, 2)), 3, 3),),
    "modf": (Writer(frozenset((1,)), 2, 2),),
    "frexp": (Writer(frozenset((1,)), 2, 2),),
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the statements of functions refer to.

    Attributes
    ----------
    writers : mapping of str to sequence of Writer
        Functions that write to parameters or to their objects.
    fields : mapping of str to tuple of Variable
        The fields of each struct.
    aliases : mapping of str to str
        Types by other names that they have.
    """

    writers: Writers
    fields: Mapping[str, tuple[Variable, ...]]
    aliases: Mapping[str, str]

    def resolved(self, variable: Variable) -> Variable:
        """Return a variable with its type in place of a name of the type."""
        type_ = variable.type
        for _ in range(8):
            base, bracket, sizes = type_.partition("[")
            if base not in self.aliases:
                break
            type_ = self.aliases[base] + bracket + sizes
        return variable if type_ == variable.type else replace(variable, type=type_, kind=kind_of(type_))

    def members_of(self, function: DifferentiableFunction) -> dict[str, Variable]:
        """Return the fields that a method names without its object."""
        own = self.fields.get(function.owner, ()) if function.owner else ()
        return {f.name: self.resolved(replace(f, mutable=function.mutating, initialized=True)) for f in own}

    def fields_named(self, name: str) -> list[Variable]:
        """Return the fields of all structs that have a name."""
        return [self.resolved(f) for own in self.fields.values() for f in own if f.name == name]


def surroundings_of(texts: Sequence[str]) -> Surroundings:
    """Return the declarations of texts, the text of a file first."""
    writers: dict[str, tuple[Writer, ...]] = dict(_CORE)
    fields: dict[str, tuple[Variable, ...]] = {}
    aliases: dict[str, str] = {}
    for text in texts:
        for name, writer in _writing(text):
            writers[name] = (*writers.get(name, ()), writer)
        own_fields, own_aliases = _types(text)
        for name, field in own_fields:
            fields[name] = (*fields.get(name, ()), field)
        aliases |= own_aliases
    return Surroundings(writers, fields, aliases)


# Each file of a session is read beside each other one.
@lru_cache(maxsize=256)
def _writing(text: str) -> tuple[tuple[str, Writer], ...]:
    return tuple(writing_functions(text))


@lru_cache(maxsize=256)
def _types(text: str) -> tuple[tuple[tuple[str, Variable], ...], Mapping[str, str]]:
    return tuple(struct_fields(text)), dict(type_aliases(text))

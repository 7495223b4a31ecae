"""Refuses derivatives that Slang computes incorrectly even after rebinding, with the function's name and line.

- A ``[TreatAsDifferentiable]`` function that writes to a parameter ends Slang's process in a derivative; one that has
  the attribute from a macro loses its value.
- A function with a backward derivative by hand and no forward derivative returns 0 in a forward derivative, in place
  of its value.
- A struct that is not ``IDifferentiable`` drops the derivatives of the values that it is built from. Slang reports
  assignments to its fields, but not ``P p = {x, y};`` and ``P(x, y)``.
- Loops inside one another whose numbers of rounds differ have arrays of the wrong sizes. ``rebinding`` makes the
  numbers equal, where they are known and the arrays do not become too large.
- A ``case`` of a switch that goes on in the next one ends Slang's process.
- A ``property`` with ``[Differentiable]`` accessors ends Slang's process.

Overloads of one name are refused together. A mention of a type counts as a call of its operators, initializers and
accessors.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.corrections.rebinding import rebound
from slangpy_rt.slang.corrections.rebinding.loop_sizes import LARGEST_ARRAY, unmended_nests
from slangpy_rt.slang.derivative_calls import DerivativeCall, reached_calls
from slangpy_rt.slang.differentiable_functions import (
    DifferentiableFunction,
    declared_variables,
    differentiable_functions,
    kind_of,
    name_before,
    named_type,
    treated_functions,
)
from slangpy_rt.slang.macros import Macro, expanded, macros_of
from slangpy_rt.slang.statements import falling_cases, walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, tokens

_DERIVATIVES = re.compile(r"\b(?:__)?(?:bwd_diff|fwd_diff)\b")
_PRIMAL = re.compile(r"\bvoid _spy_primal\(.*?^\}", re.S | re.M)
_CALLED = re.compile(r"(\w+)\s*(?:<[^;{}()]*>)?\s*\(")
_FORWARD = re.compile(r"\bfwd_diff\s*\(\s*(?:\w+\s*\.\s*)*(\w+)")
_DETACHED = frozenset(("no_diff", "detach"))
# Names of functions that are called without a name.
_NAMELESS = frozenset(("", "operator", "__init", "get", "set", "ref"))


@dataclass(frozen=True, slots=True)
class Construction:
    """A struct value that a function builds from variables.

    Attributes
    ----------
    type : str
        The struct's name.
    line : int
        The line of the file.
    """

    type: str
    line: int


class Derivative(NamedTuple):
    """The derivative by hand of a function.

    Attributes
    ----------
    function : str
        The function's name.
    kind : str
        ``"Backward"`` or ``"Forward"``.
    named : bool
        Whether an attribute of the function names it; otherwise ``[BackwardDerivativeOf(f)]`` names the function.
    forward : bool
        Whether the function's other attributes give it a forward derivative.
    """

    function: str
    kind: str
    named: bool
    forward: bool


@dataclass(frozen=True, slots=True)
class Caller:
    """A differentiable function, the names that it mentions, and the struct values that it builds.

    Attributes
    ----------
    name : str
        The function's name.
    keys : frozenset of str
        The names whose mention may be a call: its own, or for an operator, initializer or accessor those of types.
    mentions : frozenset of str
        All names in its statements, and the types of its parameters and its result.
    constructions : tuple of Construction
        The struct values that it builds from variables.
    lines : mapping of str to int
        The line of the first call of each name.
    nests : tuple of (int, bool)
        The line of each loop in another one whose backward derivative is wrong, and whether the number of its rounds
        is known.
    falls : tuple of int
        The line of each case of a switch that goes on in the next one.
    """

    name: str
    keys: frozenset[str]
    mentions: frozenset[str]
    constructions: tuple[Construction, ...]
    lines: Mapping[str, int]
    nests: tuple[tuple[int, bool], ...] = ()
    falls: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the derivatives of a file's functions depend on.

    Attributes
    ----------
    path : str
        The file.
    callers : tuple of Caller
        Its differentiable functions.
    treated : mapping of str to int
        Its ``[TreatAsDifferentiable]`` functions that ``rebinding`` leaves as they are, and their lines.
    by_hand : mapping of Derivative to int
        The numbers of its derivatives by hand.
    structs : mapping of str to tuple of str
        The structs with floating-point fields, and the interfaces that each implements.
    fields : mapping of str to frozenset of str
        The names in the types of the fields of each struct.
    text : str
        The file's text with its macros expanded.
    """

    path: str
    callers: tuple[Caller, ...]
    treated: Mapping[str, int]
    by_hand: Mapping[Derivative, int]
    structs: Mapping[str, tuple[str, ...]]
    fields: Mapping[str, frozenset[str]]
    text: str = ""


class _Root(NamedTuple):
    """The functions whose derivatives a text takes.

    Attributes
    ----------
    names : frozenset of str
        Names that are functions, or that are mentioned beside one.
    called : tuple of str
        The functions themselves.
    forward, backward : bool
        The derivatives that are taken.
    """

    names: frozenset[str]
    called: tuple[str, ...]
    forward: bool
    backward: bool


def facts(path: str, written: str, macros: Mapping[str, Macro]) -> Facts:
    """Return what the derivatives of the functions in a file depend on.

    Parameters
    ----------
    path, written : str
        The file and its text.
    macros : mapping of str to Macro
        The macros of all files that take part.
    """
    text = expanded(written, macros)
    structs: dict[str, tuple[str, ...]] = {}
    fields: dict[str, frozenset[str]] = {}
    owners: list[tuple[int, int, str]] = []
    for struct in _structs(tokens(text)) if "struct" in text or "extension" in text else ():
        owners.append((struct.start, struct.end, struct.name))
        fields[struct.name] = fields.get(struct.name, frozenset()) | struct.types
        if struct.floats:
            structs[struct.name] = (*structs.get(struct.name, ()), *struct.bases)
    callers = []
    for function in differentiable_functions(text)[0]:
        owner = [name for start, end, name in owners if start < function.start < end][-1:]
        callers.append(_caller(text, function, owner))
    left = rebound(written) if "TreatAsDifferentiable" in text else ""
    left = expanded(left, {**macros, **macros_of([left])})
    treated = {f.name.text: _line(left, f.name.start) for f in treated_functions(left)}
    by_hand = Counter(_by_hand(text))
    return Facts(path, tuple(callers), treated, by_hand, structs, fields, text)


def check_accessors(files: Sequence[tuple[str, str]], defines: Iterable[tuple[str, str]] = ()) -> None:
    """Refuse properties with differentiable accessors, which end Slang's process.

    Parameters
    ----------
    files : sequence of (str, str)
        Path and text of each file that takes part.
    defines : iterable of (str, str)
        Macros that are defined for all texts.

    Raises
    ------
    CompileError
        If there is one; the message has the property's name and line.
    """
    if any("property" in text for _, text in files) and any("Differentiable" in text for _, text in files):
        macros = macros_of([text for _, text in files], defines)
        for path, text in files:
            _check_accessors(path, expanded(text, macros))


def _check_accessors(path: str, text: str) -> None:
    items = tokens(text) if "property" in text and "Differentiable" in text else []
    for at, item in enumerate(items):
        if item.text != "property":
            continue
        opening = next((k for k in range(at, len(items)) if items[k].text in "{;"), -1)
        if opening < 0 or items[opening].text == ";":
            continue
        try:
            close = closing(items, opening)
        except UnbalancedBrackets:
            continue
        inside = [i.text for i in items[opening + 1 : close]]
        if "Differentiable" in inside and ("get" in inside or "set" in inside):
            name = items[opening - 1].text
            raise CompileError(
                f"{path}:{_line(text, item.start)}: the property '{name}' has a [Differentiable] accessor, on which "
                "Slang 2026.12 ends. Write a [Differentiable] method in its place."
            )


def check_derivatives(kernel: str, files: Iterable[Facts]) -> None:
    """Refuse a kernel with derivatives of functions that Slang computes wrongly.

    Parameters
    ----------
    kernel : str
        The text of a kernel. If it takes derivatives, each function that it names is checked, and each that those
        name. If a function that it calls takes the derivative of another, that one is checked in the same way.
    files : iterable of Facts
        The files that take part.

    Raises
    ------
    CompileError
        If the derivative of one of the functions is wrong.
    """
    known = list(files)
    callers: dict[str, list[tuple[str, Caller]]] = {}
    treated: dict[str, tuple[str, int]] = {}
    structs: dict[str, tuple[str, ...]] = {}
    for file in known:
        for caller in file.callers:
            for key in caller.keys:
                callers.setdefault(key, []).append((file.path, caller))
        treated |= {name: (file.path, line) for name, line in file.treated.items()}
        for name, bases in file.structs.items():
            structs[name] = (*structs.get(name, ()), *bases)
    roots = [_Root(frozenset((c.function,)), (c.function,), c.forward, not c.forward) for c in _taken(kernel, known)]
    if has_derivatives(kernel):
        # A generated kernel differentiates ``_spy_primal``, which calls the function.
        primal = _PRIMAL.search(kernel)
        called = tuple(_CALLED.findall(primal[0]) if primal else _FORWARD.findall(kernel))
        words = frozenset(re.findall(r"\w+", kernel))
        roots.append(_Root(words, called, "fwd_diff" in kernel, "bwd_diff" in kernel))
    one_way = _one_way(known) if any(root.forward for root in roots) else frozenset()
    every = [caller for file in known for caller in file.callers]
    if not treated and not one_way and not any(c.constructions or c.nests or c.falls for c in every):
        return
    for root in dict.fromkeys(roots):
        _check_root(root, callers, known, treated, structs, one_way if root.forward else frozenset())


def _taken(kernel: str, files: Sequence[Facts]) -> list[DerivativeCall]:
    """Return the derivatives that functions of the files take, if a kernel may call the functions."""
    return reached_calls(kernel, [file.text for file in files])


def _check_root(
    root: _Root,
    callers: Mapping[str, Sequence[tuple[str, Caller]]],
    known: Sequence[Facts],
    treated: Mapping[str, tuple[str, int]],
    structs: Mapping[str, tuple[str, ...]],
    one_way: frozenset[str],
) -> None:
    """Refuse the derivatives of a root that are wrong; see ``check_derivatives``."""
    alone = (
        "has a backward derivative alone: in forward derivatives, Slang 2026.12 takes 0 for its value and tangent. "
        "Write a [ForwardDerivativeOf({0})] function, or make '{0}' [Differentiable] too."
    )
    for name in sorted(one_way.intersection(root.called)):
        raise CompileError(f"'{name}' {alone.format(name)}")
    for path, caller in _reached(root.called, callers, known) if one_way else ():
        for name in sorted(caller.mentions & one_way):
            where = f"{path}:{caller.lines.get(name, 0)}: {caller.name}"
            raise CompileError(f"{where} calls '{name}', which {alone.format(name)}")
    for path, caller in _reached(root.names, callers, known):
        for name in sorted(caller.mentions & treated.keys() - {caller.name}):
            place, line = treated[name]
            raise CompileError(
                f"{path}:{caller.lines.get(name, 0)}: {caller.name} calls '{name}' ({place}:{line}), which is "
                "[TreatAsDifferentiable] and writes to a parameter, or has the attribute from a macro: Slang 2026.12 "
                "loses its values in derivatives. Make it [Differentiable], and detach(...) the values without "
                "gradients."
            )
        for line in caller.falls if root.backward else ():
            raise CompileError(
                f"{path}:{line}: {caller.name}: a case of the switch goes on in the next one, on which Slang 2026.12 "
                "ends in the backward derivative. Repeat the statements, and write break after them."
            )
        for line, counted in caller.nests if root.backward else ():
            cause = (
                f"needs an array of more than {LARGEST_ARRAY} elements in the backward derivative: in Slang 2026.12, "
                "its sizes have to be equal for all loops inside one another. Write the inner loop as a function of "
                "its own, or unroll it by [ForceUnroll]."
                if counted
                else "has no [MaxIters], and the backward derivative of Slang 2026.12 takes arrays of the wrong size "
                "for loops inside one another whose numbers of rounds differ. Write [MaxIters(n)] before each."
            )
            raise CompileError(f"{path}:{line}: {caller.name}: the inner loop {cause}")
        for value in caller.constructions:
            if value.type in structs and not any("Differentiable" in base for base in structs[value.type]):
                raise CompileError(
                    f"{path}:{value.line}: {caller.name} builds a '{value.type}' from values that may have "
                    f"derivatives, which Slang drops, because '{value.type}' is not IDifferentiable. Write "
                    f"'struct {value.type} : IDifferentiable', or detach(...) the values."
                )


def _one_way(files: Sequence[Facts]) -> frozenset[str]:
    """Return the names of functions that may have a backward derivative by hand, and no forward derivative."""
    missing: Counter[str] = Counter()
    elsewhere: Counter[str] = Counter()
    differentiable = Counter(caller.name for file in files for caller in file.callers)
    for derivative, count in [item for file in files for item in file.by_hand.items()]:
        name, kind, named, forward = derivative
        if kind == "Forward":
            missing[name] -= 0 if named and forward else count
        elif not named:
            elsewhere[name] += count
        elif forward:
            differentiable[name] -= count
        else:
            missing[name] += count
    # The compiler makes the forward derivatives of [Differentiable] functions.
    for name, count in elsewhere.items():
        missing[name] += max(0, count - differentiable[name])
    return frozenset(name for name, count in missing.items() if count > 0)


def _reached(
    names: Iterable[str], callers: Mapping[str, Sequence[tuple[str, Caller]]], files: Sequence[Facts]
) -> Iterator[tuple[str, Caller]]:
    """Yield the file and the facts of each differentiable function of a name, and of those that they mention."""
    waiting = list(set(names))
    seen = set(waiting)
    while waiting:
        name = waiting.pop()
        fresh = {word for file in files for word in file.fields.get(name, ())}
        for path, caller in callers.get(name, ()):
            yield path, caller
            fresh |= caller.mentions
        fresh -= seen
        seen |= fresh
        waiting += fresh


def has_derivatives(kernel: str) -> bool:
    """Return whether the text of a kernel differentiates a function."""
    return _DERIVATIVES.search(kernel) is not None


def takes_derivatives(kernel: str, files: Iterable[Facts]) -> bool:
    """Return whether a kernel, or a function of the files that it may call, takes a derivative."""
    return has_derivatives(kernel) or bool(_taken(kernel, list(files)))


def _caller(text: str, function: DifferentiableFunction, owner: Sequence[str]) -> Caller:
    variables = {p.name: p for p in function.parameters}
    types = {word for v in function.parameters for word in _words(v.type)} | _words(function.returns)
    keys = frozenset((owner or types) if function.name in _NAMELESS else (function.name,))
    mentions = types | set(owner)
    lines: dict[str, int] = {}
    constructions: list[Construction] = []
    for statement in walk(function.body):
        variables |= {v.name: v for v in declared_variables(statement.items)}
        for item in statement.items:
            if item.kind == "word" and item.text not in lines:
                lines[item.text] = _line(text, item.start)
        active = {
            v.name for v in variables.values() if v.differentiable and v.kind in ("scalar", "composite", "unknown")
        }
        for type_, start, items in _constructions(statement.items, function.returns):
            words = {i.text for i in items}
            if words & active and not words & _DETACHED:
                constructions.append(Construction(type_, _line(text, start)))
    return Caller(
        function.name or "an operator or accessor",
        keys,
        frozenset(mentions | lines.keys()),
        tuple(constructions),
        lines,
        tuple((_line(text, offset), counted) for offset, counted in unmended_nests(function)),
        tuple(_line(text, offset) for offset in falling_cases(function.body)),
    )


def _constructions(items: tuple[Token, ...], returns: str) -> Iterator[tuple[str, int, tuple[Token, ...]]]:
    """Yield the type, the offset and the arguments of each struct value that a statement builds."""
    declared = next(declared_variables(items), None)
    for at, item in enumerate(items):
        if item.text not in "({" or not at:
            continue
        try:
            inside = items[at + 1 : closing(items, at)]
        except UnbalancedBrackets:
            continue
        before = items[at - 1]
        if item.text == "{" and before.text == "=" and declared:
            yield declared.type, item.start, inside
        elif item.text == "{" and before.text == "return":
            yield returns, item.start, inside
        elif before.kind == "word" and (at < 2 or items[at - 2].text not in (".", "::")):
            yield before.text, item.start, inside


def _by_hand(text: str) -> Iterator[Derivative]:
    """Yield the derivatives by hand of a text."""
    items = tokens(text) if "Derivative" in text else []
    for at, item in enumerate(items):
        match = re.fullmatch(r"(Backward|Forward)Derivative(Of)?", item.text)
        if match is None or items[at - 1].text not in ("[", ",") or at + 2 >= len(items):
            continue
        with suppress(UnbalancedBrackets):
            if match[2]:
                yield Derivative(name_before(items, closing(items, at + 1)), match[1], False, False)
                continue
            first, after = _attributes(items, at)
            opening = next((k for k in range(after, len(items)) if items[k].text in "(;{"), 0)
            if opening and items[opening].text == "(":
                words = {i.text for i in items[first:after]}
                yield Derivative(
                    name_before(items, opening), match[1], True,
                    not words.isdisjoint(("Differentiable", "ForwardDifferentiable", "ForwardDerivative")),
                )  # fmt: skip


def _attributes(items: Sequence[Token], at: int) -> tuple[int, int]:
    """Return the indices of the first bracket of the attributes around index `at`, and after the last one."""
    first = at
    depth = 1
    while first and (depth or items[first - 1].text == "]"):
        first -= 1
        depth += (items[first].text in ")]") - (items[first].text in "([")
    after = first
    while after < len(items) and items[after].text == "[":
        after = closing(items, after) + 1
    return first, after


class _Struct(NamedTuple):
    """A struct, or an extension of one: the interfaces that it implements, and the names in its fields' types."""

    name: str
    start: int
    end: int
    bases: tuple[str, ...]
    types: frozenset[str]
    floats: bool


def _structs(items: Sequence[Token]) -> Iterator[_Struct]:
    """Yield the structs and extensions; an extension counts as one with floating-point fields."""
    for at, item in enumerate(items):
        if item.text not in ("struct", "extension") or at + 1 >= len(items) or items[at + 1].kind != "word":
            continue
        name = items[at + 1].text
        opening = next((k for k in range(at, len(items)) if items[k].text in "{;"), -1)
        if opening < 0 or items[opening].text == ";":
            continue
        bases = tuple(i.text for i in items[at + 2 : opening] if i.kind == "word")
        try:
            close = closing(items, opening)
        except UnbalancedBrackets:
            continue
        index, floats = opening + 1, item.text == "extension"
        types: set[str] = set()
        while index < close:
            if items[index].text in "([{":
                index = closing(items, index)
            type_, after = named_type(items, index)
            if type_ and after + 1 < close and items[after].kind == "word" and items[after + 1].text in ";,=[":
                floats |= kind_of(type_) in ("scalar", "composite") and items[index - 1].text != "no_diff"
                types |= _words(type_)
            index += 1
        yield _Struct(name, items[at].start, items[close].end, bases, frozenset(types), floats)


def _words(type_: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", type_))


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1

"""Refuses derivatives that Slang computes wrongly and that no rebinding mends, with the function's name and line.

- A ``[TreatAsDifferentiable]`` function that writes to a parameter ends Slang's process in a derivative.
- A function with a backward derivative alone returns 0 in a forward derivative, in place of its value.
- A struct that is not ``IDifferentiable`` drops the derivatives of the values that it is made of. Slang reports an
  assignment to its fields, and says nothing of ``P p = {x, y};`` and ``P(x, y)``.
- A ``property`` with ``[Differentiable]`` accessors ends Slang's process.

Functions are told apart by their names alone, so the functions of one name are refused together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.differentiable_functions import (
    DifferentiableFunction,
    declared_variables,
    differentiable_functions,
    kind_of,
    name_before,
    named_type,
    treated_functions,
)
from slangpy_rt.slang.statements import walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, macro_bodies, tokens

_DERIVATIVES = re.compile(r"\b(?:bwd_diff|fwd_diff)\b")
_CALLED = re.compile(r"(?<![\w.])(\w+)\s*\(")
_FORWARD = re.compile(r"\bfwd_diff\s*\(\s*(?:\w+\s*\.\s*)*(\w+)")
_DETACHED = frozenset(("no_diff", "detach"))


@dataclass(frozen=True, slots=True)
class Made:
    """A value of a struct that a function makes of variables.

    Attributes
    ----------
    type : str
        The struct's name.
    line : int
        The line of the file.
    """

    type: str
    line: int


@dataclass(frozen=True, slots=True)
class Caller:
    """A differentiable function: the names that it mentions, and the structs that it makes.

    Attributes
    ----------
    name : str
        The function's name.
    mentions : frozenset of str
        All names in its statements.
    made : tuple of Made
        Structs that it makes of variables.
    lines : mapping of str to int
        The line of the first call of each name.
    """

    name: str
    mentions: frozenset[str]
    made: tuple[Made, ...]
    lines: Mapping[str, int]


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
    backward : frozenset of str
        Functions with a backward derivative by hand.
    forward : frozenset of str
        Functions with a forward derivative, by hand or by the compiler.
    structs : mapping of str to tuple of str
        The structs with floating-point fields, and the interfaces that each implements.
    """

    path: str
    callers: tuple[Caller, ...]
    treated: Mapping[str, int]
    backward: frozenset[str]
    forward: frozenset[str]
    structs: Mapping[str, tuple[str, ...]]


def facts(path: str, text: str) -> Facts:
    """Return what the derivatives of the functions in a file depend on."""
    if "ifferentiable" not in text:
        structs = dict(_structs(tokens(text))) if "struct" in text else {}
        backward = frozenset(name for name, kind in _by_hand(text) if kind == "Backward")
        return Facts(path, (), {}, backward, frozenset(), structs)
    callers = []
    for function in differentiable_functions(text)[0]:
        callers.append(_caller(text, function))
    treated = {f.name.text: _line(text, f.name.start) for f in treated_functions(text) if not f.end}
    structs = {}
    for start, end in [(0, len(text)), *macro_bodies(text)]:
        for name, bases in _structs(tokens(text, start, end)):
            structs[name] = (*structs.get(name, ()), *bases)
    by_hand = list(_by_hand(text))
    backward = frozenset(name for name, kind in by_hand if kind == "Backward")
    forward = frozenset(name for name, kind in by_hand if kind == "Forward")
    return Facts(path, tuple(callers), treated, backward, forward | {c.name for c in callers}, structs)


def check_accessors(path: str, text: str) -> None:
    """Refuse a property with a differentiable accessor, which ends Slang's process.

    Raises
    ------
    CompileError
        If there is one; the message has the property's name and line.
    """
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
        The text of a kernel with derivatives. Each function that it names is checked, and each that those name.
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
            callers.setdefault(caller.name, []).append((file.path, caller))
        treated |= {name: (file.path, line) for name, line in file.treated.items()}
        for name, bases in file.structs.items():
            structs[name] = (*structs.get(name, ()), *bases)
    one_way = frozenset().union(*(f.backward for f in known)).difference(*(f.forward for f in known))
    one_way = one_way if "fwd_diff" in kernel else frozenset()
    if not treated and not one_way and not any(caller.made for file in known for caller in file.callers):
        return
    # A generated kernel differentiates ``_spy_primal``, which calls the function.
    called = _CALLED.findall(kernel) if "fwd_diff(_spy_primal)" in kernel else _FORWARD.findall(kernel)
    alone = (
        "has a backward derivative alone: in forward derivatives, Slang 2026.12 takes 0 for its value and tangent. "
        "Write a [ForwardDerivativeOf({0})] function, or make '{0}' [Differentiable] too."
    )
    for name in sorted(one_way.intersection(called)):
        raise CompileError(f"'{name}' {alone.format(name)}")
    for path, caller in _reached(called, callers) if one_way else ():
        for name in sorted(caller.mentions & one_way):
            where = f"{path}:{caller.lines.get(name, 0)}: {caller.name}"
            raise CompileError(f"{where} calls '{name}', which {alone.format(name)}")
    for path, caller in _reached(re.findall(r"\w+", kernel), callers):
        for name in sorted(caller.mentions & treated.keys() - {caller.name}):
            place, line = treated[name]
            raise CompileError(
                f"{path}:{caller.lines.get(name, 0)}: {caller.name} calls '{name}' ({place}:{line}), which is "
                "[TreatAsDifferentiable] and writes to a parameter: Slang 2026.12 loses its values in "
                "derivatives. Make it [Differentiable], and detach(...) the values without gradients."
            )
        for made in caller.made:
            if made.type in structs and not any("Differentiable" in base for base in structs[made.type]):
                raise CompileError(
                    f"{path}:{made.line}: {caller.name} builds a '{made.type}' from values that may have "
                    f"derivatives, which Slang drops, because '{made.type}' is not IDifferentiable. Write "
                    f"'struct {made.type} : IDifferentiable', or detach(...) the values."
                )


def _reached(
    names: Iterable[str], callers: Mapping[str, Sequence[tuple[str, Caller]]]
) -> Iterator[tuple[str, Caller]]:
    """Yield the file and the facts of each differentiable function of a name, and of those that they mention."""
    waiting = list(callers.keys() & set(names))
    seen = set(waiting)
    while waiting:
        for path, caller in callers[waiting.pop()]:
            yield path, caller
            fresh = caller.mentions & callers.keys() - seen
            seen |= fresh
            waiting += fresh


def has_derivatives(kernel: str) -> bool:
    """Return whether a kernel differentiates a function."""
    return _DERIVATIVES.search(kernel) is not None


def _caller(text: str, function: DifferentiableFunction) -> Caller:
    variables = {p.name: p for p in function.parameters}
    mentions: set[str] = set()
    lines: dict[str, int] = {}
    made: list[Made] = []
    for statement in walk(function.body):
        variables |= {v.name: v for v in declared_variables(statement.items)}
        for item in statement.items:
            if item.kind == "word" and item.text not in lines:
                mentions.add(item.text)
                lines[item.text] = _line(text, item.start)
        active = {
            v.name for v in variables.values() if v.differentiable and v.kind in ("scalar", "composite", "unknown")
        }
        for type_, start, items in _made(statement.items, function.returns):
            words = {i.text for i in items}
            if words & active and not words & _DETACHED:
                made.append(Made(type_, _line(text, start)))
    return Caller(function.name, frozenset(mentions), tuple(made), lines)


def _made(items: tuple[Token, ...], returns: str) -> Iterator[tuple[str, int, tuple[Token, ...]]]:
    """Yield the type, the offset and the arguments of each value that a statement makes in one piece."""
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


def _by_hand(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each function with a derivative by hand, and ``"Backward"`` or ``"Forward"``."""
    items = tokens(text) if "Derivative" in text else []
    for at, item in enumerate(items):
        match = re.fullmatch(r"(Backward|Forward)Derivative(Of)?", item.text)
        if match is None or items[at - 1].text not in ("[", ",") or at + 2 >= len(items):
            continue
        if match[2]:
            # The last word of ``S.f``.
            with suppress(UnbalancedBrackets):
                yield items[closing(items, at + 1) - 1].text, match[1]
        else:
            after = at + 1
            with suppress(UnbalancedBrackets):
                while after < len(items) and items[after].text not in ("]",):
                    after = closing(items, after) + 1 if items[after].text == "(" else after + 1
                while after + 1 < len(items) and items[after + 1].text == "[":
                    after = closing(items, after + 1)
                opening = next((k for k in range(after, len(items)) if items[k].text in "(;{"), 0)
                if opening and items[opening].text == "(":
                    yield name_before(items, opening), match[1]


def _structs(items: list[Token]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each struct with floating-point fields, and each extension, with the interfaces that it implements."""
    for at, item in enumerate(items):
        if item.text not in ("struct", "extension") or at + 1 >= len(items) or items[at + 1].kind != "word":
            continue
        name = items[at + 1].text
        opening = next((k for k in range(at, len(items)) if items[k].text in "{;"), -1)
        if opening < 0 or items[opening].text == ";":
            continue
        bases = tuple(i.text for i in items[at + 2 : opening] if i.kind == "word")
        if item.text == "extension":
            yield name, bases
            continue
        try:
            close = closing(items, opening)
        except UnbalancedBrackets:
            continue
        index, fields = opening + 1, False
        while index < close:
            if items[index].text in "([{":
                index = closing(items, index)
            type_, after = named_type(items, index)
            if type_ and after + 1 < close and items[after].kind == "word" and items[after + 1].text in ";,=[":
                fields |= kind_of(type_) in ("scalar", "composite") and items[index - 1].text != "no_diff"
            index += 1
        if fields:
            yield name, bases


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1

"""Finds the ``[Differentiable]`` functions of Slang text with their parameters and statements.

Functions that macros form are found in the replacement texts of ``#define``. A function whose brackets do not match,
for example one with a brace in each branch of an ``#if``, is reported as unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slangpy_rt.slang.places import Writer
from slangpy_rt.slang.statements import Block, parse_block
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, macro_bodies, tokens

_ATTRIBUTES = ("Differentiable", "BackwardDifferentiable", "ForwardDifferentiable")
_SCALAR = re.compile(r"(?:float|half|double|float16_t|float32_t|float64_t|min16float)1?")
_COMPOSITE = re.compile(r"(?:float|half|double|float16_t|float32_t|float64_t|min16float)[1-4](?:x[1-4])?")
_OTHER = re.compile(
    r"(?:u?int(?:8|16|32|64)?(?:_t)?(?:ptr_t)?|u?int(?:8|16|32|64)_t|bool|void|dword|String|NativeString)"
    r"(?:[1-4](?:x[1-4])?)?"
)
# Types whose values cannot be results of functions on every target.
_OPAQUE = re.compile(
    r"\w*(?:Buffer|Texture|Sampler|Sampler\w+|RayQuery|HitObject|AccelerationStructure|Tensor|TensorView|Ptr"
    r"|Handle|Atomic|CoopMat|CoopVec)\w*"
)
_WRITES = re.compile(r"\b(?:in)?out\b|\bmutating\b")
_FIXED = frozenset(("const", "uniform", "static", "ref", "__ref", "__constref", "constref", "borrow"))
_MODIFIERS = _FIXED.union(
    (
        "in",
        "out",
        "inout",
        "no_diff",
        "public",
        "internal",
        "private",
        "nointerpolation",
        "precise",
        "unorm",
        "snorm",
    ),
    ("row_major", "column_major", "volatile"),
)
_NO_TYPES = frozenset(
    (
        "return",
        "if",
        "else",
        "for",
        "while",
        "do",
        "switch",
        "case",
        "default",
        "break",
        "continue",
        "discard",
        "throw",
    )
).union(("defer", "new", "struct", "func", "interface", "enum", "typealias", "typedef", "class"))


@dataclass(frozen=True, slots=True)
class Variable:
    """A parameter or a local variable.

    Attributes
    ----------
    name : str
        Its name.
    kind : str
        ``"scalar"`` and ``"composite"`` for floating-point scalars, vectors and matrices; ``"other"`` for integers
        and booleans; ``"opaque"`` for resources; ``"unknown"`` for every other type.
    type : str
        The type as it is written, without spaces, with the sizes of arrays at the end; empty if it is inferred.
    mutable : bool
        Whether it can be assigned.
    initialized : bool
        Whether the declaration gives it a value.
    differentiable : bool
        Whether it may have a derivative: it is not declared ``no_diff``.
    reference : bool
        Whether it is an ``inout`` parameter.
    """

    name: str
    kind: str
    type: str
    mutable: bool = True
    initialized: bool = True
    differentiable: bool = True
    reference: bool = False

    @property
    def array(self) -> bool:
        """Whether it is an array."""
        return self.type.endswith("]") or self.type.startswith("Array<")

    @property
    def elements(self) -> bool:
        """Whether it has elements that may have derivatives."""
        return self.kind == "composite" or (self.array and self.kind == "unknown")

    @property
    def matrix(self) -> bool:
        """Whether it is a matrix."""
        return re.match(r"(?:\w+\dx\d|matrix<.*>)$", self.type) is not None


@dataclass(frozen=True, slots=True)
class DifferentiableFunction:
    """A function with a body.

    Attributes
    ----------
    name : str
        The unqualified name.
    start : int
        The offset of its attributes.
    returns : str
        The type of its result as it is written, without spaces.
    parameters : tuple of Variable
        Its parameters.
    body : Block
        Its statements.
    owner : str
        The struct or extended type that it is a method of; empty without one.
    mutating : bool
        Whether it may assign the fields of its object.
    """

    name: str
    start: int
    returns: str
    parameters: tuple[Variable, ...]
    body: Block
    owner: str = ""
    mutating: bool = False


@dataclass(frozen=True, slots=True)
class TreatedFunction:
    """A ``[TreatAsDifferentiable]`` function.

    Attributes
    ----------
    name : Token
        Its name.
    attribute : tuple of int
        The offsets of the attribute's brackets, if it stands alone in them.
    head : str
        Its declaration without attributes, up to the brace.
    arguments : tuple of str
        The names of its parameters.
    end : int
        The offset after its body; 0 if it has none, or if it writes to a parameter or its object.
    """

    name: Token
    attribute: tuple[int, int]
    head: str
    arguments: tuple[str, ...]
    end: int


def differentiable_functions(text: str) -> tuple[list[DifferentiableFunction], list[tuple[str, int]]]:
    """Return the differentiable functions in a text, and the name and offset of each that cannot be read."""
    found: list[DifferentiableFunction] = []
    unreadable: list[tuple[str, int]] = []
    for start, end in [(0, len(text)), *macro_bodies(text)]:
        if "ifferentiable" in text[start:end]:
            items = tokens(text, start, end)
            _collect(items, found, unreadable)
    return found, unreadable


def treated_functions(text: str) -> Iterator[TreatedFunction]:
    """Yield the ``[TreatAsDifferentiable]`` functions in a text."""
    for start, end in [(0, len(text)), *macro_bodies(text)] if "TreatAsDifferentiable" in text else ():
        items = tokens(text, start, end)
        for at, item in enumerate(items):
            if item.text == "TreatAsDifferentiable" and items[at - 1].text in ("[", ",") and at + 1 < len(items):
                with suppress(UnbalancedBrackets):
                    if found := _treated(items, at):
                        yield found


def writing_functions(text: str) -> Iterator[tuple[str, Writer]]:
    """Yield the functions that write to a parameter or, ``[mutating]``, to their object."""
    for start, end in [(0, len(text)), *macro_bodies(text)]:
        items = tokens(text, start, end) if _WRITES.search(text, start, end) else []
        seen: set[int] = set()
        for at, item in enumerate(items):
            opening = -1
            if item.text in ("out", "inout") and items[at - 1].text in ("(", ",", ":", "no_diff", "in", "const"):
                opening = _opening_before(items, at)
            elif item.text == "mutating" and items[at - 1].text in ("[", ","):
                opening = next((k for k in range(at, len(items)) if items[k].text in "({;"), -1)
            if opening < 0 or items[opening].text != "(" or opening in seen or not name_before(items, opening):
                continue
            seen.add(opening)
            mutating = any(i.text == "mutating" for i in _attributes_before(items, opening))
            with suppress(UnbalancedBrackets):
                listed = list(_split(items[opening + 1 : closing(items, opening)]))
                written = frozenset(
                    n for n, part in enumerate(listed) if any(t.text in ("out", "inout") for t in part)
                )
                needed = sum(all(t.text != "=" for t in part) for part in listed)
                yield name_before(items, opening), Writer(written, len(listed), needed, mutating)


def function_head(items: Sequence[Token], at: int) -> tuple[str, int]:
    """Return the name of the function that is declared at index `at`, and the index of its brace; -1 without a body.

    The name is empty for other declarations.

    Raises
    ------
    UnbalancedBrackets
        If a bracket is not closed.
    """
    name, _, _, opening = _head(items, at)
    return name, opening


def type_aliases(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names that ``typealias`` and ``typedef`` give to types, and the types without spaces."""
    items = tokens(text) if "typealias" in text or "typedef" in text else []
    for at, item in enumerate(items):
        if item.text == "typealias" and at + 3 < len(items) and items[at + 2].text == "=":
            end = next((k for k in range(at, len(items)) if items[k].text == ";"), at)
            yield items[at + 1].text, "".join(i.text for i in items[at + 3 : end])
        elif item.text == "typedef":
            variables = list(declared_variables(items[at + 1 : at + 40]))
            yield from ((variable.name, variable.type) for variable in variables[:1])


def struct_fields(text: str) -> Iterator[tuple[str, Variable]]:
    """Yield the fields of the structs in a text, each after its struct's name."""
    items = tokens(text) if "struct" in text else []
    for at, item in enumerate(items):
        if item.text != "struct":
            continue
        opening = next((k for k in range(at, len(items)) if items[k].text in "{;"), -1)
        if opening < 0 or items[opening].text == ";":
            continue
        with suppress(UnbalancedBrackets):
            close = closing(items, opening)
            start = index = opening + 1
            while index < close:
                if items[index].text in "([{":
                    index = closing(items, index)
                    start = index + 1 if items[index].text == "}" else start
                elif items[index].text == ";":
                    yield from ((items[at + 1].text, f) for f in declared_variables(items[start : index + 1]))
                    start = index + 1
                index += 1


def declared_variables(items: Sequence[Token]) -> Iterator[Variable]:
    """Yield the variables that a statement declares, none if it is no declaration.

    ``float a = 1, b[3];`` declares two, ``let x = f(y);`` one that cannot be assigned.
    """
    at, immutable = 0, False
    while at < len(items) and items[at].text in _MODIFIERS:
        immutable |= items[at].text in ("const", "static")
        at += 1
    if at + 1 >= len(items) or items[at].kind != "word" or items[at].text in _NO_TYPES:
        return
    if items[at].text in ("let", "var"):
        inferred = items[at + 1].text
        rest = at + 2
        type_ = ""
        if rest < len(items) and items[rest].text == ":":
            end = next((k for k in range(rest, len(items)) if items[k].text in ("=", ";")), len(items))
            type_ = "".join(i.text for i in items[rest + 1 : end])
            rest = end
        given = rest < len(items) and items[rest].text == "="
        kind = kind_of(type_) if type_ else "unknown"
        yield Variable(inferred, kind, type_, items[at].text == "var" and not immutable, given)
        return
    type_, at = named_type(items, at)
    while type_ and at < len(items) and items[at].kind == "word":
        name = items[at].text
        at += 1
        sizes = ""
        while at < len(items) and items[at].text == "[":
            close = closing(items, at)
            sizes += "".join(i.text for i in items[at : close + 1])
            at = close + 1
        after = items[at].text if at < len(items) else ";"
        if after not in ("=", ";", ","):
            return
        whole = type_ + sizes
        yield Variable(name, kind_of(whole), whole, not immutable, after == "=")
        depth = 0
        while at < len(items) and (depth or items[at].text not in (",", ";")):
            depth += (items[at].text in "([{") - (items[at].text in ")]}")
            at += 1
        at += 1


def kind_of(type_: str) -> str:
    """Return the kind of a type: ``"scalar"``, ``"composite"``, ``"other"``, ``"opaque"`` or ``"unknown"``."""
    base = type_.partition("[")[0]
    if _SCALAR.fullmatch(base):
        return "scalar" if base == type_ else "composite"
    if _COMPOSITE.fullmatch(base) or re.match(r"(?:vector|matrix)<(?!u?int|bool)", base):
        return "composite"
    if _OTHER.fullmatch(base) or re.match(r"(?:vector|matrix)<(?:u?int|bool)", base):
        return "other"
    return "opaque" if _OPAQUE.match(base) or base.endswith("*") else "unknown"


def _collect(items: Sequence[Token], found: list[DifferentiableFunction], unreadable: list[tuple[str, int]]) -> None:
    at = 0
    owners = _owners(items)
    while at < len(items):
        if items[at].text != "[" or not any(t.text in _ATTRIBUTES for t in items[at + 1 : at + 12]):
            at += 1
            continue
        name = ""
        try:
            close = closing(items, at)
            if not any(t.text in _ATTRIBUTES for t in items[at + 1 : close]):
                at += 1
                continue
            name, returns, parameters, opening = _head(items, close + 1)
            if opening < 0:
                at = close + 1
                continue
            for accessor, inner in _bodies(items, opening):
                block = parse_block(items, inner)
                owner = next((name for name, first, last in reversed(owners) if first < at < last), "")
                words = {item.text for item in items[at:opening]}
                changes = "mutating" in words or accessor in ("set", "ref") or name == "__init"
                given = parameters if not accessor else ()
                start = items[at].start
                found.append(DifferentiableFunction(name or accessor, start, returns, given, block, owner, changes))
            at = closing(items, opening) + 1
        except UnbalancedBrackets:
            unreadable.append((name, items[at].start))
            at += 1


def _owners(items: Sequence[Token]) -> list[tuple[str, int, int]]:
    """Return each struct and extension with a body, and the indices of its braces, in source order."""
    found = []
    for at, item in enumerate(items[:-1]):
        if item.text in ("struct", "extension", "class") and items[at + 1].kind == "word":
            opening = next((k for k in range(at, len(items)) if items[k].text in "{;"), -1)
            if opening >= 0 and items[opening].text == "{":
                with suppress(UnbalancedBrackets):
                    found.append((items[at + 1].text, opening, closing(items, opening)))
    return found


def _treated(items: Sequence[Token], at: int) -> TreatedFunction | None:
    opening = next((k for k in range(at, -1, -1) if items[k].text == "["), 0)
    close = closing(items, opening)
    start = close + 1
    while start < len(items) and items[start].text == "[":
        start = closing(items, start) + 1
    name, returns, parameters, brace = _head(items, start)
    index = next((k for k in range(start, len(items)) if items[k].text == name), 0)
    if not name or not index:
        return None
    head = [item.text for item in items[start:brace]] if brace > 0 else []
    plain = close == opening + 2 and brace > 0 and returns != "void"
    plain &= {"out", "inout", "ref", "mutating", "_spy_"}.isdisjoint(i.text for i in items[opening:brace])
    end = items[closing(items, brace)].end if plain else 0
    names = tuple(p.name for p in parameters)
    return TreatedFunction(items[index], (items[opening].start, items[close].end), " ".join(head), names, end)


def _bodies(items: Sequence[Token], opening: int) -> Iterator[tuple[str, int]]:
    """Yield the accessor's name, empty for a function, and the index of the brace of each body."""
    first = items[opening + 1].text if opening + 1 < len(items) else ""
    if first not in ("get", "set", "ref", "["):
        yield "", opening
        return
    end = closing(items, opening)
    at = opening + 1
    accessors = []
    while at < end:
        if items[at].text in ("[", "("):
            at = closing(items, at)
        elif items[at].text in ("get", "set", "ref") and items[at + 1].text in ("{", "("):
            accessors.append(items[at].text)
        elif items[at].text == "{" and accessors:
            yield accessors[-1], at
            at = closing(items, at)
        elif items[at].text != ";":
            yield "", opening
            return
        at += 1


def _head(items: Sequence[Token], at: int) -> tuple[str, str, tuple[Variable, ...], int]:
    """Return the name, result type, parameters and the index of the brace of a function; -1 if it has no body."""
    name, returns, parameters, start = "", "", None, at
    while at < len(items):
        word = items[at].text
        if word == "{":
            return name, returns, tuple(parameters or ()), at
        if word == ";" or word == "}":
            return name, returns, tuple(parameters or ()), -1
        if word == "[":
            at = closing(items, at)
            start = at + 1 if not name and parameters is None and items[at - 1].kind != "number" else start
        elif word == "(":
            close = closing(items, at)
            if parameters is None:
                name = name_before(items, at)
                modern = any(t.text == "func" for t in items[start:at])
                words = (t.text for t in items[start : at - 1])
                returns = "".join(word for word in words if word not in _MODIFIERS and word != "func")
                parameters = list(_parameters(items[at + 1 : close], modern))
            at = close
        at += 1
    return name, returns, tuple(parameters or ()), -1


def _parameters(items: Sequence[Token], modern: bool) -> Iterator[Variable]:
    for part in _split(items):
        words = {t.text for t in part}
        at = 0
        if modern and len(part) > 2 and part[1].text == ":":
            name, at = part[0].text, 2
            while at < len(part) and part[at].text in _MODIFIERS:
                at += 1
            type_, at = named_type(part, at)
        else:
            while at < len(part) and part[at].text in _MODIFIERS:
                at += 1
            type_, at = named_type(part, at)
            name = part[at].text if at < len(part) and part[at].kind == "word" else ""
            at += 1
            while at < len(part) and part[at].text == "[":
                close = closing(part, at)
                type_ += "".join(t.text for t in part[at : close + 1])
                at = close + 1
        if not name or not type_:
            continue
        fixed = not words.isdisjoint(_FIXED) or (modern and "inout" not in words and "out" not in words)
        given = "out" not in words
        reference = "inout" in words or {"in", "out"} <= words
        yield Variable(name, kind_of(type_), type_, not fixed, given, "no_diff" not in words, reference)


def named_type(items: Sequence[Token], at: int) -> tuple[str, int]:
    """Return the type at an index as text without spaces, and the index after it; empty if there is none."""
    start = at
    if at < len(items) and items[at].text in ("struct", "typename"):
        at += 1
    if at >= len(items) or items[at].kind != "word":
        return "", start
    at += 1
    while at < len(items):
        word = items[at].text
        if word in ("::", "."):
            at += 2
        elif word == "<":
            depth = 0
            while at < len(items):
                depth += (items[at].text == "<") - (items[at].text == ">")
                if items[at].text in (";", "{", "}", "&&", "||", "="):
                    return "", start
                at += 1
                if depth == 0:
                    break
        elif word == "[":
            at = closing(items, at) + 1
        elif word == "*":
            at += 1
        else:
            break
    return "".join(t.text for t in items[start:at]), at


def _split(items: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the parts of a list between its commas; brackets and angle brackets hold commas of their own."""
    depth = start = 0
    for at, item in enumerate(items):
        depth += (item.text in "([{<") - (item.text in ")]}>")
        if item.text == "," and depth == 0:
            yield items[start:at]
            start = at + 1
    if start < len(items):
        yield items[start:]


def name_before(items: Sequence[Token], at: int) -> str:
    """Return the name of the function whose parameters begin at index `at`, generic parameters left out."""
    at -= 1
    if at >= 0 and items[at].text == ">":
        depth = 0
        while at >= 0:
            depth += (items[at].text == ">") - (items[at].text == "<")
            at -= 1
            if depth == 0:
                break
    return items[at].text if at >= 0 and items[at].kind == "word" else ""


def _opening_before(items: Sequence[Token], at: int) -> int:
    """Return the index of the parenthesis in which index `at` lies; -1 if it lies in another bracket."""
    depth = 0
    while at >= 0:
        depth += (items[at].text in ")]}") - (items[at].text in "([{")
        if depth < 0:
            return at if items[at].text == "(" else -1
        at -= 1
    return -1


def _attributes_before(items: Sequence[Token], opening: int) -> Sequence[Token]:
    """Return the tokens of a declaration before its parameters, whose parenthesis is at index `opening`."""
    start = opening
    while start > 0 and items[start - 1].text not in (";", "{", "}"):
        start -= 1
    return items[start:opening]

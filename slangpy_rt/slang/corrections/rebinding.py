"""Statements ``x = same(x);`` in differentiable functions, without which Slang's derivatives of them are wrong.

``same`` returns its argument. Its call is an instruction of its own in Slang's intermediate code, in the block where
it stands, and these faults of Slang 2026.12 need another kind of instruction there:

- The derivative of a scalar and a vector makes a vector of the scalar after the scalar's definition. If that is a
  parameter or the result of a loop, this place is wrong, and a gradient is lost or used before it is computed. A
  function therefore begins with ``p = same(p);`` for one parameter, and ``w = same(w);`` follows each loop that
  assigns `w`.
- In a loop, the backward pass reads a variable that was an ``out`` or ``inout`` argument as it was before that call.
  ``x = same(x);`` follows the call.
- Two variables of one type that change in a branch, one of them by a component, may get one register. The component's
  assignments are put between two statements ``p = same(p);``. So are those of a matrix anywhere: of two components
  that are read afterwards, one loses its gradient.
- Of two elements of one array, vector or matrix that are read in a block, one by an index that is no literal, one
  loses its gradient. All but the first are read from copies, ``same(v, 1)[i]``; the number keeps the calls apart.
- The compiler ends on the forward derivative of a vector that is made of a ``no_diff`` parameter: ``u = same(u);``
  begins a function for each such scalar.
- The compiler crashes on a ``for`` loop whose counter starts at a value that is no constant: ``i = same(i);`` begins
  its body.

Three more faults are mended here, too:

- The compiler crashes on ``while`` loops that are nested or hold ``continue``, and loses gradients in those that hold
  ``break``: ``while (c)`` becomes ``for (; c; )``.
- The derivative of ``fmod(a, b)`` by `b` is 0. A function with the right one is called in its place.
- A ``[TreatAsDifferentiable]`` function returns 0 in a derivative, in place of its value. It becomes a differentiable
  function that calls one without the attribute by ``no_diff``.

Edits keep the lines of a text. Functions that cannot be read as statements stay.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from slangpy_rt.slang.differentiable_functions import (
    DifferentiableFunction,
    TreatedFunction,
    Variable,
    declared_variables,
    differentiable_functions,
    kind_of,
    struct_fields,
    treated_functions,
    writing_functions,
)
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement, walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets, closing, macro_bodies, prefixed, tokens

# A [TreatAsDifferentiable] function of this prefix has lost the attribute.
_CONSTANT = "_spy_constant_"
# Functions of Slang's core module with ``out`` parameters that have derivatives.
_CORE = frozenset(("sincos", "modf", "frexp"))
# Functions of Slang's core module that return scalars for scalars.
_SCALAR_FUNCTIONS = frozenset(
    ("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "clamp", "cos", "cosh", "degrees")
).union(
    (
        "detach",
        "exp",
        "exp10",
        "exp2",
        "floor",
        "fma",
        "fmax",
        "fmin",
        "fmod",
        "frac",
        "ldexp",
        "lerp",
        "log",
        "log10",
    ),
    ("log2", "mad", "max", "min", "pow", "radians", "rcp", "round", "rsqrt", "saturate", "select", "sign", "sin"),
    ("sincos", "sinh", "smoothstep", "sqrt", "step", "tan", "tanh", "trunc"),
    ("if", "for", "while", "switch", "return", "float", "half", "double", "int", "uint", "bool", "MaxIters"),
)
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="))
# A struct that cannot be differentiated, an integer or a boolean is returned by the second function.
_SAME = prefixed(
    """
[Differentiable] T {name}<T : IDifferentiable>(T x) {{ return x; }}
T {name}<T>(T x) {{ return x; }}
[Differentiable] T {name}<T : IDifferentiable>(T x, int number) {{ return x; }}
T {name}<T>(T x, int number) {{ return x; }}
""",
    "T x number",
)


# d fmod(a, b) / db is -trunc(a / b); Slang has 0.
_REMAINDER = prefixed(
    """
[ForwardDerivative({name}_forward)] [BackwardDerivative({name}_backward)]
T {name}<T : __BuiltinFloatingPointType>(T a, T b) {{ return fmod(a, b); }}
DifferentialPair<T> {name}_forward<T : __BuiltinFloatingPointType>(DifferentialPair<T> a, DifferentialPair<T> b)
{{
    T d = __slang_noop_cast<T>(a.d) - trunc(a.p / b.p) * __slang_noop_cast<T>(b.d);
    return DifferentialPair<T>(fmod(a.p, b.p), __slang_noop_cast<T.Differential>(d));
}}
void {name}_backward<T : __BuiltinFloatingPointType>(
    inout DifferentialPair<T> a, inout DifferentialPair<T> b, T.Differential d)
{{
    T slope = -trunc(a.p / b.p);
    a = DifferentialPair<T>(a.p, d);
    b = DifferentialPair<T>(b.p, __slang_noop_cast<T.Differential>(slope * __slang_noop_cast<T>(d)));
}}
[Differentiable] vector<T, N> {name}<T : __BuiltinFloatingPointType, let N : int>(vector<T, N> a, vector<T, N> b)
{{
    vector<T, N> r;
    [ForceUnroll] for (int i = 0; i < N; ++i) r[i] = {name}(a[i], b[i]);
    return r;
}}
[Differentiable] vector<T, N> {name}<T : __BuiltinFloatingPointType, let N : int>(vector<T, N> a, T b)
{{
    return {name}(a, vector<T, N>(b));
}}
""",
    "T N a b d r i slope",
)


class Edit(NamedTuple):
    """A text that is inserted at an offset, in place of so many characters."""

    offset: int
    text: str
    replaced: int = 0


def rebound(text: str, others: Iterable[str] = ()) -> str:
    """Return a text after the edits of ``rebinding_edits``."""
    return SourceMap.of(text).edited(rebinding_edits(text, others)).text


def rebinding_edits(text: str, others: Iterable[str] = ()) -> list[tuple[int, int, str]]:
    """Return edits that insert the statements that differentiable functions need, and the functions that these call.

    Parameters
    ----------
    text : str
        The text of a file.
    others : iterable of str
        Texts of other files, whose functions with ``out`` and ``inout`` parameters the text may call.

    Returns
    -------
    list of (int, int, str)
        The first and the last offset of each replaced part, and the new text.
    """
    if "ifferentiable" not in text:
        return []
    # Files that are included together have functions of different names.
    number = f"{zlib.crc32(text.encode()):08x}"
    same, remainder = f"_spy_same_{number}", f"_spy_fmod_{number}"
    edits = _edits(text, others, same, remainder)
    used = {name for name in (same, remainder) for edit in edits if name in edit.text}
    functions = _SAME.format(name=same) if same in used else ""
    functions += _REMAINDER.format(name=remainder) if remainder in used else ""
    found = [(offset, offset + replaced, new) for offset, new, replaced in edits]
    return [*found, (len(text), len(text), functions)] if functions else found


def _edits(text: str, others: Iterable[str], same: str, remainder: str) -> list[Edit]:
    """Return the edits that the differentiable functions of a text need, in source order."""
    others = list(others)
    functions, _ = differentiable_functions(text)
    writers = _CORE.union(*map(writing_functions, [text, *others])) if functions else _CORE
    fields: dict[str, list[Variable]] = {}
    for field_ in (f for each in ([text, *others] if functions else []) for f in struct_fields(each)):
        fields.setdefault(field_.name, []).append(field_)
    edits: list[Edit] = []
    for function in functions:
        edits += _Rebinding(function, writers, fields, same).edits()
    for treated in treated_functions(text):
        in_macro = any(start <= treated.name.start < end for start, end in macro_bodies(text))
        # The name may be a parameter of the macro.
        edits += _constant_edits(treated, f"{_CONSTANT}##" if in_macro else _CONSTANT)
    edits += (Edit(token.start, remainder, len(token.text)) for token in _remainders(functions, text))
    merged: dict[int, Edit] = {}
    for edit in edits:
        before = merged.get(edit.offset, Edit(edit.offset, ""))
        merged[edit.offset] = Edit(edit.offset, before.text + edit.text, before.replaced + edit.replaced)
    return [merged[offset] for offset in sorted(merged)]


def _remainders(functions: Sequence[DifferentiableFunction], text: str) -> Iterable[Token]:
    """Yield the calls of ``fmod`` in functions, unless the text declares a function of this name."""
    if "fmod" not in text:
        return
    items = tokens(text)
    if any(
        item.text == "fmod" and before.kind == "word" and before.text not in ("return", "else", "no_diff")
        for before, item in pairwise(items)
    ):
        return  # the text declares a function of this name
    for function in functions:
        for statement in walk(function.body):
            yield from (item for item in statement.items if item.text == "fmod")


def _constant_edits(function: TreatedFunction, prefix: str) -> list[Edit]:
    """Return the edits that make a function call one without the attribute, as a constant."""
    if not function.end:
        return []
    start, end = function.attribute
    head = f"[Differentiable] {function.head}"
    body = f"{{ return no_diff {prefix}{function.name.text}({', '.join(function.arguments)}); }}"
    return [
        Edit(start, "", end - start),
        Edit(function.name.start, prefix),
        Edit(function.end, f" {head} {body}"),
    ]


@dataclass
class _Rebinding:
    """The insertions of one function."""

    function: DifferentiableFunction
    writers: Set[str]
    fields: Mapping[str, Sequence[Variable]]
    same: str
    found: list[Edit] = field(default_factory=list)
    parted: int = 0

    def edits(self) -> list[Edit]:
        function = self.function
        inside = list(walk(function.body))
        self.loops = any(isinstance(s, Loop) for s in inside)
        self.forks = self.loops or any(
            isinstance(s, Branch) or (s.jumps and s is not function.body.body[-1]) for s in inside
        )
        self.forks |= any(item.text == "?" for s in inside for item in s.items)
        names = [p for p in function.parameters if p.mutable and p.kind != "opaque"]
        every = [*function.parameters, *(v for s in inside for v in declared_variables(s.items))]
        self.types = [v.type for v in every] + [function.returns]
        ranked = (p for kind in ("scalar", "composite", "unknown") for p in names if self._starts(p, kind))
        if self._mixes(every, inside):
            first = next(ranked, None)
            constants = (p for p in names if not p.differentiable and p.kind == "scalar" and p.initialized)
            for parameter in (first, *constants) if first else ():
                self.found.append(Edit(function.body.start + 1, f" {self._again(parameter.name)}"))
        self._block(function.body, {p.name: p for p in function.parameters})
        return self.found

    def _mixes(self, variables: Sequence[Variable], inside: Sequence[Statement]) -> bool:
        """Whether the function may combine a scalar and a vector or matrix."""
        if any(v.kind in ("composite", "unknown") for v in variables) or kind_of(self.function.returns) != "scalar":
            return True
        items = [item for statement in inside for item in statement.items]
        called = {i.text for i, after in pairwise(items) if i.kind == "word" and after.text in "(.<"}
        return not called <= _SCALAR_FUNCTIONS

    @staticmethod
    def _starts(parameter: Variable, kind: str) -> bool:
        return parameter.kind == kind and parameter.differentiable and parameter.initialized and not parameter.array

    def _again(self, name: str) -> str:
        return f"{name} = {self.same}({name});"

    def _block(self, block: Block, outer: dict[str, Variable]) -> None:
        """Add the insertions of a block, whose statements see the variables `outer`."""
        known = dict(outer)
        pending: list[str] = []  # variables of which a component was assigned by the last statements
        last: Statement | None = None
        for statement in block.body:
            single = type(statement) is Statement
            parts: list[Variable] = self._component_writes(statement, known) if single else []
            names = [variable.name for variable in parts]
            if pending and last and names != pending:
                self.found += (Edit(last.end, f" {self._again(name)}") for name in pending)
            if names != pending:
                self.found += (
                    Edit(statement.start, f"{self._again(variable.name)} ")
                    for variable in parts
                    if variable.initialized
                )
            pending, last = names, statement
            if single:
                self._statement(statement, known)
            else:
                self._compound(statement, known)
        if pending and last:
            self.found += (Edit(last.end, f" {self._again(name)}") for name in pending)
        self._reads(block, outer)

    def _reads(self, block: Block, outer: dict[str, Variable]) -> None:
        """Part the reads of elements of one variable in a block, if an index among them is no literal."""
        known = dict(outer)
        found: dict[str, list[_Element]] = {}
        for statement in block.body:
            own = {v.name: v for v in declared_variables(statement.items)}
            known |= own
            for element in _elements(statement.items, self.writers):
                variable = known.get(element.name)
                if variable and element.name not in own and self._has_elements(element, variable):
                    found.setdefault(element.path, []).append(element)
        for elements in found.values():
            if not any(element.computed for element in elements):
                continue
            # One element may be read from the variable itself. If one is changed, ``v.x *= v[i]``, it is this one.
            own_read = next((e for e in elements if e.changed), elements[0])
            for element in elements:
                if element is not own_read and not element.changed:
                    self.parted += 1
                    self.found += (Edit(element.start, f"{self.same}("), Edit(element.end, f", {self.parted})"))

    def _has_elements(self, element: _Element, variable: Variable) -> bool:
        """Whether what an element belongs to is a vector, matrix or array; fields are told apart by their names."""
        if element.field:
            fields = self.fields.get(element.field, [])
            return variable.kind == "unknown" and bool(fields) and all(field.elements for field in fields)
        return variable.elements

    def _component_writes(self, statement: Statement, known: dict[str, Variable]) -> list[Variable]:
        """Return the variables of which a statement assigns a component, a field or an element."""
        if statement.labels or statement.jumps or any(declared_variables(statement.items)):
            return []
        names = dict.fromkeys(name for name, part in _writes(statement.items) if part)
        found = [known[name] for name in names if name in known and known[name].mutable]
        return [v for v in found if (self.forks and self._shares_a_type(v)) or v.matrix]

    def _statement(self, statement: Statement, known: dict[str, Variable]) -> None:
        known.update((v.name, v) for v in declared_variables(statement.items))
        if self.loops and not statement.jumps:
            for variable in self._written(statement.items, known):
                self.found.append(Edit(statement.end, f" {self._again(variable.name)}"))

    def _compound(self, statement: Statement, known: dict[str, Variable]) -> None:
        if isinstance(statement, Block):
            self._block(statement, known)
            return
        loop = statement if isinstance(statement, Loop) else None
        parts = (loop.part,) if loop else statement.parts if isinstance(statement, Branch) else ()
        inner = known | {v.name: v for v in declared_variables(statement.items)}
        written = self._written(statement.items, inner) if self.loops else []
        first = [v.name for v in written]
        if loop and loop.word == "for":
            first += _counters(loop, inner)
        elif loop and loop.word == "while" and _is_pure(loop.items):
            self.found += (
                Edit(loop.keyword, "for", len("while")),
                Edit(statement.items[0].start, "; "),
                Edit(statement.items[-1].end, ";"),
                *_one_more_round(loop.attributes),
            )
        for part in parts:
            if part is not None:
                self._part(part, inner, "".join(f" {self._again(name)}" for name in first))
        after = [v for v in written if v.name in known]
        if loop:
            assigned = _assigned(loop, known)
            after += (v for v in assigned if v.kind in ("scalar", "unknown") and not v.array and v not in after)
        if after:
            self.found.append(Edit(statement.end, "".join(f" {self._again(v.name)}" for v in after)))

    def _part(self, part: Statement, known: dict[str, Variable], first: str) -> None:
        """Add the insertions of the statement of a branch or a loop, which becomes a block if it needs to."""
        if isinstance(part, Block):
            if first:
                self.found.append(Edit(part.start + 1, first))
            self._block(part, known)
            return
        outer, self.found = self.found, []
        self._block(Block((), part.start, part.end, (part,)), known)
        inner, self.found = self.found, outer
        if inner or first:
            self.found += (Edit(part.start, "{" + first + " "), *inner, Edit(part.end, " }"))

    def _shares_a_type(self, variable: Variable) -> bool:
        """Whether another variable or the result may have the type of an array; other types always do."""
        if variable.kind in ("other", "opaque"):
            return False
        return not variable.array or sum(t in ("", variable.type) for t in self.types) > 1

    def _written(self, items: Sequence[Token], known: dict[str, Variable]) -> list[Variable]:
        """Return the variables that a statement passes to functions that may write to them."""
        found: dict[str, Variable] = {}
        for at, item in enumerate(items):
            if item.kind != "word" or at + 1 >= len(items):
                continue
            if item.text in self.writers:
                opening = _opening(items, at + 1)
                if opening < 0:
                    continue
                names = [*_arguments(items, opening)]
                if at >= 2 and items[at - 1].text == "." and (root := _root(items, at - 2)):
                    names.append(root)
                for name in names:
                    variable = known.get(name)
                    if variable and variable.mutable and variable.kind not in ("other", "opaque"):
                        found[name] = variable
        return list(found.values())


def _opening(items: Sequence[Token], at: int) -> int:
    """Return the index of the parenthesis of a call, after its generic arguments; -1 if there is none."""
    if items[at].text == "<":
        depth = 0
        while at < len(items):
            depth += (items[at].text == "<") - (items[at].text == ">")
            if items[at].text in (";", "{"):
                return -1
            at += 1
            if depth == 0:
                break
    return at if at < len(items) and items[at].text == "(" else -1


def _arguments(items: Sequence[Token], opening: int) -> Iterable[str]:
    """Yield the names of the variables that are arguments by themselves, or of which a part is one."""
    try:
        close = closing(items, opening)
    except UnbalancedBrackets:
        return
    start = opening + 1
    depth = 0
    for at in range(opening + 1, close + 1):
        word = items[at].text
        if at == close or (word == "," and depth == 0):
            if _is_place(items[start:at]):
                yield items[start].text
            start = at + 1
        depth += (word in "([{") - (word in ")]}")


def _is_place(items: Sequence[Token]) -> bool:
    """Whether tokens are a name with fields and indices, ``a.b[i].x``."""
    if not items or items[0].kind != "word":
        return False
    at = 1
    while at < len(items):
        if items[at].text == "." and at + 1 < len(items) and items[at + 1].kind == "word":
            at += 2
        elif items[at].text == "[":
            try:
                at = closing(items, at) + 1
            except UnbalancedBrackets:
                return False
        else:
            return False
    return True


def _root(items: Sequence[Token], at: int) -> str:
    """Return the variable's name of the place that ends at index `at`: ``a`` of ``a.b[i]``; empty if it is none."""
    found = _root_index(items, at)
    return items[found].text if found >= 0 else ""


def _root_index(items: Sequence[Token], at: int) -> int:
    """Return the index of the variable's name of the place that ends at index `at`; -1 if it is none."""
    while at >= 0:
        if items[at].text == "]":
            depth = 0
            while at >= 0:
                depth += (items[at].text == "]") - (items[at].text == "[")
                at -= 1
                if depth == 0:
                    break
        elif items[at].kind != "word":
            return -1
        elif at >= 2 and items[at - 1].text == ".":
            at -= 2
        else:
            return at
    return -1


def _writes(items: Sequence[Token]) -> Iterable[tuple[str, bool]]:
    """Yield each variable that tokens assign, and whether it is a part of it that they assign."""
    for at, item in enumerate(items):
        if item.text in _ASSIGNMENTS and at:
            name = _root(items, at - 1)
            if name:
                yield name, items[at - 1].text != name or (at >= 2 and items[at - 2].text == ".")
        elif item.text in ("++", "--"):
            name = _root(items, at - 1) if at and items[at - 1].kind == "word" else ""
            name = name or (items[at + 1].text if at + 1 < len(items) and items[at + 1].kind == "word" else "")
            if name:
                yield name, False


class _Element(NamedTuple):
    """An element that a statement reads: ``v[i]`` or ``s.e[i]``; ``v.x`` only where an assignment changes it.

    Attributes
    ----------
    name, field : str
        The variable, and the last field before the index; empty without one.
    path : str
        Both, as in ``"s.e"``.
    start, end : int
        The offsets of the path.
    computed : bool
        Whether the index is no literal.
    changed : bool
        Whether the element is the target of an assignment such as ``+=``.
    """

    name: str
    field: str
    path: str
    start: int
    end: int
    computed: bool
    changed: bool


def _elements(items: Sequence[Token], writers: Set[str]) -> Iterator[_Element]:
    """Yield the elements that a statement reads."""
    written = {token.start for at, item in enumerate(items) for token in _written_places(items, at, item, writers)}
    for at, item in enumerate(items):
        if item.text in _ASSIGNMENTS and item.text != "=" and at:
            root = _root_index(items, at - 1)
            if root >= 0 and root + 1 < at:
                dots = [k for k in range(root + 1, at) if items[k].text in (".", "[")]
                end = dots[-1] if items[dots[-1]].text == "." else dots[0] if items[dots[0]].text == "[" else dots[-1]
                yield _element(items, root, end, items[end].text == "[", True)
        elif item.kind == "word" and at + 1 < len(items) and items[at + 1].text == "[":
            root = _root_index(items, at)
            plain = root >= 0 and all(i.text != "[" for i in items[root : at + 1])
            if plain and items[root].start not in written and not (root and items[root - 1].text == "::"):
                literal = at + 3 < len(items) and items[at + 2].kind == "number" and items[at + 3].text == "]"
                yield _element(items, root, at + 1, not literal, False)


def _element(items: Sequence[Token], root: int, end: int, computed: bool, changed: bool) -> _Element:
    """Return the element whose variable is at index `root`, and whose index or component begins at index `end`."""
    path = "".join(item.text for item in items[root:end])
    field_ = items[end - 1].text if end - 1 > root else ""
    return _Element(items[root].text, field_, path, items[root].start, items[end - 1].end, computed, changed)


def _written_places(items: Sequence[Token], at: int, item: Token, writers: Set[str]) -> Iterable[Token]:
    """Yield the variable's name of the place that a token assigns, or of each place that a call may write to."""
    if item.text in _ASSIGNMENTS and at and (root := _root_index(items, at - 1)) >= 0:
        yield items[root]
    elif item.text in ("++", "--"):
        if at and (root := _root_index(items, at - 1)) >= 0:
            yield items[root]
        elif at + 1 < len(items):
            yield items[at + 1]
    elif item.text in writers and at + 1 < len(items) and (opening := _opening(items, at + 1)) >= 0:
        with suppress(UnbalancedBrackets):
            yield from items[opening : closing(items, opening)]


def _assigned(loop: Loop, known: dict[str, Variable]) -> list[Variable]:
    """Return the variables among `known` that a loop assigns."""
    names: dict[str, None] = {}
    for statement in walk(loop):
        names.update((name, None) for name, _ in _writes(statement.items))
    return [known[name] for name in names if name in known and known[name].mutable]


def _counters(loop: Loop, known: dict[str, Variable]) -> list[str]:
    """Return the integers that a ``for`` loop changes in its last expression and that start at no literal.

    A loop that is unrolled, or of which the compiler finds the number of rounds, starts at a constant.
    """
    ends = [at for at, item in enumerate(loop.items) if item.text == ";"]
    if len(ends) != 2 or not any(item.text == "MaxIters" for item in loop.attributes):
        return []
    start, step = loop.items[: ends[0]], loop.items[ends[1] + 1 :]
    constant = {start[at - 1].text for at in range(1, len(start) - 1) if _is_literal(start, at)}
    names = dict.fromkeys(name for name, _ in _writes(step))
    found = [known[name] for name in names if name in known and name not in constant]
    return [variable.name for variable in found if variable.mutable and variable.kind in ("other", "unknown")]


def _one_more_round(attributes: Sequence[Token]) -> Iterator[Edit]:
    """Yield the edits by which ``[MaxIters(n)]`` counts the last evaluation of the condition."""
    for at, item in enumerate(attributes[:-1]):
        if item.text == "MaxIters" and attributes[at + 1].text == "(":
            yield Edit(attributes[at + 1].end, "(")
            yield Edit(attributes[closing(attributes, at + 1)].start, ") + 1")


def _is_pure(condition: Sequence[Token]) -> bool:
    """Whether a condition assigns and declares nothing; as the condition of a ``for``, it would end the compiler."""
    return condition[0].text != "let" and not any(item.text in _ASSIGNMENTS | {"++", "--"} for item in condition)


def _is_literal(items: Sequence[Token], at: int) -> bool:
    """Whether a number is all that follows the ``=`` at an index."""
    if items[at].text != "=":
        return False
    at += 2 if items[at + 1].text in ("-", "+") else 1
    return at < len(items) and items[at].kind == "number" and (at + 1 == len(items) or items[at + 1].text == ",")

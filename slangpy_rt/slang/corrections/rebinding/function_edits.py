"""Statements ``x = same(x);`` in a differentiable function."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.element_reads import is_unrolled
from slangpy_rt.slang.corrections.rebinding.loop_sizes import becomes_for
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction, Variable, declared_variables, kind_of
from slangpy_rt.slang.places import Writers, passed_places, variable_at, writes
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement, walk
from slangpy_rt.slang.tokens import Token

# Functions of Slang's core module that return scalars for scalars.
_SCALAR_FUNCTIONS = frozenset(
    (
        "abs",
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "ceil",
        "clamp",
        "cos",
        "cosh",
        "degrees",
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
        "log2",
        "mad",
        "max",
        "min",
        "pow",
        "radians",
        "rcp",
        "round",
        "rsqrt",
        "saturate",
        "select",
        "sign",
        "sin",
        "sincos",
        "sinh",
        "smoothstep",
        "sqrt",
        "step",
        "tan",
        "tanh",
        "trunc",
    )
).union(("if", "for", "while", "switch", "return", "float", "half", "double", "int", "uint", "bool", "MaxIters"))

Known = Mapping[str, Variable]


@dataclass(frozen=True, slots=True)
class FunctionEdits:
    """The statements that one function needs.

    Attributes
    ----------
    function : DifferentiableFunction
        The function.
    around : Surroundings
        What it refers to.
    same : str
        The name of the function that returns its argument.
    parameters : tuple of Variable
        Its parameters, with the types that aliases stand for.
    loops, forks : bool
        Whether it has loops, and whether it has loops, branches or early jumps.
    types : tuple of str
        The types of its variables and of its result.
    referenced : frozenset of str
        Its ``inout`` parameters, and the variables that it passes to functions that may write to them.
    """

    function: DifferentiableFunction
    around: Surroundings
    same: str
    parameters: tuple[Variable, ...]
    loops: bool
    forks: bool
    types: tuple[str, ...]
    referenced: frozenset[str]

    @staticmethod
    def of(function: DifferentiableFunction, around: Surroundings, same: str) -> FunctionEdits:
        """Return the edits of a function, whose statements are read once."""
        inside = list(walk(function.body))
        loops = any(isinstance(s, Loop) for s in inside)
        last = function.body.body[-1] if function.body.body else None
        # The rounds of an unrolled loop follow one another. Copies of an array in each take Slang minutes.
        forks = any(isinstance(s, Loop) and not is_unrolled(s) for s in inside)
        forks = forks or any(isinstance(s, Branch) or (s.jumps and s is not last) for s in inside)
        forks = forks or any(item.text == "?" for s in inside for item in s.items)
        parameters = tuple(map(around.resolved, function.parameters))
        local = (around.resolved(v) for s in inside for v in declared_variables(s.items))
        every = (*parameters, *local, *around.members_of(function).values())
        types = (*(v.type for v in every), function.returns)
        passed = (variable_at(s.items, start) for s in inside for start in _passed(s.items, around.writers))
        referenced = frozenset((*passed, *(p.name for p in parameters if p.reference), "this"))
        return FunctionEdits(function, around, same, parameters, loops, forks, types, referenced)

    def edits(self) -> tuple[Edit, ...]:
        """Return the insertions, those at one offset in their order."""
        start = self.function.body.start + 1
        first = tuple(Edit(start, f" {text}") for text in self._first_statements())
        known = self.around.members_of(self.function) | {p.name: p for p in self.parameters}
        if self.function.owner:
            known["this"] = Variable("this", "unknown", self.function.owner, self.function.mutating)
        return (*first, *self._block(self.function.body, known), *self._choices())

    def _first_statements(self) -> Iterator[str]:
        """Yield what a function begins with."""
        assigned = {name for s in walk(self.function.body) for name, _ in writes(s.items, self.around.writers)}
        redeclared = {v.name for s in self.function.body.body for v in declared_variables(s.items)}
        for parameter in self.parameters:
            if not parameter.differentiable and parameter.mutable and parameter.name in assigned - redeclared:
                # A variable of the parameter's name can have the derivative that the parameter cannot have.
                yield f"var {parameter.name} = {self.same}({parameter.name});"
        if not self._mixes():
            return
        given = [p for p in self.parameters if p.kind != "opaque" and p.differentiable and p.initialized]
        ranked = [p for kind in ("scalar", "composite", "unknown") for p in given if p.kind == kind and not p.array]
        free = next((p for p in ranked if p.mutable), None)
        if free:
            yield self._again(free.name)
        elif ranked:
            yield f"let {self.same}_first = {self.same}({ranked[0].name});"
        varies = self.function.owner or any(p.differentiable and p.kind != "other" for p in self.parameters)
        for parameter in self.parameters if varies else ():
            constant = not parameter.differentiable and parameter.kind in ("scalar", "composite")
            if constant and parameter.initialized and parameter.name not in assigned | redeclared:
                # Slang refuses to assign what has a derivative to a place without one.
                again = f"{parameter.name} = no_diff {self.same}({parameter.name});"
                yield again if parameter.mutable else f"let {again}"

    def _choices(self) -> Iterator[Edit]:
        """Yield the edits of conditions that the compiler may know because an unrolled loop is around them.

        It ends where they decide a ``return`` in a switch, or one beside a ``continue``.
        """
        found: dict[int, Branch] = {}
        for loop in walk(self.function.body):
            if not isinstance(loop, Loop) or not is_unrolled(loop):
                continue
            inside = list(walk(loop))
            continues = any(s.items[:1] and s.items[0].text == "continue" for s in inside)
            for branch in inside:
                if isinstance(branch, Branch) and (branch.switches or continues) and branch.items:
                    found[branch.start] = branch
        for branch in found.values():
            items = branch.items[1:] if branch.switches else branch.items
            returns = any(s.items[:1] and s.items[0].text == "return" for s in walk(branch))
            if returns and not any(declared_variables(items)) and items[0].text not in ("let", "var"):
                yield Edit(items[0].start, f"{self.same}(")
                yield Edit(items[-1].end, ")")

    def _mixes(self) -> bool:
        """Whether the function may combine a scalar and a vector or matrix."""
        if any(kind_of(type_) in ("composite", "unknown") for type_ in self.types[:-1]):
            return True
        if kind_of(self.function.returns) != "scalar":
            return True
        items = [item for statement in walk(self.function.body) for item in statement.items]
        called = {i.text for i, after in pairwise(items) if i.kind == "word" and after.text in "(.<"}
        return not called <= _SCALAR_FUNCTIONS

    def _again(self, name: str) -> str:
        return f"{name} = {self.same}({name});"

    def _block(self, block: Block, outer: Known) -> Iterator[Edit]:
        """Yield the insertions of a block, whose statements see the variables `outer`."""
        known = dict(outer)
        pending: list[str] = []  # variables whose components the last statements assigned
        last: Statement | None = None
        for statement in block.body:
            single = type(statement) is Statement
            parts = self._component_writes(statement.items, known) if single and not statement.labels else []
            names = [variable.name for variable in parts]
            if pending and last and not last.jumps and names != pending:
                yield from (Edit(last.end, f" {self._again(name)}") for name in pending)
            if names != pending:
                yield from (Edit(statement.start, f"{self._again(v.name)} ") for v in parts if v.initialized)
            pending, last = names, statement
            if single:
                known |= self._declared(statement.items)
                if statement.jumps:
                    yield from self._return(statement, known)
                    continue
                for variable in self._renewed(statement.items, known):
                    yield Edit(statement.end, f" {self._again(variable.name)}")
            else:
                yield from self._compound(statement, known)
            # What was declared without a value has one now; arrays stay as they are, for the same reason.
            for name in {name for s in walk(statement) for name, _ in writes(s.items, self.around.writers)}:
                if name in known and not known[name].initialized and not known[name].array:
                    known[name] = replace(known[name], initialized=True)
        if pending and last and not last.jumps:
            yield from (Edit(last.end, f" {self._again(name)}") for name in pending)

    def _declared(self, items: Sequence[Token]) -> dict[str, Variable]:
        return {v.name: self.around.resolved(v) for v in declared_variables(items)}

    def _component_writes(self, items: Sequence[Token], known: Known) -> list[Variable]:
        """Return the variables whose component, field or element tokens assign or pass to a function that may."""
        names = dict.fromkeys(name for name, part in writes(items, self.around.writers) if part)
        for variable in declared_variables(items):
            names.pop(variable.name, None)
        found = [known[name] for name in names if name in known and known[name].mutable]
        return [v for v in found if (self.forks and self._shares_a_type(v)) or v.matrix]

    def _compound(self, statement: Statement, known: Known) -> Iterator[Edit]:
        if isinstance(statement, Block):
            yield from self._block(statement, known)
            return
        loop = statement if isinstance(statement, Loop) else None
        parts = (loop.part,) if loop else statement.parts if isinstance(statement, Branch) else ()
        inner = {**known, **self._declared(statement.items)}
        components = self._component_writes(statement.items, inner)
        yield from (Edit(statement.start, f"{self._again(v.name)} ") for v in components if v.name in known)
        written = self._renewed(statement.items, inner)
        written += (v for v in components if v not in written)
        first = [v.name for v in written]
        if loop and loop.word == "for":
            first += _counters(loop, inner)
        elif loop and becomes_for(loop):
            yield Edit(loop.keyword, "for", len("while"))
            yield Edit(statement.items[0].start, "; ")
            yield Edit(statement.items[-1].end, ";")
        for part in parts:
            if part is not None:
                yield from self._part(part, inner, "".join(f" {self._again(name)}" for name in first))
        after = [v for v in written if v.name in known]
        if loop:
            assigned = _assigned(loop, known, self.around.writers)
            after += (v for v in assigned if v.kind in ("scalar", "unknown") and not v.array and v not in after)
        if after:
            yield Edit(statement.end, "".join(f" {self._again(v.name)}" for v in after))

    def _part(self, part: Statement, known: Known, first: str) -> Iterator[Edit]:
        """Yield the insertions of the statement of a branch or a loop, which becomes a block if it needs to."""
        if isinstance(part, Block):
            if first:
                yield Edit(part.start + 1, first)
            yield from self._block(part, known)
            return
        inner = list(self._block(Block((), part.start, part.end, (part,)), known))
        if inner or first:
            yield Edit(part.start, "{" + first + " ")
            yield from inner
            yield Edit(part.end, " }")

    def _shares_a_type(self, variable: Variable) -> bool:
        """Whether another variable or the result may have the type of an array; other types always do."""
        if variable.kind in ("other", "opaque"):
            return False
        return not variable.array or sum(t in ("", variable.type) for t in self.types) > 1

    def _return(self, statement: Statement, known: Known) -> Iterator[Edit]:
        """Yield the edits of a ``return`` whose expression assigns an ``inout`` parameter."""
        assigned = [v for v in self._assigned_whole(statement.items, known) if v.reference or v.name == "this"]
        if assigned and statement.items[0].text == "return":
            again = "".join(f" {self._again(v.name)}" for v in assigned)
            yield Edit(statement.start, f"{{ let {self.same}_result =", len("return"))
            yield Edit(statement.end, f"{again} return {self.same}_result; }}")

    def _renewed(self, items: Sequence[Token], known: Known) -> list[Variable]:
        """Return the variables that get new values by a statement and need a statement after it."""
        found = {v.name: v for v in self._assigned_whole(items, known)}
        for start in _passed(items, self.around.writers) if self.loops else ():
            variable = known.get(variable_at(items, start))
            if variable and variable.mutable and variable.kind not in ("other", "opaque"):
                found[variable.name] = variable
        return list(found.values())

    def _assigned_whole(self, items: Sequence[Token], known: Known) -> list[Variable]:
        """Return the variables that a statement assigns as a whole, among those that functions refer to."""
        names = dict.fromkeys(name for name, part in writes(items, {}) if not part)
        names |= dict.fromkeys(v.name for v in declared_variables(items) if v.initialized)
        found = [known[name] for name in names if name in self.referenced and name in known]
        return [v for v in found if v.mutable and v.kind not in ("other", "opaque")]


def _passed(items: Sequence[Token], writers: Writers) -> Iterator[int]:
    """Yield the first index of each place that a statement passes to a function that may write to it."""
    for at, item in enumerate(items):
        if item.kind == "word" and item.text in writers:
            yield from (start for start, _ in passed_places(items, at, writers))


def _assigned(loop: Loop, known: Known, writers: Writers) -> list[Variable]:
    """Return the variables among `known` that a loop assigns or passes to functions that may write to them."""
    names: dict[str, None] = {}
    for statement in walk(loop):
        names.update((name, None) for name, _ in writes(statement.items, writers))
    return [known[name] for name in names if name in known and known[name].mutable]


def _counters(loop: Loop, known: Known) -> list[str]:
    """Return the integers that a ``for`` loop changes in its last expression and that start at no literal.

    A loop that is unrolled, or whose number of rounds the compiler finds, starts at a constant.
    """
    ends = [at for at, item in enumerate(loop.items) if item.text == ";"]
    if len(ends) != 2 or not any(item.text == "MaxIters" for item in loop.attributes):
        return []
    start, step = loop.items[: ends[0]], loop.items[ends[1] + 1 :]
    constant = {start[at - 1].text for at in range(1, len(start) - 1) if _is_literal(start, at)}
    names = dict.fromkeys(name for name, _ in writes(step, {}))
    found = [known[name] for name in names if name in known and name not in constant]
    return [variable.name for variable in found if variable.mutable and variable.kind in ("other", "unknown")]


def _is_literal(items: Sequence[Token], at: int) -> bool:
    """Whether a number is all that follows the ``=`` at an index."""
    if items[at].text != "=":
        return False
    at += 2 if items[at + 1].text in ("-", "+") else 1
    return at < len(items) and items[at].kind == "number" and (at + 1 == len(items) or items[at + 1].text == ",")

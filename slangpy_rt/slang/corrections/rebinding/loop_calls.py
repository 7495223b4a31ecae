"""Calls in loops whose arguments do not change there.

Slang moves such a call before the loop, and its derivative behind the loop, out of the branches around them. If the
derivative is not finite there, for example ``normalize`` at 0, the gradient becomes NaN even where the call is not
run. One argument is therefore made to depend on the loop's counter: ``normalize(same(v, i))``.

Calls that each round reaches are not edited. Neither are functions whose derivatives are finite, nor operators of
structs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.element_reads import changed_in, is_unrolled
from slangpy_rt.slang.corrections.rebinding.loop_sizes import literal_rounds
from slangpy_rt.slang.corrections.rebinding.surroundings import Surroundings
from slangpy_rt.slang.differentiable_functions import DifferentiableFunction, Variable, declared_variables, kind_of
from slangpy_rt.slang.places import arguments_of, expression_start, opening_of, passed_places
from slangpy_rt.slang.statements import Block, Branch, Loop, Statement, walk
from slangpy_rt.slang.tokens import Token, UnbalancedBrackets

_FINITE = frozenset(
    (
        "abs", "atan", "ceil", "clamp", "cos", "cross", "ddx", "ddy", "degrees", "detach", "determinant", "dot",
        "floor", "fma", "fmax", "fmin", "frac", "lerp", "mad", "max", "min", "mul", "no_diff", "radians", "round",
        "saturate", "select", "sign", "sin", "step", "tanh", "transpose", "trunc",
    )
).union(("if", "for", "while", "switch", "return", "int", "uint", "bool", "sizeof", "case", "else"))  # fmt: skip
_CHOICES = frozenset(("?", "&&", "||"))
_INTEGER = re.compile(r"u?int(?:(?:8|16|32|64)_t)?|bool")

Known = Mapping[str, Variable]


@dataclass(frozen=True, slots=True)
class _OuterLoop:
    """The loop around a statement: the variables that change in it, and an integer that does, as an expression."""

    changed: frozenset[str]
    counter: str


def call_edits(function: DifferentiableFunction, around: Surroundings, same: str) -> Iterator[Edit]:
    """Yield the edits that keep calls in their loops.

    Parameters
    ----------
    function : DifferentiableFunction
        The function.
    around : Surroundings
        What it refers to.
    same : str
        The name of a function of a value and a number, which returns the value.
    """
    known = around.members_of(function) | {p.name: around.resolved(p) for p in function.parameters}
    yield from _Reader(around, same).edits(function.body, known, None, False)


@dataclass(frozen=True, slots=True)
class _Reader:
    around: Surroundings
    same: str

    def edits(self, statement: Statement, known: Known, within: _OuterLoop | None, guarded: bool) -> Iterator[Edit]:
        """Yield the edits of a statement; `guarded` says that a round of the loop around it may not reach it."""
        if isinstance(statement, Block):
            inner = dict(known)
            for part in statement.body:
                yield from self.edits(part, inner, within, guarded)
                inner |= {v.name: self.around.resolved(v) for v in declared_variables(part.items)}
                guarded |= any(each.jumps for each in walk(part))
            return
        inner = {**known, **{v.name: self.around.resolved(v) for v in declared_variables(statement.items)}}
        if isinstance(statement, Branch):
            yield from self._choices(statement.items, inner, within, guarded)
            for part in statement.parts:
                yield from self.edits(part, inner, within, True)
        elif isinstance(statement, Loop):
            if statement.part is None:
                return
            if statement.word and not is_unrolled(statement):
                changed = changed_in(statement, self.around.writers, literals=True)
                within = _OuterLoop(changed, _counter(changed, inner))
                guarded = guarded or (statement.word != "do" and not literal_rounds(statement))
                first = next((at for at, item in enumerate(statement.items) if item.text == ";"), 0)
                yield from self._choices(statement.items[first:], inner, within, False)
            yield from self.edits(statement.part, inner, within, guarded)
        else:
            yield from self._choices(statement.items, inner, within, guarded)

    def _choices(
        self, items: Sequence[Token], known: Known, within: _OuterLoop | None, guarded: bool
    ) -> Iterator[Edit]:
        if within and within.counter and (guarded or any(item.text in _CHOICES for item in items)):
            yield from self._calls(items, known, within)

    def _calls(self, items: Sequence[Token], known: Known, within: _OuterLoop) -> Iterator[Edit]:
        ends: list[tuple[int, int]] = []
        # An inner call comes after the outer one: the last one is looked at first.
        for at in range(len(items) - 1, -1, -1):
            opening = opening_of(items, at + 1) if items[at].kind == "word" else -1
            if opening < 0 or items[at].text in _FINITE or kind_of(items[at].text) != "unknown":
                continue
            try:
                found = self._argument(items, at, opening, known, within)
            except UnbalancedBrackets:
                continue
            if found and not any(found[0] <= start and end <= found[1] for start, end in ends):
                ends.append((found[2], found[1]))
                yield Edit(items[found[0]].start, f"{self.same}(")
                yield Edit(items[found[1] - 1].end, f", {within.counter})")

    def _argument(
        self, items: Sequence[Token], at: int, opening: int, known: Known, within: _OuterLoop
    ) -> tuple[int, int, int] | None:
        """Return the first index and the index after the last of an argument, and the index of the call's start."""
        parts = arguments_of(items, opening)
        first = expression_start(items, at)
        if first < 0:
            return None
        if first == at and items[at].text in known:
            parts.insert(0, (at, at + 1))  # an object that is called
        elif first < at and items[at - 1].text == ".":
            parts.insert(0, (first, at - 1))
        names = {i.text for start, end in parts for k, i in enumerate(items[start:end]) if _is_name(items, start + k)}
        if names & within.changed:
            return None
        written = set(passed_places(items, at, self.around.writers)) if items[at].text in self.around.writers else ()
        for start, end in parts:
            own = [
                known[i.text]
                for k, i in enumerate(items[start:end])
                if _is_name(items, start + k) and i.text in known
            ]
            may_be_copied = (start, end) not in written and items[start].text != "{" and all(map(self._copied, own))
            if may_be_copied and any(v.differentiable and v.kind != "other" for v in own):
                return start, end, first
        return None

    def _copied(self, variable: Variable) -> bool:
        """Whether a variable's values can be arguments and results of every function."""
        if variable.kind != "unknown":
            return variable.kind != "opaque"
        return variable.array or not variable.type or variable.type in self.around.fields


def _is_name(items: Sequence[Token], at: int) -> bool:
    return items[at].kind == "word" and (at == 0 or items[at - 1].text not in (".", "::"))


def _counter(changed: frozenset[str], known: Known) -> str:
    """Return an integer that changes in a loop: its counter, or one that is made of a variable that it assigns."""
    found = [known[name] for name in sorted(changed) if name in known and not known[name].array]
    numbers = [v for v in found if _INTEGER.fullmatch(v.type)]
    if numbers:
        whole = next((v.name for v in numbers if v.type == "int"), "")
        return whole or f"int({numbers[0].name})"
    for variable in found:
        if variable.kind == "scalar" or (variable.kind == "composite" and not variable.matrix):
            return f"int({variable.name})" if variable.kind == "scalar" else f"int({variable.name}[0])"
    return ""

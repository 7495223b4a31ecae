"""Random expressions and statements of differentiable Slang, each with the same in PyTorch. No test is here.

A ``Writer`` draws them from what is in scope; a ``Run`` is their state, in all threads at once. They are smooth, but
for branches: ``Run.margin`` is how far from the other branch the closest thread was. What Slang 2026.12 derives
wrongly is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

THREADS = 21
# By name in Slang: the views that all functions of a group can read, and their shapes.
VIEWS = {
    "a": (29,),
    "b": (7, 5),
    "c": (4, 3, 6),
    "many[0]": (13,),
    "many[1]": (3, 11),
    "s.weights": (5, 4),
    "s.inner.bias": (17,),
    "once": (THREADS,),
    "fixed": (9, 2),
}
# Slang 2026.12 compiles no forward derivative of a vector of which a part is a no_diff parameter itself.
SCALARS = {"t": 0.7, "(u * 1)": -0.4, "s.scale": 1.3}
DIRECTION = (0.3, -0.9, 0.6)
KINDS = {"float": 1, "float2": 2, "float3": 3}
_ARRAY = 3
# What numbers are compared with: no expression has them, so that none is equal to one.
_BOUNDS = (-0.61, -0.17, 0.09, 0.37, 0.83)


class Run:
    """The state of a function of the group, in all threads at once.

    Parameters
    ----------
    views : dict of tensors
        By the names of ``VIEWS``, in double precision.
    picks : tensor
        For each thread the place in a view that it reads.

    Attributes
    ----------
    stored : dict
        What was stored, by the view's name and its column.
    margin : float
        The least distance between the two sides of a comparison.
    """

    def __init__(self, views: dict[str, torch.Tensor], picks: torch.Tensor) -> None:
        self.views = views
        self.integers: dict[str, torch.Tensor | int] = {"i": torch.arange(THREADS), "picked": picks}
        self.values: dict[str, torch.Tensor] = {}
        self.mask = torch.ones(THREADS, dtype=torch.bool)
        self.stored: dict[tuple[str, int], torch.Tensor] = {}
        self.margin = float("inf")

    def assign(self, name: str, value: torch.Tensor) -> None:
        """Change a variable where threads get here."""
        mask = self.mask if value.dim() == 1 else self.mask[:, None]
        old = self.values.get(name)
        self.values[name] = value if old is None else torch.where(mask, value, old)

    def less(self, left: torch.Tensor, right: float) -> torch.Tensor:
        self.margin = min(self.margin, (left - right).abs().min().item())
        return left < right


class Expr(NamedTuple):
    """An expression in Slang, and its value."""

    text: str
    value: Callable[[Run], torch.Tensor]


class Index(NamedTuple):
    """An expression of whole numbers in Slang, and its value."""

    text: str
    value: Callable[[Run], torch.Tensor]


class Step(NamedTuple):
    """Statements in Slang, and what they do."""

    lines: list[str]
    do: Callable[[Run], None]


class Helper(NamedTuple):
    """A function that the others call: its text, its name, what it takes and returns, and what it computes."""

    text: str
    name: str
    takes: tuple[str, ...]
    returns: str
    compute: Callable[[Run, list[torch.Tensor]], torch.Tensor]


# Each keeps numbers of about 1 at about 1, and has derivatives of about 1 everywhere.
_ONE: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
    ("sin({})", torch.sin),
    ("cos({})", torch.cos),
    ("tanh({})", torch.tanh),
    ("(-{})", torch.neg),
    ("sqrt(1.5 + {0} * {0})", lambda x: torch.sqrt(1.5 + x * x)),
    ("log(1.5 + {0} * {0})", lambda x: torch.log(1.5 + x * x)),
    ("exp(-{0} * {0})", lambda x: torch.exp(-x * x)),
    ("(1 / (2 + sin({})))", lambda x: 1 / (2 + torch.sin(x))),
    ("atan({})", torch.atan),
]
_TWO: list[tuple[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = [
    ("({} + {})", torch.add),
    ("({} - {})", torch.sub),
    ("({} * {})", torch.mul),
    ("({} * sin({}))", lambda x, y: x * torch.sin(y)),
    ("lerp({}, {}, 0.25)", lambda x, y: x + (y - x) * 0.25),
    ("mad({}, {}, 0.5)", lambda x, y: x * y + 0.5),
    ("({0} / (1.5 + {1} * {1}))", lambda x, y: x / (1.5 + y * y)),
]


@dataclass
class Writer:
    """Writes one function: draws expressions and statements of what is in scope."""

    rng: random.Random
    helpers: Sequence[Helper]
    # Whether views are in scope.
    views: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    integers: list[str] = field(default_factory=lambda: ["i", "picked"])
    names: int = 0

    def index(self, text: str, size: int) -> Index:
        """A place below ``size``, which Slang calls ``text``."""
        rng = self.rng
        name, by, plus = rng.choice(self.integers), rng.randint(1, 3), rng.randint(0, 9)
        if rng.random() < 0.15:
            at = rng.randrange(size)
            return Index(str(at), lambda run: torch.full((THREADS,), at))
        return Index(
            f"({by} * uint({name}) + {plus}) % {text}", lambda run: (by * run.integers[name] + plus) % size + zeros()
        )

    def read(self) -> Expr:
        """An element of a view."""
        rng = self.rng
        name = rng.choice([name for name in VIEWS if name != "once"])
        shape = VIEWS[name]
        at = [self.index(f"{name}.size({d})", size) for d, size in enumerate(shape)]
        places = ", ".join(index.text for index in at)
        vector = f"uint{len(at)}({places})"
        forms = [f"{name}[{places}]", f"{name}.load({vector})"]
        if len(at) > 1:
            forms.append(f"{name}[{vector}]")
        elif name != "fixed":
            forms.append(f"fetch({name}, {places})")
        if name == "s.inner.bias" and rng.random() < 0.3:
            return Expr(f"s.biased({places})", lambda run: 0.5 * run.views[name][at[0].value(run)])
        return Expr(rng.choice(forms), lambda run: run.views[name][tuple(index.value(run) for index in at)])

    def leaf(self, kind: str) -> Expr:
        rng = self.rng
        arrays = [name for name, its in self.variables.items() if its == "array"]
        if arrays and kind == "float" and rng.random() < 0.2:
            array, at = rng.choice(arrays), self.index(str(_ARRAY), _ARRAY)
            # By a function: of two elements whose places turn out equal Slang 2026.12 keeps one gradient.
            return Expr(
                f"at({array}, {at.text})", lambda run: run.values[array][torch.arange(THREADS), at.value(run)]
            )
        known = [name for name, its in self.variables.items() if its == kind]
        if known and rng.random() < 0.6:
            name = rng.choice(known)
            return Expr(name, lambda run: run.values[name])
        if kind != "float":
            if self.views and kind == "float3" and rng.random() < 0.2:
                return Expr("direction", lambda run: torch.tensor(DIRECTION, dtype=torch.float64).expand(THREADS, 3))
            parts = [self.leaf("float") for _ in range(KINDS[kind])]
            text = f"{kind}({', '.join(part.text for part in parts)})"
            return Expr(text, lambda run: torch.stack([part.value(run) for part in parts], -1))
        if self.views and rng.random() < 0.75:
            if rng.random() < 0.2:
                name, number = rng.choice(list(SCALARS.items()))
                return Expr(name, lambda run: torch.full((THREADS,), number, dtype=torch.float64))
            return self.read()
        number = rng.choice([0.5, -0.25, 1.5, 0.125, -0.75])
        return Expr(
            f"({number})" if number < 0 else f"{number}",
            lambda run: torch.full((THREADS,), number, dtype=torch.float64),
        )

    def expr(self, kind: str, depth: int) -> Expr:
        """An expression of a type."""
        rng = self.rng
        if depth == 0:
            return self.leaf(kind)
        how = rng.random()
        if how < 0.15:
            found = [helper for helper in self.helpers if helper.returns == kind]
            if found:
                return self.call(rng.choice(found), depth)
        if how < 0.3 and kind == "float":
            return self.reduced(depth)
        if how < 0.38:
            return self.chosen(kind, depth)
        if how < 0.45 and kind == "float3":
            x, y = self.expr("float3", depth - 1), self.expr("float3", depth - 1)
            return Expr(f"cross({x.text}, {y.text})", lambda run: torch.linalg.cross(x.value(run), y.value(run)))
        if how < 0.55 and kind != "float":
            v, by = self.expr(kind, depth - 1), self.expr("float", depth - 1)
            # Not by the number itself: after a loop Slang 2026.12 has wrong gradients of that (issue 12071).
            return Expr(f"({v.text} * {kind}({by.text}))", lambda run: v.value(run) * by.value(run)[:, None])
        if how < 0.75:
            text, one = rng.choice(_ONE)
            x = self.expr(kind, depth - 1)
            return Expr(text.format(x.text), lambda run: one(x.value(run)))
        text, two = rng.choice(_TWO)
        x, y = self.expr(kind, depth - 1), self.expr(kind, depth - 1)
        return Expr(text.format(x.text, y.text), lambda run: two(x.value(run), y.value(run)))

    def reduced(self, depth: int) -> Expr:
        """A number of a vector."""
        rng = self.rng
        kind = rng.choice(["float2", "float3"])
        v = self.expr(kind, depth - 1)
        if rng.random() < 0.4:
            part = rng.randrange(KINDS[kind])
            return Expr(f"{v.text}.{'xyz'[part]}", lambda run: v.value(run)[:, part])
        if rng.random() < 0.3:
            return Expr(f"length({v.text} + 2)", lambda run: torch.linalg.norm(v.value(run) + 2, dim=-1))
        w = self.expr(kind, depth - 1)
        return Expr(f"dot({v.text}, {w.text})", lambda run: (v.value(run) * w.value(run)).sum(-1))

    def chosen(self, kind: str, depth: int) -> Expr:
        """One of two, by a comparison."""
        condition = self.condition(depth - 1)
        x, y = self.expr(kind, depth - 1), self.expr(kind, depth - 1)

        def value(run: Run) -> torch.Tensor:
            mask = condition.value(run)
            return torch.where(mask if kind == "float" else mask[:, None], x.value(run), y.value(run))

        # Slang's ?: of vectors chooses part by part.
        return Expr(f"({condition.text} ? {x.text} : {y.text})", value)

    def condition(self, depth: int) -> Expr:
        """A comparison of numbers, or of where a thread is."""
        if self.views and self.rng.random() < 0.4:
            name, by = self.rng.choice(self.integers), self.rng.randint(2, 4)
            return Expr(f"(uint({name}) % {by} == 1)", lambda run: (run.integers[name] % by == 1) & trues())
        x, bound = self.expr("float", depth), self.rng.choice(_BOUNDS)
        return Expr(f"({x.text} < {bound})", lambda run: run.less(x.value(run), bound))

    def call(self, helper: Helper, depth: int) -> Expr:
        given = [self.expr(kind, depth - 1) for kind in helper.takes]
        text = f"{helper.name}({', '.join(each.text for each in given)})"
        return Expr(text, lambda run: helper.compute(run, [each.value(run) for each in given]))

    def statement(self, depth: int) -> Step:
        """Statements: a variable, a loop, a branch."""
        how = self.rng.random()
        if depth and how < 0.25:
            return self.loop(depth)
        if depth and how < 0.45:
            return self.branch(depth)
        if how < 0.52 and self.integers:
            return self.declare_array()
        if how < 0.75 or not self.variables:
            return self.declare(self.rng.choice(list(KINDS)))
        return self.change()

    def declare(self, kind: str) -> Step:
        name, value = f"v{self.names}", self.expr(kind, self.rng.randint(1, 3))
        self.names += 1
        self.variables[name] = kind
        return Step([f"{kind} {name} = {value.text};"], lambda run: run.values.__setitem__(name, value.value(run)))

    def declare_array(self) -> Step:
        name, parts = f"v{self.names}", [self.expr("float", 1) for _ in range(_ARRAY)]
        self.names += 1
        self.variables[name] = "array"
        line = f"float {name}[{_ARRAY}] = {{ {', '.join(part.text for part in parts)} }};"

        def do(run: Run) -> None:
            run.values[name] = torch.stack([part.value(run) for part in parts], -1)

        return Step([line], do)

    def change_element(self, name: str) -> Step:
        at, value = self.index(str(_ARRAY), _ARRAY), self.expr("float", 1)

        def do(run: Run) -> None:
            chosen = torch.nn.functional.one_hot(at.value(run), _ARRAY).bool()
            old = run.values[name]
            run.assign(name, torch.where(chosen, 0.5 * old + value.value(run)[:, None], old))

        return Step([f"{name}[{at.text}] = 0.5 * {name}[{at.text}] + {value.text};"], do)

    def change(self) -> Step:
        """A new value of a variable, or of a part of it. The old one counts half, so that loops stay small."""
        rng = self.rng
        name = rng.choice(list(self.variables))
        kind = self.variables[name]
        if kind == "array":
            return self.change_element(name)
        if kind != "float" and rng.random() < 0.5:
            part, number = rng.randrange(KINDS[kind]), self.expr("float", rng.randint(1, 2))

            def write(run: Run) -> None:
                parts = list(run.values[name].unbind(-1))
                parts[part] = number.value(run)
                run.assign(name, torch.stack(parts, -1))

            return Step([f"{name}.{'xyz'[part]} = {number.text};"], write)
        value = self.expr(kind, rng.randint(1, 2))
        if rng.random() < 0.3 and kind == "float":
            # A parameter that is written.
            def soften(run: Run) -> None:
                run.assign(name, torch.tanh(run.values[name]) + 0.5 * value.value(run))

            return Step([f"soften({name}, {value.text});"], soften)
        return Step(
            [f"{name} = 0.5 * {name} + {value.text};"],
            lambda run: run.assign(name, 0.5 * run.values[name] + value.value(run)),
        )

    def block(self, count: int, depth: int) -> Step:
        """Some statements in a scope of their own."""
        outer = dict(self.variables)
        steps = [self.change() if outer and k == count - 1 else self.statement(depth) for k in range(count)]
        self.variables = outer

        def do(run: Run) -> None:
            for step in steps:
                step.do(run)

        return Step([line for step in steps for line in step.lines], do)

    def loop(self, depth: int) -> Step:
        """A loop of few turns, some of which may end early."""
        rng = self.rng
        name, turns = f"k{self.names}", rng.randint(2, 4)
        self.names += 1
        # How often it goes round may be another number in each thread.
        last = f"int(i % {turns}) + 1" if self.views and rng.random() < 0.4 else str(turns)
        head = f"[MaxIters({turns})] "
        if last == str(turns):
            head = rng.choice(["", "[ForceUnroll] ", head])
        self.integers.append(name)
        skip, how = self.condition(0) if rng.random() < 0.4 else None, rng.choice(["continue", "break"])
        block = self.block(rng.randint(1, 2), depth - 1)
        self.integers.remove(name)

        def do(run: Run) -> None:
            outer = left = run.mask
            for k in range(turns):
                run.integers[name] = k
                run.mask = left if last == str(turns) else left & (k < torch.arange(THREADS) % turns + 1)
                if skip:
                    run.mask = run.mask & ~skip.value(run)
                    left = run.mask if how == "break" else left
                block.do(run)
            run.mask = outer

        lines = [f"{head}for (int {name} = 0; {name} < {last}; ++{name})", "{"]
        lines += [f"    if {skip.text} {how};"] if skip else []
        return Step([*lines, *(f"    {line}" for line in block.lines), "}"], do)

    def branch(self, depth: int) -> Step:
        condition = self.condition(1)
        first, second = self.block(self.rng.randint(1, 2), depth - 1), self.block(1, depth - 1)

        def do(run: Run) -> None:
            outer, chosen = run.mask, condition.value(run)
            for mask, block in ((chosen, first), (~chosen, second)):
                run.mask = outer & mask
                block.do(run)
            run.mask = outer

        lines = [f"if {condition.text}", "{", *(f"    {line}" for line in first.lines), "}"]
        return Step([*lines, "else", "{", *(f"    {line}" for line in second.lines), "}"], do)


def zeros() -> torch.Tensor:
    return torch.zeros(THREADS, dtype=torch.long)


def trues() -> torch.Tensor:
    return torch.ones(THREADS, dtype=torch.bool)

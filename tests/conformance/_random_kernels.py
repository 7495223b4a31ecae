"""Random kernels for slang-torch, as Slang's text and as PyTorch's operations in double precision. No test is here.

A ``Group`` is one file: several functions of the same parameters, and a kernel that runs the one that it is told.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tests.conformance._random_statements import KINDS, THREADS, VIEWS, Helper, Run, Step, Writer, zeros

PARAMETERS = (
    "DiffTensorView a, DiffTensorView<float> b, DiffTensorView<float, AtomicAdd> c, DiffTensorView many[2], "
    "Layer s, DiffTensorView once, TensorView<float> fixed, TensorView<int> picks, float t, no_diff float u, "
    "float3 direction, DiffTensorView first, DiffTensorView second"
)
_ARGUMENTS = "a, b, c, many, s, once, fixed, picks, t, u, direction, first, second"

_LIBRARY = """
struct Inner { DiffTensorView bias; }
struct Layer
{
    DiffTensorView<float> weights;
    float scale;
    Inner inner;
    [Differentiable] float biased(uint i) { return 0.5 * inner.bias[i]; }
}
[Differentiable] float fetch(DiffTensorView view, uint i) { return view.load(i); }
[Differentiable] float at(float array[3], uint i) { return array[i]; }
[Differentiable] void soften(inout float x, float y) { x = tanh(x) + 0.5 * y; }
"""


@dataclass(frozen=True)
class Function:
    """One function of a group."""

    steps: Sequence[Step]

    @property
    def lines(self) -> list[str]:
        return [line for step in self.steps for line in step.lines]

    def do(self, run: Run) -> None:
        for step in self.steps:
            step.do(run)


class Group:
    """A file of random functions that have their parameters in common, and the kernel ``run`` that runs one of them.

    Parameters
    ----------
    number : int
        Which one: the same number gives the same file.
    count : int
        How many functions it has.
    length : int
        How many characters the statements of each have at most.

    Attributes
    ----------
    text : str
        In Slang.
    functions : list of Function
        What they compute.
    """

    def __init__(self, number: int, count: int, length: int) -> None:
        rng = random.Random(number)
        helpers: list[Helper] = []
        for k in range(3):
            helpers.append(_helper(rng, f"helper{k}", helpers))
        self.functions: list[Function] = []
        while len(self.functions) < count:
            made = _function(rng, helpers)
            if len("".join(made.lines)) <= length and _is_calm(made):
                self.functions.append(made)
        self.helpers = helpers
        self.text = self.written(helpers, self.functions)

    @staticmethod
    def written(helpers: Sequence[Helper], functions: Sequence[Function]) -> str:
        """The file."""
        bodies = [
            f"[Differentiable] void body{k}(no_diff uint i, no_diff uint picked, {PARAMETERS})\n"
            + "\n".join(["{", *(f"    {line}" for line in function.lines), "}"])
            for k, function in enumerate(functions)
        ]
        cases = [f"    case {k}: body{k}(i, picked, {_ARGUMENTS}); break;" for k in range(len(functions))]
        kernel = f"""[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void run(no_diff int which, {PARAMETERS})
{{
    uint i = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
    if (i >= first.size(0))
        return;
    uint picked = uint(picks[i]);
    switch (which)
    {{
{chr(10).join(cases)}
    default: break;
    }}
}}
"""
        return "\n".join([_LIBRARY, *(helper.text for helper in helpers), *bodies, kernel])


def _is_calm(function: Function) -> bool:
    """Whether it has gradients, and both them and its values are small enough to be compared."""
    draw = torch.Generator().manual_seed(0)
    views = {
        name: (torch.rand(shape, generator=draw, dtype=torch.float64) * 2 - 1).requires_grad_()
        for name, shape in VIEWS.items()
    }
    run = Run(views, torch.arange(THREADS) * 7 % 50)
    function.do(run)
    total = torch.cat(list(run.stored.values())).abs().sum()
    if not total.requires_grad or not total < 10 * THREADS:
        return False
    total.backward()
    gradients = [view.grad.abs().max() for view in views.values() if view.grad is not None]
    return len(gradients) > 2 and bool(1e-2 < max(gradients) < 50)


def _helper(rng: random.Random, name: str, others: Sequence[Helper]) -> Helper:
    """A function of numbers, which may call the others."""
    takes = tuple(rng.choice(list(KINDS)) for _ in range(rng.randint(1, 3)))
    returns = rng.choice(list(KINDS))
    parameters = {f"x{k}": kind for k, kind in enumerate(takes)}
    writer = Writer(rng, tuple(others), views=False, variables=dict(parameters), integers=[])
    block = [writer.statement(1) for _ in range(rng.randint(0, 2))]
    early = (writer.condition(1), writer.expr(returns, 1)) if rng.random() < 0.3 else None
    result = writer.expr(returns, 2)
    lines = [line for step in block for line in step.lines]
    lines += [f"if {early[0].text} return {early[1].text};"] if early else []
    declared = ", ".join(f"{kind} {each}" for each, kind in parameters.items())
    body = "\n".join(f"    {line}" for line in [*lines, f"return {result.text};"])

    def compute(run: Run, given: list[torch.Tensor]) -> torch.Tensor:
        inner = Run(run.views, zeros())
        inner.values = dict(zip(parameters, given, strict=True))
        for step in block:
            step.do(inner)
        found = result.value(inner)
        if early:
            leaves = early[0].value(inner)
            found = torch.where(leaves if returns == "float" else leaves[:, None], early[1].value(inner), found)
        run.margin = min(run.margin, inner.margin)
        return found

    return Helper(f"[Differentiable] {returns} {name}({declared})\n{{\n{body}\n}}", name, takes, returns, compute)


def _function(rng: random.Random, helpers: Sequence[Helper]) -> Function:
    """A function that reads views, computes and stores."""
    writer = Writer(rng, helpers)
    steps: list[Step] = []
    if rng.random() < 0.4:
        writer.variables["alone"] = "float"
        read = "once.loadOnce(i)" if rng.random() < 0.5 else "once.loadOnce(uint1(i))"
        steps.append(Step([f"float alone = {read};"], lambda run: run.values.__setitem__("alone", run.views["once"])))
    steps += [writer.statement(2) for _ in range(rng.randint(2, 5))]
    steps.append(_store(writer, "first", 0, ["first[i, 0] = {};", "first[uint2(i, 0)] = {};"]))
    if rng.random() < 0.6:
        steps.append(_store(writer, "first", 1, ["first.store(uint2(i, 1), {});"]))
    if rng.random() < 0.6:
        steps.append(_store(writer, "second", 0, ["second.storeOnce(i, {});", "second.storeOnce(uint1(i), {});"]))

    return Function(steps)


def _store(writer: Writer, name: str, column: int, forms: Sequence[str]) -> Step:
    """Statements that store a number, now and then another one in each branch."""
    rng = writer.rng
    value = writer.expr("float", 3)
    if rng.random() < 0.7:
        line = rng.choice(forms).format(value.text)
        return Step([line], lambda run: run.stored.__setitem__((name, column), value.value(run)))
    condition, other = writer.condition(1), writer.expr("float", 2)

    def do(run: Run) -> None:
        run.stored[name, column] = torch.where(condition.value(run), value.value(run), other.value(run))

    lines = [f"if {condition.text}", f"    {rng.choice(forms).format(value.text)}"]
    return Step([*lines, "else", f"    {rng.choice(forms).format(other.text)}"], do)

"""Random kernels of slang-torch: values, gradients and tangents are those of PyTorch in double precision."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from _random_kernels import Function, Group
from _slangtorch import Files, files

from tests.conformance._random_statements import DIRECTION, SCALARS, THREADS, VIEWS, Run
from tests.depth import deep, sampled

__all__ = ["files"]  # the fixture

GROUPS, TOGETHER, DEFAULT = 20, 10, 20
SIZE = {"blockSize": (8, 1, 1), "gridSize": (3, 1, 1)}
# A thread that is closer to a branch may take the other one in single precision.
MARGIN = 1e-4
STORED = {"first": (THREADS, 2), "second": (THREADS,)}


class Case:
    """Random values for one function, and what PyTorch makes of them.

    Attributes
    ----------
    stored : dict
        What the function stores, by view and column.
    views : dict
        The inputs in double precision, which are leaves of PyTorch's graph.
    """

    def __init__(self, function: Function, seed: int) -> None:
        self.draw = torch.Generator().manual_seed(seed)
        margin = 0.0
        while margin < MARGIN:
            # In single precision, which the kernel gets.
            self.views = {name: self.random(*shape).double().requires_grad_() for name, shape in VIEWS.items()}
            self.picks = torch.randint(0, 50, (THREADS,), generator=self.draw)
            run = Run(self.views, self.picks)
            function.do(run)
            margin = run.margin
        self.function, self.stored = function, run.stored

    def random(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.draw) * 2 - 1

    def tangents(self, given: dict[str, torch.Tensor]) -> dict[tuple[str, int], torch.Tensor]:
        """What the tangents of the inputs make of what is stored."""
        # The gradient is linear in the weights of what is stored. PyTorch's forward mode warns of its own names.
        weights = {at: torch.ones(THREADS, dtype=torch.float64, requires_grad=True) for at in self.stored}
        weighted = sum((value * weights[at]).sum() for at, value in self.stored.items())
        gradients = torch.autograd.grad(weighted, list(self.views.values()), create_graph=True, allow_unused=True)
        moved = [
            (gradient * given[name].double()).sum()
            for name, gradient in zip(self.views, gradients, strict=True)
            if gradient is not None
        ]
        found = torch.autograd.grad(sum(moved), list(weights.values()), allow_unused=True)
        return {
            at: torch.zeros(THREADS) if tangent is None else tangent
            for at, tangent in zip(weights, found, strict=True)
        }


class Arguments:
    """The arguments of a group's kernel, in memory of any layout."""

    def __init__(self, files: Files, module: Any, case: Case) -> None:
        self.files, self.module, self.case = files, module, case
        self.values = {name: self.lay_out(view.detach().float()) for name, view in case.views.items()}
        self.values |= {name: self.lay_out(torch.full(shape, 9.0)) for name, shape in STORED.items()}
        self.beside = {name: self.lay_out(case.random(*value.shape)) for name, value in self.values.items()}
        self.before = {name: value.cpu().clone() for name, value in self.beside.items()}

    def lay_out(self, value: torch.Tensor) -> torch.Tensor:
        """The same values with gaps between them, or in another order."""
        how = int(torch.randint(0, 3, (), generator=self.case.draw))
        if how == 1:
            return self.files.on(torch.stack([value, value - 7], -1))[..., 0]
        return self.files.on(value.mT.contiguous()).mT if how == 2 and value.dim() > 1 else self.files.on(value)

    def bind(self, kernel: Any, which: int, pairs: bool) -> Any:
        """The kernel with all of them, as pairs of values and what lies beside them or alone."""
        v, m = self.values, self.module

        def pair(name: str) -> Any:
            return (v[name], self.beside[name]) if pairs else v[name]

        layer = m.Layer(pair("s.weights"), SCALARS["s.scale"], m.Inner(pair("s.inner.bias")))
        return kernel(
            which=which, a=pair("a"), b=pair("b"), c=pair("c"), many=[pair("many[0]"), pair("many[1]")], s=layer,
            once=pair("once"), fixed=v["fixed"], picks=self.files.on(self.case.picks.int()), t=SCALARS["t"],
            u=SCALARS["(u * 1)"], direction=DIRECTION, first=pair("first"), second=pair("second"),
        )  # fmt: skip


def close(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Within what single precision, and Vulkan's sines, cost."""
    allowed = 1e-3 * max(1.0, expected.abs().max().item())
    wrong = (got.double().cpu() - expected).abs().max().item()
    assert wrong <= allowed, f"{what}: off by {wrong}"


def column(value: torch.Tensor, at: int) -> torch.Tensor:
    return value if value.dim() == 1 else value[:, at]


@deep
@sampled(DEFAULT)
@pytest.mark.parametrize("number", range(GROUPS))
def test_derivatives_are_those_of_pytorch(files: Files, number: int) -> None:
    # Ten long functions take the compilers half a minute; those of the default run are short.
    group = Group(number, TOGETHER, 1800 if number % DEFAULT > 5 else 600)
    module = files.load(group.text)
    for which, function in enumerate(group.functions):
        case = Case(function, 100 * number + which)
        what = f"function {which} of group {number}"
        arguments = Arguments(files, module, case)
        arguments.bind(module.run, which, pairs=False).launchRaw(**SIZE)
        for (name, at), expected in case.stored.items():
            close(column(arguments.values[name], at), expected.detach(), f"{what}: {name}")
        check_backward(arguments, which, what)
        check_forward(Arguments(files, module, case), which, what)


def check_backward(arguments: Arguments, which: int, what: str) -> None:
    case, before = arguments.case, arguments.before
    arguments.bind(arguments.module.run.bwd, which, pairs=True).launchRaw(**SIZE)
    weighted = [(value * column(before[name], at)).sum() for (name, at), value in case.stored.items()]
    inputs = {name: view for name, view in case.views.items() if name != "fixed"}
    gradients = torch.autograd.grad(sum(weighted), list(inputs.values()), retain_graph=True, allow_unused=True)
    for (name, view), gradient in zip(inputs.items(), gradients, strict=True):
        expected = before[name].double()
        if gradient is not None:
            # A value that is read once has its gradient stored, and not added to what is there.
            expected = gradient if name == "once" else expected + gradient
        if gradient is not None or name != "once":
            # loadOnce may leave zeros, or what was there, where nothing depends on what it reads.
            close(arguments.beside[name], expected, f"{what}: gradient of {name}")
        assert torch.equal(arguments.values[name].double().cpu(), view.detach())
    for name in STORED:
        for at in range(2 if name == "first" else 1):
            # .store takes the gradient, .storeOnce reads it.
            taken = name == "first" and (name, at) in case.stored
            expected = column(before[name], at)
            got = column(arguments.beside[name], at).cpu()
            assert torch.equal(got, torch.zeros(THREADS) if taken else expected), what


def check_forward(arguments: Arguments, which: int, what: str) -> None:
    case, before = arguments.case, arguments.before
    arguments.bind(arguments.module.run.fwd, which, pairs=True).launchRaw(**SIZE)
    given = {name: torch.zeros_like(before[name]) if name == "fixed" else before[name] for name in VIEWS}
    for (name, at), expected in case.tangents(given).items():
        close(column(arguments.values[name], at), case.stored[name, at].detach(), f"{what}: {name} of .fwd")
        close(column(arguments.beside[name], at), expected, f"{what}: tangent of {name}")

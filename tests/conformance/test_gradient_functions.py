"""Derivatives of Slang's own functions and of functions made of them, backward and forward.

Each is held against PyTorch's formula for it in double precision: values, PyTorch's derivatives of that formula, and
its central differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from _gradient_functions import CASES, HELPERS, RANGES, SCALARS, Case, shapes

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled

pytestmark = one_device

Array = npt.NDArray[Any]

SAMPLES = 40
# Vulkan asks of sin and cos an error of 2^-11 at most, and of exp and log one of some units in the last place.
FLOAT_ERROR = 1e-3
DOUBLE_ERROR = 1e-9
# Of central differences, whose own error is about STEP squared, and 1e-16 / STEP.
STEP = 1e-5
DIFFERENCE_ERROR = 1e-6


# Cases that share a kernel: most of the half second that one takes to compile is the same for any.
TOGETHER = 14
DOUBLES = {name: case for name, case in CASES.items() if case.double}


def groups(cases: dict[str, Case]) -> list[list[Case]]:
    """Those that share a kernel."""
    every = list(cases.values())
    return [every[k : k + TOGETHER] for k in range(0, len(every), TOGETHER)]


def together(g: int, group: list[Case]) -> str:
    """A function of the parameters of all cases, which returns all their results."""
    fields, parameters, calls, lines = [], [], [], []
    for k, case in enumerate(group):
        body = case.body if case.body.startswith("{") else f"{{ return {case.body}; }}"
        lines.append(f"[Differentiable] {case.returns} case{g}_{k}({case.parameters}) {body}")
        fields.append(f"{case.returns} r{k};")
        parameters.append(re.sub(r"(S\S*) (\w+)", rf"\1 \2_{k}", case.parameters))
        names = re.findall(r"S\S* (\w+)", parameters[-1])
        calls.append(f"case{g}_{k}({', '.join(names)})")
    lines.append(f"struct Results{g} : IDifferentiable {{ {' '.join(fields)} }}")
    lines.append(
        f"[Differentiable] Results{g} group{g}({', '.join(parameters)}) {{ return {{ {', '.join(calls)} }}; }}"
    )
    return "\n".join(lines)


def program(scalar: str) -> str:
    """The functions in Slang."""
    cases = CASES if scalar == "float" else DOUBLES
    lines = [HELPERS, *(together(g, group) for g, group in enumerate(groups(cases)))]
    if scalar == "float":
        for name, group in SCALARS.items():
            all_of = ", ".join(case.body for case in group.values())
            parameters = next(iter(group.values())).parameters
            lines.append(f"[Differentiable] S[{len(group)}] {name}({parameters}) {{ return {{ {all_of} }}; }}")
    return "import slangpy_rt;\n" + re.sub(r"\bS(?=[\d\W]|$)(\d(?:x\d)?)?\b", rf"{scalar}\1", "\n".join(lines))


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """All of them in float."""
    return spy.Module.load_from_source(device, "gradient_functions", program("float"))


@dataclass(frozen=True)
class Known:
    """Samples of a function, and what PyTorch makes of them."""

    inputs: tuple[Array, ...]
    tangents: tuple[Array, ...]
    seed: Array
    value: Array
    gradients: tuple[Array, ...]
    tangent: Array


@cache
def known(case: Case, low: float, high: float) -> Known:
    """Values and derivatives, the central differences agreeing with them."""
    random = np.random.default_rng(0)
    inputs, tangents = [], []
    for shape in shapes(case.parameters):
        # What a float holds is what is computed with, in double too.
        inputs.append(random.uniform(low, high, (SAMPLES, *shape)).astype(np.float32).astype(np.float64))
        tangents.append(random.integers(-4, 5, (SAMPLES, *shape)) / 4)
    xs = [torch.tensor(x, requires_grad=True) for x in inputs]
    vs = [torch.tensor(v) for v in tangents]
    value = case.formula(*xs)
    seed = torch.tensor(random.integers(-4, 5, tuple(value.shape)) / 2)
    found = torch.autograd.grad(value, xs, seed, allow_unused=True)
    gradients = [np.zeros_like(x) if g is None else g.numpy() for x, g in zip(inputs, found, strict=True)]
    with torch.no_grad():
        ahead, behind = (case.formula(*(x + s * v for x, v in zip(xs, vs, strict=True))) for s in (STEP, -STEP))
    tangent = ((ahead - behind) / (2 * STEP)).numpy()
    along = sum((g * v).reshape(SAMPLES, -1).sum(1) for g, v in zip(gradients, tangents, strict=True))
    scale = max(float(np.abs(tangent).max()), 1)
    np.testing.assert_allclose(
        along, (seed.numpy() * tangent).reshape(SAMPLES, -1).sum(1), atol=DIFFERENCE_ERROR * scale
    )
    return Known(tuple(inputs), tuple(tangents), seed.numpy(), value.detach().numpy(), tuple(gradients), tangent)


@dataclass(frozen=True)
class Found:
    """What the device makes of the samples."""

    value: Array
    gradients: tuple[Array, ...]
    tangent: Array


def found_for(module: spy.Module, cases: dict[str, Case], dtype: str) -> Callable[[str], Found]:
    """The derivatives of a case, by its name; those of a group are computed together."""
    every = groups(cases)

    def tensor(values: Array) -> spy.Tensor:
        return spy.Tensor.from_numpy(module.device, values.astype(dtype))

    @cache
    def run(g: int) -> list[Found]:
        samples = [known(case, case.low, case.high) for case in every[g]]
        arguments = [[tensor(x).with_grads() for x in k.inputs] for k in samples]
        seeds = [tensor(k.seed) for k in samples]
        results = {f"r{n}": spy.Tensor.empty_like(s).with_grads(grad_in=s) for n, s in enumerate(seeds)}
        function = module[f"group{g}"]
        function.bwds(*(x for group in arguments for x in group), _result=results)
        moving = [
            tensor(x).with_grads(grad_in=tensor(v))
            for k in samples
            for x, v in zip(k.inputs, k.tangents, strict=True)
        ]
        result = function.fwds(*moving)
        values, tangents = result.to_numpy(), result.grad.to_numpy()
        return [
            Found(values[f"r{n}"], tuple(np.asarray(x.grad) for x in group), tangents[f"r{n}"])
            for n, group in enumerate(arguments)
        ]

    def of(name: str) -> Found:
        g, n = divmod(list(cases).index(name), TOGETHER)
        return run(g)[n]

    return of


@pytest.fixture(scope="module")
def floats(module: spy.Module) -> Callable[[str], Found]:
    """Derivatives in float."""
    return found_for(module, CASES, "f4")


@pytest.fixture(scope="module")
def doubles(device: spy.Device) -> Callable[[str], Found]:
    """Derivatives in double of cases that need nothing but arithmetic."""
    module = spy.Module.load_from_source(device, "gradient_functions_double", program("double"))
    return found_for(module, DOUBLES, "f8")


def close(found: Array, expected: Array, error: float) -> None:
    """Alike to a part of the largest value."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=error, atol=error * max(float(np.abs(expected).max()), 1))


def check(found: Found, case: Case, error: float) -> None:
    """Both derivatives of a function."""
    k = known(case, case.low, case.high)
    for gradient, expected in zip(found.gradients, k.gradients, strict=True):
        close(gradient, expected, error)
    close(found.value, k.value, error)
    close(found.tangent, k.tangent, max(error, DIFFERENCE_ERROR))


@sampled(240)
@pytest.mark.parametrize("name", CASES)
def test_derivatives(floats: Callable[[str], Found], name: str) -> None:
    check(floats(name), CASES[name], FLOAT_ERROR)


@needs("double")
@sampled(21)
@pytest.mark.parametrize("name", DOUBLES)
def test_derivatives_in_double(device: spy.Device, request: pytest.FixtureRequest, name: str) -> None:
    check(request.getfixturevalue("doubles")(name), DOUBLES[name], DOUBLE_ERROR)


@pytest.fixture(scope="module")
def scalars(module: spy.Module) -> Callable[[str], Any]:
    """Of a group of functions of numbers: value, tangent and gradients of each, at its samples."""

    @cache
    def run(group: str) -> Any:
        cases = [known(case, *RANGES[group]) for case in SCALARS[group].values()]

        def tensor(values: Any, dtype: str | None = None) -> spy.Tensor:
            return spy.Tensor.from_numpy(module.device, np.asarray(values, np.float32), dtype)

        function = module[group]
        # A row for each function, whose seed is 1 at its own result and 0 at the others.
        each = [np.broadcast_to(x, (len(cases), SAMPLES)) for x in cases[0].inputs]
        arguments = [tensor(x).with_grads() for x in each]
        seeds = np.stack([k.seed[:, None] * np.eye(len(cases))[n] for n, k in enumerate(cases)])
        seed = tensor(seeds, f"float[{len(cases)}]")
        function.bwds(*arguments, _result=spy.Tensor.empty_like(seed).with_grads(grad_in=seed))
        tangents = zip(cases[0].inputs, cases[0].tangents, strict=True)
        result = function.fwds(*(tensor(x).with_grads(grad_in=tensor(v)) for x, v in tangents))
        return result.to_numpy(), result.grad.to_numpy(), [x.grad.to_numpy() for x in arguments]  # type: ignore[union-attr]

    return run


@sampled(63)
@pytest.mark.parametrize(("group", "name"), [(group, name) for group, cases in SCALARS.items() for name in cases])
def test_derivatives_of_numbers(scalars: Callable[[str], Any], group: str, name: str) -> None:
    values, tangents, gradients = scalars(group)
    n, k = list(SCALARS[group]).index(name), known(SCALARS[group][name], *RANGES[group])

    close(values[:, n], k.value, FLOAT_ERROR)
    close(tangents[:, n], k.tangent, FLOAT_ERROR)
    for found, expected in zip(gradients, k.gradients, strict=True):
        close(found[n], expected, FLOAT_ERROR)


@pytest.mark.parametrize(
    "body",
    [
        "step(a, b)", "smoothstep(0, 1, a)", "floor(a)", "ceil(a)", "round(a)", "trunc(a)", "ldexp(a, b)", "exp10(a)",
        "fmin(a, b)", "min3(a, b, a)", "modf(a, b)",
    ],
)  # fmt: skip
def test_slang_says_what_has_no_derivative(device: spy.Device, body: str) -> None:
    text = f"[Differentiable] float f(float a, float b) {{ return {body}; }}"
    with pytest.raises(spy.CompileError, match="derivative cannot be propagated"):
        spy.Module.load_from_source(device, f"none_{re.sub(r'[^a-z]', '_', body)}", text)

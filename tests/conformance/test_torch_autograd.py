"""Calls in PyTorch's autograd, in modules and as operators: against PyTorch's own gradients."""

from __future__ import annotations

import gc
import re
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _gradient_functions import CASES, HELPERS, shapes
from _torch import module, same

import slangpy_rt as spy
from tests.depth import every_case, every_device, needs, one_device, one_in, sampled

__all__ = ["module"]  # the fixture


# What these test does not depend on the device.
pytestmark = one_device


def test_saved_tensors_that_come_back_otherwise(module: spy.Module) -> None:
    a, b = torch.linspace(1, 2, 12).reshape(3, 4).T, torch.linspace(2, 3, 12).reshape(4, 3)

    def gradients(f: Callable[..., torch.Tensor]) -> list[torch.Tensor | None]:
        x, y = a.detach().requires_grad_(), b.detach().clone().requires_grad_()
        f(x, y).sum().backward()
        return [x.grad, y.grad]

    expected = gradients(lambda x, y: x * y * y)
    for _ in range(2):
        torch.testing.assert_close(gradients(module.mul), expected)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.contiguous(), lambda t: t):
            torch.testing.assert_close(gradients(module.mul), expected)
    # A gradient that is to be negated.
    x = torch.linspace(1, 2, 4).requires_grad_()
    weights = torch.complex(torch.ones(4), torch.arange(4.0))
    (torch.complex(torch.zeros(4), module.mul(x, 2.0)).conj() * weights).sum().real.backward()
    torch.testing.assert_close(x.grad, 4 * torch.arange(4.0))


# Slang has dst on GPUs alone.
@sampled(14)
@pytest.mark.parametrize("name", one_in(4, [name for name in CASES if name != "dst"][:40]))
@pytest.mark.parametrize("place", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def test_gradients_are_torchs(device: spy.Device, place: str, name: str) -> None:
    if place == "cuda" and device.name not in ("cuda", "vulkan"):
        pytest.skip("it does not work in PyTorch's memory of a GPU")
    case = CASES[name]
    body = case.body if case.body.startswith("{") else f"{{ return {case.body}; }}"
    text = f"{HELPERS}\n[Differentiable] {case.returns} f({case.parameters}) {body}"
    # S, S3 and S2x2 are scalars, vectors and matrices of the type.
    text = re.sub(r"\bS(?=\d|\b)", "float", text)
    f = spy.Module.load_from_source(device, f"torch_{name}", text).f
    torch.manual_seed(1)
    samples = [
        (torch.rand(20, *dims) * (case.high - case.low) + case.low).to(place) for dims in shapes(case.parameters)
    ]
    mine, theirs = ([s.clone().requires_grad_() for s in samples] for _ in range(2))
    got, expected = f(*mine), case.formula(*[t.double() for t in theirs]).float()
    same(got.detach().reshape(expected.shape), expected.detach(), 1e-3)
    weights = torch.rand(expected.shape).to(place)
    (got.reshape(expected.shape) * weights).sum().backward()
    (expected * weights).sum().backward()
    for m, t in zip(mine, theirs, strict=True):
        scale = float(t.grad.abs().max()) if t.grad is not None else 1.0
        torch.testing.assert_close(m.grad, t.grad, rtol=2e-3, atol=2e-3 * max(scale, 1e-3))


@needs("double")
@sampled(3)
def test_gradcheck(module: spy.Module) -> None:
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: module.cubic(t, 2.0), (x,))
    assert torch.autograd.gradcheck(lambda t: module.cubic(t.T[1:], 2.0).sum(0), (x,))


def test_broadcast_views_and_several_uses(module: spy.Module) -> None:
    def both(f: Callable[[Any, Any], Any]) -> list[torch.Tensor]:
        x = torch.linspace(0.5, 1.5, 6, requires_grad=True)
        w = torch.tensor([2.0], requires_grad=True)
        total = f(x.reshape(2, 3), w) + f(x[::2], x[1::2]) + f(x, x) + f(w.expand(4), 3.0)
        total.backward()
        assert x.grad is not None and w.grad is not None
        return [total.detach(), x.grad, w.grad]

    for got, expected in zip(
        both(lambda a, b: module.mul(a, b).sum()), both(lambda a, b: (a * b * b).sum()), strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_no_grad_and_what_needs_none(module: spy.Module) -> None:
    x = torch.rand(4, requires_grad=True)
    with torch.no_grad():
        assert not module.mul(x, 2.0).requires_grad
        module.grow(x, 1.0)
    y = module.mul(x, torch.ones(4))
    assert y.requires_grad and y.grad_fn is not None
    y.sum().backward()
    same(x.grad, torch.ones(4))
    frozen = module.mul(x.detach(), 2.0)
    assert not frozen.requires_grad


def test_several_outputs(module: spy.Module) -> None:
    def both(f: Callable[..., Any], x: torch.Tensor, y: torch.Tensor) -> list[Any]:
        outs = f(x, y)
        assert all(out.requires_grad for out in outs)
        sum((k + 1) * (out * out).sum() for k, out in enumerate(outs)).backward()
        return [*[out.detach() for out in outs], x.grad, y.grad]

    def ours(x: torch.Tensor, y: torch.Tensor) -> Any:
        c, d = torch.zeros(6), torch.zeros(6, 3)
        first = module.split(x, y, c, d)
        return first, c, d

    def ours_without_result(x: torch.Tensor, y: torch.Tensor) -> Any:
        c = torch.zeros(6)
        assert module.put(x, c) is None
        return x + 2 * y, c * x, torch.stack([x, y, x * y], -1)

    def theirs(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + 2 * y, x * x, torch.stack([x, y, x * y], -1)

    def inputs() -> list[torch.Tensor]:
        torch.manual_seed(4)
        return [torch.rand(6, requires_grad=True), torch.rand(6, requires_grad=True)]

    for f in (ours, ours_without_result):
        for got, expected in zip(both(f, *inputs()), both(theirs, *inputs()), strict=True):
            same(got, expected)
    # Only one of them is used.
    x, c, d = torch.rand(6, requires_grad=True), torch.zeros(6), torch.zeros(6, 3)
    module.split(x, 1.0, c, d)
    c.sum().backward()
    same(x.grad, 2 * x.detach())


def test_outputs_of_other_kinds(device: spy.Device) -> None:
    text = """
[Differentiable] int rounded(float x, out float y) { y = x * x; return int(detach(x)); }
[Differentiable] float spread(float x, out float3 y) { y = float3(x, 2 * x, x * x); return x; }
"""
    module = spy.Module.load_from_source(device, "torch_outputs", text)
    x, y = torch.tensor([1.5, 2.5], requires_grad=True), torch.zeros(2)
    n = module.rounded(x, y)
    assert n.tolist() == [1, 2] and not n.requires_grad
    y.sum().backward()
    same(x.grad, 2 * x.detach())
    x.grad, z = None, torch.zeros(2, 3)
    module.spread(x, z)
    z.sum().backward()  # an expanded gradient
    same(x.grad, 3 + 2 * x.detach())
    with pytest.raises(spy.BindError, match="none may be a view"):
        module.spread(x, torch.zeros(4, 3)[::2])


def test_a_changed_argument_is_noticed(module: spy.Module) -> None:
    x = torch.rand(4, requires_grad=True)
    z = x * 1
    y = module.mul(z, 2.0)
    z.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_calls_whose_arguments_are_tensors_alone(module: spy.Module) -> None:
    x, y = (torch.linspace(1, 2, 64).requires_grad_() for _ in range(2))
    ended: list[torch.Tensor] = []
    torch.func.grad(lambda t: (ended.append(t), t.sum())[1])(torch.ones(64))
    for _ in range(3):
        assert "mulBackward" in repr(module.mul(x, y).grad_fn)
        # A transform of torch.func would take the function for one without a derivative.
        with pytest.raises(spy.BindError, match=r"transforms of torch.func \(vmap, grad, jvp\)"):
            torch.func.grad(lambda k: (module.mul(x, y) * k).sum())(torch.ones(()))
        torch.testing.assert_close(module.mul(ended[0], y).detach(), y.detach() ** 2)
        changed = x * 1
        out = module.mul(changed, y)
        changed.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()
        (first,) = torch.autograd.grad(module.mul(x, y).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="no second derivatives"):
            first.sum().backward()
        # Memory of gradients is their own: one that is written to is no other.
        a, b = torch.autograd.grad(module.mul(x, y).sum(), (x, y))
        a.zero_()
        torch.testing.assert_close(b, (2 * x * y).detach())
    text = "[Differentiable] float f(float a) { return a; }"
    other = spy.Module.load_from_source(module.device, "torched_once", text)
    held = weakref.ref(other.f(x).grad_fn._forward_cls)  # type: ignore[union-attr]
    assert held() is not None
    del other
    gc.collect()
    assert held() is None


# PyTorch's own derivatives are written in TorchScript.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_what_follows_tensors_in_another_way_is_refused(module: spy.Module) -> None:
    """A kernel reads memory: it would compute without tangents, and of a batch there is no memory at all."""
    a, b = torch.linspace(0, 1, 4), torch.linspace(1, 2, 4)
    x = a.clone().requires_grad_()

    def tangent(f: Callable[[torch.Tensor], Any]) -> Any:
        with torch.autograd.forward_ad.dual_level():
            return f(torch.autograd.forward_ad.make_dual(a, torch.ones(4)))

    refused: list[Callable[[], Any]] = [
        lambda: tangent(lambda t: module.mul(t, b)),
        lambda: tangent(lambda t: module.mul(a, b, _result=t)),
        lambda: torch.func.jvp(lambda t: module.mul(t, b), (a,), (b,)),
        lambda: torch.func.grad(lambda t: module.mul(t, b).sum())(a),
        lambda: torch.vmap(lambda t: module.mul(t, b))(torch.ones(3, 4)),
        lambda: torch.vmap(lambda t: module.mul(x, t))(torch.ones(3, 4)),
        lambda: torch.autograd.grad(module.mul(x, b), x, torch.eye(4), is_grads_batched=True),
    ]
    # The third time each call would be found by one check of all its tensors.
    for _ in range(3):
        for call in refused:
            with pytest.raises(spy.BindError, match="Give it the whole batch, of which each element is a call"):
                call()
        # What is not followed there goes on.
        same(tangent(lambda t: module.mul(a, b)), a * b * b)
        same(torch.vmap(lambda t: t + module.mul(a, b))(torch.zeros(2, 4))[1], a * b * b)
        torch.testing.assert_close(torch.autograd.grad(module.mul(x, b), x, b)[0], b**3)


LAZY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "negated": lambda x: torch._neg_view(x.detach().clone()),
    "imaginary": lambda x: torch.complex(x.detach(), x.detach()).conj().imag,
    "zeros": lambda x: torch._efficientzerotensor(tuple(x.shape)),
}


@every_case
@pytest.mark.parametrize("way", ["plain", "number", "matmul", "out", "dict"])
@pytest.mark.parametrize("lazy", LAZY)
def test_tensors_whose_memory_does_not_hold_their_values(module: spy.Module, way: str, lazy: str) -> None:
    """As arguments they are refused, also after calls of tensors with memory; as gradients they are values."""
    device, one = module.device, torch.ones(3, 3)
    calls: dict[str, Callable[[Any], Any]] = {
        "plain": lambda x: module.mul(x, one), "number": lambda x: module.mul(x, 1.0),
        "matmul": lambda x: spy.matmul(x, torch.eye(3), device=device), "dict": lambda x: module.mul(x, b=one),
        "out": lambda x: module.mul(one, one, _result=x),
    }  # fmt: skip
    # Of two strides: an imaginary part has gaps.
    for given in (one, torch.ones(3, 6)[:, ::2]):
        for _ in range(3):
            calls[way](given.clone() if way == "out" else given)
        with pytest.raises((spy.BindError, RuntimeError), match=r"memory does not hold its values"):
            calls[way](LAZY[lazy](one))
    if way == "out":
        return
    for _ in range(2):
        x = torch.ones(3, 3, requires_grad=True)
        result = calls[way](x)
        (wanted,) = torch.autograd.grad(result, x, LAZY[lazy](one).clone().resolve_neg() + 0.0, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(result, x, LAZY[lazy](one))[0], wanted)


@every_case
@pytest.mark.parametrize("way", ["alone", "beside a number", "by name", "with an output"])
@pytest.mark.parametrize("through", ["input", "gradient", "both"])
def test_second_derivatives_by_each_way(module: spy.Module, way: str, through: str) -> None:
    """A gradient depends on the inputs and on the gradient of the result: neither is treated as a constant."""
    x, weight = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    calls: dict[str, Any] = {
        "alone": lambda: module.mul(x, x.detach()),
        "beside a number": lambda: module.mul(x, 2.0),
        "by name": lambda: module.mul(x, b=torch.ones(4)),
        "with an output": lambda: module.mul.map(_result=(0,))(x, torch.ones(4)),
    }
    out = calls[way]()
    (first,) = torch.autograd.grad((out * (weight if through != "input" else 1)).sum(), x, create_graph=True)
    wanted = weight if through == "gradient" else x
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad((first * first.detach()).sum(), wanted)


def test_a_second_derivative_is_refused(module: spy.Module) -> None:
    x = torch.rand(4, requires_grad=True)
    (first,) = torch.autograd.grad(module.mul(x, x).sum(), x, create_graph=True)
    same(first.detach(), 3 * x.detach() ** 2)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        (first * x).sum().backward()


@every_device
def test_a_training_loop(module: spy.Module) -> None:
    """The same steps as with torch's own operations."""
    torch.manual_seed(0)
    x = torch.rand(200)
    starts = torch.tensor([0.3]), torch.tensor([0.7])

    def train(f: Callable[[Any, Any], Any]) -> list[float]:
        a, b = (torch.nn.Parameter(s.clone()) for s in starts)
        optimizer = torch.optim.Adam([a, b], lr=0.05)
        losses = []
        for _ in range(40):
            optimizer.zero_grad()
            loss = ((f(a * x, b) - 2 * x) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    got, expected = train(module.mul), train(lambda p, q: p * q * q)
    assert got[-1] < got[0] / 10
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-6)


def test_memory_is_flat_and_threads_agree(module: spy.Module) -> None:
    def steps(n: int) -> torch.Tensor:
        x = torch.linspace(0, 1, 500, requires_grad=True)
        for _ in range(n):
            module.mul(x, 2.0).sum().backward()
        assert x.grad is not None
        return x.grad

    steps(5)
    gc.collect()
    before = sum(isinstance(o, (torch.Tensor, spy.Tensor)) for o in gc.get_objects())
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(steps(50))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for r in results:
        same(r, torch.full((500,), 200.0))
    results.clear()
    gc.collect()
    assert sum(isinstance(o, (torch.Tensor, spy.Tensor)) for o in gc.get_objects()) <= before + 4


def test_a_module_learns(module: spy.Module) -> None:
    torch.manual_seed(0)
    layer = spy.torch_module(module.mul, b=torch.tensor([0.5]))
    assert [name for name, _ in layer.named_parameters()] == ["b"] and "float mul" in repr(layer)
    x = torch.rand(100)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        ((layer(x) - 4 * x) ** 2).mean().backward()
        optimizer.step()
    assert abs(layer.b.item() - 2) < 1e-3
    copied = spy.torch_module(module.mul, b=torch.tensor([7.0]))
    copied.load_state_dict(layer.state_dict())
    assert copied.b.item() == layer.b.item()
    with pytest.raises(spy.BindError, match="has no parameter 'c'; it has a, b"):
        spy.torch_module(module.mul, c=torch.ones(1))
    with pytest.raises(spy.BindError, match="a parameter that is learned is a torch tensor"):
        spy.torch_module(module.mul, b=1.0)


def test_an_operator_in_a_compiled_model(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)
    unit = spy.torch_operator(module.unit)
    weighted = spy.torch_operator(module.weighted, "Tensor v, float w")

    def model(a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (torch.relu(mul(a * 2, b)).sum() + weighted(unit(v), 3.0).sum()) * 0.5

    def reference(a: torch.Tensor, b: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        u = v / v.norm(dim=-1, keepdim=True)
        return (torch.relu(2 * a * b * b).sum() + 3 * (u[:, 0] + u[:, 1] * u[:, 2]).sum()) * 0.5

    def run(f: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        torch.manual_seed(2)
        inputs = [torch.randn(4, 3), torch.randn(3), torch.randn(5, 3)]
        for x in inputs:
            x.requires_grad_()
        out = f(*inputs)
        out.backward()
        return [out.detach(), *(x.grad for x in inputs if x.grad is not None)]

    expected = run(reference)
    # fullgraph: a break is an error.
    for f in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        for got, want in zip(run(f), expected, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_operators_hold_what_torch_asks_of_them(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)
    a, b = torch.rand(3, 4, requires_grad=True), torch.rand(4, requires_grad=True)
    torch.library.opcheck(mul, (a, b))
    for refused, message in [(module.grow, "writes to its parameters"), (module.put, "writes to its parameters")]:
        with pytest.raises(spy.BindError, match=message):
            spy.torch_operator(refused)
    plain = spy.torch_operator(module.two)
    same(plain(torch.arange(3, dtype=torch.int32)), torch.tensor([0, 2, 4], dtype=torch.int32))


def test_gradients_that_operators_refuse(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)
    x, y = torch.rand(4, requires_grad=True), torch.rand(4, requires_grad=True)
    (first,) = torch.autograd.grad(mul(x, y).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="Slang functions have no second derivatives"):
        first.sum().backward()
    # As plain calls do, before there is a graph whose gradients nobody could compute.
    for other in (x.double(), torch.arange(4)):
        with pytest.raises(
            spy.BindError, match=r"argument 'a' is a torch.Tensor of (float|int)64 .* 'float' was expected"
        ):
            mul(other, y)
    same(mul(torch.arange(4), y.detach()), torch.arange(4) * y.detach() ** 2)


@sampled(3)
def test_an_operator_of_bfloat16(module: spy.Module) -> None:
    mul = spy.torch_operator(module.mul)
    compiled = torch.compile(lambda a, b: mul(a, b).sum(), fullgraph=True, backend="aot_eager")
    a, b = (torch.linspace(1, 2, 4).bfloat16().requires_grad_() for _ in range(2))
    for f in (lambda a, b: mul(a, b).sum(), compiled):
        found = torch.autograd.grad(f(a, b), (a, b))
        wide = a.detach().float()
        assert [t.dtype for t in found] == [torch.bfloat16] * 2
        same(found[0].float(), (wide * wide).bfloat16().float(), 1e-6)
        same(found[1].float(), (2 * wide * wide).bfloat16().float(), 1e-6)


def test_an_operator_of_a_function_with_uniforms(module: spy.Module) -> None:
    scaled = spy.torch_operator(module.scaled.set(scale=3.0))
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    got = scaled(x)
    same(got.detach(), 3 * x.detach() ** 2)
    got.sum().backward()
    same(x.grad, 6 * x.detach())


def test_one_check_of_all_tensors_sees_what_changes_between_calls(module: spy.Module) -> None:
    x, y = (torch.linspace(1, 2, 64).requires_grad_() for _ in range(2))

    def check(a: torch.Tensor, b: torch.Tensor) -> None:
        held = [t for t in (a, b) if t.requires_grad]
        found = torch.autograd.grad(module.mul(a, b).sum(), held)
        torch.testing.assert_close(found, torch.autograd.grad((a * b * b).sum(), held))

    for _ in range(3):
        check(x, y)
    with torch.no_grad():
        assert not module.mul(x, y).requires_grad
    check(x, y)
    for a, b in [
        (x, y.detach()),
        (x.detach(), y),
        (x, x),
        (x[:32], y[:32]),
        (x[::2], y[::2]),
        (x[::2], y[:32]),
        (x, y),
    ]:
        for _ in range(2):
            check(a, b)
    assert not module.mul(x.detach(), y.detach()).requires_grad
    # Gradients of other layouts: a sum's has no strides, and this one is a transposed matrix.
    weights = torch.rand(16, 4)
    for _ in range(2):
        square = module.mul(x.reshape(4, 16), y.reshape(4, 16))
        found = torch.autograd.grad((square.T * weights).sum(), (x, y))
        torch.testing.assert_close(found[0], (weights.T.reshape(-1) * y * y).detach())
        check(x.reshape(4, 16), y.reshape(4, 16))


PRODUCTS = """
[Differentiable] float weighted(float a, float k) { return a * a * k; }
[Differentiable] float squared(float3 a, float k) { return dot(a, a) * k; }
[Differentiable] float3 scaled(float3 a, float k) { return a * a * k; }
[Differentiable] void put(float a, float k, out float to) { to = a * a * k; }
"""
# Shapes of which one has fewer dimensions and as many elements as the call, or the call has none.
PAIRS = [
    ((1,), ()), ((), (1,)), ((1, 1), ()), ((1, 1), (1,)), ((1, 2), (2,)), ((2,), (1, 2)), ((1, 2), (1,)),
    ((0,), ()), ((0,), (1,)), ((0, 2), (2,)), ((1, 0), (0,)), ((1, 0), (0, 1)), ((0,), (2, 0)),
]  # fmt: skip


def check_products(f: spy.Function, name: str, a_shape: tuple[int, ...], k_shape: tuple[int, ...]) -> None:
    vector = (3,) if name in ("squared", "scaled") else ()
    given = [torch.rand((*a_shape, *vector)), torch.rand(k_shape)]
    for needed in ((True, False), (False, True), (True, True)):
        ours = [x.clone().requires_grad_(n) for x, n in zip(given, needed, strict=True)]
        theirs = [x.double().requires_grad_(n) for x, n in zip(given, needed, strict=True)]
        a, k = theirs
        wanted = (a * a).sum(-1) * k if name == "squared" else a * a * (k[..., None] if vector else k)
        if name == "put":
            found = torch.empty(wanted.shape)
            f(*ours, found)
        else:
            found = f(*ours)
        assert found.shape == wanted.shape
        found.sum().backward()
        wanted.sum().backward()
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine.grad is None) == (other.grad is None)
            if mine.grad is not None:
                torch.testing.assert_close(mine.grad, other.grad.float())


@sampled(10)
@pytest.mark.parametrize("a, k", PAIRS, ids=str)
@pytest.mark.parametrize("name", ["weighted", "squared", "scaled", "put"])
def test_batches_of_one_and_of_none(device: spy.Device, name: str, a: tuple[int, ...], k: tuple[int, ...]) -> None:
    module = spy.Module.load_from_source(device, "batches_of_one", PRODUCTS)
    check_products(getattr(module, name), name, a, k)


@sampled(3)
@pytest.mark.parametrize("size", [3, 1, 0])
def test_maps(device: spy.Device, size: int) -> None:
    """Of a diagonal the rest has a gradient of zero; each dimension may have one element, or none."""
    f = spy.Module.load_from_source(device, "mapped_products", PRODUCTS).weighted
    a, k = torch.rand(size, size).requires_grad_(), torch.rand(size).requires_grad_()
    for _ in range(2):
        a.grad = k.grad = None
        found = f.map((0, 0))(a, k)
        torch.testing.assert_close(found, a.diagonal() ** 2 * k)
        found.sum().backward()
        torch.testing.assert_close(a.grad, torch.diag(2 * a.diagonal() * k).detach())
        torch.testing.assert_close(k.grad, a.detach().diagonal() ** 2)
    b = torch.rand(2).requires_grad_()
    f.map((1,), (0,))(b, k).sum().backward()
    torch.testing.assert_close(b.grad, 2 * b.detach() * k.detach().sum())
    row = torch.rand(1, size).requires_grad_()
    f.map((0, 1), (0,))(row, torch.ones(1)).sum().backward()
    torch.testing.assert_close(row.grad, 2 * row.detach())


@every_device
def test_gradients_of_outputs_that_are_expanded(device: spy.Device) -> None:
    """Sums, means and slices bring gradients with strides of 0 or gaps to results and to outputs of each type."""
    kinds = {"float": (), "float3": (3,)}
    text = "".join(
        f"[Differentiable] {kind} result_{kind}({kind} x) {{ return x * x; }}\n"
        f"[Differentiable] void out_{kind}({kind} x, out {kind} y) {{ y = x * x; }}\n"
        f"[Differentiable] float both_{kind}({kind} x, out {kind} y) {{ y = x * x; return 3; }}\n"
        for kind in kinds
    )
    module = spy.Module.load_from_source(device, "expanded", text)
    losses: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda y: y.sum(), lambda y: y.mean(), lambda y: y[::2].sum(), lambda y: (y.movedim(0, -1) * 2).sum(),
        lambda y: y.sum(0).sum(), lambda y: (y * torch.arange(float(y.shape[-1]))).sum(),
    ]  # fmt: skip
    for kind, dims in kinds.items():
        for name in ("result", "out", "both"):
            for loss in losses:
                x = (torch.arange(float(4 * int(np.prod(dims)))) + 1).reshape(4, *dims).requires_grad_()
                other = x.detach().clone().requires_grad_()
                y = torch.empty(x.shape)
                if name == "result":
                    y = getattr(module, f"result_{kind}")(x)
                else:
                    getattr(module, f"{name}_{kind}")(x, y)
                loss(y).backward()
                loss(other * other).backward()
                torch.testing.assert_close(x.grad, other.grad)

"""PyTorch's tensors as arguments, as results and in autograd: against PyTorch's own values and gradients."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _gradient_functions import CASES, HELPERS, shapes

import slangpy_rt as spy
from tests.depth import every_device, one_device, one_in, sampled

# What these test does not depend on the device.
pytestmark = one_device

Requires = Callable[..., None]

SOURCE = """
[Differentiable] float mul(float a, float b) { return a * b * b; }
[Differentiable] double cubic(double a, no_diff double b) { return a * a * a * b; }
[Differentiable] float3 unit(float3 v) { return v / length(v); }
[Differentiable] float weighted(float3 v, float w = 2) { return w * (v.x + v.y * v.z); }
[Differentiable] float pick(DiffTensor<float, 1> x, int k) { return x[k] * x[k]; }
struct Line { float slope; float offset; }
float along(Line line, float x) { return line.slope * x + line.offset; }
Line through(float a, float b) { return { a, b }; }
uniform float scale;
[Differentiable] float scaled(float x) { return scale * x * x; }
[Differentiable] void follow(inout float a, float b) { a = a * b; }
[Differentiable] float split(float a, float b, out float c, out float3 d)
{
    c = a * a;
    d = float3(a, b, a * b);
    return a + 2 * b;
}
void grow(inout float a, float b) { a += b; }
[Differentiable] void put(float a, out float b) { b = a; }
int two(int x) { return 2 * x; }
int widen(int8_t x) { return x; }
"""


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "torched", SOURCE)


def same(got: Any, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert isinstance(got, torch.Tensor) and got.dtype == expected.dtype and got.shape == expected.shape
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def test_tensors_in_tensors_out(module: spy.Module) -> None:
    a = torch.linspace(-1, 1, 12).reshape(3, 4)
    same(module.mul(a, 2.0), 4 * a)
    same(module.mul(a, torch.tensor([1.0, 2, 3, 4])), a * torch.tensor([1.0, 4, 9, 16]))
    same(module.mul(a.T, a.T), a.T**3)
    same(module.mul(a[::2, 1:3], 1.0), a[::2, 1:3])
    same(module.mul(torch.tensor(3.0), 2.0), torch.tensor(12.0))
    same(module.mul(torch.ones(1).expand(5), 3.0), torch.full((5,), 9.0))
    same(module.mul(torch.empty(0, 4), 1.0), torch.empty(0, 4))
    same(module.mul(a, np.ones(4)), a)
    same(module.two(torch.arange(3, dtype=torch.int32)), torch.tensor([0, 2, 4], dtype=torch.int32))
    same(module.mul(torch.nn.Parameter(a).detach(), b=1.0), a)
    same(module.unit(torch.tensor([[3.0, 0, 4]])), torch.tensor([[0.6, 0, 0.8]]))


def test_calls_after_calls_are_told_apart(module: spy.Module) -> None:
    # Each kind twice in a row and after the others: the second is expected to be like the first.
    a = torch.linspace(1, 2, 12)
    kinds: list[Callable[[], tuple[torch.Tensor, torch.Tensor]]] = [
        lambda: (a + 1, a),
        lambda: (a[:6].clone(), a[6:].clone()),
        lambda: (a.reshape(3, 4), a.reshape(3, 4) + 1),
        lambda: (a.reshape(3, 4), a.reshape(4, 3).T),
        lambda: (a[:3].reshape(3, 1), a[:4] * 2),
        lambda: (torch._neg_view(a.clone()), a),
        lambda: (a.double(), a.double()),
        lambda: (a.detach().requires_grad_(), a),
        lambda: (torch.nn.Parameter(a), a),
        lambda: (a[1:], a[:-1]),
    ]
    for _ in range(3):
        for kind in kinds:
            for _ in range(2):
                x, y = kind()
                if x.is_neg():
                    with pytest.raises(spy.BindError, match="negative bit"):
                        module.mul(x, y)
                    continue
                got = module.mul(x, y)
                assert got.requires_grad == x.requires_grad
                same(got.detach(), (x * y * y).detach().float())
                out = torch.full_like(got, 7)
                with torch.no_grad():
                    assert module.mul(x, y, _result=out) is out
                same(out.detach(), (x * y * y).detach().float())
    with torch.inference_mode():
        for _ in range(4):
            same(module.mul(a + 1, a), (a + 1) * a * a)
    # Gradients are not lost after calls without them, nor errors after calls that were right.
    p = torch.nn.Parameter(a.clone())
    for _ in range(2):
        with torch.no_grad():
            for _ in range(4):
                assert not module.mul(p, a).requires_grad
        for _ in range(4):
            assert module.mul(p, a).requires_grad
    for _ in range(3):
        same(module.weighted(a.reshape(4, 3)), 2 * (a.reshape(4, 3)[:, 0] + a[1::3] * a[2::3]))
        same(module.weighted(a.reshape(4, 3), a[:4]), a[:4] * (a.reshape(4, 3)[:, 0] + a[1::3] * a[2::3]))
        with pytest.raises(spy.BindError):
            module.mul(a)
        with pytest.raises(spy.BindError):
            module.mul(a, a, a)
    for _ in range(3):
        same(module.mul(a, a), a**3)
    x = torch.ones(12)
    module.mul(x, a, _result=x)
    module.mul(x, a, _result=x)
    same(x, a**4)


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


def test_new_results_are_where_the_call_ran(module: spy.Module) -> None:
    with torch.device("meta"):
        found = module.mul(torch.ones(3, device="cpu"), torch.ones(3, device="cpu"))
    assert found.device.type == "cpu" and found.tolist() == [1, 1, 1]


def test_results_and_what_is_written(module: spy.Module) -> None:
    a, out = torch.arange(4.0), torch.zeros(4)
    assert module.mul(a, 3.0, _result=out) is out
    same(out, 9 * a)
    assert module.mul(a, 2.0, out=out) is out
    module.grow(out, 1.0)
    same(out, 4 * a + 1)
    wide = torch.zeros(4, 6)
    module.grow(wide[:, ::2], a[:, None])
    assert wide.sum() == 3 * a.sum() and (wide[:, 1::2] == 0).all()
    same(module.mul(np.arange(4.0), 1.0, _result="torch"), a)
    assert isinstance(module.mul(a, 1.0, _result="numpy"), np.ndarray)
    assert isinstance(module.mul.return_type(spy.Tensor)(a, 1.0), spy.Tensor)
    same(module.mul.map((0,), (1,))(a, a), a[:, None] * a**2)
    line = {"slope": torch.arange(3.0), "offset": 1.0}
    same(module.along(line, 2.0), 2 * torch.arange(3.0) + 1)


# Slang has dst on GPUs alone.
@sampled(4)
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


@every_device
def test_gradcheck(module: spy.Module, requires: Requires) -> None:
    requires("double")
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


@pytest.mark.parametrize("place", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def test_bfloat16_is_read_as_floats(module: spy.Module, device: spy.Device, place: str) -> None:
    if place == "cuda" and device.name not in ("cuda", "vulkan"):
        pytest.skip("it does not work in PyTorch's memory of a GPU")
    # Not exact in bfloat16 were they not so to begin with.
    a = torch.linspace(-3, 3, 24).bfloat16().reshape(2, 4, 3).to(place)
    b = torch.tensor([1.5, -0.25, 1e30], dtype=torch.bfloat16, device=place)
    bits = torch.tensor([0, 0x8000, 1, 0x7F80, 0xFF80, 0x7F7F, 0x3F80], dtype=torch.uint16, device=place)
    odd = bits.view(torch.bfloat16)
    for got, expected in [
        (module.mul(a, b[:2].sum()), a.float() * 1.25**2),
        (module.mul(a.transpose(0, 2), 2.0), a.transpose(0, 2).float() * 4),
        (module.mul(a.flatten()[1:], 1.0), a.flatten()[1:].float()),
        (module.mul(odd, 1.0), odd.float()),
        (module.mul(a.float(), b), a.float() * b.float() ** 2),
        (module.mul(b.expand(5, 3), 1.0), b.expand(5, 3).float()),
        (module.weighted(a, 1.0), a.float()[..., 0] + a.float()[..., 1] * a.float()[..., 2]),
        (module.mul(a[:0], 1.0), a[:0].float()),
    ]:
        same(got, expected)

    def gradients(f: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        x, y = a.detach().clone().requires_grad_(), b[:1].detach().clone().requires_grad_()
        f(x, y).square().sum().backward()
        assert x.grad is not None and y.grad is not None
        return [x.grad, y.grad]

    # torch rounds what is added up for one element of b once more often.
    for mine, theirs in zip(gradients(module.mul), gradients(lambda x, y: x.float() * y.float() ** 2), strict=True):
        assert mine.dtype == torch.bfloat16
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=2**-7, atol=1e-6)


def test_keywords_uniforms_maps_and_streams(module: spy.Module) -> None:
    v = torch.rand(5, 3, requires_grad=True)
    s = module.device.stream()
    module.weighted(w=3.0, v=v).sum().backward()
    module.weighted.stream(s)(v).sum().backward()
    expected = torch.stack([torch.ones(5), v[:, 2], v[:, 1]], -1).detach()
    same(v.grad, 5 * expected)
    x = torch.rand(4, requires_grad=True)
    for scale in (1.0, 10.0):
        module.scaled.set(scale=scale)(x).sum().backward()
    same(x.grad, 22 * x.detach())
    y = torch.rand(3, requires_grad=True)
    module.mul.map((0,), (1,))(x.detach(), y).sum().backward()
    same(y.grad, 2 * x.detach().sum() * y.detach())


def test_whole_tensors(module: spy.Module) -> None:
    x = torch.rand(10, requires_grad=True)
    k = torch.tensor([1, 1, 4], dtype=torch.int32)
    module.pick(x, k).sum().backward()
    expected = torch.zeros(10)
    expected[1], expected[4] = 4 * x[1].item(), 2 * x[4].item()
    same(x.grad, expected)


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


def test_what_is_refused(module: spy.Module) -> None:
    x = torch.rand(3, requires_grad=True)
    for call, message in [
        (lambda: module.two(x.to(torch.float32)), "does not convert to 'int'"),
        (lambda: module.through(x, 1.0), r"needs a derivative; mark the function \[Differentiable\]"),
        (lambda: module.put(x, np.zeros(3, np.float32)), "goes to a torch tensor; pass one"),
        (lambda: module.follow(x, 1.0), "autograd would need what was there before"),
        (lambda: module.mul(x, 1.0, _result=torch.zeros(3)), "leave it out, or call within torch.no_grad"),
        (lambda: module.mul.bind(x, 1.0), r"pass tensor\.detach\(\)"),
        (lambda: module.mul.append_to(module.device.command_list(), x, 1.0), r"pass tensor\.detach\(\)"),
        (lambda: module.mul.bwds(x, 1.0), r"torch calls them itself"),
        (lambda: module.along({"slope": x, "offset": 1.0}, 2.0), r"pass tensor\.detach\(\)"),
        (lambda: module.two(torch.ones(2, dtype=torch.bfloat16)), "bfloat16"),
        (lambda: module.mul(torch.ones(2), 1.0, _result=torch.zeros(2, dtype=torch.bfloat16)), "bfloat16"),
        (lambda: module.put(torch.ones(2), torch.zeros(2, dtype=torch.bfloat16)), "bfloat16"),
        (lambda: module.mul(torch.ones(2).to_sparse(), 1.0), "whose memory cannot be used"),
        (lambda: module.mul(torch.ones(2, device="meta"), 1.0), "on meta"),
        (lambda: module.mul(torch.ones(2), 1.0, _result=torch.zeros(3)), "zeros|shape|\\(3,\\)"),
        (lambda: module.mul(torch.ones(2, dtype=torch.complex64), 1.0), "complex64"),
    ]:
        with pytest.raises((spy.BindError, spy.ShapeError), match=message):
            call()
    same(module.mul(torch.ones(2), 1.0), torch.ones(2))
    if "zero_copy" in module.device.caps.features:
        # Elsewhere the copy is converted.
        with pytest.raises(spy.BindError, match="an array of bfloat16"):
            module.pick(torch.ones(2, dtype=torch.bfloat16), 0)


def test_arrays_for_other_libraries(device: spy.Device) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = spy.Tensor.from_numpy(device, data)
    if "zero_copy" not in device.caps.features:
        with pytest.raises(spy.UnsupportedError, match="to_numpy"):
            x.host_view()
        with pytest.raises(AttributeError, match="lies in memory of"):
            _ = x.__array_interface__
        np.testing.assert_array_equal(np.asarray(x), data)
        if device.name != "cuda":  # whose memory other libraries know
            with pytest.raises(spy.UnsupportedError, match="to_numpy"):
                x.torch()
            with pytest.raises(BufferError, match="to_numpy"):
                np.from_dlpack(x)
            with pytest.raises(AttributeError, match="no CUDA GPU"):
                _ = x.__cuda_array_interface__
        return
    for view, expected in ((x, data), (x[1:, ::-2], data[1:, ::-2]), (x[2], data[2])):
        np.testing.assert_array_equal(view.host_view(), expected)
    seen = np.asarray(x[1:, ::2])
    seen[...] = 7
    assert seen.ctypes.data == x.address + 24 and (x.numpy()[1:, ::2] == 7).all()
    x.copy_from(data)
    del seen
    t = x.torch()
    t += 1
    np.testing.assert_array_equal(x.numpy(), data + 1)
    np.testing.assert_array_equal(np.from_dlpack(x), data + 1)
    again = torch.from_dlpack(x)
    assert again.data_ptr() == x.address
    # The memory stays while somebody looks at it.
    del x, view
    gc.collect()
    spy.Tensor.zeros(device, (4, 6))
    np.testing.assert_array_equal(again.numpy(), data + 1)


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


def test_an_operator_of_a_function_with_uniforms(module: spy.Module) -> None:
    scaled = spy.torch_operator(module.scaled.set(scale=3.0))
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    got = scaled(x)
    same(got.detach(), 3 * x.detach() ** 2)
    got.sum().backward()
    same(x.grad, 6 * x.detach())


def test_a_struct_that_is_one_array(device: spy.Device) -> None:
    """What it takes is what its field takes."""
    module = spy.Module.load_from_source(
        device,
        "torch_weights",
        "struct Weights { DiffTensor<float, 1> values; }; [Differentiable] float at(Weights w, int k)"
        " { return w.values[k] * w.values[k]; }",
    )
    k = torch.tensor([2, 0, 2], dtype=torch.int32)
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    got = module.at(w, k)
    same(got.detach(), torch.tensor([9.0, 1.0, 9.0]))
    got.sum().backward()
    same(w.grad, torch.tensor([2.0, 0.0, 12.0]))
    np.testing.assert_array_equal(module.at(w.detach().numpy(), k.numpy()), [9, 1, 9])

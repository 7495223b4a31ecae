"""spy.matmul with a user's function as its last step: values, uniforms, edits, names, and PyTorch's gradients."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

pytestmark = one_device

TEXT = """
uniform float gain;
uniform Tensor<float, 1> factors;
uniform Tensor<float, 2> residual;
uniform RWTensor<float, 2> kept;
uniform Both both;
struct Both { float scale; Tensor<float, 1> shift; };
extern static const float power;
[Differentiable] float swish(float x) { return x / (1 + exp(-x)); }
[Differentiable] float times(float x) { return gain * x; }
[Differentiable] float placed(float x, int row, int column) { return x * x + 100 * row + 10000 * column; }
[Differentiable] float scaled(float x, int row, int column) { return factors[column] * x; }
float plus(float x, int row, int column) { return x + residual[row, column]; }
float keeping(float x, int row, int column) { kept[row, column] = x; return max(x, 0); }
float of_both(float x, int row, int column) { return both.scale * x + both.shift[column]; }
float by_constant(float x) { return power * x; }
int third(int x) { return x / 3; }
double square(double x) { return x * x; }
float many(float2 x) { return x.x; }
float many(float x) { return x + 1; }
int many(int x) { return x - 1; }
T plain<T : IArithmetic>(T x) { return x + x; }
struct Group { static float of(float x) { return 2 * x; } };
namespace inner { float of(float x) { return 3 * x; } }
"""
A = np.random.default_rng(1).standard_normal((70, 41)).astype(np.float32)
B = np.random.default_rng(2).standard_normal((41, 130)).astype(np.float32)
PRODUCT = A.astype(np.float64) @ B.astype(np.float64)
PLACES = 100.0 * np.arange(70)[:, None] + 10000.0 * np.arange(130)


@pytest.fixture
def users(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "users", TEXT)


def close(got: Any, want: Any, atol: float = 2e-5) -> None:
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-5, atol=atol)


def swish(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def test_values(device: spy.Device, users: spy.Module) -> None:
    close(spy.matmul(A, B, activation=users.swish), swish(PRODUCT))
    close(spy.matmul(A, B, activation=users.placed, device=device), PRODUCT**2 + PLACES, 1e-2)
    bias = B[0]
    close(spy.matmul(A, B, activation=users.swish, bias=bias, alpha=-0.5), swish(-0.5 * PRODUCT + bias))
    got = spy.matmul(np.ones((2, 0), np.float32), np.ones((0, 130), np.float32), bias=bias, activation=users.swish)
    close(got, [swish(bias)] * 2)


@pytest.mark.parametrize("element", ["half", "bfloat16", "double", "int", "int8_t"])
@sampled(18)
def test_element_types(device: spy.Device, users: spy.Module, element: str) -> None:
    if element in ("double", "int8_t") and element not in device.caps.scalars:
        pytest.skip(f"the device has no {element}")
    if element in ("int", "int8_t"):
        kind: Any = np.int8 if element == "int8_t" else np.int32
        ints = np.random.default_rng(3).integers(-100, 100, (33, 20)).astype(kind)
        got = spy.matmul(ints, ints, transpose_b=True, activation=users.third)
        want = ints.astype(np.int64) @ ints.T.astype(np.int64)
        np.testing.assert_array_equal(got, np.trunc(want / 3))
        return
    kinds = {"half": torch.float16, "bfloat16": torch.bfloat16, "double": torch.float64}
    a, b = torch.from_numpy(A).to(kinds[element]), torch.from_numpy(B).to(kinds[element])
    got = spy.matmul(a, b, activation=users.square if element == "double" else users.swish, device=device)
    assert got.dtype is a.dtype
    want = a.double().numpy() @ b.double().numpy()
    if element == "double":
        np.testing.assert_allclose(got.numpy(), want**2, rtol=1e-12, atol=1e-12)
    else:
        rounding = {"half": 2**-10, "bfloat16": 2**-7}[element]
        np.testing.assert_allclose(got.double().numpy(), swish(want), rtol=rounding, atol=1e-4)


@one_device
def test_uniforms(device: spy.Device, users: spy.Module) -> None:
    for gain in (3.0, -2.0):
        close(spy.matmul(A, B, activation=users.times.set(gain=gain)), gain * PRODUCT, 1e-4)
    factors, residual = B[1], np.random.default_rng(5).standard_normal(PRODUCT.shape).astype(np.float32)
    for make in (np.asarray, lambda x: spy.Tensor.from_numpy(device, x), torch.from_numpy):
        close(spy.matmul(A, B, activation=users.scaled.set(factors=make(factors))), factors * PRODUCT, 1e-4)
        close(spy.matmul(A, B, activation=users.plus.set(residual=make(residual))), PRODUCT + residual)
    both = {"scale": 0.5, "shift": factors}
    close(spy.matmul(A, B, activation=users.of_both.set(both=both)), 0.5 * PRODUCT + factors)
    # A uniform that was not set is zero.
    close(spy.matmul(A, B, activation=users.times), 0 * PRODUCT)
    kept = spy.Tensor.zeros(device, PRODUCT.shape)
    close(spy.matmul(A, B, activation=users.keeping.set(kept=kept)), np.maximum(PRODUCT, 0))
    close(kept.to_numpy(), PRODUCT)
    with pytest.raises(spy.BindError, match=r"times.set: uniform 'gain' is 'x' of type str"):
        spy.matmul(A, B, activation=users.times.set(gain="x"))


@deep
@sampled(2)
def test_constants_overloads_and_other_kinds(device: spy.Device, users: spy.Module) -> None:
    for power in (2.0, 3.0, 2):
        got = spy.matmul(A, B, activation=users.by_constant.constants({"power": power}))
        close(got, float(power) * PRODUCT, 1e-4)
    close(spy.matmul(A, B, activation=users.many), PRODUCT + 1)
    ints = np.arange(6, dtype=np.int32).reshape(2, 3)
    np.testing.assert_array_equal(spy.matmul(ints, ints.T, activation=users.many), ints @ ints.T - 1)
    close(spy.matmul(A, B, activation=users["plain<float>"]), 2 * PRODUCT, 1e-4)
    close(spy.matmul(A, B, activation=users["Group.of"]), 2 * PRODUCT, 1e-4)
    close(spy.matmul(A, B, activation=users["inner.of"]), 3 * PRODUCT, 1e-4)
    below = spy.Module.load_from_source(device, "below", "float below(float x) { return 7 * x; }")
    above = spy.Module.load_from_source(
        device, "above", "import below; float above(float x) { return below(x) + N; }", {"N": 5}, link=[below]
    )
    close(spy.matmul(A, B, activation=above.above), 7 * PRODUCT + 5, 1e-4)


@deep
def test_rows_and_columns(device: spy.Device, users: spy.Module) -> None:
    """Of operands of one dimension, the one on the left is a row, and the one on the right a column."""
    cases: list[tuple[Any, Any]] = [
        (A, B), (A[:, 0], A), (A, B[:, 0]), (A[0], B[:, 0]), (np.stack([A, -A, 2 * A]), B),
        (A[None], np.stack([B, B])),
    ]  # fmt: skip
    for a, b in cases:
        product = np.asarray(np.matmul(a.astype(float), b.astype(float)))
        rows = np.arange(1 if a.ndim == 1 else a.shape[-2])
        columns = np.arange(1 if b.ndim == 1 else b.shape[-1])
        places = 100.0 * (rows[:, None] if b.ndim > 1 else rows) if a.ndim > 1 else 0.0
        places = places + (10000.0 * columns if b.ndim > 1 else 0.0)
        for bias in (None, B[0].copy(), A[:, 0].copy()):
            if bias is not None and (not product.ndim or bias.shape != product.shape[-1:]):
                continue
            got = spy.matmul(a, b, bias=bias, activation=users.placed)
            want = (product if bias is None else product + bias) ** 2 + places
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-2)
            ours = [None if x is None else torch.from_numpy(x.copy()) for x in (a, b, bias)]
            ours[0].requires_grad_()
            again = spy.matmul(ours[0], ours[1], bias=ours[2], activation=users.placed)
            np.testing.assert_allclose(again.detach(), want, rtol=1e-5, atol=1e-2)


def test_memory_shared_with_the_result(device: spy.Device, users: spy.Module) -> None:
    start = np.random.default_rng(5).standard_normal(PRODUCT.shape).astype(np.float32)
    out = start.copy()
    assert spy.matmul(A, B, out=out, activation=users.plus.set(residual=out)) is out
    close(out, PRODUCT + start)
    # Another element than the one that is written.
    turned = start.copy()
    spy.matmul(A, B, out=turned, activation=users.plus.set(residual=turned[::-1, ::-1]))
    close(turned, PRODUCT + start[::-1, ::-1])
    a, b, c = (spy.Tensor.from_numpy(device, x) for x in (A, B, start))
    spy.matmul(a, b, out=c, activation=users.plus.set(residual=c))
    close(c.to_numpy(), PRODUCT + start)
    tensor = torch.from_numpy(start.copy())
    spy.matmul(*map(torch.from_numpy, (A, B)), out=tensor, activation=users.plus.set(residual=tensor), device=device)
    close(tensor, PRODUCT + start)
    commands = spy.CommandList(device)
    spy.matmul.append_to(commands, a, b, out=c, activation=users.plus.set(residual=c))
    for turn in (2, 3):
        commands.submit()
        close(c.to_numpy(), turn * PRODUCT + start, 1e-4)


def test_command_lists(device: spy.Device, users: spy.Module) -> None:
    a, b = (spy.Tensor.from_numpy(device, x) for x in (A, B))
    c, factors = spy.Tensor.zeros(device, PRODUCT.shape), spy.Tensor.ones(device, 130)
    commands = spy.CommandList(device)
    spy.matmul.append_to(commands, a, b, out=c, activation=users.scaled.set(factors=factors))
    for value in (1.0, -4.0):
        factors.copy_from(np.full(130, value, np.float32))
        commands.submit()
        close(c.to_numpy(), value * PRODUCT, 1e-4)


def test_gradients_of_torch(device: spy.Device, users: spy.Module) -> None:
    for function, expected in (
        (users.swish, torch.nn.functional.silu),
        (users.times.set(gain=3.0), lambda x: 3 * x),
        (users.scaled.set(factors=torch.from_numpy(B[1])), lambda x: torch.from_numpy(B[1]) * x),
    ):
        ours, theirs = ([torch.from_numpy(x.copy()).requires_grad_() for x in (A, B, B[0])] for _ in range(2))
        got = spy.matmul(ours[0], ours[1], bias=ours[2], activation=function, device=device)
        want = expected(theirs[0] @ theirs[1] + theirs[2])
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        (got * got).sum().backward()
        (want * want).sum().backward()
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=2e-2)
    halves = [torch.from_numpy(x).half().requires_grad_() for x in (A, B)]
    got = spy.matmul(*halves, activation=users.swish, device=device)
    assert got.dtype is torch.float16
    torch.testing.assert_close(got, torch.nn.functional.silu(halves[0] @ halves[1]), rtol=1e-2, atol=1e-2)
    with pytest.raises(spy.BindError, match="needs a derivative"):
        spy.matmul(*halves, activation=users.plus.set(residual=np.zeros((70, 130), np.float32)), device=device)


@deep
def test_edits(device: spy.Device, tmp_path: Path) -> None:
    file, other = tmp_path / "last.slang", tmp_path / "part.slang"
    other.write_text("float part(float x) { return 2 * x; }")
    file.write_text("import part; float last(float x) { return part(x) + 1; }")
    function = spy.Module.load_from_file(device, file).last
    a, b = (spy.Tensor.from_numpy(device, x) for x in (A, B))
    out = spy.Tensor.zeros(device, PRODUCT.shape)

    def check(want: Any) -> None:
        for _ in range(3):
            close(spy.matmul(a, b, activation=function).to_numpy(), want, 1e-4)
            close(spy.matmul(a, b, out=out, activation=function).to_numpy(), want, 1e-4)
            close(spy.matmul(A, B, activation=function), want, 1e-4)

    check(2 * PRODUCT + 1)
    other.write_text("float part(float x) { return 5 * x; }")
    device.reload()
    check(5 * PRODUCT + 1)
    file.write_text("import part; float last(float x, int row, int column) { return part(x) + row; }")
    device.reload()
    check(5 * PRODUCT + np.arange(70)[:, None])
    file.write_text("import part; float other(float x) { return x; }")
    device.reload()
    for _ in range(2):
        with pytest.raises(spy.CompileError, match="was edited and no longer declares it; it has other"):
            spy.matmul(a, b, activation=function)
    file.write_text("import part; float last(float x) { return -part(x); }")
    device.reload()
    check(-5 * PRODUCT)


def test_edits_are_noticed(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "noticed.slang"
    a, b = (spy.Tensor.from_numpy(device, x) for x in (A, B))
    file.write_text("float last(float x) { return 2 * x; }")
    function = spy.Module.load_from_file(device, file).last
    for _ in range(2):
        close(spy.matmul(a, b, activation=function).to_numpy(), 2 * PRODUCT, 1e-4)
    file.write_text("float last(float x) { return 3 * x; }")
    # A look at the files that came before the edit may be 10 ms old.
    for _ in range(10000):
        got = spy.matmul(a, b, activation=function).to_numpy()
        if abs(got[0, 0] - 3 * PRODUCT[0, 0]) < 1e-3:
            break
    close(got, 3 * PRODUCT, 1e-4)


def test_a_module_ends(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "short", "float last(float x) { return 2 * x; }")
    a, b = (spy.Tensor.from_numpy(device, x) for x in (A, B))
    for _ in range(3):
        spy.matmul(a, b, activation=module.last)
    function = weakref.ref(module.last)
    del module
    gc.collect()
    assert function() is None


NAMES = [
    "product", "pack", "a", "alpha", "bias", "x", "row", "column", "SPY_IN", "SPY_USERS", "BIAS", "exp", "tanh",
    "abs", "let", "while", "Access", "main",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@sampled(72)
def test_names(device: spy.Device, name: str) -> None:
    """A function, a uniform, a macro and a module have any name."""
    small = A[:2, :3].copy()
    want = 2 * small.astype(float) @ small.T.astype(float) + 1
    text = f"uniform float the_uniform; float {name}(float y) {{ return 2 * y + the_uniform; }}"
    function = spy.Module.load_from_source(device, name, text)[name].set(the_uniform=1.0)
    close(spy.matmul(small, small, transpose_b=True, activation=function), want)
    text = f"uniform float {name}; float the_function(float y) {{ return 2 * y + {name}; }}"
    function = spy.Module.load_from_source(device, f"of_{name}", text).the_function.set({name: 1.0})
    close(spy.matmul(small, small, transpose_b=True, activation=function), want)
    text = "float the_function(float y) { return 2 * y + 1; }"
    function = spy.Module.load_from_source(device, "macros", text, {name: "("}).the_function
    close(spy.matmul(small, small, transpose_b=True, activation=function), want)


HIDING = ["float3", "uint3", "vector", "Ptr", "half", "uint", "Access", "Array", "NDBuffer", "int64_t", "uint64_t"]


@one_device
def test_types_that_hide_those_of_slang(device: spy.Device) -> None:
    small = A[:2, :3].copy()
    text = "".join(f"struct {name} {{ int k; }};\n" for name in HIDING) + "float last(float y) { return 2 * y + 1; }"
    function = spy.Module.load_from_source(device, "hiding", text).last
    want = 2 * small.astype(float) @ small.T.astype(float) + 1
    close(spy.matmul(small, small, transpose_b=True, activation=function), want)

"""Fields that a dict leaves out have the values that the struct's declaration gives them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from _cuda_text import compiled_for_cuda

import slangpy_rt as spy
from tests.depth import deep, one_device, sampled

# What these test depends little on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
static const int K = 3;
enum Mode { Off, On = 4 };
struct Inner { float u = 7; int v; float2 w = float2(1, 2); };
struct Mixed : IDifferentiable
{
    float a = 2; float b; float3 c = float3(1, 2, K); int n = K + 1; Mode mode = Mode.On; Inner inner = {};
    bool flag = true; float g[2] = { 1, 2 }; float third = 1 / 3.0;
};
struct Outer { Mixed mixed; float w = 1; };
struct Numbers { float a = -2.5; int b; uint k = 4000000000; half h = 0.1h; int16_t s = -5; };
struct Constructed { float a = 2; float b; float2 w = float2(1, 2); __init(float b) { this.b = b; } };
struct Set { float a = 2; float b; __init() { a = 9; b = 5; } };
struct Derived : Inner { float more = 3; };
struct Generic<T : __BuiltinFloatingPointType> { T a = T(4); T b; };
struct Whole { Tensor<float, 1> t; float k = 2; float2 w = float2(1, 2); };
struct Alone { float x = 1; float y = 2; };
struct Steps { float x; float by = 2; float2 far = float2(1, 2); [mutating] void go() { x += by * far.y; } };

float of_mixed(Mixed m)
{
    return m.a + 2 * m.b + 3 * m.c.x + 5 * m.c.z + 7 * m.n + 11 * int(m.mode) + 13 * m.inner.u + 17 * m.inner.w.y
        + (m.flag ? 19 : 0) + 23 * m.g[1] + 29 * m.third;
}
float of_outer(Outer o) { return of_mixed(o.mixed) + 100000 * o.w; }
float2 of_numbers(Numbers n) { return float2(n.a + n.b, n.k / 1000000 + n.s + float(n.h)); }
float of_constructed(Constructed c) { return c.a * 10 + c.b; }
float of_set(Set s) { return s.a * 10 + s.b; }
float of_derived(Derived d) { return d.u + 10 * d.v + 100 * d.more; }
float of_generic(Generic<float> g) { return g.a * g.b; }
float of_whole(Whole w) { return w.t[0] * w.k; }
float of_alone(Alone a) { return a.x + 10 * a.y; }
float either(Alone a) { return 1; }
float either(Numbers n) { return 2; }
[Differentiable] float slope(Mixed m) { return m.b * m.b * m.a * m.c.z; }
void change(inout Alone a) { a.x += a.y; }
void make(out Alone a) { a = { 5, 6 }; }
uniform Mixed set_mixed;
uniform Outer set_outer;
float uniforms(float x) { return x + of_mixed(set_mixed) + of_outer(set_outer); }
"""
X = np.float32([1, 2, 3])


def mixed(b: Any, a: float = 2, u: float = 7) -> Any:
    """What ``of_mixed`` returns where all but these fields have their defaults."""
    return a + 2 * b + 3 + 15 + 28 + 44 + 13 * u + 34 + 19 + 46 + 29 / 3


def test_defaults_of_every_number_of_digits(device: spy.Device) -> None:
    """Parameters' defaults are the floats of the text: a float needs up to nine digits, and few need all of them."""
    rng, found = np.random.default_rng(6), {}
    while len(found) < 9:
        x = np.float32(rng.random()) * np.float32(10.0 ** rng.integers(-3, 4))
        x = np.float32(f"{x:.{rng.integers(1, 10)}g}")
        digits = next(n for n in range(1, 10) if np.float32(f"{x:.{n}g}") == x)
        found.setdefault(digits, x)
    edges = [np.float32(x) for x in (16777216, 8589973504, 1.17549435e-38, 3.40282347e38, 1e-45, 0.1, -0.100000024)]
    numbers = [*found.values(), *edges]
    params = ", ".join(f"float p{k} = {float(x)!r}" for k, x in enumerate(numbers))
    items = ", ".join(f"p{k}" for k in range(len(numbers)))
    text = f"struct All {{ float x[{len(numbers)}]; }};\nAll f({params}) {{ return {{ {{ {items} }} }}; }}"
    got = spy.Module.load_from_source(device, "digits", text).f()
    np.testing.assert_array_equal(np.array(got["x"], np.float32), np.array(numbers, np.float32))


@pytest.fixture(scope="module")
def module(device: spy.Device) -> Any:
    return spy.Module.load_from_source(device, "struct_defaults", SLANG)


class Named(NamedTuple):
    """A value with one of the fields."""

    b: Any


@dataclass
class Owned:
    """A value with one of the fields."""

    b: Any


def every_call(device: spy.Device, module: Any) -> None:
    """Calls of all functions, for a device that runs nothing."""
    t = spy.Tensor.from_numpy(device, X)
    module.of_mixed({"b": t})
    module.of_outer({"mixed": {"b": t}})
    module.of_numbers({"b": 1})
    module.of_whole({"t": t, "w": [1, 2]})
    module.uniforms.set(set_mixed={"b": 1.0}, set_outer={"mixed": {"b": 3.0}})(t)
    seed = spy.Tensor.zeros(device, 3).with_grads()
    module.slope.bwds({"b": t.with_grads()}, _result=seed)
    module.slope.fwds({"b": spy.diff_pair(1.0, 1.0)})


@sampled(3)
def test_fields_with_defaults_may_be_left_out(device: spy.Device, module: Any) -> None:
    np.testing.assert_allclose(module.of_mixed({"b": 1.0}), mixed(1), rtol=1e-6)
    np.testing.assert_allclose(module.of_mixed({"b": X}), mixed(X), rtol=1e-6)
    np.testing.assert_allclose(module.of_mixed({"b": 1.0, "a": X, "_type": "Mixed"}), mixed(1, X), rtol=1e-6)
    t = spy.Tensor.from_numpy(device, X)
    for value in (Named(t), Owned(t), spy.InstanceList(module.Mixed, {"b": t})):
        np.testing.assert_allclose(module.of_mixed(value).to_numpy(), mixed(X), rtol=1e-6)
    inner = {"u": X, "v": 2}
    np.testing.assert_allclose(module.of_mixed({"b": 1.0, "inner": inner}), mixed(1, 2, X), rtol=1e-6)


def test_structs_in_structs(module: Any) -> None:
    np.testing.assert_allclose(module.of_outer({"mixed": {"b": X}}), mixed(X) + 100000, rtol=1e-6)
    value = {"mixed": {"b": 2.0, "a": 1, "inner": {"v": 1}}, "w": X}
    np.testing.assert_allclose(module.of_outer(value), mixed(2, 1) + 100000 * X, rtol=1e-6)


def test_uniforms(module: Any) -> None:
    call = module.uniforms.set(set_mixed={"b": 1.0}, set_outer={"mixed": {"b": 3.0}})
    np.testing.assert_allclose(call(X), X + mixed(1) + mixed(3) + 100000, rtol=1e-6)


def test_numbers(device: spy.Device, module: Any) -> None:
    expected = [-2.5 + 1, 4000 - 5 + np.float32(np.float16(0.1))]
    np.testing.assert_array_equal(module.of_numbers({"b": 1}), np.float32(expected))
    # Numbers are known to the host, too: in lists of dicts, and in new arrays.
    lists = [{"b": 1}, {"b": 1, "a": 1.5}]
    np.testing.assert_array_equal(module.of_numbers(lists), np.float32([expected, [2.5, expected[1]]]))
    full = spy.Tensor.full(device, 2, {"b": 4}, dtype=module.Numbers)
    assert full.to_numpy().tolist() == 2 * [(-2.5, 4, 4000000000, float(np.float16(0.1)), -5)]
    assert module.of_alone({}) == 21 and module.of_alone({"y": 3}) == 31
    assert module.of_constructed({"b": 3.0, "w": [0, 0]}) == 23 and module.of_set({"b": 3.0}) == 23
    assert module.of_derived({"v": 2, "w": [1, 1]}) == 327 and module.of_derived({"v": 2}) == 327
    assert module.of_generic({"b": 3.0}) == 12
    assert module.of_whole({"t": spy.Tensor.from_numpy(device, X), "w": [1, 2]}) == 2


def test_gradients(device: spy.Device, module: Any) -> None:
    b = spy.Tensor.from_numpy(device, X).with_grads()
    seed = spy.Tensor.zeros(device, 3).with_grads(grad_in=spy.Tensor.ones(device, 3))
    module.slope.bwds({"b": b}, _result=seed)
    np.testing.assert_array_equal(b.grad.to_numpy(), 2 * X * 2 * 3)
    out = module.slope.fwds({"b": spy.diff_pair(3.0, 1.0)})
    assert (out.primal, out.grad) == (54, 36)
    value, gradients = module.slope.value_and_grad({"b": b})
    assert value.item() == (X * X * 6).sum()
    np.testing.assert_array_equal(gradients["m"]["b"].to_numpy(), 12 * X)


def test_methods_that_only_read_them(module: Any) -> None:
    x = X.copy()
    module.Steps.go({"x": x})
    np.testing.assert_array_equal(x, X + 4)


def test_a_value_with_all_fields_fits_better(module: Any) -> None:
    assert module.either({"x": 1.0}) == 1 and module.either({"b": 1}) == 2
    with pytest.raises(spy.BindError, match="no overload takes these arguments"):
        module.either({"x": 1.0, "b": 1})


def test_a_call_that_was_bound(device: spy.Device, module: Any) -> None:
    t = spy.Tensor.from_numpy(device, X)
    again = module.of_mixed.bind({"b": t})
    t.copy_from(2 * X)
    np.testing.assert_allclose(again().to_numpy(), mixed(2 * X), rtol=1e-6)
    commands, out = device.command_list(), spy.Tensor.zeros(device, 3)
    module.of_mixed.append_to(commands, {"b": t}, _result=out)
    commands.submit()
    np.testing.assert_allclose(out.to_numpy(), mixed(2 * X), rtol=1e-6)


@sampled(3)
@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            lambda m: m.of_mixed({"a": 1.0}),
            "argument 'm' lacks b; 'Mixed' has a, b, c, n, mode, inner, flag, g, third.",
        ),
        (
            lambda m: m.of_mixed({"b": 1, "z": 2}),
            "argument 'm' has z, which 'Mixed' has not; 'Mixed' has a, b, c",
        ),
        (lambda m: m.of_mixed((1.0,)), "'Mixed' has 9 fields: a, b, c, n, mode, inner, flag, g, third."),
        (
            lambda m: m.of_mixed([{"b": 1.0}]),
            "argument 'm'[0] lacks c, n, mode, inner, flag, g, third, whose default is no number in Slang's text; "
            "give a value here.",
        ),
        (
            lambda m: m.of_constructed({"b": 1.0}),
            "argument 'c' lacks w, and 'Constructed' cannot be initialized with {}, which would give the default; "
            "give a value.",
        ),
        (lambda m: m.of_set({"a": 1.0}), "argument 's' lacks b; 'Set' has a, b."),
        (lambda m: m.of_whole({"t": spy.Tensor.zeros(m.device, 1)}), "argument 'w' lacks w, and 'Whole' cannot be"),
        # What a function writes would be lost.
        (lambda m: m.change({"x": X.copy()}), "argument 'a' lacks y; 'Alone' has x, y."),
        (lambda m: m.make({"x": X.copy()}), "argument 'a' lacks y; 'Alone' has x, y."),
    ],
)
def test_what_is_refused(module: Any, run: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(spy.BindError) as caught:
        run(module)
    assert said in str(caught.value)


def test_instances(device: spy.Device, module: Any) -> None:
    some = spy.InstanceList(module.Numbers, {"b": np.int32([1, 2])})
    np.testing.assert_array_equal(module.of_numbers(some)[:, 0], np.float32([-1.5, -0.5]))
    with pytest.raises(spy.BindError, match="an InstanceList of 'Numbers' without a value for b"):
        module.of_numbers(spy.InstanceList(module.Numbers, {"a": 1}))


@deep
def test_kernels_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled_for_cuda(SLANG.replace("half h = 0.1h", "float h = 0.1"), every_call, monkeypatch) >= 7

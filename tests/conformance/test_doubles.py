"""Elementary functions of double: within 4 ULP of NumPy over the whole range, on every device that has them.

Those of slang-rhi compile by themselves to an instruction set that lacks them, and say so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tools import gen_double_constants

import slangpy_rt as spy
from tests.depth import deep, needs, sampled

pytestmark = sampled(2)

Array = npt.NDArray[Any]
ULP = 4
PI = np.longdouble("3.14159265358979323846264338327950288")


def half_turns(name: str) -> Any:
    """The sine, cosine or tangent of pi x, as C23 has them; pi is multiplied by what quarters of a turn leave."""

    def function(x: Array) -> Array:
        a = np.fmod(np.abs(x), 2)
        n = np.rint(2 * a)
        t = PI * (a - n / 2)
        n = np.where(np.isfinite(n), n, 0).astype("i8") % 4
        sine = np.choose(n, [np.sin(t), np.cos(t), -np.sin(t), -np.cos(t)])
        cosine = np.choose(n, [np.cos(t), -np.sin(t), -np.cos(t), np.sin(t)])
        cosine = np.where(cosine == 0, 0, cosine)
        if name == "cospi":
            return cosine
        value = np.where(sine == 0, 0, sine) if name == "sinpi" else np.where(sine == 0, 0 / cosine, sine / cosine)
        return np.where(np.signbit(x), -value, value)

    return function


UNARY = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "exp": np.exp, "exp10": lambda x: np.power(np.longdouble(10), x),
    "sinpi": half_turns("sinpi"), "cospi": half_turns("cospi"), "tanpi": half_turns("tanpi"),
    "degrees": lambda x: x * (180 / PI),
    "radians": lambda x: x * (PI / 180), "exp2": np.exp2, "log": np.log, "log2": np.log2, "log10": np.log10,
}  # fmt: skip
# Slang's CUDA lacks them or has constants of float, so rhi-cuda refuses them.
LACKING = {"acosh", "asinh", "atanh", "log10"}
ROUNDED = {"exp10", "sinpi", "cospi", "tanpi", "degrees", "radians"}
SLOPES = {
    "exp2": lambda x: np.exp2(x) * np.log(2), "log2": lambda x: 1 / (x * np.log(2)),
    "log10": lambda x: 1 / (x * np.log(10)), "degrees": lambda x: np.full_like(x, 180 / np.pi),
    "radians": lambda x: np.full_like(x, np.pi / 180),
}  # fmt: skip
# The slope of the slope.
BENDS = {
    "exp2": lambda x: np.exp2(x) * np.log(2) ** 2, "log2": lambda x: -1 / (x * x * np.log(2)),
    "log10": lambda x: -1 / (x * x * np.log(10)), "degrees": np.zeros_like, "radians": np.zeros_like,
}  # fmt: skip
# What a text may write in place of a function's name, and the module's macros.
SPELLINGS = {
    "macro": ("MACRO(x)", {"MACRO": "exp10"}),
    "pasted": ("CAT(ex, p10)(x)", {}),
    "continued": ("exp\\\n10(x)", {}),
    "slope": ("__fwd_diff(power)(diffPair(x, 1.0L)).d", {}),
    "pi": ("x * PI()", {"PI": "double.getPi"}),
}
SPELLED: dict[str, Any] = {"slope": lambda x: np.exp2(x) * np.log(2), "pi": lambda x: x * np.pi}
SOURCE = """
double pow_(double x, double y) { return pow(x, y); }
double atan2_(double y, double x) { return atan2(y, x); }
double3 vectors(double3 v) { return sin(v) + exp2(v) * pow(abs(v), double3(0.5)); }
double sines(double x) { double s, c; sincos(x, s, c); return s * c; }
double2x2 matrices(double2x2 m) { return exp(m); }
T twice<T : __BuiltinFloatingPointType>(T x) { return log(x) * T(2); }
double generic(double x) { return twice(x); }
T scaled<T : __BuiltinFloatingPointType>(T x) { return T(3) * exp10(T(2) * x) * sinpi(x * T(7)) * log10(x) * T(5); }
double folded(double x) { return scaled(x); }
double3 turned(double3 v) { return sinpi(v) + 2 * cospi(v) + 3 * tanpi(v) + exp10(v); }
double2x2 powers(double2x2 m) { return exp10(m); }
double2x2 turns(double2x2 m) { return radians(m) + degrees(m); }
double pi(double x) { return x * double.getPi(); }
float floats(float x) { return exp10(x) + sinpi(x) + degrees(x); }
double sine_of(double x) { return sin(3.14159274101257324L * x); }
[Differentiable] double all_of(double x, double y)
{
    return sin(x) * exp(y) + log(x) * pow(x, y) + atan2(y, x) + tanh(x) * cos(y) + asin(y / 4);
}
float single(float x) { return sin(x) + pow(x, 1.5f); }
"""
TINY, LARGE = 5e-324, np.finfo("f8").max
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, TINY, -TINY, 2.3e-308, 1e-310, 2, -2, 0.5, -0.5, 3, -3, 0.25, 1e300,
     -1e300, 1e-300, 2.0**53, 2.0**53 + 2, np.nextafter(1, 2), np.nextafter(1, 0), 709.5, -745.0, 1024, -1074, 1e22]
)  # fmt: skip


def anywhere(generator: np.random.Generator, low: float, high: float, count: int = 700) -> Array:
    """Positive numbers, every exponent as often as any other."""
    ends = np.array([low, high]).view("i8")
    return generator.integers(ends[0], ends[1], count).view("f8")


def arguments() -> Array:
    """Numbers over the whole range, and near the places where series and reductions change."""
    generator = np.random.default_rng(4)
    far = anywhere(generator, TINY, LARGE)
    near = generator.uniform(-1, 1, 700)
    turns = generator.integers(1, 1 << 40, 300) * (np.pi / 2)
    # The double that is nearest to a multiple of pi / 2, and its neighbours.
    worst = np.array([6381956970095103 * 2.0**797, 6381956970095104 * 2.0**797])
    parts = [far, -far, near, 800 * near, 1 + near / 8, 1 - anywhere(generator, 1e-17, 0.5), turns, worst, SPECIAL]
    return np.concatenate(parts)


def distance(found: Array, wanted: Array) -> Array:
    """How far they are apart, in units of the last place; signs of 0 count."""
    with np.errstate(all="ignore"):
        same = (found == wanted) & (np.signbit(found) == np.signbit(wanted)) | np.isnan(found) & np.isnan(wanted)
        units = np.abs(found - wanted) / np.spacing(np.abs(wanted))
    return np.where(same, 0, np.where(np.isfinite(units), units, np.inf))


@pytest.fixture(scope="session")
def module(device: spy.Device) -> spy.Module:
    text = SOURCE + "".join(f"double {name}_(double x) {{ return {name}(x); }}\n" for name in UNARY)
    for name in SLOPES:
        text += f"[Differentiable] double d_{name}(double x) {{ return {name}(x); }}\n"
        text += f"[Differentiable] double3 dv_{name}(double3 x) {{ return {name}(x); }}\n"
        text += f"[Differentiable] double2x2 dm_{name}(double2x2 x) {{ return {name}(x); }}\n"
        text += (
            f"double2x2 dfm_{name}(double2x2 x) {{ return fwd_diff(dm_{name})(diffPair(x, double2x2(2.0L))).d; }}\n"
        )
        text += f"[Differentiable] double d1_{name}(double x) {{ return fwd_diff(d_{name})(diffPair(x, 1.0L)).d; }}\n"
        text += f"[Differentiable] double3 d1v_{name}(double3 x)\n"
        text += f"{{ return fwd_diff(dv_{name})(diffPair(x, double3(1.0L))).d; }}\n"
        text += f"double d2_{name}(double x) {{ return fwd_diff(d1_{name})(diffPair(x, 1.0L)).d; }}\n"
        text += f"double df_{name}(double x) {{ return 3 * fwd_diff(d_{name})(diffPair(x, 2.0L)).d; }}\n"
    return spy.Module.load_from_source(device, "doubles", text)


@pytest.fixture(autouse=True)
def _one_form(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel in C++ takes the place of one in lanes."""
    if device.backend.range_target is not None:
        monkeypatch.setattr(device.backend, "range_target", None)


@pytest.mark.parametrize("name", ["sin", pytest.param("sinpi", marks=deep), pytest.param("log10", marks=deep)])
def test_lanes_and_debuggers_call_the_same_functions(name: str) -> None:
    """Of vectors, of the last elements, of a number that all lanes share, and of one thread after the other."""
    pytest.importorskip("llvmlite.binding")
    x = np.linspace(0.1, 3, 100)
    found = []
    for debug in (False, True):
        with spy.Device("cpu", debug=debug) as device:
            device.backend.range_target = None
            text = f"double of(double x, double k) {{ return {name}(x) + {name}(k); }}"
            found.append(spy.Module.load_from_source(device, "calls_c", text).of(x, 0.25))
    np.testing.assert_array_equal(*found)
    wanted = UNARY[name]
    np.testing.assert_allclose(found[0], wanted(x) + wanted(np.array([0.25])), rtol=1e-15, atol=1e-15)


@needs("functions of doubles")
@sampled(8)
@pytest.mark.parametrize("name", UNARY)
def test_of_one_number(device: spy.Device, module: spy.Module, name: str) -> None:
    x = arguments()
    if device.backend.target.program and name in LACKING | ROUNDED:
        with pytest.raises(spy.UnsupportedError, match=f"uses {name} of a type"):
            module[f"{name}_"](x)
        return
    with np.errstate(all="ignore"):
        # Of a wider type where there is one: NumPy itself is a unit off at places.
        wanted = UNARY[name](x.astype("g")).astype("f8")
    found = module[f"{name}_"](x)
    off = distance(found, wanted)
    worst = int(off.argmax())
    # glibc's cos and tan are 8 and 14 off at the double nearest to a multiple of pi / 2.
    limit = 16 if device.backend.name == "cpu" and abs(x[worst]) > 1e200 else ULP
    assert off.max() <= limit, (x[worst], found[worst], wanted[worst])


@needs("functions of doubles")
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_of_two_numbers(device: spy.Device, module: spy.Module, name: str) -> None:
    generator = np.random.default_rng(5)
    a = np.concatenate(
        [anywhere(generator, TINY, LARGE), anywhere(generator, 0.5, 2), 1 + generator.uniform(-1e-3, 1e-3, 700)]
    )
    b = np.concatenate([anywhere(generator, 1e-3, 1e3), anywhere(generator, 1, 1e3), anywhere(generator, 1, 1e6)])
    grid = np.meshgrid(SPECIAL, SPECIAL)
    x = np.concatenate([a, a, grid[0].ravel(), -a])
    y = np.concatenate([b, -b, grid[1].ravel(), np.rint(b)])
    function = np.power if name == "pow" else np.arctan2
    with np.errstate(all="ignore"):
        wanted = function(x.astype("g"), y.astype("g")).astype("f8")
    found = module[f"{name}_"](x, y)
    off = distance(found, wanted)
    worst = int(off.argmax())
    assert off.max() <= ULP, (x[worst], y[worst], found[worst], wanted[worst])


@needs("functions of doubles")
def test_of_vectors_matrices_and_generics(device: spy.Device, module: spy.Module) -> None:
    x = np.random.default_rng(6).uniform(-3, 3, (50, 3))
    np.testing.assert_allclose(module.vectors(x), np.sin(x) + np.exp2(x) * np.sqrt(np.abs(x)), rtol=1e-14)
    np.testing.assert_allclose(module.sines(x), np.sin(x) * np.cos(x), rtol=1e-14)
    m = np.random.default_rng(6).uniform(-3, 3, (20, 2, 2))
    np.testing.assert_allclose(module.matrices(m), np.exp(m), rtol=1e-15)
    np.testing.assert_allclose(module.generic(np.abs(x)), 2 * np.log(np.abs(x)), rtol=1e-14)


@needs("functions of doubles", "corrected code")
def test_constants_are_those_of_double(device: spy.Device, module: spy.Module) -> None:
    x = np.random.default_rng(8).uniform(0.1, 3, (50, 3))
    # The compiler may make one factor of two, Slang's and the user's.
    wanted = 15 * 10 ** (2 * x) * np.sin(7 * np.pi * x) * np.log10(x)
    np.testing.assert_allclose(module.folded(x), wanted, rtol=1e-12, atol=1e-9)
    wanted = np.sin(np.pi * x) + 2 * np.cos(np.pi * x) + 3 * np.tan(np.pi * x) + 10**x
    np.testing.assert_allclose(module.turned(x), wanted, rtol=1e-12)
    m = np.random.default_rng(6).uniform(-3, 3, (20, 2, 2))
    np.testing.assert_allclose(module.powers(m), 10**m, rtol=1e-15)
    np.testing.assert_allclose(module.turns(m), np.radians(m) + np.degrees(m), rtol=1e-15)
    assert module.pi(1.0) == np.pi
    np.testing.assert_allclose(module.floats(x.astype("f4")), 10**x + np.sin(np.pi * x) + np.degrees(x), rtol=1e-4)
    # The user's own constant stays what it is.
    np.testing.assert_allclose(module.sine_of(x), np.sin(3.14159274101257324 * x), rtol=1e-12, atol=1e-15)


@needs("functions of doubles", "corrected code")
@sampled(6)
@pytest.mark.parametrize("name", SLOPES)
def test_slopes_have_constants_of_double(device: spy.Device, module: spy.Module, name: str) -> None:
    x = np.random.default_rng(9).uniform(0.1, 3, (50, 3))
    m = x[:48].reshape(-1, 2, 2)
    wanted = (
        ("d_", x.ravel(), SLOPES),
        ("dv_", x, SLOPES),
        ("dm_", m, SLOPES),
        ("d1_", x.ravel(), BENDS),
        ("d1v_", x, BENDS),
    )
    for kind, values, slopes in wanted:
        function, shape = module[kind + name], values.shape[1:]
        dtype = "double" + "x".join(map(str, shape))
        at, result = (spy.Tensor.zeros(device, len(values), dtype=dtype).with_grads() for _ in range(2))
        at.copy_from(values)
        result.grad.copy_from(np.ones_like(values))
        function.bwds(at, _result=result)
        np.testing.assert_allclose(at.grad.numpy(), slopes[name](values), rtol=2e-15)
    np.testing.assert_allclose(module[f"dfm_{name}"](m), 2 * SLOPES[name](m), rtol=1e-15)
    np.testing.assert_allclose(module[f"d2_{name}"](x), BENDS[name](x), rtol=2e-15)
    np.testing.assert_allclose(module[f"df_{name}"](x), 6 * SLOPES[name](x), rtol=1e-15)


@needs("functions of doubles", "corrected code")
@sampled(3)
@pytest.mark.parametrize("name", SPELLINGS)
def test_constants_are_those_of_double_however_they_are_spelled(device: spy.Device, name: str) -> None:
    spelled, defines = SPELLINGS[name]
    text = "#define CAT(a, b) a##b\n[Differentiable] double power(double x) { return exp2(x); }\n"
    text += f"double f(double x) {{ return {spelled}; }}"
    x = np.linspace(0.3, 3, 20)
    found = spy.Module.load_from_source(device, f"spelled_{name}", text, defines=defines).f(x)
    np.testing.assert_allclose(found, SPELLED.get(name, lambda x: 10**x)(x), rtol=1e-14)


@needs("functions of doubles")
def test_exp2_of_half_and_float_is_theirs(device: spy.Device) -> None:
    x = np.array([0, 0.5, 1, 2, -3.25, 4.75, 20])
    text = """
double of_float(float x) { return exp2(x); }
double of_half(half x) { float y = x; return exp2(y); }
double3 of_halves(half3 x) { return double3(exp2(float3(x))); }
double rounded(double x) { return double(exp2(half(x))); }
double both(half x, double y) { return exp2(y) + double(exp2(2 * float(x))); }
"""
    if "half" not in device.caps.scalars:
        text = text.splitlines()[1]
    module = spy.Module.load_from_source(device, "exp2_of_others", text)
    np.testing.assert_allclose(module.of_float(x.astype("f4")), np.exp2(x), rtol=1e-6)
    if "half" not in device.caps.scalars:
        return
    half = x.astype("f2")
    np.testing.assert_allclose(module.of_half(half), np.exp2(x), rtol=1e-6)
    np.testing.assert_allclose(module.of_halves(np.stack([half] * 3, 1)), np.stack([np.exp2(x)] * 3, 1), rtol=1e-6)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(module.rounded(x), np.exp2(half), rtol=1e-3)
    np.testing.assert_allclose(module.both(half, x), np.exp2(x) + np.exp2(2 * x), rtol=1e-6)


def test_slopes_with_floats_are_refused(device: spy.Device, module: spy.Module) -> None:
    if not device.backend.target.program or "double" not in device.caps.scalars:
        return
    at = spy.Tensor.from_numpy(device, np.linspace(0.1, 1, 5)).with_grads()
    result = spy.Tensor.empty_like(at).with_grads(grad_in=spy.Tensor.ones_like(at))
    for name in ("log2", "log10", "degrees", "radians"):
        with pytest.raises(spy.UnsupportedError, match=f"uses the derivative of {name}"):
            module[f"d_{name}"].bwds(at, _result=result)
    with pytest.raises(spy.UnsupportedError, match="uses getPi of"):
        module.pi(1.0)


@pytest.mark.parametrize("name", ["exp10", "sinpi", "cospi", "tanpi"])
def test_slang_has_no_derivative_of(device: spy.Device, name: str) -> None:
    text = f"[Differentiable] double f(double x) {{ return {name}(x); }}"
    with pytest.raises(spy.CompileError, match=f"non-backward-differentiable function `{name}`"):
        spy.Module.load_from_source(device, f"slope_of_{name}", text)


@needs("functions of doubles")
def test_gradients(device: spy.Device, module: spy.Module) -> None:
    torch = pytest.importorskip("torch")
    generator = np.random.default_rng(7)
    values = generator.uniform(0.3, 2, (2, 64))
    x, y = (spy.Tensor.from_numpy(device, v).with_grads() for v in values)
    seed = spy.Tensor.ones_like(x)
    result = spy.Tensor.empty_like(x).with_grads(grad_in=seed)
    module.all_of.bwds(x, y, _result=result)
    a, b = (torch.tensor(v, requires_grad=True) for v in values)
    (a.sin() * b.exp() + a.log() * a**b + torch.atan2(b, a) + a.tanh() * b.cos() + (b / 4).asin()).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), a.grad.numpy(), rtol=1e-13)
    np.testing.assert_allclose(y.grad.numpy(), b.grad.numpy(), rtol=1e-13)


def test_what_cannot_be_replaced_is_refused(device: spy.Device, module: spy.Module) -> None:
    x = np.linspace(0.1, 1, 5)
    np.testing.assert_allclose(module.single(x.astype("f4")), np.sin(x) + x**1.5, rtol=1e-4)
    if (
        "double" not in device.caps.scalars
        or not device.backend.target.program
        or device.backend.target.format != "spirv"
    ):
        return
    for name in ROUNDED:
        with pytest.raises(spy.UnsupportedError, match=f"uses {name} of double"):
            module[f"{name}_"](x)
    for name in ("sin", "exp2", "log10", "atan"):
        with pytest.raises(spy.UnsupportedError, match=rf"uses {name.replace('10', '')} of double"):
            module[f"{name}_"](x)
    result = spy.Tensor.zeros(device, 5, dtype="double")
    with pytest.raises(spy.UnsupportedError, match="pow of double"):
        module.pow_(x, x, _result=result)
    assert not result.numpy().any()


def test_constants_are_those_of_the_script() -> None:
    assert gen_double_constants.TARGET.read_text("utf-8") == gen_double_constants.text()

"""Several elements at a time on the CPU: which kernels, and that results are those of one element after another.

The expected values are NumPy's. A kernel whose elements depend on each other, or share memory, stays as it is: each
such test fails if the loop over its elements is marked as one of independent elements.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu import backend as cpu
from slangpy_rt.backends.cpu.compile import find_compiler
from tests.depth import one_in
from tests.lanes_off import without_lanes

pytestmark = pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
Array = npt.NDArray[Any]
# More than the elements of a vector several times, and no multiple of one; less than threads would share.
COUNT = 1003
SLANG = """
import slangpy_rt;
uniform float gain;
struct Body { float3 at; float mass; int id; }
float lower(float a, float b) { return min(a, b); }
float upper(float a, float b) { return max(a, b); }
float between(float x, float a, float b) { return clamp(x, a, b); }
double lower(double a, double b) { return min(a, b); }
double upper(double a, double b) { return max(a, b); }
float3 upper(float3 a, float3 b) { return max(a, b); }
[Differentiable] float mul(float a, float b) { return a * b; }
float scaled(float a) { return a * gain; }
float looped(float x) { float s = 0; for (int i = 0; i < 64; ++i) s += max(min(x * i, 1.0f), s * 0.5f); return s; }
float both(Tensor<float, 1> t, int i) { return t[max(i - 1, 0)] + 2 * t[min(i + 1, 1002)]; }
void put(RWTensor<float, 1> t, int i, float v) { t[i] = v; }
void count(RWTensor<uint, 1> t, int i) { t.add(i, 1u); }
void grow(inout float x, float by, out float before) { before = x; x += by; }
void step(inout Body b, float3 by) { b.at += by; b.mass *= 2; b.id += 1; }
float said(float x) { if (x < 3) printf("%f\\n", x); return x; }
float curve(float x) { return x > 0 ? log(1 + x) : exp(x) - 1; }
int many(int a, int b) { return a / b + a % b; }
bool odd(int a) { return (a & 1) != 0; }
float ends(float x) { float s = 0; int n = 0; while (s < 10 && n < 99) { s += x; ++n; } return s; }
"""


class Seen:
    """The C++ of the kernels that were compiled."""

    def __init__(self) -> None:
        self.codes: list[bytes] = []

    def wide(self) -> bool:
        """Whether the last kernel has a loop whose elements may run at the same time."""
        return b"#pragma omp simd\n" in self.codes[-1].rpartition(b"_spy_run(")[2]


@pytest.fixture(scope="module")
def seen() -> Iterator[Seen]:
    seen, real = Seen(), cpu.compile_library

    def compile_library(code: bytes, *more: Any) -> bytes:
        seen.codes.append(code)
        return real(code, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "compile_library", compile_library)
        yield seen


@pytest.fixture(scope="module")
def opened(seen: Seen) -> Iterator[spy.Device]:
    with spy.Device("cpu") as device, pytest.MonkeyPatch.context() as patch:
        without_lanes(device, patch)
        yield device


@pytest.fixture(scope="module")
def module(opened: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(opened, "test_simd", SLANG)


def tensor(device: spy.Device, values: Array, *more: Any) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, values, *more)


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def special(type_: type[np.floating[Any]]) -> tuple[Array, Array]:
    """All pairs of special values, often enough to fill vectors and what is left over."""
    info = np.finfo(type_)
    values = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1, -1, info.max, info.min, info.tiny, info.smallest_subnormal]
    a, b = np.meshgrid(np.array(values, type_), np.array(values, type_))
    return np.tile(a.ravel(), 3)[:-5], np.tile(b.ravel(), 3)[:-5]


@pytest.mark.parametrize("type_", [np.float32, np.float64])
def test_min_and_max_of_special_values(module: spy.Module, seen: Seen, type_: type[np.floating[Any]]) -> None:
    a, b = special(type_)
    for f, numpys in ((module.lower, np.fmin), (module.upper, np.fmax)):
        found, wanted = f(a, b), numpys(a, b)
        assert seen.wide()
        # Slang's prelude calls libm, which no compiler inlines.
        assert b"::fmin" not in seen.codes[-1] and b"::fmax" not in seen.codes[-1]
        np.testing.assert_array_equal(found, wanted)
        # Of two zeros either may be the result; every other sign is NumPy's.
        signed = ~np.isnan(wanted) & ((a != 0) | (b != 0))
        np.testing.assert_array_equal(np.signbit(found)[signed], np.signbit(wanted)[signed])
        # An element's result does not depend on its place.
        np.testing.assert_array_equal(np.signbit(found[:121]), np.signbit(found[121:242]))


def test_clamp_and_vectors_of_special_values(module: spy.Module) -> None:
    a, b = special(np.float32)
    np.testing.assert_array_equal(module.between(a, b, 1.0), np.fmin(np.fmax(a, b), np.float32(1)))
    v, w = np.stack([a, b, a], -1), np.stack([b, a, a], -1)
    np.testing.assert_array_equal(module.upper(v, w), np.fmax(v, w))


def test_loops_inside_of_elements(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    x = np.abs(random(COUNT))
    wanted = np.zeros(COUNT, np.float32)
    for i in range(64):
        wanted += np.maximum(np.minimum(x * np.float32(i), 1), wanted * np.float32(0.5))
    np.testing.assert_allclose(module.looped(x), wanted, rtol=2e-6)
    assert seen.wide()
    command = find_compiler()
    assert command is not None
    if command[0].endswith("g++"):
        flags = ["-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fopenmp-simd"]
        told = [*command, *flags, "-fopt-info-vec", "-x", "c++", "-S", "-o", "/dev/null", "-"]
        done = subprocess.run(told, input=seen.codes[-1], capture_output=True, check=True)
        # The outer loop: the inner one has a sum from step to step, and no other loop is in the text.
        assert b"loop vectorized" in done.stderr


def test_loops_that_end_at_different_times(module: spy.Module) -> None:
    x = np.linspace(0.05, 6, COUNT, dtype=np.float32)
    wanted = np.zeros(COUNT, np.float32)
    for _ in range(99):
        wanted = np.where(wanted < 10, wanted + x, wanted)
    np.testing.assert_array_equal(module.ends(x), wanted)


def test_branches(module: spy.Module) -> None:
    x = random(COUNT) * 4
    wide = x.astype(np.float64)
    np.testing.assert_allclose(module.curve(x), np.where(x > 0, np.log1p(np.abs(wide)), np.expm1(wide)), atol=4e-7)


def test_integers_and_bools(module: spy.Module) -> None:
    a, b = np.random.default_rng(0).integers(-1000, 1000, (2, COUNT), np.int32)
    b[b == 0] = 7
    quotient = np.trunc(a / b).astype(np.int32)
    np.testing.assert_array_equal(module.many(a, b), quotient + (a - quotient * b))
    np.testing.assert_array_equal(module.odd(a), (a & 1) != 0)


def test_a_global_variable(module: spy.Module, seen: Seen) -> None:
    x = random(COUNT)
    np.testing.assert_array_equal(module.scaled.set({"gain": 3.0})(x), x * np.float32(3))
    assert seen.wide()


OVERLAPS = {
    "in place": (slice(None), slice(None)),
    "one before": (slice(1, None), slice(None, -1)),
    "one behind": (slice(None, -1), slice(1, None)),
    "reversed": (slice(None, None, -1), slice(None)),
    "every second": (slice(None, 500), slice(None, 1000, 2)),
    "three before": (slice(3, 503), slice(0, 500)),
}


@pytest.mark.parametrize(
    "places",
    one_in(3, OVERLAPS.values()),
    ids=OVERLAPS,
)
def test_a_result_that_overlaps_an_argument(
    opened: spy.Device, module: spy.Module, places: tuple[slice, slice]
) -> None:
    source, to = places
    values = random(COUNT)
    held = tensor(opened, values)
    module.mul(held[source], 3.0, _result=held[to])
    wanted = values.copy()
    wanted[to] = values[source] * np.float32(3)
    np.testing.assert_array_equal(held.to_numpy(), wanted)


def test_rows_and_broadcasts(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    a, b = random(37, 53), random(53, 37, seed=1)
    wide, out = tensor(opened, random(37, 106, seed=2)), tensor(opened, np.zeros((37, 53), np.float32))
    module.mul(wide[:, ::2], tensor(opened, a), _result=out)
    np.testing.assert_array_equal(out.to_numpy(), wide.to_numpy()[:, ::2] * a)
    assert seen.wide()
    np.testing.assert_array_equal(module.mul(a, b[0].repeat(2)[:53]), a * b[0].repeat(2)[:53])
    np.testing.assert_array_equal(module.mul(a, a[:, :1]), a * a[:, :1])
    held = tensor(opened, a)
    module.mul(held[:, ::2], 2.0, _result=held[:, ::2])
    a[:, ::2] *= 2
    np.testing.assert_array_equal(held.to_numpy(), a)


def test_elements_that_read_their_neighbours(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    values, index = random(COUNT), np.arange(COUNT, dtype=np.int32)
    held = tensor(opened, values)
    module.both(held, index, _result=held)
    assert seen.wide()  # the argument is copied first
    wanted = values[np.maximum(index - 1, 0)] + 2 * values[np.minimum(index + 1, COUNT - 1)]
    np.testing.assert_allclose(held.to_numpy(), wanted, rtol=1e-6, atol=1e-6)


def test_what_a_function_writes_anywhere_is_no_vector(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    values, order = random(COUNT), np.random.default_rng(0).permutation(COUNT).astype(np.int32)
    held = tensor(opened, np.zeros(COUNT, np.float32))
    module.put(held, order, values)
    assert not seen.wide()
    wanted = np.zeros(COUNT, np.float32)
    wanted[order] = values
    np.testing.assert_array_equal(held.to_numpy(), wanted)


def test_atomic_additions_to_few_places(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    at = np.random.default_rng(0).integers(0, 5, COUNT).astype(np.int32)
    held = tensor(opened, np.zeros(5, np.uint32))
    module.count(held, at)
    assert not seen.wide()
    np.testing.assert_array_equal(held.to_numpy(), np.bincount(at, minlength=5))


def test_lines_of_printf(module: spy.Module, seen: Seen, capfd: pytest.CaptureFixture[str]) -> None:
    np.testing.assert_array_equal(module.said(np.arange(40, dtype=np.float32)), np.arange(40))
    assert not seen.wide()
    assert capfd.readouterr().out.split() == ["0.000000", "1.000000", "2.000000"]


def test_what_is_read_and_written(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    values, by = random(COUNT), random(COUNT, seed=1)
    held, before = tensor(opened, values), tensor(opened, np.zeros(COUNT, np.float32))
    module.grow(held, by, before)
    assert seen.wide()
    np.testing.assert_array_equal(before.to_numpy(), values)
    np.testing.assert_array_equal(held.to_numpy(), values + by)


def test_fields_of_structs(opened: spy.Device, module: spy.Module) -> None:
    by = random(COUNT, 3)
    at, mass = tensor(opened, random(COUNT, 3, seed=1), "float3"), tensor(opened, random(COUNT))
    number = np.arange(COUNT, dtype=np.int32)
    ids = tensor(opened, number)
    wanted = at.to_numpy() + by, mass.to_numpy() * 2, number + 1
    module.step({"at": at, "mass": mass, "id": ids}, by)
    for found, expected in zip((at, mass, ids), wanted, strict=True):
        np.testing.assert_array_equal(found.to_numpy(), expected)


def gradients(opened: spy.Device, f: Any, a: spy.Tensor, b: spy.Tensor, out: Array) -> None:
    result = f(a, b).with_grads()
    result.grad.copy_from_numpy(out)
    f.bwds(a, b, result)


def test_gradients_of_each_element(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    a, b, out = random(COUNT), random(COUNT, seed=1), random(COUNT, seed=2)
    x, y = tensor(opened, a).with_grads(), tensor(opened, b).with_grads()
    gradients(opened, module.mul, x, y, out)
    assert seen.wide()
    np.testing.assert_array_equal(x.grad.to_numpy(), out * b)
    np.testing.assert_array_equal(y.grad.to_numpy(), out * a)


@pytest.mark.parametrize("shape", one_in(3, [(1,), (1, 59), (17, 1)]), ids=["one", "columns", "rows"])
def test_gradients_that_elements_add_up(opened: spy.Device, module: spy.Module, shape: tuple[int, ...]) -> None:
    a, b, out = random(17, 59), random(*shape, seed=1), random(17, 59, seed=2)
    x, y = tensor(opened, a).with_grads(), tensor(opened, b).with_grads()
    gradients(opened, module.mul, x, y, out)
    np.testing.assert_array_equal(x.grad.to_numpy(), out * b)
    each = out.astype(np.float64) * a
    wanted = each.sum(tuple(d for d in range(2) if (1, *shape)[-2:][d] == 1), keepdims=True).reshape(shape)
    np.testing.assert_allclose(y.grad.to_numpy(), wanted, rtol=1e-4, atol=1e-4)


def test_gradients_in_one_buffer(opened: spy.Device, module: spy.Module, seen: Seen) -> None:
    a, out = random(COUNT), random(COUNT - 1, seed=2)
    x = tensor(opened, a).with_grads()
    gradients(opened, module.mul, x[1:], x[:-1], out)
    assert not seen.wide()
    wanted = np.zeros(COUNT, np.float32)
    wanted[1:] += out * a[:-1]
    wanted[:-1] += out * a[1:]
    np.testing.assert_allclose(x.grad.to_numpy(), wanted, rtol=1e-5, atol=1e-6)


TRIGONOMETRY = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]
ONE = [*TRIGONOMETRY, "exp", "exp2", "log", "log2", "log10", "sqrt", "rsqrt", "floor", "ceil", "trunc"]
NUMPYS: dict[str, Callable[..., Any]] = {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


def off(found: Array, wanted: Array) -> float:
    """Return the largest difference in units of the last place; infinite if NaN, infinities or signs of 0 differ."""
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float32)
    same = (found == rounded) & (np.signbit(found) == np.signbit(rounded)) | (np.isnan(found) & np.isnan(rounded))
    if same.all():
        return 0
    found, wanted, rounded = found[~same], wanted[~same], rounded[~same]
    if not (np.isfinite(found) & np.isfinite(rounded)).all() or (np.signbit(found) != np.signbit(rounded)).any():
        return float("inf")
    unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(np.float32).tiny)).astype(np.float64)
    return float((np.abs(found - wanted) / unit).max())


def arguments(count: int, seed: int) -> Array:
    """Floats with random bits, of moderate size, and special ones."""
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 2**32, count, np.uint32).view(np.float32)
    bits[np.isnan(bits)] = np.nan
    return np.concatenate([special(np.float32)[0], bits, generator.uniform(-100, 100, count).astype(np.float32)])


@pytest.fixture(scope="module")
def functions(opened: spy.Device) -> spy.Module:
    text = "".join(f"float of_{name}(float x) {{ return {name}(x); }}\n" for name in ONE)
    text += "float of_pow(float x, float y) { return pow(x, y); }\n"
    return spy.Module.load_from_source(opened, "test_simd_functions", text)


@pytest.mark.parametrize("name", one_in(5, ONE))
def test_functions_are_within_four_units(functions: spy.Module, seen: Seen, name: str) -> None:
    x = arguments(100_000, 0)
    found = getattr(functions, f"of_{name}")(x)
    assert seen.wide()
    with np.errstate(all="ignore"):
        assert off(found, NUMPYS.get(name, getattr(np, name, None))(x.astype(np.float64))) <= 4


def test_powers_are_within_four_units(functions: spy.Module) -> None:
    x, y = np.abs(arguments(100_000, 1)), arguments(100_000, 2)
    found = functions.of_pow(x, y)
    with np.errstate(all="ignore"):
        assert off(found, np.power(x.astype(np.float64), y.astype(np.float64))) <= 4

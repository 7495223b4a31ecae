"""Loops that end at different times for different elements, several elements at a time on the CPU.

Each function is one that cpp_masks writes a second form of. The expected values are NumPy's, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu import backend as cpu
from tests.conformance._random_loops import random_program
from tests.depth import one_in, random_cases
from tests.lanes_off import without_lanes

pytestmark = pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
Array = npt.NDArray[Any]
COUNT = 1003
SLANG = """
uniform float step;
struct Ray { float3 from; float2 along; int left; }
int halvings(float x) { int n = 0; while (x > 1) { x *= 0.5f; ++n; } return n; }
int collatz(int n) { int k = 0; while (n != 1 && k < 200) { n = (n & 1) != 0 ? 3 * n + 1 : n >> 1; ++k; } return k; }
float early(float x) { for (int i = 0; i < 50; ++i) { x = x * 1.5f + 1; if (x > 100) return x; } return -x; }
float later(float x)
{
    if (x < 0)
        return -1;
    float s = 0;
    for (int i = 0; i < 40; ++i)
    {
        if (s > 20) { s = s + 1000; break; }
        s += x;
        if (s > 10) s += 0.5f;
    }
    if (s > 1000) return s - 1000;
    return s;
}
int nested(int a, int b)
{
    int n = 0;
    for (int i = 0; i < a; ++i)
        for (int j = i; j < b; ++j)
        {
            if (j == 7) break;
            n += i * j + 1;
        }
    return n;
}
float3 inner(float3 v)
{
    for (int n = 0; n < 30; ++n)
    {
        float s = dot(v, v);
        if (s < 1) break;
        v = v * 0.75f - float3(0, s > 4 ? 0.25f : 0.125f, 0);
    }
    return v;
}
uint ones(uint x) { uint n = 0; while (x != 0) { n += x & 1u; x >>= 1; } return n; }
Ray moved(float x, float y)
{
    Ray r = { float3(x, y, 0), float2(1, -1), 60 };
    while (r.from.x < 5 && r.left > 0) { r.from.xy += 0.5f * r.along; --r.left; if (r.from.y < -3) r.along.y = 1; }
    return r;
}
float moved_x(float x, float y) { Ray r = moved(x, y); return r.from.x + r.from.y * 3 + r.left * 7; }
void both(float x, out float s, inout int n) { s = 0; while (s < x) { s += 0.75f; n += 2; } }
float by_step(float x) { int n = 0; while (x > 0 && n < 100) { x -= step; ++n; } return n; }
float zero(float x) { float s = -0.0f; int n = 0; while (n < x) { s = s * 1; ++n; } return s; }
float never(float x) { float y = x; while (y == y && abs(y) < 1e30f) { y = y * y + 1; } return y; }
float table(float x) { float t[4] = { 1, 2, 3, 4 }; int n = 0; while (x > 1) { x *= 0.5f; ++n; } return t[n & 3]; }
static int seen;
int marked(int x) { seen = 1; while (x > 0) { if (x == 3) seen = 5; x -= 2; } return seen; }
int counted(int x)
{
    int i = 7, s = 0;
    while (x > 3)
    {
        if ((x & 1) == 1) { for (i = 0; i < 5; ++i) s += i * x; }
        x -= 3;
    }
    return s * 10 + i;
}
int shared(int x)
{
    int i = 0, s = 0;
    while (x > 9) x -= 3;
    if ((x & 1) == 1) { for (; i < 5; ++i) s += i * x; } else { for (; i < 6; ++i) s -= i; }
    return s;
}
[Differentiable] float curve(float x)
{
    float y = x;
    [MaxIters(20)]
    for (int i = 0; i < 20; ++i) { if (y > 4) break; y = y * x + 0.5f; }
    return y;
}
"""


@pytest.fixture(scope="module")
def codes() -> Iterator[list[bytes]]:
    codes: list[bytes] = []
    real = cpu.compile_library

    def compile_library(code: bytes, *more: Any) -> bytes:
        codes.append(code)
        return real(code, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "compile_library", compile_library)
        yield codes


@pytest.fixture(scope="module")
def opened(codes: list[bytes]) -> Iterator[spy.Device]:
    with spy.Device("cpu") as device, pytest.MonkeyPatch.context() as patch:
        without_lanes(device, patch)
        yield device


@pytest.fixture(scope="module")
def module(opened: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(opened, "test_masks", SLANG)


def masked(codes: list[bytes]) -> bool:
    """Whether the last kernel has a second form."""
    return b"_spy_wide::_spy_element" in codes[-1]


def each(f: Callable[..., Any], *arguments: Array) -> Array:
    """NumPy's numbers of each element by itself."""
    with np.errstate(all="ignore"):
        return np.array([f(*(a[k] for a in arguments)) for k in range(len(arguments[0]))])


def halvings(x: Any) -> int:
    n = 0
    while x > 1:
        x, n = x / 2, n + 1
    return n


def collatz(n: Any) -> int:
    n, k = int(n), 0
    while n != 1 and k < 200:
        n, k = 3 * n + 1 if n & 1 else n >> 1, k + 1
    return k


def early(x: Any) -> Any:
    for _ in range(50):
        x = np.float32(x * np.float32(1.5) + np.float32(1))
        if x > 100:
            return x
    return -x


def later(x: Any) -> Any:
    if x < 0:
        return np.float32(-1)
    s = np.float32(0)
    for _ in range(40):
        if s > 20:
            s += np.float32(1000)
            break
        s += x
        if s > 10:
            s += np.float32(0.5)
    return s - np.float32(1000) if s > 1000 else s


def nested(a: Any, b: Any) -> int:
    n = 0
    for i in range(a):
        for j in range(i, b):
            if j == 7:
                break
            n += i * j + 1
    return n


def moved(x: Any, y: Any) -> float:
    along, left = -1.0, 60
    while x < 5 and left > 0:
        x, y, left = x + np.float32(0.5), y + np.float32(0.5) * np.float32(along), left - 1
        if y < -3:
            along = 1
    return float(x + y * np.float32(3) + left * np.float32(7))


def floats(low: float, high: float, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(low, high, COUNT).astype(np.float32)


def integers(low: int, high: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(low, high, COUNT).astype(np.int32)


CASES: dict[str, tuple[Callable[..., Any], tuple[Array, ...]]] = {
    "halvings": (halvings, (floats(0, 5000),)),
    "later": (later, (floats(-1, 3),)),
    "early": (early, (floats(-3, 90),)),
    "collatz": (collatz, (integers(1, 999),)),
    "nested": (nested, (integers(0, 12), integers(0, 12, 1))),
    "moved_x": (moved, (floats(-9, 6), floats(-3, 3, 1))),
    "ones": (lambda x: bin(int(x)).count("1"), (integers(0, 2**31 - 1).astype(np.uint32),)),
}


@pytest.mark.parametrize("name", one_in(3, CASES))
def test_elements_end_when_they_would_alone(module: spy.Module, codes: list[bytes], name: str) -> None:
    f, arguments = CASES[name]
    found = getattr(module, name)(*arguments)
    assert masked(codes)
    np.testing.assert_allclose(found, each(f, *arguments), rtol=1e-5, atol=1e-5)
    # All alike, and none: counts below, at and above the lanes of a vector.
    for count in (0, 1, 7, 8, 15, 16, 17, 64):
        few = tuple(a[:count] for a in arguments)
        np.testing.assert_array_equal(getattr(module, name)(*few)[:count], found[:count])


def test_vectors(module: spy.Module, codes: list[bytes]) -> None:
    values = np.random.default_rng(0).normal(0, 3, (COUNT, 3)).astype(np.float32)
    wanted, running = values.astype(np.float64), np.ones(COUNT, bool)
    for _ in range(30):
        s = (wanted * wanted).sum(-1)
        running &= s >= 1
        down = np.where(s > 4, 0.25, 0.125)
        wanted = np.where(running[:, None], wanted * 0.75 - down[:, None] * np.array([0, 1, 0]), wanted)
    off = np.abs(module.inner(values) - wanted).max(-1)
    assert masked(codes)
    # A sum that rounds to the other side of 1 or 4 is another path.
    assert np.mean(off > 1e-5) < 0.01


def test_outputs_and_what_is_read_and_written(opened: spy.Device, module: spy.Module, codes: list[bytes]) -> None:
    x, n = floats(-1, 9), integers(0, 99)
    steps = np.maximum(np.ceil(x.astype(np.float64) / 0.75), 0)
    s, held = spy.Tensor.empty(opened, COUNT, "float"), spy.Tensor.from_numpy(opened, n)
    module.both(x, s, held)
    assert masked(codes)
    np.testing.assert_array_equal(s.to_numpy(), 0.75 * steps)
    np.testing.assert_array_equal(held.to_numpy(), n + 2 * steps)


def test_a_result_in_the_place_of_an_argument(opened: spy.Device, module: spy.Module) -> None:
    x = floats(-3, 90)
    held = spy.Tensor.from_numpy(opened, x)
    module.early(held, _result=held)
    np.testing.assert_allclose(held.to_numpy(), each(early, x), rtol=1e-5)


def test_a_global_variable(module: spy.Module, codes: list[bytes]) -> None:
    x = floats(-1, 9)
    found = module.by_step.set({"step": 0.5})(x)
    assert masked(codes)
    np.testing.assert_array_equal(found, np.maximum(np.ceil(x.astype(np.float64) * 2), 0))


def test_special_values(module: spy.Module) -> None:
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, 2, 0.5], np.float32), 9)
    with np.errstate(all="ignore"):
        found = module.never(x)
        assert (np.isnan(found) == np.isnan(x)).all()
        assert (found[~np.isnan(x)] > 1e30).sum() == 54
    zero = module.zero(np.abs(floats(0, 9)))
    assert (zero == 0).all() and np.signbit(zero).all()


def test_what_has_no_second_form(module: spy.Module, codes: list[bytes]) -> None:
    x = floats(0, 5000)
    np.testing.assert_array_equal(module.table(x), each(halvings, x) % 4 + 1)
    assert not masked(codes)


def test_static_variables_and_counters_that_are_read_later(module: spy.Module) -> None:
    x = integers(-3, 40)

    def counted(x: Any) -> int:
        i, s = 7, 0
        while x > 3:
            if x & 1:
                s, i = s + 10 * int(x), 5
            x -= 3
        return s * 10 + i

    np.testing.assert_array_equal(
        module.marked(x), each(lambda x: 5 if x > 0 and x % 2 else 1, x) * (x != 1) + (x == 1)
    )
    np.testing.assert_array_equal(module.counted(x), each(counted, x))

    def shared(x: Any) -> int:
        while x > 9:
            x -= 3
        return 10 * int(x) if x & 1 else -15

    np.testing.assert_array_equal(module.shared(x), each(shared, x))


def test_gradients(opened: spy.Device, module: spy.Module) -> None:
    x = floats(0.2, 3)
    y, d = x.astype(np.float64), np.ones(COUNT)
    wide, running = y.copy(), np.ones(COUNT, bool)
    for _ in range(20):
        running &= y <= 4
        d = np.where(running, d * wide + y, d)
        y = np.where(running, y * wide + 0.5, y)
    held = spy.Tensor.from_numpy(opened, x).with_grads()
    result = module.curve(held).with_grads()
    result.grad.copy_from_numpy(np.ones(COUNT, np.float32))
    module.curve.bwds(held, result)
    off = np.abs(held.grad.to_numpy() - d) / np.maximum(1, np.abs(d))
    assert np.mean(off > 1e-3) < 0.01


@random_cases
@pytest.mark.parametrize("seed", one_in(24, range(24)))
def test_random_loops(opened: spy.Device, codes: list[bytes], seed: int) -> None:
    programs = [random_program(f"f{k}", 100 * seed + k) for k in range(6)]
    module = spy.Module.load_from_source(opened, f"random_loops_{seed}", "".join(slang for slang, _ in programs))
    a, b = integers(-50, 50)[:203], integers(-50, 50, 1)[:203]
    forms = 0
    for k, (slang, f) in enumerate(programs):
        found = module[f"f{k}"](a, b)
        forms += masked(codes)
        np.testing.assert_array_equal(found, [f(int(x), int(y)) for x, y in zip(a, b, strict=True)], slang)
    # Slang leaves a loop out if it does nothing.
    assert forms >= 3

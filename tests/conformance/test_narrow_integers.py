"""Arithmetic of 8-bit and 16-bit integers wraps between operators on every device, as NumPy's does.

The expressions are random; NumPy evaluates them on arrays of the same type.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.slang.corrections.narrow_integers import with_narrow_integers
from tests.conformance._narrow_integers import FUNCTIONS, OPERANDS, STRUCTS, TYPES
from tests.depth import needs, sampled

pytestmark = sampled(2)

EXPRESSIONS = 40
Array = npt.NDArray[Any]


def expression(numbers: random.Random, name: str, depth: int) -> tuple[str, str]:
    """The same random expression of ``a`` and ``b`` in Slang and in Python."""
    if depth == 0:
        if numbers.random() < 0.7:
            return (letter := numbers.choice("ab"), letter)
        value = numbers.randint(1, 100)
        return f"{name}({value})", f"T({value})"
    x, y = expression(numbers, name, depth - 1), expression(numbers, name, numbers.randrange(depth))
    match numbers.randrange(8):
        case 0 | 1 | 2:
            sign = numbers.choice("+-*")
            return f"({x[0]} {sign} {y[0]})", f"({x[1]} {sign} {y[1]})"
        case 3:
            sign = numbers.choice("-~")
            return f"({sign}{x[0]})", f"({sign}{x[1]})"
        case 4:
            sign = numbers.choice(["<<", ">>"])
            count = numbers.randint(1, 5)
            return f"({x[0]} {sign} {count})", f"({x[1]} {sign} T({count}))"
        case 5:
            sign = numbers.choice("&|^")
            return f"({x[0]} {sign} {y[0]})", f"({x[1]} {sign} {y[1]})"
        case 6:
            value = numbers.randint(2, 9)
            # C rounds quotients towards zero.
            return f"({x[0]} / {name}({value}))", f"(np.trunc({x[1]} / {value}).astype(T))"
        case _:
            return f"({x[0]} > {y[0]} ? {x[0]} : {y[0]})", f"np.where({x[1]} > {y[1]}, {x[1]}, {y[1]})"


def data(code: str) -> tuple[Array, Array]:
    numbers = np.random.default_rng(5)
    info = np.iinfo(code)
    a, b = (numbers.integers(info.min, info.max, 300, endpoint=True).astype(code) for _ in range(2))
    a[:2], b[:2] = (200 % (info.max + 1), info.min), (100, info.max)
    return a, b


def own(device: spy.Device, name: str) -> None:
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    if device.name == "rhi-cuda":
        pytest.skip("slang-rhi compiles CUDA by itself, whose operators promote to int")


def overflows(device: spy.Device, name: str) -> None:
    own(device, name)
    if device.backend.target.format == "hlsl" and name == "int16_t":
        pytest.skip("DXC assumes that signed integers do not overflow, and has no flag against it")


@pytest.mark.parametrize("name", TYPES)
def test_random_expressions(device: spy.Device, name: str) -> None:
    overflows(device, name)
    numbers = random.Random(name)
    pairs = [expression(numbers, name, numbers.randint(2, 4)) for _ in range(EXPRESSIONS)]
    text = "".join(f"{name} f{k}({name} a, {name} b) {{ return {slang}; }}\n" for k, (slang, _) in enumerate(pairs))
    stores = " ".join(f"r[{k}] = f{k}(a, b);" for k in range(EXPRESSIONS))
    text += f"void all({name} a, {name} b, out {name} r[{EXPRESSIONS}]) {{ {stores} }}\n"
    module = spy.Module.load_from_source(device, f"narrow_{name}", text)
    a, b = data(TYPES[name])
    result = spy.Tensor.empty(device, a.shape, f"{name}[{EXPRESSIONS}]")
    module.all(a, b, result)
    found = result.to_numpy()
    with np.errstate(over="ignore"):
        for k, (slang, python) in enumerate(pairs):
            expected = eval(python, {"a": a, "b": b, "T": a.dtype.type, "np": np})
            np.testing.assert_array_equal(found[:, k], expected, slang)


@needs("corrected code")  # NVIDIA's drivers negate behind the conversion
@pytest.mark.parametrize("name", ["int8_t", "int16_t"])
def test_negated_least(device: spy.Device, name: str) -> None:
    """The least number is its own negative, whatever the result is converted to or compared with."""
    own(device, name)
    text = """
int wide(NAME a) { return int(-a); }
float real(NAME a) { return float(-a); }
int absolute(NAME a) { return int(abs(a)); }
bool less(NAME a, NAME b) { return -a < b; }
int3 rows(vector<NAME, 3> a) { return int3(-a); }
"""
    module = spy.Module.load_from_source(device, f"negated_{name}", text.replace("NAME", name))
    info = np.iinfo(TYPES[name])
    a = np.arange(info.min, info.max + 1).astype(TYPES[name])
    b = np.resize(np.array([info.min, -1, 0, 1, info.max, 5, -77], a.dtype), a.shape)
    b[:2] = 0, -1
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(module.wide(a), (-a).astype(np.int32))
        np.testing.assert_array_equal(module.real(a), (-a).astype(np.float32))
        np.testing.assert_array_equal(module.absolute(a), abs(a).astype(np.int32))
        np.testing.assert_array_equal(module.less(a, b), -a < b)
        rows = np.stack([a, b, a[::-1]], -1)
        np.testing.assert_array_equal(module.rows(rows), (-rows).astype(np.int32))


@sampled(8)
@pytest.mark.parametrize("name", TYPES)
def test_functions(device: spy.Device, name: str) -> None:
    overflows(device, name)
    text = STRUCTS + FUNCTIONS
    # The tests write HLSL of kernels for slang-rhi's Vulkan, and HLSL has no pointers.
    if device.backend.target.format not in ("cpp", "cuda"):
        text = text.replace("Ptr<NAME> p", "inout NAME p").replace("*p", "p").replace("&c", "c")
    module = spy.Module.load_from_source(device, f"narrow_functions_{name}", text.replace("NAME", name))
    a, b = data(TYPES[name])
    kind = a.dtype.type
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(module.less(a, b), a + b < b)
        wide = (a * b).astype(np.int32) + (-a).astype(np.int32) + (~b).astype(np.int32)
        np.testing.assert_array_equal(module.wide(a, b), wide)
        np.testing.assert_array_equal(module.real(a, b), (a - b).astype(np.float32) + (a << kind(3)))
        np.testing.assert_array_equal(module.half_of_sum(a, b), np.trunc((a + b) / 2).astype(kind))
        x = a + b
        y = b * x
        np.testing.assert_array_equal(module.members(a, b), (-x + (b - kind(1)) + y) >> kind(1))
        np.testing.assert_array_equal(module.by_pointer(a, b), (a * b) >> kind(2))
        total = a.copy()
        for _ in range(5):
            total = total * b + a
            total = np.where(total + a > b, total >> kind(1), total)
        np.testing.assert_array_equal(module.loop(a, b), total)
        three = np.stack([a, b, b[::-1]], 1), np.stack([b, a, a[::-1]], 1)
        np.testing.assert_array_equal(module.rows(*three), (-three[0] * three[1] + ~three[1]) >> kind(1))
        doubled = (a + a).astype(np.float32)
        other = module.other(a, np.float32(1.5), spy.float3(0, 2, 0))
        np.testing.assert_array_equal(other, -3 + 2 * (doubled - np.float32(1.5)))


@sampled(12)
def test_operands(device: spy.Device) -> None:
    own(device, "uint8_t")
    module = spy.Module.load_from_source(device, "narrow_operands", OPERANDS)
    k = 7
    np.testing.assert_array_equal(module.constructed((1, 2, 3), k), [2, 2, 2 * k])
    np.testing.assert_array_equal(module.converted(1.5, 3, k), [-1.5 + 3 + k] * 3)
    assert module.called((1.5, 2.5), k) == 2 * 1.5 * 2.5 + k
    x = np.array([1, 200, 3], np.uint8)
    minus = -np.array([k, k, 1]).astype(np.uint8)
    np.testing.assert_array_equal(module.narrow(x, k), minus - ~x[::-1] * np.uint8(k))
    assert module.elements(5, k) == 6 - (k - 1) + 5 + 5
    assert module.widest(5, k) == -5 + (k + 1) - 5
    assert module.nested(1.5, k) == -1.5 + 1.5 + 1.5
    assert module.flags(True, k) is (False | (k > 3) & True ^ (k != 1))
    y = np.array([1, 2, 3], np.int32)
    np.testing.assert_array_equal(module.bits(y, k), ~y & -k | ~(y ^ y) << 2)


@pytest.mark.parametrize("form", ["cpp", "cuda"])
def test_text(form: str) -> None:
    prelude = "using namespace SLANG_PRELUDE_NAMESPACE;\n#endif\n"
    wide = f"{prelude}static int f_0(int a_0, int b_0)\n{{\n    return - a_0 * b_0;\n}}\n".encode()
    assert with_narrow_integers(wide, form) == wide
    narrow = (
        f"{prelude}struct P_0\n{{\n    uint8_t * x_0;\n    P_0 * next_0;\n}};\n"
        "static uint8_t f_0(P_0 * p_0, uint8_t a_0)\n{\n"
        '    uint8_t * q_0 = p_0->x_0 + int(1);\n    g_0("a - b (~c", - *q_0);\n'
        "    int r_0 = i_0 - 1ULL;\n    return - ~h_0(a_0)[int(2)].y_0 * a_0 - (- a_0) << int(1);\n}\n"
    ).encode()
    found = with_narrow_integers(narrow, form).decode()
    assert found.endswith(
        "struct P_0\n{\n    uint8_t * x_0;\n    P_0 * next_0;\n};\n"
        "static uint8_t f_0(P_0 * p_0, uint8_t a_0)\n{\n"
        '    uint8_t * q_0 = p_0->x_0 + int(1);\n    g_0("a - b (~c", _spy_negative(*q_0));\n'
        "    int r_0 = i_0 - 1ULL;\n    return _spy_negative(_spy_complement(h_0(a_0)[int(2)].y_0))"
        " *_spy_product()* a_0 -_spy_difference()- (_spy_negative(a_0)) <<_spy_shift_left()<< int(1);\n}\n"
    )
    assert found.startswith(prelude)

"""Functions of floats in lanes against NumPy in double: within 4 ULP, with the zeros, infinities and NaN of C."""

from __future__ import annotations

import numpy as np
import pytest

from tests.depth import one_in
from tests.lanes._kernels import Kernels

pytest.importorskip("llvmlite")

f32 = np.float32
ONE = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt,
}  # fmt: skip
TWO = {"pow": np.power, "atan2": np.arctan2}
CODES = {
    "sin": 13, "cos": 14, "tan": 15, "asin": 16, "acos": 17, "atan": 18, "sinh": 19, "cosh": 20, "tanh": 21,
    "asinh": 22, "acosh": 23, "atanh": 24, "exp": 27, "log": 28, "exp2": 29, "log2": 30, "sqrt": 31, "atan2": 25,
    "pow": 26,
}  # fmt: skip
EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 2, -2, 3, -3, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 88.7,
     -104, np.pi, np.pi / 2, 1e-8, 1e-4, 89, -103, 128, -149, 0.999999, 1.0000001, 16777216, 4096, 4097, 65536.5],
    f32,
)  # fmt: skip


def text(name: str, operands: int) -> str:
    """A kernel of one instruction of GLSL.std.450: Slang's own functions would compute some of them in other ways."""
    parameters = ", ".join(f"float x{k}" for k in range(operands))
    values = " ".join(f"$x{k}" for k in range(operands))
    loads = ", ".join(f"{'ab'[k]}[thread.x]" for k in range(operands))
    return f"""
float call({parameters})
{{
    return spirv_asm {{ result:$$float = OpExtInst glsl450 {CODES[name]} {values} }};
}}
[shader("compute")] [numthreads(64, 1, 1)]
void main_kernel(uint3 thread : SV_DispatchThreadID, uniform float *a, uniform float *b, uniform float *c)
{{
    c[thread.x] = call({loads});
}}
"""


def values(count: int, seed: int) -> np.ndarray:
    """Floats of all sizes, and more of those near 1."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 1 << 32, count, np.uint32).view(f32)
    near = random.uniform(-4, 4, count).astype(f32)
    return np.concatenate([bits, near, near * f32(20), near / f32(4)])


def compare(found: np.ndarray, exact: np.ndarray, *arguments: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        expected = exact.astype(f32)
        size = np.maximum(np.abs(exact), 2.0**-126)
        ulp = 2.0 ** (np.floor(np.log2(np.where(np.isfinite(size), size, 1))) - 23)
        wrong = np.abs(found.astype(float) - exact) > 4 * ulp
    same = (np.isnan(found) & np.isnan(expected)) | (found == expected)
    both = np.isfinite(found) & np.isfinite(expected)
    bad = ~same & (~both | wrong) | (expected == 0) & (np.signbit(found) != np.signbit(expected)) & (found == 0)
    where = np.nonzero(bad)[0][:5]
    assert not bad.any(), [(*(x[k] for x in arguments), found[k], expected[k]) for k in where]


def padded(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.full(-len(x) % 64, 1, f32)])


@pytest.mark.parametrize("name", one_in(3, ONE))
def test_functions_of_one_number(name: str) -> None:
    a = padded(np.concatenate([EDGES, values(20000, 1)]))
    c = np.zeros_like(a)
    Kernels(text(name, 1)).run("main_kernel", (len(a) // 64, 1, 1), a, a, c, width=16)
    with np.errstate(all="ignore"):
        compare(c, ONE[name](a.astype(np.longdouble)).astype(float), a)


@pytest.mark.parametrize("name", TWO)
def test_functions_of_two_numbers(name: str) -> None:
    edges = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1)
    a, b = (padded(np.concatenate([edges[k], values(20000, k)])) for k in range(2))
    if name == "pow":
        b[len(edges[0]) :] = np.clip(b[len(edges[0]) :], -8, 8)
    c = np.zeros_like(a)
    Kernels(text(name, 2)).run("main_kernel", (len(a) // 64, 1, 1), a, b, c, width=16)
    with np.errstate(all="ignore"):
        compare(c, TWO[name](a.astype(np.longdouble), b.astype(np.longdouble)).astype(float), a, b)

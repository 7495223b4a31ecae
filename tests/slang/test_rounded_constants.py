"""Constants of double that Slang rounds to float, in the text for targets that no machine here may run."""

from __future__ import annotations

import re

import pytest

from slangpy_rt.core.target import Target
from slangpy_rt.slang.corrections.rounded_constants import with_constants
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session

FUNCTIONS = """
double scalars(double x) { return exp10(x) + sinpi(x) + cospi(x) + tanpi(x); }
double3 vectors(double3 x) { return exp10(x) + sinpi(x) + cospi(x) + tanpi(x); }
double4x4 matrices(double4x4 x) { return exp10(x); }
[Differentiable] double slope(double x) { return exp2(x) + log2(x) + log10(x) + degrees(x) + radians(x); }
[Differentiable] double2 slopes(double2 x) { return exp2(x) + log2(x) + log10(x) + degrees(x) + radians(x); }
[Differentiable] double2x2 slopes_of(double2x2 x) { return exp2(x) + log2(x) + log10(x) + degrees(x) + radians(x); }
[Differentiable] double once(double x) { return fwd_diff(slope)(diffPair(x, 1.0L)).d; }
[Differentiable] double once3(double x) { return fwd_diff(slopes)(diffPair(double2(x), double2(1.0L))).d.x; }
float floats(float x) { return exp10(x) + sinpi(x); }
"""
KERNEL = """import user;
[shader("compute")] [numthreads(1, 1, 1)] void _spy_kernel(uniform double* at)
{
    at[0] = scalars(at[1]) + vectors(double3(at[2])).x + matrices(double4x4(at[3]))[0][0] + floats(float(at[4]));
    at[5] = fwd_diff(slope)(diffPair(at[6], 1.0L)).d + fwd_diff(slopes)(diffPair(double2(at[6]), double2(1.0L))).d.x;
    var m = diffPair(double2x2(at[7]));
    bwd_diff(slopes_of)(m, double2x2(1.0L));
    at[8] = m.d[0][0] + fwd_diff(slopes_of)(diffPair(double2x2(at[7]), double2x2(1.0L))).d[0][0];
    var twice = diffPair(at[9]);
    bwd_diff(once)(twice, 1.0L);
    bwd_diff(once3)(twice, 1.0L);
    at[10] = twice.d + fwd_diff(once)(twice).d + fwd_diff(once3)(twice).d;
}
"""
ROUNDED = (
    rb"3\.14159274101257324|2\.30258512496948242|0\.69314718246459961|57\.29578018188476562|0\.01745329238474369"
)


@pytest.fixture(scope="module")
def code() -> bytes:
    session = Session(Library(None), Target("cuda", "", "value"), (shader_directory(),))
    session.load_module("user", "user.slang", FUNCTIONS)
    return session.compile(KERNEL, "kernel", "_spy_kernel").code


def test_cuda_has_no_rounded_constant_of_double(code: bytes) -> None:
    assert re.findall(rb"(?:%b)\b" % ROUNDED, code) == []
    for name in (b"exp10", b"sinpi", b"cospi", b"tanpi"):
        # The template, and calls: one of a scalar, three for components; of float none.
        calls = 8 if name == b"exp10" else 4
        assert len(re.findall(rb"_spy_%b<double>\(" % name, code)) == calls


@pytest.mark.parametrize(
    "body",
    [
        "return (F64_exp((x_0 * 2.5)));",
        "return F64_exp(x_0) * 2.30258512496948242;",
        "return (F64_exp((y_0 * 2.30258512496948242)));",
        "double t = x_0; return (F64_exp((t * 2.30258512496948242)));",
        "return 2.0 * (F64_exp((x_0 * 2.30258512496948242)));",
    ],
)
def test_a_user_s_function_of_the_name_is_left(body: str) -> None:
    code = f"double exp10_0(double x_0)\n{{\n    {body}\n}}\n".encode()
    assert with_constants(code) == (code, False)

"""Functions of double that HLSL would narrow to float in silence: Slang's text is read as DXC warns of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.slang.corrections.hlsl_doubles import narrows_double
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session
from tests.dxc import OPTIONS, Dxc, DxcError

# Numbers of parameters.
INTRINSICS = {
    1: "abs acos asin atan ceil cos cosh degrees exp exp2 floor frac log log10 log2 radians rcp round rsqrt saturate "
    "sign sin sinh sqrt tan tanh trunc isnan isinf isfinite",
    2: "atan2 fmod ldexp max min pow step",
    3: "clamp fma lerp mad smoothstep",
}
OF_VECTORS = {1: "length normalize", 2: "distance cross reflect"}
# Of a double x_0, a float f_0 and a double3 v_0: the expression, and whether it narrows.
EXPRESSIONS = {
    "sin(f_0)": "", "sin(x_0)": "sin", "sin(float(x_0))": "", "sin(float(x_0) * 2.0)": "",
    "sin(f_0 + x_0)": "sin", "pow(f_0, x_0)": "pow", "sin(table_0[int(x_0)])": "", "sin(wide_0[int(f_0)])": "sin",
    "cos(abs(x_0))": "cos", "cos(abs(f_0))": "", "exp(v_0.y)": "exp", "exp(v_0).y": "exp",
    "exp((vector<float,3>)v_0).y": "", "exp((vector<float,3>)(v_0 * x_0)).y": "",
    "exp((vector<double,3>)f_0).y": "exp", "log(double(f_0))": "log",
    "floor(narrow_0(x_0))": "", "floor(widen_0(f_0))": "floor", "sqrt(s_0.near_0)": "", "sqrt(s_0.far_0)": "sqrt",
    "double(sin(f_0)) + x_0": "", "min(x_0, max(x_0, 1.0L))": "", "log2(asdouble(1u, 2u))": "log2",
    "tan(f_0) + tan(x_0)": "tan",
}  # fmt: skip
TEXT = """struct S_0 {{ float near_0; double far_0; }};
RWByteAddressBuffer o : register(u0);
float narrow_0(double x_1) {{ return float(x_1); }}
double widen_0(float f_1) {{ return double(f_1); }}
[numthreads(1, 1, 1)] void _spy_kernel(uint3 t : SV_DispatchThreadID)
{{
    S_0 s_0;
    float table_0[int(4)];
    double wide_0[int(4)];
    for (int i = 0; i < 4; ++i) {{ table_0[i] = o.Load<float>(4 * i); wide_0[i] = o.Load<double>(8 * i); }}
    double x_0 = o.Load<double>(8 * t.x);
    float f_0 = o.Load<float>(4 * t.x);
    vector<double,3> v_0 = vector<double,3>(x_0, x_0 + 1.0L, x_0);
    s_0.near_0 = f_0;
    s_0.far_0 = x_0;
    double y;
    y = {};
    o.Store<double>(0, y);
}}
"""


def narrowed(dxc: Dxc, text: str) -> bool:
    """Whether DXC warns that an argument is narrowed."""
    options = tuple(option for option in OPTIONS if option != "-no-warnings")
    try:
        dxc.compile(text, (*options, "-Wconversion", "-WX"))
    except DxcError as error:
        # The other one, "implicit conversion loses floating-point precision", is of casts, which are meant.
        assert "[-Werror,-W" in str(error), error
        return "conversion from larger type" in str(error)
    return False


def calls() -> Iterator[tuple[str, str]]:
    for vectors, table in ((False, INTRINSICS), (True, OF_VECTORS)):
        for count, names in table.items():
            for name in names.split():
                arguments = ", ".join(["v_0" if vectors else "x_0"] * count)
                yield name, f"{name}({arguments})" + (".x" if name in ("normalize", "cross", "reflect") else "")


@pytest.mark.parametrize(("name", "call"), list(calls()))
def test_of_each_function(dxc: Dxc, name: str, call: str) -> None:
    text = TEXT.format(call)
    assert narrows_double(text.encode()) == (name if narrowed(dxc, text) else "")


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_of_expressions(expression: str) -> None:
    assert narrows_double(TEXT.format(expression).encode()) == EXPRESSIONS[expression]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_dxc_says_so_too(dxc: Dxc, expression: str) -> None:
    assert narrowed(dxc, TEXT.format(expression)) == bool(EXPRESSIONS[expression])


def test_a_device_without_pointers_refuses_it() -> None:
    session = Session(Library(), Target("hlsl", "sm_6_6", "handle"), (shader_directory(),))
    head = '[shader("compute")] [numthreads(1, 1, 1)] void run(uint3 t : SV_DispatchThreadID)\n{ double x = t.x; '
    text = head + "float y = BODY; if (y > 1) AllMemoryBarrier(); }"
    session.compile(text.replace("BODY", "sin(float(x)) + float(abs(x))"), "fine", "run")
    with pytest.raises(UnsupportedError) as caught:
        session.compile(text.replace("BODY", "float(sin(x))"), "narrowing", "run")
    assert not isinstance(caught.value, CompileError)
    assert str(caught.value) == (
        "the function uses sin of double, which HLSL has for floats alone. Use float, or a device of type vulkan, "
        "cuda or cpu."
    )

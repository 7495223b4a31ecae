"""Finds constants of double that Slang 2026.12 rounds to float, by the functions of its core module that hold them.

``exp10`` of double is ``exp(x * ln10)``; ``sinpi``, ``cospi`` and ``tanpi`` multiply by ``T.getPi()``, as do
``degrees`` and ``radians`` in C++ and CUDA; derivatives contain ln(2), ln(10) and the factors of degrees and radians.
All of these constants are float literals in Slang. They are corrected here in C++ and CUDA; ``spirv_math`` does so in
SPIR-V.
"""

from __future__ import annotations

import re

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission

# The rounded value that Slang writes for a constant of double, and the right value.
CONSTANTS = {
    3.1415927410125732: 3.141592653589793,  # pi
    2.3025851249694824: 2.302585092994046,  # ln(10)
    0.6931471824645996: 0.6931471805599453,  # ln(2)
    57.295780181884766: 57.29577951308232,  # 180 / pi
    0.01745329238474369: 0.017453292519943295,  # pi / 180
}
# Slang's functions that contain such a constant, by their names in SPIR-V without optimizations. PRODUCTS has each
# with the function that it applies to its argument times a constant.
PI = "double.getPi"
PRODUCTS = {"exp10": "exp", "sinpi": "sin", "cospi": "cos", "tanpi": "tan"}
# Matches ``__d_exp2``, ``__d_exp2_vector`` of vectors, ``__d_exp2_matrix`` and ``__d_exp2_m`` of matrices, and their
# derivatives ``s_fwd___d_exp2``, ``s_bwdProp___d_exp2_m`` and so on. In C++ and CUDA ``__`` is written as ``_``.
_DERIVED = r"_d_(exp2|log10|log2|degrees|radians)(?:_vector|_matrix|_m)?"
_NAME = re.compile(r"(?:s_\w+_)?_" + _DERIVED)

_DOUBLES = rb"double[1-4]?|Vector<double, ?[1-4]>"
# Matches ``double exp10_0(double x_0) { return ...;`` of a scalar or a vector.
_PRODUCT = re.compile(
    rb"\b(%b) +(exp10|sinpi|cospi|tanpi)_\d+\((?:%b) +(\w+)\)\s*\{\s*return ([^;{}]*);" % (_DOUBLES, _DOUBLES)
)
# Matches the returned value without spaces: ``F64_exp((x_0*2.30258512496948242))`` or
# ``F64_sin((double_getPi_0()*x_0))``.
_FORM = re.compile(
    rb"\(*(?:F64_)?(?:exp(?:_\d+)?\(+(?P<a>\w+)\*2\.30258512496948242"
    rb"|(?:sin|cos|tan)(?:_\d+)?\(+(?:double_getPi_\d+\(\)\*(?P<b>\w+)|(?P<c>\w+)\*double_getPi_\d+\(\)))\)+"
)
# Matches a number converted to a vector, after spaces are removed: ``make_double3(2.5)``, ``(Vector<double,3>)2.5``,
# ``(Vector<double,3>)(f_0())``.
_SPREAD = re.compile(
    rb"make_double[1-4]\((\w+\(\)|[\d.]+)\)|\(Vector<double,[1-4]>\)(?:\((\w+\(\)|[\d.]+)\)|(\w+\(\)|[\d.]+))"
)
_PI = re.compile(rb"\bdouble +double_getPi_\d+\(\)\s*\{\s*return ()3\.14159274101257324;")
_DERIVATIVE = re.compile(rb"\b(?:s_\w+)?%b_\d+\([^;{}]*\)\s*\{" % _DERIVED.encode())
_LITERAL = re.compile(
    rb"(?<![\w.])(?:2\.30258512496948242|0\.69314718246459961|57\.29578018188476562|0\.01745329238474369)(?![\w.])"
)


_ROUNDED = (
    "the function uses {used} of double, in which Slang rounds a constant to float, and this device compiles by "
    "itself, so that ours cannot be put there. Use float, or a device of type vulkan, cuda or cpu."
)


def derived(name: str) -> str:
    """Return the function of which Slang's function `name` in SPIR-V is a derivative, or an empty string.

    It is ``"exp2"`` for ``"__d_exp2_vector"``.
    """
    match = _NAME.fullmatch(name)
    return match[1] if match else ""


def with_constants(code: bytes) -> tuple[bytes, bool]:
    """Return C++ or CUDA code with the right constants, and whether it now calls functions of ``prelude_functions``.

    These are ``_spy_exp10<double>``, ``_spy_sinpi<double>``, ``_spy_cospi<double>`` and ``_spy_tanpi<double>``, which
    become the bodies of ``exp10_0`` and so on.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote, without its prelude.
    """
    calls = _PRODUCT.sub(_call, code)
    ours, code = calls != code, calls
    code = _PI.sub(lambda match: match[0].replace(b"3.14159274101257324", b"3.141592653589793"), code)
    for match in reversed(list(_DERIVATIVE.finditer(code))):
        end = _end(code, match.end())
        code = code[: match.end()] + _LITERAL.sub(_right, code[match.end() : end]) + code[end:]
    return code, ours


def lacking_constant(code: bytes) -> str:
    """Return the name of a function in C++, CUDA or HLSL that contains a rounded constant of double, else empty."""
    for match in _PRODUCT.finditer(code):
        if _call(match) != match[0]:
            return match[2].decode()
    for match in _DERIVATIVE.finditer(code):
        if _LITERAL.search(code, match.end(), _end(code, match.end())):
            return f"the derivative of {match[1].decode()}"
    if not _PI.search(code):
        return ""
    used = (name for name in ("degrees", "radians") if re.search(rb"\bdouble\S* +%s_\d+\(" % name.encode(), code))
    return next(used, "getPi")


def _call(match: re.Match[bytes]) -> bytes:
    """Return a function of Slang's whose returned value is replaced by a call of ``_spy_exp10`` or a similar one.

    ``double exp10_0(double x_0) { return F64_exp(...);`` becomes ``... { return _spy_exp10<double>(x_0);``. A vector
    gets a call for each component. A body of another form stays as it is.
    """
    kind, name, argument, value = match.groups()
    spread = re.sub(rb"\s", b"", value)
    form = _FORM.fullmatch(_SPREAD.sub(lambda match: match[1] or match[2] or match[3], spread))
    if form is None or argument not in (form["a"], form["b"], form["c"]):
        return match[0]
    size = int(re.sub(rb"\D", b"", kind.removesuffix(b"double")) or b"0")
    ours = b"_spy_%s<double>(%s)"
    if size:
        parts = b", ".join(ours % (name, b"%s.%s" % (argument, letter)) for letter in (b"x", b"y", b"z", b"w")[:size])
        made = b"make_" + kind if kind.startswith(b"double") else kind
        new = b"%s(%s)" % (made, parts)
    else:
        new = ours % (name, argument)
    return match[0].removesuffix(value + b";") + new + b";"


def _right(match: re.Match[bytes]) -> bytes:
    return repr(CONSTANTS[float(match[0])]).encode()


def _end(code: bytes, at: int) -> int:
    """Return the offset after the brace that closes the block in which the offset `at` lies."""
    depth = 1
    for match in re.compile(rb"[{}]").finditer(code, at):
        depth += 1 if match[0] == b"{" else -1
        if not depth:
            return match.end()
    return len(code)


def check_constants(used: str) -> None:
    """Refuse code with a rounded constant, for a device that compiles Slang text itself.

    Parameters
    ----------
    used : str
        The name of the function that contains it; empty if there is none.

    Raises
    ------
    UnsupportedError
        If the name is not empty.
    """
    if used:
        raise UnsupportedError(_ROUNDED.format(used=used))


def _refuse(code: bytes, emission: Emission) -> bytes:
    check_constants(lacking_constant(code))
    return code


HLSL_CONSTANTS = Correction(
    name="constants of double in HLSL",
    why="Slang rounds constants in functions of double, and in their derivatives, to float; refused.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("hlsl",),
    applies=_refuse,
    canary=Canary(
        text="""
void canary(uniform RWStructuredBuffer<double> p) { p[0] = fwd_diff(exp2)(diffPair(p[1], 1.0)).d; }
""",
        wrong=rb"0\.69314718246459961",
        right=rb"0\.6931471805599453",
    ),
)

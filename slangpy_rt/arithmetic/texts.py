"""Slang functions of operations on scalars, as text."""

from __future__ import annotations

from slangpy_rt.arithmetic.promotion import is_float

BITWISE = frozenset(("and", "or", "xor", "lshift", "rshift"))
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "and": "&", "or": "|", "xor": "^", "lshift": "<<",
    "rshift": ">>", **COMPARISONS,
}  # fmt: skip
# Of bool, as NumPy has them.
_OF_BOOL = {"add": "x || y", "mul": "x && y", "and": "x && y", "or": "x || y", "xor": "x != y"}
# The remainder has the divisor's sign, as in Python. By zero a quotient and its remainder have all bits set. Vulkan
# leaves % of negative numbers undefined on some devices.
_SIGNED_FLOOR = """
    let q = {of}(x / y);
    let r = {of}(x - q * y);
    return {into}(y != 0 && r != 0 && (r < 0) != (y < 0) ? q - {of}(1) : q);"""
_SIGNED_MOD = """
    if (y == 0)
        return {into}(x % y);
    let r = {of}(x - x / y * y);
    return {into}(r != 0 && (r < 0) != (y < 0) ? r + y : r);"""
# fmod is x - y * trunc(x / y) on GPUs other than CUDA's, rounded twice: 0 for 60000 and 0.1. Here the divisor, times
# the largest power of two that leaves it at most the remainder, is subtracted as long as there is one, which is
# exact. The exponents of numbers below the normal ones are not in their bits.
_REMAINDER = """
{of} remainder_({of} x, {of} y)
{{
    __target_switch
    {{
    case cpp:
        return fmod(x, y);
    case cuda:
        return fmod(x, y);
    default:
        var left = abs(x);
        let divisor = abs(y);
        if (isinf(x) || !(divisor >= {least}) || isnan(x))
            return fmod(x, y);
        while (left >= divisor)
        {{
            let powers = (bit_cast<{bits}>(left) >> {mantissa}) - (bit_cast<{bits}>(divisor) >> {mantissa});
            let multiple = bit_cast<{of}>(bit_cast<{bits}>(divisor) + (powers << {mantissa}));
            left -= multiple > left ? multiple * {of}(0.5) : multiple;
        }}
        return x < 0 ? -left : left;
    }}
}}
"""
_FORMATS = {
    "float": {"bits": "uint", "mantissa": 23, "least": "1.17549435e-38f"},
    "double": {"bits": "uint64_t", "mantissa": 52, "least": "2.2250738585072014e-308lf"},
}
_FLOAT_REMAINDER = """
    let r = isinf(y) && !isinf(x) ? x : remainder_(x, y);
    let turned = r != 0 && (r < 0) != (y < 0);"""
# A remainder of zero has the divisor's sign too.
_FLOAT_MOD = _FLOAT_REMAINDER + "\n    return {into}(r == 0 ? (y < 0 ? -abs(r) : abs(r)) : turned ? r + y : r);"
# As NumPy has it: 1 // 0.1 is 9, although 1 / 0.1 is rounded to 10.
_FLOAT_FLOOR = (
    _FLOAT_REMAINDER
    + """
    if (y == 0)
        return {into}(x / y);
    let whole = (x - r) / y - (turned ? {of}(1) : {of}(0));
    let below = floor(whole);
    return {into}(whole - below > {of}(0.5) ? below + {of}(1) : below);"""
)
_INTEGER_POW = """
    {of} power = 1;
    var rest = y;
    var factor = x;
    if ({negative})
        return {into}(x == 1 ? x : x == -1 ? ((y & 1) != 0 ? x : -x) : {of}(0));
    while (rest != 0)
    {{
        if ((rest & 1) != 0)
            power *= factor;
        factor *= factor;
        rest >>= 1;
    }}
    return {into}(power);"""
# Slang's pow is defined for x > 0 and finite numbers. An odd power keeps the sign, that of zero too.
_FLOAT_POW = """
    if (y == 0 || x == 1 || (x == -1 && isinf(y)))
        return {into}(1);
    if (y == 2)
        return {into}(x * x);
    let odd = floor(y) == y && floor(y * {of}(0.5)) * 2 != y;
    if (x == 0)
        return {into}(y > 0 ? (odd ? x : {of}(0)) : {of}(1) / (odd ? x : abs(x)));
    if (x > 0)
        return {into}(pow(x, y));
    if (floor(y) != y && !isinf(x))
        return {into}(sqrt(x));
    let power = isinf(x) ? (y > 0 ? -x : {of}(0)) : pow(-x, y);
    return {into}(odd ? -power : power);"""


def binary(name: str, a: str, b: str, of: str, into: str) -> str:
    """Return the text of an operation of types ``a`` and ``b``, computed in ``of`` and written as ``into``."""
    signed = is_float(of) or not of.startswith("u")
    before = ""
    if name in ("mod", "floordiv") and is_float(of):
        of = "float" if of == "half" else of  # a quotient may be over 65504
        before = _REMAINDER.format(of=of, **_FORMATS[of])
    if name == "where":
        return f"{into} where_({a} a, {b} b, bool c) {{ return {into}(c ? {of}(a) : {of}(b)); }}\n"
    if of == "bool" and name in _OF_BOOL:
        body = f" return {into}({_OF_BOOL[name]});"
    elif name in _SIGNS:
        body = f" return {into}(x {_SIGNS[name]} y);"
    elif name in ("minimum", "maximum"):
        less = "<" if name == "minimum" else ">"
        nan = " || isnan(x)" if is_float(of) else ""
        body = f" return {into}(x {less} y{nan} ? x : y);"
    elif name == "floordiv":
        body = _FLOAT_FLOOR if is_float(of) else _SIGNED_FLOOR if signed else " return {into}(x / y);"
    elif name == "mod":
        body = _FLOAT_MOD if is_float(of) else _SIGNED_MOD if signed else " return {into}(x % y);"
    else:
        body = _FLOAT_POW if is_float(of) else _INTEGER_POW
    body = body if "{of}" not in body and "{into}" not in body else body.format(
        of=of, into=into, negative="y < 0" if signed else "false"
    )  # fmt: skip
    operands = f"    let x = {of}(a);\n    let y = {of}(b);\n"
    return f"{before}{into} {name}_({a} a, {b} b)\n{{\n{operands}    {body.strip()}\n}}\n"


def unary(name: str, a: str, into: str) -> str:
    """Return the text of an operation of one number."""
    body = {
        "copy": "a",
        "neg": "-a",
        "abs": "a" if a.startswith("u") or a == "bool" else "abs(a)",
        "invert": "!a" if a == "bool" else "~a",
    }[name]
    return f"{into} {name}_({a} a) {{ return {into}({body}); }}\n"

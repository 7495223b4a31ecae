"""Adds functions that Slang 2026.12 calls in C++ and CUDA, and that its preludes lack or have for the wrong type.

A call of such a function is replaced by one of a function whose name begins with ``_spy_``: ``U8_min(a_0, b_0)``
becomes ``_spy_min<uint8_t>(a_0, b_0)``. These are the defects:

- Both preludes have no functions of 8-bit and 16-bit integers, no ``fma`` and ``sign`` of integers, and no ``acosh``,
  ``asinh`` and ``atanh`` of double; their ``log10`` of double takes a float.
- The prelude of C++ looks for the first bit of a 64-bit integer in 32 bits only.
- The prelude of CUDA takes unsigned numbers for signed ones in ``firstbithigh`` of 32 bits and in the results of
  ``abs``, ``min`` and ``max`` of 64 bits, and it has ``char`` where the header of CUDA has ``signed char``.
- Both round ties away from zero, where NumPy, SPIR-V and HLSL round to the even neighbour.
- Both lack operators of matrices: shifts, all operators of ``bool``, ``-`` of integers, and in CUDA comparisons. The
  unary minus of matrices in C++ does not compile.
- The functions that ``rounded_constants`` finds have constants rounded to float.
- ``min`` and ``max`` of floats and doubles are calls of libm in C++, which no compiler inlines without -ffast-math.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.emission import Emission
from slangpy_rt.slang.corrections.rounded_constants import lacking_constant, with_constants
from slangpy_rt.slang.emitted import prelude_end

_LACKING = (
    rb"(?:(I8|I16|U8|U16)_(abs|min|max|sign|fma|countbits|reversebits|firstbitlow|firstbithigh)"
    rb"|(I32|I64|U32|U64)_(sign|fma)|(F64)_(log10|acosh|asinh|atanh)"
)
_CALLS = {
    "cpp": re.compile(rb"\b" + _LACKING + rb"|(I64|U64)_(firstbitlow|firstbithigh))\("),
    "cuda": re.compile(rb"\b" + _LACKING + rb"|(U32)_(firstbithigh)|(U64)_(abs|min|max))\("),
}
_ROUND = re.compile(rb"\bF(?:32|64)_(?:round|rint)\(")
# C++ parses this as the negative of 9223372036854775808, which no signed 64-bit type can represent.
_LEAST = re.compile(rb"-9223372036854775808LL\b")
# Macros of math.h that equal a name which Slang may write: ``M_PI_2`` for the second variable named ``M_PI``.
_MACROS = re.compile(rb"\bM_(?:PI_[24]|SQRT1_2)\b")
_UNDEFINED = b"#undef M_PI_2\n#undef M_PI_4\n#undef M_SQRT1_2\n"
_TYPES = {
    b"I8": b"int8_t", b"I16": b"int16_t", b"I32": b"int32_t", b"I64": b"int64_t", b"U8": b"uint8_t",
    b"U16": b"uint16_t", b"U32": b"uint32_t", b"U64": b"uint64_t", b"F64": b"double",
}  # fmt: skip
_FUNCTIONS = b"""
template<typename T> FUNCTION T _spy_round(T x) { return __builtin_rint(x); }
template<typename T> FUNCTION T _spy_log10(T x) { return __builtin_log10(x); }
template<typename T> FUNCTION T _spy_acosh(T x) { return __builtin_acosh(x); }
template<typename T> FUNCTION T _spy_asinh(T x) { return __builtin_asinh(x); }
template<typename T> FUNCTION T _spy_atanh(T x) { return __builtin_atanh(x); }
template<typename T> FUNCTION T _spy_exp10(T x) { return __builtin_pow(T(10), x); }
// 0 to 4 quarters of a turn, 1 being half of one, and what is left of |x|; both are exact.
template<typename T> FUNCTION T _spy_turn(T x, int& n)
{
    T a = __builtin_fabs(x);
    a -= T(2) * __builtin_floor(T(0.5) * a);
    n = a <= T(0.25) ? 0 : a < T(0.75) ? 1 : a <= T(1.25) ? 2 : a < T(1.75) ? 3 : 4;
    return a - T(0.5) * n;
}
template<typename T> FUNCTION T _spy_sinpi(T x)
{
    int n;
    T t = T(3.141592653589793) * _spy_turn(x, n), value = n & 1 ? __builtin_cos(t) : __builtin_sin(t);
    return __builtin_copysign(T(1), x) * (value == 0 ? T(0) : n & 2 ? -value : value);
}
template<typename T> FUNCTION T _spy_cospi(T x)
{
    int n;
    T t = T(3.141592653589793) * _spy_turn(x, n), value = n & 1 ? __builtin_sin(t) : __builtin_cos(t);
    return value == 0 ? T(0) : (n + 1) & 2 ? -value : value;
}
template<typename T> FUNCTION T _spy_tanpi(T x)
{
    int n;
    T t = T(3.141592653589793) * _spy_turn(x, n), value = __builtin_tan(t);
    // A pole is positive where the whole number before it is even.
    value = n & 1 ? (t == 0 ? T(2 - n) : T(-1)) / (t == 0 ? T(0) : value) : t == 0 && n == 2 ? -T(0) : value;
    return __builtin_copysign(T(1), x) * value;
}
// The first form is for the least short: see _spy_negative.
template<typename T> FUNCTION T _spy_abs(T x)
{
    const int spare = sizeof(T) < 4 ? 32 - 8 * sizeof(T) : 0;
    return x >= 0 ? x : spare ? T((-int(x) << spare) >> spare) : T(0 - (unsigned long long)x);
}
template<typename T> FUNCTION T _spy_min(T x, T y) { return x < y ? x : y; }
template<typename T> FUNCTION T _spy_max(T x, T y) { return x > y ? x : y; }
template<typename T> FUNCTION int _spy_sign(T x) { return (x > 0) - (x < 0); }
template<typename T> FUNCTION T _spy_fma(T x, T y, T z)
{
    return T((unsigned long long)x * (unsigned long long)y + (unsigned long long)z);
}
template<typename T> FUNCTION unsigned long long _spy_own_bits(T x)
{
    return (unsigned long long)x & (~0ull >> (64 - 8 * sizeof(T)));
}
template<typename T> FUNCTION unsigned _spy_countbits(T x) { return __builtin_popcountll(_spy_own_bits(x)); }
template<typename T> FUNCTION T _spy_reversebits(T x)
{
    unsigned long long bits = _spy_own_bits(x), found = 0;
    for (int k = 0; k < int(8 * sizeof(T)); ++k)
        found |= (bits >> k & 1) << (8 * sizeof(T) - 1 - k);
    return T(found);
}
template<typename T> FUNCTION unsigned _spy_firstbitlow(T x)
{
    return x ? __builtin_popcountll((_spy_own_bits(x) & (0 - _spy_own_bits(x))) - 1) : 0xFFFFFFFFu;
}
template<typename T> FUNCTION unsigned _spy_firstbithigh(T x)
{
    unsigned long long bits = _spy_own_bits(x < 0 ? T(~x) : x);
    return bits ? 63 - __builtin_clzll(bits) : 0xFFFFFFFFu;
}
"""
# C++ prefers the more specialized template, so an operator in the prelude for one element type precedes these.
_MATRIX_UNARY = b"""
template<typename T, int R, int C> FUNCTION Matrix<T, R, C> operator OP(const Matrix<T, R, C>& a)
{
    Matrix<T, R, C> r;
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j)
            SET(r, i, j) = T(OP GET(a, i, j));
    return r;
}
"""
_MATRIX_BINARY = b"""
template<typename T, typename U, int R, int C>
FUNCTION Matrix<RESULT, R, C> operator OP(const Matrix<T, R, C>& a, const Matrix<U, R, C>& b)
{
    Matrix<RESULT, R, C> r;
    for (int i = 0; i < R; ++i)
        for (int j = 0; j < C; ++j)
            SET(r, i, j) = RESULT(GET(a, i, j) OP GET(b, i, j));
    return r;
}
"""
_MATRIX_NUMBERS = b"+ - * / % & | ^ << >>".split()
_MATRIX_BOOLS = b"&& || < > <= >= == !=".split()
_MATRIX_ELEMENTS = {
    "cpp": {b"SET(r, i, j)": b"r.rows[i][j]", b"GET(a, i, j)": b"a.rows[i][j]", b"GET(b, i, j)": b"b.rows[i][j]"},
    "cuda": {
        b"SET(r, i, j)": b"*_slang_vector_get_element_ptr(r.rows + i, j)",
        b"GET(a, i, j)": b"_slang_vector_get_element(a.rows[i], j)",
        b"GET(b, i, j)": b"_slang_vector_get_element(b.rows[i], j)",
    },
}
_MATRIX = re.compile(rb"\bMatrix<")
# The prelude's unary operators of matrices use ``result[i].rows``, but a row has no rows.
_MATRIX_DEFECT = (b"result[i].rows[i][j] = op", b"result.rows[i][j] = op")
# C's fmin and fmax, with libm's own choice between zeros, which is the second argument.
_MINIMA = [
    (
        b"return ::f%b%b(a, b);" % (name, suffix),
        b"const %b t = a %b b ? a : b; return b != b ? a : t;" % (type_, order),
    )
    for name, order in ((b"min", b"<"), (b"max", b">"))
    for type_, suffix in ((b"float", b"f"), (b"double", b""))
]


_BUILTINS = {
    b"FUNCTION": b"__device__ __forceinline__", b"__builtin_popcountll": b"__popcll", b"__builtin_clzll": b"__clzll",
    b"__builtin_log10": b"::log10", b"__builtin_acosh": b"::acosh", b"__builtin_asinh": b"::asinh",
    b"__builtin_atanh": b"::atanh", b"__builtin_pow": b"::pow", b"__builtin_floor": b"::floor",
    b"__builtin_fabs": b"::fabs", b"__builtin_sin": b"::sin", b"__builtin_cos": b"::cos", b"__builtin_tan": b"::tan",
    b"__builtin_copysign": b"::copysign", b"__builtin_rint": b"::rint",
}  # fmt: skip

_CLOCK = b"std::chrono::high_resolution_clock::now().time_since_epoch().count()"
_OWN_CLOCK = b"""#include <time.h>
static inline int64_t _spy_clock() {
    timespec now;
    timespec_get(&now, TIME_UTC);
    return now.tv_sec * int64_t(1000000000) + now.tv_nsec;
}
"""


def with_functions(code: bytes, form: str) -> bytes:
    """Return C++ or CUDA code in which all functions that it calls are defined for the right types.

    C++ without Slang's prelude is returned as it is.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote.
    form : str
        ``"cpp"`` or ``"cuda"``.
    """
    end = prelude_end(code, form)
    prelude, text = code[:end], code[end:]
    called, count = _CALLS[form].subn(_call, text)
    called, rounds = _ROUND.subn(b"_spy_round(", called)
    called = _LEAST.sub(b"(-9223372036854775807LL-1)", called)
    called, ours = with_constants(called)
    functions = _FUNCTIONS.replace(b"FUNCTION", b"inline")
    if form == "cuda":
        # CUDA's char2 takes two numbers of one type, char or signed char; those of Slang's prelude are char.
        called = re.sub(rb"\bint8_t\(", b"char(", called)
        functions = _FUNCTIONS
        for name, own in _BUILTINS.items():
            functions = functions.replace(name, own)
    elif not end:
        return code
    else:
        for old, new in (_MATRIX_DEFECT, *_MINIMA):
            prelude = prelude.replace(old, new)
    pieces = [prelude]
    if _MACROS.search(called):
        pieces.append(_UNDEFINED)
    if _CLOCK in called:
        pieces.append(_OWN_CLOCK)
        called = called.replace(_CLOCK, b"_spy_clock()")
    if count or rounds or ours:
        pieces.append(functions)
    if _MATRIX.search(called):
        pieces.append(_matrix_operators(form))
    return b"".join((*pieces, called))


def lacking_function(code: bytes) -> str:
    """Return the name of a function that CUDA code calls and that CUDA's prelude lacks or has for the wrong type.

    The name is empty if there is no such function.
    """
    at = prelude_end(code, "cuda")
    match = _CALLS["cuda"].search(code, at)
    return [part for part in match.groups() if part][1].decode() if match else lacking_constant(code[at:])


def _matrix_operators(form: str) -> bytes:
    text = b"".join(_MATRIX_UNARY.replace(b"OP", operator) for operator in (b"-", b"!", b"~"))
    for result, operators in ((b"T", _MATRIX_NUMBERS), (b"bool", _MATRIX_BOOLS)):
        text += b"".join(_MATRIX_BINARY.replace(b"RESULT", result).replace(b"OP", operator) for operator in operators)
    for name, own in _MATRIX_ELEMENTS[form].items():
        text = text.replace(name, own)
    return text.replace(b"FUNCTION", b"inline" if form == "cpp" else _BUILTINS[b"FUNCTION"])


def _call(match: re.Match[bytes]) -> bytes:
    kind, name = (part for part in match.groups() if part)
    return b"_spy_%s<%s>(" % (name, _TYPES[kind])


def _repaired(code: bytes, emission: Emission) -> bytes:
    return with_functions(code, emission.form)


# A call in a canary, and a declaration or definition in the prelude.
_CALLED, _DECLARED = rb"\(%b\(", rb"(?m)^[^\n(]*\w %b\("


def _undefined(name: bytes) -> Callable[[bytes], bool]:
    """Return a test of code: whether it calls a function of the prelude that no line of it declares."""
    return lambda code: re.search(_CALLED % name, code) is not None and re.search(_DECLARED % name, code) is None


def _declared(name: bytes) -> Callable[[bytes], bool]:
    """Return a test of code: whether it calls a function of the prelude, which is there."""
    return lambda code: re.search(_CALLED % name, code) is not None and re.search(_DECLARED % name, code) is not None


def _defined(text: bytes, name: bytes) -> bytes:
    """Return a pattern of code that calls a function of the prelude, in whose definition `text` follows its name."""
    return rb"(?s)\b%b%b.*= \(%b\(" % (name, text, name)


_HYPERBOLIC = _defined(rb"\([^()]*\)\s*\{", b"F64_acosh")
_SHIFT, _SHIFTS = rb"\) << \(\*", rb"operator ?<<\(const Matrix"
NARROW_FUNCTIONS = Correction(
    name="functions of narrow integers",
    why="The preludes of C++ and CUDA have no functions of integers of 8 and 16 bits, which Slang calls.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int16_t *p) { p[0] = min(p[1], p[2]); }",
        wrong=_undefined(b"I16_min"),
        right=_declared(b"I16_min"),
    ),
)
INTEGER_FUNCTIONS = Correction(
    name="mad and sign of integers",
    why="The preludes of C++ and CUDA have no fma of integers, which Slang calls for mad, and no sign.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int *p) { p[0] = mad(p[1], p[2], p[3]); }",
        wrong=_undefined(b"I32_fma"),
        right=_declared(b"I32_fma"),
    ),
)
LOGARITHM = Correction(
    name="log10 of double",
    why="The preludes of C++ and CUDA take a float for it.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = log10(p[1]); }",
        wrong=_defined(rb"\(float \w+\)\s*\{", b"F64_log10"),
        right=_defined(rb"\(double \w+\)\s*\{", b"F64_log10"),
    ),
)
HYPERBOLIC = Correction(
    name="acosh, asinh and atanh of double",
    why="The preludes of C++ and CUDA do not define them.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = acosh(p[1]); }",
        wrong=lambda code: b"(F64_acosh(" in code and re.search(_HYPERBOLIC, code) is None,
        right=_HYPERBOLIC,
    ),
)
CPP_LOWEST_BIT = Correction(
    name="firstbitlow of 64 bits in C++",
    why="The prelude's function reads 32 bits.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint64_t *p, uniform uint *q) { q[0] = firstbitlow(p[0]); }",
        wrong=_defined(rb"\(uint64_t v\)[^}]*__builtin_ctz\(v\)", b"U64_firstbitlow"),
        right=_defined(rb"\(uint64_t v\)[^}]*__builtin_ctzll\(v\)", b"U64_firstbitlow"),
    ),
)
CUDA_HIGHEST_BIT = Correction(
    name="firstbithigh of uint in CUDA",
    why="The prelude treats unsigned integers as signed.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint *p) { p[0] = firstbithigh(p[1]); }",
        wrong=_defined(rb"\(uint32_t v\)\s*\{[^}]*\(int32_t\)v < 0", b"U32_firstbithigh"),
        right=_defined(rb"\(uint32_t v\)\s*\{(?:(?!int32_t\)v)[^}])*\}", b"U32_firstbithigh"),
    ),
)
CUDA_UNSIGNED = Correction(
    name="abs, min and max of uint64_t in CUDA",
    why="The prelude returns signed integers.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint64_t *p) { p[0] = min(p[1], p[2]); }",
        wrong=rb"(?s)\bint64_t U64_min\(.*\(U64_min\(",
        right=rb"(?s)\buint64_t U64_min\(.*\(U64_min\(",
    ),
)
ROUNDING = Correction(
    name="round",
    why="The preludes of C++ and CUDA round ties away from zero; other targets round ties to even.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform float *p) { p[0] = round(p[1]); }",
        wrong=_defined(rb"\(float \w+\)\s*\{\s*return ::roundf", b"F32_round"),
        right=_defined(rb"\(float \w+\)\s*\{\s*return ::(?:rintf|nearbyintf|roundevenf)", b"F32_round"),
    ),
)
LEAST_INTEGER = Correction(
    name="the least 64-bit integer",
    why="Slang writes -9223372036854775808LL, whose literal is out of range in C++.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int64_t *p) { p[0] = -9223372036854775808LL; }",
        wrong=rb"= -9223372036854775808LL;",
        right=rb"= (?:\(?-9223372036854775807LL|INT64_MIN|int64_t\(0x8)",
    ),
)
MACROS = Correction(
    name="names of macros",
    why="Slang appends numbers to names, which may then equal macros of math.h, such as M_PI_2.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="""
float first(float M_PI) { return sin(M_PI) + M_PI; }
float second(float M_PI) { return cos(M_PI) + M_PI; }
float third(float M_PI) { return tan(M_PI) + M_PI; }
void canary(uniform float *p) { p[0] = third(second(first(p[1]))); }
""",
        wrong=lambda code: re.search(rb"float M_PI_2\b", code) is not None and b"#undef M_PI_2" not in code,
        right=rb"third_\d+\(float (?!M_PI_[24]\b)\w+\)",
    ),
)
CPP_CLOCK = Correction(
    name="clocks in C++",
    why="The code of getRealtimeClock lacks the header <chrono>, of which zig without its C++ library has none.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform uint *p) { p[0] = getRealtimeClockLow(); }",
        wrong=lambda code: b"std::chrono" in code,
        right=lambda code: b"canary" in code and b"std::chrono" not in code,
    ),
)
CUDA_CHARS = Correction(
    name="vectors of int8_t in CUDA",
    why="Slang makes them of char and int8_t, of which no function of CUDA takes both.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cuda",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int8_t2 *p) { p[0] = int8_t2(p[1].x, 3); }",
        wrong=rb"make_char2 ?\([^;\n]*\bint8_t\(3\)",
        right=rb"make_char2 ?\([^;\n]*\bchar\(3\)",
    ),
)
MATRIX_OPERATORS = Correction(
    name="operators of matrices",
    why="The preludes of C++ and CUDA lack shifts and logical operators of matrices, which Slang writes.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform int2x2 *p) { p[0] = p[1] << p[2]; }",
        wrong=lambda code: re.search(_SHIFT, code) is not None and re.search(_SHIFTS, code) is None,
        right=_SHIFTS,
    ),
)
CPP_NEGATIVE = Correction(
    name="negatives of matrices in C++",
    why="The prelude's operator does not compile.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform float2x2 *p) { p[0] = -p[1]; }",
        wrong=lambda code: _MATRIX_DEFECT[0] in code,
        right=lambda code: b"= - *" in code and _MATRIX_DEFECT[0] not in code,
    ),
)
CONSTANTS = Correction(
    name="constants of double",
    why="Slang rounds constants in functions of double, and in their derivatives, to float.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=_repaired,
    canary=Canary(
        text="void canary(uniform double *p) { p[0] = exp10(p[1]); }",
        wrong=rb"exp10_\d+\(double x_0\)\s*\{[^}]*2\.30258512496948242",
        right=rb"exp10_\d+\(double x_0\)\s*\{[^}]*(?:2\.302585092994045|F64_exp10)",
    ),
)
# In the order of this file's docstring. They have one function, which is applied once.
PRELUDE_FUNCTIONS = (
    NARROW_FUNCTIONS, INTEGER_FUNCTIONS, HYPERBOLIC, LOGARITHM, CPP_LOWEST_BIT, CUDA_HIGHEST_BIT, CUDA_UNSIGNED,
    CUDA_CHARS, ROUNDING, MATRIX_OPERATORS, CPP_NEGATIVE, CONSTANTS, LEAST_INTEGER, MACROS, CPP_CLOCK,
)  # fmt: skip

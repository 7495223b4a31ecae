"""Gives C++ a 16-bit float: the type ``half`` and its functions, in code that uses them.

The prelude of Slang 2026.12 has a struct ``half`` that rounds ties away from zero and lacks unary minus, operators of
vectors and conversions to integers. Where the compiler has ``_Float16`` it takes that, and clang keeps floats between
the operations of one expression then. Here each operation computes in float and rounds once, to the nearest number,
ties to even. For + - * / and sqrt that equals arithmetic in half, as a float has more than twice as many bits and two
(S. A. Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30, 1995).
"""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.locate import shader_header

_USED = re.compile(rb"\b(?:half|F16_\w+|f16tof32|f32tof16|U16_ashalf)\b")
_TYPE = b"""
struct _spy_half
{
    uint16_t bits;
    _spy_half() = default;
    template<typename T> explicit _spy_half(T x) : bits(uint16_t(_spy_f32tof16(float(x)))) {}
    explicit _spy_half(double x)
    {
        // A float whose last bit says that others were lost: rounding twice is rounding once then.
        float near = float(x);
        uint32_t found = _bitCastFloatToUInt(near);
        found -= __builtin_fabs(double(near)) > __builtin_fabs(x);
        bits = uint16_t(_spy_f32tof16(_bitCastUIntToFloat(found | (double(near) < x || double(near) > x))));
    }
    // Of numbers alone: of other types int(T(1)) has no value.
    template<typename T, int = int(T(1))> explicit operator T() const { return T(_spy_f16tof32(bits)); }
    _spy_half operator-() const
    {
        _spy_half x = *this;
        x.bits ^= 0x8000;
        return x;
    }
    friend _spy_half operator%(_spy_half a, _spy_half b) { return _spy_half(F32_fmod(float(a), float(b))); }
};
"""
_SCALAR = b"inline RESULT operator OP(_spy_half a, _spy_half b) { return RESULT(float(a) OP float(b)); }\n"
_VECTOR = b"""template<int N>
inline Vector<RESULT, N> operator OP(const Vector<_spy_half, N>& a, const Vector<_spy_half, N>& b)
{
    Vector<RESULT, N> r;
    for (int i = 0; i < N; ++i)
        r[i] = a[i] OP b[i];
    return r;
}
"""
_NEGATIVE = b"""template<int N> inline Vector<_spy_half, N> operator-(const Vector<_spy_half, N>& a)
{
    Vector<_spy_half, N> r;
    for (int i = 0; i < N; ++i)
        r[i] = -a[i];
    return r;
}
"""
_UNARY = (
    b"ceil floor trunc frac sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh log log2 log10 exp exp2 sqrt "
    b"rsqrt calcSafeRadians"
).split()
_BINARY = b"min max pow fmod remainder atan2".split()
_OTHERS = b"""
inline _spy_half _spy_ashalf(uint16_t x) { return slang_bit_cast<_spy_half>(x); }
inline uint16_t F16_asuint(_spy_half x) { return x.bits; }
inline int16_t F16_asint(_spy_half x) { return int16_t(x.bits); }
inline _spy_half F16_abs(_spy_half x) { return _spy_ashalf(x.bits & 0x7fff); }
inline _spy_half F16_round(_spy_half x) { return _spy_half(__builtin_rintf(float(x))); }
inline bool F16_isnan(_spy_half x) { return (x.bits & 0x7fff) > 0x7c00; }
inline bool F16_isinf(_spy_half x) { return (x.bits & 0x7fff) == 0x7c00; }
inline bool F16_isfinite(_spy_half x) { return (x.bits & 0x7fff) < 0x7c00; }
inline int F16_sign(_spy_half x) { return F32_sign(float(x)); }
inline _spy_half F16_fma(_spy_half a, _spy_half b, _spy_half c)
{
    return _spy_half(double(float(a) * float(b)) + double(float(c)));
}
inline _spy_half F16_frexp(_spy_half x, int* e) { return _spy_half(F32_frexp(float(x), e)); }
inline _spy_half F16_modf(_spy_half x, _spy_half* whole)
{
    float found, rest = F32_modf(float(x), &found);
    *whole = _spy_half(found);
    return _spy_half(rest);
}
// From here on these names mean the type and the functions above, instead of those of Slang's prelude.
#define half _spy_half
#define f16tof32 _spy_f16tof32
#define f32tof16 _spy_f32tof16
#define U16_ashalf _spy_ashalf
"""


def with_half(code: bytes) -> bytes:
    """Return C++ code in which ``half`` is the type described above; code that does not use it as it is.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote, with or without corrections of other functions.
    """
    end = prelude_end(code, "cpp")
    return b"".join((code[:end], _text(), code[end:])) if end and _USED.search(code, end) else code


def _text() -> bytes:
    pieces = [b"\n", shader_header("_spy_half.hpp"), _TYPE]
    results = dict.fromkeys(b"+ - * /".split(), b"_spy_half") | dict.fromkeys(b"< > <= >= == !=".split(), b"bool")
    for form in (_SCALAR, _VECTOR):
        pieces += (form.replace(b"RESULT", result).replace(b"OP", op) for op, result in results.items())
    pieces += _VECTOR.replace(b"RESULT", b"_spy_half").replace(b"OP", b"%"), _NEGATIVE
    pieces += (
        b"inline _spy_half F16_%s(_spy_half x) { return _spy_half(F32_%s(float(x))); }\n" % (name, name)
        for name in _UNARY
    )
    pieces += (
        b"inline _spy_half F16_%s(_spy_half a, _spy_half b) { return _spy_half(F32_%s(float(a), float(b))); }\n"
        % (name, name)
        for name in _BINARY
    )
    return b"".join((*pieces, _OTHERS))


HALF = Correction(
    name="half in C++",
    why="The prelude rounds ties away from zero, and its half lacks operators.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp",),
    applies=lambda code, emission: with_half(code),
    canary=Canary(
        text="void canary(uniform float *values) { values[0] = f32tof16(values[0] + 2049); }",
        wrong=(0x6801,),
        right=(0x6800,),
    ),
)

"""Gives integer division by zero, and of the least integer by -1, the same defined results in all target code.

The quotient and the remainder of a division by zero have all bits set (-1, or the largest unsigned number). The least
integer divided by -1 is itself, and its remainder is 0.

In C++, where such a division would end the process, and in CUDA, overloaded operators replace ``/`` and ``%``:
``a / b`` becomes ``a /_spy_over()/ b``. In SPIR-V the divisor is replaced by 1 in these cases, and the result is
selected afterwards. SPIR-V keeps divisions of floats and those by constants without 0 and -1. C++ and CUDA keep
divisions by a positive literal, unless it has 8 or 16 bits: the quotient would be an ``int`` (``narrow_integers``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slangpy_rt.slang import spirv
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.spirv_search import has
from slangpy_rt.slang.emitted import prelude_end
from slangpy_rt.slang.spirv import Assembly, Words, instruction

# Matches a string, which is kept, or the operator ``/`` or ``%``, around which Slang writes spaces. The pattern
# excludes divisions by a positive literal, ``a / 3U)`` or ``a / int(3);``, but not those by one of 8 or 16 bits,
# ``a / int8_t(3);``, whose quotient would be an ``int``.
_OPERATOR = re.compile(
    rb'"(?:\\.|[^"\\\n])*"| ([/%]) (?!(?:(?!u?int(?:8|16)_t)\w+\()?[1-9][0-9.]*(?:[eE][-+]?\d+)?[fULhul]*[);, ])'
)
_U_DIV, _S_DIV, _U_MOD, _S_REM, _S_MOD = 134, 135, 137, 138, 139
_DIVISIONS = frozenset({_U_DIV, _S_DIV, _U_MOD, _S_REM, _S_MOD})
_SIGNED = frozenset({_S_DIV, _S_REM, _S_MOD})
_I_EQUAL, _LOGICAL_OR, _SELECT, _S_NEGATE = 170, 166, 169, 126

# ``a /_spy_over()/ b`` has the precedence of ``a / b``. FUNCTION is replaced by a language's function specifiers.
_OPERATORS = b"""
struct _spy_over {};
struct _spy_rest {};
template<typename A> struct _spy_Dividend { A value; };
template<typename A> struct _spy_Divided { A value; };
template<typename T> struct _spy_Integer { static const bool is = false; };
template<> struct _spy_Integer<signed char> { static const bool is = true; typedef unsigned char Unsigned; };
template<> struct _spy_Integer<char> { static const bool is = true; typedef unsigned char Unsigned; };
template<> struct _spy_Integer<short> { static const bool is = true; typedef unsigned short Unsigned; };
template<> struct _spy_Integer<int> { static const bool is = true; typedef unsigned int Unsigned; };
template<> struct _spy_Integer<long> { static const bool is = true; typedef unsigned long Unsigned; };
template<> struct _spy_Integer<long long> { static const bool is = true; typedef unsigned long long Unsigned; };
template<> struct _spy_Integer<unsigned char> { static const bool is = true; typedef unsigned char Unsigned; };
template<> struct _spy_Integer<unsigned short> { static const bool is = true; typedef unsigned short Unsigned; };
template<> struct _spy_Integer<unsigned int> { static const bool is = true; typedef unsigned int Unsigned; };
template<> struct _spy_Integer<unsigned long> { static const bool is = true; typedef unsigned long Unsigned; };
template<> struct _spy_Integer<unsigned long long>
{
    static const bool is = true;
    typedef unsigned long long Unsigned;
};
template<typename T, bool integer> struct _spy_Division
{
    FUNCTION T quotient(T a, T b) { return a / b; }
    FUNCTION T remainder(T a, T b) { return a % b; }
};
template<typename T> struct _spy_Division<T, true>
{
    typedef typename _spy_Integer<T>::Unsigned U;
    // One comparison, and a jump that nobody takes: a division takes so long that neither is seen.
    FUNCTION bool rare(T b) { return __builtin_expect(T(-1) < T(0) ? U(U(b) + U(1)) <= U(1) : b == T(0), 0); }
    FUNCTION T quotient(T a, T b)
    {
        if (rare(b))
            return b == T(0) ? T(-1) : T(U(0) - U(a));
        return T(a / b);
    }
    FUNCTION T remainder(T a, T b)
    {
        if (rare(b))
            return b == T(0) ? T(-1) : T(0);
        return T(a % b);
    }
};
template<typename T> FUNCTION T _spy_quotient(T a, T b)
{
    return _spy_Division<T, _spy_Integer<T>::is>::quotient(a, b);
}
template<typename T> FUNCTION T _spy_remainder(T a, T b)
{
    return _spy_Division<T, _spy_Integer<T>::is>::remainder(a, b);
}
template<typename A, typename B> FUNCTION decltype(A() + B()) _spy_quotient(A a, B b)
{
    typedef decltype(A() + B()) T;
    return _spy_quotient<T>(T(a), T(b));
}
template<typename A, typename B> FUNCTION decltype(A() + B()) _spy_remainder(A a, B b)
{
    typedef decltype(A() + B()) T;
    return _spy_remainder<T>(T(a), T(b));
}
template<typename A> FUNCTION _spy_Dividend<A> operator/(A a, _spy_over) { return _spy_Dividend<A>{a}; }
template<typename A> FUNCTION _spy_Divided<A> operator/(A a, _spy_rest) { return _spy_Divided<A>{a}; }
template<typename A, typename B>
FUNCTION auto operator/(_spy_Dividend<A> a, B b) -> decltype(_spy_quotient(a.value, b))
{
    return _spy_quotient(a.value, b);
}
template<typename A, typename B>
FUNCTION auto operator/(_spy_Divided<A> a, B b) -> decltype(_spy_remainder(a.value, b))
{
    return _spy_remainder(a.value, b);
}
"""
# Divisions of vectors and matrices.
_ROWS = b"""
VECTORS
template<typename T, int R, int C> struct _spy_Division<Matrix<T, R, C>, false>
{
    FUNCTION Matrix<T, R, C> quotient(Matrix<T, R, C> a, Matrix<T, R, C> b)
    {
        for (int k = 0; k < R; ++k)
            a.rows[k] = _spy_quotient(a.rows[k], b.rows[k]);
        return a;
    }
    FUNCTION Matrix<T, R, C> remainder(Matrix<T, R, C> a, Matrix<T, R, C> b)
    {
        for (int k = 0; k < R; ++k)
            a.rows[k] = _spy_remainder(a.rows[k], b.rows[k]);
        return a;
    }
};
"""
_CPP_VECTORS = b"""
template<typename T, int N> struct _spy_Division<Vector<T, N>, false>
{
    FUNCTION Vector<T, N> quotient(Vector<T, N> a, Vector<T, N> b)
    {
        for (int k = 0; k < N; ++k)
            *_slang_vector_get_element_ptr(&a, k) =
                _spy_quotient<T>(_slang_vector_get_element(a, k), _slang_vector_get_element(b, k));
        return a;
    }
    FUNCTION Vector<T, N> remainder(Vector<T, N> a, Vector<T, N> b)
    {
        if constexpr (!_spy_Integer<T>::is)
            return a % b;
        else
        {
            for (int k = 0; k < N; ++k)
                *_slang_vector_get_element_ptr(&a, k) =
                    _spy_remainder<T>(_slang_vector_get_element(a, k), _slang_vector_get_element(b, k));
            return a;
        }
    }
};
"""

_CUDA_VECTOR = """
template<> struct _spy_Division<TYPE, false>
{
    FUNCTION TYPE quotient(TYPE a, TYPE b)
    {
        QUOTIENTS
        return a;
    }
    FUNCTION TYPE remainder(TYPE a, TYPE b)
    {
        REMAINDERS
        return a;
    }
};
"""
_CUDA_SCALARS = ("char", "uchar", "short", "ushort", "int", "uint", "longlong", "ulonglong")


def with_division(code: bytes, form: str) -> bytes:
    """Return target code in which every integer division has a defined result.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote.
    form : str
        ``"cpp"``, ``"cuda"`` or ``"spirv"``; code of another format is returned as it is.
    """
    if form in ("cpp", "cuda"):
        return _in_text(code, form)
    return _in_spirv(code) if form == "spirv" else code


def _in_text(code: bytes, form: str) -> bytes:
    end = prelude_end(code, form)
    prelude, text = code[:end], code[end:]
    marked = _OPERATOR.sub(_marked, text)
    if marked == text:
        return code
    vectors, function = (
        (_CPP_VECTORS, b"inline") if form == "cpp" else (_cuda_vectors(), b"__device__ __forceinline__")
    )
    operators = _OPERATORS + _ROWS.replace(b"VECTORS", vectors)
    # Member functions, whose lines are indented, have to be static.
    operators = operators.replace(b"    FUNCTION", b"    static FUNCTION").replace(b"FUNCTION", function)
    return prelude + operators + marked


def _cuda_vectors() -> bytes:
    found = ""
    for scalar in _CUDA_SCALARS:
        for count in (2, 3, 4):
            text = _CUDA_VECTOR.replace("TYPE", f"{scalar}{count}")
            for name in ("quotient", "remainder"):
                lines = "".join(f"a.{c} = _spy_{name}(a.{c}, b.{c}); " for c in "xyzw"[:count])
                text = text.replace(f"{name.upper()}S", lines.rstrip())
            found += text
    return found.encode()


def _marked(match: re.Match[bytes]) -> bytes:
    return {b"/": b" /_spy_over()/ ", b"%": b" /_spy_rest()/ "}[match[1]] if match[1] else match[0]


def _in_spirv(code: bytes) -> bytes:
    words = memoryview(code).cast("I")
    at, end = 5, len(words)
    while at < end and words[at] & 0xFFFF not in _DIVISIONS:
        at += words[at] >> 16
    if at >= end:
        return code
    module = Assembly(code)
    types = {w[1]: w for w in module.head if w[0] & 0xFFFF in (spirv.TYPE_INT, spirv.TYPE_VECTOR)}
    safe = _safe_constants(module, types)
    old, module.body = module.body, []
    for found in old:
        if found[0] & 0xFFFF in _DIVISIONS and found[4] not in safe:
            module.body += _defined(module, types, found)
        else:
            module.body.append(found)
    return module.bytes()


def _safe_constants(module: Assembly, types: dict[int, Words]) -> set[int]:
    """Return the ids of integer constants, and of vectors of these, that are neither 0 nor -1."""
    found = set()
    for words in module.head:
        op = words[0] & 0xFFFF
        if op == spirv.CONSTANT and words[1] in types:
            bits = min(types[words[1]][2], 32)
            if any(words[3:]) and any(~word & (1 << bits) - 1 for word in words[3:]):
                found.add(words[2])
        elif op == spirv.CONSTANT_COMPOSITE and words[1] in types and found.issuperset(words[3:]):
            found.add(words[2])
    return found


def _defined(module: Assembly, types: dict[int, Words], words: Words) -> Iterator[Words]:
    """Yield instructions that replace a division, with the results that this file's docstring defines."""
    op, type_, result, a, b = words[0] & 0xFFFF, *words[1:5]
    size = types[type_][3] if types[type_][0] & 0xFFFF == spirv.TYPE_VECTOR else 1
    scalar = types[type_][2] if size > 1 else type_
    boolean = module.find(spirv.TYPE_BOOL)
    if size > 1:
        boolean = module.find(spirv.TYPE_VECTOR, boolean, size)

    def constant(value: int) -> int:
        bits, signed = types[scalar][2:4]
        # SPIR-V sign-extends a constant of a narrow signed type to its 32-bit word.
        value &= (1 << (max(bits, 32) if signed else bits)) - 1
        found = module.find(spirv.CONSTANT, scalar, *(value >> 32 * k & 0xFFFFFFFF for k in range(-(-bits // 32))))
        return found if size == 1 else module.find(spirv.CONSTANT_COMPOSITE, type_, *[found] * size)

    zero, unsafe = module.new_id(), module.new_id()
    divisor, divided = module.new_id(), module.new_id()
    yield instruction(_I_EQUAL, boolean, zero, b, constant(0))
    if op not in _SIGNED:
        unsafe = zero
    else:
        least = module.new_id()
        yield instruction(_I_EQUAL, boolean, least, b, constant(-1))
        yield instruction(_LOGICAL_OR, boolean, unsafe, zero, least)
    yield instruction(_SELECT, type_, divisor, unsafe, constant(1), b)
    yield instruction(op, type_, divided, a, divisor)
    if op == _S_DIV:
        negated, chosen = module.new_id(), module.new_id()
        yield instruction(_S_NEGATE, type_, negated, a)
        yield instruction(_SELECT, type_, chosen, least, negated, divided)
        divided = chosen
    yield instruction(_SELECT, type_, result, zero, constant(-1), divided)


def _divides(words: Words) -> bool:
    return words[0] & 0xFFFF in _DIVISIONS


def _unguarded(code: bytes) -> bool:
    """Return whether SPIR-V divides by a number that no OpSelect chose."""
    chosen: set[int] = set()

    def divides(words: Words) -> bool:
        if words[0] & 0xFFFF == _SELECT:
            chosen.add(words[2])
        return _divides(words) and words[4] not in chosen

    return has(divides)(code)


def _compares(code: bytes) -> bool:
    """Return whether the function ``canary`` in text compares something with 0."""
    return re.search(rb"== *\(?(?:int\(0\)|0)\b", code[code.rfind(b"canary") :]) is not None


DIVISION = Correction(
    name="integer division",
    why="A division by zero ends the process in C++, and is undefined in CUDA and SPIR-V.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda", "spirv"),
    applies=lambda code, emission: with_division(code, emission.form),
    canary=Canary(
        text="void canary(uniform int *p, uniform int a, uniform int b) { p[0] = a / b; p[1] = a % b; }",
        wrong=lambda code: re.search(rb"a_0 [/%] b_0;", code) or _unguarded(code),
        right=lambda code: _compares(code) or (has(_divides)(code) and not _unguarded(code)),
    ),
)

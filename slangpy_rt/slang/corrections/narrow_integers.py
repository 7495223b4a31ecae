"""Makes arithmetic of 8-bit and 16-bit integers wrap around in C++ and CUDA, as it does on other targets.

Both languages promote such operands to ``int``: ``(a + b) / uint8_t(2)`` of 200 and 100 is 150 there, and 22 in
SPIR-V. Templates replace all operators whose result would be an ``int``, except ``/`` and ``%``, which ``division``
replaces: ``a_0 + b_0`` becomes ``a_0 +_spy_sum()+ b_0``, and ``- a_0`` becomes ``_spy_negative(a_0)``. The result has
the type of the operands, which Slang has cast to one type before. Vectors, pointers and wider numbers get the result
of the plain operator, except that negatives of vectors of short on CUDA wrap too. Code without a narrow type is
returned as it is.
"""

from __future__ import annotations

import re

from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.emitted import prelude_end

_NARROW = re.compile(rb"\b(?:u?int(?:8|16)_t|u?char|u?short|short[234])\b")
# Slang writes a space on both sides of a binary operator, a space after a unary minus, and none after a tilde. The
# first four lines match text without operators, to skip it: strings, directives, function headers, and the
# declaration of a pointer, ``Call_0 * ``, at the beginning of a statement. A sum with a literal of 32 bits or more is
# not narrow, so ``a_0 + int(1)`` and ``a_0 + 1U`` are excluded.
_OPERATOR = re.compile(
    rb'"(?:\\.|[^"\\\n])*"'
    rb"|^#[^\n]*"
    rb"|^\w[^\n=]*\);?$"
    rb"|^[^\S\n]*(?!return\b)\w[\w:<>, ]*[*] "
    rb"|(?<=[\w)\]}])(?<!\breturn) (?P<binary>[-+*&|^](?! (?:u?int\(|\d))|<<|>>) (?=\S)"
    rb"|(?P<unary>(?:(?<![\w)\]}] )|(?<=\breturn ))- (?=\S)|~)",
    re.M,
)
_NAMES = {
    b"+": b"sum", b"-": b"difference", b"*": b"product", b"<<": b"shift_left", b">>": b"shift_right", b"&": b"and",
    b"|": b"or", b"^": b"xor",
}  # fmt: skip
_SHIFTS = (b"<<", b">>")
_UNARY = {b"- ": b"_spy_negative(", b"~": b"_spy_complement("}
_PREFIX = re.compile(rb"(?:- |[-!*&~])*")
# Matches a name or a literal: ``a_0``, ``1.0f``, the ``Vector`` of ``Vector<float, 3>``. Brackets and members after
# it are matched one by one.
_NAME = re.compile(rb"[\w.:]+")
_MEMBER = re.compile(rb"(?:\.|->)\w+")
_BRACKET = re.compile(rb'"(?:\\.|[^"\\\n])*"|[(\[{}\])]')
_ANGLE = re.compile(rb"[<>]")

_FUNCTIONS = b"""
template<typename T> struct _spy_Narrow { static const bool is = false; };
template<> struct _spy_Narrow<char> { static const bool is = true; };
template<> struct _spy_Narrow<signed char> { static const bool is = true; };
template<> struct _spy_Narrow<unsigned char> { static const bool is = true; };
template<> struct _spy_Narrow<short> { static const bool is = true; };
template<> struct _spy_Narrow<unsigned short> { static const bool is = true; };
template<typename A, bool narrow> struct _spy_Sign
{
    static FUNCTION auto negative(A a) -> decltype(-a) { return -a; }
};
template<typename A> struct _spy_Sign<A, true>
{
    // CUDA's assembler takes int(-a) for -int(a), which is 32768 for the least short; it keeps this form.
    static FUNCTION A negative(A a) { return A((-int(a) << (32 - 8 * sizeof(A))) >> (32 - 8 * sizeof(A))); }
};
template<typename A, bool narrow> struct _spy_Bits
{
    static FUNCTION auto complement(A a) -> decltype(~a) { return ~a; }
};
template<typename A> struct _spy_Bits<A, true>
{
    static FUNCTION A complement(A a) { return A(~unsigned(a)); }
};
template<typename A> FUNCTION auto _spy_negative(A a) -> decltype(_spy_Sign<A, _spy_Narrow<A>::is>::negative(a))
{
    return _spy_Sign<A, _spy_Narrow<A>::is>::negative(a);
}
template<typename A> FUNCTION auto _spy_complement(A a) -> decltype(_spy_Bits<A, _spy_Narrow<A>::is>::complement(a))
{
    return _spy_Bits<A, _spy_Narrow<A>::is>::complement(a);
}
"""
_CUDA_VECTORS = b"".join(
    b"FUNCTION short%d _spy_negative(short%d a) { return make_short%d(%s); }\n"
    % (n, n, n, b", ".join(b"_spy_negative(a.%c)" % c for c in b"xyzw"[:n]))
    for n in (2, 3, 4)
)
# A product of 32 bits by ``mad``: of ``-int(a) << 16 >> 16`` DXC would make a negation of 16 bits again.
_HLSL = b"template<typename T> T _spy_negative(T a) { return -a; }\n" + b"".join(
    b"template<> %s _spy_negative(%s a) { return %s(mad(%s(a), -65536, 0) >> 16); }\n"
    % (narrow, narrow, narrow, wide)
    for narrow, wide in ((b"int16_t", b"int"), *((b"int16_t%d" % n, b"int%d" % n) for n in (2, 3, 4)))
)
# ``a +_spy_sum()+ b`` has the precedence of ``a + b``.
_BINARY = b"""
struct _spy_NAME {};
template<typename A> struct _spy_first_NAME { A value; };
template<typename A, typename B, bool narrow> struct _spy_all_NAME
{
    static FUNCTION auto of(A a, B b) -> decltype(a OP b) { return a OP b; }
};
template<typename A, typename B> struct _spy_all_NAME<A, B, true>
{
    static FUNCTION A of(A a, B b) { return A(WIDE(a) OP b); }
};
template<typename A> FUNCTION _spy_first_NAME<A> operator OP(A a, _spy_NAME) { return _spy_first_NAME<A>{a}; }
template<typename A, typename B>
FUNCTION auto operator OP(_spy_first_NAME<A> a, B b) -> decltype(_spy_all_NAME<A, B, IS>::of(a.value, b))
{
    return _spy_all_NAME<A, B, IS>::of(a.value, b);
}
"""


def with_narrow_integers(code: bytes, form: str) -> bytes:
    """Return C++ or CUDA code in which operators of narrow integers have results of their operands' type.

    The operators are ``+ - * & | ^ << >>`` and the unary ``-`` and ``~``.

    Parameters
    ----------
    code : bytes
        The code that Slang wrote.
    form : str
        ``"cpp"`` or ``"cuda"``.
    """
    end = prelude_end(code, form)
    prelude, text = code[:end], code[end:]
    if not _NARROW.search(text):
        return code
    # Each edit is an offset, the number of replaced bytes, and the new text. In sorted order, the edit that closes an
    # operand (0 bytes) precedes that of an operator at the same offset: ``- a + b``.
    edits: list[tuple[int, int, bytes]] = []
    for match in _OPERATOR.finditer(text):
        at, stop = match.span()
        if operator := match["binary"]:
            edits.append((at, stop - at, b" %s_spy_%s()%s " % (operator, _NAMES[operator], operator)))
        elif operator := match["unary"]:
            edits += (at, stop - at, _UNARY[operator]), (_operand_end(text, stop), 0, b")")
    return prelude + _functions(form) + _edited(text, edits)


def with_hlsl_negatives(code: bytes) -> bytes:
    """Return HLSL code in which negatives of ``int16_t`` are computed in 32 bits and then sign-extended.

    NVIDIA's driver moves a negation of 16 bits behind what follows it, as ``spirv_integers.with_negatives`` says.
    """
    if not re.search(rb"\bint16_t\b", code):
        return code
    edits: list[tuple[int, int, bytes]] = []
    for match in _OPERATOR.finditer(code):
        at, stop = match.span()
        # A literal has a type of its own in HLSL, which templates do not take.
        if match["unary"] == b"- " and not code[stop : stop + 1].isdigit():
            edits += (at, stop - at, _UNARY[b"- "]), (_operand_end(code, stop), 0, b")")
    return _HLSL + _edited(code, edits)


def _edited(text: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    pieces: list[bytes] = []
    done = 0
    for at, count, replacement in sorted(edits):
        pieces += text[done:at], replacement
        done = at + count
    return b"".join((*pieces, text[done:]))


def _functions(form: str) -> bytes:
    found = _FUNCTIONS + (_CUDA_VECTORS if form == "cuda" else b"")
    for operator, name in _NAMES.items():
        narrow = b"_spy_Narrow<A>::is" + (b"" if operator in _SHIFTS else b" && _spy_Narrow<B>::is")
        # The operands are cast to unsigned, because a product of two ``unsigned short`` may overflow an ``int``. Only
        # a shift to the right needs the sign.
        wide = b"int" if operator == b">>" else b"unsigned"
        found += _BINARY.replace(b"WIDE", wide).replace(b"NAME", name).replace(b"OP", operator).replace(b"IS", narrow)
    return found.replace(b"FUNCTION", b"inline" if form == "cpp" else b"__device__ __forceinline__")


def _operand_end(text: bytes, at: int) -> int:
    """Return the offset at which the operand of a unary operator ends; it begins at `at`.

    The operand is a name, a literal, a call or an expression in brackets, with prefixes, casts, calls, indices and
    members: ``*p_0``, ``f(x)[int(1)].y``, ``Vector<float, 3> {a, b, c}``, ``(float)x_0``, ``b_0.Load<float >(8U)``.
    """
    at = _skip(_PREFIX, text, at)
    if text.startswith(b"(", at):
        at = _closed(_BRACKET, text, at)
        # Only if the brackets were a cast, an operand follows without a space: ``(float)x_0``.
        if re.match(rb"[\w(*&~!]|- ", text[at : at + 2]):
            return _operand_end(text, at)
    else:
        at = _skip(_NAME, text, at)
        if text.startswith(b"<", at):
            at = _closed(_ANGLE, text, at)
        # Slang writes make_float3 (x) and Vector<float, 3> {x}.
        if text[at : at + 2] in (b" (", b" {"):
            at = _closed(_BRACKET, text, at + 1)
    while True:
        end = _skip(_MEMBER, text, at)
        if end > at and text.startswith(b"<", end):
            end = _closed(_ANGLE, text, end)
        if text[end : end + 1] in (b"(", b"[", b"{"):
            end = _closed(_BRACKET, text, end)
        if end == at:
            return at
        at = end


def _skip(pattern: re.Pattern[bytes], text: bytes, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _closed(brackets: re.Pattern[bytes], text: bytes, at: int) -> int:
    """Return the offset after the bracket that closes the one at offset `at`, or the end of the text."""
    depth = 0
    for found in brackets.finditer(text, at):
        depth += 1 if found[0] in (b"(", b"[", b"{", b"<") else -1 if len(found[0]) == 1 else 0
        if depth == 0:
            return found.end()
    return len(text)


NARROW_INTEGERS = Correction(
    name="narrow integers",
    why="C++ and CUDA promote 8- and 16-bit integers to 32 bits, so that sums do not wrap around.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("cpp", "cuda"),
    applies=lambda code, emission: with_narrow_integers(code, emission.form),
    canary=Canary(
        text="""
void canary(uniform uint16_t *p, uniform uint16_t a, uniform uint16_t b) { p[0] = (a + b) >> uint16_t(1); }
""",
        wrong=rb"= \(a_0 \+ b_0\) >> ",
        right=rb"(?:uint16_t|ushort)\(a_0 \+ b_0\)",
    ),
)

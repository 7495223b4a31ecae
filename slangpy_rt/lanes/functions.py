"""Functions of floats as series, without branches: exp, log, pow, sine and functions that are made of them.

An argument is reduced to a small range, on which a Taylor series of fixed length is evaluated. Results are within
4 ULP, and zeros, infinities and NaN are as in C's library. Arguments of type half are computed as float, functions
of double by C's library (``doubles``).
"""

from __future__ import annotations

import itertools
import math
import struct

from slangpy_rt.lanes.doubles import Doubles
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.text import Value, number, vector_value

# Up to here, a sine's argument is reduced with pi / 2 in three floats; above, with 256 bits of 2 / pi.
_NEAR = 2.0**12
# The least float that is not subnormal.
_NORMAL = 2.0**-126
TABLE = "@slangpy_rt_two_over_pi"
_INFINITY = float("inf")


class Functions:
    """Writes functions into a text."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self.text = numbers, numbers.text
        self.doubles = Doubles(numbers)
        self.table = False

    def call(self, name: str, *values: Value) -> Value:
        """Write the function of a name of GLSL.std.450, in lower case.

        Raises
        ------
        UnsupportedKernel
            If the function is not known, or not for the arguments' type.
        """
        written = getattr(self, f"_{name}", None)
        if values[0].type == "double":
            return self.doubles.call(name, *values)
        if written is None:
            raise UnsupportedKernel(f"function {name} of {values[0].type}")
        if values[0].type == "half":
            wide = (self.numbers.convert("fpext", value, "float") for value in values)
            return self.numbers.convert("fptrunc", written(*wide), "half")
        found = written(*values)
        assert isinstance(found, Value)
        return found

    # exp

    def _exp(self, x: Value) -> Value:
        n = self.numbers
        x = self._clamped(x, -104.0, 89.0)
        k = n.intrinsic("roundeven", n.op("fmul", x, number("float", 1 / math.log(2))))
        high, low = _split(math.log(2), 15)
        r = n.fused(k, number("float", -low), n.fused(k, number("float", -high), x))
        return self._scaled(n.polynomial(r, [1 / math.factorial(j) for j in range(7, -1, -1)]), k)

    def _exp2(self, x: Value) -> Value:
        n = self.numbers
        x = self._clamped(x, -151.0, 129.0)
        k = n.intrinsic("roundeven", x)
        r = n.op("fsub", x, k)
        return self._scaled(n.polynomial(r, [math.log(2) ** j / math.factorial(j) for j in range(7, -1, -1)]), k)

    def _scaled(self, x: Value, k: Value) -> Value:
        """Return x * 2^k, in two steps, since k may lie beyond the exponents of one float."""
        n = self.numbers
        whole = self._frozen(n.convert("fptosi", k, "i32"))
        half = n.op("ashr", whole, number("i32", 1))
        for part in (half, n.op("sub", whole, half)):
            power = n.op("shl", n.op("add", part, number("i32", 127)), number("i32", 23))
            x = n.op("fmul", x, n.convert("bitcast", power, "float"))
        return x

    def _clamped(self, x: Value, low: float, high: float) -> Value:
        n = self.numbers
        for name, bound in (("olt", low), ("ogt", high)):
            limit = number(x.type, bound)
            x = n.select(n.compare(f"fcmp {name}", x, limit), limit, x)
        return x

    def _frozen(self, x: Value) -> Value:
        """Return a number that is poison where it was made of NaN, as any number."""
        type_ = self.text.type(x)
        return Value(x.type, self.text.let(f"freeze {type_} {x.text}"), x.shape)

    def _sinh(self, x: Value) -> Value:
        n = self.numbers
        square = n.op("fmul", x, x)
        series = n.polynomial(square, [1 / math.factorial(2 * j + 1) for j in range(5, 0, -1)])
        near = n.fused(n.op("fmul", series, square), x, x)
        half = self._exp(n.op("fmul", self._abs(x), number("float", 0.5)))
        big = n.op("fmul", n.op("fmul", number("float", 0.5), half), half)
        far = n.op("fsub", big, n.op("fdiv", number("float", 0.25), big))
        return self._signed(n.select(n.compare("fcmp olt", self._abs(x), number("float", 1.0)), near, far), x)

    def _cosh(self, x: Value) -> Value:
        n = self.numbers
        half = self._exp(n.op("fmul", self._abs(x), number("float", 0.5)))
        big = n.op("fmul", n.op("fmul", number("float", 0.5), half), half)
        return n.op("fadd", big, n.op("fdiv", number("float", 0.25), big))

    def _tanh(self, x: Value) -> Value:
        n, one = self.numbers, number("float", 1.0)
        # Small arguments: sinh / cosh as series of the square.
        square = n.op("fmul", x, x)
        sine = n.polynomial(square, [1 / math.factorial(2 * j + 1) for j in range(5, -1, -1)])
        cosine = n.polynomial(square, [1 / math.factorial(2 * j) for j in range(5, -1, -1)])
        near = n.op("fdiv", n.op("fmul", x, sine), cosine)
        both = self._exp(n.op("fmul", self._abs(x), number("float", 2.0)))
        far = n.op("fsub", one, n.op("fdiv", number("float", 2.0), n.op("fadd", both, one)))
        return self._signed(n.select(n.compare("fcmp olt", self._abs(x), one), near, far), x)

    # log

    def _log(self, x: Value) -> Value:
        high, low = _split(math.log(2), 15)
        return self._logarithm(x, 1.0, high, low)

    def _log2(self, x: Value) -> Value:
        return self._logarithm(x, 1 / math.log(2), 1.0, 0.0)

    def _logarithm(self, x: Value, scale: float, high: float, low: float) -> Value:
        """Return log(m) * scale + e * (high + low) of x = m * 2^e, with m near 1."""
        n = self.numbers
        small = n.compare("fcmp olt", x, number("float", _NORMAL))
        up = n.select(small, n.op("fmul", x, number("float", 2.0**24)), x)
        bits = n.convert("bitcast", up, "i32")
        root = 0x3F3504F3  # the bits of sqrt(1 / 2)
        moved = n.op("sub", bits, number("i32", root))
        exponent = n.op("ashr", moved, number("i32", 23))
        mantissa = n.op("sub", bits, n.op("shl", exponent, number("i32", 23)))
        less = n.select(small, number("i32", -24), number("i32", 0))
        e = n.convert("sitofp", n.op("add", exponent, less), "float")
        f = n.op("fsub", n.convert("bitcast", mantissa, "float"), number("float", 1.0))
        # log(1 + f) = 2 atanh(s) = f - s * (f - tail), since 2 s = f - s * f.
        s = n.op("fdiv", f, n.op("fadd", f, number("float", 2.0)))
        square = n.op("fmul", s, s)
        tail = n.op("fmul", square, n.polynomial(square, [2 / (2 * j + 1) for j in range(5, 0, -1)]))
        rest = n.op("fmul", s, n.op("fsub", f, tail))
        if scale == 1.0:
            found = n.op("fsub", f, n.op("fsub", rest, n.op("fmul", e, number("float", low))))
            found = n.fused(e, number("float", high), found)
        else:
            found = n.op("fsub", f, rest)
            big, little = _split(scale, 12)
            found = n.fused(found, number("float", big), n.op("fmul", found, number("float", little)))
            found = n.op("fadd", e, found)
        return self._log_edges(x, found)

    def _log_edges(self, x: Value, found: Value) -> Value:
        n = self.numbers
        zero = number(x.type, 0.0)
        found = n.select(n.compare("fcmp oeq", x, number(x.type, _INFINITY)), x, found)
        found = n.select(n.compare("fcmp oeq", x, zero), number(x.type, -_INFINITY), found)
        return n.select(n.compare("fcmp ult", x, zero), number(x.type, math.nan), found)

    def _log2_double(self, x: Value) -> Value:
        """Return log2 of doubles above 0, within 2^-45 of the value; they are floats, and so not subnormal."""
        n = self.numbers
        bits = n.convert("bitcast", x, "i64")
        root = struct.unpack("<q", struct.pack("<d", math.sqrt(0.5)))[0]
        exponent = n.op("ashr", n.op("sub", bits, number("i64", root)), number("i64", 52))
        mantissa = n.convert("bitcast", n.op("sub", bits, n.op("shl", exponent, number("i64", 52))), "double")
        e = n.convert("sitofp", n.convert("trunc", exponent, "i32"), "double")
        one = number("double", 1.0)
        s = n.op("fdiv", n.op("fsub", mantissa, one), n.op("fadd", mantissa, one))
        series = n.polynomial(n.op("fmul", s, s), [2 / math.log(2) / (2 * j + 1) for j in range(8, -1, -1)])
        return n.fused(s, series, e)

    def _pow(self, x: Value, y: Value) -> Value:
        n, one, zero = self.numbers, number("float", 1.0), number("float", 0.0)
        size, exponent = self._abs(x), n.convert("fpext", y, "double")
        safe = n.select(n.compare("fcmp ogt", size, zero), size, one)
        power = n.op("fmul", exponent, self._log2_double(n.convert("fpext", safe, "double")))
        power = self._clamped(power, -300.0, 300.0)
        k = n.intrinsic("roundeven", power)
        r = n.op("fsub", power, k)
        found = n.polynomial(r, [math.log(2) ** j / math.factorial(j) for j in range(10, -1, -1)])
        whole = self._frozen(n.convert("fptosi", k, "i32"))
        scale = n.op("shl", n.convert("sext", n.op("add", whole, number("i32", 1023)), "i64"), number("i64", 52))
        found = n.convert("fptrunc", n.op("fmul", found, n.convert("bitcast", scale, "double")), "float")
        # Zeros and infinities: |x|^y for x = 0 and infinity.
        down, infinity = n.compare("fcmp olt", y, zero), number("float", _INFINITY)
        found = n.select(n.compare("fcmp oeq", x, zero), n.select(down, infinity, zero), found)
        found = n.select(n.compare("fcmp oeq", size, infinity), n.select(down, zero, infinity), found)
        # An integer power of a negative number has its sign or none; others are NaN.
        whole_y = n.compare("fcmp oeq", n.intrinsic("trunc", y), y)
        halved = n.op("fmul", y, number("float", 0.5))
        odd = n.op("and", whole_y, n.compare("fcmp one", n.intrinsic("trunc", halved), halved))
        negative = n.compare("icmp slt", n.convert("bitcast", x, "i32"), number("i32", 0))
        found = n.select(n.op("and", negative, odd), n.negate(found), found)
        finite = n.compare("fcmp one", size, infinity)
        bad = n.op("and", n.compare("fcmp olt", x, zero), n.op("and", finite, n.op("xor", whole_y, number("i1", 1))))
        found = n.select(bad, number("float", math.nan), found)
        found = n.select(n.compare("fcmp uno", x, y), number("float", math.nan), found)
        # 1^y and x^0 are 1, for NaN too; (-1)^infinity is 1.
        same = n.op("or", n.compare("fcmp oeq", x, one), n.compare("fcmp oeq", y, zero))
        turn = n.op("and", n.compare("fcmp oeq", size, one), n.compare("fcmp oeq", self._abs(y), infinity))
        return n.select(n.op("or", same, turn), one, found)

    def _asinh(self, x: Value) -> Value:
        n = self.numbers
        wide = n.convert("fpext", self._abs(x), "double")
        root = n.intrinsic("sqrt", n.fused(wide, wide, number("double", 1.0)))
        found = self._natural(n.op("fadd", wide, root))
        square = n.op("fmul", x, x)
        near = n.fused(n.op("fmul", square, number("float", -1 / 6)), x, x)
        found = n.select(n.compare("fcmp olt", self._abs(x), number("float", 2.0**-8)), near, found)
        return self._signed(self._unless_special(found, self._abs(x)), x)

    def _acosh(self, x: Value) -> Value:
        n, one = self.numbers, number("double", 1.0)
        wide = n.convert("fpext", x, "double")
        root = n.intrinsic("sqrt", n.op("fmul", n.op("fsub", wide, one), n.op("fadd", wide, one)))
        found = self._natural(n.op("fadd", wide, root))
        found = n.select(n.compare("fcmp ult", x, number("float", 1.0)), number("float", math.nan), found)
        return self._unless_special(found, x)

    def _atanh(self, x: Value) -> Value:
        n, one = self.numbers, number("double", 1.0)
        size = self._abs(x)
        inside = n.select(n.compare("fcmp olt", size, number("float", 1.0)), size, number("float", 0.0))
        wide = n.convert("fpext", inside, "double")
        found = self._natural(n.op("fdiv", n.op("fadd", one, wide), n.op("fsub", one, wide)))
        found = n.op("fmul", found, number("float", 0.5))
        square = n.op("fmul", x, x)
        near = n.fused(n.op("fmul", square, number("float", 1 / 3)), size, size)
        found = n.select(n.compare("fcmp olt", size, number("float", 2.0**-8)), near, found)
        found = n.select(n.compare("fcmp oeq", size, number("float", 1.0)), number("float", _INFINITY), found)
        bad = n.compare("fcmp ugt", size, number("float", 1.0))
        return self._signed(n.select(bad, number("float", math.nan), found), x)

    def _natural(self, x: Value) -> Value:
        n = self.numbers
        return n.convert("fptrunc", n.op("fmul", self._log2_double(x), number("double", math.log(2))), "float")

    def _unless_special(self, found: Value, x: Value) -> Value:
        """Return infinity for infinity, and NaN for NaN."""
        n, infinity = self.numbers, number("float", _INFINITY)
        found = n.select(n.compare("fcmp oeq", x, infinity), infinity, found)
        return n.select(n.compare("fcmp uno", x, x), x, found)

    # Sine

    def _sin(self, x: Value) -> Value:
        return self._turned(x, *self._reduced(x), 0)

    def _cos(self, x: Value) -> Value:
        return self._turned(x, *self._reduced(x), 1)

    def _tan(self, x: Value) -> Value:
        r, k = self._reduced(x)
        return self.numbers.op("fdiv", self._turned(x, r, k, 0), self._turned(x, r, k, 1))

    def _turned(self, x: Value, r: Value, k: Value, quarter: int) -> Value:
        """Return the sine of r + (k + quarter) * pi / 2."""
        n, i = self.numbers, _int
        turns = n.op("add", k, i(quarter)) if quarter else k
        square = n.op("fmul", r, r)
        series = n.polynomial(square, [(-1) ** j / math.factorial(2 * j + 1) for j in range(4, 0, -1)])
        sine = n.fused(n.op("fmul", series, square), r, r)
        cosine = n.polynomial(square, [(-1) ** j / math.factorial(2 * j) for j in range(5, -1, -1)])
        odd = n.compare("icmp ne", n.op("and", turns, i(1)), i(0))
        sign = n.op("shl", n.op("and", turns, i(2)), i(30))
        chosen = n.convert("bitcast", n.select(odd, cosine, sine), "i32")
        found = n.convert("bitcast", n.op("xor", chosen, sign), "float")
        if quarter:
            return found
        return n.select(n.compare("fcmp oeq", x, number("float", 0.0)), x, found)  # -0

    def _reduced(self, x: Value) -> tuple[Value, Value]:
        """Return r within pi / 4 of 0 and an integer k: x = r + k * pi / 2."""
        n = self.numbers
        k = n.intrinsic("roundeven", n.op("fmul", x, number("float", 2 / math.pi)))
        r, rest = x, math.pi / 2
        for _ in range(2):
            part = _float(rest)
            r, rest = n.fused(k, number("float", -part), r), rest - part
        rest += 6.123233995736766e-17  # what math.pi / 2 lacks
        r = n.fused(k, number("float", -_float(rest)), r)
        whole = self._frozen(n.convert("fptosi", k, "i32"))
        near = n.compare("fcmp olt", self._abs(x), number("float", _NEAR))
        return self._unless_far(x, near, r, whole)

    def _unless_far(self, x: Value, near: Value, r: Value, k: Value) -> tuple[Value, Value]:
        """Behind a branch that is hardly ever taken, reduce large arguments; the others keep r and k."""
        text, n = self.text, self.numbers
        cells = [text.cell(text.type(each), each.text) for each in (r, k)]
        far, done = text.name(), text.name()
        if near.shape.vector:
            text.branch(text.any(text.inverse(near.text)), far, done, likely=False)
        else:
            text.branch(near.text, done, far, likely=True)
        text.put(far)
        for cell, mine, other in zip(cells, (r, k), self._reduced_far(x), strict=True):
            mixed = n.select(near, mine, other)
            text.emit(f"store {text.type(mixed)} {mixed.text}, ptr {cell}")
        text.jump(done)
        text.put(done)
        found = [Value(each.type, text.let(f"load {text.type(each)}, ptr {cell}"), each.shape)
                 for cell, each in zip(cells, (r, k), strict=True)]  # fmt: skip
        return found[0], found[1]

    def _reduced_far(self, x: Value) -> tuple[Value, Value]:
        """Reduce by 64 bits of the fraction of x / (2 pi): 24 bits of x times 96 bits of 1 / (2 pi)."""
        n, self.table = self.numbers, True
        i, w = _int, _long
        bits = n.op("and", n.convert("bitcast", x, "i32"), i(0x7FFFFFFF))
        mantissa = n.op("or", n.op("and", bits, i(0x7FFFFF)), i(0x800000))
        # Drop the bits of 1 / (2 pi) that give whole turns; the table begins with 32 zeros.
        at = n.op("sub", n.op("lshr", bits, i(23)), i(127 + 23 - 32))
        at = n.intrinsic("smin", n.intrinsic("smax", at, i(0)), i(136))
        word, shift = n.op("lshr", at, i(5)), n.convert("zext", n.op("and", at, i(31)), "i64")
        words = [n.convert("zext", self._word(n.op("add", word, i(j))), "i64") for j in range(4)]
        pairs = [n.op("or", n.op("shl", a, w(32)), b) for a, b in itertools.pairwise(words)]
        parts = [n.op("and", n.op("lshr", n.op("shl", pair, shift), w(32)), w(0xFFFFFFFF)) for pair in pairs]
        m = n.convert("zext", mantissa, "i64")
        one, two, three = (n.op("mul", m, part) for part in parts)
        turns = n.op("add", n.op("add", n.op("shl", one, w(32)), two), n.op("lshr", three, w(32)))
        quarters = n.op("lshr", n.op("add", turns, w(1 << 61)), w(62))
        rest = n.op("sub", turns, n.op("shl", quarters, w(62)))
        angle = n.op("fmul", n.convert("sitofp", rest, "double"), number("double", 2 * math.pi * 2.0**-64))
        r, k = n.convert("fptrunc", angle, "float"), n.convert("trunc", quarters, "i32")
        negative = n.compare("fcmp olt", x, number("float", 0.0))
        r = n.select(negative, n.negate(r), r)
        k = n.select(negative, n.op("sub", i(0), k), k)
        finite = n.compare("fcmp olt", self._abs(x), number("float", _INFINITY))
        return n.select(finite, r, number("float", math.nan)), k

    def _word(self, index: Value) -> Value:
        text = self.text
        if not index.shape.vector:
            place = text.let(f"getelementptr i32, ptr {TABLE}, i32 {index.text}")
            return Value("i32", text.let(f"load i32, ptr {place}"))
        whole, w = text.whole("i32"), text.width
        places = text.let(f"getelementptr i32, ptr {TABLE}, {whole} {index.text}")
        arguments = [
            (f"<{w} x ptr>", places),
            ("i32", "4"),
            (text.whole("i1"), "splat (i1 true)"),
            (whole, "zeroinitializer"),
        ]
        return vector_value("i32", text.call(f"llvm.masked.gather.v{w}i32.v{w}p0", whole, arguments))

    # Arcs

    def _asin(self, x: Value) -> Value:
        n = self.numbers
        size = self._abs(x)
        inner, outer = self._arc(size)
        found = n.select(self._low(size), inner, n.fused(outer, number("float", -2.0), number("float", math.pi / 2)))
        return self._signed(found, x)

    def _acos(self, x: Value) -> Value:
        n = self.numbers
        size = self._abs(x)
        inner, outer = self._arc(size)
        negative = n.compare("fcmp olt", x, number("float", 0.0))
        twice = n.op("fadd", outer, outer)
        far = n.select(negative, n.op("fsub", number("float", math.pi), twice), twice)
        near = n.op("fsub", number("float", math.pi / 2), self._signed(inner, x))
        return n.select(self._low(size), near, far)

    def _low(self, size: Value) -> Value:
        return self.numbers.compare("fcmp ole", size, number("float", 0.5))

    def _arc(self, size: Value) -> tuple[Value, Value]:
        """Return asin(size), right up to 1/2, and asin(sqrt((1 - size) / 2)), from one series."""
        n = self.numbers
        half = n.op("fmul", n.op("fsub", number("float", 1.0), size), number("float", 0.5))
        low = self._low(size)
        square = n.select(low, n.op("fmul", size, size), half)
        root = n.select(low, size, n.intrinsic("sqrt", half))
        terms = [math.comb(2 * j, j) / 4**j / (2 * j + 1) for j in range(12, 0, -1)]
        found = n.fused(n.op("fmul", n.polynomial(square, terms), square), root, root)
        return found, found

    def _atan(self, x: Value) -> Value:
        n, one = self.numbers, number("float", 1.0)
        size = self._abs(x)
        steep = n.compare("fcmp ogt", size, one)
        small = n.select(steep, n.op("fdiv", one, size), size)
        found = self._arc_of_ratio(small)
        return self._signed(n.select(steep, n.op("fsub", number("float", math.pi / 2), found), found), x)

    def _atan2(self, y: Value, x: Value) -> Value:
        n, zero, one = self.numbers, number("float", 0.0), number("float", 1.0)
        a, b = self._abs(y), self._abs(x)
        steep = n.compare("fcmp ogt", a, b)
        less, more = n.select(steep, b, a), n.select(steep, a, b)
        ratio = n.op("fdiv", less, more)
        ratio = n.select(n.compare("fcmp oeq", less, number("float", _INFINITY)), one, ratio)
        ratio = n.select(n.compare("fcmp oeq", more, zero), zero, ratio)
        found = self._arc_of_ratio(ratio)
        found = n.select(steep, n.op("fsub", number("float", math.pi / 2), found), found)
        behind = n.compare("icmp slt", n.convert("bitcast", x, "i32"), number("i32", 0))
        found = n.select(behind, n.op("fsub", number("float", math.pi), found), found)
        found = self._signed(found, y)
        return n.select(n.compare("fcmp uno", x, y), number("float", math.nan), found)

    def _arc_of_ratio(self, x: Value) -> Value:
        """Return atan of 0 to 1, by a series up to tan(pi / 8)."""
        n, one = self.numbers, number("float", 1.0)
        high = n.compare("fcmp ogt", x, number("float", math.tan(math.pi / 8)))
        t = n.select(high, n.op("fdiv", n.op("fsub", x, one), n.op("fadd", x, one)), x)
        square = n.op("fmul", t, t)
        series = n.polynomial(square, [(-1) ** j / (2 * j + 1) for j in range(10, 0, -1)])
        found = n.fused(n.op("fmul", series, square), t, t)
        return n.select(high, n.op("fadd", found, number("float", math.pi / 4)), found)

    # Signs

    def _abs(self, x: Value) -> Value:
        return self.numbers.intrinsic("fabs", x)

    def _signed(self, size: Value, x: Value) -> Value:
        """Return a number with the sign of x."""
        return self.numbers.intrinsic("copysign", size, x)


def _int(value: int) -> Value:
    return number("i32", value)


def _long(value: int) -> Value:
    return number("i64", value)


def table() -> str:
    """Return the definition of 1 / (2 pi): 32 zeros and 224 bits, in words."""
    bits = 224
    value = (1 << 2 * bits + 64) // (2 * _pi(bits + 64))
    words = [0, *(value >> bits - 32 * (k + 1) & 0xFFFFFFFF for k in range(bits // 32))]
    return f"{TABLE} = internal constant [{len(words)} x i32] [{', '.join(f'i32 {word}' for word in words)}]"


def _pi(bits: int) -> int:
    """Return pi * 2^bits, by Machin's formula."""
    guard = bits + 32

    def arctangent(x: int) -> int:
        term, found, k = (1 << guard) // x, 0, 0
        while term:
            found += (-1) ** k * (term // (2 * k + 1))
            term //= x * x
            k += 1
        return found

    return 4 * (4 * arctangent(5) - arctangent(239)) >> 32


def _split(value: float, bits: int) -> tuple[float, float]:
    """Return a float with few bits of the mantissa, and what is missing."""
    mantissa, exponent = math.frexp(value)
    high = math.ldexp(math.floor(math.ldexp(mantissa, bits)), exponent - bits)
    return high, value - high


def _float(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found

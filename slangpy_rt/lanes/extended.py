"""The instructions of GLSL.std.450: minima, roots, lengths, reflections, determinants, packed numbers.

Functions such as the sine are series of ``functions``. Interpolation in fragment shaders and inverses of matrices are
refused.
"""

from __future__ import annotations

import math

from slangpy_rt.lanes.doubles import FURTHER
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.functions import Functions
from slangpy_rt.lanes.numbers import each
from slangpy_rt.lanes.places import flat
from slangpy_rt.lanes.shapes import ANY, computed
from slangpy_rt.lanes.text import SIZES, Value, number

# Modf and Frexp write one of their results through a pointer. ``inline`` stores it, and asks for either of the two by
# a number that no instruction of the set has.
MODF, FREXP = 35, 51
MODF_FRACTION, FREXP_SIGNIFICAND, FREXP_EXPONENT = 1035, 1051, 1052
TRUNC = 3
# By number: intrinsics of LLVM, and functions of ``functions``.
_INTRINSICS = {
    1: "roundeven", 2: "roundeven", TRUNC: "trunc", 4: "fabs", 8: "floor", 9: "ceil", 31: "sqrt", 37: "minnum",
    38: "umin", 39: "smin", 40: "maxnum", 41: "umax", 42: "smax", 50: "fma", 79: "minnum", 80: "maxnum",
}  # fmt: skip
_FUNCTIONS = {
    13: "sin", 14: "cos", 15: "tan", 16: "asin", 17: "acos", 18: "atan", 19: "sinh", 20: "cosh", 21: "tanh",
    22: "asinh", 23: "acosh", 24: "atanh", 25: "atan2", 26: "pow", 27: "exp", 28: "log", 29: "exp2", 30: "log2",
    **{number: name for name, number in FURTHER.items()},
}  # fmt: skip
_CLAMPS = {43: ("maxnum", "minnum"), 44: ("umax", "umin"), 45: ("smax", "smin"), 81: ("maxnum", "minnum")}
_METHODS = {
    5: "abs", 6: "sign", 7: "sign", 10: "fract", 11: "radians", 12: "degrees", 32: "inversesqrt", 33: "determinant",
    36: "modfstruct", 46: "mix", 48: "step", 49: "smoothstep", 52: "frexpstruct", 53: "ldexp", 59: "packdouble2x32",
    65: "unpackdouble2x32", 58: "packhalf2x16", 62: "unpackhalf2x16", 66: "length", 67: "distance", 68: "cross",
    69: "normalize", 70: "faceforward", 71: "reflect", 72: "refract", 73: "findilsb", 74: "findsmsb", 75: "findumsb",
    MODF_FRACTION: "fraction", FREXP_SIGNIFICAND: "significand", FREXP_EXPONENT: "exponent",
}  # fmt: skip
# Numbers between -1 and 1, or 0 and 1, as integers: how many, bits of each, whether they have a sign.
_PACKED = {54: (4, 8, True), 55: (4, 8, False), 56: (2, 16, True), 57: (2, 16, False)}
_UNPACKED = {60: (2, 16, True), 61: (2, 16, False), 63: (4, 8, True), 64: (4, 8, False)}
# By float: the integer of its size, bits of the significand, the largest exponent's bits.
_LAYOUTS = {"float": ("i32", 23, 255), "double": ("i64", 52, 2047)}


class Extended:
    """Writes instructions of GLSL.std.450 into a text."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.numbers = functions, functions.numbers

    def write(self, code: int, values: list[object], exact: bool) -> object:
        """Write an instruction.

        Parameters
        ----------
        code : int
            Its number.
        values : list
            The operands.
        exact : bool
            Whether products and sums must not be contracted.

        Raises
        ------
        UnsupportedKernel
            If the instruction is not translated.
        """
        n = self.numbers
        if code in _INTRINSICS:
            return each(lambda *a: n.intrinsic(_INTRINSICS[code], *a), *values)
        if code in _FUNCTIONS:
            return each(lambda *a: self.functions.call(_FUNCTIONS[code], *a), *values)
        if code in _CLAMPS:
            low, high = _CLAMPS[code]
            return each(lambda x, a, b: n.intrinsic(high, n.intrinsic(low, x, a), b), *values)
        if code in _PACKED:
            return self._packed(flat(values[0]), *_PACKED[code])
        if code in _UNPACKED:
            return self._unpacked(flat(values[0])[0], *_UNPACKED[code])
        if code in _METHODS:
            return getattr(self, f"_{_METHODS[code]}")(values, exact)
        raise UnsupportedKernel(f"instruction {code} of GLSL.std.450")

    def remainder(self, a: Value, b: Value) -> Value:
        """Return a - b * trunc(a / b) with the sign of a, exactly, as C's fmod.

        Floats and halves are computed as doubles, for which the integer quotient is right and the remainder exact if
        the quotient is below 2^28. For larger ones, the remainder by a multiple of b is taken first.
        """
        n, text = self.numbers, self.numbers.text
        if a.type == "double":
            return self.functions.call("fmod", a, b)
        x, size = n.convert("fpext", a, "double"), n.intrinsic("fabs", n.convert("fpext", b, "double"))
        bound = n.op("fmul", size, number("double", 2.0**28))
        start = Value("double", x.text, computed(x.shape, size.shape))
        if start.shape.vector:
            start = Value("double", text.vector(x), ANY)
        cell = text.cell(text.type(start), start.text)

        def far(value: Value) -> str:
            found = n.compare("fcmp oge", n.intrinsic("fabs", value), bound)
            return text.any(found.text) if found.shape.vector else found.text

        again, done = text.label(), text.label()
        text.branch(far(start), again, done, likely=False)
        text.put(again)
        old = Value("double", text.let(f"load {text.type(start)}, ptr {cell}"), start.shape)
        words = (n.convert("bitcast", n.intrinsic("fabs", part), "i64") for part in (old, size))
        above, below = (n.op("lshr", word, number("i64", 52)) for word in words)
        steps = n.op("sub", n.op("sub", above, below), number("i64", 27))
        steps = n.op("shl", n.intrinsic("smax", steps, number("i64", 0)), number("i64", 52))
        multiple = n.convert("bitcast", n.op("add", n.convert("bitcast", size, "i64"), steps), "double")
        new = self._reduced(old, multiple)
        text.emit(f"store {text.type(start)} {new.text}, ptr {cell}")
        text.branch(far(new), again, done)
        text.put(done)
        found = self._reduced(Value("double", text.let(f"load {text.type(start)}, ptr {cell}"), start.shape), size)
        # Of a finite number and infinity the remainder is the number.
        infinity = number("double", math.inf)
        finite = n.compare("fcmp olt", n.intrinsic("fabs", x), infinity)
        kept = n.op("and", n.compare("fcmp oeq", size, infinity), finite)
        found = n.select(kept, x, found)
        return n.convert("fptrunc", n.intrinsic("copysign", found, x), a.type)

    def _reduced(self, x: Value, y: Value) -> Value:
        n = self.numbers
        return n.intrinsic("fma", n.negate(n.intrinsic("trunc", n.op("fdiv", x, y))), y, x)

    # One method for each instruction: operands, whether they are exact. First those of each component

    def _abs(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self.numbers.intrinsic("abs", a, flags=("false",)), *values)

    def _sign(self, values: list[object], exact: bool) -> object:
        n = self.numbers

        def signed(a: Value) -> Value:
            zero = number(a.type, 0)
            up, down = ("icmp sgt", "icmp slt") if a.type[0] == "i" else ("fcmp ogt", "fcmp olt")
            found = n.select(n.compare(up, a, zero), number(a.type, 1), zero)
            return n.select(n.compare(down, a, zero), number(a.type, -1), found)

        return each(signed, *values)

    def _fract(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        return each(lambda a: n.op("fsub", a, n.intrinsic("floor", a)), *values)

    def _radians(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self.numbers.op("fmul", a, number(a.type, math.pi / 180)), *values)

    def _degrees(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self.numbers.op("fmul", a, number(a.type, 180 / math.pi)), *values)

    def _inversesqrt(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        return each(lambda a: n.op("fdiv", number(a.type, 1.0), n.intrinsic("sqrt", a)), *values)

    def _mix(self, values: list[object], exact: bool) -> object:
        n = self.numbers

        def mixed(a: Value, b: Value, t: Value) -> Value:
            left = n.floating("fmul", a, n.floating("fsub", number(t.type, 1.0), t, exact), exact)
            return n.floating("fadd", left, n.floating("fmul", b, t, exact), exact)

        return each(mixed, *values)

    def _step(self, values: list[object], exact: bool) -> object:
        n = self.numbers

        def stepped(edge: Value, x: Value) -> Value:
            return n.select(n.compare("fcmp olt", x, edge), number(x.type, 0.0), number(x.type, 1.0))

        return each(stepped, *values)

    def _smoothstep(self, values: list[object], exact: bool) -> object:
        n = self.numbers

        def smooth(low: Value, high: Value, x: Value) -> Value:
            part = n.op("fdiv", n.op("fsub", x, low), n.op("fsub", high, low))
            t = n.intrinsic("minnum", n.intrinsic("maxnum", part, number(x.type, 0.0)), number(x.type, 1.0))
            factor = n.op("fsub", number(x.type, 3.0), n.op("fmul", number(x.type, 2.0), t))
            return n.op("fmul", n.op("fmul", t, t), factor)

        return each(smooth, *values)

    def _findilsb(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self.numbers.first_bit(a, True), *values)

    def _findumsb(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self.numbers.first_bit(a, False), *values)

    def _findsmsb(self, values: list[object], exact: bool) -> object:
        """The highest bit that differs from the sign."""
        n = self.numbers
        return each(
            lambda a: n.first_bit(n.op("xor", a, n.op("ashr", a, number(a.type, 8 * SIZES[a.type] - 1))), False),
            *values,
        )

    # Parts of floats

    def _ldexp(self, values: list[object], exact: bool) -> object:
        return each(self._scaled, *values)

    def _scaled(self, a: Value, exponent: Value) -> Value:
        n = self.numbers
        if a.type == "half":
            return n.convert("fptrunc", self._scaled(n.convert("fpext", a, "float"), exponent), "half")
        whole, bits, most = _LAYOUTS[a.type]
        exponent = n.resize(exponent, whole, True)
        # Powers of two that are numbers of the type; three of them reach from the least to the largest one.
        least, largest = number(whole, -(most // 2 - 1)), number(whole, most // 2)
        for _ in range(3):
            part = n.intrinsic("smin", n.intrinsic("smax", exponent, least), largest)
            power = n.op("shl", n.op("add", part, number(whole, most // 2), part.shape), number(whole, bits))
            a = n.op("fmul", a, n.convert("bitcast", power, a.type))
            exponent = n.op("sub", exponent, part)
        return a

    def _modfstruct(self, values: list[object], exact: bool) -> object:
        return [self._fraction(values, exact), each(lambda a: self.numbers.intrinsic("trunc", a), *values)]

    def _fraction(self, values: list[object], exact: bool) -> object:
        n = self.numbers

        def fraction(a: Value) -> Value:
            whole = n.intrinsic("trunc", a)
            # Of infinity the fraction is 0.
            found = n.select(n.compare("fcmp oeq", a, whole), number(a.type, 0.0), n.op("fsub", a, whole))
            return n.intrinsic("copysign", found, a)

        return each(fraction, *values)

    def _frexpstruct(self, values: list[object], exact: bool) -> object:
        return [self._significand(values, exact), self._exponent(values, exact)]

    def _significand(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self._parts(a)[0], *values)

    def _exponent(self, values: list[object], exact: bool) -> object:
        return each(lambda a: self._parts(a)[1], *values)

    def _parts(self, a: Value) -> tuple[Value, Value]:
        """Return s from 0.5 to below 1, with the sign of a, and e, so that a is s * 2^e; a and 0 of what has none."""
        n = self.numbers
        if a.type == "half":
            significand, exponent = self._parts(n.convert("fpext", a, "float"))
            return n.convert("fptrunc", significand, "half"), exponent
        whole, bits, most = _LAYOUTS[a.type]
        size = n.intrinsic("fabs", a)
        tiny = n.compare("fcmp olt", size, number(a.type, 2.0 ** (2 - most // 2 - 1)))
        normal = n.select(tiny, n.op("fmul", a, number(a.type, 2.0 ** (bits + 1))), a)
        word = n.convert("bitcast", normal, whole)
        field = n.op("and", n.op("lshr", word, number(whole, bits)), number(whole, most))
        exponent = n.op("sub", field, n.select(tiny, number(whole, most // 2 + bits), number(whole, most // 2 - 1)))
        rest = n.op("and", word, number(whole, ~(most << bits)))
        significand = n.convert("bitcast", n.op("or", rest, number(whole, (most // 2 - 1) << bits)), a.type)
        some = n.op(
            "and",
            n.compare("fcmp ogt", size, number(a.type, 0.0)),
            n.compare("fcmp olt", size, number(a.type, math.inf)),
        )
        exponent = n.select(some, n.resize(exponent, "i32", True), number("i32", 0))
        return n.select(some, significand, a), exponent

    # Vectors and matrices

    def _length(self, values: list[object], exact: bool) -> Value:
        n, vector = self.numbers, flat(values[0])
        if len(vector) == 1:
            return n.intrinsic("fabs", vector[0])
        return n.intrinsic("sqrt", n.dot(vector, vector, exact))

    def _distance(self, values: list[object], exact: bool) -> object:
        return self._length([each(lambda x, y: self.numbers.floating("fsub", x, y, exact), *values)], exact)

    def _normalize(self, values: list[object], exact: bool) -> object:
        size = self._length(values, exact)
        return each(lambda x: self.numbers.op("fdiv", x, size), values[0])

    def _cross(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        a, b = map(flat, values)
        products = (
            (n.floating("fmul", a[i], b[j], exact), n.floating("fmul", a[j], b[i], exact))
            for i, j in ((1, 2), (2, 0), (0, 1))
        )
        return [n.floating("fsub", x, y, exact) for x, y in products]

    def _faceforward(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        towards = n.dot(flat(values[2]), flat(values[1]), exact)
        behind = n.compare("fcmp olt", towards, number(towards.type, 0.0))
        return each(lambda x: n.select(behind, x, n.negate(x)), values[0])

    def _reflect(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        along = n.dot(flat(values[1]), flat(values[0]), exact)
        twice = n.op("fmul", along, number(along.type, 2.0))
        return each(
            lambda ray, normal: n.floating("fsub", ray, n.floating("fmul", twice, normal, exact), exact), *values
        )

    def _refract(self, values: list[object], exact: bool) -> object:
        n, ratio = self.numbers, flat(values[2])[0]
        along = n.dot(flat(values[1]), flat(values[0]), exact)
        one = number(along.type, 1.0)
        ratio = ratio if ratio.type == along.type else n.convert("fptrunc", ratio, along.type)
        sine = n.op("fmul", n.op("fmul", ratio, ratio), n.op("fsub", one, n.op("fmul", along, along)))
        left = n.op("fsub", one, sine)
        total = n.compare("fcmp olt", left, number(along.type, 0.0))
        root = n.intrinsic("sqrt", n.select(total, number(along.type, 0.0), left))
        across = n.op("fadd", n.op("fmul", ratio, along), root)

        def bent(ray: Value, normal: Value) -> Value:
            found = n.op("fsub", n.op("fmul", ratio, ray), n.op("fmul", across, normal))
            return n.select(total, number(found.type, 0.0), found)

        return each(bent, values[0], values[1])

    def _determinant(self, values: list[object], exact: bool) -> object:
        assert isinstance(values[0], list)
        return self._minor([flat(column) for column in values[0]], exact)

    def _minor(self, columns: list[list[Value]], exact: bool) -> Value:
        """Return a determinant, by the components of its first column."""
        n = self.numbers
        if len(columns) == 1:
            return columns[0][0]
        found = None
        for k, factor in enumerate(columns[0]):
            rest = [[x for row, x in enumerate(column) if row != k] for column in columns[1:]]
            term = n.floating("fmul", factor, self._minor(rest, exact), exact)
            found = term if found is None else n.floating("fsub" if k % 2 else "fadd", found, term, exact)
        assert found is not None
        return found

    # Packed numbers

    def _packed(self, parts: list[Value], count: int, bits: int, signed: bool) -> Value:
        n = self.numbers
        most, least = float((1 << bits - signed) - 1), -1.0 if signed else 0.0
        found = number("i32", 0)
        for k, part in enumerate(parts):
            inside = n.intrinsic(
                "minnum", n.intrinsic("maxnum", part, number(part.type, least)), number(part.type, 1.0)
            )
            rounded = n.intrinsic("roundeven", n.op("fmul", inside, number(part.type, most)))
            word = n.op("and", n.to_integer(rounded, "i32", True), number("i32", (1 << bits) - 1))
            found = n.op("or", found, n.op("shl", word, number("i32", bits * k)))
        assert len(parts) == count
        return found

    def _unpacked(self, word: Value, count: int, bits: int, signed: bool) -> object:
        n = self.numbers
        most = number("float", float((1 << bits - signed) - 1))

        def part(k: int) -> Value:
            # To the highest bits, and back with the sign.
            up = n.op("shl", word, number("i32", 32 - bits * (k + 1)))
            field = n.op("ashr" if signed else "lshr", up, number("i32", 32 - bits))
            found = n.op("fdiv", n.convert("sitofp" if signed else "uitofp", field, "float"), most)
            return n.intrinsic("maxnum", found, number("float", -1.0)) if signed else found

        return [part(k) for k in range(count)]

    def _packhalf2x16(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        low, high = (
            n.resize(n.convert("bitcast", n.convert("fptrunc", part, "half"), "i16"), "i32", False)
            for part in flat(values[0])
        )
        return n.op("or", low, n.op("shl", high, number("i32", 16)))

    def _unpackhalf2x16(self, values: list[object], exact: bool) -> object:
        n, word = self.numbers, flat(values[0])[0]
        words = (n.resize(part, "i16", False) for part in (word, n.op("lshr", word, number("i32", 16))))
        return [n.convert("fpext", n.convert("bitcast", part, "half"), "float") for part in words]

    def _packdouble2x32(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        low, high = (n.resize(part, "i64", False) for part in flat(values[0]))
        return n.convert("bitcast", n.op("or", low, n.op("shl", high, number("i64", 32))), "double")

    def _unpackdouble2x32(self, values: list[object], exact: bool) -> object:
        n = self.numbers
        word = n.convert("bitcast", flat(values[0])[0], "i64")
        return [n.resize(part, "i32", False) for part in (word, n.op("lshr", word, number("i64", 32)))]

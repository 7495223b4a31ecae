"""Arithmetic over lanes, and LLVM's rules on poison.

LLVM gives no value to a float out of range that becomes an integer, to a shift by the number's bits or more, and to a
division by zero. Each gets a rule here: conversions saturate and NaN becomes 0, a shift's count is taken modulo the
bits, and a quotient by zero has all bits set. Floats are fused into multiply-add where Slang allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slangpy_rt.lanes.shapes import ANY, Shape, added, computed, multiplied, resized, scaled
from slangpy_rt.lanes.text import SIZES, Text, Value, number


class Numbers:
    """Writes arithmetic into a text. Results have the shape that ``shapes`` gives them."""

    def __init__(self, text: Text, contract: bool) -> None:
        self.text, self.contract = text, contract

    # Any operation, lane by lane

    def op(self, name: str, a: Value, b: Value, shape: Shape | None = None) -> Value:
        """Write an instruction with two operands of one type; without a shape, lane by lane."""
        found = computed(a.shape, b.shape) if shape is None else shape
        x, y = self._pair(a, b, found)
        type_ = self.text.whole(a.type) if found.vector else a.type
        return Value(a.type, self.text.let(f"{name} {type_} {x}, {y}"), found)

    def floating(self, name: str, a: Value, b: Value, exact: bool = False) -> Value:
        """Write an instruction on floats, which LLVM may fuse with others unless it is exact."""
        return self.op(name if exact or not self.contract else f"{name} contract", a, b)

    def compare(self, name: str, a: Value, b: Value) -> Value:
        """Write a comparison: ``icmp ult``, ``fcmp olt``."""
        shape = computed(a.shape, b.shape)
        x, y = self._pair(a, b, shape)
        type_ = self.text.whole(a.type) if shape.vector else a.type
        return Value("i1", self.text.let(f"{name} {type_} {x}, {y}"), shape)

    def convert(self, name: str, a: Value, type_: str) -> Value:
        """Write a conversion to another type."""
        shape = computed(a.shape)
        text = self.text.vector(a) if shape.vector else a.text
        before, after = ((self.text.whole(t) if shape.vector else t) for t in (a.type, type_))
        return Value(type_, self.text.let(f"{name} {before} {text} to {after}"), shape)

    def intrinsic(self, name: str, *values: Value, flags: tuple[str, ...] = ()) -> Value:
        """Call an intrinsic of LLVM on numbers of one type; `flags` are further arguments of type i1."""
        shape = computed(*(each.shape for each in values))
        first = values[0].type
        type_ = self.text.whole(first) if shape.vector else first
        texts = [(type_, self.text.vector(each) if shape.vector else each.text) for each in values]
        full = f"llvm.{name}.{self.text.suffix(first, shape.vector)}"
        return Value(first, self.text.call(full, type_, [*texts, *(("i1", flag) for flag in flags)]), shape)

    def select(self, condition: Value, a: Value, b: Value, shape: Shape | None = None) -> Value:
        """Choose between numbers."""
        found = computed(condition.shape, a.shape, b.shape) if shape is None else shape
        x, y = self._pair(a, b, found)
        type_ = self.text.whole(a.type) if found.vector else a.type
        test = f"{self.text.whole('i1') if condition.shape.vector else 'i1'} {condition.text}"
        return Value(a.type, self.text.let(f"select {test}, {type_} {x}, {type_} {y}"), found)

    def _pair(self, a: Value, b: Value, shape: Shape) -> tuple[str, str]:
        return (self.text.vector(a), self.text.vector(b)) if shape.vector else (a.text, b.text)

    # Integers, which keep lines

    def add(self, a: Value, b: Value, sign: int = 1) -> Value:
        """Add or subtract integers."""
        shape = added(a.shape, b.shape, sign)
        if b.constant == 0:
            return replace(self.text.as_shape(a, shape), shape=shape)
        if a.constant == 0 and sign == 1:
            return replace(self.text.as_shape(b, shape), shape=shape)
        if a.constant is not None and b.constant is not None:
            return number(a.type, _wrapped(a.constant + sign * b.constant, a.type))
        return self.op("add" if sign == 1 else "sub", a, b, shape)

    def multiply(self, a: Value, b: Value) -> Value:
        """Multiply integers."""
        shape = multiplied(a.shape, b.shape, a.constant, b.constant)
        if a.constant is not None and b.constant is not None:
            return number(a.type, _wrapped(a.constant * b.constant, a.type))
        if b.constant == 1:
            return self.text.as_shape(a, shape)
        return self.op("mul", a, b, shape)

    def shift_left(self, a: Value, b: Value) -> Value:
        """Shift an integer; by a constant it is a product."""
        bits = 8 * SIZES[a.type]
        if b.constant is not None and 0 <= b.constant < bits:
            return self.op("shl", a, replace(b, type=a.type), scaled(a.shape, 1 << b.constant))
        return self.shift("shl", a, b)

    def shift(self, name: str, a: Value, b: Value) -> Value:
        """Shift an integer by a number modulo its bits, as GPUs do."""
        bits = 8 * SIZES[a.type]
        b = self.resize(b, a.type, False)
        if b.constant is None or not 0 <= b.constant < bits:
            b = self.op("and", b, number(a.type, bits - 1))
        return self.op(name, a, b, computed(a.shape, b.shape))

    def resize(self, a: Value, type_: str, signed: bool) -> Value:
        """Change the number of bits of an integer or a bool."""
        if a.type == type_:
            return a
        if a.type == "i1":
            return self.convert("sext" if signed else "zext", a, type_)
        before, after = 8 * SIZES[a.type], 8 * SIZES[type_]
        shape = resized(a.shape, before, after, signed)
        if a.constant is not None:
            value = a.constant if signed or after < before else a.constant & (1 << before) - 1
            return number(type_, _wrapped(value, type_))
        text = self.text.vector(a) if shape.vector else a.text
        name = "trunc" if after < before else "sext" if signed else "zext"
        from_, to = (self.text.whole(t) if shape.vector else t for t in (a.type, type_))
        return Value(type_, self.text.let(f"{name} {from_} {text} to {to}"), shape)

    def divide(self, name: str, a: Value, b: Value, mask: str | None) -> Value:
        """Divide integers: ``udiv``, ``sdiv``, ``urem`` or ``srem``. Lanes without a part divide by 1.

        A quotient by zero has all bits set, and so has its remainder; the smallest number by -1 wraps to itself.
        """
        signed, quotient = name[0] == "s", name.endswith("div")
        if b.constant:
            if b.constant == -1:
                return self.add(number(a.type, 0), a, -1) if quotient else self.select(
                    self.compare("icmp eq", a, a), number(a.type, 0), a)  # fmt: skip
            return self.op(name, a, b, computed(a.shape, b.shape))
        vector = computed(a.shape, b.shape).vector
        one, zero = number(b.type, 1), self.compare("icmp eq", b, number(b.type, 0))
        bad = zero
        if signed:
            least = self.compare("icmp eq", a, number(a.type, -(1 << 8 * SIZES[a.type] - 1)))
            minus = self.compare("icmp eq", b, number(b.type, -1))
            bad = self.op("or", bad, self.op("and", least, minus))
        if vector and mask is not None and SIZES[a.type] == 8:
            bad = self.op("or", bad, Value("i1", self.text.inverse(mask), ANY))
        safe = self.select(bad, one, b)
        if vector and a.type != "i64":
            found = self._divided_as_doubles(name, a, safe)
        else:
            found = self.op(name, a, safe, computed(a.shape, safe.shape))
        return self.select(zero, number(a.type, -1), found)

    def _divided_as_doubles(self, name: str, a: Value, b: Value) -> Value:
        """Divide integers of up to 32 bits exactly: quotients differ from integers by more than a double's error."""
        signed = name[0] == "s"
        to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
        quotient = self.convert(
            back, self.op("fdiv", self.convert(to, a, "double"), self.convert(to, b, "double")), a.type
        )
        if name.endswith("div"):
            return quotient
        return self.op("sub", a, self.op("mul", quotient, b, computed(quotient.shape, b.shape)), ANY)

    def modulo(self, a: Value, b: Value, mask: str | None) -> Value:
        """Return the remainder with the divisor's sign."""
        rest = self.divide("srem", a, b, mask)
        zero = number(a.type, 0)
        differs = self.compare("icmp slt", self.op("xor", rest, b), zero)
        wrong = self.op("and", differs, self.compare("icmp ne", rest, zero))
        return self.select(wrong, self.op("add", rest, b, computed(rest.shape, b.shape)), rest)

    def first_bit(self, a: Value, low: bool) -> Value:
        """Return the place of the lowest or highest bit that is set; -1 for 0."""
        found = self.intrinsic("cttz" if low else "ctlz", a, flags=("false",))
        if not low:
            found = self.op("sub", number(a.type, 8 * SIZES[a.type] - 1), found, found.shape)
        return self.select(self.compare("icmp eq", a, number(a.type, 0)), number(a.type, -1), found)

    # Floats

    def to_integer(self, a: Value, type_: str, signed: bool) -> Value:
        """Convert a float to the nearest integer towards zero that there is; NaN to 0."""
        if a.type == "half":
            a = self.convert("fpext", a, "float")
        bits = 8 * SIZES[type_]
        low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
        least, most = number(a.type, float(low)), number(a.type, float(high))
        above = self.compare("fcmp oge", a, most)
        # Between low - 1 and low the result is low, too; for unsigned numbers that are those above -1.
        below = self.compare("fcmp ole", a, least)
        inside = self.op("and", self.compare("fcmp ogt", a, least), self.compare("fcmp olt", a, most))
        found = self.convert("fptosi" if signed else "fptoui", self.select(inside, a, number(a.type, 0.0)), type_)
        found = self.select(below, number(type_, low), found)
        return self.select(above, number(type_, high - 1), found)

    def negate(self, a: Value) -> Value:
        """Change the sign of a float."""
        shape = computed(a.shape)
        return Value(
            a.type, self.text.let(f"fneg {self.text.whole(a.type) if shape.vector else a.type} {a.text}"), shape
        )

    def fused(self, a: Value, b: Value, c: Value) -> Value:
        """Return a * b + c, rounded once."""
        return self.intrinsic("fma", a, b, c)

    def polynomial(self, x: Value, coefficients: list[float]) -> Value:
        """Return a polynomial; the coefficient of the highest power comes first."""
        found = number(x.type, coefficients[0])
        for each in coefficients[1:]:
            found = self.fused(found, x, number(x.type, each))
        return found

    def dot(self, a: list[Value], b: list[Value], exact: bool) -> Value:
        """Return the sum of products."""
        found = self.floating("fmul", a[0], b[0], exact)
        for x, y in zip(a[1:], b[1:], strict=True):
            found = self.floating("fadd", found, self.floating("fmul", x, y, exact), exact)
        return found


def each(function: Callable[..., Value], *values: object) -> object:
    """Apply a function to scalars, or to the parts of composite values, with scalars repeated."""
    lists = [value for value in values if isinstance(value, list)]
    if not lists:
        return function(*values)
    columns = (value if isinstance(value, list) else [value] * len(lists[0]) for value in values)
    return [each(function, *column) for column in zip(*columns, strict=True)]


def _wrapped(value: int, type_: str) -> int:
    bits = 8 * SIZES[type_]
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> bits - 1 else value

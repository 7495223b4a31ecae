"""Wave operations: a wave is the W lanes of a vector, and its active lanes are those of the mask.

A quad is four lanes that follow each other. Clustered operations are refused.
"""

from __future__ import annotations

import math

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.numbers import Numbers, each
from slangpy_rt.lanes.places import Places, flat
from slangpy_rt.lanes.shapes import ANY, Kind, Shape
from slangpy_rt.lanes.text import SIZES, Value, number, scalar_value

_REDUCE, _INCLUSIVE, _EXCLUSIVE = 0, 1, 2  # group operations of SPIR-V
# The same among the lanes of a part of the wave.
_PARTITIONED = {6: _REDUCE, 7: _INCLUSIVE, 8: _EXCLUSIVE}
# By name: what joins two numbers, and the number that changes nothing; bounds of integers are made from their bits.
_JOIN: dict[str, tuple[str, float | str]] = {
    "IAdd": ("add", 0), "FAdd": ("fadd", -0.0), "IMul": ("mul", 1), "FMul": ("fmul", 1.0),
    "SMin": ("smin", "most"), "UMin": ("umin", -1), "FMin": ("minnum", math.inf),
    "SMax": ("smax", "least"), "UMax": ("umax", 0), "FMax": ("maxnum", -math.inf),
    "BitwiseAnd": ("and", -1), "BitwiseOr": ("or", 0), "BitwiseXor": ("xor", 0),
    "LogicalAnd": ("and", 1), "LogicalOr": ("or", 0), "LogicalXor": ("xor", 0),
}  # fmt: skip
_REDUCTION = {"minnum": "fmin", "maxnum": "fmax"}
LANES = Value("i32", "0", Shape(Kind.EXACT, 1))


class Waves:
    """Writes wave operations into a text."""

    def __init__(self, numbers: Numbers, places: Places) -> None:
        self.numbers, self.places, self.text = numbers, places, numbers.text

    def write(self, name: str, values: list[object], operation: int, mask: str | None) -> object:
        """Write an operation.

        Parameters
        ----------
        name : str
            Without ``OpGroupNonUniform``.
        values : list
            The operands that are values, without the scope.
        operation : int
            The group operation, if the instruction has one: 0 reduces, 1 and 2 scan.
        mask : str or None
            The active lanes.
        """
        method = getattr(self, f"_{name.lower()}", None)
        if method is not None:
            return method(values, operation, mask)
        if name in _JOIN and operation <= _EXCLUSIVE and len(values) == 1:
            return each(lambda value: self.reduced(name, value, operation, mask), values[0])
        if name in _JOIN and operation in _PARTITIONED and len(values) == 2:
            part = flat(values[1])[0]
            return each(lambda value: self._joined_in(name, value, part, _PARTITIONED[operation], mask), values[0])
        raise UnsupportedKernel(f"OpGroupNonUniform{name} with operation {operation}")

    def first(self, mask: str | None) -> Value:
        """Return the first active lane."""
        text, w = self.text, self.text.width
        if mask is None:
            return number("i32", 0)
        zeros = text.call(f"llvm.cttz.i{w}", f"i{w}", [(f"i{w}", text.bits(mask)), ("i1", "true")])
        return scalar_value("i32", zeros if w == 32 else text.let(f"zext i{w} {zeros} to i32"))

    def reduced(self, name: str, value: Value, operation: int, mask: str | None) -> Value:
        """Join the numbers of the active lanes, or of those before each lane."""
        text, w, type_ = self.text, self.text.width, value.type
        join = _JOIN[name][0]
        empty, whole = self._neutral(name, type_), text.whole(type_)
        vector = text.vector(value)
        if mask is not None:
            vector = text.let(f"select {text.whole('i1')} {mask}, {whole} {vector}, {whole} {text.vector(empty)}")
        if operation == _REDUCE:
            full = f"llvm.vector.reduce.{_REDUCTION.get(join, join)}.{text.suffix(type_)}"
            if join not in ("fadd", "fmul"):
                return scalar_value(type_, text.call(full, type_, [(whole, vector)]))
            return scalar_value(type_, self._folded(join, vector, type_))
        found, step = Value(type_, vector, ANY), 1
        while step < w:
            found = self._joined(join, found, self._moved(found, step, empty))
            step *= 2
        return found if operation == _INCLUSIVE else self._moved(found, 1, empty)

    def _joined_in(self, name: str, value: Value, part: Value, operation: int, mask: str | None) -> Value:
        """Join, for each lane, the numbers of the lanes whose bits its part has, or of those before it among them."""
        n, type_ = self.numbers, value.type
        join, empty = _JOIN[name][0], self._neutral(name, type_)
        part = Value("i32", self.text.vector(part), ANY)
        lanes = self._lanes()
        if operation != _REDUCE:
            # 2 << lane is 0 for lane 31, and 0 - 1 has all bits set.
            one = number("i32", 2 if operation == _INCLUSIVE else 1)
            part = n.op("and", part, n.op("sub", n.op("shl", one, lanes), number("i32", 1)))
        found, vector = Value(type_, self.text.vector(empty), ANY), self.text.vector(value)
        for k in range(self.text.width):
            other = scalar_value(type_, self.text.lane(type_, vector, str(k)))
            taken = n.compare("icmp ne", n.op("and", part, number("i32", 1 << k)), number("i32", 0))
            found = n.select(taken, self._joined(join, found, other), found)
        return found

    def _folded(self, join: str, vector: str, type_: str) -> str:
        """Join the halves of a vector again and again: the order does not depend on the processor."""
        text, size = self.text, self.text.width
        while size > 1:
            size //= 2
            whole = text.whole(type_, 2 * size)
            low, high = (
                text.let(
                    f"shufflevector {whole} {vector}, {whole} poison, "
                    f"<{size} x i32> <{', '.join(f'i32 {k}' for k in range(start, start + size))}>"
                )
                for start in (0, size)
            )
            vector = text.let(f"{join} {text.whole(type_, size)} {low}, {high}")
        return text.let(f"extractelement <1 x {type_}> {vector}, i32 0")

    def _joined(self, join: str, a: Value, b: Value) -> Value:
        if join in ("smin", "umin", "smax", "umax", "minnum", "maxnum"):
            return self.numbers.intrinsic(join, a, b)
        return self.numbers.op(join, a, b)

    def _neutral(self, name: str, type_: str) -> Value:
        neutral, bits = _JOIN[name][1], 8 * SIZES[type_]
        if isinstance(neutral, str):
            neutral = (1 << bits - 1) - 1 if neutral == "most" else -(1 << bits - 1)
        return number(type_, neutral)

    def _moved(self, value: Value, step: int, empty: Value) -> Value:
        text, w = self.text, self.text.width
        order = ", ".join(f"i32 {k - step if k >= step else w}" for k in range(w))
        whole = text.whole(value.type)
        moved = text.let(f"shufflevector {whole} {value.text}, {whole} {text.vector(empty)}, <{w} x i32> <{order}>")
        return Value(value.type, moved, ANY)

    # One method for each instruction: operands, group operation, mask

    def _elect(self, values: list[object], operation: int, mask: str | None) -> Value:
        found = self.numbers.compare("icmp eq", LANES, self.first(mask))
        return Value("i1", self.text.vector(found), ANY)

    def _any(self, values: list[object], operation: int, mask: str | None) -> Value:
        return scalar_value("i1", self.text.any(self.text.both(mask, self._vector(values[0]))))

    def _all(self, values: list[object], operation: int, mask: str | None) -> Value:
        some = self.text.any(self.text.both(mask, self.text.inverse(self._vector(values[0]))))
        return scalar_value("i1", self.text.let(f"xor i1 {some}, true"))

    def _allequal(self, values: list[object], operation: int, mask: str | None) -> Value:
        text, first, same = self.text, self.first(mask), None
        for part in flat(values[0]):
            vector = Value(part.type, text.vector(part), ANY)
            head = scalar_value(part.type, text.lane(part.type, vector.text, first.text))
            name = "icmp eq" if part.type[0] == "i" else "fcmp oeq"
            equal = self.numbers.compare(name, vector, head)
            same = equal if same is None else self.numbers.op("and", same, equal)
        assert same is not None
        some = text.any(text.both(mask, text.inverse(same.text)))
        return scalar_value("i1", text.let(f"xor i1 {some}, true"))

    def _broadcast(self, values: list[object], operation: int, mask: str | None) -> object:
        lane = flat(values[1])[0]
        if not lane.shape.uniform:
            return self._shuffle(values, operation, mask)
        index = self.numbers.op("and", lane, number("i32", self.text.width - 1))
        return each(lambda value: self._picked(value, index), values[0])

    def _broadcastfirst(self, values: list[object], operation: int, mask: str | None) -> object:
        first = self.first(mask)
        return each(lambda value: self._picked(value, first), values[0])

    def _picked(self, value: Value, lane: Value) -> Value:
        if value.shape.uniform:
            return value
        return scalar_value(value.type, self.text.lane(value.type, self.text.vector(value), lane.text))

    def _ballot(self, values: list[object], operation: int, mask: str | None) -> object:
        word = self._word(self.text.bits(self.text.both(mask, self._vector(values[0]))))
        return [word, *[number("i32", 0)] * 3]

    def _word(self, bits: str) -> Value:
        w = self.text.width
        return scalar_value("i32", bits if w == 32 else self.text.let(f"zext i{w} {bits} to i32"))

    def _partitionnv(self, values: list[object], operation: int, mask: str | None) -> object:
        """The lanes with the same value as each lane, as bits."""
        n, text, found = self.numbers, self.text, number("i32", 0)
        parts = [Value(part.type, text.vector(part), ANY) for part in flat(values[0])]
        for k in range(text.width):
            same = None
            for part in parts:
                other = scalar_value(part.type, text.lane(part.type, part.text, str(k)))
                equal = n.compare("icmp eq" if part.type[0] == "i" else "fcmp oeq", part, other)
                same = equal if same is None else n.op("and", same, equal)
            assert same is not None
            found = n.op("or", found, n.select(same, number("i32", 1 << k), number("i32", 0)))
        if mask is not None:
            found = n.op("and", found, self._word(text.bits(mask)))
        return [Value("i32", text.vector(found), ANY), *[number("i32", 0)] * 3]

    def _inverseballot(self, values: list[object], operation: int, mask: str | None) -> Value:
        return self._bit(flat(values[0])[0], LANES)

    def _ballotbitextract(self, values: list[object], operation: int, mask: str | None) -> Value:
        return self._bit(flat(values[0])[0], flat(values[1])[0])

    def _bit(self, word: Value, lane: Value) -> Value:
        n = self.numbers
        bit = n.op("and", n.shift("lshr", word, lane), number("i32", 1))
        found = n.compare("icmp ne", bit, number("i32", 0))
        return Value("i1", self.text.vector(found), ANY)

    def _ballotbitcount(self, values: list[object], operation: int, mask: str | None) -> Value:
        n, word = self.numbers, flat(values[0])[0]
        if operation == _REDUCE:
            return n.intrinsic("ctpop", word)
        # 2 << lane is 0 for lane 31, and 0 - 1 has all bits set.
        one = number("i32", 2 if operation == _INCLUSIVE else 1)
        lanes = Value("i32", self.text.vector(LANES), ANY)
        below = n.op("sub", n.op("shl", one, lanes), number("i32", 1))
        return n.intrinsic("ctpop", n.op("and", word, below))

    def _ballotfindlsb(self, values: list[object], operation: int, mask: str | None) -> Value:
        return self.numbers.first_bit(flat(values[0])[0], True)

    def _ballotfindmsb(self, values: list[object], operation: int, mask: str | None) -> Value:
        return self.numbers.first_bit(flat(values[0])[0], False)

    def _shuffle(self, values: list[object], operation: int, mask: str | None) -> object:
        lane = flat(values[1])[0]
        return each(lambda value: self._permuted(value, lane), values[0])

    def _shufflexor(self, values: list[object], operation: int, mask: str | None) -> object:
        return self._shuffle([values[0], self.numbers.op("xor", self._lanes(), flat(values[1])[0])], operation, mask)

    def _shuffleup(self, values: list[object], operation: int, mask: str | None) -> object:
        return self._shuffle([values[0], self.numbers.op("sub", self._lanes(), flat(values[1])[0])], operation, mask)

    def _shuffledown(self, values: list[object], operation: int, mask: str | None) -> object:
        return self._shuffle([values[0], self.numbers.op("add", self._lanes(), flat(values[1])[0])], operation, mask)

    def _quadbroadcast(self, values: list[object], operation: int, mask: str | None) -> object:
        first = self.numbers.op("and", self._lanes(), number("i32", -4))
        return self._shuffle([values[0], self.numbers.op("or", first, flat(values[1])[0])], operation, mask)

    def _quadswap(self, values: list[object], operation: int, mask: str | None) -> object:
        # Directions are 0, 1 and 2: across x, across y, across both.
        other = self.numbers.op("add", flat(values[1])[0], number("i32", 1))
        return self._shufflexor([values[0], other], operation, mask)

    def _lanes(self) -> Value:
        return Value("i32", self.text.vector(LANES), ANY)

    def _permuted(self, value: Value, lane: Value) -> Value:
        """Return each lane's number of another lane, by way of memory."""
        text, type_ = self.text, value.type
        if type_ == "i1":
            wide = self._permuted(self.numbers.resize(value, "i8", False), lane)
            return self.numbers.compare("icmp ne", wide, number("i8", 0))
        cell = text.cell(text.whole(type_), text.vector(value))
        index = text.vector(self.numbers.op("and", lane, number("i32", text.width - 1)))
        pointers = text.let(f"getelementptr {type_}, ptr {cell}, {text.whole('i32')} {index}")
        return Value(type_, self.places.gather(type_, pointers, None), ANY)

    def _vector(self, value: object) -> str:
        return self.text.vector(flat(value)[0])

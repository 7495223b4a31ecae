"""Writes the instructions of blocks: one method or one entry of a table for each that the translation knows.

Results get the shapes that the analysis found (``Instructions.settled``), so that text and facts cannot part.
"""

from __future__ import annotations

from collections.abc import Mapping

from slangpy_rt.lanes.atomics import Atomics
from slangpy_rt.lanes.calls import Call, name_of_call, returned, scalar_types
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.extended import Extended
from slangpy_rt.lanes.flow import Code, Selection, Switch, walk
from slangpy_rt.lanes.functions import Functions
from slangpy_rt.lanes.leaves import Leaves
from slangpy_rt.lanes.module import GROUP, INPUT, PUSH, Instruction
from slangpy_rt.lanes.numbers import Numbers, each
from slangpy_rt.lanes.opcodes import OPERATIONS, name_of
from slangpy_rt.lanes.places import Place, Places, flat, shaped
from slangpy_rt.lanes.scopes import Program
from slangpy_rt.lanes.shapes import ANY, UNIFORM, Shapes
from slangpy_rt.lanes.text import SIZES, Value, number
from slangpy_rt.lanes.threads import Threads
from slangpy_rt.lanes.uniform import Facts
from slangpy_rt.lanes.variables import Variables, constant_index
from slangpy_rt.lanes.waves import Waves

_BITS = {"BitwiseOr": "or", "BitwiseXor": "xor", "BitwiseAnd": "and", "LogicalOr": "or", "LogicalAnd": "and",
         "LogicalNotEqual": "xor"}  # fmt: skip
_FLOATS = {"FAdd": "fadd", "FSub": "fsub", "FMul": "fmul", "VectorTimesScalar": "fmul", "MatrixTimesScalar": "fmul"}
_SHIFTS = {"ShiftRightLogical": "lshr", "ShiftRightArithmetic": "ashr"}
_DIVISIONS = {"UDiv": "udiv", "SDiv": "sdiv", "UMod": "urem", "SRem": "srem"}
_COMPARED = {
    "IEqual": "icmp eq", "INotEqual": "icmp ne", "LogicalEqual": "icmp eq",
    **{f"{sign}{name}": f"icmp {sign.lower()}{code}" for sign in "US"
       for name, code in (("LessThan", "lt"), ("LessThanEqual", "le"), ("GreaterThan", "gt"),
                          ("GreaterThanEqual", "ge"))},
    **{f"F{order}{name}": f"fcmp {order[0].lower()}{code}" for order in ("Ord", "Unord")
       for name, code in (("Equal", "eq"), ("NotEqual", "ne"), ("LessThan", "lt"), ("LessThanEqual", "le"),
                          ("GreaterThan", "gt"), ("GreaterThanEqual", "ge"))},
}  # fmt: skip
_CONVERTED = {"ConvertSToF": "sitofp", "ConvertUToF": "uitofp"}
_CHAINS = ("AccessChain", "InBoundsAccessChain", "PtrAccessChain", "InBoundsPtrAccessChain")
_SKIPPED = ("MemoryBarrier", "Name", "NoLine", "Nop")


class Instructions:
    """Writes instructions into a text, and knows the values of ids."""

    def __init__(
        self, program: Program, variables: Variables, facts: Facts, leaves: Leaves, functions: Functions,
        threads: Threads, shared: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.body, self.module, self.variables = program.body, program.body.module, variables
        self.facts, self.leaves, self.threads = facts, leaves, threads
        self.extended = Extended(functions)
        self.numbers: Numbers = functions.numbers
        self.text, self.shared = self.numbers.text, shared
        self.places = Places(self.module, self.numbers)
        self.waves = Waves(self.numbers, self.places)
        self.atomics = Atomics(self.text, self.places, self.waves)
        self.values: dict[int, object] = {}
        self.used = _used(program)
        # The names of functions that the text calls.
        self.calls: dict[Call, str] = {}

    def write(self, one: Instruction, mask: str | None, exposed: int, once: bool = False) -> None:
        """Write an instruction under a mask.

        Parameters
        ----------
        exposed : int
            The leaves that waiting lanes may read.
        once : bool
            Whether a thread runs it at most once.
        """
        name = OPERATIONS[one.op].name
        try:
            if name == "Store":
                self._store(one, mask, exposed, once)
            elif name == "AtomicStore":
                self.places.store(self.place(one.operands[0]), self.use(one.operands[3]), mask)
            elif name == "Nop" and self.text.place:
                self.text.emit(f"store volatile i8 0, ptr {self.text.cell('i8')}")  # code of this line
            elif name in _SKIPPED or one.result in self.variables.paths:
                pass
            elif name == "FunctionCall":
                self.values[one.result] = self._called(one, mask)
            elif one.result:
                found = self._value(name, one, mask)
                self.values[one.result] = self.settled(found, self.facts.value[one.result])
            else:
                raise UnsupportedKernel(name_of(one.op))
        except UnsupportedKernel as error:
            raise error if error.line or not one.line else UnsupportedKernel(error.what, one.line) from None

    def settled(self, value: object, shapes: Shapes) -> object:
        """Return a value in the shapes that the analysis found."""
        if isinstance(value, list):
            parts = shapes if isinstance(shapes, tuple) else (shapes,) * len(value)
            return [self.settled(part, shape) for part, shape in zip(value, parts, strict=True)]
        if isinstance(value, Place):
            return value
        assert isinstance(value, Value)
        if self.text.width == 1 and value.shape.vector:
            return Value(value.type, self.text.lane(value.type, value.text, "0"), UNIFORM)
        if isinstance(shapes, tuple) or (value.shape.vector and not shapes.vector):
            raise UnsupportedKernel("a value whose lanes differ where the analysis found none (a fault here)")
        return self.text.as_shape(value, shapes)

    def _called(self, one: Instruction, mask: str | None) -> object:
        """Call a function; its result is a vector unless all arguments are the same in all lanes."""
        text, module = self.text, self.module
        function, *ids = one.operands
        scalars = [scalar for id_ in ids for scalar in flat(self.use(id_))]
        call = Call(function, tuple(scalar.shape.uniform for scalar in scalars))
        if call not in self.calls:
            self.calls[call] = name_of_call(module, call, text.width, self.numbers.contract)
        name = self.calls[call]
        shape = UNIFORM if call.uniform else ANY
        types = [(part, part if call.uniform else text.whole(part)) for part in scalar_types(module, one.type)]
        arguments = [
            (part.type, part.text) if same else (text.whole(part.type), text.vector(part))
            for part, same in zip(scalars, call.same, strict=True)
        ]
        every = returned(type_ for _, type_ in types)
        found = text.call(name, every, [*arguments, (f"i{text.width}", text.bits(mask))])
        if not types:
            return []
        parts = (
            Value(part, found if len(types) == 1 else text.let(f"extractvalue {every} {found}, {k}"), shape)
            for k, (part, _) in enumerate(types)
        )
        return shaped(module, one.type, lambda: next(parts))

    # Operands

    def use(self, id_: int) -> object:
        """Return the value of an id."""
        if id_ in self.values:
            found = self.values[id_]
            return self.places.address(found) if isinstance(found, Place) else found
        constant = self.module.constants.get(id_)
        if constant is None:
            raise UnsupportedKernel(f"the value of id {id_}")
        return self._constant(constant.type, constant.value)

    def scalar(self, id_: int) -> Value:
        """Return the value of an id that is a scalar."""
        found = self.use(id_)
        assert isinstance(found, Value)
        return found

    def place(self, id_: int) -> Place:
        """Return where a pointer points to."""
        found = self.values.get(id_)
        if isinstance(found, Place):
            return found
        if id_ in self.module.variables:
            type_, space, _ = self.module.variables[id_]
            if space == PUSH:
                return Place(type_, "%push", number("i64", 0))
            if space == GROUP:
                return Place(type_, "%shared", number("i32", self.shared[id_]))
            raise UnsupportedKernel(f"a variable of storage class {space}")
        return Place(self.module.types[self.body.type_of[id_]].element, None, self.scalar(id_))

    def _constant(self, type_: int, value: object) -> object:
        parts = self.module.parts(type_)
        if isinstance(value, tuple):
            return [self._constant(part, each) for part, each in zip(parts, value, strict=True)]
        assert isinstance(value, int | float)
        return number(self.module.scalar(type_), value)

    def _indices(self, pointer: int) -> tuple[int | Value, ...]:
        ids = self.variables.paths[pointer][1]
        known = (constant_index(self.module, id_) for id_ in ids)
        return tuple(self.scalar(id_) if k < 0 else k for id_, k in zip(ids, known, strict=True))

    # Memory

    def _store(self, one: Instruction, mask: str | None, exposed: int, once: bool) -> None:
        pointer, value = one.operands[0], self.use(one.operands[1])
        if pointer in self.variables.paths:
            variable = self.variables.paths[pointer][0]
            self.leaves.write(variable, self._indices(pointer), value, exposed, mask)
        else:
            self.places.store(self.place(pointer), value, mask, once)

    def _load(self, one: Instruction, mask: str | None) -> object:
        pointer = one.operands[0]
        if pointer in self.variables.paths:
            return self.leaves.read(self.variables.paths[pointer][0], self._indices(pointer), one.type, mask)
        if self.module.variables.get(pointer, (0, 0, 0))[1] == INPUT:
            return self.threads.read(self.module.builtins.get(pointer, -1))
        return self.places.load(self.place(pointer), mask)

    def _chain(self, name: str, one: Instruction) -> object:
        """Return the place at the end of a path; an address in memory without a name is a number."""
        base, *ids = one.operands
        if self.module.variables.get(base, (0, 0, 0))[1] == INPUT:
            raise UnsupportedKernel("a path to a part of a built-in variable")
        place = self.place(base)
        if name in _CHAINS[2:]:
            place = self._moved(place, ids.pop(0), self.module.stride(self.body.type_of[base]), place.type)
        for id_ in ids:
            type_ = self.module.types[place.type]
            if type_.kind == "struct":
                member = constant_index(self.module, id_)
                place = self.places.inside(place, type_.members[member], self.module.offset(place.type, member))
            else:
                place = self._moved(place, id_, self.module.stride(place.type), type_.element)
        return place.offset if place.base is None else place

    def _moved(self, place: Place, id_: int, stride: int, type_: int) -> Place:
        """Return the place of an element. Offsets in group memory have 32 bits, where wrapped sums are right."""
        n = self.numbers
        index = n.resize(self.scalar(id_), place.offset.type, self.module.types[self.body.type_of[id_]].signed)
        offset = n.add(place.offset, n.multiply(index, number(index.type, stride)))
        return Place(type_, place.base, offset)

    # Values

    def _value(self, name: str, one: Instruction, mask: str | None) -> object:
        n, ids = self.numbers, one.operands
        exact = one.result in self.module.exact
        if name in _CHAINS:
            return self._chain(name, one)
        if name == "Load":
            return self._load(one, mask)
        if name.startswith("Atomic"):
            return self._atomic(name.removeprefix("Atomic"), one, mask)
        if name.startswith("GroupNonUniform"):
            return self._wave(name.removeprefix("GroupNonUniform"), one, mask)
        if name == "ExtInst":
            if not self.module.sets[ids[0]].startswith("GLSL"):
                raise UnsupportedKernel(f"an instruction of {self.module.sets[ids[0]]}")
            return self.extended.write(ids[1], [self.use(k) for k in ids[2:]], exact)
        method = getattr(self, f"_{name.lower()}", None)
        if method is not None:
            return method(one, exact)
        values = [self.use(k) for k in one.used]
        if name in _FLOATS:
            return each(lambda a, b: n.floating(_FLOATS[name], a, b, exact), *values)
        if name in _BITS:
            return each(lambda a, b: n.op(_BITS[name], a, b), *values)
        if name in _COMPARED:
            return each(lambda a, b: n.compare(_COMPARED[name], a, b), *values)
        if name in _SHIFTS:
            return each(lambda a, b: n.shift(_SHIFTS[name], a, b), *values)
        if name in _DIVISIONS:
            return each(lambda a, b: n.divide(_DIVISIONS[name], a, b, mask), *values)
        if name == "SMod":
            return each(lambda a, b: n.modulo(a, b, mask), *values)
        if name in _CONVERTED:
            return each(lambda a: n.convert(_CONVERTED[name], a, self._scalar_type(one)), *values)
        raise UnsupportedKernel(name_of(one.op))

    def _scalar_type(self, one: Instruction) -> str:
        return self.module.scalar(one.type)

    def _iadd(self, one: Instruction, exact: bool) -> object:
        return each(self.numbers.add, *map(self.use, one.operands))

    def _isub(self, one: Instruction, exact: bool) -> object:
        return each(lambda a, b: self.numbers.add(a, b, -1), *map(self.use, one.operands))

    def _imul(self, one: Instruction, exact: bool) -> object:
        return each(self.numbers.multiply, *map(self.use, one.operands))

    def _snegate(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        return each(lambda a: n.op("sub", number(a.type, 0), a), self.use(one.operands[0]))

    def _shiftleftlogical(self, one: Instruction, exact: bool) -> object:
        return each(self.numbers.shift_left, *map(self.use, one.operands))

    def _fdiv(self, one: Instruction, exact: bool) -> object:
        return each(lambda a, b: self.numbers.op("fdiv", a, b), *map(self.use, one.operands))

    def _frem(self, one: Instruction, exact: bool) -> object:
        return each(self.extended.remainder, *map(self.use, one.operands))

    def _fmod(self, one: Instruction, exact: bool) -> object:
        """The remainder with the sign of the divisor."""
        n = self.numbers

        def modulo(a: Value, b: Value) -> Value:
            found = self.extended.remainder(a, b)
            zero = number(a.type, 0.0)
            other = n.compare("icmp ne", n.compare("fcmp olt", found, zero), n.compare("fcmp olt", b, zero))
            shifted = n.op("and", other, n.compare("fcmp one", found, zero))
            return n.select(shifted, n.op("fadd", found, b), found)

        return each(modulo, *map(self.use, one.operands))

    def _fnegate(self, one: Instruction, exact: bool) -> object:
        return each(self.numbers.negate, self.use(one.operands[0]))

    def _not(self, one: Instruction, exact: bool) -> object:
        return each(lambda a: self.numbers.op("xor", a, number(a.type, -1)), self.use(one.operands[0]))

    _logicalnot = _not

    def _select(self, one: Instruction, exact: bool) -> object:
        def chosen(condition: Value, a: Value, b: Value, shapes: Shapes) -> Value:
            assert not isinstance(shapes, tuple)
            return self.numbers.select(condition, a, b, shapes)

        return _each_shaped(chosen, self.facts.value[one.result], *map(self.use, one.operands))

    def _convertftou(self, one: Instruction, exact: bool) -> object:
        type_ = self._scalar_type(one)
        return each(lambda a: self.numbers.to_integer(a, type_, False), self.use(one.operands[0]))

    def _convertftos(self, one: Instruction, exact: bool) -> object:
        type_ = self._scalar_type(one)
        return each(lambda a: self.numbers.to_integer(a, type_, True), self.use(one.operands[0]))

    def _uconvert(self, one: Instruction, exact: bool) -> object:
        type_ = self._scalar_type(one)
        return each(lambda a: self.numbers.resize(a, type_, False), self.use(one.operands[0]))

    def _sconvert(self, one: Instruction, exact: bool) -> object:
        type_ = self._scalar_type(one)
        return each(lambda a: self.numbers.resize(a, type_, True), self.use(one.operands[0]))

    def _fconvert(self, one: Instruction, exact: bool) -> object:
        type_ = self._scalar_type(one)

        def converted(a: Value) -> Value:
            return self.numbers.convert("fpext" if SIZES[type_] > SIZES[a.type] else "fptrunc", a, type_)

        return each(converted, self.use(one.operands[0]))

    def _quantizetof16(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        return each(lambda a: n.convert("fpext", n.convert("fptrunc", a, "half"), a.type), self.use(one.operands[0]))

    def _copyobject(self, one: Instruction, exact: bool) -> object:
        found = self.values.get(one.operands[0])
        return found if isinstance(found, Place) else self.use(one.operands[0])

    _copylogical = _convertptrtou = _convertutoptr = _copyobject

    def _bitcast(self, one: Instruction, exact: bool) -> object:
        value, type_ = self.use(one.operands[0]), self._scalar_type(one)
        if self.module.types[one.type].kind == "pointer":
            return value
        scalars = flat(value)
        if SIZES[scalars[0].type] != SIZES[type_]:
            return self._regrouped(scalars, type_, isinstance(value, list), one)
        return each(lambda a: a if a.type == type_ else self.numbers.convert("bitcast", a, type_), value)

    def _regrouped(self, scalars: list[Value], type_: str, several: bool, one: Instruction) -> object:
        """Return the bits of some scalars as scalars of another size, the lowest first."""
        n, before = self.numbers, SIZES[scalars[0].type]
        after, words = (
            SIZES[type_],
            [n.convert("bitcast", a, f"i{8 * before}") if a.type[0] != "i" else a for a in scalars],
        )
        found = []
        if after > before:
            ratio = after // before
            for k in range(0, len(words), ratio):
                whole = number(f"i{8 * after}", 0)
                for j, word in enumerate(words[k : k + ratio]):
                    wide = n.convert("zext", word, whole.type)
                    whole = n.op("or", whole, n.op("shl", wide, number(whole.type, 8 * before * j)))
                found.append(whole)
        else:
            for word in words:
                shifted = (n.op("lshr", word, number(word.type, 8 * after * j)) for j in range(before // after))
                found += [n.convert("trunc", part, f"i{8 * after}") for part in shifted]
        found = [a if a.type == type_ else n.convert("bitcast", a, type_) for a in found]
        return found if self.module.parts(one.type) else found[0]

    # Composites

    def _compositeconstruct(self, one: Instruction, exact: bool) -> object:
        parts = [self.use(k) for k in one.operands]
        if self.module.types[one.type].kind == "vector":
            return [x for part in parts for x in (part if isinstance(part, list) else [part])]
        return parts

    def _compositeextract(self, one: Instruction, exact: bool) -> object:
        found = self.use(one.operands[0])
        for k in one.operands[1:]:
            assert isinstance(found, list)
            found = found[k]
        return found

    def _compositeinsert(self, one: Instruction, exact: bool) -> object:
        def inserted(whole: object, path: tuple[int, ...]) -> object:
            if not path:
                return self.use(one.operands[0])
            assert isinstance(whole, list)
            return [inserted(part, path[1:]) if k == path[0] else part for k, part in enumerate(whole)]

        return inserted(self.use(one.operands[1]), one.operands[2:])

    def _vectorshuffle(self, one: Instruction, exact: bool) -> object:
        both = [*flat(self.use(one.operands[0])), *flat(self.use(one.operands[1]))]
        return [both[k] if k < len(both) else number(both[0].type, 0) for k in one.operands[2:]]

    def _vectorextractdynamic(self, one: Instruction, exact: bool) -> object:
        n, parts, index = self.numbers, flat(self.use(one.operands[0])), self.scalar(one.operands[1])
        found = parts[0]
        for k, part in enumerate(parts[1:], 1):
            found = n.select(n.compare("icmp eq", index, number(index.type, k)), part, found)
        return found

    def _vectorinsertdynamic(self, one: Instruction, exact: bool) -> object:
        n, parts = self.numbers, flat(self.use(one.operands[0]))
        part, index = self.scalar(one.operands[1]), self.scalar(one.operands[2])
        here = (n.compare("icmp eq", index, number(index.type, k)) for k in range(len(parts)))
        return [n.select(test, part, old) for test, old in zip(here, parts, strict=True)]

    # Matrices are lists of columns

    def _columns(self, id_: int) -> list[list[Value]]:
        found = self.use(id_)
        assert isinstance(found, list)
        return found

    def _transpose(self, one: Instruction, exact: bool) -> object:
        return [list(row) for row in zip(*self._columns(one.operands[0]), strict=True)]

    def _dot(self, one: Instruction, exact: bool) -> object:
        a, b = (flat(self.use(k)) for k in one.operands)
        return self.numbers.dot(a, b, exact)

    def _vectortimesmatrix(self, one: Instruction, exact: bool) -> object:
        vector = flat(self.use(one.operands[0]))
        return [self.numbers.dot(vector, column, exact) for column in self._columns(one.operands[1])]

    def _matrixtimesvector(self, one: Instruction, exact: bool) -> object:
        vector, rows = flat(self.use(one.operands[1])), zip(*self._columns(one.operands[0]), strict=True)
        return [self.numbers.dot(list(row), vector, exact) for row in rows]

    def _matrixtimesmatrix(self, one: Instruction, exact: bool) -> object:
        rows = [list(row) for row in zip(*self._columns(one.operands[0]), strict=True)]
        return [[self.numbers.dot(row, column, exact) for row in rows] for column in self._columns(one.operands[1])]

    def _outerproduct(self, one: Instruction, exact: bool) -> object:
        a, b = (flat(self.use(k)) for k in one.operands)
        return [[self.numbers.floating("fmul", x, y, exact) for x in a] for y in b]

    # Tests and bits

    def _any(self, one: Instruction, exact: bool) -> object:
        return self._joined("or", one)

    def _all(self, one: Instruction, exact: bool) -> object:
        return self._joined("and", one)

    def _joined(self, name: str, one: Instruction) -> Value:
        first, *others = flat(self.use(one.operands[0]))
        for other in others:
            first = self.numbers.op(name, first, other)
        return first

    def _isnan(self, one: Instruction, exact: bool) -> object:
        return each(lambda a: self.numbers.compare("fcmp uno", a, a), self.use(one.operands[0]))

    def _isinf(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        infinity = float("inf")
        return each(
            lambda a: n.compare("fcmp oeq", n.intrinsic("fabs", a), number(a.type, infinity)),
            self.use(one.operands[0]),
        )

    def _sdot(self, one: Instruction, exact: bool) -> object:
        return self._integer_dot(one, (True, True))

    def _udot(self, one: Instruction, exact: bool) -> object:
        return self._integer_dot(one, (False, False))

    def _sudot(self, one: Instruction, exact: bool) -> object:
        return self._integer_dot(one, (True, False))

    def _integer_dot(self, one: Instruction, signed: tuple[bool, bool]) -> object:
        """Return the sum of products of integers, which are the bytes of numbers or the components of vectors."""
        n, type_ = self.numbers, self._scalar_type(one)
        sides = []
        for id_, sign in zip(one.operands[:2], signed, strict=True):
            value = self.use(id_)
            parts = flat(value)
            if not isinstance(value, list):
                parts = [n.resize(n.op("lshr", parts[0], number("i32", 8 * k)), "i8", False) for k in range(4)]
            sides.append([n.resize(part, type_, sign) for part in parts])
        products = [n.op("mul", a, b) for a, b in zip(*sides, strict=True)]
        found = products[0]
        for product in products[1:]:
            found = n.op("add", found, product)
        return found

    def _bitreverse(self, one: Instruction, exact: bool) -> object:
        return each(lambda a: self.numbers.intrinsic("bitreverse", a), self.use(one.operands[0]))

    def _bitcount(self, one: Instruction, exact: bool) -> object:
        n, type_ = self.numbers, self._scalar_type(one)
        return each(lambda a: n.resize(n.intrinsic("ctpop", a), type_, False), self.use(one.operands[0]))

    def _bitfieldinsert(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        base, insert, offset, count = (self.use(k) for k in one.operands)

        def inserted(a: Value, b: Value) -> Value:
            at, many = (n.resize(self._first(k), a.type, False) for k in (offset, count))
            field = n.shift("shl", self._low_bits(a.type, many), at)
            kept = n.op("and", a, n.op("xor", field, number(a.type, -1)))
            return n.op("or", kept, n.op("and", n.shift("shl", b, at), field))

        return each(inserted, base, insert)

    def _bitfielduextract(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        base, offset, count = (self.use(k) for k in one.operands)

        def extracted(a: Value) -> Value:
            at, many = (n.resize(self._first(k), a.type, False) for k in (offset, count))
            return n.op("and", n.shift("lshr", a, at), self._low_bits(a.type, many))

        return each(extracted, base)

    def _bitfieldsextract(self, one: Instruction, exact: bool) -> object:
        n = self.numbers
        base, offset, count = (self.use(k) for k in one.operands)

        def extracted(a: Value) -> Value:
            bits = 8 * SIZES[a.type]
            at, many = (n.resize(self._first(k), a.type, False) for k in (offset, count))
            unused = n.op("sub", n.op("sub", number(a.type, bits), many), at)
            up = n.op("sub", number(a.type, bits), many)
            found = n.shift("ashr", n.shift("shl", a, unused), up)
            return n.select(n.compare("icmp eq", many, number(a.type, 0)), number(a.type, 0), found)

        return each(extracted, base)

    def _low_bits(self, type_: str, count: Value) -> Value:
        """Return a number with the lowest `count` bits set, also if that is all of them."""
        n, bits = self.numbers, 8 * SIZES[type_]
        found = n.op("sub", n.shift("shl", number(type_, 1), count), number(type_, 1))
        return n.select(n.compare("icmp uge", count, number(type_, bits)), number(type_, -1), found)

    def _first(self, value: object) -> Value:
        return flat(value)[0]

    # Threads together

    def _wave(self, name: str, one: Instruction, mask: str | None) -> object:
        layout = OPERATIONS[one.op].operands
        operation = one.operands[1] if "l" in layout else 0
        ids = [k for at, k in enumerate(one.operands[1:]) if not ("l" in layout and at == 0)]
        if name == "PartitionNV":  # it has no scope
            ids = list(one.operands)
        return self.waves.write(name, [self.use(k) for k in ids], operation, mask)

    def _atomic(self, name: str, one: Instruction, mask: str | None) -> object:
        ids = one.operands
        if ids[0] in self.variables.paths:
            raise UnsupportedKernel(f"OpAtomic{name} on a variable of a thread")
        place = self.place(ids[0])
        if name == "Load":
            return self.places.load(place, mask)
        value = wanted = None
        if name == "CompareExchange":
            value, wanted = self.scalar(ids[4]), self.scalar(ids[5])
        elif len(ids) > 3:
            value = self.scalar(ids[3])
        return self.atomics.write(name, place, value, wanted, one.result in self.used, mask)


def _each_shaped(function, shapes: Shapes, *values: object) -> object:  # type: ignore[no-untyped-def]
    """Apply a function to scalars and the shape of its result, or to the parts of composite values."""
    lists = [value for value in values if isinstance(value, list)]
    if not lists:
        return function(*values, shapes)
    parts = shapes if isinstance(shapes, tuple) else (shapes,) * len(lists[0])
    columns = zip(*(value if isinstance(value, list) else [value] * len(lists[0]) for value in values), strict=True)
    return [_each_shaped(function, shape, *column) for shape, column in zip(parts, columns, strict=True)]


def _used(program: Program) -> frozenset[int]:
    found: set[int] = set()
    for node in walk(program.tree):
        if isinstance(node, Code):
            for one in node.instructions:
                found.update(one.used)
        elif isinstance(node, Selection):
            found.add(node.condition)
        elif isinstance(node, Switch):
            found.add(node.selector)
    return frozenset(found)

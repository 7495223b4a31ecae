"""Memory: where pointers point to, and how W lanes read and write there.

One number at an address that all lanes share; W numbers side by side; W with a gap, read as a whole and picked apart;
W at an address of each lane's own. A vector that is likely a line is compared with it first, since an access to whole
vectors is several times as fast. A lane that the mask leaves out reads 0 and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from slangpy_rt.lanes.module import Module
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.shapes import ANY, Kind
from slangpy_rt.lanes.text import SIZES, Value, number, scalar_value

_WIDEST_GAP = 4  # elements: an access with a larger step takes more memory than it uses
# Bytes of the smallest registers that are written past the caches, at multiples of their size.
_PAST = 16
_REGISTER = 64  # bytes of the largest register


@dataclass(frozen=True, slots=True)
class Place:
    """An address: the SPIR-V type of the value there, an LLVM pointer, and the bytes from it.

    Without a pointer (None) the offset is the whole address.
    """

    type: int
    base: str | None
    offset: Value


class Places:
    """Writes accesses to memory into a text."""

    def __init__(self, module: Module, numbers: Numbers) -> None:
        self.module, self.numbers, self.text = module, numbers, numbers.text

    def address(self, place: Place) -> Value:
        """Return an address as an integer of 64 bits."""
        if place.base is None:
            return place.offset
        base = self.text.let(f"ptrtoint ptr {place.base} to i64")
        return self.numbers.add(scalar_value("i64", base), self.numbers.resize(place.offset, "i64", True))

    # Whole values: a composite value is a list of its parts

    def load(self, place: Place, mask: str | None) -> object:
        """Return the value at an address."""
        parts, scalars = self._parts(place), self._alike(place)
        if parts is None:
            return self._load_scalar(place, mask)
        if scalars:
            wide = iter(self._load_interleaved(*scalars, place, mask))
            return shaped(self.module, place.type, lambda: next(wide))
        return [self.load(part, mask) for part in parts]

    def store(self, place: Place, value: object, mask: str | None, once: bool = False) -> None:
        """Write a value to an address; `once` says that a thread does so at most once."""
        past = once and mask is None and place.base is None
        parts, scalars = self._parts(place), self._alike(place)
        if parts is None:
            assert isinstance(value, Value)
            self._store_scalar(place, value, mask, past)
        elif scalars:
            self._store_interleaved(*scalars, place, flat(value), mask, past)
        else:
            assert isinstance(value, list)
            for part, each in zip(parts, value, strict=True):
                self.store(part, each, mask, once)

    def _parts(self, place: Place) -> list[Place] | None:
        """Return the places of a composite value's parts, or None for a scalar."""
        types = self.module.parts(place.type)
        if not types and self.module.types[place.type].kind not in ("struct", "array"):
            return None
        return [self.inside(place, type_, self.module.offset(place.type, k)) for k, type_ in enumerate(types)]

    def inside(self, place: Place, type_: int, offset: int) -> Place:
        """Return the place of a part, by the bytes before it."""
        return Place(type_, place.base, self.numbers.add(place.offset, number(place.offset.type, offset)))

    def _alike(self, place: Place) -> tuple[str, int] | None:
        """Return type and number of a value's scalars, if the lanes' values are contiguous and all of one type."""
        shape = place.offset.shape
        if shape.kind is not Kind.EXACT or not shape.step:
            return None
        found = self._scalars(place.type)
        fits = (
            found and found[0] != "i1" and 2 <= found[1] <= _WIDEST_GAP and shape.step == found[1] * SIZES[found[0]]
        )
        return found if fits else None

    def _scalars(self, type_: int) -> tuple[str, int] | None:
        parts = self.module.parts(type_)
        if not parts:
            scalar = self.module.scalar(type_)
            return (scalar, 1) if scalar else None
        found = [self._scalars(part) for part in parts]
        first = found[0]
        if first is None or any(each is None or each[0] != first[0] for each in found):
            return None
        count = sum(each[1] for each in found if each)
        return (first[0], count) if self.module.nbytes(type_) == count * SIZES[first[0]] else None

    # Scalars

    def _load_scalar(self, place: Place, mask: str | None) -> Value:
        type_ = self.module.scalar(place.type)
        if type_ == "i1":
            return self.numbers.compare("icmp ne", self._read("i32", place, mask), number("i32", 0))
        return self._read(type_, place, mask)

    def _read(self, type_: str, place: Place, mask: str | None) -> Value:
        text, offset = self.text, place.offset
        if offset.shape.uniform:
            return scalar_value(type_, text.let(f"load {type_}, ptr {self.pointer(place)}, align {SIZES[type_]}"))
        gap = self._gap(type_, offset)
        if gap and offset.shape.kind is Kind.EXACT:
            return Value(type_, self._load_line(type_, gap, self.pointer(place), mask), ANY)
        if offset.shape.kind is Kind.LINE:
            return self._probed(
                type_, place, gap or 1, mask,
                lambda start: self._load_line(type_, gap or 1, start, mask), lambda: self._gather(type_, place, mask),
            )  # fmt: skip
        return Value(type_, self._gather(type_, place, mask), ANY)

    def _store_scalar(self, place: Place, value: Value, mask: str | None, past: bool) -> None:
        if value.type == "i1":
            value = self.numbers.resize(value, "i32", False)
        text, offset, type_ = self.text, place.offset, value.type
        if offset.shape.uniform:
            if not value.shape.uniform:  # the last lane's number stays
                value = scalar_value(type_, self._last(value, mask))
            text.emit(f"store {type_} {value.text}, ptr {self.pointer(place)}, align {SIZES[type_]}")
            return
        whole, gap = text.vector(value), self._gap(type_, offset)
        if gap == 1 and offset.shape.kind is Kind.EXACT:
            self._store_line(type_, whole, self.pointer(place), mask, past)
        elif offset.shape.kind is Kind.LINE and gap in (0, 1):
            self._probed(
                type_, place, 1, mask,
                lambda start: self._store_line(type_, whole, start, mask, past),
                lambda: self._scatter(type_, whole, place, mask),
            )  # fmt: skip
        else:
            self._scatter(type_, whole, place, mask)

    def _gap(self, type_: str, offset: Value) -> int:
        """Return the step of a line in elements, if that is few; otherwise 0."""
        size, step = SIZES[type_], offset.shape.step or 0
        return step // size if step % size == 0 and 0 < step <= _WIDEST_GAP * size else 0

    def pointer(self, place: Place, offset: str | None = None) -> str:
        """Return the LLVM pointer of a scalar offset."""
        found = place.offset.text if offset is None else offset
        if place.base is None:
            return self.text.let(f"inttoptr i64 {found} to ptr")
        return self.text.let(f"getelementptr i8, ptr {place.base}, {place.offset.type} {found}")

    def pointers(self, place: Place) -> str:
        """Return a vector of LLVM pointers, one for each lane."""
        text, offset = self.text, place.offset
        return text.let(
            f"getelementptr i8, ptr {place.base or 'null'}, {text.whole(offset.type)} {text.vector(offset)}"
        )

    def _last(self, value: Value, mask: str | None) -> str:
        """Return the number of a mask's last lane."""
        text, w = self.text, self.text.width
        vector = text.vector(value)
        if mask is None:
            return text.lane(value.type, vector, str(w - 1))
        zeros = text.call(f"llvm.ctlz.i{w}", f"i{w}", [(f"i{w}", text.bits(mask)), ("i1", "true")])
        return text.lane(value.type, vector, text.let(f"sub i{w} {w - 1}, {zeros}"), f"i{w}")

    # Vectors

    def _probed(
        self, type_: str, place: Place, gap: int, mask: str | None, wide: Callable[[str], str | None],
        apart: Callable[[], str | None],
    ) -> Value:  # fmt: skip
        """Compare a vector of offsets with a line from its first number; access it as a line or lane by lane."""
        text, offset = self.text, place.offset
        vector = text.vector(offset)
        first = text.lane(offset.type, vector, "0")
        line = text.vector(Value(offset.type, first, replace(offset.shape, kind=Kind.EXACT, step=gap * SIZES[type_])))
        other = text.both(mask, text.let(f"icmp ne {text.whole(offset.type)} {vector}, {line}"))
        side, line_side, done = text.name(), text.name(), text.name()
        text.branch(text.any(other), side, line_side)
        text.put(line_side)
        cell = ""
        found = wide(self.pointer(place, first))
        if found:
            cell = text.cell(text.whole(type_))
            text.emit(f"store {text.whole(type_)} {found}, ptr {cell}")
        text.jump(done)
        text.put(side)
        found = apart()
        if found:
            text.emit(f"store {text.whole(type_)} {found}, ptr {cell}")
        text.jump(done)
        text.put(done)
        return Value(type_, text.let(f"load {text.whole(type_)}, ptr {cell}") if cell else "", ANY)

    def _load_line(self, type_: str, gap: int, start: str, mask: str | None) -> str:
        """Return W numbers, `gap` elements apart; what lies between them is not read where memory may end."""
        whole = self._load_wide(type_, gap * self.text.width, start, self._wide_mask(gap, gap, mask))
        return whole if gap == 1 else self._picked(type_, whole, gap, 0)

    def _store_line(self, type_: str, vector: str, start: str, mask: str | None, past: bool) -> None:
        self._store_pieces(type_, self.text.width, [vector], start, None if mask is None else [mask], past)

    def _load_interleaved(self, type_: str, count: int, place: Place, mask: str | None) -> list[Value]:
        whole = self._load_wide(type_, count * self.text.width, self.pointer(place), self._wide_mask(count, 1, mask))
        return [Value(type_, self._picked(type_, whole, count, k), ANY) for k in range(count)]

    def _store_interleaved(
        self, type_: str, count: int, place: Place, values: list[Value], mask: str | None, past: bool
    ) -> None:  # fmt: skip
        """Write the values of neighbouring lanes, in pieces of a register.

        LLVM mixes two vectors of a register at a time well, and all numbers at once one after the other.
        """
        text, w = self.text, self.text.width
        size = min(w, _REGISTER // SIZES[type_])
        whole, lanes = text.whole(type_), text.whole("i1")
        pieces, masks = [], []
        for first in range(0, w, size):
            columns = [text.vector(value) for value in values]
            if size < w:
                order = _order(range(first, first + size))
                columns = [text.let(f"shufflevector {whole} {a}, {whole} poison, {order}") for a in columns]
            for k in range(count):
                at = [divmod(k * size + j, count) for j in range(size)]
                pieces.append(self._mixed(type_, columns, at))
                if mask is not None:
                    order = _order(first + lane for lane, _ in at)
                    masks.append(text.let(f"shufflevector {lanes} {mask}, {lanes} poison, {order}"))
        self._store_pieces(type_, size, pieces, self.pointer(place), masks if mask is not None else None, past)

    def _mixed(self, type_: str, columns: list[str], at: list[tuple[int, int]]) -> str:
        """Return a vector of numbers of some vectors of its size: each number's place, and the vector that has it."""
        size, whole = len(at), self.text.whole(type_, len(at))
        found = columns[0]
        for k, column in enumerate(columns[1:], 1):
            order = _order(
                size + lane if part == k else lane if k == 1 and part == 0 else j if part < k else None
                for j, (lane, part) in enumerate(at)
            )
            found = self.text.let(f"shufflevector {whole} {found}, {whole} {column}, {order}")
        return found

    def _picked(self, type_: str, vector: str, count: int, part: int) -> str:
        w = self.text.width
        order = ", ".join(f"i32 {count * lane + part}" for lane in range(w))
        whole = self.text.whole(type_, count * w)
        return self.text.let(f"shufflevector {whole} {vector}, {whole} poison, <{w} x i32> <{order}>")

    def _wide_mask(self, count: int, step: int, mask: str | None) -> str | None:
        """Return a mask over count * W numbers: the mask's lanes at each step-th number, and no lane elsewhere."""
        w = self.text.width
        if (mask is None and step == 1) or count == 1:
            return mask
        if mask is None:
            return f"<{', '.join(f'i1 {str(k % step == 0).lower()}' for k in range(count * w))}>"
        order = ", ".join(f"i32 {k // count if k % step == 0 else w}" for k in range(count * w))
        whole = self.text.whole("i1")
        return self.text.let(f"shufflevector {whole} {mask}, {whole} zeroinitializer, <{count * w} x i32> <{order}>")

    def _load_wide(self, type_: str, count: int, start: str, mask: str | None) -> str:
        whole, size = self.text.whole(type_, count), SIZES[type_]
        if mask is None:
            return self.text.let(f"load {whole}, ptr {start}, align {size}")
        arguments = [("ptr", start), ("i32", str(size)), (f"<{count} x i1>", mask), (whole, "zeroinitializer")]
        return self.text.call(f"llvm.masked.load.v{count}{_short(type_)}.p0", whole, arguments)

    def _store_pieces(
        self, type_: str, count: int, pieces: list[str], start: str, masks: list[str] | None, past: bool
    ) -> None:  # fmt: skip
        """Write vectors of `count` numbers one behind the other."""
        text, size, whole = self.text, SIZES[type_], self.text.whole(type_, count)
        places = [start]
        for k in range(1, len(pieces)):
            places.append(text.let(f"getelementptr {whole}, ptr {start}, i64 {k}"))
        if masks is not None:
            for piece, at, mask in zip(pieces, places, masks, strict=True):
                arguments = [(whole, piece), ("ptr", at), ("i32", str(size)), (text.whole("i1", count), mask)]
                text.call(f"llvm.masked.store.v{count}{_short(type_)}.p0", "void", arguments)
            return
        done = ""
        if past and count * size % _PAST == 0:
            done = self._store_past(whole, pieces, places)
        for piece, at in zip(pieces, places, strict=True):
            text.emit(f"store {whole} {piece}, ptr {at}, align {size}")
        if done:
            text.jump(done)
            text.put(done)

    def _store_past(self, whole: str, pieces: list[str], places: list[str]) -> str:
        """Write vectors past the caches, if the launch asks for it and they are aligned; go on where neither holds.

        Returns
        -------
        str
            The label of the place where both ways meet.
        """
        text = self.text
        address = text.let(f"ptrtoint ptr {places[0]} to i64")
        past, usual, done = text.label(), text.label(), text.label()
        inside = text.let(f"icmp ult i64 {text.let(f'sub i64 {address}, %past')}, %bytes")
        aligned = text.let(f"icmp eq i64 {text.let(f'and i64 {address}, {_PAST - 1}')}, 0")
        text.branch(text.let(f"and i1 {inside}, {aligned}"), past, usual)
        text.put(past)
        for piece, at in zip(pieces, places, strict=True):
            text.emit(f"store {whole} {piece}, ptr {at}, align {_PAST}, !nontemporal !2")
        text.jump(done)
        text.put(usual)
        return done

    def _gather(self, type_: str, place: Place, mask: str | None) -> str:
        return self.gather(type_, self.pointers(place), mask)

    def gather(self, type_: str, pointers: str, mask: str | None) -> str:
        """Return a number from each lane's own address."""
        text, w = self.text, self.text.width
        whole = text.whole(type_)
        arguments = [
            (text.whole("ptr"), pointers), ("i32", str(SIZES[type_])), (text.whole("i1"), text.mask(mask)),
            (whole, "zeroinitializer"),
        ]  # fmt: skip
        return text.call(f"llvm.masked.gather.v{w}{_short(type_)}.v{w}p0", whole, arguments)

    def _scatter(self, type_: str, vector: str, place: Place, mask: str | None) -> None:
        self.scatter(type_, vector, self.pointers(place), mask)

    def scatter(self, type_: str, vector: str, pointers: str, mask: str | None) -> None:
        """Write each lane's number to its own address, the last lane last."""
        text, w = self.text, self.text.width
        arguments = [
            (text.whole(type_), vector), (text.whole("ptr"), pointers), ("i32", str(SIZES[type_])),
            (text.whole("i1"), text.mask(mask)),
        ]  # fmt: skip
        text.call(f"llvm.masked.scatter.v{w}{_short(type_)}.v{w}p0", "void", arguments)


def flat(value: object) -> list[Value]:
    """Return the scalars of a composite value."""
    if isinstance(value, Value):
        return [value]
    assert isinstance(value, list)
    return [scalar for part in value for scalar in flat(part)]


def shaped(module: Module, type_: int, scalar: Callable[[], Value]) -> object:
    """Return a value of a type, whose scalars come in order."""
    parts = module.parts(type_)
    return [shaped(module, part, scalar) for part in parts] if parts else scalar()


def _order(places: Iterable[int | None]) -> str:
    """Return the order of a ``shufflevector``; None stands for any number."""
    found = [f"i32 {'poison' if k is None else k}" for k in places]
    return f"<{len(found)} x i32> <{', '.join(found)}>"


def _short(type_: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(type_, type_)

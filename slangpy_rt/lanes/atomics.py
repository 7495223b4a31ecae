"""Atomic operations on memory: one for each lane, in the order of the lanes.

Where all lanes have one address and no lane uses the result, their numbers are joined first. One thread of the
CPU runs a group, so that operations on the group's memory need no lock. Operations on a variable of the thread itself
are refused, as they are by Vulkan.
"""

from __future__ import annotations

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.places import Place, Places
from slangpy_rt.lanes.shapes import ANY
from slangpy_rt.lanes.text import SIZES, Text, Value, number
from slangpy_rt.lanes.waves import Waves

_OPERATIONS = {
    "Exchange": "xchg", "IAdd": "add", "ISub": "sub", "SMin": "min", "UMin": "umin", "SMax": "max", "UMax": "umax",
    "And": "and", "Or": "or", "Xor": "xor", "FAddEXT": "fadd", "IIncrement": "add", "IDecrement": "sub",
}  # fmt: skip
# Operations whose numbers may be joined before, and the reduction that joins them.
_JOIN = {
    "IAdd": "IAdd", "SMin": "SMin", "UMin": "UMin", "SMax": "SMax", "UMax": "UMax", "And": "BitwiseAnd",
    "Or": "BitwiseOr", "FAddEXT": "FAdd",
}  # fmt: skip

_BOUNDS = {"min": "smin", "umin": "umin", "max": "smax", "umax": "umax"}


class Atomics:
    """Writes atomic operations into a text."""

    def __init__(self, text: Text, places: Places, waves: Waves) -> None:
        self.text, self.places, self.waves = text, places, waves

    def write(
        self, name: str, place: Place, value: Value | None, wanted: Value | None, used: bool, mask: str | None
    ) -> Value:  # fmt: skip
        """Write an operation; return what lay there before.

        Parameters
        ----------
        name : str
            Without ``OpAtomic``.
        place : Place
            The address.
        value : Value or None
            The operand; None is 1.
        wanted : Value or None
            What has to lie there, for ``CompareExchange``.
        used : bool
            Whether the result is used.
        mask : str or None
            The lanes that take part.
        """
        text, w = self.text, self.text.width
        type_ = self.places.module.scalar(place.type)
        value = value or number(type_, 1)
        operation = _OPERATIONS.get(name)
        if operation is None and name != "CompareExchange":
            raise UnsupportedKernel(f"OpAtomic{name}")
        if SIZES[type_] < 4:
            raise UnsupportedKernel(f"OpAtomic{name} of {type_}")
        if place.offset.shape.uniform and not used and name in _JOIN:
            joined = self.waves.reduced(_JOIN[name], value, 0, mask)
            assert operation is not None
            self._changed(operation, place, self.places.pointer(place), type_, joined.text)
            return Value(type_, "zeroinitializer", ANY)
        bits = text.bits(mask)
        # LLVM would store a whole vector for each lane that it takes out by a variable number.
        offsets, values = self._row(place.offset), self._row(value)
        expected = self._row(wanted) if wanted else ""
        left = text.cell(f"i{w}", bits)
        before = text.cell(text.whole(type_), "zeroinitializer") if used else ""
        head, done = text.name(), text.name()
        text.branch(text.let(f"icmp ne i{w} {bits}, 0"), head, done)
        text.put(head)
        now = text.let(f"load i{w}, ptr {left}")
        lane = text.call(f"llvm.cttz.i{w}", f"i{w}", [(f"i{w}", now), ("i1", "true")])
        at = self.places.pointer(place, self._item(place.offset.type, offsets, lane))
        one = self._item(type_, values, lane)
        if wanted:
            old = self._item(type_, expected, lane)
            found = self._exchanged(place, at, type_, old, one)
        else:
            assert operation is not None
            found = self._changed(operation, place, at, type_, one)
        if used:
            whole = text.whole(type_)
            kept = text.let(f"load {whole}, ptr {before}")
            changed = text.let(f"insertelement {whole} {kept}, {type_} {found}, i{w} {lane}")
            text.emit(f"store {whole} {changed}, ptr {before}")
        rest = text.let(f"and i{w} {now}, {text.let(f'sub i{w} {now}, 1')}")
        text.emit(f"store i{w} {rest}, ptr {left}")
        text.branch(text.let(f"icmp ne i{w} {rest}, 0"), head, done)
        text.put(done)
        return Value(type_, text.let(f"load {text.whole(type_)}, ptr {before}") if used else "zeroinitializer", ANY)

    def _row(self, value: Value) -> str:
        """Store the numbers of all lanes; return the address of the first."""
        return self.text.cell(self.text.whole(value.type), self.text.vector(value))

    def _item(self, type_: str, row: str, lane: str) -> str:
        """Return the number of one lane of a row."""
        text = self.text
        return text.let(f"load {type_}, ptr {text.let(f'getelementptr {type_}, ptr {row}, i{text.width} {lane}')}")

    def _changed(self, operation: str, place: Place, at: str, type_: str, value: str) -> str:
        """Change the number at an address by an operation of ``atomicrmw``; return the one before."""
        text = self.text
        if place.base is None:
            return text.let(f"atomicrmw {operation} ptr {at}, {type_} {value} monotonic")
        before = text.let(f"load {type_}, ptr {at}")
        if operation == "xchg":
            after = value
        elif operation in _BOUNDS:
            after = text.call(f"llvm.{_BOUNDS[operation]}.{type_}", type_, [(type_, before), (type_, value)])
        else:
            after = text.let(f"{operation} {type_} {before}, {value}")
        text.emit(f"store {type_} {after}, ptr {at}")
        return before

    def _exchanged(self, place: Place, at: str, type_: str, wanted: str, value: str) -> str:
        """Write a number to an address if another one lies there; return the one before."""
        text, bits = self.text, f"i{8 * SIZES[type_]}"
        if type_ != bits:  # floats are compared by their bits
            wanted, value = (text.let(f"bitcast {type_} {each} to {bits}") for each in (wanted, value))
        if place.base is None:
            pair = text.let(f"cmpxchg ptr {at}, {bits} {wanted}, {bits} {value} monotonic monotonic")
            before = text.let(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
        else:
            before = text.let(f"load {bits}, ptr {at}")
            same = text.let(f"icmp eq {bits} {before}, {wanted}")
            after = text.let(f"select i1 {same}, {bits} {value}, {bits} {before}")
            text.emit(f"store {bits} {after}, ptr {at}")
        return before if type_ == bits else text.let(f"bitcast {bits} {before} to {type_}")

"""Atomic operations on memory: one for each lane, in the order of the lanes.

Where all lanes have one address and no lane uses the result, their numbers are joined first. Operations on a variable
of the thread itself are refused, as they are by Vulkan.
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
            text.let(f"atomicrmw {operation} ptr {self.places.pointer(place)}, {type_} {joined.text} monotonic")
            return Value(type_, "zeroinitializer", ANY)
        bits, offsets, values = text.bits(mask), text.vector(place.offset), text.vector(value)
        expected = text.vector(wanted) if wanted else ""
        left = text.cell(f"i{w}", bits)
        before = text.cell(text.whole(type_), "zeroinitializer") if used else ""
        head, done = text.name(), text.name()
        text.branch(text.let(f"icmp ne i{w} {bits}, 0"), head, done)
        text.put(head)
        now = text.let(f"load i{w}, ptr {left}")
        lane = text.call(f"llvm.cttz.i{w}", f"i{w}", [(f"i{w}", now), ("i1", "true")])
        at = self.places.pointer(place, text.lane(place.offset.type, offsets, lane, f"i{w}"))
        one = text.lane(type_, values, lane, f"i{w}")
        if wanted:
            old = text.lane(type_, expected, lane, f"i{w}")
            pair = text.let(f"cmpxchg ptr {at}, {type_} {old}, {type_} {one} monotonic monotonic")
            found = text.let(f"extractvalue {{ {type_}, i1 }} {pair}, 0")
        else:
            found = text.let(f"atomicrmw {operation} ptr {at}, {type_} {one} monotonic")
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

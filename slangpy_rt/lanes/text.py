"""Lines of one LLVM function, their names, the variables at its entry, and the intrinsics that it calls.

``Text`` knows no SPIR-V and no masks. Values are scalars, vectors of all lanes, or bases of lines (``shapes``).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

from slangpy_rt.lanes.shapes import ANY, UNIFORM, Shape

SIZES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8}
# How intrinsics name types.
SHORT = {"half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Value:
    """A number over the lanes: LLVM type of one number, text, shape. The text is a scalar unless ``shape.vector``."""

    type: str
    text: str
    shape: Shape = UNIFORM

    @property
    def constant(self) -> int | None:
        """The value of an integer that is known, or None."""
        known = self.shape.uniform and self.text.lstrip("-").isdigit() and self.type[0] == "i" and self.type != "i1"
        return int(self.text) if known else None


class Text:
    """The text of a function.

    Parameters
    ----------
    width : int
        Lanes of a vector.

    Attributes
    ----------
    place : str
        What follows each line that is added: the place in the Slang text, for debuggers.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self.place = ""
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.declared: set[str] = set()
        self._names = 0
        self._places: dict[str, str] = {}

    # Lines

    def name(self) -> str:
        """Return a name that is not used yet."""
        self._names += 1
        return f"v{self._names}"

    def label(self) -> str:
        """Return the name of a block, which begins with the present place."""
        found = self.name()
        self._places[found] = self.place
        return found

    def emit(self, line: str) -> None:
        self.lines.append(f"  {line}{self.place}")

    def let(self, text: str) -> str:
        """Add an instruction with a result; return the result's name."""
        name = f"%{self.name()}"
        self.lines.append(f"  {name} = {text}{self.place}")
        return name

    def put(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.place = self._places.get(label, self.place)

    def jump(self, label: str) -> None:
        self.emit(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str, likely: bool | None = None) -> None:
        """End a block by a branch; `likely` says that the first or the second label is hardly ever taken."""
        hint = "" if likely is None else f", !prof !{0 if likely else 1}"
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}{hint}")

    def cell(self, type_: str, initial: str | None = None) -> str:
        """Return a variable of the function, which LLVM turns into values."""
        name = f"%{self.name()}"
        self.entry.append(f"  {name} = alloca {type_}, align 64")
        if initial is not None:
            self.emit(f"store {type_} {initial}, ptr {name}")
        return name

    def call(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        """Call an intrinsic, of the full name, and declare it; return its result's name."""
        text = f"call {result} @{name}({', '.join(f'{type_} {value}' for type_, value in arguments)})"
        self.declared.add(f"declare {result} @{name}({', '.join(type_ for type_, _ in arguments)})")
        if result == "void":
            self.emit(text)
            return ""
        return self.let(text)

    # Types and values

    def whole(self, type_: str, count: int | None = None) -> str:
        """Return the type of a vector of all lanes."""
        return f"<{count or self.width} x {type_}>"

    def type(self, value: Value) -> str:
        """Return the LLVM type of a value's text."""
        return self.whole(value.type) if value.shape.vector else value.type

    def suffix(self, type_: str, vector: bool = True) -> str:
        """Return the end of an intrinsic's name."""
        return f"v{self.width}{SHORT.get(type_, type_)}" if vector else SHORT.get(type_, type_)

    def vector(self, value: Value) -> str:
        """Return a value as a vector."""
        if value.shape.vector:
            return value.text
        whole, step = self.whole(value.type), value.shape.step
        if step:
            lanes = ", ".join(f"{value.type} {k * step}" for k in range(self.width))
            return self.let(f"add {whole} {self.spread(value.type, value.text)}, <{lanes}>")
        return self.spread(value.type, value.text)

    def spread(self, type_: str, scalar: str) -> str:
        """Return a vector of equal numbers."""
        if scalar[0] != "%":
            return f"splat ({type_} {scalar})"
        whole = self.whole(type_)
        one = self.let(f"insertelement {whole} poison, {type_} {scalar}, i32 0")
        return self.let(f"shufflevector {whole} {one}, {whole} poison, <{self.width} x i32> zeroinitializer")

    def as_shape(self, value: Value, shape: Shape) -> Value:
        """Return a value in the form that a shape wants: a vector, or as it is."""
        if shape.vector and not value.shape.vector:
            return Value(value.type, self.vector(value), shape)
        return replace(value, shape=shape)

    def lane(self, type_: str, vector: str, lane: str, lane_type: str = "i32") -> str:
        """Return one lane of a vector."""
        return self.let(f"extractelement {self.whole(type_)} {vector}, {lane_type} {lane}")

    # Masks; None stands for all lanes

    def mask(self, mask: str | None) -> str:
        return "splat (i1 true)" if mask is None else mask

    def both(self, mask: str | None, condition: str) -> str:
        """Return the lanes of a mask in which a condition holds."""
        return condition if mask is None else self.let(f"and {self.whole('i1')} {mask}, {condition}")

    def inverse(self, condition: str) -> str:
        return self.let(f"xor {self.whole('i1')} {condition}, splat (i1 true)")

    def bits(self, mask: str | None) -> str:
        """Return a mask as an integer with a bit for each lane."""
        return self.let(f"bitcast {self.whole('i1')} {self.mask(mask)} to i{self.width}")

    def any(self, mask: str | None) -> str:
        """Return whether a mask has any lane."""
        return "true" if mask is None else self.let(f"icmp ne i{self.width} {self.bits(mask)}, 0")


def number(type_: str, value: float) -> Value:
    """Return a constant."""
    if type_ == "i1":
        return Value(type_, "true" if value else "false")
    if type_ in SHORT:
        return Value(type_, _literal(type_, value))
    found, bits = int(value), 8 * SIZES[type_]
    shape = replace(UNIFORM, top=found) if found >= 0 else UNIFORM
    found &= (1 << bits) - 1
    return Value(type_, str(found - (1 << bits) if found >> bits - 1 else found), shape)


def scalar_value(type_: str, text: str) -> Value:
    """Return a number that all lanes share."""
    return Value(type_, text, UNIFORM)


def vector_value(type_: str, text: str) -> Value:
    """Return a vector without a known shape as a value."""
    return Value(type_, text, ANY)


def _literal(type_: str, value: float) -> str:
    if type_ == "half":
        try:
            bits = struct.pack("<e", value)
        except OverflowError:
            bits = struct.pack("<e", float("inf") if value > 0 else float("-inf"))
        return f"0xH{struct.unpack('<H', bits)[0]:04X}"
    if type_ == "float" and value == value and abs(value) != float("inf"):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"

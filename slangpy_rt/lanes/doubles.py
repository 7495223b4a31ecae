"""Functions of double, which call those of C's library for one lane after the other.

The text declares ``slangpy_rt_sin`` and others of `CALLED`; whoever loads the code gives each the address of C's.
"""

from __future__ import annotations

import math

from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.numbers import Numbers
from slangpy_rt.lanes.shapes import ANY, computed
from slangpy_rt.lanes.text import Value, number

PREFIX = "slangpy_rt_"
# The functions of C's library, which those of Linux, macOS and Windows have.
CALLED = frozenset(
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp exp2 log log2 log10 pow atan2 fmod".split()  # noqa: SIM905
)
# Numbers for functions that GLSL.std.450 lacks, as instructions of its set.
FURTHER = {"log10": 1000, "exp10": 1001, "sinpi": 1002, "cospi": 1003, "tanpi": 1004}
# What math.pi lacks.
_REST_OF_PI = 1.2246467991473532e-16


class Doubles:
    """Writes functions of double into a text."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers, self.text = numbers, numbers.text

    def call(self, name: str, *values: Value) -> Value:
        """Write the function of a name.

        Raises
        ------
        UnsupportedKernel
            If the function is not known.
        """
        if name == "exp10":
            return self._called("pow", number("double", 10.0), *values)
        if name in CALLED:
            return self._called(name, *values)
        if name in FURTHER:
            return self._of_half_turns(name, *values)
        raise UnsupportedKernel(f"function {name} of double")

    def _called(self, name: str, *values: Value) -> Value:
        text, names = self.text, ", ".join(["double"] * len(values))
        text.declared.add(f"declare double @{PREFIX}{name}({names}) nounwind willreturn memory(none)")
        shape = computed(*(value.shape for value in values))
        if not shape.vector:
            arguments = ", ".join(f"double {value.text}" for value in values)
            return Value("double", text.let(f"call double @{PREFIX}{name}({arguments})"), shape)
        whole = text.whole("double")
        cells = [text.cell(whole, text.vector(value)) for value in values]
        found = text.cell(whole)
        text.declared.add(_each_lane(len(values), text.width))
        pointers = "".join(f", ptr {cell}" for cell in cells)
        text.emit(f"call void @each_lane{len(values)}(ptr @{PREFIX}{name}, ptr {found}{pointers})")
        return Value("double", text.let(f"load {whole}, ptr {found}"), ANY)

    def _of_half_turns(self, name: str, x: Value) -> Value:
        """Return the sine, cosine or tangent of pi * x."""
        n = self.numbers
        size = n.intrinsic("fabs", x)
        turns = n.intrinsic("floor", n.op("fmul", size, number("double", 0.5)))
        size = n.op("fsub", size, n.op("fmul", turns, number("double", 2.0)))
        quarters = n.intrinsic("roundeven", n.op("fmul", size, number("double", 2.0)))
        part = n.op("fsub", size, n.op("fmul", quarters, number("double", 0.5)))
        pi = number("double", math.pi)
        angle = n.op("fmul", pi, part)
        rest = n.fused(pi, part, n.negate(angle))
        rest = n.fused(number("double", _REST_OF_PI), part, rest)
        sine, cosine = self._called("sin", angle), self._called("cos", angle)
        sine, cosine = n.fused(cosine, rest, sine), n.fused(n.negate(sine), rest, cosine)
        whole = n.convert("fptosi", quarters, "i32")
        whole = Value("i32", self.text.let(f"freeze {self.text.type(whole)} {whole.text}"), whole.shape)
        zero = number("double", 0.0)

        def quarter(a: Value, b: Value, turned: int) -> Value:
            places = n.op("add", whole, number("i32", turned))
            odd = n.compare("icmp ne", n.op("and", places, number("i32", 1)), number("i32", 0))
            half = n.compare("icmp ne", n.op("and", places, number("i32", 2)), number("i32", 0))
            found = n.select(odd, b, a)
            found = n.select(half, n.negate(found), found)
            return n.select(n.compare("fcmp oeq", found, zero), zero, found)

        if name == "cospi":
            return quarter(sine, cosine, 1)
        found = quarter(sine, cosine, 0)
        if name == "tanpi":
            found = n.op("fdiv", found, quarter(sine, cosine, 1))
        below = n.compare("icmp slt", n.convert("bitcast", x, "i64"), number("i64", 0))
        return n.select(below, n.negate(found), found)


def _each_lane(count: int, width: int) -> str:
    """Return the function that calls another one of `count` doubles for each lane."""
    names = "ab"[:count]
    lines = "".join(
        f"  %{a}.at = getelementptr double, ptr %{a}, i32 %k\n  %{a}.now = load double, ptr %{a}.at\n" for a in names
    )
    parameters = "".join(f", ptr %{a}" for a in names)
    return f"""define internal void @each_lane{count}(ptr %function, ptr %to{parameters}) #1 {{
entry:
  br label %lane
lane:
  %k = phi i32 [ 0, %entry ], [ %next, %lane ]
{lines}  %found = call double %function({", ".join(f"double %{a}.now" for a in names)})
  %to.at = getelementptr double, ptr %to, i32 %k
  store double %found, ptr %to.at
  %next = add i32 %k, 1
  %more = icmp ult i32 %next, {width}
  br i1 %more, label %lane, label %end
end:
  ret void
}}"""

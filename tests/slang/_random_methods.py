"""Random bodies of mutating methods: assignments, calls that write, loops, conditions. Nothing here is a test."""

from __future__ import annotations

import random
import re

import slangpy_rt as spy

_HEAD = """
struct Inner { float u; float v; [mutating] void grow() { u += 1; } float sum() { return u + v; } };
float twice(float x) { return 2 * x; }
void assign(inout float x, float y) { x = y + 1; }
void third(float x, out float y, float z) { y = x + z; }
float both(inout float x, float y, inout float z) { x += 1; z += y + 2; return x; }
T grown<T : __BuiltinFloatingPointType>(inout T x) { x += T(1); return x; }
struct S { float a; float b; float2 w; float t[3]; Inner i; int n;
"""
_PLACES = ("a", "b", "w.x", "w.y", "t[1]", "t[n % 3]", "i.u", "this.a", "this.t[0]", "(b)", "this.w.x", "((a))")
_OTHER = ("n++;", "--n;", "n = (n + 1) % 3;", "i.grow();", "w = w.yx;", "w.xy = float2(a, b);", "t[0] = t[2];")


class RandomMethods:
    """The text of a struct with so many methods, each of which may call those before it."""

    def __init__(self, seed: int, count: int) -> None:
        self._random = random.Random(seed)
        self._calls: list[str] = []
        self._names = 0
        lines = []
        for k in range(count):
            body = " ".join(self._statement(0) for _ in range(self._random.randrange(1, 4)))
            lines.append(f"[mutating] void m{k}() {{ float x = 0; {body} }}")
            self._calls += [f"m{k}();", f"this.m{k}();"]
        self._lines = [*_HEAD.split("\n"), *lines, "};"]

    def load(self, device: spy.Device) -> spy.Module:
        """The module, without the bodies that Slang refuses, such as ``assign((float)n, x)``."""
        while True:
            try:
                return spy.Module.load_from_source(device, "random_methods", "\n".join(self._lines))
            except spy.CompileError as error:
                wrong = {int(line) for line in re.findall(r"random_methods\.slang:(\d+):", str(error))}
                for line in wrong:
                    kept = self._lines[line - 1]
                    self._lines[line - 1] = kept.partition("{")[0] + "{ }"
                    if not kept.startswith("[mutating]") or kept == self._lines[line - 1]:
                        raise

    def _place(self) -> str:
        return self._random.choice(_PLACES)

    def _value(self, depth: int = 0) -> str:
        kind = self._random.randrange(9) if depth < 3 else 0
        if kind < 3:
            return self._random.choice((*_PLACES, "1.5", "x", "float(n)"))
        one, two = self._value(depth + 1), self._value(depth + 1)
        return (
            f"({one} {self._random.choice('+-*')} {two})", f"twice({one})", f"max({one}, {two})",
            f"({one} > 0 ? {two} : {self._place()})", f"both({self._place()}, {one}, {self._place()})",
            f"(float){one}",
        )[kind - 3]  # fmt: skip

    def _statement(self, depth: int) -> str:
        choose, place, value = self._random.choice, self._place(), self._value()
        self._names += 1
        kinds = [
            f"{place} = {value};", f"{place} {choose(('+=', '-=', '*='))} {value};", f"x = {value} + i.sum();",
            f"assign({choose(('', '(float)'))}{place}, {value});", f"third({value}, {place}, 1);", choose(_OTHER),
            f"x += grown({place});", f"x += grown<float>({place});", f"let y{self._names} = {value};",
            f"sincos({value}, {place}, x);",
        ]  # fmt: skip
        if self._calls:
            kinds.append(choose(self._calls))
        if depth < 2:
            inner, name = self._statement(depth + 1), f"k{self._names}"
            kinds += [
                f"if ({value} > x) {{ {inner} }} else x = 1;",
                f"for (int {name} = 0; {name} < 2; ++{name}) {{ {inner} }}",
            ]
        return choose(kinds)

"""Random functions of two integers with loops that end at different times, in Slang and in Python. No test is here.

A function is a tree of statements that is written in both languages. Numbers have 32 bits and wrap, so that results
are equal or wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

# A statement: ("set", name, value), ("let", name, value), ("if", condition, yes, no), ("for", name, bound, body),
# ("while", name, body), ("break",) or ("return", value).
Statement = tuple[Any, ...]
_HELPER = (
    "int helper_NAME(int a, int n) { while (n > 3) { if (a == n) return n; a = a * 3 + n; n -= 2; } return a; }\n"
)


def random_program(name: str, seed: int) -> tuple[str, Callable[[int, int], int]]:
    """Return the Slang text of a function, and the same function in Python."""
    made = _Maker(seed)
    body = [*(made.let() for _ in range(3)), *made.block(2, 0), made.loop(0), *made.block(1, 0)]
    body.append(("return", made.value()))
    slang = _HELPER.replace("NAME", name) + f"int {name}(int a, int b)\n{{\n{_slang(body, 1)}}}\n"
    slang = slang.replace("helper(", f"helper_{name}(")
    scope: dict[str, Any] = {"wrap": _wrap, "helper": _helper}
    exec(f"def f(a, b):\n{_python(body, 1)}", scope)
    found: Callable[[int, int], int] = scope["f"]
    return slang, found


def _wrap(x: int) -> int:
    return (x + 2**31) % 2**32 - 2**31


def _helper(a: int, n: int) -> int:
    while n > 3:
        if a == n:
            return n
        a, n = _wrap(a * 3 + n), n - 2
    return a


class _Maker:
    """Draws statements; it knows the variables in scope."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = ["a", "b"]
        self.fixed: set[str] = {"a", "b"}
        self.count = 0

    def fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def atom(self) -> str:
        return self.random.choice(self.names) if self.random.random() < 0.75 else str(self.random.randint(0, 9))

    def value(self) -> str:
        left, right = self.atom(), self.atom()
        if self.random.random() < 0.15:
            return f"helper({left}, {right} & 15)"
        return f"({left} {self.random.choice('+-*&|^')} {right})"

    def condition(self) -> str:
        return f"({self.value()} & 7) {self.random.choice(['<', '>', '==', '!='])} {self.random.randint(0, 7)}"

    def let(self) -> Statement:
        value, name = self.value(), self.fresh("v")
        self.names.append(name)
        return "let", name, value

    def block(self, size: int, loops: int, depth: int = 1) -> list[Statement]:
        return [self.statement(loops, depth) for _ in range(size)]

    def inner(self, size: int, loops: int, depth: int) -> list[Statement]:
        known = len(self.names)
        out = self.block(size, loops, depth)
        del self.names[known:]
        return out

    def statement(self, loops: int, depth: int) -> Statement:
        kind = self.random.random()
        free = [name for name in self.names if name not in self.fixed]
        if depth > 3 or kind < 0.35:
            return "set", self.random.choice(free), self.value()
        if kind < 0.45:
            return self.let()
        return self.loop(loops, depth) if kind < 0.65 else self.branch(loops, depth)

    def branch(self, loops: int, depth: int) -> Statement:
        condition, yes = self.condition(), self.inner(2, loops, depth + 1)
        leave = self.random.random()
        if loops and leave < 0.4:
            yes.append(("break",))
        elif leave < 0.55:
            yes.append(("return", self.value()))
        return "if", condition, yes, self.inner(2, loops, depth + 1) if self.random.random() < 0.4 else []

    def loop(self, loops: int, depth: int = 1) -> Statement:
        if self.random.random() < 0.4:
            # The name counts down, and nothing else sets it.
            name, start = self.fresh("n"), f"({self.value()} & 7)"
            known = len(self.names)
            self.names.append(name)
            self.fixed.add(name)
            body = self.block(3, loops + 1, depth + 1)
            del self.names[known:]
            return "while", name, start, body
        # A bound is computed before the loop, as Python does it.
        bound = f"({self.value()} & 7)" if self.random.random() < 0.7 else "5"
        name = self.fresh("i")
        known = len(self.names)
        self.names.append(name)
        self.fixed.add(name)
        body = self.block(3, loops + 1, depth + 1)
        del self.names[known:]
        return "for", name, bound, body


def _slang(body: list[Statement], depth: int) -> str:
    pad, out = "    " * depth, ""
    for kind, *rest in body:
        if kind == "let":
            out += f"{pad}int {rest[0]} = {rest[1]};\n"
        elif kind == "set":
            out += f"{pad}{rest[0]} = {rest[1]};\n"
        elif kind == "return":
            out += f"{pad}return {rest[0]};\n"
        elif kind == "break":
            out += f"{pad}break;\n"
        elif kind == "if":
            out += f"{pad}if ({rest[0]})\n{pad}{{\n{_slang(rest[1], depth + 1)}{pad}}}\n"
            out += f"{pad}else\n{pad}{{\n{_slang(rest[2], depth + 1)}{pad}}}\n" if rest[2] else ""
        elif kind == "for":
            name, bound, inside = rest
            end = bound if bound.isdigit() else f"{name}_end"
            out += "" if bound.isdigit() else f"{pad}int {end} = {bound};\n"
            out += (
                f"{pad}for (int {name} = 0; {name} < {end}; ++{name})\n{pad}{{\n{_slang(inside, depth + 1)}{pad}}}\n"
            )
        else:
            name, start, inside = rest
            inner = "    " * (depth + 1)
            out += f"{pad}int {name} = {start};\n{pad}while ({name} > 0)\n{pad}{{\n{inner}{name} -= 1;\n"
            out += f"{_slang(inside, depth + 1)}{pad}}}\n"
    return out


def _python(body: list[Statement], depth: int) -> str:
    pad, out = "    " * depth, ""
    for kind, *rest in body:
        if kind in ("let", "set"):
            out += f"{pad}{rest[0]} = wrap({rest[1]})\n"
        elif kind == "return":
            out += f"{pad}return wrap({rest[0]})\n"
        elif kind == "break":
            out += f"{pad}break\n"
        elif kind == "if":
            out += f"{pad}if {rest[0]}:\n{_python(rest[1], depth + 1)}"
            out += f"{pad}else:\n{_python(rest[2], depth + 1)}" if rest[2] else ""
        elif kind == "for":
            out += f"{pad}for {rest[0]} in range({rest[1]}):\n{_python(rest[2], depth + 1)}"
        else:
            name, start, inside = rest
            inner = "    " * (depth + 1)
            out += f"{pad}{name} = {start}\n{pad}while {name} > 0:\n{inner}{name} -= 1\n{_python(inside, depth + 1)}"
    return out

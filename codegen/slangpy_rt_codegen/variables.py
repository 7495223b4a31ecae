"""Local variables of a kernel: how one is put together from its parts, and how its parts are stored afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable

from slangpy_rt_codegen.names import OPEN, PARENTHESIZED
from slangpy_rt_codegen.spec import CallSpec, Operand

_WORD = re.compile(rf"({OPEN}?)(\w+)")


def assignable(name: str) -> str:
    """Return a variable's name as a statement may begin with it: in parentheses if the name is a word of Slang's."""
    return _WORD.sub(lambda m: f"{m[1]}({m[2]})" if m[2] in PARENTHESIZED else m[0], name, count=1)


def callee(spec: CallSpec) -> str:
    """Return the text of the called function, in parentheses if it begins with a word of Slang's.

    ``while(_spy_v_a);`` is a loop, but ``(while)(_spy_v_a);`` is a call. A method's name follows its object.
    """
    word = _WORD.match(spec.function)
    return f"({spec.function})" if word and word[2] in PARENTHESIZED and not spec.method else spec.function


def fill(o: Operand, name: str, load: Callable[[Operand], str]) -> list[str]:
    """Return the lines that assign the values that the function reads to a variable."""
    if o.mode != "parts":
        return [] if o.access in ("out", "seed") or o.mode == "unused" else [f"{name} = {load(o)};"]
    if is_optional(o):
        own = f"_spy_part_{o.parts[0][1].name}"
        return [*declare(o.parts[0][1], own, load), f"{name} = {own};"]
    if not is_pair(o):
        return [line for path, part in o.parts for line in assign(part, f"{name}{path}", load)]
    # The parts of a pair cannot be assigned one by one.
    lines, names = [], []
    for _, part in o.parts:
        names.append(f"_spy_part_{part.name}")
        lines += declare(part, names[-1], load)
    return [*lines, f"{name} = {o.type}({', '.join(names)});"]


def declare(o: Operand, name: str, load: Callable[[Operand], str]) -> list[str]:
    """Return the lines that declare a variable of an operand with parts and assign what the function reads."""
    return [f"{o.type} {name}{' = {}' if o.mode == 'parts' and o.code else ''};", *fill(o, name, load)]


def assign(o: Operand, name: str, load: Callable[[Operand], str]) -> list[str]:
    """Return the lines that assign a part, or a uniform; one with defaults gets them in a variable of its own."""
    if o.mode != "parts" or not o.code:
        return fill(o, name, load)
    own = f"_spy_part_{o.name}"
    return [*declare(o, own, load), f"{name} = {own};"]


def drain(o: Operand, name: str, store: Callable[[Operand, str], str]) -> list[str]:
    """Return the lines that store the values that the function wrote to a variable."""
    if o.mode == "parts":
        if _returns_optional(o):
            return _drain_optional(o, name, store)
        return [line for path, part in o.parts for line in drain(part, f"{name}{path}", store)]
    kept = o.access != "in" and o.mode not in ("tensor", "pointer", "handle", "unused")
    return [store(o, name)] if kept else []


def is_array(o: Operand) -> bool:
    """Tell whether an operand is an array, which some expressions need a typed variable for."""
    return o.type.startswith("Array<")


def is_optional(o: Operand) -> bool:
    """Tell whether an operand is an Optional with a value, which is its only part and converts to it as a whole."""
    return o.mode == "parts" and len(o.parts) == 1 and not o.parts[0][0]


def _drain_optional(o: Operand, name: str, store: Callable[[Operand, str], str]) -> list[str]:
    """Return the lines that store an Optional as a value, or zeros, and a bool."""
    (_, value), (_, there) = o.parts
    # Slang does not say what the value of ``none`` is. Only arrays can be set to zeros whatever their elements are.
    zeros = f"{name}_none"
    return [
        f"Array<{value.type}, 1> {zeros} = {{}};",
        f"if ({name}.hasValue)",
        "{",
        *[f"    {line}" for line in drain(value, f"{name}.value", store)],
        "}",
        "else",
        "{",
        *[f"    {line}" for line in drain(value, f"{zeros}[0]", store)],
        "}",
        *drain(there, f"{name}.hasValue", store),
    ]


def _returns_optional(o: Operand) -> bool:
    """Tell whether an operand is a result, or one of several, that is Slang's Optional."""
    ours = o.name.partition(".")[0] == "_result" and o.type.startswith("Optional<")
    return ours and [path for path, _ in o.parts] == [".value", ".hasValue"]


def is_pair(o: Operand) -> bool:
    """Tell whether an operand is a value and its derivative, as Slang pairs them."""
    return o.type.startswith("DifferentialPair<")

"""Modules that declare many names at once, in every way there is, and compute with each. No test is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import slangpy_rt as spy

# Functions of Slang's that take four numbers, its vectors, a type of float's own: the module would call those.
CALLED = frozenset({"InterlockedCompareExchange", "int4", "uint4", "uint64_t4", "float4", "Differential"})
X = np.arange(4, dtype=np.float32)

# Declarations and function, options of the call, its first arguments, and the names whose weights are added up.
Made = tuple[str, dict[str, Any], tuple[Any, ...], Sequence[str]]
Kind = Callable[[Sequence[str], Sequence[str]], Made]


def weight(name: str) -> int:
    return len(name) % 7 + 1


def weights(names: Sequence[str]) -> list[int]:
    return [weight(name) for name in names]


def function(head: str, sums: Sequence[str], parameters: str = "") -> str:
    """A function that adds up what the names stand for."""
    lines = "".join(f"    total_ += {term};\n" for term in sums)
    return f"{head}\nfloat f({parameters}float x_)\n{{\n    float total_ = x_;\n{lines}    return total_;\n}}\n"


def joined(names: Sequence[str], text: str) -> str:
    return "\n".join(text.replace("NAME", n).replace("WEIGHT", str(weight(n))) for n in names)


def uniforms(names: Sequence[str], used: Sequence[str]) -> Made:
    values = dict(zip(used, weights(used), strict=True))
    return function(joined(names, "uniform float NAME;"), used), {"set": values}, (), used


def statics(names: Sequence[str], used: Sequence[str]) -> Made:
    return function(joined(names, "static float NAME;"), [f"({n} = {weight(n)})" for n in names]), {}, (), names


def static_consts(names: Sequence[str], used: Sequence[str]) -> Made:
    return function(joined(names, "static const float NAME = WEIGHT;"), names), {}, (), names


def constants(names: Sequence[str], used: Sequence[str]) -> Made:
    values = dict(zip(names, weights(names), strict=True))
    return function(joined(names, "extern static const int NAME;"), names), {"constants": values}, (), names


def structs(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    sums = [f"p{k}.v" for k in range(len(used))]
    text = function(joined(names, "struct NAME { float v; };"), sums, parameters)
    return text, {}, tuple({"v": float(w)} for w in weights(used)), used


def typealiases(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    text = function(joined(names, "typealias NAME = float;"), [f"p{k}" for k in range(len(used))], parameters)
    return text, {}, tuple(map(float, weights(used))), used


def enums(names: Sequence[str], used: Sequence[str]) -> Made:
    parameters = "".join(f"{n} p{k}, " for k, n in enumerate(used))
    text = joined(names, "enum NAME { none, one = WEIGHT };")
    return function(text, [f"int(p{k})" for k in range(len(used))], parameters), {}, tuple(weights(used)), used


def interfaces(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "interface NAME { float value(); }; struct S_NAME : NAME { float value() { return WEIGHT; } };"
    return function(joined(names, text), [f"S_{n}().value()" for n in names]), {}, (), names


def functions(names: Sequence[str], used: Sequence[str]) -> Made:
    names = [n for n in names if n not in CALLED]
    text = joined(names, "float NAME(float a, int b, int c, int d) { return a * WEIGHT; }")
    return function(text, [f"{n}(1, 2, 3, 4)" for n in names]), {}, (), names


def parameters(names: Sequence[str], used: Sequence[str]) -> Made:
    used = [n for n in used if n not in ("_result", "out")]
    text = function("", used, "".join(f"float {n}, " for n in used))
    return text, {"named": {n: float(weight(n)) for n in used}}, (), used


def fields(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "struct S\n{\n" + joined(used, "    float NAME;") + "\n};"
    values = {n: float(weight(n)) for n in used}
    return function(text, [f"s.{n}" for n in used], "S s, "), {}, (values,), used


def elements(names: Sequence[str], used: Sequence[str]) -> Made:
    text, _, (values,), _ = fields(names, names)
    array = np.array([tuple(values.values())] * len(X), [(n, "f4") for n in names])
    return text, {}, (array,), names


def methods(names: Sequence[str], used: Sequence[str]) -> Made:
    text = (
        "struct S\n{\n    float v_;\n" + joined(names, "    float NAME(float a) { return v_ * WEIGHT * a; }") + "\n};"
    )
    return function(text, [f"s.{n}(1)" for n in names], "S s, "), {}, ({"v_": 1.0},), names


def generics(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "\n".join(
        f"int g{k}<let {n} : int>() {{ return {n}; }}\n{n} h{k}<{n}>({n} a) {{ return a; }}"
        for k, n in enumerate(names)
    )
    return function(text, [f"g{k}<{w}>() + h{k}(0.f)" for k, w in enumerate(weights(names))]), {}, (), names


def namespaces(names: Sequence[str], used: Sequence[str]) -> Made:
    text = joined(names, "namespace NAME { float value() { return WEIGHT; } }")
    return function(text, [f"{n}::value()" for n in names]), {}, (), names


def extensions(names: Sequence[str], used: Sequence[str]) -> Made:
    names = [n for n in names if n not in CALLED]
    text = "extension float\n{\n" + joined(names, "    static float NAME(float a) { return WEIGHT * a; }") + "\n}"
    return function(text, [f"float.{n}(1)" for n in names]), {}, (), names


def requirements(names: Sequence[str], used: Sequence[str]) -> Made:
    text = "interface Mine\n{\n" + joined(names, "    static const int NAME;") + "\n}\nextension float : Mine\n{\n"
    text += (
        joined(names, "    static const int NAME = WEIGHT;")
        + "\n}\nfloat mine<T : Mine>(T x_)\n{\n    float y = 0;\n"
    )
    text += "".join(f"    y += T.{n};\n" for n in names) + "    return y;\n}\n"
    return text + "float f(float x_) { return x_ + mine(x_); }\n", {}, (), names


KINDS: dict[str, Kind] = {
    kind.__name__: kind
    for kind in (
        uniforms, statics, static_consts, constants, structs, typealiases, enums, interfaces, functions, parameters,
        fields, elements, methods, generics, namespaces, extensions, requirements,
    )
}  # fmt: skip


def check(device: spy.Device, kind: str, names: Sequence[str], used: Sequence[str], where: str) -> None:
    """Declare the names, call the function, and compare with the sum of the weights of those that it was given."""
    text, options, arguments, added = KINDS[kind](names, used)
    module = spy.Module.load_from_source(device, where, text, constants=options.get("constants"))
    call = module.f.set(options["set"]) if "set" in options else module.f
    found = call(*arguments, x_=X, **options.get("named", {}))
    np.testing.assert_array_equal(found, X + np.float32(sum(weights(added))))

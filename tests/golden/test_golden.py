"""Kernels as they are written, next to this file: a change of the code generator shows as a change of text.

``pytest tests/golden --regenerate-golden`` rewrites them; look at the difference before keeping it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slangpy_rt_codegen import CallSpec, Operand, StructLayout, StructLayoutField, block_fields, emit

from slangpy_rt.core.target import Target
from slangpy_rt.core.types import LayoutField
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session
from slangpy_rt.slang.sessions import new_session
from tests.depth import sampled

FOLDER = Path(__file__).parent
TARGETS = {
    "range": Target("cpp", "", "range"),
    "value": Target("cuda", "", "value"),
    "pointer": Target("spirv", "spirv_1_5", "pointer"),
    "handle": Target("hlsl", "sm_6_6", "handle"),
}
# What the kernels call.
SLANG = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
float3 shade(float3 colour, float gain) { return colour * gain; }
float3 apply(float3x3 m, float3 v) { return mul(m, v); }
int16_t choose(bool which, int16_t a, half b) { return which ? a : int16_t(b); }
float total(float x[4]) { return x[0] + x[1] + x[2] + x[3]; }
bool invert(bool mask) { return !mask; }
bool3 invert3(bool3 mask) { return !mask; }
double mean(double a, double b) { return (a + b) / 2; }
void decay(inout float x, float rate, out float lost) { lost = x * rate; x -= lost; }
float blur(Tensor<float, 2> image, int2 at) { return image[at]; }
void scatter(RWTensor<float, 1> to, int at, float value) { to[at] = value; }
void step(inout float3 position, float3 velocity, out float speed) { speed = length(velocity); position += velocity; }
[Differentiable] float mul(float a, float b) { return a * b; }
[Differentiable] float3 scale(float3 v, float s) { return v * s; }
[Differentiable] half3 tint(half3 v, half s) { return v * s; }
[Differentiable] void grow(inout float x, float by) { x *= by; }
struct Ray { float2x2 frame; float3 origin; uint id; };
Ray forward(Ray ray, int by) { ray.id += by; ray.origin.x += 1; return ray; }
struct Light : IDifferentiable { float3 color; float power; int id; }
[Differentiable] float3 shine(Light light, float far) { return light.color * light.power / far; }
[Differentiable] Light dim(Light light, float by) { return { light.color, light.power * by, light.id }; }
[Differentiable] float pick(DiffTensor<float, 2> image, int2 at) { return image[at]; }
[Differentiable] void put(WDiffTensor<float, 1> to, int at, float value) { to[at] = value; }
void square(inout DifferentialPair<float> x, float gradient) { x = diffPair(x.p, 2 * x.p * gradient); }
"""


def operand(name: str, type_: str, mode: str, access: str = "in", **more: Any) -> Operand:
    """An operand, with what follows from its type filled in."""
    inner = type_ if type_.startswith("Array<") else type_.partition("<")[2].partition(",")[0] or type_
    word = inner.removeprefix("Array<").partition(",")[0]
    scalar = word.rstrip("x1234") if not word.endswith("_t") else word
    count = {"float3x3": 9, "Array<float, 4>": 4}.get(inner, int(inner[-1]) if inner[-1] in "234" else 1)
    stored = "uint8_t" if scalar == "bool" and mode not in ("value", "computed") else scalar
    return Operand(name, type_, stored, count, access, mode, **more)


def narrowed(o: Operand) -> Operand:
    """The same operand in an array of bfloat16."""
    return replace(o, scalar="uint16_t", via="_spy_bfloat16" if o.count == 1 else f"_spy_bfloat16s<{o.count}>")


def call(
    function: str,
    *operands: Operand,
    result: Operand | None = None,
    entry: str = "pointer",
    rank: int = 1,
    width: int = 1,
    index: str = "uint",
    rows: bool = False,
    derivative: str = "",
    group: tuple[int, ...] = (256,),
) -> CallSpec:
    """A call of one of the functions above."""
    index = "int64_t" if entry == "range" else index
    title = f"{derivative} derivative of {function}(...)" if derivative else f"{function}(...)"
    # As of a module that names none of ours, but where it does.
    public = ("slangpy_rt",) if any("Tensor<" in o.type for o in operands) else ()
    return CallSpec(
        title, (*public, "golden"), function, operands, result, rank, index, width, entry, rows,
        derivative=derivative, group=group,
    )  # fmt: skip


def result(type_: str = "float", mode: str = "linear", **more: Any) -> Operand:
    """The result's operand."""
    return operand("_result", type_, mode, "out", **more)


def dual(o: Operand, access: str = "accumulate") -> Operand:
    """An argument with a gradient that lies as it does."""
    return replace(o, grad_out=replace(o, name=f"{o.name}_grad_out", access=access))


def backward(function: str, *operands: Operand, seed: str = "float", **more: Any) -> CallSpec:
    """The backward derivative of one of the functions above that return something."""
    gradient = operand("_result_grad_in", seed, "linear", "seed")
    return call(function, *operands, result=gradient, derivative="backward", **more)


def parts(name: str, type_: str, access: str, *inside: Operand) -> Operand:
    """A struct put together from fields, whose names end with theirs."""
    places = tuple((f".{o.name.rpartition('_')[2]}", o) for o in inside)
    return Operand(name, type_, "", 0, access, "parts", parts=places)


A, B = operand("a", "float", "linear"), operand("b", "float", "linear")
# Along the last of two dimensions of a call, and along the first.
COLUMN, ROW = operand("a", "float", "strided"), operand("b", "float", "strided")
LIGHT = (
    dual(operand("light_color", "float3", "strided")),
    dual(operand("light_power", "float", "constant"), "sum"),
    operand("light_id", "int", "strided"),
)
SPECS = {
    "add_range": call("add", A, B, result=result(), entry="range"),
    "add_value": call("add", A, B, result=result(), entry="value"),
    "add_pointer": call("add", A, B, result=result()),
    "add_wide": call("add", A, operand("b", "float", "value"), result=result(), width=4),
    "add_bfloat16": call("add", narrowed(operand("a", "float", "strided")), B, result=narrowed(result()), rank=2),
    "step_bfloat16": call(
        "step", narrowed(operand("position", "float3", "linear", "inout")), operand("velocity", "float3", "value"),
        narrowed(operand("speed", "float", "linear", "out")), entry="range",
    ),
    "mul_backward_bfloat16": call(
        "mul", narrowed(dual(A)), operand("b", "float", "value"), derivative="backward",
        result=narrowed(operand("_result_grad_in", "float", "linear", "seed")), entry="value",
    ),
    "add_wide_bfloat16": call("add", narrowed(A), B, result=narrowed(result()), width=4),
    "add_wide_rows_of_groups": call("add", A, B, result=result(), width=4, rows=True),
    "add_64_bit_rows_of_groups": call("add", A, B, result=result(), entry="value", index="int64_t", rows=True),
    "add_strided": call("add", operand("a", "float", "strided"), B, result=result(), rank=2),
    "add_strided_range": call(
        "add", operand("a", "float", "strided"), operand("b", "float", "constant"), result=result(),
        rank=2, entry="range",
    ),
    "add_strided_64_bit": call(
        "add", operand("a", "float", "strided"), B, result=result(mode="strided"), rank=3, index="int64_t"
    ),
    "add_wide_strided": call(
        "add", operand("a", "float", "strided", step="next"), operand("b", "float", "strided", step="same"),
        result=result(), rank=2, width=4,
    ),
    "add_wide_odd_rows": call(
        "add", A, operand("b", "float", "strided", step="each"), result=result(), rank=2, width=4,
    ),
    "add_wide_odd_rows_64_bit": call(
        "add", A, operand("b", "float", "strided", step="each"), result=result(), rank=3, width=4, entry="value",
        index="int64_t", rows=True,
    ),
    "add_columns": call(
        "add", operand("a", "float", "strided", step="next"), operand("b", "float", "strided", step="each"),
        result=result(mode="strided", step="each"), rank=2, width=4, group=(32, 8, 1),
    ),
    "add_odd_columns": call(
        "add", operand("a", "float", "strided", step="each"), operand("b", "float", "constant"),
        result=result(mode="strided", step="each"), rank=4, width=4, group=(32, 8, 1), index="int64_t",
    ),
    "add_to_columns": call(
        "add", operand("a", "float", "value"), operand("b", "float", "strided", step="each"),
        result=result(mode="strided", step="next"), rank=3, width=4, group=(32, 8, 1), entry="value",
    ),
    "shade_vectors": call(
        "shade", operand("colour", "float3", "linear"), operand("gain", "float", "constant"),
        result=result("float3"), entry="value",
    ),
    "mean_wide": call(
        "mean", operand("a", "double", "linear"), operand("b", "double", "linear"), result=result("double"),
        entry="value", width=2,
    ),
    "apply_matrix": call(
        "apply", operand("m", "float3x3", "value"), operand("v", "float3", "linear"), result=result("float3")
    ),
    "choose_values": call(
        "choose", operand("which", "bool", "value"), operand("a", "int16_t", "value"), operand("b", "half", "value"),
        result=result("int16_t"),
    ),
    "total_array": call("total", operand("x", "Array<float, 4>", "value"), result=result(), entry="range"),
    "total_arrays": call("total", operand("x", "Array<float, 4>", "linear"), result=result()),
    "invert_bool_wide": call("invert", operand("mask", "bool", "linear"), result=result("bool"), width=4),
    "invert_bool3": call("invert3", operand("mask", "bool3", "linear"), result=result("bool3")),
    "blur_tensor": call(
        "blur", operand("image", "Tensor<float, 2>", "tensor", rank=2),
        operand("at", "int2", "computed", code="int2(int(_spy_index[1]), int(_spy_index[0]))"),
        result=result(), rank=2,
    ),
    "scatter_range": call(
        "scatter", operand("to", "RWTensor<float, 1>", "tensor", "inout", rank=1),
        operand("at", "int", "computed", code="int(_spy_index[0])"), operand("value", "float", "value"),
        entry="range",
    ),
    "step_inout": call(
        "step", operand("position", "float3", "linear", "inout"), operand("velocity", "float3", "linear"),
        operand("speed", "float", "linear", "out"),
    ),
    "decay_wide": call(
        "decay", operand("x", "float", "linear", "inout"), operand("rate", "float", "value"),
        operand("lost", "float", "linear", "out"), entry="value", width=4,
    ),
    "mul_backward_wide": backward("mul", dual(A), operand("b", "float", "value"), width=4),
    "mul_backward_sum_range": backward(
        "mul", dual(A), dual(operand("b", "float", "constant"), "sum"), entry="range"
    ),
    "mul_backward_sum_wide": backward(
        "mul", dual(A), dual(operand("b", "float", "constant"), "sum"), entry="value", width=4
    ),
    "scale_backward_sums": backward(
        "scale", dual(operand("v", "float3", "constant"), "sum"), dual(operand("s", "float", "linear")),
        seed="float3",
    ),
    "mul_backward_columns_and_rows_range": backward(
        "mul", dual(COLUMN, "column"), dual(ROW, "row"), rank=2, entry="range"
    ),
    "tint_backward_columns_and_rows_range": backward(
        "tint", dual(operand("v", "half3", "strided"), "column"), dual(operand("s", "half", "strided"), "row"),
        seed="half3", rank=2, entry="range",
    ),
    "mul_backward_columns_range": backward("mul", dual(COLUMN, "column"), B, rank=2, entry="range"),
    "mul_backward_rows_range": backward("mul", A, dual(ROW, "row"), rank=2, entry="range"),
    "scale_backward_columns": backward(
        "scale", dual(operand("v", "float3", "strided"), "column"), operand("s", "float", "strided"),
        seed="float3", rank=2, entry="value",
    ),
    "mul_backward_columns_and_rows_wide": backward(
        "mul", dual(replace(COLUMN, step="next"), "column"), dual(replace(ROW, step="same"), "scatter"),
        rank=2, width=4,
    ),
    "mul_backward_scatter": backward("mul", dual(A, "scatter"), dual(B, "scatter"), entry="value"),
    "shine_backward_struct": backward(
        "shine", parts("light", "Light", "in", *LIGHT), operand("far", "float", "value"), seed="float3"
    ),
    "dim_backward_struct_result": call(
        "dim", parts("light", "Light", "in", *LIGHT), dual(operand("by", "float", "linear")),
        result=parts(
            "_result", "Light", "seed", operand("_result_grad_in_color", "float3", "strided", "seed"),
            operand("_result_grad_in_power", "float", "strided", "seed"),
            operand("_result_grad_in_id", "int", "unused", "out"),
        ),
        derivative="backward", entry="value",
    ),
    "grow_backward_inout": call(
        "grow",
        replace(
            dual(operand("x", "float", "linear", "inout")), grad_in=operand("x_grad_in", "float", "linear")
        ),
        operand("by", "float", "value", grad_out=operand("by_grad_out", "float", "constant", "sum")),
        derivative="backward", entry="range",
    ),
    "mul_forward": call(
        "mul", operand("a", "float", "linear", grad_in=operand("a_grad_in", "float", "linear")), B,
        result=result(grad_out=operand("_result_grad_out", "float", "linear", "out")),
        derivative="forward", entry="value", width=4,
    ),
    "grow_forward_range": call(
        "grow",
        operand(
            "x", "float", "linear", "inout", grad_in=operand("x_grad_in", "float", "linear"),
            grad_out=operand("x_grad_out", "float", "linear", "out"),
        ),
        operand("by", "float", "constant"),
        derivative="forward", entry="range",
    ),
    "pick_backward_own_range": backward(
        "pick",
        operand(
            "image", "DiffTensor<float, 2>", "tensor", rank=2,
            grad_out=operand("image_grad_out", "float", "gradient", "accumulate", rank=2, step="own"),
        ),
        operand("at", "int2", "computed", code="int2(int(_spy_index[1]), int(_spy_index[0]))"),
        rank=2, entry="range",
    ),
    "put_backward_rows_of_tensors": call(
        "put",
        operand(
            "to", "WDiffTensor<float, 1>", "tensor", "inout", rank=1, step="next",
            grad_in=operand("to_grad_in", "float", "gradient", "seed", rank=1, step="next"),
        ),
        operand("at", "int", "constant"), dual(operand("value", "float", "linear")), derivative="backward",
    ),
    "square_pair": call(
        "square",
        parts(
            "x", "DifferentialPair<float>", "inout", operand("x_p", "float", "linear", "inout"),
            operand("x_d", "float", "linear", "inout"),
        ),
        operand("gradient", "float", "value"),
    ),
}  # fmt: skip
RAY = StructLayout(
    "Ray",
    32,
    (
        StructLayoutField(".frame", "float2x2", "float", "", 0),
        StructLayoutField(".origin", "float3", "float", "", 16),
        StructLayoutField(".id", "uint", "uint", "", 28),
    ),
)
RAYS = call(
    "forward", Operand("ray", "Ray", "uint8_t", 32, "in", "linear"), operand("by", "int", "value"),
    result=Operand("_result", "Ray", "uint8_t", 32, "out", "linear"),
)  # fmt: skip
SPECS["forward_fields"] = replace(RAYS, structs=(RAY,))
SPECS["forward_pieces"] = replace(RAYS, structs=(replace(RAY, piece=16),))
SPECS["forward_small_pieces"] = replace(RAYS, structs=(replace(RAY, piece=8),), entry="value")
# Those that say where values lie in all the ways there are, without pointers.
SPECS |= {
    f"{name}_handle": replace(SPECS[name], entry="handle")
    for name in (
        "add_pointer", "add_wide_strided", "apply_matrix", "invert_bool3", "invert_bool_wide", "blur_tensor",
        "mul_backward_sum_wide", "put_backward_rows_of_tensors", "add_wide_odd_rows", "add_columns", "forward_pieces",
    )
}  # fmt: skip


@pytest.mark.parametrize("name", SPECS)
def test_the_text_is_as_agreed(name: str, request: pytest.FixtureRequest) -> None:
    path = FOLDER / f"{name}.slang"
    text = emit(SPECS[name])
    if request.config.getoption("--regenerate-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"{path.name} is missing: run with --regenerate-golden"
    assert text == path.read_text(encoding="utf-8")


def test_every_file_has_its_call() -> None:
    assert {path.stem for path in FOLDER.glob("*.slang")} == set(SPECS)


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    """A compiler for each target, with the functions above at hand."""
    opened = {entry: new_session(target, (shader_directory(),), ()) for entry, target in TARGETS.items()}
    for session in opened.values():
        session.load_module("golden", "golden.slang", SLANG)
    yield opened
    for session in opened.values():
        session.close()


@sampled(3)
@pytest.mark.parametrize("name", SPECS)
def test_the_text_compiles_and_lies_as_computed(sessions: dict[str, Session], name: str) -> None:
    spec = SPECS[name]
    text = (FOLDER / f"{name}.slang").read_text(encoding="utf-8")
    compiled = sessions[spec.entry].compile(text, name, "_spy_run" if spec.entry == "range" else "_spy_kernel")
    assert compiled.layout == tuple(LayoutField(f.name, f.offset, f.size) for f in block_fields(spec))
    # SPIR-V begins with its magic number; the others are text that holds the entry point.
    start = (0x07230203).to_bytes(4, "little")
    assert compiled.code.startswith(start) if spec.entry == "pointer" else spec.function.encode() in compiled.code


def test_emitting_is_repeatable() -> None:
    for spec in SPECS.values():
        assert emit(spec) == emit(spec)

"""The argument block: members in natural alignment, as a C compiler lays them out, and the packing into it."""

from __future__ import annotations

import ctypes
import re
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from slangpy_rt_codegen import CallSpec, Operand, block_fields

from slangpy_rt.calls.build import block_packers

C_TYPES: dict[str, Any] = {
    "i": ctypes.c_int32,
    "I": ctypes.c_uint32,
    "q": ctypes.c_int64,
    "Q": ctypes.c_uint64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
}
SCALARS = "bool int8_t int16_t int int64_t uint8_t uint16_t uint uint64_t half float double"
MODES = ["value", "linear", "constant", "strided", "tensor", "index"]


@st.composite
def specs(draw: st.DrawFn) -> CallSpec:
    """Any call, sensible or not: layout looks at nothing but the operands."""
    operands = []
    for k in range(draw(st.integers(0, 6))):
        mode = draw(st.sampled_from(MODES))
        operands.append(
            Operand(
                f"p{k}",
                "T",
                draw(st.sampled_from(SCALARS.split())),
                draw(st.sampled_from([1, 1, 2, 3, 4, 6, 16])),
                "in",
                mode,
                draw(st.integers(1, 4)) if mode in ("tensor", "index") else 0,
            )
        )
    result = Operand("_result", "float", "float", 1, "out", "linear") if draw(st.booleans()) else None
    return CallSpec(
        "f()", ("m",), "f", tuple(operands), result, draw(st.integers(1, 5)),
        draw(st.sampled_from(["uint", "int64_t"])), 1, draw(st.sampled_from(["pointer", "handle"])),
        draw(st.booleans()),
    )  # fmt: skip


def c_struct(spec: CallSpec) -> type[ctypes.Structure]:
    """The block as C sees it."""
    members = []
    for field in block_fields(spec):
        repeat, code = int(field.code[:-1]), field.code[-1]
        members.append((field.name, C_TYPES[code] * repeat))
    return type("Block", (ctypes.Structure,), {"_fields_": members})


@settings(max_examples=300, deadline=None, database=None)
@given(specs())
def test_offsets_are_those_of_c(spec: CallSpec) -> None:
    block = c_struct(spec)
    for field in block_fields(spec):
        member = getattr(block, field.name)
        assert (field.offset, field.size) == (member.offset, member.size), field


@settings(max_examples=300, deadline=None, database=None)
@given(specs())
def test_without_pointers_it_is_the_same_block(spec: CallSpec) -> None:
    there = block_fields(replace(spec, entry="pointer"))
    here = block_fields(replace(spec, entry="handle"))
    assert [replace(f, declaration="") for f in here] == [replace(f, declaration="") for f in there]
    for field, other in zip(here, there, strict=True):
        # ByteAddressBuffer.Load<T> wants a multiple of T's size; the block itself begins at one of 64.
        assert field.offset % ctypes.sizeof(C_TYPES[field.code[-1]]) == 0
        if "*" in other.declaration:
            assert field.code == "1Q"
            assert field.declaration == re.sub(r"^(\w+) \*", r"_spy_Address<\1> ", other.declaration)
        else:
            assert field.declaration == other.declaration


@settings(max_examples=200, deadline=None, database=None)
@given(specs(), st.randoms(use_true_random=False))
def test_packing_fills_the_struct(spec: CallSpec, random: Any) -> None:
    fields = block_fields(spec)
    block = c_struct(spec)()
    fixed: dict[str, tuple[int, ...]] = {}
    moving: list[int] = []
    for field in fields:
        values = tuple(random.randrange(2**20) for _ in range(int(field.code[:-1])))
        getattr(block, field.name)[:] = values
        if field.fixed:
            fixed[field.name] = values
        else:
            moving += values
    names, prefix, pack = block_packers(fields)
    packed = prefix(*[n for name in names for n in fixed[name]]) + pack(*moving)
    assert packed == bytes(block)[: fields[-1].offset + fields[-1].size]


@given(specs())
def test_what_follows_from_shapes_comes_first(spec: CallSpec) -> None:
    order = [field.fixed for field in block_fields(spec)]
    assert order == sorted(order, reverse=True)
    assert order[0]


def test_declarations_are_slang() -> None:
    number = Operand("0_i", "int", "int", 1, "in", "value")
    operands = (
        Operand("a", "float3", "float", 3, "in", "value"),
        Operand("b", "half", "half", 1, "in", "value"),
        Operand("c", "bool", "uint8_t", 1, "in", "strided"),
        Operand("t", "Tensor<float, 2>", "float", 1, "in", "tensor", 2),
        Operand("i", "int2", "", 0, "in", "computed", code="int2(0)", parts=(("", number),)),
    )
    spec = CallSpec("f()", ("m",), "f", operands, None, 2, "uint", 1, "value", True)
    assert [(f.declaration, f.offset, f.fixed) for f in block_fields(spec)] == [
        ("uint count", 0, True),
        ("uint row", 4, True),
        ("uint shape[2]", 8, True),
        ("int stride_c[2]", 16, True),
        ("int shape_t[2]", 24, True),
        ("int64_t stride_t[2]", 32, True),
        ("float v_a[3]", 48, False),
        ("float v_b", 60, False),
        ("uint8_t *v_c", 64, False),
        ("float *v_t", 72, False),
        ("int v_0_i", 80, False),
    ]

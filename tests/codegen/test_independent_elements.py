"""Which elements of a call the code generator says to be independent of each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from slangpy_rt_codegen import CallSpec, Operand, emit

IN = Operand("a", "float", "float", 1, "in", "linear")
OUT = Operand("_result", "float", "float", 1, "out", "linear")
SPEC = CallSpec("f(...)", ("m",), "f", (IN,), OUT, 1, "int64_t", 1, "range")
WHOLE = Operand("t", "RWTensor<float, 1>", "float", 1, "inout", "tensor", 1)
POINTER = Operand("p", "float", "float", 1, "inout", "pointer")
LOOP = "for (int64_t _spy_lane = "


@pytest.mark.parametrize(
    "argument",
    [
        IN,
        replace(IN, mode="strided"),
        replace(IN, mode="constant"),
        replace(IN, mode="value"),
        replace(IN, access="inout"),
        replace(WHOLE, type="Tensor<float, 1>", access="in"),
        replace(POINTER, name="0_diagnostics"),
    ],
    ids=["array", "strided", "broadcast", "number", "in and out", "Tensor", "printf"],
)
def test_a_place_for_each_element(argument: Operand) -> None:
    assert LOOP in emit(replace(SPEC, operands=(argument,)))


@pytest.mark.parametrize(
    "argument",
    [
        WHOLE,
        replace(WHOLE, access="in"),
        replace(WHOLE, type="DiffTensor<float, 1>", access="in"),
        POINTER,
        replace(POINTER, access="in"),
        replace(IN, access="inout", mode="constant"),
        Operand("t", "RWTexture2D<float>", "float", 1, "inout", "handle"),
        Operand("t", "float", "float", 1, "out", "texel", via="RWTexture2D<float>", code="uint(_spy_index[0])"),
    ],
    ids=["RWTensor", "unknown", "DiffTensor", "pointer", "read pointer", "one place", "texture", "texel"],
)
def test_memory_that_only_the_function_knows(argument: Operand) -> None:
    assert LOOP not in emit(replace(SPEC, operands=(argument,)))


def test_one_place_that_is_written_by_all() -> None:
    assert LOOP not in emit(replace(SPEC, result=replace(OUT, mode="constant")))

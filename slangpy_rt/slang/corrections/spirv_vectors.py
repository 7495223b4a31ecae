"""Shortens constants of vectors in SPIR-V that have more components than their type.

Slang's optimizer folds ``v / v`` of a vector of two or three components to a constant of four, which drivers refuse.
"""

from __future__ import annotations

from slangpy_rt.slang import spirv
from slangpy_rt.slang.corrections.canary import Canary
from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.spirv_search import has, lacks
from slangpy_rt.slang.spirv import Assembly, Words, instruction


def with_components(code: bytes) -> bytes:
    """Return a module in which each constant of a vector has as many components as its type.

    Parameters
    ----------
    code : bytes
        SPIR-V that Slang wrote.
    """
    words = memoryview(code).cast("I")
    sizes: dict[int, int] = {}
    at, end = 5, len(words)
    while at < end and words[at] & 0xFFFF != spirv.FUNCTION:
        op, count = words[at] & 0xFFFF, words[at] >> 16
        if op == spirv.TYPE_VECTOR:
            sizes[words[at + 1]] = words[at + 3]
        elif op == spirv.CONSTANT_COMPOSITE and count - 3 > sizes.get(words[at + 1], count):
            module = Assembly(code)
            module.head = [_shortened(found, sizes) for found in module.head]
            return module.bytes()
        at += count
    return code


def _shortened(words: Words, sizes: dict[int, int]) -> Words:
    op = words[0] & 0xFFFF
    if op == spirv.TYPE_VECTOR:
        sizes[words[1]] = words[3]
    if op != spirv.CONSTANT_COMPOSITE or words[1] not in sizes:
        return words
    return instruction(op, *words[1 : 3 + sizes[words[1]]])


def _four_ones(words: Words) -> bool:
    return words[0] == 7 << 16 | spirv.CONSTANT_COMPOSITE and len(set(words[3:])) == 1


SPIRV_COMPONENTS = Correction(
    name="quotients of equal vectors in SPIR-V",
    why="The optimizer writes a constant of four components for a vector of two or three.",
    upstream="not reported",
    affects=("2026.12", "2026.14.1"),
    targets=("spirv",),
    applies=lambda code, emission: with_components(code),
    canary=Canary(
        text="""
float2 quotient(float2 v) { return v / v; }
void canary(uniform float *p)
{
    float2 r = quotient(float2(p[0], p[1]));
    for (int i = 0; i < 2; ++i)
        p[i] = r[i];
}
""",
        wrong=has(_four_ones),
        right=lacks(_four_ones),
    ),
)

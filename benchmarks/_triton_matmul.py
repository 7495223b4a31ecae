"""A product of half matrices in Triton, as its tutorial on matrix products does it: grouped tiles, autotuned.

The algorithm is the tutorial's (blocks of pointers, tiles in groups of rows for the cache, a search over tile sizes,
stages and warps); the text is ours. It takes float16, and K of whole tiles.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

_CONFIGS = [
    triton.Config({"TM": tm, "TN": tn, "TK": tk, "ROWS": 8}, num_stages=stages, num_warps=warps)
    for tm, tn, tk, stages, warps in (
        (128, 256, 64, 3, 8),
        (128, 256, 64, 4, 8),
        (256, 128, 64, 3, 8),
        (128, 128, 64, 4, 8),
        (128, 128, 64, 4, 4),
        (128, 128, 32, 4, 4),
        (64, 256, 32, 4, 4),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
    )
]


@triton.autotune(configs=_CONFIGS, key=["m", "n", "k"])
@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    a, b, c, m, n, k, a_row, a_column, b_row, b_column, c_row,
    TM: tl.constexpr, TN: tl.constexpr, TK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    unit = tl.program_id(0)
    columns = tl.cdiv(n, TN)
    first = unit // (ROWS * columns) * ROWS
    height = min(tl.cdiv(m, TM) - first, ROWS)
    row = first + unit % (ROWS * columns) % height
    column = unit % (ROWS * columns) // height
    at_m = (row * TM + tl.arange(0, TM)) % m
    at_n = (column * TN + tl.arange(0, TN)) % n
    depth = tl.arange(0, TK)
    left = a + at_m[:, None] * a_row + depth[None, :] * a_column
    right = b + depth[:, None] * b_row + at_n[None, :] * b_column
    sums = tl.zeros((TM, TN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, TK)):
        sums = tl.dot(tl.load(left), tl.load(right), sums)
        left += TK * a_column
        right += TK * b_row
    out_m = row * TM + tl.arange(0, TM)
    out_n = column * TN + tl.arange(0, TN)
    inside = (out_m[:, None] < m) & (out_n[None, :] < n)
    tl.store(c + out_m[:, None] * c_row + out_n[None, :], sums.to(tl.float16), mask=inside)


def triton_product(a: Any, b: Any, out: torch.Tensor) -> Any:
    """Return a function that multiplies two matrices of half into ``out``."""
    (m, k), n = a.shape, b.shape[1]
    if k % 64:
        raise ValueError(f"K is {k}; a multiple of 64 was expected")

    def grid(meta: Any) -> tuple[int]:
        return (triton.cdiv(m, meta["TM"]) * triton.cdiv(n, meta["TN"]),)

    def run() -> None:
        _kernel[grid](a, b, out, m, n, k, *a.stride(), *b.stride(), out.stride(0))

    return run

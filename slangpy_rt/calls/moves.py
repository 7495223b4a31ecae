"""Moves: the package's own kernels that copy and clear arrays. It records nothing: lists and calls do."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Dispatch
from slangpy_rt.calls.callee import Callee

MOVES = """
import slangpy_rt;
uint copy(uint x) { return x; }
uint8_t copyByte(uint8_t x) { return x; }
uint zero() { return 0; }
uint8_t zeroByte() { return 0; }

// Where memory has no 8-bit integers. Word `k` of an array gets those of its bytes that are from `first` to before
// `last`; in `source` they are `away` further on. A word has one thread, and calls that touch one buffer wait for
// each other: the rest of it needs no atomics.
void copyPart(int k, inout uint word, Tensor<uint, 1> source, int64_t first, int64_t last, int64_t away)
{
    for (uint b = 0; b < 4; ++b)
    {
        let at = 4 * int64_t(k) + b;
        if (at < first || at >= last)
            continue;
        let bits = source[int(at + away >> 2)] >> uint(at + away & 3) * 8 & 0xff;
        word = word & ~(0xffu << b * 8) | bits << b * 8;
    }
}
void zeroPart(int k, inout uint word, int64_t first, int64_t last)
{
    for (uint b = 0; b < 4; ++b)
        if (4 * int64_t(k) + b >= first && 4 * int64_t(k) + b < last)
            word &= ~(0xffu << b * 8);
}
"""


class Moves:
    """The kernels of MOVES on one device.

    Attributes
    ----------
    kernels : Module
        The module of MOVES.
    """

    def __init__(self, kernels: Any) -> None:
        self.kernels = kernels

    def copy_dispatch(self, source: NDBuffer, target: NDBuffer) -> Dispatch:
        """Return the dispatch that copies an array of ``uint`` or ``uint8_t`` to another one of as many elements."""
        copy = self.kernels.copy if source.dtype.scalar == "uint" else self.kernels.copyByte
        dispatch: Dispatch = Callee(copy).recorded((source,), target, {}).dispatch
        return dispatch

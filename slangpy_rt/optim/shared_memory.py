"""Memory that parameters of an optimizer share, which a step would change twice. It looks at no contents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.overlap import Walk, overlap
from slangpy_rt.optim.part import Part


class _Region(NamedTuple):
    """Memory of a parameter or of its gradient, by the addresses of its first byte and of the one after the last."""

    low: int
    high: int
    number: int
    array: Tensor
    changed: bool

    @property
    def name(self) -> str:
        return f"parameters[{self.number}]" if self.changed else f"the gradient of parameters[{self.number}]"


def refuse_shared_memory(where: str, parts: Iterable[tuple[int, Part]]) -> None:
    """Refuse parameters that share memory with each other, or with a gradient.

    Parameters
    ----------
    where : str
        The start of the message.
    parts : iterable of (int, Part)
        The parts of all parameters, each with the parameter's number.

    Raises
    ------
    BindError
        If a byte of a parameter belongs to another parameter or to a gradient, too.
    """
    found: list[_Region] = []
    for number, part in parts:
        for array, changed in ((part.values, True), (part.gradient, False)):
            if array.size:
                low, high = array.layout.span
                found.append(_Region(array.address + low, array.address + high, number, array, changed))
    # Only regions whose spans meet are compared: their number is small, unless parameters are interleaved.
    near: list[_Region] = []
    for region in sorted(found, key=lambda r: r.low):
        near = [other for other in near if other.high > region.low]
        for other in near:
            if (region.changed or other.changed) and _overlap(region.array, other.array):
                first, second = sorted((region, other), key=lambda r: (not r.changed, r.number))
                raise BindError(f"{where}: {second.name} and {first.name} {_how(first, second)}.")
        near.append(region)


def _overlap(a: Tensor, b: Tensor) -> bool:
    return overlap(_walk(a), _walk(b), (), a.address - b.address)


def _how(first: _Region, second: _Region) -> str:
    if not second.changed:
        return "share memory; give the gradient memory of its own"
    same = first.array.address == second.array.address and first.array.layout is second.array.layout
    return "are the same memory; give each array once" if same else "share memory; give the array that holds both"


def _walk(array: Tensor) -> Walk:
    layout = array.layout
    inner = tuple([(n, s * layout.unit) for n, s in zip(layout.full_shape, layout.strides, strict=True)])
    return Walk((), inner, layout.numpy_dtype.itemsize)

"""Plan: what follows from the shapes, strides and types of a product's arrays. It holds no array."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.overlap import Walk
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.view import View


class Plan(NamedTuple):
    """What follows from the shapes, strides and types of a product's arrays.

    Attributes
    ----------
    shape : tuple of int
        The result's shape.
    kind : Kind
        The types.
    a, b, result : View
        The operands and the result as matrices.
    parts : list of tuple of View
        The views of each launch; empty if the result has no elements.
    alpha : int or float
        The factor.
    spans : mapping
        For each given array the bytes from its first element to the first byte that it has, and to the one behind its
        last.
    bias : View, optional
        What is added to each row.
    """

    shape: Shape
    kind: Kind
    a: View
    b: View
    result: View
    parts: list[tuple[View, ...]]
    alpha: Any
    spans: Mapping[str, tuple[int, int]]
    bias: View | None

    def sharing(self, arrays: Arrays, values: Mapping[str, Any]) -> list[str]:
        """Return the names of arrays that have bytes of ``out`` between their first and their last byte."""
        target = placed(arrays, values["out"], self.spans["out"])
        return [
            name
            for name, span in self.spans.items()
            if name != "out" and meet(placed(arrays, values[name], span), target)
        ]


def span_of(view: View) -> tuple[int, int]:
    """Return the distances of an array's first byte, and of the byte behind its last, from its first element."""
    if 0 in view.shape:
        return 0, 0
    size = NUMPY_OF.get(view.element, NUMPY_OF["half"]).itemsize
    return Walk(tuple([s * size for s in view.strides]), (), size).span(view.shape)


def placed(arrays: Arrays, array: Any, span: tuple[int, int]) -> tuple[int, int]:
    """Return the addresses of an array's first byte and of the byte behind its last."""
    at = arrays.address(array)
    return at + span[0], at + span[1]


def meet(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Return whether two ranges of addresses share bytes."""
    return a[0] < b[1] and b[0] < a[1]

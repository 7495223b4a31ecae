"""Gradients of operations: what each element of a result adds to those of its operands, as functions in Slang.

It works on arrays of scalars and records nothing; ``grad_tape.py`` says which arrays these are.
"""

from __future__ import annotations

import re
from functools import cache
from math import prod
from typing import Any

import numpy as np

from slangpy_rt.arithmetic.elementwise import held_as
from slangpy_rt.arithmetic.texts import binary
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.module import Module
from slangpy_rt.core.overlap import Walk, repeats

# PyTorch's formulas (derivatives.yaml and FunctionsManual.cpp). g is the gradient of the result; x, y and z are the
# operands. Those that a formula does not name need not be kept.
_FORMULAS: dict[tuple[str, int], str] = {
    ("copy", 0): "g",
    ("neg", 0): "-g",
    ("abs", 0): "x > 0 ? g : x < 0 ? -g : x == 0 ? {of}(0) : g * x",
    ("add", 0): "g",
    ("add", 1): "g",
    ("sub", 0): "g",
    ("sub", 1): "-g",
    ("mul", 0): "g * y",
    ("mul", 1): "g * x",
    ("truediv", 0): "g / y",
    ("truediv", 1): "-g * ((x / y) / y)",
    ("mod", 0): "g",
    ("mod", 1): "-g * floordiv_(x, y)",
    ("pow", 0): "y == 0 ? {of}(0) : g * (y * pow_(x, y - 1))",
    ("pow", 1): "x == 0 && y >= 0 ? {of}(0) : g * (pow_(x, y) * (x < 0 ? sqrt(x) : log(x)))",
    # The condition is x.
    ("where", 1): "x ? g : {of}(0)",
    ("where", 2): "x ? {of}(0) : g",
    # Between bounds, which are y and z.
    ("clip", 0): "x >= y && x <= z ? g : {of}(0)",
    ("clip", 1): "x < y && y < z ? g : {of}(0)",
    ("clip", 2): "x > z || z < y ? g : {of}(0)",
    # Of a number of elements y; and of a least or largest element y, which z elements are equal to.
    ("mean", 0): "g / y",
    ("extreme", 0): "g * (x == y ? {of}(1) : {of}(0)) / z",
}
# Functions that a formula calls.
_CALLED = {"mod": "floordiv", "pow": "pow"}
# `add` is for operands of the result's shape, and `value` for others, whose gradients are then added up. `same`
# adds to elements that lie in the same memory, which `add` would do in no order.
_TEXT = """{called}
{into} value({params})
{{
    {lets}
    return {into}({formula});
}}
void add(inout {into} sum, {params})
{{
    sum += value({names});
}}
"""
_SAME = "[Differentiable] {into} same({into} x) {{ return x; }}\n"


class Derivatives:
    """The gradients of operations on one device.

    Parameters
    ----------
    device : Device
        The device on which they run.
    """

    def __init__(self, device: Any) -> None:
        self._device = device
        self._modules: dict[tuple[str, ...], Module] = {}

    def add(self, name: str, place: int, into: Any, gradient: Any, operands: dict[str, Any]) -> None:
        """Add what an operation's result says of an operand to the operand's gradient.

        Parameters
        ----------
        name, place : str, int
            The operation, and which of its operands it is.
        into : Tensor
            The operand's gradient: scalars of any strides.
        gradient : Tensor
            The result's gradient: scalars, which broadcast with the operands.
        operands : dict
            The operands whose names ``needed`` returns, as arrays of scalars or numbers, by name.
        """
        shapes = {into.shape, gradient.shape, *[x.shape for x in operands.values() if isinstance(x, NDBuffer)]}
        shape: tuple[int, ...] = into.shape if len(shapes) == 1 else np.broadcast_shapes(*shapes)
        if not prod(shape):
            return
        target, held = into.dtype.name, gradient.dtype.name
        of = "double" if held == "double" else "float"
        given = {"g": held}
        for letter, x in operands.items():
            given[letter] = held_as(x.dtype.name) if isinstance(x, NDBuffer) else of
        module = self._module((name, str(place), of, target, *given.values()), given)
        values = gradient, *operands.values()
        if shape == into.shape and _is_plain(into):
            module["add"](into, *values)
        else:
            self.accumulate(into, module["value"](*values, _result=Tensor.empty(self._device, shape, target)))

    def accumulate(self, into: Any, found: Any) -> None:
        """Add an array of scalars to a gradient that broadcasts to its shape.

        Parameters
        ----------
        into : Tensor
            The gradient. It may be a view in which elements lie in the same memory.
        found : Tensor
            Its elements are added up where several belong to one of the gradient.
        """
        if not found.size:
            return
        missing = len(found.shape) - len(into.shape)
        into = into[(*(None,) * missing, ...)] if missing else into
        # A dimension of stride 0 is one element, too.
        steps = zip(into.shape, found.shape, into.layout.strides, strict=True)
        axes = [k for k, (n, m, step) in enumerate(steps) if m > 1 and (n == 1 or step == 0)]
        into = into[tuple([slice(0, 1) if k in axes else slice(None) for k in range(len(found.shape))])]
        found = found.sum(tuple(axes), keepdims=True) if axes else found
        if _is_plain(into):
            into += found
            return
        target = into.dtype.name
        if target == "half":
            self._accumulate_in_float(into, found)
            return
        module = self._modules.get((target,))
        if module is None:
            module = self._modules[target,] = Module.load_from_source(
                self._device, f"slangpy_rt_same_{target}", _SAME.format(into=target)
            )
        module["same"].bwds(
            Tensor.empty_like(into).with_grads(grad_out=into), _result=Tensor.empty_like(found).with_grads(found)
        )

    def _accumulate_in_float(self, into: Any, found: Any) -> None:
        """Add an array to a gradient of halves that overlaps itself: sums of half are kept in float, elsewhere."""
        own = into.layout
        low, high = own.span
        sums: Any = Tensor.zeros(self._device, (high - low) // own.unit)
        wide = sums.layout.unit // own.unit
        seen = layout_of(self._device, Tensor, sums.dtype, own.shape, own.strides, False)
        self.accumulate(Tensor.of(seen, sums.buffer, sums.address - low * wide), found.astype("float"))
        whole = layout_of(self._device, Tensor, into.dtype, sums.shape, None, False)
        memory: Any = Tensor.of(whole, into.buffer, into.address + low)
        memory += sums.astype("half")

    def _module(self, key: tuple[str, ...], given: dict[str, str]) -> Module:
        """Return the module of a formula, for operands of scalar types by name."""
        found = self._modules.get(key)
        if found is not None:
            return found
        name, place, of, target, *_ = key
        called = _CALLED.get(name, "")
        formula = _FORMULAS[name, int(place)].format(of=of)
        text = _TEXT.format(
            called=binary(called, of, of, of, of) if called and f"{called}_(" in formula else "",
            into=target,
            params=", ".join([f"{type_} {letter}_" for letter, type_ in given.items()]),
            lets="\n    ".join([
                f"let {letter} = {type_ if type_ == 'bool' else of}({letter}_);" for letter, type_ in given.items()
            ]),
            names=", ".join([f"{letter}_" for letter in given]),
            formula=formula,
        )  # fmt: skip
        title = "_".join(("slangpy_rt_gradient", *key))
        made = self._modules[key] = Module.load_from_source(self._device, title, text)
        return made


def derivatives(array: NDBuffer) -> Derivatives:
    """Return the derivatives of an array's device."""
    device = array.layout.device
    return device.once("derivatives", lambda: Derivatives(device))


@cache
def needed(name: str, places: tuple[int, ...]) -> tuple[int, ...]:
    """Return which operands the gradients of some operands depend on, in their order."""
    named = {word for place in places for word in re.findall(r"\b[xyz]\b", _FORMULAS[name, place])}
    return tuple([k for k, letter in enumerate("xyz") if letter in named])


def has_formula(name: str) -> bool:
    """Tell whether an operation of two operands has gradients."""
    return (name, 1) in _FORMULAS


def _is_plain(array: Any) -> bool:
    """Tell whether each element of an array of scalars lies in memory of its own."""
    own = array.layout
    return own.contiguous or not repeats(Walk(tuple([s * own.unit for s in own.strides]), (), own.unit), own.shape)

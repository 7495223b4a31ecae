"""From the arguments of a product to launches: shapes, views of three dimensions, and the program that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.core.overlap import Walk, repeats
from slangpy_rt.core.shapes import Shape, broadcast, contiguous
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.device_of import device_of
from slangpy_rt.linalg.apart import apart
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.copies import copies_of
from slangpy_rt.linalg.cores import cores_of
from slangpy_rt.linalg.known_product import MISS
from slangpy_rt.linalg.known_products import Fixed, fixed, known_products, options_of, repeat
from slangpy_rt.linalg.lines import readable
from slangpy_rt.linalg.plan import Plan, meet, placed, span_of
from slangpy_rt.linalg.program import (
    RESULTS,
    SUMS,
    Kind,
    check_size,
    most_matrices,
    program_of,
    storage_of,
)
from slangpy_rt.linalg.user_functions import ACTIVATIONS, NO_VALUES, UserFunction
from slangpy_rt.linalg.view import View, launches

if TYPE_CHECKING:
    from slangpy_rt.calls.command_list import CommandList
    from slangpy_rt.device import Device
    from slangpy_rt.runtime.core import DeviceCore

# Numbers in each dimension: kernels count them with int.
_MOST = 2**31 - 1
_LARGEST = {name: float(np.finfo(NUMPY_OF[name]).max) for name in ("float", "double")}


@dataclass(frozen=True)
class Product:
    """The arguments of one product.

    Attributes
    ----------
    arrays : Arrays
        The library of its arrays.
    values : mapping
        The arrays by name: ``a``, ``b``, and ``out`` and ``bias`` if they are given.
    transpose_a, transpose_b, out_dtype, alpha, activation, device, precision
        As for ``Matmul``.
    """

    arrays: Arrays
    values: Mapping[str, Any]
    transpose_a: bool = False
    transpose_b: bool = False
    out_dtype: Any = None
    alpha: float = 1
    activation: str | UserFunction | None = None
    device: Device | None = None
    precision: str | None = None

    @property
    def function(self) -> UserFunction | None:
        """The user's function that is the activation."""
        return self.activation if isinstance(self.activation, UserFunction) else None

    def options(self, of_values: Fixed) -> Any:
        """Return all but the arrays and the device, as a key; ``of_values`` is what ``fixed`` returned."""
        last = self.activation.key if isinstance(self.activation, UserFunction) else self.activation
        return options_of(
            self.transpose_a, self.transpose_b, self.out_dtype, self.alpha, last, self.precision, of_values.key
        )

    def bias_last(self) -> Product:
        """Return the product with operands such that a bias has a number for each column.

        With ``b`` of one dimension, ``a @ b`` is ``b @ a`` with ``a`` transposed, whose last dimension are columns.
        """
        a, b = self.values["a"], self.values["b"]
        if "bias" not in self.values or b.ndim > 1 or a.ndim == 1:
            return self
        last = self.activation
        return replace(
            self,
            values={**self.values, "a": b, "b": a},
            transpose_a=False,
            transpose_b=not self.transpose_a,
            activation=last.exchanged() if isinstance(last, UserFunction) else last,
        )


def checked(product: Product) -> None:
    """Refuse a product whose arguments do not fit; see ``Matmul``."""
    views = {name: product.arrays.view(value) for name, value in product.values.items()}
    a, _, shape = fitted(product, views["a"], views["b"])
    _check_rest(product, views, shape, _result_type(product, a.element, views.get("out")))


def multiply(product: Product, commands: CommandList | None = None) -> Any:
    """Compute a product, or record it in a command list, and return the result.

    Raises
    ------
    BindError, ShapeError, UnsupportedError
        As ``Matmul`` says; nothing is written then.
    """
    of_values = fixed(product.arrays, product.function) if commands is None else None
    if of_values is not None:
        found = repeated(product, of_values)
        if found is not MISS:
            return found
    if "bias" in product.values and product.values["b"].ndim == 1:
        checked(product)
        product = product.bias_last()
    arrays, values = product.arrays, product.values
    views = {name: arrays.view(value) for name, value in values.items()}
    device = product.device or device_of("matmul", list(values.values()))
    if product.function is not None:
        product.function.check_device(device)
    plan = _planned(product, views, device)
    arrays.check_place(device, values)
    given = values.get("out")
    if given is not None:
        arrays.check_writable(given)
    out = arrays.empty(device, plan.shape, plan.result.element, values["a"]) if given is None else given
    if not plan.parts:
        return out
    shared = [] if given is None else plan.sharing(arrays, values)
    if shared:
        # Kernels write while they read.
        copies = {name: arrays.copied(values[name], commands) for name in shared}
        return multiply(replace(product, values={**values, **copies}), commands)
    uniforms = NO_VALUES
    if product.function is not None and product.function.values:
        ranges = {name: placed(arrays, values[name], span) for name, span in plan.spans.items()}
        uniforms = apart(product.function, ranges, commands)
    bias = (values["bias"], views["bias"]) if "bias" in values else None
    work = Work(arrays, plan.kind, (values["a"], plan.a), (values["b"], plan.b), (out, plan.result), plan.alpha, bias)
    work.run(device, plan.parts, commands, uniforms)
    if of_values is not None:
        given_values = product.function.values if product.function is not None else NO_VALUES
        known_products(device, product.function).add(arrays, plan, values, product.options(of_values), given_values)
    return out


def repeated(product: Product, of_values: Fixed) -> Any:
    """Compute a product like an earlier one, or return MISS; ``of_values`` is what ``fixed`` returned."""
    arrays, values = product.arrays, product.values
    return repeat(
        arrays, values["a"], values["b"], values.get("out"), values.get("bias"), product.options(of_values),
        product.device, product.function, of_values.arrays,
    )  # fmt: skip


def _planned(product: Product, views: Mapping[str, View], device: Any) -> Plan:
    a, b, shape = fitted(product, views["a"], views["b"])
    result = _result_type(product, a.element, views.get("out"))
    _check_rest(product, views, shape, result)
    out = views.get("out") or View(result, shape, contiguous(shape))
    c = as_matrices(out, len(views["a"].shape), len(views["b"].shape))
    last = product.activation
    kind = Kind(
        a.element,
        result,
        last.inlined(SUMS[a.element]) if isinstance(last, UserFunction) else last or "",
        "bias" in views,
    )
    alpha = factor("matmul", a.element, product.alpha)
    if product.precision is not None:
        a, b, kind = a._replace(element="tf32"), b._replace(element="tf32"), kind._replace(element="tf32")
    work = Work(product.arrays, kind, (None, a), (None, b), (None, c), alpha)
    parts = work.parts(device) if prod(shape) else []
    return Plan(
        shape, kind, a, b, c, parts, alpha, {name: span_of(view) for name, view in views.items()}, views.get("bias")
    )


class Work(NamedTuple):
    """A product whose arrays fit, as arrays with the views in which their matrices lie.

    Attributes
    ----------
    arrays : Arrays
        The library of the arrays.
    kind : Kind
        Their types.
    a, b, c : tuple of array and View
        The operands, whose batches are broadcast to that of the result, and the result.
    alpha : float
        A factor.
    bias : tuple of array and View, optional
        What is added to each row.
    """

    arrays: Arrays
    kind: Kind
    a: tuple[Any, View]
    b: tuple[Any, View]
    c: tuple[Any, View]
    alpha: float = 1
    bias: tuple[Any, View] | None = None

    def parts(self, device: DeviceCore) -> list[tuple[View, ...]]:
        """Return the views of each launch."""
        batch = self.c[1].batch
        check_size(device, self.c[1])
        views = self.a[1].spread(batch), self.b[1].spread(batch), self.c[1]
        return list(launches(views, most_matrices(device)))

    def run(
        self,
        device: DeviceCore,
        parts: Sequence[tuple[View, ...]],
        commands: CommandList | None = None,
        uniforms: Mapping[str, Any] = NO_VALUES,
    ) -> None:
        """Launch the kernels, or record them in a command list; ``uniforms`` has the values of a user's function."""
        arrays, kind = self.arrays, self.kind
        stored, stored_result = storage_of(device, kind.element)[0], storage_of(device, kind.result)[0]
        rest: list[Any] = [int(self.alpha) if SUMS[kind.element] == "int" else float(self.alpha)]
        if self.bias is not None:
            rest.append(arrays.strided(*self.bias, stored_result))
        in_place = all(arrays.lies_on(device, x) for x, _ in (self.a, self.b, self.c))
        for left, right, target in parts:
            a, b = arrays.strided(self.a[0], left, stored), arrays.strided(self.b[0], right, stored)
            c = arrays.strided(self.c[0], target, stored_result)
            if not in_place or not self._by_cores(
                device, commands, (a, left), (b, right), (c, target), rest, uniforms
            ):
                program_of(device, kind).run(target, commands, uniforms, a, b, c, *rest)

    def _by_cores(
        self,
        device: DeviceCore,
        commands: CommandList | None,
        a: tuple[Any, View],
        b: tuple[Any, View],
        c: tuple[Any, View],
        rest: list[Any],
        uniforms: Mapping[str, Any],
    ) -> bool:
        """Multiply by tensor cores; return whether that was done."""
        arrays = self.arrays
        places = [arrays.address(array) for array, _ in (a, b)]
        cores = cores_of(device, self.kind, (a[1], places[0]), (b[1], places[1]), c[1])
        if cores is None:
            return False
        copies = copies_of(device, self.kind.element)
        left, right = (
            (*operand, at)
            if readable(operand[1], at, operand is a)
            else copies.packed(commands, arrays, operand, array, operand is a)
            for operand, at, (array, _) in zip((a, b), places, (self.a, self.b), strict=True)
        )
        cores.run(commands, left, right, c, rest, kept=cores.captures(arrays), uniforms=uniforms)
        return True


def fitted(product: Product, a: View, b: View) -> tuple[View, View, Shape]:
    """Return the operands as matrices, and the shape of the result."""
    for name, view in (("a", a), ("b", b)):
        if view.element not in SUMS:
            listed = ", ".join(element for element in SUMS if element != "tf32")
            raise BindError(f"matmul: {name} has elements of type '{view.element}'; {listed} are multiplied.")
        if not view.shape:
            raise ShapeError(f"matmul: {name} is a single number; an array of at least one dimension was expected.")
        if max(view.shape) > _MOST:
            raise UnsupportedError(
                f"matmul: {name} has the shape {view.shape}; at most {_MOST} numbers each way are multiplied."
            )
    if a.element != b.element:
        raise BindError(
            f"matmul: a has elements of type '{a.element}' and b of '{b.element}'; convert one of them, since device "
            "data is not converted."
        )
    left, right = as_operand(a, product.transpose_a, row=True), as_operand(b, product.transpose_b, row=False)
    if left.shape[-1] != right.shape[-2]:
        raise ShapeError(
            f"matmul: a of shape {a.shape}{' transposed' * bool(product.transpose_a)} has rows of "
            f"{left.shape[-1]} numbers, and b of shape {b.shape}{' transposed' * bool(product.transpose_b)} has "
            f"columns of {right.shape[-2]}; equal numbers were expected."
        )
    try:
        batch = broadcast("matmul", [("a", left.batch), ("b", right.batch)])
    except ShapeError:
        raise ShapeError(
            f"matmul: the dimensions {left.batch} of a (shape {a.shape}) and {right.batch} of b (shape {b.shape}) do "
            "not broadcast; each two of them must be equal, or one of them 1."
        ) from None
    rows = () if len(a.shape) == 1 else (left.shape[-2],)
    columns = () if len(b.shape) == 1 else (right.shape[-1],)
    return left, right, (*batch, *rows, *columns)


def as_operand(view: View, transposed: bool, row: bool) -> View:
    """Return an operand as matrices: one of one dimension as a ``row`` or as a column, which are not transposed."""
    if len(view.shape) > 1:
        return view.transposed() if transposed else view
    if row:
        return view._replace(shape=(1, *view.shape), strides=(0, *view.strides))
    return view._replace(shape=(*view.shape, 1), strides=(*view.strides, 0))


def _result_type(product: Product, element: str, out: View | None) -> str:
    """Return the element type of the result."""
    result = RESULTS[element][0] if element != "bfloat16" and element != "float" else element
    if out is not None:
        if product.out_dtype is not None and product.arrays.element("matmul", product.out_dtype) != out.element:
            raise BindError(
                f"matmul: out has elements of type '{out.element}', and out_dtype is another; leave one out."
            )
        result = out.element
    elif product.out_dtype is not None:
        result = product.arrays.element("matmul: out_dtype", product.out_dtype)
    if result not in RESULTS[element]:
        raise BindError(
            f"matmul: the result's elements would be '{result}'; products of '{element}' are "
            f"{' or '.join(RESULTS[element])}."
        )
    return result


def _check_rest(product: Product, views: Mapping[str, View], shape: Shape, result: str) -> None:
    """Refuse a result or a bias of another shape, and an activation or a factor that there is not."""
    out, bias = views.get("out"), views.get("bias")
    if out is not None:
        if out.shape != shape:
            raise ShapeError(f"matmul: out has the shape {out.shape}; the product's is {shape}.")
        size = NUMPY_OF.get(out.element, NUMPY_OF["half"]).itemsize
        if repeats(Walk(tuple([s * size for s in out.strides]), (), size), out.shape):
            raise ShapeError(f"matmul: elements of out (shape {out.shape}, strides {out.strides}) share memory.")
    if bias is not None and (bias.shape != shape[-1:] or bias.element != result or not shape):
        raise ShapeError(
            f"matmul: bias has the shape {bias.shape} and elements of type '{bias.element}'; a number of type "
            f"'{result}' for each of the {shape[-1] if shape else 0} elements of the result's last dimension was "
            "expected."
        )
    last = product.activation
    if isinstance(last, UserFunction):
        last.declaration(SUMS[views["a"].element])
    elif last is not None and last not in ACTIVATIONS:
        raise BindError(
            f"matmul: activation is {in_words(last)}; {', '.join(ACTIVATIONS)}, or a function of a module, was "
            "expected."
        )
    factor("matmul", views["a"].element, product.alpha)
    precision = product.precision
    if precision is not None and not (isinstance(precision, str) and precision == "tf32"):
        raise BindError(f"matmul: precision is {in_words(precision)}; 'tf32' was expected, or None.")
    if precision is not None and views["a"].element != "float":
        raise BindError(f"matmul: precision is 'tf32', which is for floats, and elements are '{views['a'].element}'.")


def factor(where: str, element: str, alpha: Any) -> int | float:
    """Check a factor of products of an element type, and return it as a Python number."""
    whole = SUMS[element] == "int"
    kind = kind_of(alpha)
    if kind not in ("biu" if whole else "biuf"):
        raise BindError(f"{where}: alpha is {in_words(alpha)}; a {'whole ' * whole}number was expected.")
    low, high = (-(2**31), 2**31 - 1) if whole else (-_LARGEST[SUMS[element]], _LARGEST[SUMS[element]])
    # Comparisons of whole numbers with floats are exact; infinities and NaN are floats.
    if not low <= alpha <= high and (kind != "f" or isfinite(alpha)):
        raise BindError(f"{where}: alpha is {in_words(alpha)}; a number from {low} to {high} was expected.")
    return int(alpha) if whole else float(alpha)


def as_matrices(view: View, left: int, right: int) -> View:
    """Return the result as matrices: with the rows or columns that operands of one dimension stand for."""
    shape, strides = list(view.shape), list(view.strides)
    if right == 1:
        shape.append(1)
        strides.append(0)
    if left == 1:
        shape.insert(len(shape) - 1, 1)
        strides.insert(len(strides) - 1, 0)
    return view._replace(shape=tuple(shape), strides=tuple(strides))


def sharing(arrays: Arrays, target: Any, sources: Sequence[Any]) -> list[Any]:
    """Return those arrays that have bytes of ``target`` between their first and their last byte."""
    there = placed(arrays, target, span_of(arrays.view(target)))
    return [x for x in sources if meet(placed(arrays, x, span_of(arrays.view(x))), there)]

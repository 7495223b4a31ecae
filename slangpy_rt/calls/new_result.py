"""The result that a call makes: which kind, how it is made, and what the call returns of it.

Results that the user gives are bound in ``arguments.bind``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.adapters import adapter_of_results
from slangpy_rt.arguments.bind import bind, bind_result, results_of
from slangpy_rt.arguments.bind_texture import texture_maker
from slangpy_rt.arguments.bound import Bound, result_kind
from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.gradients import tangent_of
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.wrapped import known, optional_item, tuple_items, tuple_of
from slangpy_rt.arrays.differentiable import DiffPair, NDDifferentiableBuffer
from slangpy_rt.arrays.layout import layout_of, new_array
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.result import Result
from slangpy_rt.core.checks import no_memory
from slangpy_rt.core.dtypes import scalar_type, storage
from slangpy_rt.core.errors import BindError, OutOfMemoryError, UnsupportedError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.structs import to_python
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.host_view import POOLED_BYTES
from slangpy_rt.textures.texture import Texture

_RESULTS: dict[Any, str] = {
    "torch": "torch", "numpy": "numpy", "tensor": "tensor", "ndbuffer": "ndbuffer", "texture": "texture",
    np.ndarray: "numpy", Tensor: "tensor", NDBuffer: "ndbuffer", Texture: "texture",
}  # fmt: skip


class Optionals(NamedTuple):
    """What a call over arrays returns of a function whose results are Optionals.

    Attributes
    ----------
    value : Tensor, NDBuffer or numpy.ndarray
        The values; zeros where there are none. Of ``Optional<Tuple<A, B>>`` a tuple of arrays.
    has_value : Tensor, NDBuffer or numpy.ndarray
        Bools of the call's shape: whether there is a value.
    """

    value: Any
    has_value: Any


def kind_named(result: Any) -> str | None:
    """Return the kind of result that a name or a type means; None for other values."""
    if isinstance(result, str):
        # Classes derived from str need not be hashable.
        result = str.__str__(result)
    return _RESULTS.get(result) if isinstance(result, (str, type)) else None


def new_result(
    where: str,
    scope: Scope,
    returns: SlangType,
    arguments: tuple[Bound, ...],
    asked: Any,
    shape: Shape,
    named: bool,
    derivative: str = "",
) -> Result:
    """Choose the Result that the arguments or the user ask for.

    Parameters
    ----------
    where : str
        The function, the start of every message.
    returns : SlangType
        What the function returns.
    arguments : tuple of Bound
        The call's arguments.
    asked : object
        The kind that the user asks for, or None.
    shape : tuple of int
        The call's shape.
    named : bool
        Whether ``_result`` names the kind.
    derivative : str
        ``"forward"`` or empty.

    Raises
    ------
    BindError, UnsupportedError
        If there is no such result.
    """
    if returns.kind == "void":
        return Result()
    if returns.kind == "struct" and not returns.fields:
        items = tuple_items(scope, returns)
        if items:
            each = [new_result(where, scope, t, arguments, asked, shape, named, derivative) for t in items]
            return _tuple_of(known(returns, items), each, named)
        item = optional_item(scope, returns)
        if item is not None:
            return _optional(where, scope, known(returns, (item,)), item, arguments, asked, shape, named, derivative)
    device, returns = scope.device, scope.struct(returns)
    stored = storage(returns)
    if stored is None:
        raise UnsupportedError(f"{where}: results of type '{returns.name}' are not supported.")
    kind = kind_named(asked)
    if asked is not None and kind is None:
        raise BindError(
            f"{where}: _result={in_words(asked)} is not one of 'numpy', 'tensor', 'ndbuffer', 'texture', 'torch'."
        )
    kind = kind or result_kind(arguments)
    if not kind and shape:
        kind = "numpy" if any(leaf.mode == "array" for b in arguments for leaf in b.leaves) else "tensor"
    if derivative and differentiates(scope, returns):
        return _result_with_tangent(where, scope, returns, kind, shape, named)
    if kind == "texture":
        make_texture = texture_maker(where, device, returns, shape)
        return Result(bind_result(where, scope, returns, make_texture()), None, make_texture, named=named)
    if kind in ("tensor", "ndbuffer"):
        layout = layout_of(device, Tensor if kind == "tensor" else NDBuffer, returns, shape, own=True)
        sample: Any = new_array(layout)

        def make() -> Any:
            return new_array(layout)

        bound = bind_result(where, scope, returns, sample)
        return Result(bound, layout, make, named=named)
    dtype, full = stored.dtype, shape + stored.dims
    adapter = adapter_of_results(kind)
    if adapter is not None:
        make_theirs = adapter.result_maker(device, full, dtype, result_kind(arguments))
        return Result(bind_result(where, scope, returns, make_theirs()), None, make_theirs, named=named)

    # A small result is a plain NumPy array: 0.2 us less.
    small = prod(full) * dtype.itemsize < POOLED_BYTES
    make_host = partial(np.empty, full, dtype) if small else partial(device.host_array, full, dtype)
    try:
        made = make_host()
    except OutOfMemoryError:  # the device's, with its own message
        raise
    except MemoryError as error:
        raise no_memory(where, error) from None
    bound = bind_result(where, scope, returns, made)
    return Result(bound, None, make_host, None if kind == "numpy" else to_python, named=named)


def _tuple_of(type_: SlangType, each: Sequence[Result], named: bool) -> Result:
    """Return the Result of a function that returns a Tuple: a tuple of what each item alone would be."""
    makes = [r.make for r in each if r.make is not None]
    unwraps = [r.unwrap or _itself for r in each]

    def make() -> Any:
        return tuple([make() for make in makes])

    def unwrap(out: Any) -> Any:
        return tuple([unwrap(item) for unwrap, item in zip(unwraps, out, strict=True)])

    bound = results_of(type_, [r.bound for r in each if r.bound is not None])
    plain = all(r.unwrap is None for r in each)
    return Result(bound, None, make, None if plain else unwrap, named=named)


def _optional(
    where: str,
    scope: Scope,
    type_: SlangType,
    item: SlangType,
    arguments: tuple[Bound, ...],
    asked: Any,
    shape: Shape,
    named: bool,
    derivative: str,
) -> Result:
    """Return the Result of a function that returns an Optional: values with a mask, or a value of Python or None."""
    if derivative:
        raise UnsupportedError(f"{where}: it returns '{type_.name}', which has no derivative here; return a value.")
    single = not shape and asked is None and not result_kind(arguments)
    held, there = (
        new_result(where, scope, t, () if single else arguments, asked, shape, named)
        for t in (item, scalar_type("bool"))
    )
    places = ((".value", held), (".hasValue", there))
    parts = tuple([(p, replace(r.bound, name=f"_result{p}")) for p, r in places if r.bound is not None])

    def make() -> Any:
        return Optionals(*[r.make() for _, r in places if r.make is not None])

    def unwrap(out: Any) -> Any:
        value, has = [r.unwrap(x) if r.unwrap is not None else x for (_, r), x in zip(places, out, strict=True)]
        return (value if has else None) if single else Optionals(value, has)

    plain = held.unwrap is None and there.unwrap is None
    return Result(tuple_of("_result", type_, "out", parts), None, make, None if plain else unwrap, named=named)


def _itself(out: Any) -> Any:
    return out


def _result_with_tangent(
    where: str, scope: Scope, returns: SlangType, kind: str, shape: Shape, named: bool
) -> Result:
    """Choose the Result of ``fwds``: a new array with its tangent, or a DiffPair of numbers."""
    device = scope.device
    if kind not in ("", "tensor", "ndbuffer"):
        raise BindError(f"{where}: a NumPy array has no tangent; leave _result out or give a Tensor.")
    if not kind and storage(returns).struct:  # type: ignore[union-attr]
        kind = "tensor"
    if kind == "ndbuffer":

        def make() -> Any:
            return NDDifferentiableBuffer(device, returns, shape)
    elif kind:

        def make() -> Any:
            return Tensor.empty(device, shape, returns).with_grads(grad_out=Tensor.empty(device, shape, returns))
    else:

        def make() -> Any:
            return DiffPair()

    sample = make()
    if kind:
        bound = bind_result(where, scope, returns, sample)
    else:
        bound = bind(where, scope, Param("_result", returns, "out"), sample)
    return Result(tangent_of(where, scope, bound, sample), None, make, named=named)

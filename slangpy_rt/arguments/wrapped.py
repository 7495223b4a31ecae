"""Slang's own Optional and Tuple: what they hold, and Python's None and tuples as values of them.

An ``Optional<T>`` takes None or what a T takes; a ``Tuple<A, B>`` takes a tuple of what an A and a B take. Kernels
put both together from their parts, so no array holds one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from slangpy_rt.arguments.bound import Bound, result_kind
from slangpy_rt.arguments.mapping import Map
from slangpy_rt.arguments.nested_packers import PartsPacker
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.types import Param, SlangType
from slangpy_rt.core.wording import in_words

_OPTIONAL, _TUPLE = "Optional", "Tuple"


def optional_item(scope: Scope, type_: SlangType) -> SlangType | None:
    """Return the T of Slang's ``Optional<T>``, or None for any other type."""
    if type_.kind != "struct":
        return None
    items = _items(scope, type_, _OPTIONAL)
    return items[0] if len(items) == 1 else None


def tuple_items(scope: Scope, type_: SlangType) -> tuple[SlangType, ...]:
    """Return the types that Slang's ``Tuple`` holds; empty for any other type."""
    return _items(scope, type_, _TUPLE) if type_.kind == "struct" else ()


def known(type_: SlangType, items: tuple[SlangType, ...]) -> SlangType:
    """Return an Optional or a Tuple with its items as source writes them; reflection leaves those of a Tuple open."""
    head = type_.name.partition("<")[0]
    return replace(type_, name=f"{head}<{', '.join(item.name for item in items)}>", arguments=items)


def patterns_in(scope: Scope, type_: SlangType, value: Any) -> list[tuple[SlangType, Any]] | None:
    """Return what an Optional or a Tuple of generic items holds, each with its value; None for any other type.

    An Optional without a value, and a Tuple whose value does not fit, say nothing of their items.
    """
    if _is_of_slang(scope, type_, _OPTIONAL):
        values = [] if value is None else [value]
    elif _is_of_slang(scope, type_, _TUPLE):
        values = list(value) if isinstance(value, (list, tuple)) else []
    else:
        return None
    items = [a if isinstance(a, SlangType) else SlangType("other", str(a)) for a in type_.arguments]
    return list(zip(items, values, strict=True)) if len(items) == len(values) else []


def bind_wrapped(
    where: str, scope: Scope, param: Param, value: Any, how: Map, bind: Callable[..., Bound]
) -> Bound | None:
    """Fit a value to a parameter that is an Optional or a Tuple; return None for any other parameter.

    Parameters
    ----------
    where, scope, param, value, how
        As of ``bind``.
    bind : callable
        ``bind`` itself, for what the parameter holds.

    Raises
    ------
    BindError
        If the value does not fit.
    UnsupportedError
        If the function writes to an Optional.
    """
    item = optional_item(scope, param.type)
    if item is not None:
        return _bind_optional(where, scope, param, item, value, how, bind)
    items = tuple_items(scope, param.type)
    if not items:
        return None
    type_ = known(param.type, items)
    if not isinstance(value, (list, tuple)) or len(value) != len(items):
        raise BindError(
            f"{where} is {in_words(value)}; '{type_.name}' takes a tuple of {len(items)}, one for each of its items."
        )
    names = [f"_{k}" for k in range(len(items))]
    for name, _ in how.fields:
        if name not in names:
            raise BindError(f"{where}: map names '{name}', which '{type_.name}' has not; it has {', '.join(names)}.")
    bound = []
    for name, inner, part in zip(names, items, value, strict=True):
        told = f"{where[:-1]}.{name}'" if where.endswith("'") else f"{where}.{name}"
        child = replace(param, name=f"{param.name}.{name}", type=inner)
        bound.append((f".{name}", bind(told, scope, child, part, how.field(name))))
    return tuple_of(param.name, type_, param.direction, tuple(bound))


def tuple_of(name: str, type_: SlangType, access: str, parts: tuple[tuple[str, Bound], ...]) -> Bound:
    """Return an argument or a result that is put together from parts in their order."""
    every = [part for _, part in parts]
    packer = PartsPacker(_itself, [part.packer for part in every])
    return Bound(
        name, type_, "", 0, access, "parts", (), (), True, result_kind(every), packer, parts=parts,
        implied=sum(part.implied for part in every),
    )  # fmt: skip


def _bind_optional(
    where: str, scope: Scope, param: Param, item: SlangType, value: Any, how: Map, bind: Callable[..., Bound]
) -> Bound:
    type_ = known(param.type, (item,))
    if param.direction != "in":
        raise UnsupportedError(
            f"{where} is '{param.direction}', and an Optional that a function writes is not supported; return it, or "
            "write a value and a bool."
        )
    if value is None:
        packer = PartsPacker(_nothing, ())
        return Bound(param.name, type_, "", 0, "in", "parts", (), (), True, "", packer, initial=True)
    inner = bind(where, scope, replace(param, type=item), value, how)
    # An overload that takes the item itself fits better.
    return Bound(
        param.name, type_, "", 0, "in", "parts", (), (), True, inner.host, PartsPacker(_alone, [inner.packer]),
        parts=(("", inner),), implied=inner.implied + 1,
    )  # fmt: skip


def _items(scope: Scope, type_: SlangType, head: str) -> tuple[SlangType, ...]:
    """Return the types that a generic type of Slang's holds; empty for other types, and for a user's of that name."""
    if not _is_of_slang(scope, type_, head):
        return ()
    return tuple([
        a if isinstance(a, SlangType) and a.kind != "generic" else scope.named(type_.name, getattr(a, "name", str(a)))
        for a in type_.arguments
    ])  # fmt: skip


def _is_of_slang(scope: Scope, type_: SlangType, head: str) -> bool:
    mine = type_.kind == "struct" and not type_.fields and type_.name.startswith(f"{head}<")
    return mine and head not in scope.source.declares


def _itself(value: Any) -> Any:
    return value


def _alone(value: Any) -> tuple[Any]:
    return (value,)


def _nothing(value: Any) -> tuple[()]:
    return ()

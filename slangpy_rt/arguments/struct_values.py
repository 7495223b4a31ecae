"""Values with parts, such as structs': how one is taken apart for a parameter, and how a list becomes an array.

The parts are bound in ``bind``; nothing here makes a ``Bound``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.adapters import is_plain_sequence
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.sampled_textures import sampled_texture, with_its_sampler
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arrays.differentiable import DiffPair, GradientRef
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.conversion import Named, as_element, check_fields, check_type, item_type
from slangpy_rt.core.dtypes import Storage, scalar_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import MOST_DIMENSIONS
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import Field, Param, SlangType, StructInfo
from slangpy_rt.core.wording import in_words
from slangpy_rt.textures.texture import Texture


class Parts(NamedTuple):
    """How a value is taken apart.

    Attributes
    ----------
    take : callable
        Returns the parts of a value.
    places : list of (str, str, SlangType)
        The place, name and type of each.
    left_out : int
        How many fields the value does not have.
    initial : bool
        Whether the default of one of these is known to Slang alone.
    """

    take: Callable[[Any], Any]
    places: list[tuple[str, str, SlangType]]
    left_out: int = 0
    initial: bool = False


# How the names of parameter types begin that take a value and its derivative.
PAIR = "DifferentialPair<"


def parts_of(where: str, scope: Scope, param: Param, value: Any) -> Parts | None:
    """Return how to take a value apart for a parameter, or None for one that stays whole."""
    type_ = param.type
    if type_.name.startswith(PAIR):
        return _pair_parts(where, scope, type_, value)
    if isinstance(value, Texture):
        return Parts(with_its_sampler(where, value), [(f".{f.name}", f.name, f.type) for f in type_.fields])
    if isinstance(value, (NDBuffer, np.ndarray)):
        return one_part(type_) if holds_one_array(type_) else None
    # A parameter that is no struct takes a named tuple as a tuple.
    fields = fields_of(value) if type_.kind == "struct" or not isinstance(value, tuple) else None
    if fields is not None:
        read = {f.name for f in type_.fields} if param.direction == "in" else param.unchanged
        return _named_parts(where, scope, type_, value, read)
    if not isinstance(value, (list, tuple)):
        return None
    if type_.kind == "struct" and _lists_structs(value):
        return None
    if type_.kind == "struct":
        if value and not type_.fields:  # a struct of Slang's own, such as Tuple
            return None
        if len(value) != len(type_.fields):
            names = ", ".join(f.name for f in type_.fields)
            raise BindError(f"{where} is {in_words(value)}; '{type_.name}' has {len(type_.fields)} fields: {names}.")
        return Parts(lambda v: v, [(f".{f.name}", f.name, f.type) for f in type_.fields])
    whole = is_plain_sequence(value) or type_.kind not in ("vector", "matrix", "array")
    if whole and not (type_.kind == "array" and _holds_structs(type_)):
        return None
    if len(value) != type_.shape[0]:
        raise BindError(f"{where} is {in_words(value)}; '{type_.name}' takes {type_.shape[0]} values.")
    inner = item_type(type_)
    return Parts(lambda v: v, [(f"[{k}]", f"{k}", inner) for k in range(type_.shape[0])])


def holds_one_array(type_: SlangType) -> bool:
    """Return whether a struct's only field is a whole array, as that of ``MLP``: it is then bound as that array."""
    return type_.kind == "struct" and len(type_.fields) == 1 and container(type_.fields[0].type) is not None


def one_part(type_: SlangType) -> Parts:
    """Return the parts of a value that is given for the only field of a struct."""
    return Parts(lambda v: (v,), [(f".{f.name}", f.name, f.type) for f in type_.fields])


def concrete(where: str, scope: Scope, type_: SlangType, value: Any) -> SlangType:
    """Return the struct type of a value for a parameter of an interface type.

    Raises
    ------
    BindError
        If the value has none, or one that does not implement the interface.
    """
    if isinstance(value, NDBuffer):
        found: Any = value.dtype
    elif isinstance(value, Texture):
        found = sampled_texture(scope, type_.name)
    else:
        found = value.get("_type") if isinstance(value, dict) else None
        found = getattr(found, "slang_type", found)
        if isinstance(found, str):
            found = scope.named(where, found)
    if not isinstance(found, SlangType) or found.kind != "struct":
        raise BindError(
            f"{where} is {in_words(value)}; '{type_.name}' is an interface: name the struct, as in "
            "{'_type': 'Name', ...}, or pass an array of structs."
        )
    if not scope.source.conforms(found.name, type_.name):
        raise BindError(f"{where} is a '{found.name}', which does not implement '{type_.name}'.")
    return found


def structs_array(
    where: str,
    type_: SlangType,
    value: list[Any],
    stored: Storage,
    shape: tuple[int, ...],
    named: Named | None = None,
) -> npt.NDArray[Any]:
    """Return a structured array of the struct values in nested lists."""
    out = np.zeros(shape, stored.dtype)
    for place in np.ndindex(*shape):
        item: Any = value
        for k in place:
            item = item[k]
        out[place] = as_element(where + "".join(f"[{k}]" for k in place), type_, item, named)
    return out


def rows_of(where: str, value: Any) -> tuple[int, ...]:
    """Return the shape of nested lists of struct values."""
    if not isinstance(value, list):
        return ()
    inner = {rows_of(f"{where}[{k}]", item) for k, item in enumerate(value)}
    if len(inner) > 1:
        raise BindError(f"{where} is a list with rows of different lengths: {in_words(value)}.")
    return (len(value), *inner.pop())


def _pair_parts(where: str, scope: Scope, type_: SlangType, value: Any) -> Parts:
    """Return how to take a pair of a value and its derivative apart, for a parameter that takes both."""
    primal = type_.arguments[0]
    assert isinstance(primal, SlangType)
    gradient = SlangType("struct", f"{primal.name}.Differential") if primal.kind == "struct" else primal
    places = [(".p", "p", primal), (".d", "d", gradient)]
    if isinstance(value, NDBuffer) and value.layout.grads is not None:
        return Parts(lambda v: (v, v.grad), places)
    if isinstance(value, DiffPair):
        return Parts(lambda v: (v, GradientRef(v)), places)
    if fields_of(value) is not None:
        return _named_parts(
            where, scope, replace(type_, fields=tuple(Field(name, t) for _, name, t in places)), value
        )
    if isinstance(value, (list, tuple)) and len(value) == 2:
        return Parts(lambda v: v, places)
    raise BindError(
        f"{where} is {in_words(value)}; '{type_.name}' takes an NDDifferentiableBuffer, a Tensor with gradients, "
        "diff_pair(value, gradient), or both in a tuple."
    )


def _named_parts(where: str, scope: Scope, type_: SlangType, value: Any, optional: Collection[str] = ()) -> Parts:
    """Return how to take a value with fields by name apart; of those in ``optional`` some may have defaults."""
    fields: Any = fields_of(value)
    if type_.kind == "vector":
        wanted = [(name, scalar_type(type_.scalar)) for name in "xyzw"[: type_.shape[0]]]
    elif type_.kind == "struct":
        wanted = [(f.name, f.type) for f in type_.fields]
    else:
        raise BindError(f"{where} is {in_words(value)}, a struct's value; '{type_.name}' was expected.")
    defaults = {f.name: f.default for f in type_.fields if f.has_default and f.name in optional}
    check_type(where, type_, value, scope.named)
    check_fields(where, type_.name, [name for name, _ in wanted], value, fields, defaults)
    left_out = [name for name, _ in wanted if name not in fields]
    unknown = [name for name in left_out if defaults[name] is None]
    if unknown:
        _check_initial(where, scope, type_, unknown)
        wanted = [(name, kind) for name, kind in wanted if name not in unknown]
    names = [name for name, _ in wanted]

    def parts(v: Any) -> list[Any]:
        found = fields_of(v)
        assert found is not None
        return [found[name] if name in found else defaults[name] for name in names]

    # Calls with dicts are often repeated, and itemgetter is four times as fast.
    quick = itemgetter(*names) if type(value) is dict and len(names) > 1 and not left_out else parts
    return Parts(quick, [(f".{name}", name, kind) for name, kind in wanted], len(left_out), bool(unknown))


def _check_initial(where: str, scope: Scope, type_: SlangType, names: list[str]) -> None:
    """Refuse defaults that ``{}`` does not give to a variable: constructors of the text replace the one by fields."""
    found = scope.source.type(type_.name)
    constructors = found.constructors if isinstance(found, StructInfo) else ()
    fields = {f.name for f in type_.fields}
    by_fields = any(
        c.params and all(p.has_default and p.name in fields for p in c.params) for c in constructors
    )  # fmt: skip
    if constructors and not by_fields:
        raise BindError(
            f"{where} lacks {', '.join(names)}, and '{type_.name}' cannot be initialized with {{}}, which would give "
            "the default; give a value."
        )


def _lists_structs(value: Any, depth: int = 0) -> bool:
    """Return whether nested lists hold struct values only: tuples, or values with fields by name."""
    if depth == MOST_DIMENSIONS or not isinstance(value, list) or not value:
        return False
    return all(isinstance(v, tuple) or fields_of(v) is not None or _lists_structs(v, depth + 1) for v in value)


def _holds_structs(type_: SlangType) -> bool:
    while type_.kind == "array" and type_.element is not None:
        type_ = type_.element
    return type_.kind in ("struct", "enum")

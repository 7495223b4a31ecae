"""Resolution: which overload a call means, and what its generic parameters stand for.

Every overload is tried; the one whose arguments fit best is taken, and a tie is refused. An argument fits the better,
the fewer of its dimensions are left for the call to run along. Among equals, an exact fit comes first, then a
lossless promotion, then a conversion, then a number repeated over a vector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.bind import bind
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.mapping import NO_MAP, Map
from slangpy_rt.arguments.options import Options
from slangpy_rt.arguments.sampled_textures import as_sampled
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.wrapped import patterns_in
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.checks import is_callers
from slangpy_rt.core.dtypes import BFLOAT16, atomic_of, is_bfloat16, scalar_type, slang_scalar
from slangpy_rt.core.errors import BindError, CompileError, ShapeError, UnsupportedError
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import FunctionSig, Param, SlangType
from slangpy_rt.core.wording import in_words, meant

_NUMBERS = {float: 1, int: 2, bool: 3}
_FITS = ("exact", "promoted", "converted", "repeated")
_SIZED = re.compile(r"^(?:vector|matrix)<(.+)>$")


@dataclass(frozen=True)
class Candidate:
    """An overload that takes the arguments.

    Attributes
    ----------
    order : tuple of int
        For each parameter that was given, the place of its value among the arguments.
    """

    sig: FunctionSig
    bound: tuple[Bound, ...]
    order: tuple[int, ...]

    @property
    def cost(self) -> tuple[Any, ...]:
        """How badly the arguments fit: the worst one's cost counts first, then what was left to its default.

        As in Slang, a plain function comes before a generic one.
        """
        left_out = len(self.sig.params) - len(self.bound) + sum(b.implied for b in self.bound)
        return (*sorted((b.cost for b in self.bound), reverse=True), left_out, "<" in self.sig.name)


def resolve(
    scope: Scope,
    name: str,
    overloads: Sequence[FunctionSig],
    args: Sequence[Any],
    names: Sequence[str],
    options: Options,
) -> Candidate:
    """Choose the overload that fits best.

    Parameters
    ----------
    args : sequence
        Positional values and then keyword values, whose names are ``names``.

    Raises
    ------
    BindError
        If none fits, or several fit equally well.
    """
    found: list[Candidate] = []
    refusals: list[Exception] = []
    for sig in overloads:
        try:
            found.append(_try(scope, sig, args, names, options))
        except (BindError, ShapeError, UnsupportedError) as error:
            refusals.append(error)
    if not found:
        if len(refusals) == 1:
            raise refusals[0]
        raise BindError(f"{name}: no overload takes these arguments:\n" + "\n".join(f"  {e}" for e in refusals))
    if len(found) == 1:
        return found[0]
    best = min(c.cost for c in found)
    equal = [c for c in found if c.cost == best]
    # A function is declared twice where its declaration stands before its definition.
    if len({(str(c.sig), *(b.type.name for b in c.bound)) for c in equal}) > 1:
        raise BindError(_ambiguous(name, equal))
    return equal[0]


def _try(scope: Scope, sig: FunctionSig, args: Sequence[Any], names: Sequence[str], options: Options) -> Candidate:
    where = str(sig)
    if "_result" in [p.name for p in sig.params]:
        raise BindError(f"{where}: a parameter named '_result' cannot be passed; that keyword names the result.")
    positional = len(args) - len(names)
    order = match(where, sig, positional, names)
    maps = [NO_MAP] * len(order)
    if options.maps or options.named_maps:
        _check_maps(where, sig, options, positional)
        maps = [options.map_of(p.name, k, positional) for p, k in zip(sig.params, order, strict=False)]
    if sig.generics:
        sig = specialised(scope, sig, [(p, args[k], how) for p, k, how in zip(sig.params, order, maps, strict=False)])
    if sig.mutating:
        sig = _with_unchanged(scope, sig, args[order[0]])
    bound = [
        bind(f"{where}: argument '{p.name}'", scope, p, args[k], how)
        for p, k, how in zip(sig.params, order, maps, strict=False)
    ]
    return Candidate(sig, tuple(bound), order)


def _with_unchanged(scope: Scope, sig: FunctionSig, value: Any) -> FunctionSig:
    """Return a ``[mutating]`` method whose object is known to keep some fields, if the object is given by fields."""
    this, *others = sig.params
    if (fields_of(value) is None and not isinstance(value, tuple)) or this.type.kind != "struct":
        return sig
    # Few programs call such methods.
    from slangpy_rt.slang.changed_fields import changed_fields

    type_ = scope.struct(this.type)
    changed = changed_fields(scope.source, type_, sig.name.partition("<")[0])
    unchanged = frozenset(f.name for f in type_.fields) - changed
    return replace(sig, params=(replace(this, unchanged=unchanged), *others))


def match(where: str, sig: FunctionSig, positional: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return, for each parameter that was given, the place of its value among the arguments."""
    params = [p.name for p in sig.params]
    if positional == len(params) and not names:
        return tuple(range(positional))
    if positional > len(params):
        raise BindError(f"{where}: {positional} positional arguments were given; it takes {len(params)}.")
    places = dict(zip(params, range(positional), strict=False))
    for k, name in enumerate(names, positional):
        if name not in params:
            listed = ", ".join(params) or "none"
            raise BindError(f"{where}: there is no parameter '{name}'; it has {listed}.{meant(name, params)}")
        if name in places:
            raise BindError(f"{where}: argument '{name}' was given twice, by position and by name.")
        places[name] = k
    missing = [p.name for p in sig.params if p.name not in places]
    needed = [p.name for p in sig.params if p.name not in places and not p.has_default]
    if needed:
        written = [p.name for p in sig.params if p.name in needed and p.direction == "out"]
        how = ""
        if written:
            how = f" What it writes goes to arguments, too: pass an array or a ValueRef for {' and '.join(written)}."
        raise BindError(f"{where}: argument{'s' if len(needed) > 1 else ''} {', '.join(needed)} missing.{how}")
    if missing != params[len(params) - len(missing) :]:
        raise BindError(
            f"{where}: argument {missing[0]} missing; Slang fills in defaults from the right only, "
            f"so that a call which gives {params[-1]} has to give {missing[0]} too."
        )
    return tuple(places[name] for name in params[: len(params) - len(missing)])


def _check_maps(where: str, sig: FunctionSig, options: Options, positional: int) -> None:
    if len(options.maps) > positional:
        raise BindError(
            f"{where}: map has {len(options.maps)} entries by position; arguments by position: {positional}."
        )
    params = [p.name for p in sig.params]
    for name, _ in options.named_maps:
        if name in params[: len(options.maps)]:
            raise BindError(f"{where}: map says twice how '{name}' runs, by position and by name.")
        if name not in params and name != "_result":
            raise BindError(
                f"{where}: map names '{name}', which is no parameter; it has {', '.join(params) or 'none'}."
            )


def specialised(scope: Scope, sig: FunctionSig, given: Sequence[tuple[Param, Any, Map]]) -> FunctionSig:
    """Return the FunctionSig of a generic function with its generic parameters inferred from arguments.

    A texture says the type of its texels. Where the function takes no such type, it says a texture with its sampler.

    Parameters
    ----------
    scope : Scope
        The module.
    sig : FunctionSig
        The declaration.
    given : sequence of (Param, value, Map)
        The arguments.

    Raises
    ------
    BindError
        If the arguments do not say what a parameter stands for, or it does not meet its constraints.
    """
    try:
        return _specialise(scope, sig, given)
    except BindError:
        wholes = [(p, as_sampled(scope, value), how) for p, value, how in given]
        if all(new is old for (_, new, _), (_, old, _) in zip(wholes, given, strict=True)):
            raise
        try:
            return _specialise(scope, sig, wholes)
        except BindError:
            pass
        raise


def _specialise(scope: Scope, sig: FunctionSig, given: Sequence[tuple[Param, Any, Map]]) -> FunctionSig:
    known: dict[str, str] = {}
    # Python numbers come last, floats before ints: they take a type that other arguments have set.
    for p, value, how in sorted(given, key=lambda t: _NUMBERS.get(type(t[1]), 0)):
        _infer(scope, f"{sig}: argument '{p.name}'", p.type, value, how, sig.generics, known)
    unknown = [g for g in sig.generics if g not in known]
    if unknown:
        raise BindError(
            f"{sig}: the arguments do not say what {', '.join(unknown)} stands for; name it, as in "
            f"module['{sig.name}<{', '.join(known.get(g, g) for g in sig.generics)}>']."
        )
    text = f"{sig.name}<{', '.join(known[g] for g in sig.generics)}>"
    try:
        found = scope.source.functions(f"{sig.owner}.{text}" if sig.owner else text)
    except CompileError as error:
        whole = [(p.name, value) for p, value, _ in given if type(value) is int and known.get(p.type.name) == "int"]
        hint = "".join(f"\n'{name}' is a Python int, and so an int in Slang; {n}.0 is a float." for name, n in whole)
        raise BindError(f"{sig}: the arguments make it {text}, which Slang refuses:\n{error}{hint}") from None
    fitting = [f for f in found if len(f.params) == len(sig.params) - bool(sig.owner and not sig.static)]
    if not fitting:
        raise BindError(f"{sig}: the arguments make it {text}, whose constraints they do not meet.")
    special = fitting[0]
    if sig.owner and not sig.static:
        special = replace(special, params=(sig.params[0], *special.params))
    return replace(special, owner=sig.owner, static=sig.static, mutating=sig.mutating)


def _infer(
    scope: Scope,
    where: str,
    pattern: SlangType,
    value: Any,
    how: Map,
    generics: Sequence[str],
    known: dict[str, str],
) -> None:
    """Infer from one argument what generic parameters stand for, and enter it into ``known``."""

    def learn(name: str, text: str) -> None:
        if name not in generics:
            return
        soft = type(value) in _NUMBERS and name in known
        if known.setdefault(name, text) != text and not soft:
            raise BindError(f"{where} makes {name} {text}, and another argument makes it {known[name]}.")

    if pattern.kind == "generic":
        if pattern.name in generics:
            learn(pattern.name, natural_type(scope, where, value, how).name)
        return
    inner = patterns_in(scope, pattern, value)
    if inner is not None:
        for part, item in inner:
            _infer(scope, where, part, item, NO_MAP, generics, known)
        return
    words = _arguments(pattern)
    if not any(g in words for g in generics):
        return
    shape, scalar = _shape_and_scalar(value)
    if scalar is None:
        raise BindError(f"{where} is {in_words(value)}, which does not say what '{pattern.name}' is.")
    rank = {"vector": 1, "array": 1, "matrix": 2}.get(pattern.kind, 0)
    if pattern.kind == "struct" and len(words) == 2:
        element = natural_type(scope, where, value, how)
        learn(words[0], element.name)
        learn(words[1], str(len(value.shape)))
        return
    if len(shape) < rank:
        raise BindError(
            f"{where} is {in_words(value)}; '{pattern.name}' needs {rank} dimension{'s' * (rank > 1)} more."
        )
    learn(words[0], scalar)
    for word, size in zip(words[1:], shape[len(shape) - rank :], strict=False):
        learn(word, str(size))


def _arguments(pattern: SlangType) -> list[str]:
    """Return the words that a generic type is made of: T and N of ``vector<T, N>``, ``T[N]``, ``Tensor<T, N>``."""
    if pattern.arguments:
        return [(atomic_of(a) or a).name if isinstance(a, SlangType) else str(a) for a in pattern.arguments]
    if pattern.kind == "array" and pattern.element is not None:
        return [pattern.element.name, pattern.name[pattern.name.rfind("[") + 1 : -1]]
    match = _SIZED.match(pattern.name)
    return [w.strip() for w in match[1].split(",")] if match else []


def natural_type(scope: Scope, where: str, value: Any, how: Map) -> SlangType:
    """Return the type of an argument when the parameter does not say: its element, all dimensions vectorized.

    Raises
    ------
    BindError
        If the value has no Slang type of its own.
    """
    if how.type is not None:
        return how.type if isinstance(how.type, SlangType) else scope.named(where, how.type)
    stand_in = converter(type(value))
    if stand_in is not None:
        try:
            meant = stand_in(value)
        except BindError as error:
            raise BindError(f"{where} is {error}") from None
        return natural_type(scope, where, meant, how)
    if isinstance(value, ValueRef):
        return natural_type(scope, where, value.value, how)
    own = getattr(value, "slang_type", None)
    if isinstance(own, SlangType):
        return own
    if isinstance(value, dict) and "_type" in value:
        named = value["_type"]
        return scope.named(where, str(getattr(named, "name", named)))
    if isinstance(value, NDBuffer) and how.dims is None:
        return _type_of(value)
    shape, scalar = _shape_and_scalar(value)
    if scalar is None:
        named = "add '_type': 'Name' to it, or name one" if isinstance(value, dict) else "name one"
        raise BindError(f"{where} is {in_words(value)}, which has no Slang type of its own; {named} with .map(...).")
    inner = shape[len(how.dims) :] if how.dims is not None else ()
    if not inner:
        return _type_of(value) if isinstance(value, NDBuffer) else scalar_type(scalar)
    if len(inner) == 1 and 2 <= inner[0] <= 4:
        return scope.named(where, f"{scalar}{inner[0]}")
    if len(inner) == 2 and all(2 <= n <= 4 for n in inner):
        return scope.named(where, f"{scalar}{inner[0]}x{inner[1]}")
    return scope.named(where, scalar + "".join(f"[{n}]" for n in reversed(inner)))


def _type_of(value: NDBuffer) -> SlangType:
    """Return the type as which functions take an array's elements."""
    return scalar_type("float") if value.dtype is BFLOAT16 else value.dtype


def _shape_and_scalar(value: Any) -> tuple[tuple[int, ...], str | None]:
    if isinstance(value, NDBuffer) and value.dtype is BFLOAT16:
        return value.layout.full_shape, "float"
    if isinstance(value, NDBuffer):
        return value.layout.full_shape, None if value.layout.numpy_dtype.names else value.layout.scalar
    if isinstance(value, bool):
        return (), "bool"
    if isinstance(value, int):
        return (), "int"
    if isinstance(value, float) and not isinstance(value, np.generic):
        return (), "float"
    try:
        array = np.asarray(value)
    except ValueError as error:
        if is_callers(error):
            raise
        return (), None
    dtype = array.dtype
    if isinstance(value, (list, tuple)):
        dtype = np.dtype({"i": "i4", "f": "f4"}.get(dtype.kind, dtype))
    if is_bfloat16(dtype):
        return array.shape, "float"
    return array.shape, slang_scalar(dtype) if dtype.names is None else None


def _ambiguous(name: str, equal: Sequence[Candidate]) -> str:
    """Return the message for candidates that fit equally well: each argument's fit, and an unambiguous call."""
    rows = [("overload", "argument", "taken as", "call dimensions", "fit")]
    for c in equal:
        for n, b in enumerate(c.bound):
            dims, fit, _ = b.cost
            rows.append((str(c.sig) if n == 0 else "", b.name, b.type.name, str(dims), _FITS[fit]))
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    table = "\n".join("  " + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    first = equal[0]
    way = ", ".join(f"{b.name}={b.type.name!r}" for b in first.bound)
    return (
        f"{name}: more than one overload takes these arguments equally well:\n{table}\n"
        f"Say which is meant: {name}.map({way})(...) takes the first."
    )


def check_differentiable(scope: Scope, sig: FunctionSig, modifier: str) -> None:
    """Refuse a function that Slang does not differentiate.

    Raises
    ------
    BindError
        If it is not ``[Differentiable]`` and no function is declared as its derivative.
    """
    # Reflection does not say that another function is the derivative of this one.
    named = re.search(rf"DerivativeOf\(\s*{re.escape(sig.name.partition('<')[0])}\s*\)", scope.source.text)
    if not sig.differentiable and named is None:
        what = f".{modifier}" if modifier in ("bwds", "fwds") else modifier
        raise BindError(f"{sig}: {what} needs a derivative; mark the function [Differentiable].")

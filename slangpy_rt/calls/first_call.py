"""First calls: from the values of a call to its prepared call, once for each signature of the arguments.

Code that only this needs (resolution, binding, gradients, descriptions of kernels, the code generator) is loaded with
this module, at a program's first call. It keeps no state: ``PreparedCalls`` remembers the prepared calls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from slangpy_rt.arguments.bind import bind_whole
from slangpy_rt.arguments.gradients import with_gradients
from slangpy_rt.arguments.options import Options
from slangpy_rt.arguments.resolve import check_differentiable, match, resolve
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.signature import aliased
from slangpy_rt.calls.build import build_call, build_dispatch
from slangpy_rt.calls.kernel_spec import Uniforms
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import EntryPoint, FunctionSig, Param


def prepare_call(
    scope: Scope,
    name: str,
    overloads: tuple[FunctionSig, ...],
    args: tuple[Any, ...],
    names: tuple[str, ...],
    result: Any,
    options: Options,
    values: tuple[Any, ...],
) -> PreparedCall:
    """Prepare the call of a function.

    Parameters
    ----------
    args : tuple
        Positional values and then keyword values, whose names are ``names``.
    result : object
        The value that the user passed as ``_result``, or None.
    values : tuple
        Values of the uniforms that the options name.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
    """
    chosen = resolve(scope, name, overloads, args, names, options)
    uniforms = _bind_uniforms(scope, name, options, values)
    order = (*range(len(args), len(args) + len(uniforms)), *chosen.order)
    bound, shared = chosen.bound, False
    if options.derivative:
        modifier = "bwds" if options.derivative == "backward" else "fwds"
        check_differentiable(scope, chosen.sig, modifier)
        bound = tuple(
            with_gradients(
                f"{chosen.sig}: .{modifier}: argument '{p.name}'", scope, chosen.sig, p, b, args[k],
                options.map_of(p.name, k, len(args) - len(names)), options.derivative,
            )
            for p, b, k in zip(chosen.sig.params, bound, chosen.order, strict=False)
        )  # fmt: skip
        shared = aliased(args)
    return build_call(scope, chosen.sig, bound, order, result, options, uniforms, shared)


def prepare_dispatch(
    scope: Scope,
    sig: FunctionSig,
    entry: EntryPoint,
    threads: tuple[int, ...],
    args: tuple[Any, ...],
    names: tuple[str, ...],
    options: Options,
    values: tuple[Any, ...],
) -> PreparedCall:
    """Prepare the dispatch of a kernel; ``sig`` has those parameters of its entry point that a dispatch passes.

    Parameters
    ----------
    args, names, values
        As for ``prepare_call``.

    Raises
    ------
    BindError, UnsupportedError, CompileError
    """
    for p in sig.params:
        if p.direction != "in":
            raise BindError(f"{sig}: all threads would write to '{p.name}'; let it be an NDBuffer or a pointer.")
    order = match(str(sig), sig, len(args) - len(names), names)
    bound = tuple(
        bind_whole(f"{sig}: argument '{p.name}'", scope, p, args[k]) for p, k in zip(sig.params, order, strict=False)
    )
    uniforms = _bind_uniforms(scope, sig.name, options, values)
    order = (*range(len(args), len(args) + len(uniforms)), *order)
    entry = _entry_without(sig, entry, sig.params[len(bound) :])
    return build_dispatch(scope, entry, bound, order, threads, options, uniforms)


def _bind_uniforms(scope: Scope, name: str, options: Options, values: tuple[Any, ...]) -> Uniforms:
    """Bind the values that ``set`` gave."""
    known = scope.uniforms(f"{name}.set", options.uniforms)
    return tuple(
        (uniform, bind_whole(f"{name}.set: uniform '{uniform}'", scope, known[uniform], value))
        for uniform, value in zip(options.uniforms, values, strict=True)
    )


def _entry_without(sig: FunctionSig, entry: EntryPoint, left_out: tuple[Param, ...]) -> EntryPoint:
    """Return the entry point without the parameters that a dispatch leaves to their defaults."""
    params = entry.params[: len(entry.params) - len(left_out)]
    if entry.params[len(params) :] != left_out:
        raise BindError(
            f"{sig}: argument {left_out[0].name} missing; a parameter with a semantic stands "
            "behind it, and Slang fills in defaults from the right only."
        )
    return replace(entry, params=params)

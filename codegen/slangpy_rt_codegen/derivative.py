"""Derivatives of a call: the function that Slang differentiates, and the code of one element around its derivative.

Slang differentiates ``_spy_primal``, a function that takes every struct apart, so that a gradient has the type of its
value: Slang's own ``Differential`` types are never written. Parameters without a gradient are ``no_diff`` there, and
cost nothing. How gradients are added up is in shaders/gradients.slang.
"""

from __future__ import annotations

from collections.abc import Callable

from slangpy_rt_codegen.spec import BFLOAT16, CallSpec, Operand
from slangpy_rt_codegen.variables import assign, assignable, callee, declare, drain

# Modes of what a function takes whole.
_WHOLE = ("tensor", "pointer", "handle")
_FLOATS = frozenset({"half", "float", "double"})


def primal(spec: CallSpec) -> str:
    """Return the text of ``_spy_primal``, the function that Slang differentiates."""
    parameters = [p for o in spec.operands for p in _parameters(spec, o)]
    forward = spec.derivative == "forward"
    before, arguments, after = [], [], []
    for o in spec.operands:
        variable = f"_spy_x_{o.name}"
        if o.mode == "parts" or o.mode == "unused" or (o.access == "inout" and not forward and not _dual(spec, o)):
            variable = f"_spy_v_{o.name}"
            before += declare(o, variable, lambda p: _constant(spec, p))
            after += [line for p, line in _kept(o, variable) if forward or _dual(spec, p)]
        arguments.append(variable)
    owner = f"{arguments.pop(0)}." if spec.method else ""
    call = f"{owner}{callee(spec)}({', '.join(arguments)})"
    if spec.result is None or spec.result.mode == "unused":
        call = f"{call};"
    else:
        parameters += _parameters(spec, spec.result)
        if spec.result.mode == "parts":
            name = f"_spy_v_{spec.result.name}"
            after = [line for _, line in _kept(spec.result, name)] + after
            call = f"{spec.result.type} {name} = {call};"
        else:
            call = f"_spy_x_{spec.result.name} = {call};"
    lines = "".join(f"    {line}\n" for line in (*before, call, *after))
    return f"[Differentiable]\nvoid _spy_primal({', '.join(parameters)})\n{{\n{lines}}}\n"


def derivative_body(
    spec: CallSpec, load: Callable[[Operand], str], store: Callable[[Operand, str], str]
) -> list[str]:
    """Return the lines that load the arguments and gradients, call the derivative and store its results."""
    forward = spec.derivative == "forward"
    before, arguments, after = [], [], []
    for name, o in spec.assigned:
        before += assign(o, assignable(name), load)
    for o in spec.operands + ((spec.result,) if spec.result else ()):
        for p in o.places:
            if p.mode == "unused":
                continue
            variable = f"_spy_d_{p.name}"
            if p.mode in _WHOLE:
                arguments.append(load(p))
                continue
            if not _dual(spec, p) or p.access == "seed":
                if p.access in ("in", "seed") or not forward:
                    # An initializer list needs a type.
                    typed = load(p).startswith("{")
                    before += [f"{p.type} {variable} = {load(p)};"] if typed else []
                    arguments.append(variable if typed else load(p))
                else:
                    before.append(f"{p.type} {variable}{f' = {load(p)}' if p.access == 'inout' else ''};")
                    arguments.append(variable)
                    after.append(store(p, variable))
                continue
            arguments.append(variable)
            pair = f"DifferentialPair<{p.type}> {variable}"
            if p.access == "out":
                before.append(f"{pair};")
            else:
                value = load(p)
                if value.startswith("{"):
                    before.append(f"{p.type} _spy_v_{p.name} = {value};")
                    value = f"_spy_v_{p.name}"
                gradient = f", {load(p.grad_in)}" if p.grad_in is not None else ""
                before.append(f"{pair} = diffPair({value}{gradient});")
            if forward and p.access != "in":
                after.append(store(p, f"{variable}.p"))
            if p.grad_out is not None:
                after.append(store(p.grad_out, f"{variable}.d"))
    function = "fwd_diff" if forward else "bwd_diff"
    return [*before, f"{function}(_spy_primal)({', '.join(arguments)});", *after]


def _parameters(spec: CallSpec, o: Operand) -> list[str]:
    """Return how ``_spy_primal`` declares the places of an operand."""
    out = []
    for p in o.places:
        if p.mode == "unused":
            continue
        direction = ""
        if p.mode in _WHOLE:
            pass
        elif p.access in ("out", "seed"):
            direction = "out "
        elif p.access == "inout" and (_dual(spec, p) or spec.derivative == "forward"):
            direction = "inout "
        constant = p.mode not in _WHOLE and not _dual(spec, p)
        out.append(f"{'no_diff ' if constant else ''}{direction}{p.type} _spy_x_{p.name}")
    return out


def _dual(spec: CallSpec, p: Operand) -> bool:
    """Tell whether ``_spy_primal`` is differentiated with respect to a place."""
    if p.mode in (*_WHOLE, "unused", "parts"):
        return False
    if spec.derivative == "forward" and p.access != "in":
        return _is_float(p)
    return p.access == "seed" or p.grad_in is not None or p.grad_out is not None


def _is_float(p: Operand) -> bool:
    return p.via.startswith(BFLOAT16) or (p.scalar in _FLOATS and not p.via)


def _constant(spec: CallSpec, p: Operand) -> str:
    """Return a place's value for a field of a variable: Slang 2026.12 fails on a no_diff number in a nested field."""
    number = _is_float(p) and p.mode not in _WHOLE
    return f"detach(_spy_x_{p.name})" if number and not _dual(spec, p) else f"_spy_x_{p.name}"


def _kept(o: Operand, name: str) -> list[tuple[Operand, str]]:
    """Return the places that a variable's parts are assigned to, each with the assignment."""
    places: list[Operand] = []

    def assign(p: Operand, value: str) -> str:
        places.append(p)
        return f"_spy_x_{p.name} = {value};"

    return list(zip(places, drain(o, name, assign), strict=True))

"""From a CallSpec to the Slang text of its kernel.

The text reads as if written by hand: a struct of arguments, the code of one element, an entry point. How
elements are loaded and stored is in shaders/_spy_library.slang. Names of functions, variables and types begin with
``_spy_``, so that none meets a user's; members of the argument block are only written after its name.
"""

from __future__ import annotations

from collections.abc import Callable

from slangpy_rt_codegen.derivative import derivative_body, primal
from slangpy_rt_codegen.expressions import (
    address_of,
    as_words,
    element_load,
    element_store,
    index_parameter,
    is_wide,
    load_from,
    load_wide,
    pointer_to,
    put_in_wide,
    scalar_of_wide,
    store_to,
    store_wide,
    struct_name,
    struct_pieces,
    sum_parameters,
)
from slangpy_rt_codegen.layout import block_fields
from slangpy_rt_codegen.names import respelled
from slangpy_rt_codegen.ranges import range_entry
from slangpy_rt_codegen.spec import CallSpec, Operand, StructLayout
from slangpy_rt_codegen.threads import thread_entry
from slangpy_rt_codegen.variables import assign, assignable, callee, declare, drain, is_array


def emit(spec: CallSpec) -> str:
    """Write the kernel: ``_spy_run`` for a range target, ``_spy_kernel`` for the others."""
    code = []
    if spec.width == 1 or not spec.indexed or spec.ragged:
        code.append(_element(spec))
    if spec.width > 1:
        code.append(_neighbours(spec))
    code.append(range_entry(spec) if spec.entry == "range" else thread_entry(spec))
    moves = [
        move
        for r in spec.structs
        for name, move in _struct_moves(spec, r)
        if any(f"{name}(" in part for part in code)
    ]
    function = [primal(spec)] if spec.derivative else []
    text = "\n".join([_head(spec), *moves, _struct(spec), *function, *code])
    return respelled(text, spec.hidden)


def _head(spec: CallSpec) -> str:
    imports = "".join(f"import {name};\n" for name in ("_spy_library", *spec.modules))
    constants = "".join(f"{line}\n" for line in spec.constants)
    return f"// {spec.title}\n{imports}{constants}"


def _struct_moves(spec: CallSpec, struct: StructLayout) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return names and texts of functions that read and write a struct.

    They do so field by field, because each target lays structs out in its own way, or in pieces of words that the
    fields are then made of. The address is a number: NVIDIA's Vulkan driver (580) crashes on a pointer to uint8_t
    that becomes one to int8_t.
    """
    name, type_ = struct_name(spec, struct), struct.type
    loads, stores = "", ""
    if struct.piece:
        loads, stores = struct_pieces(spec, struct)
    for f in struct.fields if not struct.piece else ():
        at = f"{pointer_to(spec, f.scalar)}(_spy_at + {f.offset})"
        loads += f"    _spy_value{f.path} = {load_from(f.type, f.via, at)};\n"
        stores += f"    {store_to(f.type, f.via, at, f'_spy_value{f.path}')}\n"
    head = f"{type_} _spy_load_{name}(uint64_t _spy_at)"
    load = f"{head}\n{{\n    {type_} _spy_value;\n{loads}    return _spy_value;\n}}\n"
    store = f"void _spy_store_{name}(uint64_t _spy_at, {type_} _spy_value)\n{{\n{stores}}}\n"
    return (f"_spy_load_{name}", load), (f"_spy_store_{name}", store)


def _struct(spec: CallSpec) -> str:
    lines = "".join(f"    {f.declaration};\n" for f in block_fields(spec))
    return f"struct _spy_Call\n{{\n{lines}}}\n"


def _element(spec: CallSpec) -> str:
    """Return the code of one element."""
    body = _body(spec, lambda o: element_load(spec, o), lambda o, value: element_store(spec, o, value))
    lines = "".join(f"    {line}\n" for line in body)
    parameters = (
        ", uint3 _spy_thread, uint3 _spy_local, uint3 _spy_group"
        if spec.raw
        else f", {spec.index} _spy_i{index_parameter(spec)}{sum_parameters(spec)}"
    )
    return f"void _spy_element(_spy_Call _spy_call{parameters})\n{{\n{lines}}}\n"


def _neighbours(spec: CallSpec) -> str:
    """Return the code of ``width`` consecutive elements, with wide loads and stores of scalars."""
    w = spec.width
    before, after = [], []
    for o in spec.leaves:
        if o.summed:
            continue
        if o.access == "scatter":
            # Gradients that follow each other are added as one vector; the others are added up first.
            type_ = f"vector<{o.scalar}, {w}>" if is_wide(o) else o.type
            before.append(f"{type_} _spy_p_{o.name} = {type_}._spy_zero();")
            after.append(f"{type_}._spy_scatter({address_of(spec, o)}, _spy_p_{o.name});")
            continue
        if not is_wide(o):
            continue
        value = "" if o.access == "out" else f" = {load_wide(spec, o)}"
        before.append(f"vector<{'uint' if as_words(spec, o) else o.scalar}, {w}> _spy_p_{o.name}{value};")
        if o.access not in ("in", "seed"):
            after.append(store_wide(spec, o))

    def put(o: Operand, value: str) -> str:
        wide = is_wide(o) or o.access == "scatter"
        return put_in_wide(spec, o, value) if wide else element_store(spec, o, value)

    tiled = len(spec.group) > 1
    if tiled and any(o.mode == "strided" and is_wide(o) and o.access != "in" for o in spec.leaves):
        # Wide stores are at the first element's address.
        before.append(f"{spec.index} _spy_first[{spec.rank}] = _spy_index;")
        after.insert(0, "_spy_index = _spy_first;")

    inside = _body(spec, lambda o: scalar_of_wide(o) if is_wide(o) else element_load(spec, o), put)
    if tiled:
        column = spec.rank - 2
        if not any(o.mode == "strided" and is_wide(o) for o in spec.leaves):
            # The last thread of a column may have fewer elements.
            lines = [f"    {line}" for line in inside]
            inside = [f"if (_spy_index[{column}] < _spy_call.shape[{column}])", "{", *lines, "}"]
        inside.append(f"++_spy_index[{column}];")
    elif spec.ragged:
        inside.append("_spy_advanceIndex(_spy_index, _spy_call.shape);")
    text = "".join(f"    {line}\n" for line in before)
    text += f"    [ForceUnroll]\n    for (int _spy_k = 0; _spy_k < {w}; ++_spy_k)\n    {{\n"
    text += "".join(f"        {line}\n" for line in inside) + "    }\n"
    text += "".join(f"    {line}\n" for line in after)
    parameters = f"{index_parameter(spec)}{sum_parameters(spec)}"
    return f"void _spy_neighbours(_spy_Call _spy_call, {spec.index} _spy_i{parameters})\n{{\n{text}}}\n"


def _body(spec: CallSpec, load: Callable[[Operand], str], store: Callable[[Operand, str], str]) -> list[str]:
    """Return the lines that load the arguments, call the function and store what it wrote."""
    if spec.derivative:
        return derivative_body(spec, load, store)
    before, arguments, after = [], [], []
    for name, o in spec.assigned:
        before += assign(o, assignable(name), load)
    for n, o in enumerate(spec.operands):
        plain = o.access == "in" and o.mode != "parts" and not (o.mode == "value" and is_array(o))
        if o.mode in ("tensor", "pointer", "handle") or (plain and not (spec.method and n == 0)):
            arguments.append(load(o))
            continue
        # Arguments that are written, and arrays, need a variable.
        name = f"_spy_v_{o.name}"
        if o.mode == "parts" or o.access == "out":
            before += declare(o, name, load)
        else:
            before.append(f"{o.type} {name} = {load(o)};")
        arguments.append(name)
        after += drain(o, name, store)
    owner = f"{arguments.pop(0)}." if spec.method else ""
    call = f"{owner}{callee(spec)}({', '.join(arguments)})"
    if spec.result is None:
        return [*before, f"{call};", *after]
    if spec.result.mode == "parts":
        name = f"_spy_v_{spec.result.name}"
        return [*before, f"{spec.result.type} {name} = {call};", *drain(spec.result, name, store), *after]
    return [*before, store(spec.result, call), *after]

"""From a CallSpec to the Slang text of its kernel.

The text reads as if written by hand: a struct of arguments, the code of one element, an entry point. How
elements are loaded and stored is in shaders/slangpy_rt.slang.
"""

from __future__ import annotations

import re

from slangpy_rt_codegen.layout import VALUE_STORAGE, block_fields
from slangpy_rt_codegen.spec import GROUP_SIZE, CallSpec, Operand

_LOCALS = frozenset({"call", "i", "index", "k", "thread"})


def emit(spec: CallSpec) -> str:
    """Write the kernel: ``run`` for a range target, ``kernel`` for the others."""
    parts = [_head(spec), _struct(spec)]
    if spec.width == 1 or not spec.indexed:
        parts.append(_element(spec))
    if spec.width > 1:
        parts.append(_neighbours(spec))
    parts.append(_range_entry(spec) if spec.entry == "range" else _thread_entry(spec))
    text = "\n".join(parts)
    if spec.function in _LOCALS:
        # A local of that name would hide the function.
        text = re.sub(rf"\b{spec.function}\b(?!\()", f"{spec.function}_", text)
    return text


def _head(spec: CallSpec) -> str:
    imports = "".join(f"import {name};\n" for name in ("slangpy_rt", *spec.modules))
    return f"// {spec.title}\n{imports}"


def _struct(spec: CallSpec) -> str:
    lines = "".join(f"    {f.declaration};\n" for f in block_fields(spec))
    return f"struct Call\n{{\n{lines}}}\n"


def _element(spec: CallSpec) -> str:
    """The code of one element."""
    before, arguments, after = [], [], []
    for o in spec.operands:
        if o.mode == "tensor" or (o.access == "in" and not (o.mode == "value" and _is_array(o))):
            arguments.append(_load(spec, o))
            continue
        # Out parameters and arrays need a name; "v_", and "p_" for several, keep it apart from all others.
        name = f"v_{o.name}"
        before.append(_declare(o, name, "" if o.access == "out" else _load(spec, o)))
        arguments.append(name)
        if o.access != "in":
            after.append(_store(spec, o, name))
    call = f"{spec.function}({', '.join(arguments)})"
    body = [*before, _store(spec, spec.result, call) if spec.result else f"{call};", *after]
    lines = "".join(f"    {line}\n" for line in body)
    return f"void element(Call call, {spec.index} i{_index_parameter(spec)})\n{{\n{lines}}}\n"


def _neighbours(spec: CallSpec) -> str:
    """The code of ``width`` neighbours, through wide loads and stores of scalars."""
    w = spec.width
    before, inside, after, arguments = [], [], [], []
    for o in filter(_is_wide, spec.all_operands):
        if o.access == "out":
            before.append(f"vector<{o.scalar}, {w}> p_{o.name};")
        else:
            keyword = "let" if o.access == "in" else "var"
            before.append(f"{keyword} p_{o.name} = loadWide<{o.scalar}, {w}>({_address(spec, o)});")
        if o.access != "in":
            after.append(f"storeWide<{o.scalar}, {w}>({_address(spec, o)}, p_{o.name});")
    for o in spec.operands:
        value = _build(o, [f"p_{o.name}[k]"], o.scalar) if _is_wide(o) else _load(spec, o)
        if o.access == "in" and not (o.mode == "value" and _is_array(o)):
            arguments.append(value)
            continue
        inside.append(_declare(o, f"v_{o.name}", "" if o.access == "out" else value))
        arguments.append(f"v_{o.name}")
    call = f"{spec.function}({', '.join(arguments)})"
    inside.append(_put(spec.result, call) if spec.result else f"{call};")
    inside += [_put(o, f"v_{o.name}") for o in spec.operands if o.access != "in"]
    lines = "".join(f"    {line}\n" for line in before)
    lines += f"    [ForceUnroll]\n    for (int k = 0; k < {w}; ++k)\n    {{\n"
    lines += "".join(f"        {line}\n" for line in inside) + "    }\n"
    lines += "".join(f"    {line}\n" for line in after)
    return f"void neighbours(Call call, {spec.index} i{_index_parameter(spec)})\n{{\n{lines}}}\n"


def _thread_entry(spec: CallSpec) -> str:
    pointer = spec.entry == "pointer"
    parameter = "uniform Call *address" if pointer else "uniform Call call"
    fetch = "    let call = *address;\n" if pointer else ""
    thread = f"{spec.index}(thread.y) * call.row + thread.x" if spec.rows else f"{spec.index}(thread.x)"
    index = f", {_index(spec)}" if spec.indexed else ""
    first = f"({thread}) * {spec.width}" if spec.rows else f"{thread} * {spec.width}"
    if spec.width > 1 and spec.indexed:
        # Rows are whole multiples of the width, so no thread has fewer.
        body = f"    let i = {first};\n    if (i < call.count)\n        neighbours(call, i{index});\n"
    elif spec.width > 1:
        body = (
            f"    let i = {first};\n"
            f"    if (i + {spec.width} <= call.count)\n"
            f"        neighbours(call, i);\n"
            f"    else\n"
            f"        for (var j = i; j < call.count; ++j)\n"
            f"            element(call, j);\n"
        )
    else:
        body = f"    let i = {thread};\n    if (i < call.count)\n        element(call, i{index});\n"
    return (
        f'[shader("compute")]\n[numthreads({GROUP_SIZE}, 1, 1)]\n'
        f"void kernel(uint3 thread : SV_DispatchThreadID, {parameter})\n{{\n{fetch}{body}}}\n"
    )


def _range_entry(spec: CallSpec) -> str:
    # A local copy of the block: through the pointer, every store might change it, and nothing would vectorize.
    fetch = "    let call = *address;\n"
    if not spec.indexed:
        loop = "    for (int64_t i = begin; i < end; ++i)\n        element(call, i);\n"
    else:
        last = spec.rank - 1
        # Row by row: one division a row, and an inner loop that the C++ compiler can vectorize.
        loop = (
            "    for (int64_t i = begin; i < end;)\n    {\n"
            f"        var index = {_index(spec)};\n"
            f"        let stop = min(end, i + call.shape[{last}] - index[{last}]);\n"
            f"        for (; i < stop; ++i, ++index[{last}])\n"
            "            element(call, i, index);\n    }\n"
        )
    return f"export __extern_cpp void run(int64_t begin, int64_t end, Call *address)\n{{\n{fetch}{loop}}}\n"


def _index(spec: CallSpec) -> str:
    return f"unravel<{spec.rank}>(i, call.shape)"


def _address(spec: CallSpec, o: Operand) -> str:
    if o.mode == "linear":
        return f"call.{o.name} + {_times(o.count, 'i')}"
    if o.mode == "strided":
        return f"address(call.{o.name}, index, call.{o.name}_stride)"
    return f"call.{o.name}"


def _load(spec: CallSpec, o: Operand) -> str:
    if o.mode == "value":
        names = [f"call.{o.name}[{k}]" for k in range(o.count)] if o.count > 1 else [f"call.{o.name}"]
        return _build(o, names, VALUE_STORAGE.get(o.scalar, o.scalar))
    if o.mode == "index":
        # A vector counts as a texture does, x being the last dimension.
        ids = [f"int(index[{spec.rank - 1 - k}])" for k in range(o.rank)]
        return f"{o.type}({', '.join(ids)})" if o.rank > 1 else f"{o.type}({ids[0]})"
    if o.mode == "tensor":
        return f"{o.type}(call.{o.name}, call.{o.name}_shape, call.{o.name}_stride)"
    return f"{_element_type(o)}.load({_address(spec, o)})"


def _store(spec: CallSpec, o: Operand, value: str) -> str:
    return f"{_element_type(o)}.store({_address(spec, o)}, {value});"


def _build(o: Operand, scalars: list[str], stored: str) -> str:
    """An element out of its scalars."""
    if o.type.startswith("bool"):
        scalars = [f"{s} != 0" for s in scalars]
    elif _is_array(o):
        inner = o.type[: o.type.index("[")]
        return "{" + ", ".join(s if inner == stored else f"{inner}({s})" for s in scalars) + "}"
    elif o.type == stored:
        return scalars[0]
    return f"{o.type}({', '.join(scalars)})"


def _put(o: Operand, value: str) -> str:
    """Assignment of a scalar to its place among its neighbours."""
    return f"p_{o.name}[k] = {f'uint8_t({value} ? 1 : 0)' if o.type == 'bool' else value};"


def _declare(o: Operand, name: str, value: str) -> str:
    """A local variable of the operand's type; Slang writes an array's size after the name."""
    head, bracket, size = o.type.partition("[")
    declaration = f"{head} {name}{bracket}{size}"
    return f"{declaration} = {value};" if value else f"{declaration};"


def _element_type(o: Operand) -> str:
    head, bracket, size = o.type.partition("[")
    return f"Array<{head}, {size[:-1]}>" if bracket else o.type


def _index_parameter(spec: CallSpec) -> str:
    return f", {spec.index} index[{spec.rank}]" if spec.indexed else ""


def _is_wide(o: Operand) -> bool:
    return o.mode == "linear" or o.step == "next"


def _is_array(o: Operand) -> bool:
    return "[" in o.type and o.mode != "tensor"


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"

"""From a CallSpec to the Slang text of its kernel.

The text reads as if written by hand: a struct of arguments, the code of one element, an entry point. How
elements are loaded and stored is in shaders/_spy_library.slang. Every name that a user's could meet begins with
``_spy_``: of functions, variables and types; members of the argument block are found behind its name alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from slangpy_rt_codegen.derivative import derivative_body, primal
from slangpy_rt_codegen.layout import VALUE_STORAGE, block_fields
from slangpy_rt_codegen.names import respelled
from slangpy_rt_codegen.spec import CallSpec, Operand, Record
from slangpy_rt_codegen.variables import drain, fill, is_array

# Columns of a call that a range works on at a time, where their gradients are added up.
_COLUMNS = 64
# Variables of a sum in a range. So many stay a loop, which g++ vectorizes; 8 it unrolls and shuffles: one gradient
# for 2^24 products takes 15 ms with 1 or 8 of them and 2.8 with 64.
_LANES = 64
# How a kernel of threads takes its argument block, and the line that reads it.
_BLOCKS = {
    "value": ("uniform _spy_Call _spy_call", ""),
    "pointer": ("uniform _spy_Call *_spy_block", "    _spy_Call _spy_call = *_spy_block;\n"),
    "handle": (
        "ConstantBuffer<_spy_BlockAt> _spy_block",
        "    _spy_Call _spy_call = _spy_fetch<_spy_Call>(_spy_block);\n",
    ),
}
# Whole arrays that know where their gradients are, and how many gradients those are.
_DIFFERENTIABLE = {"DiffTensor": 1, "WDiffTensor": 2, "RWDiffTensor": 2}
_SIZED = re.compile(r"(.*?[a-z_])([1-4])(?:x([1-4]))?$")


def emit(spec: CallSpec) -> str:
    """Write the kernel: ``_spy_run`` for a range target, ``_spy_kernel`` for the others."""
    code = []
    if spec.width == 1 or not spec.indexed:
        code.append(_element(spec))
    if spec.width > 1:
        code.append(_neighbours(spec))
    code.append(_range_entry(spec) if spec.entry == "range" else _thread_entry(spec))
    moves = [
        move for r in spec.records for name, move in _record(spec, r) if any(f"{name}(" in part for part in code)
    ]
    function = [primal(spec)] if spec.derivative else []
    text = "\n".join([_head(spec), *moves, _struct(spec), *function, *code])
    return respelled(text, spec.hidden)


def _head(spec: CallSpec) -> str:
    imports = "".join(f"import {name};\n" for name in ("_spy_library", *spec.modules))
    constants = "".join(f"{line}\n" for line in spec.constants)
    return f"// {spec.title}\n{imports}{constants}"


def _record(spec: CallSpec, record: Record) -> tuple[tuple[str, str], tuple[str, str]]:
    """Functions that read and write a struct field by field, as each target lays structs out in its own way.

    Their names and their texts. The address is a number: NVIDIA's Vulkan driver (580) crashes on a pointer to
    uint8_t that becomes one to int8_t.
    """
    name, type_ = _record_name(spec, record), record.type
    loads, stores = "", ""
    for f in record.fields:
        at = f"{_pointer(spec, f.scalar)}(_spy_at + {f.offset})"
        loads += f"    _spy_value{f.path} = {_load_from(f.type, f.via, at)};\n"
        stores += f"    {_store_to(f.type, f.via, at, f'_spy_value{f.path}')}\n"
    head = f"{type_} _spy_load_{name}(uint64_t _spy_at)"
    load = f"{head}\n{{\n    {type_} _spy_value;\n{loads}    return _spy_value;\n}}\n"
    store = f"void _spy_store_{name}(uint64_t _spy_at, {type_} _spy_value)\n{{\n{stores}}}\n"
    return (f"_spy_load_{name}", load), (f"_spy_store_{name}", store)


def _struct(spec: CallSpec) -> str:
    lines = "".join(f"    {f.declaration};\n" for f in block_fields(spec))
    return f"struct _spy_Call\n{{\n{lines}}}\n"


def _element(spec: CallSpec) -> str:
    """The code of one element."""
    lines = "".join(
        f"    {line}\n" for line in _body(spec, lambda o: _load(spec, o), lambda o, v: _store(spec, o, v))
    )
    parameters = (
        ", uint3 _spy_thread, uint3 _spy_local, uint3 _spy_group"
        if spec.raw
        else f", {spec.index} _spy_i{_index_parameter(spec)}{_sum_parameters(spec)}"
    )
    return f"void _spy_element(_spy_Call _spy_call{parameters})\n{{\n{lines}}}\n"


def _neighbours(spec: CallSpec) -> str:
    """The code of ``width`` neighbours, through wide loads and stores of scalars."""
    w = spec.width
    before, after = [], []
    for o in spec.leaves:
        if o.summed:
            continue
        if o.access == "scatter":
            # Neighbours are added up first, or else added in one go.
            type_ = f"vector<{o.scalar}, {w}>" if _is_wide(o) else o.type
            before.append(f"{type_} _spy_p_{o.name} = {type_}._spy_zero();")
            after.append(f"{type_}._spy_scatter({_address(spec, o)}, _spy_p_{o.name});")
            continue
        if not _is_wide(o):
            continue
        value = "" if o.access == "out" else f" = {_load_wide(spec, o)}"
        before.append(f"vector<{'uint' if _as_words(spec, o) else o.scalar}, {w}> _spy_p_{o.name}{value};")
        if o.access not in ("in", "seed"):
            after.append(_store_wide(spec, o))
    inside = _body(
        spec,
        lambda o: _pick(o) if _is_wide(o) else _load(spec, o),
        lambda o, value: _put(spec, o, value) if _is_wide(o) or o.access == "scatter" else _store(spec, o, value),
    )
    lines = "".join(f"    {line}\n" for line in before)
    lines += f"    [ForceUnroll]\n    for (int _spy_k = 0; _spy_k < {w}; ++_spy_k)\n    {{\n"
    lines += "".join(f"        {line}\n" for line in inside) + "    }\n"
    lines += "".join(f"    {line}\n" for line in after)
    parameters = f"{_index_parameter(spec)}{_sum_parameters(spec)}"
    return f"void _spy_neighbours(_spy_Call _spy_call, {spec.index} _spy_i{parameters})\n{{\n{lines}}}\n"


def _body(spec: CallSpec, load: Callable[[Operand], str], store: Callable[[Operand, str], str]) -> list[str]:
    """The lines that load the arguments, call the function and store what it wrote."""
    if spec.derivative:
        return derivative_body(spec, load, store)
    before, arguments, after = [], [], []
    for name, o in spec.assigned:
        before += fill(o, name, load)
    for n, o in enumerate(spec.operands):
        plain = o.access == "in" and o.mode != "parts" and not (o.mode == "value" and is_array(o))
        if o.mode in ("tensor", "pointer") or (plain and not (spec.method and n == 0)):
            arguments.append(load(o))
            continue
        # What is written to, and arrays, need a name.
        name = f"_spy_v_{o.name}"
        if o.mode == "parts" or o.access == "out":
            before.append(f"{o.type} {name};")
            before += fill(o, name, load)
        else:
            before.append(f"{o.type} {name} = {load(o)};")
        arguments.append(name)
        after += drain(o, name, store)
    owner = f"{arguments.pop(0)}." if spec.method else ""
    call = f"{owner}{spec.function}({', '.join(arguments)})"
    if spec.result is None:
        return [*before, f"{call};", *after]
    if spec.result.mode == "parts":
        name = f"_spy_v_{spec.result.name}"
        return [*before, f"{spec.result.type} {name} = {call};", *drain(spec.result, name, store), *after]
    return [*before, store(spec.result, call), *after]


def _thread_entry(spec: CallSpec) -> str:
    system = ""
    parameter, fetch = _BLOCKS[spec.entry]
    thread = (
        f"{spec.index}(_spy_thread.y) * _spy_call.row + _spy_thread.x"
        if spec.rows
        else f"{spec.index}(_spy_thread.x)"
    )
    index = f", {_index(spec)}" if spec.indexed else ""
    index += "".join(f", _spy_s_{o.name}" for o in spec.sums)
    first = f"({thread}) * {spec.width}" if spec.rows else f"{thread} * {spec.width}"
    start, inside = f"    {spec.index} _spy_i = ", "    if (_spy_i < _spy_call.count)\n"
    if spec.raw:
        system = ", uint3 _spy_local : SV_GroupThreadID, uint3 _spy_group : SV_GroupID"
        body = "    _spy_element(_spy_call, _spy_thread, _spy_local, _spy_group);\n"
    elif len(spec.group) > 1:
        body = _tile(spec)
    elif spec.walks:
        body = _walk(spec, first if spec.width > 1 else thread, index)
    elif spec.width > 1 and spec.indexed:
        # Rows are whole multiples of the width, so no thread has fewer.
        body = f"{start}{first};\n{inside}        _spy_neighbours(_spy_call, _spy_i{index});\n"
    elif spec.width > 1:
        body = (
            f"{start}{first};\n"
            f"    if (_spy_i + {spec.width} <= _spy_call.count)\n"
            f"        _spy_neighbours(_spy_call, _spy_i);\n"
            f"    else\n"
            f"        for ({spec.index} _spy_j = _spy_i; _spy_j < _spy_call.count; ++_spy_j)\n"
            f"            _spy_element(_spy_call, _spy_j);\n"
        )
    else:
        body = (
            f"{start}{thread};\n    if (_spy_i < _spy_call.count)\n        _spy_element(_spy_call, _spy_i{index});\n"
        )
    if spec.sums:
        x, y, _ = group = (*spec.group, 1, 1)[:3]
        system += ", uint3 _spy_local : SV_GroupThreadID"
        flat = "_spy_local.x" if group[1:] == (1, 1) else f"(_spy_local.z * {y} + _spy_local.y) * {x} + _spy_local.x"
        body = _variables(spec, "sum", "column") + body
        columns = [o for o in spec.sums if o.access == "column"]
        body += "".join(_group_columns(spec, o, flat, first if spec.width > 1 else thread) for o in columns)
        for o in spec.sums:
            if o.access == "sum":
                body += f"    _spy_scatterGroup<{o.type}>(_spy_call.v_{o.name}, _spy_s_{o.name}, {flat});\n"
    group_text = ", ".join(map(str, (*spec.group, 1, 1)[:3]))
    return (
        f'[shader("compute")]\n[numthreads({group_text})]\n'
        f"void _spy_kernel(uint3 _spy_thread : SV_DispatchThreadID{system}, {parameter})\n{{\n{fetch}{body}}}\n"
    )


def _walk(spec: CallSpec, first: str, index: str) -> str:
    """Elements that are ``step`` apart, one after another."""
    loop = f"    for ({spec.index} _spy_i = {first}; _spy_i < _spy_call.count; _spy_i += _spy_call.step)\n"
    if spec.width == 1:
        return f"{loop}        _spy_element(_spy_call, _spy_i{index});\n"
    if spec.indexed:
        return f"{loop}        _spy_neighbours(_spy_call, _spy_i{index});\n"
    return (
        f"{loop}        if (_spy_i + {spec.width} <= _spy_call.count)\n"
        f"            _spy_neighbours(_spy_call, _spy_i{index});\n        else\n"
        f"            for ({spec.index} _spy_j = _spy_i; _spy_j < _spy_call.count; ++_spy_j)\n"
        f"                _spy_element(_spy_call, _spy_j{index});\n"
    )


def _variables(spec: CallSpec, *accesses: str) -> str:
    """Variables for what one thread has for gradients of that kind."""
    return "".join(
        f"    {_summed(spec, o)} _spy_s_{o.name} = {_summed(spec, o)}._spy_zero();\n"
        for o in spec.sums
        if o.access in accesses
    )


def _summed(spec: CallSpec, o: Operand) -> str:
    """The type of what a thread adds up for a gradient."""
    return f"vector<{o.scalar}, {spec.width}>" if spec.width > 1 and _is_wide(o) else o.type


def _added(spec: CallSpec, o: Operand) -> str:
    """The addition to memory of what a thread has for a gradient."""
    return f"{_summed(spec, o)}._spy_scatter({_address(spec, o)}, _spy_s_{o.name});"


def _group_columns(spec: CallSpec, o: Operand, thread: str, first: str) -> str:
    """What the threads of a group have for columns, added to memory."""
    last, threads = spec.rank - 1, spec.group[0]
    items = (
        [f"_spy_s_{o.name}[{k}]" for k in range(spec.width)] if _summed(spec, o) != o.type else [f"_spy_s_{o.name}"]
    )
    return (
        f"    {o.type} _spy_t_{o.name}[{len(items)}] = {{ {', '.join(items)} }};\n"
        f"    _spy_scatterColumns<{o.type}, {len(items)}>(_spy_call.v_{o.name}, _spy_call.stride_{o.name}[{last}], "
        f"_spy_t_{o.name}, {thread}, {threads}, _spy_call.shape[{last}], {first}, _spy_call.count);\n"
    )


def _tile(spec: CallSpec) -> str:
    """A group covers a tile: x counts the last dimension, y the one before, z what is left."""
    tiled, last = len(spec.group), spec.rank - 1
    ids = ["_spy_thread.x", "_spy_thread.y", "_spy_thread.z"][:tiled]
    lines = f"    {spec.index} _spy_index[{spec.rank}];\n"
    lines += "".join(
        f"    _spy_index[{last - k}] = {ids[k]};\n" for k in range(min(tiled, spec.rank) - (spec.rank > tiled))
    )
    if spec.rank > tiled:
        lines += f"    {spec.index} _spy_rest = {ids[-1]};\n"
        for d in range(last - tiled + 1, 0, -1):
            lines += (
                f"    _spy_index[{d}] = _spy_rest % _spy_call.shape[{d}];\n    _spy_rest /= _spy_call.shape[{d}];\n"
            )
        lines += "    _spy_index[0] = _spy_rest;\n"
    inside = " && ".join(f"_spy_index[{d}] < _spy_call.shape[{d}]" for d in range(spec.rank))
    flat = "_spy_index[0]"
    for d in range(1, spec.rank):
        flat = (
            f"({flat}) * _spy_call.shape[{d}] + _spy_index[{d}]"
            if d > 1
            else f"{flat} * _spy_call.shape[{d}] + _spy_index[{d}]"
        )
    sums = "".join(f", _spy_s_{o.name}" for o in spec.sums)
    return f"{lines}    if ({inside})\n        _spy_element(_spy_call, {flat}, _spy_index{sums});\n"


def _range_entry(spec: CallSpec) -> str:
    # A local copy of the block: through the pointer, every store might change it, and nothing would vectorize.
    own = [p for o in spec.all_operands for p in o.places if p.grad_out is not None and p.grad_out.step == "own"]
    fetch = "    _spy_Call _spy_call = *_spy_block;\n" + _variables(spec, "sum")
    for o in own:
        assert o.grad_out is not None
        name, count = o.grad_out.name, _scalars(o)
        fetch += f"    _spy_call.v_{name} = _spy_ownGradients<{o.scalar}>({count});\n"
    sums = "".join(f", _spy_s_{o.name}" for o in spec.sums)
    each = "    for (int64_t _spy_i = _spy_begin; _spy_i < _spy_end; ++_spy_i)"
    if spec.raw:
        x, y, z = spec.group
        loop = (
            f"{each}\n    {{\n"
            f"        uint _spy_at = uint(_spy_i % {x * y * z});\n"
            f"        int64_t _spy_of = _spy_i / {x * y * z};\n"
            f"        uint3 _spy_local = uint3(_spy_at % {x}, _spy_at / {x} % {y}, _spy_at / {x * y});\n"
            "        uint3 _spy_group = uint3(\n"
            "            uint(_spy_of % _spy_call.shape[0]),\n"
            "            uint(_spy_of / _spy_call.shape[0] % _spy_call.shape[1]),\n"
            "            uint(_spy_of / (_spy_call.shape[0] * _spy_call.shape[1])));\n"
            f"        uint3 _spy_thread = _spy_group * uint3({x}, {y}, {z}) + _spy_local;\n"
            "        _spy_element(_spy_call, _spy_thread, _spy_local, _spy_group);\n    }\n"
        )
    elif not spec.indexed and spec.sums and all(o.count <= 4 for o in spec.sums):
        loop = _lanes(spec)
    elif not spec.indexed:
        loop = f"{each}\n        _spy_element(_spy_call, _spy_i{sums});\n"
    elif any(o.access == "column" for o in spec.sums):
        loop = _columns(spec)
    else:
        last = spec.rank - 1
        rows = "".join(f"    {line}\n" for line in _variables(spec, "row").splitlines())
        after = "".join(f"        {_added(spec, o)}\n" for o in spec.sums if o.access == "row")
        # Row by row: one division a row, and an inner loop that the C++ compiler can vectorize.
        loop = (
            "    for (int64_t _spy_i = _spy_begin; _spy_i < _spy_end;)\n    {\n"
            f"        int64_t _spy_index[{spec.rank}] = {_index(spec)};\n"
            f"        int64_t _spy_stop = min(_spy_end, _spy_i + _spy_call.shape[{last}] - _spy_index[{last}]);\n"
            f"{rows}"
            f"        for (; _spy_i < _spy_stop; ++_spy_i, ++_spy_index[{last}])\n"
            f"            _spy_element(_spy_call, _spy_i, _spy_index{sums});\n{after}    }}\n"
        )
    loop += "".join(f"    {_added(spec, o)}\n" for o in spec.sums if o.access == "sum")
    for o in own:
        assert o.grad_out is not None
        name = o.grad_out.name
        loop += f"    _spy_mergeGradients<{o.scalar}>(_spy_block->v_{name}, _spy_call.v_{name}, {_scalars(o)});\n"
    head = "export __extern_cpp void _spy_run(int64_t _spy_begin, int64_t _spy_end, _spy_Call *_spy_block)"
    return f"{head}\n{{\n{fetch}{loop}}}\n"


def _scalars(o: Operand) -> str:
    """How many scalars a whole array has."""
    sizes = [f"_spy_call.shape_{o.name}[{d}]" for d in range(o.rank)]
    return " * ".join([f"int64_t({sizes[0]})", *sizes[1:], *([str(o.count)] if o.count > 1 else [])])


def _lanes(spec: CallSpec) -> str:
    """A range whose sums have several variables each: in one, every addition waits for the one before."""
    n = _LANES
    lane = f"    for (int _spy_k = 0; _spy_k < {n}; ++_spy_k)"
    zeros = "".join(
        f"    {o.type} _spy_t_{o.name}[{n}];\n{lane}\n        _spy_t_{o.name}[_spy_k] = {o.type}._spy_zero();\n"
        for o in spec.sums
    )
    lanes, sums = ("".join(f", _spy_{v}_{o.name}{at}" for o in spec.sums) for v, at in (("t", "[_spy_k]"), ("s", "")))
    total = "".join(f"        {_plus(f'_spy_s_{o.name}', o.type, f'_spy_t_{o.name}[_spy_k]')}\n" for o in spec.sums)
    return (
        f"{zeros}    int64_t _spy_i = _spy_begin;\n    for (; _spy_i + {n} <= _spy_end; _spy_i += {n})\n"
        f"    {lane}\n            _spy_element(_spy_call, _spy_i + _spy_k{lanes});\n"
        f"    for (; _spy_i < _spy_end; ++_spy_i)\n        _spy_element(_spy_call, _spy_i{sums});\n"
        f"{lane}\n    {{\n{total}    }}\n"
    )


def _columns(spec: CallSpec) -> str:
    """A range by blocks of columns, each with variables for what all rows add to it."""
    last, n = spec.rank - 1, _COLUMNS
    columns = [o for o in spec.sums if o.access == "column"]
    rows = "".join(f"        {line}\n" for line in _variables(spec, "row").splitlines())
    after = "".join(f"            {_added(spec, o)}\n" for o in spec.sums if o.access == "row")
    place = "[_spy_i - _spy_row - _spy_column]"
    sums = "".join(f", _spy_s_{o.name}" + place * (o.access == "column") for o in spec.sums)
    zeros = "".join(
        f"        {o.type} _spy_s_{o.name}[{n}];\n"
        f"        for (int _spy_k = 0; _spy_k < {n}; ++_spy_k)\n"
        f"            _spy_s_{o.name}[_spy_k] = {o.type}._spy_zero();\n"
        for o in columns
    )
    adds = "".join(
        f"            {o.type}._spy_scatter({_address(spec, o)}, _spy_s_{o.name}[_spy_k]);\n" for o in columns
    )
    width = f"_spy_call.shape[{last}]"
    first = f"_spy_begin / {width} * {width}"
    return (
        f"    for (int64_t _spy_column = 0; _spy_column < {width}; _spy_column += {n})\n    {{\n{zeros}"
        f"        int64_t _spy_stop = min(_spy_column + {n}, {width});\n"
        f"        for (int64_t _spy_row = {first}; _spy_row < _spy_end; _spy_row += {width})\n        {{\n"
        "            int64_t _spy_i = max(_spy_begin, _spy_row + _spy_column);\n"
        f"            int64_t _spy_index[{spec.rank}] = {_index(spec)};\n{rows}"
        f"            for (; _spy_i < min(_spy_end, _spy_row + _spy_stop); ++_spy_i, ++_spy_index[{last}])\n"
        f"                _spy_element(_spy_call, _spy_i, _spy_index{sums});\n{after}        }}\n"
        "        for (int64_t _spy_k = 0; _spy_k < _spy_stop - _spy_column; ++_spy_k)\n        {\n"
        f"            int64_t _spy_index[{spec.rank}] = {{{'0, ' * last}_spy_column + _spy_k}};\n{adds}"
        "        }\n    }\n"
    )


def _index(spec: CallSpec) -> str:
    return f"_spy_unravel<{spec.rank}>(_spy_i, _spy_call.shape)"


def _address(spec: CallSpec, o: Operand) -> str:
    if o.mode == "linear":
        return f"_spy_call.v_{o.name} + {_times(o.count, '_spy_i')}"
    if o.mode == "strided":
        return f"_spy_address(_spy_call.v_{o.name}, _spy_index, _spy_call.stride_{o.name})"
    return f"_spy_call.v_{o.name}"


def _pointer(spec: CallSpec, scalar: str) -> str:
    """What makes an address out of a number."""
    return f"_spy_Address<{scalar}>" if spec.entry == "handle" else f"({scalar} *)"


def _bits(spec: CallSpec, address: str) -> str:
    """An address as a number."""
    return f"({address}).bits" if spec.entry == "handle" else f"uint64_t({address})"


def _load(spec: CallSpec, o: Operand) -> str:
    if o.mode == "value":
        names = [f"_spy_call.v_{o.name}[{k}]" for k in range(o.count)] if o.count > 1 else [f"_spy_call.v_{o.name}"]
        if o.via:
            return f"{o.type}({names[0]})"
        return _build(o.type, iter(names), VALUE_STORAGE.get(o.scalar, o.scalar))
    if o.mode == "computed":
        return o.code
    if o.mode == "pointer":
        return f"_spy_call.v_{o.name}"
    if o.mode == "tensor":
        data = _walked(o, bool(o.step))
        gradients = "".join(f", {_gradient_of(spec, o, g)}" for g in _tensor_gradients(o))
        return f"{o.type}({_bits(spec, data)}, _spy_call.shape_{o.name}, _spy_call.stride_{o.name}{gradients})"
    record = _record_of(spec, o)
    if record is None:
        return _load_from(o.type, o.via, _address(spec, o))
    name, at = _record_name(spec, record), _bits(spec, _address(spec, o))
    if not is_array(o):
        return f"_spy_load_{name}({at})"
    return "{" + ", ".join(f"_spy_load_{name}({at} + {k})" for k in range(0, o.count, record.size)) + "}"


def _tensor_gradients(o: Operand) -> tuple[Operand | None, ...]:
    """What a whole array takes besides itself: the gradient to read, if it is written, and the one to add to."""
    count = _DIFFERENTIABLE.get(o.type.partition("<")[0], 0)
    return (o.grad_in, o.grad_out)[2 - count :]


def _gradient_of(spec: CallSpec, o: Operand, g: Operand | None) -> str:
    if g is None:
        return f"0, _spy_call.stride_{o.name}"
    return f"{_bits(spec, _walked(g, g.step == 'next'))}, _spy_call.stride_{g.name}"


def _walked(o: Operand, walked: bool) -> str:
    """The address of a whole array, of which elements of the call may see different parts."""
    return (
        f"_spy_address(_spy_call.v_{o.name}, _spy_index, _spy_call.step_{o.name})"
        if walked
        else f"_spy_call.v_{o.name}"
    )


def _store(spec: CallSpec, o: Operand, value: str) -> str:
    if o.summed:
        return _plus(f"_spy_s_{o.name}", o.type, value)
    if o.access in ("accumulate", "scatter"):
        return f"{o.type}._spy_{o.access}({_address(spec, o)}, {value});"
    record = _record_of(spec, o)
    if record is None:
        return _store_to(o.type, o.via, _address(spec, o), value)
    name, at = _record_name(spec, record), _bits(spec, _address(spec, o))
    if not is_array(o):
        return f"_spy_store_{name}({at}, {value});"
    ends = enumerate(range(0, o.count, record.size))
    return " ".join(f"_spy_store_{name}({at} + {k}, {value}[{n}]);" for n, k in ends)


def _load_from(type_: str, via: str, at: str) -> str:
    return f"{type_}({via}._spy_load({at}))" if via else f"{type_}._spy_load({at})"


def _store_to(type_: str, via: str, at: str, value: str) -> str:
    return f"{via}._spy_store({at}, {via}({value}));" if via else f"{type_}._spy_store({at}, {value});"


def _build(type_: str, scalars: Iterator[str], stored: str) -> str:
    """An element out of its scalars."""
    if type_.startswith("Array<"):
        inner, _, length = type_[len("Array<") : -1].rpartition(", ")
        return "{" + ", ".join(_build(inner, scalars, stored) for _ in range(int(length))) + "}"
    sized = _SIZED.match(type_)
    if sized is None:
        scalar = next(scalars)
        return f"{scalar} != 0" if type_ == "bool" else scalar if type_ == stored else f"{type_}({scalar})"
    count = int(sized[2]) * int(sized[3] or 1)
    items = [next(scalars) for _ in range(count)]
    if sized[1] == "bool":
        items = [f"{s} != 0" for s in items]
    return f"{type_}({', '.join(items)})"


def _as_words(spec: CallSpec, o: Operand) -> bool:
    """Whether bytes are handled as words, for a language without a type for them."""
    return spec.entry == "handle" and o.type == "bool"


def _load_wide(spec: CallSpec, o: Operand) -> str:
    at = _address(spec, o)
    if _as_words(spec, o):
        return f"_spy_loadBytes<{spec.width}>({_bits(spec, at)})"
    return f"_spy_loadWide<{o.scalar}, {spec.width}>({at})"


def _store_wide(spec: CallSpec, o: Operand) -> str:
    at, value = _address(spec, o), f"_spy_p_{o.name}"
    if _as_words(spec, o):
        return f"_spy_storeBytes<{spec.width}>({_bits(spec, at)}, {value});"
    return f"_spy_storeWide<{o.scalar}, {spec.width}>({at}, {value});"


def _pick(o: Operand) -> str:
    """A scalar out of its neighbours."""
    value = f"_spy_p_{o.name}[_spy_k]"
    if o.via.startswith("_spy_bfloat16"):
        return f"{o.type}({o.via}.of({value}))"
    return f"{o.type}({value})" if o.via else _build(o.type, iter([value]), o.scalar)


def _put(spec: CallSpec, o: Operand, value: str) -> str:
    """Assignment of a scalar to its place among its neighbours, or addition to a gradient there."""
    if o.access == "scatter" and not _is_wide(o):
        return _plus(f"_spy_p_{o.name}", o.type, value)
    if o.summed:
        return f"_spy_s_{o.name}[_spy_k] += {value};"
    if o.access in ("accumulate", "scatter"):
        return f"_spy_p_{o.name}[_spy_k] += {value};"
    if o.type == "bool":
        value = f"{'uint' if _as_words(spec, o) else 'uint8_t'}({value} ? 1 : 0)"
    return f"_spy_p_{o.name}[_spy_k] = {f'{o.via}({value})' if o.via else value};"


def _plus(name: str, type_: str, value: str) -> str:
    return f"{name} = {type_}._spy_sum({name}, {value});" if type_.startswith("Array<") else f"{name} += {value};"


def _sum_parameters(spec: CallSpec) -> str:
    return "".join(f", inout {_summed(spec, o)} _spy_s_{o.name}" for o in spec.sums)


def _index_parameter(spec: CallSpec) -> str:
    return f", {spec.index} _spy_index[{spec.rank}]" if spec.indexed else ""


def _record_of(spec: CallSpec, o: Operand) -> Record | None:
    """The struct that an array holds, alone or in arrays."""
    element = o.type
    while element.startswith("Array<"):
        element = element[len("Array<") : element.rindex(",")]
    return next((r for r in spec.records if r.type == element), None)


def _record_name(spec: CallSpec, record: Record) -> str:
    """An identifier for a struct; a number keeps ``A<B>`` apart from ``A_B``."""
    words = [re.sub(r"\W+", "_", r.type).strip("_") for r in spec.records]
    own = spec.records.index(record)
    return words[own] if words.count(words[own]) == 1 else f"{own}_{words[own]}"


def _is_wide(o: Operand) -> bool:
    return o.mode == "linear" or (o.mode == "strided" and o.step == "next")


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"

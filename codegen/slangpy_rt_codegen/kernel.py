"""From a CallSpec to the Slang text of its kernel.

The text reads as if written by hand: a struct of arguments, the code of one element, an entry point. How
elements are loaded and stored is in shaders/slangpy_rt.slang.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from slangpy_rt_codegen.derivative import derivative_body, primal
from slangpy_rt_codegen.layout import VALUE_STORAGE, block_fields
from slangpy_rt_codegen.spec import CallSpec, Operand, Record
from slangpy_rt_codegen.variables import drain, fill, is_array

_LOCALS = frozenset({"call", "i", "index", "k", "thread"})
# Columns of a call that a range works on at a time, where their gradients are added up.
_COLUMNS = 64
# Variables of a sum in a range. So many stay a loop, which g++ vectorizes; 8 it unrolls and shuffles: one gradient
# for 2^24 products takes 15 ms with 1 or 8 of them and 2.8 with 64.
_LANES = 64
# How a kernel of threads takes its argument block, and the line that reads it.
_BLOCKS = {
    "value": ("uniform Call call", ""),
    "pointer": ("uniform Call *block", "    let call = *block;\n"),
    "handle": ("ConstantBuffer<BlockAt> block", "    let call = fetch<Call>(block);\n"),
}
# Whole arrays that know where their gradients are, and how many gradients those are.
_DIFFERENTIABLE = {"DiffTensor": 1, "WDiffTensor": 2, "RWDiffTensor": 2}
_SIZED = re.compile(r"(.*?[a-z_])([1-4])(?:x([1-4]))?$")


def emit(spec: CallSpec) -> str:
    """Write the kernel: ``run`` for a range target, ``kernel`` for the others."""
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
    if spec.function in _LOCALS:
        # A local of that name would hide the function.
        text = re.sub(rf"\b{spec.function}\b(?!\()", f"{spec.function}_", text)
    return text


def _head(spec: CallSpec) -> str:
    imports = "".join(f"import {name};\n" for name in ("slangpy_rt", *spec.modules))
    constants = "".join(f"{line}\n" for line in spec.constants)
    return f"// {spec.title}\n{imports}{constants}"


def _record(spec: CallSpec, record: Record) -> tuple[tuple[str, str], tuple[str, str]]:
    """Functions that read and write a struct field by field, as each target lays structs out in its own way.

    Their names and their texts. The address is a number: NVIDIA's Vulkan driver (580) crashes on a pointer to
    uint8_t that becomes one to int8_t.
    """
    name = _record_name(record.type)
    loads, stores = "", ""
    for f in record.fields:
        at = f"{_pointer(spec, f.scalar)}(at + {f.offset})"
        loads += f"    value{f.path} = {_load_from(f.type, f.via, at)};\n"
        stores += f"    {_store_to(f.type, f.via, at, f'value{f.path}')}\n"
    load = f"{record.type} load_{name}(uint64_t at)\n{{\n    {record.type} value;\n{loads}    return value;\n}}\n"
    store = f"void store_{name}(uint64_t at, {record.type} value)\n{{\n{stores}}}\n"
    return (f"load_{name}", load), (f"store_{name}", store)


def _struct(spec: CallSpec) -> str:
    lines = "".join(f"    {f.declaration};\n" for f in block_fields(spec))
    return f"struct Call\n{{\n{lines}}}\n"


def _element(spec: CallSpec) -> str:
    """The code of one element."""
    lines = "".join(
        f"    {line}\n" for line in _body(spec, lambda o: _load(spec, o), lambda o, v: _store(spec, o, v))
    )
    parameters = (
        ", uint3 thread, uint3 local, uint3 group"
        if spec.raw
        else f", {spec.index} i{_index_parameter(spec)}{_sum_parameters(spec)}"
    )
    return f"void element(Call call{parameters})\n{{\n{lines}}}\n"


def _neighbours(spec: CallSpec) -> str:
    """The code of ``width`` neighbours, through wide loads and stores of scalars."""
    w = spec.width
    before, after = [], []
    for o in spec.leaves:
        if o in spec.sums:
            continue
        if o.access == "scatter":
            # Neighbours are added up first, or else added in one go.
            type_ = f"vector<{o.scalar}, {w}>" if _is_wide(o) else o.type
            before.append(f"var p_{o.name} = {type_}.zero();")
            after.append(f"{type_}.scatter({_address(spec, o)}, p_{o.name});")
            continue
        if not _is_wide(o):
            continue
        if o.access == "out":
            before.append(f"vector<{'uint' if _as_words(spec, o) else o.scalar}, {w}> p_{o.name};")
        else:
            keyword = "let" if o.access in ("in", "seed") else "var"
            before.append(f"{keyword} p_{o.name} = {_load_wide(spec, o)};")
        if o.access not in ("in", "seed"):
            after.append(_store_wide(spec, o))
    inside = _body(
        spec,
        lambda o: _pick(o) if _is_wide(o) else _load(spec, o),
        lambda o, value: _put(spec, o, value) if _is_wide(o) or o.access == "scatter" else _store(spec, o, value),
    )
    lines = "".join(f"    {line}\n" for line in before)
    lines += f"    [ForceUnroll]\n    for (int k = 0; k < {w}; ++k)\n    {{\n"
    lines += "".join(f"        {line}\n" for line in inside) + "    }\n"
    lines += "".join(f"    {line}\n" for line in after)
    parameters = f"{_index_parameter(spec)}{_sum_parameters(spec)}"
    return f"void neighbours(Call call, {spec.index} i{parameters})\n{{\n{lines}}}\n"


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
        # What is written to, and arrays, need a name; "v_", and "p_" for several, keep it apart from all others.
        name = f"v_{o.name}"
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
        return [*before, f"let v__result = {call};", *drain(spec.result, "v__result", store), *after]
    return [*before, store(spec.result, call), *after]


def _thread_entry(spec: CallSpec) -> str:
    system = ""
    parameter, fetch = _BLOCKS[spec.entry]
    thread = f"{spec.index}(thread.y) * call.row + thread.x" if spec.rows else f"{spec.index}(thread.x)"
    index = f", {_index(spec)}" if spec.indexed else ""
    index += "".join(f", s_{o.name}" for o in spec.sums)
    first = f"({thread}) * {spec.width}" if spec.rows else f"{thread} * {spec.width}"
    if spec.raw:
        system = ", uint3 local : SV_GroupThreadID, uint3 group : SV_GroupID"
        body = "    element(call, thread, local, group);\n"
    elif len(spec.group) > 1:
        body = _tile(spec)
    elif spec.walks:
        body = _walk(spec, first if spec.width > 1 else thread, index)
    elif spec.width > 1 and spec.indexed:
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
    if spec.sums:
        x, y, _ = group = (*spec.group, 1, 1)[:3]
        system += ", uint3 local : SV_GroupThreadID"
        flat = "local.x" if group[1:] == (1, 1) else f"(local.z * {y} + local.y) * {x} + local.x"
        body = _variables(spec, "sum", "column") + body
        columns = [o for o in spec.sums if o.access == "column"]
        body += "".join(_group_columns(spec, o, flat, first if spec.width > 1 else thread) for o in columns)
        for o in spec.sums:
            if o.access == "sum":
                body += f"    scatterGroup<{o.type}>(call.{o.name}, s_{o.name}, {flat});\n"
    group_text = ", ".join(map(str, (*spec.group, 1, 1)[:3]))
    return (
        f'[shader("compute")]\n[numthreads({group_text})]\n'
        f"void kernel(uint3 thread : SV_DispatchThreadID{system}, {parameter})\n{{\n{fetch}{body}}}\n"
    )


def _walk(spec: CallSpec, first: str, index: str) -> str:
    """Elements that are ``step`` apart, one after another."""
    loop = f"    for (var i = {first}; i < call.count; i += call.step)\n"
    if spec.width == 1:
        return f"{loop}        element(call, i{index});\n"
    if spec.indexed:
        return f"{loop}        neighbours(call, i{index});\n"
    return (
        f"{loop}        if (i + {spec.width} <= call.count)\n            neighbours(call, i{index});\n"
        f"        else\n            for (var j = i; j < call.count; ++j)\n                element(call, j{index});\n"
    )


def _variables(spec: CallSpec, *accesses: str) -> str:
    """Variables for what one thread has for gradients of that kind."""
    return "".join(f"    var s_{o.name} = {_summed(spec, o)}.zero();\n" for o in spec.sums if o.access in accesses)


def _summed(spec: CallSpec, o: Operand) -> str:
    """The type of what a thread adds up for a gradient."""
    return f"vector<{o.scalar}, {spec.width}>" if spec.width > 1 and _is_wide(o) else o.type


def _added(spec: CallSpec, o: Operand) -> str:
    """The addition to memory of what a thread has for a gradient."""
    return f"{_summed(spec, o)}.scatter({_address(spec, o)}, s_{o.name});"


def _group_columns(spec: CallSpec, o: Operand, thread: str, first: str) -> str:
    """What the threads of a group have for columns, added to memory."""
    last, threads = spec.rank - 1, spec.group[0]
    items = [f"s_{o.name}[{k}]" for k in range(spec.width)] if _summed(spec, o) != o.type else [f"s_{o.name}"]
    return (
        f"    {o.type} t_{o.name}[{len(items)}] = {{ {', '.join(items)} }};\n"
        f"    scatterColumns<{o.type}, {len(items)}>(call.{o.name}, call.{o.name}_stride[{last}], t_{o.name}, "
        f"{thread}, {threads}, call.shape[{last}], {first}, call.count);\n"
    )


def _tile(spec: CallSpec) -> str:
    """A group covers a tile: x counts the last dimension, y the one before, z what is left."""
    tiled, last = len(spec.group), spec.rank - 1
    ids = ["thread.x", "thread.y", "thread.z"][:tiled]
    lines = f"    {spec.index} index[{spec.rank}];\n"
    lines += "".join(
        f"    index[{last - k}] = {ids[k]};\n" for k in range(min(tiled, spec.rank) - (spec.rank > tiled))
    )
    if spec.rank > tiled:
        lines += f"    {spec.index} rest = {ids[-1]};\n"
        for d in range(last - tiled + 1, 0, -1):
            lines += f"    index[{d}] = rest % call.shape[{d}];\n    rest /= call.shape[{d}];\n"
        lines += "    index[0] = rest;\n"
    inside = " && ".join(f"index[{d}] < call.shape[{d}]" for d in range(spec.rank))
    flat = "index[0]"
    for d in range(1, spec.rank):
        flat = f"({flat}) * call.shape[{d}] + index[{d}]" if d > 1 else f"{flat} * call.shape[{d}] + index[{d}]"
    sums = "".join(f", s_{o.name}" for o in spec.sums)
    return f"{lines}    if ({inside})\n        element(call, {flat}, index{sums});\n"


def _range_entry(spec: CallSpec) -> str:
    # A local copy of the block: through the pointer, every store might change it, and nothing would vectorize.
    own = [p for o in spec.all_operands for p in o.places if p.grad_out is not None and p.grad_out.step == "own"]
    fetch = f"    {'var' if own else 'let'} call = *block;\n" + _variables(spec, "sum")
    for o in own:
        assert o.grad_out is not None
        name, count = o.grad_out.name, _scalars(o)
        fetch += f"    call.{name} = ownGradients<{o.scalar}>({count});\n"
    sums = "".join(f", s_{o.name}" for o in spec.sums)
    if spec.raw:
        x, y, z = spec.group
        loop = (
            "    for (int64_t i = begin; i < end; ++i)\n    {\n"
            f"        let at = uint(i % {x * y * z});\n"
            f"        let of = i / {x * y * z};\n"
            f"        let local = uint3(at % {x}, at / {x} % {y}, at / {x * y});\n"
            "        let group = uint3(uint(of % call.shape[0]), uint(of / call.shape[0] % call.shape[1]),\n"
            "                          uint(of / (call.shape[0] * call.shape[1])));\n"
            f"        element(call, group * uint3({x}, {y}, {z}) + local, local, group);\n    }}\n"
        )
    elif not spec.indexed and spec.sums and all(o.count <= 4 for o in spec.sums):
        loop = _lanes(spec)
    elif not spec.indexed:
        loop = f"    for (int64_t i = begin; i < end; ++i)\n        element(call, i{sums});\n"
    elif any(o.access == "column" for o in spec.sums):
        loop = _columns(spec)
    else:
        last = spec.rank - 1
        rows = "".join(f"    {line}\n" for line in _variables(spec, "row").splitlines())
        after = "".join(f"        {_added(spec, o)}\n" for o in spec.sums if o.access == "row")
        # Row by row: one division a row, and an inner loop that the C++ compiler can vectorize.
        loop = (
            "    for (int64_t i = begin; i < end;)\n    {\n"
            f"        var index = {_index(spec)};\n"
            f"        let stop = min(end, i + call.shape[{last}] - index[{last}]);\n{rows}"
            f"        for (; i < stop; ++i, ++index[{last}])\n"
            f"            element(call, i, index{sums});\n{after}    }}\n"
        )
    loop += "".join(f"    {_added(spec, o)}\n" for o in spec.sums if o.access == "sum")
    for o in own:
        assert o.grad_out is not None
        name = o.grad_out.name
        loop += f"    mergeGradients<{o.scalar}>(block->{name}, call.{name}, {_scalars(o)});\n"
    return f"export __extern_cpp void run(int64_t begin, int64_t end, Call *block)\n{{\n{fetch}{loop}}}\n"


def _scalars(o: Operand) -> str:
    """How many scalars a whole array has."""
    sizes = [f"call.{o.name}_shape[{d}]" for d in range(o.rank)]
    return " * ".join([f"int64_t({sizes[0]})", *sizes[1:], *([str(o.count)] if o.count > 1 else [])])


def _lanes(spec: CallSpec) -> str:
    """A range whose sums have several variables each: in one, every addition waits for the one before."""
    n = _LANES
    zeros = "".join(
        f"    {o.type} t_{o.name}[{n}];\n"
        f"    for (int k = 0; k < {n}; ++k)\n        t_{o.name}[k] = {o.type}.zero();\n"
        for o in spec.sums
    )
    lanes, sums = ("".join(f", {v}_{o.name}{at}" for o in spec.sums) for v, at in (("t", "[k]"), ("s", "")))
    total = "".join(f"        {_plus(f's_{o.name}', o.type, f't_{o.name}[k]')}\n" for o in spec.sums)
    return (
        f"{zeros}    var i = begin;\n    for (; i + {n} <= end; i += {n})\n"
        f"        for (int k = 0; k < {n}; ++k)\n            element(call, i + k{lanes});\n"
        f"    for (; i < end; ++i)\n        element(call, i{sums});\n"
        f"    for (int k = 0; k < {n}; ++k)\n    {{\n{total}    }}\n"
    )


def _columns(spec: CallSpec) -> str:
    """A range by blocks of columns, each with variables for what all rows add to it."""
    last, n = spec.rank - 1, _COLUMNS
    columns = [o for o in spec.sums if o.access == "column"]
    rows = "".join(f"        {line}\n" for line in _variables(spec, "row").splitlines())
    after = "".join(f"            {_added(spec, o)}\n" for o in spec.sums if o.access == "row")
    sums = "".join(f", s_{o.name}" + "[i - row - column]" * (o.access == "column") for o in spec.sums)
    zeros = "".join(
        f"        {o.type} s_{o.name}[{n}];\n"
        f"        for (int k = 0; k < {n}; ++k)\n            s_{o.name}[k] = {o.type}.zero();\n"
        for o in columns
    )
    adds = "".join(f"            {o.type}.scatter({_address(spec, o)}, s_{o.name}[k]);\n" for o in columns)
    width = f"call.shape[{last}]"
    return (
        f"    for (int64_t column = 0; column < {width}; column += {n})\n    {{\n{zeros}"
        f"        let stop = min(column + {n}, {width});\n"
        f"        for (int64_t row = begin / {width} * {width}; row < end; row += {width})\n        {{\n"
        f"            var i = max(begin, row + column);\n            var index = {_index(spec)};\n{rows}"
        f"            for (; i < min(end, row + stop); ++i, ++index[{last}])\n"
        f"                element(call, i, index{sums});\n{after}        }}\n"
        f"        for (int64_t k = 0; k < stop - column; ++k)\n        {{\n"
        f"            int64_t index[{spec.rank}] = {{{'0, ' * last}column + k}};\n{adds}        }}\n    }}\n"
    )


def _index(spec: CallSpec) -> str:
    return f"unravel<{spec.rank}>(i, call.shape)"


def _address(spec: CallSpec, o: Operand) -> str:
    if o.mode == "linear":
        return f"call.{o.name} + {_times(o.count, 'i')}"
    if o.mode == "strided":
        return f"address(call.{o.name}, index, call.{o.name}_stride)"
    return f"call.{o.name}"


def _pointer(spec: CallSpec, scalar: str) -> str:
    """What makes an address out of a number."""
    return f"Address<{scalar}>" if spec.entry == "handle" else f"({scalar} *)"


def _bits(spec: CallSpec, address: str) -> str:
    """An address as a number."""
    return f"({address}).bits" if spec.entry == "handle" else f"uint64_t({address})"


def _load(spec: CallSpec, o: Operand) -> str:
    if o.mode == "value":
        names = [f"call.{o.name}[{k}]" for k in range(o.count)] if o.count > 1 else [f"call.{o.name}"]
        if o.via:
            return f"{o.type}({names[0]})"
        return _build(o.type, iter(names), VALUE_STORAGE.get(o.scalar, o.scalar))
    if o.mode == "computed":
        return o.code
    if o.mode == "pointer":
        return f"call.{o.name}"
    if o.mode == "tensor":
        data = f"address(call.{o.name}, index, call.{o.name}_step)" if o.step else f"call.{o.name}"
        gradients = "".join(f", {_gradient_of(spec, o, g)}" for g in _tensor_gradients(o))
        return f"{o.type}({_bits(spec, data)}, call.{o.name}_shape, call.{o.name}_stride{gradients})"
    record = _record_of(spec, o)
    if record is None:
        return _load_from(o.type, o.via, _address(spec, o))
    name, at = _record_name(record.type), _bits(spec, _address(spec, o))
    if not is_array(o):
        return f"load_{name}({at})"
    return "{" + ", ".join(f"load_{name}({at} + {k})" for k in range(0, o.count, record.size)) + "}"


def _tensor_gradients(o: Operand) -> tuple[Operand | None, ...]:
    """What a whole array takes besides itself: the gradient to read, if it is written, and the one to add to."""
    count = _DIFFERENTIABLE.get(o.type.partition("<")[0], 0)
    return (o.grad_in, o.grad_out)[2 - count :]


def _gradient_of(spec: CallSpec, o: Operand, g: Operand | None) -> str:
    if g is None:
        return f"0, call.{o.name}_stride"
    data = f"address(call.{g.name}, index, call.{g.name}_step)" if g.step == "next" else f"call.{g.name}"
    return f"{_bits(spec, data)}, call.{g.name}_stride"


def _store(spec: CallSpec, o: Operand, value: str) -> str:
    if o in spec.sums:
        return _plus(f"s_{o.name}", o.type, value)
    if o.access in ("accumulate", "scatter"):
        return f"{o.type}.{o.access}({_address(spec, o)}, {value});"
    record = _record_of(spec, o)
    if record is None:
        return _store_to(o.type, o.via, _address(spec, o), value)
    name, at = _record_name(record.type), _bits(spec, _address(spec, o))
    if not is_array(o):
        return f"store_{name}({at}, {value});"
    ends = enumerate(range(0, o.count, record.size))
    return " ".join(f"store_{name}({at} + {k}, {value}[{n}]);" for n, k in ends)


def _load_from(type_: str, via: str, at: str) -> str:
    return f"{type_}({via}.load({at}))" if via else f"{type_}.load({at})"


def _store_to(type_: str, via: str, at: str, value: str) -> str:
    return f"{via}.store({at}, {via}({value}));" if via else f"{type_}.store({at}, {value});"


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
        return f"loadBytes<{spec.width}>({_bits(spec, at)})"
    return f"loadWide<{o.scalar}, {spec.width}>({at})"


def _store_wide(spec: CallSpec, o: Operand) -> str:
    at, value = _address(spec, o), f"p_{o.name}"
    if _as_words(spec, o):
        return f"storeBytes<{spec.width}>({_bits(spec, at)}, {value});"
    return f"storeWide<{o.scalar}, {spec.width}>({at}, {value});"


def _pick(o: Operand) -> str:
    """A scalar out of its neighbours."""
    value = f"p_{o.name}[k]"
    if o.via.startswith("bfloat16"):
        return f"{o.type}({o.via}.of({value}))"
    return f"{o.type}({value})" if o.via else _build(o.type, iter([value]), o.scalar)


def _put(spec: CallSpec, o: Operand, value: str) -> str:
    """Assignment of a scalar to its place among its neighbours, or addition to a gradient there."""
    if o.access == "scatter" and not _is_wide(o):
        return _plus(f"p_{o.name}", o.type, value)
    if o in spec.sums:
        return f"s_{o.name}[k] += {value};"
    if o.access in ("accumulate", "scatter"):
        return f"p_{o.name}[k] += {value};"
    if o.type == "bool":
        value = f"{'uint' if _as_words(spec, o) else 'uint8_t'}({value} ? 1 : 0)"
    return f"p_{o.name}[k] = {f'{o.via}({value})' if o.via else value};"


def _plus(name: str, type_: str, value: str) -> str:
    return f"{name} = {type_}.sum({name}, {value});" if type_.startswith("Array<") else f"{name} += {value};"


def _sum_parameters(spec: CallSpec) -> str:
    return "".join(f", inout {_summed(spec, o)} s_{o.name}" for o in spec.sums)


def _index_parameter(spec: CallSpec) -> str:
    return f", {spec.index} index[{spec.rank}]" if spec.indexed else ""


def _record_of(spec: CallSpec, o: Operand) -> Record | None:
    """The struct that an array holds, alone or in arrays."""
    element = o.type
    while element.startswith("Array<"):
        element = element[len("Array<") : element.rindex(",")]
    return next((r for r in spec.records if r.type == element), None)


def _record_name(type_: str) -> str:
    return re.sub(r"\W+", "_", type_).strip("_")


def _is_wide(o: Operand) -> bool:
    return o.mode == "linear" or (o.mode == "strided" and o.step == "next")


def _times(count: int, name: str) -> str:
    return name if count == 1 else f"{count} * {name}"

"""The entry point of a kernel of thread groups: which elements a thread runs, and which sums a group adds up."""

from __future__ import annotations

from slangpy_rt_codegen.expressions import copy_of, index_of, is_wide, sum_target, sum_variables
from slangpy_rt_codegen.spec import CallSpec, Operand

# How a kernel of threads takes its argument block, and the line that reads it.
_BLOCKS = {
    "value": ("uniform _spy_Call _spy_call", ""),
    "pointer": ("uniform _spy_Call *_spy_block", "    _spy_Call _spy_call = _spy_pointee(_spy_block);\n"),
    "handle": (
        "ConstantBuffer<_spy_BlockAt> _spy_block",
        "    _spy_Call _spy_call = _spy_fetch<_spy_Call>(_spy_block);\n",
    ),
}


_GIVEN = "    _spy_Call _spy_call = _spy_given;\n"


def thread_entry(spec: CallSpec) -> str:
    """Return the entry point that each thread runs."""
    system = ""
    parameter, fetch = _BLOCKS[spec.entry]
    thread = (
        f"{spec.index}(_spy_thread.y) * _spy_call.row + _spy_thread.x"
        if spec.rows
        else f"{spec.index}(_spy_thread.x)"
    )
    index = f", {index_of(spec)}" if spec.indexed else ""
    index += "".join(f", _spy_s_{o.name}" for o in spec.sums)
    first = f"({thread}) * {spec.width}" if spec.rows else f"{thread} * {spec.width}"
    start, inside = f"    {spec.index} _spy_i = ", "    if (_spy_i < _spy_call.count)\n"
    if spec.raw:
        system = ", uint3 _spy_local : SV_GroupThreadID, uint3 _spy_group : SV_GroupID"
        body = "    _spy_element(_spy_call, _spy_thread, _spy_local, _spy_group);\n"
    elif len(spec.group) > 1:
        body = _tile(spec)
        copied = [o for o in spec.leaves if o.copied]
        if copied:
            # As an argument the block is constant.
            parameter, fetch = parameter.replace("_spy_call", "_spy_given"), fetch or _GIVEN
            fetch += "".join(f"    _spy_call.copies_{o.name} = {copy_of(o, _group_number(spec))};\n" for o in copied)
    elif spec.walks:
        body = _walk(spec, first if spec.width > 1 else thread, index)
    elif spec.ragged:
        body = (
            f"{start}{first};\n"
            f"    if (_spy_i + {spec.width} <= _spy_call.count)\n"
            f"        _spy_neighbours(_spy_call, _spy_i{index});\n"
            f"    else\n"
            f"        for ({spec.index} _spy_j = _spy_i; _spy_j < _spy_call.count; ++_spy_j)\n"
            f"            _spy_element(_spy_call, _spy_j, {index_of(spec, '_spy_j')});\n"
        )
    elif spec.width > 1 and spec.indexed:
        # Rows are whole multiples of the width, so that no thread has fewer elements.
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
        if spec.walks and spec.lane_threads:
            system += ", uint3 _spy_group : SV_GroupID"
        flat = "_spy_local.x" if group[1:] == (1, 1) else f"(_spy_local.z * {y} + _spy_local.y) * {x} + _spy_local.x"
        body = sum_variables(spec, "sum", "column") + body
        columns = [o for o in spec.sums if o.access == "column"]
        body += "".join(_group_columns(spec, o, flat, first if spec.width > 1 else thread) for o in columns)
        for o in spec.sums:
            if o.access == "sum":
                type_, address = sum_target(spec, o, True)
                body += f"    _spy_scatterGroup<{type_}>({address}, _spy_s_{o.name}, {flat});\n"
    group_text = ", ".join(map(str, (*spec.group, 1, 1)[:3]))
    return (
        f'[shader("compute")]\n[numthreads({group_text})]\n'
        f"void _spy_kernel(uint3 _spy_thread : SV_DispatchThreadID{system}, {parameter})\n{{\n{fetch}{body}}}\n"
    )


def _group_number(spec: CallSpec) -> str:
    """Return a number of a tile's group, times the elements that add to the same copy of a gradient."""
    x, y, z = (*spec.group, 1, 1)[:3]
    # Odd factors: groups beside each other in any direction choose different copies.
    return f"(_spy_thread.x / {x} + _spy_thread.y / {y} * 8191 + _spy_thread.z / {z} * 131071) << 8"


def _walk(spec: CallSpec, first: str, index: str) -> str:
    """Return a loop over elements that are ``step`` apart."""
    if spec.lane_threads:
        # All lanes of a vector leave such a loop at once.
        return (
            f"    for ({spec.index} _spy_first = {spec.index}(_spy_group.x) * {spec.group[0]}; "
            "_spy_first < _spy_call.count; _spy_first += _spy_call.step)\n    {\n"
            f"        {spec.index} _spy_i = _spy_first + _spy_local.x;\n"
            f"        if (_spy_i < _spy_call.count)\n            _spy_element(_spy_call, _spy_i{index});\n    }}\n"
        )
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


def _tile(spec: CallSpec) -> str:
    """Return the body for groups that cover tiles: x counts the last dimension, y the one before, z the others.

    If a thread runs several elements, they follow each other in the dimension before the last.
    """
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
    if spec.width > 1:
        # No array is linear, so that no code needs the flat index.
        lines += f"    _spy_index[{last - 1}] *= {spec.width};\n"
        return f"{lines}    if ({inside})\n        _spy_neighbours(_spy_call, 0, _spy_index);\n"
    flat = "_spy_index[0]"
    for d in range(1, spec.rank):
        flat = (
            f"({flat}) * _spy_call.shape[{d}] + _spy_index[{d}]"
            if d > 1
            else f"{flat} * _spy_call.shape[{d}] + _spy_index[{d}]"
        )
    sums = "".join(f", _spy_s_{o.name}" for o in spec.sums)
    return f"{lines}    if ({inside})\n        _spy_element(_spy_call, {flat}, _spy_index{sums});\n"


def _group_columns(spec: CallSpec, o: Operand, thread: str, first: str) -> str:
    """Return the statements that add a group's sums of columns to memory."""
    last, threads = spec.rank - 1, spec.group[0]
    wide = spec.width > 1 and is_wide(o)
    items = [f"_spy_s_{o.name}[{k}]" for k in range(spec.width)] if wide else [f"_spy_s_{o.name}"]
    type_, address = sum_target(spec, o, True)
    stride = f"_spy_call.stride_{o.name}[{last}]" + (" / 2" if type_ != o.type else "")
    return (
        f"    {type_} _spy_t_{o.name}[{len(items)}] = {{ {', '.join(items)} }};\n"
        f"    _spy_scatterColumns<{type_}, {len(items)}>({address}, {stride}, "
        f"_spy_t_{o.name}, {thread}, {threads}, _spy_call.shape[{last}], {first}, _spy_call.count);\n"
    )

"""The entry point of a kernel of thread groups: which elements a thread runs, and which sums a group adds up."""

from __future__ import annotations

from slangpy_rt_codegen.expressions import copy_of, index_of, is_wide, sum_target, sum_variables, summed_type
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
        columns = [o for o in spec.sums if o.access == "column"]
        if spec.column_sums:
            body = sum_variables(spec, "sum") + _rows_of_lanes(spec, columns)
        else:
            body = sum_variables(spec, "sum", "column") + body
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
    """Return a loop over the elements of a thread."""
    if spec.lane_threads and not any(o.access == "column" for o in spec.sums):
        # All lanes of a vector leave such a loop at once.
        return (
            f"    {spec.index} _spy_first = {spec.index}(_spy_group.x) * _spy_call.step;\n"
            f"    {spec.index} _spy_end = min(_spy_first + _spy_call.step, _spy_call.count);\n"
            f"    for (; _spy_first < _spy_end; _spy_first += {spec.group[0]})\n    {{\n"
            f"        {spec.index} _spy_i = _spy_first + {spec.index}(_spy_local.x);\n"
            f"        if (_spy_i < _spy_end)\n            _spy_element(_spy_call, _spy_i{index});\n    }}\n"
        )
    if spec.lane_threads:
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


def _rows_of_lanes(spec: CallSpec, columns: list[Operand]) -> str:
    """Return the body for a group that runs ``step`` rows of a block of columns.

    A vector has the elements of one row, so that no lane divides by the length of a row, and a sum for each vector of
    the block.
    """
    last, index, size, count = spec.rank - 1, spec.index, spec.group[0], spec.column_sums
    block = size * count
    lines = "".join(
        f"    {summed_type(spec, o)} _spy_s_{o.name}[{count}];\n"
        f"    for (int _spy_k = 0; _spy_k < {count}; ++_spy_k)\n"
        f"        _spy_s_{o.name}[_spy_k] = {summed_type(spec, o)}._spy_zero();\n"
        for o in columns
    )
    lines += (
        f"    {index} _spy_columns = _spy_call.shape[{last}];\n"
        f"    {index} _spy_blocks = (_spy_columns + {block - 1}) / {block};\n"
        f"    {index} _spy_left = {index}(_spy_group.x) % _spy_blocks * {block};\n"
        f"    int _spy_pieces = int(min((_spy_columns - _spy_left + {size - 1}) / {size}, {index}({count})));\n"
        f"    {index} _spy_row = {index}(_spy_group.x) / _spy_blocks * _spy_call.step;\n"
        f"    {index} _spy_end = min(_spy_row + _spy_call.step, _spy_call.count / _spy_columns);\n"
        f"    for (; _spy_row < _spy_end; ++_spy_row)\n    {{\n"
        f"        {index} _spy_index[{spec.rank}];\n"
    )
    if last > 1:
        lines += f"        {index} _spy_rest = _spy_row;\n"
        for d in range(last - 1, 0, -1):
            lines += (
                f"        _spy_index[{d}] = _spy_rest % _spy_call.shape[{d}];\n"
                f"        _spy_rest /= _spy_call.shape[{d}];\n"
            )
    sums = "".join(f", _spy_s_{o.name}" + "[_spy_k]" * (o.access == "column") for o in spec.sums)
    column = f"_spy_left + {index}(_spy_k * {size}) + {index}(_spy_local.x)"
    lines += (
        f"        _spy_index[0] = {'_spy_rest' if last > 1 else '_spy_row'};\n"
        f"        for (int _spy_k = 0; _spy_k < _spy_pieces; ++_spy_k)\n        {{\n"
        f"            _spy_index[{last}] = {column};\n"
        f"            if (_spy_index[{last}] < _spy_columns)\n"
        f"                _spy_element(_spy_call, _spy_row * _spy_columns + _spy_index[{last}], _spy_index{sums});\n"
        f"        }}\n    }}\n"
        f"    for (int _spy_k = 0; _spy_k < _spy_pieces; ++_spy_k)\n    {{\n"
        f"        {index} _spy_column = {column};\n"
        f"        if (_spy_column < _spy_columns)\n        {{\n"
    )
    for o in columns:
        type_, address = sum_target(spec, o, True)
        stride = f"_spy_call.stride_{o.name}[{last}]" + (" / 2" if type_ != o.type else "")
        lines += (
            f"            {type_}._spy_addAtomic(_spy_offset({address}, _spy_column * {stride}), "
            f"_spy_s_{o.name}[_spy_k]);\n"
        )
    return f"{lines}        }}\n    }}\n"


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

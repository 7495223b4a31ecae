"""The entry point of a kernel that runs ranges of elements on the CPU, with loops that a C++ compiler vectorizes."""

from __future__ import annotations

from slangpy_rt_codegen.expressions import addition, index_of, sum_addition, sum_variables, summed_type
from slangpy_rt_codegen.spec import CallSpec, Operand

# Columns of a call that a range works on at a time, if it adds up gradients by columns.
_COLUMNS = 64
# Variables for each sum in a range. A loop over 64 of them g++ vectorizes; one over 8 it unrolls and shuffles: one
# gradient for 2^24 products takes 15 ms with 1 or 8 variables and 2.8 ms with 64.
_LANES = 64
# A range sums gradients over this many elements, or rows where columns have sums, before it adds them to the total.
# For 2^24 equal terms the error is up to 6e-5; it is up to 1e-2 where each term is added to the total.
_PIECE = 2048
# Scalars of a whole gradient in a range's own memory are added to the range's once for so many elements each.
_PIECES_OF_SCALARS = 8
# The variable of loops whose elements are independent, which a C++ compiler may run several at a time.
LANE = "_spy_lane"
# The operand by which kernels find the buffer of printf and assertions.
_DIAGNOSTICS = "0_diagnostics"


def range_entry(spec: CallSpec) -> str:
    """Return the function that runs the elements from ``_spy_begin`` to before ``_spy_end``."""
    # A local copy of the block: through the pointer, every store might change it, and nothing would vectorize.
    own = [p for o in spec.all_operands for p in o.places if p.grad_out is not None and p.grad_out.step == "own"]
    fetch = "    _spy_Call _spy_call = _spy_pointee(_spy_block);\n"
    variables = sum_variables(spec, "sum")
    for o in own:
        assert o.grad_out is not None
        name, count = o.grad_out.name, _scalars(o)
        variables += f"    _spy_call.v_{name} = _spy_ownGradients<{o.scalar}>({count});\n"
    sums = "".join(f", _spy_s_{o.name}" for o in spec.sums)
    each = "    for (int64_t _spy_i = _spy_begin; _spy_i < _spy_end; ++_spy_i)"
    alone = elements_independent(spec)
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
        loop = _lanes(spec, alone)
    elif not spec.indexed and alone and not spec.sums:
        loop = f"{each.replace('_spy_i', LANE)}\n        _spy_element(_spy_call, {LANE});\n"
    elif not spec.indexed:
        loop = f"{each}\n        _spy_element(_spy_call, _spy_i{sums});\n"
    elif any(o.access == "column" for o in spec.sums):
        loop = _columns(spec, alone and all(o.access == "column" for o in spec.sums))
    else:
        last = spec.rank - 1
        rows = "".join(f"    {line}\n" for line in sum_variables(spec, "row").splitlines())
        after = "".join(f"        {sum_addition(spec, o)}\n" for o in spec.sums if o.access == "row")
        # Row by row: one division a row, and an inner loop that the C++ compiler can vectorize.
        loop = (
            "    for (int64_t _spy_i = _spy_begin; _spy_i < _spy_end;)\n    {\n"
            f"        int64_t _spy_index[{spec.rank}] = {index_of(spec)};\n"
            f"        int64_t _spy_stop = min(_spy_end, _spy_i + _spy_call.shape[{last}] - _spy_index[{last}]);\n"
            f"{rows}{_row(spec, '_spy_stop', sums, alone and not spec.sums, 8)}{after}    }}\n"
        )
    totals = [o for o in spec.sums if o.access == "sum"]
    added = "".join(f"    {sum_addition(spec, o)}\n" for o in totals)
    added += "".join(_merged(o, "_spy_block->") for o in own)
    piece, head = "", "export __extern_cpp void _spy_run(int64_t _spy_begin, int64_t _spy_end, _spy_Call *_spy_block)"
    if spec.sums or own:
        parameters = "".join(f", inout {summed_type(spec, o)} _spy_r_{o.name}" for o in totals)
        kept = "".join(
            f"    {addition(f'_spy_r_{o.name}', summed_type(spec, o), f'_spy_s_{o.name}')}\n" for o in totals
        )
        kept += "".join(_merged(o, "_spy_range.") for o in own)
        piece = (
            f"void _spy_piece(int64_t _spy_begin, int64_t _spy_end, _spy_Call _spy_range{parameters})\n"
            f"{{\n    _spy_Call _spy_call = _spy_range;\n{variables}{loop}{kept}}}\n\n"
        )
        arguments = "".join(f", _spy_s_{o.name}" for o in totals)
        loop = (
            f"    int64_t _spy_size = {_piece_size(spec, own)};\n"
            "    for (int64_t _spy_first = _spy_begin; _spy_first < _spy_end; _spy_first += _spy_size)\n"
            f"        _spy_piece(_spy_first, min(_spy_first + _spy_size, _spy_end), _spy_call{arguments});\n"
        )
    return f"{piece}{head}\n{{\n{fetch}{variables}{loop}{added}}}\n"


def _merged(o: Operand, to: str) -> str:
    """Return the statement that adds a whole gradient's own copy to another one, and gives its memory back."""
    assert o.grad_out is not None
    name = o.grad_out.name
    return f"    _spy_mergeGradients<{o.scalar}>({to}v_{name}, _spy_call.v_{name}, {_scalars(o)});\n"


def _piece_size(spec: CallSpec, own: list[Operand]) -> str:
    """Return the number of elements that a range adds up at a time, a multiple of the lanes."""
    lanes = not spec.indexed and not own and all(o.count <= 4 for o in spec.sums)
    size = f"{_PIECE * (_LANES if lanes else 1)}"
    if any(o.access == "column" for o in spec.sums):
        size = f"{size} * _spy_call.shape[{spec.rank - 1}]"
    for o in own:
        size = f"max({size}, {_PIECES_OF_SCALARS} * {_scalars(o)})"
    return size if size.isdigit() else f"max({size}, int64_t({_PIECE}))" if own else size


def elements_independent(spec: CallSpec) -> bool:
    """Return whether the elements of a call touch no memory that another one writes, but for sums of gradients.

    Arrays that share memory with what the call writes are copied before (``slangpy_rt.arguments.conflicts``), and an
    array that is written has a place for each element. A pointer, an array that is passed whole and written, and a
    texture lead to memory that only the function knows. What the function itself writes besides, such as lines of
    ``printf``, shows in the code that Slang emits (``slangpy_rt.slang.cpp_lanes``).
    """
    for o in spec.leaves:
        # Values, places that only this element has, and whole arrays that are only read.
        apart = o.mode in ("value", "computed", "unused", "parts") or o.summed or o.name == _DIAGNOSTICS
        apart = apart or (o.mode in ("linear", "strided") and o.access != "scatter")
        apart = apart or (o.mode == "constant" and o.access in ("in", "seed"))
        apart = apart or (o.mode == "tensor" and o.access == "in" and o.type.startswith("Tensor<"))
        if not apart:
            return False
    return not spec.raw


def _row(spec: CallSpec, stop: str, sums: str, alone: bool, indent: int, lane: str = "") -> str:
    """Return the loop over the elements from ``_spy_i`` to before ``stop``, which lie in one row of the call.

    Parameters
    ----------
    sums : str
        The last arguments of an element.
    alone : bool
        Whether the elements are independent.
    lane : str
        The last arguments of an element if they are, with its number ``_spy_lane`` in the loop.
    """
    last = spec.rank - 1
    lines: tuple[str, ...]
    if alone:
        lines = (
            f"int64_t _spy_count = {stop} - _spy_i;",
            f"for (int64_t {LANE} = 0; {LANE} < _spy_count; ++{LANE})",
            "{",
            f"    int64_t _spy_own[{spec.rank}] = _spy_index;",
            f"    _spy_own[{last}] += {LANE};",
            f"    _spy_element(_spy_call, _spy_i + {LANE}, _spy_own{lane});",
            "}",
            f"_spy_index[{last}] += _spy_count;",
            "_spy_i += _spy_count;",
        )
    else:
        lines = (
            f"for (; _spy_i < {stop}; ++_spy_i, ++_spy_index[{last}])",
            f"    _spy_element(_spy_call, _spy_i, _spy_index{sums});",
        )
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _scalars(o: Operand) -> str:
    """Return the Slang expression for the number of scalars of a whole array."""
    sizes = [f"_spy_call.shape_{o.name}[{d}]" for d in range(o.rank)]
    return " * ".join([f"int64_t({sizes[0]})", *sizes[1:], *([str(o.count)] if o.count > 1 else [])])


def _lanes(spec: CallSpec, alone: bool) -> str:
    """Return the loops of a range with several variables for each sum: in one, each addition waits for the last."""
    k = LANE if alone else "_spy_k"
    n = _LANES
    lane = f"    for (int _spy_k = 0; _spy_k < {n}; ++_spy_k)"
    zeros = "".join(
        f"    {type_} _spy_t_{o.name}[{n}];\n{lane}\n        _spy_t_{o.name}[_spy_k] = {type_}._spy_zero();\n"
        for o, type_ in ((o, summed_type(spec, o)) for o in spec.sums)
    )
    lanes, sums = ("".join(f", _spy_{v}_{o.name}{at}" for o in spec.sums) for v, at in (("t", f"[{k}]"), ("s", "")))
    total = "".join(
        f"        {addition(f'_spy_s_{o.name}', o.type, f'_spy_t_{o.name}[_spy_k]')}\n" for o in spec.sums
    )
    return (
        f"{zeros}    int64_t _spy_i = _spy_begin;\n    for (; _spy_i + {n} <= _spy_end; _spy_i += {n})\n"
        f"    {lane.replace('_spy_k', k)}\n            _spy_element(_spy_call, _spy_i + {k}{lanes});\n"
        f"    for (; _spy_i < _spy_end; ++_spy_i)\n        _spy_element(_spy_call, _spy_i{sums});\n"
        f"{lane}\n    {{\n{total}    }}\n"
    )


def _columns(spec: CallSpec, alone: bool) -> str:
    """Return the loops of a range by blocks of columns, with a variable for each column's sum over the rows.

    With ``alone``, elements of one row are independent of each other.
    """
    last, n = spec.rank - 1, _COLUMNS
    columns = [o for o in spec.sums if o.access == "column"]
    rows = "".join(f"        {line}\n" for line in sum_variables(spec, "row").splitlines())
    after = "".join(f"            {sum_addition(spec, o)}\n" for o in spec.sums if o.access == "row")
    place = "_spy_i - _spy_row - _spy_column"
    sums = "".join(f", _spy_s_{o.name}" + f"[{place}]" * (o.access == "column") for o in spec.sums)
    lane = "".join(f", _spy_s_{o.name}[{place} + {LANE}]" for o in spec.sums)
    zeros = "".join(
        f"        {type_} _spy_s_{o.name}[{n}];\n"
        f"        for (int _spy_k = 0; _spy_k < {n}; ++_spy_k)\n"
        f"            _spy_s_{o.name}[_spy_k] = {type_}._spy_zero();\n"
        for o, type_ in ((o, summed_type(spec, o)) for o in columns)
    )
    adds = "".join(f"            {sum_addition(spec, o, '[_spy_k]')}\n" for o in columns)
    width = f"_spy_call.shape[{last}]"
    first = f"_spy_begin / {width} * {width}"
    return (
        f"    for (int64_t _spy_column = 0; _spy_column < {width}; _spy_column += {n})\n    {{\n{zeros}"
        f"        int64_t _spy_stop = min(_spy_column + {n}, {width});\n"
        f"        for (int64_t _spy_row = {first}; _spy_row < _spy_end; _spy_row += {width})\n        {{\n"
        "            int64_t _spy_i = max(_spy_begin, _spy_row + _spy_column);\n"
        f"            int64_t _spy_index[{spec.rank}] = {index_of(spec)};\n{rows}"
        f"{_row(spec, 'min(_spy_end, _spy_row + _spy_stop)', sums, alone, 12, lane)}{after}        }}\n"
        "        for (int64_t _spy_k = 0; _spy_k < _spy_stop - _spy_column; ++_spy_k)\n        {\n"
        f"            int64_t _spy_index[{spec.rank}] = {{{'0, ' * last}_spy_column + _spy_k}};\n{adds}"
        "        }\n    }\n"
    )

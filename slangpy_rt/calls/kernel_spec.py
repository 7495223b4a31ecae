"""From bound arguments to the description of a kernel: the code generator's input, and how the kernel is launched.

The functions compute frozen values from frozen values; they emit, compile and run nothing, and read no argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from slangpy_rt_codegen import GROUP_SIZE, CallSpec, Operand

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.options import Options
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.calls.column_tiles import GROUP as COLUMN_GROUP
from slangpy_rt.calls.column_tiles import column_tiles
from slangpy_rt.calls.launch_geometry import (
    LANE_GROUP,
    MAX_WALKING,
    MAX_WALKING_CORES,
    Copies,
    add_columns,
    add_rows,
    copies_of,
    group_of,
    groups_of,
    holds_half_arrays,
    reach,
    tiles,
    walks_of_lanes,
    widen,
)
from slangpy_rt.calls.operands import Leaf, identifier, names_of, operand, trees_of
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.calls.struct_fields import struct_layouts
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.shapes import Coalesced, Shape, align, coalesce
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import EntryPoint, FunctionSig, Param
from slangpy_rt.slang.constants import export_constants
from slangpy_rt.slang.source import Source

_MAX_32 = 2**31 - 1
# The most threads of a group that every GPU runs; the CPU refuses the same kernels.
_MAX_GROUP = 1024
# Threads of a group whose functions trace rays: these end at different times, and a group holds its registers until
# the last one has ended. With 64 random rays take a sixth less time than with 256 on an H200.
_RAY_GROUP = 64
# Threads of a group whose functions share memory or exchange values: as many as SlangPy has, because functions that
# were written for it share as many values.
_SHARING_GROUP = 32
_DETERMINISTIC = "export static const bool _spy_deterministic = true;"
_STAGED = "export static const bool _spy_staged = true;"
Uniforms = tuple[tuple[str, Bound], ...]


@dataclass(frozen=True)
class Description:
    """A kernel as the code generator takes it, and how it is launched.

    Attributes
    ----------
    bound : tuple of Bound
        Uniforms, arguments and the result, in the order of the block.
    shape : tuple of int
        The call's shape, or the thread groups of a dispatch.
    groups : tuple of int
        The thread groups to launch in x, y and z; on a CPU, the number of elements in x.
    count : int
        The number of elements, or of threads of a dispatch.
    fixed : dict
        The block's values that follow from shapes, by name.
    target : Target
        The target that the kernel is compiled for.
    copies : tuple of Copies
        The copies of gradients that the kernel adds to.
    """

    spec: CallSpec
    bound: tuple[Bound, ...]
    shape: Shape
    groups: tuple[int, int, int]
    count: int
    fixed: dict[str, Shape]
    target: Target
    copies: tuple[Copies, ...] = ()


def describe_call(
    scope: Scope,
    sig: FunctionSig,
    bound: tuple[Bound, ...],
    result: Bound | None,
    shape: Shape,
    options: Options,
    uniforms: Uniforms,
    aliased: bool = False,
    *,
    target: Target,
    grouped: bool = False,
) -> Description:
    """Describe the kernel that calls a function, or its derivative, once for every element of a shape.

    Parameters
    ----------
    aliased : bool
        Whether several arguments add to gradients in one buffer.
    target : Target
        One of the device's targets.
    grouped : bool
        Whether the function may use anything of its thread group, so that each thread runs one element.

    Raises
    ------
    BindError
        If a thread group has more dimensions than the call, or a generator does not fit it.
    UnsupportedError
        If the device cannot run so many threads.
    """
    device, source = scope.device, scope.source
    said = str(sig)
    spell = Spelling(said, source, bool(options.derivative))
    every = (*[b for _, b in uniforms], *bound, *((result,) if result else ()))
    bounds = [leaf for b in every for leaf in b.leaves]
    walked = [b.mode == "array" or (b.mode == "tensor" and bool(b.shape)) for b in bounds]
    strides = [align(b.shape, b.strides, shape, b.mapped) for b, walks in zip(bounds, walked, strict=True) if walks]
    caps = device.caps
    host = not target.groups
    asked = options.group
    if not (asked or host) and (grouped or source.uses("rays")):
        asked = (_SHARING_GROUP,) if grouped else (_RAY_GROUP,)
    tiled = len(options.group) > 1 and not host
    if tiled and len(options.group) > len(shape):
        raise BindError(
            f"{said}: group_size {options.group} counts {len(options.group)} dimensions; the call has shape {shape}."
        )
    if tiled or [b for b in bounds if b.mode == "texel" or (b.generator is not None and b.generator.indexed)]:
        merged = Coalesced(shape or (1,), tuple([s or (0,) for s in strides]))
    else:
        merged = coalesce(shape, strides)
    names, per_array = names_of(every), iter(merged.strides)
    leaves = [
        Leaf(b, names[id(b)], next(per_array) if walks else ()) for b, walks in zip(bounds, walked, strict=True)
    ]
    # Only a new thread of a GPU has the initial values of static variables, so each thread runs one element.
    single = not host and (grouped or source.statics)
    wide = not (host or target.lane_threads)
    operands = [operand(leaf, merged.shape, len(shape), said, spell, aliased) for leaf in leaves]
    operands = [
        replace(o, access="scatter") if o.access == "sum" and (single or holds_half_arrays(o)) else o
        for o in operands
    ]
    alone = tiled or aliased or single or not wide
    operands, width = (operands, 1) if alone else widen(leaves, operands, merged.shape)
    tiles_of_columns = None
    if wide and width == 1 and len(merged.shape) > 1 and not (tiled or aliased or single or options.derivative):
        tiles_of_columns = column_tiles(leaves, operands, merged.shape, caps)
    if tiles_of_columns is not None:
        leaves, operands, width = (
            list(tiles_of_columns.leaves),
            list(tiles_of_columns.operands),
            tiles_of_columns.width,
        )
        merged = Coalesced(tiles_of_columns.shape, tuple([leaf.strides for leaf in leaves if leaf.strides]))
    most = MAX_WALKING if wide else MAX_WALKING_CORES
    column_sums = 0
    in_lanes = target.lane_threads and bool(options.derivative) and not (tiled or single)
    if in_lanes:
        operands, column_sums = add_columns(leaves, operands, merged.shape)
    if options.derivative and not (tiled or single or column_sums):
        slots = width * prod(asked or (GROUP_SIZE,))
        operands, most = add_rows(host, device.deterministic, leaves, operands, merged.shape, slots, most)
    copies: tuple[Copies, ...] = ()
    # Networks add up the terms of a wave, and of more, before they add to gradients at addresses of their own.
    if options.derivative == "backward" and not (device.deterministic or source.uses("mlp")):
        operands, copies = _with_copies(leaves, operands, merged.shape, prod(asked) if tiled else 0)
    trees = trees_of(every, names, bounds, operands, spell)
    count = prod(shape)
    # Except for columns with one sum a thread, a vector of lanes walks over elements that follow each other.
    sums = {o.access for o in operands if o.summed}
    in_lanes = in_lanes and bool(sums) and (column_sums > 0 or "column" not in sums)
    if in_lanes and not asked:
        asked = (LANE_GROUP,)
    wide_index = host or max([count, *[reach(merged.shape, s) for s in merged.strides]]) > _MAX_32
    group = group_of(asked, tiled) if not host else (GROUP_SIZE,)
    if tiles_of_columns is not None:
        group, groups, rows = COLUMN_GROUP, tiles_of_columns.groups, False
    elif tiled:
        groups, rows = tiles(said, caps, device.info, group, shape), False
    else:
        groups, rows = groups_of(said, host, caps, device.info, -(-count // width), prod(group))
    backward = options.derivative == "backward"
    title = f"{options.derivative} derivative of {said}" if options.derivative else said
    spec = CallSpec(
        title=title,
        modules=_modules(source, target, operands),
        function=_called(said, sig, spell),
        operands=tuple(trees[len(uniforms) : len(trees) - bool(result)]),
        result=trees[-1] if result else None,
        rank=len(merged.shape),
        index="int64_t" if wide_index else "uint",
        width=width,
        entry=target.entry,
        rows=rows,
        method=bool(sig.owner) and not sig.static,
        group=group,
        structs=struct_layouts(bounds, spell, host),
        constants=(
            *_constants(said, scope, target, options, spell),
            *((_DETERMINISTIC,) if device.deterministic and backward else ()),
            *((_STAGED,) if backward and not device.deterministic and _adds_halves(leaves) else ()),
        ),
        assigned=tuple([(spell.own(name), trees[k]) for k, (name, _) in enumerate(uniforms)]),
        derivative=options.derivative,
        hidden=spell.hidden,
        lane_threads=target.lane_threads,
        column_sums=column_sums,
    )
    if target.element_constants and prod(group) <= GROUP_SIZE and not spec.sums and not grouped:
        spec = replace(spec, constants=(*spec.constants, *target.element_constants))
    if options.derivative and spec.walks and not in_lanes:
        groups, spec = (min(-(-count // (width * prod(group))), most), 1, 1), replace(spec, rows=False)
    values: dict[str, Shape] = {"count": (count,), "row": (groups[0] * prod(group),), "shape": merged.shape}
    values["step"] = (groups[0] * prod(group) * width,)
    if in_lanes:
        x, step = walks_of_lanes(merged.shape, group[0], column_sums)
        # Sums of 32 bits may wrap, so that their addresses are no lines; numbers of 64 bits are divided lane by lane.
        wide_index = column_sums > 0 or not spec.indexed
        groups, spec = (x, 1, 1), replace(spec, rows=False, index="int64_t" if wide_index else spec.index)
        values["step"] = (step,)
    for leaf in leaves:
        leaf.add_fixed(values)
    for one in copies:
        values.update(one.fixed)
    return Description(spec, every, shape, groups, count, values, target, copies)


def describe_dispatch(
    scope: Scope,
    entry: EntryPoint,
    arguments: tuple[Bound, ...],
    threads: tuple[int, ...],
    options: Options,
    uniforms: Uniforms,
    *,
    target: Target,
) -> Description:
    """Describe the kernel that calls a raw entry point with the system values of each thread.

    Parameters
    ----------
    target : Target
        One of the device's targets.

    Raises
    ------
    UnsupportedError
        If the device cannot run so many threads or groups of that size, or a parameter has another semantic.
    """
    device = scope.device
    if options.group:
        x, y, z = (*options.group, 1, 1)[:3]
        entry = replace(entry, group_size=(x, y, z))
    if not 1 <= prod(entry.group_size) <= _MAX_GROUP or min(entry.group_size) < 1:
        raise UnsupportedError(
            f"{entry.name}: its [numthreads] are {entry.group_size}; a thread group has 1 to {_MAX_GROUP} threads."
        )
    shape = (*threads, 1, 1)[:3]
    x, y, z = (-(-n // size) for n, size in zip(shape, entry.group_size, strict=True))
    if any(n > limit for n, limit in zip((x, y, z), device.caps.max_groups, strict=True)) and target.groups:
        raise UnsupportedError(
            f"{entry.name}: {threads} threads are more than {device.info} runs at once; dispatch fewer."
        )
    title = f"{entry.name} over threads in groups of {entry.group_size}"
    every = (*(b for _, b in uniforms), *arguments)
    bounds = [leaf for b in every for leaf in b.leaves]
    names, spell = names_of(every), Spelling(title, scope.source)
    leaves = [Leaf(b, names[id(b)], ()) for b in bounds]
    # As for a call of two elements: in it, an array of one element is a constant, which every thread reads.
    operands = [operand(leaf, (2,), 3, title, spell) for leaf in leaves]
    trees = trees_of(every, names, bounds, operands, spell)
    given = iter(trees[len(uniforms) :])
    count = prod(entry.group_size) * x * y * z
    spec = CallSpec(
        title=title,
        modules=_modules(scope.source, target, operands),
        function=spell.function(title, entry.name),
        operands=tuple(_system_value(entry, p, spell) if p.semantic else next(given) for p in entry.params),
        result=None,
        rank=3,
        index="uint" if target.groups else "int64_t",
        width=1,
        entry=target.entry,
        group=entry.group_size,
        raw=True,
        structs=struct_layouts(bounds, spell, not target.groups),
        constants=_constants(title, scope, target, options, spell),
        assigned=tuple((spell.own(name), trees[k]) for k, (name, _) in enumerate(uniforms)),
        hidden=spell.hidden,
    )
    groups = (x, y, z) if target.groups else (count, 1, 1)
    values: dict[str, Shape] = {"count": (count,), "shape": (x, y, z)}
    for leaf in leaves:
        leaf.add_fixed(values)
    return Description(spec, every, (x, y, z), groups, count, values, target)


def _with_copies(
    leaves: Sequence[Leaf], operands: list[Operand], shape: Shape, tile: int
) -> tuple[list[Operand], tuple[Copies, ...]]:
    """Return the operands and the copies of gradients; ``tile`` is the threads of a tile, 0 without tiles."""
    found = {
        o.name: made
        for leaf, o in zip(leaves, operands, strict=True)
        # Groups that walk over the call add once each to what all add to.
        if (tile or o.access != "sum") and (made := copies_of(leaf, o, shape, max(tile, 1))) is not None
    }
    return [replace(o, copied=o.name in found) for o in operands], tuple(found.values())


def _adds_halves(leaves: Sequence[Leaf]) -> bool:
    """Return whether the kernel gets sums in place of a gradient of half."""
    return any(leaf.bound.scalar == "half" and leaf.bound.packer.sums for leaf in leaves)


def _called(where: str, sig: FunctionSig, spell: Spelling) -> str:
    """Return the text in front of a call's arguments: ``"add"``, ``"Ray.make"``, or ``"advance"`` for a method."""
    if not sig.owner:
        return spell.function(where, sig.name, sig.returns.name)
    return spell.own(f"{sig.owner}.{sig.name}" if sig.static else sig.name)


def _system_value(entry: EntryPoint, param: Param, spell: Spelling) -> Operand:
    """Return the operand of a parameter with a system value such as ``SV_DispatchThreadID``, in its type."""
    vectors = {"SV_DispatchThreadID": "_spy_thread", "SV_GroupThreadID": "_spy_local", "SV_GroupID": "_spy_group"}
    x, y, _ = entry.group_size
    if param.semantic == "SV_GroupIndex":
        code = f"{param.type.name}((_spy_local.z * {y} + _spy_local.y) * {x} + _spy_local.x)"
    elif param.semantic in vectors:
        code = f"{param.type.name}({vectors[param.semantic]}.{'xyz'[: (param.type.shape or (1,))[0]]})"
    else:
        raise UnsupportedError(
            f"{entry.name}: parameter '{param.name}' has the semantic {param.semantic}; "
            f"{', '.join((*vectors, 'SV_GroupIndex'))} are supported."
        )
    return Operand(identifier(param.name), spell.type(param.type), "", 0, "in", "computed", code=code)


def _constants(where: str, scope: Scope, target: Target, options: Options, spell: Spelling) -> tuple[str, ...]:
    """Return the lines that define link-time constants: the user's, in the types of the module, and the device's."""
    lines: tuple[str, ...] = ()
    if options.constants:
        found = export_constants(where, scope.source.info.constants, dict(options.constants))
        lines = tuple(map(spell.own, found.values()))
    return lines + target.constants + (target.backward_constants if options.derivative == "backward" else ())


def _modules(source: Source, target: Target, operands: Sequence[Operand]) -> tuple[str, ...]:
    """Return the modules that the text imports besides ``_spy_library``; ``slangpy_rt`` if the user's module does."""
    public = ("slangpy_rt",) if source.uses("slangpy_rt") else ()
    found = target.texture_modules if any(o.mode in ("handle", "texel") for o in operands) else ()
    return (*found, *public, source.name, *[name for name in source.imports if name != "slangpy_rt"])

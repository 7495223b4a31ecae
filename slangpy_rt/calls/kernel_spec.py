"""From bound arguments to the description of a kernel: what the code generator needs, and what a launch does.

Values in, values out; nothing is emitted, compiled or run, and no argument is looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, Any

import numpy as np
from slangpy_rt_codegen import GROUP_SIZE, CallSpec, Operand, Record, RecordField

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.options import Options
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.shapes import Coalesced, Shape, align, coalesce, contiguous
from slangpy_rt.core.types import EntryPoint, FunctionSig, Param, SlangType
from slangpy_rt.slang.constants import export_constants
from slangpy_rt.slang.source import Source

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_MAX_32 = 2**31 - 1
# Scalars of a gradient that a range of a call on the CPU keeps a copy of.
_MAX_OWN = 1 << 15
# Thread groups of a kernel in which every thread adds up what it has for a gradient: each ends in one atomic.
_MAX_WALKING = 1024
# Words of an exact sum, as in shaders/exact.slang.
EXACT_WORDS = {"half": 12, "float": 12, "double": 69}
_DETERMINISTIC = "export static const bool _spy_deterministic = true;"
Uniforms = tuple[tuple[str, Bound], ...]


@dataclass(frozen=True)
class Description:
    """A kernel and its launch.

    Attributes
    ----------
    bound : tuple of Bound
        Uniforms, arguments and the result, in the order of the block.
    shape : tuple of int
        The call's, or the groups of a dispatch.
    groups : tuple of int
        What is launched.
    count : int
        Elements, or threads of a dispatch.
    fixed : dict
        What the block holds that follows from shapes, by name.
    """

    spec: CallSpec
    bound: tuple[Bound, ...]
    shape: Shape
    groups: tuple[int, int, int]
    count: int
    fixed: dict[str, Shape]


def describe_call(
    scope: Scope,
    sig: FunctionSig,
    bound: tuple[Bound, ...],
    result: Bound | None,
    shape: Shape,
    options: Options,
    uniforms: Uniforms,
    aliased: bool = False,
) -> Description:
    """The kernel that calls a function, or its derivative, once for every element of a shape.

    Parameters
    ----------
    aliased : bool
        Whether several arguments add to gradients in one buffer.

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
    every = (*(b for _, b in uniforms), *bound, *((result,) if result else ()))
    leaves = [leaf for b in every for leaf in b.leaves]
    names = _names(every)
    arrays = [b for b in leaves if b.mode == "array" or (b.mode == "tensor" and b.shape)]
    strides = [align(b.shape, b.strides, shape, b.mapped) for b in arrays]
    tiled = len(options.group) > 1 and device.backend.target.entry != "range"
    if tiled and len(options.group) > len(shape):
        raise BindError(
            f"{said}: group_size {options.group} counts {len(options.group)} dimensions; the call has shape {shape}."
        )
    if tiled or any(b.generator is not None and b.generator.indexed for b in leaves):
        merged = Coalesced(shape or (1,), tuple(s or (0,) for s in strides))
    else:
        merged = coalesce(shape, strides)
    per_array = dict(zip((id(b) for b in arrays), merged.strides, strict=True))
    facts = {id(b): _Leaf(b, names[id(b)], per_array.get(id(b), ())) for b in leaves}
    operands = {
        id(b): _operand(device, f, merged.shape, len(shape), said, spell, aliased)
        for b, f in zip(leaves, facts.values(), strict=True)
    }
    operands, width = (operands, 1) if tiled or aliased else _widen(device, facts, operands, merged)
    most = _MAX_WALKING
    if options.derivative and not tiled:
        operands, most = _add_rows(device, facts, operands, merged, width * prod(options.group or (GROUP_SIZE,)))
    trees = [_tree(b, names, operands, spell) for b in every]
    count = prod(shape)
    reach = max([count, *(_reach(merged.shape, s) for s in merged.strides)])
    entry = device.backend.target.entry
    wide_index = entry == "range" or reach > _MAX_32
    group = _group(options.group, tiled) if entry != "range" else (GROUP_SIZE,)
    groups, rows = (
        _groups(device, -(-count // width), prod(group)) if not tiled else (_tiles(device, group, shape), False)
    )
    backward = options.derivative == "backward"
    title = f"{options.derivative} derivative of {said}" if options.derivative else said
    spec = CallSpec(
        title=title,
        modules=_modules(source),
        function=_called(sig, spell),
        operands=tuple(trees[len(uniforms) : len(trees) - bool(result)]),
        result=trees[-1] if result else None,
        rank=len(merged.shape),
        index="int64_t" if wide_index else "uint",
        width=width,
        entry=entry,
        rows=rows,
        method=bool(sig.owner) and not sig.static,
        group=group,
        records=_records(leaves, spell),
        constants=(
            *_constants(str(sig), scope, options, spell),
            *((_DETERMINISTIC,) if device.deterministic and backward else ()),
        ),
        assigned=tuple((spell.own(name), trees[k]) for k, (name, _) in enumerate(uniforms)),
        derivative=options.derivative,
        hidden=spell.hidden,
    )
    if options.derivative and spec.walks:
        groups, spec = (min(-(-count // (width * prod(group))), most), 1, 1), replace(spec, rows=False)
    values: dict[str, Shape] = {"count": (count,), "row": (groups[0] * prod(group),), "shape": merged.shape}
    values["step"] = (groups[0] * prod(group) * width,)
    for f in facts.values():
        values |= f.fixed()
    return Description(spec, every, shape, groups, count, values)


def describe_dispatch(
    scope: Scope,
    entry: EntryPoint,
    arguments: tuple[Bound, ...],
    threads: tuple[int, ...],
    options: Options,
    uniforms: Uniforms,
) -> Description:
    """The kernel that calls a raw entry point with the thread's system values.

    Raises
    ------
    UnsupportedError
        If the device cannot run so many threads, or a parameter has another semantic.
    """
    device, target = scope.device, scope.device.backend.target
    shape = (*threads, 1, 1)[:3]
    x, y, z = (-(-n // size) for n, size in zip(shape, entry.group_size, strict=True))
    if any(n > limit for n, limit in zip((x, y, z), device.caps.max_groups, strict=True)) and target.entry != "range":
        raise UnsupportedError(f"{entry.name}: {threads} threads are more than {device.info} runs at once.")
    title = f"{entry.name} over threads in groups of {entry.group_size}"
    every = (*(b for _, b in uniforms), *arguments)
    leaves = [leaf for b in every for leaf in b.leaves]
    names, spell = _names(every), Spelling(title, scope.source)
    facts = [_Leaf(b, names[id(b)], ()) for b in leaves]
    # As of a call of two elements: an array of one is not walked, every thread reads the same element.
    operands = {id(f.bound): _operand(device, f, (2,), 3, title, spell) for f in facts}
    trees = [_tree(b, names, operands, spell) for b in every]
    given = iter(trees[len(uniforms) :])
    count = prod(entry.group_size) * x * y * z
    spec = CallSpec(
        title=title,
        modules=_modules(scope.source),
        function=spell.function(title, entry.name),
        operands=tuple(_system_value(entry, p, spell) if p.semantic else next(given) for p in entry.params),
        result=None,
        rank=3,
        index="int64_t" if target.entry == "range" else "uint",
        width=1,
        entry=target.entry,
        group=entry.group_size,
        raw=True,
        records=_records(leaves, spell),
        constants=_constants(title, scope, options, spell),
        assigned=tuple((spell.own(name), trees[k]) for k, (name, _) in enumerate(uniforms)),
        hidden=spell.hidden,
    )
    groups = (count, 1, 1) if target.entry == "range" else (x, y, z)
    values: dict[str, Shape] = {"count": (count,), "shape": (x, y, z)}
    for f in facts:
        values |= f.fixed()
    return Description(spec, every, (x, y, z), groups, count, values)


def _called(sig: FunctionSig, spell: Spelling) -> str:
    """What calls a function; a method is called of its object."""
    if not sig.owner:
        return spell.function(str(sig), sig.name, sig.returns.name)
    return spell.own(f"{sig.owner}.{sig.name}" if sig.static else sig.name)


def _system_value(entry: EntryPoint, param: Param, spell: Spelling) -> Operand:
    """What the API tells a thread about itself, as the parameter's type takes it."""
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
    return Operand(_identifier(param.name), spell.type(param.type), "", 0, "in", "computed", code=code)


class _Leaf:
    """A leaf with its name in the block and its strides along the merged call dimensions."""

    __slots__ = ("bound", "member", "strides")

    def __init__(self, bound: Bound, member: str, strides: Shape) -> None:
        self.bound = bound
        self.member = member
        self.strides = strides

    def fixed(self) -> dict[str, Shape]:
        """What follows from shapes, by name in the block."""
        if self.bound.mode == "tensor":
            unit = NUMPY_OF[self.bound.scalar].itemsize
            shape, strides = self.bound.view
            return {
                f"shape_{self.member}": shape,
                f"stride_{self.member}": tuple(s * unit for s in strides),
                f"step_{self.member}": self.strides,
            }
        return {f"stride_{self.member}": self.strides} if self.bound.mode == "array" else {}


def _operand(
    device: DeviceCore, leaf: _Leaf, shape: Shape, rank: int, where: str, spell: Spelling, aliased: bool = False
) -> Operand:
    host = device.backend.target.entry == "range"
    b, member = leaf.bound, leaf.member
    name, via = spell.type(b.type), b.scalar if b.type.kind == "enum" else b.via
    if b.generator is not None:
        scalars = b.generator.scalars()
        # No parameter's name begins with a digit.
        values = [Operand(f"{k}_{member}", s, s, 1, "in", "value") for k, s in enumerate(scalars)]
        text = b.generator.expression(
            f"{where}: argument '{b.name}'", b.type, [f"_spy_call.v_{v.name}" for v in values], rank, b.mapped
        )
        return Operand(member, name, "", 0, "in", "computed", code=text, parts=tuple(("", v) for v in values))
    # bool is stored in bytes, but travels by value as a word.
    scalar = "uint8_t" if b.scalar == "bool" and b.mode != "value" else b.scalar
    if b.mode != "array":
        if b.mode == "pointer":
            assert b.type.element is not None
            return Operand(member, name, spell.type(b.type.element), 1, b.access, "pointer")
        walked = "next" if b.mode == "tensor" and any(leaf.strides) else ""
        if b.mode == "tensor" and b.access in ("seed", "accumulate", "tangent"):
            if host and b.access == "accumulate" and not walked and _is_small(device, b):
                walked = "own"
            return Operand(member, name, scalar, b.count, b.access, "gradient", len(b.view[0]), walked)
        return Operand(member, name, scalar, b.count, b.access, b.mode, len(b.view[0]), walked, via)
    if not any(leaf.strides):
        mode = "constant" if prod(shape) > 1 else "linear"
    elif leaf.strides == contiguous(shape, b.count):
        mode = "linear"
    else:
        mode = "strided"
    access = adding(leaf.strides, shape, b.count, aliased) if b.access == "accumulate" else b.access
    return Operand(member, name, scalar, b.count, access, mode, via=via)


def _is_small(device: DeviceCore, b: Bound) -> bool:
    """Whether a range may have a copy of a whole gradient, which is to be zeroed and added up each time."""
    shape, strides = b.view
    dense = contiguous(shape, b.count * (spacing(b.scalar) if device.deterministic else 1))
    gaps = any(n != 1 and s != d for n, s, d in zip(shape, strides, dense, strict=True))
    return prod(shape) * b.count <= _MAX_OWN and not gaps


def spacing(scalar: str) -> int:
    """How many scalars the sum of a scalar takes on a deterministic device."""
    return EXACT_WORDS[scalar] * 8 // NUMPY_OF[scalar].itemsize


def adding(strides: Shape, shape: Shape, count: int, aliased: bool) -> str:
    """How threads add to a gradient: each to places of its own, all to one, or several to some."""
    moving = sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1)
    if moving and not any(s for s, _ in moving):
        return "sum"
    extent = count
    for s, n in moving:
        # Elements that begin before the ones inside end may overlap.
        if aliased or s < extent:
            return "scatter"
        extent += s * (n - 1)
    return "scatter" if aliased else "accumulate"


def _tree(b: Bound, names: dict[int, str], operands: dict[int, Operand], spell: Spelling) -> Operand:
    """The operand of an argument, put together from those of its leaves."""
    if b.mode != "parts":
        grads = [operands[id(g)] if g is not None else None for g in (b.grad_in, b.grad_out)]
        return replace(operands[id(b)], grad_in=grads[0], grad_out=grads[1]) if any(grads) else operands[id(b)]
    parts = tuple((place, _tree(part, names, operands, spell)) for place, part in b.parts)
    return Operand(names[id(b)], spell.type(b.type), "", 0, b.access, "parts", parts=parts)


def _names(every: Sequence[Bound]) -> dict[int, str]:
    """An identifier for each argument and each of its parts and gradients, of which no two are alike."""
    out: dict[int, str] = {}
    taken: set[str] = set()
    todo = list(every)
    # Parameters first: theirs stay as they are.
    for b in todo:
        name = _identifier(b.name)
        while name in taken:
            name += "_"
        taken.add(name)
        out[id(b)] = name
        todo += (*(part for _, part in b.parts), *b.gradients)
    return out


def _identifier(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else re.sub(r"\W+", "_", name)


def _records(leaves: Sequence[Bound], spell: Spelling) -> tuple[Record, ...]:
    """The structs that arrays hold, each once."""
    found = {b.record.name: b.record for b in leaves if b.record is not None and b.mode == "array"}
    return tuple(_record(type_, spell) for type_ in found.values())


def _record(type_: SlangType, spell: Spelling) -> Record:
    stored = storage(type_)
    assert stored is not None
    return Record(spell.type(type_), stored.dtype.itemsize, tuple(_record_fields(type_, stored.dtype, "", 0, spell)))


def _record_fields(
    type_: SlangType, dtype: np.dtype[Any], path: str, at: int, spell: Spelling
) -> Iterator[RecordField]:
    """Fields that are no structs, those of structs and of arrays of structs inside included."""
    if type_.kind == "struct":
        assert dtype.fields is not None
        for field in type_.fields:
            inner, offset = dtype.fields[field.name][:2]
            yield from _record_fields(field.type, inner, f"{path}.{field.name}", at + offset, spell)
    elif type_.kind == "array" and type_.element is not None and _item_record(type_):
        item, dims = dtype.subdtype or (dtype, ())
        inner = np.dtype((item, dims[1:])) if len(dims) > 1 else item
        for k in range(type_.shape[0]):
            yield from _record_fields(type_.element, inner, f"{path}[{k}]", at + k * inner.itemsize, spell)
    else:
        stored = storage(type_)
        assert stored is not None
        scalar = "uint8_t" if stored.scalar == "bool" else stored.scalar
        yield RecordField(path, spell.type(type_), scalar, scalar if type_.kind == "enum" else "", at)


def _item_record(type_: SlangType) -> bool:
    stored = storage(type_)
    return stored is not None and stored.record is not None


def _constants(where: str, scope: Scope, options: Options, spell: Spelling) -> tuple[str, ...]:
    """Link-time constants as text, in the types that the module declares them with."""
    lines = tuple(
        map(spell.own, export_constants(where, scope.source.info.constants, dict(options.constants)).values())
    )
    device = scope.device
    if "cooperative_matrix" in device.caps.features:
        lines += ("export static const bool _spy_cooperative = true;",)
    if device.backend.target.format != "spirv":
        return lines
    if "atomic_float" not in device.caps.features:
        lines += ("export static const bool _spy_float_atomics = false;",)
    if options.derivative == "backward" and device.caps.lanes in (8, 16, 32, 64):
        lines += (f"export static const uint _spy_lanes = {device.caps.lanes};",)
    return lines


def _modules(source: Source) -> tuple[str, ...]:
    """What the text imports besides our own library; of slangpy_rt the names that users write."""
    public = ("slangpy_rt",) if source.uses_library else ()
    return (*public, source.name, *(name for name in source.imports if name != "slangpy_rt"))


def _widen(
    device: DeviceCore, facts: dict[int, _Leaf], operands: dict[int, Operand], merged: Coalesced
) -> tuple[dict[int, Operand], int]:
    """The operands as threads that take several neighbours see them, and how many those are; 1 if impossible.

    Scalars move in pieces of up to 16 bytes where they are walked in order. Vectors do not: on an H200, four
    float3 a thread reach 3086 GB/s in 16-byte pieces, one float3 a thread 4090 in 4-byte ones. In a call of
    several dimensions neighbours lie in one row, so rows have to be multiples of their number, and so far apart.
    """
    if device.backend.target.entry == "range":
        return operands, 1
    scalars = [f.bound.scalar for f in facts.values() if f.bound.mode in ("array", "value")]
    width = 2 if any(NUMPY_OF[scalar].itemsize == 8 for scalar in scalars) else 4
    wide = {}
    for key, o in operands.items():
        b, strides = facts[key].bound, facts[key].strides
        in_order = o.mode == "linear"
        if o.mode == "strided":
            in_order = strides[-1] == 1 and all(s % width == 0 for s in strides[:-1])
            if merged.shape[-1] % width or not (in_order or strides[-1] == 0):
                return operands, 1
            o = replace(o, step="next" if in_order else "same")
        if o.mode in ("tensor", "gradient", "pointer", "computed"):
            return operands, 1
        if in_order and not (b.aligned and b.type.kind in ("scalar", "enum")):
            return operands, 1
        wide[key] = o
    some = any(o.mode == "linear" or o.step == "next" for o in wide.values())
    return (wide, width) if some else (operands, 1)


def _add_rows(
    device: DeviceCore, facts: dict[int, _Leaf], operands: dict[int, Operand], merged: Coalesced, slots: int
) -> tuple[dict[int, Operand], int]:
    """The operands with gradients that are added up by rows or columns of the call, and how many groups may walk.

    A column is added up by threads that walk whole rows: each takes elements that are a multiple of a row apart.
    """
    host = device.backend.target.entry == "range"
    # Groups for whole rows: of 64 elements, any number of groups of 1024; of 1000 elements, a multiple of 125.
    unit = max(merged.shape[-1], 1) // gcd(max(merged.shape[-1], 1), slots)
    most = max(_MAX_WALKING // unit, 1) * unit
    pays = not host and unit <= _MAX_WALKING and prod(merged.shape) > most * slots
    out = {}
    for key, o in operands.items():
        strides = facts[key].strides
        outer = [s for s, n in zip(strides[:-1], merged.shape, strict=False) if n > 1]
        if o.access == "scatter" and o.mode == "strided":
            if (pays or host) and not any(outer) and abs(strides[-1]) >= o.count:
                o = replace(o, access="column")
            elif host and strides[-1] == 0:
                o = replace(o, access="row")
        out[key] = o
    return out, most if any(o.access == "column" for o in out.values()) else _MAX_WALKING


def _reach(shape: Shape, strides: Shape) -> int:
    """The farthest scalar from the first, in either direction."""
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return max(sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0))


def _group(asked: tuple[int, ...], tiled: bool) -> tuple[int, ...]:
    """Threads of a group in x, y and z; the user counts as arrays do, the last dimension last."""
    if not asked:
        return (GROUP_SIZE,)
    return tuple(reversed(asked)) if tiled else (prod(asked),)


def _tiles(device: DeviceCore, group: tuple[int, ...], shape: Shape) -> tuple[int, int, int]:
    """A dispatch whose groups cover the call as tiles; dimensions beyond a group's are counted by its last."""
    n = len(group)
    sizes = [*reversed(shape[len(shape) - n + 1 :]), prod(shape[: len(shape) - n + 1])]
    groups = [-(-size // g) for size, g in zip(sizes, group, strict=True)]
    x, y, z = (*groups, 1, 1)[:3]
    if any(n > limit for n, limit in zip((x, y, z), device.caps.max_groups, strict=True)):
        raise UnsupportedError(f"a call of {prod(shape):,} threads is more than {device.info} runs at once in tiles.")
    return x, y, z


def _groups(device: DeviceCore, threads: int, size: int) -> tuple[tuple[int, int, int], bool]:
    """A dispatch of at least that many threads, and whether it runs in y as well."""
    if device.backend.target.entry == "range":
        return (threads, 1, 1), False
    limit = device.caps.max_groups
    needed = -(-threads // size)
    if needed <= limit[0]:
        return (needed, 1, 1), False
    y = -(-needed // limit[0])
    if y > limit[1]:
        raise UnsupportedError(f"a call of {threads:,} threads is more than {device.info} runs at once.")
    return (-(-needed // y), y, 1), True

"""From a call's arguments to a kernel that is ready to run.

``prepare`` is the slow path, once per combination of argument layouts: bind, broadcast, describe, emit, load.
``PreparedCall.run`` is the fast path: pack addresses and values, launch. It does no reflection, no string
work and no import.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from slangpy_rt_codegen import (
    GROUP_SIZE,
    CallSpec,
    Operand,
    Record,
    RecordField,
    block_fields,
    emit,
)  # fmt: skip
from slangpy_rt_codegen.layout import BlockField

from slangpy_rt.backends.base import Buffer, Kernel, KernelInfo
from slangpy_rt.binding import Bound, bind_result, result_kind
from slangpy_rt.broadcast import Coalesced, Shape, align, broadcast, coalesce, contiguous
from slangpy_rt.diagnostics import Launch, Launcher
from slangpy_rt.dtypes import NUMPY_OF, source_name, storage
from slangpy_rt.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.feeds import ArrayFeed
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.options import NO_OPTIONS, Options
from slangpy_rt.records import to_python
from slangpy_rt.scope import Scope
from slangpy_rt.source import export_constants
from slangpy_rt.tensor import Tensor
from slangpy_rt.types import EntryPoint, FunctionSig, LayoutField, Param, SlangType

if TYPE_CHECKING:
    from slangpy_rt.device import Device

_MAX_32 = 2**31 - 1
_RESULTS: dict[Any, str] = {
    "numpy": "numpy", "tensor": "tensor", "ndbuffer": "ndbuffer",
    np.ndarray: "numpy", Tensor: "tensor", NDBuffer: "ndbuffer",
}  # fmt: skip


class PreparedCall:
    """A kernel with everything that follows from the arguments' layouts.

    Attributes
    ----------
    spec : CallSpec
        What the kernel does.
    text : str
        Its Slang text.
    bound : tuple of Bound
        The arguments, then the result if there is one.
    shape : tuple of int
        The call's shape before dimensions were merged.
    """

    __slots__ = (
        "_alloc", "_device", "_feeds", "_finishes", "_groups", "_into", "_kernel", "_launch", "_make", "_order",
        "_pack", "_plain", "_prefix", "_result", "_straight", "_unwrap", "bound", "shape", "spec", "text",
    )  # fmt: skip

    def __init__(
        self,
        device: Device,
        spec: CallSpec,
        text: str,
        bound: tuple[Bound, ...],
        shape: Shape,
        kernel: Kernel | None,
        groups: tuple[int, int, int],
        prefix: bytes,
        pack: Callable[..., bytes],
        order: tuple[int, ...],
        result: Result,
        launch: Launch,
    ) -> None:
        self.spec = spec
        self.text = text
        self.bound = bound
        self.shape = shape
        self._device = device
        self._kernel: Any = kernel
        self._groups = groups
        self._prefix = prefix
        self._pack = pack
        self._order = order
        self._feeds = tuple(b.feed for b in bound)
        # The feeds' values stand in their order, but for a result that is made.
        self._straight = order == tuple(range(len(order))) and not result.named
        # Only arrays, in the order of the parameters: their addresses are all that a call has to pack.
        self._plain = kernel is not None and all(type(feed) is ArrayFeed for feed in self._feeds) and self._straight
        ends = list(accumulate(feed.buffers for feed in self._feeds))
        self._finishes = tuple(
            (k, feed, ends[k] - feed.buffers, ends[k]) for k, feed in enumerate(self._feeds) if feed.returns
        )
        self._into = result.into
        self._launch = launch
        self._alloc = device.backend.alloc
        self._result = result.layout
        self._make = result.make
        self._unwrap = result.unwrap

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on arguments of the signature it was prepared for, on a device that is open.

        Parameters
        ----------
        values : tuple
            Positional values, keyword values, and then ``_result`` if one was given.
        """
        if not self._plain:
            return self._run_any(values)
        out = None
        layout = self._result
        if layout is not None:
            buffer = self._alloc(layout.nbytes)
            kind = layout.kind
            out = kind.__new__(kind)
            out.layout = layout
            out.buffer = buffer
            out.address = buffer.address
            values = (*values, out)
        elif self._into:
            out = values[-1]
        self._launch(
            self._kernel,
            self._groups,
            self._prefix + self._pack(*[a.address for a in values]),
            [a.buffer for a in values],
        )
        return out

    def bound_to(self, values: tuple[Any, ...]) -> Callable[[], Any]:
        """This call on these arguments, packed once where no data has to be moved for it."""
        if not self._plain or self._result is not None:

            def run() -> Any:
                self._device.check_open()
                return self.run(values)

            return run
        device, launch, kernel, groups = self._device, self._launch, self._kernel, self._groups
        args = self._prefix + self._pack(*[a.address for a in values])
        buffers = [a.buffer for a in values]
        out = values[-1] if self._into else None

        def replay() -> Any:
            if device.closed:
                device.check_open()
            launch(kernel, groups, args, buffers)
            return out

        return replay

    def _run_any(self, values: tuple[Any, ...]) -> Any:
        out = values[-1] if self._into else self._make() if self._make is not None else None
        if self._kernel is not None:
            if not self._straight:
                values = (*[values[k] for k in self._order], out)
            elif self._make is not None:
                values = (*values, out)
            block: list[Any] = []
            buffers: list[Buffer] = []
            for feed, value in zip(self._feeds, values, strict=False):
                feed.feed(value, block, buffers)
            self._launch(self._kernel, self._groups, self._prefix + self._packed(block), buffers)
            for k, feed, first, end in self._finishes:
                feed.finish(values[k], buffers[first:end])
        return self._unwrap(out) if self._unwrap is not None else out

    def _packed(self, block: list[Any]) -> bytes:
        try:
            return self._pack(*block)
        except (struct.error, OverflowError) as error:
            raise BindError(f"{self.spec.title}: a value does not fit its parameter ({error}).") from None


class Result:
    """How a call returns: into an array that was given, as a new array of a layout or of the host, or as a number.

    ``named`` says that ``_result`` was given and is no array but the kind of one.
    """

    __slots__ = ("bound", "into", "layout", "make", "named", "unwrap")

    def __init__(
        self,
        bound: Bound | None = None,
        layout: Any = None,
        make: Callable[[], Any] | None = None,
        unwrap: Callable[[Any], Any] | None = None,
        into: bool = False,
        named: bool = False,
    ) -> None:
        self.bound = bound
        self.layout = layout
        self.make = make
        self.unwrap = unwrap
        self.into = into
        self.named = named


def prepare(
    scope: Scope,
    sig: FunctionSig,
    arguments: tuple[Bound, ...],
    order: tuple[int, ...],
    result: Any,
    options: Options = NO_OPTIONS,
    uniforms: tuple[tuple[str, Bound], ...] = (),
) -> PreparedCall:
    """Build the call of one overload, its arguments bound.

    Parameters
    ----------
    order : tuple of int
        For each of ``uniforms`` and then each of ``arguments``, the place of its value among the call's.
    result : object
        What the user gave as ``_result``, or None.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
    """
    where = str(sig)
    if sig.returns.kind == "void" and result is not None:
        raise BindError(f"{where} returns nothing; leave _result out.")
    given = result is not None and not _is_result_kind(result)
    how = options.map_of("_result", -1, 0)
    target = bind_result(f"{where}: _result", scope, sig.returns, result, how) if given else None
    every = [leaf for b in arguments for leaf in b.leaves] + ([target] if target else [])
    rank = max(
        (max((d + 1 for d in b.mapped), default=0) if b.mapped is not None else len(b.shape) for b in every),
        default=0,
    )
    spread = [_spread(b, rank) for b in every]
    shape = broadcast(
        where, [(b.name, s) for b, s in zip(every, spread, strict=True) if b.mode in ("array", "computed")]
    )
    _check_strict(where, scope, every, shape)
    outcome = (
        Result(target, into=True)
        if target
        else _result(where, scope, sig, arguments, result or options.returns, shape, result is not None)
    )
    bound = (*arguments, outcome.bound) if outcome.bound else arguments
    _check_written(where, [leaf for b in bound for leaf in b.leaves], shape)
    return _build(scope, sig, bound, outcome, shape, order, options, uniforms)


def prepare_dispatch(
    scope: Scope,
    entry: EntryPoint,
    arguments: tuple[Bound, ...],
    order: tuple[int, ...],
    threads: tuple[int, ...],
    options: Options,
    uniforms: tuple[tuple[str, Bound], ...],
) -> PreparedCall:
    """Build the dispatch of a raw entry point: a kernel that calls it with the thread's system values.

    Raises
    ------
    UnsupportedError, CompileError
    """
    device, target = scope.device, scope.device.backend.target
    shape = (*threads, 1, 1)[:3]
    x, y, z = (-(-n // size) for n, size in zip(shape, entry.group_size, strict=True))
    if any(n > limit for n, limit in zip((x, y, z), device.caps.max_groups, strict=True)) and target.entry != "range":
        raise UnsupportedError(f"{entry.name}: {threads} threads are more than {device.info} runs at once.")
    title = f"{entry.name} over threads in groups of {entry.group_size}"
    every = (*(b for _, b in uniforms), *arguments)
    leaves = [leaf for b in every for leaf in b.leaves]
    facts = [_Leaf(b, name, ()) for b, name in zip(leaves, _members([b.name for b in leaves]), strict=True)]
    operands = {id(f.bound): _operand(f, (1,), 3, title) for f in facts}
    trees = [_tree(b, _identifier(b.name), operands) for b in every]
    given = iter(trees[len(uniforms) :])
    count = prod(entry.group_size) * x * y * z
    spec = CallSpec(
        title=title,
        modules=(scope.source.name,),
        function=entry.name,
        operands=tuple(_system_value(entry, p) if p.semantic else next(given) for p in entry.params),
        result=None,
        rank=3,
        index="int64_t" if target.entry == "range" else "uint",
        width=1,
        entry=target.entry,
        group=entry.group_size,
        raw=True,
        records=_records(leaves),
        constants=_constants(title, scope, options),
        assigned=tuple((name, trees[k]) for k, (name, _) in enumerate(uniforms)),
    )
    groups = (count, 1, 1) if target.entry == "range" else (x, y, z)
    values: dict[str, Shape] = {"count": (count,), "shape": (x, y, z)}
    for f in facts:
        values |= f.fixed()
    return _finish(scope, spec, every, (x, y, z), groups, count, values, order, Result(), options)


def _system_value(entry: EntryPoint, param: Param) -> Operand:
    """What the API tells a thread about itself, as the parameter's type takes it."""
    vectors = {"SV_DispatchThreadID": "thread", "SV_GroupThreadID": "local", "SV_GroupID": "group"}
    x, y, _ = entry.group_size
    if param.semantic == "SV_GroupIndex":
        code = f"{param.type.name}((local.z * {y} + local.y) * {x} + local.x)"
    elif param.semantic in vectors:
        code = f"{param.type.name}({vectors[param.semantic]}.{'xyz'[: (param.type.shape or (1,))[0]]})"
    else:
        raise UnsupportedError(
            f"{entry.name}: parameter '{param.name}' has the semantic {param.semantic}; "
            f"{', '.join((*vectors, 'SV_GroupIndex'))} are supported."
        )
    return Operand(_identifier(param.name), source_name(param.type), "", 0, "in", "computed", code=code)


def _is_result_kind(result: Any) -> bool:
    return isinstance(result, (str, type)) and result in _RESULTS


def _result(
    where: str,
    scope: Scope,
    sig: FunctionSig,
    arguments: tuple[Bound, ...],
    asked: Any,
    shape: Shape,
    named: bool,
) -> Result:
    """The result that the arguments, or the user, ask for; ``named`` if it is among the call's values."""
    if sig.returns.kind == "void":
        return Result()
    device, returns = scope.device, scope.struct(sig.returns)
    stored = storage(returns)
    if stored is None:
        raise UnsupportedError(f"{where}: results of type '{returns.name}' are not supported.")
    kind = _RESULTS.get(asked) if asked is not None else None
    if asked is not None and kind is None:
        raise BindError(f"{where}: _result={asked!r} is not one of 'numpy', 'tensor', 'ndbuffer'.")
    kind = kind or result_kind(arguments)
    if not kind and shape:
        kind = "numpy" if any(leaf.mode == "array" for b in arguments for leaf in b.leaves) else "tensor"
    if kind in ("tensor", "ndbuffer"):
        layout = device.layout(Tensor if kind == "tensor" else NDBuffer, returns, shape)
        sample: Any = _make_array(layout)

        def make() -> Any:
            return _make_array(layout)

        bound = bind_result(where, scope, returns, sample)
        return Result(bound, layout, make, named=named)
    dtype, full = stored.dtype, shape + stored.dims

    def make_host() -> Any:
        return device.host_array(full, dtype)

    bound = bind_result(where, scope, returns, make_host())
    return Result(bound, None, make_host, None if kind == "numpy" else to_python, named=named)


def _make_array(layout: Any) -> Any:
    buffer = layout.device.alloc(layout.nbytes)
    return layout.kind.of(layout, buffer, buffer.address)


def _spread(b: Bound, rank: int) -> Shape:
    """An argument's dimensions as the call counts them: its own, or laid out as the user's map says."""
    if b.mapped is None:
        return b.shape
    out = [1] * rank
    for size, d in zip(b.shape, b.mapped, strict=True):
        if out[d] not in (1, size):
            raise ShapeError(
                f"'{b.name}' of shape {b.shape} is mapped by {b.mapped}: dimension {d} is both {out[d]} and {size}."
            )
        out[d] = size if size != 1 else out[d]
    return tuple(out)


def _strides(b: Bound, shape: Shape) -> Shape:
    """Its strides along each call dimension, 0 where it is broadcast."""
    if b.mapped is None:
        return align(b.shape, b.strides, shape)
    out = [0] * len(shape)
    for size, stride, d in zip(b.shape, b.strides, b.mapped, strict=True):
        out[d] += stride if size != 1 else 0
    return tuple(out)


def _check_strict(where: str, scope: Scope, leaves: Sequence[Bound], shape: Shape) -> None:
    if not scope.strict:
        return
    for b in leaves:
        if b.mode == "array" and b.mapped is None and b.shape and b.shape != shape:
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} would be broadcast to {shape}, which strict_broadcasting "
                f"refuses; say how with .map({b.name}=...)."
            )


def _check_written(where: str, leaves: Sequence[Bound], shape: Shape) -> None:
    """Refuse outputs that several elements of the call would write to."""
    for b in leaves:
        if b.access == "in" or b.mode != "array":
            continue
        if _spread(b, len(shape)) != shape:
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} is written by a call of shape {shape}; "
                "elements would overwrite each other. Give it the call's shape."
            )
        # Nothing overlaps in an empty array, to which NumPy gives strides of 0.
        if 0 not in shape and any(n > 1 and stride == 0 for n, stride in zip(shape, _strides(b, shape), strict=True)):
            raise ShapeError(f"{where}: '{b.name}' is a broadcast view and would be written to; copy it first.")


def _build(
    scope: Scope,
    sig: FunctionSig,
    bound: tuple[Bound, ...],
    outcome: Result,
    shape: Shape,
    order: tuple[int, ...],
    options: Options,
    uniforms: tuple[tuple[str, Bound], ...],
) -> PreparedCall:
    device, source = scope.device, scope.source
    every = (*(b for _, b in uniforms), *bound)
    leaves = [leaf for b in every for leaf in b.leaves]
    names = _members([leaf.name for leaf in leaves])
    arrays = [b for b in leaves if b.mode == "array"]
    strides = [_strides(b, shape) for b in arrays]
    tiled = len(options.group) > 1 and device.backend.target.entry != "range"
    if tiled and len(options.group) > len(shape):
        raise BindError(
            f"{sig}: group_size {options.group} counts {len(options.group)} dimensions; the call has shape {shape}."
        )
    if tiled or any(b.generator is not None and b.generator.indexed for b in leaves):
        merged = Coalesced(shape or (1,), tuple(s or (0,) for s in strides))
    else:
        merged = coalesce(shape, strides)
    per_array = dict(zip((id(b) for b in arrays), merged.strides, strict=True))
    facts = {id(b): _Leaf(b, names[k], per_array.get(id(b), ())) for k, b in enumerate(leaves)}
    operands = {
        id(b): _operand(f, merged.shape, len(shape), str(sig)) for b, f in zip(leaves, facts.values(), strict=True)
    }
    operands, width = (operands, 1) if tiled else _widen(device, facts, operands, merged)
    trees = [_tree(b, names_of, operands) for b, names_of in zip(every, _roots(every, names), strict=True)]
    count = prod(shape)
    reach = max([count, *(_reach(merged.shape, s) for s in merged.strides)])
    entry = device.backend.target.entry
    wide_index = entry == "range" or reach > _MAX_32
    group = _group(options.group, tiled) if entry != "range" else (GROUP_SIZE,)
    groups, rows = (
        _groups(device, -(-count // width), prod(group)) if not tiled else (_tiles(device, group, shape), False)
    )
    globals_ = len(uniforms)
    spec = CallSpec(
        title=str(sig),
        modules=(source.name,),
        function=f"{sig.owner}.{sig.name}" if sig.owner and sig.static else sig.name,
        operands=tuple(trees[globals_ : len(trees) - bool(outcome.bound)]),
        result=trees[-1] if outcome.bound else None,
        rank=len(merged.shape),
        index="int64_t" if wide_index else "uint",
        width=width,
        entry=entry,
        rows=rows,
        method=bool(sig.owner) and not sig.static,
        group=group,
        records=_records(leaves),
        constants=_constants(str(sig), scope, options),
        assigned=tuple((name, trees[k]) for k, (name, _) in enumerate(uniforms)),
    )
    values: dict[str, Shape] = {"count": (count,), "row": (groups[0] * prod(group),), "shape": merged.shape}
    for f in facts.values():
        values |= f.fixed()
    return _finish(scope, spec, every, shape, groups, count, values, order, outcome, options)


def _finish(
    scope: Scope,
    spec: CallSpec,
    every: tuple[Bound, ...],
    shape: Shape,
    groups: tuple[int, int, int],
    count: int,
    values: dict[str, Shape],
    order: tuple[int, ...],
    outcome: Result,
    options: Options,
) -> PreparedCall:
    """Emit, load, and put together what a call needs; without elements there is nothing to load."""
    device = scope.device
    spec, reports = _reporting(scope, spec)
    fields = block_fields(spec)
    text = emit(spec)
    kernel = None
    if count:
        leaves = [leaf for b in every for leaf in b.leaves]
        x, y, z = (*spec.group, 1, 1)[:3]
        info = KernelInfo(
            "run" if spec.entry == "range" else "kernel",
            (1, 1, 1) if spec.entry == "range" else (x, y, z),
            fields[-1].offset + fields[-1].size,
            tuple(b.access != "in" for b in leaves if b.feed.buffers) + ((True,) if reports else ()),
        )
        block = tuple(LayoutField(f.name, f.offset, f.size) for f in fields)
        kernel = device.kernel(scope.source, text, spec.title, info, block, options.conformances)
    prefix, pack, launch = _prefix(fields, values), _packer(fields), device.launch
    if reports:
        pack = partial(pack, device.diagnostics.buffer.address)
        checked = _checked(device, spec, fields, every)
        # What a kernel does in the host's own memory nobody has to wait for.
        wait = "zero_copy" in device.caps.features
        launch = Launcher(device.diagnostics, device.launch, spec.title, checked, wait)
    return PreparedCall(device, spec, text, every, shape, kernel, groups, prefix, pack, order, outcome, launch)


def _reporting(scope: Scope, spec: CallSpec) -> tuple[CallSpec, bool]:
    """The kernel with the device's buffer for diagnostics as its first pointer, if it may print or has to check."""
    checks = scope.device.debug and any(o.mode == "tensor" for o in spec.leaves)
    if not checks and not scope.source.prints:
        return spec, False
    buffer = ("diagnosticsBuffer", Operand("_diagnostics", "uint *", "uint", 1, "inout", "pointer"))
    constants = (*spec.constants, "export static const bool slangpy_rt_checks = true;") if checks else spec.constants
    return replace(spec, assigned=(buffer, *spec.assigned), constants=constants), True


def _checked(
    device: Device, spec: CallSpec, fields: tuple[BlockField, ...], every: tuple[Bound, ...]
) -> tuple[tuple[str, Shape, int], ...]:
    """The arrays whose accesses the kernel checks: name, shape, and where in the block the address is."""
    offsets = {f.name: f.offset for f in fields}
    views = [offsets[o.name] for o in spec.leaves if o.mode == "tensor"] if device.debug else []
    bound = [leaf for b in every for leaf in b.leaves if leaf.mode == "tensor"] if device.debug else []
    return tuple((b.name, b.shape, at) for b, at in zip(bound, views, strict=True))


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
            return {
                f"{self.member}_shape": self.bound.shape,
                f"{self.member}_stride": tuple(s * unit for s in self.bound.strides),
            }
        return {f"{self.member}_stride": self.strides} if self.bound.mode == "array" else {}


def _operand(leaf: _Leaf, shape: Shape, rank: int, where: str) -> Operand:
    b, member = leaf.bound, leaf.member
    name, via = source_name(b.type), b.scalar if b.type.kind == "enum" else ""
    if b.generator is not None:
        scalars = b.generator.scalars()
        values = [Operand(f"{member}_{k}", s, s, 1, "in", "value") for k, s in enumerate(scalars)]
        text = b.generator.expression(
            f"{where}: argument '{b.name}'", b.type, [f"call.{v.name}" for v in values], rank, b.mapped
        )
        return Operand(member, name, "", 0, "in", "computed", code=text, parts=tuple(("", v) for v in values))
    # bool is stored in bytes, but travels by value as a word.
    scalar = "uint8_t" if b.scalar == "bool" and b.mode != "value" else b.scalar
    if b.mode != "array":
        if b.mode == "pointer":
            assert b.type.element is not None
            return Operand(member, name, source_name(b.type.element), 1, b.access, "pointer")
        return Operand(member, name, scalar, b.count, b.access, b.mode, len(b.shape), via=via)
    if not any(leaf.strides):
        mode = "constant" if prod(shape) > 1 else "linear"
    elif leaf.strides == contiguous(shape, b.count):
        mode = "linear"
    else:
        mode = "strided"
    return Operand(member, name, scalar, b.count, b.access, mode, via=via)


def _tree(b: Bound, member: str, operands: dict[int, Operand]) -> Operand:
    """The operand of an argument, put together from those of its leaves."""
    if b.mode != "parts":
        return operands[id(b)]
    parts = tuple((place, _tree(part, "", operands)) for place, part in b.parts)
    return Operand(member, source_name(b.type), "", 0, b.access, "parts", parts=parts)


def _roots(every: Sequence[Bound], taken: Sequence[str]) -> list[str]:
    """Names of the local variables of arguments that are made of parts."""
    return [_identifier(b.name) for b in every]


def _members(names: Sequence[str]) -> list[str]:
    """Names in the argument block: parameters', kept apart from each other and from the block's own."""
    out: list[str] = []
    for name in names:
        member = _identifier(name)
        if member in ("count", "row", "shape", "this") or re.search(r"_(shape|stride|\d+)?$", member):
            member += "_"
        while member in out:
            member += "_"
        out.append(member)
    return out


def _identifier(name: str) -> str:
    return re.sub(r"\W+", "_", name)


def _records(leaves: Sequence[Bound]) -> tuple[Record, ...]:
    """The structs that arrays hold, each once."""
    found = {b.record.name: b.record for b in leaves if b.record is not None and b.mode == "array"}
    return tuple(_record(type_) for type_ in found.values())


def _record(type_: SlangType) -> Record:
    stored = storage(type_)
    assert stored is not None
    return Record(type_.name, stored.dtype.itemsize, tuple(_record_fields(type_, stored.dtype, "", 0)))


def _record_fields(type_: SlangType, dtype: np.dtype[Any], path: str, at: int) -> Iterator[RecordField]:
    """Fields that are no structs, those of structs and of arrays of structs inside included."""
    if type_.kind == "struct":
        assert dtype.fields is not None
        for field in type_.fields:
            inner, offset = dtype.fields[field.name][:2]
            yield from _record_fields(field.type, inner, f"{path}.{field.name}", at + offset)
    elif type_.kind == "array" and type_.element is not None and _item_record(type_):
        item, dims = dtype.subdtype or (dtype, ())
        inner = np.dtype((item, dims[1:])) if len(dims) > 1 else item
        for k in range(type_.shape[0]):
            yield from _record_fields(type_.element, inner, f"{path}[{k}]", at + k * inner.itemsize)
    else:
        stored = storage(type_)
        assert stored is not None
        scalar = "uint8_t" if stored.scalar == "bool" else stored.scalar
        yield RecordField(path, source_name(type_), scalar, scalar if type_.kind == "enum" else "", at)


def _item_record(type_: SlangType) -> bool:
    stored = storage(type_)
    return stored is not None and stored.record is not None


def _constants(where: str, scope: Scope, options: Options) -> tuple[str, ...]:
    """Link-time constants as text, in the types that the module declares them with."""
    return tuple(export_constants(where, scope.source.info.constants, dict(options.constants)).values())


def _widen(
    device: Device, facts: dict[int, _Leaf], operands: dict[int, Operand], merged: Coalesced
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
        if o.mode in ("tensor", "pointer", "computed"):
            return operands, 1
        if in_order and not (b.aligned and b.type.kind in ("scalar", "enum")):
            return operands, 1
        wide[key] = o
    some = any(o.mode == "linear" or o.step == "next" for o in wide.values())
    return (wide, width) if some else (operands, 1)


def _reach(shape: Shape, strides: Shape) -> int:
    """The farthest scalar from the first, in either direction."""
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return max(sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0))


def _group(asked: tuple[int, ...], tiled: bool) -> tuple[int, ...]:
    """Threads of a group in x, y and z; the user counts as arrays do, the last dimension last."""
    if not asked:
        return (GROUP_SIZE,)
    return tuple(reversed(asked)) if tiled else (prod(asked),)


def _tiles(device: Device, group: tuple[int, ...], shape: Shape) -> tuple[int, int, int]:
    """A dispatch whose groups cover the call as tiles; dimensions beyond a group's are counted by its last."""
    n = len(group)
    sizes = [*reversed(shape[len(shape) - n + 1 :]), prod(shape[: len(shape) - n + 1])]
    groups = [-(-size // g) for size, g in zip(sizes, group, strict=True)]
    x, y, z = (*groups, 1, 1)[:3]
    if any(n > limit for n, limit in zip((x, y, z), device.caps.max_groups, strict=True)):
        raise UnsupportedError(f"a call of {prod(shape):,} threads is more than {device.info} runs at once in tiles.")
    return x, y, z


def _groups(device: Device, threads: int, size: int) -> tuple[tuple[int, int, int], bool]:
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


def _prefix(fields: tuple[BlockField, ...], values: dict[str, tuple[int, ...]]) -> bytes:
    """The bytes of the block that follow from shapes, up to where the call's own begin."""
    fixed = [f for f in fields if f.fixed]
    end = next((f.offset for f in fields if not f.fixed), fixed[-1].offset + fixed[-1].size)
    out = bytearray(end)
    for f in fixed:
        struct.pack_into(f"<{f.code}", out, f.offset, *values[f.name])
    return bytes(out)


def _packer(fields: tuple[BlockField, ...]) -> Callable[..., bytes]:
    """Packs what each call brings: pointers and values."""
    moving = [f for f in fields if not f.fixed]
    code, at = "<", moving[0].offset if moving else 0
    for f in moving:
        code += f"{f.offset - at}x{f.code}"
        at = f.offset + f.size
    return struct.Struct(code).pack

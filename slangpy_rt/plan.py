"""From a call's arguments to a kernel that is ready to run.

``prepare`` is the slow path, once per combination of argument layouts: bind, broadcast, describe, emit, load.
``PreparedCall.run`` is the fast path: pack addresses and values, launch. It does no reflection, no string
work and no import.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from slangpy_rt_codegen import GROUP_SIZE, CallSpec, Operand, block_fields, emit
from slangpy_rt_codegen.layout import BlockField

from slangpy_rt.args import ArrayFeed, Bound, bind, bind_result, call_id
from slangpy_rt.backends.base import Buffer, Kernel, KernelInfo
from slangpy_rt.broadcast import Coalesced, Shape, align, broadcast, coalesce, contiguous
from slangpy_rt.dtypes import NUMPY_OF, flatten
from slangpy_rt.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.ndbuffer import NDBuffer
from slangpy_rt.tensor import Tensor
from slangpy_rt.types import FunctionSig, LayoutField

if TYPE_CHECKING:
    from slangpy_rt.device import Device
    from slangpy_rt.source import Source

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
        "_alloc", "_device", "_feeds", "_groups", "_into", "_kernel", "_launch", "_make", "_order", "_pack", "_plain",
        "_prefix", "_result", "_unwrap", "bound", "shape", "spec", "text",
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
        # Only arrays, in the order of the parameters: their addresses are all that a call has to pack.
        self._plain = (
            kernel is not None
            and all(type(feed) is ArrayFeed for feed in self._feeds)
            and order == tuple(range(len(order)))
            and not result.named
        )
        self._into = result.into
        self._launch = device.launch
        self._alloc = device.backend.alloc
        self._result = result.layout
        self._make = result.make
        self._unwrap = result.unwrap

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on arguments of the signature it was prepared for.

        Parameters
        ----------
        values : tuple
            Positional values, keyword values, and then ``_result`` if one was given.
        """
        if self._device.closed:
            self._device.check_open()
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

    def _run_any(self, values: tuple[Any, ...]) -> Any:
        out = values[-1] if self._into else self._make() if self._make is not None else None
        if self._kernel is not None:
            block: list[Any] = []
            buffers: list[Buffer] = []
            fed = []
            for feed, value in zip(self._feeds, (*[values[k] for k in self._order], out), strict=False):
                before = len(buffers)
                feed.feed(value, block, buffers)
                if len(buffers) > before:
                    fed.append((feed, value, buffers[-1]))
            self._launch(self._kernel, self._groups, self._prefix + self._packed(block), buffers)
            for feed, value, buffer in fed:
                feed.finish(value, buffer)
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
    device: Device,
    source: Source,
    sig: FunctionSig,
    args: Sequence[Any],
    names: Sequence[str],
    result: Any,
) -> PreparedCall:
    """Build the call of one overload.

    Parameters
    ----------
    args : sequence
        Positional values and then keyword values, whose names are ``names``.
    result : object
        What the user gave as ``_result``, or None.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
    """
    where = str(sig)
    if any(p.name == "_result" for p in sig.params):
        raise BindError(f"{where}: a parameter named '_result' cannot be passed; that keyword names the result.")
    order = _match(where, sig, len(args) - len(names), names)
    arguments = tuple(
        bind(f"{where}: argument '{p.name}'", device, p, args[k]) for p, k in zip(sig.params, order, strict=False)
    )
    if sig.returns.kind == "void" and result is not None:
        raise BindError(f"{where} returns nothing; leave _result out.")
    given = result is not None and not _is_result_kind(result)
    target = bind_result(f"{where}: _result", device, sig.returns, result) if given else None
    everything = (*arguments, target) if target else arguments
    shape = broadcast(where, [(b.name, b.shape) for b in everything if b.mode in ("array", "index")])
    _check_index(where, args, order, sig, shape)
    outcome = Result(target, into=True) if target else _result(where, device, sig, arguments, result, shape)
    bound = (*arguments, outcome.bound) if outcome.bound else arguments
    _check_written(where, bound, shape)
    return _build(device, source, sig, bound, outcome, shape, order)


def _match(where: str, sig: FunctionSig, positional: int, names: Sequence[str]) -> tuple[int, ...]:
    """For each parameter that was given, the place of its value among the arguments."""
    params = [p.name for p in sig.params]
    if positional > len(params):
        raise BindError(f"{where}: {positional} positional arguments were given; it takes {len(params)}.")
    places = dict(zip(params, range(positional), strict=False))
    for k, name in enumerate(names, positional):
        if name not in params:
            raise BindError(f"{where}: there is no parameter '{name}'; it has {', '.join(params) or 'none'}.")
        if name in places:
            raise BindError(f"{where}: argument '{name}' was given twice, by position and by name.")
        places[name] = k
    missing = [p.name for p in sig.params if p.name not in places]
    needed = [p.name for p in sig.params if p.name not in places and not p.has_default]
    # Slang fills in defaults from the right only.
    if needed or missing != params[len(params) - len(missing) :]:
        raise BindError(f"{where}: argument{'s' if len(missing) > 1 else ''} {', '.join(missing)} missing.")
    return tuple(places[name] for name in params[: len(params) - len(missing)])


def _is_result_kind(result: Any) -> bool:
    return isinstance(result, (str, type)) and result in _RESULTS


def _result(
    where: str, device: Device, sig: FunctionSig, arguments: tuple[Bound, ...], asked: Any, shape: Shape
) -> Result:
    """The result that the arguments, or the user, ask for."""
    if sig.returns.kind == "void":
        return Result()
    flat = flatten(sig.returns)
    if flat is None:
        raise UnsupportedError(f"{where}: results of type '{sig.returns.name}' are not supported.")
    hosts = {b.host for b in arguments}
    kind = _RESULTS.get(asked) if asked is not None else None
    if asked is not None and kind is None:
        raise BindError(f"{where}: _result={asked!r} is not one of 'numpy', 'tensor', 'ndbuffer'.")
    kind = kind or next((k for k in ("tensor", "ndbuffer", "numpy") if k in hosts), "")
    if not kind and shape:
        kind = "numpy" if any(b.mode == "array" for b in arguments) else "tensor"
    if kind in ("tensor", "ndbuffer"):
        layout = device.layout(Tensor if kind == "tensor" else NDBuffer, sig.returns, shape)
        sample: Any = _make_array(layout)

        def make() -> Any:
            return _make_array(layout)

        bound = bind_result(where, device, sig.returns, sample)
        return Result(bound, layout, make, named=asked is not None)
    dtype = NUMPY_OF[flat[0]]
    full = shape + flat[1]

    def make_host() -> Any:
        return device.host_array(full, dtype)

    bound = bind_result(where, device, sig.returns, make_host())
    unwrap = None if kind == "numpy" else _python_value
    return Result(bound, None, make_host, unwrap, named=asked is not None)


def _make_array(layout: Any) -> Any:
    buffer = layout.device.alloc(layout.nbytes)
    return layout.kind.of(layout, buffer, buffer.address)


def _python_value(array: Any) -> Any:
    """A scalar as a Python number; a vector or matrix stays an array."""
    return array.item() if array.ndim == 0 else array


def _check_index(where: str, args: Sequence[Any], order: tuple[int, ...], sig: FunctionSig, shape: Shape) -> None:
    for p, k in zip(sig.params, order, strict=False):
        if isinstance(args[k], call_id):
            rank = p.type.shape[0] if p.type.kind == "vector" else 1
            if rank != len(shape):
                raise BindError(
                    f"{where}: argument '{p.name}' is call_id() for '{p.type.name}', which counts {rank} "
                    f"dimensions; the call has shape {shape}."
                )


def _check_written(where: str, bound: tuple[Bound, ...], shape: Shape) -> None:
    """Refuse outputs that several elements of the call would write to."""
    for b in bound:
        if b.access == "in" or b.mode != "array":
            continue
        if b.shape != shape:
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} is written by a call of shape {shape}; "
                "elements would overwrite each other. Give it the call's shape."
            )
        # Nothing overlaps in an empty array, to which NumPy gives strides of 0.
        if 0 not in shape and any(n > 1 and stride == 0 for n, stride in zip(b.shape, b.strides, strict=True)):
            raise ShapeError(f"{where}: '{b.name}' is a broadcast view and would be written to; copy it first.")


def _build(
    device: Device,
    source: Source,
    sig: FunctionSig,
    bound: tuple[Bound, ...],
    outcome: Result,
    shape: Shape,
    order: tuple[int, ...],
) -> PreparedCall:
    arrays = [b for b in bound if b.mode == "array"]
    strides = [align(b.shape, b.strides, shape) for b in arrays]
    if any(b.mode == "index" for b in bound):
        merged = Coalesced(shape, tuple(strides))
    else:
        merged = coalesce(shape, strides)
    count = prod(shape)
    per_array = dict(zip((b.name for b in arrays), merged.strides, strict=True))
    operands = tuple(_operand(b, merged.shape, per_array.get(b.name, ())) for b in bound)
    operands, width = _widen(device, bound, operands, merged, per_array)
    reach = max([count, *(_reach(merged.shape, s) for s in merged.strides)])
    wide_index = device.backend.target.entry == "range" or reach > _MAX_32
    threads = -(-count // width)
    groups, rows = _groups(device, threads)
    spec = CallSpec(
        title=str(sig),
        modules=(source.name,),
        function=sig.name,
        operands=operands[: len(operands) - bool(outcome.bound)],
        result=operands[-1] if outcome.bound else None,
        rank=len(merged.shape),
        index="int64_t" if wide_index else "uint",
        width=width,
        entry=device.backend.target.entry,
        rows=rows,
    )
    fields = block_fields(spec)
    text = emit(spec)
    kernel = None
    if count:
        info = KernelInfo(
            "run" if spec.entry == "range" else "kernel",
            (1, 1, 1) if spec.entry == "range" else (GROUP_SIZE, 1, 1),
            fields[-1].offset + fields[-1].size,
            tuple(b.access != "in" for b in bound if b.mode in ("array", "tensor")),
        )
        block = tuple(LayoutField(f.name, f.offset, f.size) for f in fields)
        kernel = device.kernel(source, text, str(sig), info, block)
    prefix = _prefix(fields, _fixed_values(spec, bound, merged, per_array, count, groups))
    return PreparedCall(device, spec, text, bound, shape, kernel, groups, prefix, _packer(fields), order, outcome)


def _operand(b: Bound, shape: Shape, strides: Shape) -> Operand:
    # bool is stored in bytes, but travels by value as a word.
    scalar = "uint8_t" if b.scalar == "bool" and b.mode in ("array", "tensor") else b.scalar
    if b.mode == "array":
        if not any(strides):
            mode = "constant" if prod(shape) > 1 else "linear"
        elif strides == contiguous(shape, b.count):
            mode = "linear"
        else:
            mode = "strided"
        return Operand(_member(b.name), b.type.name, scalar, b.count, b.access, mode)
    rank = len(b.shape) if b.mode == "tensor" else b.count if b.mode == "index" else 0
    return Operand(_member(b.name), b.type.name, scalar, b.count, b.access, b.mode, rank)


def _member(name: str) -> str:
    """A parameter's name in the argument block, kept apart from the members that the block has of its own."""
    taken = name in ("count", "row", "shape") or name.endswith(("_shape", "_stride", "_"))
    return f"{name}_" if taken else name


def _widen(
    device: Device,
    bound: tuple[Bound, ...],
    operands: tuple[Operand, ...],
    merged: Coalesced,
    per_array: dict[str, Shape],
) -> tuple[tuple[Operand, ...], int]:
    """The operands as threads that take several neighbours see them, and how many those are; 1 if impossible.

    Scalars move in pieces of up to 16 bytes where they are walked in order. Vectors do not: on an H200, four
    float3 a thread reach 3086 GB/s in 16-byte pieces, one float3 a thread 4090 in 4-byte ones. In a call of
    several dimensions neighbours lie in one row, so rows have to be multiples of their number, and so far apart.
    """
    if device.backend.target.entry == "range":
        return operands, 1
    width = 2 if any(NUMPY_OF[b.scalar].itemsize == 8 for b in bound) else 4
    wide = []
    for b, o in zip(bound, operands, strict=True):
        in_order = o.mode == "linear"
        if o.mode == "strided":
            strides = per_array[b.name]
            in_order = strides[-1] == 1 and all(s % width == 0 for s in strides[:-1])
            if merged.shape[-1] % width or not (in_order or strides[-1] == 0):
                return operands, 1
            o = replace(o, step="next" if in_order else "same")
        if o.mode in ("tensor", "index") or (in_order and not (b.aligned and b.type.kind == "scalar")):
            return operands, 1
        wide.append(o)
    some = any(o.mode == "linear" or o.step == "next" for o in wide)
    return (tuple(wide), width) if some else (operands, 1)


def _reach(shape: Shape, strides: Shape) -> int:
    """The farthest scalar from the first, in either direction."""
    steps = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return max(sum(s for s in steps if s > 0), -sum(s for s in steps if s < 0))


def _groups(device: Device, threads: int) -> tuple[tuple[int, int, int], bool]:
    """A dispatch of at least that many threads, and whether it runs in y as well."""
    if device.backend.target.entry == "range":
        return (threads, 1, 1), False
    limit = device.caps.max_groups
    needed = -(-threads // GROUP_SIZE)
    if needed <= limit[0]:
        return (needed, 1, 1), False
    y = -(-needed // limit[0])
    if y > limit[1]:
        raise UnsupportedError(f"a call of {threads:,} threads is more than {device.info} runs at once.")
    return (-(-needed // y), y, 1), True


def _fixed_values(
    spec: CallSpec,
    bound: tuple[Bound, ...],
    merged: Coalesced,
    per_array: dict[str, Shape],
    count: int,
    groups: tuple[int, int, int],
) -> dict[str, tuple[int, ...]]:
    values: dict[str, tuple[int, ...]] = {
        "count": (count,),
        "row": (groups[0] * GROUP_SIZE,),
        "shape": merged.shape,
    }
    for b in bound:
        if b.mode == "tensor":
            values[f"{_member(b.name)}_shape"] = b.shape
            values[f"{_member(b.name)}_stride"] = b.strides
        elif b.mode == "array":
            values[f"{_member(b.name)}_stride"] = per_array[b.name]
    return values


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

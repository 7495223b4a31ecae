"""From a call's arguments to a kernel that is ready to run.

The slow path, once per combination of argument layouts: broadcast, choose the result, describe, emit, load.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from slangpy_rt_codegen import CallSpec, Operand, block_fields, emit
from slangpy_rt_codegen.layout import BlockField

from slangpy_rt.arguments.adapters import adapter_of_results
from slangpy_rt.arguments.bind import bind, bind_result
from slangpy_rt.arguments.bind_texture import texture_maker
from slangpy_rt.arguments.bound import Bound, result_kind
from slangpy_rt.arguments.conflicts import Place, conflicts_of, walk_of, writes_to, written_in_place
from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.exact import exactly
from slangpy_rt.arguments.feed import Feed
from slangpy_rt.arguments.gradients import assigned, tangent_of
from slangpy_rt.arguments.options import NO_OPTIONS, Options
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.seeds import bind_seed
from slangpy_rt.arguments.texture_conflicts import keep_apart
from slangpy_rt.arguments.texture_samplers import pair_samplers
from slangpy_rt.arrays.differentiable import DiffPair, NDDifferentiableBuffer
from slangpy_rt.arrays.layout import layout_of, new_array
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.backends.base import Kernel
from slangpy_rt.calls.array_call import ArrayCall
from slangpy_rt.calls.found_array_call import FoundArrayCall
from slangpy_rt.calls.kernel_spec import Description, Uniforms, describe_call, describe_dispatch
from slangpy_rt.calls.prepared import PreparedCall, is_straight
from slangpy_rt.calls.result import Result
from slangpy_rt.core.checks import no_memory
from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.errors import BindError, OutOfMemoryError, ShapeError, UnsupportedError
from slangpy_rt.core.overlap import repeats
from slangpy_rt.core.shapes import Shape, broadcast, spread
from slangpy_rt.core.structs import to_python
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.core.types import EntryPoint, FunctionSig, LayoutField, Param, SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.diagnostics import Checked, Launcher
from slangpy_rt.textures.texture import Texture

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_READ = ("in", "seed", "tangent")
# Arguments along whose dimensions a call may run.
_WALKED = ("array", "computed", "tensor", "texel")
# Descriptions of kernels that a module remembers.
_MAX_READY = 1024
_RESULTS: dict[Any, str] = {
    "torch": "torch", "numpy": "numpy", "tensor": "tensor", "ndbuffer": "ndbuffer", "texture": "texture",
    np.ndarray: "numpy", Tensor: "tensor", NDBuffer: "ndbuffer", Texture: "texture",
}  # fmt: skip


def build_call(
    scope: Scope,
    sig: FunctionSig,
    arguments: tuple[Bound, ...],
    order: tuple[int, ...],
    result: Any,
    options: Options = NO_OPTIONS,
    uniforms: Uniforms = (),
    aliased: bool = False,
) -> PreparedCall:
    """Build the prepared call of one overload from its bound arguments.

    Parameters
    ----------
    order : tuple of int
        For each of ``uniforms`` and then each of ``arguments``, the index of its value among the call's values.
    result : object
        The value that the user passed as ``_result``, or None.
    aliased : bool
        Whether several arguments add to gradients in one buffer.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
    """
    where = str(sig)
    if sig.returns.kind == "void" and result is not None:
        raise BindError(f"{where} returns nothing; leave _result out.")
    given = result is not None and _kind_named(result) is None
    how = options.map_of("_result", -1, 0)
    if options.derivative == "backward":
        target = bind_seed(where, scope, sig.returns, result if given else None, how)
        if not any(leaf.access == "accumulate" or leaf.grad_out for b in arguments for leaf in b.leaves):
            raise BindError(
                f"{where}: no argument has a gradient to add to; give one with tensor.with_grads() or diff_pair(x)."
            )
    else:
        target = bind_result(f"{where}: _result", scope, sig.returns, result, how) if given else None
        if target and options.derivative:
            target = tangent_of(f"{where}: _result", scope, target, result)
    every = [leaf for b in (*arguments, *((target,) if target else ())) for leaf in b.leaves]
    rank = max(
        (max((d + 1 for d in b.mapped), default=0) if b.mapped is not None else len(b.shape) for b in every),
        default=0,
    )
    shapes = [spread(b.name, b.shape, b.mapped, rank) for b in every]
    shape = broadcast(where, [(b.name, s) for b, s in zip(every, shapes, strict=True) if b.mode in _WALKED])
    _check_strict(where, scope, every, shape)
    outcome = (
        Result(target, into=given, unwrap=_nothing)
        if options.derivative == "backward"
        else Result(target, into=True)
        if target
        else _result(
            where, scope, sig, arguments, result or options.returns, shape, result is not None, options.derivative
        )
    )
    if options.derivative == "backward":
        arguments = tuple(assigned(b, shape, aliased) for b in arguments)
    if scope.device.deterministic and options.derivative == "backward":
        arguments = tuple(exactly(where, scope.device, b, shape, aliased) for b in arguments)
    bound = (*arguments, outcome.bound) if outcome.bound else arguments
    _check_written(where, [leaf for b in bound for leaf in b.leaves], shape)
    description = describe_call(scope, sig, arguments, outcome.bound, shape, options, uniforms, aliased)
    return _finish(scope, description, order, outcome, options)


def build_dispatch(
    scope: Scope,
    entry: EntryPoint,
    arguments: tuple[Bound, ...],
    order: tuple[int, ...],
    threads: tuple[int, ...],
    options: Options,
    uniforms: Uniforms,
) -> PreparedCall:
    """Build the prepared call that dispatches a raw entry point, from its bound arguments.

    Raises
    ------
    UnsupportedError, CompileError
    """
    description = describe_dispatch(scope, entry, arguments, threads, options, uniforms)
    return _finish(scope, description, order, Result(), options)


def _kind_named(result: Any) -> str | None:
    """Return the kind of result that a name or a type means; None for other values."""
    if isinstance(result, str):
        # Classes derived from str need not be hashable.
        result = str.__str__(result)
    return _RESULTS.get(result) if isinstance(result, (str, type)) else None


def _result(
    where: str,
    scope: Scope,
    sig: FunctionSig,
    arguments: tuple[Bound, ...],
    asked: Any,
    shape: Shape,
    named: bool,
    derivative: str = "",
) -> Result:
    """Choose the Result that the arguments or the user ask for; ``named`` says that ``_result`` names a kind."""
    if sig.returns.kind == "void":
        return Result()
    device, returns = scope.device, scope.struct(sig.returns)
    stored = storage(returns)
    if stored is None:
        raise UnsupportedError(f"{where}: results of type '{returns.name}' are not supported.")
    kind = _kind_named(asked)
    if asked is not None and kind is None:
        raise BindError(
            f"{where}: _result={in_words(asked)} is not one of 'numpy', 'tensor', 'ndbuffer', 'texture', 'torch'."
        )
    kind = kind or result_kind(arguments)
    if not kind and shape:
        kind = "numpy" if any(leaf.mode == "array" for b in arguments for leaf in b.leaves) else "tensor"
    if derivative and differentiates(scope, returns):
        return _result_with_tangent(where, scope, returns, kind, shape, named)
    if kind == "texture":
        make_texture = texture_maker(where, device, returns, shape)
        return Result(bind_result(where, scope, returns, make_texture()), None, make_texture, named=named)
    if kind in ("tensor", "ndbuffer"):
        layout = layout_of(device, Tensor if kind == "tensor" else NDBuffer, returns, shape, own=True)
        sample: Any = new_array(layout)

        def make() -> Any:
            return new_array(layout)

        bound = bind_result(where, scope, returns, sample)
        return Result(bound, layout, make, named=named)
    dtype, full = stored.dtype, shape + stored.dims
    adapter = adapter_of_results(kind)
    if adapter is not None:
        make_theirs = adapter.result_maker(device, full, dtype, result_kind(arguments))
        return Result(bind_result(where, scope, returns, make_theirs()), None, make_theirs, named=named)

    # On a device with memory of its own, results are plain NumPy arrays, no views of device memory: 0.2 us less.
    zero_copy = "zero_copy" in device.caps.features
    make_host = partial(device.host_array, full, dtype) if zero_copy else partial(np.empty, full, dtype)
    try:
        made = make_host()
    except OutOfMemoryError:  # the device's, with its own message
        raise
    except MemoryError as error:
        raise no_memory(where, error) from None
    bound = bind_result(where, scope, returns, made)
    return Result(bound, None, make_host, None if kind == "numpy" else to_python, named=named)


def _result_with_tangent(
    where: str, scope: Scope, returns: SlangType, kind: str, shape: Shape, named: bool
) -> Result:
    """Choose the Result of ``fwds``: a new array with its tangent, or a DiffPair of numbers."""
    device = scope.device
    if kind not in ("", "tensor", "ndbuffer"):
        raise BindError(f"{where}: a NumPy array has no room for the tangent; leave _result out or give a Tensor.")
    if not kind and storage(returns).struct:  # type: ignore[union-attr]
        kind = "tensor"
    if kind == "ndbuffer":

        def make() -> Any:
            return NDDifferentiableBuffer(device, returns, shape)
    elif kind:

        def make() -> Any:
            return Tensor.empty(device, shape, returns).with_grads(grad_out=Tensor.empty(device, shape, returns))
    else:

        def make() -> Any:
            return DiffPair()

    sample = make()
    if kind:
        bound = bind_result(where, scope, returns, sample)
    else:
        bound = bind(where, scope, Param("_result", returns, "out"), sample)
    return Result(tangent_of(where, scope, bound, sample), None, make, named=named)


def _nothing(out: Any) -> None:
    return None


def _check_strict(where: str, scope: Scope, leaves: Sequence[Bound], shape: Shape) -> None:
    if not scope.strict:
        return
    for b in leaves:
        if b.mode in _WALKED and b.mode != "computed" and b.mapped is None and b.shape and b.shape != shape:
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} would be broadcast to {shape}, which strict_broadcasting "
                f"refuses; say how with .map({b.name}=...)."
            )


def _check_written(where: str, leaves: Sequence[Bound], shape: Shape) -> None:
    """Refuse outputs that several elements of the call would write to."""
    for b in leaves:
        if b.access in (*_READ, "accumulate") or b.mode not in ("array", "texel"):
            continue
        if spread(b.name, b.shape, b.mapped, len(shape)) != shape:
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} is written by a call of shape {shape}; "
                "elements would overwrite each other. Give it the call's shape."
            )
        # Nothing overlaps in an empty array, to which NumPy gives strides of 0.
        if 0 in shape or b.mode == "texel":
            continue
        walk = walk_of(b, shape)
        if any(n > 1 and step == 0 for n, step in zip(shape, walk.steps, strict=True)):
            raise ShapeError(f"{where}: '{b.name}' is a broadcast view and would be written to; copy it first.")
        if repeats(walk, shape):
            raise ShapeError(
                f"{where}: '{b.name}' of shape {b.shape} and byte strides {walk.steps} would be written to, and its "
                f"elements of {walk.nbytes} bytes overlap each other; give the call an array without overlaps."
            )


class _Ready(NamedTuple):
    """The parts that calls of all shapes share: a kernel that was emitted and, for calls with elements, loaded."""

    spec: CallSpec
    reports: bool
    text: str
    fields: tuple[BlockField, ...]
    kernel: Kernel | None
    pack: Callable[..., bytes]
    # The block begins with the values that follow from shapes: their names, and the function that packs them.
    fixed: tuple[str, ...]
    prefix: Callable[..., bytes]


def _finish(
    scope: Scope, description: Description, order: tuple[int, ...], outcome: Result, options: Options
) -> PreparedCall:
    """Emit and load the kernel, and make the PreparedCall; a call without elements loads none."""
    device, every, count = scope.device, description.bound, description.count
    leaves = [leaf for b in every for leaf in b.leaves]
    pair_samplers(description.spec.title, device.backend, every)
    keep_apart(description.spec.title, every, len(description.shape))
    written = tuple([_is_written(b, options.derivative) for b in leaves if b.feed.buffers])
    key = description.spec, written, options.conformances, count > 0
    cache = scope.ready
    ready: _Ready | None = cache.get(key)
    if ready is None:
        ready = _make_ready(scope, description.spec, written, count > 0, options)
        if len(cache) >= _MAX_READY:
            cache.clear()
        cache[key] = ready
    spec, pack, launcher, conflicts = ready.spec, ready.pack, None, None
    in_place: tuple[Place, ...] = ()
    if count and not spec.raw:
        made = None if outcome.into else outcome.bound
        conflicts = conflicts_of(device, spec.title, every, made, description.shape, options.derivative)
        in_place = written_in_place(device, every, made, description.shape, options.derivative)
    if ready.reports:
        pack = partial(pack, device.diagnostics.buffer.address)
        checked = _checked(device, spec, ready.fields, every)
        # In host memory, results can be read without waiting for the device, so the call prints at once.
        wait = "zero_copy" in device.caps.features
        launcher = Launcher(device.diagnostics, spec.title, checked, wait)
    prefix = ready.prefix(*[n for name in ready.fixed for n in description.fixed[name]])
    feeds = tuple([b.whole_feed for b in every])
    found = _kind_of_call(feeds, order, outcome) if ready.kernel is not None and launcher is None else PreparedCall
    return found(
        device, spec, ready.text, every, feeds, description.shape, ready.kernel, description.groups, prefix, pack,
        order, outcome, launcher, conflicts, in_place,
    )  # fmt: skip


def _kind_of_call(feeds: tuple[Feed, ...], order: tuple[int, ...], outcome: Result) -> type[PreparedCall]:
    """Return the class of prepared calls that launches in the fewest steps with these feeds."""
    straight = is_straight(order, outcome)
    if straight and feeds and feeds[0].call is not None and len({feed.call for feed in feeds}) == 1:
        found: type[PreparedCall] = feeds[0].call
        return found
    if any(feed.finds is None for feed in feeds):
        return PreparedCall
    made = outcome.make is None or outcome.layout is not None
    if straight and made and outcome.unwrap is None and all(feed.finds == (None,) for feed in feeds):
        return ArrayCall
    return FoundArrayCall


def _make_ready(scope: Scope, asked: CallSpec, written: tuple[bool, ...], some: bool, options: Options) -> _Ready:
    device = scope.device
    spec, reports = _reporting(scope, asked)
    fields = block_fields(spec)
    text = emit(spec)
    kernel = None
    if some:
        x, y, z = (*spec.group, 1, 1)[:3]
        info = KernelInfo(
            "_spy_run" if spec.entry == "range" else "_spy_kernel",
            (1, 1, 1) if spec.entry == "range" else (x, y, z),
            fields[-1].offset + fields[-1].size,
            written + (True,) * reports,
            any(o.mode == "gradient" and o.step == "own" for o in spec.leaves),
            spec.title,
            any(o.mode in ("handle", "texel") for o in spec.leaves),
        )
        block = tuple(LayoutField(f.name, f.offset, f.size) for f in fields)
        kernel = device.kernels.get(scope.source, text, spec.title, info, block, options.conformances)
    fixed, prefix, pack = packers(fields)
    return _Ready(spec, reports, text, fields, kernel, pack, fixed, prefix)


def _is_written(leaf: Bound, derivative: str) -> bool:
    return leaf.access not in _READ or writes_to(leaf, derivative, False)


def _reporting(scope: Scope, spec: CallSpec) -> tuple[CallSpec, bool]:
    """Return the spec, with a diagnostics buffer if the kernel prints or checks accesses, and whether it has one."""
    checks = scope.device.debug and any(o.mode == "tensor" for o in spec.leaves)
    if not checks and not scope.source.prints:
        return spec, False
    # No parameter's name begins with a digit.
    buffer = ("_spy_diagnosticsBuffer", Operand("0_diagnostics", "uint *", "uint", 1, "inout", "pointer"))
    constants = (*spec.constants, "export static const bool _spy_checks = true;") if checks else spec.constants
    return replace(spec, assigned=(buffer, *spec.assigned), constants=constants), True


def _checked(
    device: DeviceCore, spec: CallSpec, fields: tuple[BlockField, ...], every: tuple[Bound, ...]
) -> tuple[Checked, ...]:
    """Return the arrays whose accesses the kernel checks, on a debug device."""
    offsets = {f.name: f.offset for f in fields}
    trees = spec.all_operands
    views = [offsets[f"v_{p.name}"] for o in trees for p in o.places if p.mode == "tensor"] if device.debug else []
    bound = [p for b in every for p in b.places if p.mode == "tensor"] if device.debug else []
    out = []
    for b, at in zip(bound, views, strict=True):
        unit = NUMPY_OF[b.scalar].itemsize
        steps = [(n - 1) * s * unit for n, s in zip(b.shape, b.strides, strict=True)]
        out.append(Checked(b.name, b.view[0], at, sum(min(s, 0) for s in steps), sum(max(s, 0) for s in steps)))
    return tuple(out)


def packers(fields: Sequence[BlockField]) -> tuple[tuple[str, ...], Callable[..., bytes], Callable[..., bytes]]:
    """Return the names of values that follow from shapes, the function that packs them, and that for all others."""
    fixed, moving = [f for f in fields if f.fixed], [f for f in fields if not f.fixed]
    begin = moving[0].offset if moving else 0
    return tuple(f.name for f in fixed), _packer(fixed, 0, begin), _packer(moving, begin)


def _packer(fields: Sequence[BlockField], at: int, end: int = 0) -> Callable[..., bytes]:
    """Return the function that packs members of the block from offset ``at``, with zeros after them up to ``end``."""
    code = "<"
    for f in fields:
        code += f"{f.offset - at}x{f.code}"
        at = f.offset + f.size
    return struct.Struct(f"{code}{max(end - at, 0)}x").pack

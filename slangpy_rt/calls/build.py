"""From a call's arguments to a kernel that is ready to run.

The slow path, once per combination of argument layouts: broadcast, choose the result, describe, emit, load.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from slangpy_rt_codegen import CallSpec, Operand, block_fields, emit
from slangpy_rt_codegen.layout import BlockField

from slangpy_rt.arguments.bind import bind_result
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.conflicts import Place, conflicts_of, walk_of, writes_to, written_in_place
from slangpy_rt.arguments.exact import exactly
from slangpy_rt.arguments.gradients import assigned, tangent_of
from slangpy_rt.arguments.options import NO_OPTIONS, Options
from slangpy_rt.arguments.packer import Packer
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arguments.seeds import bind_seed
from slangpy_rt.arguments.texture_conflicts import keep_apart
from slangpy_rt.arguments.texture_packers import TexturePacker
from slangpy_rt.arguments.texture_samplers import pair_samplers, refuse_blending
from slangpy_rt.backends.base import Kernel
from slangpy_rt.calls.array_call import ArrayCall
from slangpy_rt.calls.found_array_call import FoundArrayCall
from slangpy_rt.calls.gradient_copies import GradientCopies
from slangpy_rt.calls.kernel_spec import Description, Uniforms, describe_call, describe_dispatch
from slangpy_rt.calls.new_result import kind_named, new_result
from slangpy_rt.calls.number_call import NumberCall, fits
from slangpy_rt.calls.operands import names_of
from slangpy_rt.calls.prepared import PreparedCall, is_straight
from slangpy_rt.calls.result import Result
from slangpy_rt.calls.texture_call import TextureCall, fits_textures
from slangpy_rt.core.dtypes import NUMPY_OF
from slangpy_rt.core.errors import BindError, CompileError, ShapeError, UnsupportedError
from slangpy_rt.core.overlap import repeats
from slangpy_rt.core.shapes import Shape, broadcast, spread
from slangpy_rt.core.structs import to_python
from slangpy_rt.core.target import KernelInfo
from slangpy_rt.core.types import EntryPoint, FunctionSig, LayoutField
from slangpy_rt.runtime.diagnostics import Checked, Launcher

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_READ = ("in", "seed", "tangent")
# Arguments along whose dimensions a call may run.
_WALKED = ("array", "computed", "tensor", "texel")
# Descriptions of kernels that a module remembers.
_MAX_READY = 1024


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
    given = result is not None and kind_named(result) is None
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
        else new_result(
            where,
            scope,
            sig.returns,
            arguments,
            result or options.returns,
            shape,
            result is not None,
            options.derivative,
        )
    )
    if options.derivative == "backward":
        arguments = tuple(assigned(b, shape, aliased) for b in arguments)
    if options.derivative == "backward":
        arguments = tuple(exactly(where, scope.device, b, shape, aliased) for b in arguments)
    bound = (*arguments, outcome.bound) if outcome.bound else arguments
    _check_written(where, [leaf for b in bound for leaf in b.leaves], shape)
    describe = partial(describe_call, scope, sig, arguments, outcome.bound, shape, options, uniforms, aliased)
    # Only the code of its kernel tells whether this function of the module is one that uses groups.
    forms = [partial(describe, grouped=True), describe] if scope.source.groups else [describe]
    return _finish_on_a_target(scope, forms, order, outcome, options, bound)


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
    describe = partial(describe_dispatch, scope, entry, arguments, threads, options, uniforms)
    return _finish_on_a_target(scope, [describe], order, Result(), options, arguments)


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


def _finish_on_a_target(
    scope: Scope,
    forms: Sequence[Callable[..., Description]],
    order: tuple[int, ...],
    outcome: Result,
    options: Options,
    arguments: Sequence[Bound],
) -> PreparedCall:
    """Make the PreparedCall for the device's target, or for its target of ranges if the first cannot express it.

    Parameters
    ----------
    forms : sequence of callable
        Describes the kernel for a target: if there are two, the first does for a function that uses anything of its
        thread group, and the second for another.
    """
    backend = scope.device.backend
    target, ranges, describe = backend.target, backend.range_target, forms[-1]
    otherwise = partial(describe, target=target) if len(forms) > 1 else None
    if ranges is None:
        return _finish(scope, forms[0](target=target), order, outcome, options, otherwise)
    if scope.source.target == ranges:
        return _finish(scope, describe(target=ranges), order, outcome, options)
    if _is_faster_over_ranges(scope, options):
        # C++ has no thread groups. Functions that use them are compiled for ``target`` below, which reports errors.
        with suppress(CompileError, UnsupportedError):
            return _finish(scope, describe(target=ranges), order, outcome, options)
    try:
        return _finish(scope, forms[0](target=target), order, outcome, options, otherwise)
    except (CompileError, UnsupportedError) as refusal:
        try:
            return _finish(scope, describe(target=ranges), order, outcome, options)
        except UnsupportedError as lack:
            # It names what is missing where a compiler's own message need not.
            raise (lack if isinstance(refusal, CompileError) else refusal) from None
        except CompileError:
            raise refusal from None


def _is_faster_over_ranges(scope: Scope, options: Options) -> bool:
    backend, uses = scope.device.backend, scope.source.uses
    gradients = backend.range_gradients if options.derivative == "backward" else ()
    return any(map(uses, (*backend.range_imports, *gradients)))


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
    # Whether this is the right form of the kernel: False where it was described for code that uses something of a
    # thread group, and the code uses nothing.
    fits: bool


def _finish(
    scope: Scope,
    description: Description,
    order: tuple[int, ...],
    outcome: Result,
    options: Options,
    otherwise: Callable[[], Description] | None = None,
) -> PreparedCall:
    """Emit and load the kernel, and make the PreparedCall; a call without elements loads none.

    ``otherwise`` describes the kernel to make if the code of this one uses nothing of a thread group.
    """
    device, every, count = scope.device, description.bound, description.count
    leaves = [leaf for b in every for leaf in b.leaves]
    refuse_blending(description.spec.title, leaves)
    pair_samplers(description.spec.title, device.backend, every)
    keep_apart(description.spec.title, every, len(description.shape))
    written = tuple([_is_written(b, options.derivative) for b in leaves if b.packer.buffers])
    copies: GradientCopies | None = None
    key = description.spec, written, options.conformances, count > 0, otherwise is not None
    cache = scope.ready
    ready: _Ready | None = cache.get(key)
    if ready is None:
        ready = _make_ready(scope, description, written, count > 0, options, otherwise is not None)
        if len(cache) >= _MAX_READY:
            cache.clear()
        cache[key] = ready
    if otherwise is not None and not ready.fits:
        return _finish(scope, otherwise(), order, outcome, options)
    spec, pack, launcher, conflicts = ready.spec, ready.pack, None, None
    in_place: tuple[Place, ...] = ()
    if count and not spec.raw:
        made = None if outcome.into else outcome.bound
        conflicts = conflicts_of(device, spec.title, every, made, description.shape, options.derivative)
        in_place = written_in_place(device, every, made, description.shape, options.derivative)
    if ready.reports:
        checked = _checked(device, spec, ready.fields, every)
        # In host memory, results can be read without waiting for the device, so the call prints at once.
        wait = "zero_copy" in device.caps.features
        launcher = Launcher(device.diagnostics, spec.title, checked, wait)
    if description.copies and ready.kernel is not None:
        offsets = {f.name.removeprefix("v_"): f.offset for f in ready.fields if f.name.startswith("v_")}
        copies = GradientCopies(device, description.copies, offsets, _buffers_of(leaves, description))
        pack = partial(pack, *copies.addresses)
    if ready.reports:
        pack = partial(pack, device.diagnostics.buffer.address)
    prefix = ready.prefix(*[n for name in ready.fixed for n in description.fixed[name]])
    packers = tuple([b.whole_packer for b in every])
    plain = ready.kernel is None or launcher is not None or copies is not None
    found = PreparedCall if plain else _kind_of_call(packers, order, outcome)
    return found(
        device, spec, ready.text, every, packers, description.shape, ready.kernel, description.groups, prefix, pack,
        order, outcome, launcher, conflicts, in_place, copies,
    )  # fmt: skip


def _buffers_of(leaves: Sequence[Bound], description: Description) -> dict[str, int]:
    """Return, for each argument, part and gradient with a buffer, its place among the buffers of a launch."""
    names, found, place = names_of(description.bound), {}, 0
    for leaf in leaves:
        found[names[id(leaf)]] = place
        place += leaf.packer.buffers
    return found


def _kind_of_call(packers: tuple[Packer, ...], order: tuple[int, ...], outcome: Result) -> type[PreparedCall]:
    """Return the class of prepared calls that launches in the fewest steps with these packers."""
    straight = is_straight(order, outcome)
    if straight and packers and packers[0].call is not None and len({packer.call for packer in packers}) == 1:
        found: type[PreparedCall] = packers[0].call
        return found
    if straight and outcome.unwrap is to_python and fits(packers, outcome):
        return NumberCall
    if straight and outcome.unwrap is None and TexturePacker in map(type, packers) and fits_textures(packers):
        return TextureCall
    if any(packer.finds is None for packer in packers):
        return PreparedCall
    made = outcome.make is None or outcome.layout is not None
    if straight and made and outcome.unwrap is None and all(packer.finds == (None,) for packer in packers):
        return ArrayCall
    return FoundArrayCall


def _make_ready(
    scope: Scope, description: Description, written: tuple[bool, ...], some: bool, options: Options, grouped: bool
) -> _Ready:
    """Emit a kernel and load it if there are ``some`` elements.

    If ``grouped``, it is loaded only if its code uses anything of a thread group.
    """
    device = scope.device
    spec, reports = _reporting(scope, description.spec)
    fields = block_fields(spec)
    text = emit(spec)
    kernel = None
    if some:
        x, y, z = (*spec.group, 1, 1)[:3]
        info = KernelInfo(
            "_spy_run" if spec.entry == "range" else "_spy_kernel",
            (1, 1, 1) if spec.entry == "range" else (x, y, z),
            fields[-1].offset + fields[-1].size,
            written + (True,) * (reports + any(o.copied for o in spec.leaves)),
            any(o.mode == "gradient" and o.step == "own" for o in spec.leaves) or (spec.walks and spec.lane_threads),
            spec.title,
            any(o.mode in ("handle", "texel") for o in spec.leaves),
            () if spec.raw else _streamed(spec, fields),
        )
        block = tuple(LayoutField(f.name, f.offset, f.size) for f in fields)
        source = scope.source.on(description.target)
        kernel = device.kernels.find(source, text, spec.title, info, block, options.conformances, grouped)
    fixed, prefix, pack = block_packers(fields)
    fits = not some or kernel is not None
    return _Ready(spec, reports, text, fields, kernel, pack, fixed, prefix, fits)


def _streamed(spec: CallSpec, fields: Sequence[BlockField]) -> tuple[tuple[int, int], ...]:
    """Return ``KernelInfo.streamed``: the outputs that the kernel writes element by element in the call's order."""
    offsets = {f.name: f.offset for f in fields}
    outputs = [o for o in spec.leaves if o.mode == "linear" and o.access == "out"]
    return tuple([(offsets[f"v_{o.name}"], o.count * NUMPY_OF[o.scalar].itemsize) for o in outputs])


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


def block_packers(fields: Sequence[BlockField]) -> tuple[tuple[str, ...], Callable[..., bytes], Callable[..., bytes]]:
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

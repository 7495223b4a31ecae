"""KnownProduct: a product of arrays like those of an earlier one, as launches that are ready but for addresses.

It checks what differs between such calls: where the arrays lie. All else was decided by the earlier call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.linalg.apart import range_of
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.copies import copies_of
from slangpy_rt.linalg.cores import cores_of
from slangpy_rt.linalg.known_launch import KnownLaunch, known_launch, mark, marked
from slangpy_rt.linalg.lines import ALIGNED, readable
from slangpy_rt.linalg.plan import Plan
from slangpy_rt.linalg.program import program_of, storage_of
from slangpy_rt.linalg.tensor_cores import Described, TensorCores
from slangpy_rt.linalg.view import View
from slangpy_rt.runtime.core import DeviceCore

# Stands for a call that the arrays' places do not allow.
MISS = object()
# Places of addresses: of the arrays, and of the operands' descriptions.
_A, _B, _C, _BIAS, _MAP_A, _MAP_B, _PLACES = range(7)


class Copy(NamedTuple):
    """An operand's copy for tensor cores.

    Attributes
    ----------
    launch : KnownLaunch
        Copies from the first address to the second one.
    shape, stored : tuple of int, str
        The new array.
    """

    launch: KnownLaunch
    shape: Shape
    stored: str


class KnownProduct:
    """A product of arrays of known types, shapes and strides.

    Parameters
    ----------
    arrays : Arrays
        The library of the arrays.
    device : DeviceCore
        The device, which uses the arrays where they lie.
    plan : Plan
        How the product is launched: once.
    launch : KnownLaunch
        The launch, with addresses in the order of ``a``, ``b``, the result, bias, and descriptions of both operands.
    copies : sequence
        For tensor cores, copies of both operands, or None for what is read in place; otherwise empty.
    cores : TensorCores, optional
        The tensor cores that read descriptions of operands.
    described : sequence
        The descriptions of both operands, if there are ``cores``.
    read : sequence of (int, int)
        Where arrays lie that a user's function reads: addresses of the first byte, and of the one behind the last.
    """

    __slots__ = (
        "_arrays",
        "_copies",
        "_cores",
        "_described",
        "_device",
        "_known",
        "_launch",
        "_plan",
        "_read",
        "_spans",
    )

    def __init__(
        self,
        arrays: Arrays,
        device: DeviceCore,
        plan: Plan,
        launch: KnownLaunch,
        copies: Sequence[Copy | None] = (),
        cores: TensorCores | None = None,
        described: Sequence[Described] = (),
        read: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._arrays, self._device, self._plan, self._launch = arrays, device, plan, launch
        self._copies, self._cores, self._described, self._read = copies, cores, described, read
        # Descriptions of both operands on the device, by address.
        self._known: list[dict[int, NDBuffer]] = [{}, {}]
        # First bytes, and the bytes behind the last ones, from the first elements on.
        self._spans = (
            *plan.spans["a"],
            *plan.spans["b"],
            *plan.spans.get("out", (0, 0)),
            *plan.spans.get("bias", (0, 0)),
        )

    def run(self, a: Any, b: Any, out: Any, bias: Any, uniforms: tuple[Any, ...] = ()) -> Any:
        """Multiply, and return ``out`` or a new array; ``uniforms`` are the arrays that a user's function reads.

        Return MISS, without doing anything, if arrays share memory or lie where the launch cannot read them.
        """
        arrays = self._arrays
        at_a, at_b = arrays.address(a), arrays.address(b)
        at_bias = 0 if bias is None else arrays.address(bias)
        if out is None:
            at_c = 0
        else:
            at_c = arrays.address(out)
            first_a, last_a, first_b, last_b, first, last, first_bias, last_bias = self._spans
            first, last = at_c + first, at_c + last
            if at_a + first_a < last and first < at_a + last_a:
                return MISS
            if at_b + first_b < last and first < at_b + last_b:
                return MISS
            if bias is not None and at_bias + first_bias < last and first < at_bias + last_bias:
                return MISS
            if self._read and any(start < last and first < end for start, end in self._read):
                return MISS
        launch = arrays.launch(self._device, a)
        map_a = map_b = 0
        if self._copies:
            copy_a, copy_b = self._copies
            if (copy_a is None and at_a % ALIGNED) or (copy_b is None and at_b % ALIGNED):
                return MISS
            if copy_a is not None:
                a, at_a = self._copied(launch, copy_a, a, at_a)
            if copy_b is not None:
                b, at_b = self._copied(launch, copy_b, b, at_b)
        if self._cores is not None:
            kept = self._cores.captures(arrays)
            found_a, found_b = self._known[0].get(at_a), self._known[1].get(at_b)
            # ``is None``: the length of an array is asked for otherwise.
            map_a = (self._describe(0, at_a, kept) if kept or found_a is None else found_a).address
            map_b = (self._describe(1, at_b, kept) if kept or found_b is None else found_b).address
        if out is None:
            out = arrays.empty(self._device, self._plan.shape, self._plan.result.element, a)
            at_c = arrays.address(out)
        known = self._launch
        packed = known.arguments(at_a, at_b, at_c, at_bias, map_a, map_b)
        given = (a, b, out, *uniforms) if bias is None else (a, b, out, bias, *uniforms)
        launch(known.kernel, known.groups, packed, arrays.buffers(given))
        return out

    def _copied(self, launch: Any, copy: Copy, operand: Any, address: int) -> tuple[Any, int]:
        """Return a copy of an operand, and its address."""
        arrays = self._arrays
        made = arrays.empty(self._device, copy.shape, copy.stored, operand)
        at = arrays.address(made)
        known = copy.launch
        launch(known.kernel, known.groups, known.arguments(address, at), arrays.buffers((operand, made)))
        return made, at

    def _describe(self, place: int, address: int, kept: bool) -> NDBuffer:
        """Return the description of an operand that was not at this address before, or that has to be kept."""
        assert self._cores is not None
        operand = self._described[place]
        found = self._cores.description(operand, address, kept)
        self._known[place] = self._cores.descriptions(operand)
        return found


def known_product(
    arrays: Arrays, device: DeviceCore, plan: Plan, values: Mapping[str, Any], uniforms: Mapping[str, Any]
) -> KnownProduct | None:
    """Return what repeats a product of these arrays; None if it is computed in parts, or moves data.

    ``uniforms`` has the values of a user's function: numbers, and arrays of the same library.
    """
    read = [value for value in uniforms.values() if arrays.is_array(value)]
    if len(plan.parts) != 1 or not all(arrays.lies_on(device, value) for value in (*values.values(), *read)):
        return None
    ranges = [range_of(value) for value in read]
    uniforms = {name: arrays.lasting(device, x) if arrays.is_array(x) else x for name, x in uniforms.items()}
    if any(value is None for value in uniforms.values()):
        return None
    kind, (left, right, target) = plan.kind, plan.parts[0]
    views = (left, right, target) if plan.bias is None else (left, right, target, plan.bias)
    if any(view.offset for view in views):
        return None
    stored, stored_result = storage_of(device, kind.element)[0], storage_of(device, kind.result)[0]
    c = marked(device, _C, target, stored_result)
    bias = [] if plan.bias is None else [marked(device, _BIAS, plan.bias, stored_result)]
    # Arrays at other addresses are found out when they come.
    cores = cores_of(device, kind, (left, 0), (right, 0), target)
    if cores is None:
        kernel, threads = program_of(device, kind).division(target)
        operands = marked(device, _A, left, stored), marked(device, _B, right, stored)
        launch = _last(kernel, uniforms, threads, (*operands, c, plan.alpha, *bias))
        return None if launch is None else KnownProduct(arrays, device, plan, launch, read=ranges)
    copies: list[Copy | None] = []
    seen: list[tuple[View, View]] = []
    for view, first in ((left, True), (right, False)):
        if readable(view, 0, first):
            copies.append(None)
            seen.append((view, view))
            continue
        pack = copies_of(device, kind.element).packing(view, first)
        ends = marked(device, 0, pack.source, stored), marked(device, 1, pack.copy, stored)
        launch = known_launch(pack.kernel, pack.threads, (*ends, pack.turned), 2)
        if launch is None:
            return None
        copies.append(Copy(launch, pack.shape, stored))
        seen.append((pack.first, pack.operand))
    (first_a, all_a), (first_b, all_b) = seen
    operands = marked(device, _A, first_a, stored), marked(device, _B, first_b, stored)
    if not isinstance(cores, TensorCores):
        kernel, threads = cores.division(all_a, all_b, target)
        launch = _last(kernel, uniforms, threads, (*operands, c, plan.alpha, *bias))
        return None if launch is None else KnownProduct(arrays, device, plan, launch, copies, read=ranges)
    found = cores.division(all_a, all_b, target)
    rest = plan.alpha, found.groups, mark(_MAP_A), mark(_MAP_B), found.repeated
    launch = _last(found.kernel, uniforms, found.threads, (*operands, c, *rest, *bias))
    if launch is None:
        return None
    return KnownProduct(arrays, device, plan, launch, copies, cores, (found.a, found.b), ranges)


def _last(kernel: Kernel, uniforms: Mapping[str, Any], threads: Any, values: Sequence[Any]) -> KnownLaunch | None:
    """Return the launch that multiplies, of a kernel whose uniforms have values."""
    if not uniforms:
        return known_launch(kernel, threads, values, _PLACES)
    try:
        return known_launch(kernel.set(uniforms), threads, values, _PLACES)
    except (BindError, ShapeError):
        # What was given was taken, and what stands for it is not: vectors in PyTorch's tensors of numbers, for one.
        return None

"""KnownProduct: a product of arrays like those of an earlier one, as a single launch that is ready but for addresses.

It checks what differs between such calls: where the arrays lie. All else was decided by the earlier call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.core.dtypes import scalar_type
from slangpy_rt.linalg.arrays import Arrays
from slangpy_rt.linalg.plan import Plan
from slangpy_rt.linalg.program import program_of, storage_of
from slangpy_rt.linalg.tensor_cores import (
    Described,
    TensorCores,
    fits,
    readable,
    takes,
    tensor_cores_of,
    worth_packing,
)
from slangpy_rt.runtime.core import DeviceCore

# Stands for a call that the arrays' places do not allow.
MISS = object()
# Addresses from here on stand for the arrays and descriptions when the launch is prepared: no device has them.
_MARK = 1 << 60
# Behind a, b, c and bias.
_MAP_A, _MAP_B, _NUMBERS = 4, 5, 6
# The accelerator reads operands at multiples of 16 bytes.
_UNALIGNED = 15


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
    call : PreparedCall
        The launch.
    cores : TensorCores, optional
        The tensor cores that multiply.
    described : tuple of Described
        The operands, for tensor cores.
    """

    __slots__ = (
        "_arrays", "_cores", "_described", "_device", "_groups", "_kernel", "_known_a", "_known_b", "_numbers",
        "_pack", "_plan", "_prefix", "_sources", "_spans",
    )  # fmt: skip

    def __init__(
        self,
        arrays: Arrays,
        device: DeviceCore,
        plan: Plan,
        call: PreparedCall,
        block: Sequence[Any],
        cores: TensorCores | None,
        described: Sequence[Described],
    ) -> None:
        self._arrays, self._device, self._plan = arrays, device, plan
        self._kernel, self._groups, self._prefix, self._pack = call.kernel, call.groups, call.prefix, call.pack
        self._cores, self._described = cores, described
        self._known_a: dict[int, NDBuffer] = {}
        self._known_b: dict[int, NDBuffer] = {}
        marked = [type(entry) is int and entry >= _MARK for entry in block]
        self._numbers = tuple([entry for entry, mark in zip(block, marked, strict=True) if not mark])
        numbers = iter(range(_NUMBERS, _NUMBERS + len(block)))
        # For each entry of the block, which one of ``every`` it is; see ``run``.
        self._sources = tuple(
            [entry - _MARK if mark else next(numbers) for entry, mark in zip(block, marked, strict=True)]
        )
        # First bytes, and the bytes behind the last ones, from the first elements on.
        self._spans = (
            *plan.spans["a"],
            *plan.spans["b"],
            *plan.spans.get("out", (0, 0)),
            *plan.spans.get("bias", (0, 0)),
        )

    def run(self, a: Any, b: Any, out: Any, bias: Any) -> Any:
        """Multiply, and return ``out`` or a new array.

        Return MISS, without doing anything, if arrays share memory or lie where the launch cannot read them.
        """
        arrays = self._arrays
        at_a, at_b = arrays.address(a), arrays.address(b)
        at_bias = 0 if bias is None else arrays.address(bias)
        map_a = map_b = 0
        if self._cores is not None:
            if (at_a | at_b) & _UNALIGNED:
                return MISS
            kept = arrays.captures()
            found_a, found_b = self._known_a.get(at_a), self._known_b.get(at_b)
            # ``is None``: the length of an array is asked for otherwise.
            map_a = (self._describe(0, at_a, kept) if kept or found_a is None else found_a).address
            map_b = (self._describe(1, at_b, kept) if kept or found_b is None else found_b).address
        if out is None:
            out = arrays.empty(self._device, self._plan.shape, self._plan.result.element, a)
            at_c = arrays.address(out)
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
        every = (at_a, at_b, at_c, at_bias, map_a, map_b, *self._numbers)
        packed = self._prefix + self._pack(*[every[k] for k in self._sources])
        given = (a, b, out) if bias is None else (a, b, out, bias)
        arrays.launch(self._device, a)(self._kernel, self._groups, packed, arrays.buffers(given))
        return out

    def _describe(self, place: int, address: int, kept: bool) -> NDBuffer:
        """Return the description of an operand that was not at this address before, or that has to be kept."""
        assert self._cores is not None
        operand = self._described[place]
        found = self._cores.description(operand, address, kept)
        known = self._cores.descriptions(operand)
        if place:
            self._known_b = known
        else:
            self._known_a = known
        return found


def known_product(arrays: Arrays, device: DeviceCore, plan: Plan, values: Mapping[str, Any]) -> KnownProduct | None:
    """Return what repeats a product of these arrays; None if it takes more than one launch, or moves data."""
    if len(plan.parts) != 1 or not all(arrays.lies_on(device, value) for value in values.values()):
        return None
    kind, (left, right, target) = plan.kind, plan.parts[0]
    stored, stored_result = storage_of(device, kind.element)[0], storage_of(device, kind.result)[0]
    given = [(left, stored), (right, stored), (target, stored_result)]
    if plan.bias is not None:
        given.append((plan.bias, stored_result))
    if any(view.offset for view, _ in given):
        return None
    a, b, c, *bias = (
        Tensor.of(
            layout_of(device, Tensor, scalar_type(scalar), view.shape, view.strides, False),
            device.placeholder,
            _MARK + place,
        )
        for place, (view, scalar) in enumerate(given)
    )
    cores: TensorCores | None = None
    described: list[Described] = []
    threads: Any
    there = takes(device, kind) and fits(left, right, target)
    read = there and readable(left, 0, True) and readable(right, 0, False)
    if there and not read and worth_packing(left, right):
        return None
    if read:
        cores = tensor_cores_of(device, kind)
        kernel, threads, groups, repeated, *described = cores.division(left, right, target)
        rest = [plan.alpha, groups, _MARK + _MAP_A, _MARK + _MAP_B, repeated]
    else:
        kernel, threads = program_of(device, kind).division(target)
        rest = [plan.alpha]
    call, prepared = Callee(kernel).with_dispatch(threads, (a, b, c, *rest, *bias), {})
    block = call.addresses(prepared)
    return None if block is None else KnownProduct(arrays, device, plan, call, block, cores, described)

"""What a pickle holds of an array: its kind, device, element type, values and gradients. Strides are not kept.

A struct is kept as its fields, so no module is needed to read it: structs with equal fields are equal types.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slangpy_rt.arrays.layout import layout_of, new_array
from slangpy_rt.core.dtypes import BFLOAT16, element_type, scalar_type
from slangpy_rt.core.types import SlangType, from_json, to_json
from slangpy_rt.runtime.core import DeviceCore


def state_of(array: Any) -> tuple[Any, ...]:
    """Return the arguments of ``array_of_state`` that make an equal array, contiguous and in memory of its own."""
    own = array.layout
    element = own.element.name if _has_name(own.element) else to_json(own.element)
    into, out = (None, None) if own.grads is None else array._grads
    if own.grads is not None and own.grads.shared:
        out = into
    return type(array), own.device, element, own.shape, as_stored(array).to_numpy(), into, out


def array_of_state(
    kind: Any,
    device: DeviceCore,
    element: Any,
    shape: tuple[int, ...],
    values: Any,
    into: Any,
    out: Any,
) -> Any:
    """Make an array of what ``state_of`` returned, on a device."""
    type_ = from_json(element) if isinstance(element, dict) else element_type("pickle", element)
    made = new_array(layout_of(device, kind, type_, shape, own=True))
    device.upload(made.buffer, made.address, np.ascontiguousarray(values))
    return made if into is None and out is None else made._carrying(into, out)


def as_stored(array: Any) -> Any:
    """Return an array of bfloat16 as one of the integers in its memory, which NumPy has; any other as it is."""
    own = array.layout
    if own.element is not BFLOAT16:
        return array
    bits = layout_of(own.device, own.kind, scalar_type(own.scalar), own.shape, own.strides, own.aligned)
    return own.kind.of(bits, array.buffer, array.address)


def _has_name(element: SlangType) -> bool:
    """Tell whether an element type is known by its name alone."""
    return element.kind in ("scalar", "vector", "matrix", "storage")

"""What a pickle holds of an array: its kind, device, element type, values and gradients. Strides are not kept.

A struct is kept as its fields, so no module is needed to read it: structs with equal fields are equal types. A reader
takes no item on trust: shapes, dtypes and types are compared before memory is allocated or copied.
"""

from __future__ import annotations

from typing import Any

from slangpy_rt.arrays.layout import layout_of, new_array
from slangpy_rt.core.dtypes import BFLOAT16, check_element, element_type, scalar_type
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.types import SlangType, from_json, to_json
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.runtime.pickling import check_values, damaged, reads


def state_of(array: Any) -> tuple[Any, ...]:
    """Return the arguments of ``array_of_state`` that make an equal array, contiguous and in memory of its own."""
    own = array.layout
    element = own.element.name if _has_name(own.element) else to_json(own.element)
    into, out = (None, None) if own.grads is None else array._grads
    if own.grads is not None and own.grads.shared:
        out = into
    return type(array), own.device, element, own.shape, as_stored(array).to_numpy(), into, out


@reads("an array")
def array_of_state(
    kind: Any,
    device: DeviceCore,
    element: Any,
    shape: tuple[int, ...],
    values: Any,
    into: Any,
    out: Any,
) -> Any:
    """Make an array of what ``state_of`` returned, on a device.

    Raises
    ------
    BindError
        If an item is of another type, or they do not agree with each other.
    """
    if not isinstance(kind, type) or not hasattr(kind, "_with_pickled"):
        raise damaged("an array", f"its class is {in_words(kind)}; Tensor or NDBuffer was expected")
    device = a_device("pickle", device)
    type_ = _element(element)
    layout = layout_of(device, kind, type_, as_shape("pickle", shape), own=True)
    values = check_values(f"a {kind.__name__} of '{type_.name}'", values, layout.numpy_dtype, layout.full_shape)
    made = new_array(layout)
    device.upload(made.buffer, made.address, values)
    return made._with_pickled("pickle", into, out)


def _element(element: Any) -> SlangType:
    """Return the element type that a pickle names, or holds as JSON."""
    if not isinstance(element, dict):
        return element_type("pickle", element)
    try:
        return check_element("pickle", from_json(element))
    except (KeyError, TypeError, RecursionError) as error:
        raise damaged("an array", f"its element type cannot be read ({error})") from None


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

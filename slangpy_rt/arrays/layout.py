"""Layout: how an array lies in memory. A device interns its layouts; memory and addresses are not part of them.

Arrays of equal kind, element, shape, strides and alignment share one Layout object, so a call recognizes its
arguments by identity.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from slangpy_rt.core.dtypes import NUMPY_OF, storage
from slangpy_rt.core.shapes import Shape, contiguous
from slangpy_rt.core.types import SlangType

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

T = TypeVar("T")


class Layout:
    """How an array lies in memory. Only ``layout_of`` makes one.

    Attributes
    ----------
    kind : type
        ``Tensor`` or ``NDBuffer``.
    element : SlangType
        Type of one element.
    shape : tuple of int
        In elements.
    strides : tuple of int
        One for each dimension of ``full_shape``, in scalars (in bytes for structs).
    full_shape : tuple of int
        Shape of the NumPy array: ``shape``, followed by the element's own dimensions.
    unit : int
        Bytes of a stride of 1.
    aligned : bool
        Whether the first element lies at a multiple of 32 bytes.
    contiguous : bool
        Whether the scalars follow each other in row-major order.
    grads : Gradients or None
        Layouts of the gradients that the array carries.
    span : tuple of int
        First byte of its elements and the byte after the last, counted from the address of the first element.
    own : bool
        Whether an array of this layout takes up the whole buffer that was allocated for it: two such arrays share all
        of their memory or none.
    """

    __slots__ = (
        "__weakref__",
        "aligned",
        "contiguous",
        "device",
        "element",
        "full_shape",
        "grads",
        "kind",
        "nbytes",
        "numpy_dtype",
        "own",
        "scalar",
        "shape",
        "span",
        "strides",
        "unit",
    )

    def __init__(
        self,
        device: DeviceCore,
        kind: Any,
        element: SlangType,
        shape: Shape,
        strides: Shape,
        aligned: bool,
        grads: Gradients | None = None,
        own: bool = False,
    ) -> None:
        stored = storage(element)
        assert stored is not None, element
        self.device = device
        self.kind = kind
        self.element = element
        self.scalar = stored.scalar
        self.shape = shape
        self.full_shape = shape + stored.dims
        self.strides = strides
        self.aligned = aligned
        self.contiguous = same_walk(self.full_shape, strides, stored.step)
        self.numpy_dtype = stored.dtype
        self.unit = NUMPY_OF[stored.scalar].itemsize
        self.nbytes = prod(self.full_shape) * stored.dtype.itemsize
        self.grads = grads
        self.own = own
        self.span = (0, self.nbytes)
        if not self.contiguous:
            reach = [(n - 1) * s * self.unit for n, s in zip(self.full_shape, strides, strict=True)]
            last = sum(r for r in reach if r > 0)
            self.span = sum(r for r in reach if r < 0), last + stored.dtype.itemsize


class Laid:
    """A value of this package, other than an array, that prepared calls know by its ``layout`` alone."""

    __slots__ = ()

    layout: Any


@dataclass(frozen=True)
class Gradients:
    """Layouts of the gradients that an array carries.

    Attributes
    ----------
    into, out : Layout or None
        Layouts of ``grad_in`` and ``grad_out``.
    shared : bool
        Whether they are one array.
    fresh : bool
        Whether ``grad_out`` has no contents yet.
    """

    into: Layout | None
    out: Layout | None
    shared: bool
    fresh: bool = False


def same_walk(shape: Shape, strides: Shape, step: int = 1) -> bool:
    """Tell whether strides visit items in row-major order, ``step`` apart; dimensions of size 1 do not count."""
    if 0 in shape:
        return True
    dense = contiguous(shape, step)
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, dense, strict=True))


def layout_of(
    device: DeviceCore,
    kind: Any,
    element: SlangType,
    shape: Shape,
    strides: Shape | None = None,
    aligned: bool = True,
    grads: Gradients | None = None,
    own: bool = False,
) -> Layout:
    """Return the interned layout of an array on a device; contiguous when ``strides`` is None."""
    if strides is None:
        strides = dense_strides(element, shape)
    # Two modules may each have a struct, or an enum, of one name.
    type_ = element if element.kind in ("struct", "array", "enum") else element.name
    key = (kind, type_, shape, strides, aligned, grads, own)
    return interned(device, key, lambda: Layout(device, kind, element, shape, strides, aligned, grads, own))


def interned(device: DeviceCore, key: Hashable, make: Callable[[], T]) -> T:
    """Return a device's value of a key, which is made if nobody holds it."""
    found: T | None = device.interned.get(key)
    if found is None:
        with device.lock:
            found = device.interned.setdefault(key, make())
    assert found is not None
    return found


def new_array(layout: Layout) -> Any:
    """Return a new array of a layout, without contents."""
    buffer = layout.device.alloc(layout.nbytes)
    return layout.kind.of(layout, buffer, buffer.address)


def dense_strides(element: SlangType, shape: Shape) -> Shape:
    """Return the strides, in scalars, of a contiguous array."""
    stored = storage(element)
    assert stored is not None, element
    return contiguous(shape + stored.dims, stored.step)

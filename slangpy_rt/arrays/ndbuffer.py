"""NDBuffer: an array in device memory. Storage and its views; no arithmetic.

A view of an array that carries gradients, as a Tensor may, carries the same views of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from math import prod
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.host_memory import host_memory, seen_in, shown_to_numpy
from slangpy_rt.arrays.layout import Gradients, Layout, layout_of
from slangpy_rt.arrays.views import field, picked, seen_as
from slangpy_rt.backends.base import Buffer
from slangpy_rt.core.checks import short_tracebacks
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.dtypes import BFLOAT16, cast, element_type
from slangpy_rt.core.errors import BindError, ShapeError, UnsupportedError
from slangpy_rt.core.shapes import Shape, as_shape
from slangpy_rt.core.structs import as_struct_array, fill_struct_array
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.runtime.host_view import host_view

A = TypeVar("A", bound="NDBuffer")


@short_tracebacks("copy_from", "from_numpy", "view", "share")
class NDBuffer:
    """An array on a device, of scalars, vectors, matrices, arrays or structs; undefined until written.

    Parameters
    ----------
    device : Device
        The device that it lies on.
    dtype : str, numpy dtype or type
        Element type, ``"float"`` unless given: a Slang name (``"float3"``), a struct of a module
        (``module.Pixel``), a NumPy dtype or a Python type.
    shape : int or tuple of int
        In elements.

    Raises
    ------
    BindError
        If dtype names no element type.
    ShapeError
        If a dimension is negative.
    OutOfMemoryError
        If the device cannot hold it.
    """

    __slots__ = ("_grads", "address", "buffer", "layout")

    address: int
    buffer: Buffer
    layout: Layout
    # ``grad_in`` and ``grad_out``; set only where ``layout.grads`` is not None.
    _grads: tuple[NDBuffer | None, NDBuffer | None]

    def __init__(self, device: DeviceCore, dtype: Any = "float", shape: int | Sequence[int] = ()) -> None:
        where = type(self).__name__
        if not isinstance(device, DeviceCore):
            raise BindError(
                f"{where}: a {type(device).__name__} was given where the device is expected. Write {where}(device, "
                f"dtype, shape), or {where}.from_dlpack(device, array) for the memory of another library's array."
            )
        element = element_type(where, dtype)
        self.layout = layout_of(device, type(self), element, as_shape(where, shape), own=True)
        self.buffer = device.alloc(self.layout.nbytes)
        self.address = self.buffer.address

    @classmethod
    def of(cls: type[A], layout: Layout, buffer: Buffer, address: int) -> A:
        """Make an array of a layout, a buffer and an address; nothing is checked."""
        array = cls.__new__(cls)
        array.layout = layout
        array.buffer = buffer
        array.address = address
        return array

    @classmethod
    def from_dlpack(cls: type[A], device: DeviceCore, array: Any) -> A:
        """Make an array in the memory of another library's array, which is kept; nothing is copied.

        The device's own queue waits for work on the array that its library has queued so far. You have to order later
        work of both; calls that take the other library's array itself do that for you.

        Raises
        ------
        BindError
            If the device cannot use that memory.
        """
        from slangpy_rt.arrays.imported import kept_memory

        where = f"{cls.__name__}.from_dlpack"
        device = a_device(where, device)
        try:
            found, buffer = kept_memory(device, array)
        except BindError as error:
            raise BindError(f"{where}: {error}") from None
        layout = layout_of(device, cls, found.element, found.shape, found.strides, found.address % 32 == 0)
        return cls.of(layout, buffer, found.address)

    @property
    def summary(self) -> str:
        """The array's kind, element type and shape in words: ``"Tensor<float3> of shape (4,)"``."""
        dims = ", ".join(map(str, self.layout.shape)) + ("," if len(self.layout.shape) == 1 else "")
        return f"{type(self).__name__}<{self.layout.element.name}> of shape ({dims})"

    @property
    def device(self) -> DeviceCore:
        """The device that the array lies on."""
        return self.layout.device

    @property
    def shape(self) -> Shape:
        """The array's shape, in elements."""
        return self.layout.shape

    @property
    def dtype(self) -> SlangType:
        """The Slang type of the array's elements."""
        return self.layout.element

    @property
    def ndim(self) -> int:
        """The number of the array's dimensions."""
        return len(self.layout.shape)

    @property
    def size(self) -> int:
        """The number of the array's elements."""
        return prod(self.layout.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that the array's elements take, without gaps."""
        return self.layout.nbytes

    @property
    def is_contiguous(self) -> bool:
        """Whether the array's elements follow each other in row-major order."""
        return self.layout.contiguous

    def copy_from(self, array: npt.ArrayLike) -> None:
        """Fill the array from host data of the same shape.

        Parameters
        ----------
        array : array_like
            Data of ``shape``, element dimensions last. For structs a structured array of ``shape``, or flat data: all
            scalars in one dimension, or those of a struct in the last one. Numbers are converted to the element's
            scalar type where NumPy's 'same_kind' rule allows it and the type holds them.

        Raises
        ------
        ShapeError
            If the shape differs.
        BindError
            If the data does not convert, or this is a non-contiguous view.
        """
        NDBuffer._fill(self, f"{type(self).__name__}.copy_from", array)

    def from_numpy(self, array: npt.ArrayLike) -> None:
        """Fill the array from host data of the same shape, as ``copy_from`` does."""
        NDBuffer._fill(self, f"{type(self).__name__}.from_numpy", array)

    def _fill(self, where: str, array: npt.ArrayLike) -> None:
        if not isinstance(self, NDBuffer):  # called on the class, as Tensor.from_numpy may be
            raise BindError(
                f"NDBuffer.from_numpy: {in_words(self)} is no array to fill; NDBuffer(device, dtype, shape) is one, "
                "and Tensor.from_numpy(device, array) makes one of data."
            )
        layout = self.layout
        target = layout.numpy_dtype
        source = as_array(f"{where}: data", array)
        if target.names is not None and source.dtype.names is None:
            source = fill_struct_array(where, layout.full_shape, target, source)
        if source.shape != layout.full_shape:
            raise ShapeError(
                f"{where}: data of shape {source.shape} does not fill {self.summary}: shape {layout.full_shape} was "
                "expected. Reshape or broadcast it yourself."
            )
        if target.names is not None:
            source = as_struct_array(where, target, source)
        elif layout.element is BFLOAT16:
            from slangpy_rt.core.bfloat16 import bits_of

            source = bits_of(f"{where}: data", source)
        else:
            source = cast(f"{where}: data", layout.element.name, source, target)
        if not layout.contiguous:
            write = "write view[...] = data, or " if hasattr(self, "__setitem__") else ""
            raise BindError(f"{where}: this is a non-contiguous view; {write}fill the array it was made from.")
        layout.device.upload(self.buffer, self.address, np.asarray(source, order="C"))

    def to_numpy(self) -> npt.NDArray[Any]:
        """Copy the array to a new NumPy array of ``shape``, with the element's dimensions last.

        Raises
        ------
        OutOfMemoryError
            If the host has no memory for that.
        """
        where, layout = f"{type(self).__name__}.to_numpy", self.layout
        host, first = host_memory(where, layout)
        layout.device.download(self.buffer, self.address + first, host)
        return seen_in(where, layout, host, first)

    numpy = to_numpy

    def host_view(self) -> npt.NDArray[Any]:
        """Return the array's memory as a NumPy array, without a copy, on a device that works in host memory.

        Raises
        ------
        UnsupportedError
            On other devices.
        """
        layout = self.layout
        layout.device.check_open()
        if "zero_copy" not in layout.device.caps.features:
            raise UnsupportedError(f"{self.summary} lies in memory of {layout.device!r}; copy it with to_numpy().")
        strides = tuple(s * layout.unit for s in layout.strides)
        view = host_view(self.buffer, layout.full_shape, layout.numpy_dtype, self.address, strides)
        return shown_to_numpy(f"{type(self).__name__}.host_view", layout, view)

    def torch(self) -> Any:
        """Return the same memory as a tensor of PyTorch; scalars only, the element's dimensions last.

        PyTorch's next work waits for the device's work on the array. You have to order later work of both, unless the
        device works on PyTorch's stream (``create_torch_device``).

        Raises
        ------
        UnsupportedError
            On Vulkan, whose memory PyTorch does not know: there, ``torch.from_numpy(array.to_numpy())`` copies.
        """
        from slangpy_rt.arrays.exported import as_torch

        return as_torch(self)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Hand the array to another library by DLPack, where it lies: in host memory, or on a CUDA GPU.

        Raises
        ------
        BufferError
            If it lies in memory of Vulkan, holds structs, or lies on a GPU and a copy is asked for.
        """
        from slangpy_rt.arrays.exported import capsule

        return capsule(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device of the array: (1, 0) is host memory, (2, index) a CUDA GPU."""
        from slangpy_rt.arrays.exported import place

        return place(self)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface of an array in host memory: ``numpy.asarray(array)`` is a view of it."""
        from slangpy_rt.arrays.exported import host_interface

        return host_interface(self)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA array interface of an array that lies on a CUDA GPU."""
        from slangpy_rt.arrays.exported import cuda_interface

        return cuda_interface(self)

    def numpy_async(self) -> Coroutine[Any, Any, npt.NDArray[Any]]:
        """Return an awaitable of the NumPy array that ``to_numpy`` would return now.

        No thread waits for the device: the event loop polls for each part of the data and copies it.
        """
        where, layout = f"{type(self).__name__}.numpy_async", self.layout
        host, first = host_memory(where, layout)
        coming = layout.device.download_async(self.buffer, self.address + first, host)

        async def come() -> npt.NDArray[Any]:
            await coming
            return seen_in(where, layout, host, first)

        return come()

    def clear(self) -> None:
        """Set every scalar to zero.

        Raises
        ------
        BindError
            If this is a non-contiguous view.
        """
        layout = self.layout
        if not layout.contiguous:
            where = f"{type(self).__name__}.clear"
            raise BindError(f"{where}: this is a non-contiguous view; clear the array it was made from.")
        layout.device.clear(self.buffer, self.address, layout.nbytes)

    def share(self: A, device: DeviceCore) -> A:
        """Return the same memory as an array of another device on the same GPU, such as Vulkan memory for CUDA.

        Work of both devices on it runs in the order of the program; nothing is copied. The new array carries no
        gradients.

        Raises
        ------
        UnsupportedError
            If that device cannot reach this memory.
        """
        device = a_device(f"{type(self).__name__}.share", device)
        own = self.layout
        buffer = device.open_shared(f"{type(self).__name__}.share", self.buffer, own.device)
        layout = layout_of(device, type(self), own.element, own.shape, own.strides, own.aligned)
        return type(self).of(layout, buffer, buffer.address + self.address - self.buffer.address)

    def view(self: A, shape: int | Sequence[int], strides: Sequence[int] | None = None, offset: int = 0) -> A:
        """Return the same memory under another shape: of all elements, or of those that strides and offset pick.

        Parameters
        ----------
        strides : sequence of int, optional
            The distance of neighbours in each dimension, in elements; that of row-major order unless given.
        offset : int
            The place of the view's first element in this array, in elements.

        Raises
        ------
        ShapeError
            If the view has other elements than this array, or this is a non-contiguous view.
        """
        layout, start = seen_as(f"{type(self).__name__}.view", self.layout, shape, strides, offset)
        return self._seen(layout, self.address + start, lambda a: a.view(shape, strides, offset))

    def flatten_dtype(self: A) -> A:
        """Return the same memory as an array of scalars, the element's dimensions last.

        Raises
        ------
        BindError
            If the elements are structs.
        """
        where, layout = f"{type(self).__name__}.flatten_dtype", self.layout
        if layout.numpy_dtype.names is not None:
            raise BindError(f"{where}: {self.summary} holds structs, not one scalar type.")
        scalar = BFLOAT16 if layout.element is BFLOAT16 else element_type("flatten_dtype", layout.scalar)
        flat = layout_of(
            layout.device, type(self), scalar, layout.full_shape, layout.strides, layout.aligned, own=layout.own
        )
        return self._seen(flat, self.address, lambda a: a.flatten_dtype())

    def __getitem__(self: A, key: Any) -> A:
        """Return a view of a part of the array: integers, slices, ``None`` and ``...``, or a struct's field by name.

        Raises
        ------
        IndexError
            If an index is out of range, or is of another kind, or there is no such field.
        """
        own = self.layout
        select = field if isinstance(key, str) else picked
        element, shape, strides, start = select(type(self).__name__, own, key)
        address = self.address + start
        new = layout_of(own.device, type(self), element, shape, strides, address % 32 == 0)
        return self._seen(new, address, lambda a: a[key])

    def _seen(self: A, layout: Layout, address: int, same: Callable[[Any], Any]) -> A:
        """Make a view of the array with views of its gradients, each of which ``same`` makes from the gradient."""
        out = type(self).of(layout, self.buffer, address)
        if self.layout.grads is None:
            return out
        grad_in, grad_out = (None if g is None else same(g) for g in self._grads)
        return out._carrying(grad_in, grad_out)

    def _carrying(self: A, grad_in: NDBuffer | None, grad_out: NDBuffer | None, fresh: bool = False) -> A:
        """Return the same memory with these gradients, which fit it."""
        own = self.layout
        shared = grad_in is grad_out or (
            grad_in is not None
            and grad_out is not None
            and grad_in.address == grad_out.address
            and (grad_in.shape, grad_in.layout.strides) == (grad_out.shape, grad_out.layout.strides)
        )
        read, written = (None if g is None else g.layout for g in (grad_in, grad_out))
        grads = Gradients(read, written, shared, fresh)
        layout = layout_of(own.device, type(self), own.element, own.shape, own.strides, own.aligned, grads, own.own)
        out = type(self).of(layout, self.buffer, self.address)
        out._grads = grad_in, grad_out
        return out

    def _with_pickled(self: A, where: str, grad_in: Any, grad_out: Any) -> A:
        """Return the same memory with the gradients that a pickle held, which are checked; an NDBuffer has none.

        Raises
        ------
        BindError, ShapeError
            If they do not fit.
        """
        if grad_in is not None or grad_out is not None:
            raise BindError(f"{where}: {self.summary} is damaged: it has gradients. Write the pickle again.")
        return self

    def __copy__(self: A) -> A:
        """Return another array of the same memory and gradients."""
        own = self.layout
        # What shares its memory is not the only array there.
        shared = own.own or own.grads is not None
        layout = (
            layout_of(own.device, type(self), own.element, own.shape, own.strides, own.aligned) if shared else own
        )
        return self._seen(layout, self.address, copy)

    def __reduce__(self) -> tuple[Any, ...]:
        from slangpy_rt.arrays.pickled import array_of_state, state_of

        return array_of_state, state_of(self)

    def __len__(self) -> int:
        if not self.layout.shape:
            raise TypeError("an array without dimensions has no length")
        return self.layout.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"{self.summary} becomes a NumPy array by a copy; copy=False asks for none.")
        return self.to_numpy() if dtype is None else self.to_numpy().astype(dtype)

    def __str__(self) -> str:
        """Show the array's values as NumPy shows them."""
        return str(self._shown())

    def __repr__(self) -> str:
        if self.device.closed:
            return f"<{self.summary} of a closed device>"
        values = np.array2string(self._shown(), separator=", ", threshold=100, prefix=f"{type(self).__name__}(")
        return f"{type(self).__name__}({values}, dtype={self.layout.element.name}, device={self.device.name})"

    def _shown(self) -> npt.NDArray[Any]:
        """Return the array's values for text; NumPy may not know bfloat16."""
        own = self.layout
        if own.element is not BFLOAT16:
            return self.to_numpy()
        from slangpy_rt.arrays.pickled import as_stored
        from slangpy_rt.core.bfloat16 import floats_of

        return floats_of(as_stored(self).to_numpy())

    def _repr_png_(self) -> bytes | None:
        """Return a PNG of what ``arrays/picture.py`` calls an image, for notebooks; None if there is none to show."""
        from slangpy_rt.arrays.picture import SMALLEST, is_image, png

        shows = is_image(self.layout.element, self.shape) and not self.device.closed
        return png(self._shown(), SMALLEST) if shows else None

"""Copies of texels between images, buffers and host memory, in the order of the device's own queue."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Buffer
from slangpy_rt.backends.extras import ZeroCopy
from slangpy_rt.backends.images import Image
from slangpy_rt.core.conversion import as_array
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore, another
from slangpy_rt.textures.layout import shape_of
from slangpy_rt.textures.sampler import images_of
from slangpy_rt.textures.texels import native


def write(device: DeviceCore, image: Image, level: int, layer: int, texels: npt.NDArray[Any]) -> None:
    """Write one layer of a level from a host array, which may change once this returns."""
    texels = np.ascontiguousarray(texels)
    buffer = _as_buffer(device, texels)
    if buffer is None:
        buffer = device.alloc(texels.nbytes)
        device.upload(buffer, buffer.address, texels)
    copy(device, image, level, layer, buffer, 0, True)


def read(device: DeviceCore, image: Image, level: int, layer: int, texels: npt.NDArray[Any]) -> None:
    """Read one layer of a level into a contiguous host array."""
    buffer = _as_buffer(device, texels)
    if buffer is not None:
        copy(device, image, level, layer, buffer, 0, False)
        return
    buffer = device.alloc(texels.nbytes)
    copy(device, image, level, layer, buffer, 0, False)
    device.download(buffer, buffer.address, texels)


def _as_buffer(device: DeviceCore, texels: npt.NDArray[Any]) -> Buffer | None:
    """Return the memory of a host array as a buffer, on a device that works in host memory; None on others."""
    backend = device.backend
    return backend.wrap(texels.ctypes.data, texels.nbytes, texels) if isinstance(backend, ZeroCopy) else None


def copy(device: DeviceCore, image: Image, level: int, layer: int, buffer: Buffer, offset: int, into: bool) -> None:
    """Queue a copy between one layer of a level and a buffer."""
    device.check_open()
    backend = images_of("Texture", device)
    for observer in device.observers:
        observer.writes("a copy of texels", (image if into else buffer,))
    if not device.ordered:
        backend.copy_image(image, level, layer, buffer, offset, into)
        return
    with device.order.lock:
        device.order.order_use(device.order.main, (image, buffer), (into, not into))
        backend.copy_image(image, level, layer, buffer, offset, into)


def copied_from(where: str, texture: Any, level: int, layer: int, source: Any) -> None:
    """Copy texels into one layer of a level of a texture; what may be given is said at ``Texture.copy_from``."""
    desc, device = texture.layout.desc, texture.device
    inner = shape_of(desc._replace(array=False, dims="2d" if desc.dims == "cube" else desc.dims), level)
    if isinstance(source, type(texture)):
        _check_device(where, device, source.device)
        other, theirs = source.layout.desc, source.layout.level or 0
        if other.format is not desc.format or other.size(theirs) != desc.size(level):
            raise ShapeError(
                f"{where}: {in_words(source)} into {in_words(texture)}; sizes and formats have to be equal."
            )
        buffer = device.alloc(desc.nbytes(level))
        copy(device, source.buffer, theirs, 0, buffer, 0, False)
        copy(device, texture.buffer, level, layer, buffer, 0, True)
        return
    if isinstance(source, NDBuffer):
        _check_device(where, device, source.device)
        if not fits(source, desc.format, inner):
            raise ShapeError(_expected(where, source, texture, inner))
        dense = source if source.is_contiguous and source.address % 16 == 0 else _copy_of(source)
        copy(device, texture.buffer, level, layer, dense.buffer, dense.address - dense.buffer.address, True)
        return
    array = native(as_array(f"{where}: source", source))
    if array.dtype != desc.format.dtype or not _is_shape(array.shape, inner, desc.format.channels):
        raise ShapeError(_expected(where, array, texture, inner))
    write(device, texture.buffer, level, layer, np.ascontiguousarray(array))


def copied_to(where: str, texture: Any, level: int, layer: int, array: Any) -> None:
    """Copy one layer of a level into an array; what may be given is said at ``Texture.copy_to``."""
    desc, device = texture.layout.desc, texture.device
    if not isinstance(array, NDBuffer):
        raise BindError(f"{where}: {in_words(array)}; a Tensor or an NDBuffer was expected.")
    if array.device is not device:
        raise BindError(f"{where}: the array lies on {another(array.device, device)}, the texture on {device!r}.")
    inner = shape_of(desc._replace(array=False, dims="2d" if desc.dims == "cube" else desc.dims), level)
    if not fits(array, desc.format, inner):
        raise ShapeError(_expected(where, array, texture, inner))
    if not array.is_contiguous:
        raise BindError(f"{where}: {in_words(array)} is a non-contiguous view; give the array it was made from.")
    if array.address % 16 == 0:
        copy(device, texture.buffer, level, layer, array.buffer, array.address - array.buffer.address, False)
        return
    texels = np.empty(array.layout.full_shape, desc.format.dtype)
    read(device, texture.buffer, level, layer, texels)
    device.upload(array.buffer, array.address, texels)


def fits(array: NDBuffer, format: Any, inner: tuple[int, ...]) -> bool:
    """Tell whether an array's elements, scalars or vectors, are texels of a format in an image of that shape."""
    layout = array.layout
    return layout.numpy_dtype == format.dtype and _is_shape(layout.full_shape, inner, format.channels)


def _is_shape(shape: tuple[int, ...], inner: tuple[int, ...], channels: int) -> bool:
    return shape == (*inner, channels) or (channels == 1 and shape == inner)


def _copy_of(source: NDBuffer) -> NDBuffer:
    made = type(source)(source.device, source.dtype, source.shape)
    made.copy_from(source.to_numpy())
    return made


def _expected(where: str, source: Any, texture: Any, inner: tuple[int, ...]) -> str:
    format = texture.layout.desc.format
    last = f" and {format.channels} channels" if format.channels > 1 else ""
    return (
        f"{where}: {in_words(source)}; {format.name} takes numbers of dtype {format.dtype}, here of shape {inner}"
        f"{last}."
    )


def _check_device(where: str, device: DeviceCore, other: DeviceCore) -> None:
    if other is not device:
        raise BindError(f"{where}: the source lies on {another(other, device)}, the texture on {device!r}.")

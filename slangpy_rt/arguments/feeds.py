"""Feeds: how one argument's value reaches the kernel at every call, and comes back from it.

A feed was chosen for values of one signature; it decides nothing about types or shapes any more.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from math import inf, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.backends.base import Buffer, SharedBuffer
from slangpy_rt.backends.extras import ZeroCopy
from slangpy_rt.core.addresses import address_of
from slangpy_rt.core.conversion import as_element
from slangpy_rt.core.dtypes import limits, span, storage
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.structs import to_python
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


# Larger arrays gain little: at 256 KiB, CUDA takes 74 us so, and 95 with copies (H200).
_SHARED_BYTES = 1 << 18


class Region(NamedTuple):
    """Memory outside of the device, or a value of Python's, by its address.

    Attributes
    ----------
    shape, strides : tuple of int
        Of an array, strides in bytes.
    nbytes : int
        Of one item.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int

    @property
    def span(self) -> tuple[int, int]:
        """The address of its first byte, and that behind its last."""
        low = high = self.address
        for n, stride in zip(self.shape, self.strides, strict=True):
            low, high = low + min((n - 1) * stride, 0), high + max((n - 1) * stride, 0)
        return low, high + self.nbytes


class Feed(ABC):
    """Moves one argument's value into the block of a call."""

    # How many buffers it adds, and whether ``bring_back`` has anything to do.
    buffers = 0
    returns = False
    # Whether what it adds holds for as long as the value lives, with nothing to move at each call.
    lasting = True
    # Whether the kernel works in memory of this call alone.
    private = False
    # How many places outside of the device it writes to after the call: what ``regions`` returns.
    brings = 0
    # For arrays of another library on a GPU: functions that return the handle of the stream on which that library
    # works on a value just now. Feeds with the same function have the same stream.
    streams: tuple[Callable[[Any], int], ...] = ()
    # Functions that find each of its arrays on the device in the value, None for the value itself. None instead of a
    # tuple if it adds anything but arrays' addresses and buffers, or has anything to do afterwards.
    finds: tuple[Callable[[Any], Any] | None, ...] | None = None
    # Whether ``bring_back`` reads memory that the host shares: the call waits for the kernel before it, once for all.
    waits = False
    # The class of prepared calls whose arguments all have such feeds, in the order of the values; None for any.
    call: Any = None

    @abstractmethod
    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        """Append what the block packs for this argument, and the buffers that the kernel touches."""

    def partial(self) -> Feed:
        """Return the feed for an array of which the kernel writes a part."""
        return self

    def regions(self, value: Any) -> list[Region]:
        """Return the memory that ``bring_back`` writes to."""
        return []

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:  # noqa: B027 - most have nothing to bring back
        """Bring back what the kernel wrote, given the buffers that ``pack`` added."""


class ArrayFeed(Feed):
    """A Tensor or NDBuffer: its address."""

    buffers = 1
    finds = (None,)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.address)
        buffers.append(value.buffer)


class FieldFeed(Feed):
    """One field of an array of structs: where it begins in the first of them."""

    buffers = 1

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(value.address + self.offset)
        buffers.append(value.buffer)


class GradientFeed(Feed):
    """A value, and then its gradients, for each of which a feed finds its own in the value."""

    def __init__(self, *feeds: Feed) -> None:
        self._feeds = feeds
        self.buffers = sum(feed.buffers for feed in feeds)
        self.brings = sum(feed.brings for feed in feeds)
        self.returns = any(feed.returns for feed in feeds)
        self.lasting = all(feed.lasting for feed in feeds)
        self.streams = tuple(find for feed in feeds for find in feed.streams)
        self.waits = any(feed.waits for feed in feeds)
        if all(feed.finds is not None for feed in feeds):
            self.finds = tuple(find for feed in feeds for find in feed.finds or ())

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        for feed in self._feeds:
            feed.pack(value, block, buffers)

    def regions(self, value: Any) -> list[Region]:
        return [region for feed in self._feeds if feed.brings for region in feed.regions(value)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        at = 0
        for feed in self._feeds:
            if feed.returns:
                feed.bring_back(value, buffers[at : at + feed.buffers])
            at += feed.buffers


class NoFeed(Feed):
    """A value that the kernel does not use: nothing."""

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        pass


class GeneratorFeed(Feed):
    """A generator's numbers."""

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block += value.values()


class ValueFeed(Feed):
    """A scalar, vector or matrix: its scalars, in the block itself."""

    def __init__(self, where: str, type_: SlangType, scalar: str) -> None:
        self._where = where
        self._type = type_
        self._bounds = limits(scalar)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        if type(value) in _NUMBERS:
            scalars: Sequence[Any] = (value,)
        elif type(value) is list and type(value[0]) in _NUMBERS:
            scalars = value
        else:
            scalars = np.asarray(value).ravel().tolist()
        if self._bounds is not None:
            self._check(scalars, *self._bounds)
        block += scalars

    def _check(self, scalars: Sequence[Any], low: float, high: float) -> None:
        for x in scalars:
            # NaN and infinity are a half's too.
            if not low <= x <= high and x == x and abs(x) != inf:
                text = in_words(x)
                raise BindError(
                    f"{self._where} is {text}, which does not fit '{self._type.name}' ({span(low, high)})."
                )


class SplatFeed(ValueFeed):
    """One number for every scalar of a vector or matrix, as Slang converts it."""

    def __init__(self, where: str, type_: SlangType, scalar: str, count: int) -> None:
        super().__init__(where, type_, scalar)
        self._count = count

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        number = value if type(value) in _NUMBERS else np.asarray(value).item()
        if self._bounds is not None:
            self._check([number], *self._bounds)
        block += [number] * self._count


class EnumFeed(Feed):
    """A case of an enum, by number, by name or as a Python enum."""

    def __init__(self, number: Callable[[Any], int]) -> None:
        self._number = number

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        block.append(self._number(value))


class HostViewFeed(Feed):
    """A NumPy array used in place, on a device that shares the host's memory."""

    buffers = 1
    lasting = False

    def __init__(self, device: DeviceCore, as_array: Callable[[Any], npt.NDArray[Any]]) -> None:
        assert isinstance(device.backend, ZeroCopy)
        self._wrap = device.backend.wrap
        self._as_array = as_array
        # Whether values are used as they are.
        self.plain = as_array is np.asarray

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = self._as_array(value)
        address = address_of(array)
        block.append(address)
        buffers.append(self._wrap(address, array.nbytes, array))


class HostCopyFeed(Feed):
    """A NumPy array copied to the device for the call, and back if the kernel writes it.

    A small one that is walked element by element is copied no farther than to memory that both sides address: on
    an H200, add over 1,000 floats takes 34 us with copies by CUDA and 22 without, 70 and 36 by Vulkan.
    """

    buffers = 1
    private = True

    def __init__(
        self,
        device: DeviceCore,
        as_array: Callable[[Any], npt.NDArray[Any]],
        access: str,
        shared_bytes: int = _SHARED_BYTES,
    ) -> None:
        self.lasting = False
        self._device = device
        self._as_array = as_array
        self._access = access
        self._shared_bytes = shared_bytes
        # Prepared calls are dropped when the device closes: no call has to ask whether it is open.
        self._alloc_shared = device.alloc_mapped
        self.returns = self.waits = access != "in"
        self.brings = int(self.returns)

    def in_device_memory(self) -> HostCopyFeed:
        """Return the feed for an array that threads read anywhere, again and again: in the device's own memory."""
        return HostCopyFeed(self._device, self._as_array, self._access, 0)

    def partial(self) -> HostCopyFeed:
        """Return the feed for an array of which the kernel writes a part."""
        return HostCopyFeed(self._device, self._as_array, "inout", self._shared_bytes)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        array = self._as_array(value)
        nbytes = array.nbytes
        if 0 < nbytes <= self._shared_bytes:
            shared: SharedBuffer | None = self._alloc_shared(nbytes)
            if shared is not None:
                if self._access != "out":
                    shared.write(array)
                block.append(shared.address)
                buffers.append(shared)
                return
        buffer = self._device.alloc(nbytes)
        if self._access != "out":
            self._device.upload(buffer, buffer.address, array)
        block.append(buffer.address)
        buffers.append(buffer)

    def regions(self, value: Any) -> list[Region]:
        return [Region(address_of(value), value.shape, value.strides, value.itemsize)] if value.size else []

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        buffer = buffers[0]
        if isinstance(buffer, SharedBuffer):
            buffer.read(value)
        elif value.flags.c_contiguous:
            self._device.download(buffer, buffer.address, value)
        else:
            host = np.empty(value.shape, value.dtype)
            self._device.download(buffer, buffer.address, host)
            value[...] = host


class PartsFeed(Feed):
    """A value made of parts, each with a feed of its own."""

    def __init__(self, parts: Callable[[Any], Sequence[Any]], feeds: Sequence[Feed]) -> None:
        self.parts = parts
        self._feeds = tuple(feeds)
        self.buffers = sum(feed.buffers for feed in feeds)
        self.brings = sum(feed.brings for feed in feeds)
        self.returns = any(feed.returns for feed in feeds)
        self.lasting = all(feed.lasting for feed in feeds)
        self.streams = tuple(_of_part(parts, k, find) for k, feed in enumerate(feeds) for find in feed.streams)
        self.waits = any(feed.waits for feed in feeds)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        for part, feed in zip(self.parts(value), self._feeds, strict=True):
            feed.pack(part, block, buffers)

    def regions(self, value: Any) -> list[Region]:
        parts = zip(self.parts(value), self._feeds, strict=True)
        return [region for part, feed in parts if feed.brings for region in feed.regions(part)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        at = 0
        for part, feed in zip(self.parts(value), self._feeds, strict=True):
            if feed.returns:
                feed.bring_back(part, buffers[at : at + feed.buffers])
            at += feed.buffers


class RefFeed(Feed):
    """A ValueRef, or the gradient in a DiffPair: a cell of device memory, read back after the call.

    What a kernel ``accumulate``s in it is added to what the value holds then: one pair may stand for two arguments.
    """

    buffers = 1
    private = True

    def __init__(self, where: str, device: DeviceCore, type_: SlangType, access: str, name: str = "value") -> None:
        stored = storage(type_)
        assert stored is not None, type_
        self.lasting = False
        self._where = where
        self._type = type_
        self._name = name
        self._device = device
        self._dtype = stored.dtype
        self._dims = stored.dims
        self._access = access
        self.returns = access != "in"
        self.brings = int(access in ("out", "inout"))

    def partial(self) -> RefFeed:
        """Return the feed whose cell begins as the value."""
        other = copy(self)
        other._access, other.brings = "inout", 1
        return other

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        buffer = self._device.alloc(prod(self._dims) * self._dtype.itemsize)
        if self._access != "out":
            start = getattr(value, self._name) if self._access != "accumulate" else None
            # A gradient that nobody gave is zero, and so is what is added up for one.
            cell = (
                np.zeros(self._dims, self._dtype)
                if start is None and (self._name == "grad" or self._access == "accumulate")
                else as_element(self._where, self._type, start)
            )
            self._device.upload(buffer, buffer.address, cell)
        block.append(buffer.address)
        buffers.append(buffer)

    def regions(self, value: Any) -> list[Region]:
        # A pair has two values; so do those that stand for its gradient.
        pair, second = getattr(value, "_pair", value), self._name == "grad" or hasattr(value, "_pair")
        return [Region(id(pair) + second, (), (), 1)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        cell = np.empty(self._dims, self._dtype)
        self._device.download(buffers[0], buffers[0].address, cell)
        before = getattr(value, self._name) if self._access == "accumulate" else None
        if before is not None:
            cell = cell + np.asarray(before, self._dtype)
        setattr(value, self._name, to_python(cell))


class ConvertedFeed(Feed):
    """A value that stands for another: an object with ``__slang_arg__``, a ``range``."""

    def __init__(self, convert: Callable[[Any], Any], inner: Feed, written: bool) -> None:
        self.convert = convert
        self.inner = inner
        self.written = written
        self.buffers = inner.buffers
        self.returns = inner.returns or written
        self.lasting = inner.lasting
        self.private = inner.private
        self.brings = inner.brings
        self.streams = tuple(_of_converted(convert, find) for find in inner.streams)
        self.waits = inner.waits
        if inner.finds is not None and not self.returns:
            self.finds = tuple(convert if find is None else _of_converted(convert, find) for find in inner.finds)

    def partial(self) -> ConvertedFeed:
        return ConvertedFeed(self.convert, self.inner.partial(), self.written)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        self.inner.pack(self.convert(value), block, buffers)

    def regions(self, value: Any) -> list[Region]:
        return self.inner.regions(self.convert(value))

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        inner = self.convert(value)
        if self.inner.returns:
            self.inner.bring_back(inner, buffers)
        if self.written and hasattr(value, "update_this"):
            value.update_this(inner)


def _of_part(parts: Callable[[Any], Sequence[Any]], place: int, find: Callable[[Any], int]) -> Callable[[Any], int]:
    """``find``, applied to part number ``place`` of the value."""
    return lambda value: find(parts(value)[place])


def _of_converted(convert: Callable[[Any], Any], find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``find``, applied to what ``convert`` makes of the value."""
    return lambda value: find(convert(value))


_NUMBERS = frozenset({int, float, bool})

"""Packers made of packers: for the parts of a value, for its gradients, for the value that it is converted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.packer import Packer, Region
from slangpy_rt.backends.base import Buffer


class PartsPacker(Packer):
    """A value made of parts, each with a packer of its own."""

    def __init__(self, parts: Callable[[Any], Sequence[Any]], packers: Sequence[Packer]) -> None:
        self.parts = parts
        self._packers = tuple(packers)
        self.buffers = sum(packer.buffers for packer in packers)
        self.brings = sum(packer.brings for packer in packers)
        self.returns = any(packer.returns for packer in packers)
        self.lasting = all(packer.lasting for packer in packers)
        self.streams = tuple(_of_part(parts, k, find) for k, packer in enumerate(packers) for find in packer.streams)
        self.waits = any(packer.waits for packer in packers)

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        for part, packer in zip(self.parts(value), self._packers, strict=True):
            packer.pack(part, block, buffers)

    def regions(self, value: Any) -> list[Region]:
        parts = zip(self.parts(value), self._packers, strict=True)
        return [region for part, packer in parts if packer.brings for region in packer.regions(part)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        at = 0
        for part, packer in zip(self.parts(value), self._packers, strict=True):
            if packer.returns:
                packer.bring_back(part, buffers[at : at + packer.buffers])
            at += packer.buffers


class GradientPacker(Packer):
    """A value and then its gradients; every inner packer takes the value and finds its own array in it."""

    def __init__(self, *packers: Packer) -> None:
        self._packers = packers
        self.buffers = sum(packer.buffers for packer in packers)
        self.brings = sum(packer.brings for packer in packers)
        self.returns = any(packer.returns for packer in packers)
        self.lasting = all(packer.lasting for packer in packers)
        self.streams = tuple(find for packer in packers for find in packer.streams)
        self.waits = any(packer.waits for packer in packers)
        if all(packer.finds is not None for packer in packers):
            self.finds = tuple(find for packer in packers for find in packer.finds or ())

    def pack(self, value: Any, block: list[Any], buffers: list[Buffer]) -> None:
        for packer in self._packers:
            packer.pack(value, block, buffers)

    def regions(self, value: Any) -> list[Region]:
        return [region for packer in self._packers if packer.brings for region in packer.regions(value)]

    def bring_back(self, value: Any, buffers: Sequence[Buffer]) -> None:
        at = 0
        for packer in self._packers:
            if packer.returns:
                packer.bring_back(value, buffers[at : at + packer.buffers])
            at += packer.buffers


class ConvertedPacker(Packer):
    """A value that is converted to another one at each call, such as a ``range`` or a field's value.

    With ``written``, an object that has ``update_this`` gets the other value after the call.
    """

    def __init__(self, convert: Callable[[Any], Any], inner: Packer, written: bool) -> None:
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

    def partial(self) -> ConvertedPacker:
        return ConvertedPacker(self.convert, self.inner.partial(), self.written)

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
    """Return the function that applies ``find`` to part number ``place`` of a value."""
    return lambda value: find(parts(value)[place])


def _of_converted(convert: Callable[[Any], Any], find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that applies ``find`` to the result of ``convert``."""
    return lambda value: find(convert(value))

"""Feeds made of feeds: for the parts of a value, for its gradients, for the value that it is converted to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.feed import Feed, Region
from slangpy_rt.backends.base import Buffer


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


class GradientFeed(Feed):
    """A value and then its gradients; every inner feed takes the value and finds its own array in it."""

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


class ConvertedFeed(Feed):
    """A value that is converted to another one at each call, such as a ``range`` or a field's value.

    With ``written``, an object that has ``update_this`` gets the other value after the call.
    """

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
    """Return the function that applies ``find`` to part number ``place`` of a value."""
    return lambda value: find(parts(value)[place])


def _of_converted(convert: Callable[[Any], Any], find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the function that applies ``find`` to the result of ``convert``."""
    return lambda value: find(convert(value))

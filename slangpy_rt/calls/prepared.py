"""A prepared call: the path that a repeated call takes. It packs addresses and values, and launches.

It does no reflection, no string work and no import; everything that follows from layouts was decided in ``plan``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.conflicts import Conflicts, Place, clash_of, clashing
from slangpy_rt.arguments.feeds import ArrayFeed, PointerFeed
from slangpy_rt.backends.base import Buffer, Dispatch, Kernel
from slangpy_rt.core.errors import BindError, OutOfMemoryError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.wording import describe
from slangpy_rt.runtime.diagnostics import Launcher
from slangpy_rt.runtime.foreign_stream import foreign_stream

if TYPE_CHECKING:
    from slangpy_rt_codegen import CallSpec

    from slangpy_rt.runtime.core import DeviceCore
    from slangpy_rt.runtime.foreign_stream import ForeignStream
    from slangpy_rt.runtime.stream import Stream


_MAX_FLOAT = 3.4028234663852886e38  # of 32 bits
# That a call's values are not like those of the one before.
MISS: Any = object()


class PreparedCall:
    """A kernel with everything that follows from the arguments' layouts.

    Attributes
    ----------
    spec : CallSpec
        What the kernel does.
    text : str
        Its Slang text.
    bound : tuple of Bound
        The arguments, then the result if there is one.
    shape : tuple of int
        The call's shape before dimensions were merged.
    launcher : Launcher or None
        What a launch has to go through, if the kernel may print or checks its accesses.
    pointers : bool
        Whether all its arguments are arrays of another library, in place.
    """

    __slots__ = (
        "_again", "_alloc", "_brought", "_conflicts", "_device", "_feeds", "_finishes", "_groups", "_into",
        "_kernel", "_known_alone", "_make", "_order", "_others", "_pack", "_packs", "_plain", "_prefix", "_result",
        "_straight", "_stream", "_unwrap", "_where", "bound", "launcher", "pointers", "shape", "spec", "text",
    )  # fmt: skip

    def __init__(
        self,
        device: DeviceCore,
        spec: CallSpec,
        text: str,
        bound: tuple[Bound, ...],
        shape: Shape,
        kernel: Kernel | None,
        groups: tuple[int, int, int],
        prefix: bytes,
        pack: Callable[..., bytes],
        order: tuple[int, ...],
        result: Result,
        launcher: Launcher | None,
        conflicts: Conflicts | None = None,
    ) -> None:
        self.spec = spec
        self.text = text
        self.bound = bound
        self.shape = shape
        self._device = device
        self._kernel: Any = kernel
        self._groups = groups
        self._prefix = prefix
        self._pack = pack
        self._order = order
        self._feeds = tuple(b.whole_feed for b in bound)
        # The feeds' values stand in their order, but for a result that is made.
        self._straight = order == tuple(range(len(order))) and not result.named
        # Only arrays, in the order of the parameters: their addresses are all that a call has to pack.
        kinds = {type(feed) for feed in self._feeds}
        direct = kernel is not None and self._straight and launcher is None
        self._packs = direct and kinds <= {ArrayFeed}
        self._conflicts = conflicts
        # And they cannot share memory with each other so that it matters.
        self._plain = self._packs and conflicts is None
        # The same with another library's arrays.
        self.pointers = direct and kinds == {PointerFeed}
        self._again: Callable[[tuple[Any, ...]], Any] | None = None
        # What find streams, and in which value; the result that was given is the last.
        streams: dict[Callable[[Any], int], int] = {}
        for k, feed in zip((*order, -1), self._feeds, strict=False):
            for find in feed.streams:
                streams.setdefault(find, k)
        found = [(k, find) for find, k in streams.items()]
        self._where = found[0][0] if found else 0
        self._stream = found[0][1] if found else None
        self._others = tuple(found[1:])
        ends = list(accumulate(feed.buffers for feed in self._feeds))
        self._finishes = tuple(
            (k, feed, ends[k] - feed.buffers, ends[k]) for k, feed in enumerate(self._feeds) if feed.returns
        )
        # What writes to memory outside of the device, but for a result that is made.
        given = self._feeds if result.into or result.bound is None else self._feeds[:-1]
        self._brought = tuple((k, feed) for k, feed in zip((*order, -1), given, strict=False) if feed.brings)
        self._known_alone = False
        self._into = result.into
        self.launcher = launcher
        self._alloc = device.backend.alloc
        self._result = result.layout
        self._make = result.make
        self._unwrap = result.unwrap

    def run(self, values: tuple[Any, ...]) -> Any:
        """Run it on arguments of the signature it was prepared for, on a device that is open.

        Parameters
        ----------
        values : tuple
            Positional values, keyword values, and then ``_result`` if one was given.
        """
        if not self._plain:
            if self._packs:
                return self._run_compared(values)
            if self.pointers:
                return self._run_pointers(values)
            if self._stream is None:
                return self.run_with(self._device.launch, values)
            if self._others:
                return self._run_among(values)
            return self.run_with(foreign_stream(self._device, self._stream(values[self._where])).launch, values)
        out = None
        layout = self._result
        if layout is not None:
            try:
                buffer = self._alloc(layout.nbytes)
            except OutOfMemoryError:
                buffer = self._device.alloc(layout.nbytes)
            kind = layout.kind
            out = kind.__new__(kind)
            out.layout = layout
            out.buffer = buffer
            out.address = buffer.address
            values = (*values, out)
        elif self._into:
            out = values[-1]
        # The device's: who looks on, or orders streams, changes it.
        self._device.launch(
            self._kernel,
            self._groups,
            self._prefix + self._pack(*[a.address for a in values]),
            [a.buffer for a in values],
        )
        return out

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """As ``run``, on a stream."""
        if self._stream is None:
            return self.run_with(stream.launch, values)
        for guests in self._all_theirs(values):
            stream.wait(guests.stream())
        out = self.run_with(stream.launch, values)
        for guests in self._all_theirs(values):
            guests.stream().wait(stream)
        return out

    def bound_to(self, values: tuple[Any, ...], stream: Stream | None) -> Callable[[], Any]:
        """This call on these arguments, packed once where no data has to be moved for it."""
        packs = self._packs and self._result is None
        places = [a.address for a in values] if packs else []
        if not packs or (self._conflicts is not None and self._conflicts.found(places)):

            def run() -> Any:
                self._device.check_open()
                return self.run(values) if stream is None else self.run_on(stream, values)

            return run
        device = self._device
        args = self._prefix + self._pack(*places)
        dispatch = Dispatch(self._kernel, self._groups, args, tuple([a.buffer for a in values]))
        out = values[-1] if self._into else None
        launches: Any = device if stream is None else stream
        again = device.backend.queue.prepare(dispatch) if stream is None else None

        def replay() -> Any:
            if device.plain and again is not None:
                again()
                return out
            device.check_open()
            launches.launch(*dispatch)
            return out

        return replay

    def recorded(self, values: tuple[Any, ...]) -> tuple[list[Dispatch], Dispatch | None, Any]:
        """What copies arguments, what would be launched on these, None without elements, and the result.

        Raises
        ------
        BindError
            If an argument has to be moved at each call.
        """
        if self._plain and self._make is None:
            block = self._prefix + self._pack(*[a.address for a in values])
            out = values[-1] if self._into else None
            return [], Dispatch(self._kernel, self._groups, block, tuple([a.buffer for a in values])), out
        for b, feed in zip(self.bound, self._feeds, strict=True):
            if not feed.lasting:
                name = next((leaf.name for leaf in b.leaves if not leaf.feed.lasting), b.name)
                raise BindError(
                    f"{self.spec.title}: a command list does not take '{name}': nothing would move it when the list "
                    "runs. Use a Tensor or an NDBuffer; of a deterministic device, bwds has to be called by itself."
                )
        out = values[-1] if self._into else self._make() if self._make is not None else None
        if self._kernel is None:
            return [], None, out
        if not self._straight:
            values = (*[values[k] for k in self._order], out)
        elif self._make is not None:
            values = (*values, out)
        items: list[Any] = []
        buffers: list[Buffer] = []
        for feed, value in zip(self._feeds, values, strict=False):
            feed.feed(value, items, buffers)
        found = self._conflicts.found(items) if self._conflicts is not None else []
        copies = self._conflicts.copies(found, items, buffers) if self._conflicts is not None and found else []
        every = self.launcher.with_buffer(buffers) if self.launcher is not None else tuple(buffers)
        out = None if self._unwrap is not None else out
        return copies, Dispatch(self._kernel, self._groups, self._prefix + self._packed(items), every), out

    def is_like(self, other: PreparedCall) -> bool:
        """Whether it launches the same kernel over arrays that lie alike, wherever they begin."""
        same = self._kernel is other._kernel and self._groups == other._groups and self._prefix == other._prefix
        return self is other or same

    @property
    def returns_host_data(self) -> bool:
        """Whether the result it makes is a number or a NumPy array."""
        return self._make is not None and not self._feeds[-1].lasting

    def adds_to_gradients_of(self, place: int) -> bool:
        """Whether the value at a place among the call's gets gradients added; False if they are written, all of them.

        A gradient that the kernel does not touch counts as added to.
        """
        if self._kernel is None or place not in self._order:
            return True
        leaves = self.bound[self._order.index(place)].places
        return not all(leaf.grad_out is not None and leaf.grad_out.access == "out" for leaf in leaves)

    def written(self, values: tuple[Any, ...]) -> set[int]:
        """The places among the call's values of what it writes to."""
        places = {k for k, b in zip(self._order, self.bound, strict=False) if b.access in ("out", "inout")}
        return places | {len(values) - 1} if self._into else places

    def addresses(self, values: tuple[Any, ...]) -> list[Any] | None:
        """What the block holds of these arguments; None if data has to be moved for it or nothing is launched."""
        if self._kernel is None or self.launcher is not None or not all(feed.lasting for feed in self._feeds):
            return None
        block: list[Any] = []
        for k, feed in zip((*self._order, -1), self._feeds, strict=False):
            feed.feed(values[k], block, [])
        return block

    def launch_at(self, launch: Callable[..., None], block: list[Any]) -> None:
        """Launch it on memory that other libraries keep: what ``addresses`` returned, of other arguments."""
        launch(self._kernel, self._groups, self._prefix + self._pack(*block), ())

    def again(self, values: tuple[Any, ...], failed: Any) -> Callable[[tuple[Any, ...]], Any] | None:
        """What runs it on values that are like these, told in one look at all of them, or else returns ``MISS``.

        ``failed`` is what did not know these values: it is not returned again. Of calls with ``pointers``; None where
        there is no such look.
        """
        if self._again is None or self._again is failed:
            feed: Any = self._feeds[0]
            self._again = self._looked_at(feed.alike(values), values)
        return self._again

    def _looked_at(
        self, alike: Callable[..., bool] | None, values: tuple[Any, ...]
    ) -> Callable[[tuple[Any, ...]], Any] | None:
        stream = self._stream
        # The signature has their alignment, but on the CPU.
        if alike is None or (stream is not None and any(v.data_ptr() % 32 for v in values)):
            return None
        # Addresses that are remembered are those of given arrays.
        if self._conflicts is not None and self._make is not None:
            return None
        kernel, groups, prefix, pack, make, into = (
            self._kernel, self._groups, self._prefix, self._pack, self._make, self._into
        )  # fmt: skip
        device = self._device
        apart = None if self._conflicts is None else self._conflicts.apart
        known, count = device.guests_of, len(values)

        def run(values: tuple[Any, ...]) -> Any:
            if len(values) != count or not alike(*values):
                return MISS
            places = [v.data_ptr() for v in values]
            launch = device.launch
            if stream is not None:
                for place in places:
                    if place & 31:
                        return MISS
                handle = stream(None)
                launch = (known.get(handle) or foreign_stream(device, handle)).direct
            out = None
            if make is not None:
                out = make()
                places.append(out.data_ptr())
            elif into:
                out = values[-1]
            packed = pack(*places)
            if apart is not None and packed not in apart:
                return MISS
            launch(kernel, groups, prefix + packed, ())
            return out

        return run

    def _run_among(self, values: tuple[Any, ...]) -> Any:
        """On the stream that another library works on; others, if there are any, wait for it and it for them."""
        first, *others = self._all_theirs(values)
        for other in others:
            first.stream().wait(other.stream())
        out = self.run_with(first.launch, values)
        for other in others:
            other.stream().wait(first.stream())
        return out

    def _all_theirs(self, values: tuple[Any, ...]) -> list[ForeignStream]:
        assert self._stream is not None
        handles = [self._stream(values[self._where]), *[find(values[k]) for k, find in self._others]]
        return [foreign_stream(self._device, handle) for handle in dict.fromkeys(handles)]

    def _run_pointers(self, values: tuple[Any, ...]) -> Any:
        """With arrays of another library only: on the stream that it works on, in its order."""
        out = None
        if self._make is not None:
            out = self._make()
            values = (*values, out)
        elif self._into:
            out = values[-1]
        places = [v.data_ptr() for v in values]
        stream = self._stream
        if stream is None:
            launch = self._device.launch
        else:
            handle = stream(values[self._where])
            guests = self._device.guests_of.get(handle) or foreign_stream(self._device, handle)
            launch = guests.direct
        packed = self._pack(*places)
        conflicts = self._conflicts
        if conflicts is not None and packed not in conflicts.apart:
            found = conflicts.found_in(packed, places)
            if found:
                self._launch_apart(launch if stream is None else guests.launch, found, places, values)
                return out
        launch(self._kernel, self._groups, self._prefix + packed, ())
        return out

    def _run_compared(self, values: tuple[Any, ...]) -> Any:
        """With arrays only, of which some may share memory."""
        out = None
        if self._make is not None:
            out = self._make()
            values = (*values, out)
        elif self._into:
            out = values[-1]
        places = [a.address for a in values]
        buffers = [a.buffer for a in values]
        conflicts = self._conflicts
        assert conflicts is not None
        packed = self._pack(*places)
        if packed not in conflicts.apart:
            found = conflicts.found_in(packed, places)
            if found:
                for dispatch in conflicts.copies(found, places, buffers):
                    self._device.launch(*dispatch)
                packed = self._pack(*places)
        self._device.launch(self._kernel, self._groups, self._prefix + packed, buffers)
        return out

    def _launch_apart(
        self, launch: Callable[..., None], found: list[Place], places: list[Any], values: tuple[Any, ...]
    ) -> None:
        """Launch it on arrays of another library at these addresses, some of them copied before."""
        assert self._conflicts is not None
        buffers: list[Buffer] = [self._device.guest] * len(values)
        for dispatch in self._conflicts.copies(found, places, buffers):
            launch(*dispatch)
        launch(self._kernel, self._groups, self._prefix + self._pack(*places), buffers)

    def run_with(self, launch: Callable[..., None], values: tuple[Any, ...]) -> Any:
        """As ``run``, launched by a function."""
        out = values[-1] if self._into else self._make() if self._make is not None else None
        if self._kernel is not None:
            given, brought = values, self._brought
            if not self._straight:
                values = (*[values[k] for k in self._order], out)
            elif self._make is not None:
                values = (*values, out)
            if brought:
                regions = [r for k, feed in brought for r in feed.regions(given[k])]
                # How each lies, the signature says.
                clash = clash_of(regions, not self._known_alone)
                if clash is not None:
                    raise clashing(self.spec.title, self._names(len(regions)), regions, clash)
                self._known_alone = True
                if len(regions) < 2:
                    self._brought = ()
            block: list[Any] = []
            buffers: list[Buffer] = []
            for feed, value in zip(self._feeds, values, strict=False):
                feed.feed(value, block, buffers)
            if self._conflicts is not None:
                found = self._conflicts.found(block)
                if found:
                    for dispatch in self._conflicts.copies(found, block, buffers):
                        launch(*dispatch)
            if self.launcher is not None:
                launch = partial(self.launcher.launch, launch)
            launch(self._kernel, self._groups, self._prefix + self._packed(block), buffers)
            for k, feed, first, end in self._finishes:
                feed.finish(values[k], buffers[first:end])
        return self._unwrap(out) if self._unwrap is not None else out

    def _names(self, count: int) -> list[str]:
        """Of the arguments that bring something back; those without elements do not."""
        leaves = (leaf for b in self.bound for leaf in b.leaves if leaf.feed.brings and 0 not in leaf.shape)
        return [leaf.name for leaf, _ in zip(leaves, range(count), strict=False)]

    def _packed(self, block: list[Any]) -> bytes:
        try:
            return self._pack(*block)
        except (struct.error, OverflowError) as error:
            raise BindError(f"{self.spec.title}: {self._misfit(block) or error}.") from None

    def _misfit(self, block: list[Any]) -> str:
        """Which argument holds a number that its type does not, and which; empty if none does."""
        at = 0
        for leaf in (leaf for b in self.bound for leaf in b.leaves):
            entries = leaf.count if leaf.mode == "value" else 1
            if leaf.generator is not None:
                entries = len(leaf.generator.scalars())
            for x in block[at : at + entries] if leaf.mode == "value" else ():
                if leaf.scalar != "double" and _MAX_FLOAT < abs(x) < inf:
                    return f"argument '{leaf.name}' is {describe(x)}, which does not fit '{leaf.type.name}'"
            at += entries
        return ""


class Result:
    """How a call returns: into an array that was given, as a new array of a layout or of the host, or as a number.

    ``named`` says that ``_result`` was given and is no array but the kind of one.
    """

    __slots__ = ("bound", "into", "layout", "make", "named", "unwrap")

    def __init__(
        self,
        bound: Bound | None = None,
        layout: Any = None,
        make: Callable[[], Any] | None = None,
        unwrap: Callable[[Any], Any] | None = None,
        into: bool = False,
        named: bool = False,
    ) -> None:
        self.bound = bound
        self.layout = layout
        self.make = make
        self.unwrap = unwrap
        self.into = into
        self.named = named

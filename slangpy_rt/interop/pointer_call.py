"""Pointer calls: prepared calls whose arguments are all arrays of another library, used in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.arguments.conflicts import Place
from slangpy_rt.backends.base import Buffer
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.calls.prepared_calls import MISS
from slangpy_rt.runtime.foreign_stream import foreign_stream


class PointerCall(PreparedCall):
    """A prepared call on arrays with a ``data_ptr()``, which runs on the stream that their library works on.

    All its packers are of class ``PointerPacker``.
    """

    __slots__ = ("_guarded",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.guards = True
        self._guarded: Callable[[tuple[Any, ...]], Any] | None = None

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call on values of its signature, as ``PreparedCall.run`` does."""
        if launch is not None:
            return super().run(values, launch)
        out = None
        if self.make is not None:
            out = self.make()
            values = (*values, out)
        elif self.into:
            out = values[-1]
        places = [v.data_ptr() for v in values]
        stream, theirs = self.find_stream, None
        if stream is None:
            launch = self.device.launch
        else:
            handle = stream(values[self.where])
            theirs = self.device.foreign_streams.get(handle) or foreign_stream(self.device, handle)
            launch = theirs.direct
        packed = self.pack(*places)
        conflicts = self.conflicts
        if conflicts is not None and packed not in conflicts.apart:
            found = conflicts.found_in(packed, places)
            if found:
                self._launch_apart(theirs.launch if theirs else launch, found, places, values)
                return out
        launch(self.kernel, self.groups, self.prefix + packed, ())
        return out

    def guarded(
        self, values: tuple[Any, ...], failed: Callable[[tuple[Any, ...]], Any] | None
    ) -> Callable[[tuple[Any, ...]], Any] | None:
        """Return a function that runs the call on similar arguments after one check, or returns MISS if that fails.

        None if there is no such check. ``failed`` is the runner that has returned MISS for these values, which is not
        returned again.
        """
        if self._guarded is None or self._guarded is failed:
            packer: Any = self.packers[0]
            self._guarded = self._guarded_by(packer.alike(values), values)
        return self._guarded

    def _guarded_by(
        self, alike: Callable[..., bool] | None, values: tuple[Any, ...]
    ) -> Callable[[tuple[Any, ...]], Any] | None:
        stream = self.find_stream
        # The signature includes the addresses' alignment on a GPU, which the check does not see.
        if alike is None or (stream is not None and any(v.data_ptr() % 32 for v in values)):
            return None
        # ``Conflicts.apart`` remembers addresses of given arrays, not of new results.
        if self.conflicts is not None and self.make is not None:
            return None
        kernel, groups, prefix, pack, make, into = (
            self.kernel, self.groups, self.prefix, self.pack, self.make, self.into
        )  # fmt: skip
        device = self.device
        apart = None if self.conflicts is None else self.conflicts.apart
        known, count = device.foreign_streams, len(values)

        def run(values: tuple[Any, ...]) -> Any:
            # What has no ``data_ptr`` is not a dense tensor, and nested tensors have one.
            try:
                places = [v.data_ptr() for v in values if not v.is_nested]
            except (AttributeError, RuntimeError):
                return MISS
            if not len(places) == len(values) == count or not alike(*values):
                return MISS
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

    def _launch_apart(
        self, launch: Callable[..., None], found: list[Place], places: list[Any], values: tuple[Any, ...]
    ) -> None:
        """Launch the call on arrays at these addresses, after copying those in ``found``."""
        assert self.conflicts is not None
        buffers: list[Buffer] = [self.device.placeholder] * len(values)
        for dispatch in self.conflicts.copies(found, places, buffers):
            launch(*dispatch)
        launch(self.kernel, self.groups, self.prefix + self.pack(*places), buffers)

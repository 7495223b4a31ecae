"""Array calls: prepared calls whose arguments are all device arrays. They launch in the fewest steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.arguments.conflicts import Conflicts
from slangpy_rt.backends.base import Buffer, Dispatch
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.core.errors import OutOfMemoryError


class ArrayCall(PreparedCall):
    """A prepared call whose values are its device arrays, in the order of the parameters."""

    __slots__ = ()

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call as ``PreparedCall.run`` does."""
        out = None
        layout = self._result
        if layout is not None:
            try:
                buffer = self._alloc(layout.nbytes)
            except OutOfMemoryError:
                buffer = self.device.alloc(layout.nbytes)
            kind = layout.kind
            out = kind.__new__(kind)
            out.layout = layout
            out.buffer = buffer
            out.address = buffer.address
            values = (*values, out)
        elif self.into:
            out = values[-1]
        packed, conflicts = self.pack(*[a.address for a in values]), self.conflicts
        if conflicts is not None and packed not in conflicts.apart:
            self._run_compared(conflicts, values, launch)
            return out
        # Looked up at each call: observers and streams replace the device's launch.
        (launch or self.device.launch)(
            self.kernel,
            self.groups,
            self.prefix + packed,
            [a.buffer for a in values],
        )
        return out

    def arrays(self, values: tuple[Any, ...]) -> list[Any] | None:
        """Return the arrays whose addresses are in the block: all values."""
        return list(values)

    def recorded(self, values: tuple[Any, ...]) -> tuple[list[Dispatch], Dispatch | None, Any]:
        """Return copies, dispatch and result as ``PreparedCall.recorded`` does."""
        if self.conflicts is not None or self.make is not None:
            return super().recorded(values)
        packed = self.pack(*[a.address for a in values])
        buffers = tuple([a.buffer for a in values])
        dispatch = Dispatch(self.kernel, self.groups, self.prefix + packed, buffers)
        return [], dispatch, values[-1] if self.into else None

    def _run_compared(self, conflicts: Conflicts, arrays: Sequence[Any], launch: Callable[..., None] | None) -> None:
        """Launch the kernel on arrays whose addresses are not known to be without conflict, after copying some."""
        launch = launch or self.device.launch
        places = [a.address for a in arrays]
        buffers: list[Buffer] = [a.buffer for a in arrays]
        packed = self.pack(*places)
        found = conflicts.found_in(packed, places)
        if found:
            for dispatch in conflicts.copies(found, places, buffers):
                launch(*dispatch)
            packed = self.pack(*places)
        launch(self.kernel, self.groups, self.prefix + packed, buffers)

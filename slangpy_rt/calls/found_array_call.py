"""Found array calls: prepared calls on device arrays that have to be found in the values first.

They serve gradients, arguments by name in another order, and results whose kind was named. They pack no other data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Dispatch
from slangpy_rt.calls.array_call import ArrayCall
from slangpy_rt.calls.prepared import PreparedCall


class FoundArrayCall(ArrayCall):
    """A prepared call on device arrays, each of which a function finds in one of the values."""

    __slots__ = ("_finds",)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # For each array the index of a value, -1 for the result, and the function that finds the array in that value,
        # or None if the value is the array.
        self._finds = tuple(
            [(k, find) for k, p in zip((*self.order, -1), self.packers, strict=False) for find in p.finds or ()]
        )

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run the call as ``PreparedCall.run`` does."""
        out = None
        if self.make is not None:
            out = self.make()
            values = (*values, out)
        elif self.into:
            out = values[-1]
        arrays = [values[k] if find is None else find(values[k]) for k, find in self._finds]
        packed, conflicts = self.pack(*[a.address for a in arrays]), self.conflicts
        if conflicts is not None and packed not in conflicts.apart:
            self._run_compared(conflicts, arrays, launch)
        else:
            (launch or self.device.launch)(
                self.kernel,
                self.groups,
                self.prefix + packed,
                [a.buffer for a in arrays],
            )
        # ``bwds`` reads the gradient given as ``_result``, and returns nothing.
        return out if self._unwrap is None else None

    def arrays(self, values: tuple[Any, ...]) -> list[Any] | None:
        """Return the arrays whose addresses are in the block, found in the values."""
        return [values[k] if find is None else find(values[k]) for k, find in self._finds]

    def recorded(self, values: tuple[Any, ...]) -> tuple[list[Dispatch], Dispatch | None, Any]:
        """Return copies, dispatch and result as ``PreparedCall.recorded`` does."""
        return PreparedCall.recorded(self, values)

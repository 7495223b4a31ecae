"""PreparedCalls: the prepared calls that a function or kernel remembers, and CallableFollower, which drops them.

Nothing here knows how calls are made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import ref

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.core.checks import shortened
from slangpy_rt.core.errors import SlangPyRtError

T = TypeVar("T")

# Returned by a guarded runner whose check failed: the call needs a full look-up by its key.
MISS: Any = object()

# Forgetting all is simpler than forgetting the oldest, and as good for a program with that many layouts.
_MAX_CALLS = 4096


class PreparedCalls(dict[Any, Any]):
    """Prepared calls by the signatures of their arguments.

    Attributes
    ----------
    guarded : callable or None
        Runs the call that was last given to ``guard``, if one check finds the new values similar to that call's
        values; returns MISS if it does not.
    """

    __slots__ = ("guarded",)

    guarded: Callable[[tuple[Any, ...]], Any] | None

    def __init__(self) -> None:
        super().__init__()
        self.guarded = None

    def made(self, scope: Scope, key: Any, make: Callable[[], T]) -> T:
        """Prepare a call, or what else ``make`` finds out, of the module as it is now, and remember it."""
        while True:
            age = scope.age
            try:
                call = make()
            except SlangPyRtError as error:
                if scope.age is not age:
                    continue
                # Without the ten frames below this one, which are of this package.
                raise shortened(error) from error.__cause__
            if len(self) >= _MAX_CALLS:
                self.clear()
            # Another thread may have been first, and a signature has one prepared call.
            call = cast("T", self.setdefault(key, call))
            # An edit, or closing the device, drops all calls: a call that was being prepared then must not stay.
            if scope.age is age:
                return call
            self.pop(key, None)

    def guard(self, key: Any, call: Any, values: tuple[Any, ...]) -> None:
        """Set ``guarded`` to run the call of a signature on values similar to these."""
        self.guarded = call.guarded(values, self.guarded)
        # Another thread may have forgotten all calls in between.
        if self.get(key) is not call:
            self.guarded = None

    def clear(self) -> None:
        """Forget all calls."""
        super().clear()
        self.guarded = None


class CallableFollower:
    """Passes the notices of a module's scope on to a function or kernel, for as long as that exists."""

    def __init__(self, of: ref[Any]) -> None:
        self._of = of

    def forget(self) -> None:
        """Drop its prepared calls."""
        found = self._of()
        if found is not None:
            found._forget()

    def source_changed(self) -> None:
        """Let it read its declarations from the module's new text."""
        found = self._of()
        if found is not None:
            found._source_changed()

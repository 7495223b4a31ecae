"""CheckedDerivative: a call of a derivative on a debug device, whose first run compares it with the other derivative.

One check serves all calls that launch the same kernel. A call that cannot be checked is logged, and runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.core.errors import GradientError
from slangpy_rt.core.log import log
from slangpy_rt.slang.text import RESERVED

if TYPE_CHECKING:
    from slangpy_rt.arguments.options import Options
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.core.types import FunctionSig
    from slangpy_rt.runtime.stream import Stream

# Elements of a call that are compared: a launch of so few takes as long as one of a single element.
_MOST = 16


class CheckedDerivative:
    """A call of ``bwds`` or ``fwds``; it takes a PreparedCall's place, and has all that one has.

    Parameters
    ----------
    plain : PreparedCall
        The call.
    scope, name, overloads, options
        The derivative, as ``prepare_call`` takes it.
    positional, names
        How many values come by position, and the names of those that come by name; uniforms and a result follow.
    """

    guards = False

    def __init__(
        self,
        plain: PreparedCall,
        scope: Scope,
        name: str,
        overloads: tuple[FunctionSig, ...],
        options: Options,
        positional: int,
        names: tuple[str, ...],
    ) -> None:
        self._plain = plain
        self._scope = scope
        self._name = name
        self._overloads = overloads
        self._options = options
        self._count = positional + len(names)
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def run(self, values: tuple[Any, ...], launch: Any = None) -> Any:
        """Run the call on arguments of the signature it was made for.

        Raises
        ------
        GradientError
            If its first run finds that the derivatives contradict each other.
        """
        self._check(values)
        return self._plain.run(values, launch)

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """Run the call on a stream, as ``run`` does."""
        self._check(values)
        return self._plain.run_on(stream, values)

    def freeze(self, values: tuple[Any, ...], stream: Stream | None) -> Callable[[], Any]:
        """Return a function that repeats the call, and whose first run checks it."""
        again = self._plain.freeze(values, stream)

        def run() -> Any:
            self._check(values)
            return again()

        return run

    def pending(self, values: tuple[Any, ...]) -> Callable[[], None] | None:
        """Return the check, for a command list: arguments may get their values when the list runs."""
        return None if self._is_done() else lambda: self._check(values)

    def addresses(self, values: tuple[Any, ...]) -> list[Any] | None:
        """Return None: what launches the kernel by addresses alone would not check it."""
        return None

    def packing(self) -> None:
        """Return None, as ``addresses`` does."""

    def _is_done(self) -> bool:
        return self._plain.kernel is None or (self._plain.spec, self._options.conformances) in self._scope.checked

    def _check(self, values: tuple[Any, ...]) -> None:
        if self._is_done():
            return
        from slangpy_rt.calls.argument_copies import plain  # only debug devices need these
        from slangpy_rt.calls.gradient_check import GradientCheck
        from slangpy_rt.calls.gradient_launches import GradientLaunches

        uniforms = len(self._options.uniforms)
        checked = {self._plain.spec}
        try:
            launches = GradientLaunches(
                self._scope, self._name, self._overloads, replace(self._options, derivative=""),
                values[self._count : self._count + uniforms],
                tuple([plain(self._scope.device, value) for value in values[: self._count]]), self._names, 0, _MOST,
                self._carries, True,
            )  # fmt: skip
            report = GradientCheck(launches).report(False)
        except Exception as error:  # whatever it is: the call itself may be right
            log(1, f"{self._plain.spec.title}: its derivatives were not checked: {error}")
        else:
            if not report.ok:
                raise GradientError(report.message)
            unchecked = [row for row in report.rows if row.state == "not checked"]
            for row in unchecked:
                log(1, f"{self._plain.spec.title}: '{row.name}' was not checked: {row.reason}")
            # The other derivative was compared as well.
            checked |= launches.specs if not unchecked else set()
        self._scope.checked.update((spec, self._options.conformances) for spec in checked)

    def _carries(self, value: Any) -> bool:
        """Tell whether the call reads or writes a gradient of a value."""
        if isinstance(value, DiffPair):
            return self._options.derivative == "backward" or value.grad is not None
        return isinstance(value, NDBuffer) and value.layout.grads is not None


def checked(
    plain: PreparedCall,
    scope: Scope,
    name: str,
    overloads: tuple[FunctionSig, ...],
    options: Options,
    positional: int,
    names: tuple[str, ...],
) -> PreparedCall:
    """Return a call of a derivative that is checked, or the call itself for a function of this package."""
    # Derivatives of the package's own functions are by hand, and some differ from the function on purpose.
    if name.startswith(RESERVED):
        return plain
    found: Any = CheckedDerivative(plain, scope, name, overloads, options, positional, names)
    return cast("PreparedCall", found)

"""Callee: a function or kernel as other files of the package use it. It prepares calls, and runs none.

The attributes of ``Function`` and ``Kernel`` that begin with ``_`` are no part of what users see. This file reads
them for command lists, tuning and ``interop``, so that these name none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.slang.declarations import gone

if TYPE_CHECKING:
    from slangpy_rt.arguments.options import Options
    from slangpy_rt.arguments.resolve import Candidate
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.runtime.stream import Stream


class Callee:
    """A function or kernel, and the values that its uniforms have.

    Attributes
    ----------
    function : Function or Kernel
        The function.
    values : tuple
        Values of its uniforms, in the order of ``set``.
    """

    __slots__ = ("function", "values")

    # Functions and the calls of lists are typed as Any: their classes are in files that import this one.
    def __init__(self, function: Any) -> None:
        self.function = function
        self.values: tuple[Any, ...] = function._values

    @property
    def scope(self) -> Scope:
        """The module that it is of."""
        found: Scope = self.function._scope
        return found

    @property
    def options(self) -> Options:
        """What its modifiers have set."""
        found: Options = self.function._options
        return found

    @property
    def overloads(self) -> tuple[FunctionSig, ...]:
        """Its declarations, those of an edited file included."""
        found: tuple[FunctionSig, ...] = (self.function._base or self.function).overloads
        return found

    @property
    def stream(self) -> Stream | None:
        """The stream that its calls run on; None for the device's own queue."""
        found: Stream | None = self.function._stream
        return found

    @property
    def uniforms(self) -> int:
        """How many of a call's values are for uniforms."""
        return len(self.options.uniforms)

    @property
    def is_derivative(self) -> bool:
        """Whether it is a derivative itself."""
        return bool(self.options.derivative)

    @property
    def has_result_kind(self) -> bool:
        """Whether ``return_type`` sets the kind of results."""
        return self.options.returns is not None

    def asked(self) -> Callee:
        """Return the Callee with the values that functions give to its uniforms now."""
        return Callee(self.function._asked()) if self.function._hooks else self

    def with_values(self, values: tuple[Any, ...]) -> Callee:
        """Return the Callee with other values for its uniforms."""
        return Callee(self.function._with(values)) if values else self

    def chosen(self, values: tuple[Any, ...], names: tuple[str, ...]) -> Candidate:
        """Choose the declaration that a call uses, and bind its arguments.

        Raises
        ------
        BindError
            If no declaration fits.
        """
        # Here and below: no program needs this before its first call.
        from slangpy_rt.arguments.resolve import resolve

        function = self.function
        overloads = self.overloads
        if not overloads:
            raise gone(function.name, self.scope.source)
        return resolve(self.scope, function.name, overloads, values, names, self.options)

    def planned(self, values: tuple[Any, ...], names: tuple[str, ...], make: Callable[[], Any]) -> Any:
        """Return what ``make`` returns for values of their signature, made once for as long as the text stays."""
        self.scope.look()
        function = self.function
        key = function._key(values, names)
        found = function._plans.get(key)
        return function._plans.made(self.scope, key, make) if found is None else found

    def check_differentiable(self, sig: FunctionSig, modifier: str) -> None:
        """Refuse a declaration that Slang does not differentiate.

        Raises
        ------
        BindError
            If Slang does not differentiate it.
        """
        from slangpy_rt.arguments.resolve import check_differentiable

        check_differentiable(self.scope, sig, modifier)

    def prepared(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        """Return the prepared call of the function on these arguments."""
        return self.with_call(args, result, named)[0]

    def prepared_backward(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        """Return the prepared call of the function's backward derivative on these arguments."""
        return Callee(self.function.bwds).prepared(args, result, named)

    def with_call(
        self, args: tuple[Any, ...], result: Any, named: dict[str, Any]
    ) -> tuple[PreparedCall, tuple[Any, ...]]:
        """Return the prepared call of a function on these arguments, and the values that the call takes."""
        call, values, _ = self.function._known(args, result, named)
        return call, values

    def repeatable(
        self, args: tuple[Any, ...], result: Any, named: dict[str, Any]
    ) -> tuple[PreparedCall, tuple[Any, ...]] | None:
        """Return what ``with_call`` does; None where each call asks objects for values."""
        if self.function._hooks:
            return None
        call, values, asked = self.function._known(args, result, named)
        return None if asked else (call, values)

    def with_dispatch(
        self, threads: Any, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[PreparedCall, tuple[Any, ...]]:
        """Return the prepared dispatch of a kernel, and the values that it takes."""
        call, values, _ = self.function._dispatched(threads, args, named)
        return call, values

    def recorded(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> Any:
        """Return a Call, as a command list keeps it; the first argument of a kernel are its threads."""
        return self.function._recorded(args, result, named)

    def result_of(self, args: tuple[Any, ...]) -> tuple[tuple[int, ...], Any]:
        """Return shape and NumPy dtype of the result that a call on these arguments would have."""
        call = self.prepared(args, None, {})
        stored = storage(call.bound[-1].type)
        assert stored is not None
        return call.shape + stored.dims, stored.dtype

"""Callee: a function as other libraries' automatic differentiation uses it. It prepares calls, and runs none."""

from __future__ import annotations

from typing import Any

from slangpy_rt.arguments.resolve import Candidate, check_differentiable, resolve
from slangpy_rt.calls.function import Function
from slangpy_rt.calls.prepared import PreparedCall
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.types import FunctionSig


class Callee:
    """A function, and the values that its uniforms have.

    Attributes
    ----------
    function : Function
        The function.
    values : tuple
        Values of its uniforms, in the order of ``set``.
    """

    __slots__ = ("function", "values")

    def __init__(self, function: Function) -> None:
        self.function = function
        self.values: tuple[Any, ...] = function._values

    @property
    def uniforms(self) -> int:
        """How many of a call's values are for uniforms."""
        return len(self.function._options.uniforms)

    @property
    def is_derivative(self) -> bool:
        """Whether it is a derivative itself."""
        return bool(self.function._options.derivative)

    @property
    def has_result_kind(self) -> bool:
        """Whether ``return_type`` sets the kind of results."""
        return self.function._options.returns is not None

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
        function = self.function
        return resolve(function._scope, function.name, function.overloads, values, names, function._options)

    def check_differentiable(self, sig: FunctionSig, modifier: str) -> None:
        """Refuse a declaration that Slang does not differentiate.

        Raises
        ------
        BindError
            If Slang does not differentiate it.
        """
        check_differentiable(self.function._scope, sig, modifier)

    def prepared(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        """Return the prepared call of the function on these arguments."""
        return self.function._prepared(args, result, named)

    def prepared_backward(self, args: tuple[Any, ...], result: Any, named: dict[str, Any]) -> PreparedCall:
        """Return the prepared call of the function's backward derivative on these arguments."""
        return self.function.bwds._prepared(args, result, named)

    def result_of(self, args: tuple[Any, ...]) -> tuple[tuple[int, ...], Any]:
        """Return shape and NumPy dtype of the result that a call on these arguments would have."""
        call = self.prepared(args, None, {})
        stored = storage(call.bound[-1].type)
        assert stored is not None
        return call.shape + stored.dims, stored.dtype

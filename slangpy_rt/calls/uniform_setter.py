"""UniformSetter: the modifiers ``set`` and ``write``, by which functions and kernels give values to uniforms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words

if TYPE_CHECKING:
    from slangpy_rt.arguments.options import Options
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.runtime.stream import Stream

# Returns values of uniforms by name, from the function or kernel that is called.
Hook = Callable[[Any], Mapping[str, Any]]
S = TypeVar("S", bound="UniformSetter")


class UniformSetter:
    """What functions and kernels have in common as to uniforms: a modifier returns a new one, with more values."""

    name: str
    _scope: Scope
    _options: Options
    _values: tuple[Any, ...]
    _stream: Stream | None
    _hooks: tuple[Hook, ...]

    def set(self: S, values: Mapping[str, Any] | None = None, /, **named: Any) -> S:
        """Give values to the module's global ``uniform`` variables.

        Parameters
        ----------
        values, **named
            Numbers, vectors or structs by the variable's name, or a function that each call asks for such a dict:
            it gets the function that is called. What is set later takes precedence.

        Raises
        ------
        BindError
            At once, if the module has no such variable.
        """
        where = f"{self.name}.set"
        if callable(values) and not named:
            return self._hooked(lambda function: _given_by(where, values, function))
        if values is not None and not isinstance(values, Mapping):
            raise BindError(f"{where}: {in_words(values)} is no dict of values by name.")
        given = dict(zip(self._options.uniforms, self._values, strict=True)) | dict(values or {}) | named
        self._scope.uniforms(where, given)
        if self._hooks:
            own = {**(values or {}), **named}
            return self._hooked(lambda function: own)
        found = self._variant(("set", tuple(given)), lambda: replace(self._options, uniforms=tuple(given)))
        return found._with(tuple(given.values()), self._stream)

    def write(self: S, function: Callable[..., Any], /, *args: Any, **named: Any) -> S:
        """Let a function write the values of uniforms at each call.

        Parameters
        ----------
        function : callable
            It gets a cursor, on which it sets values, ``cursor.params.k = 10`` or ``cursor.write({...})``.
        *args, **named
            Passed to the function behind the cursor.

        Raises
        ------
        BindError
            If ``function`` cannot be called.
        """
        if not callable(function):
            raise BindError(f"{self.name}.write: {in_words(function)} is no function that gets a cursor.")
        return self._hooked(lambda _: _written_by(function, args, named))

    def _hooked(self: S, hook: Hook) -> S:
        out = self._with(self._values, self._stream)
        out._hooks = (*self._hooks, hook)
        return out

    def _asked(self: S) -> S:
        """Return the function with the values that its hooks give now."""
        out = self._with(self._values, self._stream)
        out._hooks = ()
        for hook in self._hooks:
            out = out.set(hook(self))
        return out

    @abstractmethod
    def _variant(self: S, key: Any, options: Callable[[], Options]) -> S:
        """Return the function or kernel with other options."""

    @abstractmethod
    def _with(self: S, values: tuple[Any, ...], stream: Stream | None = None) -> S:
        """Return the same function or kernel with values for uniforms and a stream of its own."""


def _given_by(where: str, hook: Callable[[Any], Any], function: Any) -> Mapping[str, Any]:
    found = hook(function)
    if not isinstance(found, Mapping):
        raise BindError(f"{where}: the function returned {in_words(found)}; a dict of values by name was expected.")
    return found


def _written_by(function: Callable[..., Any], args: tuple[Any, ...], named: Mapping[str, Any]) -> Mapping[str, Any]:
    from slangpy_rt.calls.uniform_cursor import Cursor, values_of  # few programs need it

    cursor = Cursor()
    function(cursor, *args, **named)
    found: Mapping[str, Any] = values_of(cursor)
    return found

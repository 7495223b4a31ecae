"""BoundMethod: a method of a struct with the instances that it is called on. It passes calls and modifiers on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slangpy_rt.calls.function import Function
from slangpy_rt.core.checks import short_tracebacks

if TYPE_CHECKING:
    from slangpy_rt.calls.gradient_report import GradientReport

# Modifiers of a function, which return another function.
_MODIFIERS = frozenset({
    "call_group_shape", "constants", "group_size", "return_type", "set", "stream", "thread_group_size",
    "type_conformances", "write",
})  # fmt: skip
_CALLS = frozenset({"bind", "explain", "source", "value_and_grad"})


@short_tracebacks("__call__")
class BoundMethod:
    """A method with its object: ``instances.advance``. Calls take the method's arguments behind the object.

    ``bwds``, ``fwds``, ``map`` and the modifiers of functions are those of the method; ``map`` names the arguments
    behind the object.
    """

    def __init__(self, function: Function, instances: Any) -> None:
        self._function = function
        self._instances = instances

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Call the method on the instances; see ``Function.__call__``."""
        return self._function(self._instances, *args, **named)

    call = __call__

    def append_to(self, commands: Any, /, *args: Any, **named: Any) -> Any:
        """Record the call in a command list; see ``Function.append_to``."""
        return self._function.append_to(commands, self._instances, *args, **named)

    def check_grads(self, /, *args: Any, **named: Any) -> GradientReport:
        """Compare the derivatives of the call; see ``Function.check_grads``."""
        return self._function.check_grads(self._instances, *args, **named)

    @property
    def bwds(self) -> BoundMethod:
        """The backward derivative of the method, of the same instances."""
        return BoundMethod(self._function.bwds, self._instances)

    @property
    def fwds(self) -> BoundMethod:
        """The forward derivative of the method, of the same instances."""
        return BoundMethod(self._function.fwds, self._instances)

    def map(self, /, *args: Any, **named: Any) -> BoundMethod:
        """Say how arguments run along the call's dimensions; see ``Function.map``. The instances broadcast."""
        return BoundMethod(self._function.map(None, *args, **named), self._instances)

    def __getattr__(self, name: str) -> Any:
        if name in _MODIFIERS:
            modifier = getattr(self._function, name)
            return lambda *args, **named: BoundMethod(modifier(*args, **named), self._instances)
        if name in _CALLS:
            call = getattr(self._function, name)
            return lambda *args, **named: call(self._instances, *args, **named)
        return getattr(self.__dict__["_function"], name)

    def __repr__(self) -> str:
        return f"<{self._function!r} of {self._instances!r}>"

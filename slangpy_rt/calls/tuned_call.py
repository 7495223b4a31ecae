"""TunedCall: the arguments of one call of a tuned function, as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from slangpy_rt.calls.callee import Callee
from slangpy_rt.core.wording import in_words
from slangpy_rt.tuning.config import Config

if TYPE_CHECKING:
    from slangpy_rt.calls.prepared import PreparedCall


@dataclass(frozen=True)
class TunedCall:
    """The arguments of one call of a tuned function.

    Attributes
    ----------
    args, named
        Values by position and by name.
    result : object
        The value of ``_result``.
    threads : object
        The threads of a dispatch, or a function of the configuration that returns them; None for a call.
    """

    args: tuple[Any, ...]
    named: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    threads: Any = None

    def threads_of(self, config: Config) -> Any:
        """Return the threads of a dispatch with a configuration."""
        return self.threads(config) if callable(self.threads) else self.threads

    def threads_text(self, config: Config) -> str:
        """Return the threads of a dispatch with a configuration as text, which is equal where they are."""
        threads = self.threads_of(config)
        try:
            return str(threads)
        except (RecursionError, ValueError):  # of lists in lists without an end, and of numbers of 4,300 digits
            return in_words(threads)

    def prepared(self, function: Any, config: Config) -> tuple[PreparedCall, tuple[Any, ...]]:
        """Prepare the call of one candidate, which compiles its kernel; return the values it takes too."""
        if self.threads is not None:
            return Callee(function).with_dispatch(self.threads_of(config), self.args, self.named)
        return Callee(function).with_call(self.args, self.result, self.named)

    def recorded(self, function: Any, config: Config) -> Any:
        """Return the call of one candidate as a command list keeps it."""
        if self.threads is not None:
            return Callee(function).recorded((self.threads_of(config), *self.args), None, self.named)
        return Callee(function).recorded(self.args, self.result, self.named)

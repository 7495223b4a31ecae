"""Observer: the interface of code that runs around each launch of a device. It knows no device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Queue, Recording


class Observer(ABC):
    """Code that is called in place of each launch, and launches. It makes calls slower."""

    @abstractmethod
    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        """Call ``launch(kernel, *rest)``; ``rest`` is as of ``Queue.launch``."""

    @abstractmethod
    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        """Call ``replay(recording)``."""

    def writes(self, what: str, buffers: Sequence[Buffer]) -> None:  # noqa: B027 - few observers ask
        """Learn that something which is no launch, such as a copy from the host, will write to buffers."""

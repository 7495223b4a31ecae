"""Observer: who is told of each launch of a device, around it. It knows no device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Kernel, Queue, Recording


class Observer(ABC):
    """Is called in place of a launch, and launches. While a device has observers, calls leave the shortest way."""

    @abstractmethod
    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        """Call ``launch(kernel, *rest)``; ``rest`` is as of ``Queue.launch``."""

    @abstractmethod
    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        """Call ``replay(recording)``."""

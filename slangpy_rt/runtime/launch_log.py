"""LaunchLog: a line on stderr for each launch, with the time until it was done; SLANGPY_RT_DEBUG=2 asks for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Kernel, Queue, Recording
from slangpy_rt.core.log import log, milliseconds
from slangpy_rt.runtime.observer import Observer


class LaunchLog(Observer):
    """Logs the launches of one device.

    Parameters
    ----------
    name : str
        The device's, with which each line begins.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        started = time.perf_counter()
        launch(kernel, *rest)
        queue.sync()
        took = milliseconds(started)
        log(2, f"{self._name}: {kernel.info.title} over {rest[0]} groups took {took}, waiting included")

    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        replay(recording)

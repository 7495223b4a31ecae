"""Names calls for profilers, by NVTX and by the label functions of a backend's API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Kernel, Queue, Recording
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.runtime.observer import Observer


class Labels(Observer):
    """An Observer that names each launch for profilers; SLANGPY_RT_LABELS turns it on.

    Raises
    ------
    UnsupportedError
        If the nvtx package is missing.
    """

    def __init__(self) -> None:
        self._ranges = _nvtx()

    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        title = kernel.info.title
        self._ranges.push_range(title)
        queue.label(title)
        try:
            launch(kernel, *rest)
        finally:
            queue.unlabel()
            self._ranges.pop_range()

    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        self._ranges.push_range(f"command list of {len(recording.dispatches)} calls")
        try:
            replay(recording)
        finally:
            self._ranges.pop_range()


def _nvtx() -> Any:
    try:
        import nvtx
    except ImportError as error:
        raise UnsupportedError(
            "SLANGPY_RT_LABELS: the nvtx package, by which profilers learn names, is missing. "
            f"`pip install nvtx`.\n{error}"
        ) from error
    return nvtx

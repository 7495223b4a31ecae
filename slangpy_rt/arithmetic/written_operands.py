"""WrittenOperands: refuses launches and copies that write to memory which a tape still needs.

Memory counts as a whole buffer, as PyTorch's versions do. What other libraries write there is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from slangpy_rt.backends.base import Buffer, Kernel, Queue, Recording
from slangpy_rt.core.errors import BindError
from slangpy_rt.runtime.observer import Observer


class WrittenOperands(Observer):
    """Looks at each launch on a device while a tape holds operands there.

    Parameters
    ----------
    memory : dict
        The buffers that must not be written to, by identity; the tape changes it.
    """

    def __init__(self, memory: dict[int, Any]) -> None:
        self._memory = memory

    def launch(self, queue: Queue, launch: Callable[..., None], kernel: Kernel, *rest: Any) -> None:
        self.writes(kernel.info.title, [b for b, w in zip(rest[2], kernel.info.written, strict=False) if w])
        launch(kernel, *rest)

    def replay(self, queue: Queue, replay: Callable[[Recording], None], recording: Recording) -> None:
        replay(recording)

    def writes(self, what: str, buffers: Sequence[Buffer]) -> None:
        for buffer in buffers:
            if id(buffer) in self._memory:
                raise BindError(
                    f"{what}: it would write to the memory of an operand or a result on a GradTape, whose backward "
                    "needs its values; write to another array, or after backward."
                )

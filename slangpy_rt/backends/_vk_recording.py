"""A recording as a Vulkan command buffer that is submitted again and again, its argument blocks in device memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from slangpy_rt.backends.base import Buffer, Dispatch, Recording


class VulkanRecording(Recording):
    """Launches and the command buffer that they are recorded in.

    Attributes
    ----------
    command : cdata
        Pointer to the ``VkCommandBuffer``.
    blocks : Buffer
        The argument blocks of all launches, one after the other.
    offsets : list of int
        Where each begins.
    value : int
        Timeline value of the last submission.
    retired : list
        The backend's, which takes the command buffer back when the recording goes.
    """

    __slots__ = ("blocks", "command", "offsets", "retired", "value")

    def __init__(
        self, dispatches: list[Dispatch], command: Any, blocks: Buffer | None, offsets: list[int], retired: list[Any]
    ) -> None:
        super().__init__(dispatches)
        self.command = command
        self.blocks = blocks
        self.offsets = offsets
        self.value = 0
        self.retired = retired

    def __del__(self, _exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if not _exiting():
            self.retired.append((self.value, self.command))


def places(dispatches: list[Dispatch]) -> tuple[list[int], int]:
    """Where each argument block begins, and the bytes of all; 16 is the largest alignment in one."""
    offsets, at = [], 0
    for d in dispatches:
        offsets.append(at)
        at += len(d.args) + 15 & -16
    return offsets, at

"""Recordings as Vulkan command buffers, which each replay submits again. Argument blocks are in device memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from slangpy_rt.backends.base import Buffer, Dispatch, Recording
from slangpy_rt.backends.extras import barriers
from slangpy_rt.backends.vulkan.commands import COMPUTE, VkCommands
from slangpy_rt.backends.vulkan.submission import VkSubmissions
from slangpy_rt.core.interrupts import finalizer


class VulkanRecording(Recording):
    """A recording with the command buffer that its launches are recorded in.

    Attributes
    ----------
    blocks : Buffer or None
        The argument blocks of all launches, one after the other; None if they have no bytes.
    offsets : list of int
        For each launch, the bytes before its argument block.
    use : Use
        The command buffer, and the last work that uses it and the blocks.
    """

    __slots__ = ("blocks", "give", "offsets", "use")

    # Appends the command buffer to ``Recorder.retired``, for another recording.
    __del__ = finalizer("give")

    def __init__(
        self, dispatches: list[Dispatch], blocks: Buffer | None, offsets: list[int], use: Use, retired: list[Use]
    ) -> None:
        super().__init__(dispatches)
        self.blocks = blocks
        self.offsets = offsets
        self.use = use
        self.give = partial(retired.append, use)


class Use:
    """The command buffer of a recording, and its last queue and submission.

    Attributes
    ----------
    command : cdata
        Pointer to the ``VkCommandBuffer``.
    home : VkSubmissions
        The queue that used it last.
    value : int
        The timeline value of that queue's last submission with it.
    """

    __slots__ = ("command", "home", "value")

    def __init__(self, command: Any, home: VkSubmissions) -> None:
        self.command = command
        self.home = home
        self.value = 0

    def move(self, queue: VkSubmissions) -> None:
        """Let another queue use the command buffer after its last use; the caller holds the lock."""
        if self.home is not queue:
            # Work of the old queue may still write or read the argument blocks.
            queue.locked_wait(self.home.timeline, self.home.locked_submit())
            self.home = queue


class Recorder:
    """Makes command buffers for recordings; one thread at a time calls it.

    Attributes
    ----------
    retired : list of Use
        The command buffers of freed recordings, which the GPU may still run.
    """

    def __init__(self, commands: VkCommands) -> None:
        self._commands = commands
        self._push = commands.device.ffi.new("uint64_t*")
        # 4: VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT, since it may be submitted again while it runs.
        self._begin_info = commands.device.struct("VkCommandBufferBeginInfo", flags=4)
        self.retired: list[Use] = []

    def recording(
        self,
        queue: VkSubmissions,
        dispatches: list[Dispatch],
        waits: Sequence[tuple[int, ...]],
        blocks: Buffer | None,
        offsets: list[int],
    ) -> VulkanRecording:
        """Make a recording, to be replayed on ``queue`` first.

        The caller holds the backend's lock, and no interrupt may stop it.
        """
        command = self.record(dispatches, waits, 0 if blocks is None else blocks.address, offsets)
        return VulkanRecording(dispatches, blocks, offsets, Use(command, queue), self.retired)

    def record(
        self, dispatches: Sequence[Dispatch], waits: Sequence[tuple[int, ...]], address: int, offsets: Sequence[int]
    ) -> Any:
        """Record launches in a command buffer and return it; argument blocks are at ``address`` plus ``offsets``."""
        c = self._commands
        command = self._command_buffer()
        c.device.check(c.begin(command[0], self._begin_info), "beginning a command buffer")
        if c.heap is not None:
            c.heap.bind(command[0])
        bound = None
        for d, at, ordered in zip(dispatches, offsets, barriers(waits), strict=True):
            if ordered:
                c.barrier(command[0], *c.kernels)
            if d.kernel is not bound:
                bound = d.kernel
                c.bind(command[0], 1, bound.pipeline)  # type: ignore[attr-defined]
            self._push[0] = address + at
            c.label(command[0], d.kernel.info.title)
            c.push(command[0], c.layout, COMPUTE, 0, 8, self._push)
            c.dispatch(command[0], *d.groups)
            c.unlabel(command[0])
        c.barrier(command[0], *c.last)
        c.device.check(c.end(command[0]), "ending a command buffer")
        return command

    def _command_buffer(self) -> Any:
        """Return the command buffer of a freed recording that the GPU is done with, or a new one."""
        for k, use in enumerate(self.retired):
            if use.value <= use.home.timeline.reached:
                del self.retired[k]
                return use.command
        return self._commands.allocate(1)

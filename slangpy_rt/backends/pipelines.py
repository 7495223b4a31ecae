"""Kernels that are compute pipelines, destroyed once the device is done with them. Nothing here calls a driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from slangpy_rt.backends.base import Kernel
from slangpy_rt.backends.single import Single
from slangpy_rt.backends.submissions import FRAME_BYTES, Submissions
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.interrupts import finalizer
from slangpy_rt.core.target import KernelInfo


class PipelineKernel(Kernel):
    """A compute pipeline; ``give`` adds it to those to be destroyed when the last reference to it is dropped.

    Attributes
    ----------
    bound : tuple
        What ``Submissions._cmd_bind`` takes after the list of commands.
    alone : int
        How often in turn a launch was all of a submission; less after a launch that did not fit its single.
    single : Single or None
        The recorded launch, if its ``owner`` is the kernel's ``info``.
    """

    __slots__ = ("alone", "bound", "give", "pipeline", "single")

    __del__ = finalizer("give")

    def __init__(self, info: KernelInfo, pipeline: Any, bound: tuple[Any, ...], give: Callable[[], None]) -> None:
        super().__init__(info)
        self.pipeline = pipeline
        self.bound = bound
        self.give = give
        self.alone = 0
        self.single: Single | None = None


class Pipelines(ABC):
    """The pipelines of one device. Methods are called with the backend's lock, and no interrupt may stop them.

    Parameters
    ----------
    destroy : callable
        Destroys pipelines.

    Attributes
    ----------
    before : tuple
        What binding a pipeline takes before it.
    all : set
        All pipelines, to be destroyed with the device.
    """

    before: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, destroy: Callable[[Iterable[Any]], None]) -> None:
        self._destroy = destroy
        # The pipelines of freed kernels, and groups of these that ``sweep`` found, with the timeline value of each
        # queue after which the device no longer uses the group.
        self.all: set[Any] = set()
        self._retired: deque[Any] = deque()
        self._dying: deque[tuple[list[Any], list[tuple[Submissions, int]]]] = deque()

    @abstractmethod
    def maker(self, binary: bytes, info: KernelInfo) -> Callable[[], Any]:
        """Return a function that creates a pipeline and adds it to ``all``.

        It is called without a lock, in any thread, and raises CompileError if the driver refuses the binary.
        """

    def kernel(self, info: KernelInfo, pipeline: Any) -> PipelineKernel:
        """Return the kernel with which a pipeline is destroyed."""
        return PipelineKernel(info, pipeline, (*self.before, pipeline), partial(self._retired.append, pipeline))

    def sweep(self, queues: Sequence[Submissions]) -> None:
        """Destroy the pipelines of freed kernels that the device is done with; it does not wait for others."""
        retired = [self._retired.popleft() for _ in range(len(self._retired))]
        if retired:
            self._dying.append((retired, [(queue, queue.locked_submit()) for queue in queues]))
        while self._dying and all(queue.timeline.passed(value) for queue, value in self._dying[0][1]):
            gone, _ = self._dying.popleft()
            self.all.difference_update(gone)
            self._destroy(gone)


def require_fit(name: str, info: KernelInfo) -> None:
    """Raise UnsupportedError if a kernel's arguments have more than ``FRAME_BYTES`` bytes."""
    if info.args_size > FRAME_BYTES:
        raise UnsupportedError(
            f"{name}: kernel {info.entry} has {info.args_size} bytes of arguments, at most "
            f"{FRAME_BYTES} fit; pass large arrays as buffers"
        )

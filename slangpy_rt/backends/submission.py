"""Submission: one hand-over of recorded work to a driver. It is made and sent elsewhere."""

from __future__ import annotations

from typing import Any


class Submission:
    """The timeline value that a submission signals, and the driver's results in a list, which is empty before."""

    __slots__ = ("results", "value")

    def __init__(self, value: int) -> None:
        self.value = value
        self.results: list[Any] = []

"""Waits for the device in an asyncio event loop without blocking the loop."""

from __future__ import annotations

import time

from slangpy_rt.backends.base import Mark

_BUSY_SECONDS = 300e-6
_PAUSE_SECONDS = 1e-3


async def reached(mark: Mark) -> None:
    """Wait for a mark by polling it, and let the event loop run in between."""
    await pause()
    # asyncio rounds any pause up to 1 ms. The first polls therefore follow each other without a pause.
    until = time.perf_counter() + _BUSY_SECONDS
    while not mark.done:
        await pause(0 if time.perf_counter() < until else _PAUSE_SECONDS)


async def pause(seconds: float = 0) -> None:
    """Let the event loop go on."""
    import asyncio  # importing asyncio takes 40 ms

    await asyncio.sleep(seconds)

"""Waiting for the device inside of asyncio's event loop, which goes on meanwhile."""

from __future__ import annotations

import time

from slangpy_rt.backends.base import Mark

_BUSY_SECONDS = 300e-6
_PAUSE_SECONDS = 1e-3


async def reached(mark: Mark) -> None:
    """Wait for a mark, letting the event loop go on: it is looked at now and then."""
    await pause()
    # asyncio rounds any pause up to 1 ms, so that for a while it is looked at each time round.
    until = time.perf_counter() + _BUSY_SECONDS
    while not mark.done:
        await pause(0 if time.perf_counter() < until else _PAUSE_SECONDS)


async def pause(seconds: float = 0) -> None:
    """Let the event loop go on."""
    import asyncio  # 40 ms, which only who uses it pays

    await asyncio.sleep(seconds)

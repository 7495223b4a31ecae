"""Timings in the disk cache: one entry for each configuration, kind of call and device. It chooses nothing."""

from __future__ import annotations

import math
from datetime import datetime, timezone
from typing import Any

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.tuning.config import Config
from slangpy_rt.tuning.timing import Timing

# A number in the keys of entries: raised when times are measured in another way.
_METHOD = 1


def entry_key(*parts: Any) -> str:
    """Return the key of an entry: of the module's digest, the options, the call and the device."""
    return DiskCache.key("tuning", _METHOD, *parts)


def stored(cache: DiskCache, key: str, config: Config) -> Timing | None:
    """Return the stored time of a configuration; None if there is none that is whole."""
    entry = cache.get(key)
    if entry is None:
        return None
    meta = entry.meta
    us, spread, runs, dropped = (meta.get(name) for name in ("us", "spread", "runs", "dropped"))
    if not isinstance(dropped, str) or not isinstance(runs, int) or not isinstance(spread, (int, float)):
        return None
    if us is None:
        return Timing(config, None, 0.0, runs, dropped) if dropped else None
    if not isinstance(us, (int, float)):
        return None
    try:
        timing = Timing(config, float(us), float(spread), runs, dropped)
    except OverflowError:
        return None
    return timing if math.isfinite(timing.us or 0.0) and us >= 0 else None


def store(cache: DiskCache, key: str, title: str, device: str, timing: Timing) -> None:
    """Store the time of a configuration."""
    meta = {
        "kind": "tuning",
        "title": f"{title}: {timing.config.text}"[:200],
        "device": device,
        "us": timing.us,
        "spread": timing.spread,
        "runs": timing.runs,
        "dropped": timing.dropped,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    cache.put(key, meta, b"")

"""What tests use where a device lacks something that they are not about: other integers, numbers for pointers.

Nothing here is a test. What a test is about it asks for with ``requires`` of ``tests/conftest.py``.
"""

from __future__ import annotations

from typing import Any

import slangpy_rt as spy


def narrowest(device: spy.Device) -> str:
    """The shortest unsigned integer that memory has."""
    return "uint8_t" if "uint8_t" in device.caps.scalars else "uint16_t"


def pointer(array: spy.NDBuffer) -> Any:
    """What a parameter of type ``POINTER(S)`` (``shaders/storage.slang``) takes for an array."""
    return array if "pointers" in array.device.caps.features else {"bits": array.address}


def nowhere(device: spy.Device) -> Any:
    """What such a parameter takes for no array."""
    return 0 if "pointers" in device.caps.features else {"bits": 0}

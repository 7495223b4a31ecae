"""All corrections, in the order in which they are applied to code."""

from __future__ import annotations

from slangpy_rt.slang.corrections.correction import Correction
from slangpy_rt.slang.corrections.swizzled_stores import SWIZZLED_STORES

CORRECTIONS: tuple[Correction, ...] = (SWIZZLED_STORES,)

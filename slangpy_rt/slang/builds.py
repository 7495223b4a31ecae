"""The builds of the Slang compiler that this version was tested with, and the warning about any other build.

A newer build may work: ``doctor --compiler`` compiles the canaries of all corrections with it.
"""

from __future__ import annotations

import warnings
from functools import cache

# By their build tags. The canaries of all corrections and the deep run of ``docs/testing.md`` have passed with them.
TESTED_BUILDS = ("2026.12", "2026.14.1")


@cache
def warn_of_build(tag: str) -> None:
    """Warn once in a process of a build of the compiler, given by its tag, that is not in ``TESTED_BUILDS``."""
    if tag not in TESTED_BUILDS:
        warnings.warn(
            f"Slang {tag} is not among the builds that this version of slangpy_rt was tested with "
            f"({', '.join(TESTED_BUILDS)}); `python -m slangpy_rt doctor --compiler` lists which corrections of "
            "its code it still needs.",
            stacklevel=2,
        )

"""A path that does not exist, for tests that need one outside of a folder of their own."""

from __future__ import annotations

from pathlib import Path

# Where nobody else makes it: a machine may well have a /nonexistent.
NOWHERE = str(Path(__file__).resolve().parent / "there is none")
assert not Path(NOWHERE).exists(), f"{NOWHERE} exists; remove it"

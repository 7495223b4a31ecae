"""The object from which Slang reads files: how long it lives."""

from __future__ import annotations

import gc
import sys

from slangpy_rt.core.target import Target
from slangpy_rt.slang.file_system import FileSystem
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session


def opened() -> tuple[Library, Session]:
    """A compiler of its own, with a session that has read files."""
    library = Library()
    session = Session(library, Target("spirv", "", "pointer"), (str(shader_directory()),))
    session.load_module("a", "a.slang", "import slangpy_rt; float f(float x) { return x; }")
    return library, session


def living() -> int:
    return sum(isinstance(item, FileSystem) for item in gc.get_objects())


def test_sessions_keep_the_object_that_they_call() -> None:
    library, session = opened()
    held = sys.getrefcount(library.files)
    session.close()
    assert sys.getrefcount(library.files) < held
    library.close()


def test_sessions_that_are_collected_leave_no_object() -> None:
    gc.collect()
    before = living()
    for _ in range(2):
        library, session = opened()
        session.cycle = session  # type: ignore[attr-defined]
        del library, session
        gc.collect()
    gc.collect()
    assert living() == before

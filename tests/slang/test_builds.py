"""Builds of the Slang compiler: the installed one was tested, and of another one there is a warning."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.target import Target
from slangpy_rt.slang import _abi, builds, sessions
from slangpy_rt.slang.builds import TESTED_BUILDS, warn_of_build
from slangpy_rt.slang.library import Library

ROOT = Path(__file__).parents[2]
SAID = (
    r"^Slang 2099\.1 is not among the builds that this version of slangpy_rt was tested with \(.*\); "
    r"`python -m slangpy_rt doctor --compiler` lists which corrections of its code it still needs\.$"
)


@pytest.fixture
def once() -> Iterator[None]:
    warn_of_build.cache_clear()
    yield
    warn_of_build.cache_clear()


def test_the_installed_build_was_tested() -> None:
    assert Library(CONFIG.slang_lib).build_tag in TESTED_BUILDS
    assert ".".join(map(str, _abi.VERSION)) in TESTED_BUILDS


@pytest.mark.usefixtures("once")
def test_one_warning_of_another_build() -> None:
    with pytest.warns(UserWarning, match=SAID):
        warn_of_build("2099.1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_build("2099.1")
        for tag in TESTED_BUILDS:
            warn_of_build(tag)


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("filters", ["always", "error"])
def test_a_session_of_another_build(monkeypatch: pytest.MonkeyPatch, filters: str) -> None:
    target = Target("cpp", "", "range")
    tag = Library(CONFIG.slang_lib).build_tag
    monkeypatch.setattr(builds, "TESTED_BUILDS", ("2026.1",))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(filters)  # type: ignore[arg-type]
        if filters == "error":
            with pytest.raises(UserWarning, match=f"Slang {tag} is not among"):
                sessions.new_session(target, (), ())
            return
        for _ in range(2):
            sessions.new_session(target, (), ()).close()
    assert [str(each.message).partition(" is ")[0] for each in found] == [f"Slang {tag}"]


def test_no_warning_at_import_and_with_a_warm_cache(tmp_path: Path) -> None:
    """A process that loads no compiler says nothing of it; one that does warns once, whatever it compiles."""
    program = """
import slangpy_rt as spy
from slangpy_rt.slang import builds
builds.TESTED_BUILDS = ("2026.1",)
with spy.Device("null") as device:
    for name in "fg":
        text = f"float {name}(float x) {{ return x + 1; }}"
        getattr(spy.Module.load_from_source(device, name, text), name).source(1.0)
"""
    environment = {**os.environ, "SLANGPY_RT_CACHE_DIR": str(tmp_path), "PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}"}
    for count in (1, 0):
        done = subprocess.run(
            [sys.executable, "-W", "always", "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("is not among the builds") == count, done.stderr

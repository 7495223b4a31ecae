"""How many processes of tests a run starts on a machine with a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_cmdline_main
from tests.processes import fitting, free_memory

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the program is a shell script")


def test_the_gpu_with_least_memory_counts() -> None:
    # An H100, an H200, both, and a small one.
    assert [fitting(free) for free in ([], [81_079], [143_000], [143_000, 81_079], [8_000])] == [None, 5, 9, 5, 1]


@POSIX
@pytest.mark.parametrize(
    ("said", "asked", "most", "started"),
    [("81079", 16, None, 5), ("81079", 16, 16, 5), ("81079", 2, 4, 4), ("none", 16, 16, 16), ("81079", 0, 4, 4)],
)
def test_a_run_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, asked: int, most: int | None, started: int
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho {said}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    config: Any = SimpleNamespace(option=SimpleNamespace(numprocesses=asked, maxprocesses=most))
    pytest_cmdline_main(config)
    assert config.option.maxprocesses == started


def test_without_the_drivers_program_nothing_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert free_memory() == []

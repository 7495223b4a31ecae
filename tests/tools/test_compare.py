"""The comparison of two commits: what it calls changed, what the page says, one whole run. No device is needed."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.depth import deep

ROOT = Path(__file__).resolve().parent.parent.parent
MINE = ("launch", "cpu", "result given", "slangpy_rt", "us")


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("compare")


@pytest.mark.parametrize(
    ("before", "after", "unit", "verdict", "speed"),
    [
        ((10.0, 10.2), (5.0, 5.1), "us", "faster", 2.0),
        ((10.0, 10.2), (5.0, 5.1), "GB/s", "slower", 0.5),
        ((5.0, 5.1), (10.0, 10.2), "us", "slower", 0.5),
        # The runs overlap.
        ((10.0, 11.0), (10.5, 11.5), "us", "same", 0.95),
        # All runs are apart, by less than those of one commit differ.
        ((10.0, 10.8), (10.9, 11.4), "us", "same", 0.93),
        ((10.0, 15.0), (12.0, 14.0), "us", "unsure", 0.96),
        ((10.0, 10.0), (10.0, 10.0), "us", "same", 1.0),
        # One run of each says nothing about noise.
        ((10.0,), (5.0,), "us", "same", 2.0),
    ],
)
def test_verdicts(compare: Any, before: Any, after: Any, unit: str, verdict: str, speed: float) -> None:
    """A row is changed when its runs are apart by more than the noise; more is better for rates."""
    row = compare.Change((*MINE[:4], unit), before, after)
    assert row.verdict == verdict
    assert row.speed == pytest.approx(speed, rel=0.01)


def test_rows_of_one_commit_alone_are_left_out(compare: Any) -> None:
    """A row counts when every run of both commits has it."""
    other = (*MINE[:2], "another case", *MINE[3:])
    rows = compare.changes([{MINE: 1.0, other: 1.0}, {MINE: 2.0, other: 1.0}], [{MINE: 3.0}, {MINE: 4.0}])
    assert [(row.key, row.before, row.after) for row in rows] == [(MINE, (1.0, 2.0), (3.0, 4.0))]
    assert compare.changes([], []) == []
    assert compare.changes([{MINE: 1.0}], []) == []


def test_the_page_escapes_names_and_loads_nothing(compare: Any) -> None:
    """A case's name is text, and the page has no address."""
    rows = [compare.Change((*MINE[:2], "<script>alert(1)</script>", *MINE[3:]), (4.0, 4.0), (1.0, 1.0))]
    text = compare.page("a → <b>", rows, ["main: launch"])
    assert "<script>" not in text and "&lt;b&gt;" in text
    assert "main: launch" in text and "4.00 x" in text and "class='faster'" in text
    assert not re.search(r"https?:|src=|@import", text)


def test_the_other_libraries_show_the_noise_of_the_machine(compare: Any) -> None:
    """The summary counts our rows, and says how far those of others moved."""
    rows = [compare.Change((*MINE[:3], who, "us"), (4.0, 4.0), (2.0, 2.0)) for who in ("slangpy_rt", "NumPy")]
    text = compare.summary(rows)
    assert "1 faster, 0 slower, 0 same, 0 unsure of 1 rows of ours" in text
    assert "1 rows of others, which no commit changes: 2.000 x" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-branch", "."], "'no-such-branch' is no commit of this repository"),
        ([".", ".", "--runs", "1"], "--runs 1: noise is what runs of one commit differ by"),
        ([".", ".", "--scripts", "nothing"], "--scripts: benchmarks/ has no nothing.py"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    """The error names the argument; no page is written."""
    done = _compared(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@deep
def test_a_tree_beside_itself(tmp_path: Path) -> None:
    """A whole run on the null device: each row of both sides is on the page."""
    done = _compared(tmp_path, ".", ".", "--scripts", "launch", "--runs", "2", "--device", "null", "--quick")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "comparison.html").read_text(encoding="utf-8")
    assert "of 5 rows of ours" in done.stdout
    assert text.count("<td>slangpy_rt</td>") == 5


def _compared(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = [sys.executable, str(ROOT / "benchmarks" / "compare.py"), *arguments]
    return subprocess.run(script, cwd=folder, capture_output=True, text=True, timeout=300)

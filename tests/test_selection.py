"""The rules of conftest.py: an absent backend is left out, and fails when it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import deep
from tests.nowhere import NOWHERE

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Vulkan drivers are hidden by other means there")


def run(*options: str, **environment: str) -> tuple[int, str]:
    """One test of the suite in a process that finds no Vulkan driver."""
    hidden = {"VK_DRIVER_FILES": NOWHERE, "VK_ICD_FILENAMES": NOWHERE, "SLANGPY_RT_REQUIRE": ""}
    command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "-vv", "--deep", *options]
    found = subprocess.run(
        [*command, "tests/conformance/test_calls.py", "-k", "test_numbers_give_a_number"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | hidden | environment,
    )
    return found.returncode, found.stdout


@deep
def test_an_absent_backend_is_left_out() -> None:
    code, output = run()
    assert code in (0, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert "test_numbers_give_a_number[vulkan" not in output
    assert "no driver is installed" in output or "no Vulkan loader" in output


@deep
def test_a_required_backend_must_be_there() -> None:
    code, output = run(SLANGPY_RT_REQUIRE="vulkan")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "backend 'vulkan' is required and absent: " in output


def test_a_chosen_backend_must_be_there() -> None:
    code, output = run("--backend=vulkan")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "backend 'vulkan' is required and absent: " in output
    assert "[cpu" not in output

"""The backend of docs/adding-a-backend.md is complete: conformance tests pass on it."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.backends.base import Backend, Queue
from tests.depth import deep

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "adding-a-backend.md"
# What a newcomer runs first.
FIRST = ("test_calls",)
# Those that start processes of their own are among them, since these have to know the example's name too.
MORE = (
    "test_async",
    "test_bits",
    "test_bounds",
    "test_broadcast",
    "test_buffers",
    "test_clear",
    "test_command_lists",
    "test_conversion",
    "test_exit",
    "test_interrupts",
    "test_lifetime",
    "test_printf",
    "test_streams",
)


def _run(*names: str) -> None:
    if not next(d for d in spy.devices() if d.type == "cpu").available:
        pytest.skip("there is no C++ compiler")
    where = [f"tests/conformance/{name}.py" for name in names]
    command = [sys.executable, "-m", "pytest", "-n0", "-q", "-p", "tests.example_backend", "--backend=example"]
    found = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-8000:] + found.stderr
    assert "[100%]" in found.stdout


@deep
def test_the_first_tests_pass() -> None:
    _run(*FIRST)


@pytest.mark.deep
def test_more_tests_pass() -> None:
    _run(*MORE)


def test_the_contract_is_small() -> None:
    asked = Backend.__abstractmethods__ | Queue.__abstractmethods__
    assert len(asked) == 10
    text = PAGE.read_text(encoding="utf-8")
    blocks = "\n".join(part.partition("```")[0] for part in text.split("```py\n")[1:])
    written = {node.name for node in ast.walk(ast.parse(blocks)) if isinstance(node, ast.FunctionDef)}
    assert asked <= written
    assert len([line for line in blocks.splitlines() if line.strip()]) <= 130

"""Runs slang-torch's own tests, unchanged, with slangpy_rt.slangtorch in its place.

    git clone https://github.com/shader-slang/slang-torch
    python -m tests.upstream_slangtorch slang-torch --device vulkan

Nothing of slang-torch is kept here. Where the device is not CUDA, tensors that its tests put on a GPU stay in host
memory. The exit status is 1 if a test fails that is not in ``KNOWN``.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import sys
import time
import types
import unittest
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

import slangpy_rt.slangtorch as slangtorch

_CUDA_TEXT = "its Slang file has text for CUDA alone"
# By device, the tests that cannot pass there, by their class or by class and name.
KNOWN: Mapping[str, Mapping[str, str]] = {
    "cpu": {"TestCudaPreludeCache": _CUDA_TEXT},
    "vulkan": {"TestCudaPreludeCache": _CUDA_TEXT},
    "cuda": {"TestImplicitTypeCast.test_implicit_cast": "tensors on a GPU are not converted"},
}


class OnHost(TorchFunctionMode):
    """PyTorch without a GPU: what would be put there is put into host memory instead."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return _with_room(args[0])
        if func is torch.Tensor.to and args[1:] and str(args[1]).startswith("cuda"):
            return _with_room(args[0])
        if not str(kwargs.get("device", "")).startswith("cuda"):
            return func(*args, **kwargs)
        return _with_room(func(*args, **kwargs | {"device": "cpu"}))


class Row(NamedTuple):
    """What became of one test."""

    name: str
    outcome: str
    seconds: float
    why: str


class Table(unittest.TestResult):
    """Collects a row for each test."""

    def __init__(self, known: Mapping[str, str]) -> None:
        super().__init__()
        self.rows: list[Row] = []
        self._known = known
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began = time.perf_counter()

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._add(test, "passed", "")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._add(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        name = _name(test)
        known = self._known.get(name) or self._known.get(name.partition(".")[0])
        if known:
            self._add(test, "known", known)
        else:
            lines = str(err[1]).splitlines() or [""]
            self._add(test, "FAILED", f"{err[0].__name__}: {lines[0]}")

    addError = addFailure

    def _add(self, test: unittest.TestCase, outcome: str, why: str) -> None:
        self.rows.append(Row(_name(test), outcome, time.perf_counter() - self._began, why))

    def print(self) -> None:
        """Print the rows, and how many there are of each outcome."""
        width = max((len(row.name) for row in self.rows), default=0)
        for row in self.rows:
            print(f"{row.name:{width}}  {row.outcome:7}  {row.seconds:5.1f} s  {row.why}".rstrip())
        outcomes = [row.outcome for row in self.rows]
        counts = (f"{outcomes.count(each)} {each}" for each in ("passed", "FAILED", "known", "skipped"))
        print(f"{len(outcomes)} tests: {', '.join(counts)}")


def _with_room(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with memory behind it that nobody has."""
    # A block of CUDA's memory has 512 bytes at least; TestBroadcastedTensorError writes 36 of a tensor that has 16.
    room = torch.empty(tensor.numel() + 512, dtype=tensor.dtype)
    return room[: tensor.numel()].view(tensor.shape).copy_(tensor.detach()).requires_grad_(tensor.requires_grad)


def _name(test: unittest.TestCase) -> str:
    # A class that cannot be set up stands for its tests, and has an id like "setUpClass (module.Class)".
    return test.id().partition(".")[2] or test.id()


def find(path: Path) -> Path:
    """The file with slang-torch's tests: this one, or that in its checkout or in its folder of tests."""
    for each in (path, path / "test.py", path / "tests" / "test.py"):
        if each.is_file():
            return each
    raise SystemExit(f"{path} has no test.py and no tests/test.py: give a checkout of slang-torch or its tests.")


def load(path: Path, device: str, unskip: bool) -> types.ModuleType:
    """Import the file, to which ``slangtorch`` is slangpy_rt's, for one device."""
    stand_in = types.ModuleType("slangtorch")
    stand_in.__dict__.update({name: getattr(slangtorch, name) for name in slangtorch.__all__})
    if device != "cuda":
        stand_in.__dict__["loadModule"] = functools.partial(slangtorch.loadModule, device=device)
    spec = importlib.util.spec_from_file_location("upstream", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    skip, others = unittest.skip, sys.modules.get("slangtorch")
    sys.modules["slangtorch"] = stand_in
    if unskip:
        unittest.skip = lambda reason: lambda test: test  # type: ignore[assignment,misc]
    try:
        spec.loader.exec_module(module)
    finally:
        unittest.skip = skip  # type: ignore[misc]
        del sys.modules["slangtorch"]
        if others is not None:
            sys.modules["slangtorch"] = others
    return module


def run(path: Path, device: str, unskip: bool = False) -> Table:
    """Run the tests of a file on a device."""
    suite = unittest.defaultTestLoader.loadTestsFromModule(load(path, device, unskip))
    table = Table(KNOWN[device])
    if device == "cuda":
        suite.run(table)
        return table
    with OnHost():
        suite.run(table)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Run slang-torch's own tests and print what became of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream_slangtorch", description=main.__doc__)
    parser.add_argument("path", type=Path, help="a checkout of slang-torch, its folder of tests, or their file")
    parser.add_argument("--device", default="cpu", choices=list(KNOWN), help="where kernels run: %(default)s")
    parser.add_argument("--unskip", action="store_true", help="also the tests that slang-torch skips")
    options = parser.parse_args(arguments)
    table = run(find(options.path), options.device, options.unskip)
    table.print()
    return int(any(row.outcome == "FAILED" for row in table.rows) or not table.rows)


if __name__ == "__main__":
    sys.exit(main())

"""The command that runs slang-torch's own tests: on a file of the same kind, written here."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

import pytest

from tests import upstream_slangtorch

TESTS = """
import os
import unittest
import torch
import slangtorch

HERE = os.path.dirname(os.path.abspath(__file__))

class TestSquare(unittest.TestCase):
    def setUp(self):
        self.module = slangtorch.loadModule(os.path.join(HERE, "square.slang"))

    def test_right(self):
        x = torch.tensor([1., 2., 3.]).cuda()
        y = torch.zeros(3, device="cuda:0").to("cuda")
        self.module.square(input=x, output=y).launchRaw(blockSize=(4, 1, 1), gridSize=(1, 1, 1))
        assert y.tolist() == [1, 4, 9]

    def test_wrong(self):
        self.module.cube(1)

class TestCudaPreludeCache(unittest.TestCase):
    def test_it(self):
        assert False

@unittest.skip("it fails currently")
class TestSkipped(unittest.TestCase):
    def test_it(self):
        pass
"""
SQUARE = """
[AutoPyBindCUDA] [CudaKernel]
void square(TensorView<float> input, TensorView<float> output)
{
    uint at = cudaThreadIdx().x;
    if (at < input.size(0))
        output[at] = input[at] * input[at];
}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.py").write_text(TESTS)
    (tmp_path / "tests" / "square.slang").write_text(SQUARE)
    return tmp_path


def test_a_table_of_what_became_of_each(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert upstream_slangtorch.main([str(checkout)]) == 1
    *rows, total = capsys.readouterr().out.splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["TestCudaPreludeCache.test_it", "known"], ["TestSkipped.test_it", "skipped"],
        ["TestSquare.test_right", "passed"], ["TestSquare.test_wrong", "FAILED"],
    ]  # fmt: skip
    assert "CUDA alone" in rows[0] and "it fails currently" in rows[1] and "no kernel or struct 'cube'" in rows[3]
    assert total == "4 tests: 1 passed, 1 FAILED, 1 known, 1 skipped"
    assert "slangtorch" not in sys.modules


def test_what_is_skipped_runs_when_asked_for(checkout: Path) -> None:
    file = checkout / "tests" / "test.py"
    file.write_text(TESTS.replace("self.module.cube(1)", "pass"))
    skip = unittest.skip
    assert upstream_slangtorch.main([str(file), "--unskip"]) == 0
    assert unittest.skip is skip
    outcomes = {row.name: row.outcome for row in upstream_slangtorch.run(file, "cpu", unskip=True).rows}
    assert outcomes["TestSkipped.test_it"] == "passed"


def test_a_folder_without_tests(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no test\.py"):
        upstream_slangtorch.main([str(tmp_path)])

"""Sizes of thread groups that autoLaunch chooses by measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from _slangtorch import Files, files

from slangpy_rt.slangtorch import block_search
from slangpy_rt.slangtorch.errors import LaunchError
from tests.depth import one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

# It counts its launches, and writes the size of its groups.
TEXT = """
[AutoPyBindCUDA] [CudaKernel]
void count(TensorView<int> launches, TensorView<int> size, int more)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x >= size.size(0) || at.y > 0)
        return;
    size[at.x] = int(cudaBlockDim().x);
    if (at.x == 0)
        launches[0] += more;
}
"""
N = 100
TOTAL = (N, 1, 1)
BLOCKS = [(32, 1, 1), (64, 1, 1), (16, 2, 1)]


class Searches:
    """Takes the place of the search: each candidate runs once, and the second of them is the fastest."""

    def __init__(self) -> None:
        self.searched: list[list[Any]] = []

    def __call__(
        self, samples: Mapping[Any, Callable[[], float]], budget: float, progress: Any
    ) -> dict[Any, list[float]]:
        self.searched.append(list(samples))
        for sample in samples.values():
            assert sample() >= 0
        return {block: [1.0 if block == (64, 1, 1) else 2.0] for block in samples}


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    found = Searches()
    monkeypatch.setattr(block_search, "search", found)
    mode(monkeypatch, "on")
    return found


def mode(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(block_search, "CONFIG", replace(block_search.CONFIG, tune=name))


def launch(files: Files, m: Any, blocks: Any = BLOCKS, more: int = 1, total: Any = TOTAL) -> tuple[int, int]:
    """By how much a launch counted, and the size of its groups."""
    launches = files.on(torch.full((1,), 5, dtype=torch.int32))
    size = files.on(torch.zeros(N, dtype=torch.int32))
    m.count(launches=launches, size=size, more=more).autoLaunch(totalSize=total, blockSize=blocks)
    assert len(set(size.tolist())) == 1
    return launches.item() - 5, size[0].item()


def test_the_fastest_is_used_and_measured_once(files: Files, searches: Searches) -> None:
    m = files.load(TEXT, defines={"OF": 1})
    for _ in range(3):
        # What the measured runs wrote is as it was.
        assert launch(files, m) == (1, 64)
    assert searches.searched == [BLOCKS]
    # Other numbers and other choices are launches of other kinds; what is known of each size stays known.
    assert launch(files, m, more=2) == (2, 64)
    assert launch(files, m, [(64, 1, 1), (128, 1, 1)]) == (1, 64)
    assert searches.searched[1:] == [BLOCKS, [(128, 1, 1)]]


def test_times_on_disk(files: Files, searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    def fresh() -> Any:
        found = files.load(TEXT, defines={"OF": 2})
        found.count.code.blocks.clear()
        return found

    for name in ("off", "cached"):
        mode(monkeypatch, name)
        assert launch(files, fresh()) == (1, 32)
    mode(monkeypatch, "on")
    assert launch(files, fresh()) == (1, 64)
    mode(monkeypatch, "cached")
    assert launch(files, fresh()) == (1, 64)
    assert len(searches.searched) == 1
    mode(monkeypatch, "force")
    assert launch(files, fresh()) == (1, 64)
    assert len(searches.searched) == 2


def test_sizes_that_do_not_run_are_left_out(files: Files, searches: Searches) -> None:
    m = files.load(TEXT, defines={"OF": 3})
    assert launch(files, m, [(2000, 1, 1), (32, 1, 1), (1, 1, 65)]) == (1, 32)
    assert searches.searched == [[(32, 1, 1)]]
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"blockSize \(2000, 1, 1\) has 2000 threads"):
            launch(files, m, [(2000, 1, 1), (1, 1, 65)])
    with pytest.raises(LaunchError, match="2000 threads"):
        launch(files, m, [(2000, 1, 1)])


def test_wrong_choices(files: Files) -> None:
    m = files.load(TEXT, defines={"OF": 4})
    for blocks in ((64, 1, 1), [(64, 1)], [64], [(0, 1, 1)], 64, "abc", None):
        with pytest.raises(ValueError, match=r"^count: blockSize is "):
            launch(files, m, blocks)
    assert launch(files, m, [])[0] == 1
    launches, size = (files.on(torch.zeros(1, dtype=torch.int32)) for _ in range(2))
    m.count(launches=launches, size=size, more=1).autoLaunch((0, 1, 1), BLOCKS)
    assert launches.item() == 0


def test_an_error_leaves_the_tensors_as_they_were(
    files: Files, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    m = files.load(TEXT, defines={"OF": 5})
    launches, size = (files.on(torch.zeros(n, dtype=torch.int32)) for n in (1, N))

    def interrupted(samples: Any, *_: Any) -> Any:
        samples[32, 1, 1]()
        assert launches.item() > 0
        raise KeyboardInterrupt

    monkeypatch.setattr(block_search, "search", interrupted)
    with pytest.raises(KeyboardInterrupt):
        m.count(launches=launches, size=size, more=1).autoLaunch(TOTAL, BLOCKS)
    assert launches.item() == 0 and not size.any()
    monkeypatch.setattr(block_search, "search", searches)
    assert launch(files, m) == (1, 64)


def test_a_real_search(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    mode(monkeypatch, "force")
    m = files.load(TEXT, defines={"OF": 6})
    moved, size = launch(files, m)
    assert moved == 1 and size in (32, 64, 16)
    leaf = files.on(torch.ones(4)).requires_grad_()
    square = (leaf * leaf).sum()
    m = files.load("[AutoPyBindCUDA] [CudaKernel] void read(TensorView<float> a) { float x = a[0]; }")
    m.read(a=leaf).autoLaunch((4, 1, 1), BLOCKS)
    # PyTorch does not take what was written back for a change.
    square.backward()
    assert leaf.grad is not None and leaf.grad.tolist() == [2.0] * 4

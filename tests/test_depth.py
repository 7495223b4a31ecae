"""What the default run leaves out, and that ``--deep`` and its parts bring all of it back."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Container
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import chosen, lacks
from tests.depth import (
    MANY,
    PARTS,
    deep,
    every_device,
    is_deep,
    mark_left_out,
    needs,
    needs_of,
    one_device,
    part_of,
    read_part,
    sampled,
)

ROOT = Path(__file__).resolve().parents[1]
BACKENDS = ["vulkan", "cpu"]


class Item:
    """What ``mark_left_out`` sees of a test; ``marks`` from the closest on."""

    def __init__(self, name: str, case: int, backend: str, marks: tuple[pytest.MarkDecorator, ...]) -> None:
        self.nodeid = f"tests/test_some.py::{name}[{backend}-{case}]"
        self.case, self.backend = case, backend
        self.callspec = SimpleNamespace(params={"backend_name": backend, "case": case} if backend else {})
        self._marks = [mark.mark for mark in marks]

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self._marks if mark.name == name), None)

    def iter_markers(self, name: str | None = None) -> list[pytest.Mark]:
        return [mark for mark in self._marks if name is None or mark.name == name]

    def add_marker(self, marker: pytest.MarkDecorator) -> None:
        self._marks.append(marker.mark)


def kept(
    *marks: pytest.MarkDecorator,
    name: str = "test_it",
    count: int = 1,
    backends: Any = BACKENDS,
    run: Any = BACKENDS,
    lacking: Container[tuple[str, str]] = (),
) -> Any:
    """The cases that the default run keeps, by device; ``run`` has the devices, ``lacking`` what they lack."""
    items = [Item(name, case, backend, marks) for backend in backends for case in range(count)]
    mark_left_out(items, run, lambda backend, capability: (backend, capability) in lacking)  # type: ignore[arg-type]
    return {
        backend: [i.case for i in items if i.backend == backend and i.get_closest_marker("deep") is None]
        for backend in backends
    }


def test_of_sampled_cases_each_device_has_others() -> None:
    for k in range(40):
        found = kept(sampled(3), name=f"test_{k}", count=7)
        assert found["vulkan"] and found["cpu"] and set(found["vulkan"]).isdisjoint(found["cpu"])
        assert len(found["vulkan"]) + len(found["cpu"]) in (4, 5)
    assert kept(sampled(1), count=2) == {"vulkan": [0, 1], "cpu": [0, 1]}


def test_one_case_on_one_device_is_left_at_least() -> None:
    found = [kept(sampled(50), name=f"test_{k}", count=2) for k in range(60)]
    pairs = [[(device, case) for device in BACKENDS for case in cases[device]] for cases in found]
    assert all(len(pair) == 1 for pair in pairs)
    # Which one depends on the name of the test.
    assert {pair[0] for pair in pairs} == {(device, case) for device in BACKENDS for case in (0, 1)}


def test_some_case_is_left_where_there_is_no_device() -> None:
    found = [kept(sampled(3), name=f"test_{k}", count=3, backends=[""])[""] for k in range(40)]
    # Which one depends on the name of the test.
    assert {tuple(cases) for cases in found} == {(0,), (1,), (2,)}


def test_a_mark_of_one_device_is_as_none() -> None:
    for count in (1, 2, 7):
        assert kept(one_device, count=count) == kept(count=count)
    assert kept(one_device, count=2, backends=[""]) == {"": [0, 1]}


def test_without_a_mark_one_of_two_cases_is_on_one_device() -> None:
    run = ["cpu", "vulkan", "rhi-vulkan"]
    found = [kept(name=f"test_{k}", count=2, backends=run, run=run) for k in range(60)]
    pairs = [[(device, case) for device in run for case in cases[device]] for cases in found]
    assert all(len(pair) == 1 for pair in pairs)
    assert {pair[0] for pair in pairs} == {(device, case) for device in run for case in (0, 1)}


def test_one_case_is_left_to_devices_of_our_own() -> None:
    run = ["cpu", "vulkan", "rhi-vulkan"]
    found = [kept(name=f"test_{k}", backends=run, run=run) for k in range(40)]
    assert all(sorted([*by_device["cpu"], *by_device["vulkan"]]) == [0] for by_device in found)
    assert not any(by_device["rhi-vulkan"] for by_device in found)
    assert 5 < sum(by_device["cpu"] == [0] for by_device in found) < 20
    assert kept(backends=["rhi-vulkan"], run=["rhi-vulkan"]) == {"rhi-vulkan": [0]}


def test_of_many_cases_each_third_or_fourth_is_on_one_device() -> None:
    run = ["cpu", "vulkan", "rhi-vulkan"]
    for count, step in ((3, 3), (5, 3), (MANY, 4), (9, 4)):
        found = set()
        for k in range(40):
            by_device = kept(name=f"test_{k}", count=count, backends=run, run=run)
            found.add(tuple(sorted(case for cases in by_device.values() for case in cases)))
        assert found == {tuple(range(first, count, step)) for first in range(step)}
    assert sorted(kept(count=24, backends=run, run=run).values())[0], "each device has a case"
    # A run on one device has all of them.
    assert kept(count=5, backends=["vulkan"], run=["vulkan"]) == {"vulkan": [0, 1, 2, 3, 4]}
    assert kept(every_device, count=5, backends=run, run=run)["rhi-vulkan"] == [0, 1, 2, 3, 4]


def test_a_test_of_every_device_is_an_exception_in_its_module() -> None:
    assert kept(every_device, one_device, count=2) == {"vulkan": [0, 1], "cpu": [0, 1]}
    assert kept(one_device, every_device) in ({"vulkan": [0], "cpu": []}, {"vulkan": [], "cpu": [0]})


def test_cases_that_are_deep_anyway_are_not_counted() -> None:
    items = [Item("test_it", case, "vulkan", (sampled(2),)) for case in range(4)]
    items[0].add_marker(pytest.mark.deep)
    mark_left_out(items, BACKENDS)  # type: ignore[arg-type]
    assert [i.case for i in items if i.get_closest_marker("deep") is None] in ([1, 3], [2])


RUN = ["cpu", "vulkan", "rhi-vulkan"]


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_case_is_on_a_device_that_has_what_it_needs(count: int) -> None:
    for k in range(40):
        options: Any = {"name": f"test_{k}", "count": count, "backends": RUN, "run": RUN}
        found = kept(needs("groups"), **options, lacking={("cpu", "groups")})
        assert not found["cpu"]
        # As many cases, on the other devices; where one device is left, on that one.
        assert sum(map(len, found.values())) == sum(map(len, kept(**options).values()))
        found = kept(needs("x"), **options, lacking={("cpu", "x"), ("vulkan", "x")})
        assert not found["cpu"] and not found["vulkan"] and found["rhi-vulkan"]
        # No device has it, and no device lacks it: as without a mark.
        for lacking in ({(name, "x") for name in RUN}, set()):
            assert kept(needs("x"), **options, lacking=lacking) == kept(**options)


def test_sampled_cases_too() -> None:
    for k in range(20):
        options: Any = {"name": f"test_{k}", "backends": RUN, "run": RUN, "lacking": {("cpu", "groups")}}
        assert kept(sampled(1), needs("groups"), count=3, **options) == {
            "cpu": [], "vulkan": [0, 1, 2], "rhi-vulkan": [0, 1, 2]
        }  # fmt: skip
        found = kept(sampled(3), needs("groups"), count=6, **options)
        assert not found["cpu"] and sum(map(len, found.values())) == 4


def test_what_a_case_needs_may_follow_from_its_parameters() -> None:
    marks = needs("{case}", lambda case: ["groups"] if case["case"] == 2 else []), needs("half")
    assert [needs_of(Item("test_it", k, "cpu", marks)) for k in (1, 2)] == [  # type: ignore[arg-type]
        ("1", "half"), ("2", "groups", "half")
    ]  # fmt: skip
    assert needs_of(Item("test_it", 2, "", marks)) == ()  # type: ignore[arg-type]
    for k in range(20):
        lacking = {("cpu", "groups")}
        found = kept(every_device, *marks, name=f"test_{k}", count=3, backends=RUN, run=RUN, lacking=lacking)
        assert found == {"cpu": [0, 1], "vulkan": [0, 1, 2], "rhi-vulkan": [0, 1, 2]}


def test_no_case_of_this_run_is_on_a_device_that_lacks_what_it_needs(request: pytest.FixtureRequest) -> None:
    """Of all cases that were collected, unless no device of the run has it."""
    if is_deep(request.config):
        pytest.skip("a run of everything has each case on each device")
    backends, found = chosen(request.config), []
    for item in request.session.items:
        # Not the marks of a module, some of whose tests have no device.
        if any(mark.name == "needs" for mark in item.own_markers):
            assert hasattr(item, "callspec") and "backend_name" in item.callspec.params, item.nodeid
        names = needs_of(item)
        if names and any(lacks(item.callspec.params["backend_name"], name) for name in names):  # type: ignore[attr-defined]
            found += [item.nodeid] * any(not any(lacks(other, name) for name in names) for other in backends)
    assert found == []


def test_every_test_is_in_exactly_one_part() -> None:
    names = [f"tests/conformance/test_calls.py::test_it[cpu-{k}]" for k in range(5000)]
    for parts in (1, 2, PARTS, 7):
        sizes = [sum(part_of(name, parts) == part for name in names) for part in range(1, parts + 1)]
        assert sum(sizes) == len(names) and min(sizes) > 0.8 * len(names) / parts


def test_auto_goes_through_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for day in range(1, PARTS + 1):
        monkeypatch.setattr(time, "gmtime", lambda day=day: SimpleNamespace(tm_yday=day))
        found.append(read_part("auto"))
    assert sorted(found) == [(k, PARTS) for k in range(1, PARTS + 1)]
    assert read_part("2/3") == (2, 3)


@pytest.mark.parametrize("text", ["0/4", "5/4", "4", "1/0", "/", "a/b", "-1/4", "1/4/4", ""])
def test_what_is_no_part_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--deep-part: expected K/N with K from 1 to N, such as 2/4"):
        read_part(text)


@deep
def test_a_run_of_a_part_has_that_alone_and_says_which() -> None:
    def collected(*options: str) -> tuple[set[str], str]:
        command = [sys.executable, "-m", "pytest", "-n0", "-p", "no:cacheprovider", "--collect-only", "-q"]
        command += ["-o", "addopts=", "tests/slang/test_slang_link.py", *options]
        said = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True).stdout
        return set(re.findall(r"^tests/\S+::.*$", said, re.M)), said

    everything, _ = collected("--deep")
    default, _ = collected()
    first, said = collected("--deep-part=1/2")
    second, _ = collected("--deep-part=2/2")
    assert default and first and second
    assert first | second == everything - default and not first & second
    assert "deep tests: part 1/2; --deep-part=1/2 runs it again" in said

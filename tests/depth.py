"""What the default run of the tests leaves out, so that it ends soon; ``--deep`` runs all of it.

``--deep-part=K/N`` runs one of N parts of what is left out, and nothing else. Nothing here runs a test.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

# A test that takes long, or one of many of its kind.
deep = pytest.mark.deep
# A test that tries more random cases with --deep.
random_cases = pytest.mark.random_cases
# The default run has each case of a test on one device. This says so of a test in a module that is marked otherwise.
one_device = pytest.mark.one_device
# A test of what each backend does in its own way: the default run has all of its cases on each device.
every_device = pytest.mark.sampled(1)
MARKERS = {
    "deep": "runs with --deep alone",
    "random_cases": "tries more cases with --deep",
    "one_device": "runs on one device, with --deep on all",
    "sampled(count)": "runs one of that many cases, with --deep all",
}
# In how many parts ``--deep-part=auto`` divides the deep tests.
PARTS = 24
# Of a test with so many cases and no mark the default run with several devices has each fourth case; of one with
# fewer cases each third one, of two cases one.
MANY = 6


def sampled(count: int) -> pytest.MarkDecorator:
    """Mark a test of which the default run has one of each ``count`` cases, where each device is a case of its own.

    At least one case is left.

    Example: four cases on Vulkan and on the CPU are eight, of which ``sampled(4)`` keeps two.
    """
    return pytest.mark.sampled(count)


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Values for ``parametrize``, of which the default run takes each ``count``-th, from the first on."""
    return [value if k % count == 0 else pytest.param(value, marks=deep) for k, value in enumerate(values)]


def is_deep(config: pytest.Config) -> bool:
    """Whether the run is one with all cases."""
    return bool(config.getoption("--deep") or config.getoption("--long") or config.getoption("--deep-part"))


def mark_left_out(items: Iterable[pytest.Item], backends: Sequence[str]) -> None:
    """Mark as ``deep`` the cases that the default run leaves out: those on other devices, and those not sampled.

    A case without a mark runs on one device. With several devices, a test of two cases has one, a test of more each
    third one, and one of six or more each fourth. A test of one case is left to no device of slang-rhi's, and half as
    often to the CPU as to another: compilers of C++ take twice as long as drivers.

    Parameters
    ----------
    items
        All tests that were collected: a test's cases are counted in their order.
    backends : sequence of str
        The devices of the run, by name.
    """
    seen: dict[tuple[str, int], dict[int, list[pytest.Item]]] = {}
    for item in items:
        # The closest one: a test's own mark is more than its module's.
        how = next((mark for mark in item.iter_markers() if mark.name in ("sampled", "one_device")), None)
        params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        backend = str(params.get("backend_name", ""))
        count = how.args[0] if how and how.name == "sampled" else 0
        if (count or backend) and not item.get_closest_marker("deep"):
            devices = seen.setdefault((item.nodeid.partition("[")[0], count), {})
            devices.setdefault(backends.index(backend) if backend else 0, []).append(item)
    many = len(backends)
    for (place, count), devices in seen.items():
        # By the name, lest all tests run their first case on the first device.
        turn = zlib.crc32(place.encode())
        cases = max(map(len, devices.values()))
        if cases == 1 and not count and many > 1:
            own = [at for at in devices if not backends[at].startswith("rhi-")] or list(devices)
            choices = [at for at in own for _ in range(1 if backends[at] == "cpu" else 2)]
            for at in devices.keys() - {choices[turn % len(choices)]}:
                devices[at][0].add_marker(deep)
            continue
        each = count or many * (1 if many == 1 else min(cases, 3) if cases < MANY else 4)
        # Each case on another device than the one before it, and than the one that is ``many`` cases before it.
        pairs = sorted(
            (number, (at + number + number // many) % many, at)
            for at, cases in devices.items()
            for number in range(len(cases))
        )
        for rank, (number, _, at) in enumerate(pairs):
            if (rank - turn) % min(each, len(pairs)):
                devices[at][number].add_marker(deep)


def read_part(text: str, option: str = "--deep-part") -> tuple[int, int]:
    """K and N of ``K/N``, the value of an option; of ``auto`` by the day of the year, in UTC.

    Raises
    ------
    pytest.UsageError
        If the text is neither.
    """
    if text == "auto":
        return time.gmtime().tm_yday % PARTS + 1, PARTS
    part, slash, parts = text.partition("/")
    if slash and part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts):
        return int(part), int(parts)
    raise pytest.UsageError(f"{option}: expected K/N with K from 1 to N, such as 2/4, or auto; got {text!r}.")


def part_of(name: str, parts: int) -> int:
    """Which part, from 1 on, a test or a kernel belongs to: the same in each run, whatever others there are."""
    return zlib.crc32(name.encode()) % parts + 1


def explore(
    config: pytest.Config, test: Callable[[Any], None], cases: st.SearchStrategy[Any], examples: int, many: int = 40
) -> None:
    """Run a test on random cases, its argument ``case``: the same in every run, unless the run is a long one.

    Parameters
    ----------
    examples : int
        Cases with ``--deep``; a twentieth of them without, ``many`` times as many with ``--long``.
    """
    long = config.getoption("--long")
    settings = hypothesis.settings(
        max_examples=examples * many if long else examples if is_deep(config) else max(examples // 20, 2),
        derandomize=not long,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.given(case=cases)(test))()

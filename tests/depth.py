"""What the default run of the tests leaves out, so that it ends soon; ``--deep`` runs all of it.

``--deep-part=K/N`` runs one of N parts of what is left out, and nothing else. Nothing here runs a test.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import hypothesis
import pytest
from hypothesis import strategies as st

F = TypeVar("F", bound=Callable[..., Any])

# A test that takes long, or one of many of its kind.
deep = pytest.mark.deep
# A test that tries more random cases with --deep.
random_cases = pytest.mark.random_cases
# The default run has each case of a test on one device. This says so of a test in a module that is marked otherwise.
one_device = pytest.mark.one_device
# The default run has each case of this test, on one device: no two of them run the same code.
every_case = pytest.mark.every_case
# A test of what each backend does in its own way: the default run has all of its cases on each device.
every_device = pytest.mark.sampled(1)
MARKERS = {
    "deep": "runs with --deep alone",
    "random_cases": "tries more cases with --deep",
    "one_device": "runs on one device, with --deep on all",
    "every_case": "runs all cases, each on one device, with --deep on all",
    "sampled(count)": "runs one of that many cases, with --deep all",
    "needs(capability, ...)": "runs on devices that have these capabilities",
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


def needs(*capabilities: str | Callable[[dict[str, Any]], Iterable[str]]) -> pytest.MarkDecorator:
    """Mark a test with the capabilities that a device has to have for it: scalar types, features of ``conftest.py``.

    The default run gives a case to devices that have them, and a case is skipped on other devices.

    Parameters
    ----------
    *capabilities
        Names; ``{kind}`` in a name is the value of the case's parameter ``kind``, and a function returns names for a
        case's parameters.

    Examples
    --------
    ``@needs("groups", "{scalar}")``; ``@needs(lambda case: ["double"] if case["kind"] == "AdamW" else [])``.
    """
    # ``with_args``: pytest takes one function alone for the test that is marked.
    return pytest.mark.needs.with_args(*capabilities)


def fixture_needs(*capabilities: str) -> Callable[[F], F]:
    """Declare the capabilities that all tests with a fixture need; it stands below ``@pytest.fixture``."""

    def declare(function: F) -> F:
        function.needs = capabilities  # type: ignore[attr-defined]
        return function

    return declare


def needs_of(item: pytest.Item) -> tuple[str, ...]:
    """Return the capabilities that a case needs of its device; none for a case that has no device."""
    params: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    if "backend_name" not in params:
        return ()
    found: list[str] = []
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            found += [name.format(**params)] if isinstance(name, str) else name(params)
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    for definitions in fixtures.values():
        found += getattr(definitions[-1].func, "needs", ())
    return tuple(dict.fromkeys(found))


def mark_left_out(
    items: Iterable[pytest.Item], backends: Sequence[str], lacks: Callable[[str, str], bool] = lambda *_: False
) -> None:
    """Mark as ``deep`` the cases that the default run leaves out: those on other devices, and those not sampled.

    A case is on no device that lacks what it needs, if another device of the run has it. A case without a mark runs
    on one device. With several devices, a test of two cases has one, a test of more each third one, and one of six or
    more each fourth; with ``every_case`` it has all of them. A test of one case is left to no device of slang-rhi's,
    and half as often to the CPU as to another: compilers of C++ take twice as long as drivers.

    Parameters
    ----------
    items
        All tests that were collected: a test's cases are counted in their order.
    backends : sequence of str
        The devices of the run, by name.
    lacks : callable
        Tells whether a device, by name, lacks a capability.
    """
    seen: dict[tuple[str, int], dict[int, list[pytest.Item]]] = {}
    for item in items:
        # The closest one: a test's own mark is more than its module's.
        how = next(
            (mark for mark in item.iter_markers() if mark.name in ("sampled", "one_device", "every_case")), None
        )
        params: dict[str, object] = getattr(getattr(item, "callspec", None), "params", {})
        backend = str(params.get("backend_name", ""))
        count = how.args[0] if how and how.name == "sampled" else -1 if how and how.name == "every_case" else 0
        if (count or backend) and not item.get_closest_marker("deep"):
            devices = seen.setdefault((item.nodeid.partition("[")[0], count), {})
            devices.setdefault(backends.index(backend) if backend else 0, []).append(item)
    many = len(backends)
    for (place, count), devices in seen.items():
        # By the name, lest all tests run their first case on the first device.
        turn = zlib.crc32(place.encode())
        cases = max(map(len, devices.values()))
        every = [{at: own[number] for at, own in devices.items() if number < len(own)} for number in range(cases)]
        able = [_able(case, backends, lacks) for case in every]
        kept = _some(able, turn, count, many) if count > 0 else _on_one_device(able, turn, backends, count < 0)
        for number, case in enumerate(every):
            for at, item in case.items():
                if (number, at) not in kept:
                    item.add_marker(deep)


def _able(case: dict[int, pytest.Item], backends: Sequence[str], lacks: Callable[[str, str], bool]) -> list[int]:
    """Return the devices of a case that have what it needs; all of them where none has."""
    found = [at for at, item in case.items() if not any(lacks(backends[at], name) for name in needs_of(item))]
    return found or list(case)


def _some(able: Sequence[Sequence[int]], turn: int, count: int, many: int) -> set[tuple[int, int]]:
    """Return one of each ``count`` pairs of a case and a device; one at least."""
    pairs = [
        (number, at)
        for number, devices in enumerate(able)
        for at in sorted(devices, key=lambda at, n=number: _rotated(at, n, many))  # type: ignore[misc]
    ]
    step = min(count, len(pairs))
    return {pair for rank, pair in enumerate(pairs) if (rank - turn) % step == 0}


def _on_one_device(
    able: Sequence[Sequence[int]], turn: int, backends: Sequence[str], each: bool
) -> set[tuple[int, int]]:
    """Return a device for each case, each third or each fourth; for all cases where there is one device."""
    many, cases = len(backends), len(able)
    if cases == 1 and many > 1:
        own = [at for at in able[0] if not backends[at].startswith("rhi-")] or list(able[0])
        choices = [at for at in own for _ in range(1 if backends[at] == "cpu" else 2)]
        return {(0, choices[turn % len(choices)])}
    step = 1 if many == 1 or each else min(cases, 3) if cases < MANY else 4
    kept = set()
    for number in range(turn % step, cases, step):
        choices = sorted(able[number], key=lambda at, n=number: _rotated(at, n, many))  # type: ignore[misc]
        kept.add((number, choices[turn // step % len(choices)]))
    return kept


def _rotated(at: int, number: int, many: int) -> int:
    """A device's place among those of a case: another one than for the case before, and ``many`` cases before."""
    return (at + number + number // many) % many


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

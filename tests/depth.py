"""What the default run of the tests leaves out, so that it ends soon; ``--deep`` runs all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

# A test that takes long, or one of many of its kind.
deep = pytest.mark.deep
# A test that tries more random cases with --deep.
random_cases = pytest.mark.random_cases


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Values for ``parametrize``, of which the default run takes each ``count``-th, from the first on."""
    return [value if k % count == 0 else pytest.param(value, marks=deep) for k, value in enumerate(values)]


def is_deep(config: pytest.Config) -> bool:
    """Whether the run is one with all cases."""
    return bool(config.getoption("--deep") or config.getoption("--long"))


def explore(
    config: pytest.Config, test: Callable[[Any], None], cases: st.SearchStrategy[Any], examples: int, many: int = 40
) -> None:
    """Run a test on random cases, its argument ``case``: the same in every run, unless the run is a long one.

    Parameters
    ----------
    examples : int
        Cases with ``--deep``; a third of them without, ``many`` times as many with ``--long``.
    """
    long = config.getoption("--long")
    settings = hypothesis.settings(
        max_examples=examples * many if long else examples if is_deep(config) else examples // 3,
        derandomize=not long,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    settings(hypothesis.given(case=cases)(test))()

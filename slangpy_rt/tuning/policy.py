"""Policy: how a tuned function searches, as ``tune`` was told, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from slangpy_rt.core.conversion import kind_of
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.tuning.call_info import CallInfo
from slangpy_rt.tuning.config import Config

BENCHES = ("auto", "hot")
_MOST = 1 << 1000  # the largest whole number for check and budget, which become floats


@dataclass(frozen=True)
class Policy:
    """How configurations are searched. The attributes are the parameters of ``tune``."""

    key: Any = None
    prune: Callable[[Sequence[Config], CallInfo], Sequence[Config]] | None = None
    model: Callable[[Config, CallInfo], float] | None = None
    top_k: int | None = None
    check: float | None = None
    budget: float = 2.0
    bench: Any = "auto"


def policy_of(where: str, **given: Any) -> Policy:
    """Return a policy of the parameters of ``tune``.

    Raises
    ------
    BindError
        If a parameter is of a wrong type or out of range.
    """
    policy = Policy(**given)
    for name in ("prune", "model"):
        value = getattr(policy, name)
        if value is not None and not callable(value):
            raise BindError(f"{where}: {name} is {in_words(value)}; a function was expected.")
    for name, least in (("check", 0.0), ("budget", 0.0)):
        value = getattr(policy, name)
        if value is None and name == "check":
            continue
        if kind_of(value) not in "iuf" or not value >= least or (kind_of(value) != "f" and value > _MOST):
            raise BindError(f"{where}: {name} is {in_words(value)}; a number of at least 0 was expected.")
    if policy.top_k is not None and (kind_of(policy.top_k) not in "iu" or policy.top_k < 1):
        raise BindError(f"{where}: top_k is {in_words(policy.top_k)}; a whole number of at least 1 was expected.")
    if policy.top_k is not None and policy.model is None:
        raise BindError(f"{where}: top_k takes the best configurations of a model; give model=... too.")
    named = isinstance(policy.bench, str) and policy.bench in BENCHES
    if not named and not callable(policy.bench):
        raise BindError(f"{where}: bench is {in_words(policy.bench)}; 'auto', 'hot' or a function was expected.")
    key = policy.key
    listed = isinstance(key, (list, tuple)) and all(isinstance(name, str) for name in key)
    rounds = isinstance(key, str) and key == "pow2"
    if key is not None and not rounds and not callable(key) and not listed:
        raise BindError(
            f"{where}: key is {in_words(key)}; names of parameters, 'pow2', or a function of the call was expected."
        )
    return Policy(**{**given, "key": tuple(key) if listed else key})

"""Kinds of calls: which calls share a configuration."""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.errors import BindError
from slangpy_rt.tuning.call_info import CallInfo
from slangpy_rt.tuning.policy import Policy


def kind_of_call(name: str, policy: Policy, info: CallInfo, layouts: tuple[Any, ...]) -> str:
    """Return the text under which the winner of a call is remembered.

    Raises
    ------
    BindError
        If the policy's key names no parameter.
    """
    if policy.key is None:
        return repr((layouts, sorted(info.values.items())))
    if policy.key == "pow2":
        shapes = [(n, info.dtypes[n], tuple(map(_pow2, s))) for n, s in info.shapes.items()]
        return repr(("pow2", shapes, [(n, _pow2(v)) for n, v in sorted(info.values.items())]))
    if callable(policy.key):
        return repr(("function", policy.key(info)))
    for label in policy.key:
        if label not in info.shapes:
            raise BindError(
                f"{name}.tune: key names '{label}', which is no argument of this call; it has "
                f"{', '.join(info.shapes) or 'none'}."
            )
    return repr([(n, info.values.get(n), info.shapes[n], info.dtypes[n]) for n in policy.key])


def _pow2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else n

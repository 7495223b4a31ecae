"""Kinds of calls: which calls share a configuration."""

from __future__ import annotations

from typing import Any

from slangpy_rt.core.checks import is_callers
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
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
        return repr((layouts, [(n, _short(v)) for n, v in sorted(info.values.items())]))
    if policy.key == "pow2":
        shapes = [(n, info.dtypes[n], tuple(map(_pow2, s))) for n, s in info.shapes.items()]
        return repr(("pow2", shapes, [(n, _short(_pow2(v))) for n, v in sorted(info.values.items())]))
    if callable(policy.key):
        return repr(("function", _text(name, policy.key(info))))
    for label in policy.key:
        if label not in info.shapes:
            raise BindError(
                f"{name}.tune: key names '{label}', which is no argument of this call; it has "
                f"{', '.join(info.shapes) or 'none'}."
            )
    return repr([(n, _short(info.values.get(n)), info.shapes[n], info.dtypes[n]) for n in policy.key])


def _text(name: str, value: Any) -> str:
    """Return the text of what the caller's function returned."""
    try:
        return repr(value)
    except (RecursionError, ValueError) as error:
        if is_callers(error):
            raise
        raise BindError(
            f"{name}.tune: key returned {in_words(value)}; a number, text or tuple was expected."
        ) from None


def _short(value: int | None) -> int | str | None:
    """Return a number, or its text where Python refuses to write it in decimal digits."""
    return hex(value) if value is not None and value.bit_length() > 1000 else value


def _pow2(n: int) -> int:
    return 1 << (n - 1).bit_length() if n > 0 else n

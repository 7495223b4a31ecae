"""What tests of whole messages share: the message of an error that an action raises. No test is here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def refused(error: type[Exception], action: Callable[[], Any]) -> str:
    """The message of the error that an action raises."""
    with pytest.raises(error) as caught:
        action()
    assert type(caught.value) is error
    return str(caught.value)

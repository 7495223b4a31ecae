"""Candidates: a function with the values of one configuration; which there are is decided elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slangpy_rt.tuning.config import Config

# The choice of a thread group's size, beside the names of constants and macros.
GROUP_SIZE = "group_size"


def applied(function: Any, config: Config, names: Sequence[str]) -> Any:
    """Return a function with the values of a configuration for its thread group and its constants."""
    constants = {name: config[name] for name in names if name != GROUP_SIZE}
    if constants:
        function = function.constants(constants)
    return function.group_size(config[GROUP_SIZE]) if GROUP_SIZE in names else function


def part_of(config: Config, names: set[str]) -> Config:
    """Return the values of some names."""
    return Config({name: value for name, value in config.items() if name in names})

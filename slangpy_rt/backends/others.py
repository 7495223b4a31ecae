"""Finds backends of other packages by name and imports them on demand.

The environment variable SLANGPY_RT_BACKENDS and the entry points of installed packages name them. They are searched
only for names that ``REGISTRY`` does not have, so that slangpy_rt's own backends cost no search. Another package
cannot replace one of these, and ``"automatic"`` opens none of its backends.
"""

from __future__ import annotations

import importlib
from typing import NamedTuple

from slangpy_rt.backends.base import Backend
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import UnsupportedError

GROUP = "slangpy_rt.backends"
_VARIABLE = "SLANGPY_RT_BACKENDS"
_OPENED = ("target", "caps", "description", "queue")


class Other(NamedTuple):
    """The place of another package's backend, as ``"module:Class"``, and the variable or package that names it."""

    place: str
    source: str


def other_backends() -> dict[str, Other]:
    """Return the backends of other packages by name. The environment takes precedence over installed packages."""
    # This import takes 20 ms, and a process that uses only slangpy_rt's own devices does without it.
    from importlib.metadata import entry_points

    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        package = f"the package {point.dist.name}" if point.dist else "an installed package"
        found[point.name] = Other(point.value, package)
    return found | {name: Other(place, _VARIABLE) for name, place in CONFIG.backends.items()}


def import_other(name: str, other: Other) -> type[Backend]:
    """Import the class of another package's backend.

    Raises
    ------
    UnsupportedError
        If there is no such module or class, or the class is no Backend, lacks methods or has another name.
    """
    where = f"{other.source} says that the backend {name!r} is {other.place!r}"
    module, _, attribute = other.place.partition(":")
    if not (module and attribute):
        raise UnsupportedError(f"{where}; say 'module:Class' there")
    try:
        found = getattr(importlib.import_module(module), attribute)
    # A module of another package may raise anything.
    except Exception as error:
        raise UnsupportedError(
            f"{where}, which cannot be imported ({type(error).__name__}: {error}); install it or correct the name"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise UnsupportedError(f"{where}, which does not derive from slangpy_rt.backends.base.Backend; let it")
    if missing := sorted(found.__abstractmethods__):
        raise UnsupportedError(
            f"{where}, which has no {', '.join(missing)}; write it as docs/adding-a-backend.md does"
        )
    if (own := getattr(found, "name", None)) != name:
        raise UnsupportedError(f"{where}, whose attribute name is {own!r}; make them the same")
    return found


def require_whole(name: str, opened: Backend) -> None:
    """Raise UnsupportedError if an open backend lacks attributes of the contract."""
    if missing := [attribute for attribute in _OPENED if not hasattr(opened, attribute)]:
        raise UnsupportedError(
            f"Device: the backend {name!r} of another package has opened without {', '.join(missing)}; "
            f"set each in {type(opened).__name__}.__init__, as docs/adding-a-backend.md shows."
        )

"""Weak tables that drop entries without running Python code, in which an interrupt would be reported and lost.

The tables of Python's ``weakref`` module call a Python function when an object is freed. Here the callback is a
method of C, which appends the dead reference to a list; the next change of the table drops it. Tables have no order.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class _Ref(weakref.ref):  # type: ignore[type-arg]
    __slots__ = ("key",)

    key: Hashable


class WeakValues(Generic[T]):
    """A dict of weakly referenced values; one thread at a time may change it."""

    def __init__(self) -> None:
        self._refs: dict[Hashable, _Ref] = {}
        self._gone: deque[_Ref] = deque()

    def get(self, key: Hashable) -> T | None:
        """Return the value of a key, or None."""
        ref = self._refs.get(key)
        return None if ref is None else ref()

    def setdefault(self, key: Hashable, value: T) -> T:
        """Return the value of a key; store and return ``value`` if the key has none."""
        found = self.get(key)
        if found is None:
            self.put(key, value)
            found = value
        return found

    def put(self, key: Hashable, value: T) -> None:
        """Set the value of a key."""
        while self._gone:
            dead = self._gone[0]
            if self._refs.get(dead.key) is dead:
                del self._refs[dead.key]
            # Removed last: after an interrupt before this line the same reference is looked at again.
            self._gone.popleft()
        ref = _Ref(value, self._gone.append)
        ref.key = key
        self._refs[key] = ref

    def values(self) -> list[T]:
        """Return all values that are still alive."""
        return [value for ref in list(self._refs.values()) if (value := ref()) is not None]

    def clear(self) -> None:
        """Remove all values."""
        self._refs.clear()
        self._gone.clear()

    def __len__(self) -> int:
        return len(self.values())


class WeakMembers(Generic[T]):
    """A set of weakly referenced objects."""

    def __init__(self) -> None:
        self._refs: set[weakref.ref[Any]] = set()
        self._gone: deque[weakref.ref[Any]] = deque()
        self._lock = threading.Lock()

    def add(self, member: T) -> None:
        """Add an object to the set."""
        with self._lock:
            while self._gone:
                # In this order: after an interrupt between the two lines the same reference is looked at again.
                self._refs.discard(self._gone[0])
                self._gone.popleft()
            self._refs.add(weakref.ref(member, self._gone.append))

    def __iter__(self) -> Iterator[T]:
        return iter([member for ref in list(self._refs) if (member := ref()) is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

"""Unchanged: the device arrays and textures that a backward pass reads, and whether somebody wrote to them since."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slangpy_rt.arguments.stand_ins import memory_in
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.write_counts import WriteCounts, counts_of


class Unchanged:
    """Device arrays and textures among the arguments of a call that PyTorch differentiates.

    PyTorch knows its own tensors, and compares their versions itself.

    Parameters
    ----------
    where : str
        The function, for messages.
    named : iterable of (str, Any)
        Names and values of arguments and of uniforms.
    """

    def __init__(self, where: str, named: Iterable[tuple[str, Any]]) -> None:
        self._watches: list[tuple[WriteCounts, list[Any], tuple[int, ...]]] = []
        self._where = where
        self._found = [(name, array) for name, value in named for array in memory_in(value)]
        for device in dict.fromkeys([array.device for _, array in self._found]):
            buffers = [array.buffer for _, array in self._found if array.device is device]
            counts = counts_of(device)
            self._watches.append((counts, buffers, counts.watch(buffers)))

    # ``weakref.finalize`` takes 10 us.
    def __del__(self) -> None:
        for counts, buffers, _ in self._watches:
            counts.unwatch(buffers)

    def check(self) -> None:
        """Refuse arrays that were written to.

        Raises
        ------
        RuntimeError
            If one was, as PyTorch does for a tensor that was changed in place.
        """
        for counts, buffers, before in self._watches:
            now = counts.so_far(buffers)
            changed = {id(b) for b, n, m in zip(buffers, before, now, strict=True) if n != m}
            for name, array in self._found:
                if id(array.buffer) in changed:
                    raise RuntimeError(
                        f"{self._where}: argument '{name}' is {in_words(array)}, which was written to after the "
                        "call, and its backward pass needs what it held; pass a copy, or write after backward()."
                    )

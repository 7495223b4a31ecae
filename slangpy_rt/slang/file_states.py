"""Tells whether the files that a module was loaded from have changed.

To find that out for certain a file has to be read. It is not read if its time of last status change, which Linux
and macOS set and no program can, proves that nobody wrote it since. File systems keep it in steps of up to 2 s.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.files import decoded, read_file, real

# In nanoseconds. FAT has the coarsest steps, of 2 s; on any file system Linux's clock of files lags by up to 10 ms.
_STEP = 3_000_000_000
_TICK = 10_000_000
# On Windows st_ctime is the time at which the file was created.
_CHANGE_TIME = os.name != "nt"

# In nanoseconds. A write through a memory map need not change the time: files are read again after so long.
_AGAIN = 2_000_000_000

State = tuple[int, int, int, int, int, int]


class FileStates:
    """The contents of files as they were found, and whether they changed since.

    Parameters
    ----------
    digests : mapping
        SHA-256 of files by path.
    texts : mapping
        Texts by path, of files that are compared by their text instead of a digest.
    places : mapping
        Paths under which files were looked for, each with the file that was there, links followed; empty for none.
    since : int
        Time, in nanoseconds, before any of them was read; 0 if that was by another process.
    """

    def __init__(
        self, digests: Mapping[str, str], texts: Mapping[str, str], places: Mapping[str, str], since: int
    ) -> None:
        self._digests, self._texts, self._places = dict(digests), dict(texts), dict(places)
        paths = dict.fromkeys([*self._digests, *self._texts, *self._places])
        # Each file's state, and a time at which it is known to have had these contents.
        self._known = {path: (_state(path), since) for path in paths}

    def __bool__(self) -> bool:
        return bool(self._known)

    def changed(self) -> bool:
        """Tell whether the contents of one of them changed; a new time of writing alone is no change."""
        fresh = time.time_ns() - _AGAIN
        for path, (state, moment) in self._known.items():
            now = _state(path)
            sound = now is None or (_CHANGE_TIME and now[0] < moment - _STEP)
            if sound and now == state and moment > fresh and not self._elsewhere(path, now):
                continue
            moment = time.time_ns()
            if self._differs(path):
                return True
            self._known[path] = (now, moment)
        return False

    def written_since(self, moment: int) -> bool:
        """Tell whether a file with a digest may have been written after a time: a reader then may have got either."""
        states = (_state(path) for path in self._digests if path not in self._texts)
        return any(state is None or state[0] >= moment - _TICK for state in states)

    def _elsewhere(self, path: str, state: State | None) -> bool:
        """Tell whether a file with several names is now reached by another one, which leads to other neighbours."""
        return state is not None and state[5] > 1 and path in self._places and real(path) != self._places[path]

    def _differs(self, path: str) -> bool:
        if path in self._places and real(path) != self._places[path]:
            return True
        try:
            if path in self._texts:
                return decoded(path, read_file(path)) != self._texts[path]
            return path in self._digests and hashlib.sha256(read_file(path)).hexdigest() != self._digests[path]
        except (OSError, CompileError):
            return True


def _state(path: str) -> State | None:
    try:
        stat = os.stat(path)  # noqa: PTH116 - before every call of a watched module: 1.4 us, and Path takes 3.4
    except OSError:
        return None
    return stat.st_ctime_ns, stat.st_mtime_ns, stat.st_size, stat.st_ino, stat.st_dev, stat.st_nlink

"""Detects whether the files that a module was loaded from have changed.

Only the contents are certain. A file is not read again if its status change time (ctime), which programs cannot set
on Linux and macOS, proves that it was not written. File systems store this time with a resolution of up to 2 s.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang.files import decoded, read_file, real

# In nanoseconds. FAT has the coarsest resolution, 2 s. Linux's clock for file times lags by up to 10 ms.
_STEP = 3_000_000_000
_TICK = 10_000_000
# On Windows st_ctime is the time at which the file was created.
_CHANGE_TIME = os.name != "nt"

# In nanoseconds. A write through a memory map need not change the ctime, so a file is read again after this time.
_AGAIN = 2_000_000_000

# The fields of os.stat: ctime and mtime in nanoseconds, size in bytes, inode, device, number of hard links.
State = tuple[int, int, int, int, int, int]


class FileStates:
    """A record of the contents of files, which can be compared with their present contents.

    Parameters
    ----------
    digests : mapping of str to str
        SHA-256 digests of files, in hexadecimal, by path.
    texts : mapping of str to str
        Texts, by path, of files that are compared by their text instead of a digest.
    places : mapping of str to str
        Paths under which files were looked for, each with the resolved path of the file that was there; an empty
        string if there was none.
    since : int
        A time before the files were read, as of ``time.time_ns()``; 0 if another process read them.
    """

    def __init__(
        self, digests: Mapping[str, str], texts: Mapping[str, str], places: Mapping[str, str], since: int
    ) -> None:
        self._digests, self._texts, self._places = dict(digests), dict(texts), dict(places)
        paths = dict.fromkeys([*self._digests, *self._texts, *self._places])
        # The state of each path, and a time at which the file is known to have had the recorded contents.
        self._known = {path: (_state(path), since) for path in paths}

    def __bool__(self) -> bool:
        return bool(self._known)

    def changed(self) -> bool:
        """Return whether the contents of a file changed; a new modification time alone is no change."""
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
        """Return whether a file with a digest may have been written since `moment`, as of ``time.time_ns()``.

        A reader that opened the file after `moment` may then have read other contents than the recorded ones.
        """
        states = (_state(path) for path in self._digests if path not in self._texts)
        return any(state is None or state[0] >= moment - _TICK for state in states)

    def _elsewhere(self, path: str, state: State | None) -> bool:
        """Return whether a path now resolves to another hard link, from which relative imports may differ."""
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

"""Files at paths that a user gives: pipes, devices and folders are refused before a byte of them is read."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO

# Without O_NONBLOCK, opening a named pipe would block until another process opens it for writing.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading bytes.

    Raises
    ------
    OSError
        If the path cannot be read, or is a folder, a pipe or a device, which may block or never end.
    """
    handle = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no ordinary file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise

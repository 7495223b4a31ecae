"""DebugSources: the files that a debugger reads for Slang source text, written here for modules without a file."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
import threading
import weakref
from pathlib import Path

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.lanes.debug_info import DebugSource
from slangpy_rt.lanes.debug_text import DebugSettings

# A file of the folder with this project's modules, whose functions a debugger passes over.
_OURS = "_spy_library.slang"


class DebugSources:
    """The files of one device.

    Parameters
    ----------
    cache : DiskCache
        Copies are kept in a folder of it; without a cache, in a temporary one that this object removes at its end.
    """

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self.settings = DebugSettings(_is_ours, self.path)

    def path(self, source: DebugSource) -> str:
        """Return the path of a text: of the user's file, or of a copy that is written now."""
        if Path(source.path).is_file():
            return str(Path(source.path).absolute())
        name = re.sub(r"[^\w.-]", "_", Path(source.path).name) or "text"
        if not name.endswith(".slang"):
            name += ".slang"
        digest = hashlib.sha256(source.text.encode()).hexdigest()[:16]
        copy = self._opened() / digest / name
        if not copy.is_file():
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            copy.write_text(source.text, "utf-8")
        return str(copy)

    def _opened(self) -> Path:
        with self._lock:
            if self._folder is None:
                self._folder = self._cache.folder("debug-sources") or self._temporary()
            return self._folder

    def _temporary(self) -> Path:
        folder = tempfile.mkdtemp(prefix="slangpy_rt-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)


def _is_ours(path: str) -> bool:
    return (Path(path).parent / _OURS).is_file()

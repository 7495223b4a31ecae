"""Intermediate code of this project's Slang modules, in memory and in the disk cache, so that texts are checked once.

Nothing here calls the Slang compiler, and code of users' modules is not kept.
"""

from __future__ import annotations

from slangpy_rt.core.cache_entry import Part
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.slang.code_digest import code_digest

# A module's name, and its intermediate code.
Image = tuple[str, bytes]
# The most modules in memory, of 3 MB for each target.
_MOST = 12


class ModuleImages:
    """Modules as intermediate code, by what they were compiled from; each with the modules that it imports before it.

    Slang takes 0.35 s to check the text of ``slangpy_rt`` and 0.01 s to read its intermediate code, which it writes
    in 0.08 s.

    Parameters
    ----------
    cache : DiskCache
        Where the code stays. If the cache is off, it stays in memory, and is wanted from the second time on that a
        module is loaded, since one session alone would not use it.
    """

    def __init__(self, cache: DiskCache) -> None:
        self._cache = cache
        # A dict keeps the order of insertion, so the entry that was used last is the last one. None marks a module
        # that was loaded once.
        self._kept: dict[str, tuple[Image, ...] | None] = {}

    @staticmethod
    def key(version: str, *parts: Part) -> str:
        """Return the key of a module: this package's code, the compiler's version, and the other parts."""
        return DiskCache.key("module image", code_digest(), version, *parts)

    def get(self, key: str) -> tuple[Image, ...]:
        """Return a module's images, those of imported modules first; empty if there are none."""
        found = self._kept.get(key) or self._read(key)
        if found:
            self._kept.pop(key, None)
            self._kept[key] = found
        return found

    def wanted(self, key: str) -> bool:
        """Tell whether the images of a module that was loaded from its text should be made and given to ``put``."""
        if self._cache.directory is not None or key in self._kept:
            return True
        self._kept[key] = None
        return False

    def put(self, key: str, title: str, images: tuple[Image, ...]) -> None:
        """Keep a module's images."""
        self._kept[key] = images
        for oldest in list(self._kept)[:-_MOST]:
            del self._kept[oldest]
        sizes = [[name, len(code)] for name, code in images]
        meta = {"kind": "shaders", "title": title, "images": sizes}
        self._cache.put(key, meta, b"".join(code for _, code in images))

    def clear(self) -> None:
        """Forget what is in memory."""
        self._kept.clear()

    def _read(self, key: str) -> tuple[Image, ...]:
        entry = self._cache.get(key)
        if entry is None:
            return ()
        found, at = [], 0
        try:
            for name, size in entry.meta["images"]:
                if not isinstance(name, str) or type(size) is not int or size <= 0:
                    return ()
                found.append((name, entry.payload[at : at + size]))
                at += size
        except (LookupError, TypeError, ValueError):
            return ()
        return tuple(found) if at == len(entry.payload) else ()

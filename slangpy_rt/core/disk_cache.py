"""The disk cache: metadata and payload under a key, shared by all processes of one user.

It holds bytes and JSON and does not know what they mean: what goes into a key and into an entry is the caller's
business. A compiler that keeps files of its own gets a folder here, into which nobody else looks. No failure of the
disk becomes an exception, but of ``export`` and ``import_``: an entry that cannot be read is a miss, and one that
cannot be written is not stored. ``cache_entry`` says how an entry is written, and which files are trusted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from slangpy_rt.core.cache_entry import WRITE, Entry, EntryInfo, Found, Part, encode, hashed, is_key, read, why_unsafe
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.interrupts import apart

_TOUCH_SECONDS = 3600.0  # use is recorded this coarsely: a hit then costs no write
_STALE_SECONDS = 3600.0  # no writer or lock holder takes this long: a killed process left what is older
_SCAN_PUTS = 256  # once in so many puts, entries of other processes are counted too; a scan costs 9 µs an entry
_LOCK_SECONDS = 0.05  # between attempts to take a lock that another thread or process has
_LOW_WATER = 0.9  # an eviction goes down to this share of the cap, so that the next put need not evict

_FOLDER = ".slangpy_rt-kept"  # ``clear`` removes folders whose names end so, and no others


class DiskCache:
    """Entries in one private directory.

    Every method may be called from any thread and any number of processes at a time.

    Parameters
    ----------
    directory : Path or None
        A private directory that exists; ``open`` makes and checks one. None turns the cache off: every
        ``get`` misses, ``put`` does nothing and ``lock`` is free.
    max_bytes : int
        Size cap. When it is passed, entries unused for longest are removed first. A larger entry is not stored.

    Attributes
    ----------
    why_off : str
        One sentence that says why the cache is off; empty when it is on.
    """

    def __init__(self, directory: Path | None, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.why_off = "the disk cache is turned off" if directory is None else ""
        # Not locked: of two threads that count at once one may be lost, which the next scan corrects.
        self._total = 0
        self._puts = 0

    @staticmethod
    def open(directory: Path | None, max_bytes: int) -> DiskCache:
        """Open the cache in a directory, which is made if need be.

        A directory that cannot be made or trusted gives a cache that is off, with the reason in ``why_off``.
        """
        if directory is None:
            return DiskCache(None, max_bytes)
        reason = ""
        try:
            # Absolute, so that a later change of the working directory does not move the cache.
            directory = directory.expanduser().absolute()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = why_unsafe(directory, directory.lstat())
        except (OSError, RuntimeError, ValueError) as error:  # expanduser raises RuntimeError without a home
            reason = f"cannot make the cache directory {str(directory)!r} ({error}); set SLANGPY_RT_CACHE_DIR"
        cache = DiskCache(None if reason else directory, max_bytes)
        cache.why_off = reason
        return cache

    @staticmethod
    def key(*parts: Part) -> str:
        """Return the SHA-256 of the parts in hexadecimal; it differs if their values, types or nesting do.

        Raises
        ------
        SlangPyRtError
            If a part is of any other type.
        """
        return hashed(parts)

    def get(self, key: str) -> Entry | None:
        """Return an entry, or None if there is none. A damaged or untrusted file is removed."""
        path = self._path(key, ".bin")
        if path is None:
            return None
        try:
            found = read(path, key)
        except OSError:
            return None
        if found is None:
            _remove(path)
            return None
        if time.time() - found.state.st_mtime > _TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(path)
        return found.entry

    def put(self, key: str, meta: dict[str, Any], payload: bytes) -> None:
        """Store an entry, replacing one of the same key; nothing happens if the disk refuses.

        ``meta`` is written as JSON. For what JSON cannot express this raises as ``json.dumps`` does.
        """
        if self.directory is not None:
            self._publish(key, encode(key, meta, payload))

    @contextmanager
    def lock(self, key: str, timeout: float = 60.0) -> Iterator[None]:
        """Let one thread of all processes at a time work on a key; inside, call ``get`` once more.

        This only saves work: after ``timeout`` seconds, or where the file system has no locks, the body runs without
        one. The lock is not reentrant.
        """
        path = self._path(key, ".lock")
        if path is None:
            yield
            return
        held: list[Any] = []
        end = time.monotonic() + timeout
        try:
            while not apart(_try_lock, path, held) and time.monotonic() < end:
                time.sleep(_LOCK_SECONDS)
            yield
        finally:
            if held:
                apart(_unlock, path, held)

    def entries(self) -> list[EntryInfo]:
        """List all whole entries, sorted by key."""
        return [
            EntryInfo(key, str(f.entry.meta.get("kind", "")), len(f.blob), f.created, f.state.st_mtime, f.entry.meta)
            for key, f in self._read_all()
            if f
        ]

    def verify(self) -> list[str]:
        """Read every entry and return the keys of those that ``get`` would refuse."""
        return [key for key, found in self._read_all() if found is None]

    def folder(self, name: str) -> Path | None:
        """Return a folder for the files of another compiler, made if need be; None if it cannot be made or trusted.

        Its files do not count for the size cap. ``clear`` removes it.
        """
        if self.directory is None:
            return None
        folder = self.directory / f"{name}{_FOLDER}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            return None if why_unsafe(folder, folder.lstat()) else folder
        except OSError:
            return None

    def folders(self) -> list[Path]:
        """List the folders that ``folder`` made, sorted by name."""
        if self.directory is None:
            return []
        try:
            return sorted(
                path for path in self.directory.glob(f"*{_FOLDER}") if path.is_dir() and not path.is_symlink()
            )
        except OSError:
            return []

    def clear(self) -> int:
        """Remove everything and return the number of entries removed."""
        for item in self._scan(".tmp", ".lock"):
            _remove(item.path)
        for folder in self.folders():
            shutil.rmtree(folder, ignore_errors=True)
        self._total = 0
        return sum(_remove(item.path) for item in self._scan(".bin"))

    def export(self, bundle: Path, keys: Iterable[str] | None = None) -> int:
        """Write a zip file of all entries, or of those with the given keys; return how many it holds.

        Damaged and missing entries are left out. Equal entries make equal bundles.

        Raises
        ------
        SlangPyRtError
            If the bundle cannot be written.
        """
        from slangpy_rt.core.cache_bundle import write_bundle  # imports zipfile: 5 ms, which few processes need

        wanted = None if keys is None else set(keys)
        return write_bundle(
            bundle,
            ((key, found.blob) for key, found in self._read_all() if found and (wanted is None or key in wanted)),
        )

    def import_(self, bundle: Path) -> int:
        """Store all entries of a bundle and return how many were stored: fewer if the disk refuses.

        The entries will be run as code: import only what you would run.

        Raises
        ------
        SlangPyRtError
            If the bundle cannot be read or holds anything but whole entries; entries before the bad one
            stay.
        """
        from slangpy_rt.core.cache_bundle import read_bundle  # imports zipfile: 5 ms, which few processes need

        return sum(self._publish(key, blob) for key, blob in read_bundle(bundle, self.max_bytes))

    def _path(self, key: str, suffix: str) -> Path | None:
        # A key of another form, such as "../x", could name a file outside the directory.
        return self.directory / (key + suffix) if self.directory is not None and is_key(key) else None

    def _publish(self, key: str, blob: bytes) -> bool:
        path = self._path(key, ".bin")
        if path is None or len(blob) > self.max_bytes:
            return False
        # A random name: containers that share a directory may have equal process ids.
        temp = path.with_name(f"{key}.{os.urandom(8).hex()}.tmp")
        try:
            try:
                # Without fsync: after a power cut the checksum fails and the entry is made again.
                with os.fdopen(os.open(temp, WRITE, 0o600), "wb") as file:
                    file.write(blob)
                temp.replace(path)
            finally:
                temp.unlink(missing_ok=True)
        except OSError:
            return False
        self._total += len(blob)
        if self._total > self.max_bytes or self._puts % _SCAN_PUTS == 0:
            self._evict()
        self._puts += 1
        return True

    def _evict(self) -> None:
        now = time.time()
        for item in self._scan(".tmp", ".lock"):
            with suppress(OSError):
                if now - item.stat(follow_symlinks=False).st_mtime > _STALE_SECONDS:
                    _remove(item.path)
        found = []
        for item in self._scan(".bin"):
            with suppress(OSError):
                info = item.stat(follow_symlinks=False)
                found.append((info.st_mtime_ns, info.st_size, item.path))
        total = sum(size for _, size, _ in found)
        if total > self.max_bytes:
            for _, size, path in sorted(found)[:-1]:  # the newest stays: ``put`` stores none larger than the cap
                if total <= self.max_bytes * _LOW_WATER:
                    break
                if _remove(path):
                    total -= size
        self._total = total

    def _read_all(self) -> Iterator[tuple[str, Found | None]]:
        for item in self._scan(".bin"):
            key, found = item.name.removesuffix(".bin"), None
            with suppress(OSError):
                found = read(item.path, key)
            yield key, found

    def _scan(self, *suffixes: str) -> list[os.DirEntry[str]]:
        # Only files that this class named are listed, and so removed: the directory may hold a user's files too.
        if self.directory is None:
            return []
        try:
            with os.scandir(self.directory) as items:
                found = [i for i in items if i.name.endswith(suffixes) and is_key(i.name.partition(".")[0])]
        except OSError:
            return []
        return sorted(found, key=lambda item: item.name)


def cache_directory() -> Path | None:
    """Return the cache's directory by the configuration; None if that turns the cache off."""
    if CONFIG.cache_dir is None:
        return default_directory()
    return Path(CONFIG.cache_dir) if CONFIG.cache_dir else None


def default_directory() -> Path:
    """Return the directory that is used where the configuration names none: the platform's place for caches.

    For a user without a home directory, as in a container, it begins with ``~``, and ``DiskCache.open`` says why the
    cache is off.
    """
    from platformdirs import user_cache_dir  # 10 ms to import, needless where a directory is configured

    try:
        return Path(user_cache_dir("slangpy_rt", appauthor=False))
    except (RuntimeError, KeyError):  # no HOME, and the user's number has no entry in the list of users
        return Path("~/.cache/slangpy_rt")


def _remove(path: str | Path) -> bool:
    try:
        Path(path).unlink()
    except OSError:
        return False
    return True


# filelock holds a lock of the whole process for some steps. An interrupt there, also in its finalizer, would leave it
# locked, and every later use of a file lock would wait for ever. So no FileLock is used or dropped but ``apart``.
def _try_lock(path: Path, held: list[Any]) -> bool:
    """Append a lock on a file to a list; return False if another thread or process has it."""
    from filelock import FileLock, Timeout  # 30 ms, for processes that compile alone

    # The thread that runs this need not be the one that runs ``_unlock``.
    guard = FileLock(path, mode=0o600, thread_local=False)
    try:
        guard.acquire(blocking=False)
    except Timeout:
        return False
    except (OSError, RuntimeError):
        return True
    held.append(guard)
    return True


def _unlock(path: Path, held: list[Any]) -> None:
    guard = held.pop()
    # Removed while held, so that no lock files are left. A thread that opened the old file may then run beside one
    # that makes a new file. Both run after this one's put, and find the entry.
    _remove(path)
    with suppress(OSError):
        guard.release()

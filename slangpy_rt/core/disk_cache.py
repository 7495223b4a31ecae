"""The disk cache: metadata and payload under a key, shared by all processes of one user.

It holds bytes and JSON and refuses to know what they mean: what goes into a key and into an entry is the
caller's business. A compiler that keeps files of its own has a folder here, into which nobody else looks.
Nothing in it is pickled or run, and no failure of the disk becomes an exception: what cannot be read is a
miss, what cannot be written is not stored.

Threats: entries become code in the process that reads them, so whoever can write the directory can run
code. The directory therefore belongs to the user alone, and an entry that is a link, has another owner or
is writable by others is a miss. The checksum finds damage, not forgery: a file that the user's own account
forged with a valid checksum is trusted, and so is an imported bundle. Windows keeps a user's cache private
by inheritance, and modes are not checked there.

An entry is one file, ``<key>.bin``: magic, SHA-256 of all that follows, length of the header, header (JSON:
key, creation time, metadata), payload. It is published by a rename, so a reader sees all of it or nothing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import SlangPyRtError

Part: TypeAlias = "bytes | str | int | bool | tuple[Part, ...] | None"

_MAGIC = b"SPRTENT\x01"  # the last byte is the version of the format
_SUM_AT = len(_MAGIC)
_LENGTH_AT = _SUM_AT + hashlib.sha256().digest_size
_HEADER_AT = _LENGTH_AT + 4

_TOUCH_SECONDS = 3600.0  # use is recorded this coarsely: a hit then costs no write
_STALE_SECONDS = 3600.0  # no writer or lock holder takes this long: a killed process left what is older
_SCAN_PUTS = 256  # other processes' entries are seen this often; a scan costs 9 µs an entry
_LOW_WATER = 0.9  # an eviction frees this much more than it must, so that the next put need not evict

# O_NOFOLLOW and O_CLOEXEC are missing on Windows, O_BINARY everywhere else.
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _FLAGS
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
_FOLDER = ".slangpy_rt-kept"  # nobody else names a folder so: ``clear`` removes all of it
_HEX = frozenset("0123456789abcdef")


class Entry(NamedTuple):
    """What was stored: ``meta`` as JSON returns it (tuples have become lists) and ``payload``."""

    meta: dict[str, Any]
    payload: bytes


class EntryInfo(NamedTuple):
    """An entry in a listing; times in seconds since the epoch, ``last_used`` exact to an hour."""

    key: str
    kind: str
    nbytes: int
    created: float
    last_used: float
    meta: dict[str, Any]


_Found: TypeAlias = tuple[float, Entry, bytes, os.stat_result]  # created, entry, the file's bytes and state


class DiskCache:
    """Entries in one private directory.

    Every method may be called from any thread and any number of processes at a time.

    Parameters
    ----------
    directory : Path or None
        A private directory that exists; ``open`` makes and checks one. None turns the cache off: every
        ``get`` misses, ``put`` does nothing and ``lock`` is free.
    max_bytes : int
        Size cap. Entries unused for longest go first when it is passed; an entry above it is not stored.

    Attributes
    ----------
    why_off : str
        One sentence on why the cache is off, empty when it is on.
    """

    def __init__(self, directory: Path | None, max_bytes: int) -> None:
        self.directory = directory
        self.max_bytes = max_bytes
        self.why_off = "the disk cache is turned off" if directory is None else ""
        # Unlocked: two racing puts may lose a count, which the next scan corrects.
        self._total = 0
        self._puts = 0

    @staticmethod
    def open(directory: Path | None, max_bytes: int) -> DiskCache:
        """Make and check a directory; a cache that is off and says why if it cannot be trusted or made."""
        if directory is None:
            return DiskCache(None, max_bytes)
        reason = ""
        try:
            # Absolute, so that a later change of the working directory does not move the cache.
            directory = directory.expanduser().absolute()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            reason = _why_unsafe(directory, directory.lstat())
        except (OSError, RuntimeError, ValueError) as error:  # expanduser raises RuntimeError without a home
            reason = f"cannot make the cache directory {str(directory)!r} ({error}); set SLANGPY_RT_CACHE_DIR"
        cache = DiskCache(None if reason else directory, max_bytes)
        cache.why_off = reason
        return cache

    @staticmethod
    def key(*parts: Part) -> str:
        """SHA-256 of the parts in hexadecimal; parts that differ in value, type or nesting differ in it.

        Raises
        ------
        SlangPyRtError
            If a part is of any other type.
        """
        out: list[bytes] = []
        _encode(parts, out)
        return hashlib.sha256(b"".join(out)).hexdigest()

    def get(self, key: str) -> Entry | None:
        """Read an entry, or None. A damaged or untrusted file is removed on the way."""
        path = self._path(key, ".bin")
        if path is None:
            return None
        try:
            found = _read(path, key)
        except OSError:
            return None
        if found is None:
            _remove(path)
            return None
        _, entry, _, info = found
        if time.time() - info.st_mtime > _TOUCH_SECONDS:
            with suppress(OSError):
                os.utime(path)
        return entry

    def put(self, key: str, meta: dict[str, Any], payload: bytes) -> None:
        """Store an entry, replacing one of the same key; nothing happens if the disk refuses.

        ``meta`` is written as JSON; what JSON cannot express is a mistake of the caller and raises as
        ``json.dumps`` does.
        """
        if self.directory is not None:
            header = json.dumps({"key": key, "created": time.time(), "meta": meta}).encode()
            body = len(header).to_bytes(4, "little") + header + payload
            self._publish(key, _MAGIC + hashlib.sha256(body).digest() + body)

    @contextmanager
    def lock(self, key: str, timeout: float = 60.0) -> Iterator[None]:
        """Let one thread of all processes at a time work on a key; look again with ``get`` inside.

        A convenience that saves work, never a guarantee: after ``timeout`` seconds, or where the file
        system cannot lock, the body runs all the same. It is not reentrant.
        """
        path = self._path(key, ".lock")
        if path is None:
            yield
            return
        from filelock import FileLock  # 30 ms to import, which a process that only hits need not pay

        guard = FileLock(path, timeout=timeout, mode=0o600)
        with suppress(OSError, RuntimeError):  # filelock's Timeout is an OSError
            guard.acquire()
        try:
            yield
        finally:
            if guard.is_locked:
                # Removed while held, to leave no litter. Who opened the old file may run beside who opens the
                # new one, but both come after this holder's put and find it.
                _remove(path)
                with suppress(OSError):
                    guard.release()

    def entries(self) -> list[EntryInfo]:
        """List all whole entries by key."""
        out = []
        for key, found in self._read_all():
            if found:
                created, entry, blob, info = found
                kind = str(entry.meta.get("kind", ""))
                out.append(EntryInfo(key, kind, len(blob), created, info.st_mtime, entry.meta))
        return out

    def verify(self) -> list[str]:
        """Read every entry and return the keys of those that ``get`` would refuse."""
        return [key for key, found in self._read_all() if found is None]

    def folder(self, name: str) -> Path | None:
        """A folder for what another compiler keeps, made if need be; None where there can be none.

        It does not count for the size cap. ``clear`` removes it.
        """
        if self.directory is None:
            return None
        folder = self.directory / f"{name}{_FOLDER}"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            return None if _why_unsafe(folder, folder.lstat()) else folder
        except OSError:
            return None

    def folders(self) -> list[Path]:
        """All such folders, by name."""
        if self.directory is None:
            return []
        try:
            return sorted(
                path for path in self.directory.glob(f"*{_FOLDER}") if path.is_dir() and not path.is_symlink()
            )
        except OSError:
            return []

    def clear(self) -> int:
        """Remove everything and return how many entries went."""
        for item in self._scan(".tmp", ".lock"):
            _remove(item.path)
        for folder in self.folders():
            shutil.rmtree(folder, ignore_errors=True)
        self._total = 0
        return sum(_remove(item.path) for item in self._scan(".bin"))

    def export(self, bundle: Path, keys: Iterable[str] | None = None) -> int:
        """Write a zip file of all entries, or of those named; return how many it holds.

        Damaged and missing entries are left out. Equal entries make equal bundles.

        Raises
        ------
        SlangPyRtError
            If the bundle cannot be written.
        """
        import zipfile

        wanted = None if keys is None else set(keys)
        count = 0
        temp = Path(f"{bundle}.{os.urandom(8).hex()}.tmp")
        try:
            try:
                with zipfile.ZipFile(temp, "w", zipfile.ZIP_DEFLATED) as archive:
                    for key, found in self._read_all():
                        if found and (wanted is None or key in wanted):
                            # ZipInfo's default time is fixed, now is not.
                            item = zipfile.ZipInfo(key + ".bin")
                            archive.writestr(item, found[2], zipfile.ZIP_DEFLATED)
                            count += 1
                temp.replace(bundle)
            finally:
                temp.unlink(missing_ok=True)
        except OSError as error:
            raise SlangPyRtError(
                f"cache export: cannot write the bundle {str(bundle)!r}; name a file in a writable directory."
                f"\n{error}"
            ) from error
        return count

    def import_(self, bundle: Path) -> int:
        """Store all entries of a bundle and return how many were stored: fewer if the disk refuses.

        The entries will be run as code: import only what you would run.

        Raises
        ------
        SlangPyRtError
            If the bundle cannot be read or holds anything but whole entries; entries before the bad one
            stay.
        """
        import zipfile

        count = 0
        try:
            with zipfile.ZipFile(bundle) as archive:
                for item in archive.infolist():
                    key = item.filename.removesuffix(".bin")
                    # Size before content: a small bundle may unpack to more than the machine's memory.
                    fits = item.file_size <= self.max_bytes
                    blob = archive.read(item) if fits and _is_key(key) else b""
                    if item.filename == key or _decode(blob, key) is None:
                        raise SlangPyRtError(
                            f"cache import: {item.filename!r} in {str(bundle)!r} is not a whole cache entry "
                            f"of at most {self.max_bytes} bytes; export the bundle again with this version."
                        )
                    count += self._publish(key, blob)
        except SlangPyRtError:
            raise
        except Exception as error:  # a damaged archive raises whatever its decoder does
            raise SlangPyRtError(
                f"cache import: cannot read the bundle {str(bundle)!r}; expected a file that cache export "
                f"wrote.\n{error}"
            ) from error
        return count

    def _path(self, key: str, suffix: str) -> Path | None:
        # A key of any other form could name a file elsewhere.
        return self.directory / (key + suffix) if self.directory is not None and _is_key(key) else None

    def _publish(self, key: str, blob: bytes) -> bool:
        path = self._path(key, ".bin")
        if path is None or len(blob) > self.max_bytes:
            return False
        # Random, not the process id: containers that share a directory repeat those.
        temp = path.with_name(f"{key}.{os.urandom(8).hex()}.tmp")
        try:
            try:
                # No fsync: after a power cut the checksum fails and the entry is made again.
                with os.fdopen(os.open(temp, _WRITE, 0o600), "wb") as file:
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
            for _, size, path in sorted(found)[:-1]:  # the newest fits, being no larger than the cap
                if total <= self.max_bytes * _LOW_WATER:
                    break
                if _remove(path):
                    total -= size
        self._total = total

    def _read_all(self) -> Iterator[tuple[str, _Found | None]]:
        for item in self._scan(".bin"):
            key, found = item.name.removesuffix(".bin"), None
            with suppress(OSError):
                found = _read(item.path, key)
            yield key, found

    def _scan(self, *suffixes: str) -> list[os.DirEntry[str]]:
        # Only names that this class gives are listed, and so removed: the directory may hold a user's files.
        if self.directory is None:
            return []
        try:
            with os.scandir(self.directory) as items:
                found = [i for i in items if i.name.endswith(suffixes) and _is_key(i.name.partition(".")[0])]
        except OSError:
            return []
        return sorted(found, key=lambda item: item.name)


def cache_directory() -> Path | None:
    """Where the cache is, by the configuration; None if that turns it off."""
    if CONFIG.cache_dir is None:
        return default_directory()
    return Path(CONFIG.cache_dir) if CONFIG.cache_dir else None


def default_directory() -> Path:
    """Where the cache lives unless the configuration says otherwise: the platform's place for caches."""
    from platformdirs import user_cache_dir  # 10 ms to import, needless where a directory is configured

    return Path(user_cache_dir("slangpy_rt", appauthor=False))


def _encode(part: Part, out: list[bytes]) -> None:
    # Tag and length before each value make the whole prefix-free: no two inputs share an encoding.
    if part is None or isinstance(part, bool):
        out.append(b"%a;" % part)
        return
    if isinstance(part, tuple):
        out.append(b"t%d;" % len(part))
        for item in part:
            _encode(item, out)
        return
    if isinstance(part, str):
        tag, data = b"s", part.encode("utf-8", "surrogatepass")  # file names may hold lone surrogates
    elif isinstance(part, bytes):
        tag, data = b"b", part
    elif isinstance(part, int):
        tag, data = b"i", b"%x" % part  # decimal has a limit of digits
    else:
        raise SlangPyRtError(
            f"cache key: a part is of type {type(part).__name__}; expected bytes, str, int, bool, "
            f"None or a tuple of these. Convert it first."
        )
    out.append(b"%s%d;" % (tag, len(data)))
    out.append(data)


def _is_key(text: str) -> bool:
    return len(text) == 64 and _HEX.issuperset(text)


def _why_unsafe(directory: Path, info: os.stat_result) -> str:
    name = f"the cache directory {str(directory)!r}"
    if not stat.S_ISDIR(info.st_mode):
        return f"{name} is a link or a file, not a directory; set SLANGPY_RT_CACHE_DIR to a private directory"
    if os.name != "nt" and info.st_uid != os.geteuid():
        return (
            f"{name} belongs to user {info.st_uid}, not to {os.geteuid()}, who runs this; "
            f"set SLANGPY_RT_CACHE_DIR to a directory of your own"
        )
    if os.name != "nt" and info.st_mode & 0o022:
        return (
            f"{name} is writable by others (mode {stat.S_IMODE(info.st_mode):04o}), who could run code "
            f"through it; empty it and set its mode to 0700"
        )
    return ""


def _read(path: str | Path, key: str) -> _Found | None:
    """Read a file; None if it is damaged or not to be trusted."""
    try:
        handle = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link, by O_NOFOLLOW; others, such as EMFILE, say nothing of it
            return None
        raise
    try:
        # Before fdopen, which refuses a directory and then leaves the handle open.
        info = os.fstat(handle)
        if _untrusted(info):
            return None
        with os.fdopen(handle, "rb", 0, closefd=False) as file:
            blob = file.read()
    finally:
        os.close(handle)
    decoded = _decode(blob, key)
    return decoded and (*decoded, blob, info)


def _untrusted(info: os.stat_result) -> bool:
    if not stat.S_ISREG(info.st_mode):
        return True
    return os.name != "nt" and (info.st_uid != os.geteuid() or bool(info.st_mode & 0o022))


def _decode(blob: bytes, key: str) -> tuple[float, Entry] | None:
    """Creation time and entry, or None unless the bytes are a whole entry of this key."""
    if not blob.startswith(_MAGIC):
        return None
    if hashlib.sha256(memoryview(blob)[_LENGTH_AT:]).digest() != blob[_SUM_AT:_LENGTH_AT]:
        return None
    payload_at = _HEADER_AT + int.from_bytes(blob[_LENGTH_AT:_HEADER_AT], "little")
    try:
        header = json.loads(blob[_HEADER_AT:payload_at])
        created, meta = header["created"], header["meta"]
        if header["key"] == key and isinstance(created, float) and isinstance(meta, dict):
            return created, Entry(meta, blob[payload_at:])
    except (ValueError, TypeError, LookupError, RecursionError):
        pass  # a bundle may hold anything under a valid checksum
    return None


def _remove(path: str | Path) -> bool:
    try:
        Path(path).unlink()
    except OSError:
        return False
    return True

"""Bundles: zip files that carry entries of the disk cache to another machine.

It reads and writes bundles only; storing entries, and choosing them, is the cache's.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from slangpy_rt.core.cache_entry import decode, is_key
from slangpy_rt.core.errors import SlangPyRtError
from slangpy_rt.core.regular_file import open_regular


def write_bundle(bundle: Path, entries: Iterable[tuple[str, bytes]]) -> int:
    """Write a bundle of entries, given as keys and the bytes of their files; return how many there were.

    Equal entries make equal bundles.

    Raises
    ------
    SlangPyRtError
        If the bundle cannot be written.
    """
    count = 0
    temp = Path(f"{bundle}.{os.urandom(8).hex()}.tmp")
    try:
        try:
            with zipfile.ZipFile(temp, "w", zipfile.ZIP_DEFLATED) as archive:
                for key, blob in entries:
                    # ZipInfo has a fixed time; for a plain name zipfile writes the present one.
                    archive.writestr(zipfile.ZipInfo(key + ".bin"), blob, zipfile.ZIP_DEFLATED)
                    count += 1
            temp.replace(bundle)
        finally:
            temp.unlink(missing_ok=True)
    except OSError as error:
        raise SlangPyRtError(
            f"cache export: cannot write the bundle {str(bundle)!r}; name a file in a writable directory.\n{error}"
        ) from error
    return count


def read_bundle(bundle: Path, max_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield the entries of a bundle, each as its key and the bytes of its file.

    Parameters
    ----------
    max_bytes : int
        The largest entry that is read.

    Raises
    ------
    SlangPyRtError
        If the bundle cannot be read or holds anything but whole entries; entries before the bad one are yielded.
    """
    try:
        with open_regular(bundle) as file, zipfile.ZipFile(file) as archive:
            for item in archive.infolist():
                key = item.filename.removesuffix(".bin")
                # Size before content: a small bundle may unpack to more than the machine's memory.
                fits = item.file_size <= max_bytes
                blob = archive.read(item) if fits and is_key(key) else b""
                if item.filename == key or decode(blob, key) is None:
                    raise SlangPyRtError(
                        f"cache import: {item.filename!r} in {str(bundle)!r} is not a whole cache entry "
                        f"of at most {max_bytes} bytes; export the bundle again with this version."
                    )
                yield key, blob
    except SlangPyRtError:
        raise
    except Exception as error:  # a damaged archive raises whatever its decoder does
        raise SlangPyRtError(
            f"cache import: cannot read the bundle {str(bundle)!r}; expected a file that cache export wrote.\n{error}"
        ) from error

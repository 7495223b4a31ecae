"""Headers: the CUDA headers that a module's texts name in ``__requirePrelude``, as they were when it was loaded.

Slang does not see them: NVRTC reads them when it compiles a kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

# In a string of Slang's the quotes have backslashes.
_INCLUDE = re.compile(r'#\s*include\s*\\?"([^"\\\n]+)\\?"')


class Headers(NamedTuple):
    """Header files, and where NVRTC looks for them.

    Attributes
    ----------
    files : tuple of (str, str)
        Path and digest of each file, including those that they include; an empty digest for a missing file.
    folders : tuple of str
        The folders that they were found in.
    """

    files: tuple[tuple[str, str], ...] = ()
    folders: tuple[str, ...] = ()

    def changed(self) -> bool:
        """Tell whether a file has other contents now, or is gone."""
        return any(_digest(Path(path)) != digest for path, digest in self.files)

    @property
    def digest(self) -> str:
        """A digest of all paths and contents."""
        return hashlib.sha256(repr(self.files).encode()).hexdigest()


def find_headers(texts: Iterable[tuple[str, str]], folders: Sequence[str]) -> Headers:
    """Find the headers of Slang texts.

    Parameters
    ----------
    texts : iterable of (str, str)
        Paths and texts.
    folders : sequence of str
        Folders to search after the folder of the text itself.
    """
    files: dict[str, str] = {}
    found_in: dict[str, None] = {}
    waiting = [(path, text) for path, text in texts if "__requirePrelude" in text]
    while waiting:
        path, text = waiting.pop()
        for name in _INCLUDE.findall(text):
            for folder in (str(Path(path).parent), *folders):
                place = Path(folder) / name
                digest = _digest(place)
                if digest:
                    found_in[folder] = None
                    if str(place) not in files:
                        files[str(place)] = digest
                        waiting.append((str(place), place.read_text(errors="replace")))
                    break
            else:
                # Missing files are listed too: the module has changed as soon as one of them exists.
                files.update((str(Path(folder) / name), "") for folder in (str(Path(path).parent), *folders))
    return Headers(tuple(sorted(files.items())), tuple(found_in))


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""

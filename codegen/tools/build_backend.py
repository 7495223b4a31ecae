"""The build backend of pyproject.toml: setuptools', but for ``pip install -e``.

Of a package whose folders lie in several places, setuptools makes an editable install by an import hook, which only a
running Python can follow: mypy, pyright and editors find no package, and take all of it for ``Any``. Here the install
is a ``.pth`` file with the two folders that hold packages, which they read. ``slangpy_rt.shaders`` has no Python,
and is found beside the package (``slangpy_rt/slang/locate.py``). setuptools' option ``editable_mode`` has no effect.
"""

from __future__ import annotations

import base64
import hashlib
import locale
import sys
import zipfile
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  the other hooks of the interface are setuptools'

_ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = (_ROOT, _ROOT / "codegen")


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Write the wheel of an editable install and return its file name."""
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    wheel = Path(wheel_directory, name)
    with zipfile.ZipFile(wheel) as made:
        files = {file: made.read(file) for file in made.namelist() if ".dist-info/" in file}
    (record,) = (file for file in files if file.endswith(".dist-info/RECORD"))
    del files[record]
    # Before 3.13 the interpreter reads these files in the encoding of the locale.
    encoding = "utf-8" if sys.version_info >= (3, 13) else locale.getpreferredencoding(False)
    files["slangpy_rt.pth"] = "".join(f"{folder}\n" for folder in _FOLDERS).encode(encoding)
    rows = [f"{file},sha256={_digest(data)},{len(data)}\n" for file, data in files.items()]
    files[record] = "".join([*rows, f"{record},,\n"]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as changed:
        for file, data in files.items():
            changed.writestr(file, data)
    return name


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()

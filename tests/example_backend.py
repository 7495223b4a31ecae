"""The backend that docs/adding-a-backend.md writes: put together from the page's blocks and registered as "example".

As a plugin: ``pytest tests/conformance -p tests.example_backend --backend=example``. Python processes that tests
start find it too. Nothing here is a test.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from slangpy_rt.backends import REGISTRY

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-backend.md"
NAME = "example"
_MODULE = "slangpy_rt_example_backend"
_TOLD = "SLANGPY_RT_TESTS_EXAMPLE"


def text() -> str:
    """The page's blocks of Python, one after the other."""
    return "\n".join(re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def register() -> ModuleType:
    """Make a module of the page, and let devices find its backend."""
    module = ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    exec(compile(text(), str(PAGE), "exec"), module.__dict__)
    REGISTRY[NAME] = f"{_MODULE}:ExampleBackend"
    return module


def tell_children() -> None:
    """Have Python processes that this one starts register it as they begin."""
    if os.environ.get(_TOLD):
        return
    folder = tempfile.mkdtemp(prefix="slangpy_rt-example-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / "sitecustomize.py").write_text(f"import runpy; runpy.run_path({__file__!r})\n")
    paths = [folder, str(PAGE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update({"PYTHONPATH": os.pathsep.join(paths), _TOLD: "1"})


register()
tell_children()

"""The backend that docs/adding-a-backend.md writes: put together from the page's blocks and registered as "example".

As a plugin: ``pytest tests/conformance -p tests.example_backend --backend=example``. It is registered by environment
variables, as the page says, so that processes which tests start find it too. Nothing here is a test.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "adding-a-backend.md"
NAME = "example"
_MODULE = "slangpy_rt_example_backend"
_VARIABLE = "SLANGPY_RT_BACKENDS"


def text() -> str:
    """The page's blocks of Python, one after the other."""
    return "\n".join(re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def register() -> None:
    """Write the page's module into a folder, and let this process and those that it starts find its backend."""
    assert "slangpy_rt" not in sys.modules, "slangpy_rt reads its settings as it is imported"
    registered = list(filter(None, [os.environ.get(_VARIABLE)]))
    if any(f"{NAME}={_MODULE}:" in each for each in registered):
        # A process of pytest-xdist, which inherits it.
        return
    folder = tempfile.mkdtemp(prefix="slangpy_rt-example-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / f"{_MODULE}.py").write_text(text(), encoding="utf-8")
    sys.path.append(folder)
    paths = [str(PAGE.parent.parent), *filter(None, [os.environ.get("PYTHONPATH")]), folder]
    backends = ",".join([*registered, f"{NAME}={_MODULE}:ExampleBackend"])
    os.environ.update({"PYTHONPATH": os.pathsep.join(paths), _VARIABLE: backends})


register()

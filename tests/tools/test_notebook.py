"""The extension of IPython, and the notebook among the examples: its cells run in a shell of IPython."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.depth import deep

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "notebook.ipynb"
# Runs cells, which it reads from stdin, and writes what became of each.
RUNNER = """
import base64, json, sys
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance(colors="nocolor")
rows = []
for cell in json.load(sys.stdin):
    with capture_output() as said:
        done = shell.run_cell(cell)
    data = shell.display_formatter.format(done.result)[0] if done.result is not None else {}
    png = data.get("image/png", "")
    png = png if isinstance(png, str) else base64.b64encode(png).decode()
    text = data.get("text/plain", "")
    rows.append({"ok": done.success, "text": text, "png": png, "said": said.stdout + said.stderr})
json.dump(rows, sys.stdout)
"""


def run(cells: list[str], folder: Path) -> list[dict[str, Any]]:
    """What became of cells, one after the other in one shell."""
    pytest.importorskip("IPython")
    done = subprocess.run(
        [sys.executable, "-c", RUNNER],
        input=json.dumps(cells),
        capture_output=True,
        text=True,
        cwd=folder,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@deep
def test_the_notebook_of_the_examples(tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells), "outputs are not kept in the file"
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    rows = run(texts, tmp_path)
    assert all(row["ok"] for row in rows), rows
    pictures = [np.asarray(Image.open(io.BytesIO(base64.b64decode(row["png"])))) for row in rows if row["png"]]
    assert [picture.shape for picture in pictures] == [(240, 320, 3)] * 2
    assert all(picture.std() > 20 for picture in pictures)
    # The middle of the set, and a point far outside.
    assert (pictures[0][120, 160] == 0).all() and (pictures[0][0, 0] > 0).any()
    numbers = [row["text"] for row in rows if row["text"].startswith("array")]
    assert len(numbers) == 1 and numbers[0].startswith("array([0.")


def test_the_magic_and_its_errors(tmp_path: Path) -> None:
    add = "float add(float a, float b)\n{\n    return a + b;\n}\n"
    rows = run(
        [
            "%load_ext slangpy_rt",
            f"%%slang shapes cpu\n{add}",
            "shapes.add(1.0, 2.0)",
            "def inner():\n    return shapes.add('a', 1.0)\ninner()",
            f"%%slang shapes cpu\n{add.replace('a + b', 'a + c')}",
            "shapes.add(1.0, 2.0)",
            f"%%slang shapes cpu\n{add.replace('a + b', 'a * b')}",
            "shapes.add(1.0, 2.0)",
            f"%%slang\n{add}",
            f"%%slang one two three\n{add}",
            f"%%slang shapes vulcan\n{add}",
            "1 / 0",
            "%unload_ext slangpy_rt",
            f"%%slang shapes cpu\n{add}",
            "inner()",
        ],
        tmp_path,
    )
    said = [row["said"] for row in rows]
    works = (0, 1, 2, 5, 6, 7, 12)
    assert tuple(k for k, row in enumerate(rows) if row["ok"]) == works, rows
    assert [rows[k]["text"] for k in (2, 5, 7)] == ["3.0", "3.0", "2.0"]
    # The traceback has the lines of the cell, and none of this package.
    assert "return shapes.add('a', 1.0)" in said[3] and "BindError: float add" in said[3]
    assert "slangpy_rt/" not in said[3].replace("\\", "/")
    assert "shapes.slang:3:16" in said[4] and "undefined identifier 'c'" in said[4]
    usage = "%%slang NAME [DEVICE] was expected, as in: %%slang shapes"
    assert usage in said[8] and usage in said[9]
    assert "Did you mean 'vulkan'?" in said[10]
    assert "ZeroDivisionError" in said[11]
    # Afterwards all frames are shown.
    assert "slangpy_rt/" in said[14].replace("\\", "/")

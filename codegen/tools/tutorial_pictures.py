"""Write the pictures of docs/tutorial.md: run its blocks, and copy the files that they write to docs/images.

python codegen/tools/tutorial_pictures.py
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the page in a folder of its own, and print each picture and its size."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs/tutorial.md").read_text(encoding="utf-8"), re.M | re.S)
    names: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for language, text in blocks:
            if language == "slang":
                Path(text.split("\n")[0].removeprefix("// ")).write_text(text, encoding="utf-8")
            elif language == "python":
                exec(compile(text, "tutorial.md", "exec"), names)
        for picture in sorted(Path(folder).glob("*.jpg")):
            data = picture.read_bytes()
            (ROOT / "docs" / "images" / picture.name).write_bytes(data)
            print(picture.name, len(data))
        os.chdir(ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Build the documentation site of this version beside those of others.

    python codegen/tools/build_site.py build/site [--name main]

Pages go into a folder of the version's name. ``versions.json`` lists all versions that are there, newest first, for
the list in the pages (docs/static/versions.js), and ``index.html`` leads to the first. Other versions are not built:
their folders stay what they are.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIRST = ROOT / "docs" / "site" / "index.html"
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def main(arguments: list[str] | None = None) -> int:
    """Build the pages and list the versions; return the exit status of Sphinx."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="the folder of all versions")
    parser.add_argument("--name", help="what the version is called; without it, by its number")
    given = parser.parse_args(arguments)
    name: str = own_version() if given.name is None else given.name
    if not re.fullmatch(r"\w[\w.-]*", name):
        parser.error(f"--name: {name!r} is no name of a folder; use letters, digits, dots and dashes.")
    out = given.site / name
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-c", "docs"]
    command += ["-D", f"version={name}", "-D", f"release={name}", "-D", f"html_title=slangpy_rt {name}"]
    status = subprocess.run([*command, ".", str(out.absolute())], cwd=ROOT).returncode
    if status == 0:
        list_versions(given.site)
    return status


def own_version() -> str:
    """Return the version of this tree."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'^version = "(.*)"', text, re.M)
    assert found is not None
    return found[1]


def list_versions(site: Path) -> None:
    """Write ``versions.json`` and ``index.html`` for the built versions in a folder."""
    built = [folder.parent.name for folder in site.glob("*/objects.inv")]
    names = sorted(built, key=_age, reverse=True)
    (site / "versions.json").write_text(json.dumps(names) + "\n", encoding="utf-8")
    first = FIRST.read_text(encoding="utf-8").replace("docs/index.html", f"{names[0]}/docs/index.html")
    (site / "index.html").write_text(first, encoding="utf-8")


def _age(name: str) -> tuple[bool, list[int], bool, str]:
    """Return the key by which names are sorted: numbers by their parts, a release after what leads to it."""
    found = _VERSION.match(name)
    if found is None:
        return False, [], False, name
    return True, [int(part) for part in found[0].split(".")], found[0] == name, name


if __name__ == "__main__":
    sys.exit(main())

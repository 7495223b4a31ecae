"""The documentation runs: every Python block of a page, in order, with the page's Slang files beside it.

What a block prints stands behind it, in a block marked ``text``; both are compared.
"""

import codeop
import re
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest

import slangpy_rt as spy
from tests.depth import deep

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*/*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page is PAGES[0] else deep) for page in PAGES], ids=lambda page: page.name
)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = [*_BLOCK.findall(page.read_text(encoding="utf-8")), ("", "")]
    for (language, text), (following, shown) in pairwise(blocks):
        first = re.match(r"// (\w+\.slang)\n", text)
        if language == "slang" and first:
            Path(first[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            printed = StringIO()
            with redirect_stdout(printed):
                exec(compile(text, page.name, "exec"), names)
            expected = shown if following == "text" else ""
            assert _lines(printed.getvalue()) == _lines(expected), text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_can_be_pasted(page: Path) -> None:
    """Before Python 3.13 the interpreter ends an indented block at an empty line, and nowhere else."""
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        lines: list[str] = []
        for line in [*text.split("\n"), ""] if language == "python" else ():
            lines.append(line)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if codeop.compile_command("\n".join(lines), page.name, "single") is not None:
                    lines.clear()
        assert not any(lines), text


def test_a_wrong_output_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    for shown in ("```text\n3\n```\n", ""):
        page.write_text(f"```python\nprint(1 + 1)\n```\n{shown}")
        with pytest.raises(AssertionError):
            test_page_runs(page, tmp_path, monkeypatch)
    page.write_text("```python\nprint(1 + 1)\n```\n```text\n2\n```\n")
    test_page_runs(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["from-slangpy", "from-warp", "from-triton"])
def test_code_of_other_libraries_is_python(name: str) -> None:
    """Blocks marked ``py`` are theirs and not run, but for those of SlangPy below."""
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    blocks = [text for kind, text in _BLOCK.findall(page) if kind == "py"]
    assert blocks
    for text in blocks:
        compile(text, name, "exec")


@deep
def test_code_of_slangpy_prints_the_same(tmp_path: Path, slangpy_on_vulkan: None) -> None:
    """Its half of the guide runs with SlangPy itself, where there is a Vulkan device."""
    blocks = _BLOCK.findall((ROOT / "docs" / "from-slangpy.md").read_text(encoding="utf-8"))
    kinds = [kind for kind, _ in blocks]
    (tmp_path / "example.slang").write_text(blocks[kinds.index("slang")][1], encoding="utf-8")
    text = blocks[kinds.index("py")][1].replace("create_device(", "create_device(type=spy.DeviceType.vulkan, ")
    run = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert _lines(run.stdout)[-3:] == _lines(blocks[kinds.index("text")][1])


def test_each_step_of_the_tutorial_ends_in_its_picture() -> None:
    steps = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8").split("\n## ")[1:7]
    for step in steps:
        made = re.findall(r'save\("(\w+\.jpg)"', step)
        assert len(made) == 1 and made == re.findall(r"!\[.*\]\(images/(.*)\)", step), step[:40]


def test_each_missed_target_has_its_reason() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    missed = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \| \*\*missed\*\* \|$", text, re.M)
    assert len(missed) > 9
    reasons = text.partition("What profiles say of targets that are missed:\n")[2].partition("\n## ")[0]
    explained = {work for works in re.findall(r"^- (.+?)\. ", reasons, re.M) for work in works.split("; ")}
    assert set(missed) <= explained


def test_links_lead_somewhere() -> None:
    for page in PAGES + NOTES:
        prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([\w-]+))?\)", prose):
            file = page.parent / target if target else page
            assert file.exists(), f"{page.name}: {target}"
            assert not heading or heading in _headings(file), f"{page.name}: {target}#{heading}"


def test_the_generated_text_shown_is_the_generated_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    source = re.search(r"```slang\n(// example.slang.*?)```", page, re.S)
    shown = re.search(r" {3}```slang\n(.*?) {3}```", page, re.S)
    assert source and shown
    module = spy.Module.load_from_source(spy.Device("cpu"), "example", source[1])
    text = module.tone.source(np.zeros((480, 640, 3), np.float32), 2.0)
    assert re.sub(r"^ {3}", "", shown[1], flags=re.M).strip() == text.strip()


def _lines(text: str) -> list[str]:
    """A page keeps no blanks at the ends of lines, and an output no empty lines at its own."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _headings(file: Path) -> set[str]:
    """As GitHub names them in links."""
    found = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}

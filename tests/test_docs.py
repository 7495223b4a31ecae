"""The documentation runs: every Python block of a page, in order, with the page's Slang files beside it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for language, text in _BLOCK.findall(page.read_text(encoding="utf-8")):
        first = re.match(r"// (\w+\.slang)\n", text)
        if language == "slang" and first:
            Path(first[1]).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, page.name, "exec"), names)


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_generated_text_shown_is_the_generated_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    import slangpy_rt as spy

    page = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    source = re.search(r"```slang\n(// example.slang.*?)```", page, re.S)
    shown = re.search(r" {3}```slang\n(.*?) {3}```", page, re.S)
    assert source and shown
    module = spy.Module.load_from_source(spy.Device("cpu"), "example", source[1])
    text = module.tone.source(np.zeros((480, 640, 3), np.float32), 2.0)
    assert re.sub(r"^ {3}", "", shown[1], flags=re.M).strip() == text.strip()

"""The documentation site: it builds without a warning and without a network, and its reference pages are complete."""

from __future__ import annotations

import json
import re
from pathlib import Path

import build_site
import derivative_forms
import pytest
import slang_reference

import slangpy_rt as spy
from slangpy_rt.device import _SHOWN
from tests.depth import deep

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built pages. Any warning of Sphinx is an error."""
    versions = tmp_path_factory.mktemp("site")
    assert build_site.main([str(versions)]) == 0
    return versions / spy.__version__


@deep
def test_every_page_is_there(site: Path) -> None:
    pages = {path.relative_to(ROOT).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert all((site / page).is_file() for page in pages | {Path("index.html"), Path("README.html")})
    index = (site / "docs" / "index.html").read_text(encoding="utf-8")
    for text in ("search.html", "prefers-color-scheme: dark", f"slangpy_rt {spy.__version__}", "from-slangpy.html"):
        assert text in index, text


@deep
def test_a_reader_needs_no_network(site: Path) -> None:
    for page in ("docs/index.html", "docs/tutorial.html", "docs/reference/python.html"):
        text = (site / page).read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|link)\b[^>]*?(?:src|href)="(https?:[^"]*)"', text)
        assert not loaded


@deep
def test_versions_lie_beside_each_other(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions = site.parent
    before = (site / "docs" / "index.html").stat().st_mtime_ns
    assert build_site.main([str(versions), "--name", "0.10.0"]) == 0
    assert json.loads((versions / "versions.json").read_text(encoding="utf-8")) == ["0.10.0", spy.__version__]
    assert 'url=0.10.0/docs/index.html"' in (versions / "index.html").read_text(encoding="utf-8")
    for name in ("0.10.0", spy.__version__):
        page = (versions / name / "docs" / "tutorial.html").read_text(encoding="utf-8")
        # What docs/static/versions.js goes by: where the version's folder is, and where the list comes.
        assert 'data-content_root="../"' in page and 'class="sidebar-brand"' in page
        assert re.search(r'<script src="\.\./_static/versions\.js', page) and f"slangpy_rt {name}" in page
        assert (versions / name / "_static" / "versions.js").is_file()
    assert (site / "docs" / "index.html").stat().st_mtime_ns == before
    with pytest.raises(SystemExit):
        build_site.main([str(versions), "--name", "../0.2"])
    assert "--name: '../0.2' is no name of a folder" in capsys.readouterr().err


def test_versions_are_listed_newest_first(tmp_path: Path) -> None:
    for name in ("0.2.0", "main", "0.10.0", "1.0rc1", "1.0", "notes"):
        (tmp_path / name).mkdir()
        if name != "notes":
            (tmp_path / name / "objects.inv").touch()
    build_site.list_versions(tmp_path)
    assert json.loads((tmp_path / "versions.json").read_text()) == ["1.0", "1.0rc1", "0.10.0", "0.2.0", "main"]
    assert "1.0/docs/index.html" in (tmp_path / "index.html").read_text()


@deep
def test_the_python_reference_has_every_public_name(site: Path) -> None:
    source = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    shown = set(re.findall(r":: slangpy_rt\.(\w+)", source)) | set(re.findall(r"`(\w+)`", source))
    assert set(spy.__all__) <= shown
    built = (site / "docs" / "reference" / "python.html").read_text(encoding="utf-8")
    for name in ("Tensor.from_numpy", "Function.bwds", "Module.load_from_file", "matmul", "ShapeError"):
        assert f'id="slangpy_rt.{name}"' in built
    # Of a device, which has more for the packages below, the names that ``dir`` shows and that have docstrings.
    members = set(re.findall(r'id="slangpy_rt\.Device\.(\w+)"', built))
    assert members == {name for name in _SHOWN if getattr(getattr(spy.Device, name, None), "__doc__", None)}


def test_the_slang_reference_is_what_the_files_say() -> None:
    assert slang_reference.PAGE.read_text(encoding="utf-8") == slang_reference.page(), (
        "run `python codegen/tools/slang_reference.py`"
    )
    assert slang_reference.without_comment() == []


def test_the_slang_reference_has_what_files_declare() -> None:
    names = {module: {found.name for found in slang_reference.read(module)} for module in slang_reference.MODULES}
    assert {"Tensor", "RWTensor", "NDBuffer", "DiffTensor", "StructuredBuffer", "printf"} <= names["slangpy_rt"]
    tensors = {d.name: [m.text for m in d.members] for d in slang_reference.read("slangpy_rt")}
    assert "public __subscript(int i) -> T { get; }" in tensors["Tensor"]
    assert "public __subscript(int i) -> T { get; set; }" in tensors["RWTensor"]
    assert {"Network", "HashGrid", "ReLU", "adam", "l2Loss"} <= names["mlp"]
    assert names["matmul"] == {"Tiles", "IEpilogue"}
    assert {"_spy_TensorView", "_spy_DiffTensorView", "_spy_TorchTensor"} <= names["slangtorch"]


def test_the_page_of_variables_names_all() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "slangpy_rt").rglob("*.py"))
    names = set(re.findall(r"SLANGPY_RT_[A-Z0-9]+(?:_[A-Z0-9]+)*", text))
    assert len(names) > 15
    page = (DOCS / "environment.md").read_text(encoding="utf-8")
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_rows_of_the_readme_are_of_the_benchmarks() -> None:
    """Each row is one of the generated page, whose figures come from benchmarks/results."""
    rows = re.findall(r"^\| .*\*\*.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
    assert len(rows) == 6
    assert set(rows) <= set((DOCS / "benchmarks.md").read_text(encoding="utf-8").splitlines())


def test_messages_of_the_page_on_troubles_are_real() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    with spy.Device("cpu") as device:
        text = """
        float add(float a, float b) { return a + b; }
        int kind(int x) { return 1; }
        int kind(float x) { return 2; }
        """
        module = spy.Module.load_from_source(device, "m", text)
        three = spy.Tensor.zeros(device, 3)
        for call in (
            lambda: module.add(spy.Tensor.zeros(device, 3, dtype="int"), 1.0),
            lambda: module.add(three, spy.Tensor.zeros(device, 4)),
            lambda: module.add(three, 1.0, _result=spy.Tensor.zeros(device, 1)),
            lambda: module.kind(True),
            lambda: spy.device("cpu"),  # type: ignore[operator]
        ):
            with pytest.raises((spy.SlangPyRtError, TypeError)) as caught:
                call()
            said = re.findall(r"^\*\*`(.*?)`\.\*\*", page, re.M)
            assert any(message in str(caught.value) for message in said), caught.value


def test_the_page_of_derivatives_has_every_form() -> None:
    text = derivative_forms.PAGE.read_text(encoding="utf-8")
    assert derivative_forms.page(derivative_forms.read(text)) == text, (
        "run `python codegen/tools/derivative_forms.py`"
    )
    assert not re.search(r"\| (?:WRONG|error) \|", text)

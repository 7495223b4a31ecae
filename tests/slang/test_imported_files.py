"""Which files a text imports, in which order, and what a module that is imported unsaid adds to a text."""

from __future__ import annotations

from pathlib import Path

from slangpy_rt.slang.auto_import import AutoImport
from slangpy_rt.slang.imports import imported
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.source_map import SourceMap


def test_each_file_stands_behind_what_it_imports(tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    texts = {
        "a.slang": "__exported import b_c;\n",
        # A comment names a file that imports this one.
        "b-c.slang": '// import a;\n/* import "lost"; */\nimport lib.deep ;\nimport slangpy_rt;\n',
        "lib/deep.slang": 'import "a";\n',
        "lost.slang": "",
        "elsewhere.slang": "",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (folder / "elsewhere.slang").write_text("int hidden;\n")
    own = str(tmp_path / "own.slang")
    text = 'import b_c; __import a; import nothing; import elsewhere; string s = "import lost;";\n'
    found = imported(own, text, (str(folder), str(tmp_path), shader_directory()))
    # A file beside the text comes before one of the folders; our own files are left out.
    assert [(each.name, Path(each.path).name) for each in found] == [
        ("a", "a.slang"), ("lib/deep", "deep.slang"), ("b_c", "b-c.slang"), ("elsewhere", "elsewhere.slang"),
    ]  # fmt: skip
    assert [each.text for each in found] == [texts["a.slang"], texts["lib/deep.slang"], texts["b-c.slang"], ""]


def test_an_import_that_is_not_written_keeps_lines_and_columns() -> None:
    auto = AutoImport("ours", "#define LONG\n#line 1\n", r"\bView\b")
    assert auto.needed("View v;") and not auto.needed("Views v;")
    around = auto.around(SourceMap.of("View v;"))
    assert around.text == "#define LONG\n#line 1\nView v;\nimport ours;\n"

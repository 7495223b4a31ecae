"""What runs is what the files say now, in this process and in the next, whatever their sizes and times tell."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.target import Target
from slangpy_rt.slang.file_states import FileStates
from slangpy_rt.slang.files import read_source
from slangpy_rt.slang.source import Source
from tests.depth import one_in, sampled

# Longer than a device waits between two looks at a file.
PAUSE = 0.03
ONE, TWO = "float h() { return 1; }\n", "float h() { return 2; }\n"
Edit = Callable[[Path], None]


def same_size_and_time(path: Path, text: str) -> None:
    before = path.stat()
    assert len(text) == before.st_size
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_an_older_file(path: Path, text: str) -> None:
    fresh = path.with_name("fresh.tmp")
    fresh.write_text(text)
    os.utime(fresh, ns=(1, 1))
    fresh.replace(path)


def repointed(link: Path, target: str) -> None:
    other = link.with_name("other.link")
    other.symlink_to(target)
    other.replace(link)


def plain(root: Path) -> None:
    (root / "main.slang").write_text("import helper;\nfloat f(float x) { return x * h(); }\n")
    (root / "helper.slang").write_text(ONE)


def linked_file(root: Path) -> None:
    (root / "main.slang").write_text("import helper;\nfloat f(float x) { return x * h(); }\n")
    (root / "one.slang").write_text(ONE)
    (root / "two.slang").write_text(TWO)
    (root / "helper.slang").symlink_to("one.slang")


def linked_folder(root: Path) -> None:
    for name, text in (("v1", ONE), ("v2", TWO)):
        (root / name).mkdir()
        (root / name / "helper.slang").write_text(text)
    (root / "current").symlink_to("v1")
    (root / "main.slang").write_text('import "current/helper";\nfloat f(float x) { return x * h(); }\n')


def main_is_a_link(root: Path) -> None:
    for name in ("1", "2"):
        (root / f"m{name}.slang").write_text(f"float f(float x) {{ return x * {name}; }}\n")
    (root / "main.slang").symlink_to("m1.slang")


def in_a_search_path(root: Path) -> None:
    (root / "lib" / "deep").mkdir(parents=True)
    (root / "near").mkdir()
    (root / "main.slang").write_text("import deep.a_b;\nfloat f(float x) { return x * h(); }\n")
    (root / "lib" / "deep" / "a-b.slang").write_text(ONE)


def included(root: Path) -> None:
    (root / "lib" / "deep").mkdir(parents=True)
    (root / "near").mkdir()
    (root / "main.slang").write_text("#include <outer.slangh>\nfloat f(float x) { return x * V; }\n")
    (root / "lib" / "outer.slangh").write_text('#include "deep/inner.slangh"\n')
    (root / "lib" / "deep" / "inner.slangh").write_text("#define V 1\n")


def part(root: Path) -> None:
    (root / "main.slang").write_text("import whole;\nfloat f(float x) { return x * h(); }\n")
    (root / "whole.slang").write_text("module whole;\n__include part;\n")
    (root / "part.slang").write_text("implementing whole;\npublic float h() { return 1; }\n")


def named_in_riddles(text: str) -> Edit:
    """A module that finds ``helper.slang`` in a folder of the search path, under a name that only Slang reads."""

    def make(root: Path) -> None:
        (root / "lib").mkdir()
        (root / "near").mkdir()
        (root / "main.slang").write_text(f"{text}\nfloat f(float x) {{ return x * h(); }}\n")
        (root / "lib" / "helper.slang").write_text(ONE)

    return make


def nearer(root: Path) -> None:
    (root / "near" / "helper.slang").write_text(TWO)


def linked_import(root: Path) -> None:
    (root / "store").mkdir()
    (root / "lib").mkdir()
    (root / "main.slang").write_text("import outer;\nfloat f(float x) { return x * g(); }\n")
    (root / "store" / "outer.slang").write_text("import helper;\nfloat g() { return h(); }\n")
    (root / "outer.slang").symlink_to("store/outer.slang")
    (root / "lib" / "helper.slang").write_text(ONE)


def releases(root: Path) -> None:
    for name, text in (("v1", ONE), ("v2", TWO)):
        (root / name).mkdir()
        (root / name / "helper.slang").write_text(text)
    (root / "v1" / "outer.slang").write_text("import helper;\nfloat g() { return h(); }\n")
    # As ``cp -al`` and ``rsync --link-dest`` make them: one file under two names.
    os.link(root / "v1" / "outer.slang", root / "v2" / "outer.slang")
    (root / "current").symlink_to("v1")
    (root / "main.slang").write_text('import "current/outer";\nfloat f(float x) { return x * g(); }\n')


CASES: dict[str, tuple[Edit, Edit]] = {
    "equal size and time": (plain, lambda root: same_size_and_time(root / "helper.slang", TWO)),
    "main, equal size and time": (
        plain,
        lambda root: same_size_and_time(
            root / "main.slang", "import helper;\nfloat f(float x) { return 2 * h(); }\n"
        ),
    ),
    "an older file": (plain, lambda root: replaced_by_an_older_file(root / "helper.slang", TWO)),
    "a link to a file": (linked_file, lambda root: repointed(root / "helper.slang", "two.slang")),
    "a link to a folder": (linked_folder, lambda root: repointed(root / "current", "v2")),
    "the module is a link": (main_is_a_link, lambda root: repointed(root / "main.slang", "m2.slang")),
    "a file becomes a link": (
        plain,
        lambda root: ((root / "two.slang").write_text(TWO), repointed(root / "helper.slang", "two.slang"))[1],
    ),
    "beside the importing file": (
        in_a_search_path,
        lambda root: ((root / "deep").mkdir(), (root / "deep" / "a-b.slang").write_text(TWO))[0],
    ),
    "in an earlier folder": (
        in_a_search_path,
        lambda root: ((root / "near" / "deep").mkdir(), (root / "near" / "deep" / "a-b.slang").write_text(TWO))[0],
    ),
    "an included file": (
        included, lambda root: same_size_and_time(root / "lib" / "deep" / "inner.slangh", "#define V 2\n")
    ),
    "an included file in an earlier folder": (
        included, lambda root: (root / "near" / "outer.slangh").write_text("#define V 2\n") and None
    ),
    "an included file beside the including one": (
        included, lambda root: (root / "outer.slangh").write_text("#define V 2\n") and None
    ),
    "behind a comment": (named_in_riddles("import /* by and by */ helper;"), nearer),
    "behind a macro": (named_in_riddles("#define NAME helper\nimport NAME;"), nearer),
    "in an include with a comment": (named_in_riddles("# /* */ include /* */ <helper.slang>"), nearer),
    "in an include of two lines": (named_in_riddles("#inc\\\nlude <helper.slang>"), nearer),
    "beside a link": (linked_import, lambda root: (root / "helper.slang").write_text(TWO) and None),
    "a link to a folder with the same file": (releases, lambda root: repointed(root / "current", "v2")),
    "a part of a module": (
        part,
        lambda root: same_size_and_time(root / "part.slang", "implementing whole;\npublic float h() { return 2; }\n"),
    ),
}  # fmt: skip


def load(root: Path, cache: DiskCache) -> Source:
    folders = tuple(str(root / name) for name in ("near", "lib"))
    path, text, places = read_source("test", root / "main.slang", folders)
    return Source(cache, Target("cuda", "", "value"), "main", path, text, folders, (), places=places)


@sampled(7)
@pytest.mark.parametrize("settled", one_in(2, [True, False]))
@pytest.mark.parametrize("case", CASES)
def test_an_edit_is_seen_by_this_process_and_by_the_next(
    case: str, settled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if settled:  # as if the files had been read long after they were written
        monkeypatch.setattr("slangpy_rt.slang.file_states._STEP", 0)
    make, edit = CASES[case]
    root = tmp_path / "root"
    root.mkdir()
    make(root)
    cache = DiskCache.open(tmp_path / "cache", 1 << 30)
    time.sleep(0.02 if settled else 0)
    source = load(root, cache)
    assert not source.changed() and load(root, cache).digest == source.digest
    time.sleep(0.02 if settled else 0)
    edit(root)
    assert source.changed()
    assert source.renewed().digest != source.digest
    assert load(root, cache).digest == source.renewed().digest
    assert not source.renewed().changed()


def test_the_next_call_runs_it(tmp_path: Path) -> None:
    linked_folder(tmp_path)
    device = spy.Device("cpu")
    f = spy.Module.load_from_file(device, tmp_path / "main.slang").f
    assert f(3.0) == 3
    repointed(tmp_path / "current", "v2")
    time.sleep(PAUSE)
    assert f(3.0) == 6
    same_size_and_time(tmp_path / "v2" / "helper.slang", "float h() { return 5; }\n")
    time.sleep(PAUSE)
    assert f(3.0) == 15
    (tmp_path / "current").unlink()
    time.sleep(PAUSE)
    with pytest.raises(spy.CompileError, match="current/helper"):
        f(3.0)
    (tmp_path / "current").symlink_to("v1")
    assert f(3.0) == 3


def test_a_folder_that_is_given_may_be_a_link(tmp_path: Path) -> None:
    for name, text in (("v1", ONE), ("v2", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "helper.slang").write_text(text)
    (tmp_path / "current").symlink_to("v1")
    device = spy.Device("cpu", include_paths=[tmp_path / "current"])
    f = spy.Module.load_from_source(device, "user", "import helper;\nfloat f(float x) { return x * h(); }").f
    assert f(3.0) == 3
    repointed(tmp_path / "current", "v2")
    time.sleep(PAUSE)
    assert f(3.0) == 6


def test_text_looks_for_its_imports_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = spy.Device("cpu")
    results = []
    for name, text in (("one", ONE), ("two", TWO)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "beside.slang").write_text(text)
        monkeypatch.chdir(tmp_path / name)
        module = spy.Module.load_from_source(device, "user", "import beside;\nfloat f(float x) { return x * h(); }")
        results.append(module.f(3.0))
    assert results == [3, 6]


def test_touching_costs_a_look_and_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.slang"
    path.write_text(ONE)
    states = FileStates({}, {str(path): ONE}, {str(tmp_path / "none"): ""}, time.time_ns())
    assert states and not states.changed()
    path.touch()
    assert not states.changed()
    (tmp_path / "none").mkdir()  # a folder is no file
    assert not states.changed()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"float f() { return 1; }\0garbage", "holds a NUL character in line 1; Slang text ends there. Take it out."),
        (b"float f() { return 1; }\n// \xff\n", "is not UTF-8 text (invalid start byte at byte 27)."),
        ("float f() { return 1; }".encode("utf-16"), "is not UTF-8 text (invalid start byte at byte 0)."),
    ],
)
def test_what_slang_would_not_read_to_its_end_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    device = spy.Device("cpu")
    (tmp_path / "bad.slang").write_bytes(data)
    (tmp_path / "main.slang").write_text("import bad;\nfloat g() { return 1; }")
    for name in ("bad", "main"):
        with pytest.raises(spy.CompileError) as caught:
            spy.Module.load_from_file(device, tmp_path / f"{name}.slang")
        assert str(tmp_path / "bad.slang") in str(caught.value)
        # Where Slang reads the file, it finds that one by itself.
        assert str(caught.value).endswith(said) or (name, data[23:24]) == ("main", b"\0")
    if b"\0g" in data:
        with pytest.raises(spy.BindError, match="source holds a NUL character, at 23"):
            spy.Module.load_from_source(device, "bad", data.decode())


@sampled(4)
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line", ["\n", "\r\n", "\r"])
def test_any_line_ends_and_a_byte_order_mark(tmp_path: Path, mark: str, line: str) -> None:
    device = spy.Device("cpu")
    lines = ("import helper;", "// a comment", "uniform float gain;", "float f(float x) { return gain * h(); }")
    text = mark + line.join(lines)
    (tmp_path / "main.slang").write_bytes(text.encode())
    (tmp_path / "helper.slang").write_bytes(f"{mark}// helps{line}float h() {{ return 2; }}{line}".encode())
    assert spy.Module.load_from_file(device, tmp_path / "main.slang").f.set(gain=3)(1.0) == 6
    own = text.replace("import helper;", "float h() { return 2; }")
    assert spy.Module.load_from_source(device, "ends", own).f.set(gain=3)(1.0) == 6


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    device = spy.Device("cpu")
    (tmp_path / "folder.slang").mkdir()
    os.mkfifo(tmp_path / "pipe.slang")
    for name, what in (("folder", "a folder"), ("pipe", "no ordinary file")):
        path = tmp_path / f"{name}.slang"
        with pytest.raises(spy.CompileError) as caught:
            spy.Module.load_from_file(device, path)
        assert str(caught.value) == (
            f"Module.load_from_file: '{path}' is {what}; give the path of a file with Slang text."
        )
    with pytest.raises(spy.BindError, match=r"path is 'a\\x00b', which no file can be called"):
        spy.Module.load_from_file(device, "a\0b")
    with pytest.raises(spy.CompileError, match="there is no file 'xxx"):
        spy.Module.load_from_file(device, "x" * 5000)


def test_a_file_that_becomes_a_pipe_makes_nobody_wait(tmp_path: Path) -> None:
    plain(tmp_path)
    device = spy.Device("cpu")
    f = spy.Module.load_from_file(device, tmp_path / "main.slang").f
    assert f(3.0) == 3
    (tmp_path / "main.slang").unlink()
    os.mkfifo(tmp_path / "main.slang")
    time.sleep(PAUSE)
    with pytest.raises(spy.CompileError, match="is no ordinary file"):
        f(3.0)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_nobody_may_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.slang"
    path.write_text(ONE)
    path.chmod(0)
    with pytest.raises(spy.CompileError, match=r"secret.slang' cannot be read: .*Permission denied"):
        spy.Module.load_from_file(spy.Device("cpu"), path)

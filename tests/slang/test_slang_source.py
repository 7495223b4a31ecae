"""What a Source knows without a compiler: declarations, look-ups, comments, and whether its files changed."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import slangpy_rt.slang.sessions
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import ModuleInfo, SlangType, StructInfo
from slangpy_rt.slang.source import Source

TEXT = """import helper;
/// Adds numbers.
float add(float a, float b) { return a + b; }
/// Adds whole numbers.
int add(int a, int b) { return a + b; }
T copy<T : IFloat>(T a) { return a; }
interface IShape { float area(); }
/// A disk.
struct Disk : IShape
{
    /// Half the width.
    float r;
    /// Its area.
    float area() { return help(r); }
}
extension Disk {
    /// Its width.
    float width() { return 2 * r; }
}
enum Color { Red, Green }
"""
ADDED = "float add(float a, float c) { return a + c; }"
HELPER = "float help(float a) { return a; }\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "main.slang").write_text(TEXT)
    (tmp_path / "helper.slang").write_text(HELPER)
    return tmp_path


def load(folder: Path, **options: Any) -> Source:
    cache = DiskCache.open(folder / "cache", 1 << 30)
    path = folder / "main.slang"
    return Source(cache, Target("cuda", "", "value"), "main", str(path), path.read_text(), (), (), **options)


def ask_everything(source: Source) -> list[Any]:
    return [
        source.info, source.functions("add"), source.functions("copy<float>"), source.functions("nothing"),
        source.functions("Disk.area"), source.type("Disk"), source.type("Color"), source.type("Nothing"),
        source.conforms("Disk", "IShape"), source.conforms("float", "IShape"),
    ]  # fmt: skip


def test_a_warm_process_needs_no_compiler(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = ask_everything(load(files))

    def refuse(*_: Any) -> Any:
        raise AssertionError("the compiler was asked")

    monkeypatch.setattr(slangpy_rt.slang.sessions, "new_session", refuse)
    assert ask_everything(load(files)) == cold
    with pytest.raises(AssertionError, match="the compiler was asked"):
        load(files).functions("copy<half>")


def test_an_edit_makes_look_ups_new(files: Path) -> None:
    assert load(files).functions("helped") == ()
    (files / "helper.slang").write_text(HELPER + "int helped(int a) { return a; }\n")
    assert [str(f) for f in load(files).functions("helped")] == ["int helped(int a)"]


def test_a_file_edited_in_between_is_refused(files: Path) -> None:
    load(files)
    warm = load(files)
    (files / "helper.slang").write_text(HELPER.replace("return a", "return 2 * a"))
    for _ in range(2):
        with pytest.raises(CompileError, match=r"helper.slang' changed since it was loaded; load .* again"):
            warm.functions("copy<half>")
    assert load(files).functions("copy<half>")


def test_the_text_of_a_module_is_in_memory(files: Path) -> None:
    load(files)
    warm = load(files)
    (files / "main.slang").write_text("float other() { return 1; }\n")
    assert [str(f) for f in warm.functions("copy<half>")] == ["half copy<half>(half a)"]


def test_refusals_are_not_kept(files: Path) -> None:
    source = load(files)
    for _ in range(2):
        with pytest.raises(CompileError, match="does not conform"):
            source.functions("copy<int>")


def test_comments_are_known(files: Path) -> None:
    source = load(files)
    assert [f.doc for f in source.info.functions] == ["Adds numbers.", "Adds whole numbers.", ""]
    (disk,) = source.info.structs
    assert (disk.doc, disk.type.fields[0].doc, disk.methods[0].doc) == ("A disk.", "Half the width.", "Its area.")
    assert [f.doc for f in source.functions("add")] == ["Adds numbers.", "Adds whole numbers."]
    found = source.type("Disk")
    assert isinstance(found, StructInfo)
    assert (found.doc, found.type.fields[0].doc) == ("A disk.", "Half the width.")
    assert [m.doc for m in found.methods] == ["Its area.", "Its width."]
    assert [f.doc for f in source.functions("Disk.width")] == ["Its width."]


def test_nothing_changed(files: Path) -> None:
    source = load(files)
    assert not source.changed()
    for name in ("main.slang", "helper.slang"):
        os.utime(files / name, ns=(1, 1))
    assert not source.changed()
    (files / "other.slang").write_text("int a;\n")
    assert not source.changed()


@pytest.mark.parametrize("name", ["main.slang", "helper.slang"])
def test_an_edited_file_is_a_change(files: Path, name: str) -> None:
    source = load(files)
    text = (files / name).read_text()
    (files / name).write_text(text + "\n")
    assert source.changed()
    assert source.changed()
    (files / name).write_text(text)
    assert not source.changed()
    assert not load(files).changed()


def test_an_edit_of_equal_length_is_a_change(files: Path) -> None:
    source = load(files)
    (files / "helper.slang").write_text(HELPER.replace("help(", "hulp("))
    os.utime(files / "helper.slang", ns=(1, 1))
    assert source.changed()


def test_a_missing_file_is_a_change(files: Path) -> None:
    source = load(files)
    (files / "helper.slang").unlink()
    assert source.changed()


def test_files_of_linked_modules_count(files: Path, tmp_path: Path) -> None:
    source = load(files)
    cache = DiskCache.open(files / "cache", 1 << 30)
    user = Source(
        cache, Target("cuda", "", "value"), "user", "user.slang", "int f() { return 1; }", (), (), {}, (source,)
    )
    assert not user.changed()
    (files / "helper.slang").write_text("// edited\n" + HELPER)
    assert user.changed()


def test_an_edited_text_is_a_new_source(files: Path) -> None:
    first = load(files)
    first.functions("copy<float>")
    (files / "main.slang").write_text(TEXT.replace("float add(float a, float b) { return a + b; }", ADDED))
    second = load(files)
    assert first.changed()
    assert [p.name for p in second.functions("add")[0].params] == ["a", "c"]
    assert [p.name for p in first.functions("add")[0].params] == ["a", "b"]
    assert first.digest != second.digest


def test_a_session_whose_modules_do_not_load_is_closed(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Any] = []
    new_session = slangpy_rt.slang.sessions.new_session

    def noted(*args: Any) -> Any:
        opened.append(new_session(*args))
        return opened[-1]

    monkeypatch.setattr(slangpy_rt.slang.sessions, "new_session", noted)
    source = load(files)
    source.close()
    (files / "helper.slang").write_text(HELPER.replace("a;", "2 * a;"))
    with pytest.raises(CompileError, match="changed since it was loaded"):
        source.session()
    # More than two where the file is taken as being written.
    assert len(opened) >= 2 and not any(session._number for session in opened)


def changed(value: Any) -> Iterator[Any]:
    """JSON values that differ from one in one place: another type, a missing item, another name."""
    yield from (
        None,
        5,
        "text",
        [],
        {},
        [1, [2]],
        {"": "SlangType"},
        {"": "Field", "name": 3, "type": 4},
        {"": "none"},
    )
    if isinstance(value, dict):
        for key, item in value.items():
            yield {k: v for k, v in value.items() if k != key}
            for other in changed(item):
                yield {**value, key: other}
    elif isinstance(value, list):
        for k, item in enumerate(value):
            for other in changed(item):
                yield [*value[:k], other, *value[k + 1 :]]


def test_forged_entries_are_misses(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle may hold anything under a valid checksum: what is no declaration counts as not there."""
    source = load(files)
    ask_everything(source)
    cache = source._cache
    kept = {e.key: e.meta for e in cache.entries() if e.kind in ("module", "lookup")}
    asked = {cache.key("lookup", source.digest, *key): (key, value) for key, value in source._found.items()}
    assert set(asked) < set(kept)
    compiler = SimpleNamespace(
        **{what: lambda _, *names, what=what: known[(what, *names)] for what in ("functions", "type", "conforms")}
    )
    known = dict(source._found)
    monkeypatch.setattr(source, "session", lambda: compiler)
    misses = 0
    for key, meta in kept.items():
        name = "info" if meta["kind"] == "module" else "found"
        for other in [{}, *({name: value} for value in changed(meta[name]))]:
            cache.put(key, {"kind": meta["kind"], "title": "forged", **other}, b"")
            if key not in asked:
                info = source._cached(key)
                misses += info is None
                assert info is None or isinstance(info, ModuleInfo)
                continue
            asking, value = asked[key]
            source._found.clear()
            found = source._lookup(*asking)
            misses += found == value
            assert found == value or isinstance(found, (tuple, bool, SlangType, StructInfo, type(None)))
            repr(found)
    assert misses > 300

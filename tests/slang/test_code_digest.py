"""The digest of the package's code: of contents alone, kept by the states of files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.slang.code_digest import code_digest, folders_digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "here" / "code"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.py").write_text("x = 1\n")
    (folder / "inner" / "two.slang").write_text("int x;\n")
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache.open(tmp_path / "cache", 1 << 20)


def test_an_equal_copy_has_the_same_digest(folder: Path, cache: DiskCache, tmp_path: Path) -> None:
    """What one machine exported is found on another with the same version."""
    before = folders_digest([folder], cache)
    copy = tmp_path / "there" / "code"
    shutil.copytree(folder, copy)
    os.utime(copy / "one.py", (1, 1))
    assert folders_digest([copy], cache) == before == folders_digest([copy], DiskCache(None, 0))


@pytest.mark.parametrize("name", ["one.py", "inner/two.slang"])
def test_an_edit_that_keeps_size_and_time_is_noticed(folder: Path, cache: DiskCache, name: str) -> None:
    before, file = folders_digest([folder], cache), folder / name
    state = file.stat()
    file.write_text(file.read_text().replace("x", "y"))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    while file.stat().st_ctime_ns == state.st_ctime_ns:  # clocks of file systems tick every few milliseconds
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert file.stat().st_mtime_ns == state.st_mtime_ns and file.stat().st_size == state.st_size
    assert folders_digest([folder], cache) != before
    file.write_text(file.read_text().replace("y", "x"))
    assert folders_digest([folder], cache) == before


def test_new_removed_and_renamed_files_are_noticed(folder: Path, cache: DiskCache) -> None:
    found = [folders_digest([folder], cache)]
    (folder / "three.hpp").write_text("")
    found.append(folders_digest([folder], cache))
    (folder / "three.hpp").rename(folder / "inner" / "three.hpp")
    found.append(folders_digest([folder], cache))
    (folder / "one.py").unlink()
    found.append(folders_digest([folder], cache))
    assert len(set(found)) == 4


def test_code_that_changed_after_it_was_loaded_has_a_digest_of_its_own(folder: Path, cache: DiskCache) -> None:
    """An upgrade under a running process: what the old code makes is not for others."""
    first, last = 0, 1 << 62
    plain = folders_digest([folder], cache)
    assert folders_digest([folder], cache, last) == plain
    assert len({plain, *(folders_digest([folder], cache, first) for _ in range(2))}) == 3


def test_files_without_code_do_not_count(folder: Path, cache: DiskCache) -> None:
    before = folders_digest([folder], cache)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "one.cpython-311.pyc").write_bytes(b"0")
    (folder / "notes.txt").write_text("a note")
    assert folders_digest([folder], cache) == before


def test_unchanged_files_are_not_read(folder: Path, cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    before = folders_digest([folder], cache)
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    assert folders_digest([folder], cache) == before
    monkeypatch.setattr(Path, "read_bytes", read)
    (entry,) = cache.entries()
    assert entry.kind == "code"
    cache.clear()
    assert folders_digest([folder], cache) == before


def test_the_package_has_all_its_parts() -> None:
    from slangpy_rt.slang import code_digest as module

    names = {name for name, _ in module._named(module._folders())}
    assert {
        "slang/session.py", "slang/corrections/division.py", "core/types.py", "slangpy_rt_codegen/emit.py",
        "shaders/slangpy_rt.slang", "shaders/_spy_masks.hpp",
    } <= names  # fmt: skip
    assert len(code_digest()) == 64

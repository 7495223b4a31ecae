"""DiskCache: entries are listed and cleared, folders of other compilers kept apart, bundles written and read."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import pytest
from _cache import CAP, HOUR, KEY, META, OTHER, PAYLOAD, aged, cache, names, path_of

from slangpy_rt.core.cache_entry import Entry
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import SlangPyRtError

__all__ = ["cache"]  # the fixture


def test_entries_tell_what_is_there(cache: DiskCache) -> None:
    start = time.time()
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, {}, b"")
    aged(cache, KEY, 2 * HOUR)
    listed = {info.key: info for info in cache.entries()}
    assert set(listed) == {KEY, OTHER}
    info = listed[KEY]
    assert (info.kind, info.meta, info.nbytes) == ("kernel", META, path_of(cache).stat().st_size)
    assert start - 1 <= info.created <= time.time() + 1
    assert info.last_used == pytest.approx(start - 2 * HOUR, abs=60)
    assert listed[OTHER].kind == ""


def test_clear_removes_the_cache_s_files_alone(cache: DiskCache) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, META, PAYLOAD)
    kept = ["README.bin", "notes.tmp"]
    for name in [*kept, f"{KEY}.0123.tmp", f"{KEY}.lock"]:
        path_of(cache).with_name(name).touch()
    assert cache.clear() == 2
    assert names(cache) == kept


def test_another_compiler_has_a_folder_of_its_own(cache: DiskCache, tmp_path: Path) -> None:
    folder = cache.folder("other-1.2")
    assert folder is not None and folder == cache.folder("other-1.2") and cache.folders() == [folder]
    assert os.name == "nt" or folder.stat().st_mode & 0o777 == 0o700
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_bytes(b"x")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    assert cache.directory is not None
    if os.name != "nt":
        (cache.directory / "link.slangpy_rt-kept").symlink_to(elsewhere)
        assert cache.folder("link") is None and cache.folders() == [folder]
    (cache.directory / "photos.kept").mkdir()
    cache.put(KEY, META, PAYLOAD)
    assert cache.clear() == 1
    assert (cache.directory / "photos.kept").is_dir() and not folder.exists() and (elsewhere / "file").exists()
    (cache.directory / "taken.slangpy_rt-kept").touch()
    assert cache.folder("taken") is None
    assert DiskCache.open(None, CAP).folder("other") is None and DiskCache.open(None, CAP).folders() == []


@pytest.mark.skipif(os.name == "nt", reason="modes are not checked on Windows")
def test_a_folder_that_others_may_write_is_not_used(cache: DiskCache) -> None:
    folder = cache.folder("other")
    assert folder is not None
    folder.chmod(0o777)
    assert cache.folder("other") is None


def test_a_bundle_carries_entries_to_another_cache(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.put(OTHER, {}, b"")
    assert cache.export(tmp_path / "all.zip") == 2
    assert cache.export(tmp_path / "one.zip", [KEY, DiskCache.key("absent")]) == 1
    for bundle, stored in (("all.zip", {KEY, OTHER}), ("one.zip", {KEY})):
        other = DiskCache.open(tmp_path / bundle[:3], CAP)
        assert other.import_(tmp_path / bundle) == len(stored)
        assert {info.key for info in other.entries()} == stored
        assert other.get(KEY) == Entry(META, PAYLOAD)
        created = {info.key: info.created for info in cache.entries()}
        assert all(info.created == created[info.key] for info in other.entries())
    assert sorted(path.name for path in tmp_path.glob("*.zip*")) == ["all.zip", "one.zip"]


def test_equal_entries_make_equal_bundles(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    cache.export(tmp_path / "a.zip")
    aged(cache, KEY, 2 * HOUR)
    cache.export(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_export_leaves_damaged_entries_out(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    path_of(cache).write_bytes(b"damaged")
    assert cache.export(tmp_path / "bundle.zip") == 0


def test_export_to_an_impossible_place(cache: DiskCache, tmp_path: Path) -> None:
    with pytest.raises(SlangPyRtError, match=r"cannot write the bundle .*; name a file in a writable directory"):
        cache.export(tmp_path / "absent" / "bundle.zip")


@pytest.mark.parametrize("name", ["../{}.bin", "/{}.bin", "{}", "a/{}.bin", "{}.bin/", "..", "x.bin"])
def test_import_refuses_any_other_name(cache: DiskCache, tmp_path: Path, name: str) -> None:
    cache.put(KEY, META, PAYLOAD)
    blob = path_of(cache).read_bytes()
    cache.clear()
    refused(cache, tmp_path, name.format(KEY), blob)


def test_import_refuses_damage_and_swapped_names(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    blob = path_of(cache).read_bytes()
    cache.clear()
    refused(cache, tmp_path, f"{KEY}.bin", blob[:-1])
    refused(cache, tmp_path, f"{OTHER}.bin", blob)
    refused(cache, tmp_path, f"{KEY}.bin", bytes(CAP + 1))


def refused(cache: DiskCache, tmp_path: Path, name: str, blob: bytes) -> None:
    bundle = tmp_path / "bundle.zip"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), blob)
    with pytest.raises(SlangPyRtError, match="is not a whole cache entry"):
        cache.import_(bundle)
    assert names(cache) == []


def test_a_damaged_bundle_imports_the_entry_or_raises(cache: DiskCache, tmp_path: Path) -> None:
    cache.put(KEY, META, PAYLOAD)
    bundle = tmp_path / "bundle.zip"
    cache.export(bundle)
    whole = bundle.read_bytes()
    raised = 0
    for at in range(len(whole)):
        cache.clear()
        bundle.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        try:
            cache.import_(bundle)
        except SlangPyRtError:
            raised += 1
        assert cache.get(KEY) in (None, Entry(META, PAYLOAD)), at
    assert raised > len(whole) // 2


def test_import_refuses_what_is_no_bundle(cache: DiskCache, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a zip")
    for bundle in (tmp_path / "text", tmp_path / "absent"):
        with pytest.raises(SlangPyRtError, match=r"cannot read the bundle .*; expected a file that cache export"):
            cache.import_(bundle)


def test_import_unpacks_nothing_above_the_cap(
    cache: DiskCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile.ZipFile, "read", lambda *args: pytest.fail("unpacked"))
    refused(cache, tmp_path, f"{KEY}.bin", bytes(CAP + 1))

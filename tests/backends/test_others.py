"""Backends of other packages: found by a variable or an entry point, refused in words where they are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.backends import REGISTRY, names
from slangpy_rt.core.config import CONFIG

MODULE = """
from slangpy_rt.backends.base import Backend
from slangpy_rt.backends.null import NullBackend

class Mine(NullBackend):
    name = "mine"

class Absent(Mine):
    @classmethod
    def why_unavailable(cls):
        return "there is none of mine here."

class Partial(Backend):
    name = "mine"
    def alloc(self, nbytes): ...
    def load(self, binary, info): ...

class Empty(Mine):
    def __init__(self, index=0, *, debug=False, deterministic=False): ...

class Unnamed(NullBackend): ...

def function(): ...
"""
SAYS = "SLANGPY_RT_BACKENDS says that the backend 'mine' is"
# Where "mine" is, and why it cannot be opened.
BROKEN = [
    (
        "others_nowhere:Mine",
        f"{SAYS} 'others_nowhere:Mine', which cannot be imported (ModuleNotFoundError: No module named "
        "'others_nowhere'); install it or correct the name",
    ),
    (
        "others_mine:Other",
        f"{SAYS} 'others_mine:Other', which cannot be imported (AttributeError: module 'others_mine' has no "
        "attribute 'Other'); install it or correct the name",
    ),
    (
        "others_wrong:Mine",
        f"{SAYS} 'others_wrong:Mine', which cannot be imported (RuntimeError: not today); install it or correct the "
        "name",
    ),
    ("others_mine", f"{SAYS} 'others_mine'; say 'module:Class' there"),
    (
        "others_mine:function",
        f"{SAYS} 'others_mine:function', which does not derive from slangpy_rt.backends.base.Backend; let it",
    ),
    (
        "others_mine:Partial",
        f"{SAYS} 'others_mine:Partial', which has no clear, close, compile, download, toolchain, upload, "
        "why_unavailable; write it as docs/adding-a-backend.md does",
    ),
    (
        "others_mine:Unnamed",
        f"{SAYS} 'others_mine:Unnamed', whose attribute name is 'null'; make them the same",
    ),
    ("others_mine:Absent", "there is none of mine here"),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path with a module of backends."""
    (tmp_path / "others_mine.py").write_text(MODULE)
    (tmp_path / "others_wrong.py").write_text("raise RuntimeError('not today')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("others_mine", "others_wrong"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def register(monkeypatch: pytest.MonkeyPatch, place: str, name: str = "mine") -> None:
    changed = replace(CONFIG, backends={name: place})
    monkeypatch.setattr("slangpy_rt.backends.others.CONFIG", changed)


def install(folder: Path, lines: str) -> None:
    """Write what installing a package with entry points leaves in a folder."""
    info = folder / "their_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[slangpy_rt.backends]\n{lines}\n")


def reasons() -> dict[str, str | None]:
    return {found.type: found.reason for found in spy.devices()}


def test_by_the_environment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "others_mine:Mine")
    assert names() == [*REGISTRY, "mine"]
    assert reasons()["mine"] is None
    for name in ("mine", "mine:0"):
        with spy.Device(name) as device:
            assert device.name == "mine"
            tensor = spy.Tensor.zeros(device, 3)
            module = spy.Module.load_from_source(device, "others", "float one(float x) { return 1; }")
            assert module.one(tensor).shape == (3,)


def test_by_an_entry_point(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, "mine = others_mine:Mine\nbroken = others_nowhere:Mine")
    with spy.Device("mine") as device:
        assert device.name == "mine"
    assert reasons()["broken"] == (
        "the package their-package says that the backend 'broken' is 'others_nowhere:Mine', which cannot be imported "
        "(ModuleNotFoundError: No module named 'others_nowhere'); install it or correct the name"
    )
    # The environment wins.
    register(monkeypatch, "others_mine:Absent")
    assert reasons()["mine"] == "there is none of mine here"


def test_in_a_process_of_its_own(folder: Path) -> None:
    env = os.environ | {
        "SLANGPY_RT_BACKENDS": "mine=others_mine:Mine",
        "SLANGPY_RT_DEVICE": "mine",
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    program = "import slangpy_rt as spy; print(spy.init_device().name)"
    assert subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True).stdout == "mine\n"


@pytest.mark.parametrize(("place", "reason"), BROKEN, ids=[place for place, _ in BROKEN])
def test_what_cannot_be_opened(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str, reason: str) -> None:
    register(monkeypatch, place)
    assert reasons()["mine"] == reason
    if not place.endswith("Absent"):
        with pytest.raises(spy.UnsupportedError) as caught:
            spy.Device("mine")
        assert str(caught.value) == f"Device: no mine device can be opened here: {reason}."


def test_one_that_opens_without_its_attributes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "others_mine:Empty")
    with pytest.raises(spy.UnsupportedError) as caught:
        spy.Device("mine")
    assert str(caught.value) == (
        "Device: the backend 'mine' of another package has opened without target, caps, description, queue; set each "
        "in Empty.__init__, as docs/adding-a-backend.md shows."
    )


def test_own_names_stay_and_are_not_searched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "others_mine:Mine", "null")

    def search(**_: str) -> None:
        raise AssertionError("a search for a name of slangpy_rt's own")

    monkeypatch.setattr(metadata, "entry_points", search)
    with spy.Device("null") as device:
        assert type(device.backend).__name__ == "NullBackend"
    with pytest.raises(AssertionError, match="a search"):
        spy.Device("mine")


def test_an_unknown_name_lists_theirs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, "others_mine:Mine")
    with pytest.raises(spy.BindError, match="null, mine, automatic, or one with a number"):
        spy.Device("nobody")

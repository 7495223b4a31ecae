"""What a terminal and a notebook show of a long compilation, and that nothing is shown elsewhere."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

import slangpy_rt as spy
from slangpy_rt.runtime import compile_progress
from slangpy_rt.runtime.compile_progress import compiling
from tests.depth import every_device, one_device

pytestmark = one_device


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(compile_progress, "_QUIET", 0.05)
    with compiling("fast", "cpu", "Slang"):
        pass
    assert screen.getvalue() == ""
    with pytest.raises(spy.CompileError), compiling("slow", "cpu", "Slang") as go_on:
        time.sleep(0.2)
        assert screen.getvalue() == "slangpy_rt: compiling slow for cpu by Slang ..."
        go_on("g++")
        raise spy.CompileError("refused")
    by = "slangpy_rt: compiling slow for cpu by"
    assert screen.getvalue().split("\r\x1b[K") == [f"{by} Slang ...", f"{by} g++ ...", ""]


def test_several_share_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(compile_progress, "_QUIET", 0.0)
    monkeypatch.setenv("COLUMNS", "60")
    with compiling("first", "cpu", "Slang"):
        time.sleep(0.05)
        with compiling("second" * 9, "cpu", "g++"):
            time.sleep(0.05)
    shown = screen.getvalue().split("\r\x1b[K")
    assert [line.rstrip(" .") for line in shown] == [
        "slangpy_rt: compiling first for cpu by Slang",
        "slangpy_rt: compiling second for cpu by g++, and 1 more",
        "slangpy_rt: compiling first for cpu by Slang",
        "",
    ]
    assert max(map(len, shown)) == 59


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nobody_looks_on(monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(compile_progress, "_QUIET", 0.0)
    with compiling("slow", "cpu", "Slang"):
        time.sleep(0.05)
    assert stream is None or stream.getvalue() == ""


def test_a_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Any:
        said.append(data["text/plain"])
        return SimpleNamespace(update=lambda data, raw: said.append(data["text/plain"]))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))  # type: ignore[arg-type]
    monkeypatch.setattr(compile_progress, "_QUIET", 0.05)
    with compiling("fast", "cpu", "Slang"):
        pass
    with compiling("slow", "cpu", "Slang") as go_on:
        time.sleep(0.2)
        go_on("g++")
    by = "compiling slow for cpu by"
    assert said == [f"{by} Slang ...", f"{by} g++ ...", "compiling slow for cpu: 0.2 s"]


def test_a_kernel_that_is_compiled(device: spy.Device, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(compile_progress, "_QUIET", 0.0)
    module = spy.Module.load_from_source(device, "shown", f"float shown(float x) {{ return x + {time.time()}; }}")
    assert f"compiling module shown for {device.name} by Slang ..." in screen.getvalue()
    module.shown(1.0)
    assert f"compiling float shown(float x) for {device.name} by Slang ..." in screen.getvalue()
    before = screen.getvalue()
    module.shown([1.0])
    module.shown([2.0])
    assert screen.getvalue().count("by Slang") == before.count("by Slang") + 1


@every_device
@pytest.mark.parametrize("place", ["compile", "load"])
def test_the_compiler_that_takes_long_is_named(
    device: spy.Device, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    work = getattr(device.backend, place)

    def slow(*args: Any) -> Any:
        """Take as long as the line needs to be there."""
        while not screen.getvalue():
            time.sleep(0.01)
        return work(*args)

    module = spy.Module.load_from_source(device, "named", f"float named(float x) {{ return x + {time.time()}; }}")
    module.named(1.0)
    screen.seek(0), screen.truncate()
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(compile_progress, "_QUIET", 0.2)
    monkeypatch.setattr(device.backend, place, slow)
    module.named([1.0])
    compiler = device.backend.compilers_of(device.backend.target)[["compile", "load"].index(place)]
    shown = screen.getvalue()
    assert f"slangpy_rt: compiling float named(float x) for {device.name} by {compiler} ..." in shown
    assert shown.endswith("\r\x1b[K")

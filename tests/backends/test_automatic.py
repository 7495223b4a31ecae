"""Which device ``automatic`` opens on which system, with backends that only say whether they are there."""

from __future__ import annotations

import sys

import pytest

from slangpy_rt.backends import AUTOMATIC, REGISTRY, selection
from slangpy_rt.backends.rhi import device as _rhi_device
from slangpy_rt.core.errors import DeviceError, UnsupportedError


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are tried, none of which opens."""
    names: list[str] = []

    def refuse(name: str) -> type:
        class Refusing:
            def __init__(self, *args: object, **named: object) -> None:
                names.append(name)
                raise DeviceError("none")

            @classmethod
            def why_unavailable(cls) -> str:
                return "not here"

        return Refusing

    monkeypatch.setattr(selection, "backend_class", refuse)
    return names


def test_the_order(tried: list[str]) -> None:
    with pytest.raises(UnsupportedError, match="none can be opened on this machine; `python -m slangpy_rt doctor`"):
        selection.open_backend("automatic", 0, False)
    assert tried == list(AUTOMATIC)
    # CUDA first; what a system's own API is before what has to be installed there; the CPU last.
    assert tried[0] == "cuda" and tried[-1] == "cpu"
    assert tried.index("metal") < tried.index("vulkan")
    # Elsewhere it is Vulkan behind another library.
    assert ("d3d12" in tried) == (sys.platform == "win32")
    assert "d3d12" not in tried or tried.index("d3d12") < tried.index("vulkan")


def test_who_wants_slang_rhi_or_nothing_says_so() -> None:
    others = {"null", "rhi-vulkan", "rhi-cuda", "rhi-d3d12", "rhi-vulkan-handles"}
    assert set(REGISTRY) - set(AUTOMATIC) - {"d3d12"} == others


@pytest.mark.parametrize(("system", "kind"), [("linux", "metal"), ("win32", "metal"), ("linux", "d3d12")])
def test_an_api_of_another_system(monkeypatch: pytest.MonkeyPatch, system: str, kind: str) -> None:
    monkeypatch.setattr(sys, "platform", system)
    reason = _rhi_device.why_missing(kind)
    assert reason is not None and ("macOS" if kind == "metal" else "Windows") in reason


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rhi_device, "find_spec", lambda name: None)
    assert _rhi_device.why_missing("vulkan") == "the slangpy package is not installed; pip install slangpy"


@pytest.mark.parametrize(
    ("kind", "entry", "features", "message"),
    [
        ("vulkan", "pointer", set(), ""),
        ("cuda", "pointer", set(), ""),
        ("d3d12", "handle", {"bindless", "int64"}, ""),
        ("d3d12", "handle", {"bindless"}, "64-bit integers"),
        ("d3d12", "handle", {"residency_set"}, "shader model 6.6"),
        ("vulkan", "handle", set(), "no bindless descriptors"),
        ("metal", "pointer", {"residency_set"}, ""),
        ("metal", "pointer", {"bindless"}, "macOS 15"),
    ],
)
def test_what_kernels_cannot_do_without(kind: str, entry: str, features: set[str], message: str) -> None:
    reason = _rhi_device.why_unfit(kind, entry, features)
    assert message in reason and bool(reason) == bool(message)


def test_every_backend_has_a_device_type() -> None:
    assert [kind.value for kind in selection.DeviceType if kind.value != "automatic"] == list(REGISTRY)

"""A function without a return on some path, and functions that C++ lacks, are refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs, sampled
from tests.lanes_off import without_lanes

CALL = "\nfloat f(float x) { return g(x); }"
X = np.array([1.0, 6.0], np.float32)


def load(device: spy.Device, name: str, text: str) -> spy.Module:
    return spy.Module.load_from_source(device, name, text)


def test_missing_return(device: spy.Device) -> None:
    if device.name == "rhi-cuda":
        pytest.skip("slang-rhi compiles CUDA by itself")
    module = load(device, "missing_return", "float g(float x) { if (x > 5) return 1; }" + CALL)
    with pytest.raises(spy.CompileError, match=r"non-void function|(g|a function) ends without a return"):
        module.f(X)


@sampled(2)
@pytest.mark.parametrize(
    "body",
    [
        "for (;;) { x = x * 2; if (x > 100) return x; }",
        "do { x = x * 2; if (x > 100) return x; } while (true);",
        "switch (int(x)) { case 1: return 128; default: do { return 192; } while (true); }",
        "if (x < 2) { for (int i = 0; i < 9; i++) if (x * (1 << i) > 100) return x * (1 << i); return 0; }"
        " else { return 192; }",
    ],
)
def test_every_path_returns(device: spy.Device, body: str) -> None:
    """A compiler that warns too often would refuse these."""
    module = load(device, f"returns_{len(body)}", f"float g(float x) {{ {body} }}" + CALL)
    np.testing.assert_array_equal(module.f(X), np.array([128, 192], np.float32))


# Between threads: for devices with waves, in groups of four.
@needs("C++")
@pytest.mark.parametrize("call", ["ddx(x)", "ddy(x)"])
def test_functions_of_other_devices(device: spy.Device, call: str) -> None:
    module = load(device, f"lacking_{call[:3]}", f"float f(float x) {{ return {call}; }}")
    with pytest.raises(spy.UnsupportedError, match=f"uses {call[:3]}, which Slang writes into C\\+\\+"):
        module.f(X)


@needs("C++")  # Slang checks the entry points of other targets for functions that they lack
@pytest.mark.parametrize(
    ("statement", "used"),
    [
        ("if (x > 1) y += t.Gather(s, x).x;", "Gather of a texture"),
        ("for (int i = 0; i < 2; ++i) y += t.GatherGreen(s, x).x;", "GatherGreen of a texture"),
        ("y += t.CalculateLevelOfDetail(s, x);", "CalculateLevelOfDetail of a texture"),
        ("y += foreign(x);", "foreign, of which there is text for other devices alone"),
        ("if (x > 1) y += within(x);", "foreign, of which there is text for other devices alone"),
    ],
)
def test_what_is_inlined_is_not_left_out(
    device: spy.Device, statement: str, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Slang leaves out an inlined function without text for C++, and with it the statements around the call."""
    without_lanes(device, monkeypatch)
    module = load(
        device, f"left_out_{len(statement)}",
        "[ForceInline] float foreign(float x) { __target_switch { case cuda: return x; case spirv: return x; } }\n"
        "[ForceInline] float within(float x) { return 1 + foreign(x); }\n"
        f"void f(Texture2D<float4> t, SamplerState s, float x, inout float y) {{ y += 1; {statement} y *= 2; }}",
    )  # fmt: skip
    texture = spy.Texture.from_numpy(device, np.ones((2, 2, 4), np.float32))
    y = np.ones_like(X)
    with pytest.raises(spy.UnsupportedError, match=f"^the function uses {used}"):
        module.f(texture, {}, X, y)
    assert (y == 1).all()


@needs("C++")  # Slang checks the entry points of other targets for functions that they lack
def test_switches_that_are_included(device: spy.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_lanes(device, monkeypatch)
    switch = "[ForceInline] float {}(float x) {{ __target_switch {{ case cuda: return 3 * x; {} }} }}\n"
    (tmp_path / "included.slang").write_text(
        switch.format("foreign", "case spirv: return x;") + switch.format("known", "default: return 2 * x;")
    )
    (tmp_path / "with_switches.slang").write_text(
        '#include "included.slang"\n'
        "float f(float x) { float y = 1; if (x > 1) y = foreign(x); return y; }\n"
        "float g(float x, RWTensor<int, 1> count) { InterlockedAdd(count[0], 1); return known(x); }\n"
    )
    module = spy.Module.load_from_file(device, tmp_path / "with_switches.slang")
    with pytest.raises(spy.UnsupportedError, match=r"^the function uses foreign, of which there is text for other"):
        module.f(X)
    count = spy.Tensor.zeros(device, (1,), "int")
    np.testing.assert_array_equal(np.asarray(module.g(X, count)), 2 * X)
    assert count.to_numpy()[0] == len(X)


@needs("C++")  # Vulkan and CUDA have clocks of their own
def test_clock(device: spy.Device) -> None:
    module = load(device, "clock", "uint f(float x) { return getRealtimeClockLow(); }")
    first = module.f(X)
    assert module.f(X)[0] != first[0]

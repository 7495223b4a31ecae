"""Every intrinsic of Slang's core module that takes numbers, on every device, against docs/intrinsics.md.

One kernel for each scalar type computes all of them; ``_intrinsics.py`` has them and writes the document.
"""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance import _intrinsics
from tests.depth import one_in, sampled

TABLES = _intrinsics.read(_intrinsics.DOCUMENT.read_text("utf-8"))


@sampled(6)
@pytest.mark.parametrize("name", one_in(2, _intrinsics.TYPES))
def test_within_what_is_documented(device: spy.Device, name: str, pytestconfig: pytest.Config) -> None:
    table = _intrinsics.cells(TABLES[name], device)
    if not table:
        pytest.skip(f"docs/intrinsics.md has no column of {device.name}")
    assert set(table) == {i.name for i in _intrinsics.of(name)}
    if name not in device.caps.scalars:
        assert set(table.values()) == {"refused"}
        return
    together = [i for i in _intrinsics.of(name) if table[i.name] != "refused"]
    found = _intrinsics.results(device, name, together) if together else {}
    if name in _intrinsics.FLOATS and "vulkan" in device.name:
        # Drivers differ. Of double the table says what our own functions do on all of them.
        units = {key: _intrinsics.bound(cell) if name == "double" else 0 for key, cell in table.items()}
        over = {key: _intrinsics.excess(name, key, *pair, units[key]) for key, pair in found.items()}
        over = {key: times for key, times in over.items() if times > 1}
        assert not over, f"times as far off as allowed: {over}"
    else:
        # Functions of float and half are as exact as the library of the GPU makes them.
        slack = 1 if name not in ("half", "float") or device.backend.target.format == "cpp" else 2
        off = {key: float(_intrinsics.difference(*pair).max()) for key, pair in found.items()}
        over = {key: (off[key], table[key]) for key in off if off[key] > slack * _intrinsics.bound(table[key])}
        assert not over, f"units in the last place, and what the document promises: {over}"
    refused = [i for i in _intrinsics.of(name) if table[i.name] == "refused"]
    for intrinsic in refused if pytestconfig.getoption("--long") else refused[:3]:
        with pytest.raises((spy.CompileError, spy.UnsupportedError)):
            _intrinsics.errors(device, name, [intrinsic])


@pytest.mark.parametrize("name", ["half", "float"])
def test_what_vulkan_does_not_allow(name: str) -> None:
    x = _intrinsics.widened(name)
    dtype = np.dtype(_intrinsics.TYPES[name])

    def times(key: str, wanted: np.ndarray, off: float) -> float:
        """``off`` in units of the last place of the nearest number."""
        near = wanted.astype(dtype)
        return _intrinsics.excess(name, key, (near + np.asarray(off, dtype) * np.spacing(np.abs(near))), wanted)

    for key, wanted, units in (("+", x["x"] + x["y"], 2), ("/", x["x"] / x["p"], 4), ("sqrt", np.sqrt(x["p"]), 12)):
        assert times(key, wanted, 0) <= 1 < times(key, wanted, units)
    cosine = np.cos(x["u"])
    absolute = 2.0**-7 if name == "half" else 2.0**-11
    assert _intrinsics.excess(name, "cos", (cosine + 0.9 * absolute).astype(dtype), cosine) <= 1
    assert _intrinsics.excess(name, "cos", (cosine + 1.1 * absolute).astype(dtype), cosine) > 1
    for key, wanted in (("abs", np.abs(x["x"])), ("cross", x["z"] * x["p"] - x["x"] * x["g"])):
        assert _intrinsics.excess(name, key, np.full_like(wanted, np.nan, dtype), wanted) > 1
        assert _intrinsics.excess(name, key, (wanted * 1.01).astype(dtype), wanted) > 1

"""firstbitlow of every number of 8 and 16 bits, and bit fields: right, or refused by name before the launch."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import sampled

TYPES = {"int8_t": "i1", "uint8_t": "u1", "int16_t": "i2", "uint16_t": "u2"}


@sampled(4)
@pytest.mark.parametrize("name", TYPES)
def test_first_bit(device: spy.Device, name: str) -> None:
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")
    text = f"uint one({name} x) {{ return firstbitlow(x); }}\n"
    text += f"uint3 three(vector<{name}, 3> x) {{ return firstbitlow(x); }}\n"
    module = spy.Module.load_from_source(device, f"first_bit_{name}", text)
    info = np.iinfo(TYPES[name])
    x = np.arange(info.min, info.max + 1).astype(TYPES[name])[: (1 << info.bits) // 3 * 3]
    if device.backend.target.program and device.backend.target.format == "spirv":
        for function in (module.one, module.three):
            with pytest.raises(spy.UnsupportedError, match="firstbitlow of 8 or 16 bits"):
                function(x.reshape(-1, 3))
        return
    wanted = np.array([(int(v) & -int(v)).bit_length() - 1 if v else 0xFFFFFFFF for v in x])
    assert np.array_equal(module.one(x), wanted)
    assert np.array_equal(module.three(x.reshape(-1, 3)).reshape(-1), wanted)


@sampled(2)
@pytest.mark.parametrize("name", ["int64_t", "vector<uint64_t, 2>"])
def test_bit_fields_of_64_bits(device: spy.Device, name: str) -> None:
    if "int64_t" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no int64_t")
    text = f"{name} extract({name} x) {{ return bitfieldExtract(x, 30, 5); }}\n"
    text += f"{name} insert({name} x) {{ return bitfieldInsert(x, {name}(3), 40, 2); }}\n"
    module = spy.Module.load_from_source(device, "bit_fields", text)
    x = np.array([[5 << 30, 1 << 62]], "i8" if name == "int64_t" else "u8")
    if device.backend.target.format == "spirv" and device.backend.range_target is None:
        with pytest.raises(spy.UnsupportedError, match="uses bitfieldExtract"):
            module.extract(x)
        with pytest.raises(spy.UnsupportedError, match="uses bitfieldInsert"):
            module.insert(x)
        return
    assert module.extract(x).tolist() == [[5, 0]]
    assert module.insert(x).tolist() == [[(5 << 30) + (3 << 40), (1 << 62) + (3 << 40)]]

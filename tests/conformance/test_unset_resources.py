"""Resources that a kernel cannot have, and ``debugBreak``, are refused; the process and the device live on."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import sampled

BODIES = {
    "texture": "Texture2D<float> t; return t.Load(int3(0)) + x;",
    "sampler": "Texture2D<float4> t; SamplerState s; return t.SampleLevel(s, float2(x), 0).x;",
    "buffer": "Buffer<float> t; return t[0] + x;",
    "written_buffer": "RWBuffer<float> t; t[0] = x; return x;",
    "written_texture": "RWTexture2D<float> t; t[uint2(0)] = x; return x;",
    "member": "Named n; n.v = x; return n.t.Load(int3(0)) + n.v;",
    "descriptor": "DescriptorHandle<Texture2D<float>> t; return t.Load(int3(0)) + x;",
    "numbered": "let t = DescriptorHandle<Texture2D<float>>(uint2(3, 0)); return t.Load(int3(0)) + x;",
    "record": "return record.v + x;",
    "break": "debugBreak(); return x;",
}
# On the CPU, Slang writes no text for typed buffers, and C++ has no heap of descriptors.
REASON = (
    "nothing has set|nothing can fill|text for other devices|debugBreak|no member named 'Load'"
    "|unavailable features|without a return"
)
TYPES = """
struct Record { float v; };
struct Named { Texture2D<float> t; float v; };
"""


@sampled(2)
@pytest.mark.parametrize("name", BODIES)
def test_refused(device: spy.Device, name: str) -> None:
    text = TYPES + ("[[vk::shader_record]] ConstantBuffer<Record> record;\n" if name == "record" else "")
    module = spy.Module.load_from_source(device, f"unset_{name}", f"{text}float f(float x) {{ {BODIES[name]} }}")
    x = np.arange(4, dtype=np.float32)
    with pytest.raises((spy.UnsupportedError, spy.CompileError), match=REASON):
        module.f(x)
    after = spy.Module.load_from_source(device, "unset_after", "float g(float x) { return x + 1; }")
    np.testing.assert_array_equal(after.g(x), x + 1)


def test_unused_member_runs(device: spy.Device) -> None:
    text = TYPES + "float f(float x) { Named n; n.v = x; return n.v; }"
    module = spy.Module.load_from_source(device, "unset_unused", text)
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(module.f(x), x)

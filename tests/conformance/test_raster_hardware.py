"""Which triangle each pixel shows, and how far it is, beside a render pipeline of slangpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import deep, needs, one_device

pytestmark = [deep, one_device]

SIZE = (96, 128)
HARDWARE = """
StructuredBuffer<float4> corners;
StructuredBuffer<uint> faces;
struct Varying { float4 position : SV_Position; }
[shader("vertex")]
Varying vertexMain(uint id : SV_VertexID) { return { corners[faces[id]] }; }
[shader("fragment")]
float4 fragmentMain(Varying v, uint number : SV_PrimitiveID) : SV_Target
{
    return float4(number + 1, v.position.z, 0, 1);
}
"""


@needs("uint64_t")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_what_a_render_pipeline_shows(device: spy.Device, seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 150
    w = rng.uniform(0.5, 2, (count, 3, 1))
    spread = 0.01 * 30 ** rng.random((count, 1, 1))
    xy = (rng.uniform(-1.1, 1.1, (count, 1, 2)) + spread * rng.normal(size=(count, 3, 2))) * w
    at = np.concatenate([xy, rng.uniform(0.05, 0.95, (count, 3, 1)) * w, w], -1).reshape(-1, 4).astype(np.float32)
    faces = np.arange(3 * count, dtype=np.int32).reshape(-1, 3)
    theirs = _by_hardware(at, faces)
    seen = spy.graphics.rasterize(spy.Tensor.from_numpy(device, at, "float4"), faces, SIZE).numpy()
    covered = theirs[..., 0] > 0
    assert 0.2 < covered.mean() < 0.9 and len(np.unique(theirs[..., 0])) > 50
    # Both round corners to 256ths of a pixel, from products that may be fused: a side may lie a 256th further.
    assert ((seen[..., 3] > 0) != covered).mean() < 1e-3
    same = seen[..., 3] == theirs[..., 0]
    assert (same | ~covered).mean() > 0.999
    # NVIDIA's hardware takes depths of rounded corners too: slopes, per pixel, tell what half of a 256th makes.
    off = np.abs(seen[..., 2] - theirs[..., 1])
    slopes = _slopes(at, faces)[np.maximum(theirs[..., 0].astype(int) - 1, 0)]
    assert (off <= 1e-4 + slopes / 256)[same & covered].all()


def _slopes(at: npt.NDArray[np.float32], faces: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """How much the depth of each triangle changes from pixel to pixel, along rows and columns together."""
    corners = (at[:, :3] / at[:, 3:]).astype(np.float64)[faces]
    corners[..., :2] *= np.array(SIZE[::-1]) / 2
    sides = corners[:, 1:] - corners[:, :1]
    normals = np.cross(sides[:, 0], sides[:, 1])
    found: npt.NDArray[np.float64] = np.abs(normals[:, :2] / normals[:, 2:]).sum(1)
    return found


def _by_hardware(at: npt.NDArray[np.float32], faces: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """Numbers of triangles, from 1 on, and depths."""
    sp: Any = pytest.importorskip("slangpy")
    try:
        device = sp.Device(type=sp.DeviceType.vulkan, enable_rhi_validation=False, enable_hot_reload=False)
    except RuntimeError as error:
        pytest.skip(f"slangpy has no Vulkan device here: {error}")
    module = device.load_module_from_source("test_raster_hardware", HARDWARE)
    program = device.link_program([module], [module.entry_point("vertexMain"), module.entry_point("fragmentMain")])
    pipeline = device.create_render_pipeline(
        program=program,
        input_layout=None,
        targets=[{"format": sp.Format.rgba32_float}],
        depth_stencil={
            "format": sp.Format.d32_float, "depth_test_enable": True, "depth_write_enable": True,
            "depth_func": sp.ComparisonFunc.less,
        },
    )  # fmt: skip
    rows, columns = SIZE
    usage = sp.TextureUsage
    image, depths = (
        device.create_texture(format=format, width=columns, height=rows, usage=how)
        for format, how in (
            (sp.Format.rgba32_float, usage.render_target | usage.copy_source),
            (sp.Format.d32_float, usage.depth_stencil),
        )
    )
    buffers = {
        name: device.create_buffer(data=data, struct_size=stride, usage=sp.BufferUsage.shader_resource)
        for name, data, stride in (("corners", at, 16), ("faces", faces.astype(np.uint32), 4))
    }
    encoder = device.create_command_encoder()
    target = {"view": image.create_view({}), "clear_value": [0.0, 0.0, 0.0, 0.0]}
    depth = {"view": depths.create_view({}), "depth_clear_value": 1.0}
    with encoder.begin_render_pass({"color_attachments": [target], "depth_stencil_attachment": depth}) as render:
        cursor = sp.ShaderCursor(render.bind_pipeline(pipeline))
        for name, buffer in buffers.items():
            cursor[name] = buffer
        place = {"viewports": [sp.Viewport.from_size(columns, rows)]}
        render.set_render_state(place | {"scissor_rects": [sp.ScissorRect.from_size(columns, rows)]})
        render.draw({"vertex_count": faces.size})
    device.submit_command_buffer(encoder.finish())
    device.wait_for_idle()
    found: npt.NDArray[np.float32] = image.to_numpy()
    device.close()
    return found

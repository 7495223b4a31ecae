"""Pictures of triangles: a knot that hides parts of itself, shaded by a light.

- "draw": milliseconds of a picture without antialiasing, from arrays on the device until it is done. The peer is a
  vertex and a fragment shader with a depth buffer of slangpy's: the graphics hardware, or Mesa's rasterizer.
- "antialiased": the same with silhouettes found and mixed.
- "draw, bwds": an antialiased picture, and the gradients of corners, pose and light of it.
- "list": the same two from a command list that is submitted again.
- "steps": corners, points, normals and silhouettes by `spy.graphics`, and their gradients, from a command list.
- "silhouettes, bwds": the last of these steps alone, `spy.graphics.antialias`, and its gradients, by calls. The
  numbers of triangles are a NumPy array, whose edges are found once.
- "silhouettes, list": the same from a command list, and the numbers a Tensor, whose edges are found each time.

nvdiffrast makes all but the lists on CUDA, where it is installed: three of its operations, and PyTorch's for the
corners, the light and their gradients.

The floor is the time to write the picture and its words once, by a copy of as many bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from _common import OURS, Bench, whole

import slangpy_rt as spy

TEXT = """
struct Corner : IDifferentiable { float4 position; float3 normal; }
[Differentiable]
float3 turned(float3 v, float2 angle)
{
    let a = float3(cos(angle.x) * v.x + sin(angle.x) * v.z, v.y, cos(angle.x) * v.z - sin(angle.x) * v.x);
    return float3(a.x, cos(angle.y) * a.y - sin(angle.y) * a.z, sin(angle.y) * a.y + cos(angle.y) * a.z);
}
[Differentiable]
Corner project(float3 at, float3 normal, float2 angle)
{
    let place = turned(at, angle);
    Corner c;
    c.position = float4(2.4 * place.xy, (4 - place.z) * (10.0 / 9), 5 - place.z);
    c.normal = turned(normal, angle);
    return c;
}
[Differentiable]
float4 shade(Corner c, float3 light) { return float4(float3(max(dot(normalize(c.normal), light), 0.05)), 1); }
"""
HARDWARE = """
StructuredBuffer<float3> corners;
StructuredBuffer<float3> normals;
StructuredBuffer<uint> faces;
uniform float2 angle;
uniform float3 light;
struct Varying { float4 position : SV_Position; float3 normal : NORMAL; }
float3 turned(float3 v, float2 angle)
{
    let a = float3(cos(angle.x) * v.x + sin(angle.x) * v.z, v.y, cos(angle.x) * v.z - sin(angle.x) * v.x);
    return float3(a.x, cos(angle.y) * a.y - sin(angle.y) * a.z, sin(angle.y) * a.y + cos(angle.y) * a.z);
}
[shader("vertex")]
Varying vertexMain(uint id : SV_VertexID)
{
    let k = faces[id];
    let place = turned(corners[k], angle);
    Varying v;
    v.position = float4(2.4 * place.xy, (4 - place.z) * (10.0 / 9), 5 - place.z);
    v.normal = turned(normals[k], angle);
    return v;
}
[shader("fragment")]
float4 fragmentMain(Varying v) : SV_Target
{
    return float4(float3(max(dot(normalize(v.normal), light), 0.05)), 1);
}
"""
ANGLE, LIGHT = (0.6, -0.4), (0.36, 0.48, 0.8)
# Triangles around the knot and around its tube, and rows and columns of the picture.
CASES = {"40k triangles, 512": (400, 50, 512), "1M triangles, 1024": (5000, 100, 1024)}

Arrays = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.int32]]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("raster", __doc__ or "")
    for name in bench.devices:
        for case, (around, section, size) in list(CASES.items())[: 1 if bench.quick else None]:
            _measure(bench, name, case, knot(around, section), size)
        bench.save()
    return bench.finish()


def knot(around: int, section: int) -> Arrays:
    """A tube along a trefoil: corners, normals and triangles."""
    t = 2 * np.pi * np.arange(around) / around
    middle = np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], 1) * 0.42
    along = np.roll(middle, -1, 0) - np.roll(middle, 1, 0)
    side = np.cross(along, [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(side, along)
    up /= np.linalg.norm(up, axis=1, keepdims=True)
    angle = 2 * np.pi * np.arange(section) / section
    normals = side[:, None] * np.cos(angle)[:, None] + up[:, None] * np.sin(angle)[:, None]
    corners = middle[:, None] + 0.24 * normals
    a = np.arange(around * section).reshape(around, section)
    b = np.roll(a, -1, 0)
    c, d = np.roll(a, -1, 1), np.roll(b, -1, 1)
    faces = np.concatenate([np.stack(x, -1).reshape(-1, 3) for x in ((a, b, c), (b, d, c))])
    return *(x.reshape(-1, 3).astype(np.float32) for x in (corners, normals)), faces.astype(np.int32)  # type: ignore[return-value]


def _measure(bench: Bench, name: str, case: str, mesh: Arrays, size: int) -> None:
    with spy.Device(name) as device:
        module = spy.Module.load_from_source(device, "raster_benchmark", TEXT)
        corners, normals, faces = mesh
        given: dict[str, Any] = {
            "at": spy.Tensor.from_numpy(device, corners, "float3").with_grads(),
            "normal": spy.Tensor.from_numpy(device, normals, "float3"),
            "angle": spy.Tensor.from_numpy(device, np.array([ANGLE], np.float32), "float2").with_grads(),
            "light": spy.Tensor.from_numpy(device, np.array([[LIGHT]], np.float32), "float3").with_grads(),
            "_faces": spy.Tensor.from_numpy(device, faces),
        }
        plain = module.shade.raster(module.project, (size, size), antialias=False)
        draw = module.shade.raster(module.project, (size, size))
        into = spy.Tensor.zeros(device, (size, size), "float4").with_grads()
        into.grad.copy_from(np.random.default_rng(0).normal(size=(size, size, 4)).astype(np.float32))
        commands = device.command_list()
        draw.append_to(commands, **given, _result=into)
        draw.bwds.append_to(commands, **given, _result=into)
        words = spy.Tensor.zeros(device, (size, size, 6))
        steps, silhouettes, called = _steps(device, module, given, faces, (size, size))

        def step() -> None:
            draw(**given, _result=into)
            draw.bwds(**given, _result=into)

        wait = device.synchronize
        peers: dict[str, Callable[[], float]] = {}
        runs: dict[str, Callable[[], Any]] = {
            "draw": lambda: plain(**given, _result=into),
            "antialiased": lambda: draw(**given, _result=into),
            "draw, bwds": step,
            "list": commands.submit,
            "steps": steps.submit,
            "silhouettes, bwds": called,
            "silhouettes, list": silhouettes.submit,
            "floor": words.clear,
        }
        for title, run in runs.items():
            run()
            wait()
            samplers = {OURS: whole(run, wait, 1 if name == "cpu" else 20, 1e3)}
            if title == "draw":
                try:
                    samplers["slangpy, hardware"] = _hardware(mesh, size, into.to_numpy())
                except Exception as error:  # whatever the other library raises is no reason to stop
                    bench.miss(name, "slangpy, hardware", f"{type(error).__name__}: {error}")
                if name == "cuda":
                    try:
                        peers = _nvdiffrast(mesh, size, into.to_numpy(), into.grad.to_numpy())
                    except Exception as error:
                        bench.miss(name, "nvdiffrast", f"{type(error).__name__}: {error}")
            if title in peers:
                samplers["nvdiffrast"] = peers[title]
            bench.compare(name, f"{title}, {case}", "ms", samplers)


def _steps(
    device: spy.Device, module: Any, given: dict[str, Any], numbers: npt.NDArray[np.int32], size: tuple[int, int]
) -> tuple[spy.CommandList, spy.CommandList, Callable[[], None]]:
    """A command list of single steps and of their derivatives, one of the last step, and a function that calls it."""
    graphics = spy.graphics
    faces, normals = given["_faces"], given["normal"].detach().with_grads()
    corners = module.project(
        given["at"].detach(), given["normal"].detach(), given["angle"].detach(), _result="tensor"
    )
    position = corners["position"].copy().with_grads()
    commands, last = device.command_list(), device.command_list()
    seen = graphics.rasterize.append_to(commands, position, faces, size).with_grads()
    color = graphics.interpolate.append_to(commands, normals, seen, faces).with_grads()
    picture = graphics.antialias.append_to(commands, color, seen, position, faces).with_grads()
    picture.grad.copy_from(np.random.default_rng(0).normal(size=(*size, 3)).astype(np.float32))
    for array in (color, seen):
        commands.clear(array.grad)
    graphics.antialias.bwds.append_to(commands, color, seen, position, faces, _result=picture)
    graphics.interpolate.bwds.append_to(commands, normals, seen, faces, _result=color)
    graphics.rasterize.bwds.append_to(commands, position, faces, size, _result=seen)
    commands.submit()
    graphics.antialias.append_to(last, color, seen, position, faces, _result=picture)
    graphics.antialias.bwds.append_to(last, color, seen, position, faces, _result=picture)

    def called() -> None:
        graphics.antialias(color, seen, position, numbers, _result=picture)
        graphics.antialias.bwds(color, seen, position, numbers, _result=picture)

    return commands, last, called


def _nvdiffrast(
    mesh: Arrays, size: int, ours: npt.NDArray[np.float32], slopes: npt.NDArray[np.float32]
) -> dict[str, Callable[[], float]]:
    """Samplers of the same pictures by nvdiffrast and PyTorch, by title; it checks the picture first."""
    import nvdiffrast.torch as dr
    import torch

    context = dr.RasterizeCudaContext()
    corners, normals, faces = (torch.tensor(part, device="cuda") for part in mesh)
    angle, light = (torch.tensor(part, device="cuda", requires_grad=True) for part in (ANGLE, LIGHT))
    weights = torch.tensor(slopes[None], device="cuda")
    edges = dr.antialias_construct_topology_hash(faces)
    corners.requires_grad_()

    def turned(v: Any) -> Any:
        (x, y, z), (a, b) = v.unbind(-1), angle
        x, z = a.cos() * x + a.sin() * z, a.cos() * z - a.sin() * x
        return torch.stack([x, b.cos() * y - b.sin() * z, b.sin() * y + b.cos() * z], -1)

    def picture(antialias: bool) -> Any:
        x, y, z = turned(corners).unbind(-1)
        position = torch.stack([2.4 * x, 2.4 * y, (4 - z) * (10 / 9), 5 - z], -1)[None]
        seen, _ = dr.rasterize(context, position, faces, (size, size), grad_db=False)
        normal, _ = dr.interpolate(turned(normals)[None], seen, faces)
        shade = (torch.nn.functional.normalize(normal, dim=-1) * light).sum(-1, keepdim=True).clamp(min=0.05)
        color = torch.cat([shade.expand(-1, -1, -1, 3), torch.ones_like(shade)], -1) * (seen[..., 3:] > 0)
        return dr.antialias(color, seen, position, faces, topology_hash=edges) if antialias else color

    def forward(antialias: bool) -> None:
        with torch.no_grad():
            picture(antialias)

    def step() -> None:
        corners.grad = angle.grad = light.grad = None
        picture(True).backward(weights)

    with torch.no_grad():
        theirs = picture(False)[0].flip(0).cpu().numpy()
        x, y, z = turned(corners).unbind(-1)
        position = torch.stack([2.4 * x, 2.4 * y, (4 - z) * (10 / 9), 5 - z], -1)[None]
        seen, _ = dr.rasterize(context, position, faces, (size, size), grad_db=False)
        color, _ = dr.interpolate(turned(normals)[None], seen, faces)
    position.requires_grad_()
    color.requires_grad_()

    def silhouettes() -> None:
        position.grad = color.grad = None
        dr.antialias(color, seen, position, faces, topology_hash=edges).backward(weights[..., :3])

    off = np.abs(theirs - ours).max(axis=-1) > 1e-2
    if off.mean() > 0.01:
        raise RuntimeError(f"{off.mean():.1%} of its pixels differ from ours")
    runs = {
        "draw": lambda: forward(False),
        "antialiased": lambda: forward(True),
        "draw, bwds": step,
        "silhouettes, bwds": silhouettes,
    }
    return {title: whole(run, torch.cuda.synchronize, 20, 1e3) for title, run in runs.items()}


def _hardware(mesh: Arrays, size: int, ours: npt.NDArray[np.float32]) -> Callable[[], float]:
    """A sampler of the same picture by slangpy's render pipeline on Vulkan; it checks the picture first."""
    import slangpy

    device = slangpy.Device(type=slangpy.DeviceType.vulkan)
    module = device.load_module_from_source("raster_benchmark_hardware", HARDWARE)
    program = device.link_program([module], [module.entry_point("vertexMain"), module.entry_point("fragmentMain")])
    target, depth = slangpy.Format.rgba32_float, slangpy.Format.d32_float
    pipeline = device.create_render_pipeline(
        program=program,
        input_layout=None,
        targets=[{"format": target}],
        depth_stencil={
            "format": depth, "depth_test_enable": True, "depth_write_enable": True,
            "depth_func": slangpy.ComparisonFunc.less,
        },
    )  # fmt: skip
    usage = slangpy.TextureUsage
    image = device.create_texture(
        format=target, width=size, height=size, usage=usage.render_target | usage.copy_source
    )
    depths = device.create_texture(format=depth, width=size, height=size, usage=usage.depth_stencil)
    corners, normals, faces = mesh
    buffers = {
        name: device.create_buffer(data=data, struct_size=stride, usage=slangpy.BufferUsage.shader_resource)
        for name, data, stride in (
            ("corners", corners, 12),
            ("normals", normals, 12),
            ("faces", faces.astype(np.uint32), 4),
        )
    }

    def run() -> None:
        encoder = device.create_command_encoder()
        with encoder.begin_render_pass(
            {
                "color_attachments": [{"view": image.create_view({}), "clear_value": [0.0, 0.0, 0.0, 0.0]}],
                "depth_stencil_attachment": {"view": depths.create_view({}), "depth_clear_value": 1.0},
            }
        ) as render:
            cursor = slangpy.ShaderCursor(render.bind_pipeline(pipeline))
            for name, buffer in buffers.items():
                cursor[name] = buffer
            cursor["angle"], cursor["light"] = slangpy.float2(*ANGLE), slangpy.float3(*LIGHT)
            render.set_render_state(
                {
                    "viewports": [slangpy.Viewport.from_size(size, size)],
                    "scissor_rects": [slangpy.ScissorRect.from_size(size, size)],
                }
            )
            render.draw({"vertex_count": faces.size})
        device.submit_command_buffer(encoder.finish())

    run()
    device.wait_for_idle()
    theirs = image.to_numpy()
    off = np.abs(theirs - ours).max(axis=-1) > 1e-2
    if off.mean() > 0.01:
        raise RuntimeError(f"{off.mean():.1%} of its pixels differ from ours")
    return whole(run, device.wait_for_idle, 5, 1e3)


if __name__ == "__main__":
    sys.exit(main())

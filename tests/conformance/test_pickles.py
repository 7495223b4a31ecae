"""Pickles of arrays, devices, modules and functions, and of PyTorch's modules that hold functions."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, needs, one_device

# What these test depends little on the device.
pytestmark = one_device

TEXT = """
struct Part { float3 position; int id; float[2] more; }
uniform float scale;
extern static const int count = 2;
float add(float a, float b) { return a + b * scale * count; }
float far(Part p) { return p.position.x + p.id + p.more[1]; }
struct Light { float power; float shine(float x) { return power * x; } }
[Differentiable] float grow(float x, float weight) { return x * weight * weight; }
[numthreads(4, 1, 1)]
void fill(uint3 id : SV_DispatchThreadID, RWStructuredBuffer<float> data, float value) { data[id.x] = value; }
"""


def again(value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Any:
    """A value through a pickle."""
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dtype", ["float", "half", "int", "uint8_t", "bool", "float3", "float2x3", "int[3]"])
def test_tensors(device: spy.Device, dtype: str, protocol: int) -> None:
    like = spy.Tensor.zeros(device, (2, 3), dtype).to_numpy()
    values = np.random.default_rng(1).integers(0, 2, like.shape).astype(like.dtype)
    tensor = spy.Tensor.from_numpy(device, values, dtype)
    found = again(tensor, protocol)
    assert (type(found), found.device, found.dtype, found.shape) == (spy.Tensor, device, tensor.dtype, (2, 3))
    np.testing.assert_array_equal(found.to_numpy(), values)
    found.clear()
    np.testing.assert_array_equal(tensor.to_numpy(), values)


KINDS = {
    "1d": (9,), "2d": (6, 7), "3d": (3, 4, 5), "cube": (6, 5, 5), "1d_array": (2, 9), "2d_array": (2, 6, 7),
    "cube_array": (12, 5, 5),
}  # fmt: skip


@needs("textures")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", [again, copy.deepcopy])
def test_textures(device: spy.Device, kind: str, way: Any) -> None:
    texels = np.random.default_rng(2).random((*KINDS[kind], 4), np.float32)
    how = device.create_sampler(filter="nearest", wrap="clamp")
    texture = spy.Texture.from_numpy(device, texels, mips=True, type=kind)
    for given in (texture, texture.with_sampler(how)):
        found = way(given)
        assert found.layout is given.layout and found.buffer is not given.buffer
        for level in range(texture.mip_count):
            for layer in range(texture.layout.desc.layers):
                np.testing.assert_array_equal(found.to_numpy(level, layer), texture.to_numpy(level, layer))
    one = way(texture.mip(1))
    assert one.mip_count == 1
    np.testing.assert_array_equal(np.asarray(one), np.asarray(texture.mip(1)))


@needs("textures")
def test_textures_of_other_uses(device: spy.Device) -> None:
    curved = spy.Texture.from_numpy(device, np.zeros((2, 2, 4), np.uint8), srgb=True)
    read = spy.Texture.from_numpy(device, np.zeros((2, 2), np.int32), usage="shader_resource")
    for texture in (curved, read):
        assert again(texture).layout is texture.layout
        assert copy.copy(texture).buffer is texture.buffer


@needs("textures")
def test_samplers(device: spy.Device) -> None:
    """The number that kernels find a sampler by has no meaning in another process, so that a pickle holds none."""
    made = device.create_sampler(
        filter="nearest", wrap=("clamp", "mirror", "border"), mip="none", border="white", bias=0.5, min_level=1,
        max_level=3, anisotropy=4,
    )  # fmt: skip
    for found in (again(made), copy.copy(made), copy.deepcopy(made)):
        assert (found.device, found.desc, found.address) == (device, made.desc, made.address)
    forged = again(made)
    forged.address = 12345
    assert again(forged).address == made.address


def test_views_are_values(device: spy.Device) -> None:
    values = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensor = spy.Tensor.from_numpy(device, values)
    wide = spy.Tensor.from_numpy(device, values[0]).broadcast_to((3, 6))
    for view, wanted in ((tensor[1::2, ::-1], values[1::2, ::-1]), (tensor.T, values.T), (wide, values[[0, 0, 0]])):
        found = again(view)
        assert found.is_contiguous
        np.testing.assert_array_equal(found.to_numpy(), wanted)
    assert again(tensor[:0]).shape == (0, 6)
    assert again(spy.Tensor.full(device, (), 3)).item() == 3


def test_bfloat16(device: spy.Device) -> None:
    tensor = spy.Tensor.full(device, 5, 1.5, "bfloat16").with_grads()
    tensor.grad.copy_from(np.arange(5, dtype=np.float32))
    found = again(tensor)
    assert (found.dtype, found.tolist()) == (tensor.dtype, [1.5] * 5)
    assert found.grad.tolist() == [0, 1, 2, 3, 4]
    assert (found + 1).tolist() == [2.5] * 5


def test_gradients_stay_one_or_two(device: spy.Device) -> None:
    x = spy.Tensor.ones(device, 3).with_grads()
    x.grad.copy_from(np.array([1, 2, 3], np.float32))
    one, same = again([x, x.grad])
    assert one.grad_in is one.grad_out is same
    assert one.grad.tolist() == [1, 2, 3]
    into = spy.Tensor.full(device, 3, 5)
    two = again(x.with_grads(grad_in=into, grad_out=spy.Tensor.zeros(device, 3)))
    assert (two.grad_in.tolist(), two.grad_out.tolist()) == ([5] * 3, [0] * 3)
    only = again(x.with_grads(grad_in=into))
    assert only.grad_out is None
    assert only.grad_in.tolist() == [5] * 3


def test_other_kinds(device: spy.Device) -> None:
    buffer = spy.NDBuffer(device, "int", 3)
    buffer.copy_from(np.array([1, 2, 3], np.int32))
    assert again(buffer).to_numpy().tolist() == [1, 2, 3]
    shallow = copy.copy(buffer)
    assert type(shallow) is spy.NDBuffer
    buffer.clear()
    assert shallow.to_numpy().tolist() == [0, 0, 0]
    pair = spy.NDDifferentiableBuffer(device, "float", 2)
    pair.clear()
    pair.grad.copy_from(np.array([3, 4], np.float32))
    found = again(pair)
    assert type(found) is spy.NDDifferentiableBuffer
    assert found.grad.to_numpy().tolist() == [3, 4]


def test_structs_need_no_module(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "pickled_structs", TEXT)
    parts = spy.Tensor.zeros(device, 2, dtype=module.Part)
    values = parts.to_numpy()
    values["id"], values["more"] = [7, 8], [[1, 2], [3, 4]]
    parts.copy_from(values)
    data = pickle.dumps(parts)
    found = pickle.loads(data)
    assert found.dtype == module.Part.slang_type
    np.testing.assert_array_equal(found.to_numpy(), values)
    np.testing.assert_array_equal(module.far(found).to_numpy(), [9, 12])


def test_modules_and_functions(device: spy.Device, tmp_path: Path) -> None:
    module = spy.Module.load_from_source(device, "pickled_functions", TEXT)
    x = spy.Tensor.from_numpy(device, np.arange(4, dtype=np.float32))
    scaled = module.add.set(scale=2.0).constants({"count": 3}).map((0,), (0,))
    found = again({"module": module, "add": scaled, "shine": module.Light.shine, "Light": module.Light})
    assert found["add"](x, x).tolist() == (x * 7).tolist()
    assert found["shine"]({"power": 2.0}, 3.0) == 6
    assert found["Light"].shine({"power": 2.0}, 3.0) == 6
    assert found["module"].add.set(scale=1.0)(1.0, 1.0) == 3
    # The values of uniforms may be arrays.
    held = again(module.add.set(scale=spy.Tensor.full(device, (), 3)))
    assert held(x, x).tolist() == [0, 7, 14, 21]
    weight, result = spy.Tensor.full(device, 1, 3).with_grads(), spy.Tensor.ones(device, 4)
    again(module.grow.bwds)(x, weight, _result=x.with_grads(grad_in=result))
    assert weight.grad.tolist() == [36]
    assert copy.deepcopy(module.add) is module.add
    file = tmp_path / "pickled file.slang"
    file.write_text("float twice(float x) { return 2 * x; }")
    twice = pickle.dumps(spy.Module.load_from_file(device, file).twice)
    assert pickle.loads(twice)(2.0) == 4
    file.write_text("float twice(float x) { return 3 * x; }")
    assert pickle.loads(twice)(2.0) == 6
    file.unlink()
    with pytest.raises(spy.CompileError, match="pickle: there is no file"):
        pickle.loads(twice)


def test_linked_modules_and_macros(device: spy.Device) -> None:
    part = spy.Module.load_from_source(device, "pickled part", "export static const float factor = 3;")
    text = "extern static const float factor = 1; float scaled(float x) { return factor * x; }"
    more = text.replace("* x", "* x + MORE")
    module = spy.Module.load_from_source(device, "pickled whole", more, defines={"MORE": 0.5}, link=[part])
    assert again(module.scaled)(2.0) == 6.5
    long = spy.Module.load_from_source(device, "x" * 150, text, constants={"factor": 5.0})
    assert (again(long).name, again(long.scaled)(2.0)) == (long.name, 10)


def test_kernels(device: spy.Device) -> None:
    fill = again(spy.Module.load_from_source(device, "pickled_kernels", TEXT).fill)
    data = spy.NDBuffer(device, "float", 4)
    fill.dispatch(4, data=data, value=2.0)
    assert data.to_numpy().tolist() == [2] * 4


def test_the_device_of_a_pickle(device: spy.Device, backend_name: str) -> None:
    assert again(device) is device
    assert copy.deepcopy({"device": device})["device"] is device
    with spy.Device(backend_name, index=device.index) as other:
        tensor = spy.Tensor.ones(other, 3)
        data = pickle.dumps(tensor)
        # Devices of one type are told apart while they are open.
        assert pickle.loads(data).device is other
        assert again(spy.Tensor.ones(device, 3)).device is device
        moved = spy.pickle_on(device).loads(data)
        assert (moved.device, moved.tolist()) == (device, [1, 1, 1])
        assert spy.pickle_on(device).load(io.BytesIO(data)).device is device
        with pytest.raises(spy.BindError, match="pickle_on: device is 3; a Device was expected"):
            spy.pickle_on(3)  # type: ignore[arg-type]
    with pytest.raises(spy.DeviceError, match="was closed"):
        pickle.dumps(tensor)
    with pytest.raises(spy.DeviceError, match="was closed"):
        spy.pickle_on(other).loads(data)


@deep
def test_another_process_opens_the_device(device: spy.Device) -> None:
    data = pickle.dumps(spy.Tensor.full(device, 2, 3))
    program = f"""
import pickle
import slangpy_rt as spy
data = {data!r}
try:
    pickle.loads(data)
except spy.DeviceError as error:
    print(error)
first = spy.Device({device.name!r})
print(pickle.loads(data).tolist())
second = spy.Device({device.name!r})
try:
    pickle.loads(data)
except spy.DeviceError as error:
    print(error)
print(spy.pickle_on(second).loads(data).device is second, spy.pickle_on(spy.Device("null")).loads(data).shape)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    made = f"pickle: this was made on a {device.name} device, and"
    assert found.stdout.splitlines() == [
        f"{made} no such device is open in this process. Open it first, spy.Device('{device.name}'), or name another "
        "one: spy.pickle_on(device).load(file).",
        "[3.0, 3.0]",
        f"{made} 2 such devices are open in this process. Say which one: spy.pickle_on(device).load(file).",
        "True (2,)",
    ], found.stderr


def test_what_is_not_pickled(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "pickled_choices", TEXT)
    with pytest.raises(TypeError, match="add: a function with choices is not pickled"):
        pickle.dumps(module.add.constants({"count": [2, 3]}))
    with pytest.raises(TypeError, match="add: a stream is not pickled"):
        pickle.dumps(module.add.stream(device.stream()))
    choices = spy.Module.load_from_source(device, "pickled_macros", TEXT, defines={"N": [1, 2]})
    with pytest.raises(TypeError, match="a module with choices is not pickled"):
        pickle.dumps(choices)


def test_torch(device: spy.Device, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    tensor = spy.Tensor.from_numpy(device, np.arange(3, dtype=np.float32)).with_grads()
    torch.save({"tensor": tensor, "plain": torch.ones(2)}, tmp_path / "saved.pt")
    found = torch.load(tmp_path / "saved.pt", weights_only=False)
    assert (found["tensor"].tolist(), found["tensor"].grad.tolist()) == ([0, 1, 2], [0, 0, 0])
    with spy.Device("null") as null:
        moved = torch.load(tmp_path / "saved.pt", weights_only=False, pickle_module=spy.pickle_on(null))
        assert moved["tensor"].device is null


def test_torch_modules(tmp_path: Path, device: spy.Device) -> None:
    torch = pytest.importorskip("torch")
    module = spy.Module.load_from_source(device, "pickled_model", TEXT)
    model = torch.nn.Sequential(spy.torch_module(module.grow, weight=torch.tensor([3.0])), torch.nn.Identity())
    x = torch.arange(4, dtype=torch.float32)
    torch.save(model, tmp_path / "model.pt")
    for found in (torch.load(tmp_path / "model.pt", weights_only=False), copy.deepcopy(model), again(model)):
        assert found(x).tolist() == [0, 9, 18, 27]
        found(x).sum().backward()
        assert found[0].weight.grad.tolist() == [36]
    assert model[0].weight.grad is None


@pytest.mark.parametrize("way", [again, copy.deepcopy])
def test_gradients_in_one_memory(device: spy.Device, way: Any) -> None:
    """A gradient that is read and replaced stays one array, whether one object stands for both or two views do."""
    module = spy.Module.load_from_source(
        device, "pickled_inout", "[Differentiable] void grow(inout float x, float by) { x = x * by; }"
    )
    for other in (lambda g: g, lambda g: g[:], lambda g: g.view((3,)), lambda g: g.detach()):
        seed = spy.Tensor.from_numpy(device, np.float32([1, 2, 3]))
        given = spy.Tensor.ones(device, 3).with_grads(seed, other(seed))
        for tensor in (given, way(given)):
            module.grow.bwds(tensor, 5.0)
            for gradient in (tensor.grad_in, tensor.grad_out):
                np.testing.assert_array_equal(gradient.to_numpy(), np.float32([5, 10, 15]))
        apart = way(spy.Tensor.ones(device, 3).with_grads(seed, spy.Tensor.zeros(device, 3)))
        module.grow.bwds(apart, 5.0)
        np.testing.assert_array_equal(apart.grad_in.to_numpy(), np.float32([5, 10, 15]))

"""Pickles whose items do not agree: each is refused by name, or gives an object that works."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs, one_device

pytestmark = one_device

TEXT = """
import sampling;
struct Part { float3 position; int id; float[2] more; }
extern static const int count = 2;
uniform float scale;
float add(float a, float b) { return a + b * count; }
float shine(Image lit, float2 at) { return lit.sample(at).x; }
struct Light { float power; float shine() { return 2 * power; } }
[numthreads(4, 1, 1)]
void fill(uint3 id : SV_DispatchThreadID, RWStructuredBuffer<float> data) { data[id.x] = 1; }
"""
# What takes the place of an item, or of an item in it.
VALUES: list[Any] = [
    None, True, -1, 0, 1, 3, 2**31, 2**62, 10**30, -(2**63), 0.5, float("nan"), "", "float", "half3", "x" * 50,
    b"bytes", (), (3,), (-3,), (2**40,), (1, 2, 3, 4, 5), ("a",), [], [1], {}, {"": "SlangType"}, {"a": 1},
    object(), int, np.float32(1), np.zeros(0, np.float32), np.zeros(3, np.float32), np.zeros(4, np.float64),
    np.zeros((2, 2), np.uint8), np.array([object()]),
    {"": "SlangType", "kind": "array", "name": "a", "shape": [2**40]},
]  # fmt: skip


def replaced(item: Any, depth: int = 3) -> Iterator[Any]:
    """Copies of an item that have another value in one place."""
    yield from VALUES
    if depth and isinstance(item, (tuple, list)):
        yield type(item)(item[1:]) if len(item) else (1,)
        yield type(item)([*item, *item[:1]])
        for k, inner in enumerate(item):
            for other in replaced(inner, depth - 1):
                yield type(item)([*item[:k], other, *item[k + 1 :]])
    elif depth and isinstance(item, dict):
        for key, inner in item.items():
            yield {k: v for k, v in item.items() if k != key}
            for other in replaced(inner, depth - 1):
                yield {**item, key: other}
    elif isinstance(item, np.ndarray) and item.size:
        yield item[:-1]
        yield item[None]
        yield item.astype(np.float64) if item.dtype.names is None else item.view(np.uint8)
        yield np.asfortranarray(item)


def made(recipe: Any) -> Any:
    """What a pickle of this recipe is read as."""
    function, args, *more = recipe
    found = function(*args)
    state = more[0] if more else None
    if state is not None and hasattr(found, "__setstate__"):
        found.__setstate__(state)
    return found


def check(value: Any, use: Callable[[Any], Any], every: int = 1) -> None:
    """Read damaged recipes of a value, one in ``every``, and use what can be read: errors are of this package."""
    function, args, *more = value.__reduce_ex__(4)
    recipes = [(function, other) for other in replaced(args) if isinstance(other, tuple)] if args[1:] else []
    if more and more[0] is not None:
        recipes += [(function, args, other) for other in replaced(more[0]) if other is not None]
    refused = 0
    for recipe in recipes[::every]:
        try:
            found = made(recipe)
        except spy.SlangPyRtError:
            refused += 1
            continue
        with contextlib.suppress(spy.SlangPyRtError):
            use(found)
    assert refused


def all_values(array: Any) -> None:
    """Use an array: its values, its gradients, a copy."""
    array.to_numpy()
    array.clear()
    for gradient in (array.grad_in, array.grad_out) if isinstance(array, spy.Tensor) else ():
        if gradient is not None:
            assert gradient.to_numpy().size == array.to_numpy().size


@pytest.mark.parametrize("dtype", ["float", "float3", "half", "bool", "bfloat16", "float[3]", "Part"])
def test_arrays(device: spy.Device, dtype: str) -> None:
    module = spy.Module.load_from_source(device, "damaged_pickles", TEXT)
    element = module.Part if dtype == "Part" else dtype
    tensor = spy.Tensor.zeros(device, (2, 3), element)
    check(tensor if dtype == "bool" else tensor.with_grads(), all_values)
    if dtype == "float":
        check(spy.NDBuffer(device, dtype, 3), all_values)
        check(spy.NDDifferentiableBuffer(device, dtype, 3), lambda array: (all_values(array), all_values(array.grad)))


def test_what_is_said(device: spy.Device) -> None:
    """A pickle that a crash of the writer, a bad disk or another program left."""
    data = pickle.dumps(spy.Tensor.zeros(device, 1000))
    kind, here, element, _, values, into, out = spy.Tensor.zeros(device, 1000).__reduce__()[1]
    read = spy.Tensor.zeros(device, 1).__reduce__()[0]
    message = (
        r"^pickle: a Tensor of 'float' is damaged: its values are an array of dtype float32 and shape \(1000,\); "
        r"an array of float32 of shape \(1000000,\) was expected\. Write the pickle again\.$"
    )
    with pytest.raises(spy.BindError, match=message):
        read(kind, here, element, (1000000,), values, into, out)
    with pytest.raises(spy.BindError, match=r"^pickle: a Tensor of 'double' is damaged: its values are"):
        read(kind, here, "double", (1000,), values, into, out)
    with pytest.raises(spy.BindError, match=r"^pickle: an array is damaged: TypeError"):
        read(kind, here)
    other = spy.Tensor.zeros(device, 3)
    with pytest.raises(spy.ShapeError, match=r"^pickle: grad_in is a Tensor<float>"):
        read(kind, here, element, (1000,), values, other, other)
    for cut in (10, len(data) // 2, len(data) - 1):
        with pytest.raises((EOFError, pickle.UnpicklingError)):
            pickle.loads(data[:cut])


@needs("textures")
@pytest.mark.parametrize("kind", ["2d", "3d", "cube", "2d_array"])
def test_textures(device: spy.Device, kind: str) -> None:
    shape = {"2d": (4, 4), "3d": (2, 4, 4), "cube": (6, 4, 4), "2d_array": (2, 4, 4)}[kind]
    texels = np.zeros((*shape, 4), np.float32)
    texture = spy.Texture.from_numpy(device, texels, mips=kind == "2d", type=kind)
    given = texture.with_sampler(device.create_sampler()) if kind == "2d" else texture
    check(given, lambda found: found.to_numpy())
    if kind == "2d":
        check(device.create_sampler(), repr)


def test_functions(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "damaged_functions", TEXT)
    add = module.add.map((0,), b=(0,)).constants({"count": 3}).set(scale=1.0)
    for value in (module.add, module.Light, module):
        function, args = value.__reduce__()
        for k in range(len(args)):
            for other in VALUES:
                with contextlib.suppress(spy.SlangPyRtError):
                    function(*args[:k], other, *args[k + 1 :])
    function, (scope, name, options, values) = add.__reduce__()
    for field in options.__dataclass_fields__:
        for other in replaced(getattr(options, field), 2):
            damaged = copy.copy(options)
            object.__setattr__(damaged, field, other)
            with contextlib.suppress(spy.SlangPyRtError):
                function(scope, name, damaged, values)(2.0, 3.0)
    load, (_, recipe, strict) = scope.__reduce__()
    for other in replaced(recipe, 2):
        with contextlib.suppress(spy.SlangPyRtError):
            load(device, other, strict)
    check(module.fill, lambda kernel: kernel.dispatch(4, data=spy.NDBuffer(device, "float", 4)))


def test_instances_and_images(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "damaged_instances", TEXT)
    check(spy.InstanceList(module.Light, {"power": spy.Tensor.ones(device, 2)}), lambda found: found.shine(), 5)
    check(spy.InstanceTensor(module.Light, 2), lambda found: found.shine(), 5)
    check(spy.pack(module, {"power": 1.0}), lambda found: module.Light.shine(found), 3)
    mesh = spy.Mesh(np.zeros((3, 3), np.float32), np.array([[0, 1, 2]]))
    check(mesh, lambda found: (found.corners_on(device), found.triangles_on(device)))
    image = spy.Image(spy.Tensor.zeros(device, (4, 4), "float4"), mips=True)
    check(image, lambda found: module.shine(found, spy.float2(0.5, 0.5)), 3)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_optimizers(device: spy.Device, name: str) -> None:
    parameter = spy.Tensor.ones(device, 3).with_grads()
    optimizer: Any = getattr(spy.optim, name)([parameter], **({"momentum": 0.9} if name == "SGD" else {}))
    optimizer.step()
    commands = spy.CommandList(device)
    optimizer.append_to(commands)
    check(optimizer, lambda found: found.step())


def test_images_and_scenes_are_read(device: spy.Device) -> None:
    """The texels of an image are the ones that functions sample, also after it was read or copied."""
    module = spy.Module.load_from_source(device, "read_images", TEXT)
    for mips in (False, True):
        texels = spy.Tensor.from_numpy(device, np.random.default_rng(3).random((4, 4, 4), np.float32), "float4")
        image = spy.Image(texels.with_grads(), wrap=("clamp", "mirror"), filter="nearest", mips=mips)
        image.texels.grad.copy_from(np.full((4, 4, 4), 2, np.float32))
        for found in (pickle.loads(pickle.dumps(image)), copy.deepcopy(image)):
            assert (found.levels, repr(found)) == (image.levels, repr(image))
            at = spy.float2(0.9, 0.1)
            assert module.shine(found, at) == module.shine(image, at)
            np.testing.assert_array_equal(found.texels.grad.to_numpy(), 2)
            found.texels.copy_from(np.full((4, 4, 4), 5, np.float32))
            assert module.shine(found, at) == 5
            assert module.shine(image, at) != 5
    mesh = spy.Mesh(np.eye(3, dtype=np.float32), np.array([[0, 1, 2]]))
    moved = np.eye(4)[:3] * 2
    scene = spy.Scene(device, [mesh, (mesh, moved)])
    for found in (pickle.loads(pickle.dumps(scene)), copy.deepcopy(scene)):
        assert (found.count, len(found.meshes)) == (2, 1)

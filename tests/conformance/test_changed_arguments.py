"""Arguments that a program changes between a call and its gradients: copied, or the change is noticed.

PyTorch computes the derivative in ``backward()``, and a tape in ``tape.backward(loss)``: both later than the call.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from slangpy_rt.arguments.kept import copied
from slangpy_rt.runtime.write_counts import counts_of
from tests.depth import every_case, needs, one_device, one_in, sampled

TEXT = """
import slangpy_rt;
import sampling;
struct Pair : IDifferentiable { float x; float y; }
uniform float gain;
uniform float3 gains;
uniform Tensor<float, 1> table;
[Differentiable] float product(float a, float b) { return a * a * b; }
[Differentiable] float scaled(float a, no_diff float b) { return a * a * b; }
[Differentiable] float listed(float a, float b[3]) { return a * a * (b[0] + 2 * b[1] + 3 * b[2]); }
[Differentiable] float paired(float a, Pair p) { return a * a * p.x * p.y; }
[Differentiable] float amplified(float a) { return a * a * gain * gains.y; }
[Differentiable] float looked(float a, no_diff int k) { return a * a * table[k]; }
[Differentiable] float texel(float a, Texture2D<float> picture, no_diff int2 at) { return a * a * picture[at]; }
[Differentiable] float maybe(float a, Optional<float> b) { if (b.hasValue) return a * a * b.value; return a * a; }
[Differentiable] float seen(float a, Image1 picture) { return a * a * picture.sample(float2(0.25, 0.5), 0).x; }

struct Corner : IDifferentiable { float4 position; float light; }
[Differentiable] Corner project(float4 at, float light) { return { at, light }; }
[Differentiable] float shade(Corner c, float strength) { return c.light * strength * gains.y; }
"""
START = np.array([1, 2, 3], np.float32)


@dataclasses.dataclass
class Pair:
    """A value of the struct ``Pair``."""

    x: Any
    y: Any


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "changed_arguments", TEXT)


# What a call gets besides ``a``, how it is changed, and the factor of the gradient, 2 a, at the call.
Case = tuple[Callable[[Any, Any, Any], Any], Callable[[spy.Device], Any], Callable[[Any], Any], Any]


def _tensor(device: spy.Device) -> spy.Tensor:
    return spy.Tensor.from_numpy(device, START)


def _texture(device: spy.Device) -> spy.Texture:
    return spy.Texture.from_numpy(device, np.array([[1, 2], [3, 4]], np.float32))


COPIED: dict[str, Case] = {
    "list of an array": (lambda m, a, b: m.listed(a, b), lambda d: [1.0, 2, 3], lambda b: b.reverse(), 14),
    "list of the call": (lambda m, a, b: m.product(a, b), lambda d: [1.0, 2, 3], lambda b: b.reverse(), START),
    "dict": (lambda m, a, b: m.paired(a, b), lambda d: {"x": 2.0, "y": 3.0}, lambda b: b.update(x=9.0), 6),
    "dict in a dict": (
        lambda m, a, b: m.paired(a, b),
        lambda d: {"x": [1.0, 2, 3], "y": 3.0},
        lambda b: b["x"].reverse(),
        3 * START,
    ),
    "dataclass": (lambda m, a, b: m.paired(a, b), lambda d: Pair(2.0, 3.0), lambda b: setattr(b, "x", 9.0), 6),
    "ValueRef": (lambda m, a, b: m.product(a, b), lambda d: spy.floatRef(2), lambda b: setattr(b, "value", 9.0), 2),
    "list of set": (
        lambda m, a, b: m.amplified.set(gain=2.0, gains=b)(a),
        lambda d: [0.0, 2, 0],
        lambda b: b.__setitem__(1, 9.0),
        4,
    ),
    "array of set": (
        lambda m, a, b: m.amplified.set(gain=2.0, gains=b)(a),
        lambda d: np.array([0, 2, 0], np.float32),
        lambda b: b.fill(9),
        4,
    ),
    "tensor of PyTorch in a dict": (
        lambda m, a, b: m.paired(a, {"x": b, "y": 3.0}),
        lambda d: torch.from_numpy(START.copy()),
        lambda b: b.zero_(),
        3 * START,
    ),
    "None": (lambda m, a, b: m.maybe(a, b), lambda d: None, lambda b: None, 1),
}
NOTICED: dict[str, Case] = {
    "from_numpy": (lambda m, a, b: m.product(a, b), _tensor, lambda b: b.from_numpy(START + 1), START),
    "copy_from": (lambda m, a, b: m.product(a, b), _tensor, lambda b: b.copy_from(START + 1), START),
    "an operator": (lambda m, a, b: m.product(a, b), _tensor, lambda b: b.__iadd__(1), START),
    "an element": (lambda m, a, b: m.product(a, b), _tensor, lambda b: b.__setitem__(0, 7), START),
    "a view": (lambda m, a, b: m.product(a, b), _tensor, lambda b: b[1:].clear(), START),
    "in a dict": (lambda m, a, b: m.paired(a, {"x": b, "y": 3.0}), _tensor, lambda b: b.clear(), 3 * START),
    "in a dataclass": (lambda m, a, b: m.paired(a, Pair(b, 3.0)), _tensor, lambda b: b.clear(), 3 * START),
    "of set": (lambda m, a, b: m.looked.set(table=b)(a, 1), _tensor, lambda b: b.clear(), 2),
    "a texture": (
        lambda m, a, b: m.texel(a, b, [0, 1]),
        _texture,
        lambda b: b.copy_from(np.zeros((2, 2), np.float32)),
        3,
    ),
    "an Image": (
        lambda m, a, b: m.seen(a, b),
        lambda d: spy.Image(spy.Tensor.full(d, (2, 2), 3.0)),
        lambda b: b.texels.clear(),
        3,
    ),
}


def _by_torch(module: spy.Module, case: Case, is_changed: bool) -> Any:
    call, make, change, _ = case
    a, b = torch.from_numpy(START.copy()).requires_grad_(), make(module.device)
    result = call(module, a, b)
    if is_changed:
        change(b)
    result.sum().backward()
    return a.grad


def _by_tape(module: spy.Module, case: Case, is_changed: bool) -> Any:
    call, make, change, _ = case
    a, b = spy.Tensor.from_numpy(module.device, START).with_grads(), make(module.device)
    with spy.grad_tape() as tape:
        loss = call(module, a, b).sum()
    if is_changed:
        change(b)
    tape.backward(loss)
    return a.grad


@every_case
@pytest.mark.parametrize("by", [_by_torch, _by_tape], ids=["torch", "tape"])
@pytest.mark.parametrize("name", COPIED)
def test_what_is_copied(module: spy.Module, name: str, by: Any) -> None:
    found = by(module, COPIED[name], True)
    np.testing.assert_allclose(found.numpy(), 2 * START * COPIED[name][3], rtol=1e-6)


@needs(lambda case: ["textures"] if case["name"] == "a texture" else [])
@every_case
@pytest.mark.parametrize("by", [_by_torch, _by_tape], ids=["torch", "tape"])
@pytest.mark.parametrize("name", NOTICED)
def test_what_is_noticed(module: spy.Module, name: str, by: Any) -> None:
    case = NOTICED[name]
    np.testing.assert_allclose(by(module, case, False).numpy(), 2 * START * case[3], rtol=1e-6)
    errors = (RuntimeError, spy.BindError)
    with pytest.raises(errors, match=r"was written to after the call|is an operand or a result|would write to"):
        by(module, case, True)


@one_device
def test_copies_share_nothing_that_a_program_changes(device: spy.Device) -> None:
    """``copied`` makes the values that derivatives read later; no function is called here."""
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    record = np.array([(1, 2)], [("x", "f4"), ("y", "f4")])[0]
    memory = bytearray(START.tobytes())
    changes: list[tuple[Any, Callable[[], Any], Callable[[Any], Any]]] = [
        (values := [1.0, [2.0, 3.0]], lambda: values[1].append(4.0), repr),
        (fields := {"x": {"y": 1.0}}, lambda: fields["x"].update(y=2.0), repr),
        (pair := Pair(1.0, [2.0]), lambda: pair.y.append(1.0), repr),
        (number := spy.floatRef(1.0), lambda: setattr(number, "value", 2.0), lambda v: v.value),
        (vector := spy.ValueRef([1.0, 2.0]), lambda: vector.value.reverse(), lambda v: list(v.value)),
        (array, lambda: array.fill(9), lambda v: v.tolist()),
        (record, lambda: record.__setitem__("x", 9), lambda v: v.tolist()),
        (memoryview(memory).cast("f"), lambda: memory.__setitem__(3, 0), lambda v: np.asarray(v).tolist()),
        (held := {"t": START.copy()}, lambda: held["t"].fill(9), lambda v: v["t"].tolist()),
        (both := spy.diff_pair(START.copy(), START.copy()), lambda: both.value.fill(9), lambda v: v.value.tolist()),
        (grads := spy.diff_pair(1.0, START.copy()), lambda: grads.grad.fill(9), lambda v: v.grad.tolist()),
    ]
    for value, change, read in changes:
        found, before = copied(value), read(copied(value))
        change()
        assert read(found) == before, value


@one_device
def test_every_write_is_counted(module: spy.Module) -> None:
    """Whatever writes to an array or a texture of the device is seen by those who watch it, and no reading is."""
    device = module.device
    array, other = spy.Tensor.zeros(device, (2, 2)), spy.Tensor.ones(device, (2, 2))
    first, second = device.command_list(), device.command_list()
    first.copy(array, other)
    second.clear(array)
    module.product.append_to(third := device.command_list(), other, other, _result=array)
    module.product.append_to(moved := device.command_list(), other, other, _result=spy.Tensor.zeros(device, (2, 2)))
    moved.submit()
    moved.update(0, other, other, _result=array)
    host = np.ones((2, 2), np.float32)
    writes: list[Callable[[], Any]] = [
        lambda: array.from_numpy(host), lambda: array.copy_from(host), lambda: array[1:].copy_from(host[1:]),
        lambda: array.clear(), lambda: array[0].clear(), lambda: array.__setitem__(0, 1), lambda: array.__iadd__(1),
        lambda: array.__setitem__(array > 0, 2), lambda: module.product(other, other, _result=array), first.submit,
        second.submit, third.submit, moved.submit,
    ]  # fmt: skip
    reads: list[Callable[[], Any]] = [array.to_numpy, lambda: array + 1, lambda: module.product(array, array)]
    buffers = [array.buffer]
    if "textures" in device.caps.features:
        texture, source = _texture(device), _texture(device)
        writes += [
            lambda: texture.copy_to(array), lambda: texture.copy_from(array), lambda: texture.copy_from(source),
            lambda: texture.copy_from(host),
        ]  # fmt: skip
        reads += [texture.to_numpy, lambda: source.copy_from(texture), lambda: texture.copy_to(other)]
        buffers.append(texture.buffer)
    counts = counts_of(device)
    counts.watch(buffers)
    try:
        for number, write in enumerate(writes):
            before = sum(counts.so_far(buffers))
            write()
            assert sum(counts.so_far(buffers)) > before, f"write {number}"
        before = sum(counts.so_far(buffers))
        for read in reads:
            read()
        assert sum(counts.so_far(buffers)) == before
    finally:
        counts.unwatch(buffers)


def test_the_message_and_the_end_of_watching(module: spy.Module) -> None:
    device = module.device
    before = device.observers
    a, b = torch.from_numpy(START.copy()).requires_grad_(), spy.Tensor.from_numpy(device, START)
    kept = [module.product(a, b) for _ in range(3)]
    b += 1
    with pytest.raises(RuntimeError) as caught:
        kept[0].sum().backward()
    assert str(caught.value) == (
        "float product(float a, float b): argument 'b' is a Tensor<float> of shape (3,), which was written to after "
        "the call, and its backward pass needs what it held; pass a copy, or write after backward()."
    )
    # A call after the change is right, although others still watch the array.
    (found,) = torch.autograd.grad(module.product(a, b).sum(), a)
    np.testing.assert_allclose(found.numpy(), 2 * START * (START + 1))
    del kept, caught
    gc.collect()
    assert device.observers == before
    # Nothing is watched for tensors of PyTorch alone.
    result = module.product(a, torch.ones(3))
    assert device.observers == before and result.requires_grad


def _triangle(device: spy.Device) -> tuple[spy.Tensor, np.ndarray[Any, Any]]:
    places = np.array([[-1, -1, 0.5, 1], [3, -1, 0.5, 1], [-1, 3, 0.5, 1], [-9, -9, 0.5, 1]], np.float32)
    return spy.Tensor.from_numpy(device, places, "float4"), np.array([[0, 1, 2]], np.int32)


@needs("uint64_t")
@sampled(8)
@pytest.mark.parametrize("what", ["faces of NumPy", "faces of a Tensor", "faces of PyTorch", "gains", "light"])
def test_pictures(module: spy.Module, what: str) -> None:
    """Of a triangle that covers all pixels; the gradient of its light is the number of pixels times the gain."""
    device = module.device
    places, faces = _triangle(device)
    gains, light = [0.0, 2, 0], spy.Tensor.ones(device, 4)
    given: Any = {"faces of a Tensor": lambda: spy.Tensor.from_numpy(device, faces)}.get(what, lambda: faces)()
    if what == "faces of PyTorch":
        given = torch.from_numpy(faces)
    changes: dict[str, Callable[[], Any]] = {
        "faces of NumPy": lambda: faces.fill(3),
        "faces of a Tensor": lambda: given.from_numpy(np.full((1, 3), 3)),
        "faces of PyTorch": lambda: given.fill_(3),
        "gains": lambda: gains.reverse() or gains.__setitem__(1, 7.0),
        "light": lambda: light.clear(),
    }
    draw = module.shade.set(gains=gains).raster(module.project, (4, 4), antialias=False)
    strength = torch.ones(1, requires_grad=True)
    at = torch.from_numpy(places.to_numpy())
    picture = draw(_faces=given, at=at, light=light if what == "light" else torch.ones(4), strength=strength)
    changes[what]()
    if what in ("faces of NumPy", "gains"):
        picture.sum().backward()
        np.testing.assert_allclose(strength.grad.numpy(), [16 * 2])
        return
    with pytest.raises(RuntimeError, match=r"was written to after the call|modified by an inplace operation"):
        picture.sum().backward()


@needs("uint64_t")
def test_pictures_on_a_tape(module: spy.Module) -> None:
    places, faces = _triangle(module.device)
    gains = [0.0, 2, 0]
    draw = module.shade.set(gains=gains).raster(module.project, (4, 4), antialias=False)
    strength = spy.Tensor.ones(module.device, 1).with_grads()
    light = spy.Tensor.ones(module.device, 4)
    with spy.grad_tape() as tape:
        loss = draw(_faces=faces, at=places, light=light, strength=strength).sum()
    faces.fill(3)
    gains[1] = 7
    tape.backward(loss)
    np.testing.assert_allclose(strength.grad.to_numpy(), [16 * 2])


@pytest.mark.parametrize("name", one_in(3, ["a vector", "an array", "a struct"]))
def test_steps_and_constants_of_vectors(device: spy.Device, name: str) -> None:
    """Vectors are constants where gradients could go; NumPy's arrays are refused at the call."""
    text = """
    struct Pair : IDifferentiable { float x; float y; }
    [Differentiable] float turned(float3 v, float3 w) { return dot(v, w); }
    [Differentiable] float paired(float a, Pair p) { return a * p.x * p.y; }
    """
    m = spy.Module.load_from_source(device, "constants_of_vectors", text)
    v = torch.tensor([[1.0, 2, 3]], requires_grad=True)
    if name == "a vector":
        m.turned(v, spy.float3(4, 5, 6)).sum().backward()
        assert v.grad.tolist() == [[4, 5, 6]]
        w = spy.Tensor.from_numpy(device, v.detach().numpy(), "float3").with_grads()
        m.turned.bwds(w, spy.float3(4, 5, 6), _result=spy.diff_pair(None, 1.0))
        assert w.grad.tolist() == [[4, 5, 6]]
        return
    with pytest.raises(spy.BindError) as caught:
        if name == "an array":
            m.turned(v, np.ones(3, np.float32))
        else:
            m.paired(v[0], {"x": np.ones(3, np.float32), "y": 1.0})
    where = "float turned(float3 v, float3 w): argument 'w'"
    where = where if name == "an array" else "float paired(float a, Pair p): argument 'p.x'"
    assert str(caught.value) == (
        f"{where} is an array of dtype float32 and shape (3,), and another argument is a tensor that requires a "
        "gradient; pass torch.from_numpy(array)."
    )

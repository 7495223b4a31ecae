"""Arrays of bfloat16: read and written where functions have floats, whole, with gradients; against ml_dtypes."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

import slangpy_rt as spy
from tests.depth import needs

SLANG = """
[Differentiable] float mul(float a, float b) { return a * b; }
float3 twice(float3 v) { return v * 2; }
void grow(inout float x, float by, out float3 y) { x += by; y = float3(x, 2 * x, 3 * x); }
[Differentiable] void scale(inout float x, float by) { x *= by; }
T same<T : __BuiltinFloatingPointType>(T x) { return x; }
int whole_number(int x) { return x; }
float pick(Tensor<bfloat16, 2> t, int i) { return t[i, 1] * 2 + t[i, 0]; }
void put(RWTensor<bfloat16, 1> t, int i, float x) { t[i] = x; t[i] = t[i] + 1; }
float total(NDBuffer<bfloat16, 1> t)
{
    float sum = 0;
    for (int i = 0; i < t.shape[0]; ++i)
        sum += float(t[i]);
    return sum;
}
float behind(StructuredBuffer<bfloat16> t, int i) { bfloat16 x = t[i]; return x; }
float first(Tensor<float, 1> t) { return t[0]; }
float alone(bfloat16 x) { return x; }
struct Holder { bfloat16 x; };
float held(Holder h) { return h.x; }
"""
POINTERS = "float at(bfloat16 *p, int i) { return p[i]; }"
Array = npt.NDArray[Any]
BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    if "uint16_t" not in device.caps.scalars:
        pytest.skip(f"{device.name} has no 16-bit integers in memory")
    return spy.Module.load_from_source(device, "test_bfloat16", SLANG)


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def floats() -> Array:
    """Floats of all sizes, on and next to bfloat16 numbers and the middles between two of them; NaN of any bits."""
    rng = np.random.default_rng(1)
    upper = rng.integers(0x80, 0x7F80, 5000, np.uint32) << 16  # the least normal number and more
    near = upper[:, None] + np.array([-1, 0, 1, 0x7FFF, 0x8000, 0x8001, 0x18000], np.int64).astype(np.uint32)
    odd = np.array([0x7F800001, 0x7FFFFFFF, 0xFF800001, 0x7FC00000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0], np.uint32)
    bits = np.concatenate([near.ravel(), near.ravel() | 0x80000000, odd]).astype(np.uint32)
    return bits.view(np.float32)


def check(found: Any, expected: Array) -> None:
    """Equal bits, but for NaN."""
    found = found.to_numpy() if isinstance(found, spy.NDBuffer) else found
    assert found.dtype == expected.dtype == BF16
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(found), nan)
    np.testing.assert_array_equal(found[~nan].view(np.uint16), expected[~nan].view(np.uint16))


def rounded(x: Array) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        return x.astype(BF16)


@pytest.mark.parametrize("wide", [True, False])
def test_results_round_to_the_nearest(device: spy.Device, module: spy.Module, wide: bool) -> None:
    x = floats()
    x = x if wide else x[:-1:2]  # Kernels write several elements at once where they may.
    out = spy.Tensor.zeros(device, x.shape, "bfloat16")
    assert module.mul(spy.Tensor.from_numpy(device, x), 1.0, _result=out) is out
    check(out, rounded(x))
    host = np.zeros(x.shape, BF16)
    assert module.mul(x, 1.0, out=host) is host
    check(host, rounded(x))
    theirs = torch.zeros(x.shape, dtype=torch.bfloat16)
    assert module.mul(torch.from_numpy(x), 1.0, _result=theirs) is theirs
    expected = torch.from_numpy(x).bfloat16()
    assert torch.equal(theirs.isnan(), expected.isnan())
    assert torch.equal(theirs.nan_to_num(), expected.nan_to_num())


def test_vectors_views_and_what_is_written(device: spy.Device, module: spy.Module) -> None:
    a = numbers(7, 3)
    out = np.zeros((7, 6), BF16)
    module.twice(a, _result=out.reshape(7, 2, 3)[:, 1])
    check(out[:, 3:], a * BF16.type(2))
    assert not out[:, :3].any()
    x, y = spy.Tensor.from_numpy(device, a), spy.Tensor.zeros(device, (7, 3, 3), "bfloat16")
    module.grow(x, spy.Tensor.ones(device, 3, "bfloat16"), y)
    wide = a.astype(np.float32) + 1
    check(x, rounded(wide))
    check(y, rounded(wide[..., None] * np.float32([1, 2, 3])))
    big = spy.Tensor.zeros(device, (4, 6), "bfloat16")
    module.mul(a[:4], 2.0, _result=big[:, ::2])
    check(big[:, ::2], a[:4] * BF16.type(2))
    assert not big.to_numpy()[:, 1::2].any()
    # The arguments are read before the result is written.
    line = spy.Tensor.from_numpy(device, a[:, 0].copy())
    module.mul(line, 2.0, _result=line[::-1])
    check(line, (a[:, 0] * BF16.type(2))[::-1])
    theirs = torch.from_numpy(a.view(np.uint16)).view(torch.bfloat16).clone()
    more = torch.zeros(7, 3, 3).bfloat16()
    before = theirs.float()
    module.grow(theirs, 1.0, more)
    assert torch.equal(theirs, (before + 1).bfloat16())
    assert torch.equal(more, ((before + 1)[..., None] * torch.tensor([1.0, 2, 3])).bfloat16())


def test_what_is_read_becomes_a_float(device: spy.Device, module: spy.Module) -> None:
    a = numbers(5, 3)
    for given in (a, spy.Tensor.from_numpy(device, a)):
        for call in (lambda v: module.mul(v, 1.0), lambda v: module.same(v)):
            found = call(given)
            found = found.to_numpy() if isinstance(found, spy.Tensor) else found
            assert found.dtype == np.float32
            np.testing.assert_array_equal(found, a.astype(np.float32))
    np.testing.assert_array_equal(module.twice(a[0]), 2 * a[0].astype(np.float32))


def test_whole_arrays(device: spy.Device, module: spy.Module) -> None:
    a, i = numbers(4, 3), np.arange(4, dtype=np.int32)
    x = spy.Tensor.from_numpy(device, a)
    expected = a[:, 1].astype(np.float32) * 2 + a[:, 0].astype(np.float32)
    theirs = torch.from_numpy(a.view(np.uint16)).view(torch.bfloat16)
    for given in (x, a, theirs, a.astype(np.float32), a.tolist()):
        np.testing.assert_array_equal(np.asarray(module.pick(given, i, _result="numpy")), expected)
    np.testing.assert_allclose(module.total(a), a.astype(np.float64).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(module.behind(spy.Tensor.from_numpy(device, a[:, 0].copy()), i), a[:, 0])
    values = floats()[::999]
    places = np.arange(len(values), dtype=np.int32)
    for out in (spy.Tensor.zeros(device, len(values), "bfloat16"), np.zeros(len(values), BF16)):
        module.put(out, places, values)
        check(out, rounded(rounded(values).astype(np.float32) + 1))
    # Host data converts to what a function takes whole; 3 is a float here.
    assert module.first(np.array([3], BF16)) == 3


@needs("pointers")
def test_pointers(device: spy.Device, module: spy.Module) -> None:
    a = numbers(6)
    at = spy.Module.load_from_source(device, "test_bfloat16_pointers", f"import slangpy_rt; {POINTERS}").at
    found = at(spy.Tensor.from_numpy(device, a), np.arange(6, dtype=np.int32))
    np.testing.assert_array_equal(found, a.astype(np.float32))
    with pytest.raises(spy.BindError, match="takes an array of bfloat16"):
        at(a.view(np.uint16), 0)


def test_gradients_are_floats(device: spy.Device, module: spy.Module) -> None:
    a, seed = numbers(40, 5), numbers(40, 5, seed=1)
    x = spy.Tensor.from_numpy(device, a).with_grads()
    by = spy.Tensor.full(device, 1, 1.5, "bfloat16").with_grads()
    result = spy.Tensor.empty(device, (40, 5), "bfloat16").with_grads(grad_in=spy.Tensor.from_numpy(device, seed))
    module.mul.bwds(x, by, _result=result)
    wide, g = a.astype(np.float64), seed.astype(np.float64)
    assert x.grad is not None and by.grad is not None and x.grad.dtype.name == "float"
    np.testing.assert_allclose(x.grad.to_numpy(), 1.5 * g, rtol=1e-6)
    np.testing.assert_allclose(by.grad.to_numpy(), [(wide * g).sum()], rtol=1e-4)
    y = spy.Tensor.from_numpy(device, a).with_grads()
    assert y.grad is not None
    y.grad.copy_from(g.astype(np.float32))
    module.scale.bwds(y, 1.5)
    np.testing.assert_allclose(y.grad.to_numpy(), 1.5 * g, rtol=1e-6)
    tangent = spy.Tensor.zeros(device, (40, 5))
    moving = x.detach().with_grads(grad_in=spy.Tensor.from_numpy(device, seed))
    module.mul.fwds(moving, 1.5, _result=result.detach().with_grads(grad_out=tangent))
    np.testing.assert_allclose(tangent.to_numpy(), 1.5 * g, rtol=1e-6)
    check(result.detach(), rounded(a.astype(np.float32) * np.float32(1.5)))
    pair = spy.NDDifferentiableBuffer(device, "bfloat16", 3)
    assert pair.grad.dtype.name == "float"


def test_gradients_of_deterministic_devices(device: spy.Device, module: spy.Module) -> None:
    with spy.Device(device.name, deterministic=True) as other:
        mul = spy.Module.load_from_source(other, "test_bfloat16", SLANG).mul
        a = numbers(3000)
        found = []
        for _ in range(2):
            by = spy.Tensor.ones(other, 1, "bfloat16").with_grads()
            result = spy.Tensor.empty(other, 3000, "bfloat16").with_grads(grad_in=spy.Tensor.ones(other, 3000))
            mul.bwds(spy.Tensor.from_numpy(other, a), by, _result=result)
            assert by.grad is not None
            found.append(by.grad.to_numpy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_allclose(found[0], [a.astype(np.float64).sum()], rtol=1e-6)


def test_tensors(device: spy.Device, module: spy.Module) -> None:
    a = numbers(4, 6)
    x = spy.Tensor.from_numpy(device, a)
    assert (x.dtype.name, x.shape, x.nbytes) == ("bfloat16", (4, 6), 48)
    check(x, a)
    check(x[1:, ::2], a[1:, ::2])
    check(x.view(24), a.reshape(24))
    check(spy.Tensor.from_numpy(device, a.astype(np.float32), dtype="bfloat16"), a)
    check(spy.Tensor.from_numpy(device, a.astype(np.float64), dtype=BF16), a)
    check(spy.Tensor.from_numpy(device, [1, 2.5, -3], dtype=ml_dtypes.bfloat16), np.array([1, 2.5, -3], BF16))
    check(spy.Tensor.full(device, 2, 1.1, "bfloat16"), np.array([1.1, 1.1], BF16))
    check(spy.Tensor.ones_like(x), np.ones((4, 6), BF16))
    check(spy.Tensor.zeros_like(x), np.zeros((4, 6), BF16))
    check(spy.Tensor.arange(device, 3, dtype="bfloat16"), np.arange(3).astype(BF16))
    special = np.float32([np.nan, np.inf, -np.inf, -0.0, 1e-39])
    check(spy.Tensor.from_numpy(device, special, dtype="bfloat16"), rounded(special))
    with np.errstate(over="ignore"):
        every = floats()
        every = every[np.isfinite(rounded(every)) | ~np.isfinite(every)]
    check(spy.Tensor.from_numpy(device, every, dtype="bfloat16"), rounded(every))
    x.copy_from(np.ones((4, 6)))
    assert repr(x[0, :2]).startswith("Tensor([1., 1.], dtype=bfloat16")
    assert x.flatten_dtype().dtype.name == "bfloat16"


def test_other_libraries(device: spy.Device, module: spy.Module) -> None:
    a = numbers(4, 6)
    x = spy.Tensor.from_numpy(device, a)
    if "zero_copy" not in device.caps.features:
        with pytest.raises(spy.UnsupportedError):
            x.host_view()
        return
    view = x.host_view()
    view[0, 0] = 7
    check(x, view)
    for theirs in (x.torch(), torch.from_dlpack(x)):  # type: ignore[attr-defined]
        assert theirs.dtype == torch.bfloat16 and theirs.data_ptr() == x.address
        assert torch.equal(theirs.float(), torch.from_numpy(view.astype(np.float32)))
    assert not hasattr(x, "__array_interface__")
    assert np.asarray(x).dtype == BF16


def test_memory_of_other_libraries(device: spy.Device, module: spy.Module) -> None:
    place = "cuda" if device.name == "cuda" else "cpu"
    theirs = torch.linspace(-3, 3, 12).bfloat16().reshape(3, 4).to(place)
    others = [theirs, theirs.mT, theirs[::2, 1:]]
    others += [] if place == "cuda" else [theirs.view(torch.int16).numpy().view(BF16)]  # type: ignore[list-item]
    for other in others:
        if device.name != "cuda" and "zero_copy" not in device.caps.features:
            with pytest.raises(spy.BindError, match="in host memory; copy it with"):
                spy.Tensor.from_dlpack(device, other)
            continue
        x = spy.Tensor.from_dlpack(device, other)
        assert x.dtype.name == "bfloat16" and x.shape == tuple(other.shape)
        seen = other if isinstance(other, np.ndarray) else other.float().cpu().numpy()
        check(x, np.asarray(seen).astype(BF16))
        module.scale(x, 2.0)
        device.synchronize()
        seen = other if isinstance(other, np.ndarray) else other.float().cpu().numpy()
        check(x, np.asarray(seen).astype(BF16))
    if place == "cpu" and "zero_copy" in device.caps.features:
        still = np.ones(3, BF16)
        still.flags.writeable = False
        with pytest.raises(spy.BindError, match="must not be changed"):
            spy.Tensor.from_dlpack(device, still)


def test_command_lists(device: spy.Device, module: spy.Module) -> None:
    a = numbers(100)
    x, out = spy.Tensor.from_numpy(device, a), spy.Tensor.zeros(device, 100, "bfloat16")
    commands = device.command_list()
    module.mul.append_to(commands, x, 2.0, _result=out)
    module.mul.append_to(commands, out, 2.0, _result=out)
    commands.submit()
    check(out, a * BF16.type(4))


def test_outputs_in_autograd(module: spy.Module) -> None:
    text = "[Differentiable] void halve(float x, out float y) { y = x / 2; }"
    halve = spy.Module.load_from_source(module.device, "test_bfloat16_out", text).halve
    x, out = torch.linspace(-1, 1, 9).requires_grad_(), torch.zeros(9, dtype=torch.bfloat16)
    halve(x, out)
    assert torch.equal(out.detach(), (x / 2).bfloat16())
    out.float().square().sum().backward()
    torch.testing.assert_close(x.grad, out.detach().float(), rtol=2**-7, atol=0)


NO_ELEMENT = (
    "'bfloat16' is the type of elements of whole arrays; declare float, which takes and returns arrays of bfloat16 "
    "element by element."
)
# A function, its arguments and its result, in which "x" stands for a Tensor; the error.
REFUSED: dict[str, tuple[tuple[Any, ...], Any, str]] = {
    "whole_number": (
        (np.ones(2, np.int32),), "x",
        "int whole_number(int x): _result is an array of bfloat16, which goes where functions take or return floats "
        "and vectors of floats; 'int' was expected.",
    ),
    "first": (
        ("x",), None,
        "float first(Tensor<float, 1> t): argument 't' is a Tensor<bfloat16> of shape (2,), which functions take "
        "whole as 'Tensor<bfloat16, N>' and the like, and element by element as float; 'float' was expected.",
    ),
    "alone": (("x",), None, f"float alone(bfloat16 x): argument 'x': {NO_ELEMENT}"),
    "held": (({"x": 1.0},), None, f"float held(Holder h): argument 'h.x': {NO_ELEMENT}"),
    "put": (
        (np.zeros(2, np.float32), 0, 1.0), None,
        "void put(RWTensor<bfloat16, 1> t, int i, float x): argument 't' is an array of dtype float32 and shape (2,) "
        "and would be written to; pass an array of dtype bfloat16.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(device: spy.Device, module: spy.Module, name: str) -> None:
    args, result, message = REFUSED[name]
    x = spy.Tensor.zeros(device, 2, "bfloat16")
    with pytest.raises((spy.BindError, spy.UnsupportedError)) as raised:
        module[name](*[x if isinstance(a, str) else a for a in args], **({"_result": x} if result else {}))
    assert str(raised.value) == message


def test_tensors_that_are_refused(device: spy.Device, module: spy.Module) -> None:
    x = spy.Tensor.zeros(device, 2, "bfloat16")
    for call, message in [
        (
            lambda: x.with_grads(grad_out=spy.Tensor.zeros_like(x)),
            "'float' was expected, as gradients of 'bfloat16' are",
        ),
        (lambda: spy.Tensor.from_numpy(device, [3.4e38], dtype="bfloat16"), "which does not fit 'bfloat16'"),
        (lambda: spy.Tensor.zeros(device, 2, "bfloat16[3]"), "is not an element type"),
        (lambda: module.pick(spy.Tensor.zeros(device, (2, 2), "uint16_t"), 0), "'bfloat16' was expected"),
    ]:
        with pytest.raises(spy.BindError, match=message):
            call()


WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import slangpy_rt as spy
device = spy.Device("cpu")
x = spy.Tensor.from_numpy(device, [1.5, 2.25], dtype="bfloat16")
assert repr(x) == "Tensor([1.5 , 2.25], dtype=bfloat16, device=cpu)", repr(x)
try:
    x.to_numpy()
except spy.BindError as error:
    print(error)
"""


def test_without_ml_dtypes() -> None:
    if "cpu" not in [d.type for d in spy.devices() if d.available]:
        pytest.skip("no C++ compiler")
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == (
        "Tensor.to_numpy: NumPy knows 'bfloat16' with the package ml_dtypes alone; install that, or use "
        "tensor.torch() on devices in host memory and on CUDA.\n"
    )


def test_one_number_is_a_float(module: spy.Module) -> None:
    two = ml_dtypes.bfloat16(2)
    assert (module.mul(two, 1.5), module.mul([two, 1.0], two).tolist()) == (3.0, [4.0, 2.0])
    np.testing.assert_array_equal(module.twice([two, two, 1.0]), [4, 4, 2])
    cell = spy.ValueRef(two)
    module.scale(cell, two)
    assert cell.value == 4.0
    message = "int whole_number(int x): argument 'x' is 2 of type bfloat16, which does not convert to 'int'."
    with pytest.raises(spy.BindError, match=f"^{re.escape(message)}$"):
        module.whole_number(two)

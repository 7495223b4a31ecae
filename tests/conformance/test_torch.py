"""PyTorch's tensors as arguments and as results: against PyTorch's own values."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from _torch import module, same

import slangpy_rt as spy
from tests.depth import every_device, one_device, sampled

__all__ = ["module"]  # the fixture


# What these test does not depend on the device.
pytestmark = one_device


def test_tensors_in_tensors_out(module: spy.Module) -> None:
    a = torch.linspace(-1, 1, 12).reshape(3, 4)
    same(module.mul(a, 2.0), 4 * a)
    same(module.mul(a, torch.tensor([1.0, 2, 3, 4])), a * torch.tensor([1.0, 4, 9, 16]))
    same(module.mul(a.T, a.T), a.T**3)
    same(module.mul(a[::2, 1:3], 1.0), a[::2, 1:3])
    same(module.mul(torch.tensor(3.0), 2.0), torch.tensor(12.0))
    same(module.mul(torch.ones(1).expand(5), 3.0), torch.full((5,), 9.0))
    same(module.mul(torch.empty(0, 4), 1.0), torch.empty(0, 4))
    same(module.mul(a, np.ones(4)), a)
    same(module.two(torch.arange(3, dtype=torch.int32)), torch.tensor([0, 2, 4], dtype=torch.int32))
    same(module.mul(torch.nn.Parameter(a).detach(), b=1.0), a)
    same(module.unit(torch.tensor([[3.0, 0, 4]])), torch.tensor([[0.6, 0, 0.8]]))


@every_device
def test_other_strides_after_others(module: spy.Module) -> None:
    """Tensors of one shape, of which no two that are not contiguous have the same strides, in each order."""
    wide = torch.linspace(1, 2, 144).reshape(12, 12)
    views: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda t: t[:4, :6], lambda t: t[:8:2, :6], lambda t: t[:4, ::2], lambda t: t.T[:4, :6],
        lambda t: t.T[:4, ::2], lambda t: t[:1, :6].expand(4, 6), lambda t: t[:4, :1].expand(4, 6),
        lambda t: t[4:8, 3:9].clone(),
        lambda t: t[:4, :6].T.contiguous().T, lambda t: t.as_strided((4, 6), (1, 2)),
    ]  # fmt: skip
    for first in views:
        for second in views:
            x, y = first(wide), second(wide + 1)
            same(module.mul(x, y), x * y * y)
            # Beside a number the layout is known by the signature alone.
            same(module.mul(x, 2.0), 4 * x)
            same(module.mul(2.0, y), 2 * y * y)
            # An array that is written has the strides of the tensor, too.
            if 0 not in y.stride() and y.stride() != (1, 2):
                out = second(torch.zeros(12, 12))
                module.mul(x, y, _result=out)
                same(out, x * y * y)


def test_calls_after_calls_are_told_apart(module: spy.Module) -> None:
    # Each kind twice in a row and after the others: the second is expected to be like the first.
    a = torch.linspace(1, 2, 12)
    kinds: list[Callable[[], tuple[torch.Tensor, torch.Tensor]]] = [
        lambda: (a + 1, a),
        lambda: (a[:6].clone(), a[6:].clone()),
        lambda: (a.reshape(3, 4), a.reshape(3, 4) + 1),
        lambda: (a.reshape(3, 4), a.reshape(4, 3).T),
        lambda: (a[:3].reshape(3, 1), a[:4] * 2),
        lambda: (torch._neg_view(a.clone()), a),
        lambda: (a.double(), a.double()),
        lambda: (a.detach().requires_grad_(), a),
        lambda: (torch.nn.Parameter(a), a),
        lambda: (a[1:], a[:-1]),
    ]
    for _ in range(3):
        for kind in kinds:
            for _ in range(2):
                x, y = kind()
                if x.is_neg():
                    with pytest.raises(spy.BindError, match="memory does not hold its values"):
                        module.mul(x, y)
                    continue
                got = module.mul(x, y)
                assert got.requires_grad == x.requires_grad
                same(got.detach(), (x * y * y).detach().float())
                out = torch.full_like(got, 7)
                with torch.no_grad():
                    assert module.mul(x, y, _result=out) is out
                same(out.detach(), (x * y * y).detach().float())
    with torch.inference_mode():
        for _ in range(4):
            same(module.mul(a + 1, a), (a + 1) * a * a)
    # Gradients are not lost after calls without them, nor errors after calls that were right.
    p = torch.nn.Parameter(a.clone())
    for _ in range(2):
        with torch.no_grad():
            for _ in range(4):
                assert not module.mul(p, a).requires_grad
        for _ in range(4):
            assert module.mul(p, a).requires_grad
    for _ in range(3):
        same(module.weighted(a.reshape(4, 3)), 2 * (a.reshape(4, 3)[:, 0] + a[1::3] * a[2::3]))
        same(module.weighted(a.reshape(4, 3), a[:4]), a[:4] * (a.reshape(4, 3)[:, 0] + a[1::3] * a[2::3]))
        with pytest.raises(spy.BindError):
            module.mul(a)
        with pytest.raises(spy.BindError):
            module.mul(a, a, a)
    for _ in range(3):
        same(module.mul(a, a), a**3)
    x = torch.ones(12)
    module.mul(x, a, _result=x)
    module.mul(x, a, _result=x)
    same(x, a**4)


def test_new_results_are_where_the_call_ran(module: spy.Module) -> None:
    with torch.device("meta"):
        found = module.mul(torch.ones(3, device="cpu"), torch.ones(3, device="cpu"))
    assert found.device.type == "cpu" and found.tolist() == [1, 1, 1]


def test_results_and_what_is_written(module: spy.Module) -> None:
    a, out = torch.arange(4.0), torch.zeros(4)
    assert module.mul(a, 3.0, _result=out) is out
    same(out, 9 * a)
    assert module.mul(a, 2.0, out=out) is out
    module.grow(out, 1.0)
    same(out, 4 * a + 1)
    wide = torch.zeros(4, 6)
    module.grow(wide[:, ::2], a[:, None])
    assert wide.sum() == 3 * a.sum() and (wide[:, 1::2] == 0).all()
    same(module.mul(np.arange(4.0), 1.0, _result="torch"), a)
    assert isinstance(module.mul(a, 1.0, _result="numpy"), np.ndarray)
    assert isinstance(module.mul.return_type(spy.Tensor)(a, 1.0), spy.Tensor)
    same(module.mul.map((0,), (1,))(a, a), a[:, None] * a**2)
    line = {"slope": torch.arange(3.0), "offset": 1.0}
    same(module.along(line, 2.0), 2 * torch.arange(3.0) + 1)


@pytest.mark.parametrize("place", ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"])
def test_bfloat16_is_read_as_floats(module: spy.Module, device: spy.Device, place: str) -> None:
    if place == "cuda" and device.name not in ("cuda", "vulkan"):
        pytest.skip("it does not work in PyTorch's memory of a GPU")
    # Not exact in bfloat16 were they not so to begin with.
    a = torch.linspace(-3, 3, 24).bfloat16().reshape(2, 4, 3).to(place)
    b = torch.tensor([1.5, -0.25, 1e30], dtype=torch.bfloat16, device=place)
    bits = torch.tensor([0, 0x8000, 1, 0x7F80, 0xFF80, 0x7F7F, 0x3F80], dtype=torch.uint16, device=place)
    odd = bits.view(torch.bfloat16)
    for got, expected in [
        (module.mul(a, b[:2].sum()), a.float() * 1.25**2),
        (module.mul(a.transpose(0, 2), 2.0), a.transpose(0, 2).float() * 4),
        (module.mul(a.flatten()[1:], 1.0), a.flatten()[1:].float()),
        (module.mul(odd, 1.0), odd.float()),
        (module.mul(a.float(), b), a.float() * b.float() ** 2),
        (module.mul(b.expand(5, 3), 1.0), b.expand(5, 3).float()),
        (module.weighted(a, 1.0), a.float()[..., 0] + a.float()[..., 1] * a.float()[..., 2]),
        (module.mul(a[:0], 1.0), a[:0].float()),
    ]:
        same(got, expected)

    def gradients(f: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        x, y = a.detach().clone().requires_grad_(), b[:1].detach().clone().requires_grad_()
        f(x, y).square().sum().backward()
        assert x.grad is not None and y.grad is not None
        return [x.grad, y.grad]

    # torch rounds what is added up for one element of b once more often.
    for mine, theirs in zip(gradients(module.mul), gradients(lambda x, y: x.float() * y.float() ** 2), strict=True):
        assert mine.dtype == torch.bfloat16
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=2**-7, atol=1e-6)


def test_keywords_uniforms_maps_and_streams(module: spy.Module) -> None:
    v = torch.rand(5, 3, requires_grad=True)
    s = module.device.stream()
    module.weighted(w=3.0, v=v).sum().backward()
    module.weighted.stream(s)(v).sum().backward()
    expected = torch.stack([torch.ones(5), v[:, 2], v[:, 1]], -1).detach()
    same(v.grad, 5 * expected)
    x = torch.rand(4, requires_grad=True)
    for scale in (1.0, 10.0):
        module.scaled.set(scale=scale)(x).sum().backward()
    same(x.grad, 22 * x.detach())
    y = torch.rand(3, requires_grad=True)
    module.mul.map((0,), (1,))(x.detach(), y).sum().backward()
    same(y.grad, 2 * x.detach().sum() * y.detach())


def test_whole_tensors(module: spy.Module) -> None:
    x = torch.rand(10, requires_grad=True)
    k = torch.tensor([1, 1, 4], dtype=torch.int32)
    module.pick(x, k).sum().backward()
    expected = torch.zeros(10)
    expected[1], expected[4] = 4 * x[1].item(), 2 * x[4].item()
    same(x.grad, expected)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_is_refused(module: spy.Module) -> None:
    x = torch.rand(3, requires_grad=True)
    for call, message in [
        (lambda: module.two(x.to(torch.float32)), "does not convert to 'int'"),
        (lambda: module.through(x, 1.0), r"needs a derivative; mark the function \[Differentiable\]"),
        (lambda: module.put(x, np.zeros(3, np.float32)), "goes to a torch tensor; pass one"),
        (lambda: module.follow(x, 1.0), "autograd would need what was there before"),
        (lambda: module.mul(x, 1.0, _result=torch.zeros(3)), "leave it out, or call within torch.no_grad"),
        (lambda: module.mul.bind(x, 1.0), r"pass tensor\.detach\(\)"),
        (lambda: module.mul.append_to(module.device.command_list(), x, 1.0), r"pass tensor\.detach\(\)"),
        (lambda: module.mul.bwds(x, 1.0), r"torch calls them itself"),
        (lambda: module.along({"slope": x, "offset": 1.0}, 2.0), r"pass tensor\.detach\(\)"),
        (lambda: module.two(torch.ones(2, dtype=torch.bfloat16)), "bfloat16"),
        (
            lambda: module.two(torch.ones(2, dtype=torch.int32), _result=torch.zeros(2, dtype=torch.bfloat16)),
            "bfloat16",
        ),
        (lambda: module.mul(torch.ones(2).to_sparse(), 1.0), "whose memory cannot be used"),
        (
            lambda: module.mul(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), 1.0),
            "a nested torch tensor of torch.float32 on cpu; call the function with each of its tensors",
        ),
        (lambda: module.mul(torch.ones(2, device="meta"), 1.0), "on meta"),
        (lambda: module.mul(torch.ones(2), 1.0, _result=torch.zeros(3)), "zeros|shape|\\(3,\\)"),
        (lambda: module.mul(torch.ones(2, dtype=torch.complex64), 1.0), "complex64"),
    ]:
        with pytest.raises((spy.BindError, spy.ShapeError), match=message):
            call()
    same(module.mul(torch.ones(2), 1.0), torch.ones(2))
    if "zero_copy" in module.device.caps.features:
        # Elsewhere the copy is converted.
        with pytest.raises(spy.BindError, match="take whole as 'Tensor<bfloat16, N>'"):
            module.pick(torch.ones(2, dtype=torch.bfloat16), 0)


@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("gradient", [False, True])
def test_tensors_without_strides_after_dense_ones(module: spy.Module, gradient: bool) -> None:
    """The check of repeated calls reads strides, which nested and sparse tensors lack."""
    x, y = torch.rand(3, requires_grad=gradient), torch.rand(3)
    others = [torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), y.to_sparse(), torch.eye(3).to_sparse_csr()]
    for other in [*others, torch.ones(3, device="meta"), np.ones(3, np.float32), 1.0]:
        for _ in range(3):
            same(module.mul(x, y), x * y**2)
        for values in ((other, y), (x, other)):
            if isinstance(other, torch.Tensor):
                with pytest.raises(spy.BindError, match=r"nested torch tensor|memory cannot be used|on meta"):
                    module.mul(*values)
            elif not gradient:
                module.mul(*values)


def test_arrays_for_other_libraries(device: spy.Device) -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = spy.Tensor.from_numpy(device, data)
    if "zero_copy" not in device.caps.features:
        with pytest.raises(spy.UnsupportedError, match="to_numpy"):
            x.host_view()
        with pytest.raises(AttributeError, match="lies in memory of"):
            _ = x.__array_interface__
        np.testing.assert_array_equal(np.asarray(x), data)
        if device.name != "cuda":  # whose memory other libraries know
            with pytest.raises(spy.UnsupportedError, match="to_numpy"):
                x.torch()
            with pytest.raises(BufferError, match="to_numpy"):
                np.from_dlpack(x)
            with pytest.raises(AttributeError, match="no CUDA GPU"):
                _ = x.__cuda_array_interface__
        return
    for view, expected in ((x, data), (x[1:, ::-2], data[1:, ::-2]), (x[2], data[2])):
        np.testing.assert_array_equal(view.host_view(), expected)
    seen = np.asarray(x[1:, ::2])
    seen[...] = 7
    assert seen.ctypes.data == x.address + 24 and (x.numpy()[1:, ::2] == 7).all()
    x.copy_from(data)
    del seen
    t = x.torch()
    t += 1
    np.testing.assert_array_equal(x.numpy(), data + 1)
    np.testing.assert_array_equal(np.from_dlpack(x), data + 1)
    again = torch.from_dlpack(x)
    assert again.data_ptr() == x.address
    # The memory stays while somebody looks at it.
    del x, view
    gc.collect()
    spy.Tensor.zeros(device, (4, 6))
    np.testing.assert_array_equal(again.numpy(), data + 1)


def test_a_struct_that_is_one_array(device: spy.Device) -> None:
    """What it takes is what its field takes."""
    module = spy.Module.load_from_source(
        device,
        "torch_weights",
        "struct Weights { DiffTensor<float, 1> values; }; [Differentiable] float at(Weights w, int k)"
        " { return w.values[k] * w.values[k]; }",
    )
    k = torch.tensor([2, 0, 2], dtype=torch.int32)
    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    got = module.at(w, k)
    same(got.detach(), torch.tensor([9.0, 1.0, 9.0]))
    got.sum().backward()
    same(w.grad, torch.tensor([2.0, 0.0, 12.0]))
    np.testing.assert_array_equal(module.at(w.detach().numpy(), k.numpy()), [9, 1, 9])


def negated() -> torch.Tensor:
    """The numbers -4, -5 and -6, in memory 4, 5 and 6: PyTorch negates them as it reads them."""
    found = torch.complex(torch.zeros(3), torch.tensor([4.0, 5, 6])).conj().imag
    assert found.is_neg()
    return found


COPIES: dict[str, Callable[[spy.Device, torch.Tensor], Any]] = {
    "from_numpy": lambda d, x: spy.Tensor.from_numpy(d, x),
    "from_numpy of an instance": lambda d, x: (made := spy.Tensor.zeros(d, 3), made.from_numpy(x))[0],
    "copy_from": lambda d, x: (made := spy.Tensor.zeros(d, 3), made.copy_from(x))[0],
    "NDBuffer": lambda d, x: (made := spy.NDBuffer(d, "float", 3), made.copy_from(x))[0],
    "a texture": lambda d, x: spy.Texture.from_numpy(d, x[None]).to_numpy()[0],
    "copy_from of a texture": lambda d, x: (
        spy.Texture.from_numpy(d, np.zeros((1, 3), np.float32)).copy_from(x[None]).to_numpy()[0]
    ),
    "a vector": lambda d, x: spy.float3(x),
}


@sampled(4)
@pytest.mark.parametrize("way", COPIES)
def test_tensors_that_are_negated_as_they_are_read(device: spy.Device, way: str) -> None:
    for x in (negated(), torch._neg_view(torch.tensor([4.0, 5, 6])), negated().requires_grad_().detach()):
        assert np.asarray(COPIES[way](device, x)).tolist() == [-4, -5, -6]


def test_memory_that_does_not_hold_the_values_is_not_shared(module: spy.Module) -> None:
    """Neither a call nor ``from_dlpack`` takes such memory, also after a call of a tensor like it."""
    device, x = module.device, negated()
    plain = x.resolve_neg()
    torch.testing.assert_close(module.mul(plain, 1.0), plain)
    calls: list[Callable[[], Any]] = [
        lambda: module.mul(x, 1.0),
        lambda: module.mul(1.0, x),
        lambda: module.mul(torch.ones(3, requires_grad=True), x),
        lambda: module.mul(plain, 1.0, _result=torch._neg_view(torch.zeros(3))),
        lambda: spy.matmul(x[None], torch.ones(3, 1)),
    ]
    if "zero_copy" in device.caps.features:
        calls += [lambda: spy.Tensor.from_dlpack(device, x), lambda: spy.NDBuffer.from_dlpack(device, x)]
        zeros = torch._efficientzerotensor(3)
        calls += [lambda: spy.Tensor.from_dlpack(device, zeros)]
    for call in calls:
        with pytest.raises(spy.BindError, match="memory does not hold its values"):
            call()
    assert spy.Tensor.from_numpy(device, torch._efficientzerotensor(3)).tolist() == [0, 0, 0]
    # Steps of drawing copy what is not dense.
    for picture in (x[None, :, None], torch._neg_view(torch.tensor([[[4.0], [5], [6]]]))):
        assert spy.graphics.sample(picture, torch.tensor([[0.5, 0.5]]), device=device).tolist() == [[-5]]


def test_negative_strides_are_not_exported(device: spy.Device) -> None:
    """PyTorch ends the process if DLPack brings some; NumPy's own protocol has them."""
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    t = spy.Tensor.from_numpy(device, numbers)
    vectors = spy.Tensor.from_numpy(device, numbers, "float3")
    exports: list[Callable[[Any], Any]] = [
        torch.as_tensor, torch.asarray, torch.tensor, torch.from_dlpack, torch.utils.dlpack.from_dlpack,
        np.from_dlpack, lambda x: x.__dlpack__(), lambda x: x.torch(),
    ]  # fmt: skip
    if "zero_copy" not in device.caps.features and device.name != "cuda":
        with pytest.raises((BufferError, spy.UnsupportedError)):
            torch.from_dlpack(t[::-1])
        return
    for view in (t[::-1], t[:, ::-1], vectors[::-1], t.astype("bfloat16")[::-1]):
        for export in exports:
            with pytest.raises(BufferError) as caught:
                export(view)
            assert str(caught.value) == (
                f"{view.summary} has negative strides, which tensors of other libraries do not have; copy it with "
                "copy() or to_numpy()."
            )
        assert not hasattr(view, "__cuda_array_interface__")
    np.testing.assert_array_equal(torch.as_tensor(t[::-1].copy()).cpu().numpy(), numbers[::-1])
    # Of one element, or none, the stride leads nowhere.
    np.testing.assert_array_equal(torch.as_tensor(t[:1][::-1]).cpu().numpy(), numbers[:1])
    assert torch.from_dlpack(t[:0, ::-1]).shape == (0, 3)
    np.testing.assert_array_equal(t[:1][::-1].torch().cpu().numpy(), numbers[:1])
    if "zero_copy" in device.caps.features:
        np.testing.assert_array_equal(np.asarray(t[::-1]), numbers[::-1])
        np.testing.assert_array_equal(t[::-1].host_view(), numbers[::-1])
        np.testing.assert_array_equal(spy.Tensor.from_dlpack(device, t[::-1]).to_numpy(), numbers[::-1])
        np.testing.assert_array_equal(torch.from_dlpack(t[::-1], copy=True).numpy(), numbers[::-1])


def test_messages_are_of_pytorch(device: spy.Device) -> None:
    module = spy.Module.load_from_source(
        device, "of_pytorch", "uint u(uint a) { return a; } float f(float a) { return a; }"
    )
    for call, message in (
        (
            lambda: module.u(torch.arange(3)),
            "uint u(uint a): argument 'a' is a torch tensor of torch.int64 and shape (3,) on cpu, which does not "
            "convert to 'uint'; pass tensor.to(torch.uint32).",
        ),
        (
            lambda: module.f(torch.ones(3), _result=torch.ones(3, dtype=torch.float64)),
            "float f(float a): _result is a torch tensor of torch.float64 and shape (3,) on cpu, which does not "
            "convert to 'float'; it must be a tensor of torch.float32.",
        ),
    ):
        with pytest.raises(spy.BindError) as caught:
            call()
        assert str(caught.value) == message

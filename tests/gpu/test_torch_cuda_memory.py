"""Memory of PyTorch, JAX and others on a CUDA GPU: seen from both sides, shared by arguments, overlapping."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from _torch_cuda import module, needs_cuda

import slangpy_rt as spy

__all__ = ["module"]  # the fixture

pytestmark = needs_cuda


def test_the_same_memory(module: spy.Module) -> None:
    if module.device.name == "vulkan":
        return  # whose memory PyTorch does not know
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = spy.Tensor.from_numpy(module.device, data)
    for view, expected in ((x, data), (x[1:, ::2], data[1:, ::2]), (x[2], data[2])):
        for seen in (view.torch(), torch.from_dlpack(view), torch.as_tensor(view, device="cuda")):
            assert seen.data_ptr() == view.address
            np.testing.assert_array_equal(seen.cpu().numpy(), expected)
    t = x.torch()
    t += 1
    torch.cuda.synchronize()
    np.testing.assert_array_equal(x.numpy(), data + 1)
    back = spy.Tensor.from_dlpack(module.device, t)
    assert back.address == x.address
    np.testing.assert_array_equal(back.numpy(), data + 1)
    del x, view, seen, back
    gc.collect()
    spy.Tensor.zeros(module.device, (4, 6))
    module.device.synchronize()
    np.testing.assert_array_equal(t.cpu().numpy(), data + 1)
    kept = spy.Tensor.from_dlpack(module.device, torch.full((1000,), 7.0, device="cuda"))
    gc.collect()
    torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    assert (kept.numpy() == 7).all()


def test_other_libraries(module: spy.Module) -> None:
    cupy = pytest.importorskip("cupy")
    if module.device.name == "vulkan":
        with pytest.raises(spy.BindError, match="does not work there"):
            module.mul(cupy.ones(3, cupy.float32), 1.0)
        return
    a = cupy.arange(1000, dtype=cupy.float32)
    got = module.mul(a, 2.0)
    assert isinstance(got, spy.Tensor)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.from_dlpack(got)), 4 * np.arange(1000))
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(got)), 4 * np.arange(1000))
    with cupy.cuda.Stream(non_blocking=True):
        b = cupy.ones(1 << 20, cupy.float32)
        for _ in range(20):
            b += 1
            module.grow(b, 1.0)
        assert (b == 41).all()
    c = cupy.zeros(1000, cupy.float32)
    module.grow(c, a)
    assert (c == a).all()
    own = spy.Tensor.zeros(module.device, 1000)
    for _ in range(40):
        with cupy.cuda.Stream(non_blocking=True) as stream:
            d = cupy.ones(1000, cupy.float32)
            module.grow(own, d)
            module.grow(d, own)
            stream.synchronize()
        # The stream is gone, and nobody misses it.
        del stream
        module.grow(own, 0.0)
    module.device.synchronize()
    assert (own.numpy() == 40).all() and (d == 41).all()


def test_jax(module: spy.Module) -> None:
    jax = pytest.importorskip("jax")
    if module.device.name == "vulkan":
        return
    jnp = jax.numpy
    a = jnp.arange(1000, dtype=jnp.float32)
    assert "cuda" in str(a.device).lower()
    for _ in range(50):
        b = jnp.sin(a) + 1
        got = module.mul(b, 2.0)
        del b
        other = jnp.cos(a) * 3 + 7  # would take the memory
    np.testing.assert_allclose(got.numpy(), 4 * (np.sin(np.arange(1000)) + 1), rtol=2e-4, atol=1e-5)
    seen = jnp.from_dlpack(got)
    np.testing.assert_allclose(np.asarray(seen + 0), got.numpy())
    with pytest.raises(spy.BindError, match="must not be changed"):
        module.grow(other, 1.0)


@pytest.mark.parametrize("own_stream", [False, True])
def test_tensors_that_share_memory(module: spy.Module, own_stream: bool) -> None:
    # Whole numbers, which floats hold exactly; long enough that blocks of threads run after others.
    n = 1 << 20
    stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
    with torch.cuda.stream(stream):
        for _ in range(4):
            a = torch.arange(n, dtype=torch.float32, device="cuda") % 1024
            before = a.clone()
            assert module.mul(a[:-1], 2.0, _result=a[1:]) is not None
            torch.testing.assert_close(a[1:], 4 * before[:-1], rtol=0, atol=0)
            b = before.clone()
            module.grow(b[1:], b[:-1])
            torch.testing.assert_close(b[1:], before[1:] + before[:-1], rtol=0, atol=0)
            c = before.reshape(1024, 1024).clone()
            module.mul(c, 1.0, _result=c.T)
            torch.testing.assert_close(c.T, before.reshape(1024, 1024), rtol=0, atol=0)
    stream.synchronize()


def test_outputs_that_share_memory(module: spy.Module) -> None:
    two = spy.Module.load_from_source(
        module.device, "torch_two", "void split(float x, out float a, out float b) { a = x; b = -x; }"
    )
    a = torch.zeros(101, device="cuda")
    with pytest.raises(spy.ShapeError, match="'a' and 'b' share memory"):
        two.split(1.0, a[:100], a[1:])
    with pytest.raises(spy.ShapeError, match="overlap each other"):
        two.split(1.0, a.as_strided((5, 3), (1, 1)), torch.zeros(5, 3, device="cuda"))
    assert not a.any()
    two.split(1.0, a[:50], a[50:100])
    assert a[:50].eq(1).all() and a[50:100].eq(-1).all() and not a[100]


def test_two_tensors_over_one_storage(module: spy.Module) -> None:
    if module.device.name != "cuda":
        pytest.skip("Vulkan works in copies")
    whole = torch.arange(1 << 16, dtype=torch.float32, device="cuda") % 512
    before = whole.clone()
    first, second = (spy.Tensor.from_dlpack(module.device, part) for part in (whole[:-1], whole[1:]))
    module.mul(first, 2.0, _result=second)
    module.device.synchronize()
    torch.testing.assert_close(whole[1:], 4 * before[:-1], rtol=0, atol=0)
    commands = module.device.command_list()
    module.mul.append_to(commands, second, 1.0, _result=first)
    module.mul.append_to(commands, first, 2.0, _result=second)
    commands.submit()
    module.device.synchronize()
    expected = before.clone()
    expected[1:] = 4 * before[:-1]
    expected[:-1] = expected[1:].clone()
    expected[1:] = 4 * expected[:-1].clone()
    torch.testing.assert_close(whole, expected, rtol=0, atol=0)

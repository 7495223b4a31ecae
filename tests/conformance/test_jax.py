"""JAX's arrays as arguments, Tensors back to JAX, and calls within jit, vmap and grad: against NumPy and JAX itself.

Arrays lie in host memory here; those on a GPU are in tests/gpu.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import needs, one_device, one_in, sampled

# What these test does not depend on the device.
pytestmark = one_device


SLANG = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint",
    "uint64": "uint64_t",
}
SOURCE = (
    "\n".join(f"{name} twice_{dtype}({name} x) {{ return x + x; }}" for dtype, name in SLANG.items())
    + """
bool flip(bool x) { return !x; }
[Differentiable] float mul(float a, float b) { return a * b * b; }
[Differentiable] float wave(float x) { return sin(x) * x; }
[Differentiable] float3 turn(float3 v, float k) { return k * v.yzx; }
float total(Tensor<float, 1> x) { float s = 0; for (int i = 0; i < x.shape[0]; ++i) s += x[i]; return s; }
struct Line { float slope; float offset; }
float along(Line line, float x) { return line.slope * x + line.offset; }
uniform float scale;
float scaled(float x) { return scale * x; }
void grow(inout float a, float b) { a += b; }
void put(float a, out float b) { b = a; }
void fill(RWTensor<float, 1> x) { x[0] = 7; }
int count(int x) { return x; }
"""
)


@pytest.fixture(autouse=True)
def in_host_memory() -> Iterator[None]:
    """Whatever devices JAX has."""
    with jax.default_device(jax.devices("cpu")[0]):
        yield


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "test_jax", SOURCE)


def same(got: Any, expected: Any) -> None:
    """A NumPy array, as calls with host arrays return, of the values expected."""
    expected = np.asarray(expected)
    assert type(got) is np.ndarray and got.dtype == expected.dtype and got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@needs(lambda case: [SLANG[case["dtype"]]])
@sampled(4)
@pytest.mark.parametrize("dtype", SLANG)
def test_element_types(module: spy.Module, dtype: str) -> None:
    with jax.enable_x64(True):
        a = jnp.arange(5).astype(dtype)
        assert a.dtype == dtype
        same(module[f"twice_{dtype}"](a), 2 * np.arange(5).astype(dtype))


def test_bools_and_conversions(module: spy.Module) -> None:
    same(module.flip(jnp.array([True, False])), [False, True])
    same(module.mul(jnp.arange(3, dtype=jnp.float16), 2.0), np.float32([0, 4, 8]))
    same(module.mul(jnp.arange(3), 2.0), np.float32([0, 4, 8]))


@sampled(3)
def test_shapes_and_views(module: spy.Module) -> None:
    n = np.arange(12, dtype=np.float32).reshape(3, 4)
    a = jnp.asarray(n)
    same(module.mul(a, 2.0), 4 * n)
    same(module.mul(a.T, a.T), n.T**3)
    same(module.mul(a[::2, 1:], a[0, 1:]), n[::2, 1:] * n[0, 1:] ** 2)
    same(module.mul(jnp.flip(a, 0), 1.0), n[::-1])
    same(module.mul(jnp.broadcast_to(a[0], (5, 4)), 1.0), np.broadcast_to(n[0], (5, 4)))
    same(module.mul(jnp.float32(3), jnp.float32(2)), np.float32(12))
    same(module.mul(jnp.zeros((0, 4)), 1.0), np.zeros((0, 4), np.float32))
    same(module.turn(a[:, :3], a[:, 3]), n[:, 3:] * n[:, [1, 2, 0]])


def test_beside_other_arguments(module: spy.Module) -> None:
    n = np.arange(4, dtype=np.float32)
    a = jnp.asarray(n)
    same(module.mul(a, n), n**3)
    same(module.mul(b=a, a=2.0), 2 * n**2)
    same(module.total(a), np.float32(6))
    same(module.along({"slope": a, "offset": 1.0}, 2.0), 2 * n + 1)
    same(module.scaled.set(scale=jnp.float32(3))(a), 3 * n)
    same(module.mul.map((0,), (1,))(a, a), n[:, None] * n**2)
    x = module.mul(a, spy.Tensor.from_numpy(module.device, n))
    assert isinstance(x, spy.Tensor)
    same(x.numpy(), n**3)
    out = np.zeros(4, np.float32)
    assert module.mul(a, 1.0, _result=out) is out
    same(out, n)
    module.grow(out, a)
    same(out, 2 * n)


def test_on_the_cpu_arrays_are_used_where_they_lie(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "zero_copy" not in device.caps.features:
        with pytest.raises(spy.BindError, match="from_numpy"):
            spy.Tensor.from_dlpack(device, jnp.ones(3))
        return
    seen, wrap = [], device.backend.wrap
    monkeypatch.setattr(device.backend, "wrap", lambda address, *rest: seen.append(address) or wrap(address, *rest))
    # Of shapes that no other test has: how a call reaches its arrays is decided at the first of its kind.
    a, b = jnp.arange(1234.0), jnp.arange(1234.0) + 1
    module.mul(a, b)
    assert seen[:2] == [a.unsafe_buffer_pointer(), b.unsafe_buffer_pointer()]
    with pytest.raises(spy.BindError, match="must not be changed, as a Tensor may be"):
        spy.Tensor.from_dlpack(device, a)
    n = np.arange(1234, dtype=np.float32)
    x, address = spy.Tensor.from_dlpack(device, n), n.ctypes.data
    assert x.address == address
    del n
    gc.collect()
    np.zeros(1234, np.float32)  # would take the memory
    same(x.numpy(), np.arange(1234, dtype=np.float32))


def test_a_call_waits_for_jax(module: spy.Module) -> None:
    """JAX hands out arrays that it has not computed yet."""
    ones = jnp.ones((700, 700))
    for k in range(5):
        product = ones * k
        for _ in range(4):
            product = product @ ones / 700
        same(module.mul(product, 2.0), np.full((700, 700), 4 * k, np.float32))


def test_arrays_of_jax_are_not_written_to(module: spy.Module) -> None:
    a = jnp.arange(3.0)
    for call, message in [
        (lambda: module.grow(a, 1.0), "argument 'a' is .* would be written to"),
        (lambda: module.put(1.0, a), "argument 'b' is .* would be written to"),
        (lambda: module.fill(a), "argument 'x' is .* would be written to"),
        (lambda: module.mul(a, 1.0, _result=a), "_result: pass a Tensor, an NDBuffer, a NumPy array"),
        (lambda: module.mul(a, 1.0, out=a), "_result: pass a Tensor, an NDBuffer, a NumPy array"),
    ]:
        with pytest.raises(spy.BindError, match=message):
            call()
    np.testing.assert_array_equal(a, [0, 1, 2])


class Spread:
    """Says what JAX's arrays of several devices say."""

    def __dlpack__(self, **options: Any) -> Any:
        raise AssertionError("it has told that it cannot")

    def __dlpack_device__(self) -> Any:
        raise BufferError("only supported for unsharded arrays")


def test_what_is_refused(module: spy.Module) -> None:
    a = jnp.arange(3.0)
    gone = a + 1
    gone.delete()
    for call, message in [
        (lambda: module.mul(a.astype(jnp.bfloat16), 1.0), "argument 'a' is .*DLPack cannot share"),
        (lambda: module.mul(a.astype(jnp.complex64), 1.0), "argument 'a' is .*complex64"),
        (lambda: module.count(a), "argument 'x' is .* does not convert to 'int'"),
        (lambda: module.mul(gone, 1.0), "argument 'a' is .*DLPack cannot share"),
        (lambda: module.mul(1.0, Spread()), "argument 'b' is .*Spread, .*only supported for unsharded arrays"),
        (lambda: module.mul(jax.random.key(0), 1.0), "does not convert to 'float'"),
        (lambda: module.mul.bwds(a, 1.0, _result=spy.Tensor.ones(module.device, 3).with_grads()), "has no gradient"),
        (lambda: jax.jit(lambda x: module.mul(x, 1.0))(a), "argument 'a' is .*Tracer.*pure_callback"),
        (lambda: jax.vmap(lambda x: module.mul(x, 1.0))(a), "argument 'a' is .*Tracer.*pure_callback"),
        (lambda: jax.grad(lambda x: module.mul(x, 1.0))(1.0), "argument 'a' is .*Tracer.*pure_callback"),
    ]:
        with pytest.raises(spy.BindError, match=message):
            call()


# Back to JAX.


def test_tensors_become_arrays_of_jax(device: spy.Device, module: spy.Module) -> None:
    n = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = module.mul(jnp.asarray(n), 2.0, _result="tensor")
    if "zero_copy" not in device.caps.features:
        if device.name != "cuda":  # whose memory JAX knows, where it has the GPU
            with pytest.raises(BufferError, match="to_numpy"):
                jnp.from_dlpack(x)
        np.testing.assert_array_equal(jnp.asarray(x.numpy()), 4 * n)
        return
    for tensor, expected in (
        (x, 4 * n),
        (spy.NDBuffer(device, "int", (3,)), None),
        (spy.Tensor.from_numpy(device, n, dtype="float3"), n),
        (spy.Tensor.from_numpy(device, n > 4), n > 4),
        (spy.Tensor.from_numpy(device, n.astype(np.uint8)), n.astype(np.uint8)),
        (spy.Tensor.zeros(device, (0, 3)), np.zeros((0, 3), np.float32)),
    ):
        a = jnp.from_dlpack(tensor, copy=False)
        assert a.unsafe_buffer_pointer() == tensor.address
        assert a.shape == tensor.layout.full_shape
        if expected is not None:
            assert a.dtype == expected.dtype
            np.testing.assert_array_equal(a, expected)
    # XLA wants memory at multiples of 64 bytes, which a row need not be at, and dense: it copies, or refuses.
    np.testing.assert_array_equal(jnp.from_dlpack(x[1:]), 4 * n[1:])
    with pytest.raises(ValueError, match="aligned"):
        jnp.from_dlpack(x[1:], copy=False)
    with pytest.raises(RuntimeError, match="compact"):
        jnp.from_dlpack(x[:, ::2])
    doubles = spy.Tensor.from_numpy(device, n.astype(np.float64))
    assert jnp.from_dlpack(doubles).dtype == jnp.float32
    with jax.enable_x64(True):
        a = jnp.from_dlpack(doubles)
        assert a.dtype == jnp.float64 and a.unsafe_buffer_pointer() == doubles.address


def test_the_memory_stays_while_jax_has_it(device: spy.Device, module: spy.Module) -> None:
    if "zero_copy" not in device.caps.features:
        return
    n = np.arange(1000, dtype=np.float32)
    x = module.mul(n, 3.0, _result="tensor")
    address = x.address
    a = jnp.from_dlpack(x)
    del x
    gc.collect()
    others = [spy.Tensor.zeros(device, 1000) for _ in range(20)]
    assert a.unsafe_buffer_pointer() == address not in [o.address for o in others]
    np.testing.assert_array_equal(a, 9 * n)
    np.testing.assert_array_equal(jax.jit(lambda v: v + v)(a), 18 * n)
    # And goes back when JAX is done with it: a free block is taken before a new one is made.
    del a, others
    jax.clear_caches()
    gc.collect()
    assert address in [o.address for o in [spy.Tensor.zeros(device, 1000) for _ in range(40)]]


# Within jit, vmap and grad.


def in_jax(function: spy.Function) -> Callable[..., Any]:
    """A function of scalars as one of JAX: for jit, vmap and grad, over arrays that broadcast."""
    device = function.device

    def of(xs: Any) -> Any:
        return tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs)

    @jax.custom_vjp
    def call(*xs: Any) -> Any:
        return jax.pure_callback(function, of(xs)[0], *xs, vmap_method="broadcast_all")

    def forward(*xs: Any) -> Any:
        return call(*xs), xs

    def gradients(xs: Any, seed: Any) -> Any:
        tensors = [spy.Tensor.from_numpy(device, x).with_grads() for x in xs]
        result = spy.Tensor.empty(device, seed.shape).with_grads(grad_in=spy.Tensor.from_numpy(device, seed))
        function.bwds(*tensors, _result=result)
        return tuple(t.grad.numpy() for t in tensors)

    def backward(xs: Any, seed: Any) -> Any:
        return jax.pure_callback(gradients, of(xs), xs, seed, vmap_method="broadcast_all")

    call.defvjp(forward, backward)
    return lambda *xs: call(*jnp.broadcast_arrays(*xs))


def test_within_jit(module: spy.Module) -> None:
    @jax.jit
    def f(a: Any, b: Any) -> Any:
        shape = jax.ShapeDtypeStruct(jnp.broadcast_shapes(a.shape, b.shape), a.dtype)
        return jax.pure_callback(module.mul, shape, a + 1, b) - 1

    for shape in ((3, 4), (100, 4), (50_000, 4)):
        a = np.random.default_rng(1).random(shape, np.float32)
        b = np.arange(4, dtype=np.float32)
        np.testing.assert_allclose(f(a, b), (a + 1) * b**2 - 1, rtol=1e-6, atol=1e-6)


def test_vectors_within_jit_and_vmap(module: spy.Module) -> None:
    @jax.jit
    def turn(v: Any, k: Any) -> Any:
        return jax.pure_callback(
            module.turn, jax.ShapeDtypeStruct(v.shape, v.dtype), v, k, vmap_method="broadcast_all"
        )

    v, k = np.random.default_rng(2).random((5, 3), np.float32), np.arange(5, dtype=np.float32)
    expected = k[:, None] * v[:, [1, 2, 0]]
    np.testing.assert_allclose(turn(v, k), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(turn)(v, k), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(turn, (None, 0))(v[0], k), k[:, None] * v[0, [1, 2, 0]], rtol=1e-6)


TRANSFORMED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "call": lambda f, x, b: f(x, b),
    "jit": lambda f, x, b: jax.jit(f)(x, b),
    "vmap, one argument": lambda f, x, b: jax.vmap(f, (0, None))(x, b),
    "vmap, the other": lambda f, x, b: jax.vmap(f, (None, 0))(x, b[:, None]),
    "vmap, ranks that differ": lambda f, x, b: jax.vmap(f)(jnp.ones((4, 4)) * b, b),
    "vmap, columns": lambda f, x, b: jax.vmap(f, (1, None), 1)(x, 2.0),
    "vmap of vmap": lambda f, x, b: jax.vmap(jax.vmap(f, (0, None)), (None, 0))(x[0], b),
    "grad": lambda f, x, b: jax.grad(lambda x, b: f(x, b).sum(), (0, 1))(x, b),
    "grad in jit": lambda f, x, b: jax.jit(jax.grad(lambda x, b: (f(x, b) ** 2).sum(), (0, 1)))(x, b),
    "vmap of grad": lambda f, x, b: jax.vmap(jax.grad(lambda x, b: f(x, b).sum(), (0, 1)), (0, None))(x, b),
    "grad of vmap": lambda f, x, b: jax.grad(lambda b: jax.vmap(f, (0, None))(x, b).sum())(b),
    "value and grad": lambda f, x, b: jax.value_and_grad(lambda b: f(x, b).mean())(2.0),
    "jacrev": lambda f, x, b: jax.jacrev(f)(b, b),
    "vjp": lambda f, x, b: jax.vjp(f, x, b)[1](jnp.cos(x)),
    "scan": lambda f, x, b: jax.lax.scan(lambda c, row: (f(c, row), c), b, x),
    "checkpoint": lambda f, x, b: jax.grad(lambda b: jax.checkpoint(f)(x, jnp.sin(b)).sum())(b),
}


@sampled(4)
@pytest.mark.parametrize("name", one_in(2, TRANSFORMED))
def test_transformed(module: spy.Module, name: str) -> None:
    x, b = jnp.linspace(0.1, 1, 12).reshape(3, 4), jnp.array([1.0, -2, 3, 0.5])
    transformed = TRANSFORMED[name]
    got = transformed(in_jax(module.mul), x, b)
    expected = transformed(lambda a, b: a * b * b, x, b)
    jax.tree.map(lambda g, e: np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6), got, expected)


def test_a_gradient_through_more_than_the_call(module: spy.Module) -> None:
    wave = in_jax(module.wave)

    def loss(f: Callable[[Any], Any], x: Any) -> Any:
        return (jnp.tanh(f(jnp.exp(-x))) * x).sum()

    x = jnp.linspace(-1, 2, 50)
    got = jax.jit(jax.grad(lambda x: loss(wave, x)))(x)
    np.testing.assert_allclose(got, jax.grad(lambda x: loss(lambda y: jnp.sin(y) * y, x))(x), rtol=1e-4, atol=1e-5)


def test_large_arrays_and_several_calls_in_one_program(module: spy.Module) -> None:
    """XLA computes with the threads on which it calls back."""
    mul, x = in_jax(module.mul), jnp.arange(1 << 20) % 7 * 1.0

    def f(mul: Callable[..., Any], x: Any) -> Any:
        return sum(mul(x, float(k)) * mul(x + k, 1.0) for k in range(4)).mean()

    got = jax.jit(jax.value_and_grad(lambda x: f(mul, x)))(x)
    expected = jax.value_and_grad(lambda x: f(lambda a, b: a * b * b, x))(x)
    jax.tree.map(lambda g, e: np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-9), got, expected)


def test_what_goes_wrong_within_jit_is_told(module: spy.Module) -> None:
    def call(function: Any, shape: Any, *xs: Any) -> Any:
        return jax.jit(lambda *xs: jax.pure_callback(function, jax.ShapeDtypeStruct(shape, jnp.float32), *xs))(*xs)

    x = jnp.ones(3)
    with pytest.raises(RuntimeError, match="argument b missing"):
        jax.block_until_ready(call(module.mul, (3,), x))
    with pytest.raises(RuntimeError, match=r"does not broadcast"):
        jax.block_until_ready(call(module.mul, (3,), x, jnp.ones(4)))
    with pytest.raises(RuntimeError, match=r"Expected: \(2,\)"):
        jax.block_until_ready(call(module.mul, (2,), x, x))
    np.testing.assert_array_equal(call(module.mul, (3,), x, x), np.ones(3))
    with pytest.raises(TypeError, match="custom_vjp"):
        jax.jvp(in_jax(module.wave), (x,), (x,))

"""Errors of derivatives, with their whole messages: what was wrong, what was expected, what to do.

After each refusal no gradient may have changed, and the same call, made right, must work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy

SLANG = """
import slangpy_rt;
struct Ray : IDifferentiable { float3 o; float t; }
struct Count { int n; }
[Differentiable] float mul(float a, float b) { return a * b; }
float plain(float a) { return a; }
[Differentiable] float norm(float3 v, float s) { return dot(v, v) * s; }
[Differentiable] void split(float a, out float b) { b = a; }
[Differentiable] void grow(inout float x, float by) { x *= by; }
[Differentiable] void walk(inout Ray r, float by) { r.o *= by; }
[Differentiable] Ray make(float3 o, float t) { return { o, t }; }
[Differentiable] float far(Ray r, float s) { return r.o.x * r.t * s; }
[Differentiable] float at(DiffTensor<float, 1> t, no_diff int i) { return t[i]; }
[Differentiable] void put(WDiffTensor<float, 1> to, no_diff int i, float v) { to[i] = v; }
[Differentiable] float over(float a, float b) { return a * b; }
[Differentiable] float over(float3 a, float b) { return a.x * b; }
float both(DifferentialPair<float> p) { return p.p + p.d; }
[Differentiable] int rounded(float a) { return int(a); }
[Differentiable] float weigh(float w[2], float x) { return w[0] * x + w[1]; }
[numthreads(1, 1, 1)] void kernel(uint3 i : SV_DispatchThreadID, RWTensor<float, 1> to) { to[0] = 1; }
"""
MUL = "float mul(float a, float b)"
HOW = "pass a Tensor as tensor.with_grads(grad_in=gradient), or diff_pair(None, gradient)"
NUMPY = (
    "which has no gradient; make it a Tensor with Tensor.from_numpy(...), and add .with_grads() if its gradient "
    "is wanted."
)
RIGHT = "\nShapes are matched from the right; two dimensions must be equal, or one of them 1."
ARRAY = "an array of dtype float32 and shape (3,)"


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_gradient_errors", SLANG)


class Arrays:
    """Arguments for calls that fail; ``check`` sees whether any was written to."""

    def __init__(self, module: spy.Module) -> None:
        device = module.device
        self.h = np.full(3, 7, np.float32)
        self.t = spy.Tensor.full(device, 3, 7.0)
        self.g = spy.Tensor.full(device, 3, 7.0)
        self.x = self.t.with_grads(grad_out=self.g)
        self.only_in = self.t.with_grads(grad_in=self.g)
        self.r = spy.Tensor.full(device, 3, 7.0).with_grads(grad_in=self.g)
        self.v = spy.Tensor.full(device, 3, 7.0, "float3")
        self.wide = spy.Tensor.full(device, 4, 7.0).with_grads(grad_out=spy.Tensor.full(device, 4, 7.0))
        self.ti = spy.Tensor.full(device, 3, 7, "int")
        self.n = spy.NDBuffer(device, "float", (3,))
        self.n.copy_from(self.h)
        self.p = spy.diff_pair(7.0, 7.0)

    def check(self) -> None:
        """Everything still holds 7."""
        for name, array in vars(self).items():
            if isinstance(array, spy.DiffPair):
                assert (array.primal, array.grad) == (7, 7), name
                continue
            arrays = [array]
            if isinstance(array, spy.Tensor):
                arrays += [g for g in (array.grad_in, array.grad_out) if g is not None]
            for a in arrays:
                assert (np.asarray(a) == 7).all(), name


Call = Callable[[spy.Module, Arrays], Any]
_BIND, _SHAPE, _NOT = spy.BindError, spy.ShapeError, spy.UnsupportedError
REFUSED: dict[str, tuple[Call, type[Exception], str]] = {
    "a function that is not differentiable": (
        lambda m, a: m.plain.bwds(a.x, _result=a.r),
        _BIND,
        "float plain(float a): .bwds needs a derivative; mark the function [Differentiable].",
    ),
    "the forward derivative of one": (
        lambda m, a: m.plain.fwds(a.x),
        _BIND,
        "float plain(float a): .fwds needs a derivative; mark the function [Differentiable].",
    ),
    "no gradient of the result": (
        lambda m, a: m.mul.bwds(a.x, 1.0),
        _BIND,
        f"{MUL}: the gradient of the result is missing; {HOW}, as _result.",
    ),
    "a result that has no gradient": (
        lambda m, a: m.rounded.bwds(a.x, _result=a.r),
        _BIND,
        "int rounded(float a): 'int' has no gradient to propagate back; leave _result out.",
    ),
    "a result that carries none": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=a.t),
        _BIND,
        f"{MUL}: _result is a Tensor<float> of shape (3,) without a gradient to read; {HOW}.",
    ),
    "a result that carries only the other": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=a.x),
        _BIND,
        f"{MUL}: _result is a Tensor<float> of shape (3,) without a gradient to read; {HOW}.",
    ),
    "a number as the result's gradient": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=1.0),
        _BIND,
        f"{MUL}: _result is 1.0, which has no gradient to read; {HOW}.",
    ),
    "a NumPy array as the result's gradient": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=a.h),
        _BIND,
        f"{MUL}: _result is {ARRAY}, which has no gradient to read; {HOW}.",
    ),
    "a pair without a gradient as the result's": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=spy.diff_pair(1.0)),
        _BIND,
        f"{MUL}: _result is DiffPair(1.0, grad=None), whose gradient is missing; {HOW}.",
    ),
    "a kind as the result": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result="numpy"),
        _BIND,
        f"{MUL}: the gradient of the result is missing; {HOW}, as _result.",
    ),
    "a field of the result without a gradient": (
        lambda m, a: m.make.bwds([1.0, 2, 3], a.x, _result={"o": spy.diff_pair(None, [1.0, 1, 1]), "t": 2.0}),
        _BIND,
        f"Ray make(float3 o, float t): _result.t is 2.0, which has no gradient to read; {HOW}.",
    ),
    "a field of the result that is missing": (
        lambda m, a: m.make.bwds([1.0, 2, 3], a.x, _result={"o": spy.diff_pair(None, [1.0, 1, 1])}),
        _BIND,
        "Ray make(float3 o, float t): _result lacks t; 'Ray' has o, t.",
    ),
    "a result for a function that has none": (
        lambda m, a: m.split.bwds(a.x, a.r, _result=a.r),
        _BIND,
        "void split(float a, out float b) returns nothing; leave _result out.",
    ),
    "the gradient of another type as the result's": (
        lambda m, a: m.mul.bwds(a.x, 1.0, _result=a.v.with_grads()),
        _BIND,
        f"{MUL}: _result is a Tensor<float3> of shape (3,); 'float' was expected, and device data is not converted. "
        "Make it with dtype='float', or convert it on the host with from_numpy(...).",
    ),
    "no argument with a gradient": (
        lambda m, a: m.mul.bwds(a.t, 1.0, _result=a.r),
        _BIND,
        f"{MUL}: no argument has a gradient to add to; give one with tensor.with_grads() or diff_pair(x).",
    ),
    "only gradients to read": (
        lambda m, a: m.mul.bwds(a.only_in, 1.0, _result=a.r),
        _BIND,
        f"{MUL}: no argument has a gradient to add to; give one with tensor.with_grads() or diff_pair(x).",
    ),
    "a NumPy array": (
        lambda m, a: m.mul.bwds(a.x, a.h, _result=a.r),
        _BIND,
        f"{MUL}: .bwds: argument 'b' is {ARRAY}, {NUMPY}",
    ),
    "a NumPy array, forward": (
        lambda m, a: m.mul.fwds(a.only_in, b=a.h),
        _BIND,
        f"{MUL}: .fwds: argument 'b' is {ARRAY}, {NUMPY}",
    ),
    "a NumPy array in a field": (
        lambda m, a: m.far.bwds({"o": [1.0, 2, 3], "t": a.h}, a.x, _result=a.r),
        _BIND,
        f"float far(Ray r, float s): .bwds: argument 'r.t' is {ARRAY}, {NUMPY}",
    ),
    "an out parameter without a gradient": (
        lambda m, a: m.split.bwds(a.x, a.t),
        _BIND,
        "void split(float a, out float b): .bwds: argument 'b' is a Tensor<float> of shape (3,) without a gradient "
        f"to read; {HOW}.",
    ),
    "an inout parameter without a gradient": (
        lambda m, a: m.grow.bwds(a.t, a.x),
        _BIND,
        "void grow(inout float x, float by): .bwds: argument 'x' is written, and the gradient of what is written "
        "there is missing; pass it with tensor.with_grads(grad_in=..., grad_out=...).",
    ),
    "an inout pair without a gradient": (
        lambda m, a: m.grow.bwds(spy.diff_pair(2.0), a.x),
        _BIND,
        "void grow(inout float x, float by): .bwds: argument 'x' is DiffPair(2.0, grad=None) and written; its "
        "gradient is missing.",
    ),
    "an inout struct without a gradient": (
        lambda m, a: m.walk.bwds({"o": a.v, "t": a.x}, a.x),
        _BIND,
        "void walk(inout Ray r, float by): .bwds: argument 'r.o' is written, and the gradient of what is written "
        "there is missing; pass it with tensor.with_grads(grad_in=..., grad_out=...).",
    ),
    "a pair of structs": (
        lambda m, a: m.far.bwds(spy.diff_pair({"o": [1.0, 2, 3], "t": 1.0}), a.x, _result=a.r),
        _NOT,
        "float far(Ray r, float s): .bwds: argument 'r': a pair of structs is not supported; give a dict of pairs, "
        "one a field.",
    ),
    "shapes that do not broadcast": (
        lambda m, a: m.mul.bwds(a.x, a.wide, _result=a.r),
        _SHAPE,
        f"{MUL}: argument 'b' of shape (4,) does not broadcast with argument 'a' of shape (3,).{RIGHT}",
    ),
    "a gradient of the result that does not broadcast": (
        lambda m, a: m.mul.bwds(a.wide, 1.0, _result=a.r),
        _SHAPE,
        f"{MUL}: argument '_result.grad_in' of shape (3,) does not broadcast with argument 'a' of shape (4,).{RIGHT}",
    ),
    "a tensor that is written without a gradient": (
        lambda m, a: m.put.bwds(a.t, 0, a.x),
        _BIND,
        "void put(WDiffTensor<float, 1> to, int i, float v): .bwds: argument 'to' is a Tensor<float> of shape (3,); "
        "the gradient of what 'WDiffTensor<float, 1>' writes there is missing: pass it with "
        "tensor.with_grads(grad_in=...).",
    ),
    "a missing argument": (
        lambda m, a: m.mul.bwds(a.x, _result=a.r),
        _BIND,
        f"{MUL}: argument b missing.",
    ),
    "a pair for what is no pair": (
        lambda m, a: m.both(a.t),
        _BIND,
        "float both(DifferentialPair<float> p): argument 'p' is a Tensor<float> of shape (3,); "
        "'DifferentialPair<float>' takes an NDDifferentiableBuffer, a Tensor with gradients, "
        "diff_pair(value, gradient), or both in a tuple.",
    ),
    "a derivative of a derivative": (
        lambda m, a: m.mul.bwds.bwds,
        _BIND,
        "mul: derivatives of derivatives are not supported.",
    ),
    "a forward derivative of a backward one": (
        lambda m, a: m.mul.bwds.fwds,
        _BIND,
        "mul: derivatives of derivatives are not supported.",
    ),
    "an unknown uniform": (
        lambda m, a: m.mul.bwds.set(gain=1.0),
        _BIND,
        "mul.set: there is no uniform 'gain'; the module has none.",
    ),
    "a forward result without an array for the tangent": (
        lambda m, a: m.mul.fwds(a.only_in, 1.0, _result=a.t),
        _BIND,
        f"{MUL}: _result is a Tensor<float> of shape (3,) without an array for the tangent; use tensor.with_grads().",
    ),
    "a forward result in NumPy": (
        lambda m, a: m.mul.fwds(a.only_in, 1.0, _result="numpy"),
        _BIND,
        f"{MUL}: a NumPy array has no tangent; leave _result out or give a Tensor.",
    ),
    "with_grads of integers": (
        lambda m, a: a.ti.with_grads(),
        _BIND,
        "Tensor.with_grads: Tensor<int> of shape (3,) holds no float, half or double, and has no gradient.",
    ),
    "a gradient of another element type": (
        lambda m, a: a.t.with_grads(grad_out=a.v),
        _BIND,
        "Tensor.with_grads: grad_out is a Tensor<float3> of shape (3,); 'float' was expected, as of the tensor.",
    ),
    "a gradient of another shape": (
        lambda m, a: a.t.with_grads(grad_in=a.wide),
        _SHAPE,
        "Tensor.with_grads: grad_in is a Tensor<float> of shape (4,); shape (3,) was expected, as of the tensor.",
    ),
    "a gradient in NumPy": (
        lambda m, a: a.t.with_grads(a.h),
        _BIND,
        "Tensor.with_grads: grad_in is an array of shape (3,); a tensor like this Tensor<float> of shape "
        "(3,) was expected.",
    ),
    "an NDDifferentiableBuffer of integers": (
        lambda m, a: spy.NDDifferentiableBuffer(m.device, "int", (3,)),
        _BIND,
        "NDDifferentiableBuffer: 'int' holds no float, half or double.",
    ),
    "an NDDifferentiableBuffer with another gradient": (
        lambda m, a: spy.NDDifferentiableBuffer(m.device, "float", (4,), grad=a.n),
        _SHAPE,
        "NDDifferentiableBuffer: grad is a NDBuffer<float> of shape (3,); shape (4,) was expected, as of the tensor.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(module: spy.Module, name: str) -> None:
    call, kind, message = REFUSED[name]
    arrays = Arrays(module)
    with pytest.raises(kind) as error:
        call(module, arrays)
    assert type(error.value) is kind
    assert str(error.value) == message
    arrays.check()
    # The device still computes.
    module.mul.bwds(arrays.x, 2.0, _result=arrays.r)
    np.testing.assert_array_equal(arrays.g.to_numpy(), [21, 21, 21])


def test_a_gradient_on_another_device(module: spy.Module, backend_name: str) -> None:
    arrays = Arrays(module)
    with spy.Device(backend_name) as other:
        far = spy.Tensor.zeros(other, 3)
        with pytest.raises(spy.BindError) as error:
            arrays.t.with_grads(grad_out=far)
        assert (
            str(error.value)
            == f"Tensor.with_grads: grad_out is on another {other!r}; this tensor on {module.device!r}."
        )
        x = far.with_grads()
        with pytest.raises(spy.BindError) as error:
            module.mul.bwds(x, 1.0, _result=arrays.r)
        assert (
            str(error.value) == f"{MUL}: argument 'a' is on another {other!r}; the module runs on {module.device!r}."
        )
    arrays.check()


def test_arguments_on_a_device_of_another_kind(module: spy.Module, backend_name: str) -> None:
    kinds = [d.type for d in spy.devices() if d.available and d.type != backend_name]
    if not kinds:
        pytest.skip("there is one kind of device here")
    arrays = Arrays(module)
    with spy.Device(kinds[0]) as other:
        far = spy.Tensor.full(other, 3, 7.0).with_grads()
        assert far.grad is not None
        r = far.with_grads(grad_in=far.grad)
        for name, a, b, result in (
            ("argument 'a'", far, arrays.x, arrays.r),
            ("argument 'b'", arrays.x, far, arrays.r),
            ("_result", arrays.x, 1.0, r),
        ):
            with pytest.raises(spy.BindError) as error:
                module.mul.bwds(a, b, _result=result)
            assert str(error.value) == f"{MUL}: {name} is on {other!r}; the module runs on {module.device!r}."
        with pytest.raises(spy.BindError) as error:
            arrays.t.with_grads(grad_in=far)
        assert str(error.value) == f"Tensor.with_grads: grad_in is on {other!r}; this tensor on {module.device!r}."
        np.testing.assert_array_equal(far.grad.to_numpy(), [0, 0, 0])
    arrays.check()


def test_a_tensor_that_would_be_its_own_gradient(module: spy.Module) -> None:
    arrays = Arrays(module)
    for array, gradient in ((arrays.t, arrays.t), (arrays.wide[:3].detach(), arrays.wide[1:].detach())):
        for name in ("grad_in", "grad_out"):
            with pytest.raises(spy.BindError) as error:
                array.with_grads(**{name: gradient})
            assert str(error.value) == (
                f"Tensor.with_grads: {name} lies in the tensor's own memory; give it memory of its own."
            )
    # Beside each other in one buffer they do not meet.
    both = spy.Tensor.zeros(module.device, 6)
    module.mul.bwds(both[:3].with_grads(grad_out=both[3:]), 2.0, _result=arrays.r)
    np.testing.assert_array_equal(both.to_numpy(), [0, 0, 0, 14, 14, 14])
    arrays.check()


def test_overloads_that_do_not_fit_are_listed(module: spy.Module) -> None:
    arrays = Arrays(module)
    with pytest.raises(spy.BindError) as error:
        module.over.bwds(arrays.ti, arrays.x, _result=arrays.r)
    for text in ("float over(float a, float b)", "float over(float3 a, float b)", "Tensor<int> of shape (3,)"):
        assert text in str(error.value)
    arrays.check()


def test_kernels_have_no_derivative(module: spy.Module) -> None:
    for name in ("bwds", "fwds"):
        with pytest.raises((spy.BindError, AttributeError)) as error:
            getattr(module.kernel, name)(spy.Tensor.zeros(module.device, 1).with_grads())
        assert "kernel" in str(error.value) and "_" not in str(error.value).replace("_result", "")


def test_views_of_gradients_stay_refused_as_views(module: spy.Module) -> None:
    arrays = Arrays(module)
    with pytest.raises(spy.BindError, match="non-contiguous view"):
        arrays.x[::2].grad.clear()  # type: ignore[union-attr]
    with pytest.raises(spy.ShapeError):
        arrays.x.view(4)
    arrays.check()


def test_an_inout_gradient_that_would_be_written_twice(module: spy.Module) -> None:
    # What is carried through a call is stored, not added; two elements cannot share it.
    arrays = Arrays(module)
    one = spy.Tensor.full(module.device, 1, 7.0)
    gradient = spy.Tensor.full(module.device, 1, 7.0)
    shared = one.with_grads(grad_in=gradient, grad_out=gradient)
    with pytest.raises(
        spy.ShapeError, match=r"'x(\.grad_out)?' of shape \(1,\) is written by a call of shape \(3,\)"
    ):
        module.grow.bwds(shared, arrays.x)
    wide = shared.broadcast_to(3)
    with pytest.raises(spy.ShapeError, match="is a broadcast view and would be written to"):
        module.grow.bwds(wide, arrays.x)
    np.testing.assert_array_equal(one.to_numpy(), [7])
    np.testing.assert_array_equal(gradient.to_numpy(), [7])
    arrays.check()


def test_a_tensor_outside_its_bounds_names_the_argument(backend_name: str) -> None:
    with spy.Device(backend_name, debug=True) as device:
        module = spy.Module.load_from_source(device, "outside_gradients", SLANG)
        x, r = spy.Tensor.zeros(device, 3).with_grads(), spy.Tensor.ones(device, 2).with_grads()
        assert r.grad is not None
        r.grad.copy_from([1.0, 1.0])
        with pytest.raises(spy.OutOfBoundsError, match=r"argument 't' of shape \(3,\) was read at \(3,\)"):
            module.at.bwds(x, spy.Tensor.from_numpy(device, np.array([1, 3], np.int32)), _result=r)
        np.testing.assert_array_equal(x.grad.to_numpy(), [0, 1, 0])  # type: ignore[union-attr]

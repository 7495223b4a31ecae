"""What wrong activations of spy.matmul are told, where they are functions. Nothing is written then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.depth import one_device

# What these test does not depend on the device.
pytestmark = one_device

A = np.ones((4, 4), np.float32)
NAMES = "relu, gelu, silu, sigmoid, tanh, or a function of a module, was expected"
TEXT = """
uniform RWTensor<float, 2> kept;
uniform Tensor<float, 2> read;
uniform Holder holder;
struct Holder { Tensor<float, 2> inside; };
[Differentiable] float last(float x) { return x; }
float two(float2 x) { return x.x; }
float changes(inout float x) { return x; }
float half_of(half x) { return x; }
float with_default(float x, float slope = 1) { return x * slope; }
float places(float x, uint row, uint column) { return x; }
double of_double(double x) { return x; }
void nothing(float x) {}
float both(float x) { return x; }
float both(float x, int row, int column) { return x; }
T any<T : IArithmetic>(T x) { return x; }
struct Object { float k; float method(float x) { return x; } };
float keeping(float x, int row, int column) { kept[row, column] = x; return x; }
float reading(float x, int row, int column) { return x + read[row, column]; }
float holding(float x, int row, int column) { return x + holder.inside[row, column]; }
float size_t(float x) { return x; }
extern static const float missing;
float by_constant(float x) { return missing * x; }
[shader("compute")] [numthreads(1, 1, 1)] void kernel(uint3 at : SV_DispatchThreadID) {}
"""
EXPECTED = "float {0}(float x) or float {0}(float x, int row, int column) was expected, since sums are float here."
ITSELF = "the function itself was expected, with .set(...) and .constants(...) at most."

CASES: dict[str, tuple[Callable[[spy.Module], Any], str]] = {
    "number": (lambda m: 3, f"matmul: activation is 3; {NAMES}."),
    "lambda": (lambda m: len, f"matmul: activation is <built-in function len>; {NAMES}."),
    "kernel": (lambda m: m.kernel, f"matmul: activation is <Slang function void kernel()>; {NAMES}."),
    "vector": (lambda m: m.two, "matmul: activation is float two(float2 x); " + EXPECTED.format("two")),
    "inout": (
        lambda m: m.changes,
        "matmul: activation is float changes(inout float x); " + EXPECTED.format("changes"),
    ),
    "half": (lambda m: m.half_of, "matmul: activation is float half_of(half x); " + EXPECTED.format("half_of")),
    "default": (
        lambda m: m.with_default,
        "matmul: activation is float with_default(float x, float slope = 1.0); " + EXPECTED.format("with_default"),
    ),
    "uint": (
        lambda m: m.places,
        "matmul: activation is float places(float x, uint row, uint column); " + EXPECTED.format("places"),
    ),
    "double": (
        lambda m: m.of_double,
        "matmul: activation is double of_double(double x); " + EXPECTED.format("of_double"),
    ),
    "void": (lambda m: m.nothing, "matmul: activation is void nothing(float x); " + EXPECTED.format("nothing")),
    "method": (
        lambda m: m["Object.method"],
        "matmul: activation is float Object.method(Object this, float x); " + EXPECTED.format("Object.method"),
    ),
    "generic": (
        lambda m: m.any,
        "matmul: activation is T any<T>(T x); "
        + EXPECTED.format("any")
        + ' Name its generic arguments, as in module["any<float>"].',
    ),
    "several": (
        lambda m: m.both,
        "matmul: activation is float both(float x); float both(float x, int row, int column), of which several fit; "
        "give one of them another name.",
    ),
    "map": (lambda m: m.last.map((0,)), f"matmul: activation is 'last' with .map; {ITSELF}"),
    "return_type": (
        lambda m: m.last.return_type("numpy"),
        f"matmul: activation is 'last' with .return_type; {ITSELF}",
    ),
    "group_size": (lambda m: m.last.group_size(32), f"matmul: activation is 'last' with .group_size; {ITSELF}"),
    "conformances": (
        lambda m: m.last.type_conformances(("I", "S")),
        f"matmul: activation is 'last' with .type_conformances; {ITSELF}",
    ),
    "bwds": (lambda m: m.last.bwds, f"matmul: activation is 'last' with .bwds; {ITSELF}"),
    "fwds": (lambda m: m.last.fwds, f"matmul: activation is 'last' with .fwds; {ITSELF}"),
    "stream": (
        lambda m: m.last.stream(m.device.stream()),
        f"matmul: activation is 'last' with .stream; {ITSELF}",
    ),
    "type": (
        lambda m: m.size_t,
        "float size_t(float x): Slang reads 'size_t(...)' as its own 'size_t'; rename the function.",
    ),
    "no constant": (
        lambda m: m.last.constants({"other": 1}),
        "float last(float x): there is no constant 'other'; it has 'missing'. Declare it as: extern static const int "
        "other;",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_wrong_functions(device: spy.Device, case: str) -> None:
    make, message = CASES[case]
    activation = make(spy.Module.load_from_source(device, "wrong", TEXT))
    out = np.full((4, 4), 7, np.float32)
    for a in (A, torch.ones(4, 4, requires_grad=True)):
        grads = isinstance(a, torch.Tensor)
        if grads and case in ("type", "no constant"):
            continue  # PyTorch's calls of the function say so themselves
        with pytest.raises(spy.BindError) as caught:
            spy.matmul(a, a, device=device, activation=activation, out=None if grads else out)
        assert str(caught.value) == message
    assert (out == 7).all()


def test_memory_that_is_written(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "wrong", TEXT)
    a, b, c = (spy.Tensor.ones(device, (4, 4)) for _ in range(3))
    for name, target in (("a", a), ("out", c)):
        with pytest.raises(spy.BindError) as caught:
            spy.matmul(a, b, out=c, activation=module.keeping.set(kept=target))
        assert str(caught.value) == (
            f"matmul: uniform 'kept' of activation 'keeping' shares memory with {name}, and the function may write "
            "to it; pass memory of its own."
        )
    with pytest.raises(spy.BindError) as caught:
        spy.matmul(a, b, out=c, activation=module.holding.set(holder={"inside": c}))
    assert str(caught.value) == (
        "matmul: an array in uniform 'holder' of activation 'holding' shares memory with out; pass a copy of it."
    )
    spy.matmul(a, b, out=c, activation=module.holding.set(holder={"inside": b}))
    np.testing.assert_array_equal(c.to_numpy(), np.full((4, 4), 5))


def test_other_devices(device: spy.Device, backend_name: str) -> None:
    x, grads = spy.Tensor.ones(device, (4, 4)), torch.ones(4, 4, requires_grad=True)
    with spy.Device(backend_name) as other:
        function = spy.Module.load_from_source(other, "there", "float last(float x) { return x; }").last
        for call in (
            lambda: spy.matmul(x, x, activation=function),
            lambda: spy.matmul(A, A, device=device, activation=function),
            lambda: spy.matmul(grads, grads, device=device, activation=function),
            lambda: spy.matmul.append_to(spy.CommandList(device), x, x, out=x, activation=function),
        ):
            with pytest.raises(spy.BindError) as caught:
                call()
            assert str(caught.value) == (
                f"matmul: activation 'last' is of a module on {other!r}, and the product runs on another {device!r}; "
                "load the module there."
            )
        np.testing.assert_array_equal(spy.matmul(A, A, activation=function), np.full((4, 4), 4))
    with pytest.raises(spy.DeviceError, match="was closed"):
        spy.matmul(A, A, activation=function)


def test_modules(device: spy.Device) -> None:
    def last(text: str, **options: Any) -> Any:
        return spy.Module.load_from_source(device, "users", text, **options).last

    text = "float last(float x) { return x; }"
    with pytest.raises(spy.BindError) as caught:
        spy.matmul(A, A, activation=last("static int n; float last(float x) { n += 1; return n; }"))
    assert str(caught.value) == (
        "matmul: activation 'last': its module may change static variables, which would keep their values from one "
        "element to the next; use parameters and local variables instead."
    )
    for name in ("Tensor", "RWTensor"):
        with pytest.raises(spy.BindError) as caught:
            spy.matmul(A, A, activation=last(f"struct {name} {{ int k; }};\n{text}"))
        assert str(caught.value) == (
            f"matmul: activation float last(float x): its module declares '{name}', which is a name that products "
            "need; rename it."
        )
    with pytest.raises(spy.CompileError) as error:
        spy.matmul(A, A, activation=last(f"module users; internal {text}"))
    assert str(error.value).startswith(
        "matmul: a kernel cannot call the activation float last(float x). It is internal to its module; write "
        "'public' in front of it.\n"
    )
    with pytest.raises(spy.CompileError) as error:
        spy.matmul(A, A, activation=last("extern static const float k; float last(float x) { return k * x; }"))
    assert str(error.value).endswith(
        "the module declares k without a value; give one with .constants({'k': ...}), or with constants= when the "
        "module is loaded."
    )

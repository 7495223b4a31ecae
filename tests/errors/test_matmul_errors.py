"""What wrong arguments of spy.matmul are told. Nothing is written then, and the device works afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.depth import one_device

# What these test does not depend on the device.
pytestmark = one_device

A = np.ones((4, 4), np.float32)
INTS = np.ones((4, 4), np.int32)
READ_ONLY = np.zeros((4, 4), np.float32)
READ_ONLY.flags.writeable = False
EACH_ITSELF = np.broadcast_to(np.float32(0), (4, 4))
KINDS = "half, bfloat16, float, double, int8_t, int are multiplied"
ARRAY = "a Tensor, a NumPy array or a torch tensor was expected"
FLOATS = "a number from -3.4028234663852886e+38 to 3.4028234663852886e+38 was expected"
WHOLE = "a number from -2147483648 to 2147483647 was expected"
NAMES = "relu, gelu, silu, sigmoid, tanh, or a function of a module, was expected"

CASES: list[tuple[Any, Any, dict[str, Any], str]] = [
    (None, A, {}, f"matmul: a is None; {ARRAY}."),
    (A, "x", {}, f"matmul: b is 'x'; {ARRAY}."),
    (A, np.float32(3), {}, f"matmul: b is 3.0; {ARRAY}."),
    (
        np.array(3, np.float32),
        A,
        {},
        "matmul: a is a single number; an array of at least one dimension was expected.",
    ),
    (
        A,
        torch.ones(4, 4),
        {},
        "matmul: a is a NumPy array and b is a torch tensor; arrays of one library were expected.",
    ),
    (A > 0, A > 0, {}, f"matmul: a has elements of type 'bool'; {KINDS}."),
    (A.astype(">f4"), A, {}, f"matmul: a has elements of type '>f4'; {KINDS}."),
    (
        A,
        A.astype(float),
        {},
        "matmul: a has elements of type 'float' and b of 'double'; convert one of them, since device data is not "
        "converted.",
    ),
    (
        np.zeros((4, 4), [("x", "f4"), ("y", "i1")])["x"],
        A,
        {},
        "matmul: an array's elements do not lie at multiples of their size; pass a copy of it.",
    ),
    (
        A,
        np.ones((5, 4), np.float32),
        {"transpose_a": True},
        "matmul: a of shape (4, 4) transposed has rows of 4 numbers, and b of shape (5, 4) has columns of 5; equal "
        "numbers were expected.",
    ),
    (
        np.ones((2, 4, 4), np.float32),
        np.ones((3, 4, 4), np.float32),
        {},
        "matmul: the dimensions (2,) of a (shape (2, 4, 4)) and (3,) of b (shape (3, 4, 4)) do not broadcast; each "
        "two of them must be equal, or one of them 1.",
    ),
    (
        np.broadcast_to(np.float32(1), (2**31, 1)),
        np.ones((1, 1), np.float32),
        {},
        "matmul: a has the shape (2147483648, 1); at most 2147483647 numbers each way are multiplied.",
    ),
    (A, A, {"transpose_b": "x"}, "matmul: transpose_b is 'x'; True or False was expected."),
    (A, A, {"alpha": "2"}, "matmul: alpha is '2'; a number was expected."),
    (A, A, {"alpha": 1e300}, f"matmul: alpha is 1e+300; {FLOATS}."),
    (A, A, {"alpha": 10**400}, f"matmul: alpha is a whole number of 1329 bits; {FLOATS}."),
    (INTS, INTS, {"alpha": 2.0}, "matmul: alpha is 2.0; a whole number was expected."),
    (INTS, INTS, {"alpha": 2**31}, f"matmul: alpha is 2147483648; {WHOLE}."),
    (A, A, {"precision": "half"}, "matmul: precision is 'half'; 'tf32' was expected, or None."),
    (A, A, {"precision": []}, "matmul: precision is []; 'tf32' was expected, or None."),
    (
        INTS,
        INTS,
        {"precision": "tf32"},
        "matmul: precision is 'tf32', which is for floats, and elements are 'int'.",
    ),
    (A, A, {"activation": "Relu"}, f"matmul: activation is 'Relu'; {NAMES}."),
    (A, A, {"activation": ["relu"]}, f"matmul: activation is ['relu']; {NAMES}."),
    (INTS, INTS, {"activation": "gelu"}, "matmul: activation 'gelu' takes floats, and sums of int are int."),
    (
        A,
        A,
        {"bias": np.zeros(3, np.float32)},
        "matmul: bias has the shape (3,) and elements of type 'float'; a number of type 'float' for each of the 4 "
        "elements of the result's last dimension was expected.",
    ),
    (
        A,
        A,
        {"out_dtype": "double"},
        "matmul: the result's elements would be 'double'; products of 'float' are half or bfloat16 or float.",
    ),
    (
        A,
        A,
        {"out": [[0.0] * 2] * 2},
        "matmul: out is [[0.0, 0.0], [0.0, 0.0]], which holds no memory; pass a NumPy array.",
    ),
    (A, A, {"out": np.zeros((4, 5), np.float32)}, "matmul: out has the shape (4, 5); the product's is (4, 4)."),
    (
        A,
        A,
        {"out": A.copy(), "out_dtype": "half"},
        "matmul: out has elements of type 'float', and out_dtype is another; leave one out.",
    ),
    (A, A, {"out": READ_ONLY}, "matmul: out must not be changed; pass a writable array."),
    (A, A, {"out": EACH_ITSELF}, "matmul: elements of out (shape (4, 4), strides (0, 0)) share memory."),
]


@pytest.mark.parametrize(("a", "b", "options", "message"), CASES, ids=[case[3][:50] for case in CASES])
def test_wrong_arguments(device: spy.Device, a: Any, b: Any, options: dict[str, Any], message: str) -> None:
    # Whatever is refused is refused before the result is written to.
    out = np.full((4, 4), 7, np.int32 if a is INTS else np.float32)
    if not {"out", "out_dtype"} & set(options) and not isinstance(b, torch.Tensor):
        options = {**options, "out": out}
    with pytest.raises((spy.BindError, spy.ShapeError, spy.UnsupportedError)) as caught:
        spy.matmul(a, b, device=device, **options)
    assert str(caught.value) == message
    assert (out == 7).all()
    np.testing.assert_array_equal(spy.matmul(A, A, device=device), np.full((4, 4), 4))


def test_torch(device: spy.Device) -> None:
    one, grad = torch.ones(4, 4), torch.ones(4, 4, requires_grad=True)
    dense = "matmul: a torch tensor's memory does not hold its values; pass a dense copy of it."
    bytes_ = torch.ones(4, 4).to(torch.float8_e4m3fn)
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (one.to_sparse(), one, {}, dense),
        (torch.ones(4, 4, dtype=torch.cfloat).conj().imag, one, {}, dense),
        (
            bytes_,
            bytes_,
            {},
            "matmul: a torch tensor has elements of torch.float8_e4m3fn, which are not multiplied; convert it with "
            "tensor.to(...).",
        ),
        (one, one.to("meta"), {}, "matmul: its tensors are on cpu and meta; move them to one device with .to(...)."),
        (
            one.to("meta"),
            one.to("meta"),
            {},
            "matmul: its tensors are on meta; move them to a CUDA device or to the CPU.",
        ),
        # What autograd would see last is checked first.
        (grad, one, {"activation": "x"}, f"matmul: activation is 'x'; {NAMES}."),
        (
            grad,
            torch.ones(5),
            {},
            "matmul: a of shape (4, 4) has rows of 4 numbers, and b of shape (5,) has columns of 5; equal numbers "
            "were expected.",
        ),
    ]
    for a, b, options, message in cases:
        with pytest.raises((spy.BindError, spy.ShapeError)) as caught:
            spy.matmul(a, b, device=device, **options)
        assert str(caught.value) == message


def test_devices_and_lists(device: spy.Device, backend_name: str) -> None:
    x = spy.Tensor.ones(device, (4, 4))
    with spy.Device(backend_name) as other:
        y = spy.Tensor.ones(other, (4, 4))
        for call in (
            lambda: spy.matmul(x, y),
            lambda: spy.matmul.append_to(spy.CommandList(device), x, y, out=x),
            lambda: spy.matmul.bwds(x.with_grads(), y, _result=x),
        ):
            with pytest.raises(spy.BindError) as caught:
                call()
            assert str(caught.value) == (
                f"matmul: b lies on {other!r}, and the product runs on another {device!r}; copy it there."
            )
    with pytest.raises(spy.DeviceError):
        spy.matmul(y, y)
    commands = spy.CommandList(device)
    for wrong, message in (
        ((5, x, x, x), "matmul.append_to: commands is 5; a CommandList was expected."),
        ((commands, x, x, None), "matmul.append_to: out is None; an array for the product was expected."),
        (
            (commands, A, A, A),
            "matmul.append_to: a is a NumPy array; a Tensor or an NDBuffer was expected, since nothing would move "
            "another array when the list runs.",
        ),
    ):
        with pytest.raises(spy.BindError) as caught:
            spy.matmul.append_to(wrong[0], wrong[1], wrong[2], out=wrong[3])
        assert str(caught.value) == message
    assert not commands.calls


def test_gradients(device: spy.Device) -> None:
    x = spy.Tensor.ones(device, (4, 4))
    with_grads = spy.Tensor.ones(device, (4, 4)).with_grads()
    whole = spy.Tensor.ones(device, (4, 4), "int")
    cases: list[tuple[Any, Any, dict[str, Any], str]] = [
        (
            A,
            A,
            {"_result": x},
            "matmul.bwds: a is an array of dtype float32 and shape (4, 4); a Tensor was expected.",
        ),
        (
            x,
            x,
            {"_result": A},
            "matmul.bwds: _result is an array of dtype float32 and shape (4, 4); a Tensor of the product's gradient "
            "was expected.",
        ),
        (
            x,
            x,
            {"_result": x},
            "matmul.bwds: no argument has a gradient to add to; make one with tensor.with_grads().",
        ),
        (whole, whole, {"_result": x}, "matmul.bwds: elements of type 'int' have no gradients."),
        (with_grads, x, {"_result": x, "alpha": "2"}, "matmul.bwds: alpha is '2'; a number was expected."),
        (
            with_grads,
            x,
            {"_result": x, "transpose_a": "q"},
            "matmul.bwds: transpose_a is 'q'; True or False was expected.",
        ),
        (
            with_grads,
            x,
            {"_result": spy.Tensor.ones(device, (4, 5))},
            "matmul.bwds: the gradient in _result has the shape (4, 5) and elements of type 'float'; (4, 4) and "
            "'float' were expected.",
        ),
    ]
    for a, b, options, message in cases:
        with pytest.raises((spy.BindError, spy.ShapeError)) as caught:
            spy.matmul.bwds(a, b, **options)
        assert str(caught.value) == message
    assert not with_grads.grad.to_numpy().any()

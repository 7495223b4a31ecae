"""Messages of the operators of Tensors: they name what was called, the operands and what to do."""

from __future__ import annotations

import numpy as np
import pytest

import slangpy_rt as spy


def test_errors_name_the_operator(device: spy.Device) -> None:
    t, other = spy.Tensor.ones(device, 3), spy.Tensor.ones(device, 4)
    told = (
        r"^add: shapes \(3,\) and \(4,\) do not broadcast\. They are matched from the right; two dimensions must be"
    )
    with pytest.raises(spy.ShapeError, match=told):
        t + other
    with pytest.raises(
        spy.ShapeError, match=r"^add in place: operands of shape \(2, 3\) do not fit Tensor<float> of shape"
    ):
        t += spy.Tensor.ones(device, (2, 3))
    with (
        spy.Device("null") as another,
        pytest.raises(spy.BindError, match=r"^add: one operand is Tensor<float> of shape"),
    ):
        t + spy.Tensor(another, "float", 3)


def test_errors_of_clip_and_of_assignments_name_these(device: spy.Device) -> None:
    t, other = spy.Tensor.ones(device, 3), spy.Tensor.ones(device, 4)
    colors = spy.Tensor.ones(device, 3, "float3")
    all_ = slice(None)
    with spy.Device("null") as another:
        for case, error, told in [
            (lambda: t.clip(other, 2), spy.ShapeError, r"^clip: shapes \(3,\) and \(4,\) do not broadcast"),
            (lambda: t.clip("a"), spy.BindError, r"^clip: a bound is 'a'; a number or an array was expected"),
            (lambda: colors + spy.Tensor.ones(device, 3, "float2"),
             spy.BindError, r"^add: 'float3' and 'float2' have elements of different shapes"),
            (lambda: t.__setitem__(all_, other), spy.ShapeError,
             r"^Tensor.* = value: an array of shape \(4,\) does not broadcast to shape \(3,\)"),
            (lambda: t.__setitem__(t > 0, other), spy.ShapeError, r"^Tensor.* = value: an array of shape \(4,\)"),
            (lambda: t.__setitem__(all_, colors), spy.BindError, r"^Tensor.* = value: the value is Tensor<float3>"),
            (lambda: t.__setitem__(all_, spy.Tensor(another, "float", 3)), spy.BindError, "copies the value"),
            (lambda: colors.__setitem__(all_, np.ones((4, 3))), spy.ShapeError, "those of 'float3'"),
        ]:  # fmt: skip
            with pytest.raises(error, match=told):
                case()
    np.testing.assert_array_equal(t.to_numpy(), [1, 1, 1])
    colors[colors.flatten_dtype()[:, 0] > 0] = [1, 2, 3]
    np.testing.assert_array_equal(colors.to_numpy(), [[1, 2, 3]] * 3)

"""Derivatives of forms of functions that Slang's compiler gets wrong by itself: right, or refused by name."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from tests.conformance._derivative_forms import FORMS, K, V, Form, slope
from tests.depth import sampled


def compare(device: spy.Device, module: spy.Module, form: Form) -> None:
    """Compare the call, `bwds` and `fwds` of the module's `f` with NumPy."""
    f = module.f
    names = {0: "float", 1: "float{}"}
    arguments = [
        spy.Tensor.from_numpy(device, np.float32(a)[None], names[a.ndim].format(a.size)).with_grads()
        for a in form.arguments
    ]
    value = np.asarray(form.same(*form.arguments))
    np.testing.assert_allclose(f(*arguments).to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    seed = np.linspace(0.5, 1.5, value.size).reshape(value.shape)
    upstream = spy.Tensor.from_numpy(device, np.float32(seed)[None], f.return_type_name)
    f.bwds(*arguments, _result=spy.diff_pair(None, upstream))
    wanted = slope(form, seed)
    for argument, gradient in zip(arguments, wanted, strict=True):
        np.testing.assert_allclose(argument.grad.to_numpy()[0], gradient, rtol=2e-4, atol=2e-5)
    directions = [np.cos(np.arange(a.size) + at + 1.0).reshape(a.shape) for at, a in enumerate(form.arguments)]
    for argument, direction in zip(arguments, directions, strict=True):
        argument.grad_in.copy_from_numpy(np.float32(direction)[None])
    result = f.fwds(*arguments)
    np.testing.assert_allclose(result.to_numpy()[0], value, rtol=1e-5, atol=1e-6)
    tangent = np.sum(result.grad_out.to_numpy()[0] * seed)
    moved = sum(np.sum(g * d) for g, d in zip(wanted, directions, strict=True))
    np.testing.assert_allclose(tangent, moved, rtol=2e-4, atol=2e-5)


@sampled(4)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form.family}-{form.name}".replace(" ", "_"))
def test_forms(device: spy.Device, form: Form) -> None:
    def run() -> None:
        compare(device, spy.Module.load_from_source(device, "derivative_form", form.text), form)

    if form.refused:
        with pytest.raises(spy.CompileError, match=re.escape(form.refused)):
            run()
    else:
        run()

"""Operators of matrices, of every type of element, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.conformance._matrix_operators import COMPARISONS, TYPES, comparisons, function, operators
from tests.depth import needs, sampled

Array = npt.NDArray[Any]


def data(code: str) -> tuple[Array, Array]:
    numbers = np.random.default_rng(2)
    if code[0] == "f":
        return (numbers.random((50, 2, 3)) * 8 - 4).astype(code), (numbers.random((50, 2, 3)) + 0.5).astype(code)
    info = np.iinfo(code)
    a = numbers.integers(info.min, info.max, (50, 2, 3), endpoint=True, dtype=code)
    a[0] = info.min, info.max, 1
    return a, numbers.integers(1, 7, a.shape).astype(code)


def expected(text: str, a: Array, b: Array) -> Any:
    if text == "a % b":
        return np.fmod(a, b)  # C's remainder has the sign of the dividend
    if text == "a / b" and a.dtype.kind != "f":
        return ((a - np.fmod(a, b)) // b).astype(a.dtype)
    return eval(text, {"a": a, "b": b})


def own(device: spy.Device, name: str) -> None:
    if name not in device.caps.scalars:
        pytest.skip(f"{device.name} has no {name}")


@needs("corrected code")
@sampled(3)
@pytest.mark.parametrize("name", TYPES)
def test_operators(device: spy.Device, name: str) -> None:
    own(device, name)
    a, b = data(TYPES[name])
    found = operators(name, a.dtype.kind != "f")
    module = spy.Module.load_from_source(device, f"matrices_{name}", function(name, a.dtype.kind != "f"))
    result = spy.Tensor.empty(device, a.shape[:1], f"{name}2x3[{len(found)}]")
    module.all(a, b, result)
    values = result.to_numpy()
    tolerance = 4 * np.finfo(a.dtype).eps if a.dtype.kind == "f" else 0
    with np.errstate(over="ignore"):
        for k, text in enumerate(found):
            want = expected(text, a, b)
            if a.dtype.kind == "f":
                # A product may be rounded once or twice, a quotient by 1 ULP more than NumPy's (SPIR-V: 2.5 ULP).
                np.testing.assert_allclose(values[:, k], want, rtol=tolerance, atol=1e-2, err_msg=text)
            else:
                np.testing.assert_array_equal(values[:, k], want, text)


@needs("corrected code")
@sampled(18)
@pytest.mark.parametrize("name", TYPES)
def test_comparisons(device: spy.Device, name: str) -> None:
    own(device, name)
    a, b = data(TYPES[name])
    b[::3] = a[::3]
    module = spy.Module.load_from_source(device, f"compared_{name}", comparisons(name))
    result = spy.Tensor.empty(device, a.shape[:1], f"bool2x3[{len(COMPARISONS)}]")
    spirv = device.backend.target.format == "spirv" and device.backend.range_target is None
    if spirv and name not in ("int", "uint"):
        # Slang 2026.12 crashes while it writes them as SPIR-V, in a process of its own.
        with pytest.raises(spy.CompileError, match="the compiler crashed"):
            module.compare(a, b, result)
        return
    module.compare(a, b, result)
    for k, text in enumerate(COMPARISONS):
        np.testing.assert_array_equal(result.to_numpy()[:, k], ~eval(text, {"a": a, "b": b}), text)


@needs("corrected code")
def test_transposed_integers(device: spy.Device) -> None:
    """Matrices of 16-bit integers in local variables, indexed by variables, transposed and multiplied."""
    own(device, "int16_t")
    module = spy.Module.load_from_source(
        device,
        "transposed_integers",
        """
int16_t f(int16_t x, int i)
{
    matrix<int16_t, 2, 3> a = matrix<int16_t, 2, 3>(x);
    a[1][i] = int16_t(3);
    matrix<int16_t, 3, 2> b = transpose(a);
    b[i][0]++;
    return mul(a, b)[1][0];
}
""",
    )
    x, i = np.arange(-40, 50, dtype=np.int16), np.arange(90, dtype=np.int32) % 3
    a = np.repeat(x[:, None, None], 2, 1).repeat(3, 2)
    a[np.arange(90), 1, i] = 3
    b = a.transpose(0, 2, 1).copy()
    b[np.arange(90), i, 0] += 1
    np.testing.assert_array_equal(module.f(x, i), (a @ b)[:, 1, 0])

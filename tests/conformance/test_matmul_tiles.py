"""import matmul; in Slang: tiles of products in kernels of a user's, beside NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import deep, one_device

pytestmark = one_device

TEXT = """
import matmul;

struct Scaled : IEpilogue
{
    Tensor<float, 1> factors;
    float apply(float sum, int row, int column) { return factors[column] * sum + row; }
};

[shader("compute")] [numthreads(16, 16, 1)]
void product(uint3 thread : SV_GroupThreadID, uint3 group : SV_GroupID, uniform Tensor<IN, 2> a,
             uniform Tensor<IN, 2> b, uniform RWTensor<OUT, 2> c, uniform Tensor<float, 1> factors)
{
    Scaled scaled = { factors };
    Tiles<IN, OUT>.run(thread, group, a, b, c, scaled);
}
"""
NUMPY: dict[str, Any] = {"half": np.float16, "float": np.float32, "double": np.float64}


@pytest.mark.parametrize(("element", "result"), [("float", "float"), ("half", "float"), ("double", "half")])
def test_values(device: spy.Device, element: str, result: str) -> None:
    if not {element, result} <= set(device.caps.scalars):
        pytest.skip(f"the device has no {element} or no {result}")
    module = spy.Module.load_from_source(device, "tiles", TEXT.replace("IN", element).replace("OUT", result))
    random = np.random.default_rng(1)
    for m, n, k in ((1, 1, 1), (64, 64, 16), (65, 130, 33), (3, 200, 300), (70, 5, 0)):
        a, b = (random.standard_normal(s).astype(NUMPY[element]) for s in ((m, k), (k, n)))
        factors = random.standard_normal(n).astype(np.float32)
        c = spy.Tensor.zeros(device, (m, n), result)
        # Strides are any.
        apart = np.zeros((k, 2 * n), b.dtype)
        apart[:, ::2] = b[::-1]
        strided = spy.Tensor.from_numpy(device, apart)[::-1, ::2]
        # One more group each way, which computes nothing.
        threads = 16 * (spy.cdiv(n, 64) + 1), 16 * (spy.cdiv(m, 64) + 1)
        module.product.dispatch(threads, spy.Tensor.from_numpy(device, a), strided, c, factors)
        want = factors * (a.astype(float) @ b.astype(float)) + np.arange(m)[:, None]
        rounding = 2e-3 if result == "half" else 1e-5
        np.testing.assert_allclose(c.to_numpy(), want, rtol=rounding, atol=1e-4 if result == "float" else 2e-3)


@deep
def test_names_and_macros(device: spy.Device, tmp_path: Path) -> None:
    """Macros of the user's do not reach the module, and a file of its name beside the user's is the user's."""
    text = TEXT.replace("IN", "float").replace("OUT", "float")
    macros = dict.fromkeys(("SPY_ACC", "size", "threads", "k0", "flat", "high", "left", "matrices"), "(")
    module = spy.Module.load_from_source(device, "tiles", text, macros)
    c, a = spy.Tensor.zeros(device, (4, 4)), spy.Tensor.ones(device, (4, 4))
    module.product.dispatch((16, 16), a, a, c, np.ones(4, np.float32))
    np.testing.assert_array_equal(c.to_numpy(), 4 + np.arange(4)[:, None] + np.zeros(4))
    (tmp_path / "matmul.slang").write_text("float mine(float x) { return 2 * x; }")
    (tmp_path / "using.slang").write_text("import matmul; float f(float x) { return mine(x) + 1; }")
    for defines in (None, {"N": 1}):
        assert spy.Module.load_from_file(device, tmp_path / "using.slang", defines).f(3.0) == 7
    assert spy.Module.load_from_source(device, "matmul", "float mine(float x) { return 2 * x; }").mine(3.0) == 6

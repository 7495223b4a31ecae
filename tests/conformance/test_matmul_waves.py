"""Products by waves: all of matmul_waves.slang but the instructions, for which plain_matrices.slang stands.

The instructions run where there are some: then these tests take what the device has.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.linalg import cores, wave_cores
from slangpy_rt.linalg.wave_cores import WaveCores
from tests.depth import deep, sampled

PLAIN = Path(__file__).with_name("plain_matrices.slang")


@pytest.fixture
def waves(backend_name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[spy.Device, list[Any]]]:
    """Return a device of its own, on which waves compute products, and the products that they compute."""
    used: list[Any] = []
    macros, division = WaveCores._macros, WaveCores.division

    def plain(self: Any, rows: bool, columns: bool) -> dict[str, Any]:
        found = macros(self, rows, columns)
        if self._kind.element not in self._device.caps.scalars and self._kind.element != "bfloat16":
            pytest.skip(f"the device has no {self._kind.element}")
        return found if found["SPY_PTX"] else found | {"SPY_MATRICES": f'"{PLAIN.as_posix()}"'}

    def noted(self: Any, *views: Any) -> Any:
        used.append(views)
        return division(self, *views)

    with spy.Device(backend_name) as device:
        features = device.caps.features
        if not device.backend.target.groups or "pointers" not in features:
            pytest.skip("there are no groups, or no pointers")
        if "mma" not in features:
            monkeypatch.setattr(cores, "multiplies", lambda device, element: element in wave_cores._FACTORS)
        monkeypatch.setattr(cores, "has_wgmma", lambda device, element: False)
        monkeypatch.setattr(WaveCores, "_macros", plain)
        monkeypatch.setattr(WaveCores, "division", noted)
        yield device, used


def numbers(element: str, *shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    if element == "int8_t":
        return rng.integers(-128, 128, shape).astype(np.int8)
    # Small whole numbers, whose sums are exact.
    return rng.integers(-4, 5, shape).astype(np.float16)


SHAPES = [(8, 8, 16), (128, 128, 32), (130, 136, 48), (264, 16, 80), (16, 272, 112), (300, 304, 16)]
CASES = [
    (element, shape, left, right)
    for element in ("half", "int8_t")
    for shape in SHAPES
    for left in (False, True)
    for right in (False, True)
]


@sampled(60)
@pytest.mark.parametrize(("element", "shape", "left", "right"), CASES)
def test_sizes(
    waves: tuple[spy.Device, list[Any]], element: str, shape: tuple[int, int, int], left: bool, right: bool
) -> None:
    device, used = waves
    m, n, k = shape
    a, b = numbers(element, m, k), numbers(element, k, n)
    given = a.T.copy() if left else a, b.T.copy() if right else b
    made = spy.matmul(
        *(spy.Tensor.from_numpy(device, x) for x in given),
        transpose_a=left, transpose_b=right, out_dtype="float" if element == "half" else None,
    )  # fmt: skip
    np.testing.assert_array_equal(made.to_numpy(), a.astype(np.int64) @ b.astype(np.int64))
    in_place = element == "half" or (not left and right)
    padded = all(x.shape[1] * x.itemsize % 16 == 0 for x in given)
    assert bool(used) == (in_place and padded)


@deep
def test_rest_of_a_row_is_not_read(waves: tuple[spy.Device, list[Any]]) -> None:
    """What is multiplied ends within 16 bytes, and NaN follows; rows and columns end within a tile."""
    device, used = waves
    m, n, k = 70, 45, 37
    a, b = numbers("half", m, k), numbers("half", k, n)
    rows, columns = np.full((m, 48), np.nan, np.float16), np.full((40, 56), np.nan, np.float16)
    rows[:, :k], columns[:k, :n] = a, b
    left, right = spy.Tensor.from_numpy(device, rows)[:, :k], spy.Tensor.from_numpy(device, columns)[:k, :n]
    made = spy.matmul(left, right, out_dtype="float").to_numpy()
    assert used
    np.testing.assert_array_equal(made, a.astype(np.float32) @ b.astype(np.float32))
    lines = spy.Tensor.from_numpy(device, np.concatenate([b.T, np.full((n, 11), np.nan, np.float16)], 1))[:, :k]
    made = spy.matmul(left, lines, transpose_b=True, out_dtype="float").to_numpy()
    np.testing.assert_array_equal(made, a.astype(np.float32) @ b.astype(np.float32))


@deep
def test_copies_batches_and_last_steps(waves: tuple[spy.Device, list[Any]]) -> None:
    """Twice: the second one is a known product, with copies of what cannot be read in place."""
    device, used = waves
    a, b = numbers("half", 2, 900, 33), numbers("half", 33, 2310)
    bias = numbers("half", 2310).astype(np.float32)
    left, right, added = (spy.Tensor.from_numpy(device, x) for x in (a, b, bias))
    whole = 2 * (a.astype(np.float32) @ b.astype(np.float32)) + bias
    for _ in range(2):
        made = spy.matmul(left, right, bias=added, alpha=2, activation="relu", out_dtype="float").to_numpy()
        np.testing.assert_array_equal(made, np.maximum(whole, 0))
    assert used


@deep
def test_bfloat16_and_a_function_of_a_user(waves: tuple[spy.Device, list[Any]]) -> None:
    device, used = waves
    text = "float last(float x, int row, int column) { return x + 100 * row + column; }"
    module = spy.Module.load_from_source(device, "last_of_waves", text)
    a, b = numbers("half", 24, 40).astype(np.float32), numbers("half", 40, 136).astype(np.float32)
    left, right = (spy.Tensor.zeros(device, x.shape, "bfloat16") for x in (a, b))
    left.copy_from(a)
    right.copy_from(b)
    made = spy.matmul(left, right, activation=module.last, out_dtype="float").to_numpy()
    assert used
    np.testing.assert_array_equal(made, a @ b + 100 * np.arange(24)[:, None] + np.arange(136))

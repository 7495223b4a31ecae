"""Parameters for shaders/mlp.slang, central differences, and networks from their definition. No test is here."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from _gaps import pointer

import slangpy_rt as spy

Array = npt.NDArray[np.float64]
Function = Callable[[Array], Array]

PROLOGUE = """
import mlp;
#include "storage.slang"
#define FLOATS POINTER(float)
#define NONE AT(float, 0)

DiffTensor<float, 1> row(FLOATS data, FLOATS gradient, int columns, int step)
{
    int shape[1] = { columns };
    int64_t stride[1] = { 4 * step };
    return DiffTensor<float, 1>(BITS(data), shape, stride, BITS(gradient), stride);
}
DiffTensor<float, 2> matrix(FLOATS data, FLOATS gradient, int rows, int columns, bool transposed = false)
{
    int shape[2] = { rows, columns };
    int64_t stride[2] = { transposed ? 4 : 4 * columns, transposed ? 4 * rows : 4 };
    return DiffTensor<float, 2>(BITS(data), shape, stride, BITS(gradient), stride);
}
"""


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Numbers whose float64 results the models below compute from the same float32 inputs."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def slopes(function: Function, x: Any, h: float = 1e-5) -> Array:
    """Central differences of each row's outputs by each of its inputs: (rows, outputs, inputs)."""
    x = np.asarray(x, np.float64)
    steps = [np.eye(x.shape[1])[i] * h for i in range(x.shape[1])]
    return np.stack([(function(x + s) - function(x - s)) / (2 * h) for s in steps], -1)


def close(result: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """Within that part of the largest number expected."""
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.asarray(result), expected, rtol=tolerance, atol=tolerance * scale)


class Parameters:
    """An array on the device, and one of zeros for its gradient; ``data`` and ``zeros`` say where."""

    def __init__(self, device: spy.Device, values: npt.NDArray[np.float32]) -> None:
        self.host = values.astype(np.float64)
        self._tensors = spy.Tensor.from_numpy(device, values), spy.Tensor.zeros(device, values.shape, dtype="float")
        self.data, self.zeros = map(pointer, self._tensors)

    def gradient(self) -> Any:
        """What has been added so far."""
        return self._tensors[1].to_numpy()


def network(sizes: list[int], parameters: Array, hidden: Function, last: Function) -> Function:
    """A network from its definition."""

    def run(x: Array) -> Array:
        at = 0
        for k, (rows, columns) in enumerate(pairwise(sizes)):
            weights = parameters[at : at + rows * columns].reshape(rows, columns)
            at += rows * columns
            x = x @ weights + parameters[at : at + columns]
            at += columns
            x = (last if k == len(sizes) - 2 else hidden)(x)
        assert at == parameters.size
        return x

    return run


def by_parameters(sizes: list[int], p: Array, hidden: Function, last: Function, x: Any, d: Any) -> Array:
    """Central differences by each parameter of the outputs times `d`, summed."""
    result = np.zeros(p.size)
    for k in range(p.size):
        step = np.zeros(p.size)
        step[k] = 1e-5
        high, low = (network(sizes, q, hidden, last)(x.astype(np.float64)) for q in (p + step, p - step))
        result[k] = (d * (high - low)).sum() / 2e-5
    return result

"""Calls that have nothing to compute, and calls whose numbers are none: both are no errors."""

from __future__ import annotations

import numpy as np
from _messages import SLANG, module

import slangpy_rt as spy
from slangpy_rt.backends.null import NullBackend
from tests.depth import deep

__all__ = ["module"]  # the fixture


@deep
def test_an_empty_call_launches_nothing() -> None:
    with spy.Device("null") as own:
        backend = own.backend
        assert isinstance(backend, NullBackend)
        module = spy.Module.load_from_source(own, "test_messages", SLANG)
        empty = spy.Tensor.zeros(own, (0, 3))
        assert module.add(empty, 1).shape == (0, 3)
        assert module.add(empty, np.ones(3, np.float32)).shape == (0, 3)
        assert module.add([], 1).shape == (0,)
        module.fill(empty, empty)
        assert module.add(empty, 1, _result=empty) is empty
        assert backend.launches == []
        module.add(spy.Tensor.zeros(own, 3), 1)
        assert len(backend.launches) == 1


def test_an_empty_call_returns_empty(device: spy.Device, module: spy.Module) -> None:
    for shape in ((0,), (3, 0), (0, 4)):
        result = module.add(np.zeros(shape, np.float32), 1)
        assert result.shape == shape and result.dtype == np.float32
        tensor = module.add(spy.Tensor.zeros(device, shape), 1)
        assert tensor.shape == shape and tensor.to_numpy().shape == shape
    assert module.scale(np.zeros((0, 3), np.float32), 2).shape == (0, 3)


def test_nan_passes_through(device: spy.Device, module: spy.Module) -> None:
    data = np.array([np.nan, 1, -np.inf, np.inf, -0.0], np.float32)
    np.testing.assert_array_equal(module.add(data, 1), data + 1)
    np.testing.assert_array_equal(module.add(spy.Tensor.from_numpy(device, data), np.nan).to_numpy(), data * np.nan)
    assert np.isnan(module.add(float("nan"), 1))

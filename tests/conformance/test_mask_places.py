"""Loops that end at different times on the CPU, in calls whose arrays have rows, or whose functions get an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu import backend as cpu
from slangpy_rt.core.programs import Programs
from tests.lanes_off import without_lanes

pytestmark = pytest.mark.skipif("cpu" not in [d.type for d in spy.devices() if d.available], reason="no C++ compiler")
Array = npt.NDArray[Any]
SLANG = """
int steps(int x, int by) { int n = 0; while (x > 0) { x -= by; ++n; } return n; }
int line(int at) { return steps(at, 3); }
int uline(uint at) { return steps(int(at), 3); }
int plane(int2 at) { return steps(at.x, 3) * 1000 + steps(at.y, 2); }
int space(int3 at) { return steps(at.x, 3) * 10000 + steps(at.y, 2) * 100 + at.z; }
float both(float a, float b) { float s = 0; while (s < a) s += b; return s - a; }
float pair(float2 v) { float s = v.y; while (s < v.x) s += 0.5f; return s; }
void put(int a, out int n, inout int m) { n = 0; while (a > 0) { a -= 7; ++n; } m += n; }
"""


class Compiled:
    """Notes the C++ of kernels, and whether a C++ compiler refused a second form."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.codes: list[bytes] = []
        self.refused = 0
        real, run = cpu.compile_library, Programs.run

        def compile_library(code: bytes, *more: Any) -> bytes:
            self.codes.append(code)
            return real(code, *more)

        def noted(programs: Programs, *commands: Any, **named: Any) -> Any:
            self.refused += any("-USPY_MASKS" in command for command in commands)
            return run(programs, *commands, **named)

        patch.setattr(cpu, "compile_library", compile_library)
        patch.setattr(Programs, "run", noted)

    def check(self) -> None:
        """The last kernel has a second form, and the compiler took it."""
        assert b"_spy_wide::_spy_element" in self.codes[-1]
        assert self.refused == 0


@pytest.fixture(scope="module")
def compiled() -> Iterator[Compiled]:
    with pytest.MonkeyPatch.context() as patch:
        yield Compiled(patch)


@pytest.fixture(scope="module")
def module(compiled: Compiled) -> Iterator[spy.Module]:
    with spy.Device("cpu") as device, pytest.MonkeyPatch.context() as patch:
        without_lanes(device, patch)
        # Each kernel is compiled here, so that its C++ can be looked at.
        device.kernels._cache = type(device.cache)(None, 0)
        yield spy.Module.load_from_source(device, "test_mask_places", SLANG)


def steps(x: Any, by: int) -> Array:
    return np.maximum(-(-np.asarray(x, np.int64) // by), 0)


def both(a: Array, b: Array) -> Array:
    """The same numbers of 32 bits, of which all are multiples of 1/8 and so are exact."""
    return np.maximum(np.ceil(a / b), 0) * b - a


def eighths(*shape: int, least: int = 1) -> Array:
    return np.random.default_rng(len(shape)).integers(least, 200, shape).astype(np.float32) / 8


@pytest.mark.parametrize("shape", [(1,), (15,), (16,), (1003,)])
def test_an_index_of_one_dimension(module: spy.Module, compiled: Compiled, shape: tuple[int, ...]) -> None:
    out = spy.Tensor.empty(module.device, shape, "int")
    for f, index in ((module.line, spy.call_id()), (module.uline, spy.thread_id()), (module.line, spy.grid(shape))):
        out.clear()
        f(index, _result=out)
        np.testing.assert_array_equal(out.to_numpy(), steps(np.arange(*shape), 3))
    compiled.check()


@pytest.mark.parametrize("shape", [(2, 1), (1, 17), (37, 21), (300, 517), (0, 5), (5, 0)])
def test_an_index_of_two_dimensions(module: spy.Module, compiled: Compiled, shape: tuple[int, ...]) -> None:
    y, x = np.indices(shape)
    out = spy.Tensor.zeros(module.device, shape, "int")
    module.plane(spy.call_id(), _result=out)
    np.testing.assert_array_equal(out.to_numpy(), steps(x, 3) * 1000 + steps(y, 2))
    module.plane(spy.grid(shape), _result=out)
    np.testing.assert_array_equal(out.to_numpy(), steps(x, 3) * 1000 + steps(y, 2))
    if all(shape):  # without elements nothing is compiled
        compiled.check()


def test_an_index_of_three_dimensions_and_a_result_with_gaps(module: spy.Module, compiled: Compiled) -> None:
    z, y, x = np.indices((3, 5, 19))
    whole = spy.Tensor.from_numpy(module.device, np.full((3, 5, 40), -1, np.int32))
    module.space(spy.call_id(), _result=whole[:, :, 1:39:2])
    compiled.check()
    found = whole.to_numpy()
    np.testing.assert_array_equal(found[:, :, 1:39:2], steps(x, 3) * 10000 + steps(y, 2) * 100 + z)
    assert (found[:, :, ::2] == -1).all() and (found[:, :, 39] == -1).all()


def test_arrays_with_strides(module: spy.Module, compiled: Compiled) -> None:
    def on_device(array: Array) -> spy.Tensor:
        return spy.Tensor.from_numpy(module.device, array)

    a, b, row, column = eighths(30, 43), eighths(30, 43), eighths(43), eighths(30, 1)
    wide = eighths(30, 86)
    cases = [
        (on_device(a), on_device(row), a, row),
        (on_device(column), on_device(row), column, row),
        (on_device(a), on_device(column), a, column),
        (on_device(wide)[:, ::2], on_device(b), wide[:, ::2], b),
        (on_device(a)[:, ::-1], on_device(b)[::-1], a[:, ::-1], b[::-1]),
        (on_device(np.ascontiguousarray(a.T)).T, on_device(b), a, b),
        (on_device(wide)[3:9, 2:60:3], on_device(column)[3:9], wide[3:9, 2:60:3], column[3:9]),
        (on_device(np.full((1, 1), 20, np.float32)), on_device(row), np.full((1, 1), 20), row),
    ]
    for one, other, x, y in cases:
        np.testing.assert_array_equal(module.both(one, other).to_numpy(), both(x, y))
        compiled.check()


def test_vectors_with_strides_and_outputs(module: spy.Module, compiled: Compiled) -> None:
    device = module.device
    v = eighths(20, 46, 2)
    held = spy.Tensor.from_numpy(device, v, "float2")
    found = module.pair(held[:, ::2]).to_numpy()
    compiled.check()
    x, y = v[:, ::2, 0], v[:, ::2, 1]
    np.testing.assert_array_equal(found, y + np.maximum(np.ceil((x - y) * 2), 0) / 2)
    a = np.arange(-20, 70).reshape(9, 10).astype(np.int32)
    n, m = spy.Tensor.zeros(device, (9, 20), "int"), spy.Tensor.from_numpy(device, a)
    module.put(spy.Tensor.from_numpy(device, a), n[:, ::2], m)
    compiled.check()
    np.testing.assert_array_equal(n.to_numpy()[:, ::2], steps(a, 7))
    np.testing.assert_array_equal(n.to_numpy()[:, 1::2], 0)
    np.testing.assert_array_equal(m.to_numpy(), a + steps(a, 7))

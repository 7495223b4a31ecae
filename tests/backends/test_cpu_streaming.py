"""Large outputs on the CPU, which are written past the caches: beside NumPy, and beside stores of the usual kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.backends.cpu.group_kernel import GroupKernel
from slangpy_rt.backends.cpu.kernel import CpuKernel
from slangpy_rt.backends.cpu.streaming import STREAMED_BYTES
from tests.depth import deep, sampled
from tests.lanes_off import without_lanes

SOURCE = """
float add(float a, float b) { return a + b; }
float3 scaled(float3 a, float b) { return a * b; }
bool above(float a) { return a > 0.5; }
int16_t narrowed(float a) { return int16_t(a * 1000); }
double2 both(float a, out int k) { k = int(a * 1000); return double2(a, 2 * a); }
void grow(inout float a) { a += 1; }
[Differentiable] float product(float a, float b) { return a * b; }
"""


TYPES = [f"{scalar}{size}" for scalar in ("half", "float", "double", "int8_t", "uint16_t", "int", "uint64_t")
         for size in ("", 2, 3, 4)]  # fmt: skip
FORMS = pytest.mark.parametrize("lanes", [False, True], ids=["C++", "lanes"])


# The first test: the others' device makes kernels that stream outputs of any size.
@FORMS
def test_outputs_of_64_mib_stream(lanes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with spy.Device("cpu") as device:
        if not lanes:
            without_lanes(device, monkeypatch)
        module = spy.Module.load_from_source(device, "streamed_whole", SOURCE)
        values = np.ones(100, np.float32)
        module.add(values, values)
        module.both(values, np.zeros(100, np.int32))
        large = [next(iter(f._calls.values())).kernel.large for f in (module.add, module.both)]
        each = 256 if lanes else 1  # threads of a group
        assert large == [STREAMED_BYTES // 4 // each, -(-STREAMED_BYTES // (20 * each))]


@pytest.fixture(
    scope="module",
    params=[
        (False, False),
        (True, False),
        pytest.param((False, True), marks=deep),
        pytest.param((True, True), marks=deep),
    ],
    ids=["C++", "lanes", "C++-deterministic", "lanes-deterministic"],
)
def module(request: pytest.FixtureRequest) -> Iterator[spy.Module]:
    """Functions on a device whose kernels stream outputs of any size."""
    lanes, even = request.param
    with pytest.MonkeyPatch.context() as patch:
        for kind in (CpuKernel, GroupKernel):
            patch.setattr(kind, "__init__", _streaming(kind.__init__))
        with spy.Device("cpu", deterministic=even) as device:
            if not lanes:
                without_lanes(device, patch)
            yield spy.Module.load_from_source(device, "streamed", SOURCE)


def _streaming(made: Any) -> Any:
    def init(self: Any, *args: Any) -> None:
        made(self, *args)
        self.large = 1 if self.large < 1 << 62 else self.large

    return init


@sampled(3)
@pytest.mark.parametrize("count", [65, 5000, 70_001])
def test_results_are_numpys(module: spy.Module, count: int) -> None:
    r = np.random.default_rng(count)
    whole, b = r.random(count + 3, np.float32), r.random(count, np.float32)
    vectors = r.random((count, 3), np.float32)
    for start in range(3):  # places that are no multiple of a vector's size
        a = whole[start : start + count]
        frame = np.full(count + 4, -1, np.float32)
        module.add(a, b, _result=frame[start + 1 :][:count])
        np.testing.assert_array_equal(frame[start + 1 :][:count], a + b)
        assert (frame[: start + 1] == -1).all() and (frame[start + 1 + count :] == -1).all()
    np.testing.assert_array_equal(module.scaled(vectors, b), vectors * b[:, None])
    np.testing.assert_array_equal(module.above(b), b > 0.5)
    np.testing.assert_array_equal(module.narrowed(b), (b * np.float32(1000)).astype(np.int16))
    k = np.zeros(count, np.int32)
    np.testing.assert_array_equal(module.both(b, k), np.stack([b.astype(np.float64), 2 * b.astype(np.float64)], -1))
    np.testing.assert_array_equal(k, (b * np.float32(1000)).astype(np.int32))
    # An output that is an argument, or has gaps.
    own = b.copy()
    module.add(own, a, _result=own)
    np.testing.assert_array_equal(own, b + a)
    module.grow(own)
    np.testing.assert_array_equal(own, b + a + np.float32(1))
    apart = np.zeros(2 * count, np.float32)
    module.add(a, b, _result=apart[::2])
    np.testing.assert_array_equal(apart[::2], a + b)
    assert not apart[1::2].any()


def test_gradients_are_added_to(module: spy.Module) -> None:
    a, b = (spy.Tensor.from_numpy(module.device, np.linspace(1, k, 3001, dtype=np.float32)) for k in (2, 3))
    x = a.with_grads()
    result = spy.Tensor.empty(module.device, a.shape).with_grads(grad_in=spy.Tensor.full(module.device, a.shape, 1.0))
    for _ in range(2):
        module.product.bwds(x, b, _result=result)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.to_numpy(), 2 * b.to_numpy())


def test_which_kernels_stream(module: spy.Module) -> None:
    values = np.ones(100, np.float32)
    module.add(values, values)
    module.grow(values.copy())
    calls = {f.name: next(iter(f._calls.values())) for f in (module.add, module.grow)}
    assert calls["add"].kernel.large == 1
    assert calls["grow"].kernel.large >= 1 << 62  # it reads what it writes


@pytest.mark.parametrize(
    "type_", [TYPES[4], *(pytest.param(type_, marks=deep) for type_ in TYPES if type_ != TYPES[4])]
)
def test_all_types(module: spy.Module, type_: str) -> None:
    """Arrays that begin at each multiple of a scalar up to 16 bytes, and end in the middle of a vector."""
    size = int(type_[-1]) if type_[-1] in "234" else 1
    scalar = type_.removesuffix(str(size))
    twice = spy.Module.load_from_source(
        module.device, f"twice_{type_}", f"{type_} twice({type_} a) {{ return a + a; }}"
    ).twice
    numbers = np.dtype(
        {"half": "f2", "float": "f4", "double": "f8", "int": "i4"}.get(scalar) or scalar.removesuffix("_t")
    )
    count = 1003
    values = (np.arange(count * size) % 50).astype(numbers).reshape((count, size) if size > 1 else count)
    for start in range(max(1, 16 // numbers.itemsize)):
        frame = np.full(count * size + 17, 99, numbers)
        result = frame[start + 1 :][: count * size].reshape(values.shape)
        twice(values, _result=result)
        np.testing.assert_array_equal(result, values + values)
        assert (frame[: start + 1] == 99).all() and (frame[start + 1 + count * size :] == 99).all()


def test_what_lanes_stream() -> None:
    """An output that is an argument too has its lines in a cache."""
    with spy.Device("cpu") as device:
        module = spy.Module.load_from_source(device, "streamed_lanes", SOURCE)
        values, k = np.ones(1000, np.float32), np.zeros(1000, np.int32)
        result = module.both(values, k)
        kernel = next(iter(module.both._calls.values())).kernel
        assert [nbytes for _, nbytes in kernel.info.streamed] == [4, 16]
        args = bytearray(kernel.info.args_size)
        for (offset, _), address in zip(kernel.info.streamed, (1 << 20, 1 << 16), strict=True):
            args[offset : offset + 8] = address.to_bytes(8, "little")
        assert kernel.past(4, bytes(args)) == (1 << 16, (1 << 20) + 4 * 1024 - (1 << 16))
        args[8:16] = (1 << 20).to_bytes(8, "little")
        assert kernel.past(4, bytes(args)) == (1 << 16, 16 * 1024)
        assert result.shape == (1000, 2)

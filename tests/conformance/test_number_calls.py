"""Repeated calls on numbers alone: values of every type, what does not fit, other threads, a device that closes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import every_device, needs, sampled

_VALUES: dict[str, tuple[Any, Any]] = {
    "float": (1.5, -2.25), "double": (1 / 3, 1e200), "int": (-5, 2**31 - 6), "uint": (7, 2**32 - 8),
    "int64_t": (-1, 2**62), "uint64_t": (1, 2**64 - 2), "bool": (True, False), "half": (0.5, 2.0),
    "int16_t": (-3, 30_000), "uint8_t": (3, 250), "int8_t": (-3, -100), "uint16_t": (1, 65_000),
}  # fmt: skip


@needs("{name}")
@sampled(12)
@pytest.mark.parametrize("name", _VALUES)
def test_values_and_results_of_every_type(device: spy.Device, name: str) -> None:
    f = spy.Module.load_from_source(device, f"numbers_{name}", f"{name} f({name} a, {name} b) {{ return b; }}").f
    a, b = _VALUES[name]
    for x, y in ((a, b), (b, a), (a, a)):
        found = f(x, y)
        assert type(found) is type(y) and found == y
    if name == "float":
        assert f(1, 2) == 2.0 and f(True, np.float32(0.5)) == 0.5 and f(np.float64(1), 0.25) == 0.25
        assert np.isnan(f(0.0, float("nan"))) and f(0.0, float("-inf")) == float("-inf")


@every_device
def test_numbers_that_do_not_fit(device: spy.Device) -> None:
    text = "int twice(int x) { return 2 * x; } float half_of(float x) { return x / 2; }"
    module = spy.Module.load_from_source(device, "numbers_that_fit", text)
    for _ in range(2):
        assert module.twice(21) == 42 and module.half_of(3.0) == 1.5
        with pytest.raises(spy.BindError, match=r"is 4,?294,?967,?296, which does not fit 'int'"):
            module.twice(2**32)
        with pytest.raises(spy.BindError, match="which does not fit 'float'"):
            module.half_of(1e300)


def test_threads_get_their_own_results(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "numbers_of_threads", "float next(float x) { return x + 1; }")
    wrong: list[float] = []

    def run(k: int) -> None:
        for n in range(100):
            if module.next(1000.0 * k + n) != 1000.0 * k + n + 1:
                wrong.append(n)

    module.next(0.0)
    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@needs("double")
def test_calls_of_one_thread_share_their_memory(device: spy.Device) -> None:
    text = (
        "float one(float x) { return x + 1; } double two(double x) { return x + 2; } bool no(bool x) { return !x; }"
    )
    with spy.Device(device.name) as opened:
        module = spy.Module.load_from_source(opened, "numbers_in_one_place", text)
        for n in range(3):
            assert module.one(n) == n + 1 and module.two(1e300) == 1e300 and module.no(n % 2 == 0) == (n % 2 != 0)
            with pytest.raises(spy.BindError, match="does not fit 'float'"):
                module.one(1e300)
        assert len(opened.once("cells of numbers", list)) <= 1


def test_a_device_that_closes(device: spy.Device) -> None:
    with spy.Device(device.name) as opened:
        module = spy.Module.load_from_source(opened, "numbers_at_the_end", "float next(float x) { return x + 1; }")
        assert module.next(1.0) == 2.0
        call = next(iter(module.next._calls.values()))
        assert module.next.stream(opened.stream())(2.0) == 3.0
        assert module.next(3.0) == 4.0
    with pytest.raises(spy.DeviceError, match="closed"):
        module.next(1.0)
    with pytest.raises(spy.DeviceError, match="closed"):
        call.run((1.0,))


@every_device
def test_the_ends_of_every_type(device: spy.Device) -> None:
    """Results are the least and the largest number of their type."""
    kinds = [name for name in NUMPY_OF if name in device.caps.scalars and name != "bool"]
    if "zero_copy" in device.caps.features:  # calls on numbers are as all others there
        kinds = ["int64_t", "uint64_t"]
    text = "".join(f"{name} of_{name}({name} a) {{ return a; }}\n" for name in kinds)
    module = spy.Module.load_from_source(device, "ends_of_numbers", text)
    for name in kinds:
        dtype = NUMPY_OF[name]
        ends: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        f = getattr(module, f"of_{name}")
        for value in (ends.min, ends.max, *([ends.max // 2 + 1] if dtype.kind == "u" else []), 1):
            number = dtype.type(value).item()
            for _ in range(2):
                assert f(number) == number

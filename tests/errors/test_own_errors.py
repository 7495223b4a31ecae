"""What a caller's own object raises when it is looked at passes unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
import slangpy_rt;
struct P { float3 at; int n; }
float add(float a, float b) { return a + b; }
float3 turn(float3 v) { return v.zxy; }
float whole(Tensor<float, 1> t) { return t[0]; }
float of_struct(P p) { return p.at.x; }
T same<T>(T x) { return x; }
[numthreads(4, 1, 1)]
void run(uint3 id : SV_DispatchThreadID, RWTensor<float, 1> data, float value) { data[0] = value; }
"""
ERRORS = (TypeError, ValueError, KeyError, OverflowError, RecursionError, RuntimeError, MemoryError, StopIteration)


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "own_errors", SLANG)


def raises_in(name: str, error: Exception, base: type = object, read: bool = False) -> Any:
    """An object whose method of that name, or property where it is only read, raises."""

    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return type("Own", (base,), {name: property(fail) if read else fail, "__hash__": object.__hash__})


def in_dlpack(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return type("Own", (), {"__dlpack__": fail, "__dlpack_device__": lambda _: (1, 0)})()


class Rows(Mapping[str, Any]):
    """A mapping that raises where its values are read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getitem__(self, name: str) -> Any:
        raise self._error

    def __iter__(self) -> Iterator[str]:
        return iter(["at", "n"])

    def __len__(self) -> int:
        return 2


def passes(error: Exception, call: Callable[[], Any]) -> None:
    error.__traceback__ = error.__cause__ = None
    with pytest.raises(type(error)) as caught:
        call()
    assert caught.value is error


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_arguments(module: spy.Module, kind: type[Exception]) -> None:
    m, own = module, kind("its own")
    for name in ("__array_interface__", "__cuda_array_interface__"):
        value = raises_in(name, own, read=True)()
        for function in (m.turn, m.same, m.whole):
            passes(own, lambda f=function, v=value: f(v))
        passes(own, lambda v=value: m.add(v, 1.0))
        passes(own, lambda v=value: m.of_struct({"at": v, "n": 1}))
    for name in ("__iter__", "__len__"):
        value = raises_in(name, own, list)([1.0, 2.0])
        passes(own, lambda v=value: m.add(v, 1.0))
        passes(own, lambda v=value: m.run.dispatch(4, v, 1.0))
    passes(own, lambda: m.of_struct(Rows(own)))
    described = raises_in("__array__", own)()
    passes(own, lambda: m.same(described))
    passes(own, lambda: m.whole(described))
    shared = in_dlpack(own)
    for function in (m.turn, m.same, m.whole):
        passes(own, lambda f=function: f(shared))


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_of_data(device: spy.Device, module: spy.Module, kind: type[Exception]) -> None:
    own = kind("its own")
    described, shared = raises_in("__array__", own)(), in_dlpack(own)
    for value in (described, shared):
        passes(own, lambda v=value: spy.float3(v))
        passes(own, lambda v=value: spy.Tensor.from_numpy(device, v))
    passes(own, lambda: spy.Tensor.from_dlpack(device, shared))
    sizes = raises_in("__iter__", own)()
    passes(own, lambda: spy.NDBuffer(device, "float", sizes))
    passes(own, lambda: spy.grid(sizes))
    dims = raises_in("__iter__", own, tuple)((0,))
    passes(own, lambda: module.add.map(dims))
    passes(own, lambda: module.add.map({"x": dims}))


def test_the_cause_of_an_error_stays(module: spy.Module) -> None:
    own, cause = RecursionError("its own"), ValueError("why")
    value = raises_in("__array_interface__", own, read=True)()
    own.__cause__ = cause
    with pytest.raises(RecursionError) as caught:
        module.add(value, 1.0)
    assert caught.value is own and caught.value.__cause__ is cause


def test_a_refusal_by_dlpack(module: spy.Module) -> None:
    """BufferError is what DLPack has for arrays that are not shared."""
    with pytest.raises(spy.BindError, match=r"argument 'a' is a .*Own, which DLPack cannot share .* \(no\)"):
        module.add(in_dlpack(BufferError("no")), 1.0)


def test_lists_without_an_end(module: spy.Module) -> None:
    endless: list[Any] = [np.float32(1), 2.0]
    endless.append(endless)
    named: dict[str, Any] = {"at": 1.0}
    named["n"] = named
    said = "an argument holds lists or dicts in each other without an end: "
    for call in (
        lambda: module.add(endless, 1.0),
        lambda: module.add(a=endless, b=1.0),
        lambda: module.add(named, 1),
    ):
        with pytest.raises(spy.BindError, match=f"^add: {said}"):
            call()
    with pytest.raises(spy.BindError, match=f"^run: {said}"):
        module.run.dispatch(4, endless, 1.0)

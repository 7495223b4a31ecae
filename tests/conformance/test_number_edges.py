"""The largest number that each type takes, and the next one, by every way in.

A type of floats takes what rounds to a finite number: what is less than half a unit above its largest one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import nextafter
from typing import Any, NamedTuple

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import needs, one_device, sampled

pytestmark = one_device


def _needs_of(case: dict[str, Any]) -> list[str]:
    """A bfloat16 is 16 bits of memory."""
    return [case["name"].replace("bfloat16", "uint16_t")]


class Edge(NamedTuple):
    """The largest number that a type holds, and the smallest one beyond that it does not take."""

    largest: int
    beyond: int


EDGES = {
    "float": Edge(2**128 - 2**104, 2**128 - 2**103),
    "half": Edge(65504, 65520),
    "bfloat16": Edge(2**128 - 2**120, 2**128 - 2**119),
    **{f"int{n}_t" if n != 32 else "int": Edge(2 ** (n - 1) - 1, 2 ** (n - 1)) for n in (8, 16, 32, 64)},
    **{f"uint{n}_t" if n != 32 else "uint": Edge(2**n - 1, 2**n) for n in (8, 16, 32, 64)},
}
REFUSED = r"does not fit|does not convert|more than 64 bits"
FLOATS = ("float", "half", "bfloat16")


def taken(name: str) -> list[Any]:
    """Numbers at the edge that a type takes, as Python and NumPy have them."""
    edge = EDGES[name]
    if name not in FLOATS:
        least = 0 if name.startswith("u") else -edge.largest - 1
        return [edge.largest, least, NUMPY_OF[name].type(edge.largest)]
    # Numbers become a half or a bfloat16 by way of a float.
    below = (
        nextafter(float(edge.beyond), 0)
        if name == "float"
        else float(np.nextafter(np.float32(float(edge.beyond)), 0))
    )
    return [float(edge.largest), -float(edge.largest), below, -below, np.float64(below)]


def refused(name: str) -> list[Any]:
    """Numbers at the edge that a type does not take."""
    edge = EDGES[name]
    if name not in FLOATS:
        below = -1 if name.startswith("u") else -edge.largest - 2
        return [edge.beyond, below, 2**200, -(2**200)]
    return [float(edge.beyond), -float(edge.beyond), np.float64(edge.beyond), 1e300]


def held(name: str, value: Any) -> Any:
    """What a type holds of a number at its edge."""
    edge = EDGES[name]
    return value if name not in FLOATS or abs(value) <= edge.largest else np.copysign(edge.largest, value)


def text(name: str) -> str:
    """Functions of a type."""
    return f"""
    struct Box {{ {name} x; }}
    {name} same({name} x) {{ return x; }}
    {name} opened(Box b) {{ return b.x; }}
    {name} second(vector<{name}, 2> v) {{ return v.y; }}
    void put(inout {name} y, {name} x) {{ {name} z = y; y = x; x = z; }}
    """


def host(value: Any) -> list[Any]:
    """The elements of an array as Python has them; bfloat16 as floats, which hold it exactly."""
    if isinstance(value, spy.Tensor):
        value = (value.astype("float") if value.dtype.name == "bfloat16" else value).to_numpy()
    found: list[Any] = np.asarray(value).reshape(-1).tolist()
    return found


@pytest.mark.parametrize("name", EDGES)
@needs(_needs_of)
@sampled(2)
def test_arrays_are_filled(device: spy.Device, name: str) -> None:
    for value in taken(name):
        assert host(spy.Tensor.full(device, 2, value, name)) == [held(name, value)] * 2
    for value in refused(name):
        with pytest.raises(spy.BindError, match=REFUSED):
            spy.Tensor.full(device, 2, value, name)
    for value in (np.inf, -np.inf) if name in FLOATS else ():
        assert host(spy.Tensor.full(device, 2, value, name)) == [value] * 2


@pytest.mark.parametrize("name", EDGES)
@needs(_needs_of)
@sampled(2)
def test_arrays_are_copied(device: spy.Device, name: str) -> None:
    wide = np.dtype(np.float64 if name in FLOATS else np.uint64 if name.startswith("u") else np.int64)
    limits = (-np.inf, np.inf) if name in FLOATS else (np.iinfo(wide).min, np.iinfo(wide).max)
    tensor = spy.Tensor.zeros(device, 2, name)
    for value in taken(name):
        if limits[0] <= value <= limits[1]:
            tensor.copy_from(np.array([value, 1], wide))
            assert host(tensor) == [held(name, value), 1]
    for value in refused(name):
        if limits[0] <= value <= limits[1]:
            before = host(tensor)
            with pytest.raises(spy.BindError, match="does not fit"):
                tensor.copy_from(np.array([1, value], wide))
            assert host(tensor) == before
            with pytest.raises(spy.BindError, match="does not fit"):
                spy.Tensor.from_numpy(device, np.array([1, value], wide), name)


@pytest.mark.parametrize("name", ["float", "half", "uint64_t"])
@needs(_needs_of)
@sampled(3)
def test_calls(device: spy.Device, name: str) -> None:
    """Each way is tried before a call of the same kind worked and after it, where calls take a shorter way."""
    module: Any = spy.Module.load_from_source(device, f"number_edges_{name}", text(name))
    tensor = spy.Tensor.zeros(device, 1, name)

    def put(x: Any) -> Any:
        cell = spy.ValueRef(x)
        module.put(cell, 1)
        assert cell.value == 1
        return held(name, x)

    def put_second(x: Any) -> Any:
        cell = spy.ValueRef(1)
        module.put(cell, x)
        return cell.value

    def written(x: Any) -> Any:
        tensor[0] = x
        return host(tensor)

    ways: list[Callable[[Any], Any]] = [
        module.same,
        lambda x: module.same(x, _result="tensor"),
        lambda x: module.opened({"x": x}),
        lambda x: module.second((x, x)),
        lambda x: module.same([x, x])[1],
        put,
        put_second,
        written,
    ]
    for k, way in enumerate([*ways, *ways]):
        for value in refused(name):
            with pytest.raises(spy.BindError, match=REFUSED):
                way(value)
                pytest.fail(f"way {k} took {value!r}")
        for value in taken(name):
            assert host(way(value)) == [held(name, value)], (k, value)

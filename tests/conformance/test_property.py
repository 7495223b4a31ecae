"""Random calls against NumPy: functions, shapes, strides, dtypes, kinds of arguments, results and maps.

Every call has to give what ``_model`` works out, or be refused where it refuses; memory that a call has no
business with has to stay as it was. ``_random_calls`` draws them. In CI the cases are the same in every run;
``pytest tests/conformance/test_property.py --long --hypothesis-seed=N`` tries many more, of any layout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import _model as model
import _model_types as kinds
import hypothesis
import numpy as np
import pytest
from _gaps import narrowest
from _model_types import Array, CallId, Data, Fit, Grid, Mismatch, Refused, Shape, Type, Unspecified
from _random_calls import MAPPED, SLANG, Case, calls, mapped_calls, pool

import slangpy_rt as spy
from tests.depth import explore, random_cases


@dataclass(frozen=True)
class Outcome:
    """What a call has to leave behind.

    Attributes
    ----------
    memory : tuple of numpy.ndarray or None
        What the base of each argument, and then of ``_result``, holds afterwards.
    """

    shape: Shape
    result: Array | None
    memory: tuple[Array | None, ...]


def expect(case: Case) -> Outcome:
    """What NumPy computes for a case.

    Raises
    ------
    Refused, Mismatch
    """
    f = case.function
    values = [*case.arguments, *([case.result] if isinstance(case.result, Data) else [])]
    types = [(type_, direction) for _, type_, direction in f.parameters]
    if len(values) > len(types):
        assert f.returns is not None
        types.append((f.returns, "out"))
    maps: list[Any] = [*case.maps, *[None] * len(values)]
    memory = [v.base.copy(order="K") if isinstance(v, Data) else None for v in values]
    fits = []
    for (type_, direction), value, base in zip(types, values, memory, strict=True):
        fits.append(model.fit(type_, value) if direction == "in" else taken(type_, value, value.look(base)))
    rank = 0
    for found, dims in zip(fits, maps, strict=False):
        if dims is not None and len(dims) != len(found.shape):
            raise Refused("a map of other dimensions")
        rank = max(rank, len(found.shape) if dims is None else max(dims, default=-1) + 1)
    shape = model.call_shape([Fit(placed(f_, dims, rank), None) for f_, dims in zip(fits, maps, strict=False)])
    arrays = [
        found.values if dims is None or found.values is None else model.spread(found.values, dims, rank)
        for found, dims in zip(fits, maps, strict=False)
    ]
    views = []
    for (type_, direction), view in zip(types, arrays, strict=True):
        if direction == "in" or view is None:
            continue
        views.append(view)
        if view.shape[: view.ndim - len(type_.dims)] != shape:
            raise Mismatch("elements would overwrite each other")
        if 0 not in shape and any(n > 1 and s == 0 for n, s in zip(shape, view.strides, strict=False)):
            raise Mismatch("a broadcast view is written")
    inputs: list[Any] = []
    for (type_, _), array, value in zip(types, arrays, values, strict=True):
        if type_.kind == "tensor":
            inputs.append(array)
            continue
        if array is None:
            # What only the call knows: its own index, and grids whose size another argument gives.
            array = model.indices(type_, shape) if isinstance(value, CallId) else counted(type_, value, shape)
        inner = len(type_.dims)
        lead = (1,) * (len(shape) + inner - array.ndim)
        full = np.broadcast_to(array.reshape(lead + array.shape) if lead else array, shape + type_.dims)
        inputs.append(full.astype(type_.dtype))
    # Whole numbers wrap, in Slang as in NumPy.
    with np.errstate(over="ignore"):
        out = f.compute(*inputs[: len(f.parameters)])
    results = out if isinstance(out, tuple) else (out,)
    written = [*results[1:], *([results[0]] if isinstance(case.result, Data) else [])]
    for view, new in zip(views, written, strict=True):
        view[...] = new
    return Outcome(shape, results[0], tuple(memory))


def taken(type_: Type, value: Data, view: Array) -> Fit:
    """An argument that is written: nothing converts, and it has to be writable."""
    if view.dtype != type_.dtype or (value.type is None and not view.flags.writeable):
        raise Refused("not writable as it is")
    n = view.ndim - len(type_.dims)
    if n < 0 or view.shape[n:] != type_.dims:
        raise Refused("other dimensions")
    return Fit(view.shape[:n], view)


def placed(found: Fit, dims: Any, rank: int) -> Shape:
    """Its dimensions as the call counts them."""
    if dims is None:
        return found.shape
    return model.spread(np.empty(found.shape, "?"), dims, rank).shape


def counted(type_: Type, grid: Grid, shape: Shape) -> Array:
    """A grid whose size other arguments give."""
    own = len(grid.shape)
    sizes = tuple(shape[len(shape) - own :])
    found = model.fit(type_, Grid(sizes, grid.offset, grid.stride)).values
    assert found is not None
    return found


def kinds_of(case: Case, shape: Shape) -> tuple[type, ...]:
    """As what the result may come."""
    if isinstance(case.result, str):
        return ({"numpy": np.ndarray, "tensor": spy.Tensor, "ndbuffer": spy.NDBuffer}[case.result],)
    on = {on for value in case.arguments for on in homes(value)}
    for name, kind in (("Tensor", spy.Tensor), ("NDBuffer", spy.NDBuffer), ("numpy", np.ndarray)):
        if name in on:
            return (kind,)
    if shape:
        # The documents do not say, of lists and generators alone.
        return spy.Tensor, np.ndarray
    returns = case.function.returns
    assert returns is not None
    python: dict[str, type] = {"f": float, "i": int, "u": int, "b": bool, "V": dict}
    # A vector may come as an array that knows its Slang type.
    own: type = getattr(spy, returns.name, np.ndarray)
    return (np.ndarray, own) if returns.dims else (python[returns.dtype.kind],)


def homes(value: Any) -> set[str]:
    """Where the arrays of an argument are."""
    if isinstance(value, Data):
        return {value.on}
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return {on for item in items for on in homes(item)}


def check(module: spy.Module, case: Case) -> None:
    """Run a case, and compare."""
    f = case.function
    made = [kinds.place(module.device, module, value) for value in case.arguments]
    into, memory = case.result, None
    if isinstance(case.result, Data):
        into, memory = kinds.place(module.device, module, case.result)
    held = [*(base for _, base in made), memory]
    names = [name for name, _, _ in f.parameters][case.positional :]
    function = module[f.name]
    if case.maps:
        by_name = dict(zip(names, case.maps[case.positional :], strict=True))
        function = function.map(*case.maps[: case.positional], **by_name)
    named = dict(zip(names, (value for value, _ in made[case.positional :]), strict=True))
    positional = [value for value, _ in made[: case.positional]]
    if case.way == "return_type" and isinstance(into, str):
        function, into = function.return_type(into), None
    if into is not None:
        named["out" if case.way == "out" else "_result"] = into

    def run() -> Any:
        return function.bind(*positional, **named)() if case.way == "bind" else function(*positional, **named)

    try:
        expected = expect(case)
    except Unspecified:
        hypothesis.reject()
    except (Refused, Mismatch) as refusal:
        with pytest.raises(spy.BindError if isinstance(refusal, Refused) else spy.ShapeError):
            run()
        return
    result = run()
    ulps = f.ulps.get(module.device.backend.target.format, 0)
    for base, after in zip(held, expected.memory, strict=False):
        if after is not None:
            kinds.same(kinds.host(base), after, ulps)
    if f.returns is None:
        assert result is None
    elif isinstance(case.result, Data):
        assert result is into
    else:
        assert type(result) in kinds_of(case, expected.shape)
        if isinstance(result, spy.NDBuffer):
            assert result.shape == expected.shape and result.dtype.name == f.returns.name
        assert expected.result is not None
        kinds.same(kinds.host(result), expected.result.astype(f.returns.dtype), ulps)


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The pool."""
    return spy.Module.load_from_source(device, "test_property", SLANG, defines={"NARROWEST": narrowest(device)})


@random_cases
def test_calls(module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test(case: Case) -> None:
        check(module, case)

    explore(pytestconfig, test, calls(pool(narrowest(module.device)), pytestconfig.getoption("--long")), 1200)


@random_cases
def test_maps(module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test_mapped(case: Case) -> None:
        check(module, case)

    explore(pytestconfig, test_mapped, mapped_calls(MAPPED), 500)

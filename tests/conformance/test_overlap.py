"""Arguments that share memory: the result of a call is as if its inputs had been read first.

What NumPy computes with ``out=`` is the model, for random views of one array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from _overlap import SIZE, View, module, numbers, tensor
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.arrays.layout import layout_of
from tests.depth import explore, needs, random_cases, sampled

__all__ = ["module"]  # the fixture

_STRIDES = (-12, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 12)


@st.composite
def views(draw: st.DrawFn, shape: tuple[int, ...]) -> View:
    """Any view of that shape that stays in the base: reversed, strided, permuted, stretched or overlapping itself."""
    strides = tuple(draw(st.sampled_from(_STRIDES)) for _ in shape)
    low = sum(min(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    high = sum(max(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    hypothesis.assume(high - low < SIZE)
    return View(draw(st.integers(-low, SIZE - 1 - high)), shape, strides)


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@random_cases
def test_two_inputs_and_a_result(module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test(case: tuple[View, View, View]) -> None:
        a, b, out = case
        expected, base = numbers(SIZE), tensor(module, numbers(SIZE))
        host = numbers(SIZE)
        if len(set(out.places)) < len(out.places):
            for memory, view in ((base, View.of_tensor), (host, View.of_numpy)):
                with pytest.raises(spy.ShapeError, match=r"overlap each other|broadcast view"):
                    module.add(view(a, memory), view(b, memory), _result=view(out, memory))
        else:
            np.add(a.of_numpy(expected), b.of_numpy(expected), out=out.of_numpy(expected))
            module.add(a.of_tensor(base), b.of_tensor(base), _result=out.of_tensor(base))
            module.add(a.of_numpy(host), b.of_numpy(host), _result=out.of_numpy(host))
        np.testing.assert_array_equal(base.to_numpy(), expected)
        np.testing.assert_array_equal(host, expected)

    explore(pytestconfig, test, SHAPES.flatmap(lambda s: st.tuples(views(s), views(s), views(s))), 120)


@random_cases
def test_an_inout_parameter(module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test(case: tuple[View, View]) -> None:
        a, b = case
        hypothesis.assume(len(set(a.places)) == len(a.places))
        expected, base, host = numbers(SIZE), tensor(module, numbers(SIZE)), numbers(SIZE)
        a.of_numpy(expected)[...] += 3 * b.of_numpy(expected)
        module.update(a.of_tensor(base), b.of_tensor(base))
        module.update(a.of_numpy(host), b.of_numpy(host))
        np.testing.assert_array_equal(base.to_numpy(), expected)
        np.testing.assert_array_equal(host, expected)

    explore(pytestconfig, test, SHAPES.flatmap(lambda s: st.tuples(views(s), views(s))), 80)


@random_cases
def test_two_outputs(module: spy.Module, pytestconfig: pytest.Config) -> None:
    def test(case: tuple[View, View]) -> None:
        a, b = case
        hypothesis.assume(all(len(set(v.places)) == len(v.places) for v in case))
        base, host = tensor(module, numbers(SIZE)), numbers(SIZE)
        x = np.arange(np.prod(a.shape), dtype=np.float32).reshape(a.shape)
        expected = numbers(SIZE)
        if set(a.places) & set(b.places):
            with pytest.raises(spy.ShapeError, match="'a' and 'b' share memory"):
                module.split(tensor(module, x), a.of_tensor(base), b.of_tensor(base))
            with pytest.raises(spy.ShapeError, match="'a' and 'b' share memory"):
                module.split(x, a.of_numpy(host), b.of_numpy(host))
        else:
            a.of_numpy(expected)[...], b.of_numpy(expected)[...] = x, -x
            module.split(tensor(module, x), a.of_tensor(base), b.of_tensor(base))
            module.split(x, a.of_numpy(host), b.of_numpy(host))
        np.testing.assert_array_equal(base.to_numpy(), expected)
        np.testing.assert_array_equal(host, expected)

    explore(pytestconfig, test, SHAPES.flatmap(lambda s: st.tuples(views(s), views(s))), 80)


# Large enough that a device with threads has some that write before others have read.
LARGE = 20_000
NAMED: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "reversed": lambda m, a: (m.line, a, a[::-1]),
    "one ahead": lambda m, a: (m.line, a[:-1], a[1:]),
    "one behind": lambda m, a: (m.line, a[1:], a[:-1]),
    "itself": lambda m, a: (m.line, a, a),
    "every other": lambda m, a: (m.line, a[: LARGE // 2], a[::2]),
    "apart": lambda m, a: (m.line, a[::2], a[1::2]),
    "stretched": lambda m, a: (m.line, a[7:8], a),
}


@sampled(4)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("how", ["call", "bind", "list"])
def test_views_of_one_array(module: spy.Module, name: str, how: str) -> None:
    a, expected = tensor(module, numbers(LARGE)), numbers(LARGE)
    function, source, out = NAMED[name](module, a)
    _, seen, into = NAMED[name](module, expected)
    replay = lambda: function(source, _result=out)  # noqa: E731
    if how == "bind":
        replay = function.bind(source, _result=out)
    elif how == "list":
        commands = module.device.command_list()
        assert function.append_to(commands, source, _result=out) is out
        assert len(commands) == 1
        replay = commands.submit
    for _ in range(2):
        replay()
        into[...] = 2 * seen + 1
    np.testing.assert_array_equal(a.to_numpy(), expected)


def test_an_input_backwards_into_the_other_one(module: spy.Module) -> None:
    a, expected = tensor(module, numbers(LARGE)), numbers(LARGE)
    for _ in range(2):
        assert module.add(a, a[::-1], _result=a) is a
        expected = expected + expected[::-1]
    np.testing.assert_array_equal(a.to_numpy(), expected)


def test_a_transposed_result(module: spy.Module) -> None:
    host = numbers(144 * 144).reshape(144, 144)
    q = tensor(module, host)
    module.line.map((0, 1), _result=(1, 0))(q, _result=q)
    np.testing.assert_array_equal(q.to_numpy(), (2 * host + 1).T)
    own = host.copy()
    module.line(own, _result=own.T)
    np.testing.assert_array_equal(own, (2 * host + 1).T)


def test_the_same_layouts_at_other_places(module: spy.Module) -> None:
    # One prepared call has to tell these apart.
    a, b = tensor(module, numbers(1000)), tensor(module, numbers(1000))
    for source, out in (
        (a[8:508], b[8:508]),
        (a[8:508], a[16:516]),
        (a[8:508], a[8:508]),
        (a[:500], a[500:]),
    ):
        n = out.shape[0]
        before = a.to_numpy()
        target = b if out.buffer is b.buffer else a
        expected = target.to_numpy()
        at = (out.address - target.address) // 4
        start = (source.address - a.address) // 4
        expected[at : at + n] = 2 * before[start : start + n] + 1
        module.line(source, _result=out)
        np.testing.assert_array_equal(target.to_numpy(), expected)


def test_vectors_that_overlap_by_a_part(module: spy.Module) -> None:
    host = numbers(3 * 2000 + 1)
    flat = tensor(module, host)
    device, kind = module.device, spy.Tensor
    three = spy.Tensor.empty(device, 1, dtype="float3").dtype

    def vectors(start: int) -> Any:
        layout = layout_of(device, kind, three, (2000,), None, False)
        return kind.of(layout, flat.buffer, flat.address + 4 * start)

    module.turned(vectors(0), _result=vectors(1))
    expected = host.copy()
    expected[1:] = host[:-1].reshape(2000, 3)[:, [1, 2, 0]].ravel()
    np.testing.assert_array_equal(flat.to_numpy(), expected)


def test_whole_arrays_that_are_read(module: spy.Module) -> None:
    host, places = numbers(LARGE), np.arange(LARGE, dtype=np.int32)
    a = tensor(module, host)
    module.near(places, a, _result=a)
    np.testing.assert_array_equal(a.to_numpy(), host + np.roll(host, -1))
    a = tensor(module, host)
    module.spread(places, a, a)
    np.testing.assert_array_equal(a.to_numpy(), np.roll(host, -1))


@needs("{scalar}")
@sampled(2)
@pytest.mark.parametrize("scalar", ["uint8_t", "half"])
def test_narrow_elements_at_odd_places(device: spy.Device, scalar: str) -> None:
    module = spy.Module.load_from_source(
        device, f"test_overlap_{scalar}", f"{scalar} line({scalar} x) {{ return {scalar}(2 * x + 1); }}"
    )
    dtype: Any = np.uint8 if scalar == "uint8_t" else np.float16
    for first, count, into in ((0, 1000, 1), (1, 1000, 0), (3, 497, 4), (7, 503, 6), (2, 499, 3)):
        expected = (np.arange(1003) % 100).astype(dtype)
        array, host = spy.Tensor.from_numpy(device, expected), expected.copy()
        expected[into : into + count] = 2 * expected[first : first + count] + 1
        for memory in (array, host):
            module.line(memory[first : first + count], _result=memory[into : into + count])
        np.testing.assert_array_equal(array.to_numpy(), expected)
        np.testing.assert_array_equal(host, expected)


def test_a_stream(module: spy.Module) -> None:
    a, expected = tensor(module, numbers(LARGE)), numbers(LARGE)
    line = module.line.stream(module.device.stream())
    for function in (line, module.line, line):
        function(a[:-1], _result=a[1:])
        expected[1:] = 2 * expected[:-1] + 1
    np.testing.assert_array_equal(a.to_numpy(), expected)


def test_no_memory_for_a_copy(module: spy.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    a = tensor(module, numbers())

    def full(nbytes: int) -> Any:
        raise spy.OutOfMemoryError("no memory left")

    module.line(a[:-1], _result=a[1:])
    before = a.to_numpy()
    with monkeypatch.context() as patch:
        patch.setattr(module.device, "alloc", full)
        with pytest.raises(spy.OutOfMemoryError):
            module.line(a[:-1], _result=a[1:])
    np.testing.assert_array_equal(a.to_numpy(), before)
    module.line(a[:-1], _result=a[1:])
    np.testing.assert_array_equal(a.to_numpy()[1:], 2 * before[:-1] + 1)


def test_rows_into_their_own_first_element(module: spy.Module) -> None:
    host = numbers(600).reshape(30, 20)
    a = tensor(module, host)
    module.first(a[:, ::-1], _result=a[:, 0])
    host[:, 0] = host[:, -1]
    np.testing.assert_array_equal(a.to_numpy(), host)


def test_fields_of_a_struct(module: spy.Module) -> None:
    pairs = spy.Tensor.from_numpy(module.device, numbers(2000).reshape(1000, 2), dtype=module.Pair)
    module.swapped(pairs, _result=pairs[::-1])
    expected = numbers(2000).reshape(1000, 2)[::-1, ::-1]
    np.testing.assert_array_equal(pairs.to_numpy()["a"], expected[:, 0])
    np.testing.assert_array_equal(pairs.to_numpy()["b"], expected[:, 1])
    a = tensor(module, numbers(1000))
    module.sum({"a": a, "b": a[::-1]}, _result=a)
    np.testing.assert_array_equal(a.to_numpy(), np.full(1000, 999))


def test_one_value_for_all_in_the_result(module: spy.Module) -> None:
    a = tensor(module, numbers(1000) + 5)
    module.shifted.set(offset=a[:4])(a, _result=a)
    np.testing.assert_array_equal(a.to_numpy(), numbers(1000) + 10)


def test_a_list_on_several_streams(module: spy.Module) -> None:
    # All replays use one copy of an argument, one replay after the other.
    device = module.device
    a, expected = tensor(module, numbers(LARGE)), numbers(LARGE)
    commands = device.command_list()
    module.add.append_to(commands, a, 1.0, _result=a)
    module.line.append_to(commands, a[:-1], _result=a[1:])
    module.add.append_to(commands, a, a[::-1], _result=a)
    for stream in (None, device.stream(), device.stream(), None):
        commands.submit(stream)
        expected += 1
        expected[1:] = 2 * expected[:-1] + 1
        expected = expected + expected[::-1]
    np.testing.assert_array_equal(a.to_numpy(), expected)


def test_an_updated_list(module: spy.Module) -> None:
    device = module.device
    a, b = tensor(module, numbers(1000)), tensor(module, numbers(1000))
    commands = device.command_list()
    module.line.append_to(commands, b[:-1], _result=a[1:])
    commands.submit()
    commands.update(0, a[:-1], _result=a[1:])
    before = a.to_numpy()
    commands.submit()
    np.testing.assert_array_equal(a.to_numpy()[1:], 2 * before[:-1] + 1)
    commands.update(-1, b[:-1], _result=a[1:])
    commands.submit()
    np.testing.assert_array_equal(a.to_numpy()[1:], 2 * b.to_numpy()[:-1] + 1)
    # A view in place of a whole array, and the array that the call made stays.
    whole = device.command_list()
    made = module.line.append_to(whole, tensor(module, np.ones(64)))
    whole.submit()
    whole.update(0, tensor(module, np.full(200, 3))[64:128])
    whole.submit()
    np.testing.assert_array_equal(made.to_numpy(), np.full(64, 7))


@needs("zero_copy")
def test_memory_of_another_library(module: spy.Module) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.arange(1000, dtype=torch.float32)
    # The first call prepares, the others take the short way that torch's arrays have.
    for k in range(4):
        before = whole.numpy().copy()
        module.line(whole[:-1], _result=whole[1:])
        np.testing.assert_array_equal(whole.numpy()[1:], 2 * before[:-1] + 1)
        apart = torch.empty(999)
        module.line(whole[k % 2 :][:999], _result=apart)
        np.testing.assert_array_equal(apart.numpy(), 2 * whole.numpy()[k % 2 :][:999] + 1)
    with pytest.raises(spy.ShapeError, match=r"overlap each other|broadcast view"):
        module.line(1.0, _result=whole[:1].expand(5))
    with pytest.raises(spy.ShapeError, match="overlap each other"):
        module.line(1.0, _result=whole.as_strided((5, 3), (1, 1)))
    first = spy.Tensor.from_dlpack(module.device, whole[:-1])
    second = spy.Tensor.from_dlpack(module.device, whole[1:])
    before = whole.numpy().copy()
    module.line(first, _result=second)
    np.testing.assert_array_equal(whole.numpy()[1:], 2 * before[:-1] + 1)
    with pytest.raises(spy.ShapeError, match="'a' and 'b' share memory"):
        module.split(0.5, first, second)


KINDS = [("Tensor", "RWTensor"), ("StructuredBuffer", "RWStructuredBuffer"), ("Tensor", "RWStructuredBuffer")]


@pytest.mark.parametrize(("read", "written"), KINDS, ids=lambda kind: kind)
@pytest.mark.parametrize("count", [1, 3])
def test_whole_arrays(device: spy.Device, read: str, written: str, count: int) -> None:
    """A function that writes to an array, and then reads another one in its memory, reads what was there before."""
    kinds = [name + ("<float, 1>" if name.endswith("Tensor") else "<float>") for name in (read, written)]
    text = f"""
import slangpy_rt;
float2 turn(int i, {kinds[1]} to, {kinds[0]} from)
{{
    float first = from[0];
    to[0] = 50; to[1] = 60; to[2] = 70;
    return float2(first, from[1]);
}}
"""
    turn = spy.Module.load_from_source(device, "whole_arrays", text).turn
    at = 0 if count == 1 else np.zeros(count, np.int32)
    for offset in (0, 1, -1, 2, -2, 3, -3, 8):
        for place in (slice(8, 12),):
            host = np.arange(24, dtype=np.float32)
            base = spy.Tensor.from_numpy(device, host)
            found = np.asarray(turn(at, base[place], base[8 + offset : 12 + offset]))
            wanted = np.float32([8 + offset, 9 + offset])
            np.testing.assert_array_equal(np.broadcast_to(found, (count, 2)), np.broadcast_to(wanted, (count, 2)))
            host[8:11] = 50, 60, 70
            np.testing.assert_array_equal(base.to_numpy(), host)
            if "zero_copy" in device.caps.features:
                host = np.arange(24, dtype=np.float32)
                found = np.asarray(turn(at, host[place], host[8 + offset : 12 + offset]))
                np.testing.assert_array_equal(np.broadcast_to(found, (count, 2)), np.broadcast_to(wanted, (count, 2)))

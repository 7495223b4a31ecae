"""Arguments that share memory: the result of a call is as if its inputs had been read first.

What NumPy computes with ``out=`` is the model, for random views of one array; outputs that share memory are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import slangpy_rt as spy
from slangpy_rt.arrays.layout import layout_of
from tests.depth import explore, random_cases, sampled

SLANG = """
import slangpy_rt;

float line(float x) { return 2 * x + 1; }
float add(float a, float b) { return a + b; }
float3 turned(float3 v) { return v.yzx; }
void update(inout float a, float b) { a += 3 * b; }
void split(float x, out float a, out float b) { a = x; b = -x; }
float halved(float x, out float half) { half = x / 2; return 2 * x; }
float first(Tensor<float, 1> row) { return row[0]; }
float near(int i, Tensor<float, 1> all) { return all[i] + all[(i + 1) % all.shape[0]]; }
void spread(int i, Tensor<float, 1> from, RWTensor<float, 1> to) { to[i] = from[(i + 1) % from.shape[0]]; }
float stored(int i, RWTensor<float, 1> all) { all[i] = 1; return 2; }
struct Pair { float a; float b; }
float sum(Pair p) { return p.a + p.b; }
Pair swapped(Pair p) { return { p.b, p.a }; }
uniform float offset[4];
float shifted(float x) { return x + offset[0]; }

void cut(float x, out float3 v, out float s) { v = float3(x, x + 1, x + 2); s = -x; }

[Differentiable] float multiply(float a, float b) { return a * b; }
[Differentiable] void grow(inout float a, float b) { a = a * b; }
[Differentiable] void parts(float x, out float a, out float b) { a = x * x; b = 3 * x; }
"""

Floats = np.ndarray[Any, np.dtype[np.float32]]


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "test_overlap", SLANG)


def tensor(module: spy.Module, values: Any) -> Any:
    """A new Tensor of floats."""
    return spy.Tensor.from_numpy(module.device, np.asarray(values, np.float32))


def numbers(n: int = 24) -> Floats:
    """Small whole numbers, all different: floats add them exactly."""
    return np.arange(n, dtype=np.float32)


@dataclass(frozen=True)
class View:
    """A view of one base array of one dimension: where it begins, and its shape and strides in elements."""

    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of_numpy(self, base: Floats) -> Any:
        """The view of a NumPy array."""
        strides = tuple(s * base.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(base[self.start :], self.shape, strides)

    def of_tensor(self, base: Any) -> Any:
        """The view of a Tensor."""
        device, address = base.device, base.address + 4 * self.start
        layout = layout_of(device, spy.Tensor, base.dtype, self.shape, self.strides, address % 32 == 0)
        return spy.Tensor.of(layout, base.buffer, address)

    @property
    def places(self) -> list[int]:
        """Which elements of the base it has."""
        return self.of_numpy(np.arange(SIZE, dtype=np.float32)).astype(int).ravel().tolist()


SIZE = 48
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


@sampled(2)
@pytest.mark.parametrize("scalar", ["uint8_t", "half"])
def test_narrow_elements_at_odd_places(device: spy.Device, requires: Callable[..., None], scalar: str) -> None:
    requires(scalar)
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


def test_memory_of_another_library(module: spy.Module) -> None:
    if "zero_copy" not in module.device.caps.features:
        pytest.skip("the device does not work in host memory")
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


def refused(call: Callable[[], object], *words: str) -> None:
    """A call that is refused before it writes anything."""
    with pytest.raises(spy.ShapeError) as caught:
        call()
    for word in words:
        assert word in str(caught.value), caught.value


def test_outputs_that_share_memory(module: spy.Module) -> None:
    host = numbers(100)
    a = tensor(module, host)
    one = module.device.command_list()
    refused(lambda: module.split(1.0, a[:50], a[1:51]), "split", "'a' and 'b'", "(50,)", "(4,)", "4 bytes before")
    refused(lambda: module.split(1.0, a, a), "'a' and 'b'")
    refused(lambda: module.split.bind(1.0, a, a)(), "'a' and 'b'")
    refused(lambda: module.split.append_to(one, 1.0, a, a), "'a' and 'b'")
    refused(lambda: module.halved(1.0, a, _result=a[::-1]), "'half' and '_result'")
    refused(lambda: module.update(a[:1].broadcast_to(10), 1.0), "'a' is a broadcast view")
    refused(lambda: module.stored(np.arange(100, dtype=np.int32), a, _result=a), "'all' and '_result'")
    np.testing.assert_array_equal(a.to_numpy(), host)
    assert len(one) == 0
    module.split(1.0, a[:50], a[50:])
    module.split(2.0, a[::2], a[1::2])
    np.testing.assert_array_equal(a.to_numpy(), np.tile([2, -2], 50))


def test_host_arrays_that_are_written(module: spy.Module) -> None:
    host = numbers(100)
    windows = np.lib.stride_tricks.sliding_window_view(host, 10, writeable=True)
    refused(lambda: module.line(1.0, _result=windows), "line", "'_result'", "(91, 10)", "overlap each other")
    vectors = np.lib.stride_tricks.sliding_window_view(host, 3, writeable=True)
    refused(lambda: module.turned([1, 2, 3], _result=vectors), "turned", "'_result'")
    refused(lambda: module.split(1.0, host, host), "'a' and 'b'")
    refused(lambda: module.split(1.0, host[:50], host[49:99]), "'a' and 'b'")
    np.testing.assert_array_equal(host, numbers(100))
    module.split(1.0, host[:50], host[50:])
    np.testing.assert_array_equal(host, np.repeat([1, -1], 50))


def test_one_cell_for_two_outputs(module: spy.Module) -> None:
    cell, other = spy.floatRef(7), spy.floatRef(8)
    refused(lambda: module.split(1.0, cell, cell), "'a' and 'b'")
    assert cell.value == 7
    module.split(1.0, cell, other)
    assert (cell.value, other.value) == (1, -1)


def test_nothing_overlaps_without_elements(module: spy.Module) -> None:
    a = tensor(module, numbers(10))
    module.split(1.0, a[3:3], a[3:3])
    module.line(a[2:2], _result=a[2:2])
    module.split(1.0, a[0:1], a[1:2])
    np.testing.assert_array_equal(a.to_numpy(), [1, -1, *range(2, 10)])


def test_gradients_in_the_memory_of_inputs(module: spy.Module) -> None:
    # The gradient of `a` is added to memory from which `b` is read.
    memory = tensor(module, numbers(1001))
    a = tensor(module, np.ones(1000)).with_grads(grad_out=memory[1:])
    seed = tensor(module, np.ones(1000))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    module.multiply.bwds(a, memory[:-1], _result=result)
    np.testing.assert_array_equal(memory.to_numpy()[1:], numbers(1001)[1:] + numbers(1000))


def test_an_output_that_is_copied_back_over_one_in_place(module: spy.Module) -> None:
    host, memory = numbers(), numbers(4)
    # No float3 lies in one piece there, so that a device that works in the host's memory copies it.
    gapped = host[:12].reshape(3, 4).T
    refused(lambda: module.cut(memory, gapped, host[2:6]), "cut", "share memory", "(4, 3)", "8 bytes")
    refused(lambda: module.cut(memory, s=host[2:6], v=gapped), "cut", "share memory")
    raw = np.zeros(64, np.uint8)
    aligned, shifted = raw[:24].view(np.float32), np.ndarray((6,), np.float32, raw.data, 2)
    refused(lambda: module.split(numbers(6), aligned, shifted), "split", "share memory", "2 bytes")
    np.testing.assert_array_equal(host, numbers())
    assert not raw.any()
    # What only comes near is no overlap.
    module.cut(memory, gapped, host[12:16])
    np.testing.assert_array_equal(host[:16], [*range(4), *range(1, 5), *range(2, 6), 0, -1, -2, -3])


def test_gradients_that_share_memory_add_up(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(1001))
    a, b = numbers(1000), numbers(1000)[::-1].copy()
    seed = tensor(module, np.ones(1000))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    x, y = tensor(module, a).with_grads(grad_out=memory[:-1]), tensor(module, b).with_grads(grad_out=memory[1:])
    module.multiply.bwds(x, y, _result=result)
    expected = np.zeros(1001)
    expected[:-1] += b
    expected[1:] += a
    np.testing.assert_array_equal(memory.to_numpy(), expected)
    pair = spy.diff_pair(3.0)
    module.multiply.bwds(pair, pair, _result=spy.diff_pair(None, 1.0))
    assert pair.grad == 6


def test_a_deterministic_device_refuses_windows_of_a_gradient(backend_name: str) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        module = spy.Module.load_from_source(device, "test_overlap", SLANG)
        memory = tensor(module, np.zeros(102))
        x = tensor(module, np.ones((100, 3))).with_grads(grad_out=View(0, (100, 3), (1, 1)).of_tensor(memory))
        result = tensor(module, np.ones((100, 3))).with_grads(grad_in=tensor(module, np.ones((100, 3))))
        refused(lambda: module.multiply.bwds(x, 2.0, _result=result), "multiply", "'a.grad_out'", "(100, 3)")
        pair = spy.diff_pair(3.0)
        module.multiply.bwds(pair, pair, _result=spy.diff_pair(None, 1.0))
        assert pair.grad == 6


def test_windows_of_a_gradient_add_up(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(102))
    windows = View(0, (100, 3), (1, 1)).of_tensor(memory)
    x = tensor(module, np.ones((100, 3))).with_grads(grad_out=windows)
    seed = tensor(module, np.ones((100, 3)))
    result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
    module.multiply.bwds(x, 2.0, _result=result)
    expected = np.zeros(102)
    for k in range(3):
        expected[k : k + 100] += 2
    np.testing.assert_array_equal(memory.to_numpy(), expected)


def test_written_gradients_that_share_memory(module: spy.Module) -> None:
    memory = tensor(module, np.zeros(100))
    shared = memory[:50]
    a = tensor(module, np.ones(50)).with_grads(grad_in=shared, grad_out=shared)
    b = tensor(module, np.ones(50)).with_grads(grad_out=memory[1:51])
    refused(lambda: module.grow.bwds(a, b), "grow", "'a.grad_out' and 'b.grad_out'")
    x = tensor(module, np.ones(50)).with_grads(grad_in=tensor(module, np.ones(50)))
    out = memory[::2].with_grads(grad_out=memory[::2][::-1])
    refused(lambda: module.multiply.fwds(x, 2.0, _result=out), "multiply", "'_result' and '_result.grad_out'")
    one, two = (memory[k : k + 50].with_grads(grad_out=tensor(module, np.ones(50))) for k in (0, 10))
    refused(lambda: module.parts.fwds(x, one, two), "'a' and 'b'")
    np.testing.assert_array_equal(memory.to_numpy(), np.zeros(100))

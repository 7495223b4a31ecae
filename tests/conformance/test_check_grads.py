"""``check_grads``, and the check of each new derivative kernel on debug devices.

Wrong derivatives are written by hand here, so that a compiler without faults does not change the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.arguments.indices import range_of
from slangpy_rt.calls.gradient_report import ArgumentRow, GradientReport, ResultRow
from slangpy_rt.runtime.kernel_store import KernelStore
from tests.depth import needs, one_device, sampled

# A function with derivatives by hand, of which the value, the tangent and the gradient may be wrong by a factor.
HAND = """
#define HAND(NAME, VALUE, TANGENT, GRADIENT) \\
    [BackwardDerivative(NAME##Backward)] [ForwardDerivative(NAME##Forward)] \\
    float NAME(float x) { return x * x * x; } \\
    void NAME##Backward(inout DifferentialPair<float> x, float g) \\
    { x = diffPair(x.p, float(GRADIENT) * 3 * x.p * x.p * g); } \\
    DifferentialPair<float> NAME##Forward(DifferentialPair<float> x) \\
    { return diffPair(float(VALUE) * x.p * x.p * x.p, float(TANGENT) * 3 * x.p * x.p * x.d); }
HAND(right, 1, 1, 1)
HAND(wrongBackward, 1, 1, 1.05)
HAND(wrongForward, 1, 1.05, 1)
HAND(wrongValue, 1.05, 1, 1)
HAND(wrongBoth, 1, 1.05, 1.05)
"""
SLANG = (
    HAND
    + """
import slangpy_rt;
struct Line : IDifferentiable
{
    float2 origin;
    float2 way;
    int id;
    no_diff float width;
    [Differentiable] float2 at(float t) { return width * (origin + t * t * way); }
    [Differentiable] float bent(float t) { return wrongBackward(origin.x) + way.x * t; }
}
struct Fields : IDifferentiable { Line line; float b[2]; Line lines[2]; }
struct Plain { float x; float y; }
[Differentiable] float product(float a, float b) { return sin(a) * b; }
[Differentiable] float wave(float x, no_diff float k) { return sin(k * x); }
[Differentiable] float2 turn(float2x2 m, float2 v) { return mul(m, v); }
[Differentiable] float weigh(float w[3], float x) { return (w[0] * x + w[1]) * x + w[2]; }
[Differentiable] float plain(Plain p, float x) { return p.x * x + p.y; }
[Differentiable] float fields(Fields f)
{
    return f.line.origin.x * f.b[0] + f.b[1] * f.lines[1].way.y + f.lines[0].origin.x;
}
[Differentiable] Line grown(Line l, float k) { return { l.origin * k, l.way + k * k, l.id + 1, l.width }; }
[Differentiable] Tuple<float, float2> both(float a, float2 b) { return makeTuple(a * b.x, b * a); }
[Differentiable] float maybe(Optional<float> t, float x) { return t.hasValue ? t.value * x : x; }
[Differentiable] T squared<T : __BuiltinFloatingPointType>(T a, T b) { return a * b * b; }
[Differentiable] float at(float a, int2 i) { return a * (i.x + 100 * i.y + 1); }
[Differentiable] void polar(float r, float angle, out float2 xy, out int n)
{
    xy = r * float2(cos(angle), sin(angle));
    n = 7;
}
[Differentiable] float pop(inout float x, float y) { let z = x; x = x * x * y; return 5 * z; }
[Differentiable] float load(DiffTensor<float, 1> table, Tensor<float, 1> other, no_diff int k)
{
    return table[k] * table[k] * other[k];
}
[Differentiable] void store(float a, WDiffTensor<float, 1> table, no_diff int k) { table[k] = a * a; }
[Differentiable] float kinks(float a, float b) { return abs(a) + max(a, b); }
[Differentiable] float lengths(float3 v) { return length(v); }
[Differentiable] float hashed(float x) { return frac(sin(x * 12.9898) * 43758.5453) * x; }
[Differentiable] float stopped(float x) { return x * detach(x); }
[Differentiable] int count(float x) { return int(x); }
[Differentiable] float seeded(float seed, float raise_on_error) { return seed * raise_on_error; }
float constant(float x) { return x; }
uniform float gain;
extern static const int power = 2;
[Differentiable] float gained(float a)
{
    float y = gain;
    [MaxIters(4)]
    for (int k = 0; k < power; ++k)
        y *= a;
    return y;
}
[Differentiable] float outer(float3 v, float k, float unused) { return wrongBackward(k) * v.x + v.y; }
[Differentiable] void written(float k, inout float x, out float y) { x = x * k; y = wrongForward(x); }
[BackwardDerivative(stepBackward)] float step(float x) { return round(x); }
void stepBackward(inout DifferentialPair<float> x, float g) { x = diffPair(x.p, g); }
[BackwardDerivative(rootBackward)] float root(float x) { return sqrt(x); }
void rootBackward(inout DifferentialPair<float> x, float g) { x = diffPair(x.p, g * 0.5 / sqrt(x.p)); }
[Differentiable] float rooted(float a, float b) { return root(a) * b + a; }
"""
)
NAMES = ("right", "wrongBackward", "wrongForward", "wrongValue", "wrongBoth")


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(device, "check_grads", SLANG)


@pytest.fixture(scope="module")
def careful(backend_name: str) -> Iterator[spy.Module]:
    """The functions above, on a debug device."""
    with spy.Device(backend_name, debug=True) as opened:
        yield spy.Module.load_from_source(opened, "check_grads", SLANG)


def random(*shape: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Numbers from 0.5 to 1.5."""
    return (np.random.default_rng(seed).random(shape) + 0.5).astype(np.float32)


def tensor(module: spy.Module, values: Any, dtype: Any = None) -> spy.Tensor:
    """Values on the module's device."""
    return spy.Tensor.from_numpy(module.device, values, dtype)


def filled(module: spy.Module, name: str, count: int) -> spy.Tensor:
    """Structs with random numbers."""
    made = spy.Tensor.zeros(module.device, count, module[name])
    host = made.to_numpy()

    def fill(array: Any) -> None:
        for field in array.dtype.names or ():
            fill(array[field])
        if array.dtype.names is None:
            array[...] = random(*array.shape, seed=array.size) if array.dtype.kind == "f" else 3

    fill(host)
    made.from_numpy(host)
    return made


def states(report: GradientReport) -> dict[str, str]:
    """The states by argument and result."""
    return {row.name: row.state for row in (*report.results, *report.arguments)}


def line(**fields: Any) -> dict[str, Any]:
    """A Line as a dict."""
    return {"origin": [1.0, 2.0], "way": [3.0, 0.5], "id": 1, "width": 2.0, **fields}


def calls(m: spy.Module) -> dict[str, Any]:
    """Calls of functions whose derivatives are right, by name: functions and arguments of every kind."""
    eight = random(8)
    return {
        "numbers": lambda: m.product.check_grads(0.5, 2.0),
        "NumPy": lambda: m.product.check_grads(eight, random(8, 1).astype(np.float64)),
        "Tensors, by name": lambda: m.product.check_grads(b=tensor(m, random(3, 1)), a=tensor(m, random(2, 1, 8))),
        "gradients": lambda: m.product.check_grads(tensor(m, eight).with_grads(), spy.diff_pair(2.0)),
        "NDBuffer": lambda: m.product.check_grads(buffer_of(m, eight), spy.ValueRef(2.0)),
        "matrices": lambda: m.turn.check_grads(random(5, 2, 2), [1.0, 2.0]),
        "arrays": lambda: m.weigh.check_grads([1.0, 2, 3], random(4)),
        "arrays of Tensors": lambda: m.weigh.check_grads([tensor(m, random(4)), 2.0, 3.0], random(4)),
        "dict": lambda: m.Line.at.check_grads(line(way=random(8, 2)), tensor(m, eight)),
        "struct Tensor": lambda: m.grown.check_grads(filled(m, "Line", 3), 2.0),
        "fields": lambda: m.fields.check_grads(filled(m, "Fields", 3)),
        "structured array": lambda: m.fields.check_grads(filled(m, "Fields", 3).to_numpy()),
        "list of dicts": lambda: m.Line.at.check_grads([line(), line(origin=[2.0, 3])], 2.0),
        "Tuple": lambda: m.both.check_grads(random(4), [1.0, 2.0]),
        "Optional": lambda: m.maybe.check_grads(2.0, random(4)),
        "no value": lambda: m.maybe.check_grads(None, random(4)),
        "generic": lambda: m.squared.check_grads(random(4), 2.0),
        "out": lambda: m.polar.check_grads(random(4), 0.3, np.zeros((4, 2), np.float32), np.zeros(4, np.int32)),
        "inout": lambda: m.pop.check_grads(tensor(m, random(4)), 0.3),
        "ValueRef": lambda: m.pop.check_grads(spy.ValueRef(2.0), 0.3),
        "DiffTensor": lambda: m.load.check_grads(tensor(m, random(4)), tensor(m, random(4)), range(4)),
        "WDiffTensor": lambda: m.store.check_grads(random(4), spy.Tensor.zeros(m.device, 4), spy.call_id()),
        "map": lambda: m.product.map((0,), (1,)).check_grads(random(3), random(4)),
        "diagonal": lambda: m.product.map((0, 0), (0,)).check_grads(random(3, 3), random(3)),
        "transposed": lambda: m.product.map((1, 0), (0, 1)).check_grads(random(3, 4), random(4, 3)),
        "uniform, constant": lambda: m.gained.set(gain=3.0).constants({"power": 3}).check_grads(random(4)),
        "choices": lambda: m.gained.set(gain=3.0).constants({"power": [2, 3]}).check_grads(random(4)),
    }


def buffer_of(module: spy.Module, values: Any) -> spy.NDBuffer:
    """An NDBuffer of values."""
    buffer = spy.NDBuffer(module.device, "float", np.shape(values))
    buffer.copy_from(values)
    return buffer


CALLS = tuple(calls(None))  # type: ignore[arg-type]


@sampled(2)
@pytest.mark.parametrize("name", CALLS)
def test_right_derivatives(module: spy.Module, name: str) -> None:
    report = calls(module)[name]()
    assert report.ok and not report.message, report
    assert any(row.state == "ok" and row.difference is not None for row in report.arguments)
    assert all(row.state == "ok" for row in report.results) and report.results
    for row in report.arguments:
        if row.state == "ok":
            assert row.error is not None and row.error < 1e-5
            assert row.difference_error is None or row.difference_error < 1e-3


@sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_derivatives_by_hand(module: spy.Module, name: str) -> None:
    """Each wrong number is found where it is, by what it contradicts."""
    report = module[name].check_grads(random(4))
    row, result = report.arguments[0], report.results[0]
    assert isinstance(row, ArgumentRow) and isinstance(result, ResultRow)
    assert row.state == ("ok" if name in ("right", "wrongValue") else "wrong")
    assert result.state == ("wrong" if name == "wrongValue" else "ok")
    assert report.ok == (name == "right") and len(report.wrong) == (name != "right")
    wrong = {"wrongBackward": row.backward, "wrongForward": row.forward, "wrongBoth": row.backward}
    if name in wrong:
        assert wrong[name] / row.difference == pytest.approx(1.05, rel=1e-3)
    if name == "wrongBoth":
        assert row.error < 1e-6 and "on purpose" in row.reason  # type: ignore[operator]
    if name == "wrongValue":
        assert result.forward / result.value == pytest.approx(1.05)  # type: ignore[operator]


def test_the_argument_is_named(module: spy.Module) -> None:
    report = module.outer.check_grads(random(4, 3), tensor(module, random(4)), 2.0)
    assert states(report) == {"_result": "ok", "v": "ok", "k": "wrong", "unused": "ok"}
    assert report["unused"].error == 0 and report["k"].type == "float"
    report = module.written.check_grads(2.0, tensor(module, random(4)), tensor(module, random(4)))
    assert [(row.name, row.state) for row in report.arguments] == [("k", "wrong"), ("x", "wrong")]
    assert [(row.name, row.state) for row in report.results] == [("x", "ok"), ("y", "ok")]
    report = module.Line.bent.check_grads(line(), 2.0)
    assert states(report)["this.origin"] == "wrong" and states(report)["this.way"] == "ok"
    with pytest.raises(KeyError):
        report["that"]


@one_device
def test_what_is_not_differentiated_says_why(module: spy.Module) -> None:
    def reasons(report: GradientReport) -> dict[str, str]:
        return {row.name: row.reason for row in report.arguments if row.state == "not differentiable"}

    assert reasons(module.wave.check_grads(1.0, 2.0)) == {"k": "the parameter is no_diff"}
    assert reasons(module.at.check_grads(1.0, [1, 2])) == {"i": "'int2' holds no floats"}
    assert reasons(module.at.check_grads(1.0, spy.grid((3, 4)))) == {"i": "a generator computes it"}
    assert reasons(module.Line.at.check_grads(line(), 2.0)) == {
        "this.id": "'int' holds no floats",
        "this.width": "the field is no_diff, or its struct is not IDifferentiable",
    }
    plain = "'Plain' is not IDifferentiable"
    assert reasons(module.plain.check_grads({"x": 1.0, "y": 2.0}, 3.0)) == {"p.x": plain, "p.y": plain}
    assert reasons(module.count.check_grads(1.5)) == {"x": "no result has a derivative"}
    table = tensor(module, random(4))
    assert reasons(module.load.check_grads(table, table, range(4))) == {
        "other": "'Tensor<float, 1>' has no gradient; a DiffTensor has",
        "k": "a generator computes it",
    }
    empty = module.product.check_grads(random(0), 2.0)
    assert [row.reason for row in empty.arguments] == ["the call has no elements"] * 2 and empty.size == 0


def test_arguments_and_gradients_stay(module: spy.Module) -> None:
    given = tensor(module, random(4)).with_grads(grad_in=tensor(module, random(4, seed=1)))
    x = given.with_grads(grad_in=given.grad_in, grad_out=tensor(module, random(4, seed=2)))
    host, number, pair = random(4, seed=3), spy.ValueRef(2.0), spy.diff_pair(2.0, 5.0)
    module.pop.check_grads(x, pair)
    module.pop.check_grads(host, number)
    module.store.check_grads(host, x, range(4))
    np.testing.assert_array_equal(x.to_numpy(), random(4))
    np.testing.assert_array_equal(x.grad_in.to_numpy(), random(4, seed=1))  # type: ignore[union-attr]
    np.testing.assert_array_equal(x.grad_out.to_numpy(), random(4, seed=2))  # type: ignore[union-attr]
    np.testing.assert_array_equal(host, random(4, seed=3))
    assert (number.value, pair.value, pair.grad) == (2.0, 2.0, 5.0)


@one_device
def test_part_of_a_large_call(module: spy.Module) -> None:
    """Elements are picked evenly, generators of indices with them."""
    for indices in (spy.grid((60, -1), offset=(5, 7), stride=(2, 3)), spy.call_id()):
        report = module.at.check_grads(tensor(module, random(60, 50)), indices)
        assert report.ok and report.size == 3000 and 100 < report.elements <= 256
        assert f"{report.elements} of 3000 elements" in repr(report)
    report = module.at.check_grads(2.0, spy.grid((1, 4000)))
    assert report.ok and report.elements <= 256


def test_parts_of_generators() -> None:
    """Their numbers are those of every n-th element."""
    grid = spy.grid((6, 1, -1), offset=(5, 1, 7), stride=(2, 1, 3))._part((3, 9, 2), (2, 3, 4), (0, 1, 2))
    assert repr(grid) == "grid(shape=(3, 1, -1), offset=(5, 1, 7), stride=(4, 1, 12))"
    assert repr(range_of(range(3, 100, 2))._part(4, 5)) == "range(3, 43, 10)"
    assert repr(range_of(range(3, 4))._part(4, 5)) == "range(3, 4)"


@one_device
def test_kinks_and_noise_are_no_faults(module: spy.Module) -> None:
    """A derivative at a kink is one of many, and rounding that a function amplifies is no contradiction."""
    assert module.kinks.check_grads([0.0, 1.0, 2.0, -1.0], [0.0, 1.0, 3.0, 1.0]).ok
    report = module.lengths.check_grads([0.0, 0.0, 0.0])
    assert report.ok and report["v"].reason == "differences are too noisy"
    assert module.product.check_grads(tensor(module, [np.nan, np.inf, 1.0]), 2.0).ok
    points = np.linspace(0, 100, 256, dtype=np.float32)
    assert module.hashed.check_grads(points)["_result"].state != "wrong"
    report = module.stopped.check_grads(random(4))
    assert [row.state for row in report.arguments] == ["wrong"] and "detach" in report["x"].reason


@one_device
def test_functions_with_a_backward_derivative_alone(module: spy.Module) -> None:
    """Slang has no forward derivative of these; ``bwds`` is compared with differences."""
    report = module.rooted.check_grads(random(4), 2.0)
    assert report.ok and states(report) == {"a": "ok", "b": "ok"}
    assert "which has a backward derivative alone" in report["a"].reason
    assert not module.step.check_grads(random(4)).ok


@needs("{scalar}")
@one_device
@pytest.mark.parametrize("scalar", ["half", "double"])
def test_element_types(device: spy.Device, scalar: str) -> None:
    text = HAND.replace("float", scalar).replace("1.05", "1.5")
    m = spy.Module.load_from_source(device, f"check_{scalar}", text)
    values = random(8).astype(np.float16 if scalar == "half" else np.float64)
    assert m.right.check_grads(values).ok
    assert all(not m[name].check_grads(values).ok for name in NAMES[1:])


@one_device
def test_bfloat16(module: spy.Module) -> None:
    x = spy.Tensor.zeros(module.device, 8, "bfloat16")
    x.from_numpy(random(8))
    assert module.product.check_grads(x, 2.0).ok


@one_device
def test_torch_tensors(module: spy.Module) -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(4, requires_grad=True)
    assert module.Line.at.check_grads(line(way=torch.ones(4, 2)), x).ok and x.grad is None
    assert not module.wrongBackward.check_grads(x).ok


@one_device
def test_options(module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (module.product.check_grads(0.5, 2.0, seed=seed) for seed in (0, 1))
    assert one == module.product.check_grads(0.5, 2.0) and one.arguments != other.arguments
    assert capsys.readouterr().out.startswith(f"{one}\n{other}\n")
    report = module.seeded.check_grads(seed=2.0, raise_on_error=3.0)
    assert [row.name for row in report.arguments] == ["seed", "raise_on_error"] and report.seed == 0
    objects = spy.InstanceTensor(module.Line, (2,))
    assert "check_grads" in dir(type(objects.at)) and objects.at.check_grads(2.0).function.startswith(
        "float2 Line.at"
    )


@one_device
def test_messages(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "cubes.slang"
    file.write_text(HAND + "\n[Differentiable]\nfloat f(float a, no_diff float b) { return wrongValue(a) * b; }\n")
    m = spy.Module.load_from_file(device, str(file))
    with pytest.raises(spy.GradientError) as caught:
        m.f.check_grads(2.0, 1.0, raise_on_error=True)
    assert str(caught.value) == (
        f"float f(float a, float b) ({file}:16): derivatives contradict each other.\n"
        "  _result: a call gives 8, fwds gives 8.4\n"
        "Correct the derivatives by hand that the function uses, or write it in another form where Slang derives "
        'them: docs/gradients.md, "Limits", has the forms that Slang derives wrongly.'
    )
    with pytest.raises(spy.GradientError) as caught:
        m.wrongBackward.check_grads(1.0, raise_on_error=True)
    assert str(caught.value).startswith(f"float wrongBackward(float x) ({file}): derivatives contradict")
    assert "\n  argument 'x': bwds gives " in str(caught.value)
    for call, message in (
        (lambda: m.f.bwds.check_grads(1.0, 2.0), "is a derivative; call check_grads of the function itself."),
        (lambda: m.f.check_grads(1.0, 2.0, seed=-1), "f.check_grads: seed is -1"),
        (lambda: m.f.check_grads("a", 2.0), "argument 'a' is 'a'"),
    ):
        with pytest.raises(spy.BindError, match=message):
            call()


def test_a_function_without_derivative(module: spy.Module) -> None:
    with pytest.raises(spy.BindError) as caught:
        module.constant.check_grads(1.0)
    assert str(caught.value) == (
        "float constant(float x): check_grads needs a derivative; mark the function [Differentiable]."
    )


# Debug devices


def seed(module: spy.Module, *shape: int) -> spy.Tensor:
    """A result whose gradient is 1."""
    ones = spy.Tensor.ones(module.device, shape)
    return spy.Tensor.empty_like(ones).with_grads(grad_in=ones)


@sampled(3)
@pytest.mark.parametrize("name", NAMES[:-1])
def test_debug_devices_check_derivatives(careful: spy.Module, name: str) -> None:
    f, x = careful[name], tensor(careful, random(4)).with_grads()
    tangent = x.with_grads(grad_in=spy.Tensor.ones_like(x))
    for call in (
        lambda: f.bwds(x, _result=seed(careful, 4)),
        lambda: f.bwds(spy.diff_pair(2.0), _result=spy.diff_pair(None, 1.0)),
        lambda: f.fwds(tangent),
        lambda: f.fwds(spy.diff_pair(2.0, 1.0)),
        lambda: f.bwds.bind(x, _result=seed(careful, 4))(),
    ):
        if name == "right":
            call()
            continue
        for _ in range(2):  # a caught error is no answer
            with pytest.raises(spy.GradientError, match=rf"^float {name}\(float x\) \(module 'check_grads'\)"):
                call()
    expected = 2 * 3 * random(4) ** 2 if name == "right" else np.zeros(4)
    np.testing.assert_allclose(x.grad.to_numpy(), expected, rtol=1e-5)


def test_debug_devices_check_once(careful: spy.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """One more kernel is made, and none is launched again for other calls of the kernel."""
    made: list[str] = []
    find = KernelStore.find

    def counted(self: Any, source: Any, text: str, title: str, *others: Any) -> Any:
        made.append(title)
        return find(self, source, text, title, *others)

    monkeypatch.setattr(KernelStore, "find", counted)
    a, b = tensor(careful, random(500)).with_grads(), tensor(careful, random(1)).with_grads()
    call = careful.product.map(None, None)
    call(a, b)
    call.bwds(a, b, _result=seed(careful, 500))
    title = "float product(float a, float b)"
    assert made == [title, f"backward derivative of {title}", f"forward derivative of {title}"]
    made.clear()
    call.bwds(tensor(careful, random(300)).with_grads(), b, _result=seed(careful, 300))
    call.fwds(a, b)
    assert made == []
    np.testing.assert_allclose(a.grad.to_numpy(), np.cos(random(500)) * random(1), rtol=1e-5)


@one_device
def test_debug_devices_check_each_kernel(careful: spy.Module) -> None:
    """A call that was right says nothing of one with another constant, conformance, type or overload."""
    text = (
        HAND
        + """
interface IPart : IDifferentiable { [Differentiable] float run(float x); }
struct Good : IPart { int k; [Differentiable] float run(float x) { return right(x); } }
struct Bad : IPart { int k; [Differentiable] float run(float x) { return wrongBackward(x); } }
extern static const int which = 0;
[Differentiable] float chosen(float x) { if (which == 1) return wrongBackward(x); return right(x); }
[Differentiable] float part<T : IPart>(T part, float x) { return part.run(x); }
[Differentiable] float made(float x) { IPart p = createDynamicObject<IPart, int>(0, 1); return p.run(x); }
[Differentiable] float loaded(float x, no_diff int n) { return right(x); }
[Differentiable] float loaded(float x, no_diff float n) { return wrongBackward(x); }
"""
    )
    m = spy.Module.load_from_source(careful.device, "check_each_kernel", text)
    x = tensor(careful, random(4)).with_grads()
    part, named = m.part, m["loaded"]
    pairs: list[tuple[Any, tuple[Any, ...], Any, tuple[Any, ...]]] = [
        (m.chosen.constants({"which": 0}), (x,), m.chosen.constants({"which": 1}), (x,)),
        (
            m.made.type_conformances(("IPart", "Good", 0)), (x,),
            m.made.type_conformances(("IPart", "Bad", 0)), (x,),
        ),
        (part, ({"_type": "Good", "k": 1}, x), part, ({"_type": "Bad", "k": 1}, x)),
        (named, (x, 2), named, (x, 2.0)),
    ]  # fmt: skip
    for good, right, bad, wrong in pairs:
        for _ in range(2):
            good.bwds(*right, _result=seed(careful, 4))
            with pytest.raises(spy.GradientError, match=r"^float \w+(<\w+>)?\("):
                bad.bwds(*wrong, _result=seed(careful, 4))


@one_device
def test_debug_devices_check_lists_tapes_and_torch(careful: spy.Module) -> None:
    x = spy.Tensor.zeros(careful.device, 4).with_grads()
    commands = careful.device.command_list()
    # The list itself brings the values at which derivatives are compared.
    careful.squared.append_to(commands, tensor(careful, random(4)), 1.5, _result=x.detach())
    careful.wrongBackward.bwds.append_to(commands, x, _result=seed(careful, 4))
    with pytest.raises(spy.GradientError, match="argument 'x': bwds gives"):
        commands.submit()
    commands = careful.device.command_list()
    careful.right.bwds.append_to(commands, x, _result=seed(careful, 4))
    x.grad.clear()
    commands.submit()
    commands.submit()
    np.testing.assert_allclose(x.grad.to_numpy(), 6 * x.to_numpy() ** 2, rtol=1e-5)
    with spy.grad_tape() as tape:
        y = careful.wrongForward(x)
    with pytest.raises(spy.GradientError):
        tape.backward(y, spy.Tensor.ones_like(y))
    tuned = careful.gained.set(gain=2.0).constants({"power": [2, 3]})
    tuned.bwds(x, _result=seed(careful, 4))
    torch = pytest.importorskip("torch")
    for name in ("right", "wrongBackward"):
        t = torch.ones(4, requires_grad=True)
        total = careful[name](t).sum()
        if name == "right":
            total.backward()
            total = careful[name](t).sum()
            total.backward()
            assert t.grad.tolist() == [6.0] * 4
            continue
        with pytest.raises(spy.GradientError):
            total.backward()


@one_device
def test_debug_devices_leave_functions_alone_that_cannot_be_checked(
    careful: spy.Module, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function without a forward derivative is right by differences; an amplified rounding is no fault."""
    a, x = tensor(careful, random(4)).with_grads(), tensor(careful, 2 * random(64)).with_grads()
    careful.rooted.bwds(a, 2.0, _result=seed(careful, 4))
    np.testing.assert_allclose(a.grad.to_numpy(), 1 / np.sqrt(random(4)) + 1, rtol=1e-4)
    careful.hashed.bwds(x, _result=seed(careful, 64))
    with pytest.raises(spy.CompileError, match="which has a backward derivative alone"):
        careful.rooted.fwds(a.with_grads(grad_in=spy.Tensor.ones_like(a)), 2.0)


def test_devices_without_debug_check_nothing(backend_name: str) -> None:
    with spy.Device(backend_name) as opened:
        m = spy.Module.load_from_source(opened, "check_grads", SLANG)
        x = tensor(m, random(4)).with_grads()
        m.wrongBackward.bwds(x, _result=seed(m, 4))
        np.testing.assert_allclose(x.grad.to_numpy(), 1.05 * 3 * random(4) ** 2, rtol=1e-5)


@one_device
def test_shorter_types_inside_a_function_may_round(device: spy.Device) -> None:
    """Parameters and results are floats, and what is between them is rounded to 8 bits."""
    m = spy.Module.load_from_source(
        device,
        "rounded",
        """
import slangpy_rt;
[BackwardDerivative(shortBackward)] [ForwardDerivative(shortForward)]
float shortened(float x) { return x; }  // to bfloat16 and back
void shortBackward(inout DifferentialPair<float> x, float g) { x = diffPair(x.p, g * SLOPE); }
DifferentialPair<float> shortForward(DifferentialPair<float> x) { return diffPair(x.p, x.d); }
[Differentiable] float f(float x) { return shortened(x * x); }
""".replace("SLOPE", "1.01"),
    )
    assert m.f.check_grads(random(8)).ok
    m = spy.Module.load_from_source(device, "short", HAND.replace("1.05", "1.5") + "// bfloat16\n")
    assert not m.wrongBackward.check_grads(random(8)).ok

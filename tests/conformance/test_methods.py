"""Methods, constructors and many objects at once: structs with functions of their own, checked by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device

SLANG = """
struct Counter
{
    int n;
    float step;
    __init(int n) { this.n = n; this.step = 0.5; }
    __init(int n, float step) { this.n = n; this.step = step; }
    float value(float x) { return n + step * x; }
    float value(float x, float y) { return n + step * x + 100 * y; }
    [mutating] int bump(int by) { n += by; return n - by; }
    static int twice(int x) { return 2 * x; }
    static Counter unit() { return Counter(1, 1); }
    T scaled<T : __BuiltinFloatingPointType>(T x) { return x * T(n); }
}
extension Counter { float half_step() { return step / 2; } }
struct Particle
{
    float3 position;
    float3 velocity;
    float mass = 1;
    float energy() { return mass * dot(velocity, velocity) / 2; }
    float3 after(float t) { return position + t * velocity; }
    [mutating] void move(float t) { position += t * velocity; }
    [mutating] void settle() { move(1); velocity = 0; }
}
float distance(Particle a, Particle b) { return length(a.position - b.position); }
float total(Counter c, float x) { return c.n + c.step + x; }
"""
COUNTER = np.dtype([("n", "i4"), ("step", "f4")])


@pytest.fixture(scope="module")
def module(device: spy.Device) -> spy.Module:
    """The structs above."""
    return spy.Module.load_from_source(device, "test_methods", SLANG)


def counters(*n: int) -> npt.NDArray[Any]:
    """Counters with these numbers and steps of a half, one, one and a half, ..."""
    out = np.zeros(len(n), COUNTER)
    out["n"], out["step"] = n, np.arange(1, len(n) + 1) / 2
    return out


def particles(count: int) -> dict[str, npt.NDArray[Any]]:
    """Fields of particles, small whole numbers."""
    rng = np.random.default_rng(count)
    return {
        "position": rng.integers(-9, 9, (count, 3)).astype(np.float32),
        "velocity": rng.integers(-9, 9, (count, 3)).astype(np.float32),
        "mass": rng.integers(1, 9, count).astype(np.float32),
    }


@every_device
def test_a_method_takes_its_object_first(device: spy.Device, module: spy.Module) -> None:
    one = {"n": 3, "step": 2}
    x = np.arange(4, dtype=np.float32)
    assert module.Counter.value(one, 5) == 13.0
    assert module.Counter.value(one, 5, 1) == 113.0
    assert module.Counter.value(x=5, this=one) == 13.0
    np.testing.assert_array_equal(module.Counter.value(one, x), 3 + 2 * x)
    many = counters(1, 2, 3, 4)
    np.testing.assert_array_equal(module.Counter.value(many, x), many["n"] + many["step"] * x)
    tensor = spy.Tensor.from_numpy(device, many, module.Counter)
    result = module.Counter.value(tensor, x[:, None])
    assert type(result) is spy.Tensor
    np.testing.assert_array_equal(result.to_numpy(), many["n"] + many["step"] * x[:, None])


def test_methods_of_extensions(module: spy.Module) -> None:
    np.testing.assert_array_equal(module.Counter.half_step(counters(7, 7)), [0.25, 0.5])


def test_a_method_that_changes_its_object(device: spy.Device, module: spy.Module) -> None:
    host, by = counters(1, 2, 3), np.array([10, 20, 30], np.int32)
    tensor = spy.Tensor.from_numpy(device, host, module.Counter)
    separate = {"n": host["n"].copy(), "step": host["step"].copy()}
    cell = spy.ValueRef({"n": 5, "step": 1})
    for target in (host, tensor, separate):
        np.testing.assert_array_equal(np.asarray(module.Counter.bump(target, by)), [1, 2, 3])
    assert module.Counter.bump(cell, 2) == 5
    for got in (host, tensor.to_numpy(), separate):
        np.testing.assert_array_equal(got["n"], [11, 22, 33])
        np.testing.assert_array_equal(got["step"], [0.5, 1, 1.5])
    assert cell.value == {"n": 7, "step": 1.0}


def test_static_methods(module: spy.Module) -> None:
    assert module.Counter.twice(4) == 8
    np.testing.assert_array_equal(module.Counter.twice(np.arange(3, dtype=np.int32)), [0, 2, 4])
    assert module["Counter.twice"](5) == 10
    assert module.Counter["twice"](6) == 12
    assert module.Counter.unit() == {"n": 1, "step": 1.0}


def test_generic_methods(module: spy.Module) -> None:
    one = {"n": 3, "step": 0}
    assert module.Counter.scaled(one, 1.5) == 4.5
    doubles = module.Counter.scaled(one, np.array([0.1, 1e300]))
    assert doubles.dtype == np.float64
    np.testing.assert_array_equal(doubles, np.array([0.1, 1e300]) * 3)
    assert module.Counter["scaled<float>"](one, 2) == 6.0


def test_constructors(device: spy.Device, module: spy.Module) -> None:
    one = module.Counter(3)
    assert (one["n"], one["step"]) == (3, 0.5)
    two = module.Counter(step=4, n=2)
    assert (two["n"], two["step"]) == (2, 4.0)
    many = module.Counter(np.arange(3, dtype=np.int32), 2.5)
    np.testing.assert_array_equal(many["n"], [0, 1, 2])
    np.testing.assert_array_equal(many["step"], [2.5, 2.5, 2.5])
    tensor = module.Counter(spy.Tensor.arange(device, 3), 2.5)
    assert type(tensor) is spy.Tensor and tensor.dtype.name == "Counter"
    for made, n in ((one, 3), (two, 2)):
        assert module.Counter.value(made, 0) == n
        assert module.total(made, 1) == n + made["step"] + 1
    np.testing.assert_array_equal(module.total(many, 1), [3.5, 4.5, 5.5])
    np.testing.assert_array_equal(module.total(tensor, 1).to_numpy(), [3.5, 4.5, 5.5])


def test_a_struct_says_what_it_has(module: spy.Module) -> None:
    assert {"value", "bump", "twice", "unit", "scaled"} <= set(dir(module.Counter))
    assert module.Counter.fields == {"n": "int", "step": "float"}
    assert module.Counter.name == "Counter"
    assert repr(module.Counter) == "<Slang struct Counter { int n; float step; }>"
    assert module.Counter.twice.signature == "int Counter.twice(int x)"
    assert module.Counter.bump.signature == "int Counter.bump(inout Counter this, int by)"


def test_instance_lists(device: spy.Device, module: spy.Module) -> None:
    data = particles(5)
    energy = data["mass"] * (data["velocity"] ** 2).sum(1) / 2
    moved = data["position"] + 2 * data["velocity"]
    tensors = {name: spy.Tensor.from_numpy(device, value) for name, value in data.items()}
    own = {name: value.copy() for name, value in data.items()}
    for fields, kind in ((own, np.ndarray), (tensors, spy.Tensor)):
        swarm = spy.InstanceList(module.Particle, fields)
        result = swarm.energy()
        assert type(result) is kind
        np.testing.assert_array_equal(np.asarray(result), energy)
        np.testing.assert_array_equal(np.asarray(swarm.after(2)), moved)
        assert swarm.move(2) is None
        np.testing.assert_array_equal(np.asarray(swarm.position), moved)
        np.testing.assert_array_equal(np.asarray(module.distance(swarm, swarm)), np.zeros(5))
        swarm.mass = 0
        np.testing.assert_array_equal(np.asarray(swarm.energy()), np.zeros(5))
    origin = module.Particle(position=[0, 0, 0], velocity=[0, 0, 0], mass=1)
    expected = np.linalg.norm(moved, axis=1)
    found = module.distance(spy.InstanceList(module.Particle, {**data, "position": moved}), origin)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_subclass_of_instance_list(module: spy.Module) -> None:
    class Swarm(spy.InstanceList):
        def center(self) -> Any:
            return self.position.mean(0)

    data = particles(4)
    swarm = Swarm(module.Particle, data)
    np.testing.assert_array_equal(swarm.center(), data["position"].mean(0))
    np.testing.assert_array_equal(swarm.after(1), data["position"] + data["velocity"])


def test_fields_of_an_instance_list_may_come_later(module: spy.Module) -> None:
    swarm = spy.InstanceList(module.Counter)
    swarm.n = np.array([1, 2], np.int32)
    swarm.step = 3
    np.testing.assert_array_equal(swarm.value(2), [7, 8])
    assert repr(swarm) == "InstanceList(Counter: n, step)"


def test_instance_tensors(device: spy.Device, module: spy.Module) -> None:
    many = spy.InstanceTensor(module.Counter, (2, 3))
    n = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert many.shape == (2, 3)
    many.construct(n, 2)
    np.testing.assert_array_equal(many.to_numpy()["n"], n)
    np.testing.assert_array_equal(many.to_numpy()["step"], np.full((2, 3), 2))
    np.testing.assert_array_equal(many.bump(10).to_numpy(), n)
    np.testing.assert_array_equal(many.value(1).to_numpy(), n + 12)
    assert many.twice(4) == 8
    np.testing.assert_array_equal(module.total(many, 1).to_numpy(), n + 10 + 2 + 1)
    tensor = spy.Tensor.from_numpy(device, counters(1, 2), module.Counter)
    given = spy.InstanceTensor(module.Counter, 2, tensor)
    given.bump(1)
    np.testing.assert_array_equal(tensor.to_numpy()["n"], [2, 3])


class Held:
    """An object with SlangPy's protocol: a struct kept as a dict."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def get_this(self) -> dict[str, Any]:
        return self.fields

    def update_this(self, value: Any) -> None:
        self.updated = value


class Stands:
    """An object with our protocol."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __slang_arg__(self) -> Any:
        return self.value


def test_objects_that_stand_for_others(module: spy.Module) -> None:
    held = Held(n=np.array([1, 2], np.int32), step=1)
    np.testing.assert_array_equal(module.total(held, 1), [3, 4])
    np.testing.assert_array_equal(module.Counter.value(Stands({"n": 1, "step": 1}), Stands([1, 2])), [2, 3])
    np.testing.assert_array_equal(module.total({"n": Stands([5, 6]), "step": 1}, 1), [7, 8])
    for n in (5, 7):
        assert module.total(Stands({"n": n, "step": Stands(2)}), 1) == n + 3


def test_operators(device: spy.Device) -> None:
    text = """
    struct Pair { float x; float y; };
    Pair operator+(Pair a, Pair b) { return Pair(a.x + b.x, a.y + b.y); }
    Pair operator-(Pair a) { return Pair(-a.x, -a.y); }
    bool operator<(Pair a, Pair b) { return a.x < b.x; }
    """
    module = spy.Module.load_from_source(device, "test_operators", text)
    x = np.arange(3, dtype=np.float32)
    total = module["operator+"]({"x": x, "y": 1}, {"x": 10, "y": x})
    np.testing.assert_array_equal(total["x"], x + 10)
    np.testing.assert_array_equal(total["y"], x + 1)
    assert module["operator-"]({"x": 1, "y": -2}) == {"x": -1.0, "y": 2.0}
    np.testing.assert_array_equal(module["operator<"]({"x": x, "y": 0}, {"x": 1, "y": 0}), x < 1)
    assert "operator+" not in dir(module)


@every_device
def test_fields_that_a_mutating_method_only_reads(device: spy.Device, module: spy.Module) -> None:
    given = particles(5)
    position = spy.Tensor.from_numpy(device, given["position"], "float3")
    still = given["velocity"][:1].copy()
    still.flags.writeable = False
    instances = spy.InstanceList(module.Particle, {"position": position, "velocity": (1, 2, 3), "mass": 4})
    instances.move(2.0)
    np.testing.assert_array_equal(position.to_numpy(), given["position"] + 2 * np.float32([1, 2, 3]))
    # An array of another shape broadcasts, and one that cannot be written is only read.
    host = given["position"].copy()
    module.Particle.move({"position": host, "velocity": still, "mass": np.ones(1, np.float32)}, 2.0)
    np.testing.assert_array_equal(host, given["position"] + 2 * still)
    module.Particle.move((host, still, 1.0), -2.0)
    np.testing.assert_array_equal(host, given["position"])
    velocity = spy.Tensor.from_numpy(device, given["velocity"], "float3")
    module.Particle.settle({"position": position, "velocity": velocity, "mass": 1})
    assert not velocity.to_numpy().any()


def test_constants_that_a_mutating_method_would_change(device: spy.Device, module: spy.Module) -> None:
    position = spy.Tensor.zeros(device, 3, "float3")
    with pytest.raises(spy.BindError) as error:
        module.Particle.settle({"position": position, "velocity": 1.0, "mass": 1})
    assert str(error.value) == (
        "void Particle.settle(inout Particle this): argument 'this.velocity' is 'inout' and would be written to; "
        "pass an array or a ValueRef instead of 1.0."
    )
    assert not position.to_numpy().any()

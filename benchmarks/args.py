"""Host microseconds of a cached call, for each kind of argument and each modifier.

Every case runs over 1000 elements into a Tensor that is given, so that what differs is the argument; on the null
device, which runs nothing, it is all that differs. slangpy does the same work where it takes the argument.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from _common import OURS, Bench, per_call
from _peers import open_slangpy

import slangpy_rt as spy

_ELEMENTS = 1000
_DRAIN = 256
SOURCE = """
struct Ray { float3 origin; float3 direction; }
struct Pose { Ray ray; float time; }
enum Mode { add, multiply }
uniform float gain;
extern static const int steps = 1;
float add(float a, float b) { return a + b; }
float scaled(float a) { return a * gain; }
float stepped(float a) { return a * steps; }
float length3(float3 v) { return length(v); }
float along(Ray ray, float t) { return (ray.origin + t * ray.direction).x; }
float when(Pose pose, float t) { return pose.time + pose.ray.origin.x * t; }
float pick(Mode mode, float a) { return mode == Mode.add ? a + a : a * a; }
float index(int i, float a) { return i + a; }
float first(float *p, float a) { return p[0] + a; }
T twice<T : __BuiltinFloatingPointType>(T x) { return x + x; }
void both(float a, out float sum) { sum = a + a; }
"""
# What slangpy takes: no uniform by name in a module of its own library, no pointer from a Tensor of ours.
_PLAIN = """
struct Ray { float3 origin; float3 direction; }
struct Pose { Ray ray; float time; }
float add(float a, float b) { return a + b; }
float length3(float3 v) { return length(v); }
float along(Ray ray, float t) { return (ray.origin + t * ray.direction).x; }
float when(Pose pose, float t) { return pose.time + pose.ray.origin.x * t; }
float index(int i, float a) { return i + a; }
"""
Call = Callable[[], object]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("args", __doc__ or "", ("null", "cpu", "vulkan", "cuda"))
    bench.facts = {"elements": _ELEMENTS, "drained_after": _DRAIN}
    for device in bench.devices:
        _measure(bench, device)
        bench.save()
    return bench.finish()


def _measure(bench: Bench, device: str) -> None:
    seconds = 0.005 if bench.quick else 0.03
    with spy.Device(device) as opened:
        ours = _ours(opened)
        theirs, wait = _theirs(bench, device)
        for case, call in ours.items():
            samplers = {OURS: per_call(call, opened.synchronize, seconds, _DRAIN)}
            if case in theirs:
                samplers["slangpy"] = per_call(theirs[case], wait, seconds, _DRAIN)
            bench.compare(device, case, "us", samplers, rounds=5)


def _ours(device: spy.Device) -> dict[str, Call]:
    m = spy.Module.load_from_source(device, "args", SOURCE)
    n = _ELEMENTS
    values = np.random.default_rng(0).random(n).astype(np.float32)
    a, b, out = (spy.Tensor.from_numpy(device, values) for _ in range(3))
    origin = spy.Tensor.zeros(device, n, "float3")
    rays = spy.Tensor.zeros(device, n, m.Ray)
    ray = {"origin": origin, "direction": [0.0, 0.0, 1.0]}
    listed = spy.InstanceList(m.Ray, ray)
    outer = m.add.map((0,), (0,))
    up = spy.float3(0, 0, 1)
    half, number = np.float32(0.5), np.float32(2)
    bound = m.add.bind(a, b, _result=out)
    index, cells, random = spy.call_id(), spy.grid((n,)), spy.rand_float(seed=3)
    cell = spy.ValueRef()
    return {
        "three Tensors": lambda: m.add(a, b, _result=out),
        "the same, bound": bound,
        "by keyword": lambda: m.add(a=a, b=b, _result=out),
        "map": lambda: outer(a, b, _result=out),
        "map made anew": lambda: m.add.map((0,), (0,))(a, b, _result=out),
        "float": lambda: m.add(a, 2.0, _result=out),
        "NumPy scalar": lambda: m.add(a, half, _result=out),
        "list as float3": lambda: m.along(ray, number, _result=out),
        "float3": lambda: m.along({"origin": origin, "direction": up}, a, _result=out),
        "dict of arrays": lambda: m.along(ray, a, _result=out),
        "nested dict": lambda: m.when({"ray": ray, "time": 0.5}, a, _result=out),
        "Tensor of structs": lambda: m.along(rays, a, _result=out),
        "InstanceList": lambda: m.along(listed, a, _result=out),
        "enum by name": lambda: m.pick("multiply", a, _result=out),
        "call_id": lambda: m.index(index, a, _result=out),
        "grid": lambda: m.index(cells, a, _result=out),
        "range": lambda: m.index(range(n), a, _result=out),
        "rand_float": lambda: m.add(random, a, _result=out),
        "pointer": lambda: m.first(b, a, _result=out),
        "generic": lambda: m.twice(a, _result=out),
        "constants": lambda: m.stepped.constants({"steps": 3})(a, _result=out),
        "uniform": lambda: m.scaled.set(gain=2.0)(a, _result=out),
        "ValueRef": lambda: m.both(1.5, cell),
        "NumPy array": lambda: m.add(values, b, _result=out),
    }


def _theirs(bench: Bench, device: str) -> tuple[dict[str, Call], Call]:
    if device not in ("vulkan", "cuda"):
        return {}, lambda: None
    try:
        sp, opened, _ = open_slangpy(device)
        m = sp.Module.load_from_source(opened, "args", _PLAIN)
    except Exception as error:  # whatever keeps it from this machine
        bench.miss(device, "slangpy", str(error))
        return {}, lambda: None
    n = _ELEMENTS
    values = np.random.default_rng(0).random(n).astype(np.float32)
    a, b, out = (sp.Tensor.from_numpy(opened, values) for _ in range(3))
    origin = sp.Tensor.zeros(opened, (n,), "float3")
    ray = {"origin": origin, "direction": sp.float3(0, 0, 1)}
    rays = sp.Tensor.zeros(opened, (n,), m.Ray)
    index, cells = sp.call_id(), sp.grid((n,))
    random: Any = sp.rand_float(seed=3)
    outer = m.add.map((0,), (0,))
    calls: dict[str, Call] = {
        "three Tensors": lambda: m.add(a, b, _result=out),
        "by keyword": lambda: m.add(a=a, b=b, _result=out),
        "map": lambda: outer(a, b, _result=out),
        "map made anew": lambda: m.add.map((0,), (0,))(a, b, _result=out),
        "float": lambda: m.add(a, 2.0, _result=out),
        "float3": lambda: m.along(ray, a, _result=out),
        "dict of arrays": lambda: m.along(ray, a, _result=out),
        "nested dict": lambda: m.when({"ray": ray, "time": 0.5}, a, _result=out),
        "Tensor of structs": lambda: m.along(rays, a, _result=out),
        "call_id": lambda: m.index(index, a, _result=out),
        "grid": lambda: m.index(cells, a, _result=out),
        "rand_float": lambda: m.add(random, a, _result=out),
        "NumPy array": lambda: m.add(values, b, _result=out),
    }
    working = {}
    for case, call in calls.items():
        try:
            call()
            working[case] = call
        except Exception as error:  # a peer may refuse what it likes
            bench.miss(device, "slangpy", f"{case}: {' '.join(str(error).split())[:100]}")
    return working, opened.wait


if __name__ == "__main__":
    sys.exit(main())

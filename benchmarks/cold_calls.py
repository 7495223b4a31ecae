"""First calls of kernels that nobody has compiled before, beside the compilers alone, and first calls of a new shape.

- "next kernel": the module is loaded and the compiler runs. Each sample is another function of the same form, with
  other constants. "compilers alone" loads the text of the same kernel, links it and lets Slang write target code by
  Slang's own interface, then runs g++ with ``-std=c++17 -O3 -march=native`` on C++ as Slang wrote it, or NVRTC on
  CUDA text. It includes no correction of ours, and Slang has the package's modules as intermediate code, as we do.
- "20 kernels": ``spy.compile``, and the same calls one after the other.
- "new process": a new interpreter, in which a module of new text is loaded and called. "no cache": the first process
  after an installation. "compilers alone": a new interpreter that loads Slang, the module and the kernel, and g++.
- "known kernel, new shape": a call whose arrays have sizes that no call had before.

Calls are prepared and not run (``bind``), except in new processes. lavapipe compiles a kernel as it is loaded, which
"slangpy_rt" includes and "compilers alone" does not: on lavapipe the two are no ratio. The device "null" stands for
CUDA: NVRTC compiles its text for an H100, which needs no GPU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

# Before the package is imported, which reads it once: a cache without kernels.
os.environ["SLANGPY_RT_CACHE_DIR"] = tempfile.mkdtemp(prefix="slangpy_rt_bench_")

import numpy as np
from _common import OURS, Bench
from _compilers import CXX, compile_cpp, emitted, open_session

import slangpy_rt as spy
from slangpy_rt.backends.cuda.compile import nvrtc_compile
from slangpy_rt.backends.cuda.nvrtc_process import begin_nvrtc, compile_apart

_FOLDER = os.environ["SLANGPY_RT_CACHE_DIR"]
_ARCH = "sm_90"
_ALONE = "compilers alone"
_ADD = "float add@(float a, float b) { return a + b + @.5f; }\n"
_MARCH = """
float distance_to@(float3 p)
{
    float3 q = abs(p - float3(0.8f, 0.3f, 0)) - float3(0.5f);
    float box = length(max(q, 0.0f)) + min(max(q.x, max(q.y, q.z)), 0.0f);
    return max(min(length(p) - 1.0f, box), p.y - @.9f);
}
float march@(float2 at)
{
    float3 from = float3(0, 0, -4), along = normalize(float3(at, 1.5f));
    float t = 0;
    for (int i = 0; i < 96; ++i)
    {
        float h = distance_to@(from + along * t);
        if (h < 0.001f || t > 20.0f)
            break;
        t += clamp(h, 0.001f, 1.0f);
    }
    return t;
}
"""
_SHADE = """
[Differentiable] float shade@(float a, float b)
{
    let x = a * b + @.5f;
    let y = exp(-x * x) + sqrt(abs(b) + 1);
    return y / (1 + x * x) - a;
}
"""
_STEP = """
import mlp;
[Differentiable] float loss@(Network<2, 1, 16, 2, ReLU> net, no_diff float2 at)
{
    float input[2] = { at.x, at.y };
    float y = net.run(input)[0] - @.5f;
    return y * y;
}
"""
_LONG = """
float many@(float x)
{
    float s = x;
    for (int i = 0; i < 3 + @; ++i)
        s = sin(s) + @.0f * max(s, x);
    return s;
}
"""
_MANY = 20
_PROCESS = """
import sys
import numpy as np
import slangpy_rt as spy
device = spy.Device(sys.argv[1])
module = spy.Module.load_from_source(device, sys.argv[2], sys.argv[3])
x = np.arange(1000, dtype=np.float32)
module[sys.argv[2]](x, x)
"""


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("cold_calls", __doc__ or "", ("cpu", "vulkan", "null"))
    bench.facts = {"c++": " ".join(CXX), "null": f"CUDA text, compiled by NVRTC for {_ARCH}"}
    try:
        for device in bench.devices:
            _next_kernels(bench, device)
            _many(bench, device)
            if device == "cpu":
                _processes(bench, device)
            _shapes(bench, device)
            bench.save()
    finally:
        shutil.rmtree(_FOLDER, ignore_errors=True)
    return bench.finish()


def _next_kernels(bench: Bench, device: str) -> None:
    rounds = 3 if bench.quick else 9
    for title, name, text in (
        ("a + b", "add", _ADD),
        ("raymarcher", "march", _MARCH),
        ("gradient", "shade", _SHADE),
        ("network, gradient", "loss", _STEP),
    ):
        module, source, call = _opened(device, name, text, 2 * rounds + 3)
        # Other functions, because ``source`` compiles a kernel too.
        alone, mine, theirs = _Alone(module, source), count(1), count(rounds + 2)
        _bind(call(0))
        samplers = {
            OURS: lambda call=call, mine=mine: _seconds(lambda: _bind(call(next(mine)))),
            _ALONE: lambda call=call, theirs=theirs, alone=alone: alone.sample(call(next(theirs))),
        }
        bench.compare(device, f"next kernel, {title}", "s", samplers, rounds, 0)


def _many(bench: Bench, device: str) -> None:
    rounds = 1 if bench.quick else 3
    first = _MANY * (2 * rounds + 2) + 1
    module, source, call = _opened(device, "many", _LONG, first + _MANY)
    alone, numbers = _Alone(module, source), count(1)
    _bind(call(0))

    def together() -> float:
        calls = [call(next(numbers)) for _ in range(_MANY)]
        return _seconds(lambda: spy.compile(calls))

    def in_turn() -> float:
        calls = [call(next(numbers)) for _ in range(_MANY)]
        return _seconds(lambda: [_bind(each) for each in calls])

    samplers = {
        OURS: together,
        f"{OURS}, one after the other": in_turn,
        f"{_ALONE}, one after the other": lambda: sum(alone.sample(call(first + k)) for k in range(_MANY)),
    }
    bench.compare(device, f"{_MANY} kernels", "s", samplers, rounds, 0)


def _processes(bench: Bench, device: str) -> None:
    fresh, folder = count(), Path(_FOLDER)

    def process(cache: Path, alone: bool = False) -> float:
        number = next(fresh)
        name, text = f"add{number}", _ADD.replace("@", str(number))
        command = [sys.executable, "-c", _PROCESS, device, name, text]
        if alone:
            command = [sys.executable, str(Path(__file__).parent / "_compilers.py"), name, text, kernel(name, text)]
        environment = os.environ | {"SLANGPY_RT_CACHE_DIR": str(cache)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return _seconds(lambda: subprocess.run(command, check=True, env=environment, capture_output=True))

    x = np.arange(1000, dtype=np.float32)

    def kernel(name: str, text: str) -> str:
        module: Any = spy.Module.load_from_source(opened, name, text)
        return str(module[name].source(x, x))

    opened = spy.Device(device)
    samplers = {
        OURS: lambda: process(folder / "process"),
        f"{OURS}, no cache": lambda: process(folder / f"process{next(fresh)}"),
        _ALONE: lambda: process(folder / "process", alone=True),
    }
    bench.compare(device, "new process, a + b", "s", samplers, 3 if bench.quick else 7, 0)


def _shapes(bench: Bench, device: str) -> None:
    opened = spy.Device(device)
    module = spy.Module.load_from_source(opened, "bench_shapes", _ADD.replace("@", ""))
    sizes = count(1000)
    for kind in ("Tensor", "NumPy"):

        def sample(kind: str = kind) -> float:
            arrays: list[Any] = [np.zeros(next(sizes), np.float32) for _ in range(50)]
            arrays = [spy.Tensor.from_numpy(opened, a) for a in arrays] if kind == "Tensor" else arrays
            start = time.perf_counter()
            for array in arrays:
                module.add(array, array)
            opened.synchronize()
            return (time.perf_counter() - start) / len(arrays) * 1e6

        def again(kind: str = kind) -> float:
            array: Any = np.zeros(1000, np.float32)
            array = spy.Tensor.from_numpy(opened, array) if kind == "Tensor" else array
            start = time.perf_counter()
            for _ in range(50):
                module.add(array, array)
            opened.synchronize()
            return (time.perf_counter() - start) / 50 * 1e6

        bench.compare(device, f"known kernel, new shape, {kind}", "us", {OURS: sample, f"{OURS}, known shape": again})


def _opened(device: str, name: str, text: str, many: int) -> tuple[spy.Module, str, Callable[[int], partial[Any]]]:
    """A module with so many functions of one form, its text, and a function that returns the call of one of them."""
    opened = spy.Device(device)
    if device == "null":
        # Its own method returns the CUDA text.
        opened.backend.begin_compiler = begin_nvrtc  # type: ignore[method-assign]
        opened.backend.compile = lambda code, entry: compile_apart(code, _ARCH)  # type: ignore[method-assign]
    head = "import mlp;\n" if "import mlp" in text else ""
    body = text.replace("import mlp;\n", "")
    source = head + "".join(body.replace("@", str(k)) for k in range(many))
    module: Any = spy.Module.load_from_source(opened, f"bench_cold_{name}", source)
    random = np.random.default_rng(0)

    def tensor(*shape: int) -> spy.Tensor:
        return spy.Tensor.from_numpy(opened, random.random(shape, np.float32))

    x, held, out = tensor(1000), tensor(1000).with_grads(), tensor(1000).with_grads()
    at = spy.Tensor.from_numpy(opened, random.random((1000, 2), np.float32), "float2")
    net = tensor(337).with_grads()

    def call(k: int) -> partial[Any]:
        f: Any = module[f"{name}{k}"]
        if name == "shade":
            return partial(f.bwds, held, held, _result=out)
        if name == "loss":
            return partial(f.bwds, net, at, _result=out)
        return partial(f, *{"add": (x, x), "march": (at,), "many": (x,)}[name])

    return module, source, call


def _bind(call: partial[Any]) -> None:
    """Prepare a call as a first call does, and do not run it."""
    call.func.bind(*call.args, **call.keywords)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class _Alone:
    """The compilers on the texts of kernels, without anything of ours but the texts."""

    def __init__(self, module: spy.Module, source: str) -> None:
        self._target = module.device.backend.target
        self._session = open_session(self._target)
        self._number = count()
        self._session.load(module.name, f"{module.name}.slang", source)

    def sample(self, call: partial[Any]) -> float:
        text = call.func.source(*call.args, **call.keywords)
        start = time.perf_counter()
        code = emitted(self._session, self._target, text, f"alone{next(self._number)}")
        if self._target.format == "cuda":
            nvrtc_compile(code, _ARCH)
        elif self._target.format == "cpp":
            compile_cpp(code)
        return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())

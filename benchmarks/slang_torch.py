"""Kernels written for slang-torch, by ``slangpy_rt.slangtorch`` and by slang-torch itself in the same run: host time
of calls and of autograd, time to load a file, and time of kernels on the GPU.

- "call and launch": host microseconds of ``m.k(...).launchRaw(...)`` over 1000 floats, with the same two tensors as
  ``TensorView``, with others each time, with ``DiffTensorView``, and of ``.bwd``. GPU queues are emptied after every
  256 calls, which is not counted; the CPU has done the work when a launch returns, and Vulkan has copied the tensors,
  too. "launch again" launches one bound kernel; the floor of each case is an empty launch by the driver alone.
- "[TorchEntryPoint]": the same for a host function that allocates its result and launches one kernel.
- "function": forward and backward over 1000 floats, until done, by ``m.k.function(...)``, by a
  ``torch.autograd.Function`` around the kernels of either library, and by one that allocates and copies the same
  tensors but launches no kernel: what PyTorch itself takes.
- "loadModule": in a process that has imported its library and used PyTorch's device, without a cache, with one, and
  again in the same process. slang-torch compiles a file when it is loaded, ours compiles a kernel when it is first
  launched: "+ launch" waits for a kernel and its ``.bwd`` as well. "device open" leaves out what opening the device
  takes. Without a cache slang-torch is timed once, because that takes many seconds.
- Kernels, forward and backward: microseconds on the GPU between CUDA events around each launch. slang-torch compiles
  with ``--use_fast_math``, its default. Milliseconds until done on the CPU, and on Vulkan, copies of the tensors
  included.

What the libraries compute is compared before it is timed; "difference" in the JSON file is the largest relative one.
slang-torch needs a CUDA GPU, nvcc and ninja.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import count, cycle
from pathlib import Path
from statistics import median
from typing import Any

from _common import OURS, Bench, on_host, per_call, whole
from _cuda_floor import CudaFloor
from _slang_torch import WORKS, Run, difference, ours, upstream

_ELEMENTS = 1000
_BLOCK, _GRID = (256, 1, 1), (4, 1, 1)
_DRAIN = 256
_PAIRS = 64
_LAUNCHES = 20
_AHEAD = 8_000_000  # clocks of a GPU, some ms: as long as the host needs to queue a sample's launches
_TOLERANCE = 1e-2  # of whole tensors; fast math and the order of atomic additions differ
_PEER = "slangtorch"
_CHILD_SECONDS = 120
_CHILD = """
import json, sys, time
import torch
path, place, kind = sys.argv[1:]
x = torch.rand(1000, device=place)
y, x_grad, y_grad = torch.empty_like(x), torch.zeros_like(x), torch.ones_like(x)
wait = torch.cuda.synchronize if place == "cuda" else lambda: None
wait()
clock = time.perf_counter
@open@
loaded = clock()
m = slangtorch.loadModule(path, **options)
done = clock()
m.square(input=x, output=y).launchRaw(blockSize=(256, 1, 1), gridSize=(4, 1, 1))
m.square.bwd(input=(x, x_grad), output=(y, y_grad)).launchRaw(blockSize=(256, 1, 1), gridSize=(4, 1, 1))
wait()
launched = clock()
assert torch.allclose(y, x * x) and torch.allclose(x_grad, 2 * x)
again = []
for _ in range(5):
    start = clock()
    slangtorch.loadModule(path, **options)
    again.append(clock() - start)
print(json.dumps({
    "device": loaded - started, "load": done - loaded, "launch": launched - done, "again": sorted(again)[2]
}))
"""
_OPEN_OURS = """
import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
started = clock()
options = {"device": spy.Device("vulkan") if kind == "vulkan" else spy.create_torch_device(kind)}
"""
_OPEN_THEIRS = """
import slangtorch
started, options = clock(), {}
"""

Sampler = Callable[[], float]


def main() -> int:
    """Run the benchmark; the exit status is 1 when ours could not be measured."""
    bench = Bench("slang_torch", __doc__ or "")
    torch: Any = importlib.import_module("torch")
    bench.facts = {"elements": _ELEMENTS, "drained_after": _DRAIN, "launches_a_sample": _LAUNCHES, "difference": {}}
    for device in bench.devices:
        if device == "cuda" and not torch.cuda.is_available():
            bench.miss(device, OURS, "PyTorch sees no GPU")
            continue
        with tempfile.TemporaryDirectory(prefix="slangpy_rt_bench_") as folder:
            _Measurement(bench, torch, device, Path(folder)).run()
        bench.save()
    return bench.finish()


class _Measurement:
    """All rows of one device."""

    def __init__(self, bench: Bench, torch: Any, device: str, folder: Path) -> None:
        self._bench, self._torch, self._device, self._folder = bench, torch, device, folder
        self._place = "cuda" if device == "cuda" else "cpu"
        self._wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else _nothing
        self._peer = device == "cuda"
        self._started = time.perf_counter()

    def run(self) -> None:
        """Measure part after part; one that fails keeps no other from running."""
        square = WORKS[0].path(self._folder)
        modules: dict[str, Any] = {}
        parts: dict[str, Callable[[], None]] = {
            "loadModule": self._load,
            "modules": lambda: self._open(square, modules),
            "launches": lambda: self._launches(modules),
            "function": lambda: self._functions(modules),
        }
        parts |= {f"kernel {work.name}": partial(self._kernel, work) for work in WORKS}
        for name, part in parts.items():
            self._say(name)
            try:
                part()
            except Exception as error:  # what follows is measured all the same
                self._miss(OURS, f"{name}: {_brief(error)}")

    def _open(self, path: Path, modules: dict[str, Any]) -> None:
        """Load the small kernels; slang-torch's are compiled already."""
        modules[OURS] = ours(path, self._device)
        if self._peer:
            self._try(modules, _PEER, lambda: upstream(path))

    def _load(self) -> None:
        """Time of loadModule in processes of its own, which leaves slang-torch's cache for what follows."""
        square = WORKS[0].path(self._folder)
        rounds = 1 if self._bench.quick else 3
        fresh = count()
        cold: dict[str, list[dict[str, float]]] = {OURS: []}
        warm: dict[str, list[dict[str, float]]] = {OURS: []}
        if self._peer:
            self._say("slang-torch compiles its module")
            self._try(cold, _PEER, lambda: [self._child(_OPEN_THEIRS, square, None)])
            self._peer = _PEER in cold
            warm |= {_PEER: []} if self._peer else {}
        for _ in range(rounds):
            cold[OURS].append(self._child(_OPEN_OURS, square, self._folder / f"cold{next(fresh)}"))
        self._child(_OPEN_OURS, square, self._folder / "warm")
        for _ in range(rounds):
            for who, found in warm.items():
                text = _OPEN_OURS if who == OURS else _OPEN_THEIRS
                found.append(self._child(text, square, self._folder / "warm"))
        bare = f"{OURS}, device open"
        for case, runs in (("no cache", cold), ("new process", warm)):
            for who, found in runs.items():
                self._add(f"loadModule, {case}", who, "s", [r["device"] + r["load"] for r in found])
            self._add(f"loadModule, {case}", bare, "s", [r["load"] for r in runs[OURS]])
            launch = f"loadModule + launch, {case}"
            for who, found in runs.items():
                self._add(launch, who, "s", [r["device"] + r["load"] + r["launch"] for r in found])
            self._add(launch, bare, "s", [r["load"] + r["launch"] for r in runs[OURS]])
        for who, found in warm.items():
            self._add("loadModule again", who, "ms", [r["again"] * 1e3 for r in found])

    def _child(self, opening: str, path: Path, cache: Path | None) -> dict[str, float]:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD.replace("@open@", opening), str(path), self._place, self._device],
            capture_output=True,
            text=True,
            timeout=_CHILD_SECONDS,
            env=os.environ | ({"SLANGPY_RT_CACHE_DIR": str(cache)} if cache else {}),
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-400:])
        found: dict[str, float] = json.loads(done.stdout.strip().split("\n")[-1])
        return found

    def _launches(self, modules: dict[str, Any]) -> None:
        """Host time of calls and launches."""
        torch = self._torch
        x, y, x_grad, y_grad = (torch.rand(_ELEMENTS, device=self._place) for _ in range(4))
        pairs = [torch.rand(2, _ELEMENTS, device=self._place).unbind() for _ in range(_PAIRS)]
        cases: dict[str, dict[str, Callable[[], object]]] = {}
        for who, m in modules.items():
            turns, bound = cycle(pairs), m.square_plain(input=x, output=y)

            def others(m: Any = m, turns: Any = turns) -> None:
                a, b = next(turns)
                m.square_plain(input=a, output=b).launchRaw(blockSize=_BLOCK, gridSize=_GRID)

            for case, call in {
                "call and launch, two tensors": lambda m=m: m.square_plain(input=x, output=y).launchRaw(
                    blockSize=_BLOCK, gridSize=_GRID
                ),
                "call and launch, other tensors": others,
                "call and launch, DiffTensorView": lambda m=m: m.square(input=x, output=y).launchRaw(
                    blockSize=_BLOCK, gridSize=_GRID
                ),
                "call and launch, .bwd": lambda m=m: m.square.bwd(input=(x, x_grad), output=(y, y_grad)).launchRaw(
                    blockSize=_BLOCK, gridSize=_GRID
                ),
                "launch again": lambda bound=bound: bound.launchRaw(blockSize=_BLOCK, gridSize=_GRID),
                "[TorchEntryPoint]": lambda m=m: m.square_of(x),
            }.items():
                cases.setdefault(case, {})[who] = call
            y.zero_()
            m.square_plain(input=x, output=y).launchRaw(blockSize=_BLOCK, gridSize=_GRID)
            torch.testing.assert_close(y, x * x)
            torch.testing.assert_close(m.square_of(x), x * x)
        seconds = 0.005 if self._bench.quick else 0.05
        for case, calls in cases.items():
            samplers = {who: per_call(call, self._wait, seconds, _DRAIN) for who, call in calls.items()}
            if self._device == "cuda":
                # In each case: the clock of a shared machine changes within a run.
                floor = CudaFloor()
                samplers["cuLaunchKernel, empty kernel"] = per_call(floor.launch, floor.sync, seconds, _DRAIN)
            self._compare(case, "us", samplers)

    def _functions(self, modules: dict[str, Any]) -> None:
        """Forward and backward in PyTorch's autograd."""
        torch = self._torch
        x = torch.rand(_ELEMENTS, device=self._place, requires_grad=True)
        grad = torch.rand(_ELEMENTS, device=self._place)
        makers: dict[str, Callable[[], Callable[[Any], Any]]] = {
            f"{who}, by hand": partial(_by_hand, torch, m.square) for who, m in modules.items()
        }
        makers["PyTorch, without kernels"] = lambda: _by_hand(torch, None)
        square = modules[OURS].square
        if hasattr(square, "function"):
            makers[OURS] = lambda: square.function(outputs={"output": "input"}, threads=lambda a: a["input"].shape)
        else:
            self._miss(f"{OURS}, function", "not there: kernels have no attribute 'function'")

        def step(f: Callable[[Any], Any]) -> Any:
            x.grad = None
            f(x).backward(grad)
            return x.grad

        samplers: dict[str, Sampler] = {}
        for who, make in makers.items():
            try:
                f = make()
                if "without" not in who:
                    torch.testing.assert_close(step(f), 2 * x.detach() * grad)
            except Exception as error:  # a peer may raise whatever it likes
                self._miss(who, f"function: {_brief(error)}")
                continue
            samplers[who] = whole(partial(step, f), self._wait, 20 if self._bench.quick else 200, 1e6)
        self._compare(f"function, {_ELEMENTS}", "us", samplers)

    def _kernel(self, work: Any) -> None:
        """Time of one kernel on the device."""
        torch, device = self._torch, self._device
        small = on_host(device, self._bench.devices[device])
        try:
            path = work.path(self._folder)
        except FileNotFoundError as error:
            self._miss(f"kernel {work.name}", str(error))
            return
        modules = {OURS: ours(path, device, work.defines)}
        if self._peer:
            if work.file:
                self._say(f"slang-torch compiles {work.file}")
            self._try(modules, _PEER, lambda: upstream(path, work.defines), work.name)
        runs = {who: Run(torch, m, work, work.make(torch, self._place, small)) for who, m in modules.items()}
        found: dict[str, dict[str, Any]] = {}
        for who, run in runs.items():
            self._try(found, who, run.once, work.name)
        if OURS in found and not all(bool(torch.isfinite(t).all()) for t in found[OURS].values()):
            self._miss(OURS, f"{work.name}: its results are not finite")
            return
        if OURS in found and _PEER in found:
            apart = difference(torch, found[OURS], found[_PEER])
            self._bench.facts["difference"][work.name] = apart
            if apart > _TOLERANCE:
                self._miss(OURS, f"{work.name}: its results differ from slang-torch's by {apart:.2g}")
                return
        for what in ("forward", "backward"):
            self._compare(
                f"kernel {work.name}, {what}",
                "us" if device == "cuda" else "ms",
                {who: self._on_device(runs[who], getattr(runs[who], what)) for who in found},
                3 if self._bench.quick else 5,
            )

    def _on_device(self, run: Run, launch: Callable[[], None]) -> Sampler:
        """A sampler of a launch: microseconds on a CUDA GPU between events, else milliseconds until done."""
        torch = self._torch
        if self._device != "cuda":

            def until_done() -> float:
                run.fill()
                start = time.perf_counter()
                launch()
                return (time.perf_counter() - start) * 1e3

            return until_done
        events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(_LAUNCHES)]

        def between_events() -> float:
            torch.cuda.synchronize()
            # The launches wait behind it, so that the host's time is in none of them.
            torch.cuda._sleep(_AHEAD)
            for start, end in events:
                run.fill()
                start.record()
                launch()
                end.record()
            torch.cuda.synchronize()
            return float(median(start.elapsed_time(end) for start, end in events)) * 1e3

        return between_events

    def _compare(self, case: str, unit: str, samplers: dict[str, Sampler], rounds: int | None = None) -> None:
        self._bench.compare(self._device, case, unit, samplers, rounds)
        self._bench.save()

    def _add(self, case: str, who: str, unit: str, values: list[float]) -> None:
        self._bench.add(self._device, case, unit, who, values)
        self._bench.save()

    def _try(self, found: dict[str, Any], who: str, make: Callable[[], Any], about: str = "") -> None:
        """Put what a library makes into a table, or note why it cannot."""
        try:
            found[who] = make()
        except Exception as error:  # a peer may raise whatever it likes
            self._miss(f"{who}, {about}" if about and who != OURS else who, _brief(error))

    def _miss(self, who: str, reason: str) -> None:
        self._bench.miss(self._device, who, reason)

    def _say(self, text: str) -> None:
        print(f"# {time.perf_counter() - self._started:5.1f} s: {text}", file=sys.stderr, flush=True)


def _by_hand(torch: Any, square: Any) -> Callable[[Any], Any]:
    """The kernel ``square`` as an operation of PyTorch's, as slang-torch's tutorial writes it; None launches nothing.

    The gradient of the result is copied, as the tutorial advises, because the kernel leaves zeros there.
    """

    def size(x: Any) -> dict[str, Any]:
        return {"blockSize": _BLOCK, "gridSize": ((x.shape[0] + _BLOCK[0] - 1) // _BLOCK[0], 1, 1)}

    class Square(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = torch.zeros_like(x)
            if square is not None:
                square(input=x, output=y).launchRaw(**size(x))
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx: Any, y_grad: Any) -> Any:
            x, y = ctx.saved_tensors
            x_grad, y_grad = torch.zeros_like(x), y_grad.clone()
            if square is not None:
                square.bwd(input=(x, x_grad), output=(y, y_grad)).launchRaw(**size(x))
            return x_grad

    apply: Callable[[Any], Any] = Square.apply
    return apply


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (
        f"{type(error).__name__}: {text[:100]} ... {text[-200:]}"
        if len(text) > 300
        else f"{type(error).__name__}: {text}"
    )


def _nothing() -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())

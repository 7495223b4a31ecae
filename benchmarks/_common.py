"""What every benchmark shares: options, interleaved sampling, the machine's description, results and tables.

Nothing here knows what is measured, and nothing judges a time: a slow row is a row.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from importlib import metadata
from itertools import repeat
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import slangpy_rt as spy
from slangpy_rt.backends import REGISTRY, names

OURS = "slangpy_rt"
SOURCE = """
float add(float a, float b) { return a + b; }

float3 tone(float3 c, float k) { return c / (c + k); }

int mandel(int2 p, float2 origin, float scale, int n)
{
    float2 c = origin + scale * float2(p);
    float2 z = 0;
    int i = 0;
    for (; i < n && dot(z, z) <= 4; ++i)
        z = float2(z.x * z.x - z.y * z.y, 2 * z.x * z.y) + c;
    return i;
}
"""

_WARM_SECONDS = 0.5
# A spread above which a row is not to be trusted: two rows that differ by less may be the same.
UNSURE = 0.15

_ROOT = Path(__file__).resolve().parent
_DISTRIBUTIONS = (
    "slangpy_rt", "slangpy", "numpy", "cffi", "vulkan", "cuda-bindings", "nvidia-cuda-nvrtc", "torch", "triton",
    "slangtorch", "ninja", "cupy", "cupy-cuda12x", "cupy-cuda13x", "warp-lang", "ziglang", "embreex",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One measured quantity.

    Attributes
    ----------
    device : str
        Ours by name: ``"cpu"``, ``"vulkan"``, ``"cuda"``, ``"null"``.
    case : str
        The work, the same for all that are compared.
    who : str
        Library that did it, or the floor.
    unit : str
        ``"us"``, ``"ms"``, ``"s"``, or ``"GB/s"`` and others in which more is better.
    median, low, high : float
        Over the samples.
    samples : int
        How many.
    spread : float
        The middle half of the samples, from the first to the third quartile, as a share of the median.
    """

    device: str
    case: str
    who: str
    unit: str
    median: float
    low: float
    high: float
    samples: int
    spread: float


class Bench:
    """One run of one script.

    Attributes
    ----------
    quick : bool
        Less work a sample and fewer samples, to see that a script runs; its numbers are not for comparing.
    rounds : int
        Samples a row.
    devices : dict
        What each device to measure is, in words, by name.
    facts : dict
        Whatever else of a script's the results should keep.
    """

    def __init__(self, script: str, about: str, kinds: tuple[str, ...] = ("cuda", "vulkan", "cpu")) -> None:
        parser = argparse.ArgumentParser(description=about)
        others = [name for name in names() if name not in REGISTRY]
        choices = [*kinds, *others]
        parser.add_argument("--device", nargs="+", choices=choices, help=f"default: of {', '.join(kinds)} all here")
        parser.add_argument("--quick", action="store_true", help="less work and fewer samples")
        parser.add_argument("--out", type=Path, default=_ROOT / "results", help="folder of the JSON file")
        options = parser.parse_args()
        self.quick: bool = options.quick
        self.rounds = 3 if self.quick else 9
        self.rows: list[Row] = []
        self.missing: dict[str, dict[str, str]] = {}
        self.facts: dict[str, Any] = {}
        self.devices: dict[str, str] = {}
        self._failed = False
        here = {d.type: d.reason for d in spy.devices()} | {"null": None}
        for name in options.device or kinds:
            if here[name] is None:
                with spy.Device(name) as device:
                    self.devices[name] = device.info
            else:
                self.miss(name, OURS, str(here[name]))
                self._failed |= options.device is not None
        self._script = script + ("-" + "-".join(options.device) if options.device else "")
        self._out: Path = options.out
        self._load = [os.getloadavg()[0]]

    def compare(
        self,
        device: str,
        case: str,
        unit: str,
        samplers: Mapping[str, Callable[[], float]],
        rounds: int | None = None,
        warm: float = _WARM_SECONDS,
    ) -> None:
        """Sample everybody in turn, ABBA, so that what disturbs the machine hits all; the first turns are dropped.

        They are those of the first half of a second, as a GPU that waited for a compiler has low clocks: after 25 s
        of NVIDIA's Vulkan compiler an H200 took 2.1 ms for a kernel of 0.6 ms.

        Parameters
        ----------
        samplers : mapping
            By who; each returns one sample in ``unit``. One that raises is reported and left out.
        rounds : int, optional
            Samples a row where nine would take too long.
        warm : float
            Seconds of turns that are dropped; 0 for one turn, where each sample takes a function that is new.
        """
        taken: dict[str, list[float]] = {who: [] for who in samplers}
        begun, turn = time.perf_counter(), 0
        while turn <= (rounds or self.rounds):
            for who in list(taken)[:: 1 if turn % 2 else -1]:
                try:
                    value = samplers[who]()
                except Exception as error:  # a peer may raise whatever it likes
                    self.miss(device, who, f"{case}: {_brief(error)}")
                    del taken[who]
                else:
                    if turn:
                        taken[who].append(value)
            if turn or time.perf_counter() - begun > warm:
                turn += 1
        for who, values in taken.items():
            self.add(device, case, unit, who, values)

    def add(self, device: str, case: str, unit: str, who: str, values: Sequence[float]) -> None:
        """Note the samples of one row that were taken elsewhere, in a process of their own for instance."""
        middle = median(values)
        low, _, high = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (middle,) * 3
        spread = (high - low) / middle if middle else 0.0
        self.rows.append(Row(device, case, who, unit, middle, min(values), max(values), len(values), spread))
        print(self._line(self.rows[-1]), file=sys.stderr, flush=True)

    def miss(self, device: str, who: str, reason: str) -> None:
        """Note what could not be measured; if it is ours, on a device there is, the exit status becomes 1."""
        known = self.missing.setdefault(device, {})
        known[who] = f"{known[who]}; {reason}" if who in known else reason
        self._failed |= who == OURS and device in self.devices
        print(f"# {device}: no {who}: {reason}", file=sys.stderr, flush=True)

    def save(self) -> Path:
        """Write the results so far; called after each device, so that a crash in one keeps the others."""
        machine = describe_machine()
        stem = f"{date.today()}-{_slug(machine)}-{self._script}{'-quick' if self.quick else ''}"
        path = self._out / f"{stem}.json"
        self._out.mkdir(parents=True, exist_ok=True)
        content = {
            "script": self._script.partition("-")[0],
            "date": f"{date.today()}",
            "time": time.strftime("%H:%M:%S"),
            "quick": self.quick,
            "machine": machine,
            "devices": self.devices,
            "load": [*self._load, os.getloadavg()[0]],
            "versions": _versions(),
            "facts": self.facts,
            "missing": self.missing,
            "rows": [asdict(row) | {"ratio": self.ratio(row)} for row in self.rows],
        }
        path.write_text(json.dumps(content, indent=1) + "\n")
        return path

    def finish(self) -> int:
        """Save, print the table, and return the exit status."""
        path = self.save()
        print(f"\n{'device':11}{'case':34}{'who':30}{'median':>10}  {'low':>9} {'high':>9}  unit  ours is")
        for row in self.rows:
            print(self._line(row))
        for device, reasons in self.missing.items():
            for who, reason in reasons.items():
                print(f"{device}: not measured: {who}: {reason}")
        unsure = sum(row.spread > UNSURE for row in self.rows)
        if unsure:
            print(
                f"warning: {unsure} of {len(self.rows)} rows spread over more than {UNSURE:.0%} of their median and "
                "are marked with it; measure again on a quiet machine before you compare them."
            )
        print(f"{path}", flush=True)
        return int(self._failed)

    def ratio(self, row: Row) -> float | None:
        """How many times as fast as the row ours is at the same work; None without one of ours."""
        for ours in self.rows:
            if (ours.device, ours.case, ours.who) == (row.device, row.case, OURS) and ours is not row:
                return ours.median / row.median if row.unit.endswith("/s") else row.median / ours.median
        return None

    def _line(self, row: Row) -> str:
        ratio = self.ratio(row)
        return (
            f"{row.device:11}{row.case:34}{row.who:30}{row.median:10.4g}  {row.low:9.4g} {row.high:9.4g}"
            f"  {row.unit:5} {'' if ratio is None else f'{ratio:.2f}x':8}"
            f" {f'+-{row.spread:.0%}' if row.spread > UNSURE else ''}"
        ).rstrip()


def per_call(
    call: Callable[[], object], sync: Callable[[], object], seconds: float, period: int = 0
) -> Callable[[], float]:
    """A sampler of the host's microseconds a call, batches of about ``seconds``; waiting is not counted.

    Parameters
    ----------
    period : int
        Wait after each so many calls too, so that no queue fills; 0 waits after the batch alone.
    """
    call()
    sync()
    count, spent = 1, 0.0
    while spent < seconds / 8 and count < 20_000:
        count *= 2
        spent = _timed(call, count)
        sync()
    count = max(5, int(count * seconds / max(spent, 1e-9)))

    def sample() -> float:
        sync()  # also makes its CUDA context current again after somebody else's turn
        total, left = 0.0, count
        while left:
            step = min(left, period or left)
            total += _timed(call, step)
            sync()
            left -= step
        return total / count * 1e6

    return sample


def with_lavapipe(bench: Bench, device: str) -> dict[str, spy.Device]:
    """Open a device of ours and, if the Vulkan device is one in software, that one as ``"lavapipe"``."""
    opened = {OURS: spy.Device(device)}
    try:
        vulkan = spy.Device("vulkan")
        if on_host("vulkan", vulkan.info):
            opened["lavapipe"] = vulkan
        else:
            bench.miss(device, "lavapipe", "the Vulkan device is a GPU")
    except spy.SlangError as error:
        bench.miss(device, "lavapipe", str(error))
    return opened


def whole(
    call: Callable[[], object], sync: Callable[[], object], calls: int = 1, scale: float = 1.0
) -> Callable[[], float]:
    """A sampler of ``scale`` times the seconds a call takes from an idle device until the work is done.

    ``calls`` of them are queued before the one wait that ends the sample.
    """

    def sample() -> float:
        sync()
        start = time.perf_counter()
        for _ in repeat(None, calls):
            call()
        sync()
        return (time.perf_counter() - start) / calls * scale

    return sample


def single(call: Callable[[], object], sync: Callable[[], object], pairs: int) -> Callable[[], float]:
    """A sampler of the microseconds from a call to the end of the wait for it: the median of ``pairs``."""

    def sample() -> float:
        taken = []
        for _ in repeat(None, pairs):
            sync()
            start = time.perf_counter_ns()
            call()
            sync()
            taken.append(time.perf_counter_ns() - start)
        return median(taken) / 1e3

    return sample


def c_library(text: str, *flags: str) -> ctypes.CDLL:
    """Compile C++ text with g++ and load it.

    Raises
    ------
    OSError
        If there is no g++, or its output does not load.
    subprocess.CalledProcessError
        If it refuses the text.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise OSError("no g++ on the path")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "loops.cpp", Path(folder) / "loops.so"
        source.write_text(text)
        subprocess.run([compiler, *flags, str(source), "-o", str(library), "-lm"], check=True, capture_output=True)
        return ctypes.CDLL(str(library))


def on_host(name: str, info: str) -> bool:
    """Whether a device computes on the host's own cores: ours for the CPU, or a driver in software.

    An integrated GPU by D3D12 counts as one: it has the host's memory, and D3D12 does not tell it from software.
    """
    return name == "cpu" or "llvmpipe" in info or "the host's memory" in info


@cache
def describe_machine() -> dict[str, Any]:
    """Processor, cores, GPUs with their driver, and the operating system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = re.search(r"model name\s*:\s*(.+)", info.read_text())
        model = found[1].strip() if found else model
    gpus: list[str] = []
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        gpus = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "gpus": [g.strip() for g in gpus if g.strip()],
        "system": platform.platform(),
    }


def _timed(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in repeat(None, count):
        call()
    return time.perf_counter() - start


def _slug(machine: dict[str, Any]) -> str:
    name = machine["gpus"][0].partition(",")[0] if machine["gpus"] else f"{machine['cpu']} {machine['cores']} cores"
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    # Run from a checkout that is not installed, the package has no metadata.
    found.setdefault("slangpy_rt", spy.__version__)
    git = ["git", "-C", str(_ROOT), "rev-parse", "--short", "HEAD"]
    if shutil.which("git"):
        commit = subprocess.run(git, capture_output=True, text=True).stdout.strip()
        found |= {"commit": commit} if commit else {}
    compiler = shutil.which("g++")
    if compiler:
        text = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        found["g++"] = text.split("\n")[0].rpartition(" ")[2]
    nvcc = shutil.which("nvcc")
    release = nvcc and re.search(
        r"V([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True).stdout
    )
    if release:
        found["nvcc"] = release[1]
    return found


def _brief(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"

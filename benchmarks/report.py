"""Turns the JSON files of benchmarks/results into docs/benchmarks.md and docs/images/benchmarks.png.

Of each machine, script and device the newest run counts; quick runs never do. No number is written here by
hand except the targets, and a missed target is printed as such.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import OURS, UNSURE, on_host
from _peers import ALLOCATED, GIVEN
from targets import STARTUP, STARTUP_REASON, TARGETS

_ROOT = Path(__file__).resolve().parent.parent
_FLOORS = (
    "floor",
    "vkQueueSubmit, no commands",
    "floor: matrix products",
    "floor: arrays in order",
    f"{OURS}, forward",
    "device copy",
    "memcpy",
    "pinned copies",
    "cuLaunchKernel, empty kernel",
)
_TITLES = {
    "launch": "Host time of a cached call, `add` on 1000 floats",
    "args": "Host time of a cached call by kind of argument and modifier, 1000 elements",
    "throughput": "Throughput",
    "layouts": "Arrays that do not follow the call",
    "transfer": "NumPy in and out",
    "gradients": "Derivatives, and training with them",
    "pytorch": "PyTorch tensors in Slang functions",
    "slang_torch": "Kernels written for slang-torch, beside slang-torch itself",
    "batching": "Command lists: 1000 calls of `add` on 1000 floats",
    "tuning": "Tuned functions",
    "matmul": "Products of matrices",
    "tensors": "Operators and reductions of Tensors",
    "sorting": "Running sums, compaction and sorting",
    "cpu_simd": "Loops over elements on the CPU",
    "cpu_groups": "Thread groups on the CPU",
    "hash_grid": "A hash grid and a network that learn a picture",
    "cold_calls": "First calls",
    "grad_tape": "Gradients through operators",
    "optim": "Optimizers",
    "textures": "Textures",
    "raster": "Pictures of triangles",
    "rays": "Rays against triangles",
    "startup": "Fresh process to first result",
}
_NAMES = {
    "cuda": "CUDA", "vulkan": "Vulkan", "cpu": "CPU", "null": "null device (Python alone)",
    "rhi-vulkan": "Vulkan by slang-rhi", "rhi-cuda": "CUDA by slang-rhi",
}  # fmt: skip
# Script, start of the case, what the short table and the plot call it.
_HEADLINES = (
    ("launch", GIVEN, "call, result given"),
    ("launch", ALLOCATED, "call, result allocated"),
    ("throughput", "add", "throughput of"),
    ("transfer", "2^", "NumPy in and out,"),
    ("gradients", "backward, one number", "gradient of"),
    ("gradients", "training", "a network of 4 x 64 x 64,"),
    ("batching", "append_to", "recording a call"),
    ("batching", "chain", "a call in a replayed chain"),
    ("batching", "independent", "a call in a replayed list"),
    ("pytorch", "call, result given", "call on torch tensors"),
    ("pytorch", "ten operations, 2^", "autograd of"),
    ("slang_torch", "call and launch, two tensors", "slang-torch kernel, call and launch"),
    ("slang_torch", "loadModule + launch, no cache", "slang-torch file, loaded and launched"),
    ("startup", "first result", "process to first result"),
)
_COLD = (f"{OURS}, cold cache", "slangpy, default")
_VARIANTS = (", drained", ", until done")
_SIZED = ("throughput", "transfer", "gradients")
_SIZED_CASES = ("ten operations",)
_COLOURS = {OURS: "#d1495b", "slangpy": "#30638e", "floor": "#b8b8b8", "other": "#8fb8d6"}

Run = dict[str, Any]
Table = dict[str, dict[str, Any]]  # case -> who -> row


@dataclass(frozen=True)
class Machine:
    """The newest run of each script and device on one machine."""

    title: str
    runs: dict[tuple[str, str], Run]

    def table(self, script: str, device: str) -> Table:
        """Rows by case and who; empty when that was not measured."""
        found: Table = {}
        for row in self.runs.get((script, device), {"rows": []})["rows"]:
            if row["device"] == device:
                found.setdefault(row["case"], {})[row["who"]] = row
        return found

    def devices(self) -> list[str]:
        """Every device measured, in the order of the tables."""
        return [d for d in _NAMES if any(device == d for _, device in self.runs)]

    def host(self, device: str) -> bool:
        """Whether a device is the host's processor."""
        run = next(run for (_, d), run in self.runs.items() if d == device)
        return on_host(device, run["devices"][device])

    def name(self, device: str) -> str:
        """A device for people; software drivers say so."""
        return _NAMES[device] + (", in software" if device == "vulkan" and self.host(device) else "")


def main() -> int:
    """Write the page and the picture, and print the table that belongs into README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=_ROOT / "benchmarks" / "results")
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs")
    options = parser.parse_args()
    machines = _machines(options.results)
    if not machines:
        print(f"{options.results} holds no results; run benchmarks/run_all.sh first.", file=sys.stderr)
        return 1
    (options.docs / "images").mkdir(parents=True, exist_ok=True)
    (options.docs / "benchmarks.md").write_text(_page(machines))
    shown = [m for m in machines if any(_headlines(m))]
    for machine in shown:
        print(f"{machine.title}\n\n{_short(machine)}")
    _plot(shown, options.docs / "images" / "benchmarks.png")
    return 0


def _machines(folder: Path) -> list[Machine]:
    runs = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    newest: dict[str, dict[tuple[str, str], Run]] = {}
    for run in sorted((r for r in runs if not r["quick"]), key=lambda r: (r["date"], r["time"])):
        for device in dict.fromkeys(row["device"] for row in run["rows"]):
            newest.setdefault(_title(run["machine"]), {})[run["script"], device] = run
    found = [Machine(title, runs) for title, runs in newest.items()]
    # GPUs first: they are what most readers came for.
    return sorted(found, key=lambda m: (not any(not m.host(d) for d in m.devices() if d != "null"), m.title))


def _title(machine: dict[str, Any]) -> str:
    gpus = [gpu.partition(",")[0] for gpu in machine["gpus"]]
    processor = f"{machine['cpu']}, {machine['cores']} cores"
    return f"{gpus[0]}{f' x {len(gpus)}' if len(gpus) > 1 else ''} ({processor})" if gpus else processor


def _page(machines: list[Machine]) -> str:
    parts = [
        "# Benchmarks\n\nWritten by `benchmarks/report.py` from `benchmarks/results/`; edit neither by hand. "
        "`benchmarks/run_all.sh` measures again. Each number is the median of 9 samples (5 of the kinds of "
        "arguments and of slang-torch's kernels, 7 processes, or 3 where a sample takes seconds; slang-torch without "
        "a cache is timed once). The libraries take turns within one run, so "
        "that what disturbs the machine disturbs all. Minima and maxima are in the JSON files; a ± follows a number "
        f"whose middle half of samples spreads over more than {UNSURE:.0%} of it. In brackets: how "
        "many times as fast slangpy_rt is at that work. Floors are what the driver or the memory alone takes, "
        "without any library.\n\n"
        "![The headline numbers as bars](images/benchmarks.png)\n"
    ]
    parts += [f"## In short: {m.title}\n\n{_short(m)}" for m in machines if list(_headlines(m))]
    parts += [_targets(machines), _scripts()]
    for machine in machines:
        parts.append(f"## {machine.title}\n\n" + _versions(machine))
        for script, title in _TITLES.items():
            tables = [_full(machine, script, d) for d in machine.devices() if (script, d) in machine.runs]
            if tables:
                parts.append(f"### {title}\n\n" + "\n".join(tables))
    return "\n".join(parts)


def _short(machine: Machine) -> str:
    """The table for README.md: headlines only."""
    lines = ["| same work | slangpy_rt | slangpy | others | floor |", "|---|---|---|---|---|"]
    for device, script, case, label in _headlines(machine):
        rows = machine.table(script, device)[case]
        plain = [r for w, r in rows.items() if w not in (OURS, "slangpy", *_FLOORS) and not w.startswith(OURS)]
        theirs = next((rows[w] for w in ("slangpy", "slangpy, both caches warm") if w in rows), None)
        others = " · ".join(f"{r['who']} {_number(r['median'])}" for r in plain if r is not theirs)
        floors = " · ".join(_number(rows[w]["median"]) for w in _FLOORS if w in rows)
        lines.append(
            f"| {machine.name(device)}: {label}, {_unit(rows[OURS]['unit'])} | **{_number(rows[OURS]['median'])}** | "
            f"{_number(theirs['median']) if theirs else '-'} | {others or '-'} | {floors or '-'} |"
        )
    return "\n".join(lines) + "\n"


def _headlines(machine: Machine) -> Iterable[tuple[str, str, str, str]]:
    """Device, script, case and label of what the short table and the plot show."""
    for script, start, label in _HEADLINES:
        for device in machine.devices():
            for case, rows in machine.table(script, device).items():
                if device != "null" and OURS in rows and case.startswith(start) and not case.endswith(_VARIANTS):
                    yield (
                        device,
                        script,
                        case,
                        f"{label} {case.removeprefix('backward, ')}" if _sized(script, case) else label,
                    )


def _sized(script: str, case: str) -> bool:
    """Whether a case's name says how large the work is."""
    return script in _SIZED or case.startswith(_SIZED_CASES)


def _targets(machines: list[Machine]) -> str:
    lines = ["## Targets\n", "| machine | work | target | measured | |", "|---|---|---|---|---|"]
    reasons: dict[str, list[str]] = {}
    for machine in machines:
        for target in TARGETS:
            rows = machine.table(target.script, target.device).get(target.case, {})
            value = target.measured(rows)
            # What a GPU is to reach is no target of a driver in software.
            if value is None or machine.host(target.device) != (target.device == "cpu"):
                continue
            unit = f"x {target.peer}" if target.peer else _unit(rows[OURS]["unit"])
            work = f"{machine.name(target.device)}: {target.script}, {target.case}"
            found = f"{_number(value)}{' x' if target.peer else ''}"
            met = target.met(value)
            lines.append(f"| {machine.title} | {work} | {target.words(unit)} | {found} | {_verdict(met)} |")
            if target.reason and not met:
                reasons.setdefault(target.reason, []).append(work)
        for device in machine.devices():
            rows = machine.table("startup", device).get("first result", {})
            if OURS in rows and "floor" in rows:
                times = rows[OURS]["median"] / rows["floor"]["median"]
                work, met = f"{machine.name(device)}: startup, warm cache", times <= STARTUP
                lines.append(
                    f"| {machine.title} | {work} | ≤ {STARTUP:g} x the floor | {times:.2f} x | {_verdict(met)} |"
                )
                if not met:
                    reasons.setdefault(STARTUP_REASON, []).append(work)
    if reasons:
        lines.append("\nWhat profiles say of targets that are missed:\n")
        lines += [f"- {'; '.join(dict.fromkeys(works))}. {reason}" for reason, works in reasons.items()]
    return "\n".join(lines) + "\n"


def _scripts() -> str:
    """What each script measures: the first paragraph of its docstring."""
    lines = ["## What is measured\n", "| script | |", "|---|---|"]
    for script in _TITLES:
        about = ast.get_docstring(ast.parse((_ROOT / "benchmarks" / f"{script}.py").read_text())) or ""
        paragraph = " ".join(about.split("\n\n")[0].split())
        lines.append(f"| `{script}.py` | {paragraph.replace('``', '`')} |")
    return "\n".join(lines) + "\n"


def _versions(machine: Machine) -> str:
    """What was installed; a line a set of versions, of which there is one when all was run together."""
    lines = [" · ".join(f"{k} {v}" for k, v in run["versions"].items()) for run in machine.runs.values()]
    return "\n\n".join(dict.fromkeys(lines)) + "\n"


def _full(machine: Machine, script: str, device: str) -> str:
    run, table = machine.runs[script, device], machine.table(script, device)
    everybody = list(dict.fromkeys(who for rows in table.values() for who in rows))
    lines = [
        f"**{machine.name(device)}**: {run['devices'][device]}. {run['date']} {run['time']}, "
        f"load {run['load'][0]:.1f} to {run['load'][1]:.1f}"
        + "".join(f", driver {g.partition(',')[2].strip()}" for g in run["machine"]["gpus"][:1] if device != "cpu")
        + ".\n",
        f"| work | {' | '.join(everybody)} |",
        "|---" * (len(everybody) + 1) + "|",
    ]
    for case, rows in table.items():
        unit = _unit(next(iter(rows.values()))["unit"])
        lines.append(f"| {case}, {unit} | {' | '.join(_cell(rows.get(who)) for who in everybody)} |")
    missing = "; ".join(f"{who}: {why}" for who, why in run["missing"].get(device, {}).items())
    lines.append(f"\nNot measured: {missing}.\n" if missing else "")
    return "\n".join(lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    ratio = f" ({_number(row['ratio'])}x)" if row["ratio"] is not None else ""
    spread = row.get("spread", 0.0)  # results that older versions wrote do not have it
    unsure = f" ± {spread:.0%}" if spread > UNSURE else ""
    return (f"**{_number(row['median'])}**" if row["who"] == OURS else _number(row["median"]) + ratio) + unsure


def _verdict(met: bool) -> str:
    return "met" if met else "**missed**"


def _unit(unit: str) -> str:
    return "µs" if unit == "us" else unit


def _number(value: float) -> str:
    """Three digits that count."""
    digits = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 4
    return f"{value:.{digits}f}"


def _plot(machines: list[Machine], path: Path) -> None:
    """One row of panels a machine; a panel holds a headline's bars, grouped by device."""
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ImportError:
        sys.exit(f"{path} was not drawn; run: pip install matplotlib")
    matplotlib.use("Agg")
    plt: Any = importlib.import_module("matplotlib.pyplot")
    left_out = (ALLOCATED, "append_to", "independent")
    panels = [h for h in _HEADLINES if h[1] not in left_out and h[0] != "slang_torch"]
    shown = [[_bars(m, script, start) for script, start, _ in panels] for m in machines]
    most = [max(len(bars) for bars in row) for row in shown]
    heights = [n * 0.23 + 1.2 for n in most]
    figure = plt.figure(figsize=(3.2 * len(panels), sum(heights)), layout="constrained")
    figures = figure.subfigures(len(machines), 1, height_ratios=heights, squeeze=False)[:, 0]
    for machine, part, bars_of, n in zip(machines, figures, shown, most, strict=True):
        part.suptitle(machine.title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        for axis, (_, _, label), bars in zip(part.subplots(1, len(panels)), panels, bars_of, strict=True):
            _panel(axis, label.rstrip(",").removesuffix(" of"), bars)
            axis.set_ylim(n - 0.4, -0.8)  # the same bar width in every panel of a machine
    figure.savefig(path, dpi=110)


def _bars(machine: Machine, script: str, start: str) -> list[tuple[str, dict[str, Any] | None]]:
    """Label and row of each bar from the top; a label without a row is a device's name."""
    bars: list[tuple[str, dict[str, Any] | None]] = []
    for device, of, case, _ in _headlines(machine):
        if of == script and case.startswith(start):
            rows = machine.table(script, device)[case]
            suffix = f": {case.removeprefix('add, ')}" if _sized(script, case) else ""
            bars.append((machine.name(device) + suffix, None))
            bars += [(who, row) for who, row in rows.items() if row is not None]
    return bars


def _panel(axis: Any, label: str, bars: list[tuple[str, dict[str, Any] | None]]) -> None:
    rows = [row for _, row in bars if row is not None]
    if not rows:
        axis.set_axis_off()
        return
    values = [row["median"] for row in rows]
    axis.set_xscale("log")
    axis.minorticks_off()
    low, high = min(values), max(values)
    axis.set_xlim(low / 2.5, high * (high / low) ** 0.22 * 1.6)
    for place, (name, row) in enumerate(bars):
        if row is None:
            axis.text(low / 2.4, place, name, va="center", ha="left", fontsize=9, fontweight="bold", color="#333333")
            continue
        kind = next((k for k in (OURS, "slangpy") if name.split(",")[0] == k), "other")
        colour = _COLOURS["floor" if name in _FLOORS else kind]
        # Paler: without a warm cache.
        axis.barh(place, row["median"], color=colour, height=0.78, alpha=0.5 if name in _COLD else 1)
        axis.text(row["median"] * 1.05, place, _number(row["median"]), va="center", fontsize=8)
    axis.set_yticks(
        [i for i, (_, row) in enumerate(bars) if row is not None],
        [name for name, row in bars if row is not None],
        fontsize=8,
    )
    better = "higher is better" if rows[0]["unit"] == "GB/s" else "lower is better"
    axis.set_title(f"{label}, {_unit(rows[0]['unit'])}\n({better})", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(axis="x", labelsize=8)
    axis.tick_params(axis="y", length=0)


if __name__ == "__main__":
    sys.exit(main())

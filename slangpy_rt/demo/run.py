"""The demo: a photograph and two rendered pictures, on every device, each checked against NumPy.

It runs, measures and checks the steps of ``steps.py`` and prints a table. It needs the packages of the ``demo`` extra
and downloads nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

import slangpy_rt as spy
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.errors import SlangPyRtError, UnsupportedError
from slangpy_rt.demo.pictures import load_photograph, write_pictures
from slangpy_rt.demo.reference import Array
from slangpy_rt.demo.steps import Step, develop, make_steps

# The most warm runs of a step, whose median is shown, and the seconds after which no more are started.
_RUNS = 9
_SECONDS = 2.0


@dataclass(frozen=True)
class Outcome:
    """A row of the table, with times in milliseconds. ``fault`` describes a failure and is empty without one."""

    device: str
    step: str
    cold: float = 0.0
    warm: float = 0.0
    pixels: int = 0
    error: str = ""
    fault: str = ""


def run(size: int, out: Path, names: Sequence[str] | None, console: Console | None = None) -> int:
    """Run the demo, print its table and write its pictures.

    Parameters
    ----------
    size : int
        Width and height of the rendered pictures in pixels.
    out : Path
        Directory for the pictures; made if it does not exist.
    names : sequence of str, optional
        Devices to run on; all that are there if None.

    Returns
    -------
    int
        0, or 1 if a result is wrong.

    Raises
    ------
    UnsupportedError
        If there is no device, or a named one cannot be opened.
    """
    console = console or Console()
    names = names or [info.type for info in spy.devices() if info.available]
    if not names:
        raise UnsupportedError(
            "demo: this machine has no device; `pip install llvmlite` brings a compiler that turns its "
            "processor into one."
        )
    opened = [spy.Device(name) for name in names]
    outcomes: list[Outcome] = []
    pictures: dict[str, Array] = {}
    bar = Progress(TextColumn("{task.description}"), BarColumn(), console=console, transient=True)
    with bar as progress:
        photograph = load_photograph()
        steps = make_steps(photograph, size)
        task = progress.add_task("NumPy", total=len(steps) * (1 + len(opened)))
        expected = {}
        for step in steps:
            progress.update(task, description=f"NumPy: {step.title}")
            expected[step.name] = step.expected()
            progress.advance(task)
        for device in opened:
            with device:
                # Cold means compiled now: neither found in the cache nor left in it.
                device.cache = DiskCache(None, 0)
                module = spy.Module.load_from_file(device, Path(__file__).with_name("demo.slang"))
                for step in steps:
                    progress.update(task, description=f"{device.name}: {step.title}")
                    outcome, result = measure(device, module, step, expected[step.name])
                    outcomes.append(outcome)
                    if result is not None and not outcome.fault and step.name not in pictures:
                        pictures[step.name] = develop(module, step.name, result)
                    progress.advance(task)
    files = write_pictures(out, {"photograph": photograph, **pictures})
    console.print(table(outcomes))
    notes = [
        "cold: the first call, compilation included; warm: the median of the next; MP: megapixels",
        "a percentage: so many pixels are off by more than the number after it",
    ]
    for step in steps:
        undecided = np.isnan(expected[step.name]).mean()
        if undecided:
            notes.append(f"{step.title}: {undecided:.0%} of the pixels hang on rounding and are left out")
    for note in notes:
        console.print(note, highlight=False, soft_wrap=True)
    for device in opened:
        console.print(f"{device.name}: {device.info}", highlight=False, markup=False, soft_wrap=True)
    console.print("wrote " + ", ".join(str(file) for file in files), highlight=False, soft_wrap=True)
    faults = [o for o in outcomes if o.fault]
    for o in faults:
        console.print(f"FAIL {o.device}, {o.step}: {o.fault}", highlight=False, markup=False, soft_wrap=True)
    return 1 if faults else 0


def measure(device: spy.Device, module: spy.Module, step: Step, expected: Array) -> tuple[Outcome, spy.Tensor | None]:
    """Run a step cold, then warm, and check it; the result is None if the step could not run."""
    try:
        tensors = [spy.Tensor.from_numpy(device, array) for array in step.inputs]
        device.synchronize()
        cold, result = _timed(device, module, step, tensors)
        times: list[float] = []
        while len(times) < _RUNS and sum(times) < _SECONDS * 1e3:
            times.append(_timed(device, module, step, tensors)[0])
        actual = result.to_numpy()
    except SlangPyRtError as error:
        return Outcome(device.name, step.title, fault=str(error)), None
    shape = actual.shape[:2]
    error_text, fault = check(step, actual[:: step.every, :: step.every], expected)
    warm = statistics.median(times)
    return Outcome(device.name, step.title, cold, warm, shape[0] * shape[1], error_text, fault), result


def check(step: Step, actual: npt.NDArray[Any], expected: Array) -> tuple[str, str]:
    """Compare a step's result with the expected one; return the error, and a description of a failure or ``""``."""
    if actual.shape != expected.shape:
        return "", f"the result has shape {actual.shape}; {expected.shape} was expected"
    error = np.abs(actual.astype(np.float64) - expected)
    error = error.reshape(*error.shape[:2], -1).max(axis=2)
    error = error[~np.isnan(expected.reshape(*error.shape, -1)).any(axis=2)]
    # Not ``error > tolerance``, which is false for NaN.
    wrong = np.count_nonzero(~(error <= step.tolerance)) / error.size
    text = f"{error.max():.1e}" if not step.stray else f"{wrong:.2%} > {step.tolerance:.1g}"
    if wrong <= step.stray:
        return text, ""
    return text, (
        f"{wrong:.2%} of the pixels differ from NumPy by more than {step.tolerance:.2g}, the largest by "
        f"{error.max():.3g}; at most {step.stray:.2%} may"
    )


def table(outcomes: Sequence[Outcome]) -> Table:
    """Return the outcomes as a table."""
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("device")
    grid.add_column("step", no_wrap=True)
    for heading in ("cold ms", "warm ms", "MP/s", "max error"):
        grid.add_column(heading, justify="right")
    grid.add_column("check")
    last = ""
    for o in outcomes:
        if last and o.device != last:
            grid.add_section()
        name, last = "" if o.device == last else o.device, o.device
        verdict = "[red]FAIL[/red]" if o.fault else "[green]pass[/green]"
        speed = f"{o.pixels / o.warm / 1e3:,.1f}" if o.warm else ""
        times = (f"{o.cold:,.0f}", f"{o.warm:,.2f}") if o.warm else ("", "")
        grid.add_row(name, o.step, *times, speed, o.error, verdict)
    return grid


def _timed(
    device: spy.Device, module: spy.Module, step: Step, tensors: Sequence[spy.Tensor]
) -> tuple[float, spy.Tensor]:
    started = time.perf_counter()
    result = step.call(module, *tensors)
    device.synchronize()
    return (time.perf_counter() - started) * 1e3, result

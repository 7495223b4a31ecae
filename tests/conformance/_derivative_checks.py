"""Random differentiable functions on a device: values and derivatives beside those of ``_derivative_programs``.

Each check ends in a verdict: ``right``; ``refused``, where an error says so; ``crash``, where the compiler ended;
else the numbers that are wrong. It draws no functions and has no list of functions that may fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import slangpy_rt as spy
from tests.conformance._derivative_programs import (
    ABSOLUTE,
    BESIDE,
    RELATIVE,
    Measurement,
    Program,
    called,
    count_of,
    element,
    inputs_of,
    module_texts,
    nodes_of,
    outputs_of,
    shape_of,
)

Array = np.ndarray[Any, Any]
_ARCS = ("asin", "acos")


@dataclass(frozen=True)
class Outcome:
    """``verdict`` of a check, with what was found: an error's text, or the numbers that differ."""

    verdict: str
    detail: str = ""


def load(device: spy.Device, name: str, programs: Sequence[tuple[str, Program]], folder: Path) -> spy.Module:
    """One module with the text of all programs; struct names end with the program's suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    text = module_texts(programs, f"{name}_imported", f"{name}_included.slang")
    (folder / f"{name}_imported.slang").write_text(text.imported)
    (folder / f"{name}_included.slang").write_text(text.included)
    path = folder / f"{name}.slang"
    path.write_text(text.own)
    return spy.Module.load_from_file(device, path)


class Arrays:
    """Arrays of a program's types on a device: a column of scalars for each element, in the order of the fields."""

    def __init__(self, device: spy.Device, module: spy.Module, suffix: str) -> None:
        self.device, self.module, self.suffix = device, module, suffix

    def dtype(self, kind: str) -> Any:
        of = element(kind)
        if shape_of(kind) is not None or kind == "int" or (of and shape_of(of[0]) is not None):
            return kind
        return getattr(self.module, f"{kind}_{self.suffix}")

    def empty(self, kind: str, count: int) -> spy.Tensor:
        return spy.Tensor.zeros(self.device, count, dtype=self.dtype(kind))

    def filled(self, kind: str, rows: Array) -> spy.Tensor:
        """A Tensor of the rows: an element each."""
        tensor = self.empty(kind, len(rows))
        host = np.array(tensor.to_numpy())
        _write(host, rows)
        tensor.from_numpy(host)
        return tensor


def _write(host: Array, rows: Array) -> None:
    if host.dtype.names:
        start = 0
        for name in host.dtype.names:
            count = _scalars(host.dtype[name])
            _write(host[name], rows[:, start : start + count])
            start += count
    else:
        host[...] = rows.reshape(host.shape)


def _scalars(dtype: np.dtype[Any]) -> int:
    if dtype.subdtype:
        return _scalars(dtype.subdtype[0]) * int(np.prod(dtype.subdtype[1]))
    return sum(_scalars(dtype[name]) for name in dtype.names) if dtype.names else 1


def rows_of(tensor: spy.Tensor) -> Array:
    """The scalars of each element."""

    def columns(host: Array) -> Array:
        if host.dtype.names:
            return np.concatenate([columns(host[name]) for name in host.dtype.names], axis=1)
        return host.reshape(len(host), -1).astype(np.float64)

    return columns(tensor.to_numpy())


def slack_of(device: spy.Device, program: Program) -> float:
    """Return the factor by which the tolerance of a function is larger than on the CPU.

    Vulkan allows errors of 4096 units in the last place in asin and acos. On lavapipe they are 2e-4 off, and results
    computed from them can be 1e-2 off.
    """
    functions = (program.main, *called(program))
    names = {node.data for f in functions for node in nodes_of(f.body) if node.kind == "intrinsic"}
    return 1.0 if device.name == "cpu" or names.isdisjoint(_ARCS) else 50.0


def _differs(found: Array, wanted: Array, scale: Array, slack: float = 1.0) -> bool:
    room = RELATIVE * np.abs(wanted) + BESIDE * scale + ABSOLUTE
    return not bool((np.abs(found - wanted) <= slack * room).all())


def check(
    device: spy.Device,
    module: spy.Module,
    suffix: str,
    program: Program,
    measurements: Sequence[Measurement],
    seed: int,
    steps: Sequence[str] = ("call", "bwds", "fwds"),
) -> list[Outcome]:
    """What is wrong with a function: of the call, ``bwds``, ``fwds`` and the value that ``fwds`` returns."""
    main = program.main
    arrays = Arrays(device, module, suffix)
    count = len(measurements)
    rng = np.random.default_rng(seed)
    function = getattr(module, main.name)
    inputs = [
        np.array([np.atleast_1d(m.inputs[n]) for m in measurements]) if p.way != "out" else None
        for n, p in enumerate(main.parameters)
    ]
    outputs = np.array([m.outputs for m in measurements])
    jacobian = np.array([m.jacobian for m in measurements])
    slack = slack_of(device, program)
    seeds = rng.uniform(0.5, 1.5, outputs.shape).round(3)
    ways = rng.uniform(0.5, 1.5, (count, jacobian.shape[2])).round(3)
    sizes = [count_of(kind) for _, kind in outputs_of(main)]
    parts = dict(zip([n for n, _ in outputs_of(main)], np.split(seeds, np.cumsum(sizes)[:-1], axis=1), strict=True))
    own = [count_of(p.type) for p in inputs_of(main)]
    changes = dict(zip([p.name for p in inputs_of(main)], np.split(ways, np.cumsum(own)[:-1], axis=1), strict=True))

    def arguments(how: str) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
        """Arguments, keyword arguments, and the tensors to read."""
        given: list[Any] = []
        kept: dict[str, Any] = {}
        for p, rows in zip(main.parameters, inputs, strict=True):
            tensor = arrays.empty(p.type, count) if rows is None else arrays.filled(p.type, rows)
            if p.type != "int" and not p.constant and how:
                changed = p.name in changes
                if how == "bwds":
                    grad_in = arrays.filled(p.type, parts[p.name]) if p.way != "in" else None
                    grad_out = arrays.empty(p.type, count) if changed else None
                else:
                    grad_in = arrays.filled(p.type, changes[p.name]) if changed else None
                    grad_out = arrays.empty(p.type, count) if p.way != "in" else None
                tensor = tensor.with_grads(grad_in=grad_in, grad_out=grad_out)
            kept[p.name] = tensor
            given.append(tensor)
        if main.result == "void":
            return given, {}, kept
        result = arrays.empty(main.result, count)
        if how == "bwds":
            result = result.with_grads(grad_in=arrays.filled(main.result, parts["_result"]))
        elif how:
            result = result.with_grads(grad_out=arrays.empty(main.result, count))
        kept["_result"] = result
        return given, {"_result": result}, kept

    def run(what: str) -> Outcome:
        called = function if what == "call" else getattr(function, what)
        given, named, kept = arguments("" if what == "call" else what)
        try:
            called(*given, **named)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            crash = any(
                word in text
                for word in ("crashed", "ended", "assert failure", "signal", "InternalError", "segmentation")
            )
            return Outcome(f"{what} {'crash' if crash else 'refused'}", text)
        if what == "bwds":
            found = np.concatenate([rows_of(kept[name].grad_out) for name in changes], axis=1)
            wanted = np.einsum("pm,pmn->pn", seeds, jacobian)
            scale = np.einsum("pm,pmn->pn", np.abs(seeds), np.abs(jacobian)).max(1, keepdims=True)
            if _differs(found, wanted, scale, slack):
                return Outcome("bwds wrong", _shown(found, wanted))
            return Outcome("right")
        value = np.concatenate([rows_of(kept[name]) for name, _ in outputs_of(main)], axis=1)
        if _differs(value, outputs, np.abs(outputs).max(1, keepdims=True), slack):
            return Outcome(f"{what} value wrong", _shown(value, outputs))
        if what == "fwds":
            found = np.concatenate([rows_of(kept[name].grad_out) for name, _ in outputs_of(main)], axis=1)
            wanted = np.einsum("pmn,pn->pm", jacobian, ways)
            scale = np.einsum("pmn,pn->pm", np.abs(jacobian), np.abs(ways)).max(1, keepdims=True)
            if _differs(found, wanted, scale, slack):
                return Outcome("fwds wrong", _shown(found, wanted))
        return Outcome("right")

    return [run(what) for what in steps]


def _shown(found: Array, wanted: Array) -> str:
    with np.printoptions(precision=5, suppress=True, linewidth=200):
        return f"found {found}\nright {wanted}"

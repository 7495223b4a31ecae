"""What a search has to know of a prepared call: its arguments, their layouts, and which of them it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from slangpy_rt.tuning.call_info import CallInfo

if TYPE_CHECKING:
    from slangpy_rt.calls.prepared import PreparedCall
    from slangpy_rt.runtime.core import DeviceCore


def info_of(name: str, device: DeviceCore, prepared: PreparedCall, values: tuple[Any, ...]) -> CallInfo:
    """Return what ``key``, ``prune`` and ``model`` are told of a call."""
    shapes, dtypes, numbers = {}, {}, {}
    for label, value, b in _arguments(prepared, values):
        shapes[label] = (*b.shape, *b.view[0]) if b is not None else tuple(getattr(value, "shape", ()))
        dtypes[label] = b.type.name if b is not None else str(getattr(value, "dtype", type(value).__name__))
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            numbers[label] = int(value)
    return CallInfo(name, shapes, dtypes, numbers, device.backend.description, device.caps)


def _arguments(prepared: PreparedCall, values: tuple[Any, ...]) -> list[tuple[str, Any, Any]]:
    """Return name, value and ``Bound`` of each argument; None for one that another library differentiates."""
    bound = getattr(prepared, "bound", None)
    if bound is None:
        return [(label, value, None) for label, value in zip(_labels(prepared), values, strict=False)]
    return [(b.name, values[k], b) for k, b in zip(prepared.order, bound, strict=False)]


def layouts_of(prepared: PreparedCall, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the layouts of all arrays of a call, as far as they can change which configuration is the fastest."""
    bound = getattr(prepared, "bound", None)
    if bound is None:
        strides = [getattr(v, "stride", None) for v in values]
        return tuple(
            (
                label,
                tuple(getattr(v, "shape", ())),
                str(getattr(v, "dtype", type(v).__name__)),
                s() if callable(s) else s,
            )
            for label, v, s in zip(_labels(prepared), values, strides, strict=False)
        )
    return tuple(
        (leaf.name, leaf.type.name, leaf.mode, leaf.shape, leaf.strides, leaf.view, leaf.aligned)
        for b in bound
        for leaf in b.leaves
    )


def written_by(prepared: PreparedCall, values: tuple[Any, ...]) -> list[Any]:
    """Return the values that a call writes."""
    outputs = getattr(prepared, "outputs", None)
    if outputs is not None:
        return list(outputs(values))
    return [values[k] for k in sorted(prepared.written(values))]


def _labels(prepared: Any) -> tuple[str, ...]:
    """Return the names of the values of a call that another library differentiates."""
    return tuple(prepared.labels)

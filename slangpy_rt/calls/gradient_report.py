"""GradientReport: the results of ``check_grads``, by argument and by result. It computes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_REMEDY = (
    "Correct the derivatives by hand that the function uses, or write it in another form where Slang derives them: "
    'docs/gradients.md, "Limits", has the forms that Slang derives wrongly.'
)


@dataclass(frozen=True)
class GradientReport:
    """A comparison of a function's derivatives, which ``Function.check_grads`` returns.

    Attributes
    ----------
    function : str
        The declaration that was called.
    place : str
        File and line of the declaration, ``"lines.slang:12"`` with the folder; empty if it was not found.
    elements, size : int
        The number of compared elements, and the number of elements of the call.
    seed : int
        The seed of the random directions.
    arguments : tuple of ArgumentRow
        A row for each argument, and for each field of a struct.
    results : tuple of ResultRow
        A row for each value that the function writes.
    """

    function: str
    place: str
    elements: int
    size: int
    seed: int
    arguments: tuple[ArgumentRow, ...]
    results: tuple[ResultRow, ...]

    @property
    def rows(self) -> tuple[ArgumentRow | ResultRow, ...]:
        """All rows, those of arguments first."""
        return (*self.arguments, *self.results)

    @property
    def ok(self) -> bool:
        """Whether no row is wrong."""
        return not self.wrong

    @property
    def wrong(self) -> tuple[ArgumentRow | ResultRow, ...]:
        """The rows that are wrong."""
        return tuple([row for row in self.rows if row.state == "wrong"])

    @property
    def message(self) -> str:
        """The error message for the rows that are wrong; empty if none is."""
        if self.ok:
            return ""
        lines = [f"{self.function}{f' ({self.place})' if self.place else ''}: derivatives contradict each other."]
        for row in self.wrong:
            if isinstance(row, ResultRow):
                lines.append(f"  {row.name}: a call gives {_number(row.value)}, fwds gives {_number(row.forward)}")
                continue
            told = f"  argument '{row.name}': bwds gives {_number(row.backward)}, fwds gives {_number(row.forward)}"
            more = f", central differences give {_number(row.difference)}" if row.difference is not None else ""
            lines.append(told + more)
        return "\n".join([*lines, _REMEDY])

    def __getitem__(self, name: str) -> ArgumentRow | ResultRow:
        """Return the row of an argument (``"line.origin"`` for a field) or of a result (``"_result"``).

        For an ``inout`` argument, which has both, it is the argument's row.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def __repr__(self) -> str:
        count = f"{self.elements} of {self.size} elements" if self.elements < self.size else f"{self.size} elements"
        head = f"{self.function}: {count if self.size != 1 else '1 element'}, seed {self.seed}"
        rows = [("argument", "type", "bwds", "fwds", "error", "differences", "error", "state")]
        for a in self.arguments:
            first = _number(a.backward), _number(a.forward), _error(a.error)
            rows.append((a.name, a.type, *first, _number(a.difference), _error(a.difference_error), _state(a)))
        parts = [head, "", _table(rows)]
        if self.results:
            written = [("result", "type", "call", "fwds", "error", "state")]
            for r in self.results:
                numbers = _number(r.value), _number(r.forward), _error(r.error)
                written.append((r.name, r.type, *numbers, _state(r)))
            parts += ["", _table(written)]
        return "\n".join(parts)


@dataclass(frozen=True)
class ArgumentRow:
    """The derivatives by one argument, or by one field of a struct, along a random direction.

    For an argument with many elements, the row shows the element with the largest error.

    Attributes
    ----------
    name, type : str
        Its name, and its type in Slang.
    state : str
        ``"ok"``, ``"wrong"``, ``"not differentiable"`` or ``"not checked"``.
    reason : str
        Details of the state; may be empty.
    backward : float or None
        The dot product of the gradient from ``bwds`` and the direction.
    forward : float or None
        The dot product of the tangent from ``fwds`` and the upstream gradient.
    error : float or None
        Their difference, relative to the sum of the terms' absolute values.
    difference : float or None
        The dot product of the central difference along the direction and the upstream gradient; None where
        differences are not taken or are too inaccurate.
    difference_error : float or None
        The difference of ``difference`` and ``backward``, with the scale of ``error``.
    """

    name: str
    type: str
    state: str
    reason: str = ""
    backward: float | None = None
    forward: float | None = None
    error: float | None = None
    difference: float | None = None
    difference_error: float | None = None


@dataclass(frozen=True)
class ResultRow:
    """A value that the function writes, by a call and by ``fwds``.

    Attributes
    ----------
    name, type : str
        ``"_result"`` or the name of a parameter, with the field of a struct; and its type in Slang.
    state : str
        ``"ok"``, ``"wrong"`` or ``"not checked"``.
    reason : str
        Details of the state; may be empty.
    value, forward : float or None
        The values from a call and from ``fwds``, for the element where they differ most.
    error : float or None
        Their difference, relative to the results' magnitude.
    """

    name: str
    type: str
    state: str
    reason: str = ""
    value: float | None = None
    forward: float | None = None
    error: float | None = None


def _state(row: ArgumentRow | ResultRow) -> str:
    return f"{row.state}: {row.reason}" if row.reason else row.state


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def _error(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows)

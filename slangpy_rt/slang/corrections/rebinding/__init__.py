"""Statements ``x = same(x);`` in differentiable functions, without which Slang's derivatives of them are wrong.

``same`` returns its argument. Its call is an instruction of its own in Slang's intermediate code, in the block where
it stands, and these faults of Slang 2026.12 need another kind of instruction there:

- The derivative of a scalar and a vector makes a vector of the scalar after the scalar's definition. If that is a
  parameter or the result of a loop, this place is wrong, and a gradient is lost or used before it is computed. A
  function therefore begins with ``p = same(p);`` for one parameter, and ``w = same(w);`` follows each loop that
  assigns `w`.
- In a loop, the backward pass reads a variable that was an ``out`` or ``inout`` argument as it was before that call.
  ``x = same(x);`` follows the call.
- Two variables of one type that change in a branch, one of them by a component, may get one register. The component's
  assignments are put between two statements ``p = same(p);``. So are those of a matrix anywhere: of two components
  that are read afterwards, one loses its gradient.
- Of two elements of one array, vector or matrix that are read in a block, one by an index that is no literal, one
  loses its gradient (``element_reads``).
- An ``inout`` parameter keeps the derivative that it had when a value without one is assigned to it, and a variable
  with a constant has no derivative to pass to such a parameter: ``x = same(x);`` follows each assignment.
- The derivative of a call whose arguments do not change in a loop is computed where the call is not run
  (``loop_calls``).
- The compiler ends on the forward derivative of a vector that is made of a ``no_diff`` number, and of a matrix whose
  row is a ``no_diff`` vector: ``u = no_diff same(u);`` begins a function for each such parameter. What is assigned to
  one in a branch or a loop has no gradient: ``var u = same(u);`` begins a function that assigns it.
- A vector that is built from vectors without derivatives has the gradient of a wrong component (``vector_parts``).
- The compiler ends where an unrolled loop decides on a ``return``, in a switch or beside a ``continue``:
  ``switch (same(i))``, ``if (same(i > 1))``.
- The compiler crashes on a ``for`` loop whose counter starts at a value that is no constant: ``i = same(i);`` begins
  its body.

More faults are mended here, too:

- The compiler crashes on ``while`` loops that are nested or hold ``continue``, and loses gradients in those that hold
  ``break``: ``while (c)`` becomes ``for (; c; )``.
- The compiler fails where two indices of a place that is assigned are equal: ``m[i][same(i, 1)] = x;``.
- The arrays of loops inside one another have wrong sizes (``loop_sizes``).
- The derivatives of ``fmod`` and ``clamp`` (``core_functions``).
- A ``[TreatAsDifferentiable]`` function returns 0 in a derivative, in place of its value. It becomes a differentiable
  function that calls one without the attribute by ``no_diff``.

Edits keep the lines of a text. Functions that cannot be read as statements stay.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from slangpy_rt.slang.corrections.rebinding.core_functions import LIMITS, REMAINDER, core_function_edits
from slangpy_rt.slang.corrections.rebinding.edit import Edit
from slangpy_rt.slang.corrections.rebinding.element_reads import element_edits, index_edits
from slangpy_rt.slang.corrections.rebinding.function_edits import FunctionEdits
from slangpy_rt.slang.corrections.rebinding.loop_calls import call_edits
from slangpy_rt.slang.corrections.rebinding.loop_sizes import loop_size_edits
from slangpy_rt.slang.corrections.rebinding.surroundings import surroundings_of
from slangpy_rt.slang.corrections.rebinding.vector_parts import part_edits
from slangpy_rt.slang.differentiable_functions import TreatedFunction, differentiable_functions, treated_functions
from slangpy_rt.slang.forming_macros import forming_macros
from slangpy_rt.slang.macros import expansions
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.tokens import macro_bodies, prefixed

# A [TreatAsDifferentiable] function of this prefix has lost the attribute.
_CONSTANT = "_spy_constant_"
# A struct that cannot be differentiated, an integer or a boolean is returned by the second function.
_SAME = prefixed(
    """
[Differentiable] T {name}<T : IDifferentiable>(T x) {{ return x; }}
T {name}<T>(T x) {{ return x; }}
[Differentiable] T {name}<T : IDifferentiable>(T x, int number) {{ return x; }}
T {name}<T>(T x, int number) {{ return x; }}
""",
    "T x number",
)


def rebound(text: str, others: Iterable[str] = ()) -> str:
    """Return a text after the edits of ``rebinding_edits``."""
    return SourceMap.of(text).edited(rebinding_edits(text, others)).text


def rebinding_edits(text: str, others: Iterable[str] = ()) -> list[tuple[int, int, str]]:
    """Return edits that insert the statements that differentiable functions need, and the functions that these call.

    Parameters
    ----------
    text : str
        The text of a file.
    others : iterable of str
        Texts of other files. The text may use their functions with ``out`` and ``inout`` parameters, their structs,
        their macros and their names of types.

    Returns
    -------
    list of (int, int, str)
        The first and the last offset of each replaced part, and the new text.
    """
    near = tuple(others)
    if "ifferentiable" not in text and not any("ifferentiable" in other for other in near):
        return []
    known = forming_macros((text, *near))
    formed = expansions(text, known)
    source = SourceMap.of(text).edited(formed)
    if "ifferentiable" not in source.text:
        return []
    others = tuple(SourceMap.of(other).edited(expansions(other, known)).text for other in near)
    edits = _edits(source.text, others, f"{zlib.crc32(text.encode()):08x}")
    if not formed or not edits:
        return edits
    source = source.edited(edits)
    return [(part.first, part.last, source.text[part.start : part.end]) for part in source.regions]


def _edits(text: str, others: tuple[str, ...], number: str) -> list[tuple[int, int, str]]:
    """Return the edits that the differentiable functions of a text need.

    Files that are included together have functions with different numbers.
    """
    same, remainder, limits = f"_spy_same_{number}", f"_spy_fmod_{number}", f"_spy_clamp_{number}"
    functions, _ = differentiable_functions(text)
    edits: list[Edit] = []
    if functions:
        around = surroundings_of((text, *others))
        for function in functions:
            edits += FunctionEdits.of(function, around, same).edits()
            edits += element_edits(function, around, same)
            edits += index_edits(function, around, same)
            edits += loop_size_edits(function)
            edits += part_edits(function, around, same)
            edits += call_edits(function, around, same)
    bodies = list(macro_bodies(text))
    for treated in treated_functions(text):
        in_macro = any(start <= treated.name.start < end for start, end in bodies)
        # The name may be a parameter of the macro.
        edits += _constant_edits(treated, f"{_CONSTANT}##" if in_macro else _CONSTANT)
    edits += core_function_edits(functions, text, remainder, limits)
    texts = ((same, _SAME), (remainder, REMAINDER), (limits, LIMITS))
    added = "".join(body.format(name=name) for name, body in texts if any(name in edit.text for edit in edits))
    found = [(offset, offset + replaced, new) for offset, new, replaced in edits]
    return [*found, (len(text), len(text), added)] if added else found


def _constant_edits(function: TreatedFunction, prefix: str) -> list[Edit]:
    """Return the edits that make a function call one without the attribute, as a constant."""
    if not function.end:
        return []
    start, end = function.attribute
    head = f"[Differentiable] {function.head}"
    body = f"{{ return no_diff {prefix}{function.name.text}({', '.join(function.arguments)}); }}"
    return [
        Edit(start, "", end - start),
        Edit(function.name.start, prefix),
        Edit(function.end, f" {head} {body}"),
    ]

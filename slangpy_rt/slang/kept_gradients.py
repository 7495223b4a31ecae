"""Keeps gradients of numbers that a ``[Differentiable]`` function combines with vectors, which Slang may lose.

Slang 2026.12 gives a parameter `k`, a number, a gradient of 0 where the first operation of a function makes a vector
of it: in ``return k * v;`` and ``return v + k;``, and not in ``return v * k;``. Here `k` becomes ``same(k)``, the
result of a function, for which the gradient is right. Only texts that a session loads are rewritten, not the files
that Slang finds by their imports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from slangpy_rt.slang.brackets import matching

_DIFFERENTIABLE = re.compile(r"\[\s*(?:Backward)?Differentiable\s*[\],(]")
_NUMBER = re.compile(r"(?:(?:in|const)\s+)*(?:float|half|double)\s+(\w+)\s*(?:=.*)?", re.S)
_VECTOR = re.compile(r"\b(?:(?:float|half|double)[2-4]|vector\s*<|matrix\s*<)")
# An operator that is no other one's beginning, as in ``k += 1`` and ``k--``.
_OPERATOR = r"(?:[*/](?!=)|\+(?![+=])|-(?![-=]))"
SAME = """
[Differentiable] {name}T {name}<{name}T : __BuiltinFloatingPointType>({name}T x) {{ return x; }}
"""


def kept_gradients(
    code: str, declarations: Iterable[tuple[str, int, int]], same: str
) -> Iterator[tuple[int, int, str]]:
    """Yield edits of a text, each as two offsets and a new text, that keep the gradients of numbers.

    Parameters
    ----------
    code : str
        The text without comments, strings and preprocessor lines.
    declarations : iterable of (str, int, int)
        The name of each declaration, and the offsets of its head.
    same : str
        The name of the function that returns its argument.
    """
    if not _DIFFERENTIABLE.search(code):
        return
    for _, start, end in declarations:
        head = code[start:end]
        if code[end : end + 1] != "{" or not _DIFFERENTIABLE.search(head) or not _VECTOR.search(head):
            continue
        numbers = [m[1] for part in _parts(head) if (m := _NUMBER.fullmatch(part.strip()))]
        if numbers:
            for at, name in _operands(code[end : matching(code, end) or len(code)], numbers):
                yield end + at, end + at + len(name), f"{same}({name})"


def _operands(body: str, numbers: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the places where a number by itself is the first operand of an operator, or the second of + and -."""
    any_of = "|".join(numbers)
    # The other operand of ``k * j`` is a number, too.
    first = rf"(?<![\w.)\]])({any_of})(?=\s*{_OPERATOR}\s*(?!(?:{any_of})\b)[A-Za-z_(])"
    second = rf"(?<=[\w)\]])\s*[-+]\s*({any_of})\b(?!\s*[\w.(\[])"
    found = {m.start(1): m[1] for pattern in (first, second) for m in re.finditer(pattern, body)}
    yield from found.items()


def _parts(head: str) -> list[str]:
    """Return the parameters in the head of a function."""
    depth, begin = 0, -1
    parts: list[str] = []
    for match in re.finditer(r"[()\[\]<>,]", head):
        letter = match[0]
        if letter == "(" and depth == 0:
            parts, begin = [], match.end()
        depth += (letter in "([<") - (letter in ")]>")
        if begin >= 0 and (letter, depth) in ((",", 1), (")", 0)):
            parts.append(head[begin : match.start()])
            begin = match.end()
    return parts

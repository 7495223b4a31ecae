"""Tells from texts whether Slang has no forward derivative of a function, because one is only backward and by hand.

Slang 2026.12 compiles the forward derivative of such a function all the same, which computes nothing. The answer is
never too small: names are compared without their scopes, and what a macro declares may be called from anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from slangpy_rt.slang.brackets import matching
from slangpy_rt.slang.text import blank, declarations

_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n\\]|\\.|\\\n)*", re.M)
_BACKWARD, _FORWARD = re.compile(r"\bBackwardDerivative\s*\("), re.compile(r"\bForwardDerivative\s*\(")
_OF = re.compile(r"\b(Backward|Forward)DerivativeOf\s*\(\s*([\w.:]+)")
_WORD, _CALLED = re.compile(r"[A-Za-z_]\w*"), re.compile(r"([A-Za-z_]\w*)\s*(?:<[^<>()]*>\s*)?\(")


def lacks_forward(texts: Iterable[str], name: str) -> bool:
    """Return whether a function, or one that it may call, has a backward derivative by hand and no forward one.

    Parameters
    ----------
    texts : iterable of str
        The texts that the module is made of.
    name : str
        The function's name, without scopes and generic arguments.
    """
    bodies: dict[str, list[str]] = {}
    lacking: set[str] = set()
    others: dict[str, set[str]] = {"Backward": set(), "Forward": set()}
    for text in texts:
        if any(_lacks(macro) for macro in _MACRO.findall(text)):
            return True
        code = blank(text)
        for kind, other in _OF.findall(code):
            others[kind].add(re.split(r"[.:]+", other)[-1])
        for path, start, end in declarations(code):
            head = code[start:end]
            # Uses of macros may stand before a head, and a name before the bracket of an attribute.
            names = {path.rpartition(".")[2], *_CALLED.findall(re.sub(r"\[[^\[\]]*\]", " ", head))}
            body = code[end : matching(code, end) or len(code)] if code[end : end + 1] == "{" else ""
            for each in names if "struct" not in head.split() else ():
                bodies.setdefault(each, []).append(body)
            if _lacks(head):
                lacking |= names
    lacking |= others["Backward"] - others["Forward"]
    todo, seen = [name], {name}
    while todo:
        one = todo.pop()
        # Operators and subscripts are called without a name.
        if one in lacking or not lacking.isdisjoint(("operator", "__subscript", "get", "set")):
            return True
        for body in bodies.get(one, ()):
            for word in set(_WORD.findall(body)) & bodies.keys() - seen:
                seen.add(word)
                todo.append(word)
    return False


def _lacks(text: str) -> bool:
    return bool(_BACKWARD.search(text)) and not _FORWARD.search(text)

"""Which fields of its object a ``[mutating]`` method may change, found in the text of its body.

Reflection says that a method may change its object, and not which fields. The answer here is never too small: a field
counts as changed unless each place that names it only reads it, and all fields do where the text does not tell, as
where ``this`` is passed on as a whole. Nothing is compiled; names of functions are looked up in the module.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slangpy_rt.core.types import SlangType, StructInfo
from slangpy_rt.slang.brackets import matching
from slangpy_rt.slang.files import decoded, read_file
from slangpy_rt.slang.shader_modules import is_ours
from slangpy_rt.slang.text import blank, declarations

if TYPE_CHECKING:
    from slangpy_rt.slang.source import Source

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\.\d\w*|<<=|>>=|\+\+|--|->|::|[-+*/%&|^=!<>]=|&&|\|\||\S")
_ASSIGNS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--"})
_MEMBER = (".", "->")
_CLOSING = {")": "(", "]": "[", "}": "{"}
_KEYWORDS = frozenset({"for", "if", "return", "switch", "while"})
# Reflection does not tell that these change an argument, and text in assembly or with references is not read here.
_UNKNOWN = re.compile(r"\b(?:__ref|ref|property|__subscript|__intrinsic_asm|spirv_asm)\b")
_BY_REFERENCE = re.compile(r"Interlocked|atomic|__")
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.M)


def changed_fields(source: Source, struct: SlangType, method: str) -> frozenset[str]:
    """Return the names of the fields of a struct that a method may change.

    Parameters
    ----------
    source : Source
        The module in which the struct is known.
    struct : SlangType
        The struct, with its fields.
    method : str
        The method's name, without its struct and generic arguments.
    """
    names = frozenset(f.name for f in struct.fields)
    texts = _texts(source)
    if any(_UNKNOWN.search(blank(text)) for text in texts):
        return names
    macros = {name for text in texts for name in _MACRO.findall(text)} | {name for name, _ in source._defines}
    found: set[str] = set()
    todo, seen = [method], {method}
    try:
        while todo:
            for body in _bodies(texts, struct.name, todo.pop()):
                tokens = _TOKEN.findall(body)
                if not macros.isdisjoint(tokens):
                    return names
                for kind, item in _Body(source, struct.name, names, tokens).changes():
                    if kind == "field":
                        found.add(item)
                    elif item not in seen:
                        seen.add(item)
                        todo.append(item)
    except _AnyField:
        return names
    return frozenset(found)


class _AnyField(Exception):
    """The text does not tell which fields change."""


class _Body:
    """The tokens of a method's body, in which places that change the object are found."""

    def __init__(self, source: Source, struct: str, fields: frozenset[str], tokens: Sequence[str]) -> None:
        self._source = source
        self._struct = struct
        self._fields = fields
        # Sentinels at both ends, so that neighbours of each token exist.
        self._tokens = ["{", "", *tokens, "", "", "", ""]
        self._closes: dict[int, int] = {}
        self._opener: list[int] = []
        stack = [0]
        for k, token in enumerate(self._tokens):
            self._opener.append(stack[-1])
            if token in "([{" and token:
                stack.append(k)
            elif token in _CLOSING and len(stack) > 1:
                self._closes[stack.pop()] = k
        self._opens = {end: start for start, end in self._closes.items()}

    def changes(self) -> Iterator[tuple[str, str]]:
        """Yield ``("field", name)`` for fields that change, and ``("method", name)`` for methods that are called."""
        tokens = self._tokens
        for k, token in enumerate(tokens):
            if token == "this" and tokens[k + 1] not in _MEMBER:
                raise _AnyField
            if not token[:1].isalpha() and token[:1] != "_":
                continue
            start = k
            if tokens[k - 1] in _MEMBER:
                if tokens[k - 2] != "this":
                    continue
                start = k - 2
            if token in self._fields:
                if self._is_written(start, k):
                    yield "field", token
            elif tokens[k + 1] in ("(", "<") and token not in _KEYWORDS:
                methods = self._source.functions(f"{self._struct}.{token}")
                if any(sig.mutating for sig in methods):
                    yield "method", token

    def _is_written(self, start: int, end: int) -> bool:
        """Tell whether the expression of these tokens, a field or a part of one, may be changed where it stands."""
        tokens = self._tokens
        while True:
            before, after = tokens[start - 1], tokens[end + 1]
            if after in _MEMBER:
                if tokens[end + 3] in ("(", "<"):  # a method of the field
                    return True
                end += 2
            elif after == "[" and end + 1 in self._closes:
                end = self._closes[end + 1]
            elif after in _ASSIGNS or before in ("++", "--", "::") or self._takes_address(start - 1):
                return True
            elif before == "(" and after == ")" and not self._is_call(start - 1):
                start, end = start - 1, end + 1
            elif before == ")" and start - 1 in self._opens:
                # Slang writes through a cast, too.
                start = self._opens[start - 1]
            elif before in ("(", ",") and after in (",", ")"):
                opener = self._opener[start]
                if tokens[opener] != "(":
                    return tokens[opener] not in ("[", "{")
                return tokens[opener - 1] not in _KEYWORDS and self._may_write(opener, start)
            else:
                return False

    def _takes_address(self, at: int) -> bool:
        """Tell whether a token is the operator that takes an address."""
        left = self._tokens[at - 1]
        return self._tokens[at] == "&" and not (left in (")", "]") or left[-1:].isalnum() or left[-1:] == "_")

    def _is_call(self, opener: int) -> bool:
        """Tell whether a bracket opens a call's arguments, and not a part of an expression."""
        left = self._tokens[opener - 1]
        return left not in _KEYWORDS and (left in (")", "]", ">") or left[-1:].isalnum() or left[-1:] == "_")

    def _may_write(self, opener: int, start: int) -> bool:
        """Tell whether a function may write to the argument that begins at a token, of a call whose bracket opens."""
        name, before = self._tokens[opener - 1], self._tokens[opener - 2]
        if not name.isidentifier() or _BY_REFERENCE.match(name):
            return True
        if before in ("::", *_MEMBER) and not (before in _MEMBER and self._tokens[opener - 3] == "this"):
            return True
        sigs = self._source.functions(f"{self._struct}.{name}") or self._source.functions(name)
        if not sigs:
            type_ = self._source.type(name)
            if type_ is None:
                return True
            sigs = type_.constructors if isinstance(type_, StructInfo) else ()
        between = range(opener + 1, start)
        place = sum(self._tokens[k] == "," and self._opener[k] == opener for k in between)
        # A comma between generic arguments does not count.
        listed = any(self._tokens[k] == "<" for k in between)
        return any(p.direction != "in" for sig in sigs for k, p in enumerate(sig.params) if listed or k == place)


def _bodies(texts: Sequence[str], struct: str, method: str) -> list[str]:
    """Return the bodies of all overloads of a method; those in all structs, if this one may inherit the method."""
    found = []
    own, inherits = struct.partition("<")[0].rpartition(".")[2], False
    for code in map(blank, texts):
        for path, start, end in declarations(code):
            owner, _, name = path.rpartition(".")
            if name == method and owner and code[end] == "{":
                found.append((owner.rpartition(".")[2], code[end : matching(code, end)]))
            inherits |= name == own and ":" in code[start:end]
    if not found:
        raise _AnyField
    theirs = [body for owner, body in found if owner == own]
    return [body for _, body in found] if inherits or not theirs else theirs


def _texts(source: Source) -> list[str]:
    """Return the texts of a module, of those that are linked with it, and of all files that they are made of."""
    out: dict[str, str] = {}
    for one in (*source._linked, source):
        out[one.path] = one.text
        for path, _ in one.info.dependencies:
            if path not in out and not is_ours(Path(path)):
                out[path] = decoded(f"'{path}'", read_file(path))
    return list(out.values())

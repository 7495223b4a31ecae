"""Finds the static variables that a module's text declares, and whether its functions may change them.

Of Slang's grammar only brackets, operators, the heads of declarations and ``#define`` are parsed. No text is changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slangpy_rt.slang.text import blank, without_comments

# Matches ``static float gain =`` and ``static Array<int, 3> a[2];``, and takes the name and ``=`` or ``;``. The
# repeats are bounded, so that a search takes time in proportion to the text's length.
_STATIC = re.compile(
    r"\bstatic\s{1,99}(?!const\b)[\w.:]{1,200}(?:<[^;={}()]{0,200}>)?[\s\[\]\w]{0,200}?\b(\w{1,200})"
    r"\s{0,99}(?:\[[^\]]{0,99}\]\s{0,9}){0,9}([=;])"
)
# The most characters of a declaration that are read; the variables of a longer one count as changed.
_LONGEST = 2000
_CONTINUED = re.compile(r"\\\r?\n")
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)\n]*)\))?([^\n]*)", re.M)
_HIDES = re.compile(r"(?<!\bconst )\bstatic\b(?! const\b)")
# Matches the declaration of an operator that may change its operand: ``operator+(inout S a``.
_CHANGING_OPERATOR = re.compile(r"\boperator\b[^\w;{}]*?\([^;{}]*?\b(?:inout|out|__ref)\b")
_TOKEN = re.compile(r"\w+|<<=|>>=|->|::|\+\+|--|[-+*/%&|^=!<>]=|&&|\|\||\S")
_MEMBER = (".", "::", "->")
_ASSIGNMENTS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="))
_STATEMENTS = frozenset(("if", "while", "for", "switch"))
_PREFIXES = frozenset(("return", "else", "do", "case", "in"))


class _Statics:
    """The static variables that texts declare and that are not ``const``.

    Attributes
    ----------
    names : set of str
        The names of these variables, and perhaps other names.
    hidden : bool
        Whether a macro may declare or name such a variable, or a declaration is too long to be read.
    codes : list of str
        The texts without comments, strings and preprocessor lines.
    macros : set of str
        The names of all macros.
    """

    def __init__(self, texts: Sequence[str], defines: Sequence[tuple[str, str]]) -> None:
        self.names: set[str] = set()
        self.hidden = False
        self.codes: list[str] = []
        self.macros = {name.partition("(")[0] for name, _ in defines}
        self._bodies = [value for _, value in defines]
        if not any("static" in text for text in (*texts, *self._bodies)):
            return
        for text in texts:
            code = without_comments(_CONTINUED.sub("  ", text))
            self.codes.append(blank(code))
            for name, parameters, body in _DEFINE.findall(code) if "#" in code else ():
                self.macros.add(name)
                for parameter in re.findall(r"\w+", parameters):
                    body = re.sub(rf"\b{parameter}\b", " ", body)
                self._bodies.append(body)
        self.hidden = any(_HIDES.search(" ".join(body.split())) for body in self._bodies)
        for code in self.codes:
            for match in re.finditer(r"\bstatic\b", code):
                self.names |= {name for name, _ in self._declared(code, match)}
        if self.names:
            self.hidden |= any("##" in body or not self.names.isdisjoint(_words(body)) for body in self._bodies)
            self.hidden |= not self.names.isdisjoint(self.macros)

    def changed(self) -> bool:
        """Return whether a variable may be changed: whether any occurrence of a name is not certainly a read."""
        if self.hidden or not self.names:
            return self.hidden
        return any(map(_CHANGING_OPERATOR.search, self.codes)) or any(map(self._changed, self.codes))

    def _declared(self, code: str, static: re.Match[str]) -> Iterator[tuple[str, int]]:
        """Yield (name, offset) of each variable that the declaration with the match `static` may declare."""
        before = re.split(r"[^\w\s]", code[max(static.start() - 200, 0) : static.start()])[-1]
        constant = "const" in before.split()
        name: re.Match[str] | None = None
        # ``named``: the next word may be a variable's name, as it stands neither in a value nor in a type after a
        # colon. ``first``: no ``=``, ``:`` or ``,`` was found yet. ``struct``: a type is declared.
        named, first, struct = True, True, False
        depth = angles = 0
        end = static.end() + _LONGEST
        for token in _TOKEN.finditer(code, static.end(), end + 1):
            part = token[0]
            if token.end() > end:
                self.hidden |= not constant
                return
            if part == "(" and depth == 0 and first and not angles:  # the declaration is that of a function
                self.hidden |= not constant and name is not None and name[0] in self.macros
                return
            if part == "{" and depth == 0 and first and not struct:  # the declaration is that of a property
                break
            if part in ("(", "[", "{"):
                depth += 1
            elif part in (")", "]", "}"):
                depth -= 1
                if depth < 0:
                    break
            elif depth or (angles and part not in (">", "<", ";")):
                continue
            elif part in (";", "static"):
                break
            elif part == "const":
                constant = True
            elif part == "<" and named:
                angles += 1
            elif part == ">" and named:
                angles = max(angles - 1, 0)
            elif part in ("=", ":", ","):
                if name and not constant:
                    yield name[0], name.start()
                name, named, first = None, part == ",", False
            elif named and part[0].isidentifier():
                struct |= part in ("struct", "class", "enum")
                name = token
        if name and not constant:
            yield name[0], name.start()

    def _changed(self, code: str) -> bool:
        """Return whether an occurrence of a name in one of the texts is not certainly a read."""
        if not re.search(rf"\b(?:{'|'.join(self.names)})\b", code):
            return False
        own = [(at, name) for match in re.finditer(r"\bstatic\b", code) for name, at in self._declared(code, match)]
        for at, name in own:
            code = f"{code[:at]}{' ' * len(name)}{code[at + len(name) :]}"
        tokens = [*_TOKEN.findall(code), "", ""]
        others: dict[int, int] = {}
        found: list[int] = []
        opened: list[int] = []
        # The positions of the open brackets that belong to calls of macros.
        calls: set[int] = set()
        wanted = self.names.union("()[]{}")
        for place, part in enumerate(tokens):
            if part not in wanted:
                continue
            if part in ("(", "[", "{"):
                opened.append(place)
                if place and tokens[place - 1] in self.macros:
                    calls.add(place)
            elif part not in self.names:
                if opened:
                    start = opened.pop()
                    calls.discard(start)
                    others[place], others[start] = start, place
            elif calls:
                return True
            else:
                found.append(place)
        return any(not _reads(tokens, others, self.macros, at) for at in found)


def changes_statics(texts: Sequence[str], defines: Sequence[tuple[str, str]] = ()) -> bool:
    """Return whether functions of the texts may change a static variable that one of the texts declares.

    A variable that may be an ``inout`` argument, or the object of a method, counts as changed: ``f(a, v)``,
    ``v.add(1)``. So does one that a macro may name.

    Parameters
    ----------
    texts : sequence of str
        The Slang texts of a module and of the files that it includes and imports.
    defines : sequence of (str, str)
        Macros that are defined for all texts.
    """
    return _Statics(texts, defines).changed()


def has_statics(texts: Sequence[str], defines: Sequence[tuple[str, str]] = ()) -> bool:
    """Return whether the texts may declare a static variable that is not ``const``."""
    found = _Statics(texts, defines)
    return found.hidden or bool(found.names)


def statics(text: str) -> list[tuple[str, bool]]:
    """Return (name, has an initial value) of each static variable in a text, also in structs and functions."""
    return [(m[1], m[2] == "=") for m in _STATIC.finditer(blank(text))]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def _reads(tokens: list[str], others: dict[int, int], macros: set[str], at: int) -> bool:
    """Return whether the variable at token `at`, or the part of it that is named there, is certainly only read.

    ``x = v.a[0] + 1`` reads ``v``; ``v.a[0] = 1``, ``++v``, ``f(v, 1)`` and ``v.f()`` may change it.

    Parameters
    ----------
    tokens : list of str
        The tokens of the text.
    others : dict of int to int
        The position of the matching bracket, by the position of each bracket.
    macros : set of str
        The names of macros.
    at : int
        The position of the variable's name in `tokens`.
    """
    first = _first(tokens, others, at)
    last = at
    while True:
        last = _last(tokens, others, last)
        before, behind = tokens[first - 1] if first else "", tokens[last + 1]
        if behind in _ASSIGNMENTS or behind in ("++", "--", "(") or (behind and behind[0].isidentifier()):
            return False
        if before in ("++", "--") or before in macros:
            return False
        if before == "&" and not (first > 1 and re.fullmatch(r"\w+|\]", tokens[first - 2])):
            return False
        if before in ("(", ",") and behind in (",", ")"):
            if (before, behind) != ("(", ")"):
                return False
            caller = tokens[first - 2] if first > 1 else ""
            if caller in _STATEMENTS:
                return True
            if caller in (")", "]", ">") or (caller and caller[0].isidentifier() and caller not in _PREFIXES):
                return False
            first, last = first - 1, last + 1
            continue
        return True


def _first(tokens: list[str], others: dict[int, int], at: int) -> int:
    """Return the first token of the expression that ends with the name at token `at`: ``ns`` of ``ns::S<T>.name``."""
    while at > 0 and tokens[at - 1] in _MEMBER:
        at -= 1
        if at == 0 or not re.fullmatch(r"\w+|[)\]>]", tokens[at - 1]):
            break
        at -= 1
        if tokens[at] == ">":
            depth = 0
            while at > 0:
                depth += (tokens[at] == ">") - (tokens[at] == "<")
                at -= 1
                if depth == 0:
                    break
        while at > 0 and tokens[at] in (")", "]"):
            at = others.get(at, at)
            if not re.fullmatch(r"\w+|[)\]]", tokens[at - 1]):
                break
            at -= 1
    return at


def _last(tokens: list[str], others: dict[int, int], at: int) -> int:
    """Return the last token of the expression that begins with the name at token `at`: ``]`` of ``name.x[k[0]]``."""
    while True:
        if tokens[at + 1] in _MEMBER:
            at += 2
        elif tokens[at + 1] == "[" and at + 1 in others:
            at = others[at + 1]
        else:
            return at

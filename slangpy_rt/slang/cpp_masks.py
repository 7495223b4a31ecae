"""Writes functions of C++ for several elements at a time where compilers do not: loops that end at different times.

A second form of each function, in the namespace ``_spy_wide``, computes with the types of ``shaders/_spy_masks.hpp``:
a number for each element, and a mask ``_m`` of the elements that take part. A branch narrows the mask, a loop runs
until the mask is empty, and an assignment changes the elements in the mask alone. A loop of a known number of steps
stays as it is. Only a part of C++ is understood: 32-bit numbers, their vectors and structs of them, without arrays,
integer division, ``switch`` and memory besides the arrays of the call, with strides or without, and the element's
index. Everything else keeps its one form. What this module does not see, such as a place in memory that a number of
the element's own gives, the C++ compiler refuses, because none of these types converts to a plain number; then the
kernel is compiled with the first form alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slangpy_rt.slang.locate import shader_header

Functions = Mapping[bytes, re.Match[bytes]]

_REFUSED = re.compile(
    rb"\b(?:double|half|u?int(?:8|16|64)_t|FixedArray|Matrix|Array|switch|case|while|do|goto|continue|asm|static)\b"
    rb"|[?%]|<<=|>>=|_spy_rest|_slang_select|\bpow|frexp|modf|\bI32_(?!min|max|abs|as)|\bU32_(?!min|max|as)"
)
# A branch of fewer lines is computed whether or not one of the elements takes it.
_CHEAP = 24
_TYPES = {
    b"float": b"_spy_L<float>",
    b"int32_t": b"_spy_L<int>",
    b"uint32_t": b"_spy_L<unsigned>",
    b"bool": b"_spy_Mask",
}
_TYPE = re.compile(rb"\b(?:float|u?int32_t|bool)\b")
_COUNTED = re.compile(rb"if\((\w+) < int\(\d+\)\)")
_STEP = re.compile(rb"(\w+) = \1 \+ int\(1\);")
_DECLARED = re.compile(rb"^((?:[A-Za-z_]\w*(?:<[^=;()]*>)?) *\*? +)(\w+)(?: = (.*))?;$")
_ASSIGNED = re.compile(rb"^([^=]*[^=<>!+\-*/&|^ ]) = (.*);$")
# The body of the loop over elements: copies of the call and of an index in the call's dimensions, of which the last
# one, or all, depend on the element, and then the element's function.
_BODY = re.compile(
    rb"(?: *KernelContext_\d+ _spy_globals = \{\};\n| *FixedArray<int64_t, \d+>  \w+ = \w+;\n"
    rb"| *(\w+)\[int\((\d+)\)\] = \1\[int\(\2\)\] \+ _spy_lane_\d+;\n| *int64_t \w+ = \w+ \+ _spy_lane_\d+;\n"
    rb"| *_spy_Call_\d+ \w+ = \w+;\n)*"
    rb" *_spy_element_\d+\(&\w+, \w+(?:, &\w+)?(?:, \(&_spy_globals\))?\);\n"
)
_INDEX = re.compile(rb"FixedArray<int64_t, (\d+)>( +\*? ?)(?=(?:_spy_)?index_\d)")
# The functions that find the place of an element by its index and by strides.
_PLACES = re.compile(rb"_spy_(?:address|advance)_\d+")


class NotUnderstood(Exception):
    """The functions have something that has no second form."""


@dataclass(frozen=True)
class Line:
    """A statement, or a block with its own lines.

    Attributes
    ----------
    text : bytes
        The statement; of a block what stands in front of it: ``if(c)``, ``else``, ``for(;;)``.
    block : tuple of Line or None
        The lines of a block.
    """

    text: bytes
    block: tuple[Line, ...] | None = None


def with_masks(text: bytes, functions: Functions, reached: Mapping[bytes, int]) -> bytes:
    """Return the second form of functions; empty if no loop ends at different times, or something is not understood.

    Parameters
    ----------
    text : bytes
        The code behind the prelude.
    functions : mapping
        The functions of the code, by name.
    reached : mapping
        The names of those that an element calls, its own among them, and how many lines each has with all that it
        calls itself.
    """
    bodies = {name: _parsed(functions[name][4]) for name in reached}
    if not any(_diverges(line) for lines in bodies.values() for line in _every(lines)):
        return b""
    try:
        structs = _structs(text)
        order = [name for name in functions if name in bodies]
        written = [_Writer(name, functions[name], reached).function(bodies[name]) for name in order]
    except NotUnderstood:
        return b""
    heads = b"".join(part.partition(b"\n")[0] + b";\n" for part in written)
    return b"".join((b"namespace _spy_wide\n{\n", shader_header("_spy_masks.hpp"), structs, heads, *written, b"}\n"))


def wide_loop(indent: bytes, lane: bytes, body: bytes) -> bytes:
    """Return the loop over the elements from ``_spy_first`` on by vectors; empty for a body that is another one."""
    if not _BODY.fullmatch(body) or {*re.findall(rb"_spy_lane_\d+", body)} != {lane}:
        return b""
    body = re.sub(rb"FixedArray<int64_t, (\d+)> ", rb"_spy_wide::_spy_I<\1>", body)
    body = body.replace(b" int64_t ", b" const _spy_wide::_spy_A ")
    body = re.sub(rb"(_spy_element_\d+)\(", b"_spy_wide::\\1(%b.mask(), " % lane, body)
    return (
        b"%(i)bfor (; _spy_first < _spy_last; _spy_first += SPY_LANES)\n%(i)b{\n"
        b"%(i)b    const int64_t _spy_left = _spy_last - _spy_first;\n"
        b"%(i)b    const int _spy_count = int(_spy_left < SPY_LANES ? _spy_left : SPY_LANES);\n"
        b"%(i)b    const _spy_wide::_spy_A %(lane)b = {_spy_first, 1, _spy_count};\n"
        b"%(body)b%(i)b}\n"
    ) % {b"i": indent, b"lane": lane, b"body": body}


def _parsed(body: bytes) -> tuple[Line, ...]:
    # Operators that wrap numbers of 8 and 16 bits, of which there are none here: ``a +_spy_sum()+ b``.
    body = re.sub(rb"(?<= )([+\-*&|^]|<<|>>)_spy_\w+\(\)\1(?= )", rb"\1", body)
    lines = iter([line.strip() for line in body.splitlines() if line.strip()])
    return tuple(_block(lines))


def _block(lines: Iterator[bytes]) -> list[Line]:
    out: list[Line] = []
    for line in lines:
        if line == b"}":
            break
        if line == b"{":
            head = out.pop().text if out and out[-1].block is None and not out[-1].text.endswith(b";") else b""
            out.append(Line(head, tuple(_block(lines))))
        else:
            out.append(Line(line))
    return out


def _every(lines: Sequence[Line]) -> Iterator[Line]:
    for line in lines:
        yield line
        yield from _every(line.block or ())


def _leaves(line: Line) -> bool:
    """Whether a block has a break of its own loop, or a return."""
    if line.block is None:
        return line.text == b"break;" or line.text.startswith(b"return")
    if line.text == b"for(;;)":
        return any(inner.text.startswith(b"return") for inner in _every(line.block))
    return any(_leaves(inner) for inner in line.block)


def _diverges(line: Line) -> bool:
    """Whether this is a loop whose steps may differ between elements."""
    return line.text == b"for(;;)" and not _counter(line)


def _counter(loop: Line) -> bytes:
    """Return the counter of a loop with a fixed number of steps; empty for another."""
    block = loop.block or ()
    head = _COUNTED.fullmatch(block[0].text) if block else None
    if head is None or block[0].block or len(block) < 2 or block[1].text != b"else":
        return b""
    counter = head[1]
    own = [line for line in _every(block[2:]) if line.text.startswith(counter + b" = ")]
    steps = len(own) == 1 and own[0] in block and _STEP.fullmatch(own[0].text)
    return counter if steps and not any(_leaves(line) for line in block[2:]) else b""


def _plain(lines: Sequence[Line], counter: bytes) -> bool:
    """Whether a counter can be one number for all elements: its loops begin at a number, and only they use it.

    The number is assigned in the block of the loop, so that the elements that begin the loop have it.
    """
    begun = False
    for line in lines:
        if line.text == b"for(;;)" and _counter(line) == counter:
            if not begun:
                return False
            begun = False
        elif re.fullmatch(rb"(?:int32_t )?%b = int\(\d+\);" % counter, line.text):
            begun = True
        else:
            named = line.text != b"int32_t %b;" % counter and re.search(rb"\b%b\b" % counter, line.text)
            if named or not _plain(line.block or (), counter):
                return False
    return True


def _exit(lines: Sequence[Line], at: int) -> int:
    """Return how many lines are a conditional break and nothing else: 1 for ``if(c) break``, 2 with an ``else``.

    The second is ``if(c) {} else break``. For all else the number is 0.
    """
    line, after = lines[at], lines[at + 1] if at + 1 < len(lines) else Line(b"")
    if not line.text.startswith(b"if(") or line.block is None:
        return 0
    leave = (Line(b"break;"),)
    if after.text == b"else":
        return 2 if line.block == () and after.block == leave else 0
    return 1 if line.block == leave else 0


def _last_used(lines: Sequence[Line], at: int) -> list[bytes]:
    """Return the variables that the lines before a loop declare and that the lines behind it do not name."""
    declared = [match[2] for line in lines[:at] if line.block is None and (match := _DECLARED.match(line.text))]
    behind = b"\n".join(line.text for line in _every(lines[at + 1 :]))
    return [name for name in declared if not re.search(rb"\b%b\b" % name, behind)]


def _structs(text: bytes) -> bytes:
    """Return the second form of the structs of the code, and how each is assigned under a mask."""
    out = []
    for match in re.finditer(rb"^struct (\w+_\d+)\n\{\n(.*?)^\};\n", text, re.M | re.S):
        name, fields = match[1], match[2]
        if name.startswith((b"_spy_Call_", b"KernelContext_")) or _REFUSED.search(fields) or b"*" in fields:
            continue  # if it is used all the same, the compiler says so, and takes the first form
        members = re.findall(rb"(\w+);\n", fields)
        blends = b" ".join(b"_spy_blend(m, to.%b, from.%b);" % (f, f) for f in members)
        out.append(
            b"struct %b\n{\n%b};\nSPY_INLINE void _spy_blend(_spy_Mask m, %b& to, const %b& from) { %b }\n"
            % (name, _typed(fields), name, name, blends)
        )
    return b"".join(out)


def _typed(text: bytes) -> bytes:
    return _TYPE.sub(lambda match: _TYPES[match[0]], text)


class _Writer:
    """Writes the second form of one function."""

    def __init__(self, name: bytes, match: re.Match[bytes], reached: Mapping[bytes, int]) -> None:
        self.name, self.head, self.match = name, match[2], match
        self.element = name.startswith(b"_spy_element_")
        self.moves = re.fullmatch(rb"\w*_spy_(?:load|store)_\d+", name) is not None
        self.places = _PLACES.fullmatch(name) is not None
        self.lengths = reached
        self.calls = re.compile(rb"\b(%b)\(" % b"|".join(re.escape(other) for other in reached))
        self.levels: dict[bytes, int] = {}
        self.uniform: set[bytes] = set()
        self.count = 0

    def function(self, lines: Sequence[Line]) -> bytes:
        self.head = _INDEX.sub(rb"_spy_I<\1>\2", self.head) if self.element or self.places else self.head
        text = self.head + self.match[4]
        if not self.element and not self.places and _REFUSED.search(text):
            raise NotUnderstood
        if self.element and (b"FixedArray" in text or b"uint64_t" in self.match[4]):
            raise NotUnderstood
        result, _, rest = self.head.partition(self.name)
        parameters = rest[1:-1]
        if self.element:
            parameters = parameters.replace(b"int64_t", b"_spy_A")
        elif self.places:
            result = re.sub(rb"(\w+) \*", rb"_spy_P<\1>", result)
            parameters = re.sub(rb"\bint64_t (?=\w)", b"_spy_A ", parameters)
        elif self.moves:
            parameters = re.sub(rb"^(\w+) \* (\w+)", rb"_spy_P<\1> \2", parameters)
            first, comma, others = parameters.partition(b",")
            parameters = first + comma + _typed(others)
        else:
            parameters = _typed(parameters)
        for line in _every(lines):
            if line.text == b"for(;;)" and (counter := _counter(line)):
                self.uniform.add(counter)
        for counter in self.uniform:
            if not _plain(lines, counter):
                raise NotUnderstood
        early = any(line.text.startswith(b"return") for line in _every(lines[:-1]))
        early = early or any(
            line.text.startswith(b"return") for line in _every((lines[-1].block or ()) if lines else ())
        )
        kind = result.strip().replace(b"static ", b"")
        self.early, self.kind = early, kind if self.places else _typed(kind)
        body = self.statements(lines, 0)
        start = b"    _spy_Mask _ret(false);\n" if early else b""
        end = b""
        if early and self.kind != b"void":
            start += b"    %b _result;\n" % self.kind
            end = b"    return _result;\n"
        comma = b", " if parameters.strip() else b""
        head = b"SPY_INLINE %b %b(_spy_Mask _m%b%b)" % (self.kind, self.name, comma, parameters)
        return b"%b\n{\n%b%b%b}\n" % (head, start, body, end)

    def statements(self, lines: Sequence[Line], level: int, in_loop: bool = False) -> bytes:
        """Return the second form of lines; ``in_loop`` says whether they are all of a loop."""
        out, at = [], 0
        while at < len(lines):
            line = lines[at]
            if in_loop and (kept := _exit(lines, at)):
                condition = self.calls.sub(rb"\1(_m, ", line.text[3:-1])
                out.append(b"    _m = _m & %b_spy_Mask(%b);\n" % (b"" if kept == 2 else b"~", condition))
                out.append(b"    if (!_spy_any(_m))\n        break;\n")
                at += kept
                continue
            after = lines[at + 1] if at + 1 < len(lines) else Line(b"")
            if line.text.startswith(b"if(") and line.block is not None:
                otherwise = after.block if after.text == b"else" else None
                out.append(self.branch(line.text[3:-1], line.block, otherwise or (), level))
                at += 1 + (otherwise is not None)
                continue
            if line.text == b"for(;;)" and line.block is not None:
                out.append(self.loop(line, level, _last_used(lines, at)))
            elif line.block is not None:
                raise NotUnderstood
            else:
                out.append(self.statement(line.text, level))
            at += 1
        return b"".join(out)

    def fresh(self) -> int:
        self.count += 1
        return self.count

    def branch(self, condition: bytes, yes: Sequence[Line], no: Sequence[Line], level: int) -> bytes:
        n = self.fresh()
        condition = self.calls.sub(rb"\1(_m, ", condition)
        out = [b"    const _spy_Mask _o%d = _m, _c%d = _spy_Mask(%b);\n" % (n, n, condition)]
        leaves = any(_leaves(line) for line in (*yes, *no))
        for lines, mask in ((yes, b"_o%d & _c%d" % (n, n)), (no, b"_o%d & ~_c%d" % (n, n))):
            if not lines and not leaves:
                continue
            out.append(b"    _m = %b;\n" % mask)
            code = self.statements(lines, self.fresh())
            dear = self.length(lines) > _CHEAP
            out.append(b"    if (_spy_any(_m))\n    {\n%b    }\n" % code if dear else b"    {\n%b    }\n" % code)
            if leaves and lines is yes:
                out.append(b"    const _spy_Mask _l%d = _m;\n" % n)
        out.append(b"    _m = _m | _l%d;\n" % n if leaves else b"    _m = _o%d;\n" % n)
        return b"".join(out)

    def length(self, lines: Sequence[Line]) -> int:
        """Return how many lines these are with all that they call; more than ``_CHEAP`` for one with a loop."""
        total = 0
        for line in _every(lines):
            total += 1 + sum(self.lengths[name] for name in self.calls.findall(line.text))
            total += _CHEAP if line.text == b"for(;;)" and not _counter(line) else 0
        return total

    def loop(self, line: Line, level: int, inner: Iterable[bytes]) -> bytes:
        block = line.block or ()
        if _counter(line):
            steps = self.statements(block[2:], level)
            return b"    for (;;)\n    {\n    if (!(%b))\n        break;\n%b    }\n" % (block[0].text[3:-1], steps)
        n, inside = self.fresh(), self.fresh()
        # Nobody reads what an element that has left the loop would have in these.
        self.levels.update(dict.fromkeys(inner, inside))
        body = self.statements(block, inside, in_loop=True)
        after = b"    _m = _i%d & ~_ret;\n" % n if self.early else b"    _m = _i%d;\n" % n
        # A break in the loop's own block ends it at once where it was the last; one further inside does not.
        own = {k + more for k in range(len(block)) for more in range(_exit(block, k))}
        further = any(_leaves(line) for k, line in enumerate(block) if k not in own)
        end = b"    if (!_spy_any(_m))\n        break;\n" if further else b""
        return b"    const _spy_Mask _i%d = _m;\n    for (;;)\n    {\n%b%b    }\n%b" % (n, body, end, after)

    def statement(self, text: bytes, level: int) -> bytes:
        if text == b"break;":
            return b"    _m = _spy_Mask(false);\n"
        if text.startswith(b"return"):
            value = self.calls.sub(rb"\1(_m, ", _typed(text[len(b"return") : -1].strip()))
            if not self.early:
                return b"    return %b;\n" % value if value else b""
            given = b"    _spy_set(_m, _result, %b);\n" % value if value else b""
            return given + b"    _ret = _ret | _m;\n    _m = _spy_Mask(false);\n"
        if b"kernelContext_" in text.partition(b" = ")[0] and b" = " in text:
            if not self.element:
                raise NotUnderstood  # a global variable has one value for all elements here
            return b"    %b\n" % text
        declared = _DECLARED.match(text)
        if declared and not text.startswith((b"return ", b"*")):
            kind, name, value = declared.groups()
            self.levels[name] = level
            if name in self.uniform:
                return b"    %b\n" % text
            place = kind.strip().endswith(b"*") or kind.strip() == b"int64_t"
            place = place and (self.element or self.places)
            kind = b"auto " if place else _typed(kind)
            if value is None:
                return b"    %b%b;\n" % (kind, name)
            return b"    %b%b = %b;\n" % (kind, name, self.calls.sub(rb"\1(_m, ", _typed(value)))
        assigned = _ASSIGNED.match(text)
        if assigned is None:
            return b"    %b\n" % self.calls.sub(rb"\1(_m, ", _typed(text))
        to, value = assigned[1], self.calls.sub(rb"\1(_m, ", _typed(assigned[2]))
        base = re.match(rb"(?:\(&(\w+)\)->|(\w+)(?=$|[.\[]))", to)
        name = (base[1] or base[2]) if base else b""
        if name in self.uniform:
            return b"    %b\n" % text
        if name and self.levels.get(name) == level:
            return b"    %b = %b;\n" % (to, value)
        return b"    _spy_set(_m, %b, %b);\n" % (to, value)

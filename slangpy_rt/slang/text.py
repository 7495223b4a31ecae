"""Reads facts from a module's text that Slang's reflection does not have, and rewrites the text for the compiler.

These facts are comments, semantics of kernels' parameters, ``[numthreads]`` attributes and ``uniform`` variables. Of
Slang's grammar only brackets and the heads of declarations are parsed; text that is not recognized is not changed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from slangpy_rt.slang.brackets import matching
from slangpy_rt.slang.core_functions import may_declare, ranked
from slangpy_rt.slang.parameter_blocks import uniform_edits
from slangpy_rt.slang.source_map import SourceMap
from slangpy_rt.slang.static_numbers import NUMBERS, bare_statics
from slangpy_rt.slang.tokens import prefixed

THREADS = "_spy_group"  # The name is as long as "numthreads", so that diagnostics keep their columns.
STAGE = "_spy_stage"  # ``_spy_stage(12)`` is no longer than the shortest attribute it replaces, ``shader("miss")``.
STAGES = (
    *("vertex", "fragment", "pixel", "hull", "domain", "geometry", "mesh", "amplification", "raygeneration"),
    *("intersection", "anyhit", "closesthit", "miss", "callable", "dispatch", "task"),
)
RESERVED = "_spy_"
# Slang 2026.12 reflects fields of these structs as global variables.
_FIELDS = " ".join(f"int {RESERVED}{axis};" for axis in "xyz")
_ATTRIBUTE = f"\n[__AttributeUsage(_AttributeTargets.Function)] struct {THREADS}Attribute {{ {_FIELDS} }};\n"
_STAGE_ATTRIBUTE = (
    f"\n[__AttributeUsage(_AttributeTargets.Function)] struct {STAGE}Attribute {{ int {RESERVED}x; }};\n"
)
ZERO = f"{RESERVED}zero"
# Formats whose static variables are zero without an initial value. In C++ Slang drops initial values, and in HLSL it
# writes wrong ones for arrays.
_ZEROED = ("cpp", "hlsl")
# ``{}`` is not always zeros: a field of a struct gets the default value that its declaration gives. CUDA has no
# functions that return arrays, so arrays are filled element by element.
_ZERO_TEXT = prefixed(
    f"""
T {ZERO}<T>()
{{
    __target_switch
    {{
    case spirv: return spirv_asm {{ result:$$T = OpConstantNull }};
    default: __intrinsic_asm "$TR{{}}";
    }}
}}
Array<T, N> {ZERO}s<T, let N : int>()
{{
    Array<T, N> made;
    for (int k = 0; k < N; ++k)
        made[k] = {ZERO}<T>();
    return made;
}}
Array<Array<T, M>, N> {ZERO}s<T, let N : int, let M : int>()
{{
    Array<Array<T, M>, N> made;
    for (int k = 0; k < N; ++k)
        made[k] = {ZERO}s<T, M>();
    return made;
}}
""",
    "T N M made k",
)
_RESERVED = re.compile(rf"\b{RESERVED}\w*")
# Matches a comment or a string, to its end or to that of the text.
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:\\.|[^"\\\n])*"', re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_SCOPE = re.compile(
    r"\b(?:struct|class|interface|extension|namespace|enum(?:\s+class)?)\b\s*(?:<[^{}]*?>\s*)?([\w.:]+)"
)
_SEMANTIC = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*:\s*(SV_\w+)", re.I)
_SEMANTICS = {
    name.lower(): name for name in ("SV_DispatchThreadID", "SV_GroupID", "SV_GroupIndex", "SV_GroupThreadID")
}
_UNIFORM = re.compile(r"(?:(?:public|internal)\s+)?uniform\s+([^=:({]+)")
_NUMBERS_LAST = re.compile(rf"{NUMBERS}\s*(?:\[[^\]]*\]\s*)*$")
# Matches a type and the sizes of its arrays: ``S<int>`` and ``[2][3]`` of ``uniform S<int>[2][3]``.
_TYPE_LAST = re.compile(r"([\w.:]+\s*(?:<.*>)?)\s*((?:\[[^\]]*\]\s*)*)$", re.S)
_SIZE = re.compile(r"\[([^\]]+)\]")
_RESOURCE = re.compile(r"Buffer|Texture|Sampler|ParameterBlock|Image|AccelerationStructure|DescriptorHandle")
_SHADER = re.compile(r'shader\s*\(\s*"(\w+)"\s*\)', re.S)
# ``[patchconstantfunc("f")]`` makes a hull shader of a function even without the attribute ``shader``.
_DROPPED = re.compile(r'shader\s*\(\s*"compute"\s*\)|patchconstantfunc\s*\(.*\)', re.S)
VARIABLE_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")
# The search for the closing bracket of an attribute ends after this many characters.
_LONGEST_ATTRIBUTE = 1000
_OPEN, _CLOSE = "([{", ")]}"
_CHAINED = re.compile(r"[()\[\]{}?;,]|\b(?:if|else|for|while|switch)\b")


@dataclass(frozen=True)
class Prepared:
    """A module's text as the compiler gets it; every line keeps its number.

    Attributes
    ----------
    source : SourceMap
        The text, in which compute kernels are ordinary functions and global uniforms are static variables.
    semantics : dict of str to dict
        System values, such as ``"SV_GroupID"``, of kernels' parameters, by kernel and parameter.
    uniforms : tuple of str
        Qualified names of the former uniforms, ``"ns.gain"``. All their bits are zero until a kernel sets them.
    """

    source: SourceMap
    semantics: dict[str, dict[str, str]]
    uniforms: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text of `source`."""
        return self.source.text


def prepare(text: str, form: str) -> Prepared:
    """Rewrite a module's text so that a generated kernel that imports it can call its kernels and set its uniforms.

    Entry points become functions, whose group size and stage are kept in attributes: ``[numthreads(8, 8, 1)]``
    becomes ``[_spy_group(8, 8, 1)]``. Slang 2026.12 ends the process when a function calls an entry point, refuses to
    load a module for C++ if a kernel in it has a barrier, and ends the process if it has a miss shader.

    Uniforms become static variables, of which each thread has its own, and which the generated kernel sets, because
    the place of a uniform in memory differs by target. They, and static numbers without an initial value, begin as
    zeros.

    Parameters
    ----------
    text : str
        The module's text.
    form : str
        The format of target code: ``"spirv"``, ``"cuda"`` and so on.

    Returns
    -------
    Prepared
        The new text, the semantics of kernels, and the names of uniforms.
    """
    source = SourceMap.of(text)
    if "ParameterBlock" in text or "ConstantBuffer" in text:
        source = source.edited(uniform_edits(text, blank(text)))
        text = source.text
    code = blank(text)
    edits, semantics = _kernel_edits(code, text)
    declared = bool(edits)
    uniforms: list[str] = []
    # A module that it imports may declare such a function too, so the name has a checksum of the text.
    function = f"{ZERO}_{zlib.crc32(text.encode()):08x}"
    bare = {m.end() - 1: m.start() for m in bare_statics(code)} if "static" in code else {}
    for path, start, end in declarations(code) if "uniform" in code or bare else ():
        at = code.find("uniform", start, end)
        uniform = _UNIFORM.fullmatch(code[start:end]) and not _RESOURCE.search(_type_of(code, at, end))
        if uniform:
            edits.append((at, at + len("uniform"), "static "))
        elif end in bare:
            at = bare.pop(end)
        else:
            continue
        space = path.rpartition(".")[0]
        for name, behind in _declarators(code, at, end):
            if uniform:
                uniforms.append(f"{space}.{name}" if space else name)
            if form not in _ZEROED:
                edits.append((behind, behind, f" = {_zero(code, at, end, behind).replace(ZERO, function)}"))
    # The statics that remain in ``bare`` are inside functions, where ``declarations`` does not look.
    for end, at in bare.items() if form not in _ZEROED else ():
        for _, behind in _declarators(code, at, end):
            edits.append((behind, behind, f" = {_zero(code, at, end, behind).replace(ZERO, function)}"))
    edits += [e for head in declarations(code) if may_declare(code) and (e := ranked(text, code, *head))]
    source = source.edited(edits)
    added = ""
    for mark, attribute in ((THREADS, _ATTRIBUTE), (STAGE, _STAGE_ATTRIBUTE)) if declared else ():
        added += attribute if f"{mark}(" in source.text else ""
    added += _ZERO_TEXT.replace(ZERO, function) if any(function in new for _, _, new in edits) else ""
    if added:
        source = source.edited([(len(source.text), len(source.text), added)])
    return Prepared(source, semantics, tuple(uniforms))


def entry_attributes(text: str) -> tuple[bool, bool]:
    """Return whether a text has attributes ``shader`` or ``numthreads``, and whether it has these names elsewhere."""
    code = blank(text) if "shader" in text or "numthreads" in text else ""
    places = list(_brackets(code))
    names = [match.start() for match in re.finditer(r"\b(?:shader|numthreads|patchconstantfunc)\b", code)]
    return bool(places), any(not any(start < at < end for start, end in places) for at in names)


def entries_elsewhere(text: str, others: Iterable[str]) -> set[str]:
    """Return the names of kernels and shaders in the texts `others`, except names that `text` declares itself."""
    found = set()
    for other in others:
        code = blank(other) if "shader" in other or "numthreads" in other else ""
        found |= {_declared(code, end)[0] for _, end in _brackets(code)}
    return found - declared(text) if found else found


def undefining(defines: tuple[tuple[str, str], ...]) -> str:
    """Return ``#undef`` lines for macros, and ``#line 1``, so that the next line is numbered 1; empty without any."""
    lines = "".join(f"#undef {name.partition('(')[0]}\n" for name, _ in defines)
    return lines + "#line 1\n" if defines else ""


def reserved(text: str) -> str:
    """Return the first name in a text, macros included, that begins with ``_spy_``; empty if there is none."""
    if RESERVED not in text:
        return ""
    found = _RESERVED.search(_NOT_CODE.sub(_spaces, text))
    return found[0] if found else ""


def prints_in(text: str) -> bool:
    """Return whether user code has the name ``printf`` outside comments, strings and preprocessor lines."""
    return "printf" in text and re.search(r"\bprintf\b", blank(text)) is not None


def declared(text: str) -> set[str]:
    """Return the unqualified names that a text declares outside functions, those of members included."""
    return {name.rpartition(".")[2] for name, _, _ in declarations(blank(text))}


def docs(text: str) -> dict[str, list[str]]:
    """Return the documentation comments of declarations by name (``"ns.Disk.area"``), each a list in source order."""
    notes = [(m.start(), m.end(), m[0]) for m in _NOT_CODE.finditer(text) if m[0].startswith(("///", "/**"))]
    out: dict[str, list[str]] = {}
    for name, start, end in declarations(blank(text)):
        out.setdefault(name, []).append(_comment(text, notes, start, end))
    return out


def without_comments(text: str) -> str:
    """Return a text with comments and strings replaced by spaces; offsets stay the same."""
    return _NOT_CODE.sub(_spaces, text)


def blank(text: str) -> str:
    """Return a text with comments, strings and preprocessor lines replaced by spaces; offsets stay the same."""
    return _DIRECTIVE.sub(_spaces, without_comments(text))


def _spaces(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def deepest(code: str) -> int:
    """Return the greatest depth of nested brackets in a text: 2 for ``f(a[i])``."""
    depth = most = 0
    for match in re.finditer(r"[()\[\]{}]", code):
        depth += 1 if match[0] in _OPEN else -1
        most = max(most, depth)
    return most


def longest_chain(code: str) -> tuple[int, int]:
    """Return the greatest depth of statements and conditions nested without brackets, and the line where it begins.

    It is 2 for ``if (a) if (b) ...``, ``if (a) ...; else if (b) ...;``, similar loops, and ``a ? b : c ? d : e``.
    """
    most = line = 0
    # For each open bracket: the chain's length, the offset of its first part, the length before the last semicolon.
    levels = [(0, 0, 0)]
    for match in _CHAINED.finditer(code):
        part = match[0]
        count, first, before = levels[-1]
        if part in _OPEN:
            levels.append((0, 0, 0))
        elif part in _CLOSE:
            if len(levels) > 1:
                levels.pop()
            if part == "}":
                levels[-1] = (0, levels[-1][1], levels[-1][0])
        elif part in ";,":
            levels[-1] = (0, first, count)
        else:
            count = before if part == "else" else count + 1
            first = match.start() if count == 1 and part != "else" else first
            levels[-1] = (count, first, 0)
            if count > most:
                most, line = count, first
    return most, code.count("\n", 0, line) + 1


def _kernel_edits(code: str, text: str) -> tuple[list[tuple[int, int, str]], dict[str, dict[str, str]]]:
    """Return edits of kernels' attributes, each as two offsets and a new text, and the semantics of the kernels."""
    edits: list[tuple[int, int, str]] = []
    semantics: dict[str, dict[str, str]] = {}
    places = list(_brackets(code))
    # Mesh shaders have [numthreads] too, but are no compute kernels.
    graphics = {_declared(code, end)[0] for start, end in places if _stages(text[start:end])}
    for start, end in places:
        name, params = _declared(code, end)
        parts = [p.strip() for p in _parts(code[start + 1 : end - 1], text[start + 1 : end - 1])]
        kept = [_own_attribute(p) for p in parts if not _DROPPED.fullmatch(p)]
        if name in graphics:
            kept = [p for p in kept if not p.startswith(THREADS)]
        if kept == parts:
            continue
        new = f"[{', '.join(kept)}]" if kept else re.sub(r"[^\n]", " ", text[start:end])
        edits.append((start, end, new + "\n" * (text.count("\n", start, end) - new.count("\n"))))
        if any(part.startswith(THREADS) for part in kept):
            found = {m[1]: _SEMANTICS.get(m[2].lower(), m[2]) for m in _SEMANTIC.finditer(params)}
            semantics.setdefault(name, {}).update(found)
    return edits, semantics


def _brackets(code: str) -> Iterator[tuple[int, int]]:
    """Yield start and end offset of every attribute list ``[...]`` that makes a function an entry point."""
    for match in re.finditer(r"\[[^\[\]]*\b(?:numthreads|shader|patchconstantfunc)\b", code):
        end = matching(code, match.start(), match.start() + _LONGEST_ATTRIBUTE)
        if end:
            yield match.start(), end


def _stages(attributes: str) -> list[int]:
    """Return the graphics and ray tracing stages in an attribute list, as positions in ``STAGES``."""
    return [STAGES.index(name) for name in _SHADER.findall(attributes) if name in STAGES]


def _own_attribute(part: str) -> str:
    if _SHADER.fullmatch(part) and (stages := _stages(part)):
        return f"{STAGE}({stages[0]})".ljust(len(part))
    match = re.fullmatch(r"numthreads\s*\((.*)\)", part, re.S)
    if match is None:
        return part
    count = len(_parts(match[1], match[1]))
    return f"{THREADS}({match[1]}{', 1' * (3 - count)})"


def _declared(code: str, at: int) -> tuple[str, str]:
    """Return the name and the parameter list of the function whose attributes end at an offset."""
    while match := re.compile(r"\s*\[").match(code, at):
        at = matching(code, match.end() - 1) or len(code)
    found = re.compile(r"(\w+)\s*\(").search(code, at)
    if found is None:
        return "", ""
    return found[1], code[found.end() : (matching(code, found.end() - 1) or len(code)) - 1]


def declarations(code: str) -> Iterator[tuple[str, int, int]]:
    """Yield the qualified name of every declaration outside function bodies, and the offsets of its head.

    The head is the text up to the brace or semicolon: ``struct Disk`` of ``struct Disk { ... }``.
    """
    scopes: list[str] = []
    start = at = 0
    while at < len(code):
        letter = code[at]
        if letter in "([":
            at = matching(code, at) or len(code)
            continue
        if letter in "{;}":
            head = code[start:at]
            lead = start + len(head) - len(head.lstrip())
            scope = _SCOPE.search(head)
            name = scope[1].replace("::", ".") if scope else _name(head)
            if name and letter != "}" and not head.lstrip().startswith(("extension", "namespace")):
                yield ".".join([*scopes, name]), lead, at
            if letter == "{" and scope and not scope[0].startswith("enum"):
                scopes.append(name)
            elif letter == "{":
                at = (matching(code, at) or len(code)) - 1
            elif letter == "}" and scopes:
                scopes.pop()
            start = at + 1
        at += 1


def _name(head: str) -> str:
    """Return the name of the function or variable that a head declares."""
    head = re.sub(r"\[[^\[\]]*\]", " ", head).partition("=")[0]
    while (bare := re.sub(r"<[^<>]*>", " ", head)) != head:
        head = bare
    match = re.search(r"(\w+)\s*\(", head) or re.search(r"(\w+)\s*(?:[:,].*)?$", head.rstrip(), re.S)
    return match[1] if match else ""


def _comment(text: str, notes: list[tuple[int, int, str]], start: int, end: int) -> str:
    """Return the comments inside a declaration's head, or else directly above it, without ``///`` or ``/**``."""
    found = [note for at, _, note in notes if start <= at < end]
    for at, stop, note in reversed(notes) if not found else ():
        gap = text[stop:start]
        if stop > start:
            continue
        if gap.strip() or gap.count("\n") > 1 or (found and not note.startswith("///")):
            break
        own_line = not text[text.rfind("\n", 0, at) + 1 : at].strip()
        if not own_line:
            break
        found.insert(0, note)
        start = at
        if not note.startswith("///"):
            break
    lines = [line for note in found for line in _lines(note)]
    return "\n".join(lines).strip("\n")


def _lines(note: str) -> list[str]:
    if note.startswith("///"):
        return [note[3:].removeprefix(" ").rstrip()]
    body = note[3:].removesuffix("*/").split("\n")
    return [re.sub(r"^\s*\* ?", "", line).rstrip() if at else line.strip() for at, line in enumerate(body)]


def _parts(code: str, text: str) -> list[str]:
    """Split `text` at commas outside brackets, which are found in `code`, the same text with comments blanked."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(code):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _declarators(code: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Yield each variable of a declaration and the offset after it: ``a`` and ``b`` of ``Pair<x, y>[3] a, b[2]``."""
    depth = 0
    for at in range(start, end + 1):
        depth += (code[at] in "[<") - (code[at] in "]>")
        if at == end or (code[at] == "," and depth == 0):
            name = VARIABLE_NAME.search(code[start:at])
            if name:  # a declaration without a name is an error that Slang reports
                yield name[1], at
            start = at + 1


def _zero(code: str, start: int, end: int, behind: int) -> str:
    """Return the initial value that sets all bits of a variable to zero; its declarator ends at `behind`.

    It is ``{}`` for ``float a``, ``_spy_zero<S>()`` for ``S a`` and ``_spy_zeros<S, (2)>()`` for ``S a[2]``.
    """
    type_ = _type_of(code, start, end)
    found = None if _NUMBERS_LAST.search(type_) else _TYPE_LAST.search(type_)
    own = VARIABLE_NAME.search(code[start:behind])
    if found is None or own is None:
        return "{}"
    sizes = [_SIZE.findall(own[0]), _SIZE.findall(found[2])]
    if not any(sizes):
        return f"{ZERO}<{found[1].strip()}>()"
    counts = ", ".join(f"({size})" for size in sizes[0] + sizes[1])
    # ``S[2] a[3]``, ``S[2][3] a`` and ``S a[2][3][4]`` are rare, and are not supported here.
    rare = all(sizes) or len(sizes[1]) > 1 or len(sizes[0]) > 2
    return "{}" if rare else f"{ZERO}s<{found[1].strip()}, {counts}>()"


def _type_of(code: str, start: int, end: int) -> str:
    """Return the text of a declaration before the first variable's name: its modifiers and type."""
    first = code[start : next((behind for _, behind in _declarators(code, start, end)), end)]
    return VARIABLE_NAME.sub("", first)

"""What is read from a module's text because Slang's reflection does not tell it.

Comments, the semantics of a kernel's parameters, where ``[numthreads]`` stands and what is ``uniform``. It parses no
more of Slang than brackets, and what it does not recognize it leaves alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

THREADS = "_spy_group"  # as long as "numthreads", so that diagnostics keep their columns
STAGE = "_spy_stage"  # no longer than the shortest attribute that it takes the place of
STAGES = (
    *("vertex", "fragment", "pixel", "hull", "domain", "geometry", "mesh", "amplification", "raygeneration"),
    *("intersection", "anyhit", "closesthit", "miss", "callable", "dispatch"),
)
_ATTRIBUTE = (
    f"\n[__AttributeUsage(_AttributeTargets.Function)] struct {THREADS}Attribute {{ int x; int y; int z; }};\n"
)
_STAGE_ATTRIBUTE = f"\n[__AttributeUsage(_AttributeTargets.Function)] struct {STAGE}Attribute {{ int x; }};\n"

RESERVED = "_spy_"
_RESERVED = re.compile(rf"\b{RESERVED}\w*")
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
_RESOURCE = re.compile(r"Buffer|Texture|Sampler|ParameterBlock|Image|AccelerationStructure|DescriptorHandle")
_STATIC = re.compile(r"\bstatic\s+(?!const\b)[\w.:]+(?:<[^;={}()]*>)?\s+(\w+)\s*[=;\[]")
_SHADER = re.compile(r'shader\s*\(\s*"(\w+)"\s*\)', re.S)
_OPEN, _CLOSE = "([{", ")]}"


@dataclass(frozen=True)
class Prepared:
    """A module's text as the compiler gets it, every line where it was.

    Attributes
    ----------
    text : str
        Compute kernels are ordinary functions in it, and global uniforms static variables.
    semantics : dict
        System values of kernels' parameters, by kernel and parameter.
    uniforms : tuple of str
        Those variables, ``"ns.gain"``, all bits zero until they are set.
    """

    text: str
    semantics: dict[str, dict[str, str]]
    uniforms: tuple[str, ...]


def prepare(text: str) -> Prepared:
    """Make what only Slang's own runtime could start or fill callable and fillable by a kernel that imports it.

    Slang 2026.12 ends the process when one function calls another that is an entry point, and it refuses to load a
    module for C++ when a kernel in it has a barrier, or ends the process where it has a miss shader: attributes of
    our own carry the group's size and the stage instead, and no function is an entry point. Where a uniform lies
    differs by target; a static variable is set by whoever calls, and is the thread's own.
    """
    code = blank(text)
    edits, semantics = _kernel_edits(code, text)
    declared = bool(edits)
    uniforms: list[str] = []
    for path, start, end in _declarations(code) if "uniform" in code else ():
        match = _UNIFORM.fullmatch(code[start:end])
        if match and not _RESOURCE.search(_type_of(code, code.index("uniform", start), end)):
            space = path.rpartition(".")[0]
            at = code.index("uniform", start)
            edits.append((at, at + len("uniform"), "static "))
            for name, behind in _declarators(code, at, end):
                uniforms.append(f"{space}.{name}" if space else name)
                edits.append((behind, behind, " = {}"))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    for mark, attribute in ((THREADS, _ATTRIBUTE), (STAGE, _STAGE_ATTRIBUTE)) if declared else ():
        text += attribute if f"{mark}(" in text else ""
    return Prepared(text, semantics, tuple(uniforms))


def reserved(text: str) -> str:
    """The first name in a text that begins with ``_spy_``, a macro's included; empty if there is none."""
    if RESERVED not in text:
        return ""
    found = _RESERVED.search(_NOT_CODE.sub(_spaces, text))
    return found[0] if found else ""


def declared(text: str) -> set[str]:
    """Names of what a text declares outside functions; of members too."""
    return {name.rpartition(".")[2] for name, _, _ in _declarations(blank(text))}


def local_statics(text: str) -> list[str]:
    """Names of static variables inside functions, of which reflection does not tell."""
    code = blank(text)
    outer = [(start, end) for _, start, end in _declarations(code)] if "static" in code else []
    return [m[1] for m in _STATIC.finditer(code) if not any(start <= m.start() < end for start, end in outer)]


def docs(text: str) -> dict[str, list[str]]:
    """Comments above declarations by name, such as ``"ns.Disk.area"``, one entry each in source order."""
    notes = [(m.start(), m.end(), m[0]) for m in _NOT_CODE.finditer(text) if m[0].startswith(("///", "/**"))]
    out: dict[str, list[str]] = {}
    for name, start, end in _declarations(blank(text)):
        out.setdefault(name, []).append(_comment(text, notes, start, end))
    return out


def blank(text: str) -> str:
    """The text with comments, strings and preprocessor lines as spaces; every place keeps its offset."""
    return _DIRECTIVE.sub(_spaces, _NOT_CODE.sub(_spaces, text))


def _spaces(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def deepest(code: str) -> int:
    """How deep brackets stand in each other."""
    depth = most = 0
    for match in re.finditer(r"[()\[\]{}]", code):
        depth += 1 if match[0] in _OPEN else -1
        most = max(most, depth)
    return most


def _kernel_edits(code: str, text: str) -> tuple[list[tuple[int, int, str]], dict[str, dict[str, str]]]:
    """Replacements of kernels' attributes, as first and last offset and text, and the semantics beside them."""
    edits: list[tuple[int, int, str]] = []
    semantics: dict[str, dict[str, str]] = {}
    places = list(_brackets(code))
    # Mesh shaders have [numthreads] too.
    graphics = {_declared(code, end)[0] for start, end in places if _stages(text[start:end])}
    for start, end in places:
        name, params = _declared(code, end)
        parts = [p.strip() for p in _parts(code[start + 1 : end - 1], text[start + 1 : end - 1])]
        kept = [_own_attribute(p) for p in parts if not re.fullmatch(r'shader\s*\(\s*"compute"\s*\)', p)]
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
    """Every outermost ``[...]`` that can hold attributes."""
    for match in re.finditer(r"\[[^\[\]]*\b(?:numthreads|shader)\b", code):
        end = _matching(code, match.start())
        if end:
            yield match.start(), end


def _stages(attributes: str) -> list[int]:
    """Numbers of the stages of graphics and ray tracing that attributes name."""
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
    """Name and parameter list of the function whose attributes end at an offset."""
    while match := re.compile(r"\s*\[").match(code, at):
        at = _matching(code, match.end() - 1) or len(code)
    found = re.compile(r"(\w+)\s*\(").search(code, at)
    if found is None:
        return "", ""
    return found[1], code[found.end() : (_matching(code, found.end() - 1) or len(code)) - 1]


def _declarations(code: str) -> Iterator[tuple[str, int, int]]:
    """Qualified name, first and last offset of the head of every declaration outside function bodies."""
    scopes: list[str] = []
    start = at = 0
    while at < len(code):
        letter = code[at]
        if letter in "([":
            at = _matching(code, at) or len(code)
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
                at = (_matching(code, at) or len(code)) - 1
            elif letter == "}" and scopes:
                scopes.pop()
            start = at + 1
        at += 1


def _name(head: str) -> str:
    """What a declaration without a scope of its own names: a function or a variable."""
    head = re.sub(r"\[[^\[\]]*\]", " ", head).partition("=")[0]
    while (bare := re.sub(r"<[^<>]*>", " ", head)) != head:
        head = bare
    match = re.search(r"(\w+)\s*\(", head) or re.search(r"(\w+)\s*(?:[:,].*)?$", head.rstrip(), re.S)
    return match[1] if match else ""


def _comment(text: str, notes: list[tuple[int, int, str]], start: int, end: int) -> str:
    """The comment inside a declaration's head, else those directly above it, without their marks."""
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
    """Text split where the code has a comma outside brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(code):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _declarators(code: str, start: int, end: int) -> Iterator[tuple[str, int]]:
    """Each variable of a declaration and the offset behind it: ``a`` and ``b[2]`` of ``Pair<x, y> a, b[2]``."""
    depth = 0
    for at in range(start, end + 1):
        depth += (code[at] in "[<") - (code[at] in "]>")
        if at == end or (code[at] == "," and depth == 0):
            words = re.findall(r"\w+", code[start:at].partition("[")[0])
            if words:  # else it is no declaration, and Slang will say so
                yield words[-1], at
            start = at + 1


def _type_of(code: str, start: int, end: int) -> str:
    """The type of what a declaration declares: its text up to the first variable's name."""
    first = code[start : next((behind for _, behind in _declarators(code, start, end)), end)]
    return re.sub(r"\w+\s*(?:\[[^\]]*\]\s*)*$", "", first.rstrip())


def _matching(code: str, at: int) -> int:
    """The offset behind the bracket that closes the one at an offset; 0 if none does."""
    depth = 0
    for match in re.compile(r"[()\[\]{}]").finditer(code, at):
        depth += 1 if match[0] in _OPEN else -1
        if depth == 0:
            return match.end()
    return 0

"""Write docs/reference/slang.md: every public name that a user's Slang file can import, with its comment.

    python codegen/tools/slang_reference.py

It reads ``shaders/*.slang``, replaces ``#include`` and calls of the files' own macros by their text, and lists the
declarations that are ``public``, with the lines of ``///`` in front of them. It is no parser of Slang: it knows
comments, brackets and where a declaration ends, which is all that these files need. Comments in front of a macro's
call count for what the call declares.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHADERS = ROOT / "shaders"
PAGE = ROOT / "docs" / "reference" / "slang.md"

# A section for each module, and what a reader has to know first.
MODULES = {
    "slangpy_rt": "Parameters of these types take whole arrays; [calling functions](../functions.md#arguments) says "
    "which arrays. `IElement` and `IGradient` are constraints for generic parameters.",
    "slangpy": "The names of [SlangPy](../from-slangpy.md), for text that was written for it. It also imports "
    "`slangpy_rt`.",
    "mlp": "Layers, encodings, losses and steps of optimizers for [neural networks](../mlp.md). It also imports "
    "`slangpy_rt`.",
    "matmul": "Products of matrices in [kernels of your own](../matmul.md#products-in-kernels-of-yours). It also "
    "imports `slangpy_rt`.",
    "sampling": "Pictures in Tensors that are [sampled as textures are](../graphics.md#pictures-to-sample). It also "
    "imports `slangpy_rt`.",
    "cubes": "Six pictures around a place, [sampled by directions](../graphics.md#pictures-to-sample). It also "
    "imports `slangpy_rt`.",
    "fragments": "Points of triangles with [derivatives along the picture](../graphics.md#levels-of-detail).",
    "rays": "Rays against the triangles of a [scene](../graphics.md#rays). It also imports `slangpy_rt`.",
    "slangtorch": "What [files of slang-torch](../slang-torch.md) find without an import. The kernels and attributes "
    "are listed there.",
}
# Of slangtorch: names that the loader puts in the place of Slang's own (slangpy_rt/slangtorch/kernel_text.py).
_RENAMED = ("_spy_TensorView", "_spy_DiffTensorView", "_spy_AtomicAdd", "_spy_TorchTensor")
# Members that mean the same in each type that has them. Macros declare most of them, in which a comment that ends
# with its line cannot stand. A comment in front of the declaration takes precedence.
_ALIKE = {
    "texels": "The texels, row after row of the largest level, then of the others.",
    "levels": "How many levels there are.",
    "wrap": "What lies beside a picture, for columns and for rows: 0 it again, 1 its mirror image, 2 its outermost "
    "texels, 3 nothing.",
    "filter": "0 for the nearest texel, 1 for a mixture of four.",
    "sample": "The color at a place, (0, 0) being the corner of the first texel: of the largest level, of another, "
    "or between two. That of a cube is in a direction.",
    "shape": "The number of elements of each dimension.",
    "load": "Returns an element; its index has a number for each dimension.",
    "store": "Writes an element; its index has a number for each dimension.",
    "loadOnce": "As `load`, for elements that one thread loads at most once: gradients are added without atomics.",
    "loadUniform": "As `load`, for one element that all threads of a group load: their gradients are added up first.",
    "[]": "The element with this index: a number for each dimension, an array of them, or a vector, last one first.",
    "storeOnce": "As `store`, for elements that one thread stores at most once.",
    "add": "Adds to an element, as one step for all threads; returns what it was.",
    "min": "Replaces an element by the lesser of it and the value, as one step; returns what it was.",
    "max": "Replaces an element by the larger of it and the value, as one step; returns what it was.",
    "exchange": "Replaces an element, as one step; returns what it was.",
    "compareExchange": "Replaces an element that equals `expected`, as one step; returns what it was.",
    "and": "Replaces an element by the bits that it and the value have, as one step; returns what it was.",
    "or": "Replaces an element by the bits that it or the value has, as one step; returns what it was.",
    "xor": "Replaces an element by the bits that one of it and the value has, as one step; returns what it was.",
    "getCount": "Returns the number of elements.",
    "GetDimensions": "Writes the number of elements, and where there are elements the bytes of each.",
    "Load": "Returns an element, or of a byte address buffer the value that begins at this byte.",
    "Load2": "Returns two 32-bit numbers that begin at this byte; Load3 and Load4 return three and four.",
    "Store": "Writes an element, or in a byte address buffer a value that begins at this byte.",
    "Store2": "Writes two 32-bit numbers that begin at this byte; Store3 and Store4 write three and four.",
    "weights": "A matrix of the shape (inputs, outputs).",
    "run": "Returns the outputs for one vector of inputs.",
    "apply": "Returns the value of the function; it has a derivative.",
    "encode": "Returns the inputs of a network for a position.",
    "dims": "Returns the number of dimensions.",
    "size": "Returns the number of elements of a dimension.",
    "stride": "Returns the bytes from one element to the next in a dimension.",
    "data_ptr_at": "Returns the address of an element; devices without addresses have none.",
    **{
        f"Interlocked{name}": f"Replaces an element by {what}, as one step for all threads; `before` is the old one."
        for name, what in {
            "Add": "its sum with a value",
            "Exchange": "a value",
            "Min": "the smaller of it and a value",
            "Max": "the larger of it and a value",
            "And": "its bits that a value has too",
            "Or": "its bits and those of a value",
            "Xor": "the bits that only one of it and a value has",
        }.items()
    },
}
# What others explain, or what a comment of a neighbour explains.
_WITHOUT = ("__init", "Load3", "Load4", "Store3", "Store4", "dim", "bias", "table", "parameters", "primal", "diff")
# Members for the generated code: those with addresses, and derivatives by hand. docs/atomics.md has elements of
# Atomic<T>, and the functions of Slang's core module that are here too.
_INTERNAL = re.compile(
    r"\b_spy_AtomicElement|associatedtype _spy_Element|__ref "
    r"|\bu?int64_t|uint handle|^public static (DifferentialPair<float> forward|void backward)\(|_(forward|backward)<"
)
# The forms of an index, of which only the first is listed.
_INDEX = re.compile(
    r"\((?:u?int [ijklm]\b(?:, u?int [ijklm]\b)*|u?int[234]? (?:index\b(?:\[N\])?|xyz?\b)|vector<uint, N> index)"
)
# Members of interfaces need no ``public``.
_SCOPES = ("struct", "interface", "extension")
_TOKEN = re.compile(r"///[^\n]*|//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|[{};]|[^\s{};/\"]+|/|\s+", re.DOTALL)


@dataclass
class Declaration:
    """A public declaration: its text up to the body, its comment, and the public ones inside of it."""

    text: str
    comment: str
    members: list[Declaration] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The declared name; ``[]`` for subscripts and ``__init`` for constructors."""
        if "__subscript" in self.text:
            return "[]"
        if found := re.match(r"(?:public )?(?:struct|interface|extension|typealias|property) (\w+)", self.text):
            return found[1]
        before = re.sub(r"<[^<>]*>", "", re.split(r"[(=]", re.sub(r"<[^<>()]*>", "", self.text))[0])
        words: list[str] = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", before))
        return words[-1]

    @property
    def scope(self) -> bool:
        """Whether it has members."""
        return bool(re.search(rf"\b({'|'.join(_SCOPES)})\b", self.text.split("<")[0].split("(")[0]))


def read(name: str) -> list[Declaration]:
    """Return the public declarations of a module in the order of its text."""
    text = _expanded(_included(SHADERS / f"{name}.slang"))
    tokens = [
        token for token in _TOKEN.findall(text) if token.startswith("///") or not token.startswith(("//", "/*"))
    ]
    declarations, _ = _declarations(tokens, 0, False)
    return declarations


def page() -> str:
    """Return the text of the page."""
    parts = [
        "# Slang modules",
        "<!-- written by codegen/tools/slang_reference.py from shaders/*.slang -->",
        "What a Slang file of yours can import. Names that begin with `_spy_`, and members with addresses, are for "
        "generated kernels and not listed. Of members that differ only in the form of an index the first is listed. "
        "An index is as many numbers as there are dimensions, an array of them, or a vector; it begins with the "
        "last dimension, but in `slangtorch` with the first.",
    ]
    for module, about in MODULES.items():
        parts += [f"## {module}", about if module == "slangtorch" else f"`import {module};`\n\n{about}"]
        for found in read(module):
            parts += _lines(found)
    return "\n\n".join(parts) + "\n"


def _lines(found: Declaration) -> list[str]:
    members = {_INDEX.sub("(index", m.text.replace("<let N : int>", "")): m for m in reversed(found.members)}
    shown = [_shown(found.text), *(f"    {_shown(m.text)}" for m in found.members if m in members.values())]
    notes = {f"- `{_shown(m.name)}`: {m.comment}": None for m in found.members if m.comment}
    parts = [f"### {_shown(found.name)}", found.comment, "```slang\n" + "\n".join(shown) + "\n```"]
    return [part for part in [*parts, "\n".join(notes)] if part]


def _shown(text: str) -> str:
    """Leave out what is of no use to a reader: constraints of the package, and the word ``public``."""
    text = re.sub(r"\bpublic |[:,] _spy_IWritable\b", "", text)
    text = re.sub(r" where .*", "", text)
    return re.sub(r"\b_spy_(?!IPrintable)", "", text)


def _included(path: Path, seen: frozenset[str] = frozenset()) -> str:
    """Return a file's text with the files that it includes; of both branches of ``#ifdef`` the last."""

    def file(found: re.Match[str]) -> str:
        return _included(SHADERS / found[1], seen | {found[1]}) if found[1] not in seen else ""

    text = re.sub(r'^#include "(.*)"$', file, path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return re.sub(r"^#ifdef .*?^#else$(.*?)^#endif$", r"\1", text, flags=re.MULTILINE | re.DOTALL)


def _expanded(text: str) -> str:
    """Return a text in which calls of its macros are replaced by what they stand for."""
    macros: dict[str, tuple[list[str] | None, str]] = {}
    kept = []
    for line in text.replace("\\\n", " ").split("\n"):
        defined = re.match(r"\s*#define (\w+)(\([\w, .]*\))?\s*(.*)", line)
        if defined:
            parameters = None if defined[2] is None else [p.strip() for p in defined[2][1:-1].split(",")]
            macros[defined[1]] = (parameters, defined[3])
        elif not line.startswith("#"):
            kept.append(line)
    text = "\n".join(kept)
    names = re.compile(rf"\b({'|'.join(macros)})\b") if macros else None
    at = 0
    while names is not None and (found := names.search(text, at)):
        parameters, body = macros[found[1]]
        end = found.end()
        if text.rfind("//", text.rfind("\n", 0, found.start()) + 1, found.start()) >= 0:
            at = end
            continue
        if parameters is not None:
            arguments, end = _arguments(text, end)
            if arguments is None:
                at = end
                continue
            if parameters[-1:] == ["..."]:
                last = len(parameters) - 1
                arguments[last:] = [", ".join(arguments[last:])]
                parameters = [*parameters[:last], "__VA_ARGS__"]
            values = dict(zip(parameters, arguments, strict=False))
            body = re.sub(r"\w+", lambda word, values=values: values.get(word[0], word[0]), body)  # type: ignore[misc]
        text = text[: found.start()] + re.sub(r"\s*##\s*", "", body) + text[end:]
        at = found.start()
    return text


def _arguments(text: str, at: int) -> tuple[list[str] | None, int]:
    """Return the arguments of a macro's call and where it ends; None where there is no call."""
    if text[at : at + 1] != "(":
        return None, at
    depth, parts, start = 0, [], at + 1
    for end in range(at, len(text)):
        depth += (text[end] in "([{") - (text[end] in ")]}")
        if (text[end] == "," and depth == 1) or depth == 0:
            parts.append(text[start:end].strip())
            start = end + 1
        if depth == 0:
            return parts, end + 1
    raise ValueError(f"a macro's call does not end: {text[at : at + 80]}")


def _declarations(tokens: list[str], at: int, all_are_public: bool) -> tuple[list[Declaration], int]:
    """Return the public declarations from a token on, and the place behind the bracket that ends their scope."""
    found: list[Declaration] = []
    # What all types of an interface have, by the interface's name.
    shared: dict[str, list[Declaration]] = {}
    comment: list[str] = []
    words: list[str] = []
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token.startswith("///"):
            if not words:
                comment.append(token[3:].strip())
            continue
        if token not in ("{", "}", ";"):
            if token.strip() or words:
                words.append(token)
            continue
        text = _signature("".join(words))
        declared = Declaration(text, " ".join(comment))
        members: list[Declaration] = []
        if token == "{":
            if declared.scope:
                members, at = _declarations(tokens, at, bool(re.match(r"(public )?interface", text)))
            else:
                body = at
                at = _behind(tokens, at)
                if "__subscript" in text or re.match(r"public property", text):
                    declared.text += " { get; set; }" if "set" in tokens[body:at] else " { get; }"
        extended = re.match(r"public extension\S* (?:[^>]*> )?(\w+)<", text)
        if extended and (own := next((d for d in found if d.name == extended[1]), None)):
            own.members += members
        elif every := re.match(r"public extension<(\w+) : (\w+)> \1$", text):
            shared[every[2]] = [_of_each(member, every[1]) for member in members]
        elif text and _public(declared, all_are_public):
            declared.comment = declared.comment or _ALIKE.get(declared.name, "")
            fulfilled = [name for name in shared if re.search(rf" : .*\b{name}\b", text)]
            declared.members = members + [member for name in fulfilled for member in shared[name]]
            found.append(declared)
        comment, words = [], []
        if token == "}":
            break
    return found, at


def _of_each(member: Declaration, name: str) -> Declaration:
    """Return a member of an extension of all types of an interface as each of them, with `T` and `N`, has it."""
    text = member.text.replace(f"{name}._spy_Element", "T").replace(f"{name}._spy_rank", "N")
    return Declaration(text, member.comment)


def _public(declared: Declaration, all_are_public: bool) -> bool:
    """Tell whether users may write a declaration's name. Conformances of built-in types are no names."""
    if not (declared.text.startswith("public ") or all_are_public) or "extension" in declared.text.split("(")[0]:
        return False
    if " operator " in declared.text:
        return False
    return declared.name in _RENAMED or not (declared.name.startswith("_spy_") or _INTERNAL.search(declared.text))


def without_comment() -> list[str]:
    """Return the listed declarations that have no comment, by module and name."""
    missing = []
    for module in MODULES:
        for found in read(module):
            missing += [f"{module}.{found.name}"] if not found.comment else []
            commented = {m.name for m in found.members if m.comment}
            names = [m.name for m in found.members if m.name not in commented and m.name not in _WITHOUT]
            missing += [f"{module}.{found.name}.{name}" for name in dict.fromkeys(names)]
    return missing


def _signature(text: str) -> str:
    """Return a declaration on one line, without attributes, initial values and semantics."""
    text = re.sub(r"\s+", " ", text).strip()
    while text.startswith("["):
        depth = 0
        for end, letter in enumerate(text):
            depth += (letter == "[") - (letter == "]")
            if depth == 0:
                text = text[end + 1 :].strip()
                break
        else:
            return text
    if not re.match(r"public (struct|interface)\b", text) and "(" not in text.split("=")[0]:
        text = text.split("=")[0].strip()
    text = re.sub(r"__implicit_conversion\(\d+\) ", "", text)
    if text.startswith("__init"):
        text = text.replace("__init", "public __init", 1)
    return text.replace("( ", "(").replace("< ", "<").replace("->", " -> ").replace(")  ->", ") ->")


def _behind(tokens: list[str], at: int) -> int:
    depth = 1
    while depth:
        depth += (tokens[at] == "{") - (tokens[at] == "}")
        at += 1
    return at


def main() -> int:
    """Write the page."""
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

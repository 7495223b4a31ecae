"""Slang texts of the tests, and mutations that keep them near to what a compiler expects. Nothing is a test."""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path

_TOKEN = re.compile(
    r'\s+|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|[A-Za-z_]\w*|\d[\w.]*|::|->|[-+*/%<>=!&|^]=|&&|\|\||<<|>>|.', re.S
)
_CODE = re.compile(r"\w[\w<>, *\d]* \w+(?:<[^{}]*>)?\([^{}]*\)\s*\{[^{}]*;")
# Python, C++, templates of text, and what needs files.
_OTHER = re.compile(r"\bdef |\{\{|\0|@\w|#include|std::|__global__|(?:import|include)\s+(?!slangpy_rt;|mlp;)")
_ATTRIBUTES = (
    *("[Differentiable]", "[BackwardDifferentiable]", "[ForwardDifferentiable]", "[mutating]", "[ForceInline]"),
    *("[numthreads(4, 1, 1)]", '[shader("compute")]', '[shader("vertex")]', '[shader("miss")]', "[noinline]"),
    *("[TreatAsDifferentiable]", "[unroll]", "[PreferRecompute]", "[require(spirv)]", "[__NoSideEffect]", "[open]"),
    *("[Specialize]", "[anyValueSize(8)]", "[DerivativeMember(x)]", "[BackwardDerivative(f)]", "[sealed]"),
)
_TYPES = (
    *("float", "int", "uint", "bool", "half", "double", "float3", "int4", "float2x3", "void", "float[4]", "float*"),
    *("IFloat", "IDifferentiable", "Tensor<float, 2>", "DifferentialPair<float>", "Optional<int>", "String", "This"),
    *(
        "Texture2D",
        "StructuredBuffer<float>",
        "Tuple<int, float>",
        "float[]",
        "uint64_t",
        "Ptr<int>",
        "T",
        "Atomic<int>",
    ),
    *(
        "DiffTensor<float, 1>",
        "RWTensor<float, 1>",
        "vector<T, N>",
        "let",
        "some IFloat",
        "dyn IFloat",
        "ParameterBlock<S>",
    ),
)
_WORDS = (
    *(
        "extern",
        "export",
        "static",
        "const",
        "uniform",
        "no_diff",
        "inout",
        "out",
        "groupshared",
        "public",
        "private",
    ),
    *("struct", "interface", "extension", "enum", "namespace", "typealias", "associatedtype", "property", "operator"),
    *(
        "__init",
        "__subscript",
        "import",
        "__include",
        "module",
        "implementing",
        "this",
        "This",
        "fwd_diff",
        "bwd_diff",
    ),
    *("where", "each", "expand", "defer", "discard", "sizeof", "is", "as", "none", "nullptr", "override", "param"),
)
_SNIPPETS = (
    "extern struct Undefined : IFloat;",
    "interface IUndefined { associatedtype A : IUndefined; This.A f(); }",
    "struct Self { Self inner; }",
    "typealias Loop = Loop;",
    "static const int endless = endless + 1;",
    "float recursive(float x) { return recursive(x); }",
    "__generic<T> struct Own : T { }",
    "extension<T : IDifferentiable> T { float more() { return 1; } }",
    "enum Empty { }",
    "struct Pack<each T> { expand each T values; }",
    "[Differentiable] float own(float x) { return bwd_diff(own)(x); }",
    "uniform struct { float inner; } unnamed;",
    "cbuffer Block { float4 member; }",
)


def seeds() -> list[str]:
    """Every string in the tests that looks like a Slang module, in a fixed order."""
    found: dict[str, None] = {}
    for path in sorted(Path(__file__).parent.rglob("test_*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                text = node.value
                if _CODE.search(text) and not _OTHER.search(text) and text.count("{") == text.count("}"):
                    found[text] = None
    return list(found)


def mutated(text: str, pick: random.Random) -> str:
    """A text with one to three mutations."""
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        text = pick.choice(_MUTATIONS)(text, pick)
    return text


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _places(tokens: list[str], pick: random.Random, pattern: str = r"\S") -> int:
    found = [at for at, token in enumerate(tokens) if re.match(pattern, token)]
    return pick.choice(found) if found else 0


def _swap(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    a, b = _places(tokens, pick), _places(tokens, pick)
    tokens[a], tokens[b] = tokens[b], tokens[a]
    return "".join(tokens)


def _swap_words(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    a, b = _places(tokens, pick, r"[A-Za-z_]"), _places(tokens, pick, r"[A-Za-z_]")
    tokens[a], tokens[b] = tokens[b], tokens[a]
    return "".join(tokens)


def _delete(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    at = _places(tokens, pick)
    return "".join(tokens[:at] + tokens[at + pick.choice((1, 1, 2, 5)) :])


def _duplicate(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    at = _places(tokens, pick)
    part = tokens[at : at + pick.choice((1, 3, 8))]
    return "".join(tokens[:at] + part * pick.choice((2, 2, 3)) + tokens[at + len(part) :])


def _nest(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    at = _places(tokens, pick, r"[A-Za-z_\d]")
    depth = pick.choice((1, 3, 30))
    before, behind = pick.choice(
        (("(", ")"), ("{", "}"), ("-", ""), ("[", "]"), ("Optional<", ">"), ("", "[2]"), ("!", ""))
    )
    tokens[at] = before * depth + tokens[at] + behind * depth
    return "".join(tokens)


def _attribute(text: str, pick: random.Random) -> str:
    found = [m.start() for m in re.finditer(r"^[ \t]*[A-Za-z_\[]", text, re.M)] or [0]
    at = pick.choice(found)
    return f"{text[:at]}{pick.choice(_ATTRIBUTES)} {text[at:]}"


def _type(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    at = _places(tokens, pick, r"(?:float|int|uint|bool|double|half|T|[A-Z]\w*)\d*$")
    tokens[at] = pick.choice(_TYPES)
    return "".join(tokens)


def _word(text: str, pick: random.Random) -> str:
    tokens = _tokens(text)
    tokens.insert(_places(tokens, pick), f" {pick.choice(_WORDS)} ")
    return "".join(tokens)


def _declarations(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if depth == 0 and letter in ";}":
            parts.append(text[start : at + 1])
            start = at + 1
    return [*parts, text[start:]]


def _move(text: str, pick: random.Random) -> str:
    parts = _declarations(text)
    part = parts.pop(pick.randrange(len(parts)))
    parts.insert(pick.randrange(len(parts) + 1), part)
    return "".join(parts)


def _move_inside(text: str, pick: random.Random) -> str:
    parts = _declarations(text)
    part = parts.pop(pick.randrange(len(parts)))
    rest = "".join(parts)
    braces = [m.end() for m in re.finditer(r"\{", rest)] or [0]
    at = pick.choice(braces)
    return f"{rest[:at]}\n{part}\n{rest[at:]}"


def _insert(text: str, pick: random.Random) -> str:
    parts = _declarations(text)
    parts.insert(pick.randrange(len(parts) + 1), f"\n{pick.choice(_SNIPPETS)}\n")
    return "".join(parts)


def _other_name(text: str, pick: random.Random) -> str:
    names = sorted(set(re.findall(r"\b[A-Za-z_]\w*", text))) or ["x"]
    old, new = pick.choice(names), pick.choice([*names, "float", "Tensor", "this", "kernel"])
    return re.sub(rf"\b{old}\b", new, text)


_MUTATIONS = (
    *(
        _swap,
        _swap_words,
        _delete,
        _duplicate,
        _nest,
        _attribute,
        _attribute,
        _type,
        _type,
        _word,
        _move,
        _move_inside,
    ),
    *(_insert, _other_name),
)

"""Reads the imports between the modules of slangpy_rt, and draws the packages of docs/architecture.md from them.

    python codegen/tools/import_graph.py             prints packages, arrows, arrows that point up, and circles
    python codegen/tools/import_graph.py --write     writes the drawing into docs/architecture.md

Imports at the top of a file, inside of functions and for type checkers count alike: each is a dependency.
``tests/test_imports.py`` calls the same functions.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
# From the lowest floor up; packages of one floor do not import each other. A package is a folder of slangpy_rt, or
# the public Device, which is one file; "slangpy_rt" are the files above all packages.
FLOORS = (
    ("core", "lanes"),
    ("slang", "backends"),
    ("runtime",),
    ("arrays",),
    ("textures",),
    ("arguments",),
    ("tuning",),
    ("calls",),
    ("device", "arithmetic"),
    ("graphics",),
    ("interop",),
    ("slangtorch", "linalg", "optim"),
    ("slangpy_rt",),
    ("demo",),
    ("tools",),
    ("__main__",),
)
FLOOR = {package: number for number, floor in enumerate(FLOORS) for package in floor}
_BEGIN, _END = "<!-- drawn by codegen/tools/import_graph.py -->", "<!-- end of the drawing -->"


class Import(NamedTuple):
    """One name that a file imports.

    Attributes
    ----------
    source, target : str
        Full names of modules.
    name : str
        The name that is imported from the target; empty if the module itself is imported.
    kind : str
        ``"top"``, ``"late"`` (inside of a function) or ``"type"`` (for type checkers only).
    line : int
        Line of the source file, from 1.
    """

    source: str
    target: str
    name: str
    kind: str
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line} imports {self.name or 'all'} of {self.target} ({self.kind})"


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the modules of slangpy_rt and the code generator: full names, and their files."""
    return {
        ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
        for base in (root, root / "codegen")
        for path in sorted(base.glob("slangpy_rt*/**/*.py"))
    }


def imports(name: str, files: dict[str, Path]) -> Iterator[Import]:
    """Yield the imports of a module, of this project and of others, anywhere in the file."""
    yield from _imports(ast.parse(files[name].read_text(encoding="utf-8")), "top", name, files)


def package_of(module: str) -> str:
    """Return the package of a module of slangpy_rt, as FLOORS names it; ``codegen`` for the code generator."""
    if module.startswith("slangpy_rt_codegen"):
        return "codegen"
    parts = module.split(".")
    if len(parts) > 1 and parts[1] in FLOOR:
        return parts[1]
    return "slangpy_rt"


def upward(found: Iterable[Import]) -> list[Import]:
    """Return the imports from a package of the same floor or one above."""
    return [
        each
        for each in found
        if {package_of(each.source), package_of(each.target)} <= set(FLOOR)
        and package_of(each.source) != package_of(each.target)
        and FLOOR[package_of(each.source)] <= FLOOR[package_of(each.target)]
    ]


def private(found: Iterable[Import]) -> list[Import]:
    """Return the imports of a private name or module of another package."""
    return [
        each
        for each in found
        if package_of(each.source) != package_of(each.target)
        and (each.name.startswith("_") or each.target.rpartition(".")[2].startswith("_"))
        and each.target not in ("slangpy_rt._former_paths", "__future__")
        and each.target.startswith("slangpy_rt")
    ]


def circles(found: Iterable[Import]) -> list[list[str]]:
    """Return the sets of modules that import each other, directly or through others, largest first."""
    below: dict[str, set[str]] = {}
    for each in found:
        if each.source != each.target:
            below.setdefault(each.source, set()).add(each.target)
    reached = {name: _reached(name, below) for name in below}
    groups = {frozenset(other for other in reached[name] if name in reached.get(other, ())) for name in below} - {
        frozenset()
    }
    return sorted((sorted(group) for group in groups), key=lambda group: (-len(group), group))


def own_imports(files: dict[str, Path]) -> list[Import]:
    """Return all imports of one module of the project by another."""
    return [each for name in files for each in imports(name, files) if each.target in files]


def drawing(found: Iterable[Import]) -> str:
    """Return the packages and their arrows as a Mermaid diagram, without arrows that a longer path implies."""
    arrows = Counter((package_of(each.source), package_of(each.target)) for each in found)
    direct: dict[str, set[str]] = {}
    for source, target in arrows:
        if source != target:
            direct.setdefault(source, set()).add(target)
    lines = ["```mermaid", "flowchart TD"]
    named = [*(package for floor in reversed(FLOORS[:-1]) for package in floor), "codegen"]
    lines += [f'    {package}["{package}"]' for package in named]
    for package in named:
        others = direct.get(package, set())
        for other in sorted(others, key=named.index):
            if not any(other in _reached(third, direct) for third in others - {other}):
                lines.append(f"    {package} --> {other}")
    return "\n".join([*lines, "```"])


def page(text: str, found: Iterable[Import]) -> str:
    """Return the page's text with a new drawing between its two marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{drawing(found)}\n{_END}{after}"


def main(arguments: list[str]) -> int:
    """Print the figures, or write the drawing; the status is 1 if an arrow points up or there is a circle."""
    files = modules()
    found = own_imports(files)
    if "--write" in arguments:
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
    up, round_trips, taken = upward(found), circles(found), private(found)
    inside = Counter(package_of(name) for name in files)
    print(f"{len(files)} modules, {len(found)} imports, {len(FLOORS)} floors")
    for floor in reversed(FLOORS):
        print("  " + ", ".join(f"{package} ({inside[package]})" for package in floor))
    for title, lines in (
        ("arrows that point up", [str(each) for each in up]),
        ("circles", [" - ".join(group) for group in round_trips]),
        ("private names of other packages", [str(each) for each in taken]),
    ):
        print(f"{title}: {len(lines)}")
        print("".join(f"  {line}\n" for line in lines), end="")
    return 1 if up or round_trips or taken else 0


def _imports(node: ast.AST, kind: str, name: str, files: dict[str, Path]) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        inner = kind
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            inner = "type"
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and kind == "top":
            inner = "late"
        if isinstance(child, ast.Import):
            yield from (Import(name, alias.name, "", kind, child.lineno) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            if child.level or not child.module:
                raise ValueError(f"{name}:{child.lineno}: a relative import")
            for alias in child.names:
                # `from package import module` imports the module.
                full = f"{child.module}.{alias.name}"
                if full in files:
                    yield Import(name, full, "", kind, child.lineno)
                else:
                    yield Import(name, child.module, alias.name, kind, child.lineno)
        yield from _imports(child, inner, name, files)


def _reached(name: str, below: dict[str, set[str]]) -> set[str]:
    """Return the names that can be reached from a name by one arrow or more."""
    seen: set[str] = set()
    left = list(below.get(name, ()))
    while left:
        other = left.pop()
        if other not in seen:
            seen.add(other)
            left += below.get(other, ())
    return seen


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Stubs: what mypy makes of them, and that the calls which they allow are calls which run."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.types import EntryPoint, Field, FunctionSig, ModuleInfo, Param, SlangType, StructInfo
from slangpy_rt.tools.stubs import HEADER, stub_text
from tests.depth import deep

ROOT = Path(__file__).resolve().parents[2]
SLANG = """
import slangpy_rt;
float add(float a, float b) { return a + b; }
float add(float a, float b, float c) { return a + b + c; }
float scale(float x, float by = 2) { return x * by; }
float lambda(float pass, int k) { return pass * k; }
float name(float self, float _result) { return self; }
float str(float x) { return x; }
float overload(float3 spy, bool Any) { return spy.x; }
float _private(float x) { return x; }
namespace noise { float perlin(float x) { return x; } }
void fill(out float3 x, int2 at) { x = at.x; }
float pick(Tensor<float, 2> t, RWTensor<float, 1> o, int2 at, float w[4]) { return t[at] + w[0]; }
T twice<T : IFloat>(T x) { return x + x; }
float length_of<let N : int>(vector<float, N> v) { return v[0]; }
struct Circle
{
    float radius;
    float area() { return radius * radius; }
    float distance(float2 from, float in_ = 0) { return from.x - radius; }
    [mutating] void grow(float by) { radius += by; }
    static float is(float x) { return x; }
    static Circle unit() { return { 1 }; }
}
struct Box<T> { T inside; }
enum Kind { Round, Square }
enum class Level : uint8_t { low = 3, high, real }
enum Odd { name, mro, type, value }
float type(Odd x) { return x == Odd.type ? 1 : 0; }
namespace inks { enum Ink { red, blue }; }
struct Pair { float a; int b = 2; int dict() { return b; } static int name(int x) { return x; } }
struct Ring { float r; __init(float r) { this.r = r; } __init(float r, float by) { this.r = r * by; } }
float measure(Circle c, Kind k) { return c.radius; }
float grade(Kind k, Level level) { return k == Kind.Square ? 2 : 1; }
float around(Circle c, float x) { return c.radius * x; }
T sum<T : __BuiltinArithmeticType>(T x, T y) { return x + y; }
vector<T, 2> both<T : __BuiltinArithmeticType>(T x) { return vector<T, 2>(x, x); }
T converted<T : IFloat>(float x) { return T(0.0); }
int count(float x) { return int(x); }
float either(float x) { return x; }
int either(int x) { return x; }
float3 blend(float3 a, float t) { return a * t; }
Circle circle(float r) { return { r }; }
Kind kind(float x) { return Kind.Round; }
Tuple<float, int> parts(float x) { return makeTuple(frac(x), int(floor(x))); }
Optional<float> root(float x) { if (x < 0) return none; return sqrt(x); }
Tuple<float3, Optional<int>> inner(float x) { Optional<int> none_ = none; return makeTuple(float3(x), none_); }
Optional<Tuple<float, bool>> outer(float x) { return makeTuple(x, true); }
float shifted(float x, Optional<float> by) { return by.hasValue ? x + by.value : x; }
[shader("compute")] [numthreads(8, 1, 1)] void kernel(uint3 id : SV_DispatchThreadID) {}
"""
BEGIN = """\
from typing import TYPE_CHECKING, cast
import numpy as np
import slangpy_rt as spy
if TYPE_CHECKING:
    from example import ExampleModule
device = spy.Device("null")
m = cast("ExampleModule", spy.Module.load_from_file(device, "example.slang"))
"""
RUNS = """\
m.add(1, 2.0)
m.add(np.zeros(3), np.float32(2))
m.add(a=[1.0, 2.0], b=True, c=3)
m.add(spy.Tensor(device), 1, _result=spy.Tensor(device))
m.add(1, np.ones(2), out=np.zeros(2, np.float32))
m.add.call(1, 2).real
m.add.explain(1, 2).upper()
m["lambda"](1, 2)
m["noise.perlin"](1)
m.str(1)
m.overload((1, 2, 3), Any=True)
m.fill(spy.Tensor(device, "float3", (2, 3)), spy.grid((2, 3)))
m.fill(x=np.zeros((4, 3), np.float32), at=[1, 2])
m.pick(np.zeros((2, 2)), spy.NDBuffer(device, "float", 2), 1, (1, 2, 3, 4))
m.name.upper()
m.device.synchronize()
"""
# Further calls that a stub has to allow, whatever this version runs.
ALLOWED = """\
m.scale(1)
m.scale(x=1, by=2)
m.add.call(1, 2, 3)
m.twice(spy.Tensor(device))
m["twice<float>"](1)
m.length_of([1, 2])
m.Circle(radius=1)
m.Circle.area({"radius": 1})
m.Circle.distance({"radius": 1}, np.zeros(2))
m.Circle.distance({"radius": 1}, 1.0, in_=2)
m["name"](1, 2)
m["_private"](0.5)
m["Circle.is"](1)
m.Circle.unit()
m["Circle"].fields
m.Pair.dict(m.Pair(1))
m["Pair.name"](1)
m.Pair["dict"](m.Pair(1))
m.Pair.name.upper()
m.Ring(1, by=2)["r"]
m.Ring(np.zeros(3), 1).shape
m.measure(object(), "Round")
m.grade(1, 3)
m.grade("Square", m.Level.high)
m.grade([0, 1], spy.Tensor(device, m.Kind, 2))
m.Kind.Round.value
m["Kind"]
m["inks.Ink"].red.name
m.type("mro")
m.type(m.Odd.type)
m["Box<float>"](1)["inside"]
m.converted(1)
m.sum(spy.float3(1), 2)
m.shifted(1, None)
m.shifted(1, 2.0)
m.shifted(1, spy.Tensor(device))
m.root(2.0) or 1.0
m.parts(2.0)[0].real
m.root(np.zeros(3)).has_value.any()
m.root(spy.Tensor(device)).value.sum()
m.kernel.name.upper()
def runs(module: spy.Module) -> None: ...
runs(m)
"""
# Types of results.
TYPES = """\
m.add(1, 2.0)                                  # float
m.add(np.float32(1), 2)                        # float
m.add(1, np.zeros(3))                          # npt.NDArray[np.float32]
m.add([1.0, 2.0], 1)                           # npt.NDArray[np.float32]
m.add(1, spy.Tensor(device))                   # spy.Tensor
m.add(np.zeros(3), spy.Tensor(device))         # spy.Tensor
m.add(1, spy.NDBuffer(device, "float", 2))     # spy.NDBuffer
m.add(1, 2, _result="tensor")                  # Any
m.scale(3)                                     # float
m.scale(by=np.zeros(2), x=1)                   # npt.NDArray[np.float32]
m.count([1.0, 2.0])                            # npt.NDArray[np.int32]
m.count(0.5)                                   # int
m.either(1)                                    # Any
m.blend([0, 0, 0], 1)                          # npt.NDArray[np.float32]
m.blend([0, 0, 0], spy.Tensor(device))         # spy.Tensor
m.circle(2)                                    # dict[str, Any]
m.circle([2])                                  # npt.NDArray[Any]
m.measure(object(), "Round")                   # Any
m.kind(1)                                      # int
m.kind([1])                                    # npt.NDArray[np.int32]
m.grade("Round", 4)                            # float
m.grade(m.Kind.Square, m.Level(3))             # float
m.grade([0, 1], m.Level.low)                   # npt.NDArray[np.float32]
m.grade("Square", spy.Tensor(device, m.Level, 2))  # spy.Tensor
m.Circle(1)                                    # dict[str, Any]
m.Circle([1.0, 2.0])                           # npt.NDArray[Any]
m.Circle(radius=spy.Tensor(device))            # spy.Tensor
m.Pair(1)                                      # dict[str, Any]
m.Pair(1, b=np.arange(3))                      # npt.NDArray[Any]
m.Ring(1, 2)                                   # dict[str, Any]
m.Ring(spy.NDBuffer(device, "float", 2))       # spy.NDBuffer
m.Circle.area({"radius": 1})                   # Any
m.Circle.area(np.zeros(2, [("radius", "f4")]))            # npt.NDArray[np.float32]
m.Circle.area(spy.Tensor(device, m.Circle, 2))  # spy.Tensor
m.around({"radius": [1, 2]}, 1)                # Any
m.around(spy.Tensor(device, m.Circle, 2), 1)   # spy.Tensor
m.around(spy.Tensor(device, m.Circle, 2), [1, 2])  # spy.Tensor
m.sum(1, 2)                                    # int
m.sum(1, 2.0)                                  # float
m.sum(np.float32(1), np.float32(1))            # float
m.sum([1, 2], 3)                               # npt.NDArray[Any]
m.sum(spy.Tensor(device), 3.0)                 # spy.Tensor
m.both(1)                                      # npt.NDArray[Any]
m.both(spy.Tensor(device))                     # spy.Tensor
m.length_of([1, 2])                            # Any
m.twice(spy.NDBuffer(device, "float", 2))      # spy.NDBuffer
m.Level(3)                                     # _Level_enum
m["inks.Ink"](1)                               # _inks_Ink_enum
m.parts(1.5)                                   # tuple[float, int]
m.parts(np.zeros(2))                           # tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]
m.parts(spy.Tensor(device))                    # tuple[spy.Tensor, spy.Tensor]
m.root(2)                                      # float | None
m.root(-2)                                     # float | None
m.root(np.zeros(2))                            # _Optionals[npt.NDArray[np.float32], npt.NDArray[np.bool_]]
m.root(spy.NDBuffer(device, "float", 2))       # _Optionals[spy.NDBuffer, spy.NDBuffer]
m.inner(2)                                     # tuple[npt.NDArray[np.float32], int | None]
m.inner(spy.Tensor(device))                    # tuple[spy.Tensor, _Optionals[spy.Tensor, spy.Tensor]]
m.outer(2)                                     # tuple[float, bool] | None
m.shifted(1, None)                             # float
m.shifted(np.zeros(2), None)                   # npt.NDArray[np.float32]
m.shifted(1, spy.Tensor(device))               # spy.Tensor
"""
WRONG = """\
m.nothing(1)                          # attr-defined
m.add(1)                              # call-overload
m.add(1, 2, 3, 4)                     # call-overload
m.add(1, 2, d=3)                      # call-overload
m.add("1", 2)                         # call-overload
m.add.nothing                         # attr-defined
m.add.call(1)                         # call-overload
m.scale()                             # call-overload
m.scale(1, by=2, to=3)                # call-overload
m.scale(1, None)                      # call-overload
m.shifted(1, "a")                     # call-overload
m.root(2.0) + 1                       # operator
m.parts(2.0)[2]                       # misc
m.root([2.0]).mask                    # attr-defined
m["lambda"](1)                        # call-overload
m["name"](1, self_=2)                 # call-overload
m["lambda"](1, 2.5)                   # call-overload
m.fill(1, [1, 2])                     # arg-type
m.pick([[1]], [1], 1, [1])            # arg-type
m.pick(np.zeros(1), np.zeros(1), 1, 1)  # arg-type
x = m.fill(np.zeros(3), 1)            # func-returns-value
m.overload(1, 1)                      # arg-type
m.Circle.area()                       # call-overload
m.Circle(1, 2)                        # call-overload
m.Circle(diameter=1)                  # call-overload
m.Circle("a")                         # call-overload
m.Circle(1) + 1                       # operator
m.Kind.Triangle                       # attr-defined
m.grade("Triangle", 1)                # call-overload
m.grade(1.5, 1)                       # call-overload
m.twice()                             # call-overload
m.sum(1, 2).nothing                   # attr-defined
m.Circle.nothing                      # attr-defined
m.Circle.grow({"radius": 1}, "a")     # arg-type
m.Box                                 # attr-defined
m.str.upper()                         # attr-defined
"""


# The module declares "name", and is told so where it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:module 'example'. it declares name:UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The module with its stub, and a program for each of the texts above."""
    folder = tmp_path_factory.mktemp("stubs")
    (folder / "example.slang").write_text(SLANG)
    with spy.Device("null") as device, pytest.warns(UserWarning, match="declares name, as Module's own members are"):
        info = spy.Module.load_from_file(device, folder / "example.slang").info
    (folder / "example.pyi").write_text(stub_text(info))
    for name, text in (("runs", RUNS), ("allowed", ALLOWED), ("wrong", WRONG), ("types_", TYPES)):
        if name == "types_":
            lines = (re.sub(" *  # ", ", ", line) for line in text.splitlines())
            imports = (
                "from typing import Any\nfrom typing_extensions import assert_type\nimport numpy.typing as npt\n"
                "if TYPE_CHECKING:\n    from example import _inks_Ink_enum, _Level_enum, _Optionals\n"
            )
            text = imports + "".join(f"assert_type({line})\n" for line in lines)
        (folder / f"{name}.py").write_text(BEGIN + text)
    return folder


@pytest.fixture(scope="module")
def complaints(folder: Path, pytestconfig: pytest.Config) -> dict[str, dict[int, str]]:
    """What mypy has to say: codes by line by file."""
    cache = ["--cache-dir", str(pytestconfig.cache.mkdir("mypy"))] if pytestconfig.cache else []
    # In a process of its own: the millions of objects that it leaves make each later collection take seconds.
    environment = os.environ | {"MYPYPATH": os.pathsep.join(map(str, (ROOT, ROOT / "codegen", folder)))}
    files = [str(folder / name) for name in ("example.pyi", "runs.py", "allowed.py", "wrong.py", "types_.py")]
    options = ["--strict", "--config-file=", "--follow-imports=silent", "--hide-error-context", *cache]
    command = [sys.executable, "-m", "mypy", *options, *files]
    said = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert said.stderr == ""
    found: dict[str, dict[int, str]] = {}
    for file, line, code in re.findall(r"(\w+\.pyi?):(\d+): error: .*\[([\w-]+)\]$", said.stdout, re.MULTILINE):
        found.setdefault(file, {})[int(line) - len(BEGIN.splitlines())] = code
    return found


@deep
@pytest.mark.parametrize("file", ["example.pyi", "runs.py", "allowed.py", "types_.py"])
def test_right_use_passes_strict_mypy(complaints: dict[str, dict[int, str]], file: str) -> None:
    assert complaints.get(file, {}) == {}


@deep
def test_wrong_use_is_an_error_each(complaints: dict[str, dict[int, str]]) -> None:
    expected = {k: line.rpartition("# ")[2] for k, line in enumerate(WRONG.splitlines(), 1)}
    assert complaints["wrong.py"] == expected


@deep
@pytest.mark.filterwarnings("ignore:module 'example'")
def test_results_are_of_those_types(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(compile(BEGIN.replace('"null"', '"cpu"'), "begin.py", "exec"), names)
    names |= {"_Level_enum": names["m"].Level, "_inks_Ink_enum": names["m"]["inks.Ink"]}
    for line in TYPES.replace("spy.Tensor(device)", "spy.Tensor(device, 'float', 3)").splitlines():
        call, _, said = line.rpartition("# ")
        if said != "Any":
            assert is_of(eval(call, names), said, names), line


def is_of(value: Any, said: str, names: dict[str, Any]) -> bool:
    """Whether a value is of a type of TYPES."""
    if said.endswith(" | None"):
        return value is None or is_of(value, said.removesuffix(" | None"), names)
    name, _, inside = said.partition("[")
    inside = inside[:-1]
    if name in ("tuple", "_Optionals"):
        # Commas outside of brackets.
        parts = re.findall(r"(?:[^,\[]|\[(?:[^\[\]]|\[[^\]]*\])*\])+", inside)
        fits = isinstance(value, tuple) and hasattr(value, "has_value") == (name == "_Optionals")
        return fits and all(is_of(v, part.strip(), names) for v, part in zip(value, parts, strict=True))
    if name == "npt.NDArray":
        return type(value) is np.ndarray and inside.rstrip("_") in (
            "Any",
            f"np.{value.dtype.type.__name__.rstrip('_')}",
        )
    return type(value) is eval(name, names)


@pytest.mark.filterwarnings("ignore:module 'example'")
def test_what_it_allows_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    exec(compile(BEGIN + RUNS, "runs.py", "exec"), {})


def test_first_line_says_who_wrote_it(folder: Path) -> None:
    assert (folder / "example.pyi").read_text().startswith(HEADER)


FLOAT = SlangType("scalar", "float", "float")
VOID = SlangType("void", "void")


def test_comments_become_docstrings_and_alike_overloads_one() -> None:
    doc = 'Says "hello" in C:\\new.\n\n  - twice\n  - """thrice"""'
    one = FunctionSig("greet", (Param("x", FLOAT),), FLOAT, doc=doc)
    two = FunctionSig("greet", (Param("x", FLOAT),), VOID, doc="The other.")
    three = FunctionSig("greet", (Param("x", FLOAT), Param("y", FLOAT)), VOID)
    tree = ast.parse(stub_text(ModuleInfo("m", (one, two, three))))
    greet = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "_greet_function")
    calls = [n for n in greet.body if isinstance(n, ast.FunctionDef)]
    assert [ast.get_docstring(n) for n in calls] == [
        f"float greet(float x)\n\n{doc}\n\nvoid greet(float x)\n\nThe other.",
        "void greet(float x, float y)",
    ]
    assert [ast.unparse(n.returns) for n in calls if n.returns] == ["Any", "None"]
    assert all([ast.unparse(d) for d in n.decorator_list] == ["overload"] for n in calls)


def test_names_that_meet() -> None:
    # Two functions whose classes would have one name; a function and a struct; a field's docstring.
    sigs = tuple(FunctionSig(name, (), VOID) for name in ("a.b", "a_b", "Pair"))
    struct = SlangType("struct", "Pair")
    text = stub_text(ModuleInfo("my_tools", sigs, (StructInfo(struct), StructInfo(replace(struct, name="Solo")))))
    tree = ast.parse(text)
    classes = [n.name for n in tree.body if isinstance(n, ast.ClassDef)]
    assert len({name for name in classes if "_function" in name}) == 3 and classes[-1] == "MyToolsModule"
    body = tree.body[-1]
    assert isinstance(body, ast.ClassDef)
    assert [n.target.id for n in body.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)] == [
        "a_b",
        "Pair",
        "Solo",
    ]
    (pair,) = [n.annotation for n in body.body if isinstance(n, ast.AnnAssign) and ast.unparse(n.target) == "Pair"]
    assert ast.unparse(pair) == "_Pair_function"


def test_structs_show_their_declaration() -> None:
    fields = (Field("x", FLOAT, "Across."), Field("y", FLOAT))
    info = StructInfo(SlangType("struct", "Pair", fields=fields), doc="Two numbers.")
    tree = ast.parse(stub_text(ModuleInfo("m", structs=(info,))))
    pair = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == "_Pair_struct")
    declaration = "struct Pair\n{\n    /// Across.\n    float x;\n    float y;\n}"
    assert ast.get_docstring(pair) == f"{declaration}\n\nTwo numbers."


def test_modules_without_anything_to_say() -> None:
    ast.parse(stub_text(ModuleInfo("empty")))
    kernel = EntryPoint("main", (), (1, 1, 1))
    assert "    main: spy.Kernel\n" in stub_text(ModuleInfo("empty", entry_points=(kernel,)))


def test_keyword_parameters_cannot_be_passed_by_name() -> None:
    # The second parameter's name is no name in Python: it, and so the first, go by position; the third need not.
    params = (Param("a", FLOAT), Param("from", FLOAT), Param("b", FLOAT))
    tree = ast.parse(stub_text(ModuleInfo("m", (FunctionSig("f", params, FLOAT),))))
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "__call__"]
    for call in calls:
        assert [a.arg for a in call.args.posonlyargs] == ["self", "a", "from_"]
        assert [a.arg for a in call.args.args] == ["b"]
    assert {"_result", "out"} <= {a.arg for a in calls[-1].args.kwonlyargs}

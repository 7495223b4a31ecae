"""Modules: macros, link-time constants, several of them together, and how strict their calls are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.depth import deep, every_device, needs, one_device

# What these test does not depend on the device.
pytestmark = one_device


@deep
def test_defines(device: spy.Device) -> None:
    text = "float f(float x) { return x * FACTOR + (NEGATE ? -1 : 1); }"
    for factor, negate, expected in ((2, False, 7), (5, True, 14)):
        module = spy.Module.load_from_source(device, "defined", text, defines={"FACTOR": factor, "NEGATE": negate})
        assert module.f(3.0) == expected


def test_constants_of_a_module_and_of_a_function(device: spy.Device) -> None:
    text = """
    extern static const int steps;
    extern static const float2 scale = float2(1, 2);
    extern static const bool up = true;
    float f(float x) { return (up ? 1 : -1) * (steps * x + scale.x + scale.y); }
    """
    module = spy.Module.load_from_source(device, "constants", text, constants={"steps": 4})
    assert module.f(10.0) == 43
    other = module.f.constants({"steps": 7, "scale": [10, 20]})
    assert other(10.0) == 100 and other.constants({"up": False})(10.0) == -100
    assert module.f(10.0) == 43
    assert module.f.constants({"steps": 7}) is module.f.constants({"steps": 7})


@every_device
def test_linked_modules(device: spy.Device) -> None:
    below = spy.Module.load_from_source(device, "shapes", "public float area(float r) { return 3 * r * r; }")
    text = "import shapes; extern static const int n; float f(float r) { return area(r) * n; }"
    above = spy.Module.load_from_source(device, "drawing", text, link=[below], constants={"n": 2})
    assert (above.f(np.array([1.0, 2.0])) == [6, 24]).all()
    top = spy.Module.load_from_source(
        device, "top", "import drawing; float g(float r) { return f(r) + 1; }", link=[above]
    )
    assert top.g(1.0) == 7


def test_defines_of_linked_modules(device: spy.Device) -> None:
    text = """
    #ifdef ONLY
    #error a macro of another module
    #endif
    public int k() { return K; }
    public int line() { return __LINE__; }
    """
    below = spy.Module.load_from_source(device, "below", text, defines={"K": 2, "TWICE": "2 * K"})
    other = spy.Module.load_from_source(device, "other", "public int n() { return N; }", defines={"N": "(1 + 2)"})
    text = """
    import below; import other;
    #ifdef TWICE
    #error a macro of a linked module
    #endif
    int f() { return 100 * k() + 10 * n() + K + ONLY; }
    int g() { return line(); }
    """
    above = spy.Module.load_from_source(device, "above", text, defines={"K": 5, "ONLY": 0}, link=[below, other])
    assert (below.k(), above.f(), above.g()) == (2, 235, 6)
    top = spy.Module.load_from_source(device, "top", "import above; int h() { return f(); }", link=[above])
    assert top.h() == 235


def test_defines_that_imported_files_need(backend_name: str, tmp_path: Path) -> None:
    (tmp_path / "part.slang").write_text("// N\npublic int part() { return K; }")
    with spy.Device(backend_name, include_paths=[tmp_path]) as device:
        text = "import part; public int k() { return part() + K + N; }"
        below = spy.Module.load_from_source(device, "below", text, defines={"K": 2, "N": 10})
        assert below.k() == 14
        use = "import below; int f() { return k(); }"
        assert spy.Module.load_from_source(device, "above", use, defines={"K": 2}, link=[below]).f() == 14
        for defines in ({}, {"K": 3, "N": 10}):
            with pytest.raises(spy.BindError) as error:
                spy.Module.load_from_source(device, "above", use, defines=defines, link=[below])
            assert str(error.value) == (
                "module 'above': link has module 'below', which was loaded with defines={'K': '2'} and imports "
                f"'{tmp_path / 'part.slang'}', where Slang uses the macros of the module that is loaded now; give it "
                "the same define."
            )


def test_types_of_linked_text(device: spy.Device) -> None:
    below = spy.Module.load_from_source(device, "pairs", "struct Pair { float first; float second; };")
    text = "import pairs; float sum(Pair p) { return p.first + p.second; }"
    above = spy.Module.load_from_source(device, "adding", text, link=[below])
    assert above.sum({"first": 3.0, "second": 4.0}) == 7


def test_constants_of_linked_text(device: spy.Device) -> None:
    below = spy.Module.load_from_source(
        device, "levels", "extern static const int level; int twice() { return 2 * level; }"
    )
    above = spy.Module.load_from_source(device, "asking", "import levels; int f() { return twice(); }", link=[below])
    with pytest.raises(spy.CompileError, match="the module declares level without a value"):
        above.f()


@needs("pointers")
def test_uniforms_beside_a_kernel(device: spy.Device) -> None:
    """The numbers of threads of a kernel have no names that uniforms meet."""
    text = """
    uniform float x;
    uniform float2 y;
    uniform float z;
    [numthreads(8, 1, 1)] void kernel(uint3 at : SV_DispatchThreadID, uniform Ptr<float> to) { to[at.x] = x + z; }
    float f(float v) { return v * x + y.y + z; }
    """
    module = spy.Module.load_from_source(device, "axes", text)
    assert module.f.set(x=2.0, y=(0.0, 10.0), z=0.5)(3.0) == 16.5
    to = spy.Tensor.zeros(device, 8)
    module.kernel.set(x=1.5, z=2.0).dispatch(8, to)
    np.testing.assert_array_equal(to.to_numpy(), np.full(8, 3.5))


def test_what_one_module_exports_fills_another(device: spy.Device) -> None:
    settings = spy.Module.load_from_source(device, "settings", "export public static const int level = 9;")
    text = "extern static const int level = 1; int f() { return level; }"
    assert spy.Module.load_from_source(device, "alone", text).f() == 1
    assert spy.Module.load_from_source(device, "together", text, link=[settings]).f() == 9


def test_include_paths(backend_name: str, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "helper.slang").write_text("public float twice(float x) { return 2 * x; }")
    with spy.Device(backend_name, include_paths=[tmp_path / "inner"]) as device:
        module = spy.Module.load_from_source(device, "user", "import helper; float f(float x) { return twice(x); }")
        assert module.f(4.0) == 8


def test_strict_broadcasting(device: spy.Device) -> None:
    text = "float add(float a, float b) { return a + b; } float3 scale(float3 v, float s) { return v * s; }"
    module = spy.Module.load_from_source(device, "strict", text, strict_broadcasting=True)
    grid, row = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    assert (module.add(grid, grid) == 2).all()
    assert (module.add(grid, 1.0) == 2).all()
    with pytest.raises(spy.ShapeError) as error:
        module.add(grid, row)
    assert str(error.value) == (
        "float add(float a, float b): 'b' of shape (3,) would be broadcast to (2, 3), which strict_broadcasting "
        "refuses; say how with .map(b=...)."
    )
    assert (module.add.map(b=(1,))(grid, row) == grid + row).all()
    assert (module.scale(grid, 2.0) == 2).all()


def test_link_refuses_another_device(device: spy.Device) -> None:
    with spy.Device("null") as elsewhere:
        other = spy.Module.load_from_source(elsewhere, "other", "public float k() { return 1; }")
        with pytest.raises(spy.BindError, match=r"module 'here': link has .* which is for another device"):
            spy.Module.load_from_source(device, "here", "import other; float f() { return k(); }", link=[other])


def test_types_and_names(device: spy.Device) -> None:
    module = spy.Module.load_from_source(
        device,
        "named",
        "namespace ns { float f(float x) { return x; } }\n"
        "enum Level { low, high = 7 };\n"
        "enum Odd { name, mro, _own_, other };\n"
        "float odd(Odd x) { return int(x); }\n"
        "struct Box { float3 size; float volume() { return size.x * size.y * size.z; } };\n"
        "T same<T>(T x) { return x; }\n",
    )
    assert {"same", "Box", "Level", "Odd"} <= set(dir(module))
    # Names that Python's enums cannot have.
    assert module.odd("mro") == 1 and module.odd(module.Odd.other) == 3 and len(module.Odd) == 2
    assert module["ns.f"](2.0) == 2
    assert module.Level.high == 7 and module.Level.low.name == "low"
    assert module.Box.fields == {"size": "float3"}
    assert module.float3.shape == (3,) and module.float.scalar == "float"
    assert module["same<int>"](3) == 3
    with pytest.raises(spy.BindError, match="has no function or type 'nothing'"):
        module["nothing"]
    with pytest.raises(AttributeError, match="has no function or type 'nothing'"):
        _ = module.nothing
    with pytest.raises(AttributeError):
        _ = module._private


@one_device
@pytest.mark.parametrize(
    "lines", ["import {0}; import {1};", "/* import x; */ import {0};\nimport {1};", "import\n{0} ; import {1}; // "]
)
def test_types_of_imports_in_one_line(device: spy.Device, tmp_path: Path, lines: str) -> None:
    """Kernels know the types of parameters of every imported module, however the imports are laid out."""
    for name in ("first_of_two", "second_of_two"):
        (tmp_path / f"{name}.slang").write_text(f"public struct In_{name} {{ public float x; }}", encoding="utf-8")
    text = lines.format("first_of_two", "second_of_two")
    text += "\nfloat sum(In_first_of_two a, In_second_of_two b) { return a.x + b.x; }"
    (tmp_path / "both.slang").write_text(text, encoding="utf-8")
    module = spy.Module.load_from_file(device, tmp_path / "both.slang")
    assert module.sum({"x": 3.0}, {"x": 4.0}) == 7


def test_types_of_one_name(device: spy.Device) -> None:
    """Two modules may each have an enum or a struct of one name; arrays of them hold what their own module says."""
    texts = {
        "int": "enum Kind : int { A = 3, B = 700 };\nstruct Pair { int x; float y; };",
        "uint": "enum Kind : uint { B = 1, C = 3000000000 };\nstruct Pair { float y; uint x; float z; };",
    }
    if "int16_t" in device.caps.scalars:
        texts["int16_t"] = "enum Kind : int16_t { C = -2, A = 900 };\nstruct Pair { int16_t x; float y; };"
    if "int64_t" in device.caps.scalars:
        texts["int64_t"] = "enum Kind : int64_t { D = 1LL << 40 };\nstruct Pair { float2 y; int64_t x; };"
    functions = """
Kind kind(int64_t n) { return Kind(n); }
int64_t number(Kind k) { return int64_t(k); }
int64_t first(Tensor<Kind, 1> k) { return int64_t(k[0]); }
Pair pair(int n) { Pair p = {}; p.x = n; p.y = n + 1; return p; }
float sum(Pair p) { return p.x + (float)p.y; }
"""
    modules = {
        scalar: spy.Module.load_from_source(
            device,
            f"types_{scalar}",
            text + functions.replace("(float)p.y", "p.y.x" if "float2 y" in text else "p.y"),
        )
        for scalar, text in texts.items()
    }
    kept = []
    for scalar, m in [*modules.items(), *modules.items()]:
        dtype = NUMPY_OF[scalar]
        values = [3, min(np.iinfo(dtype).max, 2**40)]
        given = spy.Tensor.from_numpy(device, np.array(values, dtype), m.Kind)
        made = m.kind(spy.Tensor.from_numpy(device, np.array(values)))
        for kinds in (given, made):
            assert (kinds.layout.numpy_dtype, kinds.dtype) == (dtype, m.Kind.slang_type)
            assert m.number(kinds).tolist() == values and kinds.to_numpy().tolist() == values
        pairs = m.pair(spy.Tensor.from_numpy(device, np.int32([4, 5])))
        assert m.sum(pairs).tolist() == [9, 11] and pairs["x"].dtype.name == scalar
        kept += [given, made, pairs]

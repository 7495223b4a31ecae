"""Hot reload: what is made of a module follows its files, and a broken file breaks nothing for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import every_device, one_device

# What these test does not depend on the device.
pytestmark = one_device

# Longer than a device waits between two looks at a file.
PAUSE = 0.02
Write = Callable[[str], None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the module's file, late enough for the next call to look."""

    def write(text: str) -> None:
        time.sleep(PAUSE)
        (tmp_path / "edited.slang").write_text(text)

    return write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The module's file."""
    return tmp_path / "edited.slang"


@every_device
def test_the_next_call_runs_the_new_text(device: spy.Device, path: Path, write: Write) -> None:
    write("float f(float x) { return x + 1; }")
    module = spy.Module.load_from_file(device, path)
    f = module.f
    mapped = f.map((0,))
    values = np.arange(3, dtype=np.float32)
    assert (f(values) == values + 1).all() and (mapped(values) == values + 1).all()
    write("float f(float x) { return x * 10; }")
    assert (f(values) == values * 10).all()
    assert (mapped(values) == values * 10).all()
    assert (module.f(values) == values * 10).all()


def test_enums_and_other_types_are_those_of_the_new_text(device: spy.Device, path: Path, write: Write) -> None:
    function = "float f(Level x) { return int(x); }\n"
    write("enum Level { low, high }\ntypedef float3 Color;\n" + function)
    module = spy.Module.load_from_file(device, path)
    assert module.find_struct("Level").slang_type.cases[0] == ("low", 0) and module.Color.name == "float3"
    assert [case.name for case in module.Level] == ["low", "high"] and module.f("high") == 1
    write("enum Level { high = 5, top = 9 }\ntypedef float4 Color;\n" + function)
    assert module.f("top") == 9 and module.Color.name == "float4"
    assert dict(module.Level.__members__) == {"high": 5, "top": 9} and module["Level"] is module.Level
    assert module.f(module.Level.high) == 5 and module.find_struct("Level").slang_type.cases[0] == ("high", 5)


def test_touching_a_file_changes_nothing(device: spy.Device, path: Path, write: Write) -> None:
    write("float f(float x) { return x + 2; }")
    module = spy.Module.load_from_file(device, path)
    assert module.f(1.0) == 3
    before = module.info
    time.sleep(PAUSE)
    path.touch()
    assert module.f(1.0) == 3 and module.info is before


def test_signatures_structs_and_kernels_follow(device: spy.Device, path: Path, write: Write) -> None:
    write(
        "import slangpy_rt;\n"
        "struct P { float x; float get() { return x; } };\n"
        "float f(float a) { return a; }\n"
        "[numthreads(4, 1, 1)] void k(RWTensor<float, 1> t, uint i : SV_DispatchThreadID) { t[i] = 1; }\n"
    )
    module = spy.Module.load_from_file(device, path)
    out = spy.Tensor.zeros(device, 4)
    f, get, k = module.f, module.P.get, module.k
    k.dispatch(4, out)
    assert (f(1.0), get({"x": 2}), out.to_numpy().tolist()) == (1, 2, [1] * 4)
    write(
        "import slangpy_rt;\n"
        "struct P { float x; float y; float get() { return x + y; } };\n"
        "float f(float a, float b) { return a + b; }\n"
        "float g(float a) { return -a; }\n"
        "[numthreads(4, 1, 1)] void k(RWTensor<float, 1> t, uint i : SV_DispatchThreadID) { t[i] = i; }\n"
    )
    k.dispatch(4, out)
    assert (f(1.0, 2.0), get({"x": 2, "y": 3}), module.g(1.0)) == (3, 5, -1)
    assert out.to_numpy().tolist() == [0, 1, 2, 3]
    assert "b" in str(f.signature) and "g" in dir(module)


def test_functions_with_uniforms_follow(device: spy.Device, path: Path, write: Write) -> None:
    kernel = "[numthreads(4, 1, 1)] void k(RWTensor<float, 1> t, uint i : SV_DispatchThreadID) {{ t[i] = {}; }}\n"
    write("uniform float gain;\nfloat f(float a) { return a * gain; }\n" + kernel.format("gain"))
    module = spy.Module.load_from_file(device, path)
    f, k = module.f.set(gain=2), module.k.set(gain=3)
    out = spy.Tensor.zeros(device, 4)
    k.dispatch(4, out)
    assert f(5.0) == 10 and out.to_numpy().tolist() == [3] * 4
    write("uniform float gain;\nfloat f(float a, float b) { return (a + b) * gain; }\n" + kernel.format("gain + i"))
    k.dispatch(4, out)
    assert f(5.0, 1.0) == 12 and out.to_numpy().tolist() == [3, 4, 5, 6]


def test_uniforms_given_one_after_the_other_follow(device: spy.Device, path: Path, write: Write) -> None:
    write("uniform float a;\nuniform float b;\nfloat f(float x) { return x + a + b; }")
    f = spy.Module.load_from_file(device, path).f.set(a=10).set(b=100)
    assert f(1.0) == 111
    write("uniform float a;\nuniform float b;\nfloat f(float x, float y) { return x + y + a + b; }")
    assert f(1.0, 2.0) == 113
    write("uniform float a;\nfloat f(float x) { return x + a; }")
    with pytest.raises(spy.BindError) as error:
        f(1.0)
    assert str(error.value) == "f.set: there is no uniform 'b'; the module has a."


def test_one_that_no_longer_fits_keeps_none_from_following(device: spy.Device, path: Path, write: Write) -> None:
    write("T twice<T : IFloat>(T x) { return x + x; }\nfloat f(float x) { return x; }")
    module = spy.Module.load_from_file(device, path)
    functions = [module["twice<float>"], *(module.f.map((0,)) for _ in range(2)), module.f, module["twice<double>"]]
    assert [np.asarray(f(np.ones(1, np.float32))).item() for f in functions] == [2, 1, 1, 1, 2]
    write("T twice<T : IInteger>(T x) { return x + x; }\nfloat f(float x) { return x * 7; }")
    for f in functions[1:4]:
        assert np.asarray(f(np.ones(1, np.float32))).item() == 7
    for f in (functions[0], functions[4]):
        with pytest.raises(spy.CompileError, match="no longer declares it"):
            f(1.0)


def test_imported_files_count_too(device: spy.Device, tmp_path: Path, path: Path, write: Write) -> None:
    (tmp_path / "inner.slang").write_text("public float k() { return 2; }")
    write("import inner; float f(float x) { return x * k(); }")
    module = spy.Module.load_from_file(device, path)
    assert module.f(3.0) == 6
    time.sleep(PAUSE)
    (tmp_path / "inner.slang").write_text("public float k() { return 5; }")
    assert module.f(3.0) == 15


def test_linked_modules_count_too(device: spy.Device, tmp_path: Path, path: Path, write: Write) -> None:
    (tmp_path / "below.slang").write_text("public float k() { return 2; }")
    below = spy.Module.load_from_file(device, tmp_path / "below.slang")
    write("import below; float f(float x) { return x * k(); }")
    module = spy.Module.load_from_file(device, path, link=[below])
    assert module.f(3.0) == 6
    time.sleep(PAUSE)
    (tmp_path / "below.slang").write_text("public float k() { return 7; }")
    assert module.f(3.0) == 21


def test_a_broken_file_raises_until_it_is_mended(device: spy.Device, path: Path, write: Write) -> None:
    write("float f(float x) { return x; }")
    f = spy.Module.load_from_file(device, path).f
    assert f(4.0) == 4
    write("float f(float x) { return x }")
    for _ in range(2):
        with pytest.raises(spy.CompileError, match=r"edited\.slang:1:\d+"):
            f(4.0)
        time.sleep(PAUSE)
    write("float f(float x) { return x * 2; }")
    assert f(4.0) == 8


def test_a_function_renamed_and_named_back(device: spy.Device, path: Path, write: Write) -> None:
    write("float f(float x) { return x; }")
    module = spy.Module.load_from_file(device, path)
    f = module.f
    assert f(4.0) == 4
    write("float g(float x) { return x * 3; }")
    with pytest.raises(spy.CompileError) as error:
        f(4.0)
    assert str(error.value) == f"f: '{path}' was edited and no longer declares it; it has g."
    assert module.g(4.0) == 12
    write("float f(float x) { return x * 4; }")
    assert f(4.0) == 16


def test_a_file_that_is_gone_for_a_while(device: spy.Device, path: Path, write: Write) -> None:
    text = "float f(float x) { return x + 8; }"
    write(text)
    f = spy.Module.load_from_file(device, path).f
    assert f(1.0) == 9
    time.sleep(PAUSE)
    path.unlink()
    with pytest.raises(spy.CompileError, match="there is no file"):
        f(1.0)
    write(text)
    assert f(1.0) == 9


def test_device_reload_and_no_hot_reload(backend_name: str, path: Path, write: Write) -> None:
    with spy.Device(backend_name, hot_reload=False) as device:
        write("float f(float x) { return x; }")
        f = spy.Module.load_from_file(device, path).f
        assert f(1.0) == 1
        write("float f(float x) { return x + 1; }")
        time.sleep(PAUSE)
        assert f(1.0) == 1
        device.reload()
        assert f(1.0) == 2


def test_a_name_that_becomes_something_else(device: spy.Device, path: Path, write: Write) -> None:
    kernel = "[numthreads(4, 1, 1)] void {}(RWTensor<float, 1> t, uint i : SV_DispatchThreadID) {{ t[i] = 7; }}\n"
    write("import slangpy_rt;\nfloat f(float x) { return x; }\nstruct S { float x; }\n" + kernel.format("k"))
    module = spy.Module.load_from_file(device, path)
    out = spy.Tensor.zeros(device, 4)
    f, k, struct = module.f, module.k, module.S
    k.dispatch(4, out)
    assert f(1.0) == 1 and struct(x=2)["x"] == 2
    write(
        "import slangpy_rt;\nfloat k(float x) { return 2 * x; }\nfloat S(float x) { return 3 * x; }\n"
        + kernel.format("f")
    )
    with pytest.raises(
        spy.CompileError, match=r"k: .*edited, and it is a function now; take it from the module again"
    ):
        k(1.0)
    with pytest.raises(spy.CompileError, match=r"f: .*edited, and it is a compute kernel now"):
        f(1.0)
    assert module.k(1.0) == 2 and module["k"](1.0) == 2 and module.S(1.0) == 3
    out.clear()
    module.f.dispatch(4, out)
    assert (out.to_numpy() == 7).all()

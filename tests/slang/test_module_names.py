"""Names of modules: those of Slang's own and of ours are names like others; what can be no name is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import slangpy_rt as spy
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.shader_modules import FILES, SHADERS, SLANGTORCH, needed_modules
from tests.depth import deep, sampled

OURS = sorted(path.stem for path in Path(shader_directory()).glob("*.slang"))
SLANG = ["core", "glsl", "hlsl", "neural", "slang", "std"]
ODD = [
    "struct",
    "float",
    "import",
    "kernel",
    "query",
    "run",
    "a-b",
    "a.b",
    "a b",
    "1a",
    "ü",
    "日本",
    "x" * 150,
    "_",
    "a'b",
]
TEXT = "float f(float x) { return x + 1; }"


@pytest.fixture(scope="module")
def cpu() -> spy.Device:
    return spy.Device("cpu")


@deep
def test_every_name_is_a_module_from_text(cpu: spy.Device) -> None:
    found = {name: spy.Module.load_from_source(cpu, name, TEXT) for name in [*SLANG, *OURS, *ODD]}
    assert {
        name: dir(module.info.functions[0]) and module.info.functions[0].name for name, module in found.items()
    } == (dict.fromkeys(found, "f"))
    for name in ("core", "slangpy_rt", "mlp", OURS[0], "struct", "ü"):
        assert found[name].f(1.0) == 2, name


@sampled(3)
@pytest.mark.parametrize("name", ["core", "slangpy_rt", "storage"])
def test_every_name_is_a_file(cpu: spy.Device, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.slang"
    path.write_text(TEXT)
    module = spy.Module.load_from_file(cpu, path)
    assert module.f(1.0) == 2
    path.write_text(TEXT.replace("+ 1", "+ 10"))
    assert spy.Module.load_from_file(cpu, path).f(1.0) == 11


def test_a_file_of_our_name_beside_another_one_does_not_stand_in_for_ours(cpu: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "slangpy_rt.slang").write_text("float other(float x) { return x; }")
    (tmp_path / "main.slang").write_text("import slangpy_rt;\nfloat f(Tensor<float, 1> t) { return t[0]; }")
    ones = spy.Tensor.full(cpu, 1, 1.0)
    assert spy.Module.load_from_file(cpu, tmp_path / "main.slang").f(ones, _result="numpy") == 1


def test_a_file_of_our_name_that_a_text_needs_is_named(cpu: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "slangpy_rt.slang").write_text("float other(float x) { return x; }")
    main = tmp_path / "main.slang"
    main.write_text("import slangpy_rt;\nfloat f(float x) { return other(x); }")
    with pytest.raises(spy.CompileError, match="undefined identifier 'other'") as caught:
        spy.Module.load_from_file(cpu, main)
    file = (tmp_path / "slangpy_rt.slang").resolve()
    assert str(caught.value).endswith(
        f"\n'import slangpy_rt' is a module of slangpy_rt's own, never '{file}'; rename the file."
    )
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(cpu, "m", "import slangpy_rt;\nfloat f(float x) { return other(x); }")
    assert "rename the file" not in str(caught.value)


def test_a_file_of_a_library_of_ours_is_the_one_beside(cpu: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "mlp.slang").write_text("float width() { return 7; }")
    (tmp_path / "main.slang").write_text("import mlp;\nfloat f(float x) { return x * width(); }")
    assert spy.Module.load_from_file(cpu, tmp_path / "main.slang").f(2.0) == 14


@pytest.mark.parametrize("defines", [{}, {"X": "1"}])
def test_a_users_slangpy_file_is_the_users(cpu: spy.Device, tmp_path: Path, defines: dict[str, str]) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "slangpy.slang").write_text("float width() { return 7; }")
    text = "import slangpy;\nfloat f(float x) { return x * width(); }"
    (tmp_path / "own" / "main.slang").write_text(text)
    assert spy.Module.load_from_file(cpu, tmp_path / "own" / "main.slang", defines).f(2.0) == 14
    device = spy.Device("cpu", include_paths=[tmp_path / "own"])
    assert spy.Module.load_from_source(device, "m", text, defines).f(2.0) == 14
    device.close()


def test_a_module_may_import_the_library_that_it_is_called_by(cpu: spy.Device) -> None:
    text = "import mlp;\nimport slangpy_rt;\nfloat f(Tensor<float, 1> t) { return t[0] + 1; }"
    assert spy.Module.load_from_source(cpu, "mlp", text).f(spy.Tensor.full(cpu, 1, 1.0), _result="numpy") == 2


@sampled(2)
@pytest.mark.parametrize("defines", [{}, {"X": "1"}])
def test_files_of_our_folder(cpu: spy.Device, defines: dict[str, str]) -> None:
    names = set(OURS) - set(FILES)
    assert len(names) > 10
    for name in names:
        with pytest.raises(spy.CompileError) as caught:
            spy.Module.load_from_file(cpu, f"{name}.slang", defines)
        place = Path(shader_directory()).resolve() / f"{name}.slang"
        assert str(caught.value) == (
            f"'{place}' is a part of slangpy_rt and no module by itself: put 'import slangpy_rt;' into a file of "
            "your own, and load that."
        )
    module = spy.Module.load_from_file(cpu, "mlp.slang", defines)
    borrower = spy.Module.load_from_source(
        cpu, "b", "import mlp;\nfloat f(float x) { return x; }", defines, link=[module]
    )
    parameter = spy.Tensor.full(cpu, 3, 4.0)
    module.sgd(parameter, 2.0, 0.5)
    assert parameter.to_numpy().tolist() == [3, 3, 3] and borrower.f(1.0) == 1
    borrower.sgd(parameter, 2.0, 0.5)
    assert parameter.to_numpy().tolist() == [2, 2, 2]


@deep
def test_macros_of_the_user_leave_libraries_alone_wherever_they_are_imported(cpu: spy.Device, tmp_path: Path) -> None:
    # Both are names inside of mlp.slang.
    defines = {"Activation": "float", "sgd": "descent"}
    (tmp_path / "part.h").write_text("import mlp;\n")
    (tmp_path / "main.slang").write_text('#include "part.h"\nfloat f(float x) { return ReLU::apply(x) + SIZE; }')
    module = spy.Module.load_from_file(cpu, tmp_path / "main.slang", defines | {"SIZE": 2})
    assert module.f(-1.0) == 2
    plain = spy.Module.load_from_source(cpu, "plain", "float g(float x) { return x + 1; }", defines)
    text = "import plain;\nimport mlp;\nfloat f(float x) { return ReLU::apply(g(x)); }"
    assert spy.Module.load_from_source(cpu, "later", text, defines, link=[plain]).f(-3.0) == 0


def test_libraries_that_no_text_names_are_not_loaded() -> None:
    assert needed_modules(["import a;"], False, None) == ["slangpy_rt"]
    assert needed_modules(["import a;"], True, None) == ["_spy_handles", "_spy_library", "slangpy_rt"]
    assert needed_modules(["import a;", "import mlp;"], True, None) == [*SHADERS[:3], "mlp"]
    assert needed_modules(["import a;", "import slangpy;"], False, None) == ["slangpy_rt", "slangpy"]
    assert needed_modules(["void f() {}"], True, SLANGTORCH) == ["_spy_handles", "_spy_library", "slangtorch"]
    for word in ("slangpy_rt", "matmul"):
        assert set(needed_modules([f"import {word};"], True, SLANGTORCH)) >= {"slangpy_rt", word, "slangtorch"}


@pytest.mark.parametrize("name", ["core", "glsl"])
def test_a_file_that_slang_would_not_import_is_refused(cpu: spy.Device, tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.slang").write_text("float h() { return 1; }")
    main = tmp_path / "main.slang"
    main.write_text(f"import {name};\nfloat f(float x) {{ return x; }}")
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_file(cpu, main)
    assert str(caught.value) == (
        f"{main}: 'import {name}' is the compiler's own module of that name, never "
        f"'{tmp_path / name}.slang'; rename the file."
    )


def test_names_of_equal_spelling_are_two_modules(cpu: spy.Device) -> None:
    modules = [spy.Module.load_from_source(cpu, name, TEXT.replace("1", f"{at}"))
               for at, name in enumerate(["a-b", "a_b", "a.b", "a b", "a-b"])]  # fmt: skip
    assert [module.f(0.0) for module in modules] == [0, 1, 2, 3, 4]


def test_linked_modules_of_one_name_are_refused(cpu: spy.Device) -> None:
    one, two = (spy.Module.load_from_source(cpu, name, TEXT.replace("1", name[1:])) for name in ("a-1", "a-2"))
    same = spy.Module.load_from_source(cpu, "a_1", TEXT.replace("1", "3"))
    spy.Module.load_from_source(cpu, "user", "float g() { return 1; }", link=[one, two, one])
    with pytest.raises(spy.BindError) as caught:
        spy.Module.load_from_source(cpu, "user", "float g() { return 1; }", link=[one, same])
    assert str(caught.value) == (
        "module 'user': link has another module of the name 'a_1', by which texts import it; "
        "give one of them another name."
    )


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "../a", "a\nb", "x" * 201])
def test_what_is_no_name_is_refused(cpu: spy.Device, name: str) -> None:
    with pytest.raises(spy.BindError) as caught:
        spy.Module.load_from_source(cpu, name, TEXT)
    assert str(caught.value) == (
        f"Module.load_from_source: name is {name[:80]!r}; expected at most 200 characters of one line, none of them "
        "a slash."
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("a\0b", "name holds a NUL character, at 1"), ("\udc80", "name holds half of a surrogate pair, at 0")],
)
def test_what_no_text_holds_is_refused(cpu: spy.Device, name: str, said: str) -> None:
    with pytest.raises(spy.BindError, match=f"^Module.load_from_source: {said}"):
        spy.Module.load_from_source(cpu, name, TEXT)


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [(None, TEXT, "name is None"), (b"m", TEXT, "name is"), ("m", None, "source is None"), ("m", b"", "source is")],
)
def test_names_and_texts_are_strings(cpu: spy.Device, name: object, text: object, what: str) -> None:
    with pytest.raises(spy.BindError, match=f"Module.load_from_source: {what}.*; a str was expected."):
        spy.Module.load_from_source(cpu, name, text)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["float", "uint3"])
def test_a_declaration_that_hides_a_type_is_explained(cpu: spy.Device, name: str) -> None:
    text = f"module {name};\n{name} f({name} x) {{ return x; }}\nint g(int x) {{ return x + 1; }}\n"
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(cpu, "hiding", text)
    end = f"'module {name};' hides {name} in this file; give the module another name."
    assert str(caught.value).endswith(end)
    alone = f"module {name};\npublic int g(int x) {{ return x + 1; }}\n"
    assert spy.Module.load_from_source(cpu, "hiding_nothing", alone).g(3) == 4

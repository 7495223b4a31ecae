"""The generated ABI file: it matches the installed headers, and its parser reads them right."""

import ctypes
from pathlib import Path

import pytest
from tools import gen_slang_abi

from slangpy_rt.slang import _abi

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def include() -> Path:
    return gen_slang_abi.find_include()


def test_regenerating_changes_nothing(include: Path) -> None:
    written = (ROOT / "slangpy_rt" / "slang" / "_abi.py").read_text(encoding="utf-8")
    assert gen_slang_abi.generate(include) == written


def test_slots_count_inherited_methods(include: Path) -> None:
    headers = gen_slang_abi.Headers(include)
    unknown = [name for _, name, _ in headers.methods("ISlangUnknown")]
    assert unknown == ["queryInterface", "addRef", "release"]
    component = [name for _, name, _ in headers.methods("IComponentType")]
    module = [name for _, name, _ in headers.methods("IModule")]
    assert component[:3] == unknown
    assert module[: len(component)] == component
    assert module[len(component)] == "findEntryPointByName"


def test_structures_have_the_size_c_gives_them() -> None:
    # Sizes on a 64-bit machine, counted by hand from slang.h.
    assert ctypes.sizeof(_abi.CompilerOptionEntry) == 4 + 4 + 8 + 2 * 8 + 8
    assert ctypes.sizeof(_abi.TargetDesc) == 8 + 5 * 4 + 4 + 8 + 8
    assert ctypes.sizeof(_abi.SlangGlobalSessionDesc) == 3 * 4 + 4 + 16 * 4


def test_strings_stay_strings_and_references_are_pointers(include: Path) -> None:
    headers = gen_slang_abi.Headers(include)
    assert headers.ctype("char const*") == "c_char_p"
    assert headers.ctype("SlangInt& ") == "c_void_p"
    assert headers.ctype("SLANG_NO_THROW SlangResult SLANG_MCALL ") == "c_int32"
    with pytest.raises(SystemExit, match="NoSuchType"):
        headers.ctype("NoSuchType")

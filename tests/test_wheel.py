"""The wheel: it names every package of the tree, holds their files, and runs where there is no tree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
# Below slangpy_rt each folder with such a file is a package; shaders and codegen lie elsewhere in the tree.
CODE = [path for path in (ROOT / "slangpy_rt").rglob("*.py") if "shaders" not in path.parts]

# From a file with a kernel, which needs the package's shaders, to its result.
PROGRAM = """
import sys
from pathlib import Path
import slangpy_rt, torch
import slangpy_rt.slangtorch as slangtorch
assert Path(slangpy_rt.__file__).is_relative_to(sys.argv[1]), slangpy_rt.__file__
Path("twice.slang").write_text('''
[AutoPyBindCUDA] [CudaKernel]
void twice(TensorView<float> x) { x[cudaThreadIdx().x] = 2 * x[cudaThreadIdx().x]; }
''')
x = torch.ones(4)
slangtorch.loadModule("twice.slang", device="cpu").twice(x=x).launchRaw(blockSize=(4, 1, 1), gridSize=(1, 1, 1))
assert x.tolist() == [2] * 4
"""


def packages() -> list[str]:
    """What pyproject.toml calls the packages; Python 3.10 has no reader of TOML."""
    found = re.search(r"^packages = (\[.*?^\])", PROJECT, re.MULTILINE | re.DOTALL)
    assert found
    names: list[str] = ast.literal_eval(found[1])
    return names


def test_every_folder_with_code_is_a_package_of_the_wheel() -> None:
    folders = {".".join(path.parent.relative_to(ROOT).parts) for path in CODE}
    assert set(packages()) == {*folders, "slangpy_rt.shaders", "slangpy_rt_codegen"}
    assert len(packages()) == len(set(packages()))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheel holds, made of a copy: building leaves folders in the tree."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("shaders", "codegen"):
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    # A link of that name stands in some trees for the folder beside it.
    unwanted = shutil.ignore_patterns("__pycache__", "shaders")
    shutil.copytree(ROOT / "slangpy_rt", tree / "slangpy_rt", ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(folder),
        str(tree),
    ]
    subprocess.run(build, check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def test_it_holds_every_file(unpacked: Path) -> None:
    wanted = {path.relative_to(ROOT).as_posix() for path in CODE} | {"slangpy_rt/py.typed"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "slangpy_rt" / "demo").glob("*.slang")}
    wanted |= {f"slangpy_rt/shaders/{path.name}" for path in (ROOT / "shaders").glob("*.*")}
    wanted |= {f"slangpy_rt_codegen/{path.name}" for path in (ROOT / "codegen/slangpy_rt_codegen").glob("*.py")}
    held = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {name for name in held if ".dist-info/" not in name} == wanted


def test_it_runs_without_the_tree(unpacked: Path, tmp_path: Path) -> None:
    variables = os.environ | {"PYTHONPATH": str(unpacked)}
    subprocess.run([sys.executable, "-c", PROGRAM, str(unpacked)], check=True, cwd=tmp_path, env=variables)

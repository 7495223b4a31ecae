"""The wheel and the source distribution: they hold every file, and run where there is no tree."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from packaging.metadata import Metadata
from project_links import checked_address, with_links

import slangpy_rt as spy
from tests.depth import deep

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
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, without tests and documentation: building leaves folders in it."""
    tree = tmp_path_factory.mktemp("wheel") / "tree"
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("shaders", "codegen"):
        shutil.copytree(ROOT / name, tree / name, ignore=unwanted)
    # A link of that name stands in some trees for the folder beside it.
    unwanted = shutil.ignore_patterns("__pycache__", "shaders")
    shutil.copytree(ROOT / "slangpy_rt", tree / "slangpy_rt", ignore=unwanted)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    return tree


@pytest.fixture(scope="module")
def unpacked(tree: Path) -> Path:
    """What the wheel holds."""
    folder = tree.parent
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


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked; it was made from a copy of the whole tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("which files belong to the tree is known from git alone")
    folder = tmp_path_factory.mktemp("sdist")
    for name in tracked():
        (folder / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / "tree" / name)
    program = f"import build_backend; build_backend.build_sdist({str(folder)!r})"
    variables = os.environ | {"PYTHONPATH": str(folder / "tree" / "codegen" / "tools")}
    command = [sys.executable, "-c", program]
    subprocess.run(command, check=True, cwd=folder / "tree", env=variables, stdout=subprocess.DEVNULL)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        # The filter came with Python 3.11.4.
        packed.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / archive.name.removesuffix(".tar.gz")


def tracked() -> list[str]:
    """The files of the tree, new ones included."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (ROOT / name).is_file()]


def test_the_source_distribution_holds_the_tree(sources: Path) -> None:
    held = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    assert set(tracked()) - held == set()
    assert {"CHANGELOG.md", "docs/index.md", "tests/test_wheel.py", "benchmarks/report.py"} <= held


ADDRESS = "https://host.example/owner/name"
METADATA = """
import sys, build_backend
folder = sys.argv[1]  # setuptools changes the list
build_backend.prepare_metadata_for_build_wheel(folder)
build_backend.build_sdist(folder)
"""


def metadata(tree: Path, folder: Path, address: str) -> Metadata:
    """The metadata of a wheel, which are those of the source distribution."""
    named = folder / "named"
    shutil.copytree(tree, named, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    line = f'address = "{address}"'
    (named / "pyproject.toml").write_text(PROJECT.replace('address = ""', line), encoding="utf-8")
    variables = os.environ | {"PYTHONPATH": str(named / "codegen" / "tools")}
    command = [sys.executable, "-c", METADATA, str(folder)]
    run = subprocess.run(command, cwd=named, env=variables, capture_output=True, text=True)
    if run.returncode:
        raise ValueError(run.stderr.splitlines()[-1])
    (written,) = folder.glob("*.dist-info/METADATA")
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        held = packed.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
        assert held and held.read() == written.read_bytes()
    return Metadata.from_email(written.read_bytes())


def targets(text: str) -> list[str]:
    """What the links and pictures of Markdown lead to, as a renderer finds them."""
    return re.findall(r'(?:href|src)="([^"]*)"', MarkdownIt().render(text))


def test_with_an_address_links_and_pictures_of_the_metadata_lead_there(tree: Path, tmp_path: Path) -> None:
    found = metadata(tree, tmp_path, ADDRESS)
    assert found.project_urls == {
        "Homepage": ADDRESS,
        "Documentation": f"{ADDRESS}/blob/v{spy.__version__}/docs/index.md",
        "Changelog": f"{ADDRESS}/blob/v{spy.__version__}/CHANGELOG.md",
        "Issues": f"{ADDRESS}/issues",
    }
    assert found.description_content_type == "text/markdown" and found.description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pictures = re.findall(r'src="([^"]*)"', MarkdownIt().render(readme))
    assert len(pictures) == 4
    expected = [
        target
        if target.startswith("https:")
        else f"{ADDRESS}/{'raw' if target in pictures else 'blob'}/v{spy.__version__}/{target}"
        for target in targets(readme)
    ]
    assert targets(found.description) == expected
    files = [target.removeprefix(f"{ADDRESS}/") for target in [*expected, *found.project_urls.values()]]
    files = [re.sub(r"^(raw|blob)/[^/]*/|#.*", "", name) for name in files if name.startswith(("raw/", "blob/"))]
    assert len(files) > 20 and [name for name in files if not (ROOT / name).is_file()] == []


def test_without_an_address_the_metadata_have_no_link_that_leads_nowhere(tree: Path, tmp_path: Path) -> None:
    found = metadata(tree, tmp_path, "")
    assert found.project_urls is None and found.description
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert targets(found.description) == [target for target in targets(readme) if target.startswith("https:")]

    def words(html: str) -> list[str]:
        """The text of a page, and the descriptions of its pictures."""
        return re.sub(r"<[^>]*>", "", re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r"\1", html)).split()

    assert words(MarkdownIt().render(found.description)) == words(MarkdownIt().render(readme))


def test_code_and_links_within_the_page_stay() -> None:
    text = "[a](#b) [`c`](d.md#e)\n```python\nx[0](y)\n```\n  ![f](g.png)\n[h](mailto:i@j)\n"
    expected = text.replace("d.md", f"{ADDRESS}/blob/v1/d.md").replace("g.png", f"{ADDRESS}/raw/v1/g.png")
    assert with_links(text, ADDRESS, "v1") == expected
    assert with_links(text, "", "v1") == text.replace("[`c`](d.md#e)", "`c`").replace("![f](g.png)", "*f*")


@pytest.mark.parametrize(
    "address", ["http://host.example/a", "host.example/a", "https://host.example", f"{ADDRESS}?a", f"{ADDRESS})"]
)
def test_an_address_that_is_none_ends_the_build(address: str) -> None:
    with pytest.raises(
        ValueError, match=r"^pyproject.toml: \[tool.slangpy_rt\] address is .*has to be empty, or the page"
    ):
        checked_address(address)


@deep
def test_a_wheel_of_the_source_distribution_runs_in_an_environment_of_its_own(
    sources: Path, unpacked: Path, tmp_path: Path
) -> None:
    pip = [sys.executable, "-m", "pip"]
    build = [*pip, "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", str(tmp_path), str(sources)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"slangpy_rt-{spy.__version__}-py3-none-any.whl"
    install = tmp_path / "venv"
    # Its other packages are those of this environment; .ci/run installs them by pip.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(install)], check=True)
    folder = install / ("Scripts" if os.name == "nt" else "bin")
    python = str(folder / "python")
    subprocess.run([*pip, "--python", python, "install", "-q", "--no-deps", str(wheel)], check=True)
    (site,) = install.glob("Lib/site-packages" if os.name == "nt" else "lib/python3*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    files = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    assert all((site / name).is_file() for name in files if ".dist-info" not in str(name))
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([python, "-c", PROGRAM, str(site)], check=True, cwd=tmp_path, env=clean)
    run = subprocess.run(
        [str(folder / "slangpy_rt"), "info"], cwd=tmp_path, env=clean, capture_output=True, text=True
    )
    assert run.returncode == 0 and run.stdout.startswith("slangpy_rt 0.1.0"), run


# For mypy; the comment behind a line is the code of the error that it has to find there.
TYPED = """
import slangpy_rt as spy
device = spy.Device("cpu")
module = spy.Module.load_from_file(device, "m.slang")
t = spy.Tensor.zeros(device, 3).with_grads()
t.grad.clear()
total: float = t.shape  # assignment
masked: spy.Tensor = t[(t == 1) & (t != 2)] @ t
equal: bool = t == 1  # assignment
device.nothing  # attr-defined
spy.nothing(1)  # attr-defined
spy.device("cpu")  # operator
"""


@deep
def test_type_checkers_see_an_editable_install(tree: Path, tmp_path: Path) -> None:
    install, user = tmp_path / "venv", tmp_path / "user"
    user.mkdir()
    (user / "typed.py").write_text(TYPED)
    # Its packages are those of this environment, but for the package itself.
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(install)], check=True)
    (site,) = install.glob("Lib/site-packages" if os.name == "nt" else "lib/python3*/site-packages")
    program = f"import build_backend; print(build_backend.build_editable({str(tmp_path)!r}))"
    variables = os.environ | {"PYTHONPATH": str(tree / "codegen/tools")}
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tree, env=variables, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    python = str(install / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))
    (site / "others.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}

    code = "import slangpy_rt, slangpy_rt_codegen; print(slangpy_rt.__file__, slangpy_rt_codegen.__file__)"
    run = subprocess.run([python, "-c", code], check=True, cwd=user, env=clean, capture_output=True, text=True)
    assert run.stdout.split() == [
        str(tree / "slangpy_rt" / "__init__.py"),
        str(tree / "codegen" / "slangpy_rt_codegen" / "__init__.py"),
    ]
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, "typed.py"]
    said = subprocess.run(command, cwd=user, env=clean, capture_output=True, text=True).stdout
    found = dict(re.findall(r"^typed.py:(\d+): error: .*\[([\w-]+)\]$", said, re.MULTILINE))
    expected = {str(k): line.split("  # ")[1] for k, line in enumerate(TYPED.splitlines(), 1) if "  # " in line}
    assert found == expected, said

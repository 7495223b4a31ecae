"""Who may import whom: packages on floors, arrows that only run down, no circles."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import import_graph
import pytest

import slangpy_rt
from slangpy_rt._former_paths import FORMER_PATHS

ROOT = Path(__file__).resolve().parents[1]
FILES = import_graph.modules()
OWN = import_graph.own_imports(FILES)
CONTRACTS = list((ROOT / "slangpy_rt" / "backends").glob("*/backend.py"))
# Arrows that still point up; each has to go.
UPWARD: set[tuple[str, str]] = set()
# Who may import what is not the standard library. NumPy is everywhere but in the code generator.
OUTSIDE = {
    "trimesh": {"slangpy_rt.graphics.mesh"},
    "_cffi_backend": {"slangpy_rt.backends.cuda.ffi", "slangpy_rt.backends.d3d12.ffi"},
    "IPython": {"slangpy_rt.runtime.compile_progress"},
    "vulkan": {"slangpy_rt.backends.vulkan.instance"},
    "cuda": {
        "slangpy_rt.backends.cuda.compile",
        "slangpy_rt.backends.cuda.driver",
        "slangpy_rt.tools.cli",
        "slangpy_rt.tuning.progress",
    },
    "filelock": {"slangpy_rt.core.disk_cache"},
    "platformdirs": {"slangpy_rt.core.disk_cache", "slangpy_rt.backends.cpu.compile"},
    "ml_dtypes": {"slangpy_rt.core.bfloat16", "slangpy_rt.interop.torch_memory"},
    "torch": {
        "slangpy_rt.interop.",
        "slangpy_rt.slangtorch.",
        "slangpy_rt.linalg.torch_arrays",
        "slangpy_rt.arrays.exported",
    },
    "nvtx": {"slangpy_rt.runtime.labels"},
    "slangpy": {"slangpy_rt.backends.rhi.device"},
    "ziglang": {"slangpy_rt.backends.cpu.compile"},
    "llvmlite": {"slangpy_rt.backends.cpu.llvm"},
    "rich": {"slangpy_rt.demo.", "slangpy_rt.tools.cli", "slangpy_rt.tuning.progress"},
    "OpenEXR": {"slangpy_rt.arrays.exr"},
    "PIL": {"slangpy_rt.demo.", "slangpy_rt.arrays.picture", "slangpy_rt.arrays.image_files"},
    "skimage": {"slangpy_rt.demo."},
    "numpy": {"slangpy_rt."},
}


def run_fresh(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own, where nothing is imported and nothing cached."""
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", "SYSTEMROOT": "", "SLANGPY_RT_CACHE_DIR": ""}
    return subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT,
                          env=env)  # fmt: skip


def imports(name: str) -> set[str]:
    """Full names of the modules that a file imports, those only for type checkers left out."""
    return {each.target for each in import_graph.imports(name, FILES) if each.kind != "type"}


def test_arrows_run_down() -> None:
    assert {(each.source, each.target) for each in import_graph.upward(OWN)} == UPWARD


def test_nothing_imports_what_imports_it() -> None:
    assert import_graph.circles(each for each in OWN if each.kind != "type") == []
    assert import_graph.circles(OWN) == []


def test_private_names_stay_in_their_package() -> None:
    assert [str(each) for each in import_graph.private(OWN)] == []


def test_every_package_has_a_floor_and_says_what_it_holds() -> None:
    packages = {
        name.split(".")[1] for name in FILES if name.startswith("slangpy_rt.") and FILES[name].stem == "__init__"
    }
    assert packages == set(import_graph.FLOOR) - {"slangpy_rt", "device", "__main__"}
    for package in packages:
        tree = ast.parse(FILES[f"slangpy_rt.{package}"].read_text(encoding="utf-8"))
        assert len(ast.get_docstring(tree) or "") > 80, package


def test_the_graph_sees_every_kind_of_import(tmp_path: Path) -> None:
    package = tmp_path / "slangpy_rt"
    for path, text in {
        "core/low.py": "def f():\n    from slangpy_rt.calls import high\n",
        "calls/high.py": "from slangpy_rt.core.low import _hidden, f\n",
        "calls/other.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import slangpy_rt.device\n",
        "device.py": "from slangpy_rt.calls.other import thing\n",
    }.items():
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text)
    files = import_graph.modules(tmp_path)
    found = import_graph.own_imports(files)
    up = {(each.source, each.target, each.kind) for each in import_graph.upward(found)}
    low, high, other, device = [
        "slangpy_rt.core.low",
        "slangpy_rt.calls.high",
        "slangpy_rt.calls.other",
        "slangpy_rt.device",
    ]
    assert up == {(low, high, "late"), (other, device, "type")}
    assert import_graph.circles(found) == [[high, low], [other, device]]
    assert [each.name for each in import_graph.private(found)] == ["_hidden"]


def test_former_paths_have_the_public_names() -> None:
    for former, present in FORMER_PATHS.items():
        module = importlib.import_module(f"slangpy_rt.{former}")
        assert module is importlib.import_module(f"slangpy_rt.{present}")
    named = {name for name in slangpy_rt.__all__ if name not in ("graphics", "optim")}
    public = {name for name in named if getattr(slangpy_rt, name).__module__.startswith("slangpy_rt.")}
    later = {path.removeprefix("slangpy_rt.") for path in slangpy_rt._LATER.values()}
    homes = {getattr(slangpy_rt, name).__module__.removeprefix("slangpy_rt.") for name in public}
    assert homes - {
        "device",
        "interop",
        "_load_module",
        "calls.tuned",
        "tuning.config",
        "linalg.matmul",
        *later,
    } <= set(FORMER_PATHS.values())


def test_only_plans_and_descriptions_know_the_code_generator() -> None:
    users = {name for name in FILES if any(i.startswith("slangpy_rt_codegen") for i in imports(name))}
    names = ("build", "column_tiles", "kernel_spec", "launch_geometry", "operands", "spelling", "struct_fields")
    known = {f"slangpy_rt.calls.{name}" for name in names}
    assert {u for u in users if not u.startswith("slangpy_rt_codegen")} == known


def test_the_code_generator_is_pure() -> None:
    allowed = {"__future__", "collections.abc", "dataclasses", "re", "typing"}
    for name in FILES:
        if name.startswith("slangpy_rt_codegen"):
            for other in imports(name):
                assert other.startswith("slangpy_rt_codegen") or other in allowed, f"{name} imports {other}"


def test_packages_from_outside_stay_where_they_belong() -> None:
    for name in FILES:
        for other in imports(name):
            top = other.split(".")[0]
            if top in sys.stdlib_module_names or top.startswith("slangpy_rt"):
                continue
            assert top in OUTSIDE, f"{name} imports {other}"
            assert any(f"{name}.".startswith(place) for place in OUTSIDE[top]), f"{name} imports {other}"


def test_only_config_reads_the_environment() -> None:
    for name, path in FILES.items():
        if name != "slangpy_rt.core.config":
            text = path.read_text(encoding="utf-8")
            assert "os.environ" not in text and "getenv" not in text, name


def test_only_log_reports_and_command_line_print() -> None:
    printing = set()
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                printing.add(name)
    commands = {f"slangpy_rt.tools.{name}" for name in ("cli", "doctor", "editor", "machine")}
    # ``check_grads`` prints its report.
    reports = {"slangpy_rt.calls.gradient_check"}
    assert printing <= {"slangpy_rt.core.log", "slangpy_rt.demo.run", *reports, *commands}


def test_importing_is_quiet_and_loads_nothing_heavy() -> None:
    program = """
import sys
import slangpy_rt
heavy = "torch cuda vulkan slangpy filelock platformdirs rich cffi ziglang PIL skimage"
print([name for name in heavy.split() if name in sys.modules])
print(sorted(n for n in sys.modules if n.startswith("slangpy_rt.slang.") or n.startswith("slangpy_rt.backends.")))
"""
    found = run_fresh(program)
    assert found.stderr == ""
    light = ("backends.base", "backends.extras", "backends.others", "backends.selection", "slang.declarations")
    assert found.stdout == f"[]\n{[f'slangpy_rt.{name}' for name in light]}\n"


def test_importing_loads_nothing_that_only_a_first_call_needs() -> None:
    program = """
import sys
import numpy
before = set(sys.modules)
import slangpy_rt
new = set(sys.modules) - before
print(*sorted({sys.modules[name].__name__ for name in new}))
"""
    found = run_fresh(program)
    assert found.stderr == ""
    loaded = set(found.stdout.split())
    # What a first call, a device and a module load; the modules below these are not all listed.
    cold = (
        *("arguments.bind", "arguments.bind_array", "arguments.bound", "arguments.conflicts", "arguments.exact"),
        *("arguments.host_packers", "arguments.gradients", "arguments.resolve", "arguments.struct_values"),
        *("calls.array_call", "calls.build", "calls.first_call", "calls.kernel_spec", "calls.prepared"),
        *("calls.search", "tuning.snapshot", "tuning.store", "tuning.timing"),
        *("core.disk_cache", "runtime.kernel_store", "slang.reflect", "slang.session", "slang.source"),
    )
    assert {f"slangpy_rt.{name}" for name in cold} <= set(FILES)
    assert loaded & {"slangpy_rt_codegen", *(f"slangpy_rt.{name}" for name in cold)} == set()
    # Each takes 1 to 3 ms.
    assert loaded & {"bz2", "hashlib", "html", "json", "lzma", "shutil"} == set()
    # 81 when this was written; each costs about 0.3 ms.
    own = {name for name in loaded if name.startswith("slangpy_rt")}
    assert len(own) <= 84, own


def test_an_interrupt_of_any_late_import_is_harmless() -> None:
    program = """
import sys
from importlib.machinery import PathFinder, SourceFileLoader
import slangpy_rt as spy

class Interrupted(SourceFileLoader):
    def exec_module(self, module):
        super().exec_module(module)
        if module.__name__ not in seen:
            seen.append(module.__name__)
            raise KeyboardInterrupt

class Finder:
    def find_spec(self, name, path=None, target=None):
        if not name.startswith("slangpy_rt"):
            return None
        spec = PathFinder.find_spec(name, path)
        # An editable installation has folders elsewhere, which its own finder knows.
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Interrupted(spec.loader.name, spec.loader.path)
        return spec

def again(function):
    while True:
        try:
            return function()
        except KeyboardInterrupt:
            pass

seen = []
text = "[Differentiable] float add(float a, float b) { return a + b; }"
sys.meta_path.insert(0, Finder())
device = again(lambda: spy.Device("null"))
module = again(lambda: spy.Module.load_from_source(device, "interrupted", text))
again(lambda: module.add([1.0, 2.0], 2.0))
print(len(seen) == len(set(seen)), "slangpy_rt.calls.first_call" in seen, len(device.backend.launches))
module.add([1.0, 2.0], 2.0)
print(len(device.backend.launches))
"""
    found = run_fresh(program)
    assert (found.stdout, found.stderr) == ("True True 1\n2\n", "")


def test_threads_may_make_the_first_call_together() -> None:
    program = """
import threading
import slangpy_rt as spy

def call(function):
    start.wait()
    function([1.0, 2.0], 2.0)

text = "float add(float a, float b) { return a + b; }\\nfloat sub(float a, float b) { return a - b; }"
device = spy.Device("null")
module = spy.Module.load_from_source(device, "threads", text)
functions = [module.add, module.sub] * 4
start = threading.Barrier(len(functions))
threads = [threading.Thread(target=call, args=(function,)) for function in functions]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(device.backend.launches))
"""
    found = run_fresh(program)
    assert (found.stdout, found.stderr) == ("8\n", "")


def test_only_backends_and_the_compiler_ask_for_platforms_and_formats_by_name() -> None:
    names = {"cpp", "cpu", "cuda", "d3d12", "hlsl", "metal", "spirv", "vulkan", "wgsl"}
    asking = set()
    for name, path in FILES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        compared = [inner for node in ast.walk(tree) if isinstance(node, ast.Compare) for inner in ast.walk(node)]
        words = {node.value for node in compared if isinstance(node, ast.Constant)}
        # Some names are also PyTorch's, of the kinds of its devices, for which files ask that import it.
        theirs = (
            import_graph.package_of(name) in ("interop", "slangtorch") or name == "slangpy_rt.linalg.torch_arrays"
        )
        if words & names and not theirs and import_graph.package_of(name) not in ("backends", "slang"):
            asking.add(name)
    assert asking == set()


def test_the_drawing_is_of_these_packages() -> None:
    text = import_graph.PAGE.read_text(encoding="utf-8")
    assert import_graph.page(text, OWN) == text, "run codegen/tools/import_graph.py --write"


def test_backend_files_are_the_contract_alone() -> None:
    lengths = {p.parent.name: len(p.read_text(encoding="utf-8").splitlines()) for p in CONTRACTS}
    assert {"cpu", "cuda", "d3d12", "rhi", "vulkan"} <= set(lengths)
    assert {name: n for name, n in lengths.items() if n > 260} == {}


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/how-it-works.md", "CONTRIBUTING.md"])
def test_pages_name_files_that_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    known = [path.relative_to(ROOT).as_posix() for path in FILES.values()]
    for name in set(re.findall(r"`([a-z_0-9/]+\.py)`", text)):
        assert any(f"/{path}".endswith(f"/{name}") for path in known) or (ROOT / name).exists(), name


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/adding-a-backend.md"])
def test_pages_name_classes_that_exist(page: str) -> None:
    known = {
        node.name
        for path in FILES.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    # Without code blocks, in which names are those of a program.
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    named = {name.partition(".")[0] for name in re.findall(r"`([A-Z][a-z]\w*(?:\.\w+)*)`", text)}
    assert named - known == set()


def test_folders_of_tests_are_packages_or_kinds_of_tests() -> None:
    kinds = {"conformance", "errors", "golden", "gpu"}
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders - kinds <= set(import_graph.FLOOR) | {"codegen"}
    said = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    assert {name for name in folders if f"`tests/{name}`" not in said} == set()


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: path.name)
def test_benchmarks_import_names_that_exist(path: Path) -> None:
    """Benchmarks take minutes and no test runs them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("slangpy_rt"):
            module = importlib.import_module(node.module or "")
            for item in node.names:
                assert hasattr(module, item.name) or importlib.util.find_spec(f"{node.module}.{item.name}"), item.name

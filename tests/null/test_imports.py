"""Who may import whom. A module that is not listed here fails, so that a new one is placed on purpose."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    ".".join(path.relative_to(base).with_suffix("").parts).removesuffix(".__init__"): path
    for base in (ROOT, ROOT / "codegen")
    for path in sorted(base.glob("slangpy_rt*/**/*.py"))
}
ANY = {"*"}
BASE = {"backends.base", "config", "errors", "interrupts"}
# Module of slangpy_rt -> modules of slangpy_rt that it may import, wherever in the file.
ALLOWED = {
    "": {
        *("command_list", "device", "errors", "function", "generators", "instances", "interop", "kernel", "module"),
        *(
            "ndbuffer",
            "pairs",
            "profile",
            "random_numbers",
            "refs",
            "selection",
            "stream",
            "struct",
            "tensor",
            "vectors",
        ),
    },
    "errors": set(),
    "config": set(),
    "types": set(),
    "broadcast": {"errors"},
    "wording": set(),
    "checks": {"errors"},
    "conversion": {"dtypes", "errors", "interop.memory", "records", "types"},
    "stand_ins": {"errors", "records"},
    "dtypes": {"errors", "types"},
    "layout": {"broadcast", "dtypes", "types"},
    "cache": {"errors", "config"},
    "diagnostics": {"backends.base", "errors"},
    "backends": {"backends.base"},
    "backends.base": {"errors", "interrupts"},
    "interrupts": set(),
    "weak": set(),
    "backends.null": BASE,
    "backends.cpu": BASE | {"backends._cpu_prelude"},
    "backends._cpu_prelude": BASE,
    "backends._shared_pool": BASE,
    "backends.cuda": BASE
    | {"backends._cuda_driver", "backends._cuda_external", "backends._cuda_graph", "backends._cuda_queue"}
    | {"backends._cuda_context"}
    | {"backends._cuda_staging"}
    | {"backends._shared_pool"},
    "backends._cuda_external": BASE | {"backends._cuda_driver"},
    "backends._cuda_context": BASE | {"backends._cuda_driver"},
    "backends._cuda_queue": BASE
    | {"backends._cuda_context", "backends._cuda_driver", "backends._cuda_external", "backends._cuda_graph"},
    "backends._cuda_graph": BASE | {"backends._cuda_driver"},
    "backends._cuda_driver": BASE | {"backends._cuda_ffi"},
    "backends._cuda_ffi": set(),
    "backends._cuda_staging": BASE | {"backends._cuda_driver"},
    "backends.rhi": BASE
    | {"backends._rhi_cuda", "backends._rhi_device", "backends._rhi_memory", "backends._rhi_queue"},
    "backends._rhi_cuda": BASE | {"backends._cuda_driver", "backends._cuda_queue", "backends._rhi_queue"},
    "backends._rhi_queue": BASE | {"backends._rhi_device", "backends._rhi_memory", "backends.rhi"},
    "backends._rhi_memory": set(),
    "backends._rhi_device": BASE | {"backends._vk_instance", "backends.cuda", "cache"},
    "backends.vulkan": BASE
    | {"backends._shared_pool", "backends._vk_commands", "backends._vk_queue", "backends._vk_recording"}
    | {"backends._vk_device", "backends._vk_heap", "backends._vk_instance"},
    "backends._vk_commands": BASE | {"backends._vk_device"},
    "backends._vk_queue": BASE
    | {"backends._vk_commands", "backends._vk_device", "backends._vk_recording", "backends._vk_timeline"},
    "backends._vk_recording": BASE | {"backends._vk_commands"},
    "backends._vk_device": BASE | {"backends._vk_instance"},
    "backends._vk_heap": BASE | {"backends._vk_device", "backends._vk_instance"},
    "backends._vk_instance": BASE,
    "backends._vk_timeline": BASE | {"backends._vk_device"},
    "slang": set(),
    "slang._abi": set(),
    "slang.locate": {"errors"},
    "slang.com": {"errors", "slang._abi"},
    "slang.reflect": {"dtypes", "errors", "slang._abi", "slang.com", "slang.text", "types"},
    "slang.text": set(),
    "slang.lookup": {"slang._abi", "slang.reflect", "types"},
    "slang.emitted": {"errors", "slang.text"},
    "slang.cpp_functions": set(),
    "slang.hlsl_doubles": set(),
    "slang.spirv": set(),
    "slang.division": {"slang.spirv"},
    "slang.spirv_integers": {"slang.spirv"},
    "slang.spirv_math": {"slang.spirv"},
    "slang.library": {"errors", "slang._abi", "slang.com", "slang.locate"},
    "slang.target_code": {
        *("backends.base", "errors", "slang.cpp_functions", "slang.division", "slang.emitted"),
        *("slang.hlsl_doubles", "slang.spirv_integers", "slang.spirv_math"),
    },
    "slang.session": {
        *("backends.base", "errors", "slang._abi", "slang.com", "slang.emitted", "slang.files", "slang.library"),
        *("slang.lookup", "slang.reflect", "slang.target_code", "slang.text", "types"),
    },
    "slang.client": {"backends.base", "errors", "interrupts", "slang.locate", "slang.messages", "types"},
    "slang.messages": set(),
    "slang.worker": {"errors", "slang.library", "slang.messages", "slang.session"},
    "file_states": {"errors", "slang.files"},
    "slang.files": {"errors"},
    "source": {
        *("file_states", "slang.files"),
        *(
            "backends.base",
            "cache",
            "config",
            "errors",
            "slang.client",
            "slang.library",
            "slang.locate",
            "slang.session",
            "types",
        ),
    },
    "generator": {"errors", "types"},
    "generators": {"errors", "generator", "types"},
    "random_numbers": {"errors", "generator", "types"},
    "records": {"dtypes", "errors"},
    "refs": set(),
    "vectors": {"dtypes", "errors", "types"},
    "mapping": {"dtypes", "errors", "types"},
    "options": {"mapping"},
    "scope": {"dtypes", "errors", "source", "types", "weak"},
    "feeds": {"backends.base", "dtypes", "errors", "records", "types"},
    "ndbuffer": {
        *("backends.base", "broadcast", "dtypes", "errors", "host_view", "interop.exchange", "layout", "picture"),
        *("interop.memory", "records", "types"),
    },
    "tensor": {"dtypes", "errors", "ndbuffer", "records"},
    "pairs": {"errors", "ndbuffer", "refs", "tensor"},
    "gradients": {
        *("arrays", "binding", "bound", "broadcast", "describe", "dtypes", "errors", "feeds", "mapping", "ndbuffer"),
        *("pairs", "records"),
        *("scope", "types", "values"),
    },
    "command_list": {"backends.base", "diagnostics", "dtypes", "errors", "ndbuffer", "order"},
    "order": {"backends.base"},
    "stream": {"backends.base", "errors", "interrupts", "order"},
    "transfer": {"backends.base", "errors", "order", "stream"},
    "profile": {"backends.base", "device", "errors"},
    "overlap": set(),
    "conflicts": {"backends.base", "bound", "broadcast", "dtypes", "errors", "feeds", "ndbuffer", "overlap"},
    "exact": {
        *("backends.base", "bound", "broadcast", "describe", "dtypes", "errors", "feeds", "ndbuffer", "overlap"),
    },
    "bound": {"feeds", "generator", "types"},
    "values": {"generators", "interop.foreign", "interop.torch", "ndbuffer", "records"},
    "arrays": {
        *("bound", "broadcast", "dtypes", "errors", "feeds", "layout", "ndbuffer", "records", "scope", "tensor"),
        *("types", "values"),
    },
    "args": {"dtypes", "errors", "generator", "ndbuffer", "pairs", "records", "refs", "tensor", "values"},
    "binding": {
        *(
            "arrays",
            "bound",
            "broadcast",
            "dtypes",
            "errors",
            "feeds",
            "generator",
            "mapping",
            "ndbuffer",
            "pairs",
            "records",
        ),
        *("refs", "scope", "types", "values"),
    },
    "resolve": {
        *("binding", "bound", "dtypes", "errors", "mapping", "ndbuffer", "options", "refs", "scope", "types"),
        "values",
    },
    "selection": {"backends", "backends.base", "config", "errors"},
    "kernels": {"backends.base", "cache", "config", "errors", "source", "types", "weak"},
    "labels": {"backends.base", "errors"},
    "device": {
        "command_list",
        *("backends.base", "cache", "config", "diagnostics", "errors", "exact", "kernels", "labels", "layout"),
        *("guests", "host_view", "interrupts", "module", "selection", "weak"),
        *("ndbuffer", "order", "source", "stream", "transfer", "types"),
    },
    "guests": {"backends.base"},
    "prepared": {"backends.base", "bound", "broadcast", "conflicts", "diagnostics", "errors", "feeds"},
    "describe": {"bound", "broadcast", "dtypes", "errors", "options", "scope", "source", "spelling", "types"},
    "spelling": {"dtypes", "errors", "source", "types"},
    "plan": {
        *(
            "backends.base",
            "binding",
            "bound",
            "broadcast",
            "conflicts",
            "describe",
            "diagnostics",
            "dtypes",
            "errors",
        ),
        *("exact", "gradients", "interop.torch", "ndbuffer", "options", "overlap", "pairs", "prepared", "records"),
        *("scope", "tensor", "types"),
    },
    "host_view": {"backends.base"},
    "overloads": {"errors", "source", "types"},
    "function": {
        "command_list",
        "overloads",
        *(
            "args",
            "binding",
            "bound",
            "errors",
            "gradients",
            "mapping",
            "options",
            "plan",
            "prepared",
            "resolve",
            "scope",
        ),
        *("dtypes", "interop.autograd", "source", "types", "values"),
    },
    "kernel": {
        "command_list",
        *(
            "args",
            "binding",
            "errors",
            "function",
            "options",
            "overloads",
            "plan",
            "prepared",
            "resolve",
            "scope",
            "types",
        ),
        "values",
    },
    "struct": {"errors", "function", "overloads", "scope", "types"},
    "instances": {"errors", "struct", "tensor", "types", "values"},
    "module": {
        *("dtypes", "errors", "function", "kernel", "overloads", "scope", "source", "struct", "types", "values"),
    },
    "stubs": {"dtypes", "function", "module", "types"},
    "picture": set(),
    "interop": {"interop.devices", "interop.operators"},
    "interop.devices": {"device", "errors", "selection"},
    "interop.operators": {"errors", "interop.autograd", "interop.torch_types"},
    "interop.torch_types": {"dtypes", "errors"},
    "interop.torch": {"errors", "feeds", "interop.bridge", "interop.torch_types", "tensor"},
    "interop.bridge": {
        "backends.base",
        "dtypes",
        "errors",
        "feeds",
        "interop.exchange",
        "interop.torch_types",
        "tensor",
    },
    "interop.autograd": {"dtypes", "errors", "interop.torch", "interop.torch_types", "tensor"},
    "interop.dlpack": {"errors"},
    "interop.exchange": {"host_view", "interop.dlpack"},
    "interop.memory": {"backends.base", "dtypes", "errors", "interop.dlpack", "interrupts"},
    "interop.foreign": {"backends.base", "errors", "feeds", "interop.dlpack", "interop.memory", "tensor"},
    "cli": ANY,
    "__main__": {"cli"},
    "demo": ANY,
    "demo.run": ANY,
}
# Who checks arguments, converts host data or asks stand-ins; every module may say what it was given.
for _of, _names in {
    "checks": "command_list device function instances mapping module ndbuffer profile random_numbers selection "
    "struct",
    "conversion": "arrays binding feeds function gradients module ndbuffer random_numbers refs source struct tensor "
    "vectors",
    "stand_ins": "args function kernel",
    "generator": "command_list kernel",
    "ndbuffer": "instances",
    "errors": "refs",
}.items():
    for _name in _names.split():
        ALLOWED[_name] |= {_of}
for _name in set(ALLOWED) - {"wording", "errors", "config", "types"}:
    ALLOWED[_name] = ALLOWED[_name] | {"wording"} if ALLOWED[_name] != ANY else ANY
# Who may import what is not the standard library. NumPy is everywhere but in the code generator.
OUTSIDE = {
    "_cffi_backend": {"slangpy_rt.backends._cuda_ffi"},
    "vulkan": {"slangpy_rt.backends._vk_instance"},
    "cuda": {"slangpy_rt.backends.cuda", "slangpy_rt.backends._cuda_driver", "slangpy_rt.cli"},
    "filelock": {"slangpy_rt.cache"},
    "platformdirs": {"slangpy_rt.cache", "slangpy_rt.backends.cpu"},
    "ml_dtypes": {"slangpy_rt.interop.torch"},
    "torch": {"slangpy_rt.interop."},
    "nvtx": {"slangpy_rt.labels"},
    "slangpy": {"slangpy_rt.backends._rhi_device"},
    "ziglang": {"slangpy_rt.backends.cpu"},
    "rich": {"slangpy_rt.demo.", "slangpy_rt.cli"},
    "PIL": {"slangpy_rt.demo.", "slangpy_rt.picture"},
    "skimage": {"slangpy_rt.demo."},
    "numpy": {"slangpy_rt."},
}


def imports(name: str) -> Iterator[str]:
    """Full names of the modules that a file imports, those only for type checkers left out."""

    def visit(node: ast.AST) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0 and child.module, f"{name}: relative import"
                # `from package import module` imports the module.
                for alias in child.names:
                    full = f"{child.module}.{alias.name}"
                    yield full if full in FILES else child.module
            yield from visit(child)

    yield from visit(ast.parse(FILES[name].read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [name for name in FILES if name.split(".")[0] == "slangpy_rt"])
def test_modules_import_what_they_may(name: str) -> None:
    own = name.partition(".")[2]
    assert own in ALLOWED, f"{name} is new: give it a line in ALLOWED"
    for other in imports(name):
        if ALLOWED[own] != ANY and other.split(".")[0] == "slangpy_rt":
            assert other.partition(".")[2] in ALLOWED[own], f"{name} imports {other}"


def test_nothing_in_the_list_is_gone() -> None:
    present = {name.partition(".")[2] for name in FILES if name.split(".")[0] == "slangpy_rt"}
    assert set(ALLOWED) - present <= {"interop.torch"}


def test_imports_run_in_one_direction() -> None:
    below = {name: {other for other in imports(name) if other in FILES} for name in FILES}
    while leaves := {name for name, others in below.items() if not others}:
        below = {name: others - leaves for name, others in below.items() if name not in leaves}
    assert below == {}, "these import each other, or what does"


def test_only_plans_and_descriptions_know_the_code_generator() -> None:
    users = {name for name in FILES if any(i.startswith("slangpy_rt_codegen") for i in imports(name))}
    known = {"slangpy_rt.plan", "slangpy_rt.describe", "slangpy_rt.spelling"}
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
        if name != "slangpy_rt.config":
            text = path.read_text(encoding="utf-8")
            assert "os.environ" not in text and "getenv" not in text, name


def test_only_device_and_command_line_print() -> None:
    printing = set()
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                printing.add(name)
    assert printing <= {"slangpy_rt.device", "slangpy_rt.cli", "slangpy_rt.demo.run"}


def test_importing_is_quiet_and_loads_nothing_heavy() -> None:
    program = """
import sys
import slangpy_rt
heavy = "torch cuda vulkan slangpy filelock platformdirs rich cffi ziglang PIL skimage"
print([name for name in heavy.split() if name in sys.modules])
print(sorted(n for n in sys.modules if n.startswith("slangpy_rt.slang.") or n.startswith("slangpy_rt.backends.")))
"""
    found = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, cwd=ROOT,
                           env={"PYTHONPATH": f"{ROOT}:{ROOT / 'codegen'}", "SYSTEMROOT": ""})  # fmt: skip
    assert found.stderr == ""
    assert found.stdout == "[]\n['slangpy_rt.backends.base', 'slangpy_rt.slang.files']\n"

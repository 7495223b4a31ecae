"""What every test shares: the devices, the rule for what a device may lack, and a kernel cache of its own.

A backend that is absent is left out, unless ``--backend`` or ``SLANGPY_RT_REQUIRE`` ("cpu,vulkan") names it:
then its tests fail. The same goes for ``dxc`` and ``nvrtc13``, compilers. A capability that is absent skips a test
only if ``UNSUPPORTED`` gives the reason in writing. pytest-xdist runs the tests in several processes; each has
devices and a cache of its own. Nothing here is a test.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import hypothesis
import pytest

# slangpy_rt reads its settings at import: a cold cache, so that every run compiles what it tests.
os.environ["SLANGPY_RT_CACHE_DIR"] = tempfile.mkdtemp(prefix="slangpy_rt-tests-")
atexit.register(shutil.rmtree, os.environ["SLANGPY_RT_CACHE_DIR"], ignore_errors=True)
for _name in ("SLANGPY_RT_DEVICE", "SLANGPY_RT_OVERRIDE", "SLANGPY_RT_DEBUG", "SLANGPY_RT_CACHE_SIZE"):
    os.environ.pop(_name, None)

import slangpy_rt as spy  # noqa: E402
from slangpy_rt.backends.cpu.compile import find_compiler  # noqa: E402
from slangpy_rt.backends.extras import MappedMemory  # noqa: E402
from slangpy_rt.core.memory import give_back_freed  # noqa: E402
from tests.depth import MARKERS, is_deep, mark_left_out, needs_of, part_of, read_part  # noqa: E402
from tests.dxc import Dxc  # noqa: E402
from tests.processes import fitting, free_memory  # noqa: E402

# (backend, capability) -> why it will never be there. A gap without an entry fails.
UNSUPPORTED = {
    ("cpu", "SPIR-V"): "without llvmlite, its kernels are C++",
    ("cpu", "grouped calls"): "without llvmlite, kernels run over ranges of elements",
    ("cpu", "wide threads"): "a vector of threads loads the elements of all at once",
    ("cpu", "groups"): "without llvmlite, a range kernel has no thread groups",
    ("cpu", "wave"): "without llvmlite, a range kernel has no waves",
    ("cpu", "shared memory"): "kernels work on host arrays in place",
    (
        "cuda",
        "int8_t vectors",
    ): "Slang writes make_char3(signed char, char, signed char), ambiguous in CUDA's headers",
}

# The backend of docs/adding-a-backend.md: the same text, no memory that both sides see.
UNSUPPORTED |= {("example", what): why for (name, what), why in UNSUPPORTED.items() if name == "cpu"}
UNSUPPORTED["example", "shared memory"] = "the example leaves out what is optional"

for _name in ("rhi-vulkan", "rhi-cuda", "rhi-d3d12", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "shared memory"] = "slangpy's binding of slang-rhi maps no memory"
UNSUPPORTED |= {
    ("rhi-vulkan", "cooperative_matrix"): "slang-rhi enables no fixed size of tiles that the kernels could rely on",
    ("rhi-cuda", "int8_t vectors"): UNSUPPORTED["cuda", "int8_t vectors"],
    ("rhi-cuda", "cooperative_matrix"): "slang-rhi says nothing about its tensor cores",
}
for _name in ("rhi-vulkan", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "negative remainders"] = (
        "slang-rhi leaves VK_KHR_maintenance8 off, without which Vulkan leaves them undefined"
    )
for _name in ("d3d12", "rhi-d3d12", "rhi-vulkan-handles"):
    UNSUPPORTED |= {
        (_name, "int8_t"): "HLSL has no 8-bit types",
        (_name, "uint8_t"): "HLSL has no 8-bit types",
        (_name, "pointers"): "D3D12 has no pointers",
        (_name, "cooperative_matrix"): "slang-rhi enables no fixed size of tiles that the kernels could rely on",
    }
for _name in ("d3d12", "example", "rhi-cuda", "rhi-vulkan"):
    UNSUPPORTED[_name, "textures"] = "its backend has no textures yet"
for _name in ("rhi-d3d12", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "textures with samplers"] = "slang-rhi's combined descriptors have no descriptor in HLSL"
    UNSUPPORTED[_name, "levels apart"] = "the backend keeps one state for all levels of a texture"
UNSUPPORTED["rhi-d3d12", "samples of whole numbers"] = "HLSL has SampleLevel for textures of floats alone"
UNSUPPORTED |= {
    ("cuda", "loads of lines"): "PTX has no fetch from a line by a whole number",
    ("cuda", "offsets of texels"): "Slang's CUDA has no SampleLevel or Load with an offset",
    ("cuda", "sizes of levels"): "Slang's CUDA leaves the level of GetDimensions out, and the number of levels",
    ("cuda", "writes of narrow channels"): "Slang's CUDA writes 16 bytes a texel whatever the format is",
}
for _name in ("cpu", "cuda", "example", "rhi-d3d12", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "gathers of texels"] = "Slang has no Gather or SampleGrad for it"
for _name in ("cpu", "cuda", "example", "rhi-d3d12", "rhi-vulkan-handles", "vulkan"):
    UNSUPPORTED[_name, "texels in lanes"] = "its kernels have no atomic operations on texels"
for _name in ("cuda", "d3d12", "vulkan", "rhi-cuda", "rhi-d3d12", "rhi-vulkan", "rhi-vulkan-handles"):
    UNSUPPORTED |= {
        (_name, "ranges"): "its kernels are entered by thread groups",
        (_name, "C++"): "its kernels are no C++ text",
    }
for _name in ("cuda", "d3d12", "example", "rhi-cuda", "rhi-d3d12"):
    UNSUPPORTED[_name, "SPIR-V"] = "its kernels are text in another language"
for _name in ("rhi-cuda", "rhi-d3d12", "rhi-vulkan", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "corrected code"] = "slang-rhi compiles by itself, and nothing but the text can be changed"
for _name in ("d3d12", "rhi-d3d12", "rhi-vulkan", "rhi-vulkan-handles"):
    UNSUPPORTED[_name, "functions of doubles"] = "refused, as test_what_cannot_be_replaced_is_refused shows"
for _name in ("cpu", "cuda", "example", "rhi-cuda", "rhi-vulkan", "vulkan"):
    UNSUPPORTED[_name, "no pointers"] = "it has pointers"
for _name in ("cuda", "d3d12", "rhi-cuda", "rhi-d3d12", "rhi-vulkan", "rhi-vulkan-handles", "vulkan"):
    UNSUPPORTED[_name, "zero_copy"] = "it does not work in host memory"
UNSUPPORTED["d3d12", "cooperative_matrix"] = "shader model 6.6 has no products of matrices"
for _scalar in ("half", "double", "int16_t", "uint16_t"):
    UNSUPPORTED["d3d12", _scalar] = "D3D12 leaves this type to the GPU; vkd3d-proton keeps it from Mesa's lavapipe"
for _name in ("d3d12", "rhi-d3d12"):
    UNSUPPORTED[_name, "roots of doubles"] = "HLSL has sqrt for floats alone"
UNSUPPORTED["rhi-vulkan-handles", "large derivatives"] = (
    "Mesa's llvmpipe compiles a derivative of three hidden layers for one to two minutes without pointers"
)

# Of these the CPU has what the table says only where its C++ compilers, or llvmlite, are missing.
_OF_CPP = ("ranges", "C++")
for _capability in _OF_CPP:
    UNSUPPORTED["cpu", _capability] = "there is no C++ compiler"
_OF_LANES = ("grouped calls", "groups", "wave", "SPIR-V", "gathers of texels", "texels in lanes")

# Bytes of a process of tests, beyond which it gives memory back.
_MUCH = 3 << 30
# torch warns of its own names where a test walks all objects. Of a build of the compiler that was not tested,
# tests/slang/test_builds.py tells in one place.
WARNINGS = (
    "error",
    "ignore:.*torch.distributed.reduce_op:FutureWarning",
    "ignore:Slang .* is not among the builds:UserWarning",
)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """From here on warnings are errors: while tests are collected and run, and not while plugins are configured."""
    # As an option of pytest, a warning of any plugin about its own settings would end the run: pytest-benchmark gives
    # one beside pytest-xdist, pytest-asyncio one without a setting of its own.
    for line in WARNINGS:
        session.config.addinivalue_line("filterwarnings", line)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What plugins say of the whole run is theirs."""
    filters: list[str] = session.config.getini("filterwarnings")
    filters[:] = [line for line in filters if line not in WARNINGS]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None, item: pytest.Item) -> None:
    """Give memory back after a file: compilers free it in pieces that the C library keeps, up to 8 GB in a run."""
    if (nextitem is None or nextitem.path != item.path) and _resident() > _MUCH:
        give_back_freed()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[object]:
    """Skip a test that a device refuses for a scalar type which it lacks, if ``UNSUPPORTED`` says why it may.

    Tests of conversions, generics and layouts have such types among others, and a device with all of them runs them.
    """
    try:
        return (yield)
    except spy.SlangPyRtError as error:
        name = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("backend_name")
        lacked = re.search(r"has no '(half|double|u?int16_t)'", str(error))
        device = pyfuncitem.funcargs.get("device")
        has = isinstance(device, spy.Device) and lacked is not None and lacked[1] in device.caps.scalars
        if lacked and not has and (reason := UNSUPPORTED.get((name, lacked[1]))):
            pytest.skip(f"{name}: no '{lacked[1]}': {reason}")
        raise


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", action="append", default=[], metavar="NAME", help="test this backend; may be repeated"
    )
    parser.addoption("--validation", action="store_true", help="open Vulkan with its layers; any message fails")
    parser.addoption("--deep", action="store_true", help="also tests that take long, and more of each kind")
    parser.addoption(
        "--deep-part",
        metavar="K/N",
        help="of what --deep adds, this part alone: K of N, or auto for another one each day",
    )
    parser.addoption("--long", action="store_true", help="as --deep; property tests: many more cases, of any layout")
    parser.addoption(
        "--texts",
        nargs="?",
        const="1/1",
        metavar="K/N",
        help="kernels of slang-rhi's devices also as D3D12 and Metal have them, all or one of N parts",
    )
    parser.addoption("--regenerate-golden", action="store_true", help="rewrite tests/golden/*.slang")


def pytest_configure(config: pytest.Config) -> None:
    # A machine with other work takes longer than 200 ms for a case now and then.
    hypothesis.settings.register_profile("slangpy_rt", deadline=None)
    hypothesis.settings.load_profile("slangpy_rt")
    for name, what in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {what}")
    if config.getoption("--deep-part"):
        # In place of "auto", so that all processes of a run have the same part.
        config.option.deep_part = "{}/{}".format(*read_part(config.getoption("--deep-part")))
    if config.getoption("--texts"):
        from tests.texts import from_options

        config.pluginmanager.register(from_options(config, _required()))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Let pytest-xdist start no more processes than a GPU has memory for, however many were asked for."""
    fit = fitting(free_memory()) if getattr(config.option, "numprocesses", None) else None
    if fit:
        config.option.maxprocesses = min(config.option.maxprocesses or fit, fit)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long, unless it was asked for by ``--deep`` or by its own name, or keep a part of it."""
    mark_left_out(items, chosen(config), lacks)
    if config.getoption("--deep-part"):
        part, parts = read_part(config.getoption("--deep-part"))
        kept = [i for i in items if _is_of_deep_run(i) and part_of(i.nodeid, parts) == part]
    elif is_deep(config) or any("::" in argument for argument in config.args):
        return
    else:
        kept = [item for item in items if not item.get_closest_marker("deep")]
    if len(kept) < len(items):
        left = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in left])
        items[:] = kept


def _is_of_deep_run(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("deep") or item.get_closest_marker("random_cases"))


def pytest_report_header() -> list[str]:
    return [f"{d.type}: {'tested' if d.available else d.reason}" for d in spy.devices()]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which part ran, also with ``-q``, which has no header."""
    part = config.getoption("--deep-part")
    if part:
        terminalreporter.write_line(f"deep tests: part {part}; --deep-part={part} runs it again")


def pytest_collection_finish() -> None:
    """Let ``gc.collect`` look at what tests make, and not at the 300,000 objects of imports and of the tests."""
    # With them a test that asks for many collections takes 6 s, without them 0.3.
    gc.collect()
    gc.freeze()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend_name" in metafunc.fixturenames:
        metafunc.parametrize("backend_name", chosen(metafunc.config), scope="session")


@pytest.fixture(scope="session")
def device(backend_name: str, pytestconfig: pytest.Config) -> Iterator[spy.Device]:
    """One device of each backend, open as long as its tests run: in each process that has some of them."""
    validation = pytestconfig.getoption("--validation") and backend_name == "vulkan"
    reasons = {d.type: d.reason for d in spy.devices()}
    if reasons.get(backend_name):
        pytest.fail(f"backend '{backend_name}' is required and absent: {reasons[backend_name]}")
    with spy.Device(backend_name, debug=validation) as opened:
        assert not validation or "without the Vulkan validation layers" not in opened.info, opened.info
        yield opened
    if validation:
        # Debian 12's layer does not know Slang's number in SPIR-V's list of source languages.
        said = [text for text in opened.backend.messages if "Invalid source language operand" not in text]
        assert not said, "the validation layer had something to say:\n" + "\n".join(said)


@pytest.fixture(scope="session")
def dxc() -> Dxc:
    """The compiler of D3D12's kernels, where ``SLANGPY_RT_DXC`` says that there is one."""
    path = os.environ.get("SLANGPY_RT_DXC")
    if not path:
        reason = "SLANGPY_RT_DXC names no library of DXC; CONTRIBUTING.md says where to get one"
        if "dxc" in _required():
            pytest.fail(f"dxc is required and absent: {reason}")
        pytest.skip(reason)
    return Dxc(path)


@pytest.fixture(scope="session")
def slangpy_on_vulkan() -> None:
    """A Vulkan device for SlangPy itself, which has no other device on machines without a GPU."""
    if not any(info.type == "vulkan" and info.available for info in spy.devices()):
        if "vulkan" in _required():
            pytest.fail("vulkan is required and absent")
        pytest.skip("no Vulkan device for SlangPy")


@pytest.fixture(scope="session")
def nvrtc_13() -> str:
    """The library of NVRTC 13.0, where ``SLANGPY_RT_NVRTC_13`` says that there is one."""
    path = os.environ.get("SLANGPY_RT_NVRTC_13")
    if not path:
        reason = "SLANGPY_RT_NVRTC_13 names no library of NVRTC 13.0; CONTRIBUTING.md says where to get one"
        if "nvrtc13" in _required():
            pytest.fail(f"nvrtc13 is required and absent: {reason}")
        pytest.skip(reason)
    return path


@pytest.fixture(scope="module")
def internal_names() -> Iterator[None]:
    """The modules of a test use names that are slangpy_rt's own, and are compiled in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slangpy_rt.slang.session.check_names", lambda *_: None)
        patch.setattr("slangpy_rt.slang.sessions.compiler_process", lambda: None)
        yield


@pytest.fixture(autouse=True)
def _needed(request: pytest.FixtureRequest) -> None:
    """Skip a case on a device that is known never to have what ``needs`` says."""
    names = needs_of(request.node)
    if not names:
        return
    device: spy.Device = request.getfixturevalue("device")
    missing = [name for name in names if name not in _capabilities(device)]
    for capability in missing:
        if reason := UNSUPPORTED.get((device.name, capability)):
            pytest.skip(f"{device.name}: {reason}")
    if missing:
        pytest.fail(f"{device.name} has no '{missing[0]}', and UNSUPPORTED gives no reason for it")


def _capabilities(device: spy.Device) -> frozenset[str]:
    has = device.caps.scalars | device.caps.features
    # Thread groups follow from how kernels are entered, not from what a device reports.
    target = device.backend.target
    has |= {"grouped calls"} if target.groups else set()
    has |= {"wide threads"} if target.groups and not target.lane_threads else set()
    spare = device.backend.range_target or target
    has |= {"ranges"} if not spare.groups else set()
    has |= {"groups"} if target.groups else set()
    formats = {target.format, spare.format}
    has |= {name for name, format in (("C++", "cpp"), ("SPIR-V", "spirv")) if format in formats}
    if "pointers" not in has:
        has |= {"no pointers"}
    if not target.program:
        has |= {"corrected code"}
    if target.format == "cuda" or (target.format != "hlsl" and not target.program):
        has |= {"functions of doubles"}
    if target.format != "cuda":
        has |= {"int8_t vectors"}
    if isinstance(device.backend, MappedMemory):
        has |= {"shared memory"}
    if device.name != "rhi-vulkan-handles" or "llvmpipe" not in device.info:
        has |= {"large derivatives"}
    if not device.name.endswith("d3d12"):
        has |= {"roots of doubles", "samples of whole numbers"}
    if not device.name.startswith("rhi-"):
        has |= {"textures with samplers", "levels apart"}
    if target.format == "spirv":
        has |= {"gathers of texels"}
    if target.lane_threads:
        has |= {"texels in lanes"}
    if device.backend.target.format != "cuda":
        has |= {"loads of lines", "offsets of texels", "sizes of levels", "writes of narrow channels"}
    # Mesa's driver defines what Vulkan leaves open.
    if not device.name.startswith("rhi-vulkan") or "llvmpipe" in device.info:
        has |= {"negative remainders"}
    return frozenset(has)


def lacks(backend: str, capability: str) -> bool:
    """Tell whether a device lacks a capability by the table of gaps: a run has such cases on another device."""
    if backend == "cpu" and capability in _OF_LANES and importlib.util.find_spec("llvmlite") is not None:
        return False
    if backend == "cpu" and capability in _OF_CPP and find_compiler() is not None:
        return False
    return (backend, capability) in UNSUPPORTED


def _resident() -> int:
    """Return how many bytes of memory this process has; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def chosen(config: pytest.Config) -> list[str]:
    """The names of a run's devices."""
    asked: list[str] = config.getoption("--backend")
    return asked or _tested()


@lru_cache(maxsize=1)
def _tested() -> list[str]:
    """Backends of a run that names none; asking the drivers takes 14 ms, and each of 800 tests is given them."""
    required = [name for name in _required() if name not in ("dxc", "nvrtc13")]
    # The same hardware another way; asked for by name.
    present = [d.type for d in spy.devices() if d.available and not d.type.startswith("rhi-")]
    return list(dict.fromkeys([*required, *present]))


def _required() -> list[str]:
    return [name for name in os.environ.get("SLANGPY_RT_REQUIRE", "").split(",") if name]

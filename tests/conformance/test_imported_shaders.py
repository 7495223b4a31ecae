"""Shaders and kernels, which nobody calls, in files that a module imports or includes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.target import Target
from slangpy_rt.slang.library import Library
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.session import Session
from tests.depth import one_device, sampled

SHADERS = {
    "vertex": "{} float4 s(float3 p : POSITION) : SV_Position {{ return float4(p, 1); }}",
    "fragment": "{} float4 s(float4 p : SV_Position) : SV_Target {{ return p; }}",
    "pixel": "{} float4 s(float4 p : SV_Position) : SV_Target {{ return p; }}",
    "miss": "struct P {{ float3 c; }}; {} void s(inout P p) {{ p.c = 1; }}",
    "closesthit": """struct P {{ float3 c; }}; {}
        void s(inout P p, in BuiltInTriangleIntersectionAttributes a) {{ p.c = 1; }}""",
    "anyhit": """struct P {{ float3 c; }}; {}
        void s(inout P p, in BuiltInTriangleIntersectionAttributes a) {{ IgnoreHit(); }}""",
    "raygeneration": "{} void s() {{ uint3 i = DispatchRaysIndex(); }}",
    "callable": "struct P {{ float3 c; }}; {} void s(inout P p) {{ p.c = 1; }}",
    "intersection": "struct A {{ float3 c; }}; {} void s() {{ A a; a.c = 1; ReportHit(1.0, 0, a); }}",
    "geometry": """struct V {{ float4 p : SV_Position; }}; {} [maxvertexcount(3)]
        void s(triangle V i[3], inout TriangleStream<V> o) {{ o.Append(i[0]); }}""",
    "mesh": """struct V {{ float4 p : SV_Position; }}; {} [numthreads(3, 1, 1)] [outputtopology("triangle")]
        void s(out vertices V v[3], out indices uint3 t[1])
        {{ SetMeshOutputCounts(3, 1); v[0].p = 0; t[0] = uint3(0, 1, 2); }}""",
    "compute": """{} [numthreads(8, 1, 1)]
        void s(uint3 i : SV_DispatchThreadID) {{ GroupMemoryBarrierWithGroupSync(); }}""",
}  # fmt: skip
OTHERS = [Target("cuda", "", "value"), Target("metal", "", "handle", True)]
WAYS = {"import": "import {};", "include": '#include "{}.slang"', "part": "__include {};"}


def files(folder: Path, stage: str, way: str, more: str = "") -> Path:
    """Write a module and the file that it imports or includes, with a shader and a function."""
    name, public = f"lib_{stage}_{way}", "public " if way == "part" else ""
    head = f"implementing user_{stage}_{way};\n" if way == "part" else ""
    shader = SHADERS[stage].format(f'[shader("{stage}")]')
    (folder / f"{name}.slang").write_text(f"{head}{shader}\n{public}float twice(float x) {{ return 2 * x; }}\n")
    text = f"module user_{stage}_{way};\n" if way == "part" else ""
    text += WAYS[way].format(name) + f"\n{public}float f(float x) {{ return twice(x) + 1; }}\n{more}"
    path = folder / f"user_{stage}_{way}.slang"
    path.write_text(text)
    return path


@sampled(34)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stage", SHADERS)
def test_the_module_loads_and_runs(device: spy.Device, tmp_path: Path, stage: str, way: str) -> None:
    module = spy.Module.load_from_file(device, str(files(tmp_path, stage, way)))
    assert np.array_equal(module.f(np.array([1, 2], "f4")), [3, 5])


@one_device
def test_a_file_behind_another(device: spy.Device, tmp_path: Path) -> None:
    files(tmp_path, "miss", "import")
    (tmp_path / "between.slang").write_text(
        '__exported import lib_miss_import;\n[shader("pixel")] float4 q() { return 1; }'
    )
    text = "import between;\nuniform float gain;\nfloat f(float x) { return gain * twice(x); }\n"
    text += (
        "[numthreads(4, 1, 1)] void k(uint3 i : SV_DispatchThreadID, RWStructuredBuffer<float> o) { o[i.x] = i.x; }"
    )
    (tmp_path / "user.slang").write_text(text)
    module = spy.Module.load_from_file(device, str(tmp_path / "user.slang"))
    assert module.f.set({"gain": 3.0})(2.0) == 12
    values = spy.Tensor.zeros(device, 4)
    module.k.dispatch(4, o=values)
    assert np.array_equal(values.numpy(), [0, 1, 2, 3])


@one_device
def test_beside_a_linked_module_and_macros(device: spy.Device, tmp_path: Path) -> None:
    other = spy.Module.load_from_source(device, "other_of_shaders", "public float three() { return 3; }")
    path = files(
        tmp_path, "vertex", "import", "import other_of_shaders;\nfloat g(float x) { return N * x * three(); }\n"
    )
    module = spy.Module.load_from_file(device, str(path), defines={"N": "5"}, link=[other])
    assert module.g(2.0) == 30 and module.f(1.0) == 3


@one_device
def test_what_is_wrong_in_such_a_file_is_said_without_our_names(device: spy.Device, tmp_path: Path) -> None:
    path = files(tmp_path, "vertex", "import", "float g() { return missing; }\n")
    with pytest.raises(spy.CompileError, match="missing") as error:
        spy.Module.load_from_file(device, str(path))
    assert "_spy_" not in str(error.value)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[Target, Session]]]:
    """A folder, and a session for each of the other targets that finds the files in it."""
    folder = tmp_path_factory.mktemp("elsewhere")
    sessions = {target: Session(Library(None), target, (str(folder), shader_directory())) for target in OTHERS}
    yield folder, sessions
    for session in sessions.values():
        session.close()


@sampled(4)
@pytest.mark.parametrize("target", OTHERS, ids=["cuda", "metal"])
@pytest.mark.parametrize("stage", SHADERS)
def test_for_devices_that_are_not_here(
    elsewhere: tuple[Path, dict[Target, Session]], stage: str, target: Target
) -> None:
    folder, sessions = elsewhere
    path = files(folder, stage, "import")
    assert sessions[target].load_module(path.stem, str(path), path.read_text()).functions

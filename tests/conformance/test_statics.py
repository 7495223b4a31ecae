"""Static and uniform variables: each element of a call, and each thread, begins with initial values or zeros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from _slangtorch import Files
from _statics import ARRAYS, BY_CODE, CHANGED, COUNTERS, DECLARED, STRUCTS

import slangpy_rt as spy
from tests.depth import needs, one_device, sampled
from tests.lanes_off import without_lanes

pytestmark = one_device


# Neighbours share a thread on GPUs, and a range of elements has its variables in common on the CPU.
@sampled(3)
@pytest.mark.parametrize("count", [1, 7, 300])
def test_each_element_begins_with_zeros(device: spy.Device, count: int) -> None:
    module = spy.Module.load_from_source(device, "test_statics", COUNTERS)
    ones = spy.Tensor.from_numpy(device, np.ones(count, np.int32))
    assert (module.counted(ones).to_numpy() == 1111).all()
    assert (module.counted(np.ones((count, 2), np.int32)[:, 0]) == 1111).all()
    assert (module.within(ones).to_numpy() == 11).all()
    found = spy.Tensor.zeros(device, count, dtype="int")
    module.kernel.dispatch(count, found=found)
    assert (found.to_numpy() == 1).all()


@sampled(14)
@pytest.mark.parametrize("what", [*CHANGED, *DECLARED])
def test_statics_are_the_elements_own(device: spy.Device, what: str) -> None:
    text = (CHANGED | DECLARED)[what]
    module = spy.Module.load_from_source(device, "test_own", text, defines={"MODULE_COUNT": "n"})
    ones = np.ones(50, np.float32)
    np.testing.assert_array_equal(module.f(ones), ones)
    across = np.ones((2, 30), np.float32)
    np.testing.assert_array_equal(module.f(across.T), across.T)


@needs("corrected code")
@sampled(3)
@pytest.mark.parametrize("what", BY_CODE)
def test_statics_that_no_text_shows_begin_with_zeros(device: spy.Device, what: str) -> None:
    module = spy.Module.load_from_source(device, "test_bare", BY_CODE[what])
    ones = np.ones(50, np.float32)
    np.testing.assert_array_equal(module.f(ones), ones)


@needs("corrected code")
@one_device
def test_statics_of_other_files_begin_with_zeros(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "statics_elsewhere.slang").write_text(
        "public struct S { public int a; }\npublic static S s;\nstatic float n;\n"
        "public float up() { n += 1; s.a += 1; return n; }"
    )
    (tmp_path / "statics_included.h").write_text("static float counter;\n")
    (tmp_path / "test_elsewhere.slang").write_text(
        'import statics_elsewhere;\n#include "statics_included.h"\n'
        "public float f(float x) { counter += 1; return up() * s.a * counter; }"
    )
    module = spy.Module.load_from_file(device, tmp_path / "test_elsewhere.slang")
    np.testing.assert_array_equal(module.f(np.ones(50, np.float32)), np.ones(50))


@one_device
def test_a_linked_module_changes_a_static(device: spy.Device) -> None:
    first = spy.Module.load_from_source(device, "test_static_of", "public static int n;")
    text = "import test_static_of;\npublic float f(float x) { n += 1; return n; }"
    module = spy.Module.load_from_source(device, "test_static_by", text, link=[first])
    np.testing.assert_array_equal(module.f(np.ones(50, np.float32)), np.ones(50))


def test_derivatives_begin_with_zeros(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_statics", COUNTERS)
    n = 20_000
    x = spy.Tensor.from_numpy(device, np.full(n, 2, np.float32)).with_grads()
    w = spy.Tensor.from_numpy(device, np.full(1, 3, np.float32)).with_grads()
    module.weighted.bwds(x, w, _result=spy.diff_pair(None, 1.0))
    np.testing.assert_array_equal(x.grad.to_numpy(), np.full(n, 3, np.float32))
    np.testing.assert_array_equal(w.grad.to_numpy(), [2 * n])


def test_initial_values(device: spy.Device) -> None:
    text = """
    static int start = 7;
    static int table[2] = { 1, 2 };
    int moved(int x)
    {
        static int local = 100;
        start += x; table[1] += x; local += x;
        return start + table[1] + local;
    }
    """
    module = spy.Module.load_from_source(device, "test_initial", text)
    ones = np.ones(50, np.int32)
    if device.backend.target.format == "cpp":
        with pytest.raises(spy.UnsupportedError, match="initial value is lost"):
            module.moved(ones)
    else:
        np.testing.assert_array_equal(module.moved(ones), 112 * ones)


def test_structs_that_nobody_set_are_zero(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "test_structs", STRUCTS)
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(module.lit(x), x)
    inner = {"scale": 0, "on": False, "small": 0, "kind": 1, "m": np.zeros((2, 2))}
    lit = module.lit.set({"light": {"gain": 3, "inner": inner, "parts": [1, 2, 3]}})
    np.testing.assert_array_equal(lit(x), x + 6)
    found = spy.Tensor.zeros(device, 4)
    module.kernel.dispatch(4, found=found)
    np.testing.assert_array_equal(found.to_numpy(), np.full(4, 2, np.float32))
    at = spy.Tensor.from_numpy(device, x).with_grads()
    module.slope.bwds(at, _result=spy.diff_pair(None, 1.0))
    np.testing.assert_array_equal(at.grad.to_numpy(), 2 * x)


def test_arrays_of_structs_that_nobody_set_are_zero(device: spy.Device) -> None:
    x = np.arange(5, dtype=np.float32)
    lights = [{"gain": 1, "at": (2, 3)}] * 2
    for gain in ("", "= 3"):
        lit = spy.Module.load_from_source(device, "test_arrays", ARRAYS.replace("GAIN", gain)).lit
        np.testing.assert_array_equal(lit(x), x)
        np.testing.assert_array_equal(lit.set({"space.lights": lights})(x), x + 4)


@one_device
def test_linked_modules_that_import_each_other(device: spy.Device) -> None:
    text = (
        "struct NAME { float gain = 3; }\nuniform NAME inNAME;\nfloat ofNAME(float x) { return x + inNAME.gain; }\n"
    )
    first = spy.Module.load_from_source(device, "test_first", text.replace("NAME", "First"))
    both = (
        "import test_first;\n"
        + text.replace("NAME", "Second")
        + "float both(float x) { return ofFirst(ofSecond(x)); }"
    )
    second = spy.Module.load_from_source(device, "test_second", both, link=[first])
    assert second.both(1.0) == first.ofFirst(1.0) == 1
    assert second.both.set(inSecond={"gain": 2})(1.0) == 3


@needs("pointers")
def test_threads_of_slang_torch_begin_with_zeros(device: spy.Device, tmp_path: Path) -> None:
    files = Files(device, tmp_path)
    text = """
    static int count;
    [AutoPyBindCUDA] [CudaKernel] void fill(TensorView<int> found)
    {
        uint at = cudaThreadIdx().x + cudaBlockIdx().x * cudaBlockDim().x;
        count += 1;
        if (at < found.size(0)) found[at] = count;
    }
    """
    module = files.load(text)
    found = files.on(torch.zeros(100, dtype=torch.int32))
    module.fill(found=found).launchRaw(blockSize=(32, 1, 1), gridSize=(4, 1, 1))
    assert (found == 1).all()


@needs("C++")
def test_an_initial_value_is_not_lost_behind_another_name(backend_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slang writes both names alike in C++."""
    with spy.Device(backend_name) as device:
        without_lanes(device, monkeypatch)
        for one, other in (("_Scale", "U_Scale"), ("é", "xC3xA9")):
            text = (
                f"static float {one} = 5; uniform float {other}; float f(float x) {{ return x * {one} + {other}; }}"
            )
            with pytest.raises(spy.UnsupportedError, match=f"static variable '{one}', whose initial value is lost"):
                spy.Module.load_from_source(device, "alike", text).f.set({other: 100.0})(1.0)

"""Files written for slang-torch load unchanged, and their kernels are launched."""

from __future__ import annotations

import gc
import warnings
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from _slangtorch import DIFF_SQUARE, ONE, SQUARE, Files, files

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
from slangpy_rt.backends.extras import Occupancy
from slangpy_rt.slangtorch.bound_kernel import suited_block
from slangpy_rt.slangtorch.devices import Place
from slangpy_rt.slangtorch.kernel_code import SUITED
from tests.depth import deep, one_device, sampled

__all__ = ["files"]  # the fixture

pytestmark = one_device


def test_a_kernel_of_the_tutorial(files: Files) -> None:
    m = files.load(SQUARE, "square.slang")
    a = files.on(torch.randn(1024))
    output = torch.zeros_like(a)
    m.square(input=a, output=output).launchRaw(blockSize=(32, 1, 1), gridSize=(64, 1, 1))
    assert torch.equal(output, a * a)


def test_macros_make_modules_side_by_side(files: Files) -> None:
    text = """
    static const uint kMaxSteps = MAX_STEPS;
    float trace<let N : int>(float x) { for (int i = 0; i < N; i++) x += 1; return x; }
    [AutoPyBindCUDA] [CudaKernel]
    void render(TensorView<float> output) { output[cudaThreadIdx().x] = trace<kMaxSteps>(0.5); }
    """
    twenty, fifty = (files.load(text, defines={"MAX_STEPS": steps}) for steps in (20, 50))
    output = files.on(torch.zeros(3))
    for module, expected in ((twenty, 20.5), (fifty, 50.5), (twenty, 20.5)):
        module.render(output=output).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
        assert (output == expected).all()
    with pytest.raises(RuntimeError, match="MAX_STEPS"):
        files.load(text)


@sampled(2)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("void f(TensorView<float> a) { a.nothing(); }", "'nothing' is not a member of 'TensorView<float>'"),
        ("void f(DiffTensorView<float> a) { float x = a; }", "got 'DiffTensorView<float, AtomicAdd>'"),
    ],
)
def test_messages_have_the_names_of_the_text(files: Files, text: str, said: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        files.load("[AutoPyBindCUDA] [CudaKernel] " + text)
    assert said in str(caught.value) and "_spy_" not in str(caught.value)


def test_macros_and_folders_as_flags_of_slang(files: Files) -> None:
    other = files.folder / "flagged"
    other.mkdir()
    (other / "flagged.slang").write_text("public float factor() { return FACTOR; }")
    text = """
    import flagged;
    [AutoPyBindCUDA] [CudaKernel]
    void scale(TensorView<float> output) { output[cudaThreadIdx().x] = factor() NOTHING * MORE; }
    """
    output = files.on(torch.zeros(3))
    # As for slangc, a macro without a value is empty.
    flags = ["-DFACTOR=2.5", "-D", "MORE=1", "-DNOTHING", "-I", str(other)]
    files.load(text, extraSlangFlags=flags).scale(output=output).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert (output == 2.5).all()
    # A macro of defines= comes before one of the flags.
    module = files.load(
        text, defines={"MORE": 2}, extraSlangFlags=[f"-I{other}", "-DFACTOR=2.5", "-DMORE=3", "-DNOTHING"]
    )
    module.scale(output=output).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert (output == 5).all()
    with pytest.raises(spy.CompileError, match="extraSlangFlags has '-D' without a value"):
        files.load(text, extraSlangFlags=["-D"])
    with pytest.raises(spy.BindError, match="the name of a macro"):
        files.load(text, extraSlangFlags=["-DF(x)=x"])


def test_other_flags_of_slang(files: Files) -> None:
    text = """
    [AutoPyBindCUDA] [CudaKernel]
    void narrow(TensorView<int> output, float x) { int whole = x; output[cudaThreadIdx().x] = whole; }
    """
    if files.device.name.startswith("rhi"):
        with pytest.raises(spy.UnsupportedError, match="extraSlangFlags are not for"):
            files.load(text, extraSlangFlags=["-O0"])
        return
    output = files.on(torch.zeros(3, dtype=torch.int32))
    plain = files.load(text)
    flags = ["-O0", "-g2", "-matrix-layout-row-major", "-capability", "cuda_sm_8_0", "-fp-mode", "precise"]
    module = files.load(text, extraSlangFlags=[*flags, "-warnings-disable", "30081"])
    assert module is not plain
    module.narrow(output=output, x=2.5).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert output.tolist() == [2, 2, 2]
    # Slang sees the flag: without it, it only warns of the conversion.
    with pytest.raises(spy.CompileError, match=r"(?s)load module .*30081"):
        files.load(text, extraSlangFlags=["-warnings-as-errors", "30081"])
    # Slang warns of nothing in this project's own text.
    strict = files.load(text.replace("= x", "= int(x)"), extraSlangFlags=["-warnings-as-errors", "all"])
    strict.narrow(output=output, x=3.5).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert output.tolist() == [3, 3, 3]
    for flags, said in (
        (["-O0", "-bogus"], "refuses '-bogus', or"),
        (["-fp-mode", "sloppy"], "refuses '-fp-mode', or the value"),
        (["-O0", "-target", "cuda"], "'-target cuda' has no place here"),
        (["-entry", "narrow"], "'-entry narrow' has no place"),
        (["other.slang"], "'other.slang' has no place"),
        (["-matrix-layout-column-major"], "'-matrix-layout-column-major' has no place"),
        (["-Xnvrtc", "--x"], "'-Xnvrtc --x' has no place"),
        # Slang has no such flag, and says nothing at all.
        (["-Xslang", "-O3"], "refuses '-Xslang'"),
        # A session ignores these, writes files for them, or crashes.
        (["-g2", "-emit-ir"], "'-emit-ir' has no place"),
        (["-dump-ast"], "'-dump-ast' has no place"),
        (["-obfuscate"], "'-obfuscate' has no place"),
    ):
        with pytest.raises(spy.CompileError, match=f"extraSlangFlags: .*{said}"):
            files.load(text, extraSlangFlags=flags)


def test_imports_includes_and_public_names(files: Files) -> None:
    files.write("part-of-it.slang", "public float at(TensorView<float> t, uint i) { return t[i] + FACTOR; }")
    files.write("deep.slang", "import part_of_it; public float deeper(TensorView<float> t) { return at(t, 1); }")
    files.write("here.h", "float included(TensorView<float> t) { return t[0]; }\n")
    other = files.folder / "other"
    other.mkdir()
    (other / "elsewhere.slang").write_text("public uint where() { return cudaBlockIdx().x; }")
    text = """
    import deep;
    import elsewhere;
    #include "here.h"
    public struct Visible { float x; }
    // The word import in a comment, and a string: "import nothing;"
    [AutoPyBindCUDA] [CUDAKernel]
    void run(TensorView<float> t, TensorView<float> output)
    {
        output[where()] = deeper(t) + 10 * included(t);
    }
    """
    with pytest.raises(spy.CompileError, match="elsewhere"):
        files.load(text, defines={"FACTOR": 2.5})
    m = files.load(text, defines={"FACTOR": 2.5}, includePaths=[other])
    t, output = files.on(torch.tensor([1.0, 2.0])), files.on(torch.zeros(2))
    m.run(t=t, output=output).launchRaw(blockSize=ONE, gridSize=(2, 1, 1))
    assert output.tolist() == [14.5, 14.5]


def test_a_module_is_a_snapshot(files: Files) -> None:
    files.write("part.slang", "public float factor() { return 2; }")
    text = """
    import part;
    [AutoPyBindCUDA] [CUDAKernel] void run(TensorView<float> t) { t[0] = t[0] * factor(); }
    """
    first = files.load(text)
    assert (
        files.load(text) is first
        and slangtorch.loadModule(str(files.folder / "module.slang"), device=files.device) is first
    )
    t = files.on(torch.ones(1))
    files.write("part.slang", "public float factor() { return 3; }")
    second = files.load(text)
    assert second is not first
    second.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 3
    if files.device.backend.target.program:
        # It compiles by itself, from the files as they are.
        with pytest.raises(RuntimeError, match="changed since it was loaded"):
            first.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
        return
    first.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 6
    second.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 18
    files.write("part.slang", "public float factor() { return 2; }")
    files.load(text).run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 36


@deep
def test_modules_that_nobody_holds_go(files: Files) -> None:
    text = "[AutoPyBindCUDA] [CUDAKernel] void run(TensorView<float> t) { t[0] = VALUE; }"
    kept = files.load(text, defines={"VALUE": -1})
    modules = [weakref.ref(files.load(text, defines={"VALUE": k})) for k in range(9)]
    gc.collect()
    # The last eight wait for a program that loads them in each step.
    assert [ref() is None for ref in modules] == [True] + [False] * 8
    assert files.load(text, defines={"VALUE": -1}) is kept
    assert files.load(text, defines={"VALUE": 8}) is modules[8]()


def test_launches(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void where(TensorView<int> t)
        {
            uint3 at = cudaBlockIdx() * cudaBlockDim() + cudaThreadIdx();
            if (at.x >= t.size(0) || at.y >= t.size(1) || at.z >= t.size(2)) return;
            uint3 block = cudaBlockIdx();
            uint3 thread = cudaThreadIdx();
            uint3 by = uint3(1, 10, 100);
            t[at] = int(1000 * dot(block, by) + dot(thread, by));
        }
        """
    )
    n = (5, 7, 6)
    x, y, z = np.meshgrid(*map(np.arange, n), indexing="ij")
    expected = z // 2 * 100000 + y // 4 * 10000 + x // 3 * 1000 + z % 2 * 100 + y % 4 * 10 + x % 3
    t = files.on(torch.full(n, -1, dtype=torch.int32))
    bound = m.where(t=t)
    bound.launchRaw(blockSize=(3, 4, 2), gridSize=(2, 2, 3))
    assert np.array_equal(t.cpu().numpy(), expected)
    t.fill_(-1)
    bound.launchTotal(blockSize=(3, 4, 2), totalSize=n)
    assert np.array_equal(t.cpu().numpy(), expected)
    t.fill_(-1)
    bound.autoLaunch(totalSize=n)
    assert (t >= 0).all()
    t.fill_(-1)
    bound.launchRaw(blockSize=(3, 4, 2), gridSize=(2, 0, 3))
    assert (t == -1).all()


def test_groups_with_which_most_threads_run(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """What autoLaunch takes where the backend can tell, as CUDA's; here a stand-in answers."""
    m = files.load("[AutoPyBindCUDA] [CudaKernel] void block(TensorView<int> t) { t[0] = cudaBlockDim().x; }")
    t = files.on(torch.zeros(1, dtype=torch.int32))
    m.block(t=t).autoLaunch(totalSize=(1, 1, 1))
    assert t.item() == SUITED[0] == 256
    asked: list[int] = []

    class Telling(Occupancy):
        def resident_threads(self, kernel: Any, threads: int) -> int:
            asked.append(threads)
            return 65536 // 168 // threads * threads  # 168 registers a thread, of 65536

    class Holding:
        backend = Telling()

    place: Any = Place(Holding(), True, None)  # type: ignore[arg-type]
    monkeypatch.setattr(m.block.code, "load", lambda device, group, buffers: None)
    assert [m.block.code.suited_threads(place) for _ in range(2)] == [128, 128]
    assert asked == [256, 128, 384, 512]
    assert [suited_block((9, y, z), 128) for y, z in ((1, 1), (2, 1), (2, 2))] == [(128, 1, 1), (32, 4, 1), (8, 8, 2)]


def test_wrong_launches(files: Files) -> None:
    m = files.load(DIFF_SQUARE + SQUARE.replace("square(", "plain("))
    a = files.on(torch.zeros(4))
    with pytest.raises(ValueError, match="by name: input, output"):
        m.square(a, a)
    with pytest.raises(ValueError, match="missing output; unknown out;"):
        m.square(input=a, out=a)
    for name in ("fwd", "bwd"):
        with pytest.raises(ValueError, match="Differentiable"):
            getattr(m.plain, name)(input=a, output=a)
    bound = m.square(input=a, output=a)
    for size in ([1, 1, 1], (1, 1), (1, 1, 1.0), (1, 1, -1), 32, None, (1, 1, True)):
        with pytest.raises(ValueError, match="blockSize is "):
            bound.launchRaw(blockSize=size, gridSize=ONE)
        with pytest.raises(ValueError, match="gridSize is "):
            bound.launchRaw(blockSize=ONE, gridSize=size)
    with pytest.raises(ValueError, match="blockSize is "):
        bound.launchRaw(blockSize=(0, 1, 1), gridSize=ONE)
    for block in ((1025, 1, 1), (32, 33, 1), (1, 1, 65)):
        with pytest.raises(RuntimeError, match="threads"):
            bound.launchRaw(blockSize=block, gridSize=ONE)
    bound.launchRaw(blockSize=ONE, gridSize=ONE)
    with pytest.raises(AttributeError, match="'cube'; it has square, plain"):
        m.cube  # noqa: B018
    assert {"square", "plain", "DiffTensorView"} <= set(dir(m)) and "square" in repr(m) and "input" in repr(m.square)


def test_tensors_that_cannot_be_used(files: Files) -> None:
    m = files.load(DIFF_SQUARE)
    a, output = files.on(torch.zeros(4)), files.on(torch.zeros(4))
    wrong: list[tuple[Any, str]] = [
        (a.double(), "input is float64; 'TensorView<float>' needs float32"),
        (a[:1].expand(4), "input is a broadcast view.*contiguous"),
        (a.view(1, 1, 1, 1, 1, 4), "input has 6 dimensions"),
        (a.to_sparse(), "input is no plain tensor"),
        ((a, a), "input.grad lies in the memory of input"),
        ((a, files.on(torch.zeros(5))), "input.grad has shape"),
        ((a, a.double()), "input.grad is float64"),
        ((a[:1].expand(4), a), "input is a broadcast view"),
    ]
    for value, message in wrong:
        with pytest.raises(RuntimeError, match=message):
            m.square.bwd(input=value, output=(output, torch.ones_like(a)))
    for value in (1.0, None, np.zeros(4, np.float32), (a, a, a), ()):
        with pytest.raises((TypeError, ValueError), match=r"^input"):
            m.square(input=value, output=output)
    # The device stays usable, and an empty tensor is none of them.
    empty = a[:0]
    m.square.bwd(input=(empty, empty.clone()), output=(empty, empty.clone())).launchRaw(
        blockSize=(32, 1, 1), gridSize=ONE
    )
    m.square(input=a, output=output).launchRaw(blockSize=(4, 1, 1), gridSize=ONE)


def test_a_kernel_that_is_never_launched_warns(files: Files) -> None:
    m = files.load(SQUARE)
    a = files.on(torch.zeros(4))
    bound = m.square(input=a, output=a)
    with pytest.warns(RuntimeWarning, match="never launched"):
        del bound
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.square(input=a, output=a).launchRaw(blockSize=ONE, gridSize=(0, 1, 1))


def test_names_of_the_user_meet_none_of_ours(files: Files) -> None:
    m = files.load(
        """
        static float threadIdx = 1;
        struct Call { float local; }
        float diffPair(float x) { return x; }
        float block(float group, float at) { return group + at; }
        [AutoPyBindCUDA] [CUDAKernel] [Differentiable]
        void call(DiffTensorView data, float threads, no_diff float begin, Call sizes)
        {
            uint i = cudaThreadIdx().x;
            data[i] = threads * data.load(i) + begin + sizes.local;
        }
        """.replace("static float threadIdx = 1;", "")
    )
    x = files.on(torch.ones(3))
    m.call(data=x, threads=2.0, begin=3, sizes=m.Call(4)).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert x.tolist() == [9, 9, 9]
    x, g = files.on(torch.ones(3)), files.on(torch.ones(3))
    m.call.bwd(data=(x, g), threads=2.0, begin=3, sizes=(4,)).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert g.tolist() == [2, 2, 2]


def test_kernels_with_the_names_of_a_modules_members(files: Files) -> None:
    mark = "[AutoPyBindCUDA] [CudaKernel]"
    names = ("module", "precompile", "DiffTensorViews", "lambda")
    m = files.load("".join(f"{mark} void {name}(TensorView<int> def) {{ def[0] += 1; }}\n" for name in names))
    t = files.on(torch.zeros(1, dtype=torch.int32))
    for count, name in enumerate(names, 1):
        getattr(m, name)(**{"def": t}).launchRaw(ONE, ONE)
        assert t.item() == count, name
    other = files.load(
        f"{mark} void other(TensorView<float> a) {{}} float plus(float x) {{ return x + 1; }}", "b.slang"
    )
    assert other.module.plus(1.0) == 2


@sampled(5)
@pytest.mark.parametrize(
    ("declared", "refused"),
    [
        ("struct AtomicAdd { float v; }", ""),
        ("struct IDiffTensorWrapper { float v; }", ""),
        ("struct TorchTensor { float v; }", ""),
        ("float syncTorchCudaStream(float v) { return v; }", ""),
        ("struct half { float v; }", ""),
        ("struct uint3 { float v; }", "uint3"),
        ("typealias uint64_t = float;", "uint64_t"),
    ],
)
def test_names_of_slangs_that_a_file_declares(files: Files, declared: str, refused: str) -> None:
    text = """
    [AutoPyBindCUDA] [CUDAKernel] void square(TensorView<float> a, TensorView<float> b)
    {
        b[cudaThreadIdx().x] = a[cudaThreadIdx().x] * a[cudaThreadIdx().x];
    }
    """
    a, b = files.on(torch.full((4,), 3.0)), files.on(torch.zeros(4))
    bound = files.load(declared + text).square(a=a, b=b)
    # Where kernels ask the device for their ids, they do without.
    if refused and not (refused == "uint3" and "free_group_size" in files.device.caps.features):
        with pytest.raises(spy.UnsupportedError, match=f"declares '{refused}', a name of Slang's"):
            bound.launchRaw(blockSize=(4, 1, 1), gridSize=ONE)
        bound.launchRaw(blockSize=(4, 1, 1), gridSize=(0, 1, 1))
        return
    bound.launchRaw(blockSize=(4, 1, 1), gridSize=ONE)
    assert (b == 9).all()


def test_what_would_be_wrong_in_silence_is_refused(files: Files) -> None:
    run = "[AutoPyBindCUDA] [CUDAKernel] void run(TensorView<float> t) { t[0] = gain; }"
    with pytest.raises(spy.UnsupportedError, match="global uniforms gain"):
        files.load(f"uniform float gain;\n{run}")
    with pytest.raises(spy.UnsupportedError, match="printf"):
        files.load('[AutoPyBindCUDA] [CUDAKernel] void run() { printf("%d", 1); }')
    with pytest.raises(spy.UnsupportedError, match="several kernels or host functions 'square'"):
        files.load(SQUARE + SQUARE.replace("TensorView<float> input", "TensorView<double> input"))
    with pytest.warns(UserWarning, match="skipSlang"):
        files.load(SQUARE, skipSlang=True)
    m = files.load(SQUARE)
    t = files.on(torch.zeros(4))
    bound = m.square(input=t, output=t)
    bound.launchRaw(blockSize=ONE, gridSize=ONE)
    t.resize_(2)
    with pytest.raises(RuntimeError, match="resized"):
        bound.launchRaw(blockSize=ONE, gridSize=ONE)
    with pytest.raises(spy.BindError, match="fileName"):
        slangtorch.loadModule(7)  # type: ignore[arg-type]
    with pytest.raises(spy.CompileError, match="no file"):
        slangtorch.loadModule(files.folder / "none.slang")
    with pytest.raises(spy.BindError, match="device is 3"):
        slangtorch.loadModule(files.folder / "module.slang", device=3)  # type: ignore[arg-type]

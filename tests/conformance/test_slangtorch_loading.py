"""Loading of slang-torch's files: options in slang-torch's order, imports of every form, failures, forgetting."""

from __future__ import annotations

import inspect

import pytest
import torch
from _slangtorch import DIFF_SQUARE, ONE, SQUARE, Files, files

import slangpy_rt as spy
import slangpy_rt.slangtorch as slangtorch
from tests.depth import every_case, one_device

__all__ = ["files"]  # the fixture

pytestmark = one_device

# The parameters of loadModule in slang-torch 1.3.22, with their defaults; there, empty lists and dicts.
UPSTREAM = {
    "fileName": inspect.Parameter.empty, "skipSlang": None, "verbose": False, "defines": {}, "includePaths": [],
    "skipNinjaCheck": False, "slangGenLineInfo": True, "cudaFastMath": True, "cudaGenLineInfo": True,
    "extraSlangFlags": [], "extraCudaFlags": [],
}  # fmt: skip


def test_parameters_are_those_of_slang_torch(files: Files) -> None:
    found = inspect.signature(slangtorch.loadModule).parameters
    assert list(found) == [*UPSTREAM, "device"] and found["device"].kind is inspect.Parameter.KEYWORD_ONLY
    for name, default in UPSTREAM.items():
        assert (found[name].default or None) == (default or None), name
    path = files.write("scaled.slang", SQUARE.replace("= input[", "= BY * input["))
    with pytest.warns(UserWarning, match="skipSlang has no effect"):
        m = slangtorch.loadModule(
            path, False, False, {"BY": 3}, [str(files.folder)], True, False, False, False, [], [], device=files.device
        )
    x = files.on(torch.ones(2))
    m.square(input=x, output=x).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
    assert x.tolist() == [3, 3]


def test_imports_of_every_form(files: Files) -> None:
    (files.folder / "of").mkdir()
    files.write("of/here.slang", "public float inFolder(TensorView<float> t) { return t[0]; }")
    files.write("named-so.slang", "public float byName(TensorView<float> t) { return t[1]; }")
    files.write("part.slang", "implementing whole; float ofPart(TensorView<float> t) { return t[2]; }")
    files.write(
        "whole.slang", "module whole; __include part; public float whole(TensorView<float> t) { return ofPart(t); }"
    )
    m = files.load(
        """
        import of.here;
        import "named-so.slang";
        import whole;
        [CudaDeviceExport] float exported(float x) { return 2 * x; }
        [AutoPyBindCUDA] [CudaKernel] void run(TensorView<float> t, TensorView<float> output)
        {
            output[0] = exported(inFolder(t) + 10 * byName(t) + 100 * whole(t));
        }
        """
    )
    output = files.on(torch.zeros(1))
    m.run(t=files.on(torch.tensor([1.0, 2.0, 3.0])), output=output).launchRaw(blockSize=ONE, gridSize=ONE)
    assert output.item() == 642


def test_a_failure_harms_nothing(files: Files) -> None:
    x = files.on(torch.full((2,), 3.0))
    for text, expected in ((SQUARE, 9), (SQUARE.replace(";", "", 1), None), (SQUARE, 81), ("(", None)):
        if expected is None:
            with pytest.raises(RuntimeError, match=r"module\.slang"):
                files.load(text)
            continue
        files.load(text).square(input=x, output=x).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
        assert x.tolist() == [expected] * 2


def test_nothing_is_written_beside_the_file(files: Files) -> None:
    module = files.load(SQUARE)
    module.precompile(blockSize=(2, 1, 1))
    x = files.on(torch.ones(2))
    module.square(input=x, output=x).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
    assert [path.name for path in files.folder.iterdir()] == ["module.slang"]


def test_modules_are_forgotten(files: Files) -> None:
    said = "python -m slangpy_rt cache clear"
    first = files.load(SQUARE)
    with pytest.warns(UserWarning, match=said):
        slangtorch.clearPersistentShaderCache()
    assert files.load(SQUARE) is first
    slangtorch.clearSessionShaderCache()
    second = files.load(SQUARE)
    assert second is not first
    with pytest.warns(UserWarning, match=said):
        slangtorch.clearShaderCaches()
    assert files.load(SQUARE) is not second
    # A module that is held works all the same.
    x = files.on(torch.full((2,), 2.0))
    first.square(input=x, output=x).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
    assert x.tolist() == [4, 4]


def test_tensors_on_several_devices(files: Files) -> None:
    m = files.load(SQUARE)
    x = files.on(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"square: its tensors are on .* and meta; move them to one device"):
        m.square(input=x, output=torch.ones(2, device="meta"))


def test_results_of_host_functions_have_no_graph(files: Files) -> None:
    m = files.load(
        """
        [CudaKernel] void fill(TensorView<float> a, TensorView<float> b) { b[cudaThreadIdx().x] = a[0]; }
        [TorchEntryPoint] TorchTensor<float> copied(TorchTensor<float> a)
        {
            let b = TorchTensor<float>.emptyLike(a);
            __dispatch_kernel(fill, uint3(1, 1, 1), uint3(b.size(0), 1, 1))(a, b);
            return b;
        }
        """
    )
    a = files.on(torch.full((3,), 2.0)).requires_grad_()
    for _ in range(2):
        found = m.copied(a)
        assert found.tolist() == [2, 2, 2] and not found.requires_grad
    with pytest.raises(spy.BindError, match="device is"):
        slangtorch.loadModule(files.folder / "module.slang", device=3)  # type: ignore[arg-type]


def test_launches_of_what_a_file_imports(files: Files) -> None:
    files.write(
        "kernels.slang",
        """
        [CudaKernel] public void one(TensorView<float> t) { t[0] = 1; }
        public void launched(TorchTensor<float> t) { __dispatch_kernel(one, uint3(1), uint3(1))(t); }
        """,
    )
    t = files.on(torch.zeros(1))
    host = "import kernels;\n[TorchEntryPoint] void host(TorchTensor<float> t) { CALL; }"
    m = files.load(host.replace("CALL", "launched(t)"))
    with pytest.raises(spy.UnsupportedError, match="host: it calls a function of an imported file that has a __disp"):
        m.host(t)
    m = files.load(host.replace("CALL", "__dispatch_kernel(one, uint3(1), uint3(1))(t)"))
    with pytest.raises(
        spy.UnsupportedError, match=r"host: .* launches 'one', and that file has no \[CudaKernel\] func"
    ):
        m.host(t)
    assert t.item() == 0


def test_gradients_on_deterministic_devices(files: Files) -> None:
    with spy.Device(type=files.device.name, deterministic=True) as device:
        m = slangtorch.loadModule(files.write("module.slang", DIFF_SQUARE), device=device)
        x, y = (files.on(torch.full((2,), 3.0)) for _ in "xy")
        with pytest.raises(spy.UnsupportedError, match=r"square\.bwd: .*in no certain order.*deterministic"):
            m.square.bwd(input=(x, y), output=(y, x)).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
        m.square(input=x, output=y).launchRaw(blockSize=(2, 1, 1), gridSize=ONE)
        assert y.tolist() == [9, 9]


@every_case
@pytest.mark.parametrize("known", [False, True])
def test_lazy_tensors_of_known_layouts(files: Files, known: bool) -> None:
    """A tensor that is negated as it is read has the layout of one that is not: each place refuses it."""
    m = files.load(
        """
[AutoPyBindCUDA] [CudaKernel] [Differentiable] void square(DiffTensorView input, DiffTensorView output)
{
    let at = cudaThreadIdx().x;
    if (at < input.size(0))
        output[at] = input[at] * input[at];
}
"""
    )
    x, every = files.on(torch.ones(3)), files.on(torch.arange(6.0))
    plain = every[::2]
    for twin, lazy in (
        (x, torch._neg_view(files.on(torch.ones(3)))),
        (plain, torch.complex(x, x).conj().imag),
        (x, torch._efficientzerotensor((3,), device=x.device)),
    ):
        if known:
            out = torch.zeros_like(twin)
            m.square(input=twin, output=out).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
            assert out.tolist() == (twin * twin).tolist()
            pair = (twin, torch.zeros_like(twin))
            m.square.bwd(input=pair, output=(out, torch.ones_like(out))).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
        before = lazy.clone().tolist()
        for given in ({"input": lazy, "output": x.clone()}, {"input": x.clone(), "output": lazy}):
            with pytest.raises(RuntimeError, match=r"(input|output) is no plain tensor; .*resolve_neg"):
                m.square(**given)
        one, zero = torch.ones_like(x), torch.zeros_like(x)
        for value, gradient in ((lazy, zero), (one, lazy)):
            with pytest.raises(RuntimeError, match=r"is no plain tensor; .*resolve_neg"):
                m.square.bwd(input=(value, gradient), output=(zero.clone(), one.clone()))
        assert lazy.clone().tolist() == before


def test_lazy_tensors_are_refused(files: Files) -> None:
    m = files.load(SQUARE)
    x = files.on(torch.ones(3))
    negative = torch.complex(x, x).conj().imag
    assert negative.is_neg()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"input is no plain tensor; .*resolve_neg"):
            m.square(input=negative, output=x)
        m.square(input=negative.resolve_neg(), output=x).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    assert x.tolist() == [1, 1, 1]

"""What slang-torch has not: functions made of kernels, command lists, the file as a module, compiling ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _slangtorch import Files, files

import slangpy_rt as spy
from tests.depth import one_device, sampled

__all__ = ["files"]  # the fixture

pytestmark = one_device

MIX = """
struct Pair { DiffTensorView a; DiffTensorView b; float k; }

[AutoPyBindCUDA]
[CudaKernel]
[Differentiable]
void mix(Pair p, no_diff float s, TensorView<float> w, DiffTensorView[2] more,
    DiffTensorView sum, DiffTensorView product, TensorView<float> copied)
{
    uint i = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
    if (i >= sum.size(0))
        return;
    let a = p.a[i];
    let b = p.b[i];
    sum[i] = (a + b * s) * w[i] + more[0][i];
    product[i] = a * b * more[1][i];
    copied[i] = a;
}
"""
SQUARE = """
float cube(float x) { return x * x * x; }

[AutoPyBindCUDA]
[CudaKernel]
[Differentiable]
void square(DiffTensorView input, DiffTensorView output)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x < input.size(0))
        output[at.x] = input[at.x] * input[at.x];
}

[AutoPyBindCUDA]
[CudaKernel]
void twice(TensorView<float> input, TensorView<float> output)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x < input.size(0))
        output[at.x] = 2 * input[at.x];
}

[AutoPyBindCUDA]
[CudaKernel]
void nothing() {}
"""
N = 300


def random(files: Files, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return files.on(torch.rand(*shape, dtype=dtype)).requires_grad_()


def square_of(files: Files, **options: Any) -> Any:
    module = files.load(SQUARE)
    return module.square.function(outputs={"output": "input"}, threads=lambda a: a["input"].shape, **options)


@sampled(6)
@pytest.mark.parametrize("kind", ["named tuple", "dict", "tuple"])
def test_several_outputs_structs_and_arrays(files: Files, kind: str) -> None:
    module = files.load(MIX)
    mix = module.mix.function(
        outputs={
            "product": lambda a: ((N,), torch.float32),
            "sum": lambda a: (a["w"].shape, a["w"].dtype),
            "copied": "w",
        },
        threads=lambda a: a["w"].shape,
    )
    a, b, c, d = (random(files, N) for _ in range(4))
    w = files.on(torch.rand(N))
    pair = {"named tuple": module.Pair(a, b, 2.0), "dict": {"a": a, "b": b, "k": 2.0}, "tuple": (a, b, 2.0)}[kind]
    total, product, copied = mix(pair, 3.0, w, [c, d])
    sums, products = (a + b * 3) * w + c, a * b * d
    torch.testing.assert_close(total, sums)
    torch.testing.assert_close(product, products)
    assert torch.equal(copied, a)
    assert not copied.requires_grad
    gradients = tuple(files.on(torch.rand(N)) for _ in range(2))
    kept = [g.clone() for g in gradients]
    found = torch.autograd.grad((total, product), (a, b, c, d), gradients, retain_graph=True)
    for mine, theirs in zip(found, torch.autograd.grad((sums, products), (a, b, c, d), gradients), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert all(torch.equal(x, y) for x, y in zip(gradients, kept, strict=True))
    # One result alone, and by a gradient whose elements share memory.
    (found_a,) = torch.autograd.grad(total.sum(), (a,))
    torch.testing.assert_close(found_a, w)


def test_inputs_that_change_before_the_gradients(files: Files) -> None:
    mix = files.load(MIX).mix.function(
        outputs={"sum": "w", "product": "w", "copied": "w"}, threads=lambda a: a["w"].shape
    )
    a, b, c, d = (random(files, N) for _ in range(4))
    w = files.on(torch.rand(N))
    pair, more = {"a": a, "b": b, "k": 2.0}, [c, d]
    total, product, _ = mix(pair, 3.0, w, more)
    pair["a"] = more[0] = d
    more.reverse()
    loss = total.sum() + product.sum()
    found = torch.autograd.grad(loss, (a, b, c, d), retain_graph=True)
    wanted = torch.autograd.grad(((a + b * 3) * w + c + a * b * d).sum(), (a, b, c, d))
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs)
    w += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_function_in_a_graph(device: spy.Device, files: Files, dtype: torch.dtype) -> None:
    if dtype == torch.float16 and "half" not in device.caps.scalars:
        pytest.skip(f"{device!r} has no half")
    kind = {torch.float32: "DiffTensorView", torch.float16: "DiffTensorView<half>"}[dtype]
    module = files.load(SQUARE.replace("DiffTensorView", kind))
    square = module.square.function({"output": "input"}, threads=lambda a: a["input"].shape, block=(64, 1, 1))
    x = random(files, N, dtype=dtype)
    y = square(square(input=x) + 1)
    y.sum().backward()
    wide = x.detach().double().requires_grad_()
    ((wide * wide + 1) ** 2).sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == y.dtype == dtype
    torch.testing.assert_close(x.grad.double(), wide.grad, rtol=1e-2 if dtype == torch.float16 else 1e-5, atol=1e-3)
    with torch.no_grad():
        assert not square(x).requires_grad
    assert not square(x.detach()).requires_grad


def test_what_a_function_refuses(files: Files) -> None:
    module = files.load(SQUARE)
    square = square_of(files)
    x = random(files, N)
    with pytest.raises(ValueError, match=r"square\.function: 0 arguments by position and none by name; .* are input"):
        square()
    with pytest.raises(ValueError, match="are input"):
        square(x, input=x)
    with pytest.raises(ValueError, match=r"is to be like .input., which is None"):
        square(None)
    with pytest.raises(ValueError, match=r"give a tensor|is to be like 'input', which is"):
        square((x, x))
    with pytest.raises(RuntimeError, match="float64"):
        square(x.double())
    (first,) = torch.autograd.grad(square(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="Slang functions have no second derivatives"):
        first.sum().backward()
    # Also as a part of what can be differentiated; as itself a gradient is a value.
    (first,) = torch.autograd.grad(square(x).sum(), x, create_graph=True)
    torch.testing.assert_close(first, 2 * x)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        ((first**2).sum() + square(x).sum()).backward()
    x.grad = None
    # PyTorch's own: a value that was changed since.
    y = square(x)
    with torch.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    twice = module.twice.function({"output": "input"}, threads=(N,))
    torch.testing.assert_close(twice(x.detach()), 2 * x.detach())
    # Views of a kernel without derivative are of no graph, as of slang-torch's.
    assert not twice(x).requires_grad
    for outputs in ({}, [], {"outpt": "input"}, {"output": "output"}, {"output": "imput"}, {"output": 3}):
        with pytest.raises(ValueError, match="outputs"):
            module.square.function(outputs, threads=(1,))
    for threads in (None, 1.5, (1, 2, 3, 4), (-1,), "abc"):
        with pytest.raises(ValueError, match="threads"):
            module.square.function({"output": "input"}, threads=threads)
    with pytest.raises(ValueError, match="block"):
        module.square.function({"output": "input"}, threads=(1,), block=(1, 1))
    with pytest.raises(ValueError, match="threads returned"):
        module.square.function({"output": "input"}, threads=lambda a: [1.5])(x)
    with pytest.raises(ValueError, match=r"outputs\['output'\] returned"):
        module.square.function({"output": lambda a: 3}, threads=(1,))(x)


def test_a_gradient_may_be_consumed(files: Files) -> None:
    square = square_of(files, consume=True)
    x = random(files, N)
    given = files.on(torch.ones(N))
    square(x).backward(given)
    torch.testing.assert_close(x.grad, 2 * x.detach())
    assert not given.any()


def test_launches_in_a_command_list(device: spy.Device, files: Files) -> None:
    module = files.load(SQUARE)
    x, y, z = (files.on(torch.full((N,), value)) for value in (3.0, 0.0, 0.0))
    commands = device.command_list()
    first = module.square(input=x, output=y)
    size = {"blockSize": (32, 1, 1), "gridSize": (-(-N // 32), 1, 1)}
    if device.name not in ("cpu", "cuda"):
        with pytest.raises(RuntimeError, match="does not work in its tensors' memory"):
            first.append_to(commands, **size)
        return
    first.append_to(commands, **size)
    module.twice(input=y, output=z).append_to(commands, **size)
    module.twice(input=y, output=z).append_to(commands, (32, 1, 1), (0, 1, 1))
    assert commands.waits[1] == (0,)
    commands.submit()
    device.synchronize()
    assert z.tolist() == [18.0] * N
    x.fill_(1)
    if device.name == "cuda":
        torch.cuda.synchronize()
    commands.submit()
    device.synchronize()
    assert z.tolist() == [2.0] * N
    with pytest.raises(spy.BindError, match="was bound to its arguments before"):
        commands.update(0, x)
    with pytest.raises(spy.BindError, match="a command list of"):
        first.append_to([], **size)  # type: ignore[arg-type]


def test_functions_in_a_command_list(device: spy.Device, files: Files) -> None:
    function = square_of(files)
    x = files.on(torch.full((N,), 3.0)).requires_grad_()
    commands = device.command_list()
    if device.name not in ("cpu", "cuda"):
        with pytest.raises(RuntimeError, match="does not work in its tensors' memory"):
            function.append_to(commands, x.detach())
        return
    y = function.append_to(commands, x)
    z = function.append_to(commands, input=y)
    assert not y.requires_grad and y.tolist() == z.tolist() == [0.0] * N
    for _ in range(2):
        commands.submit()
        device.synchronize()
        assert z.tolist() == [81.0] * N
    with pytest.raises(spy.BindError, match="a command list of"):
        function.append_to([], x)
    with pytest.raises(ValueError, match="its inputs are input"):
        function.append_to(commands)
    assert len(commands) == 2


def test_the_file_as_a_module_and_ahead_of_time(files: Files) -> None:
    module = files.load(SQUARE)
    assert module.module.cube(np.array([1, 2, 3], np.float32)).tolist() == [1, 8, 27]
    module.precompile((64, 1, 1))
    with pytest.raises(ValueError, match="blockSize"):
        module.precompile((64, 1))  # type: ignore[arg-type]
    module.nothing().launchRaw((1, 1, 1), (1, 1, 1))
    assert {"square", "twice", "nothing", "precompile", "module"} <= set(dir(module))


def test_groups_of_many_sizes(files: Files) -> None:
    module = files.load(SQUARE)
    x = files.on(torch.arange(N, dtype=torch.float32))
    for size in (1, 32, 96, 256):
        y = torch.zeros_like(x)
        module.twice(input=x, output=y).launchTotal((size, 1, 1), (N, 1, 1))
        assert torch.equal(y, 2 * x)


def test_headers_beside_the_file(device: spy.Device, files: Files) -> None:
    text = """
    float constant()
    {
        __target_switch
        {
        case cuda:
            __requirePrelude("#include \\"constant.cuh\\"");
            __intrinsic_asm "constantOfHeader()";
        default:
            return VALUE;
        }
    }
    [AutoPyBindCUDA] [CudaKernel] void fill(TensorView<float> output) { output[0] = constant(); }
    """
    modules = []
    for value in (2.0, 3.0):
        (files.folder / "constant.cuh").write_text(
            '#include "deep.cuh"\n__device__ float constantOfHeader() { return K; }'
        )
        (files.folder / "deep.cuh").write_text(f"#define K {value}f\n")
        module = files.load(text, defines={"VALUE": 2.0 if device.name != "cuda" else 0.0})
        assert files.load(text, defines={"VALUE": 2.0 if device.name != "cuda" else 0.0}) is module
        modules.append(module)
        output = files.on(torch.zeros(1))
        if device.name == "rhi-cuda":
            # slang-rhi's NVRTC is not told where headers are.
            with pytest.raises(spy.CompileError, match=r"constant\.cuh"):
                module.fill(output=output).launchRaw((1, 1, 1), (1, 1, 1))
            continue
        module.fill(output=output).launchRaw((1, 1, 1), (1, 1, 1))
        assert output.item() == (value if device.name == "cuda" else 2.0)
    # The header was edited: another module.
    assert modules[0] is not modules[1]


def test_options_of_the_cuda_compiler(device: spy.Device, files: Files, capfd: pytest.CaptureFixture[str]) -> None:
    module = files.load(SQUARE)
    assert files.load(SQUARE) is module
    exact = files.load(SQUARE, cudaFastMath=False)
    assert exact is not module
    assert "--use_fast_math" in module.square.source(device)
    assert "--use_fast_math" not in exact.square.source(device)
    with pytest.warns(UserWarning, match="-O3 -Xcompiler -fPIC is of nvcc alone"):
        flagged = files.load(SQUARE, extraCudaFlags=["-O3", "-Xcompiler", "-fPIC", "-DSPY_TEST=1"])
    assert "-DSPY_TEST=1" in flagged.square.source(device)
    assert "fPIC" not in flagged.square.source(device)
    with pytest.raises(spy.BindError, match=r"^square\.source: device is 'cpu'; a Device was expected"):
        module.square.source("cpu")
    with pytest.raises(ValueError, match=r"^square\.source: blockSize is 3; a tuple of three ints"):
        module.square.source(device, 3)
    x = files.on(torch.ones(4))
    flagged.twice(input=x, output=x).launchRaw((4, 1, 1), (1, 1, 1))
    assert x.tolist() == [2.0] * 4
    with pytest.raises(spy.BindError, match="extraCudaFlags"):
        files.load(SQUARE, extraCudaFlags="-O3")
    with pytest.raises(spy.BindError, match="extraCudaFlags"):
        files.load(SQUARE, extraCudaFlags=["-DX\n#error"])
    capfd.readouterr()
    files.load(SQUARE, verbose=True)
    assert "module.slang loaded in" in capfd.readouterr().err


def test_operators_and_modules_of_pytorch(files: Files) -> None:
    text = """
    [AutoPyBindCUDA] [CudaKernel] [Differentiable]
    void scaled(DiffTensorView x, no_diff float by, TensorView<float> shift, DiffTensorView y, DiffTensorView z)
    {
        uint i = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
        if (i >= x.size(0))
            return;
        y[i] = x[i] * x[i] * by + shift[i];
        z[i] = x[i];
    }
    """
    module = files.load(text)
    scaled = module.scaled.function({"y": "x", "z": "x"}, threads=lambda a: a["x"].shape)
    x, shift = random(files, N), files.on(torch.rand(N))
    operator = spy.torch_operator(scaled)
    y, z = operator(x, 3.0, shift)
    torch.testing.assert_close(y, x * x * 3 + shift)
    (found,) = torch.autograd.grad((y * 2 + z).sum(), x)
    torch.testing.assert_close(found, 12 * x + 1)
    torch.library.opcheck(operator, (x, 3.0, shift))
    square = spy.torch_operator(square_of(files))
    torch.library.opcheck(square, (x,))
    (found,) = torch.autograd.grad(square(square(x)).sum(), x)
    torch.testing.assert_close(found, 4 * x**3)
    with pytest.raises(spy.BindError, match="knows its arguments itself"):
        spy.torch_operator(scaled, "Tensor x")
    mix = files.load(MIX).mix.function({"sum": "w", "product": "w", "copied": "w"}, threads=(N,))
    with pytest.raises(spy.UnsupportedError, match="'p' of mix is 'Pair'"):
        spy.torch_operator(mix)
    layer = spy.torch_module(square_of(files), input=x.detach())
    layer().sum().backward()
    torch.testing.assert_close(layer.input.grad, 2 * x.detach())
    with pytest.raises(spy.BindError, match="no parameter 'inptu'"):
        spy.torch_module(square_of(files), inptu=x)


def test_errors_of_inputs_are_their_own(files: Files) -> None:
    module = files.load(SQUARE)
    told = module.square.function({"output": lambda a: (a["input"].shape, torch.float32)}, threads=(N,))
    x = files.on(torch.rand(N))
    torch.testing.assert_close(told(x), x * x)
    with pytest.raises(RuntimeError, match=r"input is float64"):
        told(x.double())
    operator = spy.torch_operator(square_of(files, consume=True))
    leaf = random(files, N)
    # An operator never changes what it is given.
    given = files.on(torch.ones(N))
    (found,) = torch.autograd.grad(operator(leaf), leaf, given)
    torch.testing.assert_close(found, 2 * leaf)
    assert given.all()


def test_a_header_that_comes_later(files: Files) -> None:
    text = """
    float constant()
    {
        __target_switch
        {
        case cuda:
            __requirePrelude("#include \\"later.cuh\\"");
            __intrinsic_asm "constantOfHeader()";
        default:
            return 2;
        }
    }
    [AutoPyBindCUDA] [CudaKernel] void fill(TensorView<float> output) { output[0] = constant(); }
    """
    first = files.load(text)
    assert files.load(text) is first
    (files.folder / "later.cuh").write_text("__device__ float constantOfHeader() { return 2.0f; }\n")
    assert files.load(text) is not first


def test_an_input_without_gradient_as_a_tuple(files: Files) -> None:
    m = files.load("""
        [AutoPyBindCUDA] [CudaKernel] [Differentiable]
        void multiply(DiffTensorView a, DiffTensorView b, DiffTensorView c)
        {
            uint i = (cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim()).x;
            if (i < a.size(0))
                c[i] = a[i] * b[i];
        }
        """)
    multiply = m.multiply.function(outputs={"c": "a"}, threads=lambda v: v["a"].shape)
    b = files.on(torch.tensor([5.0, 7.0]))
    for given in (b, (b,), m.DiffTensorView(b)):
        a = files.on(torch.tensor([2.0, 3.0])).requires_grad_()
        made = multiply(a, given)
        made.sum().backward()
        assert made.tolist() == [10, 21]
        assert a.grad is not None
        assert a.grad.tolist() == [5, 7]


def test_gradients_and_sizes_that_take_turns(files: Files) -> None:
    """Each call has the gradients that its inputs ask for and the threads of its sizes, whichever came before."""
    m = files.load("""
[AutoPyBindCUDA] [CudaKernel] [Differentiable]
void mul(DiffTensorView a, DiffTensorView b, DiffTensorView c)
{
    uint3 at = cudaThreadIdx() + cudaBlockIdx() * cudaBlockDim();
    if (at.x < c.size(1) && at.y < c.size(0))
        c[at.yx] = a[at.yx] * b[at.yx];
}
""")
    mul = m.mul.function(outputs={"c": "a"}, threads=lambda given: given["a"].shape[::-1])
    # Several numbers of groups of one size, in rows and columns.
    sizes = [(300, 1), (700, 1), (1, 300), (1, 900), (20, 15), (60, 45), (300, 1)]
    for asked in ((True, False), (False, True), (True, True), (False, True), (True, False)):
        for shape in sizes:
            a, b = (
                files.on(torch.rand(shape, generator=torch.Generator().manual_seed(k))).requires_grad_(asked[k])
                for k in range(2)
            )
            found = mul(a, b)
            torch.testing.assert_close(found, (a * b).detach(), check_device=False)
            found.sum().backward()
            for wanted, mine, other in zip(asked, (a, b), (b, a), strict=True):
                assert (mine.grad is not None) == wanted
                if wanted:
                    torch.testing.assert_close(mine.grad, other.detach())

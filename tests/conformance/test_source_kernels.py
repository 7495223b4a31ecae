"""spy.kernel: kernels from text with macros, grids and choices, as PyTriton has them; and arrays as pointers."""

from __future__ import annotations

import runpy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slangpy_rt as spy
from tests.depth import deep, needs, one_device

pytestmark = one_device

# Each thread of a group computes elements of a tile of TM x TN; the tile's inner products take TK at a time.
DOT = """
#if AT
#define A_AT(m, k) A[(k) * lda + (m)]
#else
#define A_AT(m, k) A[(m) * lda + (k)]
#endif
#if BT
#define B_AT(k, n) B[(n) * ldb + (k)]
#else
#define B_AT(k, n) B[(k) * ldb + (n)]
#endif
[shader("compute")] [numthreads(32 * NUM_WARPS, 1, 1)]
void dot(uint3 thread : SV_GroupThreadID, uint3 group : SV_GroupID, uniform TYPE *A, uniform TYPE *B, uniform TYPE *C,
         int M, int N, int K, int lda, int ldb, int ldc)
{
    for (int at = int(thread.x); at < TM * TN; at += 32 * NUM_WARPS)
    {
        int m = int(group.x) * TM + at / TN, n = int(group.y) * TN + at % TN;
        if (m >= M || n >= N)
            continue;
        float c = 0;
        for (int k0 = 0; k0 < K; k0 += TK)
            for (int k = k0; k < min(k0 + TK, K); ++k)
                c += float(A_AT(m, k)) * float(B_AT(k, n));
        C[m * ldc + n] = TYPE(c);
    }
}
"""
FILL = """
[numthreads(64, 1, 1)]
void fill(uint3 at : SV_DispatchThreadID, RWTensor<float, 1> data, int n, float value = 1)
{
    if (at.x < n)
        data[at.x] += value * SCALE;
}
"""


# The Python of PyTriton's tutorial.
EXAMPLE = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "dot.py"))


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@deep
def test_the_tutorial_of_pytriton(transpose_a: bool, transpose_b: bool) -> None:
    place = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(1)
    a = torch.randn(*((40, 50) if transpose_a else (50, 40)), device=place, requires_grad=True)
    b = torch.randn(*((70, 40) if transpose_b else (40, 70)), device=place, requires_grad=True)
    weights = torch.randn(50, 70, device=place)
    dot = EXAMPLE["dot"]
    (dot(a, b, transpose_a, transpose_b) * weights).sum().backward()
    a64, b64 = (t.detach().double().requires_grad_() for t in (a, b))
    want = (a64.t() if transpose_a else a64) @ (b64.t() if transpose_b else b64)
    (want * weights).sum().backward()
    torch.testing.assert_close(dot(a, b, transpose_a, transpose_b).double(), want, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(a.grad.double(), a64.grad, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(b.grad.double(), b64.grad, rtol=1e-4, atol=1e-4)


def dot(device: spy.Device, kernel: Any, a: Any, b: Any, c: Any, m: int, n: int, k: int, **options: Any) -> Any:
    defines = {"TYPE": "float", "AT": 0, "BT": False, "TM": [16, 32], "TN": 16, "TK": 8} | options.pop("defines", {})
    options = {"grid": lambda o: (spy.cdiv(m, o.TM), spy.cdiv(n, o["TN"])), "num_warps": 2} | options
    return kernel(a, b, c, m, n, k, k, n, n, defines=defines, **options)


@needs("pointers")
def test_tensors_of_a_device(device: spy.Device) -> None:
    kernel = spy.kernel(DOT)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s, dtype=np.float32) for s in ((33, 20), (20, 40)))
    ta, tb = spy.Tensor.from_numpy(device, a), spy.Tensor.from_numpy(device, b)
    tc = spy.empty((33, 40), "float", device)
    assert dot(device, kernel, ta, tb, tc, 33, 40, 20) is tc
    np.testing.assert_allclose(tc.to_numpy(), a @ b, rtol=1e-4, atol=1e-5)
    # A macro of a single value is a part of the grid's configuration too.
    tc.clear()
    dot(device, kernel, ta, tb, tc, 33, 40, 20, defines={"TM": [16], "TK": 4}, num_warps=[1, 4])
    np.testing.assert_allclose(tc.to_numpy(), a @ b, rtol=1e-4, atol=1e-5)
    # As with Tensors, NumPy arrays are used where they lie or copied.
    c = np.zeros((33, 40), np.float32)
    kernel = spy.kernel(DOT, device)
    assert dot(device, kernel, a, b, c, 33, 40, 20) is c
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


def test_what_a_call_returns(device: spy.Device) -> None:
    x = spy.Tensor.zeros(device, 100)
    fill = spy.kernel(FILL)
    assert fill(x, 100, grid=2, defines={"SCALE": 2}) is x
    assert fill(data=x, n=100, value=3.0, grid=(2,), defines={"SCALE": "0.5"}) is x
    np.testing.assert_array_equal(x.to_numpy(), np.full(100, 3.5, np.float32))
    both = """
        [numthreads(1, 1, 1)] void f(RWTensor<int, 1> a, Tensor<int, 1> b, RWTensor<int, 1> c)
        {
            a[0] = c[0] = b[0];
        }
    """
    a, b, c = (spy.Tensor.from_numpy(device, np.array([k], np.int32)) for k in (1, 2, 3))
    assert [t is u for t, u in zip(spy.kernel(both)(a, b, c, grid=1), (a, c), strict=True)] == [True, True]
    assert a.to_numpy()[0] == c.to_numpy()[0] == 2
    if "zero_copy" in device.caps.features:  # others may leave all of an empty kernel out, its parameter too
        assert spy.kernel("[numthreads(1, 1, 1)] void f(int n) {}", device)(3, grid=1) is None


@needs("pointers")
def test_read_only_pointers(device: spy.Device) -> None:
    copy = spy.kernel(
        "[numthreads(32, 1, 1)]"
        "void copy(uint3 at : SV_DispatchThreadID, float *to, Ptr<float, Access.Read> from, int n)"
        "{ if (at.x < n) to[at.x] = from[at.x]; }",
        device,
    )
    source = np.arange(50, dtype=np.float32)
    source.flags.writeable = False
    target = np.zeros(50, np.float32)
    assert copy(target, source, 50, grid=2) is target
    np.testing.assert_array_equal(target, source)
    with pytest.raises(spy.BindError, match=r"argument 'to' is .* would be written to; pass a writable array"):
        copy(source, target, 50, grid=2)
    with pytest.raises(spy.BindError, match=r"argument 'from' is a non-contiguous view"):
        copy(target, np.zeros(100, np.float32)[::2], 50, grid=2)
    with pytest.raises(
        spy.BindError, match=r"argument 'from' is an array of dtype float64 .* takes an array of 'float32'"
    ):
        copy(target, np.zeros(50), 50, grid=2)


@deep
def test_command_lists_and_choices(device: spy.Device) -> None:
    x = spy.Tensor.zeros(device, 100)
    fill = spy.kernel(FILL).tune(budget=0.1)
    options: dict[str, Any] = {"defines": {"SCALE": ["1", "1.0f"]}, "num_warps": [1, 2]}

    def grid(config: spy.Config) -> int:
        return spy.cdiv(100, 32 * config.NUM_WARPS)

    commands = device.command_list()
    assert fill.append_to(commands, x, 100, grid=grid, **options) is x
    commands.submit()
    commands.submit()
    np.testing.assert_array_equal(x.to_numpy(), np.full(100, 2, np.float32))
    rows = fill.timings(x, 100, grid=grid, **options)
    assert len(rows) == 4 and fill.best(x, 100, grid=grid, **options) == rows[0].config
    assert "fill" in fill.source(x, 100, grid=grid, **options) and "kernel fill" in repr(fill)
    np.testing.assert_array_equal(x.to_numpy(), np.full(100, 2, np.float32))


def test_group_sizes_of_kernels(device: spy.Device) -> None:
    text = "[numthreads(8, 8, 1)] void f(uint3 at : SV_DispatchThreadID, RWTensor<int, 2> a) { a[at.y, at.x] += 1; }"
    f = spy.Module.load_from_source(device, "groups", text).f
    a = spy.Tensor.zeros(device, (8, 32), "int")
    f.group_size((32, 4)).dispatch((32, 8), a)
    f.group_size([(16, 2), 8]).dispatch((32, 8), a)
    assert f.threads_of_group == (8, 8, 1) and f.group_size(8).threads_of_group == (8, 1, 1)
    np.testing.assert_array_equal(a.to_numpy(), np.full((8, 32), 2))


WRONG: list[tuple[str, dict[str, Any], str]] = [
    (FILL, {"grid": 1.5}, "kernel: grid is 1.5; one to three whole numbers were expected."),
    (FILL, {"grid": (1, 1, 1, 1)}, "kernel: grid is (1, 1, 1, 1); one to three whole numbers were expected."),
    (FILL, {"grid": lambda c: None}, "kernel: grid is None; one to three whole numbers were expected."),
    (FILL, {"num_warps": 0}, "kernel: num_warps is 0; whole numbers from 1 to 32 were expected."),
    (FILL, {"num_warps": [1, 2.0]}, "kernel: num_warps is [1, 2.0]; whole numbers from 1 to 32 were expected."),
    (FILL, {"num_warps": True}, "kernel: num_warps is True; whole numbers from 1 to 32 were expected."),
    (
        FILL,
        {"num_warps": 1, "defines": {"SCALE": 1, "NUM_WARPS": 1}},
        "kernel: defines has 'NUM_WARPS', which num_warps defines; give one of them.",
    ),
    (
        FILL,
        {"defines": {"SCALE": None}},
        "kernel: defines['SCALE'] is None; a number, text or a tuple of numbers was ",
    ),
    (
        FILL,
        {"defines": {"SCALE": []}},
        "kernel: defines: the list of choices of 'SCALE' is empty; give at least one ",
    ),
    (FILL, {"defines": {"SCALE": {}}}, "kernel: a macro is {}; text, a number or an element type was expected."),
    (
        FILL,
        {"defines": {"SCALE": torch.complex64}},
        "kernel: defines['SCALE'] is torch.complex64, which Slang has no ",
    ),
    ("int f() { return 1; }", {}, "kernel: the text has 0 functions with [numthreads]; exactly one was expected."),
    (
        "[numthreads(1, 1, 1)] void f() {} [numthreads(1, 1, 1)] void g() {}",
        {},
        "kernel: the text has 2 functions with [numthreads]: f, g; exactly one was expected.",
    ),
]


@pytest.mark.parametrize(("source", "options", "message"), WRONG)
def test_wrong_use(device: spy.Device, source: str, options: dict[str, Any], message: str) -> None:
    kernel = spy.kernel(source)
    x = spy.Tensor.zeros(device, 10)
    with pytest.raises(spy.BindError) as error:
        kernel(x, 10, **({"grid": 1, "defines": {"SCALE": 1}} | options))
    assert str(error.value).startswith(message)
    np.testing.assert_array_equal(x.to_numpy(), np.zeros(10))


def test_wrong_text_and_devices(device: spy.Device) -> None:
    with pytest.raises(spy.BindError, match="kernel: source is 3"):
        spy.kernel(3)  # type: ignore[arg-type]
    with pytest.raises(spy.BindError, match="kernel"):
        spy.kernel(FILL, "cpu")  # type: ignore[arg-type]
    with pytest.raises(spy.CompileError, match="undefined identifier"):
        spy.kernel("[numthreads(1, 1, 1)] void f() { wrong; }", device)(grid=1)
    with pytest.raises(spy.BindError, match=r"kernel\.best: 'f' has no choices"):
        spy.kernel("[numthreads(1, 1, 1)] void f() {}", device).best(grid=1)
    with pytest.raises(spy.BindError, match=r"kernel\.tune: budget is -1"):
        spy.kernel(FILL).tune(budget=-1)
    with pytest.raises(spy.BindError, match="empty: a Tensor needs a device"):
        spy.empty(3)
    with pytest.raises(spy.BindError, match=r"empty: PyTorch makes no tensor of shape \(3,\) on 'nowhere'"):
        spy.empty(3, torch.float32, "nowhere")
    assert spy.empty(3, torch.int16, "cpu").dtype == torch.int16


@deep
def test_threads_and_reloaded_defines(device: spy.Device) -> None:
    kernel = spy.kernel(FILL)
    arrays = [spy.Tensor.zeros(device, 100) for _ in range(6)]
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            # The same macros as others' at once, then those of an earlier call again.
            for scale in (1, 2 + k % 3, 1):
                kernel(arrays[k], 100, grid=2, defines={"SCALE": scale})
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for k, array in enumerate(arrays):
        np.testing.assert_array_equal(array.to_numpy(), np.full(100, 4 + k % 3))


def test_tensors_that_need_gradients(device: spy.Device) -> None:
    kernel = spy.kernel(FILL, device)
    leaf = torch.zeros(100, requires_grad=True)
    with pytest.raises(spy.BindError):
        kernel(leaf, 100, grid=2, defines={"SCALE": 1})
    assert not leaf.detach().any()
    with torch.no_grad():
        assert kernel(leaf, 100, grid=2, defines={"SCALE": 3}) is leaf
    assert (leaf.detach() == 3).all()


class _Hostile:
    """A macro whose hash, comparison and text raise."""

    def __hash__(self) -> int:
        raise RuntimeError("no hash")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_hostile_arguments(device: spy.Device) -> None:
    kernel = spy.kernel(FILL, device)
    x = spy.Tensor.zeros(device, 10)
    with pytest.raises((spy.BindError, RuntimeError)):
        kernel(x, 10, grid=1, defines={"SCALE": _Hostile()})
    for defines in ({3: 1}, [("SCALE", 1)], {"SCALE": "1\0"}, {"SC ALE": 1}, {"SCALE": float("nan")}):
        with pytest.raises((spy.BindError, spy.CompileError)):
            kernel(x, 10, grid=1, defines=defines)  # type: ignore[arg-type]
    for grid in (-1, (), "1", None, (1.0,), True + 0.5):
        with pytest.raises(spy.BindError, match="kernel: grid is"):
            kernel(x, 10, grid=grid, defines={"SCALE": 1})  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError):
        kernel(x, 10, grid=lambda c: 1 // 0, defines={"SCALE": 1})
    np.testing.assert_array_equal(x.to_numpy(), np.zeros(10))
    kernel(x, 10, grid=1, defines={"SCALE": 1})
    np.testing.assert_array_equal(x.to_numpy(), np.ones(10))

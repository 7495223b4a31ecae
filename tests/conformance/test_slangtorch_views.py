"""Views, structs and numbers as arguments of slang-torch's kernels: members, element types, atomics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _slangtorch import COMPONENTS, ONE, Files, files

from tests.depth import every_device, one_device, sampled

__all__ = ["files"]  # the fixture

pytestmark = one_device


STRUCTS = """
struct Mesh
{
    TensorView<float> vertices;
    TensorView<int> indices;
};
struct Layer<let N : int> { DiffTensorView weights; float scale[N]; }
struct Both { Mesh mesh; Layer<2> layers[2]; float3 by; }

[AutoPyBindCUDA]
[CUDAKernel]
void processMesh(Mesh mesh, TensorView<float> output)
{
    uint at = cudaThreadIdx().x;
    output[at] = mesh.vertices[mesh.indices[at]];
}

[AutoPyBindCUDA] [CUDAKernel] [Differentiable]
void everything(Both both, DiffTensorView output)
{
    uint at = cudaThreadIdx().x;
    float sum = both.by.y * both.mesh.vertices[at];
    for (int k = 0; k < 2; ++k)
        sum += both.layers[k].weights[at] * both.layers[k].scale[1];
    output[at] = sum;
}
"""


def test_structs(files: Files) -> None:
    m = files.load(STRUCTS)
    size = {"blockSize": (4, 1, 1), "gridSize": ONE}
    vertices = files.on(torch.tensor([10.0, 11, 12, 13]))
    indices = files.on(torch.tensor([3, 2, 1, 0], dtype=torch.int32))
    for mesh in (
        m.Mesh(vertices=vertices, indices=indices), {"vertices": vertices, "indices": indices}, (vertices, indices),
    ):  # fmt: skip
        output = torch.zeros_like(vertices)
        m.processMesh(mesh=mesh, output=output).launchRaw(**size)
        assert output.tolist() == [13, 12, 11, 10]
    w = [files.on(torch.arange(4.0)), files.on(torch.ones(4))]
    gradients = [torch.zeros_like(t) for t in w]
    both = m.Both(
        mesh=m.Mesh(vertices, indices),
        layers=[m.Layer(weights=(w[0], gradients[0]), scale=(1, 2)), {"weights": w[1], "scale": [3, 4]}],
        by=(0.0, 0.5, 0.0),
    )
    output = torch.zeros_like(vertices)
    m.everything(both=both, output=output).launchRaw(**size)
    assert torch.equal(output, 0.5 * vertices + 2 * w[0] + 4 * w[1])
    m.everything.bwd(both=both, output=(output, torch.ones_like(output))).launchRaw(**size)
    assert gradients[0].tolist() == [2, 2, 2, 2] and not gradients[1].any()


def test_wrong_structs(files: Files) -> None:
    m = files.load(STRUCTS)
    a, i, output = files.on(torch.zeros(4)), files.on(torch.zeros(4, dtype=torch.int32)), files.on(torch.zeros(4))
    for mesh in ((a,), (a, i, a), {"vertices": a}, {"vertices": a, "Indices": i}):
        with pytest.raises(TypeError, match="vertices, indices"):
            m.processMesh(mesh=mesh, output=output)
    with pytest.raises(ValueError, match="mesh: "):
        m.processMesh(mesh=a, output=output)
    with pytest.raises(RuntimeError, match=r"mesh.indices is float32; 'TensorView<int>' needs int32"):
        m.processMesh(mesh=(a, a), output=output)
    with pytest.raises(TypeError, match=r"^mesh\.indices"):
        m.processMesh(mesh=(a, np.zeros(4, np.int32)), output=output)


NUMBERS = """
enum Kind { A = 3, B = 7 }
struct MyStruct { float3x3 m; bool yes; Kind kind; int8_t small; uint64_t large; double2 d; }
[AutoPyBindCUDA] [CUDAKernel]
void numbers(float3 v, float2x3 m, MyStruct s, float3 array[2], int64_t i, TensorView<double> output)
{
    for (uint k = 0; k < 3; ++k) output[k] = v[k];
    for (uint k = 0; k < 6; ++k) output[3 + k] = m[k / 3][k % 3];
    for (uint k = 0; k < 9; ++k) output[9 + k] = s.m[k / 3][k % 3];
    output[18] = s.yes ? 1.0 : 0.0;
    output[19] = int(s.kind);
    output[20] = s.small;
    output[21] = double(s.large);
    output[22] = s.d.y;
    for (uint k = 0; k < 6; ++k) output[23 + k] = array[k / 3][k % 3];
    output[29] = double(i);
}
"""


def test_numbers_vectors_and_matrices(files: Files) -> None:
    m = files.load(NUMBERS)
    s = m.MyStruct(
        m=((1, 2, 3), (4, 5, 6), (7, 8, 9)), yes=True, kind=7, small=-128, large=2**40, d=torch.tensor([0.5, 0.1])
    )
    output = files.on(torch.zeros(30, dtype=torch.float64))
    m.numbers(
        v=(1.0, 2.0, 3.0), m=[[1, 2, 3], [4, 5, 6]], s=s, array=[(1, 2, 3), (4, 5, 6)], i=-(2**62), output=output
    ).launchRaw(blockSize=ONE, gridSize=ONE)
    expected = [1, 2, 3, *range(1, 7), *range(1, 10), 1, 7, -128, 2**40, np.float32(0.1), *range(1, 7), -(2**62)]
    assert output.tolist() == [float(x) for x in expected]
    fine = {"v": (1, 2, 3), "m": [[1, 2, 3], [4, 5, 6]], "s": s, "array": [(1, 2, 3)] * 2, "i": 1, "output": output}
    wrong: list[tuple[str, Any, type[Exception]]] = [
        ("v", (1, 2), ValueError), ("v", 1.0, ValueError), ("v", (1, 2, "3"), TypeError), ("i", 1.5, TypeError),
        ("i", 2**63, ValueError), ("m", [[1, 2], [3, 4], [5, 6]], ValueError), ("array", [(1, 2, 3)], ValueError),
        ("array", 1, ValueError), ("v", None, ValueError), ("i", None, TypeError), ("output", None, TypeError),
    ]  # fmt: skip
    for name, value, error in wrong:
        with pytest.raises(error, match=f"^{name}"):
            m.numbers(**(fine | {name: value}))


def test_elements_of_every_type(files: Files) -> None:
    scalars = {
        "float": torch.float32, "double": torch.float64, "int": torch.int32, "uint": torch.uint32,
        "int64_t": torch.int64, "uint64_t": torch.uint64, "bool": torch.bool, "int8_t": torch.int8,
        "uint8_t": torch.uint8, "int16_t": torch.int16, "uint16_t": torch.uint16, "half": torch.float16,
    }  # fmt: skip
    there = {scalar: dtype for scalar, dtype in scalars.items() if scalar in files.device.caps.scalars}
    # One kernel for all of them: each takes a second to compile.
    views = [
        f"TensorView<{s}> a_{s}, TensorView<{s}3> v_{s}, TensorView<{s}> b_{s}, TensorView<{s}3> w_{s}" for s in there
    ]
    lines = [f"b_{s}[i, 0] = a_{s}.load(i, 0);\nw_{s}[i] = v_{s}[i].zyx;" for s in there]
    m = files.load(
        f"""
        [AutoPyBindCUDA] [CUDAKernel]
        void copy({", ".join(views)})
        {{
            uint i = cudaThreadIdx().x;
            {" ".join(lines)}
        }}
        """
    )
    given = {}
    for scalar, dtype in there.items():
        given[f"a_{scalar}"] = a = files.on(torch.tensor([[1], [0], [1]])).to(dtype)
        # One scalar beyond where vectors of 4 would be aligned.
        given[f"v_{scalar}"] = v = files.on(torch.tensor([9, 1, 0, 1, 0, 0, 1, 1, 0, 0])).to(dtype)[1:].view(3, 3)
        given[f"b_{scalar}"] = torch.zeros_like(a)
        given[f"w_{scalar}"] = torch.zeros(10, dtype=dtype, device=v.device)[1:].view(3, 3)
    m.copy(**given).launchRaw(blockSize=(3, 1, 1), gridSize=ONE)
    for scalar in there:
        a, v, b, w = (given[f"{name}_{scalar}"].tolist() for name in "avbw")
        assert b == a and w == [row[::-1] for row in v], scalar


def test_views_with_gaps_and_up_to_five_dimensions(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void copy(TensorView<float> a, TensorView<float> b, TensorView<int> told)
        {
            uint t = cudaThreadIdx().x;
            uint at[5];
            for (int d = 4; d >= 0; --d) { at[d] = t % a.size(d); t /= a.size(d); }
            b[at[0], at[1], at[2], at[3], at[4]] = a.load(at[0], at[1], at[2], at[3], at[4]);
            told[0] = a.dims();
            for (uint d = 0; d < 5; ++d) told[1 + d] = a.stride(d);
        }
        """
    )
    base = files.on(torch.arange(2 * 3 * 4 * 5 * 6, dtype=torch.float32)).view(2, 3, 4, 5, 6)
    a = base[:, 1:, ::2, :, 1:4].transpose(0, 4)
    b = torch.zeros_like(a)
    told = files.on(torch.zeros(6, dtype=torch.int32))
    m.copy(a=a, b=b, told=told).launchRaw(blockSize=(a.numel(), 1, 1), gridSize=ONE)
    assert torch.equal(a, b) and told.tolist() == [5, *(4 * s for s in a.stride())]
    # What lies between the elements of a view stays.
    whole = files.on(torch.full((3, 2, 2, 5, 4), 7.0))
    m.copy(a=a, b=whole[..., 1:3], told=told).launchRaw(blockSize=(a.numel(), 1, 1), gridSize=ONE)
    assert torch.equal(whole[..., 1:3], a) and (whole[..., 0] == 7).all() and (whole[..., 3] == 7).all()


def test_shared_memory_of_arguments(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void shift(TensorView<float> a, TensorView<float> b) { b[0] = a[1]; }
        """
    )
    x = files.on(torch.arange(4.0))
    m.shift(a=x, b=x).launchRaw(blockSize=ONE, gridSize=ONE)
    assert x.tolist() == [1, 1, 2, 3]
    m.shift(a=x[1:], b=x[2:]).launchRaw(blockSize=ONE, gridSize=ONE)
    assert x.tolist() == [1, 1, 2, 3]


ATOMICS = """
[AutoPyBindCUDA] [CUDAKernel]
void change(TensorView<TYPE> x, TensorView<TYPE> before)
{
    uint i = cudaThreadIdx().x;
    TYPE old;
    x.InterlockedAdd(0, TYPE(2), old);
    x.InterlockedAdd(uint1(0), TYPE(1));
    x.InterlockedExchange(1, TYPE(i), before[i]);
    x.InterlockedCompareExchange(2, TYPE(5), TYPE(6));
    x.InterlockedMax(uint1(3), TYPE(i), old);
    x.InterlockedMin(4, TYPE(i) - TYPE(3), old);
#if WHOLE
    x.InterlockedOr(5, TYPE(1) << TYPE(i % 7), old);
    x.InterlockedAnd(6, ~(TYPE(1) << TYPE(i % 7)), old);
    x.InterlockedXor(7, TYPE(1), old);
#endif
}
"""


@sampled(9)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int", torch.int32), ("uint", torch.uint32), ("int64_t", torch.int64), ("uint64_t", torch.uint64),
        ("float", torch.float32), ("double", torch.float64),
    ],
)  # fmt: skip
def test_atomics(files: Files, kind: str, dtype: torch.dtype) -> None:
    whole = not dtype.is_floating_point
    m = files.load(ATOMICS, defines={"TYPE": kind, "WHOLE": whole})
    x = files.on(torch.tensor([100, 99, 5, 20, 50, 0, 127, 0])).to(dtype)
    before = files.on(torch.zeros(64)).to(dtype)
    m.change(x=x, before=before).launchRaw(blockSize=(64, 1, 1), gridSize=ONE)
    got = x.tolist()
    assert got[0] == 100 + 3 * 64 and got[2] == 6
    # Each value but the last one is taken out once.
    assert sorted([*before.tolist(), got[1]]) == [*range(64), 99]
    assert got[3:5] == [63, 0 if kind.startswith("u") else -3]
    if whole:
        assert got[5:] == [127, 0, 0]


def test_additions_to_halves(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void add(TensorView<half> x, TensorView<half> before)
        {
            half old;
            x.InterlockedAdd(1, half(2), old);
            before[cudaThreadIdx().x] = old;
            x.InterlockedAdd(uint1(2), half(0.5));
        }
        """
    )
    x, before = files.on(torch.ones(3).half()), files.on(torch.zeros(64).half())
    m.add(x=x, before=before).launchRaw(blockSize=(64, 1, 1), gridSize=ONE)
    assert x.tolist() == [1, 129, 33] and sorted(before.tolist()) == [1.0 + 2 * k for k in range(64)]


@every_device
def test_components_of_elements(files: Files) -> None:
    m = files.load(COMPONENTS)
    t = torch.arange(12.0).reshape(4, 3)
    k = torch.arange(8, dtype=torch.int32).reshape(2, 4)
    found, counts = files.on(t.clone()), files.on(k.clone())
    m.put(t=found, k=counts).launchRaw(blockSize=ONE, gridSize=ONE)
    t[0, 1] = 2
    t[0, [0, 2]] += 1
    t[1, [2, 1]] = t[0, :2]
    t[2, 1:] = t[0, 0]
    k[0, [3, 2, 1, 0]] = k[1]
    k[1, [3, 0]] = 3
    assert torch.equal(found.cpu(), t) and torch.equal(counts.cpu(), k)


def test_views_are_filled(files: Files) -> None:
    m = files.load(
        """
        [AutoPyBindCUDA] [CUDAKernel]
        void fill(
            TensorView<float> a, TensorView<float3> b, TensorView<int64_t> c, TensorView<bool> d, TensorView<int> e)
        {
            if (cudaThreadIdx().x != 0)
                return;
            a.fillValue(2.5);
            b.fillValue(float3(1, 2, 3));
            c.fillZero();
            d.fillValue(true);
            e.fillValue(7);
        }
        """
    )
    whole = files.on(torch.zeros(4, 6))
    b, c = files.on(torch.zeros(2, 5, 3)), files.on(torch.ones(7, dtype=torch.int64))
    d, e = files.on(torch.zeros(3, dtype=torch.bool)), files.on(torch.ones(0, 3, dtype=torch.int32))
    m.fill(a=whole[:, ::2], b=b, c=c, d=d, e=e).launchRaw(blockSize=(32, 1, 1), gridSize=ONE)
    assert whole.cpu().tolist() == [[2.5, 0] * 3] * 4
    assert (b.cpu() == torch.tensor([1.0, 2, 3])).all() and not c.any() and d.all()


def test_tensors_of_two_storages_over_one_memory(files: Files, backend_name: str) -> None:
    if backend_name == "cuda":
        pytest.skip("torch makes no two storages over one memory of the GPU")
    m = files.load("""
[AutoPyBindCUDA] [CudaKernel]
void twice(TensorView<float> input, TensorView<float> output)
{
    uint i = cudaThreadIdx().x;
    output[i] = 2 * input[i];
}
""")
    memory = np.arange(12, dtype=np.float32)
    whole, part = torch.from_numpy(memory), torch.from_numpy(memory[8:])
    m.twice(input=whole, output=part).launchRaw(blockSize=(4, 1, 1), gridSize=ONE)
    np.testing.assert_array_equal(memory, [*range(8), 0, 2, 4, 6])
    memory[:] = range(12)
    odd, even = torch.from_numpy(memory[1::2]), torch.from_numpy(memory[::2])
    m.twice(input=even, output=odd).launchRaw(blockSize=(6, 1, 1), gridSize=ONE)
    np.testing.assert_array_equal(memory, [0, 0, 2, 4, 4, 8, 6, 12, 8, 16, 10, 20])


def test_vectors_that_are_not_the_last_dimension(files: Files) -> None:
    m = files.load("[AutoPyBindCUDA] [CudaKernel] void run(TensorView<float3> t, TensorView<float2x2> m) {}")
    fine = {"t": files.on(torch.zeros(4, 3)), "m": files.on(torch.zeros(2, 2))}
    m.run(**fine).launchRaw(blockSize=ONE, gridSize=ONE)
    for name, shape in (("t", (3, 4)), ("t", ()), ("t", (2, 1)), ("m", (2, 3)), ("m", (2,))):
        with pytest.raises(RuntimeError, match=rf"^{name} has shape .*contiguous last dimensions of"):
            m.run(**fine | {name: files.on(torch.zeros(shape))})
    # Moved to another device, a view would become contiguous.
    wide, square = files.on(torch.zeros(4, 6)), files.on(torch.zeros(2, 2))
    for name, value in (("t", files.on(torch.zeros(3, 4)).T), ("t", wide[:, ::2]), ("m", square.T)):
        with pytest.raises(RuntimeError, match=rf"^{name} has shape .*contiguous last dimensions of"):
            m.run(**fine | {name: value})


def test_more_than_a_view_holds(files: Files, tmp_path: Path) -> None:
    if files.device.name == "cuda":
        pytest.skip("the tensor is a file without contents")
    m = files.load("[AutoPyBindCUDA] [CudaKernel] void run(TensorView<int8_t> t) {}")
    large = torch.from_numpy(np.memmap(tmp_path / "large", np.int8, "w+", shape=2**32 + 2))
    for t in (large, large[:-2]):
        with pytest.raises(RuntimeError, match=rf"t has a dimension of {len(t)}"):
            m.run(t=t)
    with pytest.raises(RuntimeError, match="t has strides over 4 GiB"):
        m.run(t=large.as_strided((2, 2), (2**32, 1)))
    # The largest size and the largest stride are none of these, and a stride that is never used may be any.
    for t in (large[:-3], large.as_strided((2, 2), (2**32 - 1, 1)), large.as_strided((1, 2), (2**40, 1))):
        m.run(t=t).launchRaw(blockSize=ONE, gridSize=(0, 1, 1))


@pytest.mark.parametrize("kind", ["int16_t", "float", "double"])
def test_strides_are_counted_in_bytes(files: Files, tmp_path: Path, kind: str) -> None:
    if files.device.name == "cuda":
        pytest.skip("the tensor is a file without contents")
    m = files.load(f"[AutoPyBindCUDA] [CudaKernel] void run(TensorView<{kind}> t) {{}}")
    dtype = {"int16_t": np.int16, "float": np.float32, "double": np.float64}[kind]
    most = (2**32 - 1) // np.dtype(dtype).itemsize
    large = torch.from_numpy(np.memmap(tmp_path / "large", dtype, "w+", shape=most + 3))
    for t in (large.as_strided((2, 2), (most + 1, 1)), large.as_strided((2, 2), (1, most + 1))):
        with pytest.raises(RuntimeError, match="t has strides over 4 GiB"):
            m.run(t=t)
    for t in (large.as_strided((2, 2), (most, 1)), large.as_strided((1, 2), (2**40, 1))):
        m.run(t=t).launchRaw(blockSize=ONE, gridSize=(0, 1, 1))


def test_more_groups_than_a_device_runs(files: Files) -> None:
    m = files.load("[AutoPyBindCUDA] [CudaKernel] void run(TensorView<int> t) { t[0] = 1; }")
    t = files.on(torch.zeros(1, dtype=torch.int32))
    most = 2**31 - 1
    with pytest.raises(RuntimeError, match=r"^run: gridSize \(2147483647, 2147483647, 2147483647\)"):
        m.run(t=t).launchRaw(blockSize=(1024, 1, 1), gridSize=(most, most, most))
    with pytest.raises(ValueError, match="gridSize is"):
        m.run(t=t).launchRaw(blockSize=ONE, gridSize=(2**31, 1, 1))
    assert t.item() == 0
    m.run(t=t).launchRaw(blockSize=ONE, gridSize=ONE)
    assert t.item() == 1

"""Parameters whose elements are Slang's ``Atomic<T>``, and InterlockedAdd and the like behind pointers: as NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.dtypes import NUMPY_OF
from tests.conformance.test_atomics import bins, has
from tests.depth import needs, one_device, sampled
from tests.lanes_off import without_lanes

pytestmark = one_device

INTEGERS = ("int", "uint", "int64_t", "uint64_t")
SCALARS = (*INTEGERS, "float", "double")
CONTAINERS = ("RWTensor<Atomic<{}>, 1>", "NDBuffer<Atomic<{}>, 1>", "RWStructuredBuffer<Atomic<{}>>")


def module_of(device: spy.Device, text: str) -> spy.Module:
    return spy.Module.load_from_source(device, f"atomic_elements_{abs(hash(text))}", text)


def values(element: str, count: int) -> Any:
    dtype = NUMPY_OF[element]
    return np.random.default_rng(3).integers(0 if dtype.kind == "u" else -900, 900, count).astype(dtype)


@sampled(45)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("element", [*SCALARS, "half"])
def test_sums(device: spy.Device, element: str, container: str) -> None:
    has(device, element)
    module = module_of(
        device,
        f"void plus(int at, {element} x, {container.format(element)} t) {{ t[at].add(x); }}\n"
        f"void minus(int at, {element} x, {container.format(element)} t) {{ t[at].sub(x); }}\n"
        f"void steps(int at, {container.format(element)} t) {{ t[at].increment(); t[at] += {element}(2); }}",
    )
    # Sums of these are exact in any order, in half too.
    where, x = bins(700, 7), (values(element, 700) % 4).astype(NUMPY_OF[element])
    want = np.zeros(7, x.dtype)
    np.add.at(want, where, x)
    t = spy.Tensor.zeros(device, 7, element)
    module.plus(where, spy.Tensor.from_numpy(device, x), t)
    np.testing.assert_array_equal(t.to_numpy(), want)
    module.minus(where, spy.Tensor.from_numpy(device, x), t)
    np.testing.assert_array_equal(t.to_numpy(), 0)
    module.steps(where, t)
    np.testing.assert_array_equal(t.to_numpy(), 3 * np.bincount(where, minlength=7))


@sampled(12)
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("element", SCALARS)
def test_interlocked_functions_take_elements(device: spy.Device, element: str, container: str) -> None:
    has(device, element)
    bits = element in INTEGERS
    module = module_of(
        device,
        f"void plus(int at, {element} x, {container.format(element)} t)\n"
        f"{{ {element} old; InterlockedAdd(t[at], x); InterlockedAdd(t[at], x, old); InterlockedAdd(t[0], 1); }}\n"
        f"void others({element} x, {container.format(element)} t, out {element} before[2])\n"
        "{ InterlockedMin(t[0], x); InterlockedMax(t[1], x); InterlockedExchange(t[2], x, before[0]);\n"
        "  InterlockedCompareExchange(t[3], x, x + 1, before[1]); InterlockedCompareStore(t[4], x, x + 2);\n"
        + ("InterlockedAnd(t[5], 6); InterlockedOr(t[6], 4); InterlockedXor(t[7], 1); }" if bits else "}"),
    )
    where, x = bins(300, 7), (values(element, 300) % 4).astype(NUMPY_OF[element])
    want = np.zeros(7, x.dtype)
    np.add.at(want, where, 2 * x)
    want[0] += 300
    t = spy.Tensor.zeros(device, 7, element)
    module.plus(where, spy.Tensor.from_numpy(device, x), t)
    np.testing.assert_array_equal(t.to_numpy(), want)
    t = spy.Tensor.from_numpy(device, np.array([9, 1, 3, 5, 5, 3, 3, 3], x.dtype))
    before = spy.Tensor.zeros(device, (), f"{element}[2]")
    module.others(5, t, before)
    np.testing.assert_array_equal(t.to_numpy(), [5, 5, 5, 6, 7, *([2, 7, 2] if bits else [3, 3, 3])])
    np.testing.assert_array_equal(before.to_numpy(), [3, 5])


@sampled(9)
@pytest.mark.parametrize("element", SCALARS)
def test_extremes_and_exchanges(device: spy.Device, element: str) -> None:
    has(device, element)
    whole = CONTAINERS[0].format(element)
    module = module_of(
        device,
        f"void least(int at, {element} x, {whole} t) {{ t[at].min(x); }}\n"
        f"void most(int at, {element} x, {whole} t) {{ t[at].max(x); }}\n"
        f"{element} put(int at, {element} x, {whole} t) {{ return t[at].exchange(x); }}\n"
        f"{element} swap({element} x, {whole} t) {{ return t[0].compareExchange({element}(0), x); }}\n"
        f"void copy(int at, {element} x, {whole} t, {whole} u)\n"
        "{ t[at].store(x); u[at] = t[at]; u[at + 5] = 3; u[at + 10].store(t[at].load()); }",
    )
    where, x = bins(2000, 5), values(element, 2000)
    for name, of, start in (("least", np.minimum, 1000), ("most", np.maximum, 0 if x.dtype.kind == "u" else -1000)):
        want = np.full(5, start, x.dtype)
        of.at(want, where, x)
        t = spy.Tensor.from_numpy(device, np.full(5, start, x.dtype))
        module[name](where, spy.Tensor.from_numpy(device, x), t)
        np.testing.assert_array_equal(t.to_numpy(), want)
    unique = np.arange(1, 1001).astype(x.dtype)
    t = spy.Tensor.zeros(device, 3, element)
    seen = module.put(bins(1000, 3), unique, t, _result="numpy")
    np.testing.assert_array_equal(np.sort(np.concatenate([seen, t.to_numpy()])), np.sort([*unique, 0, 0, 0]))
    t = spy.Tensor.zeros(device, 1, element)
    seen = module.swap(unique, t, _result="numpy")
    (won,) = t.to_numpy()
    assert won in unique and (seen == 0).sum() == 1 and (seen[seen != 0] == won).all()
    t, u = spy.Tensor.zeros(device, 5, element), spy.Tensor.zeros(device, 15, element)
    module.copy(np.arange(5, dtype=np.int32), x[:5].copy(), t, u)
    np.testing.assert_array_equal(u.to_numpy(), np.concatenate([x[:5], [3] * 5, x[:5]]))


@sampled(9)
@pytest.mark.parametrize("element", INTEGERS)
def test_bits_and_operators(device: spy.Device, element: str) -> None:
    has(device, element)
    whole = CONTAINERS[0].format(element)
    names = (("and", "&="), ("or", "|="), ("xor", "^="))
    module = module_of(
        device,
        "".join(
            f"void {n}_all({element} x, {whole} t) {{ t[0].{n}(x); }}\n"
            f"{element} {n}_too({element} x, {whole} t) {{ return t[0] {op} x; }}\n"
            for n, op in names
        )
        + f"{element} up({whole} t) {{ return ++t[0]; }}\n{element} up_after({whole} t) {{ return t[0]++; }}\n"
        + f"{element} down({whole} t) {{ return --t[0]; }}\n{element} down_after({whole} t) {{ return t[0]--; }}\n"
        + f"{element} plus({whole} t) {{ return t[0] += 5; }}\n{element} minus({whole} t) {{ return t[0] -= 5; }}\n",
    )
    x = np.random.default_rng(4).integers(0, 2**31 - 1, 500).astype(NUMPY_OF[element])
    for (name, _), of, start in zip(names, (np.bitwise_and, np.bitwise_or, np.bitwise_xor), (-1, 0, 0), strict=True):
        bits = x | ~x.dtype.type(7) if name == "and" else x
        for each in (f"{name}_all", f"{name}_too"):
            t = spy.Tensor.from_numpy(device, np.array([start]).astype(x.dtype))
            module[each](bits, t)
            assert t.to_numpy()[0] == of.reduce(bits, initial=np.array(start).astype(x.dtype))
    t = spy.Tensor.from_numpy(device, np.array([10], x.dtype))
    seen = [int(module[n](t)) for n in ("up", "up_after", "down", "down_after", "plus", "minus")]
    # As Slang's operators of Atomic<T>: those before the operand, and those with "=", return what it is after.
    assert seen == [11, 11, 11, 11, 15, 10] and t.to_numpy()[0] == 10


def test_every_index(device: spy.Device) -> None:
    module = module_of(
        device,
        """
void one(RWTensor<Atomic<int>, 1> t, int i)
{
    t[i].add(1);
    t[uint(i)].add(10);
    int at[1] = { i };
    t[at].add(100);
}
void two(RWTensor<Atomic<int>, 2> t, int i, int j)
{
    t[i, j].add(1);
    t[int2(j, i)].add(10);
    int at[2] = { i, j };
    t[at].add(100);
}
void three(NDBuffer<Atomic<int>, 3> t, int i, int j, int k) { t[i, j, k].add(11); t[int3(k, j, i)].add(100); }
""",
    )
    for name, at in (("one", (3,)), ("two", (1, 2)), ("three", (0, 1, 2))):
        shape = (4, 3, 5)[: len(at)]
        wide = spy.Tensor.zeros(device, tuple(2 * n for n in shape), "int")
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        module[name](view, *at)
        want = np.zeros(shape, np.int32)
        want[at] = 111
        np.testing.assert_array_equal(view.to_numpy(), want)
        assert wide.to_numpy().sum() == 111


def test_generics_aliases_and_files(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "counts.slang").write_text(
        """
import slangpy_rt;
public void bump<T : IArithmeticAtomicable & IElement>(RWTensor<Atomic<T>, 1> t, int at, T x) { t[at].add(x); }
"""
    )
    (tmp_path / "user.slang").write_text(
        """
import slangpy_rt;
import counts;
typealias Count = Atomic<uint>;
void g<T : IArithmeticAtomicable & IElement>(int at, RWTensor<Atomic<T>, 1> t) { t[at].add(T(2)); }
void f(int at, RWTensor<Count, 1> t) { bump(t, at, 2u); let element = t[at]; element.add(1); }
"""
    )
    module = spy.Module.load_from_file(device, tmp_path / "user.slang")
    where = bins(100, 4)
    counts = np.bincount(where, minlength=4)
    t = spy.Tensor.zeros(device, 4, "uint")
    module.f(where, t)
    np.testing.assert_array_equal(t.to_numpy(), 3 * counts)
    for element in ("uint", "float"):
        t = spy.Tensor.zeros(device, 4, element)
        module.g(where, t)
        np.testing.assert_array_equal(t.to_numpy(), 2 * counts)
    t = spy.Tensor.zeros(device, 4, "int")
    module["g<int>"](where, t)
    np.testing.assert_array_equal(t.to_numpy(), 2 * counts)


def test_memory_orders(device: spy.Device) -> None:
    """A message that another thread has seen the flag of is there: release and acquire."""
    module = module_of(
        device,
        """
uint f(int i, RWTensor<Atomic<uint>, 1> flag, RWTensor<uint, 1> message)
{
    if (i % 2 == 0)
    {
        message[i] = 7;
        flag[i].store(1, MemoryOrder.Release);
        return 1;
    }
    return flag[i - 1].load(MemoryOrder.Acquire) == 0 || message[i - 1] == 7 ? 1 : 0;
}
""",
    )
    n = 4000
    seen = module.f(
        np.arange(n, dtype=np.int32),
        spy.Tensor.zeros(device, n, "uint"),
        spy.Tensor.zeros(device, n, "uint"),
        _result="numpy",
    )
    assert seen.all()


def test_a_struct_of_a_user_with_that_name(device: spy.Device) -> None:
    module = module_of(
        device,
        "import slangpy_rt;\nstruct Atomic<T> { T count; }\n"
        "void f(int at, RWTensor<Atomic<int>, 1> t) { Atomic<int> c = t[at]; c.count += at; t[at] = c; }",
    )
    t = spy.Tensor.zeros(device, 4, module["Atomic<int>"])
    module.f(np.arange(4, dtype=np.int32), t)
    np.testing.assert_array_equal(t.to_numpy()["count"], np.arange(4))


def test_debug_devices_check_indices(backend_name: str) -> None:
    device = spy.Device(backend_name, debug=True)
    module = module_of(device, "uint f(int at, RWTensor<Atomic<uint>, 1> t) { return t[at].add(1); }")
    t = spy.Tensor.zeros(device, 4, "uint")
    with pytest.raises(spy.SlangPyRtError, match="outside"):
        module.f(np.array([0, 9], np.int32), t, _result="numpy")
        device.wait()
    np.testing.assert_array_equal(t.to_numpy(), [1, 0, 0, 0])


@needs("pointers")
def test_pointers_to_atomics(device: spy.Device) -> None:
    module = module_of(device, "void f(int i, Atomic<uint> *p) { p[i % 4].add(1); }")
    t = spy.Tensor.zeros(device, 4, "uint")
    module.f(np.arange(100, dtype=np.int32), t)
    np.testing.assert_array_equal(t.to_numpy(), [25] * 4)
    with pytest.raises(spy.BindError, match="is a Tensor<float> of shape"):
        module.f(np.arange(100, dtype=np.int32), spy.Tensor.zeros(device, 4))


@needs("pointers")
@sampled(9)
@pytest.mark.parametrize("element", SCALARS)
def test_interlocked_behind_pointers(device: spy.Device, element: str) -> None:
    """Slang's functions, with and without what was there before; on the CPU by functions of this project."""
    has(device, element)
    whole = NUMPY_OF[element].kind in "iu"
    # GPUs have few of them for floats, by extensions of a driver's.
    names = ["Add", *(("Min", "Max") if whole or device.name == "cpu" else ())]
    module = module_of(
        device,
        "".join(
            f"{element} {n}(int at, {element} x, {element} *p)\n"
            f"{{ {element} before; Interlocked{n}(p[at], x, before); return before; }}\n"
            f"void {n}_only(int at, {element} x, {element} *p) {{ Interlocked{n}(p[at], x); }}\n"
            for n in names
        ),
    )
    where, x = bins(300, 5), values(element, 300)
    for name, of in (("Add", np.add), ("Min", np.minimum), ("Max", np.maximum))[: len(names)]:
        want = np.full(5, 10, x.dtype)
        of.at(want, where, x)
        for each in (name, f"{name}_only"):
            t = spy.Tensor.from_numpy(device, np.full(5, 10, x.dtype))
            module[each](where, spy.Tensor.from_numpy(device, x), t)
            np.testing.assert_array_equal(t.to_numpy(), want)


@sampled(3)
@pytest.mark.parametrize("element", SCALARS)
def test_exchanges_behind_pointers_on_the_cpu(element: str) -> None:
    device = spy.Device("cpu")
    bits = "".join(f"Interlocked{n}(p[{k}], 6);" for k, n in ((2, "And"), (3, "Or"), (4, "Xor")))
    module = module_of(
        device,
        f"""
{element} f({element} *p)
{{
    {element} before;
    InterlockedExchange(p[0], {element}(5), before);
    {element} seen;
    InterlockedCompareExchange(p[1], {element}(12), {element}(8), seen);
    {bits if element in INTEGERS else ""}
    return before * 100 + seen;
}}
""",
    )
    t = spy.Tensor.from_numpy(device, np.array([12, 12, 12, 12, 12], NUMPY_OF[element]))
    assert module.f(t) == 1212
    np.testing.assert_array_equal(t.to_numpy(), [5, 8, *((4, 14, 10) if element in INTEGERS else (12, 12, 12))])


def test_a_function_of_a_user_with_such_a_name(device: spy.Device) -> None:
    module = module_of(
        device,
        "import slangpy_rt;\nint InterlockedAdd(int x, int y) { return x + y; }\n"
        "void InterlockedMax(inout int x, int y) { x = 100 + y; }\n"
        "int f(int i) { int x = 0; InterlockedMax(x, i); return InterlockedAdd(x, 1); }",
    )
    np.testing.assert_array_equal(module.f(np.arange(4, dtype=np.int32)), 101 + np.arange(4))
    assert module.InterlockedAdd(3, 4) == 7


def test_what_is_refused(device: spy.Device) -> None:
    element = spy.Tensor.zeros(device, 4, "uint")
    for type_ in ("Tensor<Atomic<uint>, 1>", "StructuredBuffer<Atomic<uint>>"):
        module = module_of(device, f"uint f({type_} t) {{ return t[0].load(); }}")
        with pytest.raises(spy.UnsupportedError) as error:
            module.f(element)
        assert str(error.value) == (
            f"uint f({type_} t): argument 't': elements of '{type_}' cannot be changed; declare a RWTensor, NDBuffer "
            "or RWStructuredBuffer of 'Atomic<uint>', or leave Atomic out."
        )
        with pytest.raises(spy.CompileError, match=r"RWStructuredBuffer of Atomic<T> have its methods\.$"):
            module_of(device, f"void f({type_} t) {{ t[0].add(1); }}")
    module = module_of(device, "void f(inout Atomic<uint> t) { t.add(1); }")
    with pytest.raises(spy.CompileError, match=r"declare RWTensor<Atomic<T>, N> t, and use t\[i\], or a pointer"):
        module.f(element)
    module = module_of(device, "void f(RWTensor<Atomic<float>, 1> t) { t[0].and(1.0); }")
    with pytest.raises(spy.CompileError, match=r"and, or and xor take integers of 32 or 64 bits\.$"):
        module.f(spy.Tensor.zeros(device, 4))
    if "half" in device.caps.scalars:
        module = module_of(device, "void f(RWTensor<Atomic<half>, 1> t) { t[0].max(half(1)); }")
        with pytest.raises(spy.CompileError, match=r"min, max, exchange and compareExchange take scalars of 32 or"):
            module.f(spy.Tensor.zeros(device, 4, "half"))
    module = module_of(device, "void f(RWTensor<Atomic<int>, 1> t) { t[0].add(1); }")
    with pytest.raises(spy.BindError) as error:
        module.f(element)
    assert str(error.value) == (
        "void f(RWTensor<Atomic<int>, 1> t): argument 't' is a Tensor<uint> of shape (4,); 'int' was expected, and "
        "device data is not converted. Make it with dtype='int', or convert it on the host with from_numpy(...)."
    )


def test_what_the_cpu_lacks_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = spy.Device("cpu")
    without_lanes(device, monkeypatch)
    (tmp_path / "inner.slang").write_text("public void more(float *p)\n{\n    InterlockedAdd(p[0], 1.0);\n}\n")
    user = "import inner;\nvoid f(float *p) { more(p); }\n"
    (tmp_path / "user.slang").write_text(user)
    t = spy.Tensor.zeros(device, 4)
    for module, quoted in (
        (module_of(device, "void f(Atomic<float> *p)\n{\n    p[0].add(1.0);\n}"), "p[0].add(1.0);"),
        (spy.Module.load_from_file(device, tmp_path / "user.slang"), "InterlockedAdd(p[0], 1.0);"),
    ):
        with pytest.raises(spy.CompileError) as error:
            module.f(t)
        text = str(error.value)
        assert quoted in text and "aborted" not in text and "github" not in text
        assert text.endswith(
            "For the CPU, Slang 2026.12 has no code for this atomic operation. InterlockedAdd(p[i], x) of a pointer "
            "T *p and its like, in a file that has 'import slangpy_rt;', and elements of RWTensor<Atomic<T>, N> have "
            "it on every device."
        )
    # What the message says helps.
    inner = tmp_path / "inner.slang"
    inner.write_text("import slangpy_rt;\n" + inner.read_text())
    spy.Module.load_from_file(device, tmp_path / "user.slang").f(t)
    assert t.to_numpy()[0] == 1


def test_arrays_of_numpy_and_pytorch(device: spy.Device) -> None:
    torch = pytest.importorskip("torch")
    module = module_of(device, "void f(int at, RWTensor<Atomic<int>, 1> t) { t[at] += 1; }")
    where = bins(100, 4)
    for array in (np.zeros(4, np.int32), torch.zeros(4, dtype=torch.int32)):
        module.f(where, array)
        np.testing.assert_array_equal(np.asarray(array), np.bincount(where, minlength=4))
    rows = np.zeros((3, 4), np.int32)
    module.f(np.arange(3, dtype=np.int32), rows)
    np.testing.assert_array_equal(rows, np.eye(3, 4))


def test_memory_that_is_read_as_well(device: spy.Device) -> None:
    """Inputs are read first, as anywhere: what is added is what was there before the call."""
    module = module_of(device, "void f(int at, int x, RWTensor<Atomic<int>, 1> t) { t[at].add(x); }")
    t = spy.Tensor.full(device, 100, 3, "int")
    module.f(np.zeros(100, np.int32), t, t)
    np.testing.assert_array_equal(t.to_numpy(), [303, *[3] * 99])


def test_functions_that_are_differentiated(device: spy.Device) -> None:
    module = module_of(
        device,
        "[Differentiable] float f(float x, RWTensor<Atomic<float>, 1> t) { t[0].add(detach(x)); return x * x; }",
    )
    x = spy.Tensor.from_numpy(device, np.arange(5, dtype=np.float32)).with_grads()
    y = spy.Tensor.zeros(device, 5).with_grads(grad_in=spy.Tensor.full(device, 5, 1.0))
    t = spy.Tensor.zeros(device, 1)
    module.f.bwds(x, t, _result=y)
    np.testing.assert_array_equal(x.grad.to_numpy(), [0, 2, 4, 6, 8])
    assert t.to_numpy()[0] == 10


@needs("groups")
def test_shared_memory_has_slangs_own(device: spy.Device) -> None:
    module = module_of(
        device,
        """
groupshared Atomic<uint> seen;
[numthreads(64, 1, 1)]
void f(uint3 at : SV_GroupThreadID, RWTensor<Atomic<uint>, 1> t)
{
    if (at.x == 0)
        seen.store(0);
    GroupMemoryBarrierWithGroupSync();
    seen.add(1);
    GroupMemoryBarrierWithGroupSync();
    t[0].max(seen.load());
}
""",
    )
    t = spy.Tensor.zeros(device, 1, "uint")
    module.f.dispatch([128, 1, 1], t=t)
    np.testing.assert_array_equal(t.to_numpy(), [64])

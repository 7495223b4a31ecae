"""On a debug device an index outside of an array raises an error and touches nothing, on every backend."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pytest
from _gaps import pointer

import slangpy_rt as spy
from tests.depth import every_device, one_device, sampled

pytestmark = every_device

SLANG = """
import slangpy_rt;
#include "storage.slang"

float pick(Tensor<float, 2> image, int i, int j) { return image[i, j]; }
float pixel(Tensor<float, 2> image, int2 at) { return image[at]; }
float3 colour(NDBuffer<float3, 1> colours, int i) { return colours[i] + 1; }
bool flag(Tensor<bool, 1> flags, int i) { return !flags[i]; }
int deep(Tensor<int, 3> t, int i, int j, int k) { return t[i, j, k]; }
void put(RWTensor<float, 1> to, int i, float x) { to[i] = x; }
void move(RWTensor<float, 1> to, Tensor<float, 1> source, int i) { to[i] = source[i + 1]; }
float both(Tensor<float, 1> a, Tensor<float, 1> b, int i) { return a[i] + b[i + 1]; }
float add(float a, float b) { return a + b; }
float raw(POINTER(float) p, int i) { return p[i]; }
struct Pixel { float grey; int count; }
int total(Tensor<Pixel, 1> pixels, int i) { return pixels[i].count + int(pixels[i].grey); }
float4x4 matrix(Tensor<float4x4, 1> m, int i) { return m[i]; }
float sum(Tensor<float, 1> t, int n)
{
    float total = 0;
    for (int i = 0; i < n; ++i)
        total += t[i];
    return total;
}
float noisy(Tensor<float, 1> t, int i) { printf("looks at %d\\n", i); return t[i]; }
[Differentiable] float scaled(float x, no_diff Tensor<float, 1> t, int i) { return x * t[i]; }
float slope(Tensor<float, 1> t, int i)
{
    var p = diffPair(2.0f);
    bwd_diff(scaled)(p, t, i, 1);
    return p.d;
}
[numthreads(8, 1, 1)]
void fill(uint3 thread : SV_DispatchThreadID, RWTensor<int, 1> to) { to[thread.x] = int(thread.x) + 1; }
"""
HINT = "Let the function compare its indices with the array's shape."


@pytest.fixture(scope="module")
def checked(backend_name: str) -> Iterator[spy.Device]:
    """A debug device."""
    with spy.Device(backend_name, debug=True) as device:
        yield device
    # Debian 12's layer does not know Slang's number in SPIR-V's list of source languages.
    said = [text for text in getattr(device.backend, "messages", ()) if "Invalid source language operand" not in text]
    assert not said, "the validation layer had something to say:\n" + "\n".join(said)


@pytest.fixture(scope="module")
def module(checked: spy.Device) -> spy.Module:
    """The functions above."""
    return spy.Module.load_from_source(checked, "test_bounds", SLANG)


def ramp(*shape: int) -> npt.NDArray[np.float32]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


@sampled(3)
def test_a_read_outside(checked: spy.Device, module: spy.Module) -> None:
    image = spy.Tensor.from_numpy(checked, ramp(4, 6))
    for i, j in [(4, 2), (-1, 0), (0, 6), (3, -7), (2**31 - 1, 5), (-(2**31), 0)]:
        with pytest.raises(spy.OutOfBoundsError) as caught:
            module.pick(image, i, j)
        assert str(caught.value) == (
            f"float pick(Tensor<float, 2> image, int i, int j): argument 'image' of shape (4, 6) was read at "
            f"{(i, j)}, which is outside. {HINT}"
        )
    assert np.asarray(module.pick(image, 3, 5)) == 23
    assert module.pick(ramp(4, 6), [0, 3], [0, 5]).tolist() == [0, 23]
    with pytest.raises(IndexError, match=r"'image' of shape \(4, 6\) was read at \(4, 2\)"):
        module.pixel(image, [2, 4])


def test_what_was_outside_is_zero_and_the_rest_is_right(checked: spy.Device, module: spy.Module) -> None:
    image, out = spy.Tensor.from_numpy(checked, ramp(4, 6) + 1), spy.Tensor.full(checked, 5, 77.0)
    with pytest.raises(spy.OutOfBoundsError, match=r"which is outside, one of 2 such accesses\. Let"):
        module.pick(image, np.int32([0, 4, 1, 2, -1]), 3, _result=out)
    assert out.to_numpy().tolist() == [4, 0, 10, 16, 0]
    with pytest.raises(spy.OutOfBoundsError, match="one of 97 such accesses"):
        module.sum(spy.Tensor.from_numpy(checked, ramp(3)), 100)


def test_a_write_outside_touches_nothing(checked: spy.Device, module: spy.Module) -> None:
    whole = spy.Tensor.full(checked, 64, 5.0)
    part = whole[16:32]
    with pytest.raises(spy.OutOfBoundsError, match=r"'to' of shape \(16,\) was written at \("):
        module.put(part, np.arange(-16, 48, dtype=np.int32), np.arange(64, dtype=np.float32))
    expected = np.full(64, 5, np.float32)
    expected[16:32] = np.arange(16, 32)
    np.testing.assert_array_equal(whole.to_numpy(), expected)


@pytest.mark.parametrize("where", [-1, 16, 1 << 20, -(1 << 20)])
def test_host_arrays(module: spy.Module, where: int) -> None:
    host = np.full(48, 5, np.float32)
    with pytest.raises(spy.OutOfBoundsError, match=rf"'to' of shape \(16,\) was written at \({where},\)"):
        module.put(host[16:32], where, 1.0)
    assert (host == 5).all()
    module.put(host[16:32], 3, 1.0)
    assert host[19] == 1 and host.sum() == 47 * 5 + 1


def test_views(checked: spy.Device, module: spy.Module) -> None:
    image = spy.Tensor.from_numpy(checked, ramp(6, 8))
    view = image[::-2, 1:4]
    np.testing.assert_array_equal(module.pick(view, [0, 2], [2, 0]).to_numpy(), [43, 9])
    with pytest.raises(spy.OutOfBoundsError, match=r"shape \(3, 3\) was read at \(3, 0\)"):
        module.pick(view, 3, 0)
    with pytest.raises(spy.OutOfBoundsError, match=r"shape \(3, 3\) was read at \(0, -1\)"):
        module.pick(view, 0, -1)
    with pytest.raises(spy.OutOfBoundsError, match=r"shape \(0, 8\) was read at \(0, 0\)"):
        module.pick(image[3:3], 0, 0)


@one_device
def test_elements_of_every_kind(checked: spy.Device, module: spy.Module) -> None:
    colours = spy.NDBuffer(checked, "float3", 4)
    colours.from_numpy(ramp(4, 3))
    assert np.asarray(module.colour(colours, 3)).tolist() == [10, 11, 12]
    with pytest.raises(spy.OutOfBoundsError, match=r"'colours' of shape \(4,\) was read at \(4,\)"):
        module.colour(colours, 4)
    with pytest.raises(spy.OutOfBoundsError, match="'flags'"):
        module.flag(np.array([True, False]), 2)
    with pytest.raises(spy.OutOfBoundsError, match=r"'t' of shape \(2, 3, 4\) was read at \(1, 3, 0\)"):
        module.deep(np.arange(24, dtype=np.int32).reshape(2, 3, 4), 1, 3, 0)
    matrices = spy.Tensor.from_numpy(checked, ramp(2, 4, 4), "float4x4")
    np.testing.assert_array_equal(np.asarray(module.matrix(matrices, 1)), ramp(2, 4, 4)[1])
    with pytest.raises(spy.OutOfBoundsError, match=r"'m' of shape \(2,\) was read at \(2,\)"):
        module.matrix(matrices, 2)


def test_structs(checked: spy.Device, module: spy.Module) -> None:
    pixels = spy.NDBuffer(checked, module.Pixel, 3)
    pixels.from_numpy(np.array([(1.0, 2), (3.0, 4), (5.0, 6)], [("grey", np.float32), ("count", np.int32)]))
    assert np.asarray(module.total(pixels, 2)) == 11
    with pytest.raises(spy.OutOfBoundsError, match=r"'pixels' of shape \(3,\) was read at \(3,\)"):
        module.total(pixels, 3)


def test_which_argument_it_was(checked: spy.Device, module: spy.Module) -> None:
    a, b = spy.Tensor.zeros(checked, 5), spy.Tensor.zeros(checked, 5)
    with pytest.raises(spy.OutOfBoundsError, match=r"argument 'b' of shape \(5,\) was read at \(5,\)"):
        module.both(a, b, 4)
    with pytest.raises(spy.OutOfBoundsError, match=r"argument 'a' of shape \(4,\) was read at \(4,\)"):
        module.both(a[:4], spy.Tensor.zeros(checked, 9), 4)
    # The same array twice: nothing tells the two apart.
    with pytest.raises(spy.OutOfBoundsError, match=r"argument 'a' or 'b' of shape \(5,\) was read at \(5,\)"):
        module.both(a, a, 4)
    with pytest.raises(spy.OutOfBoundsError, match=r"argument 'source' of shape \(5,\) was read at \(5,\)"):
        module.move(a, b, 4)


def test_the_device_stays_usable(checked: spy.Device, module: spy.Module) -> None:
    image = spy.Tensor.from_numpy(checked, ramp(4, 6))
    for _ in range(3):
        with pytest.raises(spy.OutOfBoundsError):
            module.pick(image, 9, 9)
        assert np.asarray(module.pick(image, 1, 1)) == 7
        assert module.add(np.float32([1, 2]), 3.0).tolist() == [4, 5]
    checked.synchronize()


def test_kernels_and_replays(checked: spy.Device, module: spy.Module) -> None:
    to = spy.Tensor.zeros(checked, 6, "int")
    with pytest.raises(spy.OutOfBoundsError, match=r"'to' of shape \(6,\) was written at \([67],\), .* one of 2"):
        module.fill.dispatch(8, to)
    assert to.to_numpy().tolist() == [1, 2, 3, 4, 5, 6]
    replay = module.pick.bind(spy.Tensor.zeros(checked, (2, 2)), 2, 0)
    for _ in range(2):
        with pytest.raises(spy.OutOfBoundsError):
            replay()


def test_printing_goes_on(checked: spy.Device, module: spy.Module, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(spy.OutOfBoundsError, match="'t'"):
        module.noisy(spy.Tensor.zeros(checked, 3), np.int32([3]))
    checked.synchronize()
    assert capsys.readouterr().out == "looks at 3\n"


def test_derivatives(checked: spy.Device, module: spy.Module) -> None:
    t = spy.Tensor.from_numpy(checked, ramp(4))
    assert np.asarray(module.slope(t, 3)) == 3
    with pytest.raises(spy.OutOfBoundsError, match=r"'t' of shape \(4,\) was read at \(4,\)"):
        module.slope(t, 4)


@one_device
def test_nothing_else_is_checked(checked: spy.Device, module: spy.Module) -> None:
    line = "export static const bool _spy_checks = true;"
    assert line in module.pick.source(ramp(2, 2), 0, 0)
    assert line not in module.add.source(1.0, 2.0)
    assert line not in module.raw.source(pointer(spy.Tensor.zeros(checked, 4)), 0)
    with spy.Device(checked.name) as plain:
        text = "import slangpy_rt; float pick(Tensor<float, 2> image, int i, int j) { return image[i, j]; }"
        source = spy.Module.load_from_source(plain, "test_unchecked", text).pick.source(ramp(2, 2), 0, 0)
        assert line not in source and "iagnostics" not in source

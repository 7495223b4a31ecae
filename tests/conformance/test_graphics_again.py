"""Single steps of pictures that are called again: the prepared calls of an earlier call run on other arguments."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from slangpy_rt.graphics.plan import Plan
from tests.depth import deep, needs, one_device

pytestmark = [one_device, needs("uint64_t")]

Floats = npt.NDArray[np.float32]
graphics = spy.graphics
SIZE = (40, 48)
PLACE = np.array([[5.3, 31.2], [24.7, 3.9], [40.1, 28.3]])
PLACES = [PLACE, np.abs(np.array([SIZE[1], 0]) - PLACE)]  # and mirrored
FACES = np.array([[0, 1, 2]], np.int32)
TIMES = range(5)  # the third call is the first that repeats calls
ROWS, COLUMNS = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows by one with each call that repeats an earlier one."""
    seen: list[Any] = []
    real = Plan.run
    monkeypatch.setattr(Plan, "run", lambda *args: (seen.append(args[0]), real(*args))[1])
    return seen


def _clip(k: int) -> Floats:
    x, y = PLACES[k % 2].T
    found = np.stack([2 * x / SIZE[1] - 1, 1 - 2 * y / SIZE[0], np.full(3, 0.5), np.ones(3)], -1)
    return found.astype(np.float32)


def _weights(k: int) -> npt.NDArray[np.float64]:
    """How much of each corner the middle of each pixel has; negative numbers are outside."""
    matrix = np.concatenate([PLACES[k % 2].T, np.ones((1, 3))])
    return np.linalg.solve(matrix, np.stack([COLUMNS, ROWS, np.ones(SIZE)]).reshape(3, -1)).T.reshape(*SIZE, 3)


def _area(k: int) -> float:
    a, b, c = PLACES[k % 2]
    return float(abs(np.linalg.det([b - a, c - a])) / 2)


def test_other_arrays(device: spy.Device, repeated: list[Any]) -> None:
    outer = spy.Tensor.zeros(device, (3, *SIZE), "float3")
    faces = spy.Tensor.from_numpy(device, FACES)
    kept = []
    for k in TIMES:
        values = (np.arange(9).reshape(3, 3) + k).astype(np.float32)
        position = spy.Tensor.from_numpy(device, _clip(k), "float4")
        seen = graphics.rasterize(position, faces, SIZE)
        color = graphics.interpolate(spy.Tensor.from_numpy(device, values, "float3"), seen, faces)
        picture = graphics.antialias(color, seen, position, faces, _result=outer[k % 3])
        kept.append((seen, color, picture.numpy(), values))
    assert len(repeated) == 3 * (len(TIMES) - 2)
    for k, (seen, color, picture, values) in enumerate(kept):
        weights = _weights(k)
        inside, outside = weights.min(-1) > 1e-4, weights.min(-1) < -1e-4
        np.testing.assert_allclose(seen.numpy()[inside][:, :2], weights[inside][:, :2], atol=1e-4)
        assert (seen.numpy()[outside] == 0).all() and (seen.numpy()[inside][:, 3] == 1).all()
        np.testing.assert_allclose(color.numpy()[inside], (weights @ values)[inside], atol=1e-3)
        wanted = _area(k) * values.mean(0)
        np.testing.assert_allclose(picture.sum((0, 1), dtype=np.float64), wanted, rtol=5e-3)


@deep
def test_gradients_of_other_arrays(device: spy.Device, repeated: list[Any]) -> None:
    faces = spy.Tensor.from_numpy(device, FACES)
    slope = np.stack([np.full(SIZE, 0.02), COLUMNS * 0 + 0.05])
    for k in TIMES:
        position = spy.Tensor.from_numpy(device, _clip(k), "float4").with_grads()
        values = spy.Tensor.from_numpy(device, np.full(3, 1.0 + k, np.float32)).with_grads()
        seen = graphics.rasterize(position, faces, SIZE).with_grads()
        color = graphics.interpolate(values, seen, faces).with_grads()
        picture = graphics.antialias(color, seen, position, faces).with_grads()
        picture.grad.copy_from((COLUMNS * slope[0] + ROWS * slope[1]).astype(np.float32))
        graphics.antialias.bwds(color, seen, position, faces, _result=picture)
        graphics.interpolate.bwds(values, seen, faces, _result=color)
        graphics.rasterize.bwds(position, faces, SIZE, _result=seen)
        # The sum of pixels times numbers that are linear moves with the triangle.
        moved = position.grad.numpy()[:, :2].sum(0)
        wanted = _area(k) * (1 + k) * np.array([0.02 * SIZE[1] / 2, -0.05 * SIZE[0] / 2])
        np.testing.assert_allclose(moved, wanted, rtol=0.05)
        # What the values add up to is the integral of these numbers: the area times their mean.
        middle = PLACES[k % 2].mean(0)
        total = _area(k) * (0.02 * middle[0] + 0.05 * middle[1])
        np.testing.assert_allclose(values.grad.numpy().sum(), total, rtol=0.03)
    assert len(repeated) == 6 * (len(TIMES) - 2)


@deep
def test_samples_of_other_arrays(device: spy.Device, repeated: list[Any]) -> None:
    rng = np.random.default_rng(5)
    for k in TIMES:
        texels = rng.random((8, 16), np.float32)
        at = np.stack([rng.integers(0, 16, 50), rng.integers(0, 8, 50)], -1)
        uv = spy.Tensor.from_numpy(device, ((at + 0.5) / [16, 8]).astype(np.float32), "float2")
        image = spy.Tensor.from_numpy(device, texels).with_grads()
        found = graphics.sample(image.detach(), uv).with_grads()
        np.testing.assert_allclose(found.numpy(), texels[at[:, 1], at[:, 0]], atol=1e-6)
        weights = rng.random(50, np.float32)
        found.grad.copy_from(weights)
        graphics.sample.bwds(image, uv, _result=found)
        wanted = np.zeros((8, 16))
        np.add.at(wanted, (at[:, 1], at[:, 0]), weights)
        np.testing.assert_allclose(image.grad.numpy(), wanted, atol=1e-5)
        # The last of the smaller levels has one texel: the mean of all.
        for level in (4.0, spy.Tensor.full(device, 50, 4.0)):
            last = graphics.sample(image.detach(), uv, level)
            np.testing.assert_allclose(last.numpy(), texels.mean(), rtol=1e-5)
        first = graphics.sample(image.detach(), uv, k * 1e-9, filter="nearest")
        np.testing.assert_allclose(first.numpy(), texels[at[:, 1], at[:, 0]], atol=1e-6)
    assert len(repeated) == 4 * (len(TIMES) - 2)


@deep
def test_a_tape_after_calls_that_repeat(device: spy.Device, repeated: list[Any]) -> None:
    faces = spy.Tensor.from_numpy(device, FACES)
    for k in TIMES:
        position = spy.Tensor.from_numpy(device, _clip(k), "float4").with_grads()
        values = spy.Tensor.from_numpy(device, np.full(3, 1.0 + k, np.float32)).with_grads()
        graphics.interpolate(values, graphics.rasterize(position, faces, SIZE), faces)
        with spy.grad_tape() as tape:
            seen = graphics.rasterize(position, faces, SIZE)
            color = graphics.interpolate(values, seen, faces)
            picture = graphics.antialias(color, seen, position, faces)
            # Columns as numbers: their sum over the triangle moves with it.
            loss = (picture * spy.Tensor.from_numpy(device, COLUMNS.astype(np.float32))).sum()
        tape.backward(loss)
        moved = position.grad.numpy()[:, :2].sum(0)
        np.testing.assert_allclose(moved[0], _area(k) * (1 + k) * SIZE[1] / 2, rtol=0.05)
        np.testing.assert_allclose(moved[1], 0, atol=0.05 * moved[0])
        total = _area(k) * PLACES[k % 2].mean(0)[0]
        np.testing.assert_allclose(values.grad.numpy().sum(), total, rtol=0.03)
    assert repeated


@one_device
def test_arrays_in_one_memory(device: spy.Device) -> None:
    """Calls that were noted on arrays apart run on arrays that are the same, and the other way round."""
    faces = spy.Tensor.from_numpy(device, FACES)
    position = spy.Tensor.from_numpy(device, _clip(0), "float4")
    seen = graphics.rasterize(position, faces, SIZE)
    ones = np.ones(SIZE, np.float32)
    for order in ((False, False, False, True, True), (True, True, True, False, False, True)):
        for same in order:
            color = spy.Tensor.from_numpy(device, ones)
            into = color if same else spy.Tensor.zeros(device, SIZE)
            graphics.antialias(color, seen, position, faces, _result=into)
            # Nothing but the frame of the triangle differs from a plane of one color.
            assert (into.numpy() == 1).all()
    gradient = spy.Tensor.from_numpy(device, ones)
    for same in (False, False, False, True, True, False):
        total = spy.Tensor.zeros(device, SIZE)
        color = spy.Tensor.from_numpy(device, ones).with_grads(total, total)
        picture = spy.Tensor.from_numpy(device, ones).with_grads(
            total if same else gradient, spy.Tensor.zeros(device, SIZE)
        )
        if same:
            total.copy_from(ones)
        graphics.antialias.bwds(color, seen, position, faces, _result=picture)
        assert total.numpy().sum() == pytest.approx(ones.sum() * (2 if same else 1), rel=1e-5)


@deep
def test_threads_and_other_devices(device: spy.Device) -> None:
    faces = spy.Tensor.from_numpy(device, FACES)
    wrong: list[Any] = []

    def run(k: int) -> None:
        position = spy.Tensor.from_numpy(device, _clip(k), "float4")
        wanted = _weights(k)
        inside = wanted.min(-1) > 1e-4
        for _ in range(8):
            found = graphics.rasterize(position, faces, SIZE).numpy()
            if not np.allclose(found[inside][:, :2], wanted[inside][:, :2], atol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    with spy.Device(device.name) as other:
        position = spy.Tensor.from_numpy(other, _clip(0), "float4")
        with pytest.raises(spy.BindError, match="rasterize: faces is"):
            graphics.rasterize(position, faces, SIZE)
        own = spy.Tensor.from_numpy(other, FACES)
        for _ in range(3):
            graphics.rasterize(position, own, SIZE)
    with pytest.raises(spy.DeviceError, match="closed"):
        graphics.rasterize(position, own, SIZE)


def test_what_does_not_fit_is_refused_after_what_fits(device: spy.Device) -> None:
    faces = spy.Tensor.from_numpy(device, FACES)
    position = spy.Tensor.from_numpy(device, _clip(0), "float4")
    for _ in range(3):
        seen = graphics.rasterize(position, faces, SIZE)
    with pytest.raises(spy.ShapeError, match=r"rasterize: _result is .*; a Tensor<float4> of shape \(40, 48\)"):
        graphics.rasterize(position, faces, SIZE, _result=spy.Tensor.zeros(device, (48, 40), "float4"))
    for _ in range(3):
        graphics.antialias(seen, seen, position, faces)
    with pytest.raises(spy.ShapeError, match="seen has shape"):
        graphics.antialias(seen[1:], seen, position, faces)


def test_calls_that_differ_in_one_thing(device: spy.Device) -> None:
    """A number, a setting, the layout of an argument or of the result, and the direction: each has its own plan."""
    rng = np.random.default_rng(6)
    levels = [rng.random((4, 8), np.float32)]
    levels += [levels[0].reshape(2, 2, 4, 2).mean((1, 3)), levels[0].reshape(1, 4, 2, 4).mean((1, 3))]
    at = np.stack([rng.integers(0, 8, 50), rng.integers(0, 4, 50)], -1)
    places = ((at + 0.25) / [8, 4]).astype(np.float32)
    uv, wide = spy.Tensor.from_numpy(device, places, "float2"), np.zeros((100, 2), np.float32)
    wide[::2] = places
    apart = spy.Tensor.from_numpy(device, wide, "float2")[::2]
    image = spy.Tensor.from_numpy(device, levels[0]).with_grads()
    plain, weights = image.detach(), rng.random(50, np.float32)
    seen = spy.Tensor.zeros(device, 50).with_grads(grad_in=spy.Tensor.from_numpy(device, weights))
    results = [
        spy.Tensor.zeros(device, 50),
        spy.Tensor.zeros(device, 100)[1::2],
        spy.Tensor.zeros(device, 60)[49::-1],
    ]
    added = np.zeros((4, 8))
    np.add.at(added, (at[:, 1], at[:, 0]), weights)

    def wanted(level: int) -> Floats:
        found: Floats = levels[level][at[:, 1] >> level, at[:, 0] >> level]
        return found

    for _ in TIMES:
        for level in (0.0, 1.0, 2.0, 1, 0):
            found = graphics.sample(plain, uv, level, filter="nearest")
            np.testing.assert_allclose(found.numpy(), wanted(int(level)), rtol=1e-5)
        for given in (uv, apart, uv[::-1][::-1]):
            np.testing.assert_allclose(graphics.sample(plain, given, filter="nearest").numpy(), wanted(0))
        for result in results:
            result[...] = 0.0
            graphics.sample(plain, uv, filter="nearest", _result=result)
            np.testing.assert_allclose(result.numpy(), wanted(0))
        graphics.sample(image, uv, filter="nearest", _result=seen.detach())
        np.testing.assert_allclose(seen.numpy(), wanted(0))
        image.grad.clear()
        graphics.sample.bwds(image, uv, filter="nearest", _result=seen)
        np.testing.assert_allclose(image.grad.numpy(), added, atol=1e-5)
        # Between texels blending is another thing than the nearest one.
        assert np.abs(graphics.sample(plain, uv).numpy() - wanted(0)).max() > 1e-2

"""Optimizers beside those of PyTorch: values over 20 steps, types, structs, command lists, pickles, refusals."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import slangpy_rt as spy
from tests.depth import every_case, needs, one_device, sampled

# What these test depends little on the device.
pytestmark = one_device

torch = pytest.importorskip("torch")

STEPS = 20
# Options, and those of PyTorch's optimizer of the same name.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "SGD": ("SGD", {"lr": 0.05}),
    "SGD, decay": ("SGD", {"lr": 0.05, "weight_decay": 0.1}),
    "momentum": ("SGD", {"lr": 0.05, "momentum": 0.9}),
    "Nesterov": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "Adam": ("Adam", {"lr": 0.02}),
    "Adam, options": ("Adam", {"lr": 0.02, "betas": (0.7, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    "AdamW": ("AdamW", {"lr": 0.02}),
    "AdamW, options": ("AdamW", {"lr": 0.02, "betas": (0.0, 0.9), "eps": 1e-3, "weight_decay": 0.3}),
}  # fmt: skip
Array = npt.NDArray[Any]


def gradients(shape: tuple[int, ...], steps: int = STEPS) -> list[Array]:
    """A gradient for each step, of numbers of several sizes, by which no parameter passes 0."""
    rng = np.random.default_rng(3)
    return [rng.normal(size=shape) * 10.0 ** rng.integers(-4, 1, shape) for _ in range(steps)]


def start(shape: tuple[int, ...]) -> Array:
    rng = np.random.default_rng(4)
    return rng.uniform(4, 8, shape) * rng.choice([-1, 1], shape)


def torch_result(case: str, values: Array, given: list[Array], dtype: Any = None) -> Array:
    """What PyTorch's optimizer makes of an array."""
    name, options = CASES[case]
    x = torch.tensor(values, dtype=dtype or torch.float32, requires_grad=True)
    optimizer = getattr(torch.optim, name)([x], foreach=False, **options)
    for g in given:
        x.grad = torch.tensor(g, dtype=x.dtype)
        optimizer.step()
    found: Array = x.detach().double().numpy()
    return found


def made(case: str, parameters: Any) -> Any:
    name, options = CASES[case]
    return getattr(spy.optim, name)(parameters, **options)


def set_gradient(parameter: spy.Tensor, values: Array) -> None:
    kind = parameter.grad.to_numpy().dtype
    parameter.grad.copy_from(values.astype(kind))


@sampled(12)
@pytest.mark.parametrize("case", CASES)
def test_floats(device: spy.Device, case: str) -> None:
    values, given = start((37, 5)), gradients((37, 5))
    x = spy.Tensor.from_numpy(device, values.astype(np.float32)).with_grads()
    other = spy.Tensor.from_numpy(device, values[0].astype(np.float32)).with_grads()
    optimizer = made(case, {"x": x, "other": other})
    for g in given:
        set_gradient(x, g)
        set_gradient(other, g[0])
        optimizer.step()
    wanted = torch_result(case, values.astype(np.float32), [g.astype(np.float32) for g in given])
    np.testing.assert_allclose(x.to_numpy(), wanted, 1e-6)
    np.testing.assert_allclose(other.to_numpy(), wanted[0], 1e-6)


@needs("double", lambda case: ["roots of doubles"] if case["case"] == "AdamW" else [])
@pytest.mark.parametrize("case", ["Nesterov", "AdamW"])
def test_doubles(device: spy.Device, case: str) -> None:
    values, given = start((9,)), gradients((9,))
    x = spy.Tensor.from_numpy(device, values).with_grads()
    optimizer = made(case, [x])
    for g in given:
        set_gradient(x, g)
        optimizer.step()
    assert all(s.dtype.name == "double" for s in optimizer.state[0].values())
    # The numbers of a call are passed in double.
    np.testing.assert_allclose(x.to_numpy(), torch_result(case, values, given, torch.float64), 1e-13)


@needs(lambda case: ["half"] if case["dtype"] == "half" else [])
@sampled(12)
@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize("case", ["SGD", "Nesterov", "AdamW"])
def test_short_floats(device: spy.Device, dtype: str, case: str) -> None:
    values, given = start((40,)), gradients((40,), 4)
    x = spy.Tensor.from_numpy(device, values.astype(np.float32)).astype(dtype).with_grads()
    first = np.array(x.astype("float").tolist())
    optimizer = made(case, [x])
    for g in given:
        set_gradient(x, g)
        optimizer.step()
    assert all(s.dtype.name == "float" for s in optimizer.state[0].values())
    wanted = torch_result(case, first, [g.astype(np.float16 if dtype == "half" else np.float32) for g in given])
    # Each step rounds the parameter once.
    unit = 2.0**-10 if dtype == "half" else 2.0**-7
    np.testing.assert_allclose(x.astype("float").to_numpy(), wanted, 4 * unit, 4 * unit)


def test_vectors_and_views(device: spy.Device) -> None:
    values, given = start((6, 3)), gradients((6, 3))
    whole = spy.Tensor.from_numpy(device, np.repeat(values, 2, 0).astype(np.float32), "float3").with_grads()
    x = whole[::2]
    before = whole.to_numpy()[1::2]
    optimizer = made("AdamW", [x])
    for g in given:
        x.grad.flatten_dtype()[...] = g.astype(np.float32)
        optimizer.step()
    wanted = torch_result("AdamW", values.astype(np.float32), [g.astype(np.float32) for g in given])
    np.testing.assert_allclose(whole.to_numpy()[::2], wanted, 1e-6)
    np.testing.assert_array_equal(whole.to_numpy()[1::2], before)
    optimizer.zero_grad()
    assert not whole.grad.to_numpy()[::2].any()


STRUCT = """
struct Inner : IDifferentiable { float2 at; no_diff float fixed; }
struct Ball : IDifferentiable { float3 color; int id; Inner inner; float[2] more; }
"""


def test_structs(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "optim_structs", STRUCT)
    data = spy.Tensor.zeros(device, 4, module.Ball).to_numpy()
    data["color"], data["id"] = start((4, 3)), 7
    data["inner"]["at"], data["inner"]["fixed"], data["more"] = start((4, 2)), 5, start((4, 2))
    balls = spy.Tensor.from_numpy(device, data, module.Ball).with_grads()
    optimizer = made("AdamW", [balls])
    given = gradients((4, 3))
    for g in given:
        slope = np.zeros_like(data)
        slope["color"], slope["more"] = g, g[:, :2]
        slope["inner"]["at"], slope["inner"]["fixed"] = g[:, 1:], 1
        balls.grad.copy_from(slope)
        optimizer.step()
    found = balls.to_numpy()
    for name, columns in (("color", slice(None)), ("more", slice(2))):
        wanted = torch_result("AdamW", data[name], [g[:, columns].astype(np.float32) for g in given])
        np.testing.assert_allclose(found[name], wanted, 1e-6)
    wanted = torch_result("AdamW", data["inner"]["at"], [g[:, 1:].astype(np.float32) for g in given])
    np.testing.assert_allclose(found["inner"]["at"], wanted, 1e-6)
    assert (found["id"] == 7).all()
    assert (found["inner"]["fixed"] == 5).all()
    optimizer.zero_grad()
    assert not balls.grad["more"].to_numpy().any()


@pytest.mark.parametrize("case", CASES)
def test_a_step_in_a_list(device: spy.Device, case: str) -> None:
    values, given = start((33,)), gradients((33,))
    x = spy.Tensor.from_numpy(device, values.astype(np.float32)).with_grads()
    optimizer = made(case, [x])
    commands = device.command_list()
    for k, g in enumerate(given):
        set_gradient(x, g)
        if k == 2:
            optimizer.append_to(commands)
        # Steps of a list and others take turns.
        if k >= 2 and k % 5:
            commands.submit()
        else:
            optimizer.step()
    wanted = torch_result(case, values.astype(np.float32), [g.astype(np.float32) for g in given])
    np.testing.assert_allclose(x.to_numpy(), wanted, 1e-6)
    if "Adam" in case:
        assert optimizer.steps == STEPS


@pytest.mark.parametrize("case", ["momentum", "Adam"])
@pytest.mark.parametrize("listed", [False, True])
def test_pickles(device: spy.Device, case: str, listed: bool) -> None:
    values, given = start((5,)), gradients((5,))
    x = spy.Tensor.from_numpy(device, values.astype(np.float32)).with_grads()
    optimizer = made(case, [x])
    if listed:
        optimizer.append_to(device.command_list())
    for k, g in enumerate(given):
        set_gradient(x, g)
        optimizer.step()
        if k == 7:
            x, optimizer = pickle.loads(pickle.dumps((x, optimizer)))
        if k == 12:
            x, optimizer = copy.deepcopy((x, optimizer))
    wanted = torch_result(case, values.astype(np.float32), [g.astype(np.float32) for g in given])
    np.testing.assert_allclose(x.to_numpy(), wanted, 1e-6)


def test_training(device: spy.Device) -> None:
    text = "[Differentiable] float error(float x, float y, float a, float b) { let e = a * x + b - y; return e * e; }"
    module = spy.Module.load_from_source(device, "optim_training", text)
    x = spy.Tensor.linspace(device, -1, 1, 64)
    y = x * 3 + 2
    a, b = (spy.Tensor.zeros(device, 1).with_grads() for _ in range(2))
    optimizer = spy.optim.Adam([a, b], lr=0.1)
    seed = spy.Tensor.empty_like(x).with_grads(grad_in=spy.Tensor.full(device, 64, 1 / 64))
    for _ in range(200):
        optimizer.zero_grad()
        module.error.bwds(x, y, a, b, _result=seed)
        optimizer.step()
    assert abs(a.item() - 3) < 0.02
    assert abs(b.item() - 2) < 0.02
    optimizer.lr = 0
    optimizer.step()
    assert repr(optimizer) == f"Adam(2 parameters, 2 numbers, on {device.name})"


def test_odd_sizes(device: spy.Device) -> None:
    empty = spy.Tensor.zeros(device, (0, 3)).with_grads()
    one = spy.Tensor.full(device, (), 2).with_grads()
    optimizer = spy.optim.SGD([empty, one, spy.Tensor.zeros(device, 0).with_grads()], lr=0.5)
    one.grad[...] = 1
    optimizer.step()
    optimizer.zero_grad()
    assert (one.item(), one.grad.item()) == (1.5, 0)


def test_refusals(device: spy.Device) -> None:
    optim = spy.optim
    x = spy.Tensor.ones(device, 3).with_grads()
    y = spy.Tensor.ones(device, 3).with_grads()
    plain = spy.Tensor.ones(device, 3)
    told: dict[str, Callable[[], Any]] = {
        "SGD: parameters is a single Tensor; put it into a list: [Tensor<float> of shape (3,)].": lambda: optim.SGD(
            x
        ),
        "Adam: parameters is 3; a list of Tensors was expected.": lambda: optim.Adam(3),
        "SGD: parameters is empty; a list of Tensors with gradients was expected.": lambda: optim.SGD([]),
        "SGD: parameters[1] is 3; a Tensor was expected.": lambda: optim.SGD([x, 3]),
        "SGD: parameters[0] is Tensor<float> of shape (3,) without a gradient; give the Tensor that with_grads() "
        "returned, and that bwds gets.": lambda: optim.SGD([plain]),
        "SGD: parameters[1] and parameters[0] are the same memory; give each array once.": lambda: optim.SGD([x, x]),
        "SGD: lr is -1; a finite number of at least 0 was expected.": lambda: optim.SGD([x], lr=-1),
        "SGD: lr is nan; a finite number of at least 0 was expected.": lambda: optim.SGD([x], lr=float("nan")),
        "SGD: lr is 'fast'; a finite number of at least 0 was expected.": lambda: optim.SGD([x], lr="fast"),
        "SGD: momentum is 1; a finite number of at least 0 and less than 1 was expected.": lambda: optim.SGD(
            [x], momentum=1
        ),
        "SGD: nesterov=True needs a momentum; give momentum=0.9, for example.": lambda: optim.SGD([x], nesterov=True),
        "Adam: betas is 0.9; two numbers were expected, such as (0.9, 0.999).": lambda: optim.Adam([x], betas=0.9),
        "Adam: betas[1] is 2; a finite number of at least 0 and less than 1 was expected.": lambda: optim.Adam(
            [x], betas=(0.9, 2)
        ),
        "AdamW: eps is None; a finite number of at least 0 was expected.": lambda: optim.AdamW([x], eps=None),
        f"SGD.append_to: 3 is no command list of {device!r}.": lambda: optim.SGD([x]).append_to(3),
    }
    for message, call in told.items():
        with pytest.raises(spy.BindError) as caught:
            call()
        assert str(caught.value) == message
    wide = plain.broadcast_to((2, 3)).with_grads()
    with pytest.raises(spy.BindError, match="is broadcast; give the array that it was made from"):
        optim.SGD([wide])
    with spy.Device("null") as null, pytest.raises(spy.BindError, match=r"parameters\[1\] is on "):
        optim.SGD([x, spy.Tensor.zeros(null, 3).with_grads()])
    optimizer = optim.SGD([x, y], lr=0.1)
    with pytest.raises(spy.BindError, match="SGD: lr is inf"):
        optimizer.lr = float("inf")
    assert optimizer.lr == 0.1
    optimizer.momentum = 0.5
    with pytest.raises(spy.BindError, match="momentum was 0 when the optimizer was made"):
        optimizer.step()
    assert x.tolist() == [1, 1, 1]


def test_parameters_that_share_memory(device: spy.Device) -> None:
    optim = spy.optim
    whole = spy.Tensor.from_numpy(device, np.arange(12, dtype=np.float32))
    grid = whole.view((3, 4))

    def grads(*views: spy.Tensor) -> list[spy.Tensor]:
        return [v.with_grads() for v in views]

    shared = r"SGD: parameters\[1\] and parameters\[0\] share memory; give the array that holds both\."
    for views in (
        (whole[:5], whole[4:]),
        (whole[::2], whole[::3]),
        (grid[1], grid[:, 2]),
        (whole, grid),
        (whole[::-1], whole[3:4]),
    ):
        with pytest.raises(spy.BindError, match=shared):
            optim.SGD(grads(*views))
    with pytest.raises(spy.BindError, match=r"parameters\[0\]: .* has elements that overlap each other"):
        optim.SGD(grads(whole.view((3, 4), (2, 1))))
    # A gradient in a parameter's memory would be changed by the step that reads it.
    x = spy.Tensor.ones(device, 5).with_grads(grad_out=whole[2:7])
    with pytest.raises(
        spy.BindError, match=r"the gradient of parameters\[0\] and parameters\[1\] share memory; give"
    ):
        optim.SGD([x, whole[6:].with_grads()])
    # Views that interleave without a shared element, empty ones, and gradients of two parameters in one array.
    gradient = spy.Tensor.ones(device, 3)
    apart = [
        whole[1::4].with_grads(grad_out=gradient),
        whole[3::4].with_grads(grad_out=gradient),
        *grads(whole[::2], whole[3:3]),
    ]
    for parameter in apart[2:]:
        parameter.grad[...] = 1
    optim.SGD(apart, lr=1).step()
    np.testing.assert_array_equal(whole.to_numpy(), np.arange(12) - 1)


@every_case
@pytest.mark.parametrize("case", ["momentum", "Adam, options", "AdamW, options"])
def test_parameters_of_several_types_in_a_list(device: spy.Device, case: str) -> None:
    """One list steps parameters of all types, as steps without a list do, and counts each step once."""
    types = [t for t in ("float", "double", "half", "float3", "bfloat16") if t.rstrip("3") in scalars_of(device)]
    if device.name in ("rhi-vulkan", "rhi-vulkan-handles", "rhi-d3d12"):  # they have no exp of doubles
        types = [t for t in types if t != "double"]
    values, given = start((3,)), gradients((3,), 6)

    def parameters() -> list[spy.Tensor]:
        shapes = [1 if t == "float3" else 3 for t in types]
        made = [spy.Tensor.zeros(device, n, t).with_grads() for t, n in zip(types, shapes, strict=True)]
        for x in made:
            x.copy_from(values.reshape(x.to_numpy().shape).astype(np.float32))
        return made

    listed, alone = parameters(), parameters()
    one, other = made(case, listed), made(case, alone)
    one.append_to(commands := device.command_list())
    for g in given:
        for x in (*listed, *alone):
            x.grad.copy_from(g.reshape(x.grad.to_numpy().shape).astype(x.grad.to_numpy().dtype))
        commands.submit()
        other.step()
    for x, y, t in zip(listed, alone, types, strict=True):
        np.testing.assert_allclose(
            x.to_numpy().astype(float),
            y.to_numpy().astype(float),
            2e-2 if t in ("half", "bfloat16") else 1e-6,
            err_msg=t,
        )
    if "Adam" in case:
        assert one.steps == other.steps == len(given)


def scalars_of(device: spy.Device) -> set[str]:
    return {*device.caps.scalars, "bfloat16"}

"""Random derivatives against PyTorch: shapes, broadcasts, views, maps, and which arguments have gradients, and where.

Values are small integers, whose sums floats hold exactly, in any order: results are compared for equality. In CI the
cases are the same in every run; ``pytest tests/conformance/test_gradient_property.py --long --hypothesis-seed=N``
tries many more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from _gradient_cases import BALL, DIMS, POOL, SLANG, Argument, Array, Case, Shape, View, cases, numbers

import slangpy_rt as spy
from tests.depth import explore, one_device, random_cases

torch.set_num_threads(1)


def load(device: spy.Device) -> spy.Module:
    """The pool, without what the device has no type for."""
    kept = [line for line in SLANG.splitlines() if "double" not in line or "double" in device.caps.scalars]
    return spy.Module.load_from_source(device, "test_gradient_property", "\n".join(kept))


class Run:
    """One case: the arguments on the device, and what their gradients have to become."""

    def __init__(self, module: spy.Module, case: Case) -> None:
        self.module, self.case = module, case
        self.shared: dict[Any, tuple[spy.Tensor, Array]] = {}
        # Arrays of gradients, what they must hold, in the pieces that arguments add to them.
        self.checked: list[tuple[Any, Array]] = []
        self.leaves: list[tuple[torch.Tensor, Array | None, Array]] = []

    def tensor(self, type_: str, values: Array) -> spy.Tensor:
        return spy.Tensor.from_numpy(self.module.device, values, self.module.Ball if type_ == "Ball" else type_)

    def place(self, a: Argument) -> Any:
        """The argument, its leaf noted."""
        if a.view is None:
            values = numbers(a.type, (), a.seed)
            leaf = torch.tensor(self.row(values), requires_grad=True)
            number = values.tolist()
            if a.gradient == "none":
                self.leaves.append((leaf, None, np.zeros(())))
                return number
            pair = spy.diff_pair(number)
            expected = np.zeros((1, *leaf.shape))
            self.leaves.append((leaf, expected, np.zeros((), int)))
            self.checked.append((pair, expected))
            return pair
        base = numbers(a.type, a.view.shape, a.seed)
        places = a.view.places
        rows = self.row(base).reshape(-1, *self.inner(a.type))
        leaf = torch.tensor(rows[places], requires_grad=True)
        held = self.tensor(a.type, base)
        if a.gradient == "along":
            gradient = self.fresh(a.type, a.view.shape, a.seed + 1)
            into = a.view.places
            value = a.view.look(held.with_grads(grad_out=gradient[0]))
        elif a.gradient == "none":
            self.leaves.append((leaf, None, places))
            return a.view.look(held)
        else:
            seen = View(places.shape) if a.into is None else a.into
            key = (a.type, seen.shape)
            if a.gradient == "one" and key in self.shared:
                gradient = self.shared[key]
            else:
                gradient = self.shared[key] = self.fresh(a.type, seen.shape, a.seed + 1)
            into = seen.places
            value = a.view.look(held).with_grads(grad_out=seen.look(gradient[0]))
        self.leaves.append((leaf, gradient[1], into))
        return value

    def fresh(self, type_: str, shape: Shape, seed: int) -> tuple[spy.Tensor, Array]:
        """An array of gradients that is not zero, and what it must become."""
        start = numbers(type_, shape, seed)
        held = self.tensor(type_, start)
        expected = self.row(start).reshape(-1, *self.inner(type_)).copy()
        self.checked.append((held, expected))
        return held, expected

    @staticmethod
    def row(values: Array) -> Array:
        """In double, a ball as a row of numbers."""
        if values.dtype == BALL:
            values = np.concatenate([values["at"], values["r"][..., None]], -1)
        return values.astype(np.float64)

    @staticmethod
    def inner(type_: str) -> Shape:
        return (4,) if type_ == "Ball" else DIMS[type_]

    def along(self, k: int, leaf: torch.Tensor) -> torch.Tensor:
        """An argument's elements along the call's dimensions."""
        type_, dims, rank = self.case.arguments[k].type, self.case.maps[k], self.case.rank
        inner = len(self.inner(type_))
        if dims is None:
            return leaf.reshape((1,) * (rank - (leaf.ndim - inner)) + tuple(leaf.shape))
        if len(set(dims)) < len(dims):
            # The first dimension and the last are walked together.
            leaf = torch.diagonal(leaf, 0, 0, len(dims) - 1).movedim(-1, 0)
            dims = dims[:-1]
        order = sorted(range(len(dims)), key=lambda d: dims[d])
        leaf = leaf.permute((*order, *range(len(dims), leaf.ndim)))
        for d in range(rank):
            if d not in dims:
                leaf = leaf.unsqueeze(d)
        return leaf

    def alike(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """All of the call's shape."""
        inner = [self.inner(a.type) for a in self.case.arguments]
        shape = np.broadcast_shapes(*(t.shape[: t.ndim - len(n)] for t, n in zip(tensors, inner, strict=True)))
        return [t.expand(shape + n) for t, n in zip(tensors, inner, strict=True)]

    def check(self) -> None:
        """Run it, and compare."""
        case, f = self.case, self.case.function
        values = [self.place(a) for a in case.arguments]
        function = self.module[f.name].map(*case.maps)
        out = f.compute(*self.alike([self.along(k, leaf) for k, (leaf, _, _) in enumerate(self.leaves)]))
        shape = tuple(out.shape[: out.ndim - len(DIMS[f.returns])])
        seed = self.case.seed
        held = numbers(f.returns, seed.shape, 1)
        rows = held.reshape(-1, *DIMS[f.returns]).astype(np.float64)[seed.places]
        full = np.broadcast_shapes(shape, seed.places.shape)
        g = torch.tensor(np.ascontiguousarray(np.broadcast_to(rows, full + DIMS[f.returns])))
        gradient = self.tensor(f.returns, held)
        result = seed.look(spy.Tensor.empty_like(gradient).with_grads(grad_in=gradient))
        arguments = (*values, *(() if f.result else (result,)))
        named = {"_result": result} if f.result else {}
        if all(expected is None for _, expected, _ in self.leaves):
            with pytest.raises(spy.BindError, match="no argument has a gradient to add to"):
                function.bwds(*arguments, **named)
            return
        for _ in range(1 + case.twice):
            assert function.bwds(*arguments, **named) is None
        leaves = [leaf for leaf, _, _ in self.leaves]
        found = torch.autograd.grad(out.broadcast_to(g.shape), leaves, g)
        for (_, expected, into), slope in zip(self.leaves, found, strict=True):
            if expected is not None:
                rows = slope.numpy().reshape(into.shape + expected.shape[1:])
                for _ in range(1 + case.twice):
                    np.add.at(expected, into, rows)
        for held, expected in self.checked:
            values_of = held.grad if isinstance(held, spy.DiffPair) else self.row(held.to_numpy())
            np.testing.assert_array_equal(np.asarray(values_of).reshape(expected.shape), expected)

    def check_forward(self) -> None:
        """The same of the forward derivative."""
        case, f = self.case, self.case.function
        values, primals, tangents = [], [], []
        for k, a in enumerate(case.arguments):
            if a.view is None:
                number = numbers(a.type, (), a.seed)
                slope = numbers(a.type, (), a.seed + 1) * (a.gradient != "none")
                values.append(
                    spy.diff_pair(number.tolist(), slope.tolist()) if a.gradient != "none" else number.tolist()
                )
                rows, moving = self.row(number), self.row(slope)
            else:
                base, slope = numbers(a.type, a.view.shape, a.seed), numbers(a.type, a.view.shape, a.seed + 1)
                held = self.tensor(a.type, base)
                if a.gradient != "none":
                    held = held.with_grads(grad_in=self.tensor(a.type, slope))
                values.append(a.view.look(held))
                rows, moving = (self.row(x).reshape(-1, *self.inner(a.type))[a.view.places] for x in (base, slope))
                moving = moving * (a.gradient != "none")
            primals.append(self.along(k, torch.tensor(rows)))
            tangents.append(self.along(k, torch.tensor(moving)))
        primals, tangents = self.alike(primals), self.alike(tangents)
        expected, slopes = torch.autograd.functional.jvp(f.compute, tuple(primals), tuple(tangents))
        found = self.module[f.name].map(*case.maps).fwds(*values)
        value, slope = (
            (found.primal, found.grad)
            if isinstance(found, spy.DiffPair)
            else (found.to_numpy(), found.grad.to_numpy())
        )
        np.testing.assert_array_equal(value, expected.numpy())
        np.testing.assert_array_equal(slope, slopes.numpy())


def check_random(config: pytest.Config, module: spy.Module, examples: int) -> None:
    """Check so many random cases."""
    kept = [f for f in POOL if "double" not in f.parameters or "double" in module.device.caps.scalars]

    def test(case: Case) -> None:
        run = Run(module, case)
        if case.forward:
            run.check_forward()
        else:
            run.check()

    explore(config, test, cases(kept), examples, 20)


@random_cases
def test_derivatives(device: spy.Device, pytestconfig: pytest.Config) -> None:
    check_random(pytestconfig, load(device), 90)


@one_device
@random_cases
def test_derivatives_of_a_deterministic_device(backend_name: str, pytestconfig: pytest.Config) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        check_random(pytestconfig, load(device), 30)


@one_device
def test_a_stretched_gradient_of_a_deterministic_device(backend_name: str) -> None:
    with spy.Device(backend_name, deterministic=True) as device:
        module = load(device)
        b, g = (np.arange(k, k + 64, dtype=np.float32) for k in (0, 1))
        x = spy.Tensor.ones(device, 1).with_grads()
        seed = spy.Tensor.from_numpy(device, g)
        result = spy.Tensor.empty_like(seed).with_grads(grad_in=seed)
        module.mul.bwds(x.broadcast_to(64), spy.Tensor.from_numpy(device, b), _result=result)
        np.testing.assert_array_equal(np.asarray(x.grad), [(b * g).sum()])

"""Adam and AdamW: steps by running means of the gradient and of its square."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf, log, sqrt
from typing import Any

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import short_traceback
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.optim.kernels import kernels
from slangpy_rt.optim.optimizer import Call, Number, Optimizer, check_array, number
from slangpy_rt.runtime.pickling import damaged


class Adam(Optimizer):
    """Adam; the formula is that of ``torch.optim.Adam`` without ``amsgrad``.

    Parameters
    ----------
    parameters : iterable of Tensor
        As for ``SGD``.
    lr : float
        The learning rate.
    betas : tuple of float
        The shares of the running means of the gradient and of its square that stay, each from 0 to below 1.
    eps : float
        Is added to the root of the mean square, by which the mean is divided.
    weight_decay : float
        This share of the parameter is added to its gradient.

    Raises
    ------
    BindError
        If a parameter is no Tensor with a gradient, or a number is out of range.
    """

    lr = Number(0, inf, "The learning rate.")
    eps = Number(0, inf, "What is added to the root of the mean square.")
    weight_decay = Number(0, inf, "The share of the parameter that is added to its gradient.")
    _states = ("mean", "square")
    # Whether the decay changes the parameter and leaves the gradient alone.
    _decoupled = False

    @short_traceback
    def __init__(
        self,
        parameters: Iterable[Tensor] | Mapping[str, Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        self.betas = betas
        super().__init__(parameters, lr=lr, eps=eps, weight_decay=weight_decay)
        self._steps = 0
        # Once a list has steps in it, the device counts: the number of steps, and by the scalars that are computed in
        # the size of a step and the root of the second bias correction.
        self._counter: Tensor | None = None
        self._corrections: dict[str, tuple[Tensor, Tensor]] = {}

    @property
    def betas(self) -> tuple[float, float]:
        """The shares of the running means that stay."""
        return self._betas

    @betas.setter
    def betas(self, values: Any) -> None:
        where = type(self).__name__
        if not isinstance(values, (tuple, list)) or len(values) != 2:
            raise BindError(f"{where}: betas is {in_words(values)}; two numbers were expected, such as (0.9, 0.999).")
        first, second = (number(f"{where}: betas[{k}]", v, 0, 1) for k, v in enumerate(values))
        self._betas = first, second

    @property
    def steps(self) -> int:
        """The number of steps made so far, those of command lists included."""
        return self._steps if self._counter is None else int(self._counter.item())

    def _check_state(self, what: str) -> None:
        super()._check_state(what)
        self.betas = self.__dict__.get("_betas")
        steps, counter, found = (self.__dict__.get(name) for name in ("_steps", "_counter", "_corrections"))
        if type(steps) is not int or not 0 <= steps < 2**31:
            raise damaged(what, f"it counts {in_words(steps)} steps; a whole number below 2^31 was expected")
        scalars = set() if counter is None else {part.computed for part in self._parts}
        if not isinstance(found, dict) or set(found) != scalars:
            raise damaged(what, f"its corrections are {in_words(found)}; those of {in_words(scalars)} were expected")
        if counter is not None:
            check_array(what, counter, self._device, "int", ())
        for scalar, pair in found.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise damaged(what, f"its corrections hold {in_words(pair)}; two Tensors were expected")
            for array in pair:
                check_array(what, array, self._device, scalar, ())

    def _prepare_list(self) -> None:
        if self._counter is None:
            self._counter = Tensor.full(self._device, (), self._steps, "int")
            for scalar in sorted({part.computed for part in self._parts}):
                self._corrections[scalar] = (
                    Tensor.zeros(self._device, (), scalar),
                    Tensor.zeros(self._device, (), scalar),
                )

    def _run(self, call: Call) -> None:
        beta1, beta2 = self._betas
        decay = 0.0 if self._decoupled else self.weight_decay
        keep = 1 - self.lr * self.weight_decay if self._decoupled else 1.0
        found = self._advanced(call)
        for part, function, (mean, square) in self._each("adam"):
            size, root = found[part.computed]
            call(
                function, part.values, part.gradient, mean, square, size, root, keep, decay, 1 - beta1, beta2,
                1 - beta2, self.eps,
            )  # fmt: skip

    def _advanced(self, call: Call) -> dict[str, tuple[Any, Any]]:
        """Count a step; return the size of it and the root of the second bias correction, by scalar type."""
        beta1, beta2 = self._betas
        if self._counter is None:
            self._steps += 1
            size = self.lr / (1 - beta1**self._steps)
            return dict.fromkeys(("float", "double"), (size, sqrt(1 - beta2**self._steps)))
        known = kernels(self._device)
        counter: Any = self._counter
        for k, (scalar, (size, root)) in enumerate(self._corrections.items()):
            function = known.function("advance", (scalar, scalar, scalar))
            call(function, counter, k == 0, size, root, self.lr, _log(beta1), _log(beta2))
        return self._corrections


class AdamW(Adam):
    """Adam whose weight decay is a factor of the parameter; the formula is that of ``torch.optim.AdamW``.

    Parameters
    ----------
    parameters, lr, betas, eps
        As for ``Adam``.
    weight_decay : float
        Each step first multiplies the parameter by ``1 - lr * weight_decay``.

    Raises
    ------
    BindError
        As ``Adam``.
    """

    _decoupled = True

    @short_traceback
    def __init__(
        self,
        parameters: Iterable[Tensor] | Mapping[str, Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(parameters, lr, betas, eps, weight_decay)


def _log(beta: float) -> float:
    # Of 0 nothing stays: a number whose exponential is 0.
    return log(beta) if beta else -1000.0

"""SGD: stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.checks import flag, short_traceback
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words
from slangpy_rt.optim.optimizer import Call, Number, Optimizer
from slangpy_rt.runtime.pickling import damaged


class SGD(Optimizer):
    """Stochastic gradient descent; the formula is that of ``torch.optim.SGD`` without dampening.

    ``step`` subtracts ``lr`` times the gradient. With momentum it subtracts ``lr * velocity``, where
    ``velocity = momentum * velocity + gradient``.

    Parameters
    ----------
    parameters : iterable of Tensor
        Tensors with gradients (``with_grads()``) of one device, or a dict of them: of float, half, bfloat16 or
        double, of vectors or matrices of these, or of structs whose fields are. Other fields, and fields that are
        ``no_diff``, stay as they are.
    lr : float
        The learning rate.
    momentum : float
        The share of the velocity that stays from one step to the next, from 0 to below 1.
    nesterov : bool
        Whether the step looks ahead: it subtracts ``lr * (gradient + momentum * velocity)``.
    weight_decay : float
        This share of the parameter is added to its gradient.

    Raises
    ------
    BindError
        If a parameter is no Tensor with a gradient, a number is out of range, or ``nesterov`` has no momentum.

    Examples
    --------
    >>> optimizer = spy.optim.SGD([weights, bias], lr=0.1, momentum=0.9)
    >>> optimizer.zero_grad()
    >>> module.loss.bwds(weights, bias, data, _result=seed)
    >>> optimizer.step()
    """

    lr = Number(0, inf, "The learning rate.")
    momentum = Number(0, 1, "The share of the velocity that stays.")
    weight_decay = Number(0, inf, "The share of the parameter that is added to its gradient.")

    @short_traceback
    def __init__(
        self,
        parameters: Iterable[Tensor] | Mapping[str, Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        self.nesterov = flag("SGD", "nesterov", nesterov)
        self.momentum = momentum
        if self.nesterov and not self.momentum:
            raise BindError("SGD: nesterov=True needs a momentum; give momentum=0.9, for example.")
        self._states = ("velocity",) if self.momentum else ()
        super().__init__(parameters, lr=lr, weight_decay=weight_decay)

    def _check_state(self, what: str) -> None:
        self.nesterov = flag("SGD", "nesterov", self.__dict__.get("nesterov"))
        if self._states not in ((), ("velocity",)):
            raise damaged(what, f"its arrays are {in_words(self._states)}; 'velocity' was expected, or none")
        super()._check_state(what)

    def _run(self, call: Call) -> None:
        if not self._states:
            if self.momentum:
                raise BindError("SGD: momentum was 0 when the optimizer was made; make another one with momentum.")
            for part, function, _ in self._each("sgd"):
                call(function, part.values, part.gradient, self.lr, self.weight_decay)
            return
        for part, function, (velocity,) in self._each("momentum"):
            call(
                function,
                part.values,
                part.gradient,
                velocity,
                self.lr,
                self.weight_decay,
                self.momentum,
                self.nesterov,
            )

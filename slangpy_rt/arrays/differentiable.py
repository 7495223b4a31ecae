"""Values with their gradients: NDDifferentiableBuffer for arrays, DiffPair for one value.

Slang's ``DifferentialPair`` parameters take either, and so do ``bwds`` and ``fwds``.
"""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import check_gradient, gradient_type, has_floats
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.errors import BindError

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore


class NDDifferentiableBuffer(NDBuffer):
    """An NDBuffer and another one of its shape for the gradient, which starts as zeros.

    Parameters
    ----------
    device : Device
        The device that both lie on.
    dtype, shape
        As for an NDBuffer; the elements hold floats.
    grad : NDBuffer, optional
        The gradient, in place of a new one.

    Raises
    ------
    BindError, ShapeError, OutOfMemoryError
        As ``NDBuffer`` does; or if ``grad`` does not fit.
    """

    __slots__ = ()

    def __init__(
        self,
        device: DeviceCore,
        dtype: Any = "float",
        shape: int | Sequence[int] = (),
        grad: NDBuffer | None = None,
    ) -> None:
        super().__init__(device, dtype, shape)
        where = type(self).__name__
        if not has_floats(self.layout.element):
            raise BindError(f"{where}: '{self.layout.element.name}' holds no float, half or double.")
        if grad is None:
            grad = NDBuffer(device, gradient_type(self.layout.element), shape)
            grad.clear()
        check_gradient(where, "grad", self, grad)
        carrying = self._carrying(grad, grad)
        self.layout, self._grads = carrying.layout, carrying._grads

    def _with_pickled(self, where: str, grad_in: Any, grad_out: Any) -> NDDifferentiableBuffer:
        if grad_out is not grad_in or not has_floats(self.layout.element):
            raise BindError(f"{where}: {self.summary} is damaged: it has not one gradient. Write the pickle again.")
        check_gradient(where, "grad", self, grad_in)
        return self._carrying(grad_in, grad_in)

    @property
    def primal(self) -> NDBuffer:
        """An NDBuffer of the values alone, in the same memory."""
        layout = self.layout
        plain = layout_of(
            layout.device, NDBuffer, layout.element, layout.shape, layout.strides, layout.aligned, own=layout.own
        )
        return NDBuffer.of(plain, self.buffer, self.address)

    @classmethod
    def from_dlpack(cls, device: Any, array: Any) -> Any:
        """Refuse an array of another library, which has no gradient.

        Raises
        ------
        BindError
            Always.
        """
        raise BindError(
            f"{cls.__name__}.from_dlpack: an array of another library has no gradient beside it; use "
            "NDBuffer.from_dlpack(device, array), or Tensor.from_dlpack(device, array).with_grads()."
        )

    @property
    def grad(self) -> NDBuffer:
        """The NDBuffer that holds the gradient."""
        grad = self._grads[1]
        assert grad is not None
        return grad

    grad_in = grad_out = grad


class DiffPair(ValueRef):
    """A value and its gradient, for derivatives of calls with plain numbers.

    Parameters
    ----------
    primal : number, list, array or dict, optional
        The value; None where only a gradient matters, as for a result.
    grad : number, list or array, optional
        The gradient. ``bwds`` reads it where the function writes the value, and adds to it where the function reads
        the value; there, None counts as zero.
    """

    __slots__ = ("grad",)

    def __init__(self, primal: Any = None, grad: Any = None) -> None:
        super().__init__(primal)
        self.grad = grad

    @property
    def primal(self) -> Any:
        """The value of the pair."""
        return self.value

    @recursive_repr()
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.value!r}, grad={self.grad!r})"


class GradientRef(ValueRef):
    """A ValueRef whose value is the gradient of a DiffPair."""

    __slots__ = ("_pair",)

    def __init__(self, pair: DiffPair) -> None:
        self._pair = pair

    @property
    def value(self) -> Any:
        """The gradient of the pair; zero where it has none."""
        return 0.0 if self._pair.grad is None else self._pair.grad

    @value.setter
    def value(self, gradient: Any) -> None:
        self._pair.grad = gradient


def diff_pair(primal: Any = None, grad: Any = None) -> DiffPair:
    """Make a DiffPair of a value and its gradient."""
    return DiffPair(primal, grad)

"""Binder: binds arguments to the parameters of one kernel. It launches nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

from slangpy_rt.interop.torch_memory import same_as
from slangpy_rt.slangtorch.devices import Devices, Place
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter
from slangpy_rt.slangtorch.tensor_view import TensorView

# The most layouts of all tensors of a call that are remembered.
_KEPT = 256
# Tells by one check whether tensors are as they were at a call; None if there is no such check.
Same = Callable[..., bool] | None
# The tensors of a call, the places of their addresses among the values of the argument block, and the (dtype, shape,
# strides) of each at the call.
Tensors = tuple[tuple[Any, ...], tuple[int, ...], tuple[Any, ...]]
# The arguments of one call of a kernel: the place where it runs, the values of its argument block, in which a launch
# sets the addresses of the tensors, the tensors, and the check. A plain tuple, because each call makes one.
Bound = tuple[Place, list[Any], Tensors, Same]


class Binder:
    """Binds arguments to the parameters of one kernel.

    If all parameters are tensors, one check of all arguments tells whether the values that were made for the call
    before serve again. It keeps no tensor.

    Parameters
    ----------
    where : str
        The kernel's name in messages.
    params : mapping of str to Parameter
        The kernel's parameters by name.
    devices : Devices
        The devices of the module.
    """

    def __init__(self, where: str, params: Mapping[str, Parameter], devices: Devices) -> None:
        self._where, self._params, self._devices = where, params, devices
        self._count = len(params)
        # An ``itemgetter`` of one name returns no tuple.
        self._only_tensors = len(params) > 1 and all(type(p) is TensorView for p in params.values())
        self._take: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*params) if params else tuple
        # Bound arguments without the tensors, by their place, layouts and whether they require gradients.
        self._known: dict[tuple[Any, ...], Bound] = {}
        self._last: Bound | None = None

    def find(self, named: Mapping[str, Any]) -> Bound | None:
        """Bind arguments by name, if they are tensors like those of the call before; return None if not."""
        last = self._last
        if last is None or len(named) != self._count:
            return None
        try:
            given = self._take(named)
        except KeyError:
            return None
        place, values, (_, places, layouts), same = last
        if same is None or not same(*given) or place.device.closed:
            return None
        return place, values.copy(), (given, places, layouts), same

    def bind(self, named: Mapping[str, Any]) -> Bound:
        """Bind arguments to all parameters, by name.

        Raises
        ------
        TypeError, ValueError, TensorError
            If a value does not fit its parameter, or tensors lie on several devices.
        """
        values: list[Any] = []
        packed: list[BoundTensor] = []
        for name, parameter in self._params.items():
            parameter.pack(name, named[name], values, packed)
        given, places = tuple([tensor for _, tensor, _ in packed]), tuple([at for at, _, _ in packed])
        place = self._devices.place(self._where, given)
        layouts = tuple([layout for _, _, layout in packed])
        if not self._only_tensors:
            return place, values, (given, places, layouts), None
        key = (place, layouts, *[tensor.requires_grad for tensor in given])
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[key] = place, values.copy(), ((), places, layouts), same_as(given)
        self._last = known
        return place, values, (given, places, layouts), known[3]


def unchanged(tensors: Tensors, same: Same) -> bool:
    """Tell whether the tensors of a call have the dtypes, shapes and strides that they had then."""
    given, _, layouts = tensors
    if same is not None and same(*given):
        return True
    return all((t.dtype, t.shape, t.stride()) == layout for t, layout in zip(given, layouts, strict=True))

"""Binder: binds arguments to the parameters of one kernel. It launches nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from slangpy_rt.interop.torch_memory import same_as
from slangpy_rt.slangtorch.devices import Devices, Place
from slangpy_rt.slangtorch.diff_tensor_view import DiffTensorViewParameter
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
# A pair among the tensors of a call: where its value and its gradient are, and how many bytes each spans.
Pair = tuple[int, int, int, int]
# Bound arguments without the tensors, how many tensors a tuple held for each parameter (0: it was no tuple), and the
# pairs among them.
Known = tuple[Bound, list[int], list[Pair]]


class Binder:
    """Binds arguments to the parameters of one kernel.

    If all parameters are tensors or pairs of them, one check of all arguments tells whether the values that were made
    for the call before serve again. It keeps no tensor.

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
        self._only_tensors = len(params) > 1 and all(
            type(p) is TensorView or (isinstance(p, DiffTensorViewParameter) and not p.wrapper)
            for p in params.values()
        )
        self._any_pairs = any(p.is_pair for p in params.values())
        self._take: Callable[[Mapping[str, Any]], tuple[Any, ...]] = itemgetter(*params) if params else tuple
        # Bound arguments without the tensors, by their place, layouts and whether they require gradients.
        self._known: dict[tuple[Any, ...], Known] = {}
        self._last: Known | None = None

    def find(self, named: Mapping[str, Any]) -> Bound | None:
        """Bind arguments by name, if they are tensors like those of the call before; return None if not."""
        last = self._last
        if last is None or len(named) != self._count:
            return None
        try:
            given = self._take(named)
        except KeyError:
            return None
        (place, values, (_, places, layouts), same), form, pairs = last
        if same is None:
            return None
        if self._any_pairs:
            given, now = _flat(given)
            if now != form:
                return None
        if not same(*given) or place.device.closed:
            return None
        # The check knows no addresses: values and gradients that overlap are refused by ``bind``.
        for value, gradient, span, reach in pairs:
            first, second = given[value].data_ptr(), given[gradient].data_ptr()
            if first < second + reach and second < first + span:
                return None
        return place, values.copy(), (given, places, layouts), same

    def find_flat(self, given: Sequence[Any], form: list[int]) -> Bound | None:
        """Bind tensors like those of the call before, of which no gradient overlaps its value.

        Parameters
        ----------
        given : sequence of torch.Tensor
            The tensors in the order of the parameters, gradients behind their values.
        form : list of int
            For each parameter 0 for a tensor, else how many tensors a tuple would hold.
        """
        if self._last is None:
            return None
        (place, values, (_, places, layouts), same), known, _ = self._last
        if same is None or form != known or not same(*given) or place.device.closed:
            return None
        return place, values.copy(), (tuple(given), places, layouts), same

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
        form = _flat(self._take(named))[1]
        key = (place, layouts, tuple(form), *[tensor.requires_grad for tensor in given])
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            bound = place, values.copy(), ((), places, layouts), same_as(given)
            known = self._known[key] = bound, form, _pairs(form, layouts)
        self._last = known
        return place, values, (given, places, layouts), known[0][3]


def _flat(values: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int]]:
    """Return the tensors of arguments in order, and how many each tuple held: 0 is no tuple, -1 an empty one."""
    found: list[Any] = []
    form = []
    for value in values:
        if isinstance(value, tuple):
            if len(value) == 2 and value[1] is None:
                value = value[:1]
            found += value
            form.append(len(value) or -1)
        else:
            found.append(value)
            form.append(0)
    return tuple(found), form


def _pairs(form: list[int], layouts: tuple[Any, ...]) -> list[Pair]:
    """Return the pairs of a value and a gradient among tensors of these layouts."""
    found, at = [], 0
    for count in form:
        if count == 2:
            found.append((at, at + 1, _span(*layouts[at]), _span(*layouts[at + 1])))
        at += count or 1
    return found


def _span(dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return how many bytes lie from a tensor's first element to the end of its last."""
    if 0 in shape:
        return 0
    width: int = dtype.itemsize
    return (sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1) * width


def unchanged(tensors: Tensors, same: Same) -> bool:
    """Tell whether the tensors of a call have the dtypes, shapes and strides that they had then."""
    given, _, layouts = tensors
    if same is not None and same(*given):
        return True
    return all((t.dtype, t.shape, t.stride()) == layout for t, layout in zip(given, layouts, strict=True))

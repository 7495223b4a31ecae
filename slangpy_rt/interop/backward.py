"""The backward pass of a Slang function on PyTorch's tensors.

Tensors are used in place if the device works in their memory; for other devices they are copied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from slangpy_rt.arrays.carried import carrying, carrying_layout
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.tensor import Tensor
from slangpy_rt.core.dtypes import BFLOAT16, scalar_type
from slangpy_rt.interop.placement import as_tensor, check_places
from slangpy_rt.interop.torch_memory import current_stream, lies_on, maker, tensor_of
from slangpy_rt.runtime.foreign_stream import foreign_stream

if TYPE_CHECKING:
    from slangpy_rt.arrays.layout import Layout
    from slangpy_rt.calls.callee import Callee
    from slangpy_rt.core.types import FunctionSig
    from slangpy_rt.runtime.stream import Stream


class Backward:
    """The derivative of a call, prepared for tensors of the layouts that it was made with.

    Gradients go to new memory: they are written where each of its elements gets one value, and else added to zeros.

    Parameters
    ----------
    callee : Callee
        The function, with values for its uniforms.
    sig : FunctionSig
        The declaration that is called.
    args, named
        The call's arguments.
    grads : tuple of torch.Tensor
        The gradients of its outputs: the result, if there is one, and ``out`` parameters.
    wanted, outs : sequence of int
        Indices of the arguments, in their order, that get gradients, and of those for ``out`` parameters.

    Attributes
    ----------
    direct : callable or None
        Takes the call's values and the outputs' gradients, and returns a gradient, or None, for each value; None if
        the kernel takes more than addresses of tensors. It runs on the stream that PyTorch works on.
    """

    def __init__(
        self,
        callee: Callee,
        sig: FunctionSig,
        args: tuple[Any, ...],
        named: dict[str, Any],
        grads: tuple[torch.Tensor, ...],
        wanted: Sequence[int],
        outs: Sequence[int] = (),
    ) -> None:
        device = self._device = callee.function.device
        values = (*args, *named.values())
        self._wanted = tuple(wanted)
        check_places(sig.name, (*grads, *values))
        # The index of the argument that each output's gradient belongs to, -1 for the result, None for integers.
        places = (*((-1,) if sig.returns.kind != "void" else ()), *outs)
        self._seeds = tuple(p if g.is_floating_point() else None for p, g in zip(places, grads, strict=True))
        self._tensors = [k for k, v in enumerate(values) if isinstance(v, torch.Tensor) and k not in outs]
        self._in_place = all(lies_on(device, t) for t in (*grads, *(values[k] for k in self._tensors)))
        # The scalars of a vector have to be contiguous, and copies have no gaps.
        written = (sig.returns, *[p.type for p in sig.params if p.direction == "out"])
        self._dense = not self._in_place or any(t.kind not in ("scalar", "void") for t in written)
        self._on_gpu = grads[0].is_cuda
        self._stream = current_stream(grads[0].device.index) if self._on_gpu and self._in_place else None
        # Layouts of values, of their new gradients and of the outputs' gradients: the same for every run.
        self._layouts: dict[int, Layout] = {}
        self._gradients: dict[int, Layout] = {}
        self._makers: dict[int, Callable[[], torch.Tensor]] = {}
        self._adds: dict[int, bool] = dict.fromkeys(wanted, True)
        seen, result, _, _ = self._arrays(values, grads)
        given = tuple(seen[: len(args)]), dict(zip(named, seen[len(args) :], strict=True))
        self._call = callee.prepared_backward(given[0], result, given[1])
        self._adds = {k: self._call.adds_to_gradients_of(k) for k in wanted}
        self._summed = [n for n, k in enumerate(self._wanted) if self._adds[k]]
        # Uniforms may be host values, which ``_find_sources`` could not tell from addresses.
        sources = self._find_sources(values, grads) if self._in_place and not callee.values else None
        self.direct = None if sources is None else self._directly(sources, len(values))

    def run(
        self,
        stream: Stream | None,
        values: tuple[Any, ...],
        uniforms: tuple[Any, ...],
        grads: tuple[torch.Tensor, ...],
    ) -> list[torch.Tensor]:
        """Compute the gradients of the wanted arguments."""
        device = self._device
        device.check_open()
        if self.direct is not None and stream is None:
            every = self.direct(values, grads)
            return [found for found in every if found is not None]
        seen, result, gradients, _kept = self._arrays(values, grads)
        every = (*seen, *uniforms, *(() if result is None else (result,)))
        if stream is not None:
            if self._stream is None:
                self._call.run_on(stream, every)
            else:
                theirs = foreign_stream(device, self._stream(grads)).stream()
                stream.wait(theirs)
                self._call.run_on(stream, every)
                theirs.wait(stream)
        elif self._stream is None:
            self._call.run(every)
        else:
            self._call.run(every, foreign_stream(device, self._stream(grads)).launch)
            if self._call.sums:
                # The device's own queue adds the sums to the gradients.
                foreign_stream(device, self._stream(grads)).stream().wait(device)
        return [self._brought(g) if isinstance(g, Tensor) else g for g in gradients]

    def _find_sources(self, values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]) -> tuple[int, ...] | None:
        """Find which tensor each address in the argument block belongs to, by packing small numbers as addresses.

        Return an index for each entry, counted through values, gradients of outputs and new gradients; None if the
        block holds anything but addresses.
        """
        many = len(values)
        places = range(1, 1 + many + len(grads) + len(self._wanted))
        seen: list[Any] = [None] * many
        for k in self._tensors:
            seen[k] = Tensor.of(self._layouts[k], self._device.placeholder, places[k])
        if None in [s for k, s in enumerate(seen) if k not in self._seeds]:
            return None
        for n, k in enumerate(self._wanted, many + len(grads)):
            gradient = Tensor.of(self._gradients[k], self._device.placeholder, places[n])
            seen[k] = carrying(self._layouts[k], self._device.placeholder, places[k], None, gradient)
        result: tuple[Tensor, ...] = ()
        for n, place in enumerate(self._seeds, many):
            if place is None:
                continue
            layout = self._layouts[place]
            assert layout.grads is not None and layout.grads.into is not None
            gradient = Tensor.of(layout.grads.into, self._device.placeholder, places[n])
            seed = carrying(layout, self._device.placeholder, places[n], gradient, None)
            if place < 0:
                result = (seed,)
            else:
                seen[place] = seed
        block = self._call.addresses((*seen, *result))
        return None if block is None else tuple(places.index(address) for address in block)

    def _directly(self, sources: tuple[int, ...], count: int) -> Callable[..., tuple[torch.Tensor | None, ...]]:
        """Return ``direct`` for an argument block of addresses of the tensors with these indices."""
        device, call, stream, dense, summed = self._device, self._call, self._stream, self._dense, self._summed
        makers = tuple([self._makers[k] for k in self._wanted])
        # For each value the index of its gradient among the new ones, -1 without one.
        places = tuple([self._wanted.index(k) if k in self._wanted else -1 for k in range(count)])
        whole = self._wanted == tuple(range(count))
        known = device.foreign_streams

        def run(values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor | None, ...]:
            if dense:
                grads = tuple([grad.contiguous() for grad in grads])
            made = [make() for make in makers]
            for n in summed:
                made[n].zero_()
            launch = device.launch
            if stream is not None:
                handle = stream(None)
                launch = (known.get(handle) or foreign_stream(device, handle)).direct
            every = (*values, *grads, *made)
            call.launch_at(launch, [every[k].data_ptr() for k in sources])
            return tuple(made) if whole else tuple([None if n < 0 else made[n] for n in places])

        return run

    def _brought(self, array: Tensor) -> torch.Tensor:
        """Copy a gradient from the device to the memory that the call's tensors are in: the host's or a GPU's."""
        if not self._on_gpu:
            return tensor_of(array.numpy())
        out = maker(self._device, array.shape, array.layout.numpy_dtype, True)()
        from slangpy_rt.interop.bridge import bridge_on

        bridge_on(self._device).fetch(array, out)
        return out

    def _arrays(
        self, values: tuple[Any, ...], grads: tuple[torch.Tensor, ...]
    ) -> tuple[list[Any], Tensor | None, list[Any], Any]:
        """Make Tensors of a call's values; return them, the result's seed, the new gradients, and tensors to keep."""
        if self._dense:
            grads = tuple([grad.contiguous() for grad in grads])
        seen, made = list(values), []
        for k in self._tensors:
            seen[k] = self._seen(k, values[k])
        for k in self._wanted:
            gradient, array = self._gradient(k, values[k])
            made.append(gradient)
            if self._adds[k]:
                gradient.zero_() if gradient is not array else array.clear()
            plain = seen[k]
            seen[k] = carrying(plain.layout, plain.buffer, plain.address, None, array)
        result = None
        for place, grad in zip(self._seeds, grads, strict=True):
            if place is None:
                continue
            plain = self._seen(place, grad)
            assert plain.layout.grads is not None and plain.layout.grads.into is not None
            gradient = Tensor.of(plain.layout.grads.into, plain.buffer, plain.address)
            seed = carrying(plain.layout, plain.buffer, plain.address, gradient, None)
            if place < 0:
                result = seed
            else:
                seen[place] = seed
        return seen, result, made, grads

    def _seen(self, place: int, value: torch.Tensor) -> Tensor:
        """Return a value, or the gradient of an output, as a Tensor whose layout says that it carries gradients."""
        device, layout = self._device, self._layouts.get(place)
        if layout is not None and self._in_place:
            return Tensor.of(layout, device.placeholder, value.data_ptr())
        plain = as_tensor(device, value)
        if layout is None:
            layout = plain.layout
            if place in self._seeds:
                layout = carrying_layout(plain, plain, None)
            elif place in self._wanted:
                # Elements that are read as floats have gradients of floats, which torch rounds.
                element = scalar_type("float") if layout.element is BFLOAT16 else layout.element
                dense = layout_of(device, Tensor, element, layout.shape)
                self._gradients[place] = dense
                layout = carrying_layout(plain, None, Tensor.of(dense, device.placeholder, 0), fresh=True)
            self._layouts[place] = layout
        return Tensor.of(layout, plain.buffer, plain.address)

    def _gradient(self, place: int, value: torch.Tensor) -> tuple[Any, Tensor]:
        """Make memory for a gradient; return it as the caller gets it, and as a Tensor."""
        device, layout = self._device, self._gradients[place]
        if not self._in_place:
            array = Tensor(device, layout.element, layout.shape)
            return array, array
        make = self._makers.get(place)
        if make is None:
            make = self._makers[place] = maker(device, layout.shape, layout.numpy_dtype, self._on_gpu)
        made = make()
        return made, Tensor.of(layout, device.placeholder, made.data_ptr())

"""GradTape: gradients through operators, reductions and calls of functions, as they ran in a ``with`` block.

What ran is kept as a list; ``backward`` goes through it from the end. A result's gradient is memory beside it, as
``with_grads`` makes it, so views need no record: the gradient of a view is the view of the gradient. There are no
gradients of gradients.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.kept import copied
from slangpy_rt.arguments.signature import carries_gradients
from slangpy_rt.arguments.stand_ins import memory_in
from slangpy_rt.arithmetic import selection, sorting
from slangpy_rt.arithmetic.derivatives import derivatives, has_formula, needed
from slangpy_rt.arithmetic.elementwise import as_operand, as_scalars, elementwise
from slangpy_rt.arithmetic.reductions import axes_of, reductions
from slangpy_rt.arithmetic.scans import scans
from slangpy_rt.arithmetic.written_operands import WrittenOperands
from slangpy_rt.arrays.layout import layout_of, new_array
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.recording import Recorder
from slangpy_rt.arrays.tensor import Tensor, gradient_type, has_floats
from slangpy_rt.core.errors import BindError, ShapeError
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.core import DeviceCore


class _Record(NamedTuple):
    """One operation: Tensors that it read and that carry gradients, its results, and what adds to the former's."""

    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    propagate: Callable[[], None]


class GradTape(Recorder):
    """The operations of a block whose operands carry gradients; ``grad_tape()`` makes one.

    Within the block, results of such operations carry gradients too. Operands and results are kept until
    ``backward`` has run or the tape is dropped.
    """

    def __init__(self) -> None:
        self._records: list[_Record] = []
        # The memory of operands and results, by its identity.
        self._memory: dict[int, Any] = {}
        self._watches: dict[DeviceCore, WrittenOperands] = {}

    def __enter__(self) -> GradTape:
        if RECORDER.get() is not None:
            raise BindError("grad_tape: a block of another tape is open here; end it first, or go on with that tape.")
        RECORDER.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        RECORDER.set(None)

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name.startswith("__") or name == "backward"]

    def __repr__(self) -> str:
        return f"<GradTape of {len(self._records)} operations>"

    def backward(self, result: Any, gradient: Any = None) -> None:
        """Add the gradient of a result to the gradients of what it was computed from, and empty the tape.

        Parameters
        ----------
        result : Tensor
            What was computed in the block: numbers, vectors or matrices.
        gradient : Tensor or number, optional
            The gradient of a loss with respect to ``result``, which it broadcasts to; 1 unless given, for a single
            number.

        Raises
        ------
        BindError
            If the tape has not recorded ``result``, which is so after an earlier ``backward`` too, or an operation
            has no derivative.
        ShapeError
            If ``result`` holds several numbers and no gradient was given, or one that does not broadcast.
        """
        where = "GradTape.backward"
        if not isinstance(result, NDBuffer):
            raise BindError(
                f"{where}: result is {in_words(result)}; a Tensor was expected. float() and item() leave the tape."
            )
        seed = _gradient_of(result)
        if seed is None or not any(seed.buffer is _buffer(r) for record in self._records for r in record.results):
            why = (
                "it carries no gradient, so it depends on no Tensor made with with_grads(), or was made outside of "
                "the block"
                if seed is None
                else "the tape is empty, because nothing was recorded or backward was called before"
                if not self._records
                else "it was not computed in the block"
            )
            raise BindError(f"{where}: {result.summary} was not recorded: {why}.")
        _refuse_structs(where, result)
        if gradient is None and prod(result.layout.full_shape) != 1:
            raise ShapeError(
                f"{where}: {result.summary} is not a single number; reduce it, result.sum(), or give its gradient."
            )
        gradient = 1 if gradient is None else as_operand(result.device, where, gradient)
        if gradient is None or _shape_of(seed, gradient) != seed.shape:
            raise ShapeError(
                f"{where}: gradient is {in_words(gradient)}; a number was expected, or an array that broadcasts to "
                f"{result.summary}."
            )
        records, self._records = self._records, []
        self._forget()
        with _paused():
            seed += gradient
            reached = {id(seed.buffer)}
            while records:
                record = records.pop()
                if not reached.isdisjoint(id(_buffer(r)) for r in record.results):
                    record.propagate()
                    reached.update(id(_buffer(x)) for x in record.operands)

    def binary(self, name: str, a: Any, b: Any, out: Any = None) -> Any:
        operations = elementwise(next(x for x in (out, a, b) if isinstance(x, NDBuffer)))
        if out is not None:
            self._check_written(name, out, (b,))
            made = operations.binary(name, _plain(out), _plain(b), _plain(out))
            return made if made is NotImplemented else out
        if not (carries_gradients(a) or carries_gradients(b)):
            return operations.binary(name, a, b)
        operands = [_plain(as_operand(operations.device, name, x)) for x in (a, b)]
        made = operations.binary(name, *operands)
        return made if made is NotImplemented else self._of_elements(name, (a, b), operands, made)

    def unary(self, name: str, a: Any, into: Any = None) -> Any:
        return self._of_elements(name, (a,), [_plain(a)], elementwise(a).unary(name, _plain(a), into))

    def where(self, condition: Any, a: Any, b: Any, out: Any = None) -> Any:
        operations = elementwise(next(x for x in (out, a, b, condition) if isinstance(x, NDBuffer)))
        if out is not None:
            self._check_written("Tensor[mask] = value", out, (a,))
            operations.where(_plain(condition), _plain(a), _plain(out), _plain(out))
            return out
        operands = [as_operand(operations.device, "where", x) for x in (condition, a, b)]
        made = operations.where(*map(_plain, operands))
        return self._of_elements("where", (condition, a, b), list(map(_plain, operands)), made)

    def write(self, value: Any, out: Any, name: str = "copy", converting: bool = True) -> None:
        self._check_written("Tensor[...] = value", out, (value,))
        elementwise(out).write(_plain(value), _plain(out), name, converting)

    def clip(self, array: Any, low: Any, high: Any) -> Any:
        with _paused():
            made = _plain(array).clip(_plain(low), _plain(high))
        bounds = [
            sign * float("inf") if x is None else as_operand(array.device, "clip", x)
            for sign, x in ((-1, low), (1, high))
        ]
        return self._of_elements("clip", (array, low, high), [_plain(x) for x in (array, *bounds)], made)

    def reduce(self, name: str, array: Any, axis: Any, keepdims: bool) -> Any:
        with _paused():
            made = reductions(array).reduce(name, _plain(array), axis, keepdims)
        if not self._is_recorded((array,), made):
            return made
        axes = axes_of(name, array, axis)
        shape = tuple([1 if k in axes else n for k, n in enumerate(array.shape)])
        dims = len(array.layout.full_shape) - len(array.shape)
        rules, count = derivatives(array), prod(array.shape[k] for k in axes)

        def propagate() -> None:
            into, gradient = _flat(_gradient_of(array)), _flat(_gradient_of(made).view(shape))
            if name == "sum":
                rules.add("copy", 0, into, gradient, {})
            elif name == "mean":
                rules.add("mean", 0, into, gradient, {"y": count})
            else:
                x, y = as_scalars(_plain(array), dims), as_scalars(_plain(made).view(shape), dims)
                equal = (x == y).sum(axes, keepdims=True).astype("float")
                rules.add("extreme", 0, into, gradient, {"x": x, "y": y, "z": equal})

        return self._recorded((array,), made := _carrying(made), propagate)

    def selected(self, array: Any, mask: Any) -> Any:
        if not carries_gradients(array):
            return selection.selected(array, mask)
        _refuse_structs("t[mask]", array)
        if not isinstance(mask, NDBuffer):
            mask = Tensor.from_numpy(array.device, mask)
        places, lead = selection.places_in(array, mask), len(mask.shape)
        made = _carrying(selection.taken(_plain(array), places, lead))

        def propagate() -> None:
            found = selection.put_back(_gradient_of(made), places, array.shape, lead)
            derivatives(array).accumulate(_flat(_gradient_of(array)), _flat(found))

        return self._recorded((array,), made, propagate)

    def copy(self, array: Any, device: Any) -> Any:
        with _paused():
            made = _plain(array).copy() if device is array.device else _plain(array).to(device)
        if not self._is_recorded((array,), made):
            return made
        _refuse_structs("copy", array)
        made = _carrying(made)

        def propagate() -> None:
            found = _gradient_of(made).to(array.device)
            derivatives(array).accumulate(_flat(_gradient_of(array)), _flat(found))

        return self._recorded((array,), made, propagate)

    def cumsum(self, array: Any, axis: Any) -> Any:
        with _paused():
            made = scans(array).cumsum(_plain(array), axis)
        if not self._is_recorded((array,), made):
            return made
        made = _carrying(made)
        place = 0 if axis is None else axis % len(array.shape)

        def propagate() -> None:
            back = (slice(None),) * place + (slice(None, None, -1),)
            found = scans(array).cumsum(_gradient_of(made)[back], place)[back]
            derivatives(array).accumulate(_flat(_gradient_of(array)), _flat(found.reshape(array.shape)))

        return self._recorded((array,), made, propagate)

    def sort(self, array: Any, axis: Any) -> Any:
        with _paused():
            if not carries_gradients(array):
                return sorting.sort(_plain(array), axis)
            order = sorting.argsort(_plain(array), axis)
            made = _carrying(sorting.along(_plain(array), order, axis))

        def propagate() -> None:
            found = sorting.along(_gradient_of(made), sorting.argsort(order, axis), axis)
            derivatives(array).accumulate(_gradient_of(array), found)

        return self._recorded((array,), made, propagate)

    def call(
        self,
        function: Any,
        args: tuple[Any, ...],
        named: dict[str, Any],
        run: Callable[[], Any],
        also: tuple[Any, ...] = (),
    ) -> Any:
        with _paused():
            found = run()
        parts = found if isinstance(found, tuple) else (found,)
        made = tuple([_carrying(r) if has_floats(r.layout.element) else r for r in parts])
        args, named = tuple(map(copied, args)), {name: copied(value) for name, value in named.items()}

        def propagate() -> None:
            seeds = tuple([r if (g := _gradient_of(r)) is None else r.detach().with_grads(grad_in=g) for r in made])
            function.bwds(*args, _result=seeds if isinstance(found, tuple) else seeds[0], **named)

        read = tuple(memory_in((*args, *named.values(), *also)))
        operands = tuple([array for array in read if isinstance(array, NDBuffer)])
        self._record(operands, tuple([r for r in made if _gradient_of(r) is not None]), propagate, read)
        return made if isinstance(found, tuple) else made[0]

    def note(self, operands: tuple[Any, ...], results: tuple[Any, ...], propagate: Callable[[], None]) -> None:
        self._records.append(_Record(operands, results, propagate))

    def _of_elements(self, name: str, given: tuple[Any, ...], operands: list[Any], made: Any) -> Any:
        """Return the result of an operation of each element, recorded if an operand carries a gradient.

        Parameters
        ----------
        given, operands : sequence
            The operands, and the same ones as arrays without gradients or as numbers.
        """
        if not self._is_recorded(given, made):
            return made
        carrying = {k: x for k, x in enumerate(given) if carries_gradients(x)}
        rules, dims = derivatives(made), len(made.layout.full_shape) - len(made.shape)
        made = _carrying(made)
        if name == "floordiv" or (len(given) == 2 and not has_formula(name)):

            def refuse() -> None:
                raise BindError(f"{name}: the operation has no gradient; use x.detach() where none is wanted.")

            return self._recorded(tuple(carrying.values()), made, refuse)
        device = made.device
        values = {
            k: Tensor.from_numpy(device, operands[k]) if isinstance(operands[k], np.ndarray) else operands[k]
            for k in needed(name, tuple(carrying))
        }

        def propagate() -> None:
            for k, x in carrying.items():
                own = {"xyz"[n]: as_scalars(values[n], dims) for n in needed(name, (k,))}
                rules.add(name, k, as_scalars(_gradient_of(x), dims), _flat(_gradient_of(made)), own)

        arrays = [x for x in values.values() if isinstance(x, NDBuffer)]
        self._record((*carrying.values(), *arrays), (made,), propagate)
        return made

    def _is_recorded(self, operands: tuple[Any, ...], made: Any) -> bool:
        return has_floats(made.layout.element) and any(map(carries_gradients, operands))

    def _recorded(self, operands: tuple[Any, ...], made: Any, propagate: Callable[[], None]) -> Any:
        self._record(operands, (made,), propagate)
        return made

    def _record(
        self,
        operands: tuple[Any, ...],
        results: tuple[Any, ...],
        propagate: Callable[[], None],
        read: tuple[Any, ...] = (),
    ) -> None:
        for array in (*(read or operands), *results):
            self._memory[id(array.buffer)] = array.buffer
            device = array.device
            if device not in self._watches:
                watch = self._watches[device] = WrittenOperands(self._memory)
                device.observe(watch)
                # A tape that is dropped without ``backward`` leaves the device as it was.
                weakref.finalize(self, device.unobserve, watch)
        self._records.append(_Record(operands, results, propagate))

    def _forget(self) -> None:
        """Let memory of operands be written to again."""
        self._memory.clear()
        watches, self._watches = self._watches, {}
        for device, watch in watches.items():
            device.unobserve(watch)

    def _check_written(self, what: str, out: Any, values: tuple[Any, ...]) -> None:
        """Refuse to write to an array in place where gradients would be lost."""
        if id(out.buffer) in self._memory:
            raise BindError(
                f"{what}: {out.summary} is an operand or a result on a GradTape, whose backward needs its values; "
                "make a new Tensor, x = x + y, or write after backward."
            )
        if any(map(carries_gradients, values)):
            raise BindError(
                f"{what}: a value carries a gradient, which a GradTape does not follow into {out.summary}; make a "
                "new Tensor, x = x + y or x.where(mask, y), or write value.detach()."
            )


def grad_tape() -> GradTape:
    """Return a tape that records, in a ``with`` block, what is computed of Tensors that carry gradients.

    Operators and methods of Tensors, ``matmul``, ``cumsum``, ``sort`` and calls of ``[Differentiable]`` functions are
    recorded, on the thread that runs the block. ``tape.backward(loss)`` then adds to the gradients of the operands.

    Examples
    --------
    ``with spy.grad_tape() as tape: loss = ((x * w - y) ** 2).mean()``, then ``tape.backward(loss)`` and ``w.grad``.
    """
    return GradTape()


@contextmanager
def _paused() -> Iterator[None]:
    """Record nothing meanwhile."""
    recorder = RECORDER.get()
    RECORDER.set(None)
    try:
        yield
    finally:
        RECORDER.set(recorder)


def _plain(value: Any) -> Any:
    """Return an operand without gradients."""
    return value.detach() if isinstance(value, Tensor) and value.layout.grads is not None else value


def _carrying(made: Tensor) -> Tensor:
    """Return a result with a gradient of zeros beside it."""
    zeros = new_array(layout_of(made.device, Tensor, gradient_type(made.dtype), made.shape, own=True))
    zeros.clear()
    return made._carrying(None, zeros)


def _gradient_of(array: Any) -> Any:
    """Return the gradient of an array that is added to; None if there is none."""
    return None if array.layout.grads is None else array._grads[1]


def _buffer(array: Any) -> Any:
    """Return the memory of an array's gradient."""
    gradient = _gradient_of(array)
    return None if gradient is None else gradient.buffer


def _shape_of(*operands: Any) -> Any:
    """Return the shape that operands broadcast to; None if they do not."""
    try:
        return np.broadcast_shapes(*[getattr(x, "shape", ()) for x in operands])
    except ValueError:
        return None


def _flat(array: Any) -> Any:
    """Return an array as scalars."""
    return array.flatten_dtype() if array.layout.element.shape else array


def _refuse_structs(where: str, array: Any) -> None:
    if array.layout.numpy_dtype.names is not None:
        raise BindError(
            f"{where}: {array.summary} holds structs, whose gradients a GradTape does not copy; use a field, such as "
            "t['x'], or t.detach()."
        )

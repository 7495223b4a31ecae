"""TapedCall: a call of a function on arrays that carry gradients, which an open block of ``grad_tape`` records.

Signatures tell these calls from others, so that calls of arrays without gradients never look for a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.differentials import dropping_struct
from slangpy_rt.arguments.kept import copied
from slangpy_rt.arguments.live_places import replaced, writes_whole
from slangpy_rt.arguments.signature import carries_gradients
from slangpy_rt.arguments.vectors import Matrix, Vector
from slangpy_rt.arguments.wrapped import optional_item, tuple_items
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.operators import RECORDER
from slangpy_rt.arrays.recording import Recorder
from slangpy_rt.arrays.tensor import Tensor, has_floats
from slangpy_rt.calls.callee import Callee
from slangpy_rt.calls.new_result import kind_named
from slangpy_rt.calls.value_and_grad import without_gradients
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words

if TYPE_CHECKING:
    from slangpy_rt.core.types import FunctionSig
    from slangpy_rt.runtime.stream import Stream


class _Facts(NamedTuple):
    """The declaration that is called, and the values that carry gradients where it does not differentiate them.

    Attributes
    ----------
    dead : dict or None
        By a value's index how it is bound, and whether its parameter is not ``no_diff``; None where a function has no
        derivative and needs none, because it returns integers.
    """

    sig: FunctionSig
    dead: dict[int, tuple[Bound, bool]] | None


class TapedCall:
    """A call whose arguments carry gradients; it takes a PreparedCall's place, and has all that one has.

    Parameters
    ----------
    plain : PreparedCall
        The call as it is outside of a block.
    function : Function
        The function without values for uniforms, and on the device's own queue.
    positional, names
        How many values come by position, and the names of those that come by name; uniforms and a result follow.
    """

    guards = False

    def __init__(self, plain: Any, function: Any, positional: int, names: tuple[str, ...]) -> None:
        self._plain = plain
        self._function = function
        self._positional = positional
        self._names = names
        self._facts: _Facts | None = None
        self._is_checked = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def run(self, values: tuple[Any, ...], launch: Any = None) -> Any:
        """Run the call on arguments of the signature it was made for."""
        recorder = RECORDER.get()
        return self._plain.run(values, launch) if recorder is None else self._recorded(recorder, None, values)

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """Run the call on a stream; its gradients are computed there too."""
        recorder = RECORDER.get()
        return self._plain.run_on(stream, values) if recorder is None else self._recorded(recorder, stream, values)

    def freeze(self, values: tuple[Any, ...], stream: Stream | None) -> Any:
        """Return a function that repeats the call.

        Raises
        ------
        BindError
            In a block: what is repeated would not be recorded.
        """
        self._refuse_in_block("bind")
        return self._plain.freeze(values, stream)

    def recorded(self, values: tuple[Any, ...]) -> Any:
        """Return the call as a command list keeps it.

        Raises
        ------
        BindError
            In a block: a list has no gradients.
        """
        self._refuse_in_block("a command list")
        return self._plain.recorded(values)

    def _refuse_in_block(self, what: str) -> None:
        if RECORDER.get() is not None:
            raise BindError(
                f"{self._function.name}: an argument carries a gradient, and a GradTape does not record {what}; call "
                "the function, or pass tensor.detach()."
            )

    def _recorded(self, recorder: Recorder, stream: Stream | None, values: tuple[Any, ...]) -> Any:
        count = self._positional + len(self._names)
        uniforms = Callee(self._function).uniforms
        given, result = values[:count], values[count + uniforms :]
        function = self._function
        if uniforms or stream is not None:
            function = function._with(tuple(map(copied, values[count : count + uniforms])), stream)
        facts = self._facts
        if facts is None:
            facts = self._facts = self._checked(function, given)
        if facts.dead:
            scope = Callee(function).scope
            given = tuple([
                replaced("", scope, *facts.dead[k], value=value, visit=_cut)[0] if k in facts.dead else value
                for k, value in enumerate(given)
            ])  # fmt: skip
        if facts.dead is None or not any(map(carries_gradients, given)):
            return self._plain.run(values) if stream is None else self._plain.run_on(stream, values)
        self._check_result(facts.sig, function, result[0] if result else None)
        args = given[: self._positional]
        named = dict(zip(self._names, given[self._positional :], strict=True))

        def run() -> Any:
            # A result without call dimensions would be a number, which carries no gradient.
            made = function(*args, _result="tensor", **named)
            if not self._is_checked:
                # What the derivative refuses is said here, and not by ``backward``.
                seeds = tuple([_seeded(r) for r in (made if isinstance(made, tuple) else (made,))])
                Callee(function).prepared_backward(args, seeds if isinstance(made, tuple) else seeds[0], named)
                self._is_checked = True
            return made

        return recorder.call(function, args, named, run, Callee(function).values)

    def _checked(self, function: Any, values: tuple[Any, ...]) -> _Facts:
        """Return the declaration that is called; refuse what a tape cannot record of it."""
        callee = Callee(function)
        found = callee.chosen(values, self._names)
        sig, advice = found.sig, "pass tensor.detach() where no gradient is wanted"
        item = optional_item(callee.scope, sig.returns)
        made = tuple_items(callee.scope, sig.returns) if item is None else (item,)
        outputs = (sig.returns, *made, *[p.type for p in sig.params if p.direction != "in"])
        if sig.returns.kind != "void" and not any(map(has_floats, outputs)):
            return _Facts(sig, None)
        if item is not None:
            raise BindError(
                f"{sig}: a GradTape records no results of type '{sig.returns.name}'; return a Tuple of a value and a "
                f"bool, or {advice}."
            )
        callee.check_differentiable(sig, "an argument that carries a gradient on a GradTape")
        written = [
            p.name for p, b in zip(sig.params, found.bound, strict=False) if p.direction != "in" or writes_whole(b)
        ]
        if written or sig.returns.kind == "void":
            what = f"writes to {', '.join(written)}" if written else "returns nothing"
            raise BindError(
                f"{sig}: it {what}, and a GradTape records results alone; return the result, or {advice}."
            )
        dead: dict[int, tuple[Bound, bool]] = {}
        params = {p.name: p for p in sig.params}
        for bound, k in zip(found.bound, found.order, strict=False):
            cut: list[Any] = []

            def note(where: str, bound: Bound, value: Any, live: bool, cut: list[Any] = cut) -> tuple[Any, Any]:
                if not live and isinstance(value, NDBuffer) and carries_gradients(value):
                    cut.append(value)
                if live and isinstance(value, np.ndarray) and not isinstance(value, (Vector, Matrix)):
                    raise BindError(
                        f"{sig}: {in_words(value)} is an argument beside Tensors that carry gradients; a GradTape "
                        "keeps arrays on the device alone: Tensor.from_numpy(device, x)."
                    )
                return value, None

            live = not params[bound.name].no_diff
            dropping = dropping_struct(callee.scope, sig, params[bound.name])
            replaced(f"{sig}: argument '{bound.name}'", callee.scope, bound, live, values[k], note, dropping)
            if cut:
                dead[k] = bound, live
        return _Facts(sig, dead)

    def _check_result(self, sig: FunctionSig, function: Any, result: Any) -> None:
        kinds = [k for k in (result, Callee(function).options.returns) if k is not None]
        if any(kind_named(kind) != "tensor" for kind in kinds):
            raise BindError(
                f"{sig}: a GradTape records new Tensors, and the result goes to {in_words(kinds[0])}; leave _result "
                "out, or pass tensor.detach()."
            )


def _seeded(result: Any) -> Any:
    return result.with_grads(grad_in=Tensor.empty_like(result)) if has_floats(result.layout.element) else result


def _cut(where: str, bound: Bound, value: Any, live: bool) -> tuple[Any, Any]:
    """Return a place without its gradient where Slang does not differentiate it."""
    return (value if live or not isinstance(value, NDBuffer) else without_gradients(value)), None

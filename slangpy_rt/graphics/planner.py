"""Planner: a runner that also notes the steps, so that a Plan can run them again on other arguments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from slangpy_rt.arguments.device_packers import ArrayPacker
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.calls.callee import Callee
from slangpy_rt.graphics.plan import Direct, Group, New, Packed, Patch, Plan, Step
from slangpy_rt.graphics.runner import Runner


class Planner(Runner):
    """Runs the steps of a picture, and notes them.

    What is passed by name to a step is an argument of the caller, other numbers are constants, and each other array
    lies in memory that was given, that ``room`` made, or that is the result of a step.

    Parameters
    ----------
    stream : Stream or None
        The stream to run on.
    device : Device
        Where the steps run.
    given : sequence of NDBuffer
        The arrays that steps use besides; no two of them share memory.
    """

    def __init__(self, stream: Any, device: Any, given: Sequence[Any]) -> None:
        super().__init__(stream=stream)
        self._device = device
        # Of each memory the buffer, its address, and for given arrays the first address and that after the last.
        self._memory: list[tuple[Any, int, tuple[int, int] | None]] = [
            (a.buffer, a.address, (a.address + a.layout.span[0], a.address + a.layout.span[1])) for a in given
        ]
        spans = sorted(span for _, _, span in self._memory if span is not None)
        self._is_known = all(a[1] <= b[0] for a, b in pairwise(spans))
        self._steps: list[Step] = []
        self._values: list[Any] = []
        self._names: dict[str, int] = {}
        self._arrays: dict[Any, int] = {}

    def plan(self) -> Plan | None:
        """Return the Plan of the steps so far; None if they do not all run again with other arguments."""
        if not self._is_known:
            return None
        return Plan(self._device, with_needed(self._steps), self._values, self._names)

    def memory(self, device: Any, nbytes: int) -> Any:
        """Return a new buffer."""
        buffer = super().memory(device, nbytes)
        self._memory.append((buffer, buffer.address, None))
        self._steps.append(Step(max(nbytes, 1)))
        return buffer

    def gradient_of(self, array: Any) -> Any:
        """Return an array that shares memory with another, with a gradient of zeros, which no plan makes."""
        self._is_known = False
        return super().gradient_of(array)

    def call(self, function: Any, /, *args: Any, _result: Any = None, **named: Any) -> Any:
        """Call a function, and return its result."""
        found = Callee(function).repeatable(args, _result, named) if self._is_known else None
        if found is None:
            self._is_known = False
            return super().call(function, *args, _result=_result, **named)
        call, values = found
        news: list[New] = []
        groups: list[Group] = []
        own, result = values[: len(args)], () if _result is None else values[-1:]
        uniforms = values[len(args) + len(named) : len(values) - len(result)]
        places = [self._grouped(value, news, groups) for value in own]
        places += [self._named(name) for name in named]
        places += [self._constant(value) for value in uniforms]
        places += [self._place(value, news) for value in result]
        made = call.run(values) if self.stream is None else call.run_on(self.stream, values)
        makes = isinstance(made, NDBuffer) and not (result and made is result[0])
        if makes:
            self._memory.append((made.buffer, made.address, None))
        dicts = {group.place for group in groups}
        direct = self._direct(call, values, places, dicts)
        self._steps.append(Step(0, call, tuple(news), tuple(groups), tuple(places), makes, direct))
        return made

    def _direct(self, call: Any, values: Sequence[Any], places: Sequence[int], dicts: set[int]) -> Direct | None:
        """Return a call as a Direct; None if it does more than to launch."""
        packing = call.packing() if self._is_known else None
        if packing is None:
            return None
        launch, packers = packing
        block: list[Any] = []
        buffers: list[Any] = []
        patches: list[Patch] = []
        packed: list[Packed] = []
        where = {place: key[:2] for key, place in self._arrays.items()}
        others = dicts.union(self._names.values())
        for k, packer in packers:
            value, place, first, low = values[k], places[k], len(block), len(buffers)
            packer.pack(value, block, buffers)
            if type(packer) is ArrayPacker and place in where:
                patches.append(Patch(first, low, *where[place]))
                buffers[low] = None
            elif place in others or len(buffers) > low or isinstance(value, NDBuffer):
                packed.append(Packed(packer, place, (first, len(block)), (low, len(buffers))))
                block[first:] = [None] * (len(block) - first)
                buffers[low:] = [None] * (len(buffers) - low)
        return Direct(launch, block, buffers, tuple(patches), tuple(packed))

    def _named(self, name: str) -> int:
        if name not in self._names:
            self._names[name] = self._constant(None)
        return self._names[name]

    def _constant(self, value: Any) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def _grouped(self, value: Any, news: list[New], groups: list[Group]) -> int:
        """Return the place of a value, which may be a dict whose parts are arrays."""
        if not isinstance(value, dict):
            return self._place(value, news)
        items = tuple([(name, self._place(part, news)) for name, part in value.items()])
        place = self._constant(None)
        groups.append(Group(place, items))
        return place

    def _place(self, value: Any, news: list[New]) -> int:
        """Return the place of a value among all values, and note how it is made if it is an array."""
        if not isinstance(value, NDBuffer):
            # Arrays deeper in a value are none that a plan could replace.
            parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
            if any(isinstance(part, (NDBuffer, dict, list, tuple)) for part in parts):
                self._is_known = False
            return self._constant(value)
        grads = None
        if value.layout.grads is not None:
            first, last = (None if g is None else self._place(g, news) for g in value._grads)
            grads = first, last
        number = self._number(value)
        if number is None:
            self._is_known = False
            return self._constant(value)
        offset = value.address - self._memory[number][1]
        key = number, offset, value.layout, grads
        if key not in self._arrays:
            self._arrays[key] = self._constant(None)
            news.append(New(self._arrays[key], *key))
        return self._arrays[key]

    def _number(self, array: NDBuffer) -> int | None:
        """Return the number of the memory that an array lies in."""
        low, high = (array.address + end for end in array.layout.span)
        for k, (buffer, _, span) in enumerate(self._memory):
            if array.buffer is buffer and (span is None or (span[0] <= low and high <= span[1])):
                return k
        return None


def with_needed(steps: Sequence[Step]) -> list[Step]:
    """Return the steps, each with those of its arrays that are needed where direct calls are packed."""
    needed: set[int] = set()
    for step in steps:
        if step.direct is None:
            needed.update(step.places)
        else:
            needed.update(part.place for part in step.direct.packed)
        for group in step.groups:
            needed.update(place for _, place in group.items)
    # Gradients come before the arrays that carry them.
    for step in reversed(steps):
        for new in reversed(step.news):
            if new.place in needed and new.grads is not None:
                needed.update(place for place in new.grads if place is not None)
    return [step._replace(needed=tuple([new for new in step.news if new.place in needed])) for step in steps]

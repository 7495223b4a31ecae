"""PreparedCall: the path of a repeated call. It packs addresses and values, and launches.

It does no reflection, no string work and no import; ``build`` has decided everything that follows from layouts. It
has chosen the class too: this one takes all kinds of arguments, classes derived from it take some kinds faster.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from math import inf
from typing import TYPE_CHECKING, Any

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.conflicts import Conflicts, Place, clash_in_place, clash_of, clashing
from slangpy_rt.arguments.kept import kept
from slangpy_rt.arguments.packer import Packer, Region
from slangpy_rt.backends.base import Buffer, Dispatch, Kernel, SharedBuffer
from slangpy_rt.calls.result import Result
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.diagnostics import Launcher
from slangpy_rt.runtime.foreign_stream import foreign_stream

if TYPE_CHECKING:
    from slangpy_rt_codegen import CallSpec

    from slangpy_rt.calls.gradient_copies import GradientCopies
    from slangpy_rt.runtime.core import DeviceCore
    from slangpy_rt.runtime.foreign_stream import ForeignStream
    from slangpy_rt.runtime.stream import Stream

_MAX_FLOAT = 3.4028234663852886e38  # of 32 bits


class PreparedCall:
    """A kernel with everything that follows from the arguments' layouts.

    Attributes
    ----------
    spec : CallSpec
        The kernel's description.
    text : str
        Its Slang text.
    bound : tuple of Bound
        The arguments, then the result if there is one.
    shape : tuple of int
        The call's shape before dimensions were merged.
    launcher : Launcher or None
        Makes the launches, if the kernel may print or checks its accesses.
    guards : bool
        Whether it has a method ``guarded``, which returns a runner for further calls with similar values.
    kernel, groups, prefix : Kernel or None, tuple of int, bytes
        What is launched, over how many thread groups, and the constant beginning of the argument block; no kernel for
        a call without elements.
    packers, order : tuple of Packer, tuple of int
        For each argument of the kernel its packer, and the index of its value; the packer of a result is the last.
    pack : callable
        Packs the entries that the packers give into the rest of the argument block.
    make, into : callable or None, bool
        Makes a new result; whether the last value is the array to write the result to.
    find_stream, where : callable or None, int
        Finds another library's stream in a value, and the index of that value; -1 is the result.
    conflicts : Conflicts or None
        Finds arrays that share memory with one that the call writes, where that can matter.
    copies : GradientCopies or None
        Memory that the kernel adds to in place of gradients; makes the launches that add it to these.
    """

    __slots__ = (
        "_alloc",
        "_brought",
        "_finishes",
        "_in_place",
        "_known_alone",
        "_others",
        "_result",
        "_straight",
        "_unwrap",
        "_waits",
        "bound",
        "conflicts",
        "copies",
        "device",
        "find_stream",
        "groups",
        "guards",
        "into",
        "kernel",
        "launcher",
        "make",
        "order",
        "pack",
        "packers",
        "prefix",
        "shape",
        "spec",
        "sums",
        "text",
        "where",
    )  # fmt: skip

    def __init__(
        self,
        device: DeviceCore,
        spec: CallSpec,
        text: str,
        bound: tuple[Bound, ...],
        packers: tuple[Packer, ...],
        shape: Shape,
        kernel: Kernel | None,
        groups: tuple[int, int, int],
        prefix: bytes,
        pack: Callable[..., bytes],
        order: tuple[int, ...],
        result: Result,
        launcher: Launcher | None,
        conflicts: Conflicts | None = None,
        in_place: tuple[Place, ...] = (),
        copies: GradientCopies | None = None,
    ) -> None:
        self.spec = spec
        self.text = text
        self.bound = bound
        self.shape = shape
        self.device = device
        self.kernel: Any = kernel
        self.groups = groups
        self.prefix = prefix
        self.pack = pack
        self.order = order
        self.packers = packers
        # Whether values are in the order of their packers, a new result excepted.
        self._straight = is_straight(order, result)
        self.conflicts = conflicts
        self.copies = copies
        # Host memory that the kernel writes in place, if packers write other host memory after the kernel.
        self._in_place = in_place
        # Functions that find another library's stream in a value, and the index of that value; -1 is the result.
        streams: dict[Callable[[Any], int], int] = {}
        for k, packer in zip((*order, -1), self.packers, strict=False):
            for find in packer.streams:
                streams.setdefault(find, k)
        found = [(k, find) for find, k in streams.items()]
        self.where = found[0][0] if found else 0
        self.find_stream = found[0][1] if found else None
        self._others = tuple(found[1:])
        ends = list(accumulate(packer.buffers for packer in self.packers))
        self._finishes = tuple(
            (k, packer, ends[k] - packer.buffers, ends[k]) for k, packer in enumerate(self.packers) if packer.returns
        )
        # ``bring_back`` reads memory shared with the host, which needs a wait for the kernel.
        self._waits = any(packer.waits for packer in packers)
        # Packers that write to host memory after the kernel, except that of a new result.
        given = self.packers if result.into or result.bound is None else self.packers[:-1]
        self._brought = tuple((k, packer) for k, packer in zip((*order, -1), given, strict=False) if packer.brings)
        self._known_alone = False
        # Whether the device's own queue adds sums to gradients after the kernel.
        self.sums = any(leaf.packer.sums for b in bound for leaf in b.leaves)
        self.into = result.into
        # In the object, not in its class, where Python 3.11 looks it up 20 ns more slowly.
        self.guards = False
        self.launcher = launcher
        self._alloc = device.backend.alloc
        self._result = result.layout
        self.make = result.make
        self._unwrap = result.unwrap

    def run(self, values: tuple[Any, ...], launch: Callable[..., None] | None = None) -> Any:
        """Run it on arguments of the signature it was prepared for, on a device that is open.

        Parameters
        ----------
        values : tuple
            Positional values, keyword values, and then ``_result`` if one was given.
        launch : callable, optional
            A function like ``Queue.launch``, of the queue to run on. Otherwise the call runs on the device's own
            queue, or, if an argument is an array of another library, on the stream that this library works on.
        """
        if launch is None:
            if self.find_stream is not None:
                return self._run_theirs(values)
            # Looked up at each call: observers and streams replace the device's launch.
            launch = self.device.launch
        out = values[-1] if self.into else self.make() if self.make is not None else None
        if self.kernel is not None:
            brought = self._brought_regions(values) if self._brought else ()
            if not self._straight:
                values = (*[values[k] for k in self.order], out)
            elif self.make is not None:
                values = (*values, out)
            block: list[Any] = []
            buffers: list[Buffer] = []
            for packer, value in zip(self.packers, values, strict=False):
                packer.pack(value, block, buffers)
            if self._in_place:
                self._check_in_place(brought, block)
            if self.conflicts is not None:
                found = self.conflicts.found(block)
                if found:
                    for dispatch in self.conflicts.copies(found, block, buffers):
                        launch(*dispatch)
            launch = self._launch_of(launch)
            try:
                packed = self.pack(*block)
            except (struct.error, OverflowError) as error:
                raise self._refused(block, error) from None
            launch(self.kernel, self.groups, self.prefix + packed, buffers)
            if self._finishes:
                for buffer in buffers if self._waits else ():
                    if isinstance(buffer, SharedBuffer):
                        self._wait()
                        break
                for k, packer, first, end in self._finishes:
                    packer.bring_back(values[k], buffers[first:end])
        return self._unwrap(out) if self._unwrap is not None else out

    def run_on(self, stream: Stream, values: tuple[Any, ...]) -> Any:
        """Run it as ``run`` does, on a stream."""
        if self.find_stream is None:
            out = self.run(values, stream.launch)
            if self.sums:
                stream.wait(self.device)
            return out
        for theirs in self.foreign_streams(values):
            stream.wait(theirs.stream())
        out = self.run(values, stream.launch)
        if self.sums:
            stream.wait(self.device)
        for theirs in self.foreign_streams(values):
            theirs.stream().wait(stream)
        return out

    def arrays(self, values: tuple[Any, ...]) -> list[Any] | None:
        """Return the device arrays whose addresses are in the block; None if the block holds anything else.

        ``values`` end with the result, given or made.
        """
        return None

    def freeze(self, values: tuple[Any, ...], stream: Stream | None) -> Callable[[], Any]:
        """Return a function that runs this call on these arguments, packed once if no data has to be moved."""
        arrays = self.arrays(values) if self.make is None else None
        places = [a.address for a in arrays or ()]
        out = values[-1] if self.into and self._unwrap is None else None
        if arrays is None or (self.conflicts is not None and self.conflicts.found(places)):
            own = tuple(map(kept, values))

            def run() -> Any:
                self.device.check_open()
                made = self.run(own) if stream is None else self.run_on(stream, own)
                return made if out is None else out

            return run
        device = self.device
        args = self.prefix + self.pack(*places)
        dispatch = Dispatch(self.kernel, self.groups, args, tuple([a.buffer for a in arrays]))
        launches: Any = device if stream is None else stream
        again = device.backend.queue.prepare(dispatch) if stream is None else None

        def replay() -> Any:
            if device.plain and again is not None:
                again()
                return out
            device.check_open()
            launches.launch(*dispatch)
            return out

        return replay

    def recorded(self, values: tuple[Any, ...]) -> tuple[list[Dispatch], Dispatch | None, Any]:
        """Return the dispatches that copy arguments, the call's own (None without elements), and the result.

        Raises
        ------
        BindError
            If an argument has to be moved at each call.
        """
        for b, packer in zip(self.bound, self.packers, strict=True):
            if not packer.lasting:
                name = next((leaf.name for leaf in b.leaves if not leaf.packer.lasting), b.name)
                raise BindError(
                    f"{self.spec.title}: a command list does not take '{name}': nothing would move it when the list "
                    "runs. Use a Tensor or an NDBuffer; bwds has to be called by itself on a deterministic device, "
                    "and where it adds up gradients of half."
                )
        out = values[-1] if self.into else self.make() if self.make is not None else None
        if self.kernel is None:
            return [], None, out
        if not self._straight:
            values = (*[values[k] for k in self.order], out)
        elif self.make is not None:
            values = (*values, out)
        items: list[Any] = []
        buffers: list[Buffer] = []
        for packer, value in zip(self.packers, values, strict=False):
            packer.pack(value, items, buffers)
        found = self.conflicts.found(items) if self.conflicts is not None else []
        copies = self.conflicts.copies(found, items, buffers) if self.conflicts is not None and found else []
        every = self.launcher.with_buffer(buffers) if self.launcher is not None else tuple(buffers)
        every = every if self.copies is None else (*every, self.copies.buffer)
        out = None if self._unwrap is not None else out
        try:
            packed = self.pack(*items)
        except (struct.error, OverflowError) as error:
            raise self._refused(items, error) from None
        return copies, Dispatch(self.kernel, self.groups, self.prefix + packed, every), out

    def behind(self, dispatch: Dispatch | None) -> tuple[Dispatch, ...]:
        """Return the dispatches that have to follow the recorded one."""
        if self.copies is None or dispatch is None:
            return ()
        return self.copies.dispatches(dispatch.args, dispatch.buffers)

    def pending(self, values: tuple[Any, ...]) -> Callable[[], None] | None:
        """Return what a command list has to call once after its first run; None for nothing."""
        return None

    def is_like(self, other: PreparedCall) -> bool:
        """Return whether another call launches the same kernel over arrays of equal layouts, at any addresses."""
        same = self.kernel is other.kernel and self.groups == other.groups and self.prefix == other.prefix
        return self is other or same

    @property
    def returns_host_data(self) -> bool:
        """Whether the result it makes is a number or a NumPy array."""
        return self.make is not None and not self.packers[-1].lasting

    def adds_to_gradients_of(self, place: int) -> bool:
        """Return whether gradients are added to the value at a place; False if each of them is written.

        A gradient that the kernel does not touch counts as added to.
        """
        if self.kernel is None or place not in self.order:
            return True
        leaves = self.bound[self.order.index(place)].places
        return not all(leaf.grad_out is not None and leaf.grad_out.access == "out" for leaf in leaves)

    def written(self, values: tuple[Any, ...]) -> set[int]:
        """Return the indices, among the call's values, of those that it writes or whose gradients it writes."""
        places = {k for k, b in zip(self.order, self.bound, strict=False) if _is_written(b)}
        return places | {len(values) - 1} if self.into else places

    def addresses(self, values: tuple[Any, ...]) -> list[Any] | None:
        """Return the block's entries for these arguments; None if data has to be moved or nothing is launched."""
        if self.kernel is None or self.launcher is not None or self.copies is not None:
            return None
        if not all(packer.lasting for packer in self.packers):
            return None
        block: list[Any] = []
        for k, packer in zip((*self.order, -1), self.packers, strict=False):
            packer.pack(values[k], block, [])
        return block

    def packing(self) -> tuple[Callable[..., None], tuple[tuple[int, Packer], ...]] | None:
        """Return what a caller that packs the values itself needs; None if the call does more than to launch.

        Returns
        -------
        callable
            Takes a function like ``Queue.launch``, the argument block's entries and the buffers, and launches.
        tuple of (int, Packer)
            What packs them, in order: for each packer the index of its value, -1 for the result.
        """
        if self.kernel is None or self.make is not None or self.find_stream is not None:
            return None
        if self._finishes or self._in_place or self._brought or not all(packer.lasting for packer in self.packers):
            return None
        return self._launch_packed, tuple(zip((*self.order, -1), self.packers, strict=False))

    def _launch_packed(self, launch: Callable[..., None], block: list[Any], buffers: list[Buffer]) -> None:
        if self.conflicts is not None:
            found = self.conflicts.found(block)
            if found:
                for dispatch in self.conflicts.copies(found, block, buffers):
                    launch(*dispatch)
        launch = self._launch_of(launch)
        try:
            packed = self.pack(*block)
        except (struct.error, OverflowError) as error:
            raise self._refused(block, error) from None
        launch(self.kernel, self.groups, self.prefix + packed, buffers)

    def _launch_of(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Return the function that launches the kernel and what belongs to it by a function like ``Queue.launch``."""
        if self.copies is not None:
            launch = partial(self.copies.launch, launch)
        return launch if self.launcher is None else partial(self.launcher.launch, launch)

    def launch_at(self, launch: Callable[..., None], block: list[Any]) -> None:
        """Launch the kernel on memory that other libraries keep alive; ``block`` is as ``addresses`` returns it."""
        launch(self.kernel, self.groups, self.prefix + self.pack(*block), ())

    def _run_theirs(self, values: tuple[Any, ...]) -> Any:
        """Run on another library's stream; of several, the first waits for the others, which then wait for it."""
        if not self._others:
            assert self.find_stream is not None
            theirs = foreign_stream(self.device, self.find_stream(values[self.where]))
            out = self.run(values, theirs.launch)
            if self.sums:
                theirs.stream().wait(self.device)
            return out
        first, *others = self.foreign_streams(values)
        for other in others:
            first.stream().wait(other.stream())
        out = self.run(values, first.launch)
        if self.sums:
            first.stream().wait(self.device)
        for other in others:
            other.stream().wait(first.stream())
        return out

    def foreign_streams(self, values: tuple[Any, ...]) -> list[ForeignStream]:
        """Return the streams of other libraries that these arguments are used on."""
        if self.find_stream is None:
            return []
        handles = [self.find_stream(values[self.where]), *[find(values[k]) for k, find in self._others]]
        return [foreign_stream(self.device, handle) for handle in dict.fromkeys(handles)]

    def _wait(self) -> None:
        """Wait until the kernel is done."""
        device = self.device
        if not device.plain:
            device.synchronize()
            return
        device.backend.sync_all()
        if device.diagnostics.pending:
            device.show_printed()

    def _brought_regions(self, values: tuple[Any, ...]) -> list[Region]:
        """Return the host memory that is written after the kernel; refuse regions that overlap."""
        regions = [r for k, packer in self._brought for r in packer.regions(values[k])]
        # Shapes and strides are part of the signature: whether a region overlaps itself is checked once.
        clash = clash_of(regions, not self._known_alone)
        if clash is not None:
            raise clashing(self.spec.title, self._names(len(regions)), regions, clash)
        self._known_alone = True
        if len(regions) < 2 and not self._in_place:
            self._brought = ()
        return regions

    def _check_in_place(self, brought: Sequence[Region], block: Sequence[int]) -> None:
        """Refuse memory that the kernel writes in place and that is written again after it."""
        error = clash_in_place(self.spec.title, self._names(len(brought)), brought, self._in_place, block)
        if error is not None:
            raise error

    def _names(self, count: int) -> list[str]:
        """Return the names of the arguments whose packers bring something back; those without elements do not."""
        leaves = (leaf for b in self.bound for leaf in b.leaves if leaf.packer.brings and 0 not in leaf.shape)
        return [leaf.name for leaf, _ in zip(leaves, range(count), strict=False)]

    def _refused(self, block: list[Any], error: Exception) -> BindError:
        """Return the error for a block that does not pack."""
        return BindError(f"{self.spec.title}: {self._misfit(block) or error}.")

    def _misfit(self, block: list[Any]) -> str:
        """Return words on an argument's number that does not fit its type; empty if there is none."""
        at = 0
        for leaf in (leaf for b in self.bound for leaf in b.leaves):
            entries = leaf.count if leaf.mode == "value" else 1
            if leaf.generator is not None:
                entries = len(leaf.generator.scalars())
            for x in block[at : at + entries] if leaf.mode == "value" else ():
                if leaf.scalar != "double" and _MAX_FLOAT < abs(x) < inf:
                    return f"argument '{leaf.name}' is {in_words(x)}, which does not fit '{leaf.type.name}'"
            at += entries
        return ""


def _is_written(argument: Bound) -> bool:
    gradients = (g for leaf in argument.places for g in leaf.gradients)
    return argument.access in ("out", "inout") or any(g.access in ("out", "inout", "accumulate") for g in gradients)


def is_straight(order: tuple[int, ...], result: Result) -> bool:
    """Return whether the values are in the order of the parameters, followed by a result array if one was given."""
    return order == tuple(range(len(order))) and not result.named

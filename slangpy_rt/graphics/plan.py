"""Plan: the steps of a picture, prepared once for arguments of some signatures, and run again on others of these.

It holds no memory of a picture: each run allocates what its steps need. ``Planner`` makes plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from slangpy_rt.arrays.layout import Layout
from slangpy_rt.arrays.operators import RECORDER


class New(NamedTuple):
    """An array that a step needs first.

    Attributes
    ----------
    place : int
        Its place among all values.
    memory : int
        The number of the memory that it lies in.
    offset : int
        Bytes from there to its first element.
    layout : Layout
        Its layout.
    grads : tuple or None
        The places of the gradients that it carries, each of which may be None.
    """

    place: int
    memory: int
    offset: int
    layout: Layout
    grads: tuple[int | None, int | None] | None


class Group(NamedTuple):
    """A value that is a dict with arrays in it.

    Attributes
    ----------
    place : int
        Its place among all values.
    items : tuple of (str, int)
        The names of its parts, and their places.
    """

    place: int
    items: tuple[tuple[str, int], ...]


class Patch(NamedTuple):
    """The address of an array in an argument block.

    Attributes
    ----------
    entry, buffer : int
        Where it is among the block's entries, and where its buffer is among the buffers.
    memory, offset : int
        As of ``New``.
    """

    entry: int
    buffer: int
    memory: int
    offset: int


class Packed(NamedTuple):
    """A value that is packed at each run.

    Attributes
    ----------
    packer : Packer
        What packs it.
    place : int
        Its place among all values.
    entries, buffers : tuple of int
        Where its entries begin and end in the block, and its buffers among the buffers.
    """

    packer: Any
    place: int
    entries: tuple[int, int]
    buffers: tuple[int, int]


class Direct(NamedTuple):
    """A prepared call whose argument block is known but for addresses and the caller's values.

    Attributes
    ----------
    launch : callable
        As ``PreparedCall.packing`` returns it.
    block, buffers : list
        The entries and the buffers, with those of constants in place.
    patches : tuple of Patch
        The addresses.
    packed : tuple of Packed
        The other values.
    """

    launch: Callable[..., None]
    block: list[Any]
    buffers: list[Any]
    patches: tuple[Patch, ...]
    packed: tuple[Packed, ...]


class Step(NamedTuple):
    """A prepared call, or an allocation, of which each adds a memory where it makes one.

    Attributes
    ----------
    nbytes : int
        The bytes to allocate; 0 for a call.
    call : PreparedCall
        The call.
    news : tuple of New
        The arrays to make before it.
    groups : tuple of Group
        The dicts to make after these.
    places : tuple of int
        The places of the call's values among all values.
    makes : bool
        Whether the call makes an array for its result.
    direct : Direct or None
        The same call, packed here; None for calls that do more than to launch.
    needed : tuple of New
        Those of ``news`` that packing takes.
    """

    nbytes: int = 0
    call: Any = None
    news: tuple[New, ...] = ()
    groups: tuple[Group, ...] = ()
    places: tuple[int, ...] = ()
    makes: bool = False
    direct: Direct | None = None
    needed: tuple[New, ...] = ()


class Plan:
    """The steps of a picture, or of its derivative, for arguments of some signatures.

    Parameters
    ----------
    device : Device
        Where the steps run.
    steps : sequence of Step
        The steps.
    values : sequence
        All values of their calls: constants, and None for those that are other ones each time.
    names : dict
        The places of the caller's arguments among them, by name.
    """

    __slots__ = ("_device", "_names", "_steps", "_values")

    def __init__(self, device: Any, steps: Sequence[Step], values: Sequence[Any], names: dict[str, int]) -> None:
        self._device, self._steps, self._values, self._names = device, tuple(steps), tuple(values), dict(names)

    def run(self, stream: Any, given: Sequence[Any], named: dict[str, Any]) -> None:
        """Run the steps.

        Parameters
        ----------
        stream : Stream or None
            The stream to run on; the device's own queue if it is None.
        given : sequence of NDBuffer
            The arrays that are no arguments, in the order in which the Planner got such.
        named : dict
            The arguments by name, of the signatures that the plan was made for.
        """
        memory = [(array.buffer, array.address) for array in given]
        values = list(self._values)
        for name, place in self._names.items():
            values[place] = named[name]
        # A tape records calls, and not what is packed here.
        packs = RECORDER.get() is None
        for nbytes, call, news, groups, places, makes, direct, needed in self._steps:
            if nbytes:
                buffer = self._device.alloc(nbytes)
                memory.append((buffer, buffer.address))
                continue
            for place, number, offset, layout, grads in needed if packs else news:
                buffer, address = memory[number]
                array = layout.kind.of(layout, buffer, address + offset)
                if grads is not None:
                    array._grads = tuple([None if k is None else values[k] for k in grads])
                values[place] = array
            for place, items in groups:
                values[place] = {name: values[k] for name, k in items}
            if direct is not None and packs:
                launch, block, buffers = direct.launch, direct.block.copy(), direct.buffers.copy()
                for entry, at, number, offset in direct.patches:
                    buffers[at], address = memory[number]
                    block[entry] = address + offset
                for packer, place, (first, last), (low, high) in direct.packed:
                    entries: list[Any] = []
                    theirs: list[Any] = []
                    packer.pack(values[place], entries, theirs)
                    block[first:last], buffers[low:high] = entries, theirs
                launch(self._device.launch if stream is None else stream.launch, block, buffers)
                continue
            own = tuple([values[k] for k in places])
            made = call.run(own) if stream is None else call.run_on(stream, own)
            if makes:
                memory.append((made.buffer, made.address))

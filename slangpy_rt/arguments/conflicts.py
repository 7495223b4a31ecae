"""Conflicts of one call: arguments that share memory with what the call writes.

The result of a call is as if all inputs had been read before anything is written. An array that is only read is first
copied on the device if it has bytes that another element of the call writes. Two arrays that are written may not
share bytes. Pairs whose layouts exclude a conflict are dropped when the call is prepared; each call compares the
addresses of the other pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.device_packers import FieldPacker
from slangpy_rt.arguments.nested_packers import ConvertedPacker
from slangpy_rt.arguments.packer import Packer, Region
from slangpy_rt.arrays.layout import layout_of
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.backends.base import Buffer, Dispatch
from slangpy_rt.core.dtypes import NUMPY_OF, element_type
from slangpy_rt.core.errors import ShapeError
from slangpy_rt.core.overlap import Walk, crosses, overlap, repeats, window
from slangpy_rt.core.shapes import Shape, align

if TYPE_CHECKING:
    from slangpy_rt.runtime.core import DeviceCore

_HINT = ", or declare what is only read a Tensor: a RWTensor or NDBuffer counts as written"
# The most differences of two addresses for which a call remembers whether there is a conflict.
_REMEMBERED = 1024


class Conflicts:
    """The pairs of arrays of a call that may share memory.

    Parameters
    ----------
    title : str
        The function, for messages.
    places : sequence of Place
        The arrays that the call uses in place.
    shape : tuple of int
        The call's shape.
    """

    def __init__(self, device: DeviceCore, title: str, places: Sequence[Place], shape: Shape) -> None:
        self._device = device
        self._title = title
        self._places = places
        self._shape = shape
        # The block entries of two arrays' addresses, and the bounds of their difference where the spans overlap.
        self._pairs = [
            (a.entry, b.entry, *window(a.walk, b.walk, shape), a, b)
            for k, a in enumerate(places)
            for b in places[k + 1 :]
            if not self._apart(a, b)
        ]
        self._known: dict[tuple[int, int, int], Place | None] = {}
        # Packed addresses without a conflict. Looking one up takes 0.05 us, comparing two pairs 0.3.
        self.apart: set[bytes] = set()

    def __bool__(self) -> bool:
        return bool(self._pairs)

    def found(self, block: Sequence[int]) -> list[Place]:
        """Return the arrays that have to be copied when they lie at these addresses.

        Raises
        ------
        ShapeError
            If two arrays that are both written share memory.
        """
        for a, b, low, high, _, _ in self._pairs:
            if low < block[a] - block[b] < high:
                return self._look(block)
        return []

    def found_in(self, packed: bytes, block: Sequence[int]) -> list[Place]:
        """Return what ``found`` returns; if that is empty, remember ``packed``, which holds addresses only."""
        found = self.found(block)
        if not found:
            if len(self.apart) >= _REMEMBERED:
                self.apart.clear()
            self.apart.add(packed)
        return found

    def copies(self, found: Sequence[Place], block: list[Any], buffers: list[Buffer]) -> list[Dispatch]:
        """Return the dispatches that copy arrays; in ``block`` and ``buffers`` the copies replace the arrays.

        A copy has the array's strides and its address modulo 32 bytes, so that the same kernel can use it.

        Raises
        ------
        OutOfMemoryError
            If there is no memory for a copy.
        """
        spans = []
        for place in found:
            low, high = place.walk.span(self._shape)
            spans.append((block[place.entry] + low, block[place.entry] + high, place))
        # Fields of one array of structs have one copy.
        merged: list[tuple[int, int, list[Place]]] = []
        for low, high, place in sorted(spans, key=lambda span: span[:2]):
            last = merged[-1] if merged else None
            if last is not None and low <= last[1] and buffers[last[2][0].buffer] is buffers[place.buffer]:
                merged[-1] = last[0], max(high, last[1]), [*last[2], place]
            else:
                merged.append((low, high, [place]))
        out = []
        for low, high, places in merged:
            source = buffers[places[0].buffer]
            copy = self._device.alloc(high - low + 64)
            moved = copy.address + low % 32 - low
            out.append(_copying(self._device, source, low, copy, moved + low, high - low))
            for place in places:
                block[place.entry] += moved
                buffers[place.buffer] = copy
        return out

    def _apart(self, a: Place, b: Place) -> bool:
        """Return whether two arrays cannot be in conflict, whatever their addresses."""
        if not (a.writes or b.writes):
            return True
        # Two gradients that are added to may share memory. So may two arrays that are passed whole and written, such
        # as RWTensors: there the function itself decides which elements it writes.
        if a.writes and b.writes and ((a.adds and b.adds) or (a.whole and b.whole)):
            return True
        if not (a.own and b.own):
            return False
        return a.own != b.own or self._decide(a, b, a.offset - b.offset) is None

    def _look(self, block: Sequence[int]) -> list[Place]:
        found: list[Place] = []
        for a, b, low, high, first, second in self._pairs:
            offset = block[a] - block[b]
            if not low < offset < high:
                continue
            try:
                copied = self._known[a, b, offset]
            except KeyError:
                copied = self._decide(first, second, offset)
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[a, b, offset] = copied
            if copied is None or copied in found:
                continue
            if copied.writes:
                raise shared(self._title, first, second, offset)
            found.append(copied)
        return found

    def _decide(self, a: Place, b: Place, offset: int) -> Place | None:
        """Return which of two arrays has to be copied, or None; an array that is written stands for an error."""
        if a.writes and b.writes:
            return a if overlap(a.walk, b.walk, self._shape, offset) else None
        # With two whole arrays, a function may read one after it has written to the other: any overlap counts.
        meets = overlap if a.whole and b.whole else crosses
        return (b if a.writes else a) if meets(a.walk, b.walk, self._shape, offset) else None


class Place(NamedTuple):
    """An array that a call uses in place.

    Attributes
    ----------
    entry, buffer : int
        Index of its address in the block, and of its buffer among the buffers.
    writes, adds : bool
        Whether the kernel writes to it, and whether it does so by additions only.
    whole : bool
        Whether the function gets the whole array, of which it may access any element at any time.
    shape, strides : tuple of int
        Shape and strides of the array, strides in bytes.
    own, offset : int
        Size of its buffer in bytes if the array takes up all of it, else 0; byte offset of the first element in it.
    """

    name: str
    walk: Walk
    shape: Shape
    strides: Shape
    entry: int
    buffer: int
    writes: bool
    adds: bool
    whole: bool
    own: int
    offset: int


def conflicts_of(
    device: DeviceCore, title: str, every: Sequence[Bound], made: Bound | None, shape: Shape, derivative: str
) -> Conflicts | None:
    """Return the conflicts that a call may have; None if no addresses of its arguments can cause one.

    Parameters
    ----------
    every : sequence of Bound
        Uniforms, arguments and the result, in the order of the block.
    made : Bound or None
        The result, if each call makes a new one.
    """
    used = _used_in_place(every, made, derivative)
    if len(used) < 2 or not any(writes for _, _, _, writes in used):
        return None
    found = Conflicts(device, title, [place for one in used if (place := _place(shape, *one)) is not None], shape)
    return found if found else None


def written_in_place(
    device: DeviceCore, every: Sequence[Bound], made: Bound | None, shape: Shape, derivative: str
) -> tuple[Place, ...]:
    """Return the arrays in host memory that the kernel writes in place, if the call copies others back after it.

    Parameters
    ----------
    every, made
        As for ``conflicts_of``.
    """
    brings = any(leaf.packer.brings for b in every if b is not made for leaf in b.leaves)
    if not brings or "zero_copy" not in device.caps.features:
        return ()
    used = [one for one in _used_in_place(every, made, derivative) if one[3]]
    return tuple([place for one in used if (place := _place(shape, *one)) is not None])


def entries(leaf: Bound) -> int:
    """Return how many entries of the block an argument without parts takes."""
    if leaf.generator is not None:
        return len(leaf.generator.scalars())
    if leaf.mode == "value":
        return leaf.count
    return 0 if leaf.mode == "unused" else 1


def writes_to(leaf: Bound, derivative: str, is_primal: bool) -> bool:
    """Return whether a kernel writes to an array."""
    if derivative == "backward" and is_primal and leaf.mode == "array":
        return False
    # Seeds of a whole array are gradients that a backward derivative reads, but tangents that a forward one writes.
    return leaf.access in ("out", "inout", "accumulate") or (
        derivative == "forward" and leaf.access == "seed" and leaf.mode == "tensor"
    )


def walk_of(leaf: Bound, shape: Shape) -> Walk:
    """Return the bytes of an array that the elements of a call touch."""
    unit = NUMPY_OF[leaf.scalar].itemsize
    steps = tuple([s * unit for s in align(leaf.shape, leaf.strides, shape, leaf.mapped)])
    inner = tuple([(n, s * unit) for n, s in zip(*leaf.view, strict=True)]) if leaf.mode == "tensor" else ()
    return Walk(steps, inner, leaf.count * unit)


def _used_in_place(every: Sequence[Bound], made: Bound | None, derivative: str) -> list[tuple[Bound, int, int, bool]]:
    """Return the arrays that the kernel uses in place, with block entry, buffer, and whether the kernel writes it."""
    used: list[tuple[Bound, int, int, bool]] = []
    entry = buffer = 0
    for b in every:
        for leaf in b.places:
            for p in (leaf, *leaf.gradients):
                if p.packer.buffers and not p.packer.private and b is not made:
                    used.append((p, entry, buffer, writes_to(p, derivative, p is leaf)))
                entry += entries(p)
                buffer += p.packer.buffers
    return used


def _place(shape: Shape, leaf: Bound, entry: int, buffer: int, writes: bool) -> Place | None:
    """Return the Place of an array; None if it has no elements, or is a pointer, whose size is unknown."""
    if leaf.mode not in ("array", "tensor") or 0 in (*leaf.shape, *leaf.view[0]):
        return None
    unit = NUMPY_OF[leaf.scalar].itemsize
    return Place(
        leaf.name, walk_of(leaf, shape), leaf.shape + leaf.view[0],
        tuple([s * unit for s in leaf.strides + leaf.view[1]]), entry, buffer, writes, leaf.access == "accumulate",
        leaf.mode == "tensor", leaf.own, _offset(leaf.packer),
    )  # fmt: skip


def _offset(packer: Packer) -> int:
    while isinstance(packer, ConvertedPacker):
        packer = packer.inner
    return packer.offset if isinstance(packer, FieldPacker) else 0


def clash_of(regions: Sequence[Region], alone: bool) -> tuple[int, int] | None:
    """Return the indices of two regions that share memory; None if there are none.

    With ``alone``, a region that overlaps itself counts too: its index is returned twice.
    """
    for k, r in enumerate(regions if alone else ()):
        if repeats(Walk(r.strides, (), r.nbytes), r.shape):
            return k, k
    spans = [r.span for r in regions]
    for k, (low, high) in enumerate(spans):
        for j in range(k):
            if spans[j][0] < high and low < spans[j][1] and _meet(regions[j], regions[k]):
                return j, k
    return None


def clash_in_place(
    title: str, names: Sequence[str], regions: Sequence[Region], places: Sequence[Place], block: Sequence[int]
) -> ShapeError | None:
    """Return the error for memory that is written both in place by the kernel and after it; None if there is none.

    Parameters
    ----------
    names, regions
        The arrays that are written after the kernel.
    places : sequence of Place
        The arrays that the kernel writes in place, at the addresses in ``block``.
    """
    spans = [r.span for r in regions]
    for place in places:
        there = Region(block[place.entry], place.shape, place.strides, place.walk.nbytes)
        first, end = there.span
        for name, region, (low, high) in zip(names, regions, spans, strict=True):
            if first < high and low < end and _meet(region, there):
                brought = Named(name, region.shape, region.strides)
                return shared(title, brought, place, region.address - there.address)
    return None


def _meet(a: Region, b: Region) -> bool:
    """Tell whether two regions whose spans overlap share a byte."""
    one, other = (Walk((), tuple(zip(r.shape, r.strides, strict=True)), r.nbytes) for r in (a, b))
    return overlap(one, other, (), a.address - b.address)


def clashing(title: str, names: Sequence[str], regions: Sequence[Region], clash: tuple[int, int]) -> ShapeError:
    """Return the error for regions that share memory."""
    (j, k), (a, b) = clash, (regions[c] for c in clash)
    if j == k:
        return ShapeError(
            f"{title}: '{names[k]}' of shape {b.shape} and byte strides {b.strides} would be written to, and its "
            f"elements of {b.nbytes} bytes overlap each other; give the call an array without overlaps."
        )
    return shared(
        title, Named(names[j], a.shape, a.strides), Named(names[k], b.shape, b.strides), a.address - b.address
    )


class Named(NamedTuple):
    """An array outside of the device, as error messages name it; its attributes are as those of Place."""

    name: str
    shape: Shape
    strides: Shape
    whole: bool = False


def shared(title: str, a: Place | Named, b: Place | Named, offset: int) -> ShapeError:
    """Return the error for two written arrays that share memory, the first ``offset`` bytes after the second."""
    where = f"{abs(offset)} bytes {'after' if offset > 0 else 'before'}" if offset else "at"
    return ShapeError(
        f"{title}: '{a.name}' and '{b.name}' share memory, and both are written: '{a.name}' of shape {a.shape} and "
        f"byte strides {a.strides} begins {where} the first element of '{b.name}' of shape {b.shape} and byte "
        f"strides {b.strides}. Give one of them memory of its own{_HINT if a.whole or b.whole else ''}."
    )


def _copying(device: DeviceCore, source: Buffer, at: int, target: Buffer, to: int, nbytes: int) -> Dispatch:
    """Return the dispatch that copies bytes on a device; both addresses are equal modulo 32."""
    size = 4
    if at % 4 or nbytes % 4:
        if "uint8_t" in device.caps.scalars:
            size = 1
        else:
            # Blocks of memory begin and end at whole words there, and the copy's buffer is large enough.
            nbytes += at % 4 + -(at + nbytes) % 4
            at, to = at - at % 4, to - at % 4
    kind = element_type("", "uint" if size == 4 else "uint8_t")
    layout = layout_of(device, NDBuffer, kind, (nbytes // size,), None, at % 32 == 0)
    words = NDBuffer.of(layout, source, at), NDBuffer.of(layout, target, to)
    dispatch: Dispatch = device.moves.copy_dispatch(*words)
    return dispatch

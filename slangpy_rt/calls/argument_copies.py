"""ArgumentCopies: host copies of a call's arguments, or of the parts that some of its elements use.

Arguments are split into arrays and scalars as they were bound, and joined again for each launch. The caller's objects
are only read. Textures, samplers and generators are passed without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import converter
from slangpy_rt.arguments.bind_array import element_of, may_write
from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.containers import container
from slangpy_rt.arguments.differentials import dropping_part, dropping_struct
from slangpy_rt.arguments.indices import call_id, grid, range_of, thread_id
from slangpy_rt.arguments.nested_packers import ConvertedPacker, PartsPacker
from slangpy_rt.arguments.resolve import Candidate
from slangpy_rt.arguments.scope import Scope
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, has_floats
from slangpy_rt.arrays.value_ref import ValueRef
from slangpy_rt.core.conversion import as_element
from slangpy_rt.core.dtypes import storage
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.shapes import Shape, broadcast, spread
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.runtime.foreign_stream import foreign_stream
from slangpy_rt.textures.texture import Texture

Array = npt.NDArray[Any]

# Modes of arguments whose dimensions map to call dimensions.
_WALKED = ("array", "computed", "tensor", "texel")
_INDICES = (call_id, grid, thread_id, range_of)
_COMPUTED = "a generator computes it"
_DEEPEST = 32


@dataclass(eq=False)
class Leaf:
    """A host copy of an array or a scalar of an argument.

    Attributes
    ----------
    name : str
        The parameter and the path in it: ``"line.origin"``.
    type, element : SlangType
        The parameter's type, and the type of the elements of the Tensor that a launch gets.
    access : str
        ``"in"``, ``"out"`` or ``"inout"``.
    host : numpy.ndarray
        The values. Its dimensions are the call's, then the dimensions of an array that is passed whole, then the
        dimensions of an element.
    dims : int
        The number of call dimensions.
    mapped : tuple of int or None
        The index of each of these in the call's shape; None without a ``map``.
    whole : bool
        Whether the array is passed whole (not vectorized).
    pair : bool
        Whether launches pass a DiffPair instead of a Tensor.
    carries : bool
        Whether launches pass it with a gradient.
    reason : str
        Why its type has no derivative; empty if it has one, or if the parameter is ``no_diff``.
    """

    name: str
    type: SlangType
    element: SlangType
    access: str
    host: Array
    dims: int
    mapped: tuple[int, ...] | None
    whole: bool
    pair: bool
    carries: bool
    reason: str = ""

    @property
    def reads(self) -> bool:
        """Whether the function reads it."""
        return not self.type.name.startswith("WDiffTensor<") if self.whole else self.access != "out"

    @property
    def writes(self) -> bool:
        """Whether the function writes to it."""
        return self.access != "in"

    def zeros(self) -> Array:
        """Return zeros of the shape and dtype of ``host``."""
        return np.zeros_like(self.host)


@dataclass(eq=False)
class Group:
    """A value with parts by path (``".x"`` or ``"[0]"``), and the function that joins them."""

    parts: tuple[tuple[str, Node], ...]
    join: Callable[[list[Any]], Any]


@dataclass(eq=False)
class Constant:
    """A value that launches pass without a copy, the parameter's type, and why it has no derivative."""

    value: Any
    type: str = ""
    reason: str = ""


Node = Leaf | Group | Constant


class ArgumentCopies:
    """Copies of the arguments of a call, or of some of its elements.

    Parameters
    ----------
    scope : Scope
        The module.
    found : Candidate
        The declaration that the call uses, with the arguments as ``plain`` returns them.
    values : tuple
        The arguments.
    most : int
        The maximum number of elements to copy. A call with generators other than indices is copied completely.
    carries : callable
        Returns whether launches pass a value with a gradient, if it holds floats.
    pairs : bool
        Whether launches pass the caller's DiffPairs as DiffPairs; otherwise as Tensors.

    Raises
    ------
    UnsupportedError
        If the function may write to an argument that is not copied.

    Attributes
    ----------
    shape : tuple of int
        The call shape.
    picked : tuple of int
        The shape of the copied part.
    nodes : list of Node
        The copy of each value.
    """

    def __init__(
        self,
        scope: Scope,
        found: Candidate,
        values: Sequence[Any],
        most: int,
        carries: Callable[[Any], bool],
        pairs: bool,
    ) -> None:
        self._scope = scope
        self._pairs = pairs
        self._device = scope.device
        self._carries = carries
        self._where = str(found.sig)
        leaves = [leaf for b in found.bound for leaf in b.leaves]
        ranks = [
            (max((d + 1 for d in b.mapped), default=0) if b.mapped is not None else len(b.shape)) for b in leaves
        ]
        self._rank = max(ranks, default=0)
        walked = [b for b in leaves if b.mode in _WALKED]
        self.shape = broadcast(self._where, [(b.name, spread(b.name, b.shape, b.mapped, self._rank)) for b in walked])
        computed = [b.generator for b in leaves if b.mode == "computed"]
        # Other generators compute their values in the kernel.
        cut = all(isinstance(g, _INDICES) for g in computed) and not any(b.mode == "texel" for b in leaves)
        self._places = _places(self.shape, most) if cut else None
        self.picked = tuple(map(len, self._places)) if self._places is not None else self.shape
        params = {p.name: p for p in found.sig.params}
        self.nodes: list[Node] = [Constant(None)] * len(values)
        for b, k in zip(found.bound, found.order, strict=False):
            dropping = dropping_struct(scope, found.sig, params[b.name]) if b.name in params else None
            self.nodes[k] = self._copied(b.name, b, values[k], dropping)

    def leaves(self) -> Iterator[Leaf]:
        """Yield all arrays and numbers."""
        for node in self.nodes:
            yield from leaves_of(node)

    def joined(self, make: Callable[[Leaf], Any]) -> tuple[Any, ...]:
        """Return the arguments of a launch, with arrays and scalars from a function of their leaves."""
        return tuple([_joined(node, make) for node in self.nodes])

    def tensor(self, host: Array, element: SlangType) -> Tensor:
        """Return a Tensor with the values of a host array."""
        return Tensor.from_numpy(self._device, np.asarray(host, order="C"), element)

    def labels(self, shape: Shape, mapped: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the index in the call's shape of each call dimension of an array."""
        return mapped if mapped is not None else tuple(range(self._rank - len(shape), self._rank))

    def _copied(self, name: str, bound: Bound, value: Any, dropping: str | None) -> Node:
        packer, given = bound.packer, value
        pair = isinstance(value, DiffPair)
        while isinstance(packer, ConvertedPacker):
            value, packer = packer.convert(value), packer.inner
        if bound.mode == "parts" and isinstance(packer, PartsPacker) and not isinstance(value, Texture):
            parts = tuple(
                [
                    (place, self._copied(f"{name}{place}", part, item, self._dropping(bound, place, part, dropping)))
                    for (place, part), item in zip(bound.parts, packer.parts(value), strict=True)
                ]
            )
            return (
                Group(parts, _joiner(bound, value)) if parts else Constant(value, bound.type.name, "it has no parts")
            )
        if bound.mode == "computed":
            if self._places is None:
                return Constant(given, bound.type.name, _COMPUTED)
            return self._indices(name, bound)
        if bound.mode in ("handle", "texel") or isinstance(value, Texture):
            if bound.access != "in":
                raise UnsupportedError(
                    f"{self._where}: argument '{name}' is {in_words(value)}, which the function may write to; "
                    "check_grads copies no textures. Pass a Tensor."
                )
            return Constant(given, bound.type.name, "a texture or sampler has no gradient here")
        if bound.mode == "pointer" and not isinstance(value, (NDBuffer, np.ndarray)):
            if may_write(bound.type):
                raise UnsupportedError(
                    f"{self._where}: argument '{name}' is an address, and check_grads does not copy what the "
                    "function may write there; pass a Tensor."
                )
            return Constant(given, bound.type.name, "a pointer has no gradient")
        whole = bound.mode in ("tensor", "pointer") and bound.access == "in" and not bound.shape
        if (
            whole
            and isinstance(value, NDBuffer)
            and not (has_floats(value.dtype) and "DiffTensor<" in bound.type.name)
        ):
            # Only read, and maybe large.
            plain = value.detach() if isinstance(value, Tensor) else value
            return Constant(plain, bound.type.name, f"'{bound.type.name}' has no gradient; a DiffTensor has")
        return self._leaf(name, bound, value, given, pair, dropping)

    def _dropping(self, owner: Bound, place: str, part: Bound, dropping: str | None) -> str | None:
        return dropping_part(self._scope, self._scope.struct(owner.type), place, part.type, dropping)

    def _leaf(self, name: str, bound: Bound, value: Any, given: Any, pair: bool, dropping: str | None) -> Node:
        host, element = self._host(name, bound, value)
        floats = has_floats(element)
        dropped = f"'{dropping}' is not IDifferentiable" if dropping and floats and bound.mode != "tensor" else ""
        carries = floats and bound.mode != "pointer" and not dropped and self._carries(given)
        if bound.mode == "value" and not carries:
            why = "the argument has no gradient" if floats else f"'{bound.type.name}' holds no floats"
            return Constant(value, bound.type.name, dropped or why)
        dims = 0 if bound.mode in ("value", "pointer") else len(bound.shape)
        return Leaf(
            name, bound.type, element, bound.access, self._cut(host, bound, dims), dims, bound.mapped,
            bound.mode in ("tensor", "pointer"), pair and carries and self._pairs, carries, dropped,
        )  # fmt: skip

    def _host(self, name: str, bound: Bound, value: Any) -> tuple[Array, SlangType]:
        """Return the values of an array or a scalar, and the element type for a Tensor of them."""
        if isinstance(value, NDBuffer):
            return np.asarray(value.to_numpy()), value.dtype
        element: SlangType | None = bound.type
        whole = container(bound.type)
        if whole is not None or bound.mode == "pointer":
            element = whole[0] if whole is not None else bound.type.element
            assert element is not None
            element = element_of(self._scope, element)
        assert element is not None
        if isinstance(value, ValueRef):
            value = 0 if value.value is None or bound.access == "out" else value.value
        if bound.mode == "value" or not bound.shape:
            where = f"{self._where}: argument '{name}'"
            if not isinstance(value, np.ndarray):
                return as_element(where, element, value, everywhere=True), element
        return np.asarray(Tensor.from_numpy(self._device, value, element).to_numpy()), element

    def _cut(self, host: Array, bound: Bound, dims: int) -> Array:
        """Return the part of an array that the copied elements of the call use."""
        if self._places is None:
            return np.array(host)
        for axis, d in enumerate(self.labels(bound.shape[:dims], bound.mapped)):
            if host.shape[axis] != 1:
                host = host.take(self._places[d], axis)
        return np.array(host)

    def _indices(self, name: str, bound: Bound) -> Node:
        """Return the indices of the copied elements: as a generator if one fits, otherwise as an array."""
        assert self._places is not None and bound.generator is not None
        generator, type_ = bound.generator, bound.type
        steps = [int(place[1] - place[0]) if len(place) > 1 else 1 for place in self._places]
        dims = self.labels(bound.shape, bound.mapped)
        if isinstance(generator, grid):
            return Constant(generator._part(self.picked, steps, dims), type_.name, _COMPUTED)
        if isinstance(generator, range_of):
            return Constant(generator._part(self.picked[dims[0]], steps[dims[0]]), type_.name, _COMPUTED)
        at: list[Array] = list(np.meshgrid(*self._places, indexing="ij"))
        nought = np.zeros(self.picked, np.int64)
        # A vector counts the last dimension first.
        numbers: list[Array] = at if type_.kind == "array" else at[::-1]
        if isinstance(generator, thread_id):
            numbers = [np.asarray(np.ravel_multi_index(tuple(at), self.shape)) if at else nought]
        if type_.kind == "vector":
            numbers = [*numbers, *[nought] * (type_.shape[0] - len(numbers))]
        stored = storage(type_)
        assert stored is not None
        host = (np.stack(numbers, -1) if type_.shape else numbers[0]).astype(stored.dtype)
        return Leaf(name, type_, type_, "in", host, len(self.picked), None, False, False, False)


def plain(device: Any, value: Any, depth: int = 0) -> Any:
    """Return an argument in which arrays of this package replace foreign arrays, in the same memory."""
    if isinstance(value, (bool, int, float, str, np.ndarray, np.generic, NDBuffer)) or depth > _DEEPEST:
        return value
    stand_in = converter(type(value))
    if isinstance(stand_in, Adapter):
        value = value.detach() if stand_in.asks_for_autograd(value) else value
        packer = stand_in.packer(device, value, "in")
        for find in packer.streams if packer is not None else ():
            foreign_stream(device, find(value)).stream().synchronize()
        return stand_in.on(device, value)
    if type(value) in (list, tuple):
        items = [plain(device, item, depth + 1) for item in value]
        return value if all(map(_is, items, value)) else type(value)(items)
    fields = fields_of(value) if stand_in is None else None
    if fields is None:
        return value
    found = {name: plain(device, item, depth + 1) for name, item in fields.items()}
    return value if all(found[name] is item for name, item in fields.items()) else found


def leaves_of(node: Node) -> Iterator[Leaf]:
    """Yield the arrays and scalars of an argument."""
    if isinstance(node, Leaf):
        yield node
    elif isinstance(node, Group):
        for _, part in node.parts:
            yield from leaves_of(part)


def _joined(node: Node, make: Callable[[Leaf], Any]) -> Any:
    if isinstance(node, Leaf):
        return make(node)
    if isinstance(node, Constant):
        return node.value
    return node.join([_joined(part, make) for _, part in node.parts])


def _joiner(bound: Bound, value: Any) -> Callable[[list[Any]], Any]:
    """Return the function that joins the parts of an argument to a value that ``bind`` takes."""
    places = [place for place, _ in bound.parts]
    if places == [""] or isinstance(value, (NDBuffer, np.ndarray)):
        return lambda items: items[0]
    if places[0].startswith("["):
        return list
    if isinstance(value, (list, tuple)) and not bound.type.fields:
        return tuple
    names = [place.strip(".") for place in places]
    extra = {"_type": value["_type"]} if isinstance(value, Mapping) and "_type" in value else {}
    return lambda items: {**extra, **dict(zip(names, items, strict=True))}


def _places(shape: Shape, most: int) -> tuple[Array, ...]:
    """Return evenly spaced indices along each call dimension, which select at most about ``most`` elements."""
    sizes = list(shape)
    # A dimension of one element would be broadcast.
    while np.prod(sizes, dtype=float) > most and max(sizes) > 2:
        widest = sizes.index(max(sizes))
        sizes[widest] = (sizes[widest] + 1) // 2
    return tuple(
        [np.arange(size) * ((n - 1) // (size - 1) if size > 1 else 1) for n, size in zip(shape, sizes, strict=True)]
    )


def _is(new: Any, old: Any) -> bool:
    return new is old

"""GradientLaunches: a function and its derivatives, run on copies of the arguments of one call.

It launches prepared calls without ``Function``: a check is no call that a tape, PyTorch or another check could see.
Nothing here judges the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from slangpy_rt.arguments.bound import Bound
from slangpy_rt.arguments.differentials import differentiates
from slangpy_rt.arguments.live_places import replaced
from slangpy_rt.arguments.resolve import Candidate, check_differentiable, resolve
from slangpy_rt.arguments.signature import signature
from slangpy_rt.arrays.differentiable import DiffPair
from slangpy_rt.arrays.ndbuffer import NDBuffer
from slangpy_rt.arrays.tensor import Tensor, gradient_type, has_floats
from slangpy_rt.calls.argument_copies import ArgumentCopies, Constant, Group, Leaf, Node, leaves_of
from slangpy_rt.calls.central_differences import spacing
from slangpy_rt.calls.first_call import prepare_call
from slangpy_rt.core.dtypes import BFLOAT16
from slangpy_rt.core.structs import fields_of
from slangpy_rt.core.types import FunctionSig, SlangType

if TYPE_CHECKING:
    from slangpy_rt.arguments.options import Options
    from slangpy_rt.arguments.scope import Scope
    from slangpy_rt.calls.prepared import PreparedCall

Array = npt.NDArray[Any]

# How many arguments are made that differ from those of the call in the last places, and by how many units.
_NEIGHBORS, _UNITS = 3, 4


@dataclass(frozen=True, eq=False)
class Quantity:
    """An array of floats, or a field of an array of structs, as a derivative sees it.

    Attributes
    ----------
    leaf : Leaf
        The array.
    path : tuple of str
        The places of the field: ``(".origin", "[0]")``.
    type : SlangType
        Its type.
    """

    leaf: Leaf
    path: tuple[str, ...]
    type: SlangType

    @property
    def name(self) -> str:
        """The name in a report."""
        return self.leaf.name + "".join(self.path)

    @property
    def scalar(self) -> str:
        """The Slang scalar that it is made of."""
        if not self.path and self.leaf.element is BFLOAT16:
            return BFLOAT16.name
        return scalar_of(self.leaf.element if not self.path else self.type)

    def of(self, host: Array) -> Array:
        """Return its numbers in an array like that of the leaf, as a view."""
        for place in self.path:
            if place.startswith("."):
                host = host[place[1:]]
            else:
                host = host[(slice(None),) * self.leaf.dims + (int(place[1:-1]),)]
        return host


class GradientLaunches:
    """A function and its derivatives on copies of the arguments of one call, moved or not.

    Parameters
    ----------
    scope, name, overloads, options
        The function, as ``prepare_call`` takes it; ``options`` are those of the function itself.
    uniforms : tuple
        Values of its uniforms.
    args, names
        Values by position and then by name, as ``plain`` returns them, and the names of the latter.
    seed : int
        The seed of random gradients and directions.
    most : int
        The most elements of the call that are copied.
    carries : callable
        Tells of a value whether it has a gradient, if it holds floats.
    pairs : bool
        Whether launches get numbers as DiffPairs where the caller passed them so; otherwise as Tensors.

    Raises
    ------
    BindError, ShapeError, UnsupportedError, CompileError
        As a call of ``bwds`` does.

    Attributes
    ----------
    random : numpy.random.Generator
        The source of random gradients and directions.
    sig : FunctionSig
        The declaration that is called.
    order : tuple of int
        For each parameter that was given, the index of its value.
    copies : ArgumentCopies
        The arguments.
    every, inputs, outputs : list of Quantity
        All arrays and fields of arguments and results, those that a derivative reads, and those that it writes.
    values, gradients : dict
        By Leaf, what a call writes, and the gradients that ``bwds`` adds.
    seeds : dict
        By Leaf, the random gradients that ``bwds`` reads.
    specs : set of CallSpec
        Descriptions of the derivatives' kernels.
    """

    def __init__(
        self,
        scope: Scope,
        name: str,
        overloads: tuple[FunctionSig, ...],
        options: Options,
        uniforms: tuple[Any, ...],
        args: tuple[Any, ...],
        names: tuple[str, ...],
        seed: int,
        most: int,
        carries: Callable[[Any], bool],
        pairs: bool,
    ) -> None:
        maps = tuple([(key, how) for key, how in options.named_maps if key != "_result"])
        self._options = replace(options, derivative="", returns=None, named_maps=maps)
        found = resolve(scope, name, overloads, args, names, self._options)
        check_differentiable(scope, found.sig, "check_grads")
        self.scope, self._name, self._overloads = scope, name, overloads
        self.sig, self.order = found.sig, found.order
        # A function may write to an array that a uniform holds.
        self._uniforms, self._names = tuple([_copied(scope, value) for value in uniforms]), names
        self.seed, self.random = seed, np.random.default_rng(seed)
        self._prepared: dict[Any, PreparedCall] = {}
        self._tensors: dict[Leaf, Tensor] = {}
        scope.device.synchronize()
        self.copies = ArgumentCopies(scope, found, args, most, carries, pairs)
        self.specs: set[Any] = set()
        self.every: list[Quantity] = []
        self.inputs: list[Quantity] = []
        self.outputs: list[Quantity] = []
        self._kind = None if found.sig.returns.kind == "void" else "tensor"
        self._result: Node | None = None
        self.values = self.called({})
        written = [*leaves_of(self._result or Constant(None)), *[x for x in self.copies.leaves() if x.writes]]
        self.seeds = {leaf: leaf.zeros() for leaf in written}
        self.gradients: dict[Leaf, Array] = {}
        if self._any_gradient(found, args):
            self.backward({})
        self._find_quantities()

    def _find_quantities(self) -> None:
        """Find out what a first call of ``bwds`` with gradients of 0 differentiates; call it with random ones."""
        bound = self._last.bound[len(self._uniforms) :]
        for b, k in zip(bound, self.order, strict=False):
            self._sort(self.copies.nodes[k], b)
        if len(bound) > len(self.order) and self._result is not None:
            self._sort(self._result, bound[len(self.order)])
        for q in self.outputs:
            q.of(self.seeds[q.leaf])[...] = self._weights(q, q.of(self.values[q.leaf]).astype(np.float64))
        if not self.outputs:
            self.inputs = []
        # What an element of the call writes into an array may belong to other elements.
        self._apart = not any(q.leaf.whole for q in self.outputs)
        if self.inputs:
            self.gradients = self.backward({})

    def _run(self, derivative: str, args: tuple[Any, ...], result: Any) -> Any:
        key = derivative, result if isinstance(result, str) else signature(result), *map(signature, args)
        call = self._prepared.get(key)
        if call is None:
            options = replace(self._options, derivative=derivative)
            call = self._prepared[key] = prepare_call(
                self.scope, self._name, self._overloads, args, self._names, result, options, self._uniforms
            )
            if derivative:
                self.specs.add(call.spec)
        self._last = call
        values = (*args, *self._uniforms, *(() if result is None else (result,)))
        return call.run(values)

    def called(self, moved: Mapping[Leaf, Array]) -> dict[Leaf, Array]:
        """Call the function with some arguments replaced; return what it writes."""
        args, made = self._arguments(moved, lambda leaf: None, lambda leaf: False)
        result = self._run("", args, self._kind)
        if self._result is None:
            self._result = self._result_node("_result", self.sig.returns, result)
        found = dict(_paired(self._result, result, _host))
        return found | {leaf: _host(value) for leaf, value in made.items() if leaf.writes}

    def backward(self, moved: Mapping[Leaf, Array]) -> dict[Leaf, Array]:
        """Call ``bwds`` with some arguments replaced; return the gradients of what it reads."""
        args, made = self._arguments(
            moved,
            lambda leaf: self.seeds[leaf] if leaf.writes else None,
            lambda leaf: leaf.reads,
        )
        type_, result = self.scope.struct(self.sig.returns), None
        if type_.kind != "void" and differentiates(self.scope, type_):
            assert self._result is not None
            result = _made(self._result, self._seeded)
        self._run("backward", args, result)
        return {
            leaf: _host(value.grad_out) if not leaf.pair else leaf.zeros() + (0 if value.grad is None else value.grad)
            for leaf, value in made.items()
            if leaf.carries and leaf.reads
        }

    def forward(
        self, tangents: Mapping[Leaf, Array], moved: Mapping[Leaf, Array]
    ) -> tuple[dict[Leaf, Array], dict[Leaf, Array]]:
        """Call ``fwds`` with some arguments replaced; return what it writes, and the tangents of that."""
        args, made = self._arguments(
            moved,
            lambda leaf: tangents.get(leaf, 0) if leaf.reads else None,
            lambda leaf: leaf.writes,
        )
        result = self._run("forward", args, self._kind)
        written = {leaf: value for leaf, value in made.items() if leaf.writes}
        values = dict(_paired(self._result, result, _host)) | {leaf: _host(v) for leaf, v in written.items()}
        found = dict(_paired(self._result, result, _tangent))
        for leaf, value in written.items():
            tangent = _tangent(value) if leaf.carries else None
            if tangent is not None:
                found[leaf] = tangent
        return values, found

    def _arguments(
        self,
        moved: Mapping[Leaf, Array],
        grad_in: Callable[[Leaf], Array | int | None],
        grad_out: Callable[[Leaf], bool],
    ) -> tuple[tuple[Any, ...], dict[Leaf, Any]]:
        """Return the arguments of a launch, and by Leaf the Tensors and DiffPairs in them.

        Parameters
        ----------
        moved : mapping
            Numbers in place of an argument's own.
        grad_in, grad_out : callable
            Return the gradient that is read, 0 for zeros, and whether one of zeros is there to be written.
        """
        made: dict[Leaf, Any] = {}

        def make(leaf: Leaf) -> Any:
            host = moved.get(leaf, leaf.host)
            into, out = (grad_in(leaf), grad_out(leaf)) if leaf.carries else (None, False)
            if leaf.pair:
                made[leaf] = DiffPair(host.tolist(), None if into is None else (leaf.zeros() + into).tolist())
                return made[leaf]
            tensor = self._tensor(leaf, host)
            if into is not None or out:
                kind = gradient_type(leaf.element)
                read, written = [
                    Tensor.zeros(tensor.device, tensor.shape, kind) if wanted else None
                    for wanted in (isinstance(into, int), out)
                ]
                if isinstance(into, np.ndarray):
                    read = self.copies.tensor(into, kind)
                tensor = tensor.with_grads(read, written)
            made[leaf] = tensor
            return tensor

        return self.copies.joined(make), made

    def _tensor(self, leaf: Leaf, host: Array) -> Tensor:
        """Return a Tensor of numbers; the same one for numbers that no launch changes."""
        if host is not leaf.host or leaf.writes:
            return self.copies.tensor(host, leaf.element)
        found = self._tensors.get(leaf)
        if found is None:
            found = self._tensors[leaf] = self.copies.tensor(host, leaf.element)
        return found

    def _seeded(self, leaf: Leaf) -> Tensor:
        """Return an array for a result, with the gradient that ``bwds`` reads."""
        seed = self.copies.tensor(self.seeds[leaf], gradient_type(leaf.element))
        made = Tensor.empty(self.scope.device, leaf.host.shape[: leaf.dims], leaf.element)
        return made.with_grads(grad_in=seed)

    def _any_gradient(self, found: Candidate, args: tuple[Any, ...]) -> bool:
        """Tell whether ``bwds`` has a gradient to add to."""
        live: list[bool] = []

        def visit(where: str, bound: Bound, value: Any, is_live: bool) -> tuple[Any, Any]:
            live.append(is_live)
            return value, None

        for p, b, k in zip(found.sig.params, found.bound, found.order, strict=False):
            if any(leaf.carries and leaf.reads for leaf in leaves_of(self.copies.nodes[k])):
                replaced(str(found.sig), self.scope, b, not p.no_diff, args[k], visit)
        return any(live)

    def _weights(self, q: Quantity, values: Array) -> Array:
        """Return random gradients of a result, in which all results count alike."""
        sizes = np.abs(values[np.isfinite(values)])
        size = sizes.mean() if sizes.size else 0.0
        power = -np.frexp(size)[1] if size > 0 else 0
        power = int(np.clip(power, -8, 8)) if q.scalar in ("half", "bfloat16") else int(np.clip(power, -60, 60))
        random = self.random.uniform(0.5, 1, values.shape) * (self.random.integers(0, 2, values.shape) * 2 - 1)
        unit = spacing(np.ones(()), q.scalar)
        return np.ldexp(np.round(random / unit) * unit, power)

    def _sort(self, node: Node, bound: Bound) -> None:
        """Enter what the derivative reads and writes of an argument or of the result."""
        if isinstance(node, Group):
            for (_, part), (_, inner) in zip(node.parts, bound.parts, strict=True):
                self._sort(part, inner)
        elif isinstance(node, Leaf):
            self._sort_leaf(node, bound, ())

    def _sort_leaf(self, leaf: Leaf, bound: Bound, path: tuple[str, ...]) -> None:
        if bound.mode == "parts":
            for place, part in bound.parts:
                self._sort_leaf(leaf, part, (*path, place))
            return
        q = Quantity(leaf, path, bound.type)
        self.every.append(q)
        reads = leaf.reads and leaf.carries and bound.grad_out is not None
        seeds = bound.access == "seed" and bound.mode != "tensor"
        writes = leaf.writes and leaf.carries and (bound.grad_in is not None or seeds)
        # The gradients of an array that a function reads and writes are those of its last values.
        if reads and not (leaf.whole and leaf.writes):
            self.inputs.append(q)
        if writes:
            self.outputs.append(q)

    def _result_node(self, name: str, type_: SlangType, value: Any) -> Node:
        """Return what a call returned as leaves."""
        if isinstance(value, NDBuffer):
            host, carries = np.asarray(value.to_numpy()), has_floats(value.dtype)
            dims = len(value.shape)
            return Leaf(name, type_, value.dtype, "out", host, dims, None, False, False, carries)
        if isinstance(value, tuple):
            parts = tuple(
                [
                    (f"._{k}", self._result_node(f"{name}._{k}", SlangType("other", _item_name(item)), item))
                    for k, item in enumerate(value)
                ]
            )
            return Group(parts, tuple)
        return Constant(value)

    @cached_property
    def neighbors(self) -> list[dict[Leaf, Array]]:
        """Arguments that differ from those of the call by a few units in the last place."""
        found = []
        for _ in range(_NEIGHBORS):
            moved: dict[Leaf, Array] = {}
            for leaf in self.copies.leaves():
                for path, _ in scalars_of(leaf.element) if leaf.reads and has_floats(leaf.element) else ():
                    host = moved.setdefault(leaf, np.array(leaf.host))
                    part = Quantity(leaf, path, leaf.type).of(host)
                    if part.dtype.kind == "f":
                        units = self.random.integers(-_UNITS, _UNITS + 1, part.shape)
                        part += (units * np.spacing(np.abs(part))).astype(part.dtype)
            found.append(moved)
        return found

    def by_entry(self, q: Quantity, found: Mapping[Leaf, Array]) -> tuple[Array, Array]:
        """Return numbers of the results times their gradients, and the sizes of these, for each entry of an argument.

        An entry is an element of the argument that runs along the call, summed over those elements of the call that
        use it.
        """
        total = sizes = np.zeros(self.copies.picked)
        single = q.leaf.whole or not self._apart
        if single:
            total = sizes = np.zeros(())
        for o in self.outputs:
            if o.leaf not in found:
                continue
            with np.errstate(all="ignore"):
                terms = o.of(self.seeds[o.leaf]).astype(np.float64) * o.of(found[o.leaf]).astype(np.float64)
            if single:
                total, sizes = total + terms.sum(), sizes + np.abs(terms).sum()
                continue
            terms = terms.reshape(*terms.shape[: o.leaf.dims], -1)
            for_call = (self._along(o.leaf, part.sum(-1)) for part in (terms, np.abs(terms)))
            total, sizes = total + next(for_call), sizes + next(for_call)
        return self._reduced(q.leaf, total, single), self._reduced(q.leaf, sizes, single)

    def _along(self, leaf: Leaf, array: Array) -> Array:
        """Return an array that runs along the call in the order of the call's dimensions."""
        labels = self.copies.labels(array.shape, leaf.mapped)
        found = np.einsum(array, list(labels), sorted(set(labels)))
        return np.asarray(found).reshape(self.copies.picked)

    def _kept(self, leaf: Leaf) -> list[int]:
        """Return the call dimensions along which an argument has several elements."""
        shape = leaf.host.shape[: leaf.dims]
        return sorted({d for d, n in zip(self.copies.labels(shape, leaf.mapped), shape, strict=True) if n != 1})

    def _reduced(self, leaf: Leaf, array: Array, single: bool) -> Array:
        if single:
            return np.asarray(array.sum())
        kept = self._kept(leaf)
        return np.asarray(array.sum(tuple([d for d in range(array.ndim) if d not in kept])))

    def of_leaf(self, q: Quantity, array: Array) -> Array:
        """Return an argument's numbers by entry."""
        leaf = q.leaf
        if leaf.whole or not self._apart:
            return np.asarray(array.sum())
        array = array.reshape(*array.shape[: leaf.dims], -1).sum(-1)
        labels = self.copies.labels(array.shape, leaf.mapped)
        wide = [(n, d) for n, d in zip(array.shape, labels, strict=True) if n != 1]
        array = array.reshape([n for n, _ in wide])
        return np.asarray(np.einsum(array, [d for _, d in wide], sorted({d for _, d in wide})))


def scalar_of(type_: SlangType) -> str:
    """Return the Slang scalar of a scalar, a vector, a matrix or an array of these."""
    while type_.kind == "array" and type_.element is not None:
        type_ = type_.element
    return type_.scalar


def scalars_of(type_: SlangType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], SlangType]]:
    """Yield the place and type of each field of an element that is no struct."""
    if type_.kind == "struct" and type_.fields:
        for f in type_.fields:
            yield from scalars_of(f.type, (*path, f".{f.name}"))
    elif type_.kind == "array" and type_.element is not None and type_.element.kind == "struct":
        for k in range(type_.shape[0]):
            yield from scalars_of(type_.element, (*path, f"[{k}]"))
    else:
        yield path, type_


def _copied(scope: Scope, value: Any) -> Any:
    """Return the value of a uniform, its arrays copied."""
    if isinstance(value, NDBuffer):
        return Tensor.from_numpy(scope.device, value.to_numpy(), value.dtype)
    fields = fields_of(value)
    return value if fields is None else {name: _copied(scope, item) for name, item in fields.items()}


def _paired(node: Node | None, value: Any, read: Callable[[Any], Any]) -> Iterator[tuple[Leaf, Array]]:
    """Yield each leaf of a result with what ``read`` returns of its array."""
    if isinstance(node, Leaf):
        found = read(value)
        if found is not None:
            yield node, found
    elif isinstance(node, Group):
        for (_, part), item in zip(node.parts, value, strict=True):
            yield from _paired(part, item, read)


def _made(node: Node, make: Callable[[Leaf], Any]) -> Any:
    if isinstance(node, Leaf):
        return make(node)
    return node.join([_made(part, make) for _, part in node.parts]) if isinstance(node, Group) else node.value


def _host(value: Any) -> Array:
    if isinstance(value, NDBuffer):
        return np.asarray(value.to_numpy())
    return np.asarray(value.value if isinstance(value, DiffPair) else value)


def _tangent(value: Any) -> Array | None:
    if isinstance(value, DiffPair):
        return np.asarray(0.0 if value.grad is None else value.grad)
    grads = value.layout.grads
    return None if grads is None or grads.out is None else np.asarray(value.grad_out.to_numpy())


def _item_name(value: Any) -> str:
    return value.dtype.name if isinstance(value, NDBuffer) else "Tuple"

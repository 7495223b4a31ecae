"""KernelFunction: a kernel of a slang-torch module as a function that PyTorch differentiates.

It allocates the tensors that the kernel writes, and gradients of those that it reads. It changes no tensor of its
caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch

from slangpy_rt.calls.command_list import CommandList
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.wording import in_words
from slangpy_rt.interop.torch_callable import TorchCallable
from slangpy_rt.slangtorch.bound_kernel import groups_for, suited_block
from slangpy_rt.slangtorch.kernel_code import Triple
from slangpy_rt.slangtorch.kernel_gradients import KernelGradients
from slangpy_rt.slangtorch.kernel_operator import operator_of
from slangpy_rt.slangtorch.kernel_protocols import LaunchesByName
from slangpy_rt.slangtorch.parameter import Parameter

# Replaces tensors that PyTorch keeps.
_PLACE = torch.empty(0)
# The most numbers of threads whose thread groups are remembered.
_KEPT = 1024
Like = str | Callable[[Mapping[str, Any]], tuple[Sequence[int], torch.dtype]]


class KernelFunction(TorchCallable):
    """A kernel as a function: its inputs are the arguments that it reads, its results the tensors that it writes.

    Attributes
    ----------
    kernel : TorchKernel
        The kernel.
    inputs : dict of str to Parameter
        The inputs' parameters by name.
    outputs : dict of str
        The results by name, in the order of the kernel's parameters.
    pairs_out : list of bool
        Which of the results have gradients.
    has_plain : bool
        Whether one of the results has no gradient.
    consume : bool
        As given to ``TorchKernel.function``.

    Parameters
    ----------
    kernel : TorchKernel
        The kernel.
    outputs, threads, block, consume
        As for ``TorchKernel.function``, which lists the errors raised.
    """

    def __init__(
        self,
        kernel: LaunchesByName,
        outputs: Mapping[str, Like],
        threads: Callable[[Mapping[str, Any]], Any] | Sequence[int],
        block: tuple[int, int, int] | None = None,
        consume: bool = False,
    ) -> None:
        where = f"{kernel.code}.function"
        params = dict(kernel.code.params)
        if not isinstance(outputs, Mapping) or not outputs:
            raise ValueError(f"{where}: outputs is {in_words(outputs)}; a dict of the parameters that it writes.")
        for name, like in outputs.items():
            if name not in params:
                raise ValueError(f"{where}: outputs has '{name}'; the parameters are {', '.join(params)}.")
            if not callable(like) and (like not in params or like in outputs):
                raise ValueError(
                    f"{where}: outputs['{name}'] is {in_words(like)}; the name of an input, or a function that "
                    "returns (shape, dtype) was expected."
                )
        if not callable(threads) and not _is_size(threads):
            raise ValueError(
                f"{where}: threads is {in_words(threads)}; a function or up to three ints were expected."
            )
        if block is not None and not (_is_size(block) and len(block) == 3 and min(block) > 0):
            raise ValueError(f"{where}: block is {in_words(block)}; a tuple of three ints was expected.")
        if type(consume) is not bool:
            raise ValueError(f"{where}: consume is {in_words(consume)}; True or False was expected.")
        for name, parameter in params.items():
            if kernel.differentiable and parameter.keeps_gradients:
                raise UnsupportedError(
                    f"{where}: '{name}' keeps gradients in a struct of its own; write the torch.autograd.Function."
                )
        self.name = kernel.name
        self.kernel = kernel
        self.consume = consume
        self.inputs: dict[str, Parameter] = {n: p for n, p in params.items() if n not in outputs}
        self.outputs = {name: outputs[name] for name in params if name in outputs}
        self.pairs_out = [params[name].is_pair for name in self.outputs]
        self.has_plain = not all(self.pairs_out)
        # Inputs that are or hold tensors that are pairs in Slang; ``_flat``: whether each is one itself.
        self._pairs = [name for name, p in self.inputs.items() if p.has_pairs]
        self._others = [name for name in self.inputs if name not in self._pairs]
        self._flat = all(self.inputs[name].is_pair for name in self._pairs)
        # If all parameters are pairs: their places among the pairs of the inputs, followed by those of the results.
        places = [*self._pairs, *self.outputs]
        every_pair = self._flat and not self._others and not self.has_plain
        self._order = [places.index(name) for name in params] if every_pair else []
        self._threads = threads if callable(threads) else tuple(threads)
        self._block = block
        # Size and number of the thread groups, by the number of threads that ``threads`` returned.
        self._geometry: dict[Any, tuple[Triple, Triple]] = {}
        self._where = where
        self._names = tuple(self.inputs)
        self.signature = f"{self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        """Run the kernel on its inputs, by position in their order, or by name.

        Returns
        -------
        torch.Tensor or tuple of torch.Tensor
            The tensors that it wrote, in the order of its parameters. Elements that it did not write are zero.

        Raises
        ------
        ValueError, TypeError, TensorError, LaunchError, CompileError, UnsupportedError
            As the kernel's call and launch do; ValueError also if a tensor requires a gradient and the kernel has no
            derivative.
        """
        given = self._named(args, named)
        if torch.is_grad_enabled():
            leaves = self._leaves(given)
            # A loop: a generator expression takes 1 us more.
            for leaf in leaves:
                if leaf.requires_grad:
                    if not self.kernel.differentiable:
                        raise ValueError(
                            f"{self._where}: a tensor requires a gradient, and the kernel has no derivative; mark it "
                            "[Differentiable], or call under torch.no_grad()."
                        )
                    made: Any = KernelGradients.apply(self, given, *leaves)  # type: ignore[no-untyped-call]
                    return made[0] if len(made) == 1 else made
        made, _ = self.run(given)
        return made[0] if len(made) == 1 else made

    def append_to(self, commands: CommandList, /, *args: Any, **named: Any) -> Any:
        """Record the kernel in a command list instead of running it; nothing is differentiated.

        The list keeps the tensors. The results are zeros now: a kernel that adds to them adds once more with each
        submission.

        Returns
        -------
        torch.Tensor or tuple of torch.Tensor
            The tensors that the list will write, in the order of the kernel's parameters.

        Raises
        ------
        BindError, ValueError, TypeError, TensorError, LaunchError, CompileError, UnsupportedError
            As the kernel's call and ``BoundKernel.append_to`` do.
        """
        given = self._named(args, named)
        made = self._made(given)
        every = given | made
        self.kernel(**every).append_to(commands, *self._sizes(every))
        results = tuple(made.values())
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return f"<function {self.signature}>"

    def run(self, given: dict[str, Any]) -> tuple[tuple[torch.Tensor, ...], tuple[Triple, Triple]]:
        """Allocate the results and launch the kernel; return them, and the size and the number of the groups."""
        made = self._made(given)
        every = given | made
        sizes = self._sizes(every)
        self.kernel.launch(every, *sizes)
        return tuple(made.values()), sizes

    def backward(
        self,
        given: dict[str, Any],
        sizes: tuple[Triple, Triple],
        leaves: Sequence[torch.Tensor],
        made: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor | None],
        wanted: Sequence[bool],
        consume: bool,
    ) -> list[torch.Tensor | None]:
        """Run the backward derivative.

        Parameters
        ----------
        given : dict
            The inputs, as ``without_leaves`` returns them.
        sizes : tuple
            The size and the number of the thread groups.
        leaves : sequence of torch.Tensor
            The tensors of the inputs that are pairs in Slang.
        made, gradients : sequence of torch.Tensor
            The results and their gradients; None for one without.
        wanted : sequence of bool
            Which of ``leaves`` need gradients.
        consume : bool
            Whether the kernel may leave zeros in ``gradients``.

        Returns
        -------
        list of (torch.Tensor or None)
            Gradients of ``leaves``: 32-bit floats, as ``_spy_AtomicAdd`` has them, whatever the values' dtype.
        """
        found: list[torch.Tensor | None] = []
        for leaf, needed in zip(leaves, wanted, strict=True):
            found.append(torch.zeros_like(leaf, dtype=torch.float32) if needed else None)
        own: list[torch.Tensor | None] = []
        some = False
        for gradient in gradients:
            own.append(None if gradient is None else _own(gradient, consume))
            some = some or gradient is not None
        if not some:
            return found
        # A pair with None is a value without gradient.
        pairs = [*zip(leaves, found, strict=True), *zip(made, own, strict=True)]
        if given or consume or not self._launched_flat(pairs, sizes):
            every = self.with_leaves(given, pairs[: len(leaves)])
            for name, is_pair, pair in zip(self.outputs, self.pairs_out, pairs[len(leaves) :], strict=True):
                every[name] = pair if is_pair else pair[0]
            self.kernel.bwd.launch(every, *sizes)
        return found

    def gradients(self, given: dict[str, Any], made: list[Any], gradients: list[Any]) -> list[Any]:
        """Return the gradients of all inputs that are pairs in Slang; those of the results are not changed."""
        leaves = self._leaves(given)
        sizes = self._sizes(given | dict(zip(self.outputs, made, strict=True)))
        rest = self.without_leaves(given, leaves)
        return self.backward(rest, sizes, leaves, made, gradients, [True] * len(leaves), False)

    def alike(self, given: dict[str, Any]) -> list[torch.Tensor]:
        """Return tensors of the shapes and dtypes of the results, with undefined contents."""
        made = []
        for name, like in self.outputs.items():
            if isinstance(like, str):
                model = self._model(name, like, given)
                made.append(torch.empty_like(model, memory_format=torch.contiguous_format))
            else:
                shape, dtype = self._told(name, like, given)
                home = next((value.device for value in given.values() if isinstance(value, torch.Tensor)), None)
                made.append(torch.empty(shape, dtype=dtype, device=home))
        return made

    def operator(self, name: str) -> Any:
        return operator_of(self, name)

    @property
    def parameter_names(self) -> Sequence[str]:
        return list(self.inputs)

    def without_leaves(self, given: dict[str, Any], leaves: Sequence[torch.Tensor]) -> dict[str, Any]:
        """Return the inputs without the tensors that are pairs in Slang: ``leaves``."""
        # A pair that is given as a tuple, ``(value,)``, has no gradient and stays.
        if self._flat and len(leaves) == len(self._pairs):
            return {name: given[name] for name in self._others} if self._others else {}
        return {name: p.replaced(given[name], lambda _: _PLACE) for name, p in self.inputs.items()}

    def with_leaves(self, given: dict[str, Any], values: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs that ``without_leaves`` returned, with ``values`` for the missing tensors, in order."""
        if self._flat and len(given) == len(self._others):
            return given | dict(zip(self._pairs, values, strict=True))
        rest = iter(values)
        return {name: p.replaced(given[name], lambda _: next(rest)) for name, p in self.inputs.items()}

    def _leaves(self, given: dict[str, Any]) -> list[torch.Tensor]:
        """Return the tensors of the inputs that are pairs in Slang."""
        if self._flat:
            values = [given[name] for name in self._pairs]
            for value in values:
                if not isinstance(value, torch.Tensor):
                    break
            else:
                return values
        found: list[torch.Tensor] = []
        for name in self._pairs:
            self.inputs[name].replaced(given[name], found.append)
        return found

    def _launched_flat(self, pairs: Sequence[tuple[Any, Any]], sizes: tuple[Triple, Triple]) -> bool:
        """Launch the backward derivative with pairs like those of its last launch; return False if they are not."""
        flat: list[Any] = []
        form = []
        for k in self._order:
            value, gradient = pairs[k]
            if gradient is None:
                flat.append(value)
                form.append(1)
            else:
                flat += (value, gradient)
                form.append(2)
        return self.kernel.bwd.launch_flat(flat, form, *sizes)

    def _sizes(self, every: dict[str, Any]) -> tuple[Triple, Triple]:
        """Return the size and the number of the thread groups for a call with these arguments."""
        threads = self._threads
        if callable(threads):
            threads = threads(MappingProxyType(every))
        try:
            return self._geometry[threads]
        except (KeyError, TypeError):
            return self._sized(threads)

    def _sized(self, threads: Any) -> tuple[Triple, Triple]:
        """Return the size and the number of the thread groups for so many threads, and remember them."""
        given = (threads,) if isinstance(threads, int) else threads
        if not _is_size(given):
            raise ValueError(f"{self._where}: threads returned {in_words(threads)}; up to three ints, x first.")
        x, y, z = (*map(int, given), 1, 1, 1)[:3]
        block = self._block or suited_block((x, y, z))
        found = block, groups_for((x, y, z), block)
        if len(self._geometry) >= _KEPT:
            self._geometry.clear()
        if isinstance(threads, (int, tuple)):
            self._geometry[threads] = found
        return found

    def _named(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = self._names
        given = dict(zip(names, args))  # noqa: B905 (fewer arguments are refused below)
        if not named and len(args) == len(names):
            return given
        if named:
            given |= named
        if len(args) + len(named) != len(names) or given.keys() != self.inputs.keys():
            raise ValueError(
                f"{self._where}: {len(args)} arguments by position and {', '.join(named) or 'none'} by name; its "
                f"inputs are {', '.join(names) or 'none'}."
            )
        return given

    def _made(self, given: dict[str, Any]) -> dict[str, torch.Tensor]:
        """Allocate the results."""
        made: dict[str, torch.Tensor] = {}
        home: torch.device | None = None
        for name, like in self.outputs.items():
            if isinstance(like, str):
                model = self._model(name, like, given)
                made[name] = torch.zeros_like(model, memory_format=torch.contiguous_format)
            else:
                shape, dtype = self._told(name, like, given)
                home = home or self.kernel.code.home(self.inputs, given)
                made[name] = torch.zeros(shape, dtype=dtype, device=home)
        return made

    def _model(self, name: str, like: str, given: dict[str, Any]) -> torch.Tensor:
        """Return the input whose shape and dtype a result has."""
        model = given[like]
        if not isinstance(model, torch.Tensor):
            raise ValueError(f"{self._where}: '{name}' is to be like '{like}', which is {in_words(model)}.")
        return model

    def _told(self, name: str, like: Any, given: dict[str, Any]) -> tuple[tuple[Any, ...], torch.dtype]:
        """Return the shape and the dtype of a result from the function in ``outputs``."""
        found = like(MappingProxyType(given))
        if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], torch.dtype):
            raise ValueError(
                f"{self._where}: outputs['{name}'] returned {in_words(found)}; (shape, torch.dtype) was expected."
            )
        shape = (found[0],) if isinstance(found[0], int) else tuple(found[0])
        return shape, found[1]


def _is_size(value: Any) -> bool:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) <= 3
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)
    )


def _own(gradient: torch.Tensor, consume: bool) -> torch.Tensor:
    """Return a result's gradient, in which the kernel leaves zeros: a copy unless it may ``consume`` it."""
    if gradient.dtype is not torch.float32:
        return gradient.to(torch.float32, memory_format=torch.contiguous_format)
    return gradient.contiguous() if consume else gradient.clone(memory_format=torch.contiguous_format)

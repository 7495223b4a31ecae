"""Protocols: the members of a kernel that KernelFunction uses, and those of KernelFunction that others use.

They are for type checkers only, so that the classes themselves import each other in one direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from slangpy_rt.slangtorch.bound_kernel import BoundKernel
from slangpy_rt.slangtorch.kernel_code import KernelCode, Triple
from slangpy_rt.slangtorch.parameter import Parameter

Sizes = tuple[Triple, Triple]


class LaunchesByName(Protocol):
    """A kernel, as ``TorchKernel`` is."""

    name: str
    code: KernelCode

    @property
    def differentiable(self) -> bool:
        """Whether it has derivatives."""

    @property
    def bwd(self) -> LaunchesByName:
        """The kernel's backward derivative."""

    def __call__(self, /, **named: Any) -> BoundKernel:
        """Bind all arguments."""

    def launch(self, given: Mapping[str, Any], block: Triple, grid: Triple) -> None:
        """Launch the kernel with all arguments."""

    def launch_flat(self, given: Sequence[Any], form: list[int], block: Triple, grid: Triple) -> bool:
        """Launch the kernel with tensors like those of the launch before."""


class HasGradients(Protocol):
    """A function of a kernel's inputs, as ``KernelFunction`` is; its members are explained there."""

    name: str
    kernel: LaunchesByName
    inputs: dict[str, Parameter]
    outputs: dict[str, Any]
    pairs_out: list[bool]
    has_plain: bool
    consume: bool

    def run(self, given: dict[str, Any]) -> tuple[tuple[Any, ...], Sizes]:
        """Allocate the results and launch the kernel."""

    def without_leaves(self, given: dict[str, Any], leaves: Sequence[Any]) -> dict[str, Any]:
        """Return the inputs without the tensors that are pairs in Slang."""

    def backward(
        self,
        given: dict[str, Any],
        sizes: Sizes,
        leaves: Sequence[Any],
        made: Sequence[Any],
        gradients: Sequence[Any],
        wanted: Sequence[bool],
        consume: bool,
    ) -> list[Any]:
        """Run the backward derivative."""

    def gradients(self, given: dict[str, Any], made: list[Any], gradients: list[Any]) -> list[Any]:
        """Return the gradients of the inputs that are pairs in Slang."""

    def alike(self, given: dict[str, Any]) -> list[Any]:
        """Return tensors of the shapes and dtypes of the results."""

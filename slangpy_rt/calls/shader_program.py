"""ShaderProgram: a module and some of its kernels, for programs that make kernels as SlangPy's do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words


@dataclass(frozen=True)
class ShaderProgram:
    """Kernels of a module. ``Device.load_program`` makes it.

    Attributes
    ----------
    module : Module
        The module.
    kernels : tuple of Kernel
        The kernels, in the order in which they were named.
    """

    module: Module
    kernels: tuple[Kernel, ...]

    def __repr__(self) -> str:
        return f"ShaderProgram({self.module.name}: {', '.join(k.name for k in self.kernels)})"


def program_of(module: Module, names: Any) -> ShaderProgram:
    """Return the program of kernels of a module, by their names.

    Raises
    ------
    BindError
        If ``names`` is no list of names, or the module has no kernel of a name.
    """
    where = "Device.load_program"
    if isinstance(names, str) or not isinstance(names, Sequence) or not all(isinstance(n, str) for n in names):
        raise BindError(f"{where}: entry_point_names is {in_words(names)}; a list of names of kernels was expected.")
    kernels = []
    for name in names:
        found = module[name]
        if not isinstance(found, Kernel):
            raise BindError(
                f"{where}: '{name}' of module '{module.name}' is no kernel; mark it [shader(\"compute\")] and "
                "[numthreads(x, y, z)]."
            )
        kernels.append(found)
    return ShaderProgram(module, tuple(kernels))


def kernel_of(program: Any) -> Kernel:
    """Return the only kernel of a program.

    Raises
    ------
    BindError
        If the value is no program, or has another number of kernels.
    """
    where = "Device.create_compute_kernel"
    if not isinstance(program, ShaderProgram):
        raise BindError(f"{where}: program is {in_words(program)}; what Device.load_program returns was expected.")
    if len(program.kernels) != 1:
        raise BindError(f"{where}: {program!r} has {len(program.kernels)} kernels; one was expected.")
    return program.kernels[0]

"""Import paths of public names from before the package was divided: ``from slangpy_rt.tensor import Tensor`` works.

Nothing in the package imports by these paths, and a new public name gets none.
"""

import sys
from types import ModuleType
from typing import Any, NoReturn

FORMER_PATHS = {
    "command_list": "calls.command_list",
    "errors": "core.errors",
    "function": "calls.function",
    "generators": "arguments.indices",
    "instances": "calls.instances",
    "kernel": "calls.raw_kernel",
    "module": "calls.module",
    "ndbuffer": "arrays.ndbuffer",
    "pairs": "arrays.differentiable",
    "profile": "runtime.profile",
    "random_numbers": "arguments.random_numbers",
    "refs": "arrays.value_ref",
    "selection": "backends.selection",
    "stream": "runtime.stream",
    "struct": "calls.struct",
    "tensor": "arrays.tensor",
    "vectors": "arguments.vectors",
}


def register() -> None:
    """Enter each former path into ``sys.modules``."""
    for former, present in FORMER_PATHS.items():
        sys.modules[f"slangpy_rt.{former}"] = sys.modules[f"slangpy_rt.{present}"]


def module_of(name: str, meant: str) -> ModuleType:
    """Return the module of a former path as an attribute of the package; a call of it says what was meant."""
    module = sys.modules[f"slangpy_rt.{name}"]

    class Named(ModuleType):
        def __getattr__(self, attribute: str) -> Any:
            return getattr(module, attribute)

        def __dir__(self) -> list[str]:
            return dir(module)

        def __call__(self, *args: Any, **named: Any) -> NoReturn:
            raise TypeError(f"slangpy_rt.{name} is a module" + (f"; {meant}." if meant else "."))

    return Named(module.__name__, module.__doc__)

"""Import paths of public names from before the package was divided: ``from slangpy_rt.tensor import Tensor`` works.

Nothing in the package imports by these paths, and a new public name gets none.
"""

import sys

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
    """Enter each former path into ``sys.modules``; as attributes they would hide what ``spy.tensor(...)`` is told."""
    for former, present in FORMER_PATHS.items():
        sys.modules[f"slangpy_rt.{former}"] = sys.modules[f"slangpy_rt.{present}"]

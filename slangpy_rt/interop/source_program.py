"""SourceProgram: a kernel's text loaded for one device and one set of macros, with choices among them or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slangpy_rt.arguments.bind_array import may_write
from slangpy_rt.calls.module import Module
from slangpy_rt.calls.raw_kernel import Kernel
from slangpy_rt.calls.tuned import Tuned
from slangpy_rt.core.dtypes import BFLOAT16, element_type
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import is_whole
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.tuning.config import Config, product_of, value_of

# The macro that num_warps defines, and the threads of a warp.
WARPS = "NUM_WARPS"
_WARP, _MOST_WARPS = 32, 32


class SourceProgram:
    """A kernel's text with its macros.

    Parameters
    ----------
    title : str
        The name of the text's modules.
    source : str
        The text.
    device : Device
        The device.
    defines : mapping
        Macros; a list has choices.
    grouped : bool
        Whether the macro ``NUM_WARPS`` is the size of a thread group, in warps.
    policy : mapping
        Parameters of ``Tuned.tune``.

    Attributes
    ----------
    function : Kernel or Tuned
        The kernel; Tuned, if there are choices.

    Raises
    ------
    BindError
        If a macro is of another kind, or the text has not exactly one kernel.
    CompileError
        If Slang refuses the text.
    """

    def __init__(
        self,
        title: str,
        source: str,
        device: Device,
        defines: Mapping[str, Any],
        grouped: bool,
        policy: Mapping[str, Any],
    ) -> None:
        self._title = title
        self._source = source
        self._device = device
        self._grouped = grouped
        lists = {name: _macros(name, v) for name, v in defines.items()}
        if grouped and not all(is_whole(n) and 1 <= n <= _MOST_WARPS for n in lists[WARPS]):
            raise BindError(
                f"kernel: num_warps is {in_words(defines[WARPS])}; whole numbers from 1 to {_MOST_WARPS} were "
                "expected."
            )
        self._fixed = {name: v[0] for name, v in lists.items() if len(v) == 1}
        choices = {name: v for name, v in lists.items() if len(v) != 1}
        self._kernels: dict[Config, Kernel] = {}
        configs = product_of("kernel: defines", choices)
        first = self._kernel(configs[0])
        self.function: Any = first
        if choices:
            self.function = Tuned(first.name, self._kernel, configs).tune(**policy)
        params = [p for p in first.entry.params if not p.semantic]
        written = [(k, p.name) for k, p in enumerate(params) if p.type.kind != "pointer" and may_write(p.type)]
        pointers = [(k, p.name) for k, p in enumerate(params) if p.type.kind == "pointer" and may_write(p.type)]
        # The arguments that a call returns, by place and name.
        self._outputs = written or pointers[-1:]

    def threads(self, grid: Any) -> Any:
        """Return the threads of a grid of thread groups; a function of the configuration, if that decides."""
        if isinstance(self.function, Kernel):
            return self._threads(grid, Config({}))
        return lambda config: self._threads(grid, config)

    def tuned(self, method: str) -> Tuned:
        """Return the kernel as one with choices.

        Raises
        ------
        BindError
            If it has none.
        """
        if not isinstance(self.function, Tuned):
            raise BindError(f"kernel.{method}: '{self.function.name}' has no choices; give a list in defines.")
        return self.function

    def whole(self, config: Config) -> Config:
        """Return a configuration with the macros of one value too."""
        return Config({**self._fixed, **config})

    def written(self, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """Return the arguments that a call returns: one, a tuple, or None."""
        found = [args[k] if k < len(args) else named.get(name) for k, name in self._outputs]
        return tuple(found) if len(found) > 1 else found[0] if found else None

    def _threads(self, grid: Any, config: Config) -> tuple[int, ...]:
        groups = grid(self.whole(config)) if callable(grid) else grid
        sizes = tuple(groups) if isinstance(groups, (tuple, list)) else (groups,)
        if not 1 <= len(sizes) <= 3 or not all(is_whole(n) and n >= 0 for n in sizes):
            raise BindError(f"kernel: grid is {in_words(groups)}; one to three whole numbers were expected.")
        group = self._kernel(config).threads_of_group
        return tuple(int(n) * size for n, size in zip((*sizes, 1, 1), group, strict=False))

    def _kernel(self, config: Config) -> Kernel:
        found = self._kernels.get(config)
        if found is None:
            macros = self.whole(config)
            module = Module.load_from_source(self._device, self._title, self._source, defines=macros)
            names = [entry.name for entry in module.info.entry_points]
            if len(names) != 1:
                raise BindError(
                    f"kernel: the text has {len(names)} functions with [numthreads]"
                    f"{': ' if names else ''}{', '.join(names)}; exactly one was expected."
                )
            kernel: Kernel = module[names[0]]
            if self._grouped:
                kernel = kernel.group_size(_WARP * macros[WARPS])
            found = self._kernels.setdefault(config, kernel)
        return found


def _macros(name: str, value: Any) -> list[Any]:
    """Return the choices of a macro; a list of one, if it has none."""
    values = value if isinstance(value, list) else [value]
    return [_macro(f"kernel: defines['{name}']", v) for v in values]


def _macro(where: str, value: Any) -> Any:
    """Return a macro's value as text or a number; element types become their names in Slang."""
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        from slangpy_rt.interop.torch_types import element_of_dtype

        found = element_of_dtype(value)
        if found is None or found is BFLOAT16:
            raise BindError(f"{where} is {value}, which Slang has no type for; give text.")
        return found.name
    if isinstance(value, type) or hasattr(value, "slang_type") or type(value).__module__.startswith("numpy.dtype"):
        return element_type(where, value).name
    return value_of(where, value)

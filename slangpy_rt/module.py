"""Module: a Slang module on a device; its functions are attributes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slangpy_rt.errors import BindError
from slangpy_rt.function import Function
from slangpy_rt.source import Source, read_source
from slangpy_rt.types import FunctionSig, ModuleInfo

if TYPE_CHECKING:
    from slangpy_rt.device import Device


class Module:
    """The functions of a Slang module, ready to be called on a device.

    Make one with ``load_from_file`` or ``load_from_source``. ``module.add`` is the function ``add``,
    ``module["add"]`` too; ``dir(module)`` lists what there is.
    """

    def __init__(self, device: Device, source: Source) -> None:
        self.device = device
        self._source = source
        self._overloads: dict[str, list[FunctionSig]] = {}
        for sig in source.info.functions:
            self._overloads.setdefault(sig.name, []).append(sig)

    @classmethod
    def load_from_file(cls, device: Device, path: str | Path, defines: Mapping[str, Any] | None = None) -> Module:
        """Load a Slang file.

        Parameters
        ----------
        device : Device
            Where its functions will run.
        path : path
            As given, or in one of the device's include paths.
        defines : mapping, optional
            Preprocessor macros.

        Raises
        ------
        CompileError
            If there is no such file, or Slang refuses it; the message has the line and a caret.
        """
        where = "Module.load_from_file"
        found, text = read_source(where, path, device.include_paths)
        return cls(device, _source(device, Path(found).stem, found, text, defines))

    @classmethod
    def load_from_source(
        cls, device: Device, name: str, source: str, defines: Mapping[str, Any] | None = None
    ) -> Module:
        """Load Slang text.

        Parameters
        ----------
        device : Device
            Where its functions will run.
        name : str
            What diagnostics call it.
        source : str
            The text.
        defines : mapping, optional
            Preprocessor macros.

        Raises
        ------
        CompileError
            If Slang refuses it; the message has the line and a caret.
        """
        return cls(device, _source(device, name, f"{name}.slang", source, defines))

    @property
    def name(self) -> str:
        """What the module is called."""
        return self._source.name

    @property
    def info(self) -> ModuleInfo:
        """Everything that it declares."""
        return self._source.info

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_") or name not in self._overloads:
            raise AttributeError(
                f"module '{self.__dict__['_source'].name}' has no function '{name}'; it has "
                f"{', '.join(self._overloads) or 'none'}."
                if not name.startswith("_")
                else name
            )
        function = Function(self.device, self._source, tuple(self._overloads[name]))
        # The next look-up finds it without coming here.
        self.__dict__[name] = function
        return function

    def __getitem__(self, name: str) -> Function:
        if name not in self._overloads:
            raise BindError(
                f"module '{self.name}' has no function '{name}'; it has {', '.join(self._overloads) or 'none'}."
            )
        found: Function = getattr(self, name)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._overloads})

    def __repr__(self) -> str:
        return f"Module({self.name!r} on {self.device.name}: {', '.join(self._overloads) or 'no functions'})"


def _source(device: Device, name: str, path: str, text: str, defines: Mapping[str, Any] | None) -> Source:
    flags = tuple(sorted((k, str(int(v)) if isinstance(v, bool) else str(v)) for k, v in (defines or {}).items()))
    return Source(device.cache, device.backend.target, name, path, text, device.include_paths, flags)

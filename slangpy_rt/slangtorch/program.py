"""Program: one Slang file with its options, and a Source for each target of the devices that it runs on."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from slangpy_rt.calls.spelling import Spelling
from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.device import Device
from slangpy_rt.slang.files import Places
from slangpy_rt.slang.shader_modules import SLANGTORCH
from slangpy_rt.slang.source import Source
from slangpy_rt.slang.text import declared
from slangpy_rt.slangtorch.devices import Devices
from slangpy_rt.slangtorch.headers import find_headers
from slangpy_rt.slangtorch.kernel_text import MACROS, struct_names


class Text(NamedTuple):
    """A Slang file as it was when it was read, and its options: ``flags`` are Slang's, ``options`` NVRTC's."""

    name: str
    path: str
    text: str
    places: Places
    folders: tuple[str, ...]
    defines: tuple[tuple[str, str], ...]
    flags: tuple[str, ...]
    options: tuple[str, ...]


class Program:
    """A Slang file with its options. It never changes: an edited file is a new program.

    Attributes
    ----------
    source : Source
        The module as the first device compiles it.
    names : dict of str to str
        The names that ``[PyExport]`` gives to structs, by their names in Slang.
    hidden : tuple of str
        Slang's own names that the module's declarations hide.
    prelude : str
        Lines at the beginning of its kernels' CUDA text: options of NVRTC, and a digest of the included headers.

    Parameters
    ----------
    text : Text
        The file.
    devices : Devices
        The devices that its kernels run on.
    device : Device
        The device for which it is compiled first, to learn what it declares.

    Raises
    ------
    CompileError
        If Slang refuses the text.
    UnsupportedError
        If it calls ``printf``, or has global uniforms, which cannot be set.
    BindError
        If it declares a word of Slang's that every kernel needs.
    """

    def __init__(self, text: Text, devices: Devices, device: Device) -> None:
        self.text, self.devices = text, devices
        # Names that the file declares itself are not replaced by macros.
        own = declared(text.text)
        self.defines = (*text.defines, *(macro for macro in MACROS if macro[0] not in own))
        self._lock = threading.Lock()
        self._sources: dict[Target, Source] = {}
        self.source = self.source_on(device)
        self.hidden = Spelling(text.name, self.source).hidden
        texts = [(text.path, text.text), *((path, _read(path)) for path, _ in self.source.info.dependencies)]
        self.names = {struct: name for _, each in texts for struct, name in struct_names(each).items()}
        self.others = tuple([text for _, text in texts[1:]])
        self._headers = find_headers(texts, text.folders)
        lines = [*text.options, *(f"--include-path={folder}" for folder in self._headers.folders)]
        prelude = [f"#pragma slangpy_rt_nvrtc {line}" for line in lines]
        if self._headers.files:
            prelude.append(f"// {self._headers.digest}")
        # Each ends its line: Slang puts nothing between preludes.
        self.prelude = "".join(f"{line}\n" for line in prelude)

    def source_on(self, device: Device, target: Target | None = None) -> Source:
        """Return the module as a device compiles it, by default for the device's target.

        Raises
        ------
        CompileError
            If Slang refuses the text there, or a file that it imports changed since it was read.
        """
        target = target or device.backend.target
        with self._lock:
            found = self._sources.get(target)
            if found is None:
                name, path, text, places, folders, _, flags, _ = self.text
                if flags and target.program:
                    raise UnsupportedError(
                        f"module '{name}': extraSlangFlags are not for {device!r}, which compiles by itself; leave "
                        "them out or use another device."
                    )
                own = replace(target, flags=(*target.flags, *flags))
                found = Source(
                    device.cache, own, name, path, text, (*folders, *device.include_paths),
                    self.defines, places=places, auto_import=SLANGTORCH,
                )  # fmt: skip
                _check(found)
                first = next(iter(self._sources.values()), found)
                found.check_files(first)
                self._sources[target] = found
            return found

    def changed(self) -> bool:
        """Tell whether one of its files has other contents now."""
        return self.source.changed() or self._headers.changed()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _check(source: Source) -> None:
    """Refuse a module with global uniforms or ``printf``, which have no effect in slang-torch's kernels."""
    uniforms = [param.name for param in source.info.uniforms]
    if uniforms:
        raise UnsupportedError(
            f"module '{source.name}': the global uniforms {', '.join(uniforms)} cannot be set; make them parameters."
        )
    if source.prints:
        raise UnsupportedError(f"module '{source.name}': it calls printf, which shows nothing here; take it out.")

"""The extension of IPython: ``%load_ext slangpy_rt`` adds ``%%slang``, and tracebacks that end at the cell's line."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from slangpy_rt.calls.module import Module
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.core.wording import in_words
from slangpy_rt.device import Device
from slangpy_rt.interop.opened_devices import named_device

_PACKAGE = str(Path(__file__).parent)
_USAGE = "%%slang NAME [DEVICE]"


def load_ipython_extension(shell: Any) -> None:
    """Add the cell magic ``%%slang`` to a shell of IPython, and shorten its tracebacks of this package's errors."""

    def slang(line: str, cell: str) -> None:
        """Make a Module of the cell's text.

            %%slang NAME [DEVICE]

        NAME is the variable that becomes the Module. DEVICE is a variable that holds a Device, or a type of device,
        such as cpu; the best device that is here if it is not given.
        """
        words = line.split()
        if not 1 <= len(words) <= 2 or not words[0].isidentifier():
            raise BindError(f"%%slang: {in_words(line.strip())}; {_USAGE} was expected, as in: %%slang shapes")
        device = _device(words[1] if len(words) > 1 else "", shell.user_ns)
        shell.user_ns[words[0]] = Module.load_from_source(device, words[0], cell)

    shell.register_magic_function(slang, "cell", "slang")
    shell.set_custom_exc((SlangPyRtError,), _shortened)


def unload_ipython_extension(shell: Any) -> None:
    """Take away what ``load_ipython_extension`` added."""
    shell.magics_manager.magics["cell"].pop("slang", None)
    shell.set_custom_exc((), None)


def _device(name: str, variables: dict[str, Any]) -> Device:
    found = variables.get(name)
    return found if isinstance(found, Device) else named_device(name or "automatic")


def _shortened(
    shell: Any, kind: type, error: SlangPyRtError, trace: TracebackType | None, tb_offset: Any = None
) -> None:
    """Show an error without the frames of this package behind the last one of the user's."""
    shell.showtraceback((kind, error, _users(trace)), tb_offset=tb_offset)


def _users(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames at its end that are of this package."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    while frames and frames[-1].tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames.pop()
    found: TracebackType | None = None
    for each in reversed(frames):
        found = TracebackType(found, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return found

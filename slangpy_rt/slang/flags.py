"""Options of Slang's command line, parsed by Slang itself into those that a session takes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

from slangpy_rt.core.errors import CompileError
from slangpy_rt.slang import _abi
from slangpy_rt.slang.com import ComPtr, Out

# Slang reports no error: it stops at an option that it refuses. This macro comes last, and is found if none was.
_END = "_spy_end"
# What a session does for every device. The other options choose targets, files and layouts, which are given, or write
# what nobody reads, or are for other compilers; a session takes most of them and ignores them. With -obfuscate Slang
# 2026.12 crashes; with -zero-initialize static variables have initial values, which the CPU drops.
_TAKEN = frozenset(
    {
        _abi.Capability, _abi.DebugInformation, _abi.DebugInformationFormat, _abi.DenormalModeFp16,
        _abi.DenormalModeFp32, _abi.DenormalModeFp64, _abi.DisableNonEssentialValidations, _abi.DisableShortCircuit,
        _abi.DisableWarning, _abi.DisableWarnings, _abi.EnableExperimentalPasses, _abi.EnableWarning,
        _abi.FloatingPointMode, _abi.IgnoreCapabilities, _abi.LanguageVersion, _abi.LoopInversion, _abi.MacroDefine,
        _abi.MatrixLayoutRow, _abi.MinimumSlangOptimization, _abi.Optimization, _abi.RestrictiveCapabilityCheck,
        _abi.UnscopedEnum, _abi.UseMSVCStyleBitfieldPacking, _abi.ValidateIr, _abi.ValidateUniformity,
        _abi.WarningsAsErrors,
    }
)  # fmt: skip


class Parsed(NamedTuple):
    """The options that flags stand for.

    Attributes
    ----------
    options : tuple of CompilerOptionEntry
        The options. Their texts lie in memory of ``owner``.
    owner : ComPtr or None
        An object of Slang's, which has to be kept as long as the options are used.
    whole : bool
        Whether Slang took all flags.
    elsewhere : bool
        Whether a flag is among those that are not for sessions: it chooses what a device does, as ``-profile`` and
        ``-matrix-layout-column-major`` do, or is for another compiler, as ``-Xnvrtc`` is.
    """

    options: tuple[_abi.CompilerOptionEntry, ...] = ()
    owner: ComPtr | None = None
    whole: bool = True
    elsewhere: bool = False


def parse_flags(root: ComPtr, flags: Sequence[str]) -> Parsed:
    """Parse flags by the global session ``root``.

    Raises
    ------
    CompileError
        If Slang refuses one, or one sets what a session may not change.
    """
    if not flags:
        return Parsed()
    at = 0
    while at < len(flags):
        # A flag ends with the first value with which Slang takes it.
        tried = (_parse(root, flags[at:end]) for end in range(at + 1, len(flags) + 1))
        count, found = next(((k, each) for k, each in enumerate(tried, 1) if each.whole), (0, None))
        if found is None:
            raise CompileError(
                f"extraSlangFlags: Slang refuses {flags[at]!r}, or the value that follows it; 'slangc -h' lists the "
                "flags."
            )
        if found.elsewhere or not found.options:
            raise CompileError(
                f"extraSlangFlags: {' '.join(flags[at : at + count])!r} has no place here: target, entry points, "
                "files and layouts are given, and flags of optimization, debug information, numbers, capabilities, "
                "warnings and the language are taken; leave it out."
            )
        at += count
    return _parse(root, flags)


def _parse(root: ComPtr, flags: Sequence[str]) -> Parsed:
    texts = [flag.encode() for flag in (*flags, f"-D{_END}")]
    arguments = (ctypes.c_char_p * len(texts))(*texts)
    desc, out = _abi.SessionDesc(structureSize=ctypes.sizeof(_abi.SessionDesc)), Out()
    status = root.call("IGlobalSession.parseCommandLineArguments", len(texts), arguments, ctypes.byref(desc), out.ref)
    owner = out.take()
    # There are no entries at all if Slang refuses the first flag.
    if status < 0 or owner is None or not desc.compilerOptionEntries:
        return Parsed(whole=False)
    entries = (_abi.CompilerOptionEntry * desc.compilerOptionEntryCount).from_address(desc.compilerOptionEntries)
    whole, elsewhere, options = False, desc.targetCount > 0, []
    for entry in entries:
        if entry.name == _abi.MacroDefine and entry.value.stringValue0 == _END.encode():
            whole = True
        elif entry.name == _abi.DownstreamArgs:  # Slang has such an entry for each compiler that it knows
            elsewhere = elsewhere or bool(entry.value.stringValue1)
        else:
            elsewhere = elsewhere or entry.name not in _TAKEN
            options.append(entry)
    return Parsed(tuple(options), owner, whole, elsewhere)

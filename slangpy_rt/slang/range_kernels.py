"""Loads kernels for C++, functions that run a range of elements, and refuses code that Slang would silently drop.

Slang 2026.12 drops some constructs that C++ cannot express, without an error; the kernel would compute wrong values.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from slangpy_rt.core.errors import CompileError, UnsupportedError
from slangpy_rt.slang.brackets import matching
from slangpy_rt.slang.com import ComPtr
from slangpy_rt.slang.emitted import emitted_name
from slangpy_rt.slang.files import read_file
from slangpy_rt.slang.module_info import global_variables
from slangpy_rt.slang.native_session import NativeSession
from slangpy_rt.slang.static_variables import statics
from slangpy_rt.slang.target_code import NEEDS_GROUPS, check_body, check_groups
from slangpy_rt.slang.text import blank

# The functions through which Slang finds one that C++ lacks, and where: "see using of 'Gather'\n --> m.slang:2:34".
_USING = re.compile(r"see using of '(\w+)'\n *--> (.*?):(\d+):\d+\n")
# What Slang calls a ``__target_switch`` there. It also blames one that has a case for C++.
_SWITCH = "statement"
_HAS_CPP = re.compile(r"\bdefault\s*:|\bcase\s+\w*cpp\w*\s*:")
_METHOD = re.compile(r"(?:Gather|CalculateLevelOfDetail)\w*")
_NO_METHOD = (
    "the function uses {used} of a texture, for which Slang writes nothing in C++. Use SampleLevel or Load, or run "
    "it on a device of type vulkan."
)


def load_range(session: NativeSession, name: str, text: str, entry: str, texts: Mapping[str, str]) -> ComPtr:
    """Load a kernel's text as a module and return the module.

    The text is loaded with ``[require(cpp)]`` before its function `entry` first, as only then Slang checks for
    functions that C++ lacks. Where such a function is inlined, Slang drops it and the statements around it.
    `texts` has the modules' texts by their paths.

    Raises
    ------
    UnsupportedError
        If the function needs thread groups, or uses a method of textures or a function of which there is no C++.
    CompileError
        If Slang refuses the text.
    """
    head = f"export __extern_cpp void {entry}("
    try:
        return session.load(f"{name}_cpp", f"{name}_cpp.slang", text.replace(head, f"[require(cpp)] {head}"))
    except CompileError as error:
        places = _USING.findall(str(error))
        used = [leaf for leaf, _, _ in places]
        check_groups(next((leaf for leaf in used if NEEDS_GROUPS.fullmatch(leaf)), ""))
        if used and _METHOD.fullmatch(used[-1]):
            raise UnsupportedError(_NO_METHOD.format(used=used[-1])) from error
        for (function, _, _), (leaf, path, line) in pairwise(places):
            if leaf == _SWITCH and not _has_cpp(texts.get(path) or _read(path), int(line)):
                check_body(function)
    # The check's other errors do not count, because it also refuses InterlockedAdd, which works.
    return session.load(name, f"{name}.slang", text)


def check_globals(native: ctypes.CDLL, used: Sequence[str], modules: Iterable[ComPtr], texts: Iterable[str]) -> None:
    """Refuse a kernel that uses a global variable whose initial value Slang drops.

    Parameters
    ----------
    native : CDLL
        The Slang library.
    used : sequence of str
        Names of the global variables that the kernel uses, as they are in target code: see ``emitted_name``.
    modules : iterable of ComPtr
        All loaded modules.
    texts : iterable of str
        Texts of the modules that ``load_module`` loaded.

    Raises
    ------
    UnsupportedError
        If the kernel uses a groupshared variable, or a static one with an initial value.
    """
    if not used:
        return
    # For each emitted name: the name in Slang text, whether it is static, and whether its initial value is lost.
    known: dict[str, list[tuple[str, bool, bool]]] = {}
    for module in modules:
        decl = module.call("IModule.getModuleReflection")
        for name, static, initial in global_variables(native, decl):
            # Slang drops the initial values of global variables in C++, so a variable that has one is refused.
            known.setdefault(emitted_name(name.rpartition(".")[2]), []).append((name, static, initial))
    for text in texts:
        for name, lost in statics(text):
            known.setdefault(emitted_name(name), []).append((name, True, lost))
    for emitted in used:
        # Slang may emit the same name for two variables; if one of them is refused, so is the other.
        for name, static, lost in known.get(emitted, [(emitted, True, True)]):
            if not static:
                check_groups(f"groupshared variable '{name}'")
            if lost:
                raise UnsupportedError(
                    f"the function uses the static variable '{name}', whose initial value is lost on this "
                    "device. Make it static const, or make it global and set it in the function."
                )


def _read(path: str) -> str:
    """Return the text of an included file; empty if there is none at a path."""
    try:
        return read_file(path).decode("utf-8", "replace")
    except OSError:
        return ""


def _has_cpp(text: str, line: int) -> bool:
    """Tell whether a ``__target_switch`` in a line has text for C++; one that is not found is taken to have it."""
    rest = "\n".join(blank(text).split("\n")[line - 1 :])
    if "__target_switch" not in rest.split("\n", 1)[0]:
        return True
    begin = rest.find("{", rest.find("__target_switch"))
    end = matching(rest, begin) if begin >= 0 else 0
    return not end or _HAS_CPP.search(rest, begin, end) is not None

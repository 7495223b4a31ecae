"""Which files a module is made of, and where Slang looked for them.

A file that was not there and now is can stand before the one that Slang took; a link can point elsewhere. So besides
the files themselves, every place is noted where one of them could have been found. It reads names out of text without
knowing which of them an ``#if`` hides: a place too many costs one look.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator

from slangpy_rt.core.errors import CompileError

_NAMED = re.compile(r'\b(?:import|__import|__include|implementing)\b\s*([\w.]+(?:\s*/\s*[\w.]+)*|"[^"\n]*")')
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]', re.M)
_SLANGS_OWN = re.compile(r"^[ \t]*(?:__exported[ \t]+)?import[ \t]+\"?(core|glsl)\"?[ \t]*;", re.M)
# Of a file that only is to be looked at: a pipe must not make the reader wait.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def read_file(path: str) -> bytes:
    """Contents of an ordinary file.

    Raises
    ------
    OSError
        If it cannot be read, or is a folder, a pipe or a device.
    """
    handle = os.open(path, _FLAGS)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError("it is no ordinary file")
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(handle)


def decoded(where: str, data: bytes) -> str:
    """Slang text of a file's bytes: without a byte order mark, with line feeds alone.

    Raises
    ------
    CompileError
        If it is not UTF-8, or holds a NUL, at which Slang would stop to read.
    """
    try:
        return checked(where, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CompileError(f"{where} is not UTF-8 text ({error.reason} at byte {error.start}).") from None


def checked(where: str, text: str) -> str:
    """Slang text as the compiler can have it.

    Raises
    ------
    CompileError
        If UTF-8 cannot express it, or it holds a NUL, at which Slang would stop to read.
    """
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise CompileError(f"{where} holds a NUL character in line {line}; Slang text ends there. Take it out.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CompileError(f"{where} is not Unicode text ({error.reason} at character {error.start}).") from None
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def dependencies(paths: list[str], own: str) -> tuple[tuple[tuple[str, str], ...], list[tuple[str, str]]]:
    """Files with the digests of their bytes, by path, and with their texts; of text that is no file there is none.

    Parameters
    ----------
    paths : list of str
        As Slang has them.
    own : str
        The module's own, whose text is in memory.

    Raises
    ------
    CompileError
        If one is no text that Slang reads to its end.
    """
    digests, texts = {}, []
    for path in paths:
        if not os.path.isfile(path) or (path == own and not os.path.isabs(own)):  # noqa: PTH113, PTH117
            continue
        full = os.path.realpath(path)
        try:
            data = read_file(full)
        except OSError as error:
            raise CompileError(f"'{full}' cannot be read: {error}.") from None
        digests[full] = hashlib.sha256(data).hexdigest()
        if path != own:
            texts.append((full, decoded(f"'{full}'", data)))
    return tuple(sorted(digests.items())), texts


def places(texts: list[tuple[str, str]], folders: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Every path under which Slang may have looked for a file, and the file that is there; empty where there is none.

    Parameters
    ----------
    texts : list of (str, str)
        Path and text of each file.
    folders : tuple of str
        Where Slang looks besides the folder of the file itself.
    """
    found: dict[str, str] = {}
    for path, text in texts:
        beside = os.path.dirname(path)  # noqa: PTH120 - empty for text without a file
        for name in dict.fromkeys(_names(text)):
            for folder in (beside, *folders):
                place = os.path.abspath(os.path.join(folder, name))  # noqa: PTH100, PTH118
                if place not in found:
                    found[place] = real(place)
    return tuple(sorted(found.items()))


def check_imports(path: str, text: str, folders: tuple[str, ...]) -> None:
    """Refuse to import a file for which Slang 2026.12 would give a module of its own.

    Raises
    ------
    CompileError
        If the text, of that path, does.
    """
    for name in _SLANGS_OWN.findall(text):
        for folder in (os.path.dirname(path), *folders):  # noqa: PTH120
            file = os.path.abspath(os.path.join(folder, f"{name}.slang"))  # noqa: PTH100, PTH118
            if os.path.isfile(file):  # noqa: PTH113
                raise CompileError(
                    f"{path}: 'import {name}' is the compiler's own module of that name, never '{file}'; "
                    "rename the file."
                )


def real(path: str) -> str:
    """The file behind all links; empty if there is none."""
    return os.path.realpath(path) if os.path.isfile(path) else ""  # noqa: PTH113


def _names(text: str) -> Iterator[str]:
    """Files that a text may name, as relative paths."""
    for name in _INCLUDED.findall(text):
        yield name
    for name in _NAMED.findall(text):
        bare = name.strip('"') if name[0] == '"' else re.sub(r"\s*[./]\s*", "/", name)
        for spelled in dict.fromkeys((bare, bare.replace("_", "-"))):
            if name[0] == '"':
                yield spelled
            yield f"{spelled}.slang"
            yield f"{spelled}.slang-module"

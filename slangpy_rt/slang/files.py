"""The files of a module: functions that find and read them, and that list the paths at which Slang looked for them.

Slang takes the first file that it finds under a name. A file that is created later may precede that one in the search
order, and a symbolic link may be changed. So the result lists every path at which one of the files could have been
found. Names are read from text regardless of ``#if``: a superfluous path costs one look at the file system.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from slangpy_rt.core.errors import CompileError
from slangpy_rt.core.paths import absolute, normalized, resolved, working_directory
from slangpy_rt.core.regular_file import open_regular
from slangpy_rt.slang.locate import shader_directory
from slangpy_rt.slang.shader_modules import is_ours

# Pairs of a path at which a file was looked for and the resolved path of the file found there; empty for none.
Places = tuple[tuple[str, str], ...]

# Matches ``import a.b``, ``__include "a.slang"``, ``implementing a`` and takes the name.
_NAMED = re.compile(r'\b(?:import|__import|__include|implementing)\b\s*([\w.]+(?:\s*/\s*[\w.]+)*|"[^"\n]*")')
_INCLUDED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^<>"\n]+)[>"]', re.M)
_NOT_UTF8 = re.compile(r"^(.+)\(\d+\): error 10006: invalid UTF-8", re.M)
_OUR_IMPORT = re.compile(r"\bimport\s+\"?slangpy_rt\b")
# Matches ``import glsl;`` and ``__exported import "core";``.
_SLANGS_OWN = re.compile(r"^[ \t]*(?:__exported[ \t]+)?import[ \t]+\"?(core|glsl)\"?[ \t]*;", re.M)


def read_source(where: str, path: str | Path, folders: tuple[str, ...]) -> tuple[str, str, Places]:
    """Find and read a Slang file, and return its absolute path, its text and the paths that were tried.

    A relative path is looked up in the working directory, in `folders` and in ``shaders/``, in this order.

    Parameters
    ----------
    where : str
        The name of the caller, with which error messages begin.
    path : str or Path
        The path of the file.
    folders : tuple of str
        The folders to search.

    Raises
    ------
    CompileError
        If the file is in none of the folders, cannot be read or is not UTF-8 text.
    """
    try:
        tried = [Path(path), *(Path(folder) / path for folder in (*folders, shader_directory()))]
        return first_file(where, str(path), [absolute(place) for place in tried])
    except FileNotFoundError:
        here = resolved(".") if working_directory() else "the working directory, which was deleted"
        searched = ", ".join(f"'{folder}'" for folder in (here, *map(resolved, folders)))
        places = [(Path(folder) / path).parent for folder in (".", *folders)]
        near = [each.name for place in places if place.is_dir() for each in place.glob("*.slang")]
        from slangpy_rt.core.wording import meant  # imports NumPy, which the compiler's process is without

        raise CompileError(
            f"{where}: there is no file '{path}' in {searched}. Give a full path, or add its folder to include_paths."
            f"{meant(f'{Path(path).stem}.slang', near)}"
        ) from None


def first_file(where: str, shown: str, tried: Sequence[str]) -> tuple[str, str, Places]:
    """Read the first of the paths `tried` that is a file; return its resolved path, its text and the paths up to it.

    Raises
    ------
    FileNotFoundError
        If no path is a file or anything else that exists; its argument is `shown`.
    CompileError
        If the file cannot be read or is not UTF-8 text, or if no path is a file and one is a folder or a device.
    """
    places: dict[str, str] = {}
    for place in dict.fromkeys(tried):
        try:
            places[place] = real(place)
        except ValueError:  # the path holds a NUL character
            places[place] = ""
        if places[place]:
            try:
                data = read_file(places[place])
            except OSError as error:
                raise CompileError(f"{where}: '{place}' cannot be read: {error}.") from None
            return places[place], decoded(f"{where}: '{place}'", data), tuple(places.items())
    for place in places:
        with suppress(OSError, ValueError):
            what = "a folder" if stat.S_ISDIR(Path(place).stat().st_mode) else "no ordinary file"
            raise CompileError(f"{where}: '{place}' is {what}; give the path of a file with Slang text.")
    raise FileNotFoundError(shown)


def read_file(path: str) -> bytes:
    """Return the contents of a regular file.

    Raises
    ------
    OSError
        If the path cannot be read, or is a folder, a pipe or a device.
    """
    with open_regular(path) as file:
        return file.read()


def decoded(where: str, data: bytes) -> str:
    """Decode the bytes of a file, without a byte order mark and with line feeds as the only line ends.

    Raises
    ------
    CompileError
        If the bytes are not UTF-8, or hold a NUL, at which Slang would stop reading. The message begins with `where`.
    """
    try:
        return checked(where, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise CompileError(f"{where} is not UTF-8 text ({error.reason} at byte {error.start}).") from None


def checked(where: str, text: str) -> str:
    """Return `text` without a byte order mark and with line feeds as the only line ends.

    Raises
    ------
    CompileError
        If UTF-8 cannot express the text, or it holds a NUL, at which Slang would stop reading. The message begins
        with `where`.
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
    """Read the files of a loaded module; return pairs of path and SHA-256 digest, and pairs of path and text.

    A path that is no file, such as that of a module loaded from text, is left out of both.

    Parameters
    ----------
    paths : list of str
        The paths that Slang lists for the module.
    own : str
        The module's own path. Its text is in memory, so it is left out of the second list.

    Raises
    ------
    CompileError
        If a file cannot be read, is not UTF-8 or holds a NUL.
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


def places(texts: list[tuple[str, str]], folders: tuple[str, ...], opened: Sequence[str] = ()) -> Places:
    """Return every path at which Slang may have looked for the files that texts import and include.

    Parameters
    ----------
    texts : list of (str, str)
        Resolved path and text of each file.
    folders : tuple of str
        The search path, which Slang tries after the folder of the file itself.
    opened : sequence of str
        The paths by which Slang opened these files, in which symbolic links are not resolved.
    """
    beside: dict[str, set[str]] = {path: {os.path.dirname(path)} for path, _ in texts}  # noqa: PTH120
    links = {normalized(path): resolved(path) for path in opened}
    links = {path: full for path, full in links.items() if full in beside}
    for path, full in links.items():
        beside[full].add(os.path.dirname(path))  # noqa: PTH120
    found: dict[str, str] = {}

    def look(folder: str, name: str) -> None:
        place = normalized(os.path.join(folder, name))  # noqa: PTH118
        if place not in found:
            found[place] = real(place)

    looked: set[tuple[str, str]] = set()
    while asked := [(path, at) for path, some in beside.items() for at in some if (path, at) not in looked]:
        looked.update(asked)
        for path, text in texts:
            for name in dict.fromkeys(_names(text)):
                for folder in (*beside[path], *folders):
                    look(folder, name)
        # For a file that was opened through a symbolic link, Slang looks in the folder of the link.
        for place, full in found.items():
            if full in beside:
                beside[full].add(os.path.dirname(place))  # noqa: PTH120
    # ``_names`` misses a name that comes from a macro or follows a comment. Such a name is taken from the path of the
    # opened file, relative to each folder: for ``a/b/c.slang`` and folder ``a``, ``b/c.slang`` is tried everywhere.
    every = dict.fromkeys([*folders, *(folder for some in beside.values() for folder in some)])
    for path, full in links.items():
        if path not in found and full not in found.values():
            for folder in every:
                beginning = os.path.join(folder, "")  # noqa: PTH118
                if path.startswith(beginning):
                    for other in every:
                        look(other, path.removeprefix(beginning))
    return tuple(sorted(found.items()))


def names_files(text: str) -> bool:
    """Return whether a text may import or include files."""
    return "import" in text or "include" in text


def reachable(path: str, text: str, folders: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return path and text of every file that a text may import or include, directly or through other files.

    Files in ``shaders/``, and those that cannot be read as Slang text, are left out. Slang is not called.

    Parameters
    ----------
    path, text : str
        The text's own path, and the text.
    folders : tuple of str
        The search path.
    """
    found: dict[str, str] = {}
    waiting = [(path, text)]
    while waiting:
        for _, file in places([waiting.pop()], folders):
            if file and file not in found and not is_ours(Path(file)):
                with suppress(OSError, CompileError):
                    found[file] = decoded(file, read_file(file))
                    waiting.append((file, found[file]))
    return list(found.items())


def check_imports(path: str, text: str, folders: tuple[str, ...]) -> None:
    """Refuse an import of a user's file named ``core`` or ``glsl``, for which Slang 2026.12 loads its own module.

    Raises
    ------
    CompileError
        If the text, whose file is `path`, imports such a name and its folder or `folders` have a file of that name.
    """
    for name in _SLANGS_OWN.findall(text):
        for folder in (os.path.dirname(path), *folders):  # noqa: PTH120
            file = normalized(os.path.join(folder, f"{name}.slang"))  # noqa: PTH118
            if os.path.isfile(file):  # noqa: PTH113
                raise CompileError(
                    f"{path}: 'import {name}' is the compiler's own module of that name, never '{file}'; "
                    "rename the file."
                )


_ATOMIC = re.compile(r"\bInterlocked[A-Z]|\b__?atomic_|\bAtomic<")
_METHODS = (
    "InterlockedAdd and the like take elements t[i] of RWTensor, NDBuffer and RWStructuredBuffer of scalars on a "
    "device that has pointers. On every device they are changed by methods, such as t.add(i, value), and those of "
    "RWTensor<Atomic<T>, N> by both. Fields of structs need a pointer to the structs, S *p."
)
_READ_ATOMIC = re.compile(r"\b(?:Tensor|StructuredBuffer)\s*<\s*Atomic\b")
_WRITABLE = (
    "Elements of Tensor and StructuredBuffer cannot be changed; RWTensor, NDBuffer and RWStructuredBuffer of "
    "Atomic<T> have its methods."
)


@contextmanager
def telling(path: str, text: str, folders: tuple[str, ...]) -> Iterator[None]:
    """Add to a CompileError what a text may be missing that imports ``slangpy_rt``, and whose file is `path`.

    That is this package's module, also where the text's folder or `folders` have a file of the name.
    """
    try:
        yield
    except CompileError as error:
        for folder in (os.path.dirname(path), *folders) if _OUR_IMPORT.search(text) else ():  # noqa: PTH120
            file = Path(resolved(os.path.join(folder, "slangpy_rt.slang")))  # noqa: PTH118
            if file.is_file() and str(file.parent) != resolved(shader_directory()):
                hint = f"'import slangpy_rt' is a module of slangpy_rt's own, never '{file}'; rename the file."
                raise CompileError(f"{error}\n{hint}") from None
        # Slang 2026.14 refuses such bytes in the comments of a file, too, which 2026.12 skips.
        if broken := _NOT_UTF8.search(str(error)):
            with suppress(OSError):
                decoded(f"'{broken[1]}'", read_file(broken[1]))
        # "the form of this l-value argument is not valid for a `ref` parameter"
        if "E40008" in str(error) and _ATOMIC.search(text):
            raise CompileError(f"{error}\n{_METHODS}") from None
        # "mutating method cannot be called on immutable value"
        if "E30050" in str(error) and _READ_ATOMIC.search(text):
            raise CompileError(f"{error}\n{_WRITABLE}") from None
        raise


def real(path: str) -> str:
    """Return the path of a file with all symbolic links resolved; an empty string if there is no such file."""
    return os.path.realpath(path) if os.path.isfile(path) else ""  # noqa: PTH113


def _names(text: str) -> Iterator[str]:
    """Yield the relative paths of the files that a text may import or include.

    For ``import a.b_c;`` these are ``a/b_c.slang``, ``a/b_c.slang-module``, ``a/b-c.slang`` and
    ``a/b-c.slang-module``.
    """
    for name in _INCLUDED.findall(text):
        yield name
    for name in _NAMED.findall(text):
        bare = name.strip('"') if name[0] == '"' else re.sub(r"\s*[./]\s*", "/", name)
        for spelled in dict.fromkeys((bare, bare.replace("_", "-"))):
            if name[0] == '"':
                yield spelled
            yield f"{spelled}.slang"
            yield f"{spelled}.slang-module"

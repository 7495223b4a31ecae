"""Checks of public arguments other than data: names, paths, dicts, flags.

Functions that are named after what they check return the argument in the form that the package uses, or raise a
BindError that says what is wrong. An error that a caller's own object raises while it is checked passes through.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.errors import BindError, OutOfMemoryError, SlangPyRtError
from slangpy_rt.core.wording import in_words

E = TypeVar("E", bound=Exception)
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_MOST_THREADS = 2**31 - 1
_PACKAGE = str(Path(__file__).resolve().parents[1])
# Frames in these files are steps of this package: its own, and those of ``with`` statements.
_STEPS = (_PACKAGE, contextlib.__file__)


def text(where: str, name: str, value: Any) -> str:
    """Check and return text that can be written to a file and handed to a compiler, as a plain ``str``."""
    if not isinstance(value, str):
        raise BindError(f"{where}: {name} is {in_words(value)} of type {type(value).__name__}; a str was expected.")
    if "\0" in value:
        raise BindError(f"{where}: {name} holds a NUL character, at {value.index(chr(0))}; remove it.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise BindError(
            f"{where}: {name} holds half of a surrogate pair, at {error.start}, which is no character; "
            "decode it anew."
        ) from None
    return str.__str__(value)


def path(where: str, name: str, value: Any) -> Path:
    """Check and return a path of a file or folder."""
    if isinstance(value, bytes) or not isinstance(value, (str, os.PathLike)):
        raise BindError(
            f"{where}: {name} is {in_words(value)} of type {type(value).__name__}; a str or a path was expected."
        )
    found = os.fspath(value)
    if not isinstance(found, str) or "\0" in found or not _is_encoded(found):
        raise BindError(f"{where}: {name} is {in_words(found)}, which no file can be called.")
    return Path(found)


def _is_encoded(found: str) -> bool:
    """Tell whether a path has bytes: names that are not UTF-8 have surrogates, of which others stand for no byte."""
    try:
        os.fsencode(found)
    except UnicodeEncodeError:
        return False
    return True


def paths(where: str, name: str, value: Any) -> tuple[Path, ...]:
    """Check and return paths as a tuple; they are given in a list or another iterable that is no text and no dict."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise BindError(f"{where}: {name} is {in_words(value)}; a list of paths was expected.")
    return tuple(path(where, f"{name}[{k}]", item) for k, item in enumerate(value))


def table(where: str, name: str, value: Any) -> Mapping[str, Any]:
    """Check and return a dict of values by name; None counts as an empty dict."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BindError(f"{where}: {name} is {in_words(value)}; a dict of values by name was expected.")
    return {text(where, f"a name in {name}", key): item for key, item in value.items()}


def flag(where: str, name: str, value: Any) -> bool:
    """Check a bool of Python or NumPy, or an int, and return it as a bool."""
    if not isinstance(value, (bool, np.bool_, int)):
        raise BindError(f"{where}: {name} is {in_words(value)}; True or False was expected.")
    return bool(value)


def whole(where: str, name: str, value: Any, least: int, most: int) -> int:
    """Check and return a whole number within limits."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not least <= value <= most:
        raise BindError(f"{where}: {name} is {in_words(value)}; a whole number from {least} to {most} was expected.")
    return int(value)


def is_callers(error: BaseException) -> bool:
    """Tell whether a caught error was raised by the caller's own Python code, such as a method of an argument.

    Other errors come from Python and NumPy, and say what is wrong with a value.
    """
    trace = error.__traceback__
    return trace is not None and trace.tb_next is not None


def shortened(error: E) -> E:
    """Return a caught error of this package without its frames, for a ``raise`` near the user's line.

    Frames stay if code of others is among them, such as a method of an argument, and with ``SLANGPY_RT_DEBUG``.
    """
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_STEPS):
        frames = frames.tb_next
    if frames is None and not CONFIG.debug:
        error.__traceback__ = None
    return error


def short_traceback(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose SlangPyRtErrors end one line below the caller's in tracebacks.

    It takes 0.2 us a call. Functions of which that is a part worth counting have a ``try`` of their own.
    """

    @wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        try:
            return function(*args, **named)
        except SlangPyRtError as error:
            raise shortened(error) from error.__cause__

    # Tracebacks and profiles show the name of a function's code.
    made: Any = call
    made.__code__ = made.__code__.replace(co_name=made.__name__)
    return call


def short_tracebacks(*names: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator of classes that makes ``short_traceback`` of methods and class methods, given by name."""

    def changed(cls: type[T]) -> type[T]:
        for name in names:
            found = vars(cls)[name]
            made = short_traceback(found.__func__ if isinstance(found, classmethod) else found)
            setattr(cls, name, classmethod(made) if isinstance(found, classmethod) else made)
        return cls

    return changed


def no_memory(where: str, error: MemoryError) -> OutOfMemoryError:
    """Return the OutOfMemoryError for a host array that NumPy could not allocate."""
    return OutOfMemoryError(f"{where}: the host has no memory for this array ({error}); use a smaller one.")


@contextlib.contextmanager
def reading(where: str, file: Path) -> Iterator[None]:
    """Name the function and the file in errors of a block that reads the file at the caller's path.

    Raises
    ------
    BindError
        If the block raises OSError or ValueError.
    OutOfMemoryError
        If it raises MemoryError.
    """
    try:
        yield
    except BindError:
        raise
    except OSError as error:
        raise BindError(
            f"{where}: cannot read {in_words(str(file))} ({error.strerror or error}); name another file."
        ) from None
    except MemoryError as error:
        raise no_memory(where, error) from None
    except ValueError as error:
        raise BindError(f"{where}: cannot read {in_words(str(file))}: {error}.") from None


def write_text(where: str, value: Any, content: str) -> None:
    """Write text to a file at the caller's path."""
    file = path(where, "path", value)
    try:
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise BindError(
            f"{where}: cannot write {in_words(str(file))} ({error.strerror}); name another file."
        ) from None


def thread_counts(where: str, threads: Any) -> tuple[int, ...]:
    """Return the numbers of threads in x, y and z, as many as were given.

    Raises
    ------
    BindError
        If they are not one to three whole numbers from 0 to 2^31 - 1.
    """
    given = threads.tolist() if isinstance(threads, np.ndarray) and threads.ndim == 1 else threads
    given = given if isinstance(given, (tuple, list)) else (given,)
    if not 1 <= len(given) <= 3 or not all(_is_count(n) for n in given):
        raise BindError(f"{where}: threads is {in_words(threads)}; give one to three whole numbers of at least 0.")
    if max(given) > _MOST_THREADS:
        raise BindError(f"{where}: threads is {in_words(threads)}; at most {_MOST_THREADS} each way.")
    return tuple([int(n) for n in given])


def group_sizes(size: Any) -> Any:
    """Return a size of thread groups as ``group_size`` takes it: an array as a tuple, other values as they are."""
    return tuple(size.tolist()) if isinstance(size, np.ndarray) and size.ndim == 1 else size


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)

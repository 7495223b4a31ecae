"""The command line: what this machine has, what the kernel cache holds, what a call would run, stubs, the demo.

It reads arguments, calls the library and prints plain text; it can do nothing that the library does not offer to
programs. Exit codes: 0 done, 1 refused or failed (one message on stderr), 2 not understood, 130 interrupted, 141 if
the reader of its output is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import slangpy_rt as spy
from slangpy_rt.arguments.containers import container
from slangpy_rt.backends import names
from slangpy_rt.core.cache_entry import EntryInfo
from slangpy_rt.core.checks import path
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.core.dtypes import atomic_of, element_type, storage
from slangpy_rt.core.errors import BindError, SlangPyRtError
from slangpy_rt.core.shapes import as_shape
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.tools.doctor import doctor
from slangpy_rt.tools.editor import editor
from slangpy_rt.tools.machine import cache_rows, info, open_cache, print_rows, size_text
from slangpy_rt.tools.stubs import HEADER, stub_text

_BINARIES = {"cpu": "kernel.so", "cuda": "kernel.cubin", "vulkan": "kernel.spv"}
# Devices that compile kernels themselves have this file, of a program, instead of a binary.
_PROGRAM = "program.json"
_DESCRIPTION = re.compile(r"(?P<name>\w+)(?:\[(?P<shape>[\d,\s]*)\])?")
_MOST_TEXT = 100
_INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended: 128 + SIGINT
_PIPE_CLOSED = 141  # 128 + SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Its arguments; the process' own by default.

    Returns
    -------
    int
        The exit code.
    """
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
        # Writing to a pipe that its reader closed fails only when the text is flushed: here, and not at exit.
        sys.stdout.flush()
    except _UnknownKey as error:
        print(error, file=sys.stderr)
        return 2
    except SlangPyRtError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes once more at exit, and would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    return code


class _UnknownKey(SlangPyRtError):
    """Raised when no cache entry, or more than one, has a key."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="slangpy_rt", description="Call any Slang function over arrays.")
    parser.set_defaults(run=partial(_help, parser))
    parser.add_argument("--version", action="version", version=f"slangpy_rt {spy.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    def command(where: Any, name: str, run: Callable[[argparse.Namespace], int], text: str) -> Any:
        made = where.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        made.set_defaults(run=run)
        return made

    command(commands, "info", info, "devices, compilers and the kernel cache of this machine")
    page = command(commands, "doctor", doctor, "try every device, and say what to install to get more of them")
    page.add_argument("--compiler", action="store_true",
                      help="try which corrections of this build of the Slang compiler are needed")  # fmt: skip

    cache = commands.add_parser("cache", help="look into the kernel cache, empty it, carry it elsewhere")
    cache.set_defaults(run=partial(_help, cache))
    verbs = cache.add_subparsers(title="commands", metavar="COMMAND")
    command(verbs, "info", _cache_info, "where the cache is and how full")
    command(verbs, "list", _cache_list, "all entries, the last used first")
    command(verbs, "verify", _cache_verify, "read every entry and name the damaged ones")
    command(verbs, "clear", _cache_clear, "remove all entries")
    show = command(verbs, "show", _cache_show, "take an entry apart into ordinary files")
    show.add_argument("key", metavar="KEY", help="the key, or a beginning that only it has")
    show.add_argument("--out", type=Path, metavar="DIR", help="directory for the files (slangpy_rt_KEY)")
    export = command(verbs, "export", _cache_export, "write entries to a file for another machine")
    export.add_argument("file", type=Path, metavar="FILE")
    export.add_argument("keys", nargs="*", metavar="KEY", help="keys or beginnings of keys; all if none")
    import_ = command(verbs, "import", _cache_import, "store what export wrote; it will be run as code")
    import_.add_argument("file", type=Path, metavar="FILE")

    explain = command(commands, "explain", _explain, "show the kernel that a call would run")
    explain.add_argument("file", type=Path, metavar="FILE", help="a Slang file")
    explain.add_argument("function", metavar="FUNCTION")
    explain.add_argument("--device", default="automatic", choices=["automatic", *names()])
    explain.add_argument(
        "--args",
        nargs="*",
        metavar="ARG",
        help="one a parameter: float[16,16] an array, float3[8] one of vectors, float a value of that type, "
        "3.5 a number, true, call_id, grid[4,4]",
    )

    stubs = command(commands, "stubs", _stubs, "write a .pyi of a Slang file for editors and type checkers")
    stubs.add_argument("file", type=Path, metavar="FILE", help="a Slang file")
    stubs.add_argument("-o", dest="out", metavar="OUT", help="the stub file (beside FILE, as .pyi), or - to print it")
    stubs.add_argument("-I", dest="include", type=Path, action="append", default=[], metavar="DIR",
                       help="where its imports are looked up; may be repeated")  # fmt: skip

    settings = command(commands, "editor", editor, "let the Slang extension of VS Code find `import slangpy_rt;`")
    settings.add_argument("folder", type=Path, nargs="?", default=Path(), metavar="FOLDER",
                          help="the workspace, which gets .vscode/settings.json (this folder)")  # fmt: skip
    settings.add_argument("--print", action="store_true", help="print the settings and write nothing")

    demo = command(commands, "demo", _demo, "run a photograph and two renders on every device")
    demo.add_argument("--size", type=_size, default=1024, help="pixels along a side of the renders (%(default)s)")
    demo.add_argument("--out", type=Path, default=Path("slangpy_rt_demo"), help="for the pictures (%(default)s)")
    shown = [name for name in names() if name != "null"]
    demo.add_argument("--device", nargs="+", choices=shown, help="all that are here, if not given")
    return parser


def _help(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    parser.print_help()
    return 0


def _usable_cache() -> DiskCache:
    cache = open_cache()
    if cache.why_off:
        raise SlangPyRtError(f"cache: {cache.why_off}.")
    return cache


def _cache_info(args: argparse.Namespace) -> int:
    print_rows(0, cache_rows(open_cache()))
    return 0


def _cache_list(args: argparse.Namespace) -> int:
    entries = sorted(_usable_cache().entries(), key=lambda entry: -entry.last_used)
    rows = [("key", "kind", "device", "size", "age", "title")]
    now = time.time()
    for e in entries:
        kind, device, title = (
            _printable(text) for text in (e.kind, e.meta.get("device", ""), e.meta.get("title", ""))
        )
        rows.append((e.key[:12], kind, device, size_text(e.nbytes), _age(now - e.created), title))
    widths = [max(len(row[k]) for row in rows) for k in range(5)]
    for row in rows:
        print("  ".join([*(text.ljust(w) for text, w in zip(row, widths, strict=False)), row[5]]).rstrip())
    return 0


def _printable(value: Any) -> str:
    """Return text from an entry, which a bundle brought, on one line and without what a terminal would obey."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in " ".join(str(value).split())
    )


def _cache_verify(args: argparse.Namespace) -> int:
    cache = _usable_cache()
    bad = cache.verify()
    for key in bad:
        print(f"{key} is damaged; it will be made again when it is needed")
    print(f"{len(cache.entries())} whole, {len(bad)} damaged")
    return 1 if bad else 0


def _cache_clear(args: argparse.Namespace) -> int:
    cache = _usable_cache()
    others = "".join(f" and what {folder.stem} kept" for folder in cache.folders())
    print(f"removed {_count(cache.clear())}{others} from {cache.directory}")
    return 0


def _cache_show(args: argparse.Namespace) -> int:
    cache = _usable_cache()
    info = _find(cache.entries(), args.key)
    entry = cache.get(info.key)
    if entry is None:  # another process may remove it at any time
        raise _UnknownKey(f"cache show: the entry {info.key} went away; list the cache again.")
    meta = {"key": info.key, "created": info.created, **entry.meta}
    files: dict[str, bytes] = {}
    text = meta.pop("text", None)
    if isinstance(text, str):
        files["kernel.slang"] = text.encode("utf-8", "backslashreplace")
    if entry.payload:
        files[_BINARIES.get(str(meta.get("device")), _PROGRAM)] = entry.payload
    files["meta.json"] = json.dumps(meta, indent=2).encode()
    out: Path = args.out or Path(f"slangpy_rt_{info.key[:12]}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (out / name).write_bytes(data)
            print(out / name)
    except OSError as error:
        raise SlangPyRtError(
            f"cache show: cannot write to {str(out)!r}; name a writable directory with --out.\n{error}"
        ) from error
    return 0


def _cache_export(args: argparse.Namespace) -> int:
    cache = _usable_cache()
    entries = cache.entries() if args.keys else []
    keys = [_find(entries, key).key for key in args.keys] or None
    print(f"wrote {_count(cache.export(path('cache export', 'FILE', args.file), keys))} to {args.file}")
    return 0


def _cache_import(args: argparse.Namespace) -> int:
    cache = _usable_cache()
    print(f"stored {_count(cache.import_(path('cache import', 'FILE', args.file)))} in {cache.directory}")
    return 0


def _find(entries: Iterable[EntryInfo], key: str) -> EntryInfo:
    found = [entry for entry in entries if entry.key.startswith(key)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _UnknownKey(f"cache: {len(found)} keys begin with {key!r}; give more of it.")
    raise _UnknownKey(f"cache: no entry has a key that begins with {key!r}; `cache list` shows them.")


def _explain(args: argparse.Namespace) -> int:
    with spy.Device(args.device) as device:
        function = _module(device, args.file)[args.function]
        for overload in function.overloads:
            print(overload)
        if args.args is None:
            values = [_example(param.type) for param in function.overloads[0].params]
        else:
            values = [_value(text) for text in args.args]
        if isinstance(function, spy.Kernel):
            values.insert(0, function.entry.group_size)
        print(f"\n{function.explain(*values)}")
    return 0


def _module(device: spy.Device, file: Path) -> spy.Module:
    """Load a module without the warning of names that its attributes hide: commands take none as attributes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "module '.*': it declares ", UserWarning)
        return spy.Module.load_from_file(device, file)


def _example(type_: SlangType) -> Any:
    """Make an array of 1024 elements, or a small one for a parameter that takes a whole array.

    A struct with whole arrays, of which there is no array, becomes a dict of examples of its fields.
    """
    whole = container(type_)
    if whole is not None:
        element, rank, _ = whole
        return _array(atomic_of(element) or element, (4,) * rank)
    if storage(type_) is None and type_.kind == "struct" and type_.fields:
        return {field.name: _example(field.type) for field in type_.fields}
    if storage(type_) is None and type_.kind == "array" and type_.element is not None:
        return [_example(type_.element) for _ in range(type_.shape[0])]
    return _array(type_, (1024,))


def _value(text: str) -> Any:
    """Make the value that an argument of ``--args`` describes."""
    if text in ("true", "false"):
        return text == "true"
    if len(text) > _MOST_TEXT:
        raise BindError(f"--args: {in_words(text)} has {len(text)} characters, more than {_MOST_TEXT}.")
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    match = _DESCRIPTION.fullmatch(text)
    if match is None:
        raise BindError(f"--args: {text!r} is not understood; write float[16,16], float3, 3.5, true or grid[4,4].")
    if text == "call_id":
        return spy.call_id()
    try:
        shape = tuple(int(n) for n in (match["shape"] or "").split(",") if n.strip())
    except ValueError:
        raise BindError(f"--args: {text!r} has a shape that is not made of whole numbers.") from None
    if match["name"] == "grid":
        return spy.grid(shape)
    return _array(element_type("--args", match["name"]), shape)


def _array(type_: SlangType, shape: tuple[int, ...]) -> Any:
    stored = storage(type_)
    if stored is None:
        raise BindError(f"explain: there is no array of '{type_.name}' to stand in; say with --args what to pass.")
    try:
        # The index () turns an array without dimensions into a NumPy scalar.
        return np.ones(as_shape("--args", shape) + stored.dims, stored.dtype)[()]
    except (MemoryError, ValueError) as error:
        raise BindError(f"explain: no array of shape {in_words(shape)} can stand in ({error}).") from None


def _stubs(args: argparse.Namespace) -> int:
    # Declarations need the compiler and no device. An absolute path is not looked up in the include paths.
    with spy.Device("null", include_paths=args.include) as device:
        info = _module(device, args.file.absolute()).info
    text = stub_text(info)
    if args.out == "-":
        print(text, end="")
        return 0
    # A type checker looks for a stub of the module's name, which differs from the file's if that is no identifier.
    out = Path(args.out or args.file.with_name(f"{info.name}.pyi"))
    hidden = out.with_suffix(".py")
    if args.out is None and hidden.exists():
        raise SlangPyRtError(
            f"stubs: to type checkers '{out}' would take the place of '{hidden}'; name another file with -o."
        )
    try:
        if out.exists() and not out.read_text(encoding="utf-8", errors="replace").startswith(HEADER):
            raise SlangPyRtError(
                f"stubs: '{out}' was not written by this command and is left alone; name another file with -o."
            )
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SlangPyRtError(f"stubs: cannot write '{out}'; name another file with -o.\n{error}") from error
    print(out)
    return 0


def _demo(args: argparse.Namespace) -> int:
    try:
        from slangpy_rt.demo.run import run
    except ImportError as error:
        raise SlangPyRtError(
            f"demo: the package {error.name} is missing; `pip install 'slangpy_rt[demo]'`."
        ) from error
    return run(args.size, args.out, args.device)


def _size(text: str) -> int:
    size = int(text) if text.isdecimal() else 0
    if not 16 <= size <= 8192:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 16 to 8192")
    return size


def _count(n: int) -> str:
    return f"{n} {'entry' if n == 1 else 'entries'}"


def _age(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"

"""Files of triangles: what PLY, OBJ and STL files hold, as an array of places and one of numbers of corners.

Colors, normals, texture coordinates and materials are left out. Polygons become fans around their first corner, which
are right where they are convex; those of fewer than three corners become nothing. Whatever a file breaks off in, or
contradicts itself in, is an error: nothing is guessed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slangpy_rt.core.regular_file import open_regular

Array = npt.NDArray[Any]
# By PLY's names of types, which its makers wrote in two ways, those of NumPy.
_TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip
# Codes of ``struct`` for NumPy's names of types.
_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "f4": "f", "f8": "d"}
_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_FACES = ("vertex_indices", "vertex_index")


class _Property(NamedTuple):
    """A property of a PLY file's element: its name, its type, and for a list the type of its length."""

    name: str
    type: str
    length: str


class _Element(NamedTuple):
    """A kind of elements in a PLY file."""

    name: str
    many: int
    properties: list[_Property]


class _Lists(NamedTuple):
    """Lists of several lengths: the values of all, one list after the other, and how many each has."""

    values: Array
    lengths: Array


def read_triangles(file: Path) -> tuple[Array, Array]:
    """Return the corners' places in a PLY, OBJ or STL file, as float32, and the triangles' corners, as int32.

    Raises
    ------
    ValueError
        If the file is no such file, breaks off, or contradicts itself.
    OSError
        If it cannot be read.
    """
    with open_regular(file) as opened:
        data = opened.read()
    corners, faces = READERS[file.suffix.lower()](data)
    if not len(faces):
        raise ValueError("it holds no triangles")
    if faces.min() < 0 or faces.max() >= len(corners):
        wrong = int(((faces < 0) | (faces >= len(corners))).any(axis=1).argmax())
        raise ValueError(
            f"triangle {wrong} has the corners {faces[wrong].tolist()}; there are {len(corners)}, counted from 0"
        )
    with np.errstate(over="ignore"):
        return corners.astype(np.float32), faces.astype(np.int32)


def _read_ply(data: bytes) -> tuple[Array, Array]:
    """Return what a PLY file of text or of either order of bytes holds."""
    head = re.match(rb"ply\r?\n(.*?)\nend_header[ \t]*\r?\n", data, re.DOTALL)
    if head is None:
        raise ValueError("it has no header from 'ply' to 'end_header'")
    order, elements = _ply_header(head[1].decode("latin-1"))
    body: Any = data[head.end() :]
    if not order:
        try:
            body = np.array(body.split(), np.float64)
        except ValueError as error:
            raise ValueError(f"not all words of its body are numbers ({error})") from None
    at, corners, faces = 0, None, None
    for element in elements:
        names = [p.name for p in element.properties]
        rows, at = _ply_rows(element, body, at, order)
        if element.name == "vertex":
            if not {"x", "y", "z"} <= set(names):
                raise ValueError(f"its vertices have no x, y and z, but {', '.join(names) or 'nothing'}")
            lists = [p.name for p in element.properties if p.name in ("x", "y", "z") and p.length]
            if lists:
                raise ValueError(f"the property {lists[0]} of its vertices is a list")
            corners = np.stack([np.asarray(rows[n], np.float64).reshape(-1) for n in "xyz"], 1)
        elif element.name == "face":
            found = [p.name for p in element.properties if p.name in _FACES and p.length]
            if not found:
                raise ValueError(f"its faces have no list {' or '.join(_FACES)}, but {', '.join(names) or 'nothing'}")
            faces = _fans(rows[found[0]])
    if corners is None or faces is None:
        raise ValueError(f"it has no {'faces' if corners is not None else 'vertices'}")
    return corners, faces


def _ply_header(text: str) -> tuple[str, list[_Element]]:
    """Return the order of bytes, "" for text, and the kinds of elements that a header names."""
    order: str | None = None
    elements: list[_Element] = []
    for line in text.split("\n"):
        match line.split():
            case [] | ["comment" | "obj_info", *_]:
                continue
            case ["format", name, _] if name in _ORDERS:
                order = _ORDERS[name]
            case ["element", name, count] if count.isdecimal():
                elements.append(_Element(name, int(count), []))
            case ["property", "list", length, kind, name] if elements and {length, kind} <= _TYPES.keys():
                elements[-1].properties.append(_Property(name, _TYPES[kind], _TYPES[length]))
            case ["property", kind, name] if elements and kind in _TYPES:
                elements[-1].properties.append(_Property(name, _TYPES[kind], ""))
            case _:
                raise ValueError(f"its header has the line {line.strip()!r}")
    if order is None:
        raise ValueError("its header names no format")
    return order, elements


def _ply_rows(element: _Element, body: Any, at: int, order: str) -> tuple[dict[str, Any], int]:
    """Return the values of all elements of a kind, by property, and where the next kind begins in the body.

    Values of a list are an array of rows where all lists are equally long, else ``_Lists``.
    """
    if not element.many or not element.properties:
        return {p.name: np.zeros((0, 0)) for p in element.properties}, at
    _, first, _ = _ply_places(element, body, at, order, 1)
    lengths = [own[0] for own in first]
    kind: list[Any] = []
    for k, (p, n) in enumerate(zip(element.properties, lengths, strict=True)):
        kind += [(f"n{k}", order + p.length if order else "f8")] * bool(p.length)
        kind += [(f"v{k}", order + p.type if order else "f8", (n,))]
    row = np.dtype(kind)
    size = element.many * (row.itemsize if order else row.itemsize // 8)
    if at + size <= len(body):
        table = np.frombuffer(body[at : at + size], row)
        if all(not p.length or (table[f"n{k}"] == lengths[k]).all() for k, p in enumerate(element.properties)):
            return {p.name: table[f"v{k}"] for k, p in enumerate(element.properties)}, at + size
    if not any(p.length for p in element.properties):
        raise ValueError(f"it breaks off in its {element.many} elements '{element.name}'")
    places, many, at = _ply_places(element, body, at, order, element.many)
    rows = {
        p.name: _Lists(_ply_gathered(body, order and order + p.type, np.array(place), np.array(own)), np.array(own))
        for p, place, own in zip(element.properties, places, many, strict=True)
    }
    return {p.name: rows[p.name] if p.length else rows[p.name].values for p in element.properties}, at


def _ply_places(
    element: _Element, body: Any, at: int, order: str, many: int
) -> tuple[list[list[int]], list[list[int]], int]:
    """Return where the values of elements begin, by property, how many each has, and where the elements end."""
    end = len(body)
    places: list[list[int]] = [[] for _ in element.properties]
    lengths: list[list[int]] = [[] for _ in element.properties]
    steps = [
        (
            p.name,
            struct.Struct(order + _CODES[p.length]) if order and p.length else None,
            bool(p.length),
            int(p.type[1]) if order else 1,
            place.append,
            length.append,
        )
        for p, place, length in zip(element.properties, places, lengths, strict=True)
    ]
    for _ in range(many):
        for name, packed, is_list, size, put_place, put_length in steps:
            length = 1
            if is_list:
                after = at + (packed.size if packed else 1)
                if after > end:
                    raise ValueError(f"it breaks off in its {element.many} elements '{element.name}'")
                found = packed.unpack_from(body, at)[0] if packed else float(body[at])
                if not 0 <= found < 2**31 or found != int(found):
                    raise ValueError(f"one of its lists '{name}' has a length of {found}")
                at, length = after, int(found)
            put_place(at)
            put_length(length)
            at += length * size
            if at > end:
                raise ValueError(f"it breaks off in its {element.many} elements '{element.name}'")
    return places, lengths, at


def _ply_gathered(body: Any, kind: str, places: Array, lengths: Array) -> Array:
    """Return the values that begin at places of a body, one list after the other; ``kind`` is empty for text."""
    size = int(kind[2]) if kind else 1
    found = np.repeat(places, lengths) + _counts(lengths) * size
    if not kind:
        picked: Array = body[found]
        return picked
    held = np.frombuffer(body, np.uint8)
    return np.stack([held[found + k] for k in range(size)], -1).reshape(-1).view(kind)


def _counts(lengths: Array) -> Array:
    """Return 0 to n - 1 for each length n, one after the other."""
    total: Array = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return total


def _fans(polygons: Array | _Lists) -> Array:
    """Return the triangles of polygons, in their order."""
    if isinstance(polygons, _Lists):
        values, sizes = _whole(polygons.values), polygons.lengths
        many = np.maximum(sizes - 2, 0)
        first, k = np.repeat(np.cumsum(sizes) - sizes, many), _counts(many)
        return np.stack([values[first], values[first + k + 1], values[first + k + 2]], -1)
    count, n = polygons.shape
    if n < 3:
        return np.zeros((0, 3), np.int64)
    rows = _whole(polygons)
    corners = [np.broadcast_to(rows[:, :1], (count, n - 2)), rows[:, 1:-1], rows[:, 2:]]
    return np.stack(corners, -1).reshape(-1, 3)


def _whole(numbers: Array) -> Array:
    """Return numbers of corners as integers."""
    with np.errstate(invalid="ignore"):
        found = numbers.astype(np.int64)
    if not (found == numbers).all():
        raise ValueError("one of its faces names a corner by a number that is no whole one")
    return found


def _read_obj(data: bytes) -> tuple[Array, Array]:
    """Return the vertices and faces of an OBJ file, of all its groups and objects."""
    corners: list[list[float]] = []
    faces: list[tuple[int, int, int]] = []
    text = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\\\n", b" ").decode("latin-1")
    for number, line in enumerate(text.split("\n"), 1):
        words = (line.partition("#")[0] if "#" in line else line).split()
        if not words or words[0] not in ("v", "f"):
            continue
        try:
            if words[0] == "v":
                corners.append([float(words[1]), float(words[2]), float(words[3])])
                continue
            named = [int(word.partition("/")[0]) for word in words[1:]] if "/" in line else [*map(int, words[1:])]
            if 0 in named or max(map(abs, named), default=0) >= 2**31:
                raise ValueError
        except (ValueError, IndexError):
            raise ValueError(f"line {number} is {line.strip()[:80]!r}") from None
        # Negative numbers count back from the last vertex so far.
        at = [n - 1 if n > 0 else len(corners) + n for n in named]
        faces += [(at[0], at[k], at[k + 1]) for k in range(1, len(at) - 1)]
    return np.array(corners, np.float64).reshape(-1, 3), np.array(faces, np.int64).reshape(-1, 3)


def _read_stl(data: bytes) -> tuple[Array, Array]:
    """Return what an STL file holds, of text or not; corners at the same place become one."""
    # Files that are no text begin with "solid", too: their size tells.
    count = int.from_bytes(data[80:84], "little") if len(data) >= 84 else 0
    if len(data) >= 84 and len(data) == 84 + 50 * count:
        row = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])
        places = np.frombuffer(data, row, offset=84)["corners"].reshape(-1, 3)
    elif data.lstrip()[:5].lower() == b"solid" and b"\0" not in data:
        places = _stl_text(data)
    elif len(data) < 84:
        raise ValueError("it is no STL file")
    else:
        raise ValueError(f"{len(data)} bytes are not those of the {count} triangles that it names")
    # As np.unique does along an axis, in a third of the time.
    order = np.lexsort(places.T)
    is_new = np.any(places[order[1:]] != places[order[:-1]], axis=1)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(is_new)])[: len(order)]
    return places[order[np.concatenate([[True], is_new])[: len(order)]]], numbers.reshape(-1, 3)


def _stl_text(data: bytes) -> Array:
    """Return the corners of all triangles in an STL file of text."""
    # Names of solids may be any words.
    text = re.sub(rb"(?im)^[ \t]*solid\b.*$", b"", data)
    text, ends = re.subn(rb"(?im)^[ \t]*endsolid\b.*$", b"", text)
    found = re.findall(rb"(?i)\bvertex\s+(\S+)\s+(\S+)\s+(\S+)", text)
    facets = len(re.findall(rb"(?i)\bfacet\b", text))
    if not ends or len(found) != 3 * facets or facets != len(re.findall(rb"(?i)\bendfacet\b", text)):
        raise ValueError(f"it breaks off in one of its {facets} facets")
    try:
        return np.array(found, np.float64).reshape(-1, 3)
    except ValueError as error:
        raise ValueError(f"not all coordinates of its corners are numbers ({error})") from None


READERS: dict[str, Callable[[bytes], tuple[Array, Array]]] = {".ply": _read_ply, ".obj": _read_obj, ".stl": _read_stl}
"""Who reads a file, by its suffix."""

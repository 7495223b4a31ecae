"""Files of triangles beside the arrays that were written to them, by trimesh and by hand, and damaged ones."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.graphics import mesh_files
from tests.conformance._rays import Array, sphere

CORNERS = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (-0.5, 0.5, 0.25)]
POLYGONS: dict[str, tuple[list[tuple[int, ...]], list[list[int]]]] = {
    "triangles": ([(0, 1, 2), (0, 2, 3)], [[0, 1, 2], [0, 2, 3]]),
    "quads": ([(1, 2, 3, 0)], [[1, 2, 3], [1, 3, 0]]),
    "mixed": ([(0, 1), (0, 1, 2, 3, 4), (2, 3, 4), (0, 1, 2, 3)],
              [[0, 1, 2], [0, 2, 3], [0, 3, 4], [2, 3, 4], [0, 1, 2], [0, 2, 3]]),
}  # fmt: skip


def ply(form: str, faces: list[tuple[int, ...]], extra: bool = False) -> bytes:
    """A PLY file; with extra properties, comments and an element that nobody asks for."""
    head = [
        "ply", f"format {form} 1.0", f"element vertex {len(CORNERS)}",
        "property double x", "property double y", "property double z",
    ]  # fmt: skip
    if extra:
        head += ["comment property float w", "property uchar red", "element edge 2", "property list uchar short ends"]
    head += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
    head += ["property float quality", "property list uchar float uv"] * extra
    data = "\n".join([*head, "end_header", ""]).encode()
    order = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}[form]

    def row(kinds: str, *values: float) -> bytes:
        return struct.pack(order + kinds, *values) if order else (" ".join(map(str, values)) + "\n").encode()

    for corner in CORNERS:
        data += row("3dB", *corner, 200) if extra else row("3d", *corner)
    if extra:
        data += row("B2h", 2, 0, 1) + row("B1h", 1, 3)
    for face in faces:
        data += row(f"B{len(face)}i", len(face), *face)
        if extra:
            data += row("fB2f", 0.5, 2, 0.25, 0.75)
    return data


def stl(title: bytes, triangles: Array, many: int | None = None) -> bytes:
    rows = b"".join(struct.pack("<12fH", 0, 0, 1, *t.ravel(), 0) for t in triangles)
    return title.ljust(80, b"\0") + struct.pack("<I", len(triangles) if many is None else many) + rows


def stl_text(name: str, triangles: Array) -> str:
    facets = [
        "facet normal 0 0 1\n outer loop\n"
        + "".join(f"  vertex {x} {y} {z}\n" for x, y, z in t)
        + " endloop\nendfacet\n"
        for t in triangles
    ]
    return f"solid {name}\n{''.join(facets)}endsolid {name}\n"


def loaded(file: Path, data: bytes | str) -> tuple[Array, Array]:
    file.write_bytes(data if isinstance(data, bytes) else data.encode())
    mesh: Any = spy.Mesh.load(file)
    assert mesh.positions.dtype == np.float32 and mesh.faces.dtype == np.int32
    return mesh.positions, mesh.faces


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian", "binary_big_endian"])
def test_ply(tmp_path: Path, form: str) -> None:
    for faces, wanted in POLYGONS.values():
        for extra in (False, True):
            positions, found = loaded(tmp_path / "a.PLY", ply(form, faces, extra))
            np.testing.assert_array_equal(positions, np.float32(CORNERS))
            assert found.tolist() == wanted
    head, end, body = ply(form, faces).partition(b"end_header\n")
    _, found = loaded(tmp_path / "a.ply", head.replace(b"\n", b"\r\n") + end.replace(b"\n", b"\r\n") + body)
    assert found.tolist() == wanted


def steps_of(form: str, sizes: int) -> int:
    """Bytecodes that a PLY file with this many sizes of polygons takes, whatever the machine."""
    faces = [tuple(range(3 + k % sizes)) for k in range(2000)]
    data = ply(form, [tuple(c % len(CORNERS) for c in face) for face in faces])
    count = 0

    def counted(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += 1
        return counted

    sys.settrace(counted)
    try:
        _, found = mesh_files.READERS[".ply"](data)
    finally:
        sys.settrace(None)
    assert len(found) == sum(len(face) - 2 for face in faces)
    return count


@pytest.mark.parametrize("form", ["ascii", "binary_little_endian"])
def test_many_sizes_of_polygons(form: str) -> None:
    """As many steps for a hundred sizes as for two: the sum over sizes of all polygons was quadratic."""
    assert steps_of(form, 100) < 1.1 * steps_of(form, 2)


def test_obj(tmp_path: Path) -> None:
    text = "# \xe9 # two\nmtllib none.mtl\no one\n" + "".join(f"v {x} {y} {z} 1 0 0\n" for x, y, z in CORNERS)
    text += "vt 0 0\nvn 0 0 1\ns off\nusemtl none\n"
    for line, wanted in (
        ("f 1 2 3", [[0, 1, 2]]), ("f -5 -4 -3\n", [[0, 1, 2]]), ("f 1/1 2/1 3/1", [[0, 1, 2]]),
        ("f 1//1 2//1 3//1", [[0, 1, 2]]), ("f 1/1/1 2/1/1 3/1/1 4/1/1", [[0, 1, 2], [0, 2, 3]]),
        ("f\t1 2\t3 # f 1 2 4", [[0, 1, 2]]), ("f 1 2 \\\n3 4", [[0, 1, 2], [0, 2, 3]]),
        ("f 1 2 3\r\n\r\n", [[0, 1, 2]]),
        ("g a\nf 2 3 4\ng b\nf 1 2 3\nl 1 2\np 1\nv 7 7 7\nf -1 1 2", [[1, 2, 3], [0, 1, 2], [5, 0, 1]]),
    ):  # fmt: skip
        positions, found = loaded(tmp_path / "a.obj", text + line)
        np.testing.assert_array_equal(positions[:5], np.float32(CORNERS))
        assert found.tolist() == wanted, line


def test_stl(tmp_path: Path) -> None:
    triangles = np.float32(CORNERS)[[[0, 1, 2], [0, 2, 3]]]
    text = stl_text("of a facet with a vertex 1 2 3", triangles)
    for data in (stl(b"", triangles), stl(b"solid body", triangles), text, text.upper().replace("\n", "\r\n")):
        positions, found = loaded(tmp_path / "a.stl", data)
        assert positions.shape == (4, 3)  # corners that two triangles have are one
        np.testing.assert_array_equal(positions[found], triangles)
    _, found = loaded(tmp_path / "a.stl", text + text)
    assert len(found) == 4


def test_files_of_trimesh(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh", reason="the extra [mesh] is not installed")
    corners, faces = sphere(5)
    body = trimesh.Trimesh(corners, faces, process=False)
    assert spy.Mesh(body).sizes == spy.Mesh.from_trimesh(body).sizes == spy.Mesh(corners, faces).sizes
    for name, options in (
        ("a.ply", {"encoding": "ascii"}), ("b.ply", {"encoding": "binary"}), ("c.obj", {}), ("d.stl", {}),
        ("e.stl", {"file_type": "stl_ascii"}), ("f.off", {}),
    ):  # fmt: skip
        body.export(tmp_path / name, **options)
        mesh: Any = spy.Mesh.load(str(tmp_path / name))
        np.testing.assert_allclose(mesh.positions[mesh.faces], corners[faces], atol=1e-6)
        assert mesh.sizes == (len(corners), len(faces)), name


def test_damaged_files(tmp_path: Path) -> None:
    triangles = np.float32(CORNERS)[[[0, 1, 2], [0, 2, 3]]]
    text, packed = ply("ascii", [(0, 1, 2)]), ply("binary_little_endian", [(0, 1, 2), (0, 1, 2, 3)])
    faces = text.replace(b"3 0 1 2", b"3 0 1 7")
    obj = "v 0 0 0\nv 1 0 0\nv 0 1 0\n"
    for name, data, said in (
        ("a.ply", b"", "it has no header from 'ply' to 'end_header'"),
        ("a.ply", text[:60], "it has no header from 'ply' to 'end_header'"),
        ("a.ply", text[:-4], "it breaks off in its 1 elements 'face'"),
        ("a.ply", packed[:-1], "it breaks off in its 2 elements 'face'"),
        ("a.ply", packed[:-40], "it breaks off in its 5 elements 'vertex'"),
        ("a.ply", faces, "triangle 0 has the corners [0, 1, 7]; there are 5, counted from 0"),
        ("a.ply", text.replace(b"3 0 1 2", b"3 0 1 0.5"), "one of its faces names a corner by a number that is no "),
        ("a.ply", text.replace(b"3 0 1 2", b"nan 0 1 2"), "one of its lists 'vertex_indices' has a length of nan"),
        ("a.ply", text.replace(b"3 0 1 2", b"three"), "not all words of its body are numbers"),
        ("a.ply", text.replace(b"double y", b"double v"), "its vertices have no x, y and z, but x, v, z"),
        (
            "a.ply",
            text.replace(b"vertex_indices", b"corners"),
            "its faces have no list vertex_indices or vertex_index",
        ),
        ("a.ply", text.replace(b"double y", b"quad y"), "its header has the line 'property quad y'"),
        ("a.ply", text.replace(b"format", b"comment"), "its header names no format"),
        ("a.ply", ply("ascii", []), "it holds no triangles"),
        ("a.obj", b"", "it holds no triangles"),
        ("a.obj", obj, "it holds no triangles"),
        ("a.obj", obj + "f 0 1 2\n", "line 4 is 'f 0 1 2'"),
        ("a.obj", obj + "v 1 2\n", "line 4 is 'v 1 2'"),
        ("a.obj", obj + "f 1 2 x\n", "line 4 is 'f 1 2 x'"),
        ("a.obj", obj + "f 1 2 99999999999999999999\n", "line 4 is 'f 1 2 99999999999999999999'"),
        ("a.obj", obj + f"f 1 2 -{10**30}\n", f"line 4 is 'f 1 2 -{10**30}'"),
        ("a.obj", obj + "f 1 2 4\n", "triangle 0 has the corners [0, 1, 3]; there are 3, counted from 0"),
        ("a.obj", obj + "f -1 -2 -4\n", "triangle 0 has the corners [2, 1, -1]; there are 3, counted from 0"),
        ("a.stl", b"", "it is no STL file"),
        ("a.stl", stl(b"", triangles)[:-1], "183 bytes are not those of the 2 triangles that it names"),
        ("a.stl", stl(b"solid", triangles, 9), "184 bytes are not those of the 9 triangles that it names"),
        ("a.stl", stl(b"", triangles[:0]), "it holds no triangles"),
        ("a.stl", stl_text("a", triangles)[:-40], "it breaks off in one of its 2 facets"),
        ("a.stl", stl_text("a", triangles).replace("1.0", "one"), "not all coordinates of its corners are numbers"),
    ):
        with pytest.raises(spy.BindError) as caught:
            loaded(tmp_path / name, data)
        assert str(caught.value).startswith(f"Mesh.load: cannot read '{tmp_path / name}': {said}"), (name, said)
    lists = (
        b"ply\nformat ascii 1.0\nelement vertex 1\nproperty list uchar int x\nproperty float y\nproperty float z\n"
    )
    with pytest.raises(spy.BindError, match="the property x of its vertices is a list"):
        loaded(tmp_path / "a.ply", lists + b"end_header\n1 1 2 3\n")
    # Whatever is cut off or changed, there is a mesh or a BindError.
    random = np.random.default_rng(0)
    whole = {"b.ply": packed, "c.ply": text, "d.obj": (obj + "f 1 2 3").encode(), "e.stl": stl(b"", triangles)}
    for name, data in whole.items():
        for _ in range(60):
            part = bytearray(data[: random.integers(len(data)) + 1])
            for at in random.integers(len(part), size=random.integers(4)):
                part[at] = random.integers(256)
            try:
                loaded(tmp_path / name, bytes(part))
            except spy.BindError as error:
                assert str(error).startswith("Mesh.load: cannot read ")


@pytest.mark.skipif(os.name == "nt", reason="no named pipes in folders")
def test_paths(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.ply"
    os.mkfifo(pipe)
    for path, said in (
        (tmp_path / "none.ply", f"'{tmp_path / 'none.ply'}' does not exist; name another file."),
        (tmp_path, f"'{tmp_path}' is no ordinary file; name another file."),
        (pipe, f"'{pipe}' is no ordinary file; name another file."),
        ("/dev/zero", "'/dev/zero' is no ordinary file; name another file."),
        (3, "path is 3 of type int"),
    ):
        with pytest.raises(spy.BindError) as caught:
            spy.Mesh.load(path)  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"Mesh.load: {said}")
    with pytest.raises(spy.BindError) as caught:
        spy.Mesh.from_trimesh("body.ply")
    assert str(caught.value) == "Mesh.from_trimesh: mesh is 'body.ply'; a trimesh.Trimesh was expected."
    (tmp_path / "a.txt").write_text("triangles")
    with pytest.raises(spy.UnsupportedError, match=r"a\.txt'"):
        spy.Mesh.load(tmp_path / "a.txt")

"""Whatever is passed to whatever is public: errors are ours, in words, without addresses, and nothing is printed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.tools import cli
from tests.depth import is_deep, one_device, random_cases
from tests.errors import _wrong_arguments as wrong

# What these test does not depend on the device.
pytestmark = one_device

# Of so many attempts the default run makes one, and --deep; --long makes all.
_SHARE, _DEEP_SHARE = 20, 5


@pytest.fixture
def world(device: spy.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[wrong.World]:
    """An object of each public class, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    with spy.Device("null") as other:
        yield wrong.World(device, other, tmp_path)


@random_cases
def test_every_callable_with_every_wrong_argument(
    world: wrong.World, pytestconfig: pytest.Config, capfd: pytest.CaptureFixture[str]
) -> None:
    bad: list[str] = []
    count = 0
    share = 1 if pytestconfig.getoption("--long") else _DEEP_SHARE if is_deep(pytestconfig) else _SHARE
    for number, (name, call) in enumerate(wrong.attempts(world)):
        if number % share:
            continue
        count += 1
        try:
            call()
        except Exception as error:
            told = wrong.complaint(name, error)
            if told:
                bad.append(f"{name}: {told}")
    gc.collect()
    printed = capfd.readouterr()
    assert not bad, f"{len(bad)} of {count}:\n" + "\n".join(bad[:40])
    assert count > 22_500 // share
    assert (printed.out, printed.err) == ("", "")
    # The device is as good as before.
    np.testing.assert_array_equal(world.module.add(np.arange(3, dtype=np.float32), 1.0), [1, 2, 3])


ARGUMENTS = [
    ["nonsense"], ["--nonsense"], ["explain"], ["explain", "{none}", "f"], ["explain", ".", "f"],
    ["explain", "a\0b", "f"], ["explain", "\udc80", "f"], ["explain", "{file}", "nothing"],
    ["explain", "{file}", "a\0b"],
    ["explain", "{file}", "add", "--device", "nonsense"], ["explain", "{file}", "add", "--args", "float[", "1"],
    ["explain", "{file}", "add", "--args", "float[99999999999999999999]", "1"],
    ["explain", "{file}", "add", "--args", "9" * 5000, "1"], ["explain", "{file}", "add", "--args", "1"],
    ["stubs", "{none}"], ["stubs", "."], ["stubs", "{file}", "-o", "{none}/x.pyi"], ["stubs", "a\0b"],
    ["stubs", "{file}", "-I", "a\0b"], ["cache", "show", "nonsense"], ["cache", "export", "{none}/x"],
    ["cache", "import", "{none}"], ["cache", "import", "{file}"], ["cache", "import", "."],
    ["cache", "export", "a\0b"], ["cache", "import", "a\0b"], ["cache", "show", "\udc80"], ["demo", "--size", "-1"],
    ["demo", "--size", "x"],
]  # fmt: skip


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=range(len(ARGUMENTS)))
def test_the_command_line(arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "some.slang"
    file.write_text("float add(float a, float b) { return a + b; }", encoding="utf-8")
    # The device that is here without a driver.
    device = ["--device", "cpu"] if arguments[0] == "explain" and "--device" not in arguments else []
    given = [a.replace("{file}", str(file)).replace("{none}", str(tmp_path / "none")) for a in arguments]
    try:
        code = cli.main([*given[:3], *device, *given[3:]] if device else given)
    except SystemExit as error:
        code = int(error.code or 0)
    told = capfd.readouterr()
    assert code in (1, 2)
    assert told.err.strip() and "Traceback" not in told.err and "0x" not in told.err
    assert not arguments[0].startswith("cache") or not told.out


def test_what_came_is_in_the_message(world: wrong.World) -> None:
    m, device = world.module, world.device
    cases = {
        "InstanceTensor: struct is 3; a struct of a module or an element type was expected, as module.Ray and "
        "'float3' are.": lambda: spy.InstanceTensor(3, 3),
        "InstanceList: data is a Tensor<float> of shape (2, 3); a dict of values by name was expected.": lambda: (
            spy.InstanceList(m.P, world.tensor)
        ),
        "add.set: <function <lambda>> is no dict of values by name.": lambda: m.add.set(_LAMBDA, scale=1.0),
        "Device: type is None; a DeviceType or its name was expected, such as 'cuda'.": lambda: spy.Device(None),  # type: ignore[arg-type]
        "Module.load_from_source: source holds a NUL character, at 5; remove it.": lambda: (
            device.load_module_from_source("x", "// a \0")
        ),
        "Module.load_from_file: defines is 3; a dict of values by name was expected.": lambda: device.load_module(
            world.path, 3
        ),  # type: ignore[arg-type]
        "intRef: 1.5 was given; a whole number was expected.": lambda: spy.intRef(1.5),  # type: ignore[arg-type]
        "Tensor.zeros_like: 3 was given; a Tensor or an NDBuffer was expected.": lambda: spy.Tensor.zeros_like(3),  # type: ignore[arg-type]
    }
    with pytest.raises(spy.BindError, match=r"InstanceTensor: 'float3' names no device; give data=Tensor\.zeros"):
        spy.InstanceTensor(m.float3, 3)
    for message, call in cases.items():
        with pytest.raises(spy.BindError) as caught:
            call()
        assert str(caught.value) == message


def _LAMBDA() -> int:
    return 1


_LAMBDA.__qualname__ = "<lambda>"


def test_a_list_of_structs_with_arrays_of_a_device(world: wrong.World) -> None:
    with pytest.raises(spy.BindError, match=r"argument 'p'\[0\]\.x is a Tensor<float>"):
        world.module.of_struct([{"x": world.line, "n": 1}])


def test_an_enum_by_name_in_a_cell(world: wrong.World) -> None:
    assert world.module.of_kind(spy.ValueRef("B")) == 5


def test_a_function_that_an_edit_took_away(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "edited.slang"

    def write(text: str) -> None:
        file.write_text(text, encoding="utf-8")
        stamp = file.stat().st_mtime_ns + 10**9
        os.utime(file, ns=(stamp, stamp))

    struct = "struct S { float v; float get() { return v; } }\n"
    write(struct + "float f(float x) { return x; } float g(float x) { return -x; }")
    module = spy.Module.load_from_file(device, file)
    kept = module.f
    assert kept(1.0) == 1 and kept.return_type_name == "float"
    many, rows = spy.InstanceList(module.S, {"v": [1.0, 2.0]}), spy.InstanceTensor(module.S, 2)
    assert list(many.get()) == [1, 2] and list(rows.get().to_numpy()) == [0, 0]
    write("float g(float x) { return 2 * x; }")
    device.reload()
    with pytest.raises(AttributeError, match="was edited and no longer declares 'f'; it has g"):
        _ = module.f
    with pytest.raises(spy.BindError, match="was edited and no longer declares 'f'; it has g"):
        module["f"]
    with pytest.raises(spy.CompileError, match="no longer declares"):
        kept(1.0)
    for call in (lambda: kept.return_type_name, lambda: kept.set({}).return_type_name):
        with pytest.raises(spy.CompileError, match=r"^f: '.*' was edited and no longer declares it; it has g\.$"):
            call()
    for instances in (many, rows):
        with pytest.raises(
            spy.CompileError, match=r"^S\.get: '.*' was edited and no longer declares it; it has g\.$"
        ):
            instances.get()
    assert not hasattr(module, "f") and module.g(1.0) == 2
    write("float f(float x) { return 3 * x; } float g(float x) { return 2 * x; }")
    device.reload()
    assert module.f(1.0) == 3 and kept(1.0) == 3


@pytest.mark.parametrize(
    ("interface", "said"),
    [
        (5, "must be a dict"),
        ({"version": 3, "shape": (2,), "typestr": "nope", "data": (0, False)}, "data type 'nope' not understood"),
        ({"version": 3, "shape": "x", "typestr": "<f4", "data": (0, False)}, "shape must be a tuple"),
        ({"version": 3, "shape": (2,), "typestr": "<f4", "data": None}, "bytes-like object is required"),
    ],
)
def test_what_an_array_says_of_itself_in_wrong_words(world: wrong.World, interface: object, said: str) -> None:
    described = type("Described", (), {"__array_interface__": interface})
    with pytest.raises(spy.BindError, match=rf"argument 'a' is a .*Described, and NumPy cannot read it \(.*{said}"):
        world.module.add(described(), 1)
    with pytest.raises(spy.BindError, match=rf"data is a .*Described, and NumPy cannot read it \(.*{said}"):
        spy.Tensor.from_numpy(world.device, described())


@pytest.mark.parametrize("kind", [TypeError, ValueError, RuntimeError])
def test_an_error_of_an_array_passes(world: wrong.World, kind: type[Exception]) -> None:
    class Described:
        @property
        def __array_interface__(self) -> object:
            raise kind("its own")

    for use in (lambda: world.module.add(Described(), 1), lambda: spy.Tensor.from_numpy(world.device, Described())):
        with pytest.raises(kind, match="its own") as caught:
            use()
        assert not isinstance(caught.value, spy.SlangPyRtError)


@pytest.mark.parametrize("name", ["SQ(x)", "A B", "", "1a", "A\n", "Ä"])
def test_macros_that_are_none(device: spy.Device, name: str) -> None:
    with pytest.raises(spy.BindError, match="the name of a macro without parameters was expected"):
        spy.Module.load_from_source(device, "defined", "float f(float x) { return x; }", defines={name: 1})


def test_from_numpy_of_the_class_of_buffers(device: spy.Device) -> None:
    with pytest.raises(spy.BindError, match=r"is no array to fill; NDBuffer\(device, dtype, shape\) is one"):
        spy.NDBuffer.from_numpy(device, np.ones(3, np.float32))


def test_what_a_module_keeps_to_itself(device: spy.Device) -> None:
    text = """module own;
    struct Inner { float x; float twice() { return 2 * x; } }
    public struct Point { public float x; float y; }
    uniform float gain;
    float hidden(float x) { return x; }
    public float seen(float x) { return x + gain; }
    public float takes(Point p) { return p.x + p.y; }
    [numthreads(4, 1, 1)] void kernel(uint3 t : SV_DispatchThreadID) {}
    """
    module = spy.Module.load_from_source(device, "own", text)
    assert module.seen(1.0) == 1
    for name, use in {
        "hidden": lambda: module.hidden(1.0),
        "gain": lambda: module.seen.set(gain=1)(1.0),
        "y": lambda: module.takes({"x": 1, "y": 2}),
        "Inner": lambda: module.Inner.twice({"x": 1}),
        "kernel": lambda: module.kernel.dispatch(4),
    }.items():
        with pytest.raises(spy.CompileError, match=f"'{name}' is internal to its module; write 'public'"):
            use()

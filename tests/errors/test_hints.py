"""Messages for what a newcomer writes first: each says what was meant, or what to write instead."""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import slangpy_rt as spy
from tests.depth import one_device

pytestmark = one_device

TEXT = """
struct P { float2 place; float mass; }
float add(float a, float b) { return a + b; }
float length3(float3 c) { return length(c); }
float4 tinted(float4 c) { return c; }
float first(uint3 id) { return id.x; }
void both(float x, out float y, out float z) { y = x; z = 2 * x; }
T twice<T : __BuiltinFloatingPointType>(T x) { return x + x; }
[Differentiable] float square(float x) { return x * x; }
[numthreads(4, 1, 1)] void kernel(RWTensor<float, 1> o, uint i : SV_DispatchThreadID) { o[i] = 1; }
"""


@pytest.fixture
def m(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "hints", TEXT)


def test_arrays_of_another_kind(m: spy.Module) -> None:
    head = "float add(float a, float b): argument 'a' is an array of dtype"
    for array, said in (
        (np.zeros(2, complex), "a complex number is two numbers: pass array.real and array.imag."),
        (np.array(["1"]), "numbers were expected."),
        (np.array(["2020-01-01"], "datetime64[D]"), "numbers were expected."),
        (np.array([1, 2], object), "pass array.astype(numpy.float32)."),
    ):
        with pytest.raises(spy.BindError) as caught:
            m.add(array, 1.0)
        assert str(caught.value) == (
            f"{head} {array.dtype} and shape {array.shape}, which does not convert to 'float'; {said}"
        )


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            (3, 8, 9),
            "numpy.moveaxis(x, -3, -1), or torch's, makes its third dimension from the end, of 3, the last.",
        ),
        (
            (2, 3, 8, 9),
            "numpy.moveaxis(x, -3, -1), or torch's, makes its third dimension from the end, of 3, the last.",
        ),
        ((8, 9, 4), "x[..., :3] leaves out the fourth component."),
        ((8, 9), ""),
    ],
)
def test_images_that_lie_another_way(m: spy.Module, shape: tuple[int, ...], said: str) -> None:
    image = np.random.default_rng(0).random(shape, np.float32)
    with pytest.raises(spy.BindError) as caught:
        m.length3(image)
    assert str(caught.value) == (
        f"float length3(float3 c): argument 'c' is an array of dtype float32 and shape {shape}; 'float3' needs "
        f"the last dimension to be 3. {said}".rstrip()
    )
    if said:  # what is advised works
        found = m.length3(image[..., :3] if shape[-1] == 4 else np.moveaxis(image, -3, -1))
        assert np.asarray(found).shape == (*shape[:-3], 8, 9)


def test_colors_without_a_fourth_component(m: spy.Module) -> None:
    image = np.random.default_rng(0).random((4, 9, 3), np.float32)
    with pytest.raises(
        spy.BindError, match=r"be 4\. numpy\.insert\(x, 3, 1, axis=-1\) adds a fourth component, of 1\.$"
    ):
        m.tinted(image)
    np.testing.assert_array_equal(m.tinted(np.insert(image, 3, 1, axis=-1)), np.insert(image, 3, 1, axis=-1))


def test_a_python_int_where_a_float_is_needed(m: spy.Module) -> None:
    with pytest.raises(
        spy.BindError, match=r"make it twice<int>, which Slang refuses:\n[\s\S]*\n'x' is a Python int, and"
    ):
        m.twice(3)
    assert m.twice(3.0) == 6


def test_names_that_are_nearly_right(m: spy.Module, device: spy.Device, tmp_path: Path) -> None:
    for name, meant in (("ad", "add"), ("lenght3", "length3"), ("p", "P"), ("Add", "add")):
        with pytest.raises(
            AttributeError, match=rf"no function or type '{name}'; it has .*\. Did you mean '{meant}'\?"
        ):
            getattr(m, name)
        with pytest.raises(spy.BindError, match=rf"Did you mean '{meant}'\?"):
            m[name]
    with pytest.raises(AttributeError) as caught:
        m.nothing_like_it  # noqa: B018
    assert "Did you mean" not in str(caught.value)
    with pytest.raises(spy.BindError, match=r"there is no parameter 'B'; it has a, b\. Did you mean 'b'\?"):
        m.add(1.0, B=2.0)
    with pytest.raises(spy.BindError, match=r"type 'vulcan' is not one of .*\. Did you mean 'vulkan'\?"):
        spy.Device("vulcan")
    with pytest.raises(spy.BindError, match=r"dtype 'flaot' is not an element type\. .* Did you mean 'float'\?"):
        spy.Tensor.zeros(device, (2,), "flaot")
    (tmp_path / "shaders.slang").write_text(TEXT)
    with pytest.raises(
        spy.CompileError, match=r"there is no file '.*shader\.slang' .* Did you mean 'shaders\.slang'\?"
    ):
        spy.Module.load_from_file(device, tmp_path / "shader.slang")
    for given in ("shaders", "Shaders.slang"):
        with pytest.raises(spy.CompileError) as caught:
            spy.Module.load_from_file(device, tmp_path / given)
        assert str(caught.value) == (
            f"Module.load_from_file: there is no file '{tmp_path / given}' in '{Path.cwd()}'. Give a full path, or "
            "add its folder to include_paths. Did you mean 'shaders.slang'?"
        )


def test_arguments_that_are_missing(m: spy.Module, device: spy.Device) -> None:
    with pytest.raises(spy.BindError) as caught:
        m.both(1.0)
    assert str(caught.value) == (
        "void both(float x, out float y, out float z): arguments y, z missing. What it writes goes to arguments, "
        "too: pass an array or a ValueRef for y and z."
    )
    y, z = spy.floatRef(), spy.floatRef()
    m.both(1.0, y, z)
    assert (y.value, z.value) == (1, 2)
    with pytest.raises(spy.BindError, match=r"argument b missing\.$"):
        m.add(1.0)
    with pytest.raises(spy.BindError, match=r"device is 'x\.slang'; a Device was expected"):
        spy.Module.load_from_file("x.slang")  # type: ignore[arg-type]
    with pytest.raises(spy.BindError, match="path is missing; give the path of a file"):
        spy.Module.load_from_file(device)


def test_a_gradient_that_is_not_there(m: spy.Module, device: spy.Device) -> None:
    with pytest.raises(spy.BindError) as caught:
        spy.Tensor.zeros(device, 3).grad.clear()
    assert str(caught.value) == (
        "Tensor.grad: this Tensor<float> of shape (3,) has no gradient. with_grads() returns a tensor of the same "
        "memory that has one; grad_out and grad_in are None where there is none."
    )


def test_ids_and_generics(m: spy.Module) -> None:
    with pytest.raises(spy.BindError) as caught:
        m.first(spy.call_id())
    assert str(caught.value) == (
        "float first(uint3 id): argument 'id' is call_id() for 'uint3', which counts 3 dimensions; the call has "
        "none. grid(shape) gives the call its own shape."
    )
    assert np.array_equal(m.first(spy.grid((2, 3, 4)))[0, 0], [0, 1, 2, 3])
    with pytest.raises(spy.BindError) as caught:
        m.twice({"x": 1.0})
    assert str(caught.value) == (
        "T twice<T>(T x): argument 'x' is {'x': 1.0}, which has no Slang type of its own; add '_type': 'Name' to it, "
        "or name one with .map(...)."
    )


def test_names_that_members_hide(device: spy.Device) -> None:
    text = "float info(float x) { return x + 1; } float name(float x) { return x + 2; }"
    text += " float grad(float x) { return x; }"
    with pytest.warns(UserWarning) as caught:
        m = spy.Module.load_from_source(device, "hidden", text)
    (warning,) = caught
    assert str(warning.message) == (
        "module 'hidden': it declares info, name, as Module's own members are named; use module['info'] for what the "
        "file declares."
    )
    assert warning.filename == __file__
    assert (m["info"](1.0), m["name"](1.0), m.grad(1.0)) == (2, 3, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert m.info.functions


def test_tensors_of_pytorch_that_are_not_converted(m: spy.Module) -> None:
    torch = pytest.importorskip("torch")
    x = torch.full((2,), 3.0, dtype=torch.float64, requires_grad=True)
    with pytest.raises(spy.BindError) as caught:
        m.square(x)
    assert str(caught.value) == (
        "float square(float x): argument 'x' is a torch.Tensor of float64 and shape (2,); 'float' was expected, and "
        "a call that PyTorch differentiates converts none. Pass x.to(torch.float32): PyTorch converts its gradient "
        "back."
    )
    m.square(x.to(torch.float32)).sum().backward()
    assert x.grad.dtype == torch.float64 and x.grad.tolist() == [6, 6]


REDUCTIONS = ("sum", "mean", "min", "max", "any", "all", "argmin", "argmax")


def test_tracebacks_are_short(m: spy.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one frame below the user's line, and all of them where code of the user's is among them."""
    device = m.device
    three, four = spy.Tensor.zeros(device, 3), spy.Tensor.zeros(device, 4)
    calls = (
        lambda: m.add("a", 1.0),
        lambda: m.add(a=1.0, c=2),
        lambda: m.add(three, four),
        lambda: m.square.bwds(three),
        lambda: m.add.append_to(device.command_list(), "a", 1.0),
        lambda: spy.Module.load_from_source(device, "wrong", "float f( {"),
        lambda: spy.Device("nothing"),
        lambda: three + four,
        lambda: -spy.Tensor.zeros(device, 3, "bool"),
        lambda: three @ np.ones(4),
        lambda: spy.matmul("a", three),
        *[lambda name=name: getattr(three, name)(5) for name in REDUCTIONS],
        lambda: np.sum(three, axis=5),
        lambda: three.sum(dtype=np.float64),
        lambda: three["a"],
        lambda: three[3],
        lambda: three.__setitem__(0, "a"),
        lambda: three.__setitem__(slice(None), np.ones(9)),
        lambda: three.reshape(4),
        lambda: three.view(4),
        lambda: three.astype("nothing"),
        lambda: three.clip(four),
        lambda: three.copy_from(np.ones(9)),
        lambda: three.with_grads(four),
        lambda: float(three),
        lambda: spy.Tensor.from_numpy(device, "a"),
        lambda: spy.Tensor.full(device, 3, "a"),
        lambda: spy.Tensor.zeros(device, "a"),
        lambda: spy.cumsum(three, 5),
        lambda: spy.argsort("a"),
        lambda: m.kernel.dispatch(4, "a"),
        lambda: m.kernel.dispatch("a", three),
        lambda: m.add.dispatch(4, "a"),
        lambda: m.add.bind("a", 1.0),
        lambda: m.add.map(("a",)),
        lambda: m.add.source("a", 1.0),
        lambda: m.square.value_and_grad("a"),
        lambda: m["add<float>"],
        lambda: m.P("a"),
        lambda: spy.Module.load_from_file(device, "nothing.slang"),
        lambda: spy.compile(3),
        lambda: spy.optim.SGD([]),
        lambda: spy.optim.Adam([three]),
        lambda: spy.optim.AdamW([three.with_grads()], betas=3),
        lambda: spy.optim.SGD([three.with_grads()], lr=-1),
        lambda: setattr(spy.optim.SGD([three.with_grads()]), "lr", "a"),
        lambda: spy.optim.SGD([three.with_grads()]).append_to(3),
        lambda: device.create_sampler(filter="a"),
        lambda: spy.save_image("a.nothing", np.ones((3, 3))),
    )
    for call in calls:
        with pytest.raises((spy.SlangPyRtError, IndexError)) as caught:
            call()
        # NumPy's own are left out.
        frames = [
            f for f in traceback.extract_tb(caught.value.__traceback__) if "numpy" not in Path(f.filename).parts
        ]
        # This test, its lambda, and the function of the package that was called.
        assert [Path(f.filename).name for f in frames[:2]] == [Path(__file__).name] * 2 and len(frames) == 3, frames
        assert frames[-1].name not in ("call", "wrapper"), frames
    with pytest.raises(spy.BindError) as caught:
        m.square.set(lambda function: m.add("a", 1.0))(1.0)
    assert Path(traceback.extract_tb(caught.value.__traceback__)[-2].filename).name == Path(__file__).name
    with monkeypatch.context() as patch:
        patch.setattr("slangpy_rt.core.checks.CONFIG", SimpleNamespace(debug=1))
        with pytest.raises(spy.BindError) as caught:
            m.add("b", 1.0)
    assert len(traceback.extract_tb(caught.value.__traceback__)) > 6


def test_a_device_that_is_left_out() -> None:
    for given in ((np.ones(3),), (np.ones(3), spy.Device("null")), ([1, 2],)):
        with pytest.raises(spy.BindError, match=r"^Tensor\.from_numpy: device is .*; a Device was expected, as spy"):
            spy.Tensor.from_numpy(*given)


def test_quoted_lines_are_indented(device: spy.Device) -> None:
    text = "float f(float x)\n{\n    if (x > 0)\n    {\n\t    return x\n             * yy;\n    }\n    return z;\n}\n"
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(device, "indented", text)
    said = str(caught.value).splitlines()
    for line, mark in (("             * yy;", "yy"), ("    return z;", "z")):
        at = next(k for k, each in enumerate(said) if each.endswith(f"| {line}"))
        assert said[at].index(mark) == said[at + 1].index("^")


@pytest.mark.parametrize(
    ("declared", "read", "named"),
    [
        ("cbuffer Params { float scale; }; ", "scale", "; the module declares cbuffer 'Params'"),
        (
            "namespace n { struct Q { float s; }; ParameterBlock<Q> block; }",
            "n::block.s",
            "; the module declares ParameterBlock 'block'",
        ),
    ],
)
def test_buffers_that_nothing_can_fill(device: spy.Device, declared: str, read: str, named: str) -> None:
    m = spy.Module.load_from_source(device, "unfilled", f"{declared} float f(float x) {{ return x * {read}; }}")
    with pytest.raises(spy.UnsupportedError) as caught:
        m.f(1.0)
    assert str(caught.value) == (
        "the function reads a global resource, a cbuffer, a global variable without 'uniform' or one of an imported "
        f"file, which nothing can fill{named}. Declare data in the module itself as: uniform float name; and pass "
        "arrays as parameters."
    )


@pytest.mark.parametrize(
    ("text", "line", "marks", "column"),
    [
        ("uniform floot u;", "uniform floot u;", "        ^^^^^", 9),
        ("namespace n { uniform   floot3 u; }", "namespace n { uniform   floot3 u; }", " " * 24 + "^^^^^^", 25),
        ("struct P {};\nuniform ParameterBlock<Q> u;", "uniform ParameterBlock<Q> u;", " " * 23 + "^", 24),
        (
            "[numthreads(nope, 1, 1)] void k(uint3 i : SV_DispatchThreadID) {}",
            "[numthreads(nope, 1, 1)] void k(uint3 i : SV_DispatchThreadID) {}",
            " " * 12 + "^^^^",
            13,
        ),
        ("static  floot u;", "static  floot u;", "        ^^^^^", 9),
    ],
    ids=["uniform", "namespace", "block", "kernel", "static"],
)
def test_lines_are_quoted_as_they_are_written(text: str, line: str, marks: str, column: int) -> None:
    """The compiler gets another text, in which uniforms are static variables and kernels are functions."""
    with pytest.raises(spy.CompileError) as caught:
        spy.Module.load_from_source(spy.Device("null"), "quoted", text)
    told = str(caught.value).splitlines()
    at = next(k for k, each in enumerate(told) if each.endswith(f"| {line}"))
    assert told[at + 1].partition("| ")[2].startswith(f"{marks} ")
    assert told[at - 2].endswith(f":{column}")

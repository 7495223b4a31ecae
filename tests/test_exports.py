"""The public names, pinned: a new one is added here on purpose, and a lost one is noticed."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import slangpy_rt as spy

PUBLIC = [
    "BindError",
    "CommandList",
    "CompileError",
    "Config",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "DiffPair",
    "Event",
    "Function",
    "GradientError",
    "Image",
    "InstanceList",
    "InstanceTensor",
    "Kernel",
    "Mesh",
    "Module",
    "NDBuffer",
    "NDDifferentiableBuffer",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "Profile",
    "Sampler",
    "Scene",
    "ShapeError",
    "SlangPyRtError",
    "Stream",
    "Struct",
    "Tensor",
    "Texture",
    "Timer",
    "Tuned",
    "UnsupportedError",
    "ValueRef",
    "argsort",
    "call_id",
    "cdiv",
    "compile",
    "create_device",
    "create_torch_device",
    "cumsum",
    "devices",
    "diff_pair",
    "empty",
    "floatRef",
    "graphics",
    "grad_tape",
    "grid",
    "init_device",
    "intRef",
    "kernel",
    "loadModule",
    "load_image",
    "matmul",
    "nonzero",
    "optim",
    "pack",
    "pickle_on",
    "profile",
    "rand_float",
    "save_image",
    "sort",
    "thread_id",
    "torch_module",
    "torch_operator",
    "wang_hash",
]
# Vectors and matrices by their Slang names; too many for a star import.
VECTORS = {f"{scalar}{n}" for scalar in ("bool", "int", "uint", "half", "float", "double") for n in (1, 2, 3, 4)} | {
    f"float{rows}x{columns}" for rows in (2, 3, 4) for columns in (2, 3, 4)
}
# Of the classes; what instances add (``module.device``, the functions) is not among them.
MEMBERS = {
    "Module": "find_function find_struct info load_from_file load_from_source name require_function require_struct",
    "Function": "append_to bind bwds call call_group_shape check_grads constants device dispatch explain fwds "
    "group_size map raster return_type return_type_name set signature source stream thread_group_size tune "
    "type_conformances value_and_grad write",
    "Kernel": "append_to bind bwds call constants device dispatch explain fwds group_size map of return_type "
    "return_type_name set signature source stream thread_group_size threads_of_group tune type_conformances write",
    "Struct": "fields forget name source_changed",
    "InstanceList": "construct pack slang_type",
    "InstanceTensor": "construct copy_from_numpy shape slang_type to_numpy",
    "CommandList": "append clear copy explain submit update waits",
    "Event": "done elapsed record synchronize wait",
    "Profile": "rows save",
    "Stream": "handle launch number record synchronize wait",
    "Timer": "seconds",
    "Image": "backward get_this gradient_of_this levels update",
    "Mesh": "corners_on faces from_trimesh load positions sizes triangles_on",
    "Scene": "backward count get_this gradient_of_this meshes update update_this",
    "Sampler": "address desc device layout",
    "Texture": "address array_length buffer copy_from copy_to depth device format from_numpy generate_mips height "
    "layout mip mip_count nbytes numpy of sampler shape slang_type summary to_numpy type used width with_sampler",
    "ValueRef": "value",
    "DiffPair": "grad primal value",
    "NDDifferentiableBuffer": "address buffer clear copy_from device dtype flatten_dtype from_dlpack from_numpy grad "
    "grad_in grad_out host_view is_contiguous layout nbytes ndim numpy numpy_async of primal share shape size "
    "summary to_numpy torch view",
    "NDBuffer": "address buffer clear copy_from device dtype flatten_dtype from_dlpack from_numpy host_view "
    "is_contiguous layout nbytes ndim numpy numpy_async of share shape size summary to_numpy torch view",
    "Tensor": "T address all any arange argmax argmin astype broadcast_to buffer clear clip copy copy_from "
    "copy_from_numpy detach device dtype empty empty_like flatten_dtype from_dlpack from_numpy full grad grad_in "
    "grad_out host_view is_contiguous item layout linspace max mean min nbytes ndim numpy numpy_async of ones "
    "ones_like point_to reshape share shape size strides sum summary to to_numpy tolist torch view where with_grads "
    "zeros zeros_like",
}

# Of a device; the class has more, which the packages below use.
DEVICE = """caps close closed command_list create_compute_kernel create_sampler create_texture debug deterministic
event hot_reload include_paths index info load_module load_module_from_file load_module_from_source load_program name
reload stream synchronize timer wait"""


def test_public_names() -> None:
    assert sorted(spy.__all__) == sorted({*PUBLIC, *VECTORS})
    for name in PUBLIC:
        getattr(spy, name)  # some are imported when they are first used
    visible = {n for n, v in vars(spy).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert visible == {*PUBLIC, *VECTORS} - {"graphics", "optim"}
    assert spy.__version__.count(".") == 2


def test_dir_shows_public_names_only() -> None:
    assert [n for n in dir(spy) if not n.startswith("__")] == spy.__all__


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("device", "; Device('cpu') opens a device of that kind, and init_device() the best one that is here."),
        ("tensor", "; Tensor.from_numpy(device, array) copies an array to a device."),
        ("refs", "."),
    ],
)
def test_modules_that_are_called(name: str, meant: str) -> None:
    with pytest.raises(TypeError) as caught:
        getattr(spy, name)("cpu")
    assert str(caught.value) == f"slangpy_rt.{name} is a module{meant}"


def test_names_that_are_none() -> None:
    with pytest.raises(AttributeError, match=r"^module 'slangpy_rt' has no attribute 'zeros'; Tensor\.zeros"):
        _ = spy.zeros
    with pytest.raises(AttributeError, match=r"^module 'slangpy_rt' has no attribute 'runtme'$"):
        _ = spy.runtme


def test_former_paths_are_attributes() -> None:
    assert spy.tensor.Tensor is spy.Tensor
    assert spy.device.Device is spy.Device
    assert spy.errors.BindError is spy.BindError


def test_python_proposes_similar_names() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import slangpy_rt; slangpy_rt.Tensr"], capture_output=True, text=True
    )
    assert run.stderr.endswith("module 'slangpy_rt' has no attribute 'Tensr'. Did you mean: 'Tensor'?\n")


def test_dir_of_objects_shows_no_internals() -> None:
    with spy.Device("null") as device:
        module = spy.Module.load_from_source(device, "m", "float f(float x) { return x; }")
        seen = {kind: [n for n in dir(x) if not n.startswith("_")] for kind, x in
                {"Device": device, "Module": module, "Function": module.f}.items()}  # fmt: skip
        assert seen["Device"] == DEVICE.split()
        assert all(hasattr(device, name) for name in seen["Device"])
        assert seen["Module"] == sorted([*MEMBERS["Module"].split(), "device", "f"])
        assert seen["Function"] == sorted([*MEMBERS["Function"].split(), "name", "overloads"])


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name: str) -> None:
    own = {n for n in dir(getattr(spy, name)) if not n.startswith("_")}
    assert sorted(own) == sorted(MEMBERS[name].split())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_say_what_they_are(name: str) -> None:
    assert inspect.getdoc(getattr(spy, name))


def test_create_device_takes_what_device_takes() -> None:
    own = [(p.name, p.default) for p in inspect.signature(spy.create_device).parameters.values()]
    assert own == [(p.name, p.default) for p in inspect.signature(spy.Device).parameters.values()]


def test_errors_are_the_builtin_ones_too() -> None:
    for error, builtin in [
        (spy.BindError, TypeError),
        (spy.BindError, ValueError),
        (spy.ShapeError, ValueError),
        (spy.CompileError, RuntimeError),
        (spy.OutOfBoundsError, IndexError),
        (spy.GradientError, ArithmeticError),
        (spy.OutOfMemoryError, MemoryError),
        (spy.OutOfMemoryError, spy.DeviceError),
        (spy.DeviceLostError, spy.DeviceError),
    ]:
        assert issubclass(error, builtin) and issubclass(error, spy.SlangPyRtError)

"""The public names, pinned: a new one is added here on purpose, and a lost one is noticed."""

from __future__ import annotations

import inspect

import pytest

import slangpy_rt as spy

PUBLIC = [
    "BindError",
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceType",
    "Function",
    "Module",
    "NDBuffer",
    "OutOfBoundsError",
    "OutOfMemoryError",
    "ShapeError",
    "SlangPyRtError",
    "Tensor",
    "UnsupportedError",
    "call_id",
    "create_device",
    "devices",
    "grid",
    "init_device",
    "rand_float",
    "thread_id",
    "wang_hash",
]
# Of the classes; what instances add (``module.device``, the functions) is not among them.
MEMBERS = {
    "Module": "info load_from_file load_from_source name",
    "Function": "call explain source",
    "NDBuffer": "address buffer clear copy_from device dtype flatten_dtype from_numpy is_contiguous layout nbytes "
    "ndim numpy of shape size summary to_numpy view",
    "Tensor": "address arange broadcast_to buffer clear copy_from copy_from_numpy device dtype empty empty_like "
    "flatten_dtype from_numpy full is_contiguous layout nbytes ndim numpy of ones ones_like shape size summary "
    "to_numpy view zeros zeros_like",
}


def test_public_names() -> None:
    assert sorted(spy.__all__) == PUBLIC
    visible = {n for n, v in vars(spy).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert visible == set(PUBLIC)
    assert spy.__version__.count(".") == 2


@pytest.mark.parametrize("name", MEMBERS)
def test_members(name: str) -> None:
    own = {n for n in dir(getattr(spy, name)) if not n.startswith("_")}
    assert sorted(own) == sorted(MEMBERS[name].split())


@pytest.mark.parametrize("name", PUBLIC)
def test_public_things_say_what_they_are(name: str) -> None:
    assert inspect.getdoc(getattr(spy, name))


def test_errors_are_the_builtin_ones_too() -> None:
    for error, builtin in [
        (spy.BindError, TypeError),
        (spy.ShapeError, ValueError),
        (spy.OutOfBoundsError, IndexError),
        (spy.OutOfMemoryError, MemoryError),
        (spy.OutOfMemoryError, spy.DeviceError),
        (spy.DeviceLostError, spy.DeviceError),
    ]:
        assert issubclass(error, builtin) and issubclass(error, spy.SlangPyRtError)

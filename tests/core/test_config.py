"""Settings: what each variable means, and what a wrong one says."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest

from slangpy_rt.core.config import CONFIG, Config, read_config
from slangpy_rt.core.errors import BindError


def test_silence_gives_defaults() -> None:
    assert read_config({}) == Config(
        device=None,
        backends={},
        cache_dir=None,
        cache_size=1 << 30,
        debug=0,
        labels=0,
        override=None,
        slang_lib=None,
        d3d12_lib=None,
        dxc=None,
        compiler_python=sys.executable,
        compile_seconds=60,
        build_seconds=600,
        cxx=None,
        threads=os.cpu_count() or 1,
        tune="on",
        path="",
    )


def test_every_variable_is_read() -> None:
    env = {
        "SLANGPY_RT_DEVICE": "cpu",
        "SLANGPY_RT_BACKENDS": "mine=my.package:Mine, other=there:Other,",
        "SLANGPY_RT_CACHE_DIR": "/cache",
        "SLANGPY_RT_CACHE_SIZE": "1000",
        "SLANGPY_RT_DEBUG": "3",
        "SLANGPY_RT_LABELS": "1",
        "SLANGPY_RT_OVERRIDE": "/edited",
        "SLANGPY_RT_SLANG_LIB": "/lib/libslang.so",
        "SLANGPY_RT_D3D12_LIB": "/lib/libd3d12.so",
        "SLANGPY_RT_DXC": "/lib/libdxcompiler.so",
        "SLANGPY_RT_COMPILE_IN": "/bin/python3",
        "SLANGPY_RT_COMPILE_SECONDS": "7",
        "SLANGPY_RT_BUILD_SECONDS": "8",
        "SLANGPY_RT_CXX": "zig",
        "SLANGPY_RT_THREADS": "6",
        "SLANGPY_RT_TUNE": "cached",
        "PATH": "/bin",
    }
    backends = {"mine": "my.package:Mine", "other": "there:Other"}
    assert read_config(env) == Config(
        "cpu",
        backends,
        "/cache",
        1000,
        3,
        1,
        "/edited",
        "/lib/libslang.so",
        "/bin/python3",
        7,
        8,
        "/lib/libd3d12.so",
        "/lib/libdxcompiler.so",
        "zig",
        6,
        "cached",
        "/bin",
    )


def test_an_empty_cache_directory_is_kept_apart_from_none() -> None:
    assert read_config({"SLANGPY_RT_CACHE_DIR": ""}).cache_dir == ""


def test_empty_numbers_are_defaults() -> None:
    assert read_config({"SLANGPY_RT_DEBUG": "", "SLANGPY_RT_CACHE_SIZE": ""}) == read_config({})


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("SLANGPY_RT_CACHE_SIZE", 0),
        ("SLANGPY_RT_DEBUG", 0),
        ("SLANGPY_RT_LABELS", 0),
        ("SLANGPY_RT_THREADS", 1),
        ("SLANGPY_RT_COMPILE_SECONDS", 1),
        ("SLANGPY_RT_BUILD_SECONDS", 1),
    ],
)
def test_a_number_that_is_none(name: str, least: int) -> None:
    for text in ("many", "1.5", str(least - 1), "-5"):
        with pytest.raises(BindError) as caught:
            read_config({name: text})
        assert str(caught.value) == (
            f"environment variable {name}: expected a whole number of at least {least}, got {text!r}; change or "
            "unset it."
        )
    read_config({name: str(least)})


def test_a_wrong_number_when_the_package_is_imported() -> None:
    program = "import slangpy_rt"
    environment = os.environ | {"SLANGPY_RT_THREADS": "x"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert found.returncode and found.stderr.splitlines()[-1] == (
        "slangpy_rt.core.errors.BindError: environment variable SLANGPY_RT_THREADS: expected a whole number of at "
        "least 1, got 'x'; change or unset it."
    )


def test_the_configuration_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.debug = 5  # type: ignore[misc]


@pytest.mark.parametrize("text", ["mine", "=x:Y", "mine=", "mine=x:Y,other"])
def test_backends_without_a_place(text: str) -> None:
    with pytest.raises(BindError) as caught:
        read_config({"SLANGPY_RT_BACKENDS": text})
    wrong = text.rpartition(",")[2]
    message = (
        f"environment variable SLANGPY_RT_BACKENDS: expected name=module:Class, got {wrong!r}; change or unset it."
    )
    assert str(caught.value) == message

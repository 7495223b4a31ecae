"""Which adapter values of a type get, by the names of types and by protocols; and where arrays begin."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from slangpy_rt.arguments.adapter import Adapter
from slangpy_rt.arguments.adapters import adapter_for_result, adapter_of_results, asking_for_autograd, converter
from slangpy_rt.core import addresses

torch = pytest.importorskip("torch")


class Shared:
    """An array of a library with DLPack."""

    def __dlpack__(self, **options: Any) -> Any:
        return None


def test_values_of_other_libraries_have_adapters() -> None:
    class Layer(torch.nn.Parameter):  # type: ignore[misc]
        pass

    for kind in (torch.Tensor, torch.nn.Parameter, Layer):
        assert type(converter(kind)).__name__ == "TorchAdapter"
    assert type(converter(Shared)).__name__ == "ForeignAdapter"
    for kind in (int, list, dict, np.ndarray, np.float32):
        assert converter(kind) is None
    assert not isinstance(converter(range), Adapter)


def test_results_and_autograd_are_asked_of_adapters() -> None:
    assert adapter_for_result(torch.zeros(1)) is not None
    assert adapter_for_result(Shared()) is None and adapter_for_result(np.zeros(1)) is None
    assert adapter_of_results("torch") is not None and adapter_of_results("torch_gpu") is not None
    assert adapter_of_results("numpy") is None and adapter_of_results("") is None
    plain, learned = torch.zeros(1), torch.zeros(1, requires_grad=True)
    assert asking_for_autograd((1, plain, np.zeros(1))) is None
    assert asking_for_autograd((1, learned)) is not None
    with torch.no_grad():
        assert asking_for_autograd((1, learned)) is None


def test_an_adapter_is_loaded_with_its_first_array() -> None:
    program = """
import sys
from slangpy_rt.arguments.adapters import converter
converter(list), converter(type("T", (), {"__dlpack__": None}))
print([name for name in ("torch", "slangpy_rt.interop.torch", "slangpy_rt.interop.foreign") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "['slangpy_rt.interop.foreign']\n"


def test_where_arrays_begin() -> None:
    whole = np.arange(24, dtype=np.int16).reshape(4, 6)
    frozen = whole.copy()
    frozen.flags.writeable = False
    for array in (whole, whole[1:, ::2], whole[::-1, ::-1], whole.T, frozen, whole.view(np.recarray), np.array(3.0)):
        assert addresses.address_of(array) == array.__array_interface__["data"][0]

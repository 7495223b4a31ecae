"""Chooses the Parameter of a Slang type. It reads no value."""

from __future__ import annotations

from collections.abc import Mapping

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.types import SlangType
from slangpy_rt.slangtorch.diff_tensor_view import DiffTensorViewParameter
from slangpy_rt.slangtorch.numbers import Numbers
from slangpy_rt.slangtorch.parameter import Parameter
from slangpy_rt.slangtorch.pointer import PointerParameter
from slangpy_rt.slangtorch.sequence import SequenceParameter
from slangpy_rt.slangtorch.structure import StructParameter
from slangpy_rt.slangtorch.tensor_view import TensorView
from slangpy_rt.slangtorch.torch_tensor import TorchTensorParameter


def parameter_of(path: str, kind: SlangType, names: Mapping[str, str]) -> Parameter:
    """Return the Parameter of a Slang type.

    Parameters
    ----------
    path : str
        The parameter's name in messages: ``"square: parameter 'input'"``.
    kind : SlangType
        The type.
    names : mapping of str to str
        Names of structs in Python by their names in Slang, where they differ.

    Raises
    ------
    UnsupportedError
        If Python has no values for the type.
    """
    if kind.kind in ("scalar", "vector", "matrix", "enum"):
        return Numbers(kind)
    if kind.kind == "array" and kind.element is not None and kind.shape[0]:
        return SequenceParameter(kind, parameter_of(f"{path}[]", kind.element, names))
    if kind.name.startswith("_spy_TensorView<"):
        return TensorView(kind)
    if kind.name.startswith("_spy_TorchTensor<"):
        return TorchTensorParameter(kind)
    if kind.name.startswith("_spy_DiffTensorView<"):
        primal = parameter_of(path, kind.fields[0].type, names)
        assert isinstance(primal, TensorView)
        wrapper = kind.fields[1].type
        own = None if wrapper.name == "_spy_AtomicAdd" else parameter_of(f"{path}.diff", wrapper, names)
        return DiffTensorViewParameter(kind, primal, own)
    if kind.kind == "pointer" and kind.element is not None:
        return PointerParameter(kind)
    if kind.kind == "struct":
        fields = tuple((f.name, parameter_of(f"{path}.{f.name}", f.type, names)) for f in kind.fields)
        name = kind.name.partition("<")[0].rpartition(".")[2]
        return StructParameter(kind, fields, names.get(name, name))
    raise UnsupportedError(f"{path}: values of type '{kind.name.replace('_spy_', '')}' cannot come from Python.")


def structs_in(parameter: Parameter) -> list[StructParameter]:
    """Return the struct parameters that a parameter is or holds."""
    if isinstance(parameter, StructParameter):
        return [parameter, *(found for field in parameter.fields for found in structs_in(field))]
    if isinstance(parameter, SequenceParameter):
        return structs_in(parameter.element)
    if isinstance(parameter, DiffTensorViewParameter) and parameter.wrapper is not None:
        return structs_in(parameter.wrapper)
    return []

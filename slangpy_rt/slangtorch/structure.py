"""StructParameter: a struct as a parameter of slang-torch's kernels, and its named tuple in Python."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words
from slangpy_rt.slangtorch.parameter import BoundTensor, Parameter


class StructParameter(Parameter):
    """A struct, which takes its named tuple, a dict with the fields' names, or a tuple or list in their order.

    Attributes
    ----------
    name : str
        Name of the named tuple in the module: the struct's without generic arguments, or that of ``[PyExport]``.
    python_type : type
        The named tuple.
    """

    def __init__(self, kind: SlangType, fields: tuple[tuple[str, Parameter], ...], name: str) -> None:
        self.type_name = kind.name
        self.name = name
        self._fields = fields
        self.members = tuple(member for _, field in fields for member in field.members)
        self.keeps_gradients = any(field.keeps_gradients for _, field in fields)
        self.has_pairs = any(field.has_pairs for _, field in fields)
        self.codes = tuple(code for _, field in fields for code in field.codes)
        before, addresses = 0, []
        for _, field in fields:
            addresses += [before + at for at in field.addresses]
            before += len(field.codes)
        self.addresses = tuple(addresses)
        # A field name that Python does not allow there, such as one that begins with "_", becomes the field's number.
        self.python_type: Any = namedtuple(self.name, [name for name, _ in fields], rename=True)  # type: ignore[misc]

    @property
    def fields(self) -> tuple[Parameter, ...]:
        """The fields' parameters."""
        return tuple(field for _, field in self._fields)

    def assign(self, target: str, members: Iterator[str]) -> list[str]:
        return [line for name, field in self._fields for line in field.assign(f"{target}.{name}", members)]

    def read(self, source: str) -> list[str]:
        return [text for name, field in self._fields for text in field.read(f"{source}.{name}")]

    def value(self, values: Iterator[Any], tensors: Mapping[int, Any]) -> Any:
        return self.python_type(*[field.value(values, tensors) for field in self.fields])

    def replaced(self, value: Any, by: Callable[..., Any]) -> Any:
        fields = dict(self._fields)
        if isinstance(value, dict):
            return {k: fields[k].replaced(item, by) if k in fields else item for k, item in value.items()}
        if not isinstance(value, (tuple, list)) or len(value) != len(self._fields):
            return value
        found = [field.replaced(item, by) for (_, field), item in zip(self._fields, value, strict=True)]
        return self.python_type(*found) if isinstance(value, self.python_type) else found

    def pack(self, path: str, value: Any, block: list[Any], tensors: list[BoundTensor]) -> None:
        names = [name for name, _ in self._fields]
        if isinstance(value, dict):
            if set(value) != set(names):
                raise TypeError(
                    f"{path}: a dict with {', '.join(map(repr, value)) or 'nothing'}; "
                    f"'{self.name}' has the fields {', '.join(names)}."
                )
            value = tuple(value[name] for name in names)
        elif not isinstance(value, (tuple, list)):
            raise ValueError(f"{path}: {in_words(value)}; '{self.name}' takes its named tuple, a dict or a tuple.")
        elif len(value) != len(names):
            raise TypeError(f"{path}: {len(value)} values; '{self.name}' has the fields {', '.join(names)}.")
        for (name, field), item in zip(self._fields, value, strict=True):
            field.pack(f"{path}.{name}", item, block, tensors)

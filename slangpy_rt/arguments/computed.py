"""Generator: an argument without data, whose values the kernel computes from the element's index.

A generator gives the Slang text of one element and the numbers that the text reads; ``bind`` and ``calls.operands``
put them into the kernel and its argument block. No generator keeps a state: the same arguments give the same values
on every device, in whatever order the elements run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.shapes import Shape, is_whole
from slangpy_rt.core.types import SlangType
from slangpy_rt.core.wording import in_words

INTEGERS = frozenset({"int", "uint", "int64_t", "uint64_t"})
FLOATS = frozenset({"float", "double"})


class Generator(ABC):
    """An argument that is computed for each element of the call.

    Attributes
    ----------
    shape : tuple of int
        The shape that it has in the broadcast to the call's shape.
    indexed : bool
        Whether its text reads ``_spy_index``, the element's index in each dimension, or only ``_spy_i``, the number
        of the element.
    """

    shape: Shape = ()
    indexed: ClassVar[bool] = True
    # Parameters and their defaults: a repr shows the others' values. The attribute of parameter ``x`` is ``_x``.
    defaults: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def key(self) -> Any:
        """Return a value that is equal for generators that one prepared call can serve, whatever their ``values``."""

    def scalars(self) -> tuple[str, ...]:
        """Return the Slang scalar types of ``values``."""
        return ()

    def values(self) -> tuple[Any, ...]:
        """Return the numbers that each call passes in its argument block."""
        return ()

    @abstractmethod
    def check(self, where: str, type_: SlangType) -> None:
        """Refuse a parameter that cannot take the generator in a call of any shape.

        Parameters
        ----------
        where : str
            Start of an error message.
        type_ : SlangType
            The parameter.

        Raises
        ------
        BindError
            If it cannot.
        """

    @abstractmethod
    def expression(
        self, where: str, type_: SlangType, values: Sequence[str], rank: int, dims: Shape | None = None
    ) -> str:
        """Return the Slang text of one element.

        Parameters
        ----------
        where : str
            Start of an error message.
        type_ : SlangType
            The parameter.
        values : sequence of str
            The Slang expressions that stand for ``values`` in the text.
        rank : int
            Dimensions of the call.
        dims : tuple of int, optional
            The call dimension of each dimension of ``shape``; the last ones unless given.

        Raises
        ------
        BindError
            If the parameter cannot take it, or not in a call of that rank.
        """

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        said = [(name, getattr(self, f"_{name}"), default) for name, default in self.defaults.items()]
        fields = ", ".join(f"{name}={in_words(value)}" for name, value, default in said if value != default)
        return f"{type(self).__name__}({fields})"


def components(
    where: str,
    type_: SlangType,
    what: Generator,
    dim: int = -1,
    scalars: frozenset[str] = INTEGERS,
) -> int:
    """Return how many numbers a parameter takes: 1 for ``int``, 2 for ``int2`` and ``int[2]``.

    Raises
    ------
    BindError
        If its scalar type is not in ``scalars``, or it does not take ``dim`` of them.
    """
    inner = type_.element if type_.kind == "array" else type_
    if (
        inner is None
        or inner.scalar not in scalars
        or inner.kind not in ("scalar", "vector")
        or (type_.kind == "array" and (inner.kind != "scalar" or not type_.shape[0]))
    ):
        makes, takes = ("floats", "float") if scalars is FLOATS else ("whole numbers", "int")
        raise BindError(
            f"{where} is {what!r}, which makes {makes}; it takes {'an' if takes == 'int' else 'a'} "
            f"'{takes}', '{takes}3' or '{takes}[4]' parameter, not '{type_.name}'."
        )
    count = type_.shape[0] if type_.shape else 1
    if dim not in (-1, count):
        raise BindError(f"{where} is {what!r}, which is {dim} number{'s' * (dim > 1)}; '{type_.name}' takes {count}.")
    return count


def scalar_of(type_: SlangType) -> str:
    return type_.element.scalar if type_.element is not None else type_.scalar


def dim_of(function: str, name: str, value: Any) -> int:
    if not is_whole(value) or (value != -1 and value < 1):
        raise BindError(f"{function}: {name} is a whole number of at least 1, or -1, not {in_words(value)}.")
    return int(value)

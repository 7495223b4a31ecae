"""KnownProducts: the products that a device computed before, found again by the signatures of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from slangpy_rt.linalg.known_product import MISS, KnownProduct, known_product

if TYPE_CHECKING:
    from slangpy_rt.linalg.arrays import Arrays
    from slangpy_rt.linalg.plan import Plan
    from slangpy_rt.linalg.user_functions import UserFunction
    from slangpy_rt.runtime.core import DeviceCore

_MOST = 1024


class Fixed(NamedTuple):
    """What a known product depends on, of the values of a user's function.

    Attributes
    ----------
    key : tuple
        Numbers, and signatures and addresses of arrays, with the names of the uniforms.
    arrays : tuple
        The arrays, in the order of the names.
    """

    key: tuple[Any, ...] = ()
    arrays: tuple[Any, ...] = ()


NOTHING = Fixed()


class KnownProducts:
    """The known products of one device."""

    def __init__(self, device: DeviceCore) -> None:
        self._device = device
        # None stands for a product that cannot be repeated.
        self._found: dict[Any, KnownProduct | None] = {}

    def run(
        self, arrays: Arrays, a: Any, b: Any, out: Any, bias: Any, options: Any, uniforms: tuple[Any, ...] = ()
    ) -> Any:
        """Compute a product like an earlier one; return MISS, without doing anything, if there is none.

        Parameters
        ----------
        arrays : Arrays
            The library of the arrays; ``out`` and ``bias`` may be None.
        options : object
            What ``options_of`` returned.
        uniforms : tuple
            The arrays that uniforms of a user's function have as values.
        """
        try:
            known = self._found.get(_key(arrays, a, b, out, bias, options))
        except (AttributeError, TypeError, RuntimeError):
            # What is no array of this library, or cannot be hashed.
            return MISS
        return MISS if known is None else known.run(a, b, out, bias, uniforms)

    def add(
        self, arrays: Arrays, plan: Plan, values: Mapping[str, Any], options: Any, uniforms: Mapping[str, Any]
    ) -> None:
        """Remember a product that was computed; ``uniforms`` has the values of a user's function."""
        try:
            key = _key(arrays, values["a"], values["b"], values.get("out"), values.get("bias"), options)
            if key in self._found:
                return
        except (AttributeError, TypeError, RuntimeError):
            return
        if len(self._found) >= _MOST:
            self._found.clear()
        # Equal keys of 0.0 and -0.0 are of different products.
        self._found[key] = known_product(arrays, self._device, plan, values, uniforms) if plan.alpha else None


def repeat(
    arrays: Arrays,
    a: Any,
    b: Any,
    out: Any,
    bias: Any,
    options: Any,
    given: DeviceCore | None,
    function: UserFunction | None = None,
    uniforms: tuple[Any, ...] = (),
) -> Any:
    """Compute a product like an earlier one on a given device, or on that for ``a``; see ``KnownProducts.run``."""
    try:
        known = known_products(arrays.device(a, given), function)
    except AttributeError:
        # What is no device, or no array of this library.
        return MISS
    return known.run(arrays, a, b, out, bias, options, uniforms)


def options_of(*values: Any) -> Any:
    """Return the options of a product as a part of a key: 1, 1.0 and True are equal, but are not all taken.

    A user's function is in it by its ``key``.
    """
    return values, tuple(map(type, values))


def fixed(arrays: Arrays, function: UserFunction | None) -> Fixed | None:
    """Return what a product depends on, of a function's values; None if they have to be looked at in each call.

    That is so for all but numbers, and arrays of the product's library that the function only reads.
    """
    if function is None or not function.values:
        return NOTHING
    key: list[Any] = []
    found: list[Any] = []
    for name, value in function.values.items():
        # Larger numbers would be taken for marks of addresses (``KnownLaunch``).
        if type(value) in (bool, float) or (type(value) is int and abs(value) < 2**60):
            # As text: 1, 1.0 and True are equal, and so are 0.0 and -0.0.
            key.append((name, repr(value)))
        elif arrays.is_array(value) and not function.writes(name):
            key.append((name, arrays.signature(value), arrays.address(value)))
            found.append(value)
        else:
            return None
    return Fixed(tuple(key), tuple(found))


def known_products(device: DeviceCore, function: UserFunction | None = None) -> KnownProducts:
    """Return the known products of a device, or those with a user's function."""
    if function is not None:
        return function.once(("products", device), lambda: KnownProducts(device))
    return device.once("products of matmul", lambda: KnownProducts(device))


def _key(arrays: Arrays, a: Any, b: Any, out: Any, bias: Any, options: Any) -> Any:
    signature = arrays.signature
    return (
        signature(a),
        signature(b),
        None if out is None else signature(out),
        None if bias is None else signature(bias),
        options,
    )

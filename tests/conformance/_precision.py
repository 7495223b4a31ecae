"""How far a result may be off by the Vulkan specification, "Precision of Individual Operations".

A ``Bounded`` number goes through the formula that the specification says an operation inherits its precision from;
with each step grows how far the result may be off. It is for half and float. Of double the specification promises the
precision of float alone: ``Double`` has what slangpy_rt promises, sums, products and quotients that are rounded and
functions within 4 ULP. Cancellation needs no exceptions: a difference may be off by what its terms are off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Bounded:
    """Numbers, how far they may be off, and the type that they are of.

    Parameters
    ----------
    value, error : array
        Both of a wider type.
    dtype : dtype
        half, float or double.
    """

    def __init__(self, value: Any, error: Any, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.value, self.error = np.asarray(value), np.asarray(error)

    def within(self, units: Any, value: Any, more: Any = 0.0) -> Bounded:
        """A result of this type, so many ULP off, and by ``more``, which is what its operands are off."""
        info = np.finfo(self.dtype)
        with np.errstate(over="ignore"):
            near = np.minimum(np.abs(value) + more, np.asarray(info.max, value.dtype)).astype(self.dtype)
        # Numbers below the least normal one may become 0.
        ulp = np.spacing(near).astype(value.dtype) + np.asarray(info.tiny, value.dtype)
        return type(self)(value, units * ulp + more, self.dtype)

    def like(self, other: Any) -> Bounded:
        """A constant, rounded to this type."""
        if isinstance(other, Bounded):
            return other
        value = np.asarray(other, self.value.dtype)
        return type(self)(value, np.abs(value.astype(self.dtype).astype(value.dtype) - value), self.dtype)

    def __add__(self, other: Any) -> Bounded:
        other = self.like(other)
        return self.within(1, self.value + other.value, self.error + other.error)

    __radd__ = __add__

    def __neg__(self) -> Bounded:
        return type(self)(-self.value, self.error, self.dtype)

    def __sub__(self, other: Any) -> Bounded:
        return self + -self.like(other)

    def __rsub__(self, other: Any) -> Bounded:
        return -self + other

    def __mul__(self, other: Any) -> Bounded:
        other = self.like(other)
        more = np.abs(self.value) * other.error + np.abs(other.value) * self.error + self.error * other.error
        return self.within(1, self.value * other.value, more)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Bounded:
        other = self.like(other)
        value = self.value / other.value
        return self.within(self.division, value, (self.error + np.abs(value) * other.error) / _away(other))

    def __rtruediv__(self, other: Any) -> Bounded:
        return self.like(other) / self

    division = 2.5
    inversion = 2.0

    def _of(self, units: Any, function: Callable[[Array], Array]) -> Bounded:
        """A monotonic function: what the argument is off shows at its ends."""
        value = function(self.value)
        more = np.maximum(
            np.abs(function(self.value + self.error) - value), np.abs(function(self.value - self.error) - value)
        )
        return self.within(units, value, more)

    def _half(self) -> bool:
        return self.dtype.itemsize == 2

    def rsqrt(self) -> Bounded:
        return self._of(self.inversion, lambda x: 1 / np.sqrt(x))

    def sqrt(self) -> Bounded:
        return 1 / self.rsqrt()

    def exp(self) -> Bounded:
        return self._of((1 if self._half() else 3) + 2 * np.abs(self.value), np.exp)

    def exp2(self) -> Bounded:
        return self._of((1 if self._half() else 3) + 2 * np.abs(self.value), np.exp2)

    def log(self, function: Callable[[Array], Array] = np.log) -> Bounded:
        found = self._of(3, function)
        inside = (self.value >= 0.5) & (self.value <= 2)
        found.error = np.where(
            inside, self._of(0, function).error + 2.0 ** (-7 if self._half() else -21), found.error
        )
        return found

    def log2(self) -> Bounded:
        return self.log(np.log2)

    def sin(self, function: Callable[[Array], Array] = np.sin) -> Bounded:
        # Outside -pi and pi nothing is promised; a result is a sine still.
        error = np.where(np.abs(self.value) <= np.pi, 2.0 ** (-7 if self._half() else -11) + self.error, 2.0)
        return type(self)(function(self.value), error, self.dtype)

    def cos(self) -> Bounded:
        return self.sin(np.cos)

    def tan(self) -> Bounded:
        return self.sin() / self.cos()

    def atan2(self, other: Any) -> Bounded:
        other = self.like(other)
        x, y = np.abs(other.value), np.abs(self.value)
        more = (self.error * x + other.error * y) / np.maximum((x - other.error) ** 2 + (y - self.error) ** 2, 1e-300)
        return self.within(5 if self._half() else 4096, np.arctan2(self.value, other.value), more)

    def sinh(self) -> Bounded:
        return (self.exp() - (-self).exp()) * 0.5

    def cosh(self) -> Bounded:
        return (self.exp() + (-self).exp()) * 0.5

    def tanh(self) -> Bounded:
        return self.sinh() / self.cosh()


class Double(Bounded):
    """Doubles: what is rounded, and functions of our own within 4 ULP."""

    division = 1.0
    inversion = 1.0


def _away(other: Bounded) -> Array:
    away = np.abs(other.value) - other.error
    return np.where(away > 0, away, np.asarray(1e-300, away.dtype))


def _clip(t: Bounded) -> Bounded:
    return type(t)(np.clip(t.value, 0, 1), t.error, t.dtype)


def _smoothstep(t: Bounded) -> Bounded:
    return t * t * (3 - 2 * t)


def _faced(x: Bounded, dot: Bounded) -> Bounded:
    error = np.where(np.abs(dot.value) <= dot.error, 2 * np.abs(x.value), 0)
    return type(x)(np.where(dot.value < 0, x.value, -x.value), error, x.dtype)


def _jumps(like: Bounded, size: Any) -> Bounded:
    return type(like)(like.value, size, like.dtype)


_PI = np.pi
# By the name of an intrinsic; others are exact.
ROUNDED: dict[str, Callable[..., Bounded]] = {
    "+": lambda x, y, **_: x + y,
    "-": lambda x, y, **_: x - y,
    "*": lambda x, y, **_: x * y,
    "/": lambda x, p, **_: x / p,
    "cross": lambda x, z, p, g, **_: z * p - x * g,
    "degrees": lambda x, **_: x * (180 / _PI),
    "determinant": lambda u, p, q, **_: p * q - u * -u,
    "distance": lambda x, y, z, p, q, g, **_: ((x - p) * (x - p) + (y - q) * (y - q) + (z - g) * (z - g)).sqrt(),
    "dot": lambda p, q, g, **_: p * p + q * q + g * g,
    "faceforward": lambda x, y, z, p, q, g, **_: _faced(x, x * p + y * q + z * g),
    "fdim": lambda x, y, **_: x - y,
    "fma": lambda p, q, g, **_: p * q + g,
    "frac": lambda x, **_: x.within(1, x.value - np.floor(x.value)),
    "fract": lambda x, **_: x.within(1, x.value - np.floor(x.value)),
    "frexp": lambda x, **_: x.within(1, sum(np.frexp(x.value))),
    "int(x)": lambda x, **_: _jumps(x * 9, 1 + (x * 9).error),
    "length": lambda x, y, z, **_: (x * x + y * y + z * z).sqrt(),
    "lerp": lambda x, y, p, **_: _mixed(x, y, p),
    "mad": lambda p, q, g, **_: p * q + g,
    "modf": lambda x, **_: x + np.trunc(x.value),
    "mul": lambda p, q, g, **_: p * p + q * g,
    "normalize": lambda p, q, g, **_: p * (p * p + q * q + g * g).rsqrt(),
    "radians": lambda x, **_: x * (_PI / 180),
    "rcp": lambda p, **_: 1 / p,
    "reflect": lambda q, **_: q - 2 * q,
    "refract": lambda x, **_: -0.5 - (x.like(1.0).sqrt() - 0.5) + 0 * x,
    "rsqrt": lambda p, **_: p.rsqrt(),
    "smoothstep": lambda x, p, q, **_: _smoothstep(_clip((p + q) / (x * x + 1 + q))),
    "sqrt": lambda p, **_: p.sqrt(),
    # Of x - y trunc(x / y): a quotient that is next to an integer may be on its other side.
    "%": lambda x, p, **_: _jumps(x, np.abs(p.value) + (x / p * p).error),
    "fmod": lambda x, p, **_: _jumps(x, np.abs(p.value) + (x / p * p).error),
}
# Functions that double has of our own.
INHERITED: dict[str, Callable[..., Bounded]] = {
    "acos": lambda u, **_: (1 - u * u).sqrt().atan2(u),
    "acosh": lambda g, **_: (g + (g * g - 1).sqrt()).log(),
    "asin": lambda u, **_: u.atan2((1 - u * u).sqrt()),
    "asinh": lambda x, **_: (x + (x * x + 1).sqrt()).log(),
    "atan": lambda x, **_: x.atan2(1.0),
    "atan2": lambda x, y, **_: x.atan2(y),
    "atanh": lambda u, **_: ((1 + u) / (1 - u)).log() * 0.5,
    "cos": lambda u, **_: u.cos(),
    "cosh": lambda x, **_: x.cosh(),
    "exp": lambda x, **_: x.exp(),
    "exp2": lambda x, **_: x.exp2(),
    "exp10": lambda u, **_: (u * np.log2(10)).exp2(),
    "log": lambda p, **_: p.log(),
    "log10": lambda p, **_: p.log() * (1 / np.log(10)),
    "log2": lambda p, **_: p.log2(),
    "pow": lambda x, p, **_: (x * p.log2()).exp2(),
    "powr": lambda x, p, **_: (x * p.log2()).exp2(),
    "sin": lambda x, **_: x.sin(),
    "sincos": lambda u, **_: u.sin() + 2 * u.cos(),
    "sinh": lambda x, **_: x.sinh(),
    "tan": lambda u, **_: u.tan(),
    "tanh": lambda x, **_: x.tanh(),
    "sinpi": lambda u, **_: (u * _PI).sin(),
    "cospi": lambda u, **_: (u * _PI).cos(),
    "tanpi": lambda u, **_: (u * 0.25 * _PI).tan(),
    # Half has 10 bits: Vulkan may round towards 0.
    "f32tof16": lambda x, **_: _jumps(x, np.spacing(np.abs(x.value).astype("f2")).astype("f8")),
}


_DOT, _EXP = "inherited from products and sums", "inherited from exp"
# In words.
_WORDS = {
    **dict.fromkeys(("+", "-", "*", "fdim", "frac", "fract", "frexp", "modf"), "rounded"),
    **dict.fromkeys(("/", "rcp"), "2.5 ULP"),
    **dict.fromkeys(("sin", "cos"), "absolute error 2^-11, half 2^-7, within -pi and pi"),
    **dict.fromkeys(("sincos", "sinpi", "cospi"), "inherited from sin and cos"),
    **dict.fromkeys(("tan", "tanpi"), "inherited from sin / cos"),
    **dict.fromkeys(("asin", "acos"), "inherited from atan2 and sqrt"),
    **dict.fromkeys(("atan", "atan2"), "4096 ULP, half 5 ULP"),
    **dict.fromkeys(("asinh", "acosh", "atanh", "log10"), "inherited from log"),
    **dict.fromkeys(("sinh", "cosh", "tanh"), _EXP),
    **dict.fromkeys(("exp", "exp2"), "3 + 2 abs(x) ULP, half 1 + 2 abs(x) ULP"),
    **dict.fromkeys(("log", "log2"), "3 ULP; between 0.5 and 2 absolute error 2^-21, half 2^-7"),
    **dict.fromkeys(("pow", "powr", "exp10"), "inherited from exp2(y * log2(x))"),
    **dict.fromkeys(("%", "fmod"), "inherited from x - y * trunc(x / y)"),
    **dict.fromkeys(("cross", "determinant", "dot", "fma", "mad", "mul", "reflect", "refract"), _DOT),
    **dict.fromkeys(("length", "distance"), "inherited from sqrt(dot)"),
    **dict.fromkeys(("degrees", "radians"), "one product with a rounded constant"),
    "normalize": "inherited from x * rsqrt(dot)", "faceforward": "inherited from dot", "rsqrt": "2 ULP",
    "sqrt": "inherited from 1 / rsqrt", "int(x)": "rounded, as x * 9",
    "lerp": "inherited from x * (1 - a) + y * a, or from x + (y - x) * a, which NVIDIA's driver takes",
    "smoothstep": "inherited from t * t * (3 - 2 * t)", "f32tof16": "rounded, up or down",
}  # fmt: skip


def words(name: str) -> str:
    """What the specification allows of half or float."""
    return _WORDS.get(name, "exact")


def allowed(name: str, given: dict[str, Array], dtype: npt.DTypeLike) -> Array:
    """How far each result of an intrinsic may be off, of arguments of a wider type."""
    dtype = np.dtype(dtype)
    double = dtype.itemsize == 8
    formula = ROUNDED.get(name) or (None if double else INHERITED.get(name))
    shape = next(iter(given.values())).shape
    if formula is None:
        return np.zeros(shape)
    kind = Double if double else Bounded
    numbers = {key: kind(value, np.zeros(shape), dtype) for key, value in given.items()}
    with np.errstate(all="ignore"):
        error = formula(**numbers).error
    return np.broadcast_to(np.where(np.isnan(error), np.inf, error), shape)


def _mixed(x: Bounded, y: Bounded, p: Bounded) -> Bounded:
    """The specification's formula, and the other way to write it, which NVIDIA's driver (580) takes."""
    specified, other = x * (1 - p) + y * p, x + (y - x) * p
    return type(specified)(specified.value, np.maximum(specified.error, other.error), specified.dtype)

"""The intrinsics of Slang's core module that take numbers, what they compute in NumPy, and how far a device is off.

``python -m tests.conformance._intrinsics --backend=cpu --backend=vulkan`` runs each of them for each scalar type
and writes what it found into the tables of docs/intrinsics.md, in the column of that device, which on Vulkan has the
driver's name; others stay. The test of the same name holds devices against the file, and Vulkan's floats against its
specification. One kernel computes all intrinsics of a type.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import slangpy_rt as spy
from tests.conformance import _precision

Array = npt.NDArray[Any]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "intrinsics.md"
FLOATS = {"half": "f2", "float": "f4", "double": "f8"}
INTEGERS = {
    "int8_t": "i1", "int16_t": "i2", "int": "i4", "int64_t": "i8",
    "uint8_t": "u1", "uint16_t": "u2", "uint": "u4", "uint64_t": "u8",
}  # fmt: skip
TYPES = FLOATS | INTEGERS
BACKENDS = ("cpu", "cuda", "vulkan", "rhi-vulkan", "rhi-vulkan-handles", "rhi-cuda", "d3d12")
_COUNT = 509
# What a driver's text has, and what its column is called.
_DRIVERS = {"llvmpipe": "Mesa lavapipe", "NVIDIA": "NVIDIA"}
_ALLOWS = "Vulkan allows"
# Larger differences are no rounding: the table says so, and whether they are what float would have.
_ROUNDING, _AS_FLOAT = 2.0**13, 2.0**38


@dataclass(frozen=True)
class Intrinsic:
    """One of them, on scalars x, y, z (any), u (-1 to 1), p and q (positive), g (above 1) and k (a small number).

    Attributes
    ----------
    name : str
        As users call it.
    code : str
        Slang, ``T`` being the scalar type.
    reference : callable
        Of the same names, of a wider type for floats.
    statements : str
        What comes before, for those that write to parameters.
    """

    name: str
    code: str
    reference: Callable[..., Array]
    statements: str = ""


def _f(name: str, arguments: str, reference: Callable[..., Any]) -> Intrinsic:
    return Intrinsic(name, f"{name}({arguments})", reference)


def _vector(name: str, arguments: str, reference: Callable[..., Any], tail: str = "") -> Intrinsic:
    a, b = "vector<T, 3>(x, y, z)", "vector<T, 3>(p, q, g)"
    return Intrinsic(name, f"{name}({arguments.replace('A', a).replace('B', b)}){tail}", reference)


def _smoothstep(x: Array, p: Array, q: Array) -> Array:
    t = np.clip((p - (-q)) / (x * x + 1 + q), 0, 1)
    return t * t * (3 - 2 * t)


def _length(*parts: Array) -> Array:
    return np.sqrt(sum(part * part for part in parts))


def _trunc_mod(a: Array, b: Array) -> Array:
    return np.fmod(a, b)


FLOAT_INTRINSICS = [
    Intrinsic("+", "x + y", lambda x, y, **_: x + y),
    Intrinsic("-", "x - y", lambda x, y, **_: x - y),
    Intrinsic("*", "x * y", lambda x, y, **_: x * y),
    Intrinsic("/", "x / p", lambda x, p, **_: x / p),
    Intrinsic("%", "x % p", lambda x, p, **_: np.fmod(x, p)),
    Intrinsic("int(x)", "T(int(x * 9))", lambda x, **_: np.trunc(x * 9)),
    Intrinsic("float(x)", "T(float(x))", lambda x, **_: x.astype("f4")),
    _f("abs", "x", lambda x, **_: np.abs(x)),
    _f("acos", "u", lambda u, **_: np.arccos(u)),
    _f("acosh", "g", lambda g, **_: np.arccosh(g)),
    _f("asin", "u", lambda u, **_: np.arcsin(u)),
    _f("asinh", "x", lambda x, **_: np.arcsinh(x)),
    _f("atan", "x", lambda x, **_: np.arctan(x)),
    _f("atan2", "x, y", lambda x, y, **_: np.arctan2(x, y)),
    _f("atanh", "u", lambda u, **_: np.arctanh(u)),
    _f("ceil", "x", lambda x, **_: np.ceil(x)),
    _f("clamp", "x, -p, q", lambda x, p, q, **_: np.minimum(np.maximum(x, -p), q)),
    _f("copysign", "p, x", lambda x, p, **_: np.copysign(p, x)),
    _f("cos", "u", lambda u, **_: np.cos(u)),
    _f("cosh", "x", lambda x, **_: np.cosh(x)),
    _f("degrees", "x", lambda x, **_: x * (180 / _PI)),
    Intrinsic("determinant", "determinant(matrix<T, 2, 2>(p, u, -u, q))", lambda u, p, q, **_: p * q + u * u),
    _vector("distance", "A, B", lambda x, y, z, p, q, g, **_: _length(x - p, y - q, z - g)),
    _vector("dot", "B, B", lambda p, q, g, **_: p * p + q * q + g * g),
    _vector("cross", "A, B", lambda x, z, p, g, **_: z * p - x * g, ".y"),
    _f("exp", "x", lambda x, **_: np.exp(x)),
    _f("exp2", "x", lambda x, **_: np.exp2(x)),
    _f("exp10", "u", lambda u, **_: np.power(np.longdouble(10), u)),
    _f("fdim", "x, y", lambda x, y, **_: np.maximum(x - y, 0)),
    _vector("faceforward", "A, A, B", lambda x, y, z, p, q, g, **_: np.where(x * p + y * q + z * g < 0, x, -x), ".x"),
    _f("floor", "x", lambda x, **_: np.floor(x)),
    _f("fma", "p, q, g", lambda p, q, g, **_: p * q + g),
    _f("fmax", "x, y", lambda x, y, **_: np.maximum(x, y)),
    _f("fmax3", "x, y, z", lambda x, y, z, **_: np.maximum(np.maximum(x, y), z)),
    _f("fmin", "x, y", lambda x, y, **_: np.minimum(x, y)),
    _f("fmin3", "x, y, z", lambda x, y, z, **_: np.minimum(np.minimum(x, y), z)),
    _f("fmedian3", "x, y, z", lambda x, y, z, **_: np.median(np.stack([x, y, z]), 0)),
    _f("fmod", "x, p", lambda x, p, **_: np.fmod(x, p)),
    _f("frac", "x", lambda x, **_: x - np.floor(x)),
    _f("fract", "x", lambda x, **_: x - np.floor(x)),
    Intrinsic(
        "frexp",
        "frexp_ + T(exponent_)",
        lambda x, **_: sum(np.frexp(x)),
        "int exponent_; T frexp_ = frexp(x, exponent_);",
    ),
    Intrinsic("isfinite", "T(isfinite(x) ? 1 : 0)", lambda x, **_: np.isfinite(x)),
    Intrinsic("isinf", "T(isinf(x) ? 1 : 0)", lambda x, **_: np.isinf(x)),
    Intrinsic("isnan", "T(isnan(x) ? 1 : 0)", lambda x, **_: np.isnan(x)),
    _f("ldexp", "x, T(3)", lambda x, **_: x * 8),
    _vector("length", "A", lambda x, y, z, **_: _length(x, y, z)),
    _f("lerp", "x, y, p", lambda x, y, p, **_: x + p * (y - x)),
    _f("log", "p", lambda p, **_: np.log(p)),
    _f("log10", "p", lambda p, **_: np.log10(p)),
    _f("log2", "p", lambda p, **_: np.log2(p)),
    _f("mad", "p, q, g", lambda p, q, g, **_: p * q + g),
    _f("max", "x, y", lambda x, y, **_: np.maximum(x, y)),
    _f("max3", "x, y, z", lambda x, y, z, **_: np.maximum(np.maximum(x, y), z)),
    _f("median3", "x, y, z", lambda x, y, z, **_: np.median(np.stack([x, y, z]), 0)),
    _f("min", "x, y", lambda x, y, **_: np.minimum(x, y)),
    _f("min3", "x, y, z", lambda x, y, z, **_: np.minimum(np.minimum(x, y), z)),
    Intrinsic("modf", "modf_ + 2 * whole_", lambda x, **_: x + np.trunc(x), "T whole_; T modf_ = modf(x, whole_);"),
    Intrinsic("mul", "mul(matrix<T, 2, 2>(p, q, q, g), vector<T, 2>(p, g)).x", lambda p, q, g, **_: p * p + q * g),
    _vector("normalize", "B", lambda p, q, g, **_: p / _length(p, q, g), ".x"),
    _f("pow", "p, x", lambda x, p, **_: np.power(p, x)),
    _f("radians", "x", lambda x, **_: x * (_PI / 180)),
    _f("rcp", "p", lambda p, **_: 1 / p),
    Intrinsic("reflect", "reflect(vector<T, 2>(p, q), vector<T, 2>(0, 1)).y", lambda q, **_: -q),
    Intrinsic("refract", "refract(vector<T, 2>(0, -1), vector<T, 2>(0, 1), T(0.5)).y", lambda x, **_: 0 * x - 1),
    _f("rint", "x", lambda x, **_: np.rint(x)),
    _f("round", "x", lambda x, **_: np.rint(x)),
    _f("rsqrt", "p", lambda p, **_: 1 / np.sqrt(p)),
    _f("saturate", "x", lambda x, **_: np.clip(x, 0, 1)),
    Intrinsic("sign", "T(sign(x))", lambda x, **_: np.sign(x)),
    _f("sin", "x", lambda x, **_: np.sin(x)),
    Intrinsic(
        "sincos",
        "sine_ + 2 * cosine_",
        lambda u, **_: np.sin(u) + 2 * np.cos(u),
        "T sine_; T cosine_; sincos(u, sine_, cosine_);",
    ),
    _f("sinh", "x", lambda x, **_: np.sinh(x)),
    _f("smoothstep", "-q, x * x + 1, p", lambda x, p, q, **_: _smoothstep(x, p, q)),
    _f("sqrt", "p", lambda p, **_: np.sqrt(p)),
    _f("step", "x, y", lambda x, y, **_: y >= x),
    _f("tan", "u", lambda u, **_: np.tan(u)),
    _f("tanh", "x", lambda x, **_: np.tanh(x)),
    Intrinsic("transpose", "transpose(matrix<T, 2, 2>(x, y, z, p))[1][0]", lambda y, **_: y),
    _f("trunc", "x", lambda x, **_: np.trunc(x)),
    _f("sinpi", "u", lambda u, **_: np.sin(u * _PI)),
    _f("cospi", "u", lambda u, **_: np.cos(u * _PI)),
    _f("tanpi", "u * 0.25", lambda u, **_: np.tan(u * _PI / 4)),
    _f("powr", "p, x", lambda x, p, **_: np.power(p, x)),
]
_PI = np.longdouble(3.141592653589793) + np.longdouble(1.2246467991473532e-16)

INTEGER_INTRINSICS = [
    Intrinsic("+", "x + y", lambda x, y, **_: x + y),
    Intrinsic("-", "x - y", lambda x, y, **_: x - y),
    Intrinsic("*", "x * y", lambda x, y, **_: x * y),
    Intrinsic("/", "x / p", lambda x, p, **_: _divided(x, p)[0]),
    Intrinsic("%", "x % p", lambda x, p, **_: _divided(x, p)[1]),
    Intrinsic("<<", "x << k", lambda x, k, **_: x << k),
    Intrinsic(">>", "x >> k", lambda x, k, **_: x >> k),
    Intrinsic("& \\| ^ ~", "(x & y) ^ (y | z) ^ ~x", lambda x, y, z, **_: (x & y) ^ (y | z) ^ ~x),
    Intrinsic("<", "T(x < y ? 1 : 0)", lambda x, y, **_: (x < y).astype(x.dtype)),
    Intrinsic("double(x)", "T(double(x) * 0.25)", lambda x, **_: (x.astype("f8") * 0.25).astype(x.dtype)),
    Intrinsic("float(x)", "T(float(p))", lambda p, **_: p),
    _f("abs", "x", lambda x, **_: np.where(x < 0, 0 - x, x)),
    _f("clamp", "x, p, q", lambda x, p, q, **_: np.minimum(np.maximum(x, p), q)),
    Intrinsic("countbits", "T(countbits(x))", lambda x, **_: _bits(x).sum(1)),
    Intrinsic("reversebits", "T(reversebits(x))", lambda x, **_: _number(_bits(x)[:, ::-1], x)),
    Intrinsic("firstbitlow", "T(firstbitlow(x))", lambda x, **_: np.where(x == 0, _none(x), _bits(x).argmax(1))),
    Intrinsic("firstbithigh", "T(firstbithigh(x))", lambda x, **_: _first_high(x)),
    _f("mad", "x, y, z", lambda x, y, z, **_: x * y + z),
    _f("max", "x, y", lambda x, y, **_: np.maximum(x, y)),
    _f("min", "x, y", lambda x, y, **_: np.minimum(x, y)),
    # Shifted, they show whether the type of the result is that of the arguments.
    Intrinsic("max >> k", "max(x, y) >> k", lambda x, y, k, **_: np.maximum(x, y) >> k),
    Intrinsic("min >> k", "min(x, y) >> k", lambda x, y, k, **_: np.minimum(x, y) >> k),
    Intrinsic("dot", "dot(vector<T, 2>(x, y), vector<T, 2>(y, z))", lambda x, y, z, **_: x * y + y * z),
    Intrinsic(
        "any, all",
        "T(any(vector<T, 2>(x, 0)) && all(vector<T, 2>(y, 1)) ? 1 : 0)",
        lambda x, y, **_: (x != 0) & (y != 0),
    ),
]
# By type alone: what these words mean depends on it.
BIT_INTRINSICS = {
    "float": [
        Intrinsic("asuint", "asfloat(asuint(x))", lambda x, **_: x),
        Intrinsic("asint", "asfloat(asint(x) + 1)", lambda x, **_: (x.view("i4") + 1).view("f4")),
        Intrinsic("f32tof16", "f16tof32(f32tof16(x))", lambda x, **_: x.astype("f2")),
    ],
    "double": [
        Intrinsic(
            "asuint, asdouble", "asdouble(low_, high_)", lambda x, **_: x,
            "uint low_; uint high_; asuint(x, low_, high_);",
        ),
    ],
    "half": [Intrinsic("asuint16, asfloat16", "asfloat16(asuint16(x))", lambda x, **_: x)],
    "uint": [
        Intrinsic("bitfieldExtract", "bitfieldExtract(x, 3, 9)", lambda x, **_: x >> 3 & 511),
        Intrinsic(
            "bitfieldInsert", "bitfieldInsert(x, y, 4, 8)", lambda x, y, **_: x & ~np.uint32(0xFF0) | (y & 255) << 4
        ),
    ],
}  # fmt: skip


def of(name: str) -> list[Intrinsic]:
    """Those of a scalar type."""
    sign = Intrinsic("sign", "T(sign(x))", lambda x, **_: np.sign(x))
    signed = [sign] if name in INTEGERS and name[0] != "u" else []
    return [*(FLOAT_INTRINSICS if name in FLOATS else INTEGER_INTRINSICS), *signed, *BIT_INTRINSICS.get(name, ())]


def arguments(name: str) -> dict[str, Array]:
    """What x, y, z, u, p, q, g and k are."""
    generator, dtype = np.random.default_rng(11), np.dtype(TYPES[name])
    if name in INTEGERS:
        info = np.iinfo(dtype)
        found = {key: generator.integers(info.min, info.max, _COUNT, dtype, endpoint=True) for key in "xyz"}
        found["x"][:6] = [info.min, info.max, 0, 1, 2, 3]
        found |= {key: generator.integers(1, 50, _COUNT).astype(dtype) for key in "pq"}
        return found | {"k": generator.integers(0, 8 * dtype.itemsize, _COUNT).astype(dtype)}
    found = {key: generator.uniform(-6, 6, _COUNT) for key in "xyz"}
    found |= {"u": generator.uniform(-0.99, 0.99, _COUNT), "g": generator.uniform(1.1, 9, _COUNT)}
    found |= {key: np.exp(generator.uniform(-2, 2, _COUNT)) for key in "pq"}
    return {key: value.astype(dtype) for key, value in found.items()}


def source(name: str, some: Iterable[Intrinsic]) -> str:
    """A function that computes them."""
    some = list(some)
    statements = "".join(f"    {i.statements}\n" for i in some if i.statements)
    stores = "".join(f"    found[{k}] = T({i.code});\n" for k, i in enumerate(some))
    parameters = ", ".join(f"T {key}" for key in arguments(name))
    head = f"typealias T = {name};\nT[{len(some)}] all_of_them({parameters})\n"
    return f"{head}{{\n    T found[{len(some)}];\n{statements}{stores}    return found;\n}}\n"


def measure(device: spy.Device, name: str, some: list[Intrinsic] | None = None) -> dict[str, str]:
    """What the table says of each intrinsic of a type on a device: exact, so many ULP, as float, refused or differs.

    Where something is refused, halves are tried until it is alone.
    """
    some = of(name) if some is None else some
    try:
        return {key: _cell(name, error) for key, error in errors(device, name, some).items()}
    except (spy.CompileError, spy.UnsupportedError):
        if len(some) == 1:
            return {some[0].name: "refused"}
    half = len(some) // 2
    return measure(device, name, some[:half]) | measure(device, name, some[half:])


def errors(device: spy.Device, name: str, some: list[Intrinsic]) -> dict[str, float]:
    """The largest difference of each from NumPy, in units of the last place."""
    return {
        key: float(difference(found, wanted).max()) for key, (found, wanted) in results(device, name, some).items()
    }


def results(device: spy.Device, name: str, some: list[Intrinsic]) -> dict[str, tuple[Array, Array]]:
    """What a device computes, and what NumPy does."""
    given = arguments(name)
    module = spy.Module.load_from_source(device, f"intrinsics_{name}", source(name, some))
    found = module.all_of_them(*given.values())
    wide = widened(name)
    with np.errstate(all="ignore"):
        return {i.name: (found[:, k], _reference(i, given, wide)) for k, i in enumerate(some)}


def widened(name: str) -> dict[str, Array]:
    """The arguments of a wider type, for floats."""
    given = arguments(name)
    return {key: value if name in INTEGERS else value.astype(_WIDER[name]) for key, value in given.items()}


def excess(name: str, intrinsic: str, found: Array, wanted: Array, units: float = 0.0) -> float:
    """How many times as far off results are as Vulkan, or slangpy_rt of double, allows, or so many units."""
    off = difference(found, wanted)
    limit = _precision.allowed(intrinsic, widened(name), found.dtype)
    largest = np.finfo(found.dtype).max
    wanted = wanted.astype(_WIDER[name])
    with np.errstate(all="ignore"):
        # What may be beyond the largest number may be that, or infinite.
        beyond = (np.abs(wanted) + limit >= largest) & (np.abs(found) >= largest)
        times = np.abs(found.astype(wanted.dtype) - wanted) / limit
    times = np.where((off <= units) | beyond, 0, np.where(np.isnan(times), np.inf, times))
    return float(times.max())


def column(device: spy.Device) -> str:
    """What the column of a device is called: Vulkan's have the driver's name."""
    if "vulkan" not in device.name:
        return device.name
    driver = next((driver for word, driver in _DRIVERS.items() if word in device.info), device.info)
    return f"{device.name} ({driver})"


def cells(table: dict[str, dict[str, str]], device: spy.Device) -> dict[str, str]:
    """The column of a device; of a driver without one, that of another driver."""
    columns = [key for row in table.values() for key in row]
    own = column(device)
    like = own if own in columns else next((key for key in columns if key.startswith(f"{device.name} (")), own)
    return {key: row[like] for key, row in table.items() if like in row}


def read(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of the document: scalar type, intrinsic, backend."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for title, table in re.findall(r"^### `(\w+)`\n\n((?:\|.*\n)+)", text, re.M):
        head, _, *rows = (
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in table.splitlines()
        )
        found[title] = {row[0].strip("`"): dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    return found


def bound(cell: str) -> float:
    """ULP that a cell allows; infinite where it promises nothing."""
    match = re.match(r"([\d.]+) ULP", cell)
    fixed = {"exact": 0.0, "as float": _AS_FLOAT}
    return float(match[1]) if match else fixed.get(cell, np.inf)


def _cell(type_: str, error: float) -> str:
    if error == 0:
        return "exact"
    limit = next((2.0**k for k in range(-1, 14) if error <= 2.0**k), np.inf)
    if limit <= _ROUNDING:
        return f"{limit:g} ULP"
    return "as float" if type_ == "double" and error < _AS_FLOAT else "differs"


_WIDER = {"half": "f8", "float": "f8", "double": "g"}


def _reference(intrinsic: Intrinsic, given: dict[str, Array], wide: dict[str, Array]) -> Array:
    # Bits are those of the type itself.
    own = intrinsic in [i for some in BIT_INTRINSICS.values() for i in some]
    return np.asarray(intrinsic.reference(**(given if own else wide)))


def difference(found: Array, reference: Array) -> Array:
    """How far each result is off, in units of the last place."""
    if found.dtype.kind != "f":
        return np.where(found == reference.astype(found.dtype), 0.0, np.inf)
    reference = reference.astype("f8") if reference.dtype.kind != "f" else reference
    near = reference.astype(found.dtype)
    same = (found == near) | (np.isnan(found) & np.isnan(near))
    # Half a unit is what rounding costs: a result that is rounded right is exact.
    with np.errstate(all="ignore"):
        units = np.abs(found.astype(reference.dtype) - reference) / np.spacing(np.abs(near)).astype(reference.dtype)
    return np.where(same, 0, np.where(np.isfinite(units), units, np.inf))


def _divided(a: Array, b: Array) -> tuple[Array, Array]:
    quotient = np.floor_divide(a, b)
    quotient = quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return quotient, a - quotient * b


def _bits(x: Array) -> Array:
    """Of each number the bits, the lowest first."""
    return np.unpackbits(x.view("u1").reshape(len(x), -1), axis=1, bitorder="little")


def _number(bits: Array, like: Array) -> Array:
    return np.packbits(bits, axis=1, bitorder="little").reshape(-1).view(like.dtype)


def _none(x: Array) -> int:
    # These return a uint, whose bits are all set where there is none.
    return 0xFFFFFFFF if x.itemsize == 8 else -1


def _first_high(x: Array) -> Array:
    # Of a negative number the highest 0.
    bits = _bits(np.where(x < 0, ~x, x))
    return np.where(bits.any(1), bits.shape[1] - 1 - bits[:, ::-1].argmax(1), _none(x))


def _merged(text: str, name: str, cells: dict[str, dict[str, str]]) -> str:
    """The document with the table of one scalar type written anew."""
    columns = {key for row in cells.values() for key in row}
    columns -= {_ALLOWS}
    backends = sorted(columns, key=lambda key: (BACKENDS.index(key.partition(" ")[0]), key))
    if name in ("half", "float"):
        backends.append(_ALLOWS)
        cells = {key: row | {_ALLOWS: _precision.words(key)} for key, row in cells.items()}
    lines = [f"| | {' | '.join(backends)} |", f"|---|{'---|' * len(backends)}"]
    lines += [f"| `{key}` | {' | '.join(row.get(b, '') for b in backends)} |" for key, row in cells.items()]
    table = f"### `{name}`\n\n" + "".join(f"{line}\n" for line in lines)
    pattern = rf"^### `{name}`\n\n(?:\|.*\n)*"
    return (
        re.sub(pattern, lambda _: table, text, flags=re.M) if re.search(pattern, text, re.M) else text + "\n" + table
    )


def main() -> None:
    """Measure, and write the document."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--backend", action="append", required=True)
    parser.add_argument("--type", action="append", choices=TYPES)
    options = parser.parse_args()
    for backend in options.backend:
        with spy.Device(backend) as device:
            for name in options.type or TYPES:
                text = DOCUMENT.read_text("utf-8")
                old = read(text).get(name, {})
                refused = dict.fromkeys((i.name for i in of(name)), "refused")
                found = measure(device, name) if name in device.caps.scalars else refused
                cells = {key: old.get(key, {}) | {column(device): cell} for key, cell in found.items()}
                DOCUMENT.write_text(_merged(text, name, cells), "utf-8")
                print(backend, name, {key: cell for key, cell in found.items() if cell in ("refused", "differs")})


if __name__ == "__main__":
    main()

"""Texel formats: how many channels a texel has, how each is stored, and what functions read and write of it.

Names are SlangPy's: ``"rgba8_unorm"``, ``"rg32_float"``. Drivers' numbers are not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slangpy_rt.core.errors import BindError
from slangpy_rt.core.wording import in_words, meant

# For each kind of channel: what functions see of it, its NumPy dtype and its bytes.
_STORED = {
    ("8", "unorm"): "u1", ("8", "unorm_srgb"): "u1", ("16", "float"): "f2", ("32", "float"): "f4",
    ("32", "uint"): "u4", ("32", "sint"): "i4", ("16", "uint"): "u2", ("16", "sint"): "i2",
    ("8", "uint"): "u1", ("8", "sint"): "i1",
}  # fmt: skip
_OWN = {"u1": "uint8_t", "i1": "int8_t", "u2": "uint16_t", "i2": "int16_t", "f2": "half"}
_SEEN = {"unorm": "float", "unorm_srgb": "float", "float": "float", "uint": "uint", "sint": "int"}
CHANNELS = {1: "r", 2: "rg", 4: "rgba"}


@dataclass(frozen=True)
class Format:
    """A texel format.

    Attributes
    ----------
    name : str
        SlangPy's name: ``"rgba8_unorm_srgb"``.
    channels : int
        1, 2 or 4.
    kind : str
        ``"unorm"`` (0 to 255 mean 0 to 1), ``"unorm_srgb"`` (so, but red, green and blue on the sRGB curve),
        ``"float"``, ``"uint"`` or ``"sint"``.
    dtype : numpy.dtype
        One channel in memory.
    seen : str
        The Slang scalar that functions read: ``"float"`` (``"half"`` goes too), ``"uint"`` or ``"int"``.
    nbytes : int
        Bytes of a texel.
    """

    name: str
    channels: int
    kind: str
    dtype: np.dtype[Any]
    seen: str
    nbytes: int

    @property
    def own(self) -> str:
        """The Slang scalar of just the values that a channel stores: ``"half"``, ``"uint8_t"``; of unorm ``seen``."""
        return self.seen if self.kind.startswith("unorm") else _OWN.get(self.dtype.str[1:], self.seen)

    @property
    def filters(self) -> bool:
        """Whether samplers may blend texels; whole numbers are only read as they are."""
        return self.seen == "float"

    @property
    def stores(self) -> bool:
        """Whether kernels may write texels: no device writes the sRGB curve."""
        return self.kind != "unorm_srgb"


def _formats() -> dict[str, Format]:
    found = {}
    for channels, letters in CHANNELS.items():
        for (bits, kind), code in _STORED.items():
            if kind == "unorm_srgb" and channels != 4:
                continue
            dtype = np.dtype(code)
            name = f"{letters}{bits}_{kind}"
            found[name] = Format(name, channels, kind, dtype, _SEEN[kind], channels * dtype.itemsize)
    return found


FORMATS = _formats()


def format_named(where: str, value: Any) -> Format:
    """Return the format that a name, or a member of SlangPy's enum ``Format``, means.

    Raises
    ------
    BindError
        If there is none of that name.
    """
    name = value if isinstance(value, str) else getattr(value, "name", None)
    found = FORMATS.get(name) if isinstance(name, str) else None
    if found is None:
        hint = meant(name, FORMATS) if isinstance(name, str) else ""
        raise BindError(f"{where}: format is {in_words(value)}; one of {', '.join(FORMATS)} was expected.{hint}")
    return found


def format_of(where: str, dtype: np.dtype[Any], channels: int, srgb: bool) -> Format:
    """Return the format of texels that an array holds.

    Raises
    ------
    BindError
        If there is no format for such numbers.
    """
    for (bits, kind), code in _STORED.items():
        if np.dtype(code) == dtype and (kind == "unorm_srgb") == srgb:
            name = f"{CHANNELS[channels]}{bits}_{kind}"
            if name in FORMATS:
                return FORMATS[name]
    if srgb:
        raise BindError(
            f"{where}: srgb=True takes an image of uint8 with three or four channels; this one is of {dtype}"
            f"{f' with {channels}' if dtype == np.uint8 else ''}."
        )
    raise BindError(
        f"{where}: an array of {dtype}; texels are float16, float32, or integers of 8, 16 or 32 bits: use "
        "array.astype(...)."
    )

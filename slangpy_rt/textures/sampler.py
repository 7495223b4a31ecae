"""Sampler: how functions look texels up between their centres and beyond the edges of a texture."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite
from typing import Any

import numpy as np

from slangpy_rt.arrays.layout import Laid, interned
from slangpy_rt.backends.images import Images, SamplerDesc
from slangpy_rt.core.checks import short_tracebacks, whole
from slangpy_rt.core.errors import BindError, UnsupportedError
from slangpy_rt.core.wording import in_words, meant
from slangpy_rt.runtime.core import DeviceCore, a_device
from slangpy_rt.runtime.pickling import reads

FILTERS = ("linear", "nearest")
MIPS = ("linear", "nearest", "none")
WRAPS = ("repeat", "mirror", "clamp", "border")
BORDERS = ("transparent", "black", "white")
_MOST_ANISOTROPY = 16
# Beyond any number of levels.
_MOST_LEVEL = 1000.0
_MOST_BIAS = 16.0


@short_tracebacks("__init__")
class Sampler(Laid):
    """A way to look up a texture, for ``SamplerState`` parameters.

    Parameters
    ----------
    device : Device
        The device whose kernels use it.
    filter : str
        ``"linear"``, which blends the nearest texels, or ``"nearest"``.
    wrap : str or sequence of str
        What lies beyond the edges: ``"repeat"``, ``"mirror"``, ``"clamp"`` (the texel at the edge) or ``"border"``;
        several for x, y and z.
    mip : str
        Between levels: ``"linear"``, ``"nearest"`` or ``"none"``, which takes the first level only.
    anisotropy : int
        The most texels along a stretched footprint, 1 to 16; without effect on ``SampleLevel``.
    border : str
        ``"transparent"``, ``"black"`` or ``"white"``.
    bias : float
        What is added to each level of detail, -16 to 16.
    min_level, max_level : float
        Limits of the level of detail.

    Raises
    ------
    BindError
        If a value is none of these.
    UnsupportedError
        If the device has no textures, or no room for another sampler.
    OutOfMemoryError
        If the device's driver has no descriptor left for another sampler.
    """

    __slots__ = ("address", "desc", "device", "layout")

    layout: SamplerLayout

    def __init__(
        self,
        device: DeviceCore,
        filter: str = "linear",
        wrap: str | Sequence[str] = "repeat",
        mip: str = "linear",
        anisotropy: int = 1,
        border: str = "transparent",
        bias: float = 0.0,
        min_level: float = 0.0,
        max_level: float = _MOST_LEVEL,
    ) -> None:
        where = "create_sampler"
        device = a_device(where, device)
        device.check_open()
        self.device = device
        self.desc = describe(where, filter, wrap, mip, anisotropy, border, bias, min_level, max_level)
        backend = images_of(where, device)
        # The number that kernels find it by; 0 where each texture's own number names its sampler too.
        self.address = 0 if backend.paired else backend.sampler_handle(self.desc)
        self.layout = sampler_layout(device, self.desc.blends, self.desc if backend.paired else None)

    def __reduce__(self) -> tuple[Any, ...]:
        d = self.desc
        return _again, (self.device, d.filter, d.wrap, d.mip, d.anisotropy, d.border, d.bias, d.least, d.most)

    def __repr__(self) -> str:
        d = self.desc
        wrap = repr(d.wrap[0]) if len(set(d.wrap)) == 1 else repr(d.wrap)
        return f"Sampler({self.device.name!r}, filter={d.filter!r}, wrap={wrap}, mip={d.mip!r})"


@reads("a sampler")
def _again(device: DeviceCore, *values: Any) -> Sampler:
    """Return a sampler that was pickled."""
    return Sampler(device, *values)


class SamplerLayout:
    """What prepared calls have to know of samplers.

    Attributes
    ----------
    device : DeviceCore
        The device whose kernels use them.
    blends : bool
        Whether they make means of texels or of levels.
    desc : SamplerDesc or None
        The only one that it stands for, where textures name their samplers.
    """

    __slots__ = ("__weakref__", "blends", "desc", "device")

    def __init__(self, device: DeviceCore, blends: bool, desc: SamplerDesc | None) -> None:
        self.device = device
        self.blends = blends
        self.desc = desc


def sampler_layout(device: DeviceCore, blends: bool, desc: SamplerDesc | None) -> SamplerLayout:
    """Return the interned layout of samplers of a device."""
    key = ("sampler", blends, desc)
    return interned(device, key, lambda: SamplerLayout(device, blends, desc))


def describe(
    where: str,
    filter: Any,
    wrap: Any,
    mip: Any,
    anisotropy: Any,
    border: Any,
    bias: Any,
    min_level: Any,
    max_level: Any,
) -> SamplerDesc:
    """Check what a sampler is made of."""
    wraps = (wrap,) * 3 if isinstance(wrap, str) else wrap
    if not isinstance(wraps, (tuple, list)) or not 1 <= len(wraps) <= 3:
        raise BindError(f"{where}: wrap is {in_words(wrap)}; one of {_listed(WRAPS)} was expected, or up to three.")
    named = [_one(where, "wrap", w, WRAPS) for w in wraps]
    x, y, z = (*named, *[named[-1]] * 2)[:3]
    low, high = _real(where, "min_level", min_level), _real(where, "max_level", max_level)
    if low > high:
        raise BindError(f"{where}: min_level is {low} and max_level {high}; the first is to be the smaller one.")
    shift = _real(where, "bias", bias)
    if abs(shift) > _MOST_BIAS:
        raise BindError(f"{where}: bias is {shift}; a number from {-_MOST_BIAS} to {_MOST_BIAS} was expected.")
    return SamplerDesc(
        _one(where, "filter", filter, FILTERS), _one(where, "mip", mip, MIPS), (x, y, z),
        _one(where, "border", border, BORDERS), whole(where, "anisotropy", anisotropy, 1, _MOST_ANISOTROPY),
        shift, max(low, 0.0), min(max(high, 0.0), _MOST_LEVEL),
    )  # fmt: skip


def sampler_of(where: str, device: DeviceCore, value: Any) -> Sampler:
    """Return a sampler, or the one that a dict describes.

    Raises
    ------
    BindError
        If it is neither, or the dict has other names.
    """
    if isinstance(value, Sampler):
        return value
    if not isinstance(value, dict):
        raise BindError(f"{where}: {in_words(value)}; a Sampler or a dict of its parameters was expected.")
    names = ("filter", "wrap", "mip", "anisotropy", "border", "bias", "min_level", "max_level")
    for name in value:
        if name not in names:
            hint = meant(name, names) if isinstance(name, str) else ""
            raise BindError(f"{where}: a sampler has no {in_words(name)}; it has {', '.join(names)}.{hint}")
    return Sampler(device, **value)


def images_of(where: str, device: DeviceCore) -> Images:
    """Return the backend of a device that has textures.

    Raises
    ------
    UnsupportedError
        If it has none.
    """
    if not isinstance(device.backend, Images) or "textures" not in device.caps.features:
        raise UnsupportedError(
            f"{where}: {device!r} has no textures; pass arrays as Tensor parameters, or use a device of type cpu or "
            "vulkan."
        )
    return device.backend


def _one(where: str, name: str, value: Any, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise BindError(f"{where}: {name} is {in_words(value)}; one of {_listed(known)} was expected.")
    return str(value)


def _real(where: str, name: str, value: Any) -> float:
    # NumPy 1.25 to 2.3 convert an array of one element with a DeprecationWarning, and complex numbers with another.
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    refused = is_array or isinstance(value, (str, bytes, np.complexfloating))
    try:
        found = inf if refused else float(value)
    except (TypeError, ValueError, OverflowError):
        found = inf
    if not isfinite(found):
        raise BindError(f"{where}: {name} is {in_words(value)}; a number was expected.")
    return found


def _listed(known: tuple[str, ...]) -> str:
    return ", ".join(repr(k) for k in known)

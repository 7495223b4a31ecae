"""Chooses the tensor cores of a product: by warp groups, by waves, or none."""

from __future__ import annotations

from slangpy_rt.linalg.lines import fits, readable, worth_packing
from slangpy_rt.linalg.program import Kind
from slangpy_rt.linalg.tensor_cores import TensorCores, has_wgmma, tensor_cores_of
from slangpy_rt.linalg.view import View
from slangpy_rt.linalg.wave_cores import WaveCores, multiplies, wave_cores_of
from slangpy_rt.runtime.core import DeviceCore

_RESULTS = ("half", "bfloat16", "float", "int")


def takes(device: DeviceCore, kind: Kind) -> bool:
    """Return whether a device has tensor cores for a kind of products."""
    return kind.result in _RESULTS and (has_wgmma(device, kind.element) or multiplies(device, kind.element))


def cores_of(
    device: DeviceCore, kind: Kind, a: tuple[View, int], b: tuple[View, int], c: View
) -> TensorCores | WaveCores | None:
    """Return the tensor cores that multiply matrices of three dimensions, where they lie or copied; or None.

    Parameters
    ----------
    a, b : tuple of View and int
        The operands, with the addresses of their first elements.
    c : View
        The result.
    """
    if not takes(device, kind) or not fits(a[0], b[0], c):
        return None
    if not (readable(*a, left=True) and readable(*b, left=False)) and not worth_packing(a[0], b[0]):
        return None
    return tensor_cores_of(device, kind) if has_wgmma(device, kind.element) else wave_cores_of(device, kind)

"""Whether the kernels can compute something, here and now: the one place where that is decided."""

import torch

from lambdanets.compat import is_transformed
from lambdanets.kernels.library import SUFFIX, unavailable


def unsupported(device: torch.device, dtype: torch.dtype | None) -> str | None:
    """None, or the reason why the kernels cannot be used for tensors of a dtype (None: of several) on a device."""
    if device.type != "cpu":
        return f"the kernels are for CPUs, and this is on {device}"
    if dtype not in SUFFIX:
        return f"the kernels are for float32 and float64, and this is {dtype or 'more than one dtype'}"
    if torch.compiler.is_exporting():
        return "an exported program runs where there are no kernels"
    if is_transformed():
        return "the kernels have no rules for the transforms of torch.func"
    reason = unavailable()
    return None if reason is None else f"there are no kernels: {reason}"

"""Native code behind plans: plain C, built when the package is installed, optional when it runs."""

from lambdanets.kernels.library import instruction_set, unavailable
from lambdanets.kernels.support import unsupported

__all__ = ["instruction_set", "unavailable", "unsupported"]

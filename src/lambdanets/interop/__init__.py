"""Conversion from other libraries, and export to files that other programs run."""

from lambdanets.interop.adopt import adopt
from lambdanets.interop.lambdafy import lambdafy
from lambdanets.interop.peers import CannotAdoptError

__all__ = ["CannotAdoptError", "adopt", "lambdafy"]

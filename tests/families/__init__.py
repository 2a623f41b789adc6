"""The cases that sweeps over the attention family use: every layer in every kind of configuration."""

import pkgutil
from importlib import import_module

CASES = [
    case
    for module in sorted(found.name for found in pkgutil.iter_modules(__path__))
    for case in getattr(import_module(f"{__name__}.{module}"), "CASES", [])
]

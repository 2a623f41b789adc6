"""Runs, on Lightning, whose torchmetrics imports torchvision: that has to come first, or it may fail."""

from lambdanets.optional import import_torchvision

import_torchvision()

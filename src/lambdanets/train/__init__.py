"""Training a network for any task, on Lightning.

Lightning's torchmetrics imports torchvision, which has to be imported our way first, or it may fail.
"""

from lambdanets.optional import import_torchvision

import_torchvision()

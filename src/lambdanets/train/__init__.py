"""Training a network for any task, on Lightning.

Lightning's torchmetrics imports torchvision. `import_torchvision` must run before that, or the import may fail.
"""

from lambdanets.optional import import_torchvision

import_torchvision()

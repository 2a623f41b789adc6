"""Images from files, data sets and streams, as batches; nothing here knows a network."""

from lambdanets.data.batches import PADDING, Batch, Skip
from lambdanets.data.config import DataConfig
from lambdanets.data.images import EXTENSIONS
from lambdanets.data.loader import Loader, Place, Share
from lambdanets.data.opened import Opened, open_data, read_image
from lambdanets.data.splits import BadImageError, DataError, Example, Split, Stream

__all__ = [
    "EXTENSIONS",
    "PADDING",
    "BadImageError",
    "Batch",
    "DataConfig",
    "DataError",
    "Example",
    "Loader",
    "Opened",
    "Place",
    "Share",
    "Skip",
    "Split",
    "Stream",
    "open_data",
    "read_image",
]

"""Images from files, data sets and streams: decoding, augmentation, normalisation."""

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.decode import EXTENSIONS, decode
from lambdanets.data.images.files import find_images
from lambdanets.data.images.labelled import ImageSplit, ImageStream, LabelledImage, labels_of
from lambdanets.data.images.mixing import Mixing
from lambdanets.data.images.normalise import Normalise, per_channel
from lambdanets.data.images.opened import Images, open_images
from lambdanets.data.images.sources import SOURCES, check_source
from lambdanets.data.images.transforms import for_evaluation, for_training

__all__ = [
    "EXTENSIONS",
    "SOURCES",
    "ImageDataConfig",
    "ImageSplit",
    "ImageStream",
    "Images",
    "LabelledImage",
    "Mixing",
    "Normalise",
    "check_source",
    "decode",
    "find_images",
    "for_evaluation",
    "for_training",
    "labels_of",
    "open_images",
    "per_channel",
]

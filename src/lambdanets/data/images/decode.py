"""Decodes untrusted image files: returns an image or raises `BadItemError`, nothing else."""

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, UnidentifiedImageError
from torch import Tensor

from lambdanets.data.splits import BadItemError
from lambdanets.files import open_regular

# Other formats of Pillow are rare, and some are dangerous: EPS files are programs that Pillow executes.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
EXTENSIONS = frozenset({"jpg", "jpeg", "png", "gif", "bmp", "tif", "tiff", "webp", "ppm", "pgm", "pbm", "pnm"})

# The transposition that undoes each EXIF orientation.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# Keep Python from printing what Pillow logs about unreadable files, unless logging is configured.
logging.getLogger("PIL").addHandler(logging.NullHandler())


def decode(content: bytes | Path, name: str, channels: int) -> UInt8[Tensor, "c i j"]:
    """Decode the first frame, upright, in grey (1 channel) or RGB (3), with transparent pixels on white.

    >>> decode(b"P5 2 1 255 \\x00\\x07", "two.pgm", channels=1)
    tensor([[[0, 7]]], dtype=torch.uint8)
    >>> decode(b"P5 2 1 255 ", "cut.pgm", channels=1)
    Traceback (most recent call last):
    lambdanets.data.splits.BadItemError: cut.pgm: image file is truncated (0 bytes not processed)
    """
    with (
        only_bad_images(name),
        io.BytesIO(content) if isinstance(content, bytes) else open_regular(content) as file,
        Image.open(file, formats=FORMATS) as image,
    ):
        refuse_size(image)
        image.load()
        return pixels(upright(image), channels)


@contextmanager
def only_bad_images(name: str) -> Iterator[None]:
    """Turn every error into BadItemError, because parsers raise any error for damaged files."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UnidentifiedImageError as error:  # its message names a Python object
        raise BadItemError(name, f"empty, damaged, or not one of {', '.join(FORMATS)}") from error
    except OSError as error:
        raise BadItemError(name, one_line(error.strerror or error)) from error
    except Exception as error:
        raise BadItemError(name, one_line(error) or type(error).__name__) from error


def one_line(text: object) -> str:
    """
    >>> one_line(ValueError("two\\n  lines"))
    'two lines'
    """
    return " ".join(str(text).split())[:200]


def refuse_size(image: Image.Image) -> None:
    """Check the size before decoding. Pillow itself only warns up to twice its limit."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise ValueError(f"{image.width} x {image.height} pixels, more than the limit of {limit}")
    if 0 in image.size:
        raise ValueError(f"{image.width} x {image.height} pixels")


def upright(image: Image.Image) -> Image.Image:
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # damaged metadata, the pixels may be intact
        return image
    return image.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else image


def pixels(image: Image.Image, channels: int) -> UInt8[Tensor, "c i j"]:
    """The pixels of an image in any supported mode."""
    if image.mode.startswith("I"):
        image = in_eight_bits(image)
    elif image.mode == "F":
        raise ValueError("its pixels are floating-point numbers of unknown range")
    elif image.has_transparency_data:
        image = image.convert("RGBA")
        paper = Image.new("RGB", image.size, "white")
        paper.paste(image, mask=image)  # the colours of transparent pixels are undefined
        image = paper
    mode = "L" if channels == 1 else "RGB"
    if image.mode != mode:
        image = image.convert("RGB").convert(mode)  # some modes can be converted to grey only through RGB
    array = np.array(image).reshape(image.height, image.width, channels)
    return torch.from_numpy(array).permute(2, 0, 1).contiguous()


def in_eight_bits(image: Image.Image) -> Image.Image:
    """Scale 16-bit grey images, which Pillow would clip to nearly white."""
    values = np.array(image, dtype=np.int32)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError(f"its pixels are from {values.min()} to {values.max()}, not from 0 to 65535")
    if "transparency" in image.info:
        values[values == image.info["transparency"]] = 65535
    return Image.fromarray(scaled_16_to_8(values))


def scaled_16_to_8(values: np.ndarray) -> np.ndarray:
    """Scale to 8 bits with rounding; 65535 becomes 255.

    >>> scaled_16_to_8(np.array([0, 128, 129, 65535]))
    array([  0,   0,   1, 255], dtype=uint8)
    """
    return ((values.astype(np.int32) + 128) // 257).astype(np.uint8)

"""Draws a small image data set: suns, trees and waves with random positions, sizes, colours and noise.

    python examples/draw_pictures.py pictures
    lambdanets train digits data.source=folder data.root=pictures data.image_size=32 trainer.max_epochs=5

It writes 60 pictures for training, `pictures/train/CLASS/*.png`, and 60 for validation, `pictures/val/CLASS/*.png`, in
the layout that `data.source=folder` reads. The pictures are the same every time.
"""

import math
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Mask = NDArray[np.bool_]

SIZE = 48  # pixels
PER_CLASS = 20  # pictures in each of train and val
NOISE = 20.0  # standard deviation, of 255
COLOURS = {"sun": (230, 180, 40), "tree": (50, 130, 60), "wave": (50, 90, 190)}
JITTER = 40.0  # of colours


def sun(chance: np.random.Generator) -> Mask:
    """The pixels of a disc; `tree` returns those of a triangle, `wave` those of stripes."""
    radius = chance.uniform(0.2, 0.4) * SIZE
    i, j = np.indices((SIZE, SIZE)) - chance.uniform(radius, SIZE - radius, (2, 1, 1))
    return np.asarray(np.hypot(i, j) < radius)


def tree(chance: np.random.Generator) -> Mask:
    height, width = chance.uniform(0.5, 0.8, 2) * SIZE
    i, j = np.indices((SIZE, SIZE)) - chance.uniform([0, width / 2], [SIZE - height, SIZE - width / 2])[:, None, None]
    return np.asarray((np.abs(j) < i * width / height / 2) & (i < height))


def wave(chance: np.random.Generator) -> Mask:
    period, length, phase = chance.uniform(8, 16), chance.uniform(12, 24), chance.uniform(0, 1)
    i, j = np.indices((SIZE, SIZE))
    return np.asarray(((i + 3 * np.sin(2 * math.pi * j / length)) / period + phase) % 1 < 0.5)


SHAPES = {"sun": sun, "tree": tree, "wave": wave}


def draw(name: str, chance: np.random.Generator) -> Image.Image:
    """A picture of a class on a nearly white background."""
    colour, behind = np.add(COLOURS[name], chance.uniform(-JITTER, JITTER, 3)), chance.uniform(190, 255, 3)
    picture = np.where(SHAPES[name](chance)[:, :, None], colour, behind)
    return Image.fromarray((picture + chance.normal(0, NOISE, picture.shape)).clip(0, 255).astype(np.uint8))


def main(folder: Path) -> None:
    for is_val, split in enumerate(("train", "val")):
        for label, name in enumerate(SHAPES):
            (folder / split / name).mkdir(parents=True, exist_ok=True)
            for number in range(PER_CLASS):
                chance = np.random.default_rng([is_val, label, number])
                draw(name, chance).save(folder / split / name / f"{number:02}.png")
    print(f"{folder}: {PER_CLASS} pictures of each class ({', '.join(SHAPES)}) in train, and as many in val")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "pictures"))

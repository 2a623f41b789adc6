"""Writes one of scikit-learn's handwritten digits as an image file, for the prediction in `make demo`."""

import sys
from pathlib import Path

from PIL import Image

from lambdanets.data.images import ImageDataConfig, ImageSplit, open_images


def main(path: Path) -> None:
    digits = open_images(ImageDataConfig(source="digits"))
    assert isinstance(digits.val, ImageSplit)
    image, label = digits.val.item(0).read()  # a validation image, not used for training
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(image[0].numpy()).save(path)
    print(f"{path} is a {digits.classes[label]}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/digit.png"))

"""Write one of scikit-learn's handwritten digits as an image, to have something to predict (make demo)."""

import sys
from pathlib import Path

from PIL import Image

from lambdanets.data import DataConfig, Split, open_data


def main(path: Path) -> None:
    digits = open_data(DataConfig(source="digits"))
    assert isinstance(digits.val, Split)
    example = digits.val.example(0)  # one that no network was trained with
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(example.read()[0].numpy()).save(path)
    print(f"{path} is a {digits.classes[example.label]}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/digit.png"))

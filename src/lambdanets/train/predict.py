"""What a trained network takes images for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

import torch

from lambdanets.data import EXTENSIONS, BadImageError, DataError, read_image
from lambdanets.nn.modes import evaluating
from lambdanets.train.assemble import fastest_device, with_preparation
from lambdanets.train.folder import RunFolder

AT_ONCE = 16  # images


@dataclass(frozen=True)
class Prediction:
    """The likeliest classes with their probabilities, or why there are none."""

    image: str
    top: list[tuple[str, float]]
    error: str | None = None


class Predictor:
    """The network of a run with all that stands between a file and an answer."""

    def __init__(self, run: RunFolder) -> None:
        config, self.classes = run.config(), run.description().classes
        network, self.complaints = run.network()
        self.device = fastest_device()
        self.network = with_preparation(config, network.to(self.device))
        assert config.data.image_size is not None
        self.config, self.size, self.channels = config.data, config.data.image_size, network.config.in_chans

    def predict(self, images: Sequence[Path], top: int = 5) -> Iterator[Prediction]:
        """In their order, a few at a time."""
        for first in range(0, len(images), AT_ONCE):
            yield from self.predict_together(images[first : first + AT_ONCE], top)

    @torch.no_grad()
    def predict_together(self, images: Sequence[Path], top: int) -> Iterator[Prediction]:
        read, errors = {}, {}
        for path in images:
            try:
                read[path] = read_image(path, self.config, self.size, self.channels)
            except BadImageError as error:
                errors[path] = error.reason
        answers = {}
        if read:
            with evaluating(self.network):
                probabilities = self.network(torch.stack(list(read.values())).to(self.device)).softmax(1).cpu()
            best = probabilities.topk(min(top, len(self.classes)))
            answers = dict(zip(read, zip(best.values.tolist(), best.indices.tolist(), strict=True), strict=True))
        for path in images:
            if path in errors:
                yield Prediction(str(path), [], errors[path])
            else:
                shares, places = answers[path]
                yield Prediction(str(path), [(self.classes[i], p) for p, i in zip(shares, places, strict=True)])


def find_images(patterns: Sequence[str]) -> list[Path]:
    """Files, all images of folders, and what patterns such as pictures/*.jpg stand for, each once."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern)
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix[1:].lower() in EXTENSIONS and p.is_file())
        else:
            matching = map(Path, glob(pattern, recursive=True))
            inside = [path] if path.exists() else sorted(p for p in matching if p.is_file())
        if not inside:
            raise DataError(f"{pattern} is no file, no folder with images, and no pattern that fits any")
        found |= dict.fromkeys(inside)
    return list(found)

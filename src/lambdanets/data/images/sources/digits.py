"""scikit-learn's handwritten digits, 8 x 8 pixels, which are part of the package."""

from functools import partial

import numpy as np
import torch

from lambdanets.data.images.config import ImageDataConfig
from lambdanets.data.images.labelled import Offer
from lambdanets.data.images.sources.arrays import ArraySplit
from lambdanets.data.splits import SplitName


def offer(config: ImageDataConfig) -> Offer:
    return Offer(train=partial(load, "train"), val=partial(load, "val"))


def load(split: SplitName) -> ArraySplit:
    """A fixed stratified split, 80 % for training."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    chosen = train_test_split(np.arange(len(digits.target)), test_size=0.2, stratify=digits.target, random_state=0)
    indices = chosen[("train", "val").index(split)]
    grey = np.rint(digits.images[indices] * (255 / 16)).astype(np.uint8)
    labels = digits.target[indices].astype(np.int64)
    names = tuple(str(name) for name in digits.target_names)
    return ArraySplit(torch.from_numpy(grey)[:, None], torch.from_numpy(labels), names, f"digits/{split}")

"""Trains a ViT and a lambda ViT on scikit-learn's digits; they differ only in the token mixer.

python examples/lambda_vit.py
"""

import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lambdanets import create_model

TRAINING, BATCH = 1437, 64  # of 1797 images


def main(epochs: int = 15) -> dict[str, float]:
    """The test accuracy of each network."""
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)[:, None] / 8 - 1  # (n, 1, 8, 8)
    labels = torch.tensor(found.target)
    shares = {}
    for name in ("vit_micro_small", "lambda_vit_micro_small"):
        torch.manual_seed(0)
        model = create_model(name, image_size=8, patch=2, in_chans=1, depth=4)  # a grid of 4 x 4 patches
        began = time.perf_counter()
        train(model, images[:TRAINING], labels[:TRAINING], epochs)
        seconds = time.perf_counter() - began
        with torch.no_grad():
            right = model.eval()(images[TRAINING:]).argmax(1) == labels[TRAINING:]
        shares[name] = right.float().mean().item()
        parameters = sum(p.numel() for p in model.parameters())
        print(f"{name}: {shares[name]:.1%} right, {parameters / 1e3:.0f} k parameters, {seconds:.0f} s")
    return shares


def train(model: nn.Module, images: Tensor, labels: Tensor, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    steps = epochs * (len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            loss = cross_entropy(model(images[batch]), labels[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()


if __name__ == "__main__":
    main()

"""Train a small lambda network on scikit-learn's embedded digits and draw what it learned (make demo).

Pictures go to runs/digits/: curves.png and predictions.png. On 2 cores it trains for about half a minute.
"""

import argparse
import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from lambdanets import LambdaLayer2d

Split = tuple[Tensor, Tensor]
History = list[tuple[float, float]]


class LambdaBlock(nn.Module):
    """A residual block whose spatial layer is a global lambda layer."""

    def __init__(self, d: int, size: int) -> None:
        super().__init__()
        self.mix = nn.Sequential(
            LambdaLayer2d(d, scope=None, size=size),
            nn.BatchNorm2d(d),
            nn.ReLU(),
            nn.Conv2d(d, d, 1, bias=False),
        )
        self.norm = nn.BatchNorm2d(d)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.relu(x + self.norm(self.mix(x)))


def make_network(d: int = 48, blocks: int = 3, size: int = 8) -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(1, d, 3, padding=1, bias=False), nn.BatchNorm2d(d), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(d, 10))
    return nn.Sequential(stem, *(LambdaBlock(d, size) for _ in range(blocks)), head)


def load() -> tuple[Split, Split]:
    """A fixed stratified split, 80 % for training."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    labels = torch.tensor(digits.target)
    train, test = train_test_split(range(len(labels)), test_size=0.2, stratify=digits.target, random_state=0)
    return (images[train], labels[train]), (images[test], labels[test])


def shifted(images: Tensor) -> Tensor:
    """Each image moved by up to one pixel: the cheapest augmentation of a handwritten digit."""
    padded = nn.functional.pad(images, (1, 1, 1, 1))
    down, right = torch.randint(3, (2, len(images)))
    rows, columns = down[:, None] + torch.arange(8), right[:, None] + torch.arange(8)
    return padded[torch.arange(len(images))[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]


@torch.no_grad()
def accuracy(network: nn.Module, split: Split) -> float:
    network.eval()
    images, labels = split
    return float((network(images).argmax(1) == labels).float().mean())


def train(network: nn.Module, data: Split, test: Split, epochs: int, seconds: float) -> History:
    """One cycle of the learning rate over `epochs`, cut short when the time is up; each epoch's loss and accuracy."""
    images, labels = data
    batch = 64
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=0.05)
    steps = epochs * -(-len(labels) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    history: History = []
    started = time.monotonic()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    with Progress(*columns) as progress:
        task = progress.add_task("training", total=steps, state="")
        for epoch in range(epochs):
            network.train()
            losses = []
            for index in torch.randperm(len(labels)).split(batch):
                loss = nn.functional.cross_entropy(network(shifted(images[index])), labels[index], label_smoothing=0.1)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                losses.append(loss.item())
                progress.advance(task)
                if time.monotonic() - started > seconds:
                    break
            history.append((sum(losses) / len(losses), accuracy(network, test)))
            state = f"epoch {epoch + 1}/{epochs}  loss {history[-1][0]:.3f}  test accuracy {history[-1][1]:.1%}"
            progress.update(task, state=state)
            if time.monotonic() - started > seconds:
                progress.console.print(f"time is up after {epoch + 1} epochs")
                break
    return history


def save(figure: Figure, path: Path) -> None:
    """Written beside and moved into place, so that a picture is whole or not there."""
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    plt.close(figure)
    os.replace(temporary, path)


def draw_curves(history: History, path: Path) -> None:
    losses, accuracies = zip(*history, strict=True)
    epochs = range(1, len(history) + 1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    left.plot(epochs, losses)
    left.set(title="training loss", xlabel="epoch", ylim=(0, None))
    right.plot(epochs, [100 * a for a in accuracies])
    right.axhline(100 * accuracies[-1], linewidth=0.5, color="grey")
    right.set(title=f"test accuracy, at the end {accuracies[-1]:.1%}", xlabel="epoch", ylabel="%")
    save(figure, path)


@torch.no_grad()
def draw_predictions(network: nn.Module, test: Split, path: Path) -> None:
    """The test images the network is least sure about, wrong ones in red."""
    images, labels = test
    probabilities = network.eval()(images).softmax(1)
    unsure = probabilities[torch.arange(len(labels)), labels].argsort()[:24]
    figure, axes = plt.subplots(3, 8, figsize=(10, 4.8), layout="constrained")
    for axis, i in zip(axes.flat, unsure.tolist(), strict=True):
        guess = int(probabilities[i].argmax())
        colour = "black" if guess == labels[i] else "crimson"
        axis.imshow(images[i, 0], cmap="gray_r")
        axis.set_title(f"{guess} ({probabilities[i, guess]:.0%}), is {int(labels[i])}", fontsize=8, color=colour)
        axis.axis("off")
    figure.suptitle("the 24 test images with the least probability on the right answer")
    save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=75, help="end training after this time")
    parser.add_argument("--out", type=Path, default=Path("runs/digits"))
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error(f"--epochs must be at least 1, got {options.epochs}")

    torch.manual_seed(0)
    data, test = load()
    network = make_network()
    console = Console()
    parameters = sum(p.numel() for p in network.parameters())
    console.print(f"{len(data[1])} training and {len(test[1])} test images, {parameters:,} parameters")
    started = time.monotonic()
    history = train(network, data, test, options.epochs, options.seconds)
    console.print(f"test accuracy {history[-1][1]:.2%} after {time.monotonic() - started:.0f} s of training")
    options.out.mkdir(parents=True, exist_ok=True)
    draw_curves(history, options.out / "curves.png")
    draw_predictions(network, test, options.out / "predictions.png")
    console.print(f"pictures: {options.out / 'curves.png'}, {options.out / 'predictions.png'}")


if __name__ == "__main__":
    main()

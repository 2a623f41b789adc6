"""Shows how the temperature of a softargmax changes attention, from uniform to one-hot, and its gradient.

python examples/temperature.py [temperature.png]
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

from lambdanets.ops.attention import dot_scores, hardargmax, softargmax


def slope(d: int, beta: float, pairs: int = 2000) -> float:
    """The mean trace of the softargmax's Jacobian over 8 random keys of depth d."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, pairs, 1, d, generator=generator)
    keys = torch.randn(1, 8, 1, d, generator=generator)
    a = softargmax(dot_scores(q, keys), beta)
    return float((a * (1 - a)).sum(-1).mean())  # the trace of diag(a) - a a^T


def main(path: Path) -> dict[str, list[float]]:
    depths = [4, 16, 64, 256, 1024]
    slopes = {
        "beta = 1": [slope(d, 1.0) for d in depths],
        "beta = 1 / sqrt(d)": [slope(d, d**-0.5) for d in depths],
    }
    for name, its in slopes.items():
        print(f"{name}: gradient at d = " + ", ".join(f"{d}: {s:.3f}" for d, s in zip(depths, its, strict=True)))
    scores, betas = torch.tensor([0.2, 1.0, 0.7, -0.5, 0.9]), [0.0, 1.0, 3.0, 10.0, 100.0]
    gaps = [float((softargmax(scores, beta) - hardargmax(scores)).abs().sum()) for beta in betas]
    print(
        "distance to hard attention at beta = " + ", ".join(f"{b:g}: {g:.3f}" for b, g in zip(betas, gaps, strict=True))
    )

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for beta in betas[:-1]:
        left.plot(softargmax(scores, beta), "o-", label=f"beta = {beta:g}")
    left.set(title="One row of attention", xlabel="context position", ylabel="attention", xticks=range(5))
    left.legend()
    for name, its in slopes.items():
        right.loglog(depths, its, "o-", label=name)
    right.set(title="Gradient of the softargmax", xlabel="depth d of queries and keys", ylabel="trace of the Jacobian")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"drawn: {path}")
    return {**slopes, "distance to hard attention": gaps}


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/temperature.png"))

"""Uses attention as a soft dictionary, which interpolates between its entries.

python examples/soft_dictionary.py
"""

import math

import torch

from lambdanets.ops.attention import look_up

HOURS = torch.arange(24.0)


def clock(hour: torch.Tensor) -> torch.Tensor:
    """Hours as points on a circle, so that 23 is close to 0."""
    angle = hour * (2 * math.pi / 24)
    return torch.stack([angle.cos(), angle.sin()], -1)


def main() -> dict[str, float]:
    """The temperature at half past six, from measurements at full hours."""
    measured = (15 - 5 * torch.cos((HOURS - 3) * (2 * math.pi / 24)))[:, None]
    query = torch.tensor([6.5])
    answers = {
        "hard, the nearest hour": float(look_up(clock(query), clock(HOURS), measured, beta=math.inf)),
        "soft, beta = 50": float(look_up(clock(query), clock(HOURS), measured, beta=50.0)),
        "soft, beta = 0, the mean of the day": float(look_up(clock(query), clock(HOURS), measured, beta=0.0)),
        "what it was": float(15 - 5 * math.cos((6.5 - 3) * (2 * math.pi / 24))),
    }
    for how, degrees in answers.items():
        print(f"{how}: {degrees:.2f} degrees")
    return answers


if __name__ == "__main__":
    main()

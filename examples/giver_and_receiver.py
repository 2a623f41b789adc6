"""Shows that attention needs positions to tell who gave the roses.

    python examples/giver_and_receiver.py

It compares the output of one head at "gave" for "Ann gave roses to Bob" and "Bob gave roses to Ann".
"""

import torch
from torch import Tensor

from lambdanets import AttentionMixer
from lambdanets.ops.attention import sinusoidal_codes

SENTENCES = (["Ann", "gave", "roses", "to", "Bob"], ["Bob", "gave", "roses", "to", "Ann"])


def read(sentence: list[str], words: dict[str, Tensor]) -> Tensor:
    return torch.stack([words[word] for word in sentence])[None]


def main() -> dict[str, float]:
    """The largest difference of the outputs at "gave" for the two sentences."""
    torch.manual_seed(0)
    d = 16
    words = {word: torch.randn(d) for word in sorted(SENTENCES[0])}
    head = AttentionMixer(d, h=1)
    codes = sinusoidal_codes(len(SENTENCES[0]), d)
    with torch.no_grad():
        without = [head(read(sentence, words))[0, 1] for sentence in SENTENCES]
        with_ = [head(read(sentence, words) + codes)[0, 1] for sentence in SENTENCES]
    differences = {
        "without positions": float((without[0] - without[1]).abs().max()),
        "with sinusoidal positions": float((with_[0] - with_[1]).abs().max()),
    }
    for what, difference in differences.items():
        print(f'{what}: the outputs at "gave" differ by {difference:.1e}')
    return differences


if __name__ == "__main__":
    main()

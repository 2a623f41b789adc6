"""Expresses a fully connected layer and a convolution as multi-head attention with fixed one-hot maps.

python examples/convolution_as_attention.py
"""

import torch
from torch.nn.functional import conv2d, linear

from lambdanets.ops.attention import convolution_as_attention, fully_connected_as_attention


def main() -> dict[str, float]:
    """The largest difference of each to torch's own layer."""
    torch.manual_seed(0)
    tokens, weight = torch.randn(2, 7, 5, dtype=torch.float64), torch.randn(3, 7 * 5, dtype=torch.float64)
    image, kernel = torch.randn(2, 3, 6, 8, dtype=torch.float64), torch.randn(4, 3, 3, 3, dtype=torch.float64)
    attended = fully_connected_as_attention(tokens, weight)
    connected = linear(tokens.flatten(1), weight)[:, None]  # the same at every position
    convolved = convolution_as_attention(image, kernel)
    differences = {
        "7 heads, fully connected over 7 positions": float((attended - connected).abs().max()),
        "9 heads, 3x3 convolution": float((convolved - conv2d(image, kernel, padding=1)).abs().max()),
    }
    for what, difference in differences.items():
        print(f"{what}: differs by {difference:.1e}")
    return differences


if __name__ == "__main__":
    main()

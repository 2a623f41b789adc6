"""Shows how attention and lambda layers respond to permuted positions and translated images.

python examples/permutation_and_translation.py
"""

import torch

from lambdanets import AttentionMixer, LambdaLayer2d, LambdaMixer


@torch.no_grad()
def main() -> dict[str, float]:
    torch.manual_seed(0)
    tokens, order = torch.randn(2, 9, 16), torch.randperm(9)
    attention = AttentionMixer(16, h=2)
    content = LambdaMixer(16, h=2, k=4, terms="content").eval()
    position = LambdaLayer2d(16, h=2, k=4, scope=5, terms="position").eval()
    image = torch.zeros(1, 16, 14, 14)
    image[:, :, 4:8, 4:8] = torch.randn(1, 16, 4, 4)
    moved = image.roll((2, 1), (2, 3))

    def apart(a: torch.Tensor, b: torch.Tensor) -> float:
        return float((a - b).abs().max())

    differences = {
        "attention of permuted tokens, permuted attention": apart(
            attention(tokens[:, order]), attention(tokens)[:, order]
        ),
        "attention to a permuted context": apart(attention(tokens, tokens[:, order]), attention(tokens, tokens)),
        "mean of attention over permuted tokens": apart(attention(tokens[:, order]).mean(1), attention(tokens).mean(1)),
        "content lambdas of a permuted context": apart(content(tokens, tokens[:, order]), content(tokens, tokens)),
        "position lambdas of a moved image, moved": apart(position(moved), position(image).roll((2, 1), (2, 3))),
        "position lambdas of a permuted image": apart(position(image.flip(3)), position(image).flip(3)),
    }
    for what, difference in differences.items():
        print(f"{what}: differ by {difference:.1e}{'' if difference < 1e-5 else ', as expected'}")
    return differences


if __name__ == "__main__":
    main()

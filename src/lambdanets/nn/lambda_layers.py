"""Lambda layers on maps of one to three axes, and on tokens."""

from lambdanets.nn.lambda_layer import LambdaLayer
from lambdanets.nn.layout import OnTokens


class LambdaLayer1d(LambdaLayer):
    """A lambda layer on maps (b, d, n), standing where a Conv1d stands.

    >>> LambdaLayer1d(32, scope=7)(torch.randn(2, 32, 50)).shape
    torch.Size([2, 32, 50])
    """

    dims = 1


class LambdaLayer2d(LambdaLayer):
    """A lambda layer on maps (b, d, height, width), standing where a Conv2d stands.

    >>> LambdaLayer2d(32, 64, stride=2)(torch.randn(2, 32, 14, 20)).shape
    torch.Size([2, 64, 7, 10])
    >>> LambdaLayer2d(32, scope=None, size=(14, 20))(torch.randn(2, 32, 11, 20)).shape  # global
    torch.Size([2, 32, 11, 20])
    """

    dims = 2


class LambdaLayer3d(LambdaLayer):
    """A lambda layer on maps (b, d, depth, height, width), standing where a Conv3d stands.

    >>> LambdaLayer3d(16, scope=(3, 5, 5))(torch.randn(2, 16, 4, 7, 9)).shape
    torch.Size([2, 16, 4, 7, 9])
    """

    dims = 3


class LambdaMixer(OnTokens, LambdaLayer):
    """A lambda layer on tokens (b, n, d), standing where self- or cross-attention stands.

    >>> LambdaMixer(32, causal=True, scope=65)(torch.randn(2, 100, 32)).shape
    torch.Size([2, 100, 32])
    >>> cross = LambdaMixer(32, d_context=48, terms="content")
    >>> cross(torch.randn(2, 100, 32), torch.randn(2, 7, 48)).shape
    torch.Size([2, 100, 32])
    """

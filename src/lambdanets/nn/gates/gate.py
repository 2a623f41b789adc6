"""What all gates share: they scale channels, and so cannot change how many there are."""

from lambdanets.nn.context_layer import ContextLayer


class Gate(ContextLayer):
    """A layer whose output is its input, scaled."""

    reads_context = False

    def __init__(self, d_in: int, d_out: int | None = None, d_context: int | None = None) -> None:
        super().__init__(d_in, d_out, d_context)
        if self.d_out != self.d_in:
            raise ValueError(f"{type(self).__name__}: d_out must equal d_in, got d_in={d_in}, d_out={d_out}")

    def extra_repr(self) -> str:
        return f"{self.d_in}"


def reduced(d: int, ratio: int) -> int:
    """The width of a gate's hidden layer."""
    return max(d // ratio, 1)

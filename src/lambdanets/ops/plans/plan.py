"""What a plan is: an exact way to compute the position term, and what it declares about itself."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from lambdanets.ops.geometry import Grid
from lambdanets.ops.plans.problem import Cost, Inputs, Problem


class Plan:
    """An exact way to compute the position term, for what it supports.

    Callers ask for its capabilities, never for its class or name.
    """

    name: str
    devices: ClassVar[frozenset[str] | None] = None  # the types it runs on, None for all
    takes_content: ClassVar[bool] = False  # it applies content lambdas in the same pass, `Inputs.content`
    takes_layer: ClassVar[bool] = False  # `kernels.operators.layer` and `infer` compute whole layers by its `window`
    is_portable: ClassVar[bool] = True  # it consists of torch's own operators, so that programs with it run anywhere
    serves_all_sizes: ClassVar[bool] = False  # one exported program does

    def supports(self, problem: Problem) -> str | None:
        """None, or the reason why not."""
        if self.devices is None or problem.device.type in self.devices:
            return None
        return f"it is for {', '.join(sorted(self.devices))}, and this is on {problem.device}"

    def automatic(self, problem: Problem) -> bool:
        """Whether it may be chosen where no plan is forced."""
        return True

    def cost(self, problem: Problem) -> Cost:
        """What the plan takes, for choosing between plans."""
        raise NotImplementedError

    def seconds(self, problem: Problem) -> float:
        """The same on the problem's device."""
        return self.cost(problem).seconds(problem.device)

    def run(self, inputs: Inputs) -> Float[Tensor, "b n h v"]:
        """The position term, and that of the content lambdas if there are any."""
        raise NotImplementedError

    def window(self, grid: Grid) -> list[Any]:
        """The last arguments of these operators, for a grid whose window is cut to what is reachable."""
        raise NotImplementedError

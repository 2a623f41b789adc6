"""The middle layer of a bottleneck: a 3x3 convolution, a lambda layer, or any layer made for its place.

Middle: Place -> a module from maps (b, d_in or width, *size) to maps (b, width, *ceil(size / stride))
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from lambdanets.nn import LambdaLayer2d
from lambdanets.nn.arguments import keywords, known_options
from lambdanets.nn.lambda_options import Terms
from lambdanets.nn.pointwise import product
from lambdanets.nn.registry import create_layer, layer_class
from lambdanets.nn.tables import RelationTable


class Place(NamedTuple):
    """The position of a layer in a ResNet, and the maps that it sees there."""

    width: int  # output channels, and input channels unless d_in is given
    stride: int
    size: tuple[int, int]  # of the input map, at the network's image size
    stage: int  # 0 is c2
    block: int  # within its stage
    d_in: int | None = None


class Conv2d(nn.Conv2d):
    """A convolution without bias, initialised as in ResNets: Kaiming normal, fan out."""

    def __init__(self, d_in: int, d_out: int, side: int, stride: int = 1) -> None:
        super().__init__(d_in, d_out, side, stride, side // 2, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Float[Tensor, "*b d i j"]) -> Float[Tensor, "*b e s t"]:
        y = product(self, x)
        return super().forward(x) if y is None else y


# Makes the layer of a place.
Middle = Callable[[Place], nn.Module]

# Arguments of a layer that its place decides.
DECIDED = ("d_context", "size", "stride", "table")


def check_options(owner: str, layer: type[nn.Module], options: Mapping[str, Any]) -> None:
    """Check that a layer has these options and that its place does not decide them, before anything is built."""
    known_options(owner, options, [name for name in keywords(layer) if name not in DECIDED])


def convolution(place: Place) -> nn.Module:
    """The 3x3 convolution of a ResNet."""
    return Conv2d(place.d_in or place.width, place.width, 3, place.stride)


class Strided(nn.Sequential):
    """A layer at full resolution, followed by a strided 3x3 average pool that does not count padding."""

    def __init__(self, layer: nn.Module, stride: int) -> None:
        super().__init__(layer, nn.AvgPool2d(3, stride, 1, count_include_pad=False))


class Named:
    """A layer by name, or several in sequence: "axial", "convolution+squeeze".

    All run at the input resolution, except that a convolution, which can only come first, has the stride.
    """

    def __init__(self, names: str, options: Mapping[str, Any]) -> None:
        self.first, *self.others = names.split("+")
        if "convolution" in self.others:
            raise ValueError(f"a convolution can only come first, got layer={names!r}")
        for name in (self.first, *self.others):
            if name != "convolution":
                check_options(name, layer_class(name, "maps"), options)
        if self.first == "convolution" and not self.others and options:
            raise ValueError(f"a convolution has no options, got {dict(options)}")
        self.options = dict(options)

    def __call__(self, place: Place) -> nn.Module:
        if self.first == "convolution":
            first, size = convolution(place), tuple(-(-side // place.stride) for side in place.size)
        else:
            first, size = self.make(self.first, place.d_in or place.width, place, place.size), place.size
        layers = [first, *(self.make(name, place.width, place, size) for name in self.others)]
        whole = layers[0] if len(layers) == 1 else nn.Sequential(*layers)
        return whole if place.stride == 1 or self.first == "convolution" else Strided(whole, place.stride)

    def make(self, name: str, d_in: int, place: Place, size: tuple[int, ...]) -> nn.Module:
        return create_layer(name, d_in, place.width, size=size, **self.options)


class Lambda:
    """A lambda layer at the input resolution; a stride is a 3x3 average pool after it.

    With `share`, layers on maps of the same size share their embeddings; such an object can build one network only.
    """

    def __init__(
        self,
        *,
        k: int = 16,
        h: int = 4,
        u: int = 1,
        scope: int | None = 23,
        terms: Terms = "both",
        share: bool = False,
        **options: Any,
    ) -> None:
        self.options = {"k": k, "h": h, "u": u, "scope": scope, "terms": terms, **options}
        check_options("lambda", LambdaLayer2d, self.options)
        self.tables: dict[tuple[int, int], RelationTable | None] | None = {} if share else None

    def __call__(self, place: Place) -> nn.Module:
        shared = None if self.tables is None else self.tables.get(place.size)
        layer = LambdaLayer2d(place.d_in or place.width, place.width, size=place.size, table=shared, **self.options)
        if self.tables is not None:
            self.tables.setdefault(place.size, layer.table)
        return layer if place.stride == 1 else Strided(layer, place.stride)

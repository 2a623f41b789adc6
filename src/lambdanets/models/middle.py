"""What stands in the middle of a bottleneck: a 3x3 convolution, a lambda layer, or any layer that is told its place.

Middle: Place -> a module that takes maps (b, d_in or width, *size) to maps (b, width, *ceil(size / stride))
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
    """Where in a network a layer stands."""

    width: int  # channels that go out, and come in unless d_in says otherwise
    stride: int
    size: tuple[int, int]  # of the map that comes in, at the network's image size
    stage: int  # 0 is c2
    block: int  # of its stage
    d_in: int | None = None


class Conv2d(nn.Conv2d):
    """A convolution without bias that starts as in the ResNets: normal, scaled to its outputs."""

    def __init__(self, d_in: int, d_out: int, side: int, stride: int = 1) -> None:
        super().__init__(d_in, d_out, side, stride, side // 2, bias=False)

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Float[Tensor, "*b d i j"]) -> Float[Tensor, "*b e s t"]:
        y = product(self, x)
        return super().forward(x) if y is None else y


# Makes the layer for a place.
Middle = Callable[[Place], nn.Module]

# What the place of a layer decides and no option of it.
DECIDED = ("d_context", "size", "stride", "table")


def check_options(owner: str, layer: type[nn.Module], options: Mapping[str, Any]) -> None:
    """Before anything is built: a layer has them all, and they leave it in its place."""
    known_options(owner, options, [name for name in keywords(layer) if name not in DECIDED])


def convolution(place: Place) -> nn.Module:
    """The 3x3 convolution of a ResNet."""
    return Conv2d(place.d_in or place.width, place.width, 3, place.stride)


class Strided(nn.Sequential):
    """A layer at full resolution, and an average over 3x3 that strides; what hangs over the edge is left out."""

    def __init__(self, layer: nn.Module, stride: int) -> None:
        super().__init__(layer, nn.AvgPool2d(3, stride, 1, count_include_pad=False))


class Named:
    """A layer of the family by its name, or several one after another: "axial", "convolution+squeeze".

    All are at the resolution that comes in, but for a convolution at the front, which strides itself.
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
    """A lambda layer at the resolution that comes in; a stride is an average over 3x3 behind it.

    With `share`, layers that see maps of the same size share their embeddings; one such object then serves one network.
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

"""Networks by name: `create_model` and `list_models`."""

from dataclasses import fields
from typing import Any

from lambdanets.models.families import family_of, rows
from lambdanets.models.network import Network, NetworkConfig
from lambdanets.nn.arguments import keywords


def list_models() -> list[str]:
    """The names that `create_model` knows."""
    return list(rows())


def find_config(name: str) -> NetworkConfig | None:
    """The configuration that a name stands for."""
    return rows().get(name)


def create_model(name: str, **changes: Any) -> Network:
    """A network by name, with changes to its configuration; weights are random.

    Args:
        name: one of `list_models`.
        changes: fields of the network's configuration, such as `ResNetConfig` or `ViTConfig`. A change can imply
            others, unless these are given too:

            * another `setup` of a ResNet brings its image size, dropout, drop path and squeeze-and-excitation;
            * another `layer` in a ResNet without lambda layers goes into all blocks;
            * another `mixer` of a ViT brings its own options, mean pooling instead of a class token, and learned
              positions if it has no relative ones.

            Callables can make layers too: `middle` those of the blocks of a ResNet that are marked L, from their place
            (see `lambdanets.models.middle`), `mixer` those of a ViT, from d (see `lambdanets.models.mixers`).

    >>> create_model("lambda_resnet50", placement="CLLL", k=8, scope=7).config.placement
    'CLLL'
    >>> create_model("vit_tiny_small", mixer="lambda", mixer_options={"scope": 7}).config.pool
    'mean'
    """
    row = find_config(name)
    if row is None:
        raise ValueError(f"unknown model {name!r}; choose from {', '.join(list_models())}")
    network = family_of(row).network
    known = {field.name for field in fields(row)} | keywords(network).keys()  # type: ignore[arg-type]
    if unknown := changes.keys() - known:
        raise ValueError(f"{name}: unknown option {', '.join(sorted(unknown))}; see {type(row).__name__}")
    return network.from_row(name, row, changes)

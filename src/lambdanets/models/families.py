"""The table of model families. A new family is a new file and one line here; nothing else has to know its classes."""

from collections.abc import Mapping
from dataclasses import dataclass

from lambdanets.models.network import Network, NetworkConfig
from lambdanets.models.resnet import ResNet
from lambdanets.models.resnet_config import RESNETS, ResNetConfig
from lambdanets.models.vit import ViT
from lambdanets.models.vit_config import VITS, ViTConfig


@dataclass(frozen=True)
class Family:
    """Networks of one class: how they are configured and built, and the configurations that have names."""

    config: type[NetworkConfig]
    network: type[Network]
    rows: Mapping[str, NetworkConfig]


# By the name of the network's class, which config.json of a saved network holds as its architecture.
FAMILIES: dict[str, Family] = {
    "ResNet": Family(ResNetConfig, ResNet, RESNETS),
    "ViT": Family(ViTConfig, ViT, VITS),
}


def rows() -> dict[str, NetworkConfig]:
    """All named configurations."""
    return {name: row for family in FAMILIES.values() for name, row in family.rows.items()}


def family_of(row: NetworkConfig) -> Family:
    return next(family for family in FAMILIES.values() if type(row) is family.config)

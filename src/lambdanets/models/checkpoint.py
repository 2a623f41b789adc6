"""A network as two files: config.json says what it is and what its weights hash to, model.safetensors holds them.

Neither can run code when it is read.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from lambdanets.fields import with_tuples
from lambdanets.files import sha256, synchronise, write_atomically
from lambdanets.models.registry import Config, Network
from lambdanets.models.resnet import ResNet, ResNetConfig
from lambdanets.models.vit import ViT, ViTConfig

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 1
ARCHITECTURES: dict[str, tuple[type[Network], type[Config]]] = {
    "ResNet": (ResNet, ResNetConfig),
    "ViT": (ViT, ViTConfig),
}


class CheckpointError(ValueError):
    """A network that cannot be saved as it is, or a file that is not one of ours, or damaged; the message names it."""


def write_checkpoint(model: Network, folder: Path) -> None:
    """Weights, then the configuration: without that nobody takes the folder for a network."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    refuse_changed(model)
    shared = set(aliases(model))
    tensors = {name: t.contiguous() for name, t in model.state_dict().items() if name not in shared}
    try:
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    except SafetensorError as error:
        raise CheckpointError(f"{folder} cannot be written: {error}") from error
    synchronise(folder / WEIGHTS)
    description = {
        "library": "lambdanets",
        "format": FORMAT,
        "architecture": type(model).__name__,
        "config": asdict(model.config),
        "config_sha256": sha256_of_config(asdict(model.config)),
        "sha256": sha256(folder / WEIGHTS),
    }
    write_atomically(folder / CONFIG, f"{json.dumps(description, indent=2)}\n".encode())


def read_checkpoint(config_file: Path, weights_file: Path) -> Network:
    """The network that the two files hold, in eval mode and in the dtypes it was saved in."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    description = read_description(config_file)
    if not weights_file.is_file():
        raise CheckpointError(f"{weights_file} is missing")
    found = sha256(weights_file)
    if found != description["sha256"]:
        raise CheckpointError(
            f"{weights_file} is damaged or belongs to another network: its sha256 is {found}, "
            f"{config_file.name} says {description['sha256']}"
        )
    try:
        model = described(description)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of sizes that no tensor has
        raise CheckpointError(f"{config_file} does not describe a network of this version: {error}") from error
    try:
        # Copied to where torch would have them: products of tensors that begin elsewhere may round differently.
        tensors = {name: t.clone() for name, t in load_file(weights_file).items()}
        tensors |= {alias: tensors[name] for alias, name in aliases(model).items()}
        model.load_state_dict(tensors, assign=True)
    except (SafetensorError, KeyError, RuntimeError) as error:
        told = [line.strip() for line in str(error).splitlines() if not line.startswith("Error(s)")]
        more = f", and {len(told) - 1} more" if len(told) > 1 else ""
        raise CheckpointError(
            f"{weights_file} does not hold what {config_file.name} describes: {''.join(told[:1])}{more}"
        ) from error
    return model.eval()


def described(description: dict[str, Any]) -> Network:
    """The network without its weights."""
    name = description.get("architecture", "ResNet")
    if name not in ARCHITECTURES:
        raise ValueError(f"architecture must be one of {', '.join(ARCHITECTURES)}, got {name!r}")
    network, config = ARCHITECTURES[name]
    return network.on_meta(config(**with_tuples(description["config"])))


def sha256_of_config(config: dict[str, Any]) -> str:
    """However the file is laid out."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def read_description(file: Path) -> dict[str, Any]:
    try:
        description = json.loads(file.read_text())
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing: the folder holds no saved network") from error
    except (ValueError, RecursionError) as error:  # no JSON, no text, or more of it than a configuration has
        raise CheckpointError(f"{file} is damaged: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error.strerror}") from error
    if not isinstance(description, dict) or description.get("library") != "lambdanets":
        raise CheckpointError(f"{file} does not describe a network of lambdanets")
    if description.get("format") != FORMAT:
        raise CheckpointError(f"{file} has format {description.get('format')!r}, this version reads {FORMAT}")
    if missing := {"config", "sha256"} - description.keys():
        raise CheckpointError(f"{file} is damaged: it has no {', '.join(sorted(missing))}")
    if not isinstance(description["config"], dict):
        raise CheckpointError(f"{file} is damaged: its config is {description['config']!r}")
    expected = description.get("config_sha256")  # files of the first versions have none
    if expected not in (None, sha256_of_config(description["config"])):
        raise CheckpointError(
            f"{file} was changed after it was written: its config does not have the sha256 {expected}; to change a "
            f"network, load it and change that"
        )
    return description


def aliases(model: nn.Module) -> dict[str, str]:
    """Further names of tensors that have one already, where tables are shared, with their first names."""
    first: dict[int, str] = {}
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(parameter), name) != name:
            found[name] = first[id(parameter)]
    return found


def refuse_changed(model: Network) -> None:
    """What the configuration does not tell would be lost."""
    if type(model) not in [network for network, _ in ARCHITECTURES.values()]:
        raise CheckpointError(f"files hold {' and '.join(ARCHITECTURES)}, not what a {type(model).__name__} may add")
    if any(tensor.is_meta for tensor in model.state_dict().values()):
        raise CheckpointError("a network on the meta device has no weights to save")
    for part in ("middle", "mixer"):
        if getattr(model, f"has_own_{part}", False):
            raise CheckpointError(f"a network with a `{part}` of its own is not described by its configuration")
    described = type(model).on_meta(model.config)
    for looked_at in (shapes, kinds, aliases):
        expected, held = looked_at(described), looked_at(model)
        for name in {**expected, **held}:
            if expected.get(name) != held.get(name):
                raise CheckpointError(
                    f"{name} is not what the configuration describes: the network was changed by hand"
                )


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def kinds(model: nn.Module) -> dict[str, tuple[type[nn.Module] | None, str]]:
    """What weights do not tell: the settings of every module, and of activations, pools and the like which they are."""
    return {
        name: (None if module.state_dict() else type(module), module.extra_repr())
        for name, module in model.named_modules()
    }

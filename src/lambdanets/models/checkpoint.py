"""Networks as two files: config.json with the configuration and a hash of the weights, and model.safetensors.

Reading them never runs code from them.
"""

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lambdanets.fields import brief, with_tuples
from lambdanets.files import read_json, reason, sha256, synchronise, write_atomically
from lambdanets.models.families import FAMILIES
from lambdanets.models.fill import CheckDtype, aliases, any_dtype, fill, name_of
from lambdanets.models.network import Network

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FORMAT = 1
USUAL_DTYPES = ("float32", "float64", "bfloat16", "float16")
LARGEST_HEADER = 100 * 2**20  # bytes that safetensors allows for the names of tensors


class CheckpointError(ValueError):
    """A network that its configuration does not describe, or a damaged or foreign file; the message names it."""


def write_checkpoint(model: Network, folder: Path) -> None:
    """The weights first: a folder without config.json is not a saved network."""
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
        "architecture": next(name for name, family in FAMILIES.items() if type(model) is family.network),
        "config": asdict(model.config),
        "config_sha256": sha256_of_config(asdict(model.config)),
        **described_dtypes(tensors),
        "sha256": sha256(folder / WEIGHTS),
    }
    write_atomically(folder / CONFIG, f"{json.dumps(description, indent=2)}\n".encode())


def described_dtypes(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The most frequent dtype of floating-point tensors, and the names of tensors with another."""
    found = {name: name_of(tensor.dtype) for name, tensor in tensors.items() if tensor.is_floating_point()}
    usual = Counter(found.values()).most_common(1)[0][0]
    others = {name: dtype for name, dtype in found.items() if dtype != usual}
    return {"dtype": usual, **({"other_dtypes": others} if others else {})}


def read_checkpoint(config_file: Path, weights_file: Path, dtype: torch.dtype | None = None) -> Network:
    """The network in the two files, in eval mode, in `dtype` or by default in the dtypes it was saved in."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    description = read_description(config_file)
    try:
        model = described(description)
    except (TypeError, ValueError, RuntimeError) as error:  # torch's for sizes that no tensor has
        message = str(error).partition("\n")[0]
        raise CheckpointError(f"{config_file} does not describe a network of this version: {message}") from error
    found = sha256_of_weights(weights_file, model)
    if found != description["sha256"]:
        raise CheckpointError(
            f"{weights_file} is damaged or belongs to another network: its sha256 is {found}, "
            f"{config_file.name} says {brief(description['sha256'])}"
        )
    try:
        # Copied for torch's alignment: products of tensors that are aligned differently may round differently.
        tensors = {name: t.clone() for name, t in load_file(weights_file).items()}
        fill(model, tensors, dtypes_as_described(description) if dtype is None else any_dtype)
    except (SafetensorError, ValueError) as error:
        raise CheckpointError(f"{weights_file} does not hold what {config_file.name} describes: {error}") from error
    if dtype is None and "dtype" not in description:
        warn_of_other_dtypes(weights_file, config_file, tensors)
    return (model if dtype is None else model.to(dtype)).eval()


def sha256_of_weights(file: Path, model: Network) -> str:
    """The hash of a file that is no larger than the network's weights: hashing a huge one would take hours."""
    largest = LARGEST_HEADER + sum(8 * tensor.numel() for tensor in model.state_dict().values())
    try:
        if file.stat().st_size > largest:
            raise CheckpointError(f"{file} has {file.stat().st_size:,} bytes, more than the network's weights take")
        return sha256(file)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing") from error
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {reason(error)}") from error


def dtypes_as_described(description: Mapping[str, Any]) -> CheckDtype:
    """A check that every tensor has the dtype in config.json; files of the first versions have none."""
    usual, others = description.get("dtype"), description.get("other_dtypes", {})

    def check(name: str, dtype: torch.dtype) -> str | None:
        if usual is None:
            return None if name_of(dtype) in USUAL_DTYPES else f"one of {', '.join(USUAL_DTYPES)}"
        wanted = others.get(name, usual)
        return None if wanted == name_of(dtype) else f"{wanted}; dtype= loads it in any dtype"

    return check


def warn_of_other_dtypes(weights_file: Path, config_file: Path, tensors: Mapping[str, Tensor]) -> None:
    found = {name_of(t.dtype) for t in tensors.values() if t.is_floating_point()} - {"float32"}
    if found:
        warnings.warn(
            f"{weights_file} holds {' and '.join(sorted(found))}, and {config_file.name}, of an older version, does "
            f"not say so: the network is loaded as it is; dtype= converts it, save_pretrained records its dtype",
            stacklevel=2,
        )


def described(description: dict[str, Any]) -> Network:
    """The network on the meta device, without weights."""
    name = description.get("architecture", "ResNet")  # files of the first versions have none
    if not isinstance(name, str) or name not in FAMILIES:
        raise ValueError(f"architecture must be one of {', '.join(FAMILIES)}, got {brief(name)}")
    family = FAMILIES[name]
    return family.network.on_meta(family.config(**with_tuples(description["config"])))


def sha256_of_config(config: dict[str, Any]) -> str:
    """Independent of the layout of the file."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def read_description(file: Path) -> dict[str, Any]:
    try:
        description = read_json(file)
    except FileNotFoundError as error:
        raise CheckpointError(f"{file} is missing: the folder holds no saved network") from error
    except ValueError as error:  # no JSON, no text, or more of it than a configuration has
        raise CheckpointError(f"{file} is damaged: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {reason(error)}") from error
    if not isinstance(description, dict) or description.get("library") != "lambdanets":
        raise CheckpointError(f"{file} does not describe a network of lambdanets")
    if description.get("format") != FORMAT:
        raise CheckpointError(f"{file} has format {brief(description.get('format'))}, this version reads {FORMAT}")
    if missing := {"config", "sha256"} - description.keys():
        raise CheckpointError(f"{file} is damaged: it has no {', '.join(sorted(missing))}")
    if not isinstance(description["config"], dict):
        raise CheckpointError(f"{file} is damaged: its config is {brief(description['config'])}")
    if not isinstance(description.get("dtype", ""), str) or not isinstance(description.get("other_dtypes", {}), dict):
        raise CheckpointError(f"{file} is damaged: it must name the dtype of the weights")
    expected = description.get("config_sha256")  # files of the first versions have none
    if expected not in (None, sha256_of_config(description["config"])):
        raise CheckpointError(
            f"{file} was changed after it was written: its config does not have the sha256 {brief(expected)}; to "
            f"change a network, load it and change that"
        )
    return description


def refuse_changed(model: Network) -> None:
    """Whatever the configuration does not describe would be lost."""
    if type(model) not in [family.network for family in FAMILIES.values()]:
        raise CheckpointError(f"files hold {' and '.join(FAMILIES)}, not what a {type(model).__name__} may add")
    if any(tensor.is_meta for tensor in model.state_dict().values()):
        raise CheckpointError("a network on the meta device has no weights to save")
    if model.custom_part is not None:
        raise CheckpointError(f"a network with its own `{model.custom_part}` is not described by its configuration")
    described = type(model).on_meta(model.config)
    for aspect in (shapes, kinds, aliases):
        expected, held = aspect(described), aspect(model)
        for name in {**expected, **held}:
            if expected.get(name) != held.get(name):
                raise CheckpointError(
                    f"{name} is not what the configuration describes: the network was changed by hand"
                )


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def kinds(model: nn.Module) -> dict[str, tuple[type[nn.Module] | None, str]]:
    """What weights do not show: the settings of every module, and the classes of those without weights."""
    return {
        name: (None if module.state_dict() else type(module), module.extra_repr())
        for name, module in model.named_modules()
    }

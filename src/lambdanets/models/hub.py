"""Networks to and from folders and repositories of the Hugging Face Hub."""

import inspect
import os
import tempfile
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard, ModelHubMixin, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

from lambdanets.models.checkpoint import (
    CONFIG,
    WEIGHTS,
    CheckpointError,
    read_checkpoint,
    refuse_changed,
    write_checkpoint,
)
from lambdanets.models.network import Network

CARD = "model_card_kwargs"
PUSH_OPTIONS = inspect.signature(ModelHubMixin.push_to_hub).parameters.keys() - {"self", "config"}  # ours has its own
LOAD_OPTIONS = {"revision", "cache_dir", "force_download", "local_files_only", "token"}


class HubModel(ModelHubMixin, library_name="lambdanets", tags=["lambda-networks"]):
    """The mixin around a network, so that networks do not have to import huggingface_hub to inherit from it."""

    def __init__(self, model: Network) -> None:
        self.model = model

    def _save_pretrained(self, save_directory: Path) -> None:
        write_checkpoint(self.model, save_directory)

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        card = super().generate_model_card(*args, **kwargs)
        data: Any = card.data  # its attributes are those of the card
        data.tags = sorted({*data.tags, *self.model.hub_tags})
        return card


def save(model: Network, folder: Path, *, push_to_hub: bool = False, **options: Any) -> str | None:
    """Write to a temporary folder first, because the mixin begins by removing files of an older network.

    An interrupted call leaves the older network, except between the two renames: loading then reports that the weights
    belong to another network. The folder is saved before the upload, and stays if that fails.
    """
    refuse_unknown("save_pretrained", options, PUSH_OPTIONS)
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, not a folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    local = {name: value for name, value in options.items() if name == CARD}
    beside = folder if folder.exists() else folder.parent  # on the same file system, so that files can be renamed
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=beside) as name:
        new = Path(name) / folder.name
        HubModel(model).save_pretrained(new, **local)
        folder.mkdir(exist_ok=True)
        for file in sorted(new.iterdir(), key=lambda file: file.name == CONFIG):
            if file.name != "README.md" or not (folder / file.name).exists():
                os.replace(file, folder / file.name)
    if not push_to_hub:
        return None
    try:
        return push(model, **{"repo_id": folder.name, **options})
    except Exception as error:
        error.add_note(f"{folder} is saved; the upload failed")
        raise


def push(model: Network, repo_id: str, **options: Any) -> str:
    refuse_unknown("push_to_hub", options, PUSH_OPTIONS)
    refuse_changed(model)  # before a repository is created for it
    address: str = HubModel(model).push_to_hub(repo_id=repo_id, **options)
    return address


def load(name: str, *, dtype: torch.dtype | None = None, **options: Any) -> Network:
    refuse_unknown("from_pretrained", options, LOAD_OPTIONS)
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TypeError(f"from_pretrained: dtype must be a floating-point dtype of torch, got dtype={dtype!r}")
    if os.path.isdir(name):
        return read_checkpoint(Path(name) / CONFIG, Path(name) / WEIGHTS, dtype)
    try:
        config, weights = (hf_hub_download(repo_id=name, filename=file, **options) for file in (CONFIG, WEIGHTS))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(f"{name} is neither a folder nor a repository that can be reached: {reason}") from error
    return read_checkpoint(Path(config), Path(weights), dtype)


def refuse_unknown(caller: str, options: Mapping[str, Any], known: Set[str]) -> None:
    unknown = options.keys() - known
    if unknown:
        names = ", ".join(sorted(unknown))
        raise TypeError(f"{caller}: unexpected argument {names}; valid arguments are {', '.join(sorted(known))}")

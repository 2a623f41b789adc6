"""`save_pretrained`, `from_pretrained` and `push_to_hub` as users of Hugging Face know them.

huggingface_hub and safetensors are imported when one of them is called, not when the package is.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lambdanets.optional import install_hint

if TYPE_CHECKING:
    from lambdanets.models.network import Network

Its = TypeVar("Its", bound="Pretrained")


class Pretrained:
    """Saving, sharing and loading a network together with its configuration."""

    def save_pretrained(self, folder: str | Path, **options: Any) -> str | None:
        """Write config.json and model.safetensors; `options` are those of huggingface_hub's `ModelHubMixin`."""
        address: str | None = hub().save(self, Path(folder), **options)
        return address

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload to a repository of the Hub; returns its address."""
        address: str = hub().push(self, repo_id, **options)
        return address

    @classmethod
    def from_pretrained(cls: type[Its], name: str | Path, **options: Any) -> Its:
        """A network of this class from a folder or from a repository of the Hub, in eval mode.

        `dtype` is for floating-point tensors, by default what they were saved in. Other options are those of
        `hf_hub_download`: revision, cache_dir, force_download, local_files_only, token.
        """
        network = load_model(name, **options)
        if not isinstance(network, cls):
            raise hub().CheckpointError(f"{name} holds a {type(network).__name__}, not a {cls.__name__}")
        return network


def load_model(name: str | Path, **options: Any) -> "Network":
    """A network of any class from a folder or from a repository of the Hub, in eval mode."""
    network: Network = hub().load(str(name), **options)
    return network


def hub() -> Any:
    try:
        from lambdanets.models import hub as it
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}: {install_hint('hub')}") from error
    return it

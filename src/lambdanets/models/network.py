"""What every network and its configuration have in common, so that nothing else has to know their classes.

A family is a subclass of each and a table of named configurations, see `lambdanets.models.families`. The defaults here
suit a family without special rules, which only has to declare its `blocks` and `example_inputs`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from lambdanets.models.checkpointing import checkpointed
from lambdanets.models.pretrained import Pretrained
from lambdanets.nn.arguments import keywords

DEEPEST = 1000  # blocks: a configuration file that asks for a billion would never finish building

C = TypeVar("C", bound="NetworkConfig")
N = TypeVar("N", bound="Network")


class NetworkConfig:
    """Base of configurations: frozen dataclasses of everything that determines a network, saved as config.json."""

    def with_changes(self: C, changes: Mapping[str, Any]) -> C:
        """This configuration with other values, and with whatever else those imply."""
        return replace(self, **changes)  # type: ignore[type-var]  # subclasses are dataclasses

    @classmethod
    def excluded_by(cls, changes: Mapping[str, Any]) -> frozenset[str]:
        """Fields that do not apply to a network with these changes; a recipe's values for them are dropped."""
        return frozenset()

    def not_inherited(self, changes: Mapping[str, Any]) -> frozenset[str]:
        """Fields that this row, with these changes, does not take over from a recipe written for another row."""
        return self.excluded_by(changes)


class Network(nn.Module, Pretrained):
    """Base of networks that are described by a configuration.

    A subclass takes its configuration as the only positional argument and keeps it as `config`. Keyword-only
    arguments are for what no configuration can describe, such as a callable that makes layers.
    """

    config: Any
    # Of the model card on the Hugging Face Hub, beside those that all networks have.
    hub_tags: ClassVar[tuple[str, ...]] = ()
    # The argument whose callable made parts of this network, which the configuration therefore does not describe.
    custom_part: str | None = None

    def blocks(self) -> list[nn.Module]:
        """The repeated parts, in the order of the forward pass; they are sharded and checkpointed one by one.

        A network that runs them with `run_block` supports gradient checkpointing. One that declares none is sharded
        as a whole.
        """
        return []

    def example_inputs(self, b: int, size: int | tuple[int, ...] | None = None) -> tuple[Tensor, ...]:
        """Random inputs for a batch of b, with which the network can be profiled and exported.

        `size` is what can vary in the input, such as the sides of images or the number of tokens; by default that of
        the configuration.
        """
        raise ValueError(f"{type(self).__name__} does not declare example_inputs")

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the inputs of blocks while training, and recompute the rest in the backward pass."""
        blocks = self.blocks()
        if enable and not blocks:
            raise ValueError(f"{type(self).__name__}: gradient checkpointing needs blocks, and it declares none")
        checkpoint_blocks(blocks, enable)

    @classmethod
    def from_row(cls: type[N], name: str, row: Any, changes: Mapping[str, Any]) -> N:
        """What `create_model` calls: changes are to fields of the row, or keyword-only arguments of the constructor."""
        options = {key: value for key, value in changes.items() if key in keywords(cls)}
        return cls(row.with_changes({key: value for key, value in changes.items() if key not in options}), **options)

    @classmethod
    def on_meta(cls: type[N], config: Any, **options: Any) -> N:
        """The network on the meta device: shapes without memory."""
        with torch.device("meta"):
            return cls(config, **options)


def checkpoint_blocks(blocks: Sequence[nn.Module], enable: bool) -> None:
    """Tell `run_block` whether to checkpoint these."""
    for block in blocks:
        block.checkpointing = enable  # type: ignore[assignment]  # mypy takes it for a submodule


def run_block(owner: nn.Module, block: nn.Module, *inputs: Tensor | None) -> Any:
    """`block(*inputs)`, checkpointed if that was enabled and `owner`, the module that runs its blocks, is training."""
    checkpointing = owner.training and getattr(block, "checkpointing", False)
    return checkpointed(block, *inputs) if checkpointing else block(*inputs)

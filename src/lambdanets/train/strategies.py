"""More than one process: whole copies of the network (ddp) or shards of it (fsdp)."""

from typing import Any

from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

from lambdanets.models.blocks import Bottleneck


def make_strategy(name: str) -> str | Strategy:
    """Lightning's strategies by name; fsdp is torch's second, which Lightning has as part of another."""
    if name in ("fsdp", "fsdp2"):
        return ModelParallelStrategy(save_distributed_checkpoint=False)
    return name


def shard(network: nn.Module, mesh: Any) -> None:
    """Block by block, so that one block at a time is whole."""
    for module in network.modules():
        if isinstance(module, Bottleneck):
            fully_shard(module, mesh=mesh)
    fully_shard(network, mesh=mesh)


def whole_weights(network: nn.Module) -> dict[str, Tensor]:
    """Of a network that may be in shards; all processes have to ask together."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return network.state_dict()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights: dict[str, Any] = get_model_state_dict(network, options=options)
    return weights

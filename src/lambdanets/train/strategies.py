"""Several processes: full copies of the network (ddp) or shards of it (fsdp).

Checkpoints do not depend on the strategy: they hold full tensors, and any number of processes can resume from them.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy, ParallelStrategy, Strategy, StrategyRegistry
from lightning_utilities.core.apply_func import apply_to_collection
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from lambdanets.models import Network
from lambdanets.train.config import ConfigError
from lambdanets.train.state_dicts import with_metadata

CONNECTION_ERRORS = (RuntimeError, distributed.DistBackendError)  # raised when another process does not answer
PATIENCE = 3.0  # seconds to wait for a process to end after another has


def make_strategy(name: str) -> str | Strategy:
    """Lightning's strategies by name. fsdp is torch's FSDP2, which Lightning has as part of ModelParallelStrategy."""
    if name in ("fsdp", "fsdp2"):
        return Sharded()
    if name != "auto" and name not in StrategyRegistry.available_strategies():
        raise ConfigError(f"trainer.strategy must be auto, ddp, fsdp or another of Lightning's, got {name}")
    return name


class Sharded(ModelParallelStrategy):
    """Parameters, gradients and the optimiser in shards over all processes.

    Lightning's own checkpoints of this strategy number the optimiser's tensors differently, so that with several
    parameter groups one process could not load them.
    """

    def __init__(self) -> None:
        super().__init__(save_distributed_checkpoint=False)

    def setup_environment(self) -> None:
        self._data_parallel_size, self._tensor_parallel_size = self.num_nodes * self.num_processes, 1
        super().setup_environment()

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.lightning_module is not None
        return whole_state(self.lightning_module)

    def optimizer_state(self, optimizer: Any) -> dict[str, Any]:
        state: dict[str, Any] = whole(
            (optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer).state_dict()
        )
        return state

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        """Load like other strategies, with `HashedCheckpointIO`."""
        return ParallelStrategy.load_checkpoint(self, checkpoint_path, weights_only)

    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.lightning_module is not None
        mine, saved = self.lightning_module.state_dict(), checkpoint["state_dict"]
        parts = {name: part(t, mine[name]) if name in mine else t for name, t in saved.items()}
        parts = with_metadata(parts, getattr(saved, "_metadata", None))
        self.lightning_module.load_state_dict(parts, strict=strict)

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"], strict=True):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            numbers = [number for group in state["param_groups"] for number in group["params"]]
            parts = {
                number: {name: part(value, parameter) for name, value in state["state"].get(number, {}).items()}
                for number, parameter in zip(numbers, parameters, strict=True)
            }
            optimizer.load_state_dict({**state, "state": {number: its for number, its in parts.items() if its}})


def shard(network: nn.Module, mesh: Any) -> None:
    """Shard a network block by block, so that only one block at a time is gathered."""
    if isinstance(network, FSDPModule):  # Lightning may call this twice
        return
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]  # the only format that can be sharded
    for module in (*separate_blocks(network), network):
        # By default the root would stay gathered between forward and backward, and in evaluation permanently.
        fully_shard(module, mesh=mesh, reshard_after_forward=True)


def separate_blocks(network: nn.Module) -> list[nn.Module]:
    """The blocks that a network declares, without those that share parameters with any other part of it.

    A parameter belongs to one group of shards. Parameters that blocks share, such as a table, are in the root group.
    """
    blocks = network.blocks() if isinstance(network, Network) else []
    uses = count_uses(network)
    return [block for block in blocks if all(uses[key] == n for key, n in count_uses(block).items())]


def count_uses(module: nn.Module) -> Counter[int]:
    """The number of names of each parameter inside the module, by id."""
    return Counter(id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False))


def local(tensor: Tensor) -> Tensor:
    """The local shard of a sharded tensor; other tensors unchanged."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tree: Any) -> Any:
    """Gather all tensors of a tree on the CPU. All processes must call this; only the first gets the tensors."""

    def gather(tensor: DTensor) -> Tensor:
        gathered = tensor.full_tensor()
        return gathered.cpu() if distributed.get_rank() == 0 else gathered.new_empty(0)

    return apply_to_collection(tree, DTensor, gather)


def whole_state(module: nn.Module) -> dict[str, Any]:
    """A state dict of full tensors. As with `whole`, all processes must call this."""
    state: Any = module.state_dict()
    return with_metadata(whole(state), state._metadata)


def part(value: Any, like: Tensor) -> Any:
    """Shard a full tensor like `like`; other values are returned unchanged."""
    if not isinstance(like, DTensor) or not isinstance(value, Tensor) or value.shape != like.shape or not value.ndim:
        return value
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


class LostProcessError(RuntimeError):
    """Another process of the run has ended with an error."""


@contextmanager
def ended_together(trainer: Trainer) -> Iterator[None]:
    """End the processes that Lightning started when an error occurs, and report if one of them caused it."""
    try:
        yield
    except BaseException as error:
        others: list[subprocess.Popen[bytes]] = getattr(trainer.strategy.launcher, "procs", [])
        started = [*others]
        others.clear()  # otherwise Lightning would kill this process before it can report the error
        codes = [end(process) for process in started]
        lost = [f"{rank} ended with code {code}" for rank, code in enumerate(codes, 1) if code]
        if lost and type(error) in CONNECTION_ERRORS:
            raise LostProcessError(f"process {', process '.join(lost)}; its error is above") from error
        raise


def end(process: "subprocess.Popen[bytes]") -> int | None:
    """The exit code of a process; None if it had to be killed."""
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def is_distributed() -> bool:
    """Whether there are other processes to exchange tensors with."""
    return distributed.is_available() and distributed.is_initialized()


def sum_over_processes(numbers: Mapping[str, int | float]) -> dict[str, int | float]:
    """By name, added in the order of ranks; processes need not have the same names."""
    gathered = [dict(numbers)]
    if is_distributed():
        gathered *= distributed.get_world_size()
        distributed.all_gather_object(gathered, dict(numbers))
    names = dict.fromkeys(name for one in gathered for name in one)
    return {name: sum(one.get(name, 0) for one in gathered) for name in names}


@torch.no_grad()
def agree_on_buffers(network: nn.Module) -> None:
    """Broadcast the buffers of the first process, which are saved: norms on CPUs are not synchronised."""
    if is_distributed():
        for buffer in network.buffers():
            distributed.broadcast(buffer, 0)

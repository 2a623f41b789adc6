"""Lightning's data module: loaders for this process and the current position in the run."""

from collections.abc import Sized

import torch
from lightning.pytorch import LightningDataModule

from lambdanets.data import Batch, Data, Loader, Position, Share
from lambdanets.train.lockstep import Lockstep


class DataModule(LightningDataModule):
    def __init__(self, data: Data, seed: int) -> None:
        super().__init__()
        self.data, self.seed = data, seed

    def share(self) -> Share:
        assert self.trainer is not None
        return Share(self.trainer.global_rank, self.trainer.world_size)

    def position(self) -> Position:
        """The position in the run, from Lightning's counts, which it restores from checkpoints."""
        assert self.trainer is not None
        loop = self.trainer.fit_loop
        epoch: int = loop.epoch_progress.current.processed  # type: ignore[attr-defined]
        return Position(epoch, loop.epoch_loop.batch_progress.current.ready)

    def train_dataloader(self) -> Loader:
        return self.data.training_loader(seed=self.seed, share=self.share(), position=self.position)

    def val_dataloader(self) -> Loader:
        share = self.share()
        loader = self.data.evaluation_loader(share=share)
        if share.world == 1 or isinstance(loader, Sized):
            return loader
        return Lockstep(loader, self.data.filler())

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Move the tensors only; Lightning would also traverse the names."""
        return batch.to(device)

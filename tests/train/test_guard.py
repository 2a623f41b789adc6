"""Steps that would spoil the weights are not taken."""

import json

import pytest
import torch
from lightning.pytorch import Callback

from lambdanets.runs import RunFolder, train
from lambdanets.train import checkpoints
from lambdanets.train.checkpointing import StoppedError
from lambdanets.train.guard import NonFiniteLossError
from tiny import Stop, tiny


class Spoil(Callback):
    """Makes the loss or a gradient of some steps nonsense, and looks at what comes of it."""

    def __init__(self, steps: set[int], where: str) -> None:
        self.steps, self.where = steps, where
        self.changed: dict[int, list[str]] = {}

    def state(self, trainer, module) -> dict[str, torch.Tensor]:
        optimizer = trainer.optimizers[0].state
        momenta = {
            f"momentum {i}": s["momentum_buffer"]
            for i, s in enumerate(optimizer.values())
            if s.get("momentum_buffer") is not None
        }
        return {name: t.clone() for name, t in {**module.state_dict(), **momenta}.items()}

    def on_train_batch_start(self, trainer, module, batch, index) -> None:
        self.before, self.step, self.names = self.state(trainer, module), trainer.global_step, batch.names
        weight = module.model.classifier.weight
        if self.step in self.steps and self.where == "loss":
            if weight.isfinite().all():  # not yet spoilt by an earlier batch of the step
                self.kept = weight.detach().clone()
            weight.data.fill_(float("nan"))

    def on_before_optimizer_step(self, trainer, module, optimizer) -> None:
        if self.step in self.steps and self.where == "loss":
            module.model.classifier.weight.data.copy_(self.kept)

    def on_after_backward(self, trainer, module) -> None:
        if self.step in self.steps and self.where == "gradient":
            next(module.model.parameters()).grad.view(-1)[0] = float("inf")

    def on_train_batch_end(self, trainer, module, *rest) -> None:
        after = self.state(trainer, module)
        self.changed[self.step] = [
            n for n, t in after.items() if n not in self.before or not torch.equal(t, self.before[n])
        ]


@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_bad_step_changes_nothing_and_its_images_are_written_down(where, tmp_path):
    spoil = Spoil({2, 5}, where)
    train(tiny("optim.weight_decay=0.1"), RunFolder(tmp_path), callbacks=[spoil])
    assert spoil.changed[2] == spoil.changed[5] == []
    assert all("model.stem.0.weight" in changed for step, changed in spoil.changed.items() if step not in (2, 5))
    lines = [json.loads(line) for line in (tmp_path / "nonfinite.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 5]
    assert all(len(line["images"]) == 32 for line in lines)


def test_three_in_a_row_end_the_run_and_leave_a_good_checkpoint(tmp_path):
    with pytest.raises(
        NonFiniteLossError, match=r"3 steps in a row, up to step 6; .*nonfinite\.jsonl lists the images"
    ):
        train(tiny("checkpoint_seconds=0"), RunFolder(tmp_path), callbacks=[Spoil({3, 4, 5}, "loss")])
    _, state, complaints = checkpoints.newest_intact(tmp_path / "checkpoints")
    assert not complaints
    assert all(t.isfinite().all() for t in state["state_dict"].values() if t.is_floating_point())


def test_three_in_a_row_are_three_across_an_interruption(tmp_path):
    config = tiny("checkpoint_seconds=0")
    with pytest.raises(StoppedError):
        train(config, RunFolder(tmp_path), callbacks=[Spoil({2, 3}, "loss"), Stop(after=3)])
    with pytest.raises(NonFiniteLossError, match="up to step 5"):
        train(config, RunFolder(tmp_path), callbacks=[Spoil({4}, "loss")], resume=True)


def test_all_batches_of_an_accumulated_step_are_named(tmp_path):
    train(tiny("trainer.accumulate_grad_batches=2"), RunFolder(tmp_path), callbacks=[Spoil({1}, "loss")])
    (line,) = map(json.loads, (tmp_path / "nonfinite.jsonl").read_text().splitlines())
    assert len(line["images"]) == 64
    assert len(line["losses"]) == 2

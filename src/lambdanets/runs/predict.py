"""Predicts with the network of a run."""

from collections.abc import Iterator, Sequence

import torch

from lambdanets.nn.modes import evaluating
from lambdanets.runs.folder import RunFolder
from lambdanets.runs.restore import fastest_device, restore
from lambdanets.train.task import Prediction


class Predictor:
    """The network and the task of a run, loaded once."""

    def __init__(self, run: RunFolder) -> None:
        network, self.task, self.complaints = restore(run)
        self.network = network.to(fastest_device())

    def predict(self, inputs: Sequence[str], *, top: int = 5) -> Iterator[Prediction]:
        """Predictions in order. The task defines what inputs are, such as image files."""
        predictions = self.task.predict(self.network, inputs, top=top)
        while True:
            # Not around the `yield`: the caller's code must not run in these modes.
            with torch.no_grad(), evaluating(self.network):
                prediction = next(predictions, None)
            if prediction is None:
                return
            yield prediction

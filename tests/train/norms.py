"""The batch-norm statistics of a finished run, compared with those that its weights and data give."""

from lambdanets.runs import RunFolder
from lambdanets.runs.assembly import assemble
from lambdanets.runs.restore import restore
from lambdanets.train import norm_statistics
from lambdanets.train.norm_statistics import estimate_statistics


def statistics_differences(run: RunFolder) -> dict[str, float]:
    """The largest difference in each buffer of the network."""
    network = restore(run).network
    _, task, data, learner = assemble(run.config())
    average = learner.average
    average.load_state_dict(network.state_dict())
    batches = data.sample_loader(norm_statistics.FINAL_ITEMS)
    estimate_statistics(average, batches, lambda batch: task.forward(average, batch))
    found = {name: float((b - network.get_buffer(name)).abs().max()) for name, b in average.named_buffers()}
    assert any("running_var" in name for name in found)
    return found

"""The batch-norm statistics of a finished run, compared with those that its weights and data give."""

from lambdanets.data import open_data
from lambdanets.train import norm_statistics
from lambdanets.train.assemble import make_classifier
from lambdanets.train.folder import RunFolder
from lambdanets.train.norm_statistics import NormStatistics, estimate_statistics


def statistics_differences(run: RunFolder) -> dict[str, float]:
    """The largest difference in each buffer of the network."""
    config, (network, _) = run.config(), run.network()
    data = open_data(config.data)
    classifier = make_classifier(config, data)
    average = classifier.average
    average.load_state_dict(network.state_dict())
    batches = NormStatistics(data, config.data.image_size).batches(classifier, norm_statistics.FINAL_IMAGES)
    estimate_statistics(average, batches)
    found = {name: float((b - network.get_buffer(name)).abs().max()) for name, b in average.named_buffers()}
    assert any("running_var" in name for name in found)
    return found

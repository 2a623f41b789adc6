"""The pictures of the page, one file each.

Accuracies are always the paper's and are labelled as such. Rows that lack a figure are omitted.
"""

from collections.abc import Sequence

from lambdanets.paper.entries import PublishedEntry
from lambdanets.paper.measure import Measurement
from lambdanets.paper.pictures.drawing import Picture
from lambdanets.paper.pictures.placement import placements
from lambdanets.paper.pictures.scope import scopes
from lambdanets.paper.pictures.sizes import sizes
from lambdanets.paper.pictures.speed import speeds
from lambdanets.paper.sizes import Counted

__all__ = ["Picture", "pictures"]


def pictures(
    entries: Sequence[PublishedEntry], counted: Sequence[Counted], measurement: Measurement | None
) -> list[Picture]:
    """The pictures that have data."""
    made = (sizes(counted), scopes(entries), placements(entries, measurement), speeds(entries, measurement))
    return [picture for picture in made if picture is not None]

"""Table 9: cost and accuracy by scope."""

from collections.abc import Sequence

from lambdanets.paper.entries import PublishedEntry, ours, published
from lambdanets.paper.pictures.drawing import BLUE, ORANGE, TOP1, Picture, new_figure, svg

CAPTION = (
    "Table 9, LambdaResNet-50 with placement C-L-L-L: beyond 15x15 a wider scope costs FLOPs and brings no accuracy. "
    "FLOPs are counted by this library, accuracies are the paper's."
)


def scopes(entries: Sequence[PublishedEntry]) -> Picture | None:
    counted, printed = ours(entries, 9, "flops_G"), published(entries, 9, "flops_G")
    top1 = published(entries, 9, "top1")
    if not counted:
        return None
    figure, (cost, accuracy) = new_figure(9.5, 3.6, 2)
    cost.scatter(list(printed), list(printed.values()), 120, "none", edgecolors=ORANGE, label="the paper's")
    cost.plot(list(counted), list(counted.values()), "o-", markersize=5, color=BLUE, label="counted by this library")
    cost.set_ylabel("FLOPs, G")
    cost.set_ylim(bottom=0)
    cost.legend(fontsize=8)
    accuracy.plot(list(top1), list(top1.values()), "o-", color=ORANGE)
    accuracy.set_ylabel(TOP1)
    for axes in (cost, accuracy):
        axes.set_xlabel("scope of the position lambdas")
    return Picture("Scope", CAPTION, svg(figure))

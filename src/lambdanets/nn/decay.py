"""Which matrices weight decay leaves alone."""

from torch import nn

from lambdanets.nn.attention.positions import PositionTable
from lambdanets.nn.tables import RelationTable


def tables_without_decay(model: nn.Module) -> set[str]:
    """Names of relative tables and learned positions.

    Many of their rows get a gradient from few positions only: decay would pull at all alike.
    """
    kinds = (RelationTable, PositionTable)
    tables = {id(p) for m in model.modules() if isinstance(m, kinds) for p in m.parameters(recurse=False)}
    return {name for name, parameter in model.named_parameters() if id(parameter) in tables}

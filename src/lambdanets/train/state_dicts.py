"""State dicts that keep torch's `_metadata`, which a dict of the same tensors would lose.

The metadata holds the versions of modules and the geometry of tables, which `load_state_dict` checks.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any


def with_metadata(tensors: Mapping[str, Any], metadata: Any) -> OrderedDict[str, Any]:
    """The tensors as a state dict with this metadata; None for none."""
    state: Any = OrderedDict(tensors)
    if metadata is not None:
        state._metadata = metadata
    found: OrderedDict[str, Any] = state
    return found


def below(state: Mapping[str, Any], name: str) -> OrderedDict[str, Any]:
    """The state dict of a submodule, from that of a module that holds it as `name`."""
    prefix, metadata = f"{name}.", getattr(state, "_metadata", None)
    if metadata is not None:
        metadata = OrderedDict(
            (key[len(prefix) :], value) for key, value in metadata.items() if f"{key}.".startswith(prefix)
        )
    return with_metadata({key[len(prefix) :]: t for key, t in state.items() if key.startswith(prefix)}, metadata)

"""The geometry of a module in its state dict: what the shapes of its tensors do not show.

A table for 3 x 5 offsets and one for 5 x 3 both have 15 rows, and 2 heads of depth 8 have as many channels as 4 of
depth 4. Loading one into the other would give wrong outputs without an error.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn

SavedGeometry = Mapping[str, int | tuple[int, ...]]
KEY = "geometry"


class SavesGeometry(nn.Module):
    """A module whose state dict records its geometry, and which refuses one that records another.

    A state dict without a record is checked by torch alone, which compares names and shapes.

    The record is in the state dict's `_metadata`, where torch keeps the versions of modules. A tensor of its own or
    `get_extra_state` would survive formats that keep tensors only, but would change the public names in state dicts
    and make all older files incomplete.
    """

    laid_out: ClassVar[tuple[str, ...]]  # names of the tensors whose meaning depends on the geometry
    remedy: ClassVar[str] = "build the layer with the saved values before loading"

    def saved_geometry(self) -> SavedGeometry:
        """What decides the meaning of these tensors, under the names of the arguments that decide it."""
        raise NotImplementedError

    def geometry_text(self, geometry: SavedGeometry) -> str:
        """A geometry as the arguments of a layer that has it."""
        return ", ".join(f"{name}={value}" for name, value in geometry.items())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if hasattr(destination, "_metadata"):
            own = dict(self.named_parameters(remove_duplicate=False))
            shapes = {name: tuple(own[name].shape) for name in self.laid_out if name in own}
            destination._metadata[prefix[:-1]][KEY] = {**self.saved_geometry(), "shapes": shapes}

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        saved = dict(local_metadata.get(KEY, {}))
        shapes, own = saved.pop("shapes", {}), dict(self.saved_geometry())
        given = {name: state_dict[prefix + name].shape for name in shapes if prefix + name in state_dict}
        # Tensors that were removed, or replaced by some of another shape, are not those that the record describes.
        if saved != own and given and all(shape == shapes[name] for name, shape in given.items()):
            name, theirs, ours = prefix + next(iter(given)), self.geometry_text(saved), self.geometry_text(own)
            error_msgs.append(
                f"{name} was saved with {theirs}, but this {type(self).__name__} has {ours}; {self.remedy}."
            )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

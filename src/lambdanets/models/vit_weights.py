"""Conversion of state dicts of torchvision's and timm's ViTs."""

import re
from collections.abc import Mapping

from torch import Tensor

from lambdanets.models.from_torch import split_heads

BLOCK = r"(?:encoder\.layers\.encoder_layer_|blocks\.)(\d+)\."
# Regular expressions of their names, torchvision's first, and the names here.
NAMES = {
    r"class_token|cls_token": "class_token.weight",
    r"encoder\.pos_embedding|pos_embed": "positions.weight",
    r"(?:conv_proj|patch_embed\.proj)\.(\w+)": r"patches.\1",
    rf"{BLOCK}(?:ln_1|norm1)\.(\w+)": r"encoder.blocks.\1.mix.norm.\2",
    rf"{BLOCK}(?:self_attention\.in_proj_|attn\.qkv\.)(\w+)": r"encoder.blocks.\1.mix.layer.heads.\2",
    rf"{BLOCK}(?:self_attention\.out_proj|attn\.proj)\.(\w+)": r"encoder.blocks.\1.mix.layer.heads.out.\2",
    rf"{BLOCK}(?:ln_2|norm2)\.(\w+)": r"encoder.blocks.\1.feed.norm.\2",
    rf"{BLOCK}mlp\.(?:0|linear_1|fc1)\.(\w+)": r"encoder.blocks.\1.feed.layer.expand.\2",
    rf"{BLOCK}mlp\.(?:3|linear_2|fc2)\.(\w+)": r"encoder.blocks.\1.feed.layer.reduce.\2",
    r"(?:encoder\.ln|norm)\.(\w+)": r"encoder.norm.\1",
    r"(?:heads\.head|head)\.(\w+)": r"classifier.\1",
}


def vit_weights(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert the state dict of a ViT of torchvision or timm with a class token to that of our `ViT`.

    model = create_model("vit_base"); model.load_state_dict(vit_weights(torchvision.models.vit_b_16().state_dict()))
    """
    ours: dict[str, Tensor] = {}
    for their_name, tensor in theirs.items():
        name = rename(their_name)
        if name.endswith((".heads.weight", ".heads.bias")):
            prefix, _, kind = name.rpartition(".")
            ours.update(split_heads(prefix, kind, tensor))
        elif name == "class_token.weight":
            ours[name] = tensor.flatten()
        else:
            ours[name] = tensor[0] if name == "positions.weight" else tensor
    return ours


def rename(name: str) -> str:
    """
    >>> rename("encoder.layers.encoder_layer_3.ln_1.bias"), rename("blocks.3.norm1.bias")
    ('encoder.blocks.3.mix.norm.bias', 'encoder.blocks.3.mix.norm.bias')
    """
    for theirs, ours in NAMES.items():
        if found := re.fullmatch(theirs, name):
            return found.expand(ours)
    raise ValueError(f"vit_weights: {name} is not part of a ViT of torchvision or timm that ours can be")

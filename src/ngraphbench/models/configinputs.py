"""The inputs of a module that transformers made: their sizes stand in its configuration."""

from __future__ import annotations

import inspect
from typing import Any

from ngraphbench.models.inputs import BATCH, Declared

__all__ = ["declared_inputs"]

SEQUENCE = "sequence"
IMAGE_SIDE = 224


def declared_inputs(module: Any) -> list[Declared] | None:
    """Return the inputs of a transformers module, or None where its configuration does not say.

    Tokens are below the vocabulary's size, in sequences of a length that is free; masks let
    all of them through; images have the configuration's channels and size, else 224x224.
    """
    names = list(inspect.signature(module.forward).parameters)
    main = getattr(module, "main_input_name", names[0] if names else "")
    if main == "pixel_values":
        return [_images(module.config)]
    if main != "input_ids":
        return None
    found = _tokens(module.config, names)
    # Models of text and images need both where they compare the two.
    if hasattr(module, "logit_scale") and "pixel_values" in names:
        found.append(_images(module.config.vision_config))
    return found


def _tokens(config: Any, names: list[str]) -> list[Declared]:
    text = config.get_text_config()
    vocabulary = int(getattr(text, "vocab_size", 0) or getattr(config, "vocab_size", 0) or 2)
    shape = (BATCH, SEQUENCE)
    found = [Declared("input_ids", "int64", shape, generator=f"int:0:{vocabulary}")]
    if "attention_mask" in names:
        found.append(Declared("attention_mask", "int64", shape, generator="const:1"))
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in names:
        found.append(Declared("decoder_input_ids", "int64", shape, generator=f"int:0:{vocabulary}"))
    return found


def _images(config: Any) -> Declared:
    inner = config
    for name in ("vision_config", "backbone_config", "encoder"):
        if not hasattr(inner, "num_channels") and getattr(inner, name, None) is not None:
            inner = getattr(inner, name)
    size = getattr(inner, "image_size", None)
    sides = size if isinstance(size, (list, tuple)) else (size, size)
    height, width = (int(side or IMAGE_SIDE) for side in sides)
    dims: list[int | str] = [BATCH, int(getattr(inner, "num_channels", 3)), height, width]
    frames = getattr(inner, "num_frames", None)
    if frames:
        dims.insert(1, int(frames))
    return Declared("pixel_values", "float32", tuple(dims), strict=size is not None)

"""Models made of one repeated block: ``block:FAMILY?depth=4&width=64&resolution=56``.

A stem (a strided convolution to ``width`` channels at a quarter of the resolution) and a head
that stay the same, and between them ``depth`` times the same block, which is timm's own class.
Torch and timm are imported inside the functions; the rest needs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ngraphbench.errors import SpecError, Unavailable, Unsupported, nearest
from ngraphbench.types import Json

__all__ = ["DEFAULTS", "FAMILIES", "HYBRIDS", "block_sizes", "build_block", "count_block"]

STRIDE = 4
CLASSES = 10
HEAD_WIDTH = 32
"""Channels of one attention head."""

DEFAULTS = {"depth": 4, "width": 64, "resolution": 56}
FEWEST = {"depth": 1, "width": 32, "resolution": 8}
STEPS = {"depth": 1, "width": 32, "resolution": 8}
"""Sizes are multiples of these, so that every family can take them."""

FAMILIES = {
    "basic": "ResNet basic block: two 3x3 convolutions",
    "bottleneck": "ResNet bottleneck: 1x1, 3x3, 1x1 convolutions at a quarter of the width",
    "mbconv": "MBConv of EfficientNet: expansion 6, depthwise 3x3, squeeze and excite",
    "convnext": "ConvNeXt: depthwise 7x7, LayerNorm, MLP of 4 times the width",
    "vit": "ViT: attention over all positions, MLP of 4 times the width",
    "swin": "Swin: attention in windows of 7x7, every other one shifted",
    "mobilevit": "MobileViT, a hybrid: convolutions around two transformer blocks",
    "split": "encoder of split computing: strided residual convolutions, then residual"
    " blocks, ending in a narrow bottleneck that would be sent",
}
"""Names and what is repeated."""


HYBRIDS = ("mobilevit",)
"""Families whose block is made of unlike parts; the others repeat one simple pattern."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """A stem, what makes the block of a number, and a head."""

    stem: Any
    block: Callable[[int], Any]
    head: Any


def block_sizes(family: str, args: Mapping[str, Any]) -> dict[str, int]:
    """Return depth, width and resolution with defaults filled in.

    Raises SpecError for an unknown family, an unknown argument, and sizes that do not fit.
    """
    if family not in FAMILIES:
        raise SpecError(
            f"There is no family of blocks {family!r}.",
            reason="unknown-model",
            hint=nearest(family, list(FAMILIES)) or f"They are {', '.join(FAMILIES)}.",
        )
    unknown = [key for key in args if key not in DEFAULTS]
    if unknown:
        raise SpecError(
            f"block:{family} takes no argument {unknown[0]!r}.",
            reason="model-args",
            hint=f"It takes {', '.join(DEFAULTS)}.",
        )
    sizes = {**DEFAULTS, **args}
    for key, value in sizes.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < FEWEST[key] or value % STEPS[key]:
            raise SpecError(
                f"block:{family}: {key} cannot be {value!r}.",
                reason="model-args",
                hint=f"Give a multiple of {STEPS[key]}."
                if STEPS[key] > 1
                else "Give a whole number from 1 on.",
            )
    return sizes


def build_block(model: Json, *, pretrained: bool = False) -> Any:
    """Return the torch module of a model reference of kind ``block``.

    It takes images (batch, 3, resolution, resolution) and returns (batch, 10), or the
    bottleneck's features for ``split``. Raises SpecError, Unavailable without torch or timm,
    Unsupported for pretrained weights.
    """
    if pretrained:
        raise Unsupported("Blocks have no pretrained weights.", reason="weights")
    family = str(model["source"]).partition("?")[0].partition(":")[2]
    sizes = block_sizes(family, model.get("args", {}))
    _check_libraries()
    from torch import nn

    width, side = sizes["width"], sizes["resolution"] // STRIDE
    parts = _FAMILY_PARTS[family](width, side)
    return nn.Sequential(parts.stem, *(parts.block(i) for i in range(sizes["depth"])), parts.head)


def count_block(family: str, args: Mapping[str, Any]) -> dict[str, int]:
    """Return ``parameters`` and ``flops`` of one image, of the whole and of one more block.

    FLOPs are those that torch.utils.flop_counter knows (convolutions, matrix products,
    attention), a multiplication and an addition counting as two. Raises SpecError, and
    Unavailable without torch or timm.
    """
    sizes = block_sizes(family, args)
    _check_libraries()
    parameters, flops = _counts(family, sizes)
    # Two more, since every other Swin block is shifted.
    deeper = _counts(family, {**sizes, "depth": sizes["depth"] + 2})
    return {
        "parameters": parameters,
        "flops": flops,
        "block_parameters": (deeper[0] - parameters) // 2,
        "block_flops": (deeper[1] - flops) // 2,
    }


def _check_libraries() -> None:
    try:
        for name in ("torch", "timm.models"):
            import_module(name)
    except ImportError as error:
        raise Unavailable(
            f"Blocks are timm's, which cannot be imported: {error}.",
            reason="import",
            hint="pip install 'ngraphbench[torch]'",
        ) from error


def _counts(family: str, sizes: Mapping[str, int]) -> tuple[int, int]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        module = build_block({"source": f"block:{family}", "args": dict(sizes)}).eval()
        image = torch.empty(1, 3, sizes["resolution"], sizes["resolution"])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(image)
    return sum(p.numel() for p in module.parameters()), int(counter.get_total_flops())


def _image_parts(width: int, block: Callable[[int], Any]) -> _Parts:
    """Return parts of a network whose blocks take (batch, width, height, width)."""
    from torch import nn

    stem = nn.Sequential(
        nn.Conv2d(3, width, STRIDE, stride=STRIDE, bias=False), nn.BatchNorm2d(width), nn.ReLU()
    )
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(width, CLASSES))
    return _Parts(stem, block, head)


def _basic(width: int, side: int) -> _Parts:
    from timm.models.resnet import BasicBlock

    return _image_parts(width, lambda _: BasicBlock(width, width))


def _bottleneck(width: int, side: int) -> _Parts:
    from timm.models.resnet import Bottleneck

    return _image_parts(width, lambda _: Bottleneck(width, width // Bottleneck.expansion))


def _mbconv(width: int, side: int) -> _Parts:
    from functools import partial

    from timm.models._efficientnet_blocks import InvertedResidual, SqueezeExcite
    from torch import nn

    expansion = 6
    excite = partial(SqueezeExcite, rd_ratio=0.25 / expansion)
    return _image_parts(
        width,
        lambda _: InvertedResidual(
            width, width, exp_ratio=expansion, act_layer=nn.SiLU, se_layer=excite
        ),
    )


def _convnext(width: int, side: int) -> _Parts:
    from timm.models.convnext import ConvNeXtBlock

    # A trained layer scale is of this order; its start of 1e-6 would hide errors.
    return _image_parts(width, lambda _: ConvNeXtBlock(width, ls_init_value=0.1))


def _mobilevit(width: int, side: int) -> _Parts:
    from timm.models.mobilevit import MobileVitBlock

    return _image_parts(
        width, lambda _: MobileVitBlock(width, patch_size=2, num_heads=width // HEAD_WIDTH)
    )


def _vit(width: int, side: int) -> _Parts:
    import torch
    from timm.models.vision_transformer import Block
    from torch import nn

    class ToTokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, STRIDE, stride=STRIDE)
            self.position = nn.Parameter(torch.randn(1, side * side, width) * 0.02)

        def forward(self, x: Any) -> Any:
            return self.patches(x).flatten(2).transpose(1, 2) + self.position

    def block(index: int) -> Any:
        return Block(width, width // HEAD_WIDTH, qkv_bias=True)

    return _Parts(ToTokens(), block, _mean(width, 1))


def _swin(width: int, side: int) -> _Parts:
    from timm.models.swin_transformer import SwinTransformerBlock
    from torch import nn

    class ToGrid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, width, STRIDE, stride=STRIDE)
            self.norm = nn.LayerNorm(width)

        def forward(self, x: Any) -> Any:
            return self.norm(self.patches(x).permute(0, 2, 3, 1))

    window = 7

    def block(index: int) -> Any:
        return SwinTransformerBlock(
            width,
            input_resolution=(side, side),
            num_heads=width // HEAD_WIDTH,
            window_size=window,
            shift_size=window // 2 if index % 2 else 0,
        )

    return _Parts(ToGrid(), block, _mean(width, 1, 2))


def _mean(width: int, *axes: int) -> Any:
    """Return a head that normalises, averages over positions and classifies."""
    from torch import nn

    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(width)
            self.classify = nn.Linear(width, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.classify(self.norm(x).mean(axes))

    return Mean()


def _split(width: int, side: int) -> _Parts:
    from timm.models.resnet import BasicBlock, downsample_conv
    from torch import nn

    def strided(channels: int, out: int) -> Any:
        shortcut = downsample_conv(channels, out, kernel_size=1, stride=2)
        return BasicBlock(channels, out, stride=2, downsample=shortcut)

    stem = nn.Sequential(strided(3, width // 2), strided(width // 2, width))
    head = nn.Conv2d(width, width // 8, kernel_size=1)
    return _Parts(stem, lambda _: BasicBlock(width, width), head)


_FAMILY_PARTS: dict[str, Callable[[int, int], _Parts]] = {
    "basic": _basic,
    "bottleneck": _bottleneck,
    "mbconv": _mbconv,
    "convnext": _convnext,
    "vit": _vit,
    "swin": _swin,
    "mobilevit": _mobilevit,
    "split": _split,
}

"""Tiny checkpoints that an engine can load, made from nothing: configuration, weights, tokenizer and processor."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from porting import host, models

# The tokens after the 256 bytes, in the order of the ids that the configurations give them.
QWEN_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
CHAT = """\
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% for part in message.content -%}
{%- if part.type == 'text' -%}{{ part.text }}{%- else -%}<|vision_start|><|image_pad|><|vision_end|>{%- endif -%}
{%- endfor -%}<|im_end|>
{% endfor -%}
<|im_start|>assistant
"""


@dataclass(frozen=True)
class Processor:
    """The classes of transformers that a family's processor is made of; pictures have up to `pixels` pixels."""

    name: str
    image: str
    video: str
    pixels: int = 112 * 112


PROCESSORS = {
    "Qwen2VLForConditionalGeneration": Processor("Qwen2VLProcessor", "Qwen2VLImageProcessor", "Qwen2VLVideoProcessor"),
    "Qwen2_5_VLForConditionalGeneration": Processor(
        "Qwen2_5_VLProcessor", "Qwen2VLImageProcessor", "Qwen2VLVideoProcessor"
    ),
    "Qwen3VLForConditionalGeneration": Processor("Qwen3VLProcessor", "Qwen2VLImageProcessor", "Qwen3VLVideoProcessor"),
}


def write(folder: Path, architecture: str) -> None:
    """Write a checkpoint of an architecture of PROCESSORS into an empty folder. The same bytes every time.

    Weights are float32, made from their names; the language model knows the 256 bytes and a few tokens about pictures.
    """
    import transformers

    config = models.config(architecture)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = transformers.AutoModelForImageTextToText.from_config(transformers.AutoConfig.from_pretrained(folder))
    host.fill(model)
    model.save_pretrained(folder)

    recipe = PROCESSORS[architecture]
    vision = config["vision_config"]
    sizes = {name: vision[name] for name in ("patch_size", "temporal_patch_size")}
    sizes |= {
        "merge_size": vision["spatial_merge_size"],
        "size": {"shortest_edge": 28 * 28, "longest_edge": recipe.pixels},
    }
    parts = [getattr(transformers, part)(**sizes) for part in (recipe.image, recipe.video)]
    processor = getattr(transformers, recipe.name)(parts[0], tokenizer(), parts[1], chat_template=CHAT)
    processor.save_pretrained(folder)


def tokenizer() -> Any:
    """Of bytes, with QWEN_TOKENS."""
    import transformers
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = sorted(ByteLevel.alphabet())
    made = transformers.Qwen2Tokenizer(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[])
    made.add_tokens(list(QWEN_TOKENS), special_tokens=True)
    return made

"""The tokenizer: Qwen2's own class and rules, with a small vocabulary in which every word the models know is one token.

Then the text Qwen-Image puts before a prompt is exactly 34 tokens long, as its pipelines take for granted.
"""

from __future__ import annotations

import json

from tokenizers import Tokenizer, models, trainers
from tokenizers.pre_tokenizers import ByteLevel
from transformers import Qwen2Tokenizer

from demo_app.training import prompts, questions

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
ROLES = "system user assistant You are a helpful assistant."

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for part in message.content %}"
    "{% if part.type in ('image', 'image_url') or 'image' in part or 'image_url' in part %}"
    "<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def texts() -> list[str]:
    """All that is ever said, drawn or put around it; special tokens replaced by line breaks."""
    drawn = [prompt.text for part in prompts.split() for prompt in part]
    around = prompts.TEMPLATE
    for token in SPECIAL:
        around = around.replace(token, "\n")
    return [*questions.words(), *drawn, around, ROLES]


def make() -> Qwen2Tokenizer:
    """Byte pairs merged until every word of `texts` is whole."""
    shell = Qwen2Tokenizer(vocab={}, merges=[])
    bare = Tokenizer(models.BPE())
    bare.normalizer = shell.backend_tokenizer.normalizer
    bare.pre_tokenizer = shell.backend_tokenizer.pre_tokenizer
    letters = sorted(ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=4096, min_frequency=1, initial_alphabet=letters, show_progress=False)
    bare.train_from_iterator(sorted(set(texts())), trainer)
    made = json.loads(bare.to_str())["model"]
    vocabulary = dict(sorted(made["vocab"].items(), key=lambda item: item[1]))
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=[tuple(pair) for pair in made["merges"]],
        additional_special_tokens=list(SPECIAL[1:]),
        eos_token="<|im_end|>",
        model_max_length=2048,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer

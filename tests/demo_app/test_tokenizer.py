"""Every word the small models know is one token, so Qwen-Image's fixed prefix has the length its pipeline drops."""

from __future__ import annotations

import pytest

from demo_app.training import prompts, questions, shapes, tokenizer


@pytest.fixture(scope="module")
def words():
    return tokenizer.make()


def test_the_prefix_of_a_prompt_is_34_tokens(words):
    prefix, _ = prompts.TEMPLATE.split("{}")
    assert len(words(prefix).input_ids) == prompts.PREFIX_TOKENS == 34
    whole = words(prompts.TEMPLATE.format("a red circle on a white background")).input_ids
    assert words.decode(whole[34:41]) == "a red circle on a white background"


@pytest.mark.parametrize(
    "name", [*shapes.COLOURS, *shapes.SHAPES, *shapes.BACKGROUNDS, *(f"{s}s" for s in shapes.SHAPES)]
)
def test_names_are_single_tokens_inside_and_at_the_start_of_a_sentence(words, name):
    assert len(words.tokenize(f" {name}")) == 1
    assert len(words.tokenize(name.title())) == 1


def test_specials_are_single_tokens(words):
    for token in tokenizer.SPECIAL:
        assert words(token).input_ids == [words.convert_tokens_to_ids(token)]


@pytest.mark.parametrize("text", ["What is on the left?", "Grüße, 你好 🙂 42!", "  two  spaces\n\nand lines"])
def test_any_text_comes_back(words, text):
    assert words.decode(words(text).input_ids) == text


def test_the_chat_template_puts_pictures_where_they_were_said(words):
    content = [{"type": "image"}, {"type": "text", "text": questions.DESCRIBE[0]}]
    text = words.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Describe the picture.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
